use std::collections::VecDeque;

use serde::de::IgnoredAny;

use crate::draft::{Draft, Stop};
use crate::error::{ErrorKind, ModelError};
use crate::sse::{SseEvent, SseParser};
use crate::stream::StreamEvent;
use crate::wire::{Decoder, failure, truncated};

/// Reads one response: body bytes in at any split, [`StreamEvent`]s out. Does no I/O.
///
/// A body that starts like JSON is a plain response, anything else a stream of server-sent events; servers are known to
/// announce the one and send the other.
pub struct ReplyReader {
    decoder: Box<dyn Decoder>,
    draft: Option<Draft>,
    body: Body,
    /// Bytes since the last event, or of the whole of a plain body.
    pending: usize,
    /// The beginning of what came before the first event, to show if there never is one.
    beginning: Option<Vec<u8>>,
    ending: VecDeque<StreamEvent>,
}

/// The most bytes of one event, or of a plain body: what is longer is no reply, and must not fill the memory.
const LONGEST: usize = 64 << 20;

/// How much of an answer that is none is kept, in bytes.
const SHOWN: usize = 2 << 10;

enum Body {
    /// Nothing but white space so far.
    Unknown,
    Stream(SseParser),
    Plain(Vec<u8>),
}

impl ReplyReader {
    /// A reader at the start of a body.
    pub fn new(decoder: Box<dyn Decoder>, draft: Draft) -> Self {
        Self {
            decoder,
            draft: Some(draft),
            body: Body::Unknown,
            pending: 0,
            beginning: Some(Vec::new()),
            ending: VecDeque::new(),
        }
    }

    /// Takes the next bytes of the body. Bytes after the terminal are ignored.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if let Body::Unknown = self.body {
            bytes = bytes.trim_ascii_start();
            self.body = match bytes.first() {
                None => return,
                Some(b'{' | b'[' | b'<') => Body::Plain(Vec::new()),
                Some(_) => Body::Stream(SseParser::new()),
            };
        }
        self.pending += bytes.len();
        match &mut self.body {
            Body::Unknown => {}
            Body::Plain(body) => body.extend_from_slice(bytes),
            Body::Stream(parser) => {
                let Some(draft) = &mut self.draft else { return };
                if let Some(beginning) = &mut self.beginning {
                    beginning.extend(bytes.iter().take(SHOWN.saturating_sub(beginning.len())));
                }
                let mut end = None;
                parser.push(bytes, |event| {
                    self.pending = 0;
                    self.beginning = None;
                    go_on(self.decoder.as_mut(), draft, &event, &mut end)
                });
                self.conclude(end);
            }
        }
        if self.pending > LONGEST {
            let message = format!("the answer holds more than {} MiB without an end of an event", LONGEST >> 20);
            self.conclude(Some(Err(ModelError::new(ErrorKind::Protocol, message))));
        }
    }

    /// The body has ended.
    pub fn end(&mut self) {
        let Some(draft) = &mut self.draft else { return };
        let mut end = None;
        match &mut self.body {
            Body::Unknown => {}
            Body::Plain(body) => {
                let body = String::from_utf8_lossy(body);
                end = Some(self.decoder.body(draft, &body).map_err(|error| if_cut_off(&body, error)));
            }
            Body::Stream(parser) => {
                parser.finish(|event| go_on(self.decoder.as_mut(), draft, &event, &mut end));
                // No blank line follows this last event: one that makes no sense was cut off, and counts for nothing.
                end = end
                    .filter(|end| !end.as_ref().is_err_and(|error| error.kind == ErrorKind::Protocol))
                    .or_else(|| Some(self.decoder.end(draft)));
                if let (Some(beginning), Some(Err(error))) = (&self.beginning, &mut end)
                    && !looks_like_a_stream(beginning)
                {
                    *error = failure::not_json(&String::from_utf8_lossy(beginning));
                }
            }
        }
        self.conclude(end.or_else(|| Some(Err(truncated()))));
    }

    /// The connection broke, which `cause` explains. What has arrived may still be a whole reply; if it isn't, an event
    /// that was cut off is no event.
    pub fn break_off(&mut self, cause: &str) {
        let Some(draft) = &mut self.draft else { return };
        let end = match &self.body {
            Body::Stream(_) => self.decoder.end(draft),
            Body::Unknown | Body::Plain(_) => Err(truncated()),
        };
        self.conclude(Some(end.map_err(|mut error| {
            error.message = format!("{}: {cause}", error.message);
            error
        })));
    }

    /// The call failed for a reason outside the body: a limit, a cancel.
    pub fn fail(&mut self, error: ModelError) {
        self.conclude(Some(Err(error)));
    }

    /// The oldest event that nobody has taken yet.
    pub fn next_event(&mut self) -> Option<StreamEvent> {
        self.draft.as_mut().and_then(Draft::next_event).or_else(|| self.ending.pop_front())
    }

    /// Whether the end of the reply is known: no more bytes are needed.
    pub fn is_over(&self) -> bool {
        self.draft.is_none()
    }

    fn conclude(&mut self, end: Option<Result<Stop, ModelError>>) {
        let Some(end) = end else { return };
        let Some(draft) = self.draft.take() else { return };
        self.ending = match end {
            Ok(stop) => draft.done(stop),
            Err(error) => draft.fail(error),
        }
        .into();
    }
}

/// Hands an event to the decoder; false when the reply has ended.
fn go_on(
    decoder: &mut dyn Decoder,
    draft: &mut Draft,
    event: &SseEvent<'_>,
    end: &mut Option<Result<Stop, ModelError>>,
) -> bool {
    match decoder.event(draft, event) {
        Ok(None) => true,
        Ok(Some(stop)) => {
            *end = Some(Ok(stop));
            false
        }
        Err(error) => {
            *end = Some(Err(error));
            false
        }
    }
}

/// Whether a body without a whole event could be the beginning of a stream, or comments only.
fn looks_like_a_stream(beginning: &[u8]) -> bool {
    const FIELDS: [&[u8]; 5] = [b"data", b"event", b"id", b"retry", b":"];
    let beginning = beginning.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(beginning).trim_ascii_start();
    FIELDS.iter().any(|field| beginning.starts_with(field) || field.starts_with(beginning))
}

/// A plain body that the decoder can't read may be only the beginning of one.
fn if_cut_off(body: &str, error: ModelError) -> ModelError {
    let is_start_of_json = || serde_json::from_str::<IgnoredAny>(body).is_err_and(|error| error.is_eof());
    if error.kind == ErrorKind::Protocol && is_start_of_json() { truncated() } else { error }
}

impl std::fmt::Debug for ReplyReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyReader").field("draft", &self.draft).finish_non_exhaustive()
    }
}
