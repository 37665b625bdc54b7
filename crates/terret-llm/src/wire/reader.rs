use std::collections::VecDeque;

use serde::de::IgnoredAny;

use crate::draft::{Draft, Stop};
use crate::error::{ErrorKind, ModelError};
use crate::sse::{SseEvent, SseParser};
use crate::stream::StreamEvent;
use crate::wire::{Decoder, truncated};

/// Reads one response: body bytes in at any split, [`StreamEvent`]s out. Does no I/O.
///
/// A body that starts like JSON is a plain response, anything else a stream of server-sent events; servers are known to
/// announce the one and send the other.
pub struct ReplyReader {
    decoder: Box<dyn Decoder>,
    draft: Option<Draft>,
    body: Body,
    ending: VecDeque<StreamEvent>,
}

enum Body {
    /// Nothing but white space so far.
    Unknown,
    Stream(SseParser),
    Plain(Vec<u8>),
}

impl ReplyReader {
    /// A reader at the start of a body.
    pub fn new(decoder: Box<dyn Decoder>, draft: Draft) -> Self {
        Self { decoder, draft: Some(draft), body: Body::Unknown, ending: VecDeque::new() }
    }

    /// Takes the next bytes of the body. Bytes after the terminal are ignored.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Body::Unknown = self.body {
            match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return,
                Some(b'{' | b'[' | b'<') => self.body = Body::Plain(Vec::new()),
                Some(_) => self.body = Body::Stream(SseParser::new()),
            }
        }
        match &mut self.body {
            Body::Unknown => {}
            Body::Plain(body) => body.extend_from_slice(bytes),
            Body::Stream(parser) => {
                let Some(draft) = &mut self.draft else { return };
                let mut end = None;
                parser.push(bytes, |event| go_on(self.decoder.as_mut(), draft, &event, &mut end));
                self.conclude(end);
            }
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
            }
        }
        self.conclude(end.or_else(|| Some(Err(truncated()))));
    }

    /// The call failed for a reason outside the body: a broken connection, a limit, a cancel.
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
