//! Reads a recorded response with this crate.

use terret_llm::wire::{ReplyReader, from_response};
use terret_llm::{AssistantMessage, Draft, ModelError, ModelSpec, StreamEvent};

use crate::cases::Case;

/// What a reading yielded.
pub(crate) struct Outcome {
    /// All events but the end.
    pub(crate) events: Vec<StreamEvent>,
    pub(crate) end: End,
}

/// The end of a reading, without the time at which it was.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    Done(AssistantMessage),
    Failed(ModelError, AssistantMessage),
}

impl End {
    pub(crate) fn message(&self) -> &AssistantMessage {
        match self {
            End::Done(message) | End::Failed(_, message) => message,
        }
    }
}

/// Reads a body that arrives in these pieces.
pub(crate) fn read<'a>(case: &Case, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let draft = Draft::new(&ModelSpec::new("corpus", "recorded", case.format.clone()));
    let mut events = Vec::new();
    if case.status >= 400 {
        let body = pieces.into_iter().collect::<Vec<_>>().concat();
        let header = |name: &str| case.headers[name].as_str().map(str::to_owned);
        events = draft.fail(from_response(case.status, header, &body));
    } else {
        let decoder = case.format.wire().unwrap().decoder();
        let mut reader = ReplyReader::new(decoder, draft);
        for piece in pieces {
            reader.push(piece);
            events.extend(std::iter::from_fn(|| reader.next_event()));
        }
        reader.end();
        events.extend(std::iter::from_fn(|| reader.next_event()));
    }
    let end = match events.pop() {
        Some(StreamEvent::Done(reply)) => End::Done(AssistantMessage { timestamp: 0, ..reply.into_message() }),
        Some(StreamEvent::Failed(failed)) => {
            End::Failed(failed.error, AssistantMessage { timestamp: 0, ..*failed.partial })
        }
        other => panic!("the stream ended in {other:?}"),
    };
    Outcome { events, end }
}
