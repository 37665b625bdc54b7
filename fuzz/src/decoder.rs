//! A wire's decoder: one reading at every chunking, one end, no end that the provider didn't send, nothing out of nothing.

use terret_llm::wire::{ReplyReader, WireFormat};
use terret_llm::{AssistantMessage, Draft, Message, ModelError, ModelSpec, StreamEvent, Transcript, UserMessage};

use crate::fold::differs_from_fold;
use crate::{handoff, pieces, sse};

pub(crate) fn check(wire: WireFormat, data: &[u8]) {
    let Some((lengths, body)) = pieces::split(data) else { return };
    let whole = read(&wire, [body]);
    assert_eq!(read(&wire, lengths.pieces(body)), whole, "in pieces");
    assert_eq!(read(&wire, body.chunks(1)), whole, "byte by byte");
    is_sound(&wire, body, &whole);

    let start = &body[..lengths.place(body.len())];
    is_sound(&wire, start, &read(&wire, lengths.pieces(start)));

    if let End::Done(message) = whole.end {
        goes_back(message);
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    /// All events but the end.
    events: Vec<StreamEvent>,
    end: End,
}

#[derive(Debug, PartialEq)]
enum End {
    Done(AssistantMessage),
    Failed(ModelError, AssistantMessage),
}

fn read<'a>(wire: &WireFormat, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut reader = ReplyReader::new(wire.wire().unwrap().decoder(), Draft::new(&model(wire)).at(0));
    let mut events = Vec::new();
    for piece in pieces {
        reader.push(piece);
        events.extend(std::iter::from_fn(|| reader.next_event()));
    }
    reader.end();
    events.extend(std::iter::from_fn(|| reader.next_event()));
    assert!(reader.is_over(), "no end");
    reader.push(b"data: {}\n\n");
    reader.end();
    assert_eq!(reader.next_event(), None, "an event after the end");
    let end = match events.pop() {
        Some(StreamEvent::Done(reply)) => End::Done(reply.into_message()),
        Some(StreamEvent::Failed(failed)) => End::Failed(failed.error, *failed.partial),
        other => panic!("the stream ended in {other:?}"),
    };
    Outcome { events, end }
}

fn model(wire: &WireFormat) -> ModelSpec {
    ModelSpec::new("fuzzed", "model", wire.clone())
}

/// What holds for every reading of these bytes.
fn is_sound(wire: &WireFormat, body: &[u8], outcome: &Outcome) {
    let (message, done) = match &outcome.end {
        End::Done(message) => (message, true),
        End::Failed(_, message) => (message, false),
    };
    assert_eq!(differs_from_fold(&outcome.events, message, done), None);
    assert!(!done || has_terminal(wire, body), "done, but no terminal came");
    if done {
        let ids: Vec<&str> = message.tool_calls().map(|call| call.id.as_str()).collect();
        assert!(!ids.contains(&""), "a call without an id");
        assert!(ids.iter().all(|id| ids.iter().filter(|other| *other == id).count() == 1), "an id twice: {ids:?}");
    }
    let message = Message::Assistant(message.clone());
    let json = serde_json::to_string(&message).unwrap();
    assert!(json.len() <= 4096 + 32 * body.len(), "{} bytes of message from {}", json.len(), body.len());
    assert_eq!(serde_json::from_str::<Message>(&json).unwrap(), message);
}

/// The reply goes back to its own model, and to all others, in a body that is sound.
fn goes_back(message: AssistantMessage) {
    let own = model(&message.wire);
    let said = [UserMessage::text("hi", 0).into(), Message::from(message), UserMessage::text("go on", 0).into()];
    let transcript = Transcript::from_iter(said);
    handoff::check_for(&transcript, &own, &Default::default());
    for wire in handoff::WIRES {
        handoff::check_for(&transcript, &ModelSpec::new("other", "model", wire), &Default::default());
    }
}

/// Whether a provider could have said anywhere in this body why the reply ends. No more than that is asked: where it
/// stands is the decoder's to judge, but without any such word nothing may count as complete.
fn has_terminal(wire: &WireFormat, body: &[u8]) -> bool {
    let body = body.trim_ascii_start();
    let is_plain = body.first().is_some_and(|first| b"{[<".contains(first));
    if is_plain {
        return is_closed(&String::from_utf8_lossy(body));
    }
    let words: &[&str] = match wire {
        WireFormat::AnthropicMessages => &["message_stop"],
        WireFormat::OpenaiCompletions => &["finish_reason", "[DONE]"],
        WireFormat::OpenaiResponses => &["response.completed", "response.incomplete"],
        _ => &["finishReason"],
    };
    sse::events(body).iter().any(|(name, data)| words.iter().any(|word| name == word || holds(data, word)))
}

/// Whether the brackets of a JSON text that begins with one are closed, at its end or before it.
fn is_closed(json: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for c in json.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => depth += 1,
            '}' | ']' if depth <= 1 => return depth == 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
    }
    false
}

/// Whether a word stands in a JSON text, its letters escaped or not.
fn holds(json: &str, word: &str) -> bool {
    let mut pieces = json.split("\\u");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let escaped = piece.get(..4).and_then(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
        text.extend(escaped);
        text.push_str(if escaped.is_some() { &piece[4..] } else { piece });
    }
    text.contains(word)
}
