//! How much of the model's window a transcript takes, and where it can be cut.

use std::sync::Arc;

use terret_llm::{Block, Content, Message};

/// Roughly how many tokens a message takes: a quarter of its bytes, 1,500 for an image, and 4 for the message itself.
pub(crate) fn tokens(message: &Message) -> u64 {
    let bytes = |bytes: usize| bytes as u64 / 4;
    let content = |content: &[Content]| -> u64 {
        content.iter().map(|content| content.as_text().map_or(IMAGE, |text| bytes(text.len()))).sum()
    };
    let block = |block: &Block| match block {
        Block::Text(text) => bytes(text.text.len()),
        Block::Thinking(thinking) => {
            bytes(thinking.thinking.len()) + bytes(thinking.signature.as_ref().map_or(0, |signature| signature.len()))
        }
        Block::ToolCall(call) => bytes(call.name.len() + call.arguments.as_str().len()) + 4,
        Block::Image(_) => IMAGE,
        Block::Opaque(opaque) => bytes(opaque.raw.as_str().len()),
        _ => 0,
    };
    4 + match message {
        Message::User(message) => content(&message.content),
        Message::ToolResult(message) => content(&message.content),
        Message::Assistant(message) => message.content.iter().map(block).sum(),
    }
}

const IMAGE: u64 = 1_500;

/// Where to cut `len` messages, given from the newest back, so that about `keep` tokens of the end stay: the index of the
/// first message that does. Calls and their results stay together. `None` if all would stay.
pub(super) fn cut<'a>(newest_first: impl Iterator<Item = &'a Arc<Message>>, len: usize, keep: u64) -> Option<usize> {
    let mut kept = 0;
    let mut cut = None;
    for (message, index) in newest_first.zip((0..len).rev()) {
        kept += tokens(message);
        if kept > keep && cut.is_some() {
            break;
        }
        if !matches!(**message, Message::ToolResult(_)) {
            cut = Some(index);
        }
    }
    cut.filter(|cut| *cut > 0)
}
