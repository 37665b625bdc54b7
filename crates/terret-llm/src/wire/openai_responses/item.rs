//! An output item under construction, and the blocks that it becomes.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::ItemSignature;
use super::events::{ContentPart, OutputItem, arguments, text, verbatim};
use crate::draft::Draft;
use crate::lossy::Fragment;
use crate::stream::BlockKind;
use crate::transcript::RawJson;

/// An output item under construction.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// Its place in the response, where that is told.
    pub(super) index: Option<u64>,
    id: String,
    call_id: String,
    phase: String,
    /// Its blocks: one for each part of a message, else one.
    parts: Vec<Part>,
    /// Of reasoning: where its latest text came from.
    latest: Option<Source>,
    /// What isn't in a block yet: a call's argument text, or what is known of an item without a type of ours.
    held: String,
    pub(super) done: bool,
    /// It ended without being whole.
    cut: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    FunctionCall,
    CustomCall,
    #[default]
    Other,
}

#[derive(Debug)]
struct Part {
    index: u64,
    block: usize,
    refusal: bool,
}

/// A part of a reasoning item. The summary is shown, or, where there is none, the reasoning itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Summary(u64),
    Content(u64),
}

impl Kind {
    pub(super) fn of(output: &OutputItem<'_>) -> Self {
        match text(&output.kind) {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning,
            "function_call" => Kind::FunctionCall,
            "custom_tool_call" => Kind::CustomCall,
            _ => Kind::Other,
        }
    }
}

impl Item {
    /// An item that begins. Its block begins with it where that is possible, to keep its place.
    pub(super) fn new(draft: &mut Draft, kind: Kind, index: Option<u64>) -> Self {
        let block = match kind {
            Kind::Reasoning => Some(draft.open(BlockKind::Thinking { redacted: false })),
            Kind::Other => Some(draft.open(BlockKind::Opaque)),
            Kind::Message | Kind::FunctionCall | Kind::CustomCall => None,
        };
        let parts = block.map(|block| Part { index: 0, block, refusal: false }).into_iter().collect();
        Self { kind, index, parts, ..Self::default() }
    }

    /// Whether this is the item that is told of. Its index counts before its ids, which some hosts change from event to
    /// event; but calls of different call ids are different calls.
    pub(super) fn is(&self, index: Option<u64>, output: &OutputItem<'_>) -> bool {
        self.kind == Kind::of(output)
            && !self.is_other_call(output)
            && match (self.index, index) {
                (Some(index), Some(told)) => index == told,
                _ => self.is_named(text(&output.id)) || self.is_named(text(&output.call_id)),
            }
    }

    pub(super) fn is_other_call(&self, output: &OutputItem<'_>) -> bool {
        let call_id = text(&output.call_id);
        !self.call_id.is_empty() && !call_id.is_empty() && self.call_id != call_id
    }

    /// Whether an id is this item's. llama.cpp names a call by its call id.
    pub(super) fn is_named(&self, id: &str) -> bool {
        !id.is_empty() && (self.id == id || self.call_id == id)
    }

    fn is_call(&self) -> bool {
        matches!(self.kind, Kind::FunctionCall | Kind::CustomCall)
    }

    pub(super) fn is_cut_call(&self) -> bool {
        self.is_call() && self.cut
    }

    pub(super) fn is_refusal(&self) -> bool {
        self.parts.iter().any(|part| part.refusal)
    }

    /// Takes what is told at the item's start. Most of it is still empty; what isn't is told again.
    pub(super) fn begin(&mut self, draft: &mut Draft, output: &OutputItem<'_>, raw: &RawValue) {
        self.learn(output);
        let name = text(&output.name);
        if self.is_call() && self.parts.is_empty() && !name.is_empty() {
            self.begin_call(draft, name);
        } else if self.kind == Kind::Other {
            self.held = verbatim(raw).into_owned();
        }
    }

    fn learn(&mut self, output: &OutputItem<'_>) {
        for (known, told) in [
            (&mut self.id, text(&output.id)),
            (&mut self.call_id, text(&output.call_id)),
            (&mut self.phase, text(&output.phase)),
        ] {
            if !told.is_empty() {
                told.clone_into(known);
            }
        }
    }

    /// The block of a message's part; begins it if need be. A message that has ended has no further parts.
    pub(super) fn part(&mut self, draft: &mut Draft, index: u64, refusal: bool) -> Option<usize> {
        if let Some(part) = self.parts.iter_mut().rfind(|part| part.index == index) {
            part.refusal |= refusal;
            return Some(part.block);
        }
        if self.done {
            return None;
        }
        let block = draft.open(BlockKind::Text);
        self.parts.push(Part { index, block, refusal });
        Some(block)
    }

    /// The index under which a part of the whole content was streamed. vLLM streams the first part under the index 1.
    fn streamed_index(&self, draft: &Draft, ordinal: usize, whole: &str) -> u64 {
        let index = u64::try_from(ordinal).unwrap_or(u64::MAX);
        if self.parts.iter().any(|part| part.index == index) {
            return index;
        }
        let streamed = self.parts.get(ordinal).filter(|part| whole.starts_with(draft.text(part.block)));
        streamed.map_or(index, |part| part.index)
    }

    fn block(&self) -> Option<usize> {
        self.parts.first().map(|part| part.block)
    }

    /// Takes reasoning text.
    pub(super) fn reason(&mut self, draft: &mut Draft, source: Source, piece: Piece<'_>) {
        let Some(block) = self.block().filter(|_| !piece.is_empty()) else { return };
        let repeats = matches!(piece, Piece::Whole(_));
        match (self.latest, source) {
            (None, _) => {}
            (Some(Source::Summary(latest)), Source::Summary(part))
            | (Some(Source::Content(latest)), Source::Content(part)) => {
                // The end of a part tells again what was streamed of it.
                if repeats && part <= latest {
                    return;
                }
                if part != latest {
                    draft.append(block, BETWEEN_PARTS);
                }
            }
            _ => return,
        }
        self.latest = Some(source);
        match piece {
            Piece::Next(_) => piece.write(draft, block),
            Piece::Whole(whole) => draft.append(block, whole),
        }
    }

    fn begin_call(&mut self, draft: &mut Draft, name: &str) -> usize {
        let id = if self.call_id.is_empty() { &self.id } else { &self.call_id };
        let block = draft.open(BlockKind::ToolCall { id: id.clone(), name: name.to_owned() });
        self.parts.push(Part { index: 0, block, refusal: false });
        if self.kind == Kind::FunctionCall {
            draft.append(block, &std::mem::take(&mut self.held));
        }
        block
    }

    /// Takes argument text. A custom tool's input isn't JSON; it is held until it can be written as a JSON string.
    pub(super) fn write_call(&mut self, draft: &mut Draft, piece: Piece<'_>) {
        match (self.block(), piece) {
            (Some(block), piece) if self.kind == Kind::FunctionCall => piece.write(draft, block),
            (_, Piece::Next(fragment)) => self.held.push_str(fragment.map_or("", |fragment| &fragment.text)),
            (_, Piece::Whole("")) => {}
            (_, Piece::Whole(whole)) => whole.clone_into(&mut self.held),
        }
    }

    /// Completes the item by what is told at its end, and closes its blocks. The first end counts.
    pub(super) fn finish(&mut self, draft: &mut Draft, output: &OutputItem<'_>, raw: Option<&RawValue>) {
        if self.done {
            return;
        }
        self.cut = raw.is_none() || text(&output.status) == "incomplete";
        self.learn(output);
        match self.kind {
            Kind::Message => self.finish_message(draft, output),
            Kind::Reasoning => self.finish_reasoning(draft, output, raw),
            Kind::FunctionCall | Kind::CustomCall => self.finish_call(draft, output),
            Kind::Other => {
                if let Some(block) = self.block() {
                    draft.append(block, raw.map_or(Cow::Borrowed(&*self.held), verbatim).as_ref());
                }
            }
        }
        self.parts.iter().for_each(|part| draft.close(part.block));
        self.done = true;
    }

    fn finish_message(&mut self, draft: &mut Draft, output: &OutputItem<'_>) {
        for (ordinal, part) in output.content().iter().enumerate() {
            let (whole, refusal) = match part.text() {
                "" => (text(&part.refusal), true),
                text => (text, false),
            };
            if whole.is_empty() {
                continue;
            }
            let index = self.streamed_index(draft, ordinal, whole);
            let Some(block) = self.part(draft, index, refusal) else { continue };
            Piece::Whole(whole).write(draft, block);
            let annotations: Vec<_> = part.annotations.iter().flatten().map(|raw| verbatim(raw)).collect();
            if !annotations.is_empty()
                && let Ok(annotations) = RawJson::parse(&format!("[{}]", annotations.join(",")))
            {
                draft.annotate(block, annotations);
            }
        }
        for part in &self.parts {
            if draft.text(part.block).is_empty() {
                continue;
            }
            let signature = ItemSignature {
                id: some(&self.id),
                phase: some(&self.phase),
                refusal: part.refusal,
                ..ItemSignature::default()
            };
            sign(draft, part.block, &signature);
        }
    }

    fn finish_reasoning(&mut self, draft: &mut Draft, output: &OutputItem<'_>, raw: Option<&RawValue>) {
        let Some(block) = self.block() else { return };
        let join = |parts: Vec<ContentPart<'_>>| {
            let texts: Vec<&str> = parts.iter().map(|part| part.text()).collect();
            texts.join(BETWEEN_PARTS)
        };
        let summary = join(output.summary());
        Piece::Whole(&if summary.is_empty() { join(output.content()) } else { summary }).write(draft, block);
        let holds_something = !text(&output.encrypted_content).is_empty() || !draft.text(block).is_empty();
        if let Some(raw) = raw.filter(|_| holds_something) {
            draft.sign(block, &verbatim(raw));
        }
    }

    fn finish_call(&mut self, draft: &mut Draft, output: &OutputItem<'_>) {
        let block = match self.block() {
            Some(block) => block,
            None => self.begin_call(draft, text(&output.name)),
        };
        let custom = self.kind == Kind::CustomCall;
        if custom {
            self.write_call(draft, Piece::Whole(text(&output.input)));
            draft.append(block, &serde_json::Value::from(&*self.held).to_string());
        } else {
            self.write_call(draft, Piece::Whole(&arguments(output.arguments)));
        }
        let signature = ItemSignature {
            id: some(&self.id),
            namespace: some(text(&output.namespace)),
            caller: output.caller,
            input: custom.then_some(Cow::Borrowed(&*self.held)),
            ..ItemSignature::default()
        };
        sign(draft, block, &signature);
    }
}

/// How text arrives: bit by bit, or all of it.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Next(Option<&'a Fragment<'a>>),
    Whole(&'a str),
}

impl Piece<'_> {
    pub(super) fn is_empty(self) -> bool {
        match self {
            Piece::Next(fragment) => fragment.is_none_or(|fragment| *fragment == Fragment::default()),
            Piece::Whole(whole) => whole.is_empty(),
        }
    }

    /// Appends what the block lacks. Readers have seen what was streamed: a whole that differs from it comes too late.
    pub(super) fn write(self, draft: &mut Draft, block: usize) {
        match self {
            Piece::Next(fragment) => fragment.into_iter().for_each(|fragment| draft.append_fragment(block, fragment)),
            Piece::Whole(whole) => {
                if let Some(rest) = whole.strip_prefix(draft.text(block)) {
                    draft.append(block, rest);
                }
            }
        }
    }
}

/// What the parts of a reasoning item's summary are joined by.
const BETWEEN_PARTS: &str = "\n\n";

fn some(text: &str) -> Option<Cow<'_, str>> {
    (!text.is_empty()).then_some(Cow::Borrowed(text))
}

fn sign(draft: &mut Draft, block: usize, signature: &ItemSignature<'_>) {
    if let Ok(json) = serde_json::to_string(signature)
        && json != "{}"
    {
        draft.sign(block, &json);
    }
}
