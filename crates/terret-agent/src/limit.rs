//! The size limit of tool results.

use std::borrow::Cow;

use terret_llm::{Content, Text};

use crate::tool::ToolOutput;

/// Leaves out the middle of texts beyond `limit` bytes in all, and says so in its place.
pub(crate) fn limit(mut output: ToolOutput, limit: usize) -> ToolOutput {
    let mut room = limit;
    for content in &mut output.content {
        let Content::Text(Text { text, .. }) = content else { continue };
        if text.len() > room {
            *text = head_and_tail(text, room);
            room = 0;
        } else {
            room -= text.len();
        }
    }
    output
}

/// The beginning of a text of more than so many characters, and how long it is.
pub(crate) fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => text.into(),
        Some((end, _)) => format!("{}… ({} bytes in all)", text.get(..end).unwrap_or_default(), text.len()).into(),
    }
}

fn head_and_tail(text: &str, room: usize) -> String {
    let head = text.floor_char_boundary(room / 2);
    let tail = text.ceil_char_boundary(text.len() - room / 2);
    let (start, end) = (text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default());
    let cut = text.len() - start.len() - end.len();
    format!("{start}\n[… {cut} of {} bytes left out here …]\n{end}", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_long_text_is_left_out_at_character_boundaries() {
        let output = limit(ToolOutput::text("ä".repeat(100)), 21);
        let text = output.content[0].as_text().unwrap();
        assert_eq!(text, format!("{}\n[… 180 of 200 bytes left out here …]\n{}", "ä".repeat(5), "ä".repeat(5)));
    }

    #[test]
    fn a_text_within_the_limit_stays() {
        assert_eq!(limit(ToolOutput::text("abc"), 3), ToolOutput::text("abc"));
    }
}
