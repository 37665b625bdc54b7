//! Sessions as Markdown, for people.

use std::fmt::Write as _;
use std::io::Write;

use terret_agent::SessionId;
use terret_llm::{Block, Content, Message};

use crate::error::{Damage, StoreError};
use crate::journal::SqliteJournal;
use crate::time::iso;

impl SqliteJournal {
    /// Writes the messages of a session as Markdown. Pictures are named, not shown. What couldn't be read stands at the
    /// top, and is returned.
    pub fn export_markdown(&self, session: &SessionId, out: &mut impl Write) -> Result<Vec<Damage>, StoreError> {
        let (transcript, damage) = self.transcript(session)?;
        let about = self.reader(session)?.about()?;
        let mut text = format!("# {}\n\n", about.title.as_deref().unwrap_or(session.as_str()));
        for damage in &damage {
            let _ = writeln!(text, "> **Damaged:** {damage}");
        }
        for message in transcript.iter() {
            match &**message {
                Message::User(user) => {
                    heading(&mut text, "User", user.timestamp);
                    user.content.iter().for_each(|content| plain(&mut text, content));
                }
                Message::Assistant(reply) => {
                    heading(&mut text, &format!("{}/{}", reply.provider, reply.model), reply.timestamp);
                    reply.content.iter().for_each(|block| said(&mut text, block));
                }
                Message::ToolResult(result) => {
                    let title = format!("{}{}", result.tool_name, if result.is_error { " (failed)" } else { "" });
                    let _ = write!(text, "<details><summary>Result of {}</summary>\n\n", escaped(&title));
                    for content in &result.content {
                        match content {
                            Content::Text(it) => fenced(&mut text, "", &it.text),
                            other => plain(&mut text, other),
                        }
                    }
                    text.push_str("</details>\n\n");
                }
            }
        }
        out.write_all(text.as_bytes()).map_err(|error| StoreError::io("the export", error))?;
        Ok(damage)
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
            let _ = write!(text, "**{}**\n\n", call.name);
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

fn paragraph(text: &mut String, it: &str) {
    let _ = write!(text, "{}\n\n", it.trim_end());
}

fn picture(text: &mut String, media_type: &str) {
    let _ = write!(text, "*(a picture, {media_type})*\n\n");
}

/// A code block that nothing in the code can end.
fn fenced(text: &mut String, language: &str, code: &str) {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = write!(text, "{fence}{language}\n{}\n{fence}\n\n", code.trim_end_matches('\n'));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
