//! The transcript as a contract: its JSON, what it reads of other programs, and that nothing is lost on the way.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod arbitrary;

use std::time::Duration;

use proptest::prelude::*;
use terret_llm::wire::WireFormat;
use terret_llm::{
    Arguments, AssistantMessage, Block, Content, ErrorKind, Image, Message, ModelError, Opaque, RawJson, StopReason,
    Text, Thinking, ToolCall, ToolResultMessage, Transcript, Usage, UserMessage,
};

fn read(json: &str) -> Message {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

fn write(message: &Message) -> String {
    serde_json::to_string(message).unwrap()
}

fn assistant(content: Vec<Block>) -> AssistantMessage {
    let stop_reason = match content.iter().any(|block| block.as_tool_call().is_some()) {
        true => StopReason::ToolUse,
        false => StopReason::Stop,
    };
    AssistantMessage {
        content,
        provider: "anthropic".into(),
        model: "claude-opus-4-5".into(),
        wire: WireFormat::AnthropicMessages,
        stop_reason,
        raw_stop_reason: None,
        usage: Usage::default(),
        response_id: None,
        error: None,
        timestamp: 2,
    }
}

fn result(content: Vec<Content>) -> ToolResultMessage {
    ToolResultMessage {
        tool_call_id: "toolu_1".into(),
        tool_name: "read".into(),
        content,
        details: None,
        is_error: false,
        timestamp: 3,
    }
}

fn raw(json: &str) -> RawJson {
    RawJson::parse(json).unwrap()
}

/// A question, a reply that thinks, speaks and calls, the result, an answer.
fn conversation() -> Transcript {
    let thinking = Thinking { thinking: "A file.".into(), signature: Some("ErUB/+=".into()), redacted: false };
    let calling = assistant(vec![
        Block::Thinking(thinking),
        Block::text("I'll look."),
        Block::ToolCall(ToolCall::new("toolu_1", "read", r#"{"path": "answer.txt"}"#)),
    ]);
    Transcript::from_iter([
        Message::from(UserMessage::text("What is the answer?", 1)),
        calling.into(),
        result(vec![Content::text("42\n")]).into(),
        assistant(vec![Block::text("42.")]).into(),
    ])
}

#[test]
fn a_conversation_survives_json_unchanged() {
    let json = serde_json::to_string(&conversation()).unwrap();
    let back: Transcript = serde_json::from_str(&json).unwrap();
    assert_eq!(back, conversation());
    assert_eq!(serde_json::to_string(&back).unwrap(), json);
}

#[test]
fn messages_are_spelled_so() {
    let mut usage = Usage::default();
    (usage.input, usage.cache_read, usage.cache_write, usage.output) = (1, 2, 3, 4);
    let mut all_usage = usage;
    (all_usage.cache_write_long, all_usage.reasoning) = (2, 1);
    let mut failed = assistant(vec![]);
    failed.stop_reason = StopReason::Error;
    failed.raw_stop_reason = Some("weird".into());
    failed.usage = all_usage;
    failed.response_id = Some("msg_1".into());
    let mut error = ModelError::new(ErrorKind::RateLimited, "slow down")
        .with_status(429)
        .with_code("tpm")
        .with_retry_after(Duration::from_millis(1500));
    error.request_id = Some("req_1".into());
    failed.error = Some(Box::new(error));
    for (message, json) in [
        (
            Message::from(UserMessage::text("hi", 1)),
            r#"{"role":"user","content":[{"type":"text","text":"hi"}],"timestamp":1}"#,
        ),
        (
            AssistantMessage { usage, ..assistant(vec![Block::text("ho")]) }.into(),
            r#"{"role":"assistant","content":[{"type":"text","text":"ho"}],"provider":"anthropic","model":"claude-opus-4-5","wire":"anthropic-messages","stopReason":"stop","usage":{"input":1,"cacheRead":2,"cacheWrite":3,"output":4},"timestamp":2}"#,
        ),
        (
            failed.into(),
            r#"{"role":"assistant","content":[],"provider":"anthropic","model":"claude-opus-4-5","wire":"anthropic-messages","stopReason":"error","rawStopReason":"weird","usage":{"input":1,"cacheRead":2,"cacheWrite":3,"cacheWriteLong":2,"output":4,"reasoning":1},"responseId":"msg_1","error":{"kind":"rate_limited","status":429,"code":"tpm","message":"slow down","requestId":"req_1","retryAfterMs":1500},"timestamp":2}"#,
        ),
        (
            result(vec![]).into(),
            r#"{"role":"toolResult","toolCallId":"toolu_1","toolName":"read","content":[],"isError":false,"timestamp":3}"#,
        ),
        (
            ToolResultMessage { details: Some(raw(r#"{"lines":[1,2]}"#)), is_error: true, ..result(vec![]) }.into(),
            r#"{"role":"toolResult","toolCallId":"toolu_1","toolName":"read","content":[],"details":{"lines":[1,2]},"isError":true,"timestamp":3}"#,
        ),
    ] {
        assert_eq!(write(&message), json);
        assert_eq!(read(json), message);
    }
}

#[test]
fn blocks_are_spelled_so() {
    let image = || Image::new("image/png", b"\x89PNG");
    let signed = |text: &str| Text { signature: Some("sig".into()), ..Text::new(text) };
    let cited = Text { annotations: Some(raw(r#"[{"url":"u"}]"#)), ..Text::new("a") };
    let thinking = Thinking { thinking: "hm".into(), ..Thinking::default() };
    let redacted = Thinking { signature: Some("sig".into()), redacted: true, ..Thinking::default() };
    let call = ToolCall::new("c1", "ls", r#"{"path":"."}"#);
    let opaque = Opaque { wire: WireFormat::AnthropicMessages, raw: raw(r#"{"type":"server_tool_use","b":1,"a":2}"#) };
    for (block, json) in [
        (Block::text("a"), r#"{"type":"text","text":"a"}"#),
        (Block::Text(signed("a")), r#"{"type":"text","text":"a","signature":"sig"}"#),
        (Block::Text(cited), r#"{"type":"text","text":"a","annotations":[{"url":"u"}]}"#),
        (Block::Thinking(thinking), r#"{"type":"thinking","thinking":"hm"}"#),
        (Block::Thinking(redacted), r#"{"type":"thinking","thinking":"","signature":"sig","redacted":true}"#),
        (Block::Image(image()), r#"{"type":"image","mediaType":"image/png","data":"iVBORw=="}"#),
        (Block::ToolCall(call.clone()), r#"{"type":"toolCall","id":"c1","name":"ls","arguments":{"path":"."}}"#),
        (
            Block::ToolCall(ToolCall { signature: Some("sig".into()), ..call }),
            r#"{"type":"toolCall","id":"c1","name":"ls","arguments":{"path":"."},"signature":"sig"}"#,
        ),
        (
            Block::Opaque(opaque),
            r#"{"type":"opaque","wire":"anthropic-messages","raw":{"type":"server_tool_use","b":1,"a":2}}"#,
        ),
    ] {
        assert_eq!(serde_json::to_string(&block).unwrap(), json);
        assert_eq!(serde_json::from_str::<Block>(json).unwrap(), block);
    }
    for (content, json) in [
        (Content::text("a"), r#"{"type":"text","text":"a"}"#),
        (Content::Text(signed("a")), r#"{"type":"text","text":"a","signature":"sig"}"#),
        (Content::Image(image()), r#"{"type":"image","mediaType":"image/png","data":"iVBORw=="}"#),
    ] {
        assert_eq!(serde_json::to_string(&content).unwrap(), json);
        assert_eq!(serde_json::from_str::<Content>(json).unwrap(), content);
    }
}

#[test]
fn stop_reasons_are_spelled_so() {
    for (reason, word) in [
        (StopReason::Stop, "stop"),
        (StopReason::Length, "length"),
        (StopReason::ToolUse, "toolUse"),
        (StopReason::Pause, "pause"),
        (StopReason::Refusal, "refusal"),
        (StopReason::Error, "error"),
        (StopReason::Aborted, "aborted"),
    ] {
        assert_eq!(serde_json::to_string(&reason).unwrap(), format!("{word:?}"));
        let message = read(&format!(r#"{{"role":"assistant","stopReason":{word:?}}}"#));
        let Message::Assistant(message) = message else { panic!("{message:?}") };
        assert_eq!((message.stop_reason, message.raw_stop_reason), (reason, None));
    }
}

#[test]
fn what_isnt_known_or_is_missing_is_named() {
    for (json, named) in [
        (r#"{"role":"system","content":"x"}"#, r#"unknown message role "system""#),
        (r#"{"role":"bashExecution","command":"ls"}"#, r#"unknown message role "bashExecution""#),
        (r#"{"content":"x"}"#, r#"a message needs "role""#),
        (r#"{"role":"user","content":[{"type":"audio"}]}"#, r#"unknown block type "audio" in a user message"#),
        (r#"{"role":"user","content":[{"type":"toolCall"}]}"#, r#"unknown block type "toolCall" in a user message"#),
        (
            r#"{"role":"toolResult","toolCallId":"c","content":[{"type":"thinking"}]}"#,
            r#"unknown block type "thinking" in a tool result"#,
        ),
        (
            r#"{"role":"assistant","content":[{"type":"hologram"}]}"#,
            r#"unknown block type "hologram" in an assistant message"#,
        ),
        (r#"{"role":"assistant","content":[{"text":"x"}]}"#, r#"a block without "type""#),
        (r#"{"role":"toolResult","content":[]}"#, r#"needs "toolCallId""#),
        (r#"{"role":"assistant","content":[{"type":"opaque","raw":1}]}"#, r#"needs "wire""#),
        (r#"{"role":"assistant","content":[{"type":"opaque","wire":"x"}]}"#, r#"needs "raw""#),
        (r#"{"role":"user","content":[{"type":"image","data":""}]}"#, r#"needs "mediaType""#),
        (r#"{"role":"user","content":[{"type":"image","mediaType":"image/png"}]}"#, r#"needs "data""#),
        (r#"{"role":"user","content":[{"type":"image","mediaType":"image/png","data":"%"}]}"#, "not base64"),
    ] {
        let error = serde_json::from_str::<Message>(json).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn an_unknown_stop_reason_keeps_its_word() {
    for (content, expected) in [("[]", StopReason::Stop), (r#"[{"type":"toolCall","id":"c"}]"#, StopReason::ToolUse)] {
        let json = format!(r#"{{"role":"assistant","content":{content},"stopReason":"brand_new"}}"#);
        let Message::Assistant(message) = read(&json) else { panic!() };
        assert_eq!((message.stop_reason, message.raw_stop_reason.as_deref()), (expected, Some("brand_new")));
    }
}

#[test]
fn each_kind_of_message_can_be_read_alone_and_as_no_other() {
    let user: UserMessage = serde_json::from_str(r#"{"content":"hi","timestamp":1}"#).unwrap();
    assert_eq!(user, UserMessage::text("hi", 1));
    let json = write(&result(vec![]).into());
    assert_eq!(serde_json::from_str::<ToolResultMessage>(&json).unwrap(), result(vec![]));
    let error = serde_json::from_str::<AssistantMessage>(&json).unwrap_err().to_string();
    assert!(error.contains("expected a message of role assistant"), "{error}");
}

#[test]
fn tool_calls_come_in_order_and_from_assistant_messages_only() {
    let call = |id: &str| Block::ToolCall(ToolCall::new(id, "ls", "{}"));
    let message = assistant(vec![call("b"), Block::text("and"), call("a")]);
    let ids = |message: &Message| message.tool_calls().map(|call| call.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&message.into()), ["b", "a"]);
    assert!(ids(&assistant(vec![Block::text("no")]).into()).is_empty());
    assert!(ids(&UserMessage::text("no", 1).into()).is_empty());
    assert!(ids(&result(vec![]).into()).is_empty());
}

#[test]
fn a_transcript_knows_the_ids_of_its_calls() {
    let mut transcript = conversation();
    let before = transcript.clone();
    assert!(transcript.has_call_id("toolu_1") && !transcript.has_call_id("toolu_2"));
    transcript.push(Message::from(assistant(vec![Block::ToolCall(ToolCall::new("toolu_2", "ls", "{}"))])));
    assert!(transcript.has_call_id("toolu_2") && transcript.call_count() == 2);
    assert!(!before.has_call_id("toolu_2") && before.len() == 4, "a clone doesn't see what is appended to the other");
}

/// Writes a call with this argument text, checks that the record is one line and reads back the same text, and returns
/// the JSON of the two fields that hold it.
fn stored(arguments: &str) -> (Option<String>, Option<String>) {
    let message = Message::from(assistant(vec![Block::ToolCall(ToolCall::new("c", "n", arguments))]));
    let json = write(&message);
    assert!(!json.contains(['\n', '\r']), "{json}");
    let call = read(&json).tool_calls().next().unwrap().clone();
    assert_eq!(call.arguments.as_str(), arguments);

    #[derive(serde::Deserialize)]
    struct Record<'a> {
        #[serde(borrow)]
        content: [Call<'a>; 1],
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Call<'a> {
        #[serde(borrow)]
        arguments: Option<&'a serde_json::value::RawValue>,
        arguments_text: Option<String>,
    }
    let Record { content: [call] } = serde_json::from_str(&json).unwrap();
    (call.arguments.map(|raw| raw.get().to_owned()), call.arguments_text)
}

#[test]
fn argument_text_survives_byte_for_byte() {
    for json in [
        "{}",
        r#"{"a":1,"a":2}"#,
        r#"{ "b" :	1.0e+2,"a":-0 }"#,
        r#"{"big":123456789012345678901234567890.000,"exp":1e999}"#,
        r#"{"esc":"\u0041\/","pair":"\ud83d\ude00","nul":"\u0000"}"#,
        "{\"raw\":\"é😀\u{2028}\u{7f}\"}",
        "[1,2]",
        "\"text\"",
        "7",
        "true",
    ] {
        assert_eq!(stored(json), (Some(json.into()), None));
    }
    let deep = "[".repeat(4000) + &"]".repeat(4000);
    assert_eq!(stored(&deep), (Some(deep.clone()), None));
}

#[test]
fn argument_text_with_line_breaks_survives_on_one_line() {
    for (text, line) in [("{\n  \"a\": \"b\\nc\"\r\n}", r#"{   "a": "b\nc"  }"#), (" {}\n", "{}"), ("\t[1]", "[1]")] {
        assert_eq!(stored(text), (Some(line.into()), Some(text.into())));
    }
}

#[test]
fn malformed_argument_text_survives_and_is_told_from_json() {
    for text in [
        r#"{"path":"/et"#,
        r#"{"a":1}{"b":2}"#,
        "{'a': 1}",
        "{\"a\":\n\r\0 \u{FFFD} \\",
        "not json",
        "{\"tab\":\"\t\"}",
        "NaN",
        "{\"a\":01}",
    ] {
        assert_eq!(stored(text), (None, Some(text.into())));
        assert!(!Arguments::new(text).is_json());
        Arguments::new(text).parse::<serde_json::Value>().unwrap_err();
    }
}

#[test]
fn lone_surrogates_in_arguments_are_neither_fatal_nor_lost_to_the_tool() {
    let json =
        r#"{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{"a":"x\ud83d"}}]}"#;
    let message = read(json);
    assert_eq!(read(&write(&message)), message);
    let arguments = &message.tool_calls().next().unwrap().arguments;
    assert!(arguments.is_json());
    assert_eq!(arguments.parse::<serde_json::Value>().unwrap(), serde_json::json!({"a": "x\u{FFFD}"}));
}

#[test]
fn null_as_argument_text_is_not_the_same_as_none() {
    let text = |json: &str| read(json).tool_calls().next().unwrap().arguments.as_str().to_owned();
    assert_eq!(text(r#"{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n"}]}"#), "{}");
    stored("null");
}

#[test]
fn raw_json_stays_on_one_line() {
    let message = Message::from(ToolResultMessage {
        details: Some(raw("{\n  \"a\": \"b\\nc\",\r\n  \"n\": 1.0\n}")),
        ..result(vec![])
    });
    let json = write(&message);
    assert!(!json.contains(['\n', '\r']), "{json}");
    assert!(json.contains(r#""a": "b\nc","#) && json.contains(r#""n": 1.0"#), "{json}");
    assert_eq!(read(&json), message);
}

/// As pi writes them in session files of version 3.
#[test]
fn messages_of_pi_sessions_are_read_as_they_are() {
    let messages = [
        r#"{"role":"user","content":"list the files","timestamp":1763900000000}"#,
        r#"{"role":"user","content":[{"type":"text","text":"and this"},{"type":"image","data":"iVBORw==","mimeType":"image/png"}],"timestamp":1763900000001}"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"I should look.","thinkingSignature":"EqQBCg=="},{"type":"thinking","thinking":"[Reasoning redacted]","thinkingSignature":"opaque","redacted":true},{"type":"text","text":"Looking.","textSignature":"{\"v\":1,\"id\":\"msg_1\",\"phase\":\"commentary\"}"},{"type":"toolCall","id":"call_1|fc_1","name":"bash","arguments":{"command":"ls","timeout":5},"thoughtSignature":"Cg8=","partialJson":"{\"command\":\"ls\",\"timeout\":5}","index":3}],"api":"openai-responses","provider":"openai","model":"gpt-5.2","responseModel":"gpt-5.2-2026-01-10","responseId":"resp_1","usage":{"input":100,"output":20,"cacheRead":80,"cacheWrite":0,"totalTokens":200,"cost":{"input":0.000125,"output":0.0002,"cacheRead":0.00001,"cacheWrite":0,"total":0.000335}},"stopReason":"toolUse","timestamp":1763900000002,"durationMs":812}"#,
        r#"{"role":"toolResult","toolCallId":"call_1|fc_1","toolName":"bash","content":[{"type":"text","text":"a.txt\n"}],"details":{"truncation":null,"fullOutputPath":"/tmp/x"},"isError":false,"timestamp":1763900000003}"#,
        r#"{"role":"assistant","content":null,"api":"google-generative-ai","provider":"google","model":"gemini-3-pro","usage":{"input":-1,"output":0,"cacheRead":4,"cacheWrite":null,"totalTokens":3},"stopReason":"error","errorMessage":"503 overloaded \ud83d","diagnostics":[{"x":"\ud83d"}],"timestamp":1763900000004}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"Half"}],"api":"bedrock-converse-stream","provider":"amazon","model":"nova","usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"totalTokens":2},"stopReason":"aborted","errorMessage":"Request was aborted","timestamp":1763900000005}"#,
        r#"{"role":"assistant","content":[],"api":"anthropic-messages","provider":"anthropic","model":"claude","stopReason":"pending","timestamp":1763900000006}"#,
    ];
    let read: Vec<Message> = messages.into_iter().map(read).collect();

    let mut calling = assistant(vec![
        Block::Thinking(Thinking {
            thinking: "I should look.".into(),
            signature: Some("EqQBCg==".into()),
            redacted: false,
        }),
        Block::Thinking(Thinking {
            thinking: "[Reasoning redacted]".into(),
            signature: Some("opaque".into()),
            redacted: true,
        }),
        Block::Text(Text {
            signature: Some(r#"{"v":1,"id":"msg_1","phase":"commentary"}"#.into()),
            ..Text::new("Looking.")
        }),
        Block::ToolCall(ToolCall {
            signature: Some("Cg8=".into()),
            ..ToolCall::new("call_1|fc_1", "bash", r#"{"command":"ls","timeout":5}"#)
        }),
    ]);
    (calling.provider, calling.model, calling.wire) = ("openai".into(), "gpt-5.2".into(), WireFormat::OpenaiResponses);
    (calling.usage.input, calling.usage.output, calling.usage.cache_read) = (100, 20, 80);
    (calling.response_id, calling.timestamp) = (Some("resp_1".into()), 1_763_900_000_002);

    let mut failed = assistant(vec![]);
    (failed.provider, failed.model, failed.wire) =
        ("google".into(), "gemini-3-pro".into(), WireFormat::GoogleGenerativeAi);
    (failed.usage.cache_read, failed.stop_reason, failed.timestamp) = (4, StopReason::Error, 1_763_900_000_004);
    failed.error = Some(Box::new(ModelError::new(ErrorKind::Server, "503 overloaded \u{FFFD}")));

    let mut aborted = assistant(vec![Block::text("Half")]);
    (aborted.provider, aborted.model, aborted.wire) =
        ("amazon".into(), "nova".into(), "bedrock-converse-stream".into());
    (aborted.usage.input, aborted.usage.output) = (1, 1);
    (aborted.stop_reason, aborted.timestamp) = (StopReason::Aborted, 1_763_900_000_005);
    aborted.error = Some(Box::new(ModelError::new(ErrorKind::Aborted, "Request was aborted")));

    let mut pending = assistant(vec![]);
    (pending.model, pending.timestamp) = ("claude".into(), 1_763_900_000_006);
    pending.raw_stop_reason = Some("pending".into());

    let expected: [Message; 7] = [
        UserMessage::text("list the files", 1_763_900_000_000).into(),
        UserMessage {
            content: vec![Content::text("and this"), Content::Image(Image::new("image/png", b"\x89PNG"))],
            timestamp: 1_763_900_000_001,
        }
        .into(),
        calling.into(),
        ToolResultMessage {
            tool_call_id: "call_1|fc_1".into(),
            tool_name: "bash".into(),
            content: vec![Content::text("a.txt\n")],
            details: Some(raw(r#"{"truncation":null,"fullOutputPath":"/tmp/x"}"#)),
            is_error: false,
            timestamp: 1_763_900_000_003,
        }
        .into(),
        failed.into(),
        aborted.into(),
        pending.into(),
    ];
    assert_eq!(read, expected);
}

#[test]
fn messages_are_read_from_every_source_of_json() {
    let json = write(&conversation()[1]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let from_value: Message = serde_json::from_value(value).unwrap();
    let from_reader: Message = serde_json::from_reader(json.as_bytes()).unwrap();
    assert_eq!(from_reader, *conversation()[1]);
    assert_eq!(from_value.tool_calls().count(), 1);
}

#[test]
fn strings_with_lone_surrogates_are_read_everywhere() {
    let message = read(
        r#"{"role":"assistant","content":[
            {"type":"text","text":"\ud83d","signature":"\ud83d"},
            {"type":"thinking","thinking":"\ude00\ud83d"},
            {"type":"toolCall","id":"\ud83d","name":"\ud83d","argumentsText":"\ud83d","signature":"\ud83d"}
        ],"rawStopReason":"\ud83d","responseId":"\ud83d","errorMessage":"\ud83d","unknown":"\ud83d"}"#,
    );
    let one = || Some("\u{FFFD}".to_owned());
    let mut call = ToolCall::new("\u{FFFD}", "\u{FFFD}", "\u{FFFD}");
    call.signature = one();
    let mut expected = assistant(vec![
        Block::Text(Text { signature: one(), ..Text::new("\u{FFFD}") }),
        Block::Thinking(Thinking { thinking: "\u{FFFD}\u{FFFD}".into(), ..Thinking::default() }),
        Block::ToolCall(call),
    ]);
    (expected.provider, expected.model, expected.wire) = ("".into(), "".into(), WireFormat::default());
    (expected.raw_stop_reason, expected.response_id, expected.timestamp) = (one(), one(), 0);
    expected.error = Some(Box::new(ModelError::new(ErrorKind::Server, "\u{FFFD}")));
    assert_eq!(message, expected.into());

    let result = read(r#"{"role":"toolResult","toolCallId":"\ud83d","toolName":"\ud83d","content":"\ud83d"}"#);
    let Message::ToolResult(result) = result else { panic!() };
    assert_eq!((&*result.tool_call_id, &*result.tool_name), ("\u{FFFD}", "\u{FFFD}"));
    assert_eq!(result.content, [Content::text("\u{FFFD}")]);
}

proptest! {
    #[test]
    fn every_message_survives_json_on_one_line(message in arbitrary::message()) {
        let json = write(&message);
        prop_assert!(!json.contains(['\n', '\r']), "{}", json);
        prop_assert_eq!(read(&json), message);
    }

    /// What a string means that is written in escapes of UTF-16 units is the standard library's to say.
    #[test]
    fn any_sequence_of_escapes_is_read(units in prop::collection::vec(unit(), 0..12)) {
        let escaped: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
        let meant = String::from_utf16_lossy(&units);

        let Message::User(user) = read(&format!(r#"{{"role":"user","content":"{escaped}"}}"#)) else { panic!() };
        prop_assert_eq!(&user.content[0], &Content::text(&*meant));

        let arguments = Arguments::new(format!(r#"{{"a":"{escaped}"}}"#));
        prop_assert_eq!(arguments.parse::<serde_json::Value>().unwrap(), serde_json::json!({"a": meant}));
    }
}

/// UTF-16 units, half of them surrogates.
fn unit() -> impl Strategy<Value = u16> {
    prop_oneof![any::<u16>(), 0xD800..0xE000_u16]
}
