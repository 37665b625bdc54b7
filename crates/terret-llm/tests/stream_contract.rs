//! The stream contract, on a protocol of this test's own: how a body becomes events, and events a message.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod fold;

use fold::differs_from_fold;
use proptest::prelude::*;
use terret_llm::wire::{Decoder, ReplyReader, WireFormat};
use terret_llm::{
    AssistantMessage, Block, BlockKind, Draft, ErrorKind, Message, ModelError, ModelSpec, Opaque, RawJson, SseEvent,
    Stop, StopReason, StreamEvent, Text, Thinking, ToolCall, Transcript,
};

/// A protocol whose events are words: `text hello`, `call c1 read`, `more {"path":`, `sign xyz`, `end`, `stop length` …
/// A plain body is a JSON list of them.
#[derive(Default)]
struct Words {
    block: Option<usize>,
}

impl Words {
    fn take(&mut self, draft: &mut Draft, words: &str) -> Result<Option<Stop>, ModelError> {
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let kind = match word {
            "text" => Some(BlockKind::Text),
            "think" => Some(BlockKind::Thinking { redacted: false }),
            "opaque" => Some(BlockKind::Opaque),
            "call" => {
                let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
                Some(BlockKind::ToolCall { id: id.into(), name: name.into() })
            }
            _ => None,
        };
        match (kind, self.block) {
            (Some(kind), _) => {
                let text = if word == "call" { "" } else { rest };
                let index = draft.open(kind);
                draft.append(index, text);
                self.block = Some(index);
            }
            (None, Some(index)) if word == "more" => draft.append(index, rest),
            (None, Some(index)) if word == "sign" => draft.sign(index, rest),
            (None, Some(index)) if word == "end" => draft.close(index),
            _ => {}
        }
        match word {
            "id" => draft.set_response_id(rest),
            "start" => draft.start(),
            "tokens" => draft.usage_mut().output = rest.parse().unwrap_or(0),
            "stop" => {
                let reason = serde_json::from_value(rest.into()).unwrap_or(StopReason::Stop);
                return Ok(Some(Stop { reason, raw: Some(rest.into()) }));
            }
            "fail" => return Err(ModelError::new(ErrorKind::Overloaded, rest)),
            "{" => return Err(ModelError::new(ErrorKind::Protocol, "not a word")),
            _ => {}
        }
        Ok(None)
    }
}

impl Decoder for Words {
    fn event(&mut self, draft: &mut Draft, event: &SseEvent<'_>) -> Result<Option<Stop>, ModelError> {
        self.take(draft, &event.data)
    }

    fn body(&mut self, draft: &mut Draft, body: &str) -> Result<Stop, ModelError> {
        let words: Vec<String> =
            serde_json::from_str(body).map_err(|error| ModelError::new(ErrorKind::Protocol, error.to_string()))?;
        for words in words {
            if let Some(stop) = self.take(draft, &words)? {
                return Ok(stop);
            }
        }
        self.end(draft)
    }
}

fn spec() -> ModelSpec {
    ModelSpec::new("acme", "words", WireFormat::from("words"))
}

fn reader() -> ReplyReader {
    ReplyReader::new(Box::new(Words::default()), Draft::new(&spec()))
}

fn stream(words: &[&str]) -> String {
    words.iter().map(|words| format!("data: {words}\n\n")).collect()
}

fn taken(reader: &mut ReplyReader) -> Vec<StreamEvent> {
    std::iter::from_fn(|| reader.next_event()).collect()
}

/// Reads a body in pieces to its end; events are taken after each piece.
fn read<'a>(mut reader: ReplyReader, pieces: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut events = Vec::new();
    for piece in pieces {
        reader.push(piece);
        events.extend(taken(&mut reader));
    }
    reader.end();
    events.extend(taken(&mut reader));
    Read::of(events)
}

fn read_words(words: &[&str]) -> Read {
    read(reader(), [stream(words).as_bytes()])
}

/// A stream that was read to its end.
#[derive(Debug, PartialEq)]
struct Read {
    events: Vec<StreamEvent>,
    /// The error, where there was no terminal.
    error: Option<ModelError>,
    message: AssistantMessage,
}

impl Read {
    /// Checks that the last event, and no other, is an end, and that the message is the fold of the events before it.
    fn of(mut events: Vec<StreamEvent>) -> Self {
        let (error, mut message) = match events.pop() {
            Some(StreamEvent::Done(reply)) => (None, reply.into_message()),
            Some(StreamEvent::Failed(failed)) => (Some(failed.error), *failed.partial),
            other => panic!("the stream ended in {other:?}"),
        };
        let done = error.is_none();
        assert_eq!(differs_from_fold(&events, &message, done), None, "{events:?}");
        assert_eq!(message.error.as_deref(), error.as_ref());
        assert_eq!(done, !matches!(message.stop_reason, StopReason::Error | StopReason::Aborted));
        message.timestamp = 0;
        Read { events, error, message }
    }

    fn failed_with(&self) -> Option<ErrorKind> {
        self.error.as_ref().map(|error| error.kind)
    }
}

const REPLY: [&str; 14] = [
    "id r1",
    "start",
    "think hm",
    "more , well",
    "sign ab",
    "sign cd",
    "end",
    "text hé",
    "more llo 😀",
    "call c1 ls",
    r#"more {"a""#,
    "more :1}",
    "tokens 7",
    "stop toolUse",
];

#[test]
fn a_reply_is_the_fold_of_its_events() {
    let read = read_words(&REPLY);
    let thinking = Thinking { thinking: "hm, well".into(), signature: Some("abcd".into()), redacted: false };
    assert_eq!(read.error, None);
    assert_eq!(
        read.message.content,
        [Block::Thinking(thinking), Block::text("héllo 😀"), Block::ToolCall(ToolCall::new("c1", "ls", r#"{"a":1}"#))]
    );
    assert_eq!(
        (read.message.stop_reason, read.message.raw_stop_reason.as_deref()),
        (StopReason::ToolUse, Some("toolUse"))
    );
    assert_eq!((read.message.response_id.as_deref(), read.message.usage.output), (Some("r1"), 7));
    assert_eq!((&*read.message.provider, &*read.message.model, read.message.wire.as_str()), ("acme", "words", "words"));
    assert_eq!(read.events[0], StreamEvent::Start { response_id: Some("r1".into()) });
}

#[test]
fn every_chunking_gives_the_same_events_and_end() {
    let body = stream(&REPLY);
    let whole = read_words(&REPLY);
    assert_eq!(read(reader(), body.as_bytes().chunks(1)), whole);
    for cut in 0..=body.len() {
        let (head, tail) = body.as_bytes().split_at(cut);
        assert_eq!(read(reader(), [head, tail]), whole, "cut at {cut}");
    }
}

#[test]
fn white_space_before_a_stream_is_nothing_wherever_it_is_cut() {
    for space in ["\t", " \r\n", "\n\n \x0c"] {
        let body = format!("{space}{}", stream(&REPLY));
        assert_eq!(read(reader(), [body.as_bytes()]), read_words(&REPLY), "{space:?}");
        assert_eq!(read(reader(), body.as_bytes().chunks(1)), read_words(&REPLY), "{space:?}, byte by byte");
    }
}

#[test]
fn a_plain_body_gives_the_same_events_and_end_as_a_stream() {
    let body = serde_json::to_string_pretty(&REPLY).unwrap();
    for pieces in [vec![body.as_bytes()], vec![b" \r\n", body.as_bytes()], body.as_bytes().chunks(1).collect()] {
        assert_eq!(read(reader(), pieces), read_words(&REPLY));
    }
}

#[test]
fn every_prefix_without_the_terminal_is_truncated_and_keeps_what_has_arrived() {
    let body = stream(&REPLY);
    let terminal = body.find("stop").unwrap() + "stop".len();
    let whole = read_words(&REPLY).message.content;
    for cut in 0..terminal {
        let read = read(reader(), [&body.as_bytes()[..cut]]);
        assert_eq!(read.failed_with(), Some(ErrorKind::Truncated), "cut at {cut}");
        assert!(read.message.content.len() <= whole.len());
    }
    let read = read_words(&REPLY[..9]);
    assert_eq!(read.message.content[1..], [Block::text("héllo 😀")]);
}

#[test]
fn bodies_that_hold_nothing_are_truncated() {
    for body in ["", " \r\n", ": ping\n\n: ping\n\n", "event: lonely\n\n", "data: unknown\n\n", "[]"] {
        let read = read(reader(), [body.as_bytes()]);
        assert_eq!((read.failed_with(), read.message.content.as_slice()), (Some(ErrorKind::Truncated), [].as_slice()));
    }
}

#[test]
fn an_event_that_is_cut_off_is_truncated_and_not_a_breach_of_the_protocol() {
    assert_eq!(read_words(&["text hi", "{"]).failed_with(), Some(ErrorKind::Protocol));
    let cut_off = read(reader(), [b"data: text hi\n\ndata: {".as_slice()]);
    assert_eq!(cut_off.failed_with(), Some(ErrorKind::Truncated));
    assert_eq!(cut_off.message.content, [Block::text("hi")]);

    let body = serde_json::to_string(&REPLY).unwrap();
    for cut in 1..body.len() {
        let read = read(reader(), [&body.as_bytes()[..cut]]);
        assert_eq!(read.failed_with(), Some(ErrorKind::Truncated), "plain body, cut at {cut}");
    }
    for broken in ["<html>", "[1 2]", "{}"] {
        assert_eq!(read(reader(), [broken.as_bytes()]).failed_with(), Some(ErrorKind::Protocol), "{broken}");
    }
}

#[test]
fn what_is_cut_off_after_the_wire_said_enough_does_no_harm() {
    struct StopsAtTheEnd(Words);
    impl Decoder for StopsAtTheEnd {
        fn event(&mut self, draft: &mut Draft, event: &SseEvent<'_>) -> Result<Option<Stop>, ModelError> {
            self.0.event(draft, event)
        }
        fn body(&mut self, draft: &mut Draft, body: &str) -> Result<Stop, ModelError> {
            self.0.body(draft, body)
        }
        fn end(&mut self, _draft: &mut Draft) -> Result<Stop, ModelError> {
            Ok(Stop { reason: StopReason::Stop, raw: None })
        }
    }
    let reader = ReplyReader::new(Box::new(StopsAtTheEnd(Words::default())), Draft::new(&spec()));
    let read = read(reader, [b"data: text hi\n\ndata: {".as_slice()]);
    assert_eq!((read.error, read.message.content), (None, vec![Block::text("hi")]));
}

#[test]
fn a_last_event_without_a_blank_line_counts() {
    assert_eq!(read(reader(), [b"data: text hi\n\ndata: stop stop".as_slice()]), read_words(&["text hi", "stop stop"]));
}

#[test]
fn a_terminal_alone_is_an_empty_reply() {
    let read = read_words(&["stop stop"]);
    assert_eq!((read.error, read.message.content), (None, vec![]));
    assert_eq!(read.events, [StreamEvent::Start { response_id: None }]);
}

#[test]
fn nothing_counts_after_the_end() {
    let after = ["text more", "id r9", "tokens 9", "stop length", "fail late"];
    for end in [vec!["text hi", "stop stop"], vec!["text hi", "fail busy"]] {
        let only = read_words(&end);
        let words: Vec<&str> = end.iter().chain(&after).copied().collect();
        assert_eq!(read_words(&words), only);

        let mut reader = reader();
        reader.push(stream(&end).as_bytes());
        assert!(reader.is_over());
        let mut events = taken(&mut reader);
        reader.push(stream(&after).as_bytes());
        reader.fail(ModelError::new(ErrorKind::Network, "reset"));
        reader.end();
        events.extend(taken(&mut reader));
        assert_eq!(Read::of(events), only);
    }
}

#[test]
fn a_providers_error_ends_the_reply_with_the_partial() {
    let read = read_words(&["text hi", "end", "call c1 ls", r#"more {"pa"#, "fail busy"]);
    assert_eq!(read.error, Some(ModelError::new(ErrorKind::Overloaded, "busy")));
    assert_eq!(read.message.content, [Block::text("hi"), Block::ToolCall(ToolCall::new("c1", "ls", r#"{"pa"#))]);
    assert_eq!(read.message.stop_reason, StopReason::Error);
}

#[test]
fn an_error_from_outside_ends_the_reply_with_the_partial() {
    for (kind, stop_reason) in [(ErrorKind::Aborted, StopReason::Aborted), (ErrorKind::Network, StopReason::Error)] {
        let mut reader = reader();
        reader.push(stream(&["text hi"]).as_bytes());
        reader.push(b"data: stop st");
        reader.fail(ModelError::new(kind, "from outside"));
        reader.push(b"op\n\n");
        reader.end();
        let read = Read::of(taken(&mut reader));
        assert_eq!((read.failed_with(), read.message.stop_reason), (Some(kind), stop_reason));
        assert_eq!(read.message.content, [Block::text("hi")]);
        assert_eq!(reader.next_event(), None);
    }
}

#[test]
fn a_call_that_fails_before_it_starts_has_no_start() {
    let read = read_words(&["fail busy"]);
    assert_eq!((read.failed_with(), read.events), (Some(ErrorKind::Overloaded), vec![]));
}

#[test]
fn a_stop_for_an_error_is_no_terminal() {
    for reason in ["error", "aborted"] {
        let read = read_words(&["text hi", &format!("stop {reason}")]);
        assert_eq!(read.failed_with(), Some(ErrorKind::Server));
        assert!(read.error.unwrap().message.contains(reason));
        assert_eq!(read.message.content, [Block::text("hi")]);
    }
}

#[test]
fn lone_surrogates_in_arguments_are_replaced_at_the_end() {
    let mut reader = reader();
    let words = ["call c1 ls", r#"more {"a":"\ud8"#, r#"more 3d \ud83d\ude00 \\ud83d"}"#, "stop toolUse"];
    reader.push(stream(&words).as_bytes());
    let Some(StreamEvent::Done(reply)) = taken(&mut reader).pop() else { panic!() };
    let call = reply.message().tool_calls().next().unwrap();
    assert_eq!(call.arguments.as_str(), r#"{"a":"\ufffd \ud83d\ude00 \\ud83d"}"#);
}

#[test]
fn an_opaque_block_goes_with_its_wire_and_survives_a_cut() {
    for (words, raw) in [
        (["opaque {\"b\": 1,", "more \"a\": 2}", "stop stop"], RawJson::parse(r#"{"b": 1,"a": 2}"#).unwrap()),
        (["opaque {\"b\"", "more : 1", "stop stop"], RawJson::of(&"{\"b\": 1").unwrap()),
    ] {
        let expected = Block::Opaque(Opaque { wire: WireFormat::from("words"), raw });
        assert_eq!(read_words(&words).message.content, [expected]);
    }
}

#[test]
fn what_is_closed_or_was_never_opened_takes_nothing() {
    let mut draft = Draft::new(&spec());
    let block = draft.block(BlockKind::Text, "hi");
    for index in [block, 7] {
        draft.append(index, " there");
        draft.sign(index, "late");
        draft.close(index);
    }
    draft.start();
    let read = Read::of(draft.done(Stop { reason: StopReason::Stop, raw: None }));
    assert_eq!(read.message.content, [Block::text("hi")]);
    assert_eq!(read.events.len(), 4, "{:?}", read.events);
}

#[test]
fn a_coalescing_draft_joins_the_deltas_that_nobody_has_taken() {
    let words = ["text a", "more b", "think c", "more d", "stop stop"];
    let deltas = |read: &Read| {
        let text = |event: &StreamEvent| match event {
            StreamEvent::BlockDelta { text, .. } => Some(text.clone()),
            _ => None,
        };
        read.events.iter().filter_map(text).collect::<Vec<_>>()
    };
    let coalescing = || ReplyReader::new(Box::new(Words::default()), Draft::new(&spec()).coalescing());
    let joined = read(coalescing(), [stream(&words).as_bytes()]);
    let eager = read(coalescing(), stream(&words).as_bytes().chunks(1));
    assert_eq!(deltas(&read_words(&words)), ["a", "b", "c", "d"]);
    assert_eq!(deltas(&joined), ["ab", "cd"]);
    assert_eq!(deltas(&eager), ["a", "b", "c", "d"]);
    assert_eq!((&joined.message, &eager.message), (&read_words(&words).message, &joined.message));
}

/// What a decoder does to a draft, and when a reader looks at it.
#[derive(Clone, Debug)]
enum Step {
    Open(BlockKind),
    Append(usize, String),
    Sign(usize, String),
    Close(usize),
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        Just(BlockKind::Text),
        any::<bool>().prop_map(|redacted| BlockKind::Thinking { redacted }),
        ("[ab]?", "[xy]?").prop_map(|(id, name)| BlockKind::ToolCall { id, name }),
    ];
    prop_oneof![
        kind.prop_map(Step::Open),
        (0..4_usize, "[a-c{é😀]{0,3}").prop_map(|(index, text)| Step::Append(index, text)),
        (0..4_usize, "[s-u]{0,2}").prop_map(|(index, text)| Step::Sign(index, text)),
        (0..4_usize).prop_map(Step::Close),
        Just(Step::Take),
    ]
}

fn play(mut draft: Draft, steps: &[Step], take: bool, error: Option<&ModelError>) -> Read {
    let mut events = Vec::new();
    for step in steps {
        match step {
            Step::Open(kind) => {
                draft.open(kind.clone());
            }
            Step::Append(index, text) => draft.append(*index, text),
            Step::Sign(index, text) => draft.sign(*index, text),
            Step::Close(index) => draft.close(*index),
            Step::Take if take => events.extend(std::iter::from_fn(|| draft.next_event())),
            Step::Take => {}
        }
    }
    events.extend(match error {
        Some(error) => draft.fail(error.clone()),
        None => draft.done(Stop { reason: StopReason::Stop, raw: None }),
    });
    Read::of(events)
}

proptest! {
    #[test]
    fn whatever_a_decoder_does_the_message_is_the_fold_and_the_same(
        steps in prop::collection::vec(step(), 0..24),
        fails in any::<bool>(),
    ) {
        let error = ModelError::new(ErrorKind::Network, "reset");
        let error = fails.then_some(&error);
        let plain = play(Draft::new(&spec()), &steps, false, error);
        prop_assert_eq!(&play(Draft::new(&spec()), &steps, true, error), &plain, "taken early");
        for take in [false, true] {
            let coalesced = play(Draft::new(&spec()).coalescing(), &steps, take, error);
            prop_assert_eq!(&coalesced.message, &plain.message);
            prop_assert!(coalesced.events.len() <= plain.events.len());
        }
    }

    #[test]
    fn ids_of_calls_are_unique_in_the_conversation_and_kept_where_they_can_be(
        turns in prop::collection::vec(prop::collection::vec("|a|b|call_[1-4]|terret_[1-4]", 0..5), 0..4),
    ) {
        let mut conversation = Transcript::new();
        let mut given = std::collections::HashSet::new();
        for ids in turns {
            let mut draft = Draft::new(&spec()).after(conversation.clone());
            for id in &ids {
                draft.block(BlockKind::ToolCall { id: id.clone(), name: "ls".into() }, "{}");
            }
            let message = Read::of(draft.done(Stop { reason: StopReason::ToolUse, raw: None })).message;
            for (wanted, call) in ids.iter().zip(message.tool_calls()) {
                prop_assert!(!call.id.is_empty());
                prop_assert!(call.id == *wanted || wanted.is_empty() || given.contains(wanted));
                prop_assert!(given.insert(call.id.clone()), "{} was given twice", call.id);
            }
            conversation.push(Message::from(message));
        }
    }
}

#[test]
fn annotations_come_with_the_end() {
    let mut draft = Draft::new(&spec());
    let index = draft.open(BlockKind::Text);
    draft.append(index, "hi");
    draft.annotate(index, RawJson::parse("[1]").unwrap());
    let read = Read::of(draft.done(Stop { reason: StopReason::Stop, raw: None }));
    let annotated = Text { annotations: Some(RawJson::parse("[1]").unwrap()), ..Text::new("hi") };
    assert_eq!(read.message.content, [Block::Text(annotated)]);
}
