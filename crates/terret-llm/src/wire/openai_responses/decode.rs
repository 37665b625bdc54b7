//! Decoding: the events of a stream, or a whole response, into a draft.
//!
//! The wire tells everything up to four times: in deltas, at the end of a part, at the end of an item and in the
//! response. What was streamed stands, and what is told later completes it: hosts leave out any of the four.

use serde_json::value::RawValue;

use super::events::{ContentPart, Event, OutputItem, Response, Usage, arguments, text};
use super::item::{Item, Kind, Piece, Source};
use crate::draft::{Draft, Stop};
use crate::error::{ErrorKind, ModelError};
use crate::sse::SseEvent;
use crate::transcript::{StopReason, replace_lone_surrogates};
use crate::wire::{Decoder, failure, truncated};

/// Folds one response.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    /// In order of arrival, which is their order in the response.
    items: Vec<Item>,
    input: Input,
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, draft: &mut Draft, event: &SseEvent<'_>) -> Result<Option<Stop>, ModelError> {
        let told: Event<'_> = match serde_json::from_str(&event.data) {
            Ok(told) => told,
            // A known field is of a strange shape.
            Err(error) if error.is_data() => return Ok(None),
            Err(_) if event.data.is_empty() || event.data == "[DONE]" => return Ok(None),
            Err(error) => return Err(ModelError::new(ErrorKind::Protocol, format!("an event is not JSON: {error}"))),
        };
        let kind = told.kind.as_deref().unwrap_or(&event.name);
        let part = told.content_index.unwrap_or(0);
        let delta = Piece::Next(told.delta.as_ref());
        match kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                self.note(draft, &response(told.response));
                draft.start();
            }
            "response.output_item.added" => self.added(draft, &told),
            "response.output_item.done" => self.done(draft, &told),
            "response.content_part.added" => self.part_added(draft, &told, part),
            "response.output_text.delta" => self.text(draft, &told, part, delta, false),
            "response.output_text.done" => self.text(draft, &told, part, Piece::Whole(text(&told.text)), false),
            "response.refusal.delta" => self.text(draft, &told, part, delta, true),
            "response.refusal.done" => self.text(draft, &told, part, Piece::Whole(text(&told.refusal)), true),
            "response.reasoning_text.delta" => self.reasoning(draft, &told, Source::Content(part), delta),
            "response.reasoning_text.done" => {
                self.reasoning(draft, &told, Source::Content(part), Piece::Whole(text(&told.text)));
            }
            "response.reasoning_summary_text.delta" => {
                self.reasoning(draft, &told, Source::Summary(told.summary_index.unwrap_or(0)), delta);
            }
            "response.reasoning_summary_text.done" => {
                let source = Source::Summary(told.summary_index.unwrap_or(0));
                self.reasoning(draft, &told, source, Piece::Whole(text(&told.text)));
            }
            "response.function_call_arguments.delta" => self.call(draft, &told, Kind::FunctionCall, delta),
            "response.function_call_arguments.done" => {
                self.call(draft, &told, Kind::FunctionCall, Piece::Whole(&arguments(told.arguments)));
            }
            "response.custom_tool_call_input.delta" => self.call(draft, &told, Kind::CustomCall, delta),
            "response.custom_tool_call_input.done" => {
                self.call(draft, &told, Kind::CustomCall, Piece::Whole(text(&told.input)));
            }
            "response.completed" | "response.done" => {
                return self.conclude(draft, &response(told.response), "completed").map(Some);
            }
            "response.incomplete" => return self.conclude(draft, &response(told.response), "incomplete").map(Some),
            "response.failed" | "response.cancelled" => {
                return self.conclude(draft, &response(told.response), "failed").map(Some);
            }
            "error" => return Err(provider_error(&event.data)),
            _ if told.error.is_some() => return Err(provider_error(&event.data)),
            // The life of server-side tools, annotations (the item's end tells them), what is still to be invented.
            _ => {}
        }
        Ok(None)
    }

    fn body(&mut self, draft: &mut Draft, body: &str) -> Result<Stop, ModelError> {
        let response: Response<'_> = serde_json::from_str(body).map_err(|_| failure::not_json(body))?;
        match text(&response.status) {
            "queued" | "in_progress" => return Err(truncated()),
            "" if response.error.is_some() || response.detail.is_some() => return Err(provider_error(body)),
            "" if response.output.is_none() => {
                return Err(ModelError::new(ErrorKind::Protocol, "the body is JSON, but not a response"));
            }
            _ => {}
        }
        self.conclude(draft, &response, "completed")
    }
}

impl ResponsesDecoder {
    fn added(&mut self, draft: &mut Draft, told: &Event<'_>) {
        let Some((raw, output)) = told.item.and_then(|raw| Some((raw, OutputItem::read(raw)?))) else { return };
        let known = self.position(told.output_index, &output);
        let open = known.filter(|at| self.items.get(*at).is_some_and(|item| !item.done));
        let at = open.unwrap_or_else(|| self.open(draft, Kind::of(&output), told.output_index));
        if let Some(item) = self.items.get_mut(at) {
            item.begin(draft, &output, raw);
        }
    }

    /// Begins a message's part, to keep its place.
    fn part_added(&mut self, draft: &mut Draft, told: &Event<'_>, part: u64) {
        let kind: Option<ContentPart<'_>> = told.part.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let refusal = match kind.as_ref().map(|part| text(&part.kind)) {
            Some("output_text") => false,
            Some("refusal") => true,
            _ => return,
        };
        if let Some(item) = self.item(draft, Kind::Message, told) {
            item.part(draft, part, refusal);
        }
    }

    fn done(&mut self, draft: &mut Draft, told: &Event<'_>) {
        let Some((raw, output)) = told.item.and_then(|raw| Some((raw, OutputItem::read(raw)?))) else { return };
        let kind = Kind::of(&output);
        let at = self
            .position(told.output_index, &output)
            .or_else(|| self.last_open(kind).filter(|_| told.output_index.is_none() && output.is_anonymous()))
            .unwrap_or_else(|| self.open(draft, kind, told.output_index));
        if let Some(item) = self.items.get_mut(at) {
            item.finish(draft, &output, Some(raw));
        }
    }

    fn text(&mut self, draft: &mut Draft, told: &Event<'_>, part: u64, piece: Piece<'_>, refusal: bool) {
        if !piece.is_empty()
            && let Some(item) = self.item(draft, Kind::Message, told)
            && let Some(block) = item.part(draft, part, refusal)
        {
            piece.write(draft, block);
        }
    }

    fn reasoning(&mut self, draft: &mut Draft, told: &Event<'_>, source: Source, piece: Piece<'_>) {
        if let Some(item) = self.item(draft, Kind::Reasoning, told) {
            item.reason(draft, source, piece);
        }
    }

    fn call(&mut self, draft: &mut Draft, told: &Event<'_>, kind: Kind, piece: Piece<'_>) {
        if let Some(item) = self.item(draft, kind, told) {
            item.write_call(draft, piece);
        }
    }

    /// The item that an event other than its start and its end belongs to.
    fn item(&mut self, draft: &mut Draft, kind: Kind, told: &Event<'_>) -> Option<&mut Item> {
        let found = match told.output_index {
            Some(_) => self.items.iter().rposition(|item| item.kind == kind && item.index == told.output_index),
            None => {
                let id = text(&told.item_id);
                let named = self.items.iter().rposition(|item| item.kind == kind && item.is_named(id));
                named.or_else(|| self.last_open(kind))
            }
        };
        let at = found.unwrap_or_else(|| self.open(draft, kind, told.output_index));
        self.items.get_mut(at)
    }

    /// Where the item is that an event begins or ends.
    fn position(&self, index: Option<u64>, output: &OutputItem<'_>) -> Option<usize> {
        self.items.iter().rposition(|item| item.is(index, output))
    }

    fn last_open(&self, kind: Kind) -> Option<usize> {
        self.items.iter().rposition(|item| item.kind == kind && !item.done)
    }

    fn open(&mut self, draft: &mut Draft, kind: Kind, index: Option<u64>) -> usize {
        self.items.push(Item::new(draft, kind, index));
        self.items.len() - 1
    }

    /// Takes the response's id and its token counts.
    fn note(&mut self, draft: &mut Draft, response: &Response<'_>) {
        draft.set_response_id(text(&response.id));
        if let Some(usage) = &response.usage {
            self.input.count(draft, usage);
        }
    }

    /// Takes the response as it is at its end.
    fn conclude(&mut self, draft: &mut Draft, response: &Response<'_>, implied: &str) -> Result<Stop, ModelError> {
        self.note(draft, response);
        draft.start();
        let streamed = self.items.len();
        for (ordinal, raw) in response.output.iter().flatten().enumerate() {
            let Some(output) = OutputItem::read(raw) else { continue };
            let at =
                self.streamed(streamed, ordinal, &output).unwrap_or_else(|| self.open(draft, Kind::of(&output), None));
            if let Some(item) = self.items.get_mut(at) {
                item.finish(draft, &output, Some(raw));
            }
        }
        for item in &mut self.items {
            item.finish(draft, &OutputItem::default(), None);
        }
        let told = text(&response.status);
        let status = if matches!(told, "incomplete" | "failed" | "cancelled") { told } else { implied };
        let details = response.incomplete_details.as_ref().map_or("", |details| text(&details.reason));
        let reason = match (status, details) {
            ("failed" | "cancelled", _) => return Err(failed(response, status)),
            ("incomplete", "content_filter") => StopReason::Refusal,
            ("incomplete", "" | "max_output_tokens" | "max_tokens" | "model_context_window_exceeded") => {
                StopReason::Length
            }
            // Whatever stopped it, a call that isn't whole mustn't run.
            ("incomplete", _) if self.items.iter().any(Item::is_cut_call) => StopReason::Length,
            _ if self.items.iter().any(Item::is_refusal) => StopReason::Refusal,
            _ if draft.has_tool_calls() => StopReason::ToolUse,
            _ => StopReason::Stop,
        };
        let raw = [details, told].into_iter().find(|word| !word.is_empty()).unwrap_or(status);
        Ok(Stop { reason, raw: Some(raw.to_owned()) })
    }

    /// Where an item of the whole response is among those that were streamed: by its ids, or else by its place in the
    /// list. The indices of a stream can have gaps.
    fn streamed(&self, count: usize, ordinal: usize, output: &OutputItem<'_>) -> Option<usize> {
        self.items.iter().take(count).rposition(|item| item.is(None, output)).or_else(|| {
            let item = self.items.get(ordinal).filter(|_| ordinal < count)?;
            (item.kind == Kind::of(output) && !item.is_other_call(output)).then_some(ordinal)
        })
    }
}

/// The input tokens as the wire counts them: what a cache served or stored is part of the total.
#[derive(Debug, Default)]
struct Input {
    total: Option<u64>,
    cached: Option<u64>,
    stored: Option<u64>,
}

impl Input {
    /// Takes counts; a count that isn't told again stays.
    fn count(&mut self, draft: &mut Draft, told: &Usage) {
        let details = told.input_tokens_details.as_ref();
        self.total = told.input_tokens.or(self.total);
        self.cached = details.and_then(|details| details.cached_tokens).or(self.cached);
        self.stored = details.and_then(|details| details.cache_write_tokens).or(self.stored);
        let usage = draft.usage_mut();
        usage.cache_read = self.cached.unwrap_or(0);
        usage.cache_write = self.stored.unwrap_or(0);
        usage.input = self.total.unwrap_or(0).saturating_sub(usage.cache_read).saturating_sub(usage.cache_write);
        usage.output = told.output_tokens.unwrap_or(usage.output);
        let details = told.output_tokens_details.as_ref();
        usage.reasoning = details.and_then(|details| details.reasoning_tokens).unwrap_or(usage.reasoning);
    }
}

fn response(raw: Option<&RawValue>) -> Response<'_> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn failed(response: &Response<'_>, status: &str) -> ModelError {
    match response.error {
        Some(raw) => provider_error(raw.get()),
        None => {
            ModelError::new(ErrorKind::Server, "the provider ended the response without saying why").with_code(status)
        }
    }
}

fn provider_error(json: &str) -> ModelError {
    match serde_json::from_str(&replace_lone_surrogates(json)) {
        Ok(json) => failure::from_json(&json, None),
        Err(_) => ModelError::new(ErrorKind::Server, json),
    }
}
