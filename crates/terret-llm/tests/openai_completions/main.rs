//! The wire `openai-completions`: what the replies of its hosts mean, and what these are sent.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../fold/mod.rs"]
mod fold;
mod replies;
mod requests;

use serde_json::Value;
use terret_llm::wire::{ReplyReader, WireFormat};
use terret_llm::{AssistantMessage, Draft, Failed, ModelSpec, StreamEvent};

fn stream(chunks: impl IntoIterator<Item = Value>) -> String {
    let chunks: String = chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    chunks + "data: [DONE]\n\n"
}

/// The reply that a body means, which must be the same however the body is cut.
fn done(body: &str) -> AssistantMessage {
    let mut reply = decode(body, usize::MAX).unwrap_or_else(|failed| panic!("{failed}: {body}"));
    for size in [1, 7] {
        let mut again = decode(body, size).unwrap();
        again.timestamp = reply.timestamp;
        assert_eq!(again, reply, "{size} bytes at a time: {body}");
    }
    reply.timestamp = 0;
    reply
}

fn decode(body: &str, size: usize) -> Result<AssistantMessage, Failed> {
    let spec = ModelSpec::new("host", "model", WireFormat::OpenaiCompletions);
    let mut reader = ReplyReader::new(spec.wire.wire().unwrap().decoder(), Draft::new(&spec));
    let mut events = Vec::new();
    for piece in body.as_bytes().chunks(size.min(body.len().max(1))) {
        reader.push(piece);
        events.extend(std::iter::from_fn(|| reader.next_event()));
    }
    reader.end();
    events.extend(std::iter::from_fn(|| reader.next_event()));
    match events.pop() {
        Some(StreamEvent::Done(reply)) => {
            assert_eq!(fold::differs_from_fold(&events, reply.message(), true), None, "{body}");
            Ok(reply.into_message())
        }
        Some(StreamEvent::Failed(failed)) => {
            assert_eq!(fold::differs_from_fold(&events, &failed.partial, false), None, "{body}");
            Err(failed)
        }
        other => panic!("no end: {other:?}"),
    }
}
