//! From chunks to a reply.

use serde_json::Value;
use serde_json::value::RawValue;

use super::calls::{Calls, Open};
use super::details::Details;
use super::frame::{CallDelta, Choice, Delta, Detail, Frame, Part, Usage, parts, text};
use super::usage::Counts;
use crate::draft::{Draft, Stop};
use crate::error::{ErrorKind, ModelError};
use crate::lossy::Fragment;
use crate::sse::SseEvent;
use crate::stream::BlockKind;
use crate::transcript::{RawJson, StopReason, replace_lone_surrogates};
use crate::wire::{Decoder, failure, truncated};

/// Folds one response, streamed or plain, into a draft.
#[derive(Default)]
pub(super) struct CompletionsDecoder {
    /// The block that is being written, if it is one of text.
    live: Option<(Writing, usize)>,
    /// The last block of thinking and the last one of text, for messages that say them again.
    last_thinking: Option<usize>,
    last_text: Option<usize>,
    /// The thinking block whose details are not complete. It stays open when other blocks begin.
    detailed: Option<(usize, Details)>,
    /// Details that came before any thinking.
    pending: Details,
    /// Reasoning comes as plain text, so that what details repeat of it is not text of its own.
    plain_reasoning: bool,
    /// Deltas have come, so that a message is only a summary of them.
    incremental: bool,
    refused: bool,
    calls: Calls,
    annotations: Vec<String>,
    citations: String,
    counts: Counts,
    finish_reason: Option<String>,
    /// The last event was JSON that breaks off.
    cut: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    Thinking,
    Text,
    Refusal,
}

impl Decoder for CompletionsDecoder {
    fn event(&mut self, draft: &mut Draft, event: &SseEvent<'_>) -> Result<Option<Stop>, ModelError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(None);
        }
        if self.cut {
            return Err(self.fail(draft, ModelError::new(ErrorKind::Protocol, "an event of the stream breaks off")));
        }
        if data == "[DONE]" {
            return self.finish(draft).map(Some);
        }
        if event.name == "error" {
            let json = serde_json::from_str(&replace_lone_surrogates(data)).unwrap_or_else(|_| data.into());
            return Err(self.fail(draft, failure::from_json(&json, None)));
        }
        if data.starts_with('{') {
            match serde_json::from_str::<Frame<'_>>(data) {
                Ok(frame) => self.frame(draft, &frame, data)?,
                Err(_) => self.odd_frame(draft, data)?,
            }
        } else if let Ok(Value::Array(list)) = serde_json::from_str(data)
            && list.iter().any(|element| element.get("error").is_some())
        {
            // Google's errors come in a list.
            return Err(self.fail(draft, failure::from_json(&list.into(), None)));
        }
        // Anything else is a note: some proxies write them as data.
        Ok(None)
    }

    fn body(&mut self, draft: &mut Draft, body: &str) -> Result<Stop, ModelError> {
        let json: Value = match serde_json::from_str(&replace_lone_surrogates(body)) {
            Ok(json) => json,
            Err(error) if error.is_eof() => return Err(truncated()),
            Err(_) => return Err(failure::not_json(body)),
        };
        let answers = json.get("choices").and_then(Value::as_array).is_some_and(|choices| !choices.is_empty());
        if !answers {
            return Err(failure::from_json(&json, None));
        }
        match serde_json::from_str::<Frame<'_>>(body) {
            Ok(frame) => self.frame(draft, &frame, body)?,
            Err(_) => self.odd_frame(draft, body)?,
        }
        self.finish(draft)
    }

    /// Many hosts close the stream without `[DONE]`. Then the reason to finish is the terminal.
    fn end(&mut self, draft: &mut Draft) -> Result<Stop, ModelError> {
        if self.finish_reason.is_some() { self.finish(draft) } else { Err(self.fail(draft, truncated())) }
    }
}

impl CompletionsDecoder {
    fn frame(&mut self, draft: &mut Draft, frame: &Frame<'_>, data: &str) -> Result<(), ModelError> {
        if let Some(id) = frame.id.as_deref().filter(|id| !id.is_empty()) {
            draft.set_response_id(id);
            draft.start();
        }
        let mut failed = frame.error || frame.base_resp.status_code;
        failed |= frame.object.as_deref() == Some("error");
        if let Some(groq) = &frame.x_groq {
            failed |= groq.error;
            self.count(draft, groq.usage.as_deref());
        }
        // One choice is all that is ever asked for.
        for choice in frame.choices.iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.choice(draft, choice);
            failed |= choice.error;
        }
        self.count(draft, frame.usage.as_deref());
        if let Some(citations) = frame.citations.map(RawValue::get)
            && citations != self.citations
        {
            self.citations = citations.to_owned();
        }
        if failed { Err(self.fail(draft, reported(data))) } else { Ok(()) }
    }

    /// An event that doesn't parse at once: it holds lone surrogates or a key twice, or it is broken.
    fn odd_frame(&mut self, draft: &mut Draft, data: &str) -> Result<(), ModelError> {
        match serde_json::from_str::<Value>(&replace_lone_surrogates(data)) {
            Ok(json) => {
                let data = json.to_string();
                serde_json::from_str(&data).map_or(Ok(()), |frame| self.frame(draft, &frame, &data))
            }
            Err(error) if error.is_eof() => {
                self.cut = true;
                Ok(())
            }
            // All of the reply is there.
            Err(_) if self.finish_reason.is_some() => Ok(()),
            Err(error) => {
                let message = format!("an event of the stream is broken JSON: {error}");
                Err(self.fail(draft, ModelError::new(ErrorKind::Protocol, message)))
            }
        }
    }

    fn count(&mut self, draft: &mut Draft, report: Option<&Usage>) {
        if let Some(report) = report {
            self.counts.take(report);
            self.counts.write(draft.usage_mut());
        }
    }

    fn choice(&mut self, draft: &mut Draft, choice: &Choice<'_>) {
        self.count(draft, choice.usage.as_deref());
        if !choice.delta.is_empty() {
            self.incremental = true;
            self.take(draft, &choice.delta, false);
        } else if let Some(message) = choice.message.as_deref().filter(|message| !message.is_empty()) {
            self.take(draft, message, true);
        }
        if let Some(reason) = choice.finish_reason.as_deref().filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
        }
    }

    /// Takes a delta, or a message. That is a plain response; or, in a stream, what other hosts call a delta; or all
    /// that there is so far, once more, beside the deltas or alone.
    fn take(&mut self, draft: &mut Draft, said: &Delta<'_>, is_message: bool) {
        let again = is_message && self.incremental;
        if let Some(reasoning) = said.reasoning() {
            self.plain_reasoning = true;
            let known = self.last_thinking.filter(|_| is_message);
            self.write(draft, Writing::Thinking, beyond(known, draft, reasoning, again));
        }
        if !again {
            said.reasoning_details.iter().for_each(|detail| self.detail(draft, detail));
        }
        match said.parts() {
            None => {
                let known = self.last_text.filter(|_| is_message);
                self.write(draft, Writing::Text, beyond(known, draft, text(said.content), again));
            }
            Some(parts) if !again => parts.iter().for_each(|json| self.part(draft, json)),
            Some(_) => {}
        }
        if !again {
            self.write(draft, Writing::Refusal, text(said.refusal));
            said.images.iter().for_each(|image| self.image(draft, image));
            self.annotations.extend(said.annotations.map(|list| list.get().to_owned()));
        }
        match said.tool_calls.as_slice() {
            _ if again && !self.calls.is_empty() => {}
            [] => {
                if let Some(function) = said.function_call.as_deref().filter(|function| !function.is_empty()) {
                    let call = CallDelta { function: function.clone(), ..CallDelta::default() };
                    self.calls.take(draft, &call, true);
                }
            }
            [call] => self.calls.take(draft, call, true),
            calls => calls.iter().for_each(|call| self.calls.take(draft, call, false)),
        }
        if self.calls.can_open(Open::Known) {
            self.leave(draft);
            self.calls.open(draft, Open::Known);
        }
    }

    fn part(&mut self, draft: &mut Draft, json: &RawValue) {
        let part = Part::parse(json);
        match part.kind.as_deref() {
            Some("thinking") => match parts(part.thinking) {
                None => self.write(draft, Writing::Thinking, text(part.thinking)),
                Some(parts) => {
                    parts.iter().for_each(|json| self.write(draft, Writing::Thinking, text(Part::parse(json).text)));
                }
            },
            Some("refusal") => self.write(draft, Writing::Refusal, text(part.refusal)),
            Some("image_url") => self.image(draft, &part),
            Some("text" | "output_text") | None => self.write(draft, Writing::Text, text(part.text)),
            Some(_) => {
                self.turn_to_other(draft);
                draft.block(BlockKind::Opaque, json.get());
            }
        }
    }

    /// A picture in the answer: a `data:` URL, or one to look it up at.
    fn image(&mut self, draft: &mut Draft, part: &Part<'_>) {
        let url = part.image_url.url.as_deref().unwrap_or_default();
        match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
            Some((media_type, data)) => {
                self.turn_to_other(draft);
                draft.block(BlockKind::Image { media_type: media_type.to_owned() }, data);
            }
            None if url.is_empty() => {}
            None => {
                let link = format!("![image]({url})");
                self.write(draft, Writing::Text, Fragment { text: link.into(), ..Fragment::default() });
            }
        }
    }

    fn detail(&mut self, draft: &mut Draft, detail: &Detail<'_>) {
        if !self.plain_reasoning {
            self.write(draft, Writing::Thinking, detail.text());
        }
        match &mut self.detailed {
            Some((_, details)) => details.take(detail),
            None => self.pending.take(detail),
        }
    }

    fn write(&mut self, draft: &mut Draft, what: Writing, text: Fragment<'_>) {
        if text.is_empty() {
            return;
        }
        self.refused |= what == Writing::Refusal;
        let block = match self.live {
            Some((live, block)) if live == what => block,
            _ => self.begin(draft, what),
        };
        draft.append_fragment(block, &text);
    }

    fn begin(&mut self, draft: &mut Draft, what: Writing) -> usize {
        if what == Writing::Thinking {
            // Here, and not with a redacted block of their own, is where details belong that came first.
            let pending = std::mem::take(&mut self.pending);
            self.turn_to_other(draft);
            self.seal(draft);
            let block = draft.open(BlockKind::Thinking { redacted: false });
            self.detailed = Some((block, pending));
            self.last_thinking = Some(block);
            self.live = Some((what, block));
            return block;
        }
        self.turn_to_other(draft);
        let block = draft.open(BlockKind::Text);
        if what == Writing::Text {
            self.last_text = Some(block);
        }
        self.live = Some((what, block));
        block
    }

    /// Something begins that is no call: it stands after the calls that have come.
    fn turn_to_other(&mut self, draft: &mut Draft) {
        self.leave(draft);
        self.calls.open(draft, Open::Named);
    }

    /// Ends the block that is being written. Details that came without any thinking become a block.
    fn leave(&mut self, draft: &mut Draft) {
        match self.live.take() {
            // Its signature may still come.
            Some((Writing::Thinking, _)) if self.detailed.as_ref().is_some_and(|(_, details)| !details.is_empty()) => {}
            Some((what, block)) => {
                if what == Writing::Thinking {
                    self.detailed = None;
                }
                draft.close(block);
            }
            None => {}
        }
        if self.detailed.is_none() && self.pending.are_opaque() {
            let block = draft.open(BlockKind::Thinking { redacted: true });
            self.detailed = Some((block, std::mem::take(&mut self.pending)));
        }
    }

    /// Ends the thinking block that has details.
    fn seal(&mut self, draft: &mut Draft) {
        if let Some((block, details)) = self.detailed.take() {
            if !details.is_empty() {
                draft.sign(block, &details.to_json());
            }
            draft.close(block);
        }
    }

    /// Ends whatever is open.
    fn settle(&mut self, draft: &mut Draft) {
        self.leave(draft);
        self.calls.open(draft, Open::All);
        self.seal(draft);
        self.annotate(draft);
    }

    /// Annotations come late, and count positions in the text as a whole.
    fn annotate(&self, draft: &mut Draft) {
        let inner = |list: &'_ String| list.strip_prefix('[')?.strip_suffix(']').map(str::to_owned);
        let lists: Vec<String> = self.annotations.iter().filter_map(inner).filter(|list| !list.is_empty()).collect();
        let json = if lists.is_empty() { self.citations.clone() } else { format!("[{}]", lists.join(",")) };
        if let (Some(block), Ok(annotations)) = (self.last_text, RawJson::parse(&json)) {
            draft.annotate(block, annotations);
        }
    }

    fn fail(&mut self, draft: &mut Draft, error: ModelError) -> ModelError {
        self.settle(draft);
        error
    }

    fn finish(&mut self, draft: &mut Draft) -> Result<Stop, ModelError> {
        self.settle(draft);
        let raw = self.finish_reason.take();
        let reason = match raw.as_deref().unwrap_or_default().to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "max_output_tokens" | "model_length" | "model_context_window_exceeded" => {
                StopReason::Length
            }
            "content_filter" | "content_filtered" | "safety" | "sensitive" | "refusal" => StopReason::Refusal,
            word @ ("error" | "abort" | "aborted" | "network_error" | "insufficient_system_resource") => {
                let kind = match word {
                    "insufficient_system_resource" => ErrorKind::Overloaded,
                    _ => ErrorKind::Server,
                };
                let message = format!("the provider broke the reply off with finish_reason {word:?}");
                return Err(ModelError::new(kind, message).with_code(word));
            }
            _ if self.refused => StopReason::Refusal,
            _ if draft.has_tool_calls() => StopReason::ToolUse,
            _ => StopReason::Stop,
        };
        Ok(Stop { reason, raw })
    }
}

/// What a message says beyond a block that has been written, if it is the same text grown longer. A message that comes
/// `again`, after deltas, adds nothing if it differs from them.
fn beyond<'t>(known: Option<usize>, draft: &Draft, said: Fragment<'t>, again: bool) -> Fragment<'t> {
    let Some(known) = known.map(|block| draft.text(block)) else { return said };
    match said.text.strip_prefix(known) {
        Some(news) => Fragment { text: news.to_owned().into(), ..said },
        None if again => Fragment::default(),
        None => said,
    }
}

/// The error that an event holds, wherever in it.
fn reported(data: &str) -> ModelError {
    let json: Value = serde_json::from_str(&replace_lone_surrogates(data)).unwrap_or_else(|_| data.into());
    let choices = json.get("choices").and_then(Value::as_array).into_iter().flatten();
    let holder = [Some(&json), json.get("x_groq")]
        .into_iter()
        .flatten()
        .chain(choices)
        .find(|place| place.get("error").is_some_and(|error| !matches!(error, Value::Null | Value::Bool(false))));
    failure::from_json(holder.unwrap_or(&json), None)
}
