//! Sessions as Markdown, for people.

use std::fmt::Write as _;
use std::io::Write;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use terret_agent::SessionId;
use terret_agent::machine::{Record, State, apply};
use terret_llm::{Block, Content, Message};

use crate::error::{Damage, StoreError};
use crate::journal::SqliteJournal;
use crate::time::iso;

impl SqliteJournal {
    /// Writes the messages of a session as Markdown. Pictures are named, not shown. What couldn't be read stands at the
    /// top, and is returned.
    pub fn export_markdown(&self, session: &SessionId, out: &mut impl Write) -> Result<Vec<Damage>, StoreError> {
        let (mut state, mut told) = (State::new(), String::new());
        let damage = self.reader(session)?.each_to_the_end(|kept| {
            let before = state.transcript().len();
            apply(&mut state, &kept.record);
            // A summary takes the place of what the model was told, and not of what was said.
            if let Record::Compacted { summary, .. } = &kept.record {
                told.push_str("<details><summary>Summarised for the model: all that was said before</summary>\n\n");
                if let Message::User(summary) = &**summary {
                    summary.content.iter().for_each(|content| plain(&mut told, content));
                }
                told.push_str("</details>\n\n");
            }
            for message in state.transcript().get(before..).unwrap_or_default() {
                push(&mut told, message);
            }
        })?;
        let about = self.reader(session)?.about()?;
        let mut text = format!("# {}\n\n", on_a_line(about.title.as_deref().unwrap_or(session.as_str())));
        for damage in &damage {
            let _ = writeln!(text, "> **Damaged:** {}\n", on_a_line(&damage.to_string()));
        }
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(told.as_bytes())).map_err(StoreError::Output)?;
        Ok(damage)
    }
}

fn push(text: &mut String, message: &Message) {
    match message {
        Message::User(user) => {
            heading(text, "User", user.timestamp);
            user.content.iter().for_each(|content| plain(text, content));
        }
        Message::Assistant(reply) => {
            let model = on_a_line(&format!("{}/{}", reply.provider, reply.model));
            heading(text, &model, reply.timestamp);
            reply.content.iter().for_each(|block| said(text, block));
        }
        Message::ToolResult(result) => {
            let title = format!("{}{}", result.tool_name, if result.is_error { " (failed)" } else { "" });
            let _ = write!(text, "<details><summary>Result of {}</summary>\n\n", escaped(&one_line(&title)));
            for content in &result.content {
                match content {
                    Content::Text(it) => fenced(text, "", &it.text),
                    other => plain(text, other),
                }
            }
            text.push_str("</details>\n\n");
        }
    }
}

fn heading(text: &mut String, who: &str, at: i64) {
    let _ = write!(text, "## {who}\n\n*{}*\n\n", iso(at));
}

fn said(text: &mut String, block: &Block) {
    match block {
        Block::Text(it) => paragraph(text, &it.text),
        Block::Thinking(it) if it.thinking.is_empty() => {}
        Block::Thinking(it) => {
            text.push_str("<details><summary>Thinking</summary>\n\n");
            paragraph(text, &it.thinking);
            text.push_str("</details>\n\n");
        }
        Block::ToolCall(call) => {
            let _ = write!(text, "**{}**\n\n", on_a_line(&call.name));
            fenced(text, "json", call.arguments.as_str());
        }
        Block::Image(image) => picture(text, &image.media_type),
        _ => text.push_str("*(a block that only its vendor can read)*\n\n"),
    }
}

fn plain(text: &mut String, content: &Content) {
    match content {
        Content::Text(it) => paragraph(text, &it.text),
        Content::Image(image) => picture(text, &image.media_type),
        _ => {}
    }
}

/// What somebody wrote, which is Markdown itself. Nothing in it reaches beyond it: its HTML is shown, and not meant, and a
/// code block that it leaves open is closed.
fn paragraph(text: &mut String, it: &str) {
    let shown = without_html(it.trim_end());
    let _ = write!(text, "{shown}\n\n");
    if let Some(fence) = left_open(&shown) {
        let _ = write!(text, "{fence}\n\n");
    }
}

fn without_html(markdown: &str) -> String {
    let mut shown = markdown.to_owned();
    // What is no HTML any more may be Markdown, in which there is HTML.
    for _ in 0..8 {
        let html: Vec<Range<usize>> = Parser::new(&shown)
            .into_offset_iter()
            .filter(|(event, _)| matches!(event, Event::Html(_) | Event::InlineHtml(_)))
            .map(|(_, range)| range)
            .collect();
        if html.is_empty() {
            return shown;
        }
        for range in html.into_iter().rev() {
            let it = shown.get(range.clone()).unwrap_or_default().replace('<', "&lt;");
            shown.replace_range(range, &it);
        }
    }
    shown.replace('<', "&lt;")
}

/// What ends the code block that a text leaves open, if it does.
fn left_open(markdown: &str) -> Option<String> {
    const MARK: &str = "7d0e9c";
    let marked = format!("{markdown}\n\n{MARK}");
    let (mut block, mut open) = (None, None);
    for (event, range) in Parser::new(&marked).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => block = Some(range.start),
            Event::End(TagEnd::CodeBlock) => block = None,
            Event::Text(it) if it.ends_with(MARK) => open = block,
            _ => {}
        }
    }
    let fence = marked.get(open?..)?.trim_start();
    let mark = fence.chars().next()?;
    Some(fence.chars().take_while(|c| *c == mark).collect())
}

fn picture(text: &mut String, media_type: &str) {
    let _ = write!(text, "*(a picture, {})*\n\n", on_a_line(media_type));
}

/// A code block that nothing in the code can end.
fn fenced(text: &mut String, language: &str, code: &str) {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = write!(text, "{fence}{language}\n{}\n{fence}\n\n", code.trim_end_matches('\n'));
}

/// A name in a line of Markdown: as it is, and on one line.
fn on_a_line(name: &str) -> String {
    let mut line = String::new();
    for c in one_line(name).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '&' | '~' | '|') {
            line.push('\\');
        }
        line.push(c);
    }
    line
}

fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
