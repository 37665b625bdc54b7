//! Responses: a stream of `GenerateContentResponse`s, a JSON array of them, or a single one.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::chunk::{
    AnyPart, AnyParts, Candidate, Chunk, Counts, FunctionCall, KnownParts, Part, Parts, PromptFeedback, text,
};
use super::partial_args::ArgumentsWriter;
use crate::draft::{Draft, Stop};
use crate::error::{ErrorKind, ModelError};
use crate::lossy::{Fragment, Lossy};
use crate::sse::SseEvent;
use crate::stream::BlockKind;
use crate::transcript::{RawJson, StopReason, replace_lone_surrogates};
use crate::wire::{Decoder, failure, truncated};

/// Folds chunks into a draft, in every form of response alike.
#[derive(Default)]
pub(super) struct GoogleDecoder {
    text: Option<OpenText>,
    call: Option<OpenCall>,
    /// The last block of text that isn't thinking: what the sources are about.
    answer: Option<usize>,
    sources: Sources,
    counts: Counts,
    finish: Option<Finish>,
    /// The response's id is known.
    is_named: bool,
}

/// A text block that further unsigned text of its kind joins.
struct OpenText {
    index: usize,
    thought: bool,
}

/// A call that isn't complete.
struct OpenCall {
    index: usize,
    signed: bool,
    /// Writes arguments that come in pieces.
    arguments: Option<ArgumentsWriter>,
}

/// The last finish reason. Streams are known to go on after one, and to tell another.
struct Finish {
    reason: String,
    message: Option<String>,
}

impl Decoder for GoogleDecoder {
    fn event(&mut self, draft: &mut Draft, event: &SseEvent<'_>) -> Result<Option<Stop>, ModelError> {
        let data = event.data.trim();
        if data != "[DONE]" {
            self.read(draft, data)?;
        }
        Ok(None)
    }

    fn body(&mut self, draft: &mut Draft, body: &str) -> Result<Stop, ModelError> {
        if body.trim_start().starts_with('<') {
            return Err(failure::not_json(body));
        }
        self.read(draft, body)?;
        self.end(draft)
    }

    fn end(&mut self, draft: &mut Draft) -> Result<Stop, ModelError> {
        if let (Some(answer), Some(sources)) = (self.answer, self.sources.annotations()) {
            draft.annotate(answer, sources);
        }
        self.finish.take().ok_or_else(truncated)?.stop(draft.has_tool_calls())
    }
}

impl GoogleDecoder {
    /// Reads the chunks in a piece of JSON: one, or a list of them of which the end may be missing.
    fn read(&mut self, draft: &mut Draft, json: &str) -> Result<(), ModelError> {
        let json = json.trim();
        if json.starts_with('{')
            && let Ok(chunk) = serde_json::from_str::<Chunk<'_, KnownParts<'_>>>(json)
        {
            return self.chunk(draft, &chunk);
        }
        let list = json.strip_prefix('[');
        let mut rest = list.unwrap_or(json);
        loop {
            rest = rest.trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace());
            if rest.is_empty() {
                return if list.is_some() { Err(truncated()) } else { Ok(()) };
            }
            if list.is_some() && rest.starts_with(']') {
                return Ok(());
            }
            let mut chunks = serde_json::Deserializer::from_str(rest).into_iter::<Option<Chunk<'_, AnyParts<'_>>>>();
            let Some(chunk) = chunks.next() else { return Ok(()) };
            self.chunk(draft, &chunk.map_err(unreadable)?.unwrap_or_default())?;
            rest = rest.get(chunks.byte_offset()..).unwrap_or_default();
        }
    }

    fn chunk<P: Parts>(&mut self, draft: &mut Draft, chunk: &Chunk<'_, P>) -> Result<(), ModelError> {
        if let Some(error) = chunk.error {
            let error = serde_json::from_str(&replace_lone_surrogates(error.get())).map_err(unreadable)?;
            return Err(failure::from_json(&error, None));
        }
        if !self.is_named {
            let id = text(chunk.response_id);
            draft.set_response_id(&id);
            self.is_named = !id.is_empty();
        }
        draft.start();
        if let Some(counts) = &chunk.usage_metadata {
            self.counts.update(counts);
            self.counts.write(draft.usage_mut());
        }
        let mut candidates = chunk.candidates.iter().flatten();
        if let Some(candidate) = candidates.find(|candidate| candidate.index.unwrap_or(0) == 0) {
            self.candidate(draft, candidate);
        }
        let feedback: Option<PromptFeedback<'_>> =
            chunk.prompt_feedback.and_then(|raw| serde_json::from_str(raw.get()).ok());
        match feedback.as_ref().and_then(PromptFeedback::refusal) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    fn candidate<P: Parts>(&mut self, draft: &mut Draft, candidate: &Candidate<'_, P>) {
        candidate.content.parts.fold_into(self, draft);
        self.sources.update(candidate.grounding_metadata, candidate.url_context_metadata, candidate.citation_metadata);
        let reason = text(candidate.finish_reason);
        if !reason.is_empty() {
            let message = candidate.finish_message.map(|_| text(candidate.finish_message).into_string());
            self.finish = Some(Finish { reason: reason.into_string(), message });
        }
    }

    /// A part that may be of any kind. One of an unexpected shape is kept as it is, like one of an unknown kind.
    pub(super) fn any_part(&mut self, draft: &mut Draft, raw: &RawValue) {
        let AnyPart { inline_data, text, thought, thought_signature, function_call } =
            serde_json::from_str(raw.get()).unwrap_or_default();
        let is_plain = function_call.is_some() || (inline_data.is_none() && text.is_some());
        let is_signed = thought_signature.as_deref().is_some_and(|signature| !signature.is_empty());
        match inline_data.filter(|data| data.is_image() && !is_plain && !is_signed && thought != Some(true)) {
            Some(image) => {
                self.settle(draft);
                draft.block(BlockKind::Image { media_type: image.mime_type.into_string() }, &image.data);
            }
            None if !is_plain && says_more(raw) => {
                self.settle(draft);
                draft.block(BlockKind::Opaque, raw.get());
            }
            None => self.part(draft, &Part { text, thought, thought_signature, function_call }),
        }
    }

    pub(super) fn part(&mut self, draft: &mut Draft, part: &Part<'_>) {
        let signature = part.thought_signature.as_deref();
        match &part.function_call {
            Some(call) => self.function_call(draft, call, signature.filter(|signature| !signature.is_empty())),
            None => {
                let nothing = Fragment::default();
                let text = part.text.as_ref().unwrap_or(&nothing);
                self.text(draft, text, part.thought.unwrap_or(false), signature);
            }
        }
    }

    fn text(&mut self, draft: &mut Draft, text: &Fragment<'_>, thought: bool, signature: Option<&str>) {
        let signature = signature.filter(|signature| !signature.is_empty());
        if text.is_empty() && signature.is_none() {
            return;
        }
        let index = match self.text {
            Some(OpenText { index, thought: same }) if same == thought && signature.is_none() => index,
            _ => {
                self.settle(draft);
                draft.open(if thought { BlockKind::Thinking { redacted: false } } else { BlockKind::Text })
            }
        };
        draft.append_fragment(index, text);
        self.text = Some(OpenText { index, thought });
        if !thought && !text.is_empty() {
            self.answer = Some(index);
        }
        if let Some(signature) = signature {
            draft.sign(index, signature);
            self.settle(draft);
        }
    }

    fn function_call(&mut self, draft: &mut Draft, call: &FunctionCall<'_>, signature: Option<&str>) {
        let goes_on = call.will_continue.unwrap_or(false);
        let pieces = call.partial_args.as_deref().unwrap_or_default();
        let mut open = match self.call.take() {
            Some(open) if call.is_unnamed() => open,
            unfinished => {
                self.call = unfinished;
                if call.is_unnamed() && call.args.is_none() && pieces.is_empty() && signature.is_none() {
                    return;
                }
                self.settle(draft);
                let text = |field: &Option<Lossy<'_>>| field.as_deref().unwrap_or_default().to_owned();
                let index = draft.open(BlockKind::ToolCall { id: text(&call.id), name: text(&call.name) });
                let arguments = (goes_on || !pieces.is_empty()).then(ArgumentsWriter::default);
                draft.append(index, if arguments.is_some() { ArgumentsWriter::START } else { "" });
                OpenCall { index, signed: false, arguments }
            }
        };
        if let Some(signature) = signature.filter(|_| !open.signed) {
            draft.sign(open.index, signature);
            open.signed = true;
        }
        match (&mut open.arguments, call.args) {
            (Some(arguments), _) => {
                for piece in pieces {
                    draft.append(open.index, arguments.push(piece));
                }
                if goes_on {
                    self.call = Some(open);
                    return;
                }
                draft.append(open.index, arguments.finish());
            }
            (None, Some(args)) => draft.append(open.index, args.get()),
            (None, None) => {}
        }
        draft.close(open.index);
    }

    /// Closes what a part of another kind ends. A call that said it would go on is left cut, so that its arguments
    /// can't be taken for whole.
    fn settle(&mut self, draft: &mut Draft) {
        if let Some(text) = self.text.take() {
            draft.close(text.index);
        }
        if let Some(call) = self.call.take() {
            draft.close(call.index);
        }
    }
}

impl Finish {
    /// The loop runs the calls of a reply that stopped, repairs one that was cut off, and shows a refusal. A reply that
    /// the API itself broke off is none of these: asking again is safe and known to help.
    fn stop(self, has_tool_calls: bool) -> Result<Stop, ModelError> {
        let Finish { reason, message } = self;
        let kind = match reason.as_str() {
            "MAX_TOKENS" | "CONTINUATION" => Ok(StopReason::Length),
            "SAFETY"
            | "RECITATION"
            | "LANGUAGE"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "MODEL_ARMOR"
            | "ESCALATION"
            | "PUP_LIMITED_DISABLED"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => Ok(StopReason::Refusal),
            "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
                Err(ErrorKind::Server)
            }
            "MISSING_THOUGHT_SIGNATURE" => Err(ErrorKind::InvalidRequest),
            _ if has_tool_calls => Ok(StopReason::ToolUse),
            _ => Ok(StopReason::Stop),
        };
        match kind {
            Ok(stop) => Ok(Stop { reason: stop, raw: Some(reason) }),
            Err(kind) => {
                let message = message.unwrap_or_else(|| format!("the API ended the reply with {reason}"));
                Err(ModelError::new(kind, message).with_code(reason))
            }
        }
    }
}

/// Where the answer comes from. Grounding and URLs are told anew as they become known; citations one after another.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sources {
    #[serde(skip_serializing_if = "Option::is_none")]
    grounding_metadata: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url_context_metadata: Option<RawJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    citation_metadata: Vec<RawJson>,
}

impl Sources {
    fn update(&mut self, grounding: Option<&RawValue>, urls: Option<&RawValue>, citations: Option<&RawValue>) {
        let says = |raw: &&RawValue| raw.get().starts_with('{') && raw.get() != "{}";
        let said = |raw: Option<&RawValue>| raw.filter(says).map(RawJson::from);
        self.grounding_metadata = said(grounding).or(self.grounding_metadata.take());
        self.url_context_metadata = said(urls).or(self.url_context_metadata.take());
        self.citation_metadata.extend(said(citations).filter(|new| self.citation_metadata.last() != Some(new)));
    }

    fn annotations(&self) -> Option<RawJson> {
        let any = self.grounding_metadata.is_some()
            || self.url_context_metadata.is_some()
            || !self.citation_metadata.is_empty();
        any.then(|| RawJson::of(self).ok()).flatten()
    }
}

fn unreadable(error: serde_json::Error) -> ModelError {
    if error.is_eof() {
        return truncated();
    }
    ModelError::new(ErrorKind::Protocol, format!("the response isn't what the API documents: {error}"))
}

/// Whether a part holds anything besides its being a thought and its signature.
fn says_more(raw: &RawValue) -> bool {
    let fields: Result<HashMap<Cow<'_, str>, Option<IgnoredAny>>, _> = serde_json::from_str(raw.get());
    fields.is_ok_and(|fields| {
        fields
            .iter()
            .any(|(name, value)| value.is_some() && !matches!(&**name, "text" | "thought" | "thoughtSignature"))
    })
}
