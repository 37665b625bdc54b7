//! The reply under construction. All wires fold into this one accumulator, streamed or plain.

use std::collections::{HashSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{ErrorKind, ModelError};
use crate::lossy::Fragment;
use crate::model::ModelSpec;
use crate::stream::{BlockKind, Failed, Reply, StreamEvent};
use crate::transcript::{
    Arguments, AssistantMessage, Block, Image, Opaque, RawJson, StopReason, Text, Thinking, ToolCall, Transcript,
    Usage, replace_lone_surrogates,
};

/// The reply under construction.
///
/// A decoder opens blocks, appends fragments and closes blocks; readers take the resulting events. A draft can't be
/// executed: only [`done`](Self::done), which is for the provider's own terminal, makes a [`Reply`] of it.
#[derive(Debug)]
pub struct Draft {
    message: AssistantMessage,
    blocks: Vec<DraftBlock>,
    log: VecDeque<Logged>,
    started: bool,
    coalesce: bool,
    earlier: Transcript,
    call_ids: HashSet<String>,
}

#[derive(Debug)]
struct DraftBlock {
    kind: BlockKind,
    text: String,
    signature: Option<String>,
    annotations: Option<RawJson>,
    /// The first half of a surrogate pair whose second half has not arrived.
    half: Option<u16>,
    open: bool,
}

/// What the ids begin with that a draft gives to tool calls. No provider is known to use it, so that a wire can tell
/// them from its provider's own ids.
const FRESH_CALL_ID: &str = "terret_";

/// Whether a draft made this tool-call id up, because the provider had sent none or one that was used already.
pub(crate) fn is_fresh_call_id(id: &str) -> bool {
    id.strip_prefix(FRESH_CALL_ID).is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

/// An event that nobody has taken yet. A delta is a range of its block's text, so that folding one costs no allocation.
#[derive(Debug, PartialEq)]
enum Logged {
    Start { response_id: Option<String> },
    BlockStart { index: usize },
    Delta { index: usize, from: usize, to: usize },
    BlockEnd { index: usize },
}

/// Why and how a reply ended, in a wire's words and in ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Ours.
    pub reason: StopReason,
    /// The provider's.
    pub raw: Option<String>,
}

impl Draft {
    /// An empty draft of a reply by this model.
    pub fn new(spec: &ModelSpec) -> Self {
        Self {
            message: AssistantMessage {
                content: Vec::new(),
                provider: spec.provider.clone(),
                model: spec.id.clone(),
                wire: spec.wire.clone(),
                stop_reason: StopReason::Error,
                raw_stop_reason: None,
                usage: Usage::default(),
                response_id: None,
                error: None,
                timestamp: now(),
            },
            blocks: Vec::new(),
            log: VecDeque::new(),
            started: false,
            coalesce: false,
            earlier: Transcript::new(),
            call_ids: HashSet::new(),
        }
    }

    /// Makes tool-call ids unique within this conversation, too.
    #[must_use]
    pub fn after(mut self, earlier: Transcript) -> Self {
        self.earlier = earlier;
        self
    }

    /// Dates the reply, in Unix milliseconds, instead of by the clock.
    #[must_use]
    pub fn at(mut self, timestamp: i64) -> Self {
        self.message.timestamp = timestamp;
        self
    }

    /// Joins neighbouring deltas of one block that nobody has taken yet: readers get at once what arrived at once.
    #[must_use]
    pub fn coalescing(mut self) -> Self {
        self.coalesce = true;
        self
    }

    /// The provider began to answer. The first call counts; opening a block implies it. A response id that is set
    /// later isn't part of the event.
    pub fn start(&mut self) {
        if !self.started {
            self.started = true;
            self.log.push_back(Logged::Start { response_id: self.message.response_id.clone() });
        }
    }

    /// The provider's id of the response. The first one counts.
    pub fn set_response_id(&mut self, id: &str) {
        if self.message.response_id.is_none() && !id.is_empty() {
            self.message.response_id = Some(id.to_owned());
        }
    }

    /// The tokens counted so far.
    pub fn usage_mut(&mut self) -> &mut Usage {
        &mut self.message.usage
    }

    /// Begins a block after those that were begun before; returns its index.
    ///
    /// A tool call with an empty id, or one that this conversation has used, gets a fresh id.
    pub fn open(&mut self, mut kind: BlockKind) -> usize {
        if let BlockKind::ToolCall { id, .. } = &mut kind
            && (id.is_empty() || self.is_used(id))
        {
            *id = self.fresh_call_id();
        }
        self.open_verbatim(kind)
    }

    /// [`open`](Self::open), but a tool call's id stays as it is, also when it is empty or used.
    ///
    /// For models that play a misbehaving provider in tests of what comes after this layer. A decoder has no use for it.
    pub fn open_verbatim(&mut self, kind: BlockKind) -> usize {
        self.start();
        if let BlockKind::ToolCall { id, .. } = &kind {
            self.call_ids.insert(id.clone());
        }
        let index = self.blocks.len();
        let (text, signature, annotations, half) = (String::new(), None, None, None);
        self.blocks.push(DraftBlock { kind, text, signature, annotations, half, open: true });
        self.log.push_back(Logged::BlockStart { index });
        index
    }

    /// Appends a fragment to an open block. An unknown or closed block ignores it.
    pub fn append(&mut self, index: usize, fragment: &str) {
        let Some(block) = self.blocks.get_mut(index).filter(|block| block.open && !fragment.is_empty()) else { return };
        let from = block.text.len();
        block.text.push_str(fragment);
        let end = block.text.len();
        match self.log.back_mut() {
            Some(Logged::Delta { index: same, to, .. }) if self.coalesce && *same == index => *to = end,
            _ => self.log.push_back(Logged::Delta { index, from, to: end }),
        }
    }

    /// Appends a fragment to an open block, and joins a surrogate pair that was cut between two of them.
    pub(crate) fn append_fragment(&mut self, index: usize, fragment: &Fragment<'_>) {
        if fragment.is_empty() {
            return;
        }
        self.append_halves(index, fragment.low);
        self.append(index, &fragment.text);
        if let Some(block) = self.blocks.get_mut(index) {
            block.half = fragment.high;
        }
    }

    /// Appends what the half pair that the last fragment ended with becomes, now that `low` follows it.
    fn append_halves(&mut self, index: usize, low: Option<u16>) {
        let Some(block) = self.blocks.get_mut(index) else { return };
        if block.half.is_none() && low.is_none() {
            return;
        }
        let halves = block.half.take().into_iter().chain(low);
        let text: String = char::decode_utf16(halves).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        self.append(index, &text);
    }

    /// Appends a fragment to an open block's signature.
    pub fn sign(&mut self, index: usize, fragment: &str) {
        if let Some(block) = self.blocks.get_mut(index).filter(|block| block.open) {
            block.signature.get_or_insert_default().push_str(fragment);
        }
    }

    /// Sets a block's annotations (citations and the like), which may come when the block has long been closed.
    pub fn annotate(&mut self, index: usize, annotations: RawJson) {
        if let Some(block) = self.blocks.get_mut(index) {
            block.annotations = Some(annotations);
        }
    }

    /// Ends a block. Closing it again changes nothing.
    pub fn close(&mut self, index: usize) {
        self.append_halves(index, None);
        if let Some(block) = self.blocks.get_mut(index).filter(|block| block.open) {
            block.open = false;
            self.log.push_back(Logged::BlockEnd { index });
        }
    }

    /// A whole block at once; returns its index.
    pub fn block(&mut self, kind: BlockKind, text: &str) -> usize {
        let index = self.open(kind);
        self.append(index, text);
        self.close(index);
        index
    }

    /// The text of a block so far.
    pub fn text(&self, index: usize) -> &str {
        self.blocks.get(index).map_or("", |block| &block.text)
    }

    /// Whether any block is a tool call.
    pub fn has_tool_calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.kind, BlockKind::ToolCall { .. }))
    }

    /// Whether nothing has been received that a reader could see.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Takes the oldest event that nobody has taken yet.
    pub fn next_event(&mut self) -> Option<StreamEvent> {
        let event = match self.log.pop_front()? {
            Logged::Start { response_id } => StreamEvent::Start { response_id },
            Logged::BlockStart { index } => {
                StreamEvent::BlockStart { index, kind: self.blocks.get(index)?.kind.clone() }
            }
            Logged::Delta { index, from, to } => {
                StreamEvent::BlockDelta { index, text: self.blocks.get(index)?.text.get(from..to)?.to_owned() }
            }
            Logged::BlockEnd { index } => {
                StreamEvent::BlockEnd { index, signature: self.blocks.get(index)?.signature.clone() }
            }
        };
        Some(event)
    }

    /// The provider's own terminal arrived: closes what is open and ends the reply. Yields the events that nobody has
    /// taken yet and [`StreamEvent::Done`]; a `Stop` for an error or a cancel is not a terminal, and fails.
    pub fn done(mut self, stop: Stop) -> Vec<StreamEvent> {
        if matches!(stop.reason, StopReason::Error | StopReason::Aborted) {
            let raw = stop.raw.unwrap_or_default();
            return self.fail(ModelError::new(ErrorKind::Server, format!("the provider ended the reply with {raw:?}")));
        }
        self.start();
        for index in 0..self.blocks.len() {
            self.close(index);
        }
        let mut events = self.drain();
        self.message.stop_reason = stop.reason;
        self.message.raw_stop_reason = stop.raw;
        events.push(StreamEvent::Done(Reply::new(self.into_message())));
        events
    }

    /// The call failed. Yields the events that nobody has taken yet and [`StreamEvent::Failed`], with what has arrived
    /// as the partial.
    pub fn fail(mut self, error: ModelError) -> Vec<StreamEvent> {
        let mut events = self.drain();
        events.push(StreamEvent::Failed(self.into_failed(error)));
        events
    }

    pub(crate) fn into_failed(mut self, error: ModelError) -> Failed {
        let aborted = error.kind == ErrorKind::Aborted;
        self.message.stop_reason = if aborted { StopReason::Aborted } else { StopReason::Error };
        self.message.error = Some(Box::new(error.clone()));
        Failed { error, partial: Box::new(self.into_message()) }
    }

    fn drain(&mut self) -> Vec<StreamEvent> {
        std::iter::from_fn(|| self.next_event()).collect()
    }

    fn is_used(&self, id: &str) -> bool {
        self.call_ids.contains(id) || self.earlier.has_call_id(id)
    }

    /// The first free id of ours, counted so that finding it does not grow with the conversation.
    fn fresh_call_id(&self) -> String {
        let first = self.earlier.call_count() + self.call_ids.len() + 1;
        (first..).map(|n| format!("{FRESH_CALL_ID}{n}")).find(|id| !self.is_used(id)).unwrap_or_default()
    }

    fn into_message(self) -> AssistantMessage {
        let mut message = self.message;
        message.content = self.blocks.into_iter().map(|block| block.into_block(&message.wire)).collect();
        message
    }
}

impl DraftBlock {
    fn into_block(self, wire: &crate::wire::WireFormat) -> Block {
        let DraftBlock { kind, text, signature, annotations, .. } = self;
        match kind {
            BlockKind::Text => Block::Text(Text { text, signature, annotations }),
            BlockKind::Thinking { redacted } => Block::Thinking(Thinking { thinking: text, signature, redacted }),
            BlockKind::ToolCall { id, name } => {
                let arguments = Arguments::new(replace_lone_surrogates(&text));
                Block::ToolCall(ToolCall { id, name, arguments, signature })
            }
            BlockKind::Image { media_type } => match Image::from_base64(media_type, text.as_str()) {
                Ok(image) => Block::Image(image),
                Err(error) => Block::text(format!("[an image that can't be shown: {error}]")),
            },
            BlockKind::Opaque => match RawJson::parse(&text) {
                Ok(raw) => Block::Opaque(Opaque { wire: wire.clone(), raw }),
                // Cut off in mid-block: kept as a JSON string, so that nothing is lost.
                Err(_) => {
                    Block::Opaque(Opaque { wire: wire.clone(), raw: RawJson::from(&serde_json::Value::String(text)) })
                }
            },
        }
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
