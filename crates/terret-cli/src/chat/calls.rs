//! Tool calls for people: a line for a call, a few for its result, and a question about one.

use serde_json::Value;
use terret::llm::{Content, ToolCall, ToolResultMessage};

use super::look::{ASKING, BAD, BOLD, DIM, GOOD, Look, columns, fit};
use crate::output::{clean, line};

/// How many lines of a result are shown, of a difference, and of what is asked about.
const OF_RESULT: usize = 6;
const OF_DIFF: usize = 40;
const OF_QUESTION: usize = 60;

/// A call on a line: its tool, and the argument that says most.
pub(crate) fn call(look: Look, width: usize, call: &ToolCall) -> String {
    let name = line(&call.name);
    let name = fit(&name, width / 2);
    let room = width.saturating_sub(columns(&name) + 3);
    format!("{} {}", look.paint(BOLD, &format!("• {name}")), fit(&headline(call), room))
}

/// What came of it.
pub(crate) fn result(look: Look, width: usize, result: &ToolResultMessage) -> Vec<String> {
    let (mark, style) = if result.is_error { ("✗", BAD) } else { ("✓", GOOD) };
    let text: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
    let text = plain(&text.join("\n"));
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let details = result.details.as_ref().and_then(|details| serde_json::to_value(details).ok());
    let diff = details.as_ref().and_then(|details| details.get("diff")?.as_str());
    let most = if diff.is_some() { 1 } else { OF_RESULT };
    // How it ended, and how it began.
    let end = if lines.len() > most { most / 2 } else { 0 };
    let mut rows = Vec::new();
    for (n, line) in lines.iter().take(most - end).enumerate() {
        let lead = if n == 0 { look.paint(style, mark) } else { " ".into() };
        rows.push(format!("  {lead} {}", look.paint(DIM, &fit(line, width.saturating_sub(4)))));
    }
    if lines.is_empty() {
        rows.push(format!("  {} {}", look.paint(style, mark), look.paint(DIM, "no output")));
    }
    match diff {
        Some(diff) => rows.extend(changes(look, width, diff, OF_DIFF)),
        None => rows.extend(more(look, lines.len(), most)),
    }
    for line in lines.iter().skip(lines.len() - end) {
        rows.push(format!("    {}", look.paint(DIM, &fit(line, width.saturating_sub(4)))));
    }
    rows
}

/// That it is not known, because it was stopped.
pub(crate) fn stopped(look: Look) -> String {
    format!("  {} {}", look.paint(BAD, "✗"), look.paint(DIM, "stopped"))
}

/// What somebody has to decide about, in full as far as that can be read.
pub(crate) fn question(look: Look, width: usize, call: &ToolCall, text: &str) -> Vec<String> {
    let arguments = call.arguments.parse::<Value>().unwrap_or_default();
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str);
    let about = argument("path").map(line).unwrap_or_default();
    let name = line(&call.name);
    // The whole of it: the end of a path is what tells it from others.
    let mut rows = vec![format!("{} {about}", look.paint(ASKING, &format!("? {name}")))];
    let edits = arguments.get("edits").and_then(Value::as_array);
    match (argument("command"), edits, argument("content")) {
        (Some(command), None, None) => rows.extend(whole(look, command)),
        (None, Some(edits), None) => {
            let side = |edit: &Value, name: &str, mark: &str| {
                let text = edit.get(name).and_then(Value::as_str).unwrap_or_default();
                marked(mark, text)
            };
            let edits = edits.iter().map(|edit| side(edit, "oldText", "-") + &side(edit, "newText", "+"));
            rows.extend(changes(look, width, &edits.collect::<Vec<_>>().join("@@\n"), OF_QUESTION));
        }
        (None, None, Some(content)) => rows.extend(changes(look, width, &marked("+", content), OF_QUESTION)),
        _ => rows.extend(whole(look, &readable(call))),
    }
    // What is asked may repeat the command, which stands there already.
    let text = argument("command").and_then(|command| text.strip_suffix(command)).unwrap_or(text);
    rows.extend(clean(text).lines().map(|line| look.paint(DIM, &format!("  {line}"))));
    rows
}

/// What a question is about, on a line.
pub(crate) fn reminder(look: Look, width: usize, call: &ToolCall) -> String {
    let name = line(&call.name);
    let text = format!("? {name} {}", headline(call));
    look.paint(ASKING, &fit(&text, width))
}

/// The arguments as somebody can edit them.
pub(crate) fn readable(call: &ToolCall) -> String {
    let text = call.arguments.as_str();
    let pretty = serde_json::from_str::<Value>(text).and_then(|value| serde_json::to_string_pretty(&value));
    pretty.unwrap_or_else(|_| text.to_owned())
}

/// Nothing of a line may hide behind the margin: the terminal wraps it.
fn whole(look: Look, text: &str) -> Vec<String> {
    let text = plain(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut rows: Vec<String> = lines.iter().take(OF_QUESTION).map(|line| format!("  {line}")).collect();
    rows.extend(more(look, lines.len(), OF_QUESTION));
    rows
}

/// A difference in colours, without the names of its files.
fn changes(look: Look, width: usize, diff: &str, most: usize) -> Vec<String> {
    let diff = plain(diff);
    // The names stand before the first piece, and nowhere else.
    let named = diff.starts_with("--- ");
    let lines: Vec<&str> = diff.lines().skip(if named { 2 } else { 0 }).collect();
    let styled = |line: &&str| {
        let style = match line.chars().next() {
            Some('+') => GOOD,
            Some('-') => BAD,
            Some('@') => DIM,
            _ => anstyle::Style::new(),
        };
        format!("    {}", look.paint(style, &fit(line, width.saturating_sub(4))))
    };
    let mut rows: Vec<String> = lines.iter().take(most).map(styled).collect();
    rows.extend(more(look, lines.len(), most));
    rows
}

fn marked(mark: &str, text: &str) -> String {
    text.lines().map(|line| format!("{mark}{line}\n")).collect()
}

fn more(look: Look, all: usize, most: usize) -> Option<String> {
    match all.saturating_sub(most) {
        0 => None,
        1 => Some(look.paint(DIM, "    … 1 more line")),
        n => Some(look.paint(DIM, &format!("    … {n} more lines"))),
    }
}

fn plain(text: &str) -> String {
    clean(text).replace('\t', "    ")
}

fn headline(call: &ToolCall) -> String {
    let arguments = call.arguments.parse::<Value>().unwrap_or_default();
    let known = ["command", "path", "pattern"].into_iter().find_map(|key| arguments.get(key)?.as_str());
    let text = known.unwrap_or(call.arguments.as_str()).trim();
    let first = line(text.lines().next().unwrap_or_default());
    if text.lines().count() > 1 { format!("{first} …") } else { first }
}
