//! A tool call with what came of it, folded.

use std::fmt::Write as _;

use serde_json::Value;
use terret_llm::{Content, Image, Message, ToolResultMessage};

use super::escape::{self, escaped};
use super::figures::{duration, first_line, grouped};
use super::story::Called;

pub(super) fn push(out: &mut String, called: &Called) {
    let arguments = called.call.arguments.parse::<Value>().unwrap_or_default();
    let result = match called.result.as_deref() {
        Some(Message::ToolResult(result)) => Some(result),
        _ => None,
    };
    let diff = result.and_then(diff_of);
    let failed = result.is_some_and(|result| result.is_error);
    let class = if failed { "call failed" } else { "call" };
    let name = if called.call.name.is_empty() { "(no name)" } else { &called.call.name };
    let _ = write!(out, "<details class=\"{class}\"><summary><b>{}</b> <code>", escaped(name));
    escape::push(out, &headline(&arguments, called.call.arguments.as_str()));
    out.push_str("</code>");
    if let Some(diff) = &diff {
        let count = |sign: char| diff.lines().skip(2).filter(|line| line.starts_with(sign)).count();
        let (added, removed) = (count('+'), count('-'));
        let _ = write!(out, " <span class=\"added\">+{added}</span> <span class=\"removed\">−{removed}</span>");
    }
    match result {
        None => out.push_str(" <span class=\"badge\">no result</span>"),
        Some(_) if failed => out.push_str(" <span class=\"badge bad\">failed</span>"),
        Some(_) => {}
    }
    if let Some(took) = called.took() {
        let _ = write!(out, " <span class=\"took\">{}</span>", duration(took));
    }
    out.push_str("</summary>\n<div class=\"inside\">");
    asked(out, called);
    match &diff {
        Some(diff) => push_diff(out, diff),
        None => push_arguments(out, &arguments, called.call.arguments.as_str()),
    }
    if let Some(result) = result {
        out.push_str("<h4>Result</h4>");
        result.content.iter().for_each(|content| push_content(out, content));
        if result.content.is_empty() {
            out.push_str("<p class=\"note\">It is empty.</p>");
        }
    }
    out.push_str("</div></details>\n");
}

/// What a person was asked, and what they made of the call.
fn asked(out: &mut String, called: &Called) {
    if let Some(question) = &called.question {
        let _ = write!(out, "<p class=\"note\">Asked: {}</p>", escaped(question));
    }
    if let Some(arguments) = &called.edited {
        let _ = write!(out, "<p class=\"note\">The arguments were changed to: <code>{}</code></p>", escaped(arguments));
    }
}

/// What a call is about, on a line.
fn headline(arguments: &Value, text: &str) -> String {
    let known = ["command", "path", "pattern"].into_iter().find_map(|key| arguments.get(key)?.as_str());
    first_line(known.unwrap_or(if text == "{}" { "" } else { text }), 160)
}

/// Long texts as they are, everything else as JSON.
fn push_arguments(out: &mut String, arguments: &Value, text: &str) {
    let Value::Object(fields) = arguments else {
        out.push_str("<h4>Arguments</h4>");
        return push_output(out, text);
    };
    for (name, value) in fields {
        let _ = write!(out, "<h4>{}</h4>", escaped(name));
        match value {
            Value::String(text) => push_output(out, text),
            value => push_output(out, &serde_json::to_string_pretty(value).unwrap_or_default()),
        }
    }
}

/// The diff of a tool that tells of one.
fn diff_of(result: &ToolResultMessage) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Details {
        diff: Option<String>,
    }
    let details: Details = serde_json::from_str(result.details.as_ref()?.as_str()).ok()?;
    details.diff.filter(|diff| !diff.trim().is_empty())
}

fn push_diff(out: &mut String, diff: &str) {
    out.push_str("<pre class=\"diff\">");
    for line in cut(diff).0.lines() {
        let class = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "file",
            [b'+', ..] => "added",
            [b'-', ..] => "removed",
            [b'@', ..] => "where",
            _ => "same",
        };
        let _ = write!(out, "<span class=\"{class}\">");
        escape::push(out, line);
        out.push_str("\n</span>");
    }
    out.push_str("</pre>");
    push_left_out(out, cut(diff).1);
}

/// A piece of a message of the user's or of a tool.
pub(super) fn push_content(out: &mut String, content: &Content) {
    match content {
        Content::Text(text) => push_output(out, &text.text),
        Content::Image(image) => push_image(out, image),
        _ => {}
    }
}

/// A picture in the page itself, if a browser shows its type without running anything.
pub(super) fn push_image(out: &mut String, image: &Image) {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"];
    match known.iter().find(|known| **known == image.media_type) {
        Some(media_type) => {
            let _ = write!(out, "<p><img alt=\"A picture\" src=\"data:{media_type};base64,");
            escape::push(out, image.base64());
            out.push_str("\"></p>");
        }
        None => {
            let _ = write!(out, "<p class=\"note\">A picture of type {}, not shown.</p>", escaped(&image.media_type));
        }
    }
}

/// The most of one text that a page holds, in bytes. The session and its other exports hold all of it.
const LONGEST: usize = 128 * 1024;

fn push_output(out: &mut String, text: &str) {
    let (shown, left_out) = cut(text);
    out.push_str("<pre>");
    // A parser takes a line feed at the start of one for no part of it.
    if shown.starts_with('\n') {
        out.push('\n');
    }
    escape::push(out, shown);
    out.push_str("</pre>");
    push_left_out(out, left_out);
}

fn push_left_out(out: &mut String, bytes: usize) {
    if bytes > 0 {
        let _ = write!(out, "<p class=\"note\">{} further bytes are not shown.</p>", grouped(bytes as u64));
    }
}

/// The start of a text, and how much follows it.
fn cut(text: &str) -> (&str, usize) {
    let end = text.floor_char_boundary(LONGEST);
    (text.get(..end).unwrap_or_default(), text.len() - end)
}
