//! The fold of a stream's public events, written anew: what a reader of events alone knows of the message.

use terret_llm::{
    Arguments, AssistantMessage, Block, BlockKind, Image, Opaque, RawJson, StreamEvent, Text, Thinking, ToolCall,
};

/// How the message of a stream's end differs from the fold of its events, or how these break the grammar of a stream.
///
/// Some things come with the end only: annotations, and the signature of a block that was cut off.
pub(crate) fn differs_from_fold(events: &[StreamEvent], message: &AssistantMessage, done: bool) -> Option<String> {
    let blocks = match fold(events) {
        Ok(blocks) => blocks,
        Err(problem) => return Some(problem),
    };
    if let Some(open) = blocks.iter().position(|block| done && !block.ended) {
        return Some(format!("block {open} never ended"));
    }
    let told: Vec<Block> = blocks.iter().map(|block| block.as_block(message)).collect();
    let held: Vec<Block> = message.content.iter().enumerate().map(|(n, block)| as_told(block, blocks.get(n))).collect();
    (told != held).then(|| format!("the message isn't the fold of its events: {held:?}, but {told:?}"))
}

/// A block as its events tell of it.
struct Folded {
    kind: BlockKind,
    text: String,
    signature: Option<String>,
    ended: bool,
}

fn fold(events: &[StreamEvent]) -> Result<Vec<Folded>, String> {
    let mut blocks: Vec<Folded> = Vec::new();
    for (n, event) in events.iter().enumerate() {
        let wrong = |what: &str| Err(format!("event {n} {what}: {event:?}"));
        match event {
            StreamEvent::Start { .. } if n == 0 => {}
            _ if n == 0 => return wrong("comes before the start"),
            StreamEvent::BlockStart { index, kind } if *index == blocks.len() => {
                blocks.push(Folded { kind: kind.clone(), text: String::new(), signature: None, ended: false });
            }
            StreamEvent::BlockDelta { index, text } => match blocks.get_mut(*index) {
                Some(block) if !block.ended && !text.is_empty() => block.text.push_str(text),
                _ => return wrong("is empty or of a block that isn't open"),
            },
            StreamEvent::BlockEnd { index, signature } => match blocks.get_mut(*index) {
                Some(block) if !block.ended => (block.ended, block.signature) = (true, signature.clone()),
                _ => return wrong("ends a block that isn't open"),
            },
            _ => return wrong("has no place here"),
        }
    }
    Ok(blocks)
}

impl Folded {
    fn as_block(&self, message: &AssistantMessage) -> Block {
        let (text, signature) = (self.text.clone(), self.signature.clone());
        match self.kind.clone() {
            BlockKind::Text => Block::Text(Text { text, signature, annotations: None }),
            BlockKind::Thinking { redacted } => Block::Thinking(Thinking { thinking: text, signature, redacted }),
            BlockKind::ToolCall { id, name } => {
                Block::ToolCall(ToolCall { id, name, arguments: Arguments::new(text), signature })
            }
            BlockKind::Image { media_type } => match Image::from_base64(media_type, text) {
                Ok(image) => Block::Image(image),
                Err(error) => Block::text(format!("[an image that can't be shown: {error}]")),
            },
            BlockKind::Opaque => {
                // Cut off, it is kept as a JSON string.
                let raw = RawJson::parse(&text).unwrap_or_else(|_| RawJson::of(&text).unwrap());
                Block::Opaque(Opaque { wire: message.wire.clone(), raw })
            }
            other => panic!("a kind that this fold doesn't know: {other:?}"),
        }
    }
}

/// The block without what no event tells.
fn as_told(block: &Block, folded: Option<&Folded>) -> Block {
    let mut block = block.clone();
    let cut_off = folded.is_some_and(|folded| !folded.ended);
    let signature = match &mut block {
        Block::Text(text) => {
            text.annotations = None;
            &mut text.signature
        }
        Block::Thinking(thinking) => &mut thinking.signature,
        Block::ToolCall(call) => &mut call.signature,
        _ => return block,
    };
    if cut_off {
        *signature = None;
    }
    block
}
