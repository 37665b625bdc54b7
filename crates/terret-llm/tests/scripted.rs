//! Scripted models: the format, and the stream contract as they keep it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use terret_llm::scripted::{Expected, ScriptError};
use terret_llm::{
    Block, BlockKind, Content, ErrorKind, Failed, Image, Message, Model as _, ModelError, ModelSpec, Reply, Request,
    ScriptedModel, ScriptedReply, StopReason, StreamEvent, ToolCall, ToolResultMessage, Transcript, UserMessage,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LIMIT_FOR_CANCEL: Duration = Duration::from_millis(100);

fn script(lines: &str) -> ScriptedModel {
    ScriptedModel::parse(lines).unwrap()
}

async fn ask(model: &ScriptedModel, request: Request) -> Result<Reply, Failed> {
    model.stream(request, CancellationToken::new()).finish().await
}

async fn reply(model: &ScriptedModel) -> Reply {
    ask(model, Request::default()).await.unwrap()
}

async fn failure(model: &ScriptedModel) -> Failed {
    ask(model, Request::default()).await.unwrap_err()
}

async fn events(model: &ScriptedModel) -> Vec<StreamEvent> {
    let mut stream = model.stream(Request::default(), CancellationToken::new());
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

fn deltas(events: &[StreamEvent]) -> Vec<&str> {
    let mut deltas = Vec::new();
    for event in events {
        if let StreamEvent::BlockDelta { text, .. } = event {
            deltas.push(text.as_str());
        }
    }
    deltas
}

fn asking(last: impl Into<Message>) -> Request {
    Request { messages: Transcript::from_iter([last.into()]), ..Request::default() }
}

fn result(text: &str) -> ToolResultMessage {
    ToolResultMessage {
        tool_call_id: "c1".into(),
        tool_name: "read".into(),
        content: vec![Content::text(text)],
        details: None,
        is_error: false,
        timestamp: 1,
    }
}

#[tokio::test]
async fn replies_come_in_order_and_blank_lines_count_for_nothing() {
    let model = script("{\"text\":\"one\"}\n\n  \r\n{\"text\":\"two\"}\r\n{\"text\":\"three\"}");
    for expected in ["one", "two", "three"] {
        assert_eq!(reply(&model).await.message().text(), expected);
    }
}

#[tokio::test]
async fn every_key_of_a_reply_is_taken() {
    let model = script(
        r#"{"content":[
            {"type":"thinking","thinking":"hm","signature":"s1"},
            {"type":"text","text":"Reading.","signature":"s2","annotations":[1]},
            {"type":"image","mediaType":"image/png","data":"iVBORw=="},
            {"type":"opaque","wire":"scripted","raw":{"b":1,"a":2}},
            {"type":"toolCall","id":"c1","name":"read","arguments":{"path" : "a.txt"},"signature":"s3"},
            {"type":"toolCall","id":"c2","name":"read","argumentsText":"{\"path\":\"/et"}
        ],"stopReason":"length","usage":{"input":7,"cacheRead":1,"output":5,"reasoning":2}}"#
            .replace('\n', "")
            .as_str(),
    );
    let message = reply(&model).await.into_message();
    let [Block::Thinking(thinking), Block::Text(text), Block::Image(image), Block::Opaque(opaque), calls @ ..] =
        message.content.as_slice()
    else {
        panic!("{:?}", message.content)
    };
    assert_eq!((thinking.thinking.as_str(), thinking.signature.as_deref()), ("hm", Some("s1")));
    assert_eq!((text.text.as_str(), text.signature.as_deref()), ("Reading.", Some("s2")));
    assert_eq!(text.annotations.as_ref().unwrap().as_str(), "[1]");
    assert_eq!(*image, Image::from_base64("image/png", "iVBORw==").unwrap());
    assert_eq!(opaque.raw.as_str(), r#"{"b":1,"a":2}"#);
    let mut signed = ToolCall::new("c1", "read", r#"{"path" : "a.txt"}"#);
    signed.signature = Some("s3".into());
    assert_eq!(calls, [Block::ToolCall(signed), Block::ToolCall(ToolCall::new("c2", "read", r#"{"path":"/et"#))]);
    assert_eq!(message.stop_reason, StopReason::Length);
    assert_eq!((message.usage.input, message.usage.cache_read), (7, 1));
    assert_eq!((message.usage.output, message.usage.reasoning), (5, 2));
    assert_eq!((&*message.provider, &*message.model, message.wire.as_str()), ("scripted", "script", "scripted"));
}

#[tokio::test]
async fn the_stop_reason_follows_from_the_content_unless_it_is_written() {
    for (line, expected) in [
        (r#"{"text":"hi"}"#, StopReason::Stop),
        (r#"{}"#, StopReason::Stop),
        (r#"{"content":[{"type":"toolCall","id":"c1","name":"ls"}]}"#, StopReason::ToolUse),
        (r#"{"content":[{"type":"toolCall","id":"c1","name":"ls"}],"stopReason":"stop"}"#, StopReason::Stop),
        (r#"{"text":"hi","stopReason":"toolUse"}"#, StopReason::ToolUse),
        (r#"{"text":"hi","stopReason":"pause"}"#, StopReason::Pause),
        (r#"{"text":"hi","stopReason":"refusal"}"#, StopReason::Refusal),
    ] {
        assert_eq!(reply(&script(line)).await.message().stop_reason, expected, "{line}");
    }
}

#[tokio::test]
async fn a_chunk_is_so_many_characters_and_never_a_part_of_one() {
    let written =
        r#"{"content":[{"type":"text","text":"añ😀b"},{"type":"toolCall","id":"c","name":"n","arguments":{"é":1}}]"#;
    for (chunk, expected) in [
        ("", vec!["añ😀b", r#"{"é":1}"#]),
        (r#","chunk":0"#, vec!["añ😀b", r#"{"é":1}"#]),
        (r#","chunk":1"#, vec!["a", "ñ", "😀", "b", "{", "\"", "é", "\"", ":", "1", "}"]),
        (r#","chunk":3"#, vec!["añ😀", "b", "{\"é", "\":1", "}"]),
        (r#","chunk":99"#, vec!["añ😀b", r#"{"é":1}"#]),
    ] {
        let events = events(&script(&format!("{written}{chunk}}}"))).await;
        assert_eq!(deltas(&events), expected, "{chunk}");
    }
}

#[tokio::test]
async fn the_events_stand_in_order_and_the_end_is_the_last() {
    let reply = ScriptedReply::new([Block::text("hi"), Block::ToolCall(ToolCall::new("c1", "ls", "{}"))]);
    let events = events(&ScriptedModel::new([reply])).await;
    let call = BlockKind::ToolCall { id: "c1".into(), name: "ls".into() };
    assert_eq!(
        events[..7],
        [
            StreamEvent::Start { response_id: None },
            StreamEvent::BlockStart { index: 0, kind: BlockKind::Text },
            StreamEvent::BlockDelta { index: 0, text: "hi".into() },
            StreamEvent::BlockEnd { index: 0, signature: None },
            StreamEvent::BlockStart { index: 1, kind: call },
            StreamEvent::BlockDelta { index: 1, text: "{}".into() },
            StreamEvent::BlockEnd { index: 1, signature: None },
        ]
    );
    assert!(matches!(&events[7..], [StreamEvent::Done(_)]));
}

#[tokio::test(start_paused = true)]
async fn delays_pass_on_the_clock_that_tests_control() {
    let model = script(r#"{"text":"abc","chunk":1,"delayMs":60000,"deltaDelayMs":1000}"#);
    let begin = Instant::now();
    let mut stream = model.stream(Request::default(), CancellationToken::new());
    let mut times = Vec::new();
    while let Some(event) = stream.next().await {
        if let StreamEvent::Start { .. } | StreamEvent::BlockDelta { .. } | StreamEvent::Done(_) = event {
            times.push(begin.elapsed().as_secs());
        }
    }
    assert_eq!(times, [60, 61, 62, 63, 63]);
}

#[tokio::test]
async fn an_error_comes_instead_of_content_or_after_it() {
    let model = script(
        r#"{"error":{"kind":"rate_limited","message":"slow down","retryAfterMs":1500,"status":429,"code":"tpm"}}
           {"text":"half","error":{"kind":"overloaded"},"usage":{"input":9}}"#,
    );
    let instead = failure(&model).await;
    let expected = ModelError::new(ErrorKind::RateLimited, "slow down")
        .with_retry_after(Duration::from_millis(1500))
        .with_status(429)
        .with_code("tpm");
    assert_eq!(instead.error, expected);
    assert_eq!(instead.partial.content, []);

    let after = failure(&model).await;
    assert_eq!(after.error.kind, ErrorKind::Overloaded);
    assert_eq!(after.partial.content, [Block::text("half")]);
    assert_eq!((after.partial.stop_reason, after.partial.usage.input), (StopReason::Error, 9));
}

#[tokio::test]
async fn a_call_that_fails_before_content_never_starts() {
    let model = ScriptedModel::new([ScriptedReply::failure(ModelError::new(ErrorKind::Server, "down"))]);
    assert!(matches!(events(&model).await.as_slice(), [StreamEvent::Failed(_)]));
}

#[tokio::test(start_paused = true)]
async fn a_stall_sends_the_content_and_then_nothing_until_the_cancel() {
    let model = script(r#"{"text":"hi","stall":true}"#);
    let cancel = CancellationToken::new();
    let mut stream = model.stream(Request::default(), cancel.clone());
    for _ in 0..4 {
        assert!(!matches!(stream.next().await.unwrap(), StreamEvent::Done(_) | StreamEvent::Failed(_)));
    }
    assert!(tokio::time::timeout(Duration::from_secs(86_400), stream.next()).await.is_err(), "nothing for a day");

    cancel.cancel();
    let end = tokio::time::timeout(LIMIT_FOR_CANCEL, stream.next()).await.unwrap();
    let Some(StreamEvent::Failed(failed)) = end else { panic!("{end:?}") };
    assert_eq!(failed.error.kind, ErrorKind::Aborted);
    assert_eq!(failed.partial.content, [Block::text("hi")]);
    assert_eq!(failed.partial.stop_reason, StopReason::Aborted);
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_every_wait_with_what_has_arrived() {
    let hour = Duration::from_secs(3600);
    for (reply, arrived) in [
        (ScriptedReply::text("abc").delay(hour), vec![]),
        (ScriptedReply::text("abc").chunk(1).delta_delay(Duration::from_secs(2)), vec![Block::text("ab")]),
        (ScriptedReply::text("abc").stall(), vec![Block::text("abc")]),
        (ScriptedReply::default().stall(), vec![]),
    ] {
        let described = format!("{reply:?}");
        let cancel = CancellationToken::new();
        let stream = ScriptedModel::new([reply]).stream(Request::default(), cancel.clone());
        let call = tokio::spawn(stream.finish());
        tokio::time::sleep(Duration::from_secs(5)).await;
        cancel.cancel();
        let failed = tokio::time::timeout(LIMIT_FOR_CANCEL, call).await.unwrap().unwrap().unwrap_err();
        assert_eq!(failed.error.kind, ErrorKind::Aborted, "{described}");
        assert_eq!(failed.partial.content, arrived, "{described}");
    }
}

#[tokio::test]
async fn a_cancel_between_deltas_stops_the_content() {
    let model = ScriptedModel::new([ScriptedReply::text("abc").chunk(1)]);
    let cancel = CancellationToken::new();
    let mut stream = model.stream(Request::default(), cancel.clone());
    while !matches!(stream.next().await.unwrap(), StreamEvent::BlockDelta { .. }) {}
    cancel.cancel();
    let failed = stream.finish().await.unwrap_err();
    assert_eq!(failed.error.kind, ErrorKind::Aborted);
    assert_eq!(failed.partial.content, [Block::text("a")]);
}

#[tokio::test]
async fn a_request_that_meets_the_expectation_is_answered() {
    for (expect, last) in [
        (r#"{"lastRole":"toolResult","contains":"42"}"#, result("it is 42.").into()),
        (r#"{"lastRole":"toolResult"}"#, result("").into()),
        (r#"{"lastRole":"user"}"#, UserMessage::text("hi", 0).into()),
        (r#"{"contains":"h"}"#, Message::from(UserMessage::text("hi", 0))),
        ("{}", UserMessage::text("hi", 0).into()),
    ] {
        let model = script(&format!(r#"{{"text":"ok","expect":{expect}}}"#));
        assert_eq!(ask(&model, asking(last)).await.unwrap().message().text(), "ok", "{expect}");
    }
}

#[tokio::test]
async fn a_request_that_differs_from_the_expectation_fails_and_says_how() {
    let expected = Expected::tool_result().containing("42");
    let long = format!("{}{}", "é".repeat(200), "z".repeat(1000));
    for (expected, request, message) in [
        (
            expected.clone(),
            asking(result("it is 41.")),
            r#"expected a tool result whose text contains "42", got a tool result with the text "it is 41.""#
                .to_owned(),
        ),
        (
            expected.clone(),
            asking(UserMessage::text("42?", 0)),
            r#"expected a tool result whose text contains "42", got a user message with the text "42?""#.to_owned(),
        ),
        (
            Expected::user(),
            Request::default(),
            "expected a user message as the last message, got no message at all".to_owned(),
        ),
        (
            Expected::default().containing("42"),
            asking(UserMessage::text(long, 0)),
            format!(
                "expected any message whose text contains \"42\", got a user message with the text \"{}…\"",
                "é".repeat(200)
            ),
        ),
    ] {
        let model = ScriptedModel::new([ScriptedReply::text("no").expect(expected)]);
        let failed = ask(&model, request).await.unwrap_err();
        assert_eq!(failed.error.kind, ErrorKind::InvalidRequest);
        let message = format!("the request of model call 1 isn't what the script expects: {message}");
        assert_eq!(failed.error.message, message);
    }
}

#[tokio::test]
async fn an_exhausted_script_is_an_error_that_says_how_long_it_was() {
    for (lines, expected) in [
        ("", "the script is exhausted: it had 0 replies, and this is model call 1"),
        ("{}", "the script is exhausted: it had 1 reply, and this is model call 2"),
        ("{}\n{}", "the script is exhausted: it had 2 replies, and this is model call 3"),
    ] {
        let model = script(lines);
        for _ in lines.lines() {
            reply(&model).await;
        }
        let error = failure(&model).await.error;
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::InvalidRequest, expected));
    }
}

#[tokio::test]
async fn clones_share_the_script_and_every_call_takes_a_reply() {
    let model = script("{\"text\":\"one\"}\n{\"text\":\"two\"}\n{\"text\":\"three\"}");
    let clone = model.clone();
    drop(model.stream(Request::default(), CancellationToken::new()));
    assert_eq!(reply(&clone).await.message().text(), "two");
    assert_eq!(reply(&model).await.message().text(), "three");
}

#[tokio::test]
async fn requests_can_be_read_afterwards() {
    let model = ScriptedModel::new([ScriptedReply::text("ok")]);
    let request = Request { system: Some("be brief".into()), ..asking(UserMessage::text("hi", 7)) };
    reply(&model).await;
    ask(&model, request.clone()).await.unwrap_err();
    assert_eq!(model.requests(), [Request::default(), request]);
}

fn ids(reply: &Reply) -> Vec<&str> {
    reply.message().tool_calls().map(|call| call.id.as_str()).collect()
}

#[tokio::test]
async fn ids_of_calls_stay_as_they_are_written() {
    let calls = ["", "x", "x", ""].map(|id| ToolCall::new(id, "ls", "{}"));
    let model = ScriptedModel::new([ScriptedReply::calls(calls)]);
    assert_eq!(ids(&reply(&model).await), ["", "x", "x", ""]);
    let written = script(r#"{"content":[{"type":"toolCall","id":"","name":""},{"type":"toolCall","name":"ls"}]}"#);
    assert_eq!(ids(&reply(&written).await), ["", ""]);
}

#[test]
fn a_wrong_line_is_named_by_its_number_and_what_is_wrong_with_it() {
    let block = |block: &str| format!(r#"{{"content":[{block}]}}"#);
    for (line, expected) in [
        (r#"{"txet":"hi"}"#.to_owned(), "unknown field `txet`"),
        (r#"{"text":"hi","expect":{"role":"user"}}"#.to_owned(), "unknown field `role`"),
        (r#"{"expect":{"lastRole":"system"}}"#.to_owned(), "unknown variant `system`"),
        (r#"{"error":{"kind":"overloaded","retryAfter":3}}"#.to_owned(), "unknown field `retryAfter`"),
        (r#"{"error":{"kind":"tired"}}"#.to_owned(), "unknown variant `tired`"),
        (r#"{"error":{"message":"no kind"}}"#.to_owned(), "missing field `kind`"),
        (r#"{"stopReason":"brand_new"}"#.to_owned(), "unknown variant `brand_new`"),
        (r#"{"stopReason":"error"}"#.to_owned(), "a reply that fails needs `error`"),
        (r#"{"text":"hi","content":[]}"#.to_owned(), "either `content` or `text`"),
        (r#"{"stall":true,"error":{"kind":"server"}}"#.to_owned(), "leave out `error` or `stall`"),
        (r#"{"chunk":-1}"#.to_owned(), "invalid value: integer `-1`"),
        (block(r#"{"type":"audio"}"#), r#"unknown block type "audio""#),
        ("# a comment".to_owned(), "expected value (column 1)"),
        ("// a comment".to_owned(), "expected value (column 1)"),
        (r#"{"text":"hi"} {"text":"ho"}"#.to_owned(), "trailing characters (column 15)"),
        (r#"{"text":"#.to_owned(), "EOF while parsing a value (column 8)"),
        (r#""hi""#.to_owned(), r#"invalid type: string "hi", expected a JSON object"#),
        ("[]".to_owned(), "expected a JSON object"),
    ] {
        let error = ScriptedModel::parse(&format!("{{\"text\":\"fine\"}}\n\n{line}\n{{}}")).unwrap_err();
        let ScriptError::Line { line: number, .. } = &error else { panic!("{error}") };
        assert_eq!(*number, 3, "{line}");
        let message = error.to_string();
        assert!(message.starts_with("script, line 3: "), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("line 1"), "{message}");
    }
}

#[tokio::test]
async fn a_script_is_read_from_a_file_and_named_after_it() {
    let folder = std::env::temp_dir().join(format!("terret-script-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("fix-the-bug.jsonl");
    std::fs::write(&path, "\u{FEFF}{\"text\":\"lone \\ud83d\"}\n").unwrap();
    let model = ScriptedModel::from_path(&path).unwrap();
    assert_eq!(&*model.spec().id, "fix-the-bug");
    assert_eq!(reply(&model).await.message().text(), "lone \u{FFFD}");

    std::fs::write(&path, "{}\nnonsense").unwrap();
    let error = ScriptedModel::from_path(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}, line 2: expected ident (column 2)", path.display()));

    std::fs::remove_dir_all(&folder).unwrap();
    let error = ScriptedModel::from_path(&path).unwrap_err();
    assert!(matches!(&error, ScriptError::Unreadable { script, .. } if *script == path), "{error}");
}

#[tokio::test]
async fn a_script_can_play_any_model() {
    let mut spec = ModelSpec::new("acme", "small", terret_llm::wire::WireFormat::AnthropicMessages);
    spec.context_window = Some(8192);
    let model = ScriptedModel::new([ScriptedReply::text("hi")]).with_spec(spec);
    assert_eq!(model.spec().context_window, Some(8192));
    let reply = reply(&model).await;
    assert_eq!((&*reply.message().provider, &*reply.message().model), ("acme", "small"));
}

#[tokio::test]
async fn call_ids_that_the_conversation_had_before_the_script_are_made_new() {
    let earlier = ScriptedReply::calls([ToolCall::new("c1", "look", "{}")]);
    let before = reply(&ScriptedModel::new([earlier])).await.into_message();
    let mut messages: Transcript = [Message::from(before)].into_iter().collect();
    let line = r#"{"content":[{"type":"toolCall","id":"c1","name":"look","arguments":{}}]}"#;
    let model = script(&format!("{line}\n{line}"));
    let ids = async |messages: &Transcript| {
        let request = Request { messages: messages.clone(), ..Request::default() };
        let reply = ask(&model, request).await.unwrap().into_message();
        (reply.tool_calls().map(|call| call.id.clone()).collect::<Vec<_>>(), reply)
    };
    let (first, said) = ids(&messages).await;
    assert_eq!(first, ["c1-2"]);
    // What the script itself repeats stays.
    messages.push(Message::from(said));
    assert_eq!(ids(&messages).await.0, ["c1"]);
}
