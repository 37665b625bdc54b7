//! The wire `anthropic-messages`: what streams mean, and what requests look like.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use serde_json::{Value, json};
use terret_llm::wire::{EncodeError, Encoded, ReplyReader, WireFormat};
use terret_llm::{
    Block, CacheRetention, Draft, Effort, ErrorKind, Failed, Message, ModelSpec, Options, OutputSchema, RawJson,
    Request, StreamEvent, ToolChoice, ToolSpec, Transcript, Usage,
};

// Responses

#[test]
fn streams_decode_to_what_they_mean() {
    let block =
        |number: u64, block: Value| json!({"type": "content_block_start", "index": number, "content_block": block});
    let delta = |number: u64, delta: Value| json!({"type": "content_block_delta", "index": number, "delta": delta});
    let stop = |number: u64| json!({"type": "content_block_stop", "index": number});
    let text = |number: u64, text: &str| delta(number, json!({"type": "text_delta", "text": text}));
    let input = |number: u64, part: &str| delta(number, json!({"type": "input_json_delta", "partial_json": part}));
    let call = |id: &str, input: Value| json!({"type": "tool_use", "id": id, "name": "read", "input": input});
    let stopped = |reason: &str| json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}});
    let empty_text = json!({"type": "text", "text": ""});
    let empty_thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let read =
        |id: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": "read", "arguments": arguments});
    let hi = json!({"type": "text", "text": "hi"});

    for (name, events, content, reason) in [
        (
            "text in pieces",
            vec![
                block(0, empty_text.clone()),
                text(0, "h"),
                json!({"type": "ping"}),
                text(0, "i"),
                stop(0),
                stopped("end_turn"),
            ],
            json!([hi]),
            "stop",
        ),
        (
            "thinking, its signature in pieces, then text and a call",
            vec![
                block(0, empty_thinking.clone()),
                delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
                delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
                delta(0, json!({"type": "signature_delta", "signature": "si"})),
                delta(0, json!({"type": "signature_delta", "signature": "g"})),
                stop(0),
                block(1, empty_text.clone()),
                text(1, "hi"),
                stop(1),
                block(2, call("t1", json!({}))),
                input(2, ""),
                input(2, r#"{"a""#),
                input(2, ": 1}"),
                stop(2),
                stopped("tool_use"),
            ],
            json!([{"type": "thinking", "thinking": "hm", "signature": "sig"}, hi, read("t1", json!({"a": 1}))]),
            "toolUse",
        ),
        (
            "thinking of which only the signature comes",
            vec![
                block(0, empty_thinking.clone()),
                delta(0, json!({"type": "signature_delta", "signature": "sig"})),
                stop(0),
                block(1, empty_text.clone()),
                text(1, "hi"),
                stop(1),
                stopped("end_turn"),
            ],
            json!([{"type": "thinking", "thinking": "", "signature": "sig"}, hi]),
            "stop",
        ),
        (
            "redacted thinking",
            vec![block(0, json!({"type": "redacted_thinking", "data": "Eg=="})), stop(0), stopped("end_turn")],
            json!([{"type": "thinking", "thinking": "", "signature": "Eg==", "redacted": true}]),
            "stop",
        ),
        (
            "arguments given whole at the start",
            vec![block(0, call("t1", json!({"path": "a"}))), stop(0), stopped("tool_use")],
            json!([read("t1", json!({"path": "a"}))]),
            "toolUse",
        ),
        (
            "arguments given whole at the start, and streamed: the latter count",
            vec![block(0, call("t1", json!({"path": "a"}))), input(0, r#"{"path":"b"}"#), stop(0), stopped("tool_use")],
            json!([read("t1", json!({"path": "b"}))]),
            "toolUse",
        ),
        (
            "arguments as a text",
            vec![block(0, call("t1", json!(r#"{"path":"a"}"#))), stop(0), stopped("tool_use")],
            json!([read("t1", json!({"path": "a"}))]),
            "toolUse",
        ),
        (
            "no arguments",
            vec![
                block(0, call("t1", json!({}))),
                input(0, ""),
                stop(0),
                block(1, call("t2", json!(null))),
                stop(1),
                stopped("tool_use"),
            ],
            json!([read("t1", json!({})), read("t2", json!({}))]),
            "toolUse",
        ),
        (
            "arguments cut off by the output limit",
            vec![block(0, call("t1", json!({}))), input(0, r#"{"path":"/et"#), stop(0), stopped("max_tokens")],
            json!([{"type": "toolCall", "id": "t1", "name": "read", "argumentsText": r#"{"path":"/et"#}]),
            "length",
        ),
        (
            "a call that code on the server made goes back with its caller",
            vec![
                block(
                    0,
                    json!({"type": "tool_use", "id": "t1", "name": "read", "input": {}, "caller": {"type": "direct"}}),
                ),
                stop(0),
                block(
                    1,
                    json!({"type": "tool_use", "id": "t2", "name": "read", "input": {}, "caller": {"type": "code_execution_20250825", "tool_id": "s1"}}),
                ),
                stop(1),
                stopped("tool_use"),
            ],
            json!([
                read("t1", json!({})),
                {
                    "type": "toolCall",
                    "id": "t2",
                    "name": "read",
                    "arguments": {},
                    "signature": r#"{"tool_id":"s1","type":"code_execution_20250825"}"#,
                },
            ]),
            "toolUse",
        ),
        (
            "citations",
            vec![
                block(0, json!({"type": "text", "text": "", "citations": []})),
                delta(
                    0,
                    json!({"type": "citations_delta", "citation": {"type": "web_search_result_location", "url": "a"}}),
                ),
                text(0, "hi"),
                delta(
                    0,
                    json!({"type": "citations_delta", "citation": {"type": "web_search_result_location", "url": "b"}}),
                ),
                stop(0),
                stopped("end_turn"),
            ],
            json!([{
                "type": "text",
                "text": "hi",
                "annotations": [
                    {"type": "web_search_result_location", "url": "a"},
                    {"type": "web_search_result_location", "url": "b"},
                ],
            }]),
            "stop",
        ),
        (
            "a tool of the server's and its result, kept with the input that was streamed",
            vec![
                block(0, json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}})),
                input(0, r#"{"query": "#),
                input(0, r#""rust"}"#),
                stop(0),
                block(
                    1,
                    json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "Rust"}]}),
                ),
                stop(1),
                block(2, empty_text.clone()),
                text(2, "hi"),
                stop(2),
                stopped("end_turn"),
            ],
            json!([
                opaque(
                    json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rust"}})
                ),
                opaque(json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "Rust"}]})),
                hi,
            ]),
            "stop",
        ),
        (
            "a block of an unknown kind, with a delta of an unknown kind",
            vec![
                block(0, json!({"type": "compaction", "content": null, "data": {"deep": [1]}})),
                delta(0, json!({"type": "compaction_delta", "content": "so "})),
                delta(0, json!({"type": "compaction_delta", "content": "far"})),
                stop(0),
                block(1, empty_text.clone()),
                text(1, "hi"),
                stop(1),
                stopped("end_turn"),
            ],
            json!([opaque(json!({"type": "compaction", "content": "so far", "data": {"deep": [1]}})), hi]),
            "stop",
        ),
        (
            "numbers that are skipped, repeated and out of order",
            vec![
                block(7, empty_text.clone()),
                text(7, "hi"),
                stop(7),
                block(1, call("t1", json!({}))),
                block(3, call("t2", json!({}))),
                input(3, r#"{"b":2}"#),
                input(1, r#"{"a":1}"#),
                stop(3),
                stop(1),
                block(7, empty_text.clone()),
                text(7, "hi"),
                stop(7),
                stopped("tool_use"),
            ],
            json!([hi, read("t1", json!({"a": 1})), read("t2", json!({"b": 2})), hi]),
            "toolUse",
        ),
        (
            "blocks that no event begins or ends",
            vec![
                delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
                text(0, "hi"),
                block(1, call("t1", json!({"a": 1}))),
                block(2, json!({"type": "server_tool_use", "id": "s1", "input": {}})),
                stopped("tool_use"),
            ],
            json!([
                {"type": "thinking", "thinking": "hm"},
                hi,
                read("t1", json!({"a": 1})),
                opaque(json!({"type": "server_tool_use", "id": "s1", "input": {}})),
            ]),
            "toolUse",
        ),
        (
            "a number that is used again before its block has ended",
            vec![
                block(0, empty_text.clone()),
                text(0, "hi"),
                block(0, call("t1", json!({}))),
                input(0, r#"{"a":1}"#),
                stopped("tool_use"),
            ],
            json!([hi, read("t1", json!({"a": 1}))]),
            "toolUse",
        ),
        (
            "ids that are empty or repeated become fresh ones",
            vec![
                block(0, call("t1", json!({}))),
                stop(0),
                block(1, call("t1", json!({}))),
                stop(1),
                block(2, json!({"type": "tool_use", "id": null, "name": null, "input": null})),
                stop(2),
                stopped("tool_use"),
            ],
            json!([
                read("t1", json!({})),
                read("fresh 1", json!({})),
                {"type": "toolCall", "id": "fresh 2", "name": "", "arguments": {}},
            ]),
            "toolUse",
        ),
        (
            "values of another shape cost no more than themselves",
            vec![
                json!({"type": "message_start", "message": {"id": 5, "content": {}, "usage": "none", "stop_reason": []}}),
                json!({"type": "content_block_start", "index": "0", "content_block": {"type": "text", "text": [], "citations": {}}}),
                json!({"type": "content_block_delta", "index": "0", "delta": {"type": "text_delta", "text": "hi", "citation": 1}}),
                json!({"type": "content_block_stop", "index": "0"}),
                json!({"type": "message_delta", "delta": {"stop_reason": 5}, "usage": {"output_tokens_details": []}}),
                stopped("max_tokens"),
            ],
            json!([hi]),
            "length",
        ),
        (
            "a message whose content is a text",
            vec![started(json!({"content": "hi", "stop_reason": "end_turn"}))],
            json!([hi]),
            "stop",
        ),
        (
            "events, fields and deltas that are unknown or null",
            vec![
                json!({"type": "brand_new", "delta": "text", "index": "first", "usage": 3}),
                json!({"type": "content_block_start", "index": null, "content_block": {"type": "text", "text": null, "new": 1}}),
                delta(0, json!({"type": "brand_new_delta", "text": "no"})),
                json!({"type": "content_block_delta", "index": 0, "delta": null}),
                text(0, "hi"),
                delta(9, json!({"type": "input_json_delta", "partial_json": "lost"})),
                stop(9),
                json!({"type": "message_delta", "delta": {"stop_reason": null, "container": null}, "usage": null}),
                stopped("max_tokens"),
                json!({"type": "message_delta", "delta": null}),
                json!({"type": "message_delta", "delta": {"stop_reason": null}}),
            ],
            json!([hi]),
            "length",
        ),
        (
            "an emoji that is cut between two deltas, and half of one",
            vec![
                block(0, empty_text.clone()),
                text(0, "a\u{1}"),
                text(0, "\u{2}b\u{1}"),
                stop(0),
                block(1, call("t1", json!({}))),
                input(1, r#"{"a":"\ud8"#),
                input(1, r#"3d\ude00\ud83d"}"#),
                stop(1),
                stopped("tool_use"),
            ],
            json!([{"type": "text", "text": "a😀b\u{FFFD}"}, read("t1", json!({"a": "😀\u{FFFD}"}))]),
            "toolUse",
        ),
    ] {
        // Control characters stand for the halves of an emoji, which a Rust string can't hold.
        let stream = sse(&[vec![started(json!({}))], events, vec![json!({"type": "message_stop"})]].concat())
            .replace("\\u0001", "\\ud83d")
            .replace("\\u0002", "\\ude00");
        for chunk in [stream.len(), 1, 7] {
            let message = decode(&stream, chunk).unwrap_or_else(|failed| panic!("{name}: {failed}"));
            assert_eq!(with_fresh_ids(&message["content"]), content, "{name}, {chunk} bytes at a time");
            assert_eq!(message["stopReason"], reason, "{name}");
            assert_eq!(message["responseId"], "msg_1", "{name}");
        }
        for cut in ends_of_events(&stream).flat_map(|end| [end - 1, end]) {
            let failed = decode(&stream[..cut], 64).expect_err(name);
            assert_eq!(failed.error.kind, ErrorKind::Truncated, "{name}, cut at {cut}");
            assert!(failed.error.is_retryable());
        }
    }
}

#[test]
fn the_framing_does_not_matter() {
    let plain = sse(&[started(json!({})), hi_block(), json!({"type": "message_stop"})]);
    let named = plain
        .split_inclusive("\n\n")
        .map(|event| {
            let data: Value = serde_json::from_str(event.trim().strip_prefix("data: ").unwrap()).unwrap();
            format!("event: {}\r\n{}\r\n\r\n", data["type"].as_str().unwrap(), event.trim())
        })
        .collect::<String>();
    let by_name_alone = named.replace(r#""type":"content_block_start","#, "").replace(r#""type":"message_stop""#, "");
    let done = plain.clone() + "data: [DONE]\n\n";
    let done_first = format!("data: [DONE]\n\n: comment\n\ndata: \n\n{plain}");
    let unfinished = plain.trim_end().to_owned();
    for stream in [plain, named, by_name_alone, done, done_first, unfinished] {
        let message = decode(&stream, 3).unwrap_or_else(|failed| panic!("{failed}: {stream}"));
        assert_eq!(message["content"], json!([{"type": "text", "text": "hi"}]), "{stream}");
    }
}

#[test]
fn a_message_start_can_hold_the_whole_message() {
    let content = json!([{"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}]);
    let stream =
        sse(&[started(json!({"content": content, "stop_reason": "tool_use"})), json!({"type": "message_stop"})]);
    let message = decode(&stream, 5).unwrap();
    assert_eq!(
        message["content"],
        json!([{"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "a"}}])
    );
    assert_eq!(message["stopReason"], "toolUse");
    assert_eq!(message["rawStopReason"], "tool_use");
}

#[test]
fn a_plain_body_decodes_like_a_stream() {
    let body = json!({
        "type": "message",
        "id": "msg_1",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "redacted_thinking", "data": "Eg=="},
            {"type": "text", "text": "hi", "citations": [{"type": "char_location"}]},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rust"}},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 5},
    });
    let message = decode(&body.to_string(), 7).unwrap();
    assert_eq!(
        message["content"],
        json!([
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "thinking", "thinking": "", "signature": "Eg==", "redacted": true},
            {"type": "text", "text": "hi", "annotations": [{"type": "char_location"}]},
            opaque(json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rust"}})),
            {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "a"}},
        ])
    );
    assert_eq!(message["stopReason"], "toolUse");
    assert_eq!(message["responseId"], "msg_1");
    assert_eq!(message["usage"], json!({"input": 3, "cacheRead": 0, "cacheWrite": 0, "output": 5}));
}

#[test]
fn stop_reasons_keep_the_providers_word() {
    let call = json!({"type": "tool_use", "id": "t1", "name": "read", "input": {}});
    for (raw, with_text, with_call) in [
        (json!("end_turn"), "stop", "toolUse"),
        (json!("stop_sequence"), "stop", "toolUse"),
        (json!("tool_use"), "toolUse", "toolUse"),
        (json!("max_tokens"), "length", "length"),
        (json!("model_context_window_exceeded"), "length", "length"),
        (json!("pause_turn"), "pause", "pause"),
        (json!("refusal"), "refusal", "refusal"),
        (json!("brand_new"), "stop", "toolUse"),
        (json!(null), "stop", "toolUse"),
    ] {
        for (block, reason) in [(json!({"type": "text", "text": "hi"}), with_text), (call.clone(), with_call)] {
            let stream = sse(&[
                started(json!({"content": [block]})),
                json!({"type": "message_delta", "delta": {"stop_reason": raw}}),
                json!({"type": "message_stop"}),
            ]);
            let message = decode(&stream, 64).unwrap();
            assert_eq!(message["stopReason"], reason, "{raw}");
            assert_eq!(message.get("rawStopReason").unwrap_or(&Value::Null), &raw);
            assert_eq!(message["content"].as_array().unwrap().len(), 1);
        }
    }
}

#[test]
fn usage_is_the_last_number_that_was_told() {
    let start = json!({
        "input_tokens": 100,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 50,
        "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
        "output_tokens": 1,
    });
    let from_start = json!({"input": 100, "cacheRead": 20, "cacheWrite": 50, "cacheWriteLong": 30, "output": 1});
    for (deltas, expected) in [
        (vec![], from_start.clone()),
        (vec![json!(null), json!({"input_tokens": null, "output_tokens": null, "cache_creation": null})], from_start),
        (
            vec![
                json!({"output_tokens": 10}),
                json!({"output_tokens": 25, "output_tokens_details": {"thinking_tokens": 5}}),
            ],
            json!({"input": 100, "cacheRead": 20, "cacheWrite": 50, "cacheWriteLong": 30, "output": 25, "reasoning": 5}),
        ),
        (
            vec![json!({"input_tokens": 110, "cache_read_input_tokens": 0, "output_tokens": 7.0, "new": {}})],
            json!({"input": 110, "cacheRead": 0, "cacheWrite": 50, "cacheWriteLong": 30, "output": 7}),
        ),
        (
            vec![json!({"input_tokens": -3, "output_tokens": "many"})],
            json!({"input": 0, "cacheRead": 20, "cacheWrite": 50, "cacheWriteLong": 30, "output": 1}),
        ),
    ] {
        let deltas = deltas.into_iter().map(|usage| json!({"type": "message_delta", "delta": {}, "usage": usage}));
        let mut events = vec![started(json!({"usage": start}))];
        events.extend(deltas);
        events.push(json!({"type": "message_stop"}));
        let message = decode(&sse(&events), 64).unwrap();
        assert_eq!(message["usage"], expected, "{events:?}");
        let usage: Usage = serde_json::from_value(message["usage"].clone()).unwrap();
        assert_eq!(usage.total(), usage.input + usage.cache_read + usage.cache_write + usage.output);
    }
}

#[test]
fn failures_in_mid_stream_have_a_kind_and_leave_the_partial() {
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_1"});
    for (event, kind) in [
        (error("overloaded_error"), ErrorKind::Overloaded),
        (error("rate_limit_error"), ErrorKind::RateLimited),
        (error("api_error"), ErrorKind::Server),
        (error("authentication_error"), ErrorKind::Auth),
        (json!({"error": {"type": "overloaded_error", "message": "no"}}), ErrorKind::Overloaded),
        (json!({"type": "error", "message": "no", "error": null}), ErrorKind::Server),
    ] {
        let failed = decode(&sse(&[started(json!({})), hi_block(), event.clone()]), 9).unwrap_err();
        assert_eq!(failed.error.kind, kind, "{event}");
        assert_eq!(failed.error.message, "no");
        assert_eq!(failed.partial.content, [Block::text("hi")], "{event}");
    }
    let failed = decode(&sse(&[started(json!({})), error("overloaded_error")]), 9).unwrap_err();
    assert_eq!(failed.error.code.as_deref(), Some("overloaded_error"));
    assert_eq!(failed.error.request_id.as_deref(), Some("req_1"));
    let prose = sse(&[started(json!({}))]) + "event: error\ndata: upstream went away\n\n";
    let failed = decode(&prose, 9).unwrap_err();
    assert_eq!((failed.error.kind, &*failed.error.message), (ErrorKind::Server, "upstream went away"));
}

#[test]
fn what_makes_no_sense_is_a_breach_of_the_protocol() {
    let broken = |data: &str| sse(&[started(json!({})), hi_block()]) + "data: " + data + "\n\ndata: {}\n\n";
    for (name, body) in [
        ("an event that is not JSON", broken(r#"{"type":"content_block_delta","index":0"#)),
        (
            "text that is not text",
            broken(r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}"#),
        ),
        ("a page", "<html>hello</html>".into()),
        ("another vendor's answer", r#"{"choices":[]}"#.into()),
    ] {
        assert_eq!(decode(&body, 5).unwrap_err().error.kind, ErrorKind::Protocol, "{name}");
    }
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"no"}}"#;
    assert_eq!(decode(error, 5).unwrap_err().error.kind, ErrorKind::Overloaded);
}

// Requests

#[test]
fn a_whole_request() {
    let request = Request {
        system: Some("Be brief.".into()),
        messages: messages(json!([
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "mediaType": "image/png", "data": "cG5n"}]},
            reply(json!([
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "thinking", "thinking": "", "signature": "Eg==", "redacted": true},
                {"type": "text", "text": "let me see"},
                {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "a"}},
                {"type": "toolCall", "id": "t2", "name": "ls", "arguments": {}},
            ])),
            {"role": "toolResult", "toolCallId": "t1", "toolName": "read", "content": [{"type": "text", "text": ""}], "details": {"not": "sent"}},
            {"role": "toolResult", "toolCallId": "t2", "toolName": "ls", "content": [{"type": "text", "text": "no"}], "isError": true},
            {"role": "user", "content": "go on"},
        ])),
        tools: tools(),
        options: Options::default(),
    };
    let Encoded { path, headers, body } = encode("claude-sonnet-4-5", &request).unwrap();
    assert_eq!(path, "/messages");
    assert_eq!(headers, [("anthropic-version", "2023-06-01".to_owned())]);
    assert_eq!(
        std::str::from_utf8(&body.to_bytes()).unwrap(),
        concat!(
            r#"{"model":"claude-sonnet-4-5","max_tokens":8192,"stream":true,"#,
            r#""system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"#,
            r#""tools":[{"name":"read","description":"Reads a file.","input_schema":{"type":"object"}},"#,
            r#"{"name":"ls","input_schema":{ "type": "object" },"cache_control":{"type":"ephemeral"}}],"#,
            r#""messages":[{"role":"user","content":[{"type":"text","text":"look"},"#,
            r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}}]},"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},"#,
            r#"{"type":"redacted_thinking","data":"Eg=="},{"type":"text","text":"let me see"},"#,
            r#"{"type":"tool_use","id":"t1","name":"read","input":{"path":"a"}},"#,
            r#"{"type":"tool_use","id":"t2","name":"ls","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"(no output)"}]},"#,
            r#"{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"no"}],"is_error":true}]},"#,
            r#"{"role":"user","content":[{"type":"text","text":"go on","cache_control":{"type":"ephemeral"}}]}]}"#,
        )
    );
}

#[test]
fn replies_go_back_in_their_shape() {
    let char_location = json!({"type": "char_location", "cited_text": "a", "document_index": 0, "file_id": null});
    let search = json!({"type": "web_search_result_location", "url": "u", "encrypted_index": "e"});
    let code = r#"{"type":"code_execution_20250825","tool_id":"s1"}"#;
    for (name, content, expected) in [
        (
            "argument text is not touched",
            json!([{"type": "toolCall", "id": "t1", "name": "read", "argumentsText": "{\"b\" : 1.0,\n\"a\":1e2}"}]),
            vec![r#"{"type":"tool_use","id":"t1","name":"read","input":{"b" : 1.0,
"a":1e2}}"#.replace("\\n", "\n")],
        ),
        (
            "arguments that are no object",
            json!([{"type": "toolCall", "id": "t1", "name": "read", "argumentsText": "{\"pa"}]),
            vec![r#"{"type":"tool_use","id":"t1","name":"read","input":{"malformed_arguments":"{\"pa"}}"#.into()],
        ),
        (
            "a call of code on the server",
            json!([{"type": "toolCall", "id": "t1", "name": "read", "arguments": {}, "signature": code}]),
            vec![format!(r#"{{"type":"tool_use","id":"t1","name":"read","input":{{}},"caller":{code}}}"#)],
        ),
        (
            "a vendor's block",
            json!([opaque(json!({"type": "server_tool_use", "id": "s1"})), {"type": "text", "text": "hi"}]),
            vec![r#"{"id":"s1","type":"server_tool_use"}"#.into(), r#"{"type":"text","text":"hi"}"#.into()],
        ),
        (
            "citations, of which the file's id is not taken back",
            json!([{"type": "text", "text": "hi", "annotations": [char_location, search]}]),
            vec![concat!(
                r#"{"type":"text","text":"hi","citations":[{"cited_text":"a","document_index":0,"type":"char_location"},"#,
                r#"{"encrypted_index":"e","type":"web_search_result_location","url":"u"}]}"#
            )
            .into()],
        ),
        (
            "thinking that is not signed, or not followed by anything",
            json!([
                {"type": "thinking", "thinking": "unsigned"},
                {"type": "text", "text": "hi"},
                {"type": "thinking", "thinking": "cut off", "signature": "sig"},
            ]),
            vec![r#"{"type":"text","text":"hi"}"#.into()],
        ),
    ] {
        let request = request(json!([user("hi"), reply(content), user("go on")]));
        let body = String::from_utf8(encode("claude-sonnet-4-5", &request).unwrap().body.to_bytes().to_vec()).unwrap();
        let expected = format!(r#"{{"role":"assistant","content":[{}]}}"#, expected.join(","));
        assert!(body.contains(&expected), "{name}: {expected} in {body}");
    }
    let only_thought = json!([user("hi"), reply(json!([{"type": "thinking", "thinking": "hm"}])), user("go on")]);
    let turns = body_of("claude-sonnet-4-5", &request(only_thought))["messages"].clone();
    assert_eq!(turns.as_array().unwrap().len(), 2);
    let to_go_on = json!([user("hi"), reply(json!([{"type": "text", "text": "so far \n"}]))]);
    let turns = body_of("claude-sonnet-4-5", &request(to_go_on))["messages"].clone();
    assert_eq!(
        turns[1]["content"],
        json!([{"type": "text", "text": "so far"}]),
        "a prefill can't end with white space"
    );
    assert!(turns[0]["content"][0].get("cache_control").is_some(), "the mark stands on the user's last block");
    let call = json!({"type": "toolCall", "id": "toolu_1", "name": "read", "arguments": {}});
    let with_call = json!([user("hi"), reply(json!([call, {"type": "text", "text": "and \n"}]))]);
    let turns = body_of("claude-sonnet-4-5", &request(with_call))["messages"].clone();
    assert_eq!(turns[1]["content"][1]["text"], "and \n", "what results follow is no prefill");
}

#[test]
fn results_stay_together_and_images_of_errors_go_behind_them() {
    let image = json!({"type": "image", "mediaType": "image/png", "data": "cG5n"});
    let sent = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}});
    let result = |id: &str, content: Value, is_error: bool| json!({"role": "toolResult", "toolCallId": id, "toolName": "read", "content": content, "isError": is_error});
    let calls: Vec<Value> =
        ["t1", "t2", "t3"].map(|id| json!({"type": "toolCall", "id": id, "name": "read", "arguments": {}})).to_vec();
    let request = request(json!([
        user("hi"),
        reply(json!(calls)),
        result("t1", json!([image]), true),
        result("t2", json!([image, {"type": "text", "text": "seen"}]), false),
        user("steered"),
        result("t3", json!([{"type": "text", "text": "late"}, image]), true),
    ]));
    let mut body = body_of("claude-sonnet-4-5", &Request { options: no_cache(), ..request });
    assert_eq!(
        body["messages"].as_array_mut().unwrap().split_off(2),
        [
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "(see the image)"}], "is_error": true},
                {"type": "tool_result", "tool_use_id": "t2", "content": [sent, {"type": "text", "text": "seen"}]},
                {"type": "tool_result", "tool_use_id": "t3", "content": [{"type": "text", "text": "late"}], "is_error": true},
                sent,
                sent,
            ]}),
            json!({"role": "user", "content": [{"type": "text", "text": "steered"}]}),
        ]
    );
}

#[test]
fn every_option_is_in_the_body_or_refused() {
    use Effort::*;
    let in_body = |fields: Value| Ok(fields);
    for (model, options, expected) in [
        ("claude-sonnet-4-5", with(|o| o.max_output_tokens = Some(100)), in_body(json!({"max_tokens": 100}))),
        ("claude-sonnet-4-5", with(|o| o.temperature = Some(0.5)), in_body(json!({"temperature": 0.5}))),
        ("claude-sonnet-4-5", with(|o| o.top_p = Some(0.5)), in_body(json!({"top_p": 0.5}))),
        ("claude-sonnet-4-5", with(|o| o.top_k = Some(5)), in_body(json!({"top_k": 5}))),
        ("claude-sonnet-4-5", with(|o| o.stop = vec!["END".into()]), in_body(json!({"stop_sequences": ["END"]}))),
        ("claude-sonnet-4-5", with(|o| o.stop = vec![" ".into()]), Err("stop")),
        ("claude-sonnet-4-5", with(|o| o.seed = Some(1)), Err("seed")),
        ("claude-sonnet-4-5", with(|o| o.cache_key = Some("k".into())), in_body(json!({"metadata": {"user_id": "k"}}))),
        // Which tools.
        (
            "claude-sonnet-4-5",
            with(|o| o.tool_choice = Some(ToolChoice::Auto)),
            in_body(json!({"tool_choice": {"type": "auto"}})),
        ),
        (
            "claude-sonnet-4-5",
            with(|o| o.tool_choice = Some(ToolChoice::None)),
            in_body(json!({"tool_choice": {"type": "none"}})),
        ),
        (
            "claude-sonnet-4-5",
            with(|o| o.tool_choice = Some(ToolChoice::Required)),
            in_body(json!({"tool_choice": {"type": "any"}})),
        ),
        (
            "claude-sonnet-4-5",
            with(|o| {
                o.tool_choice = Some(ToolChoice::Tool("ls".into()));
                o.parallel_tool_calls = Some(false);
            }),
            in_body(json!({"tool_choice": {"type": "tool", "name": "ls", "disable_parallel_tool_use": true}})),
        ),
        (
            "claude-sonnet-4-5",
            with(|o| o.parallel_tool_calls = Some(true)),
            in_body(json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": false}})),
        ),
        // A model that reasons can't be forced to call.
        (
            "claude-sonnet-4-5",
            with(|o| (o.tool_choice, o.effort) = (Some(ToolChoice::Required), Some(Low))),
            Err("tool_choice"),
        ),
        ("claude-opus-5", with(|o| o.tool_choice = Some(ToolChoice::Required)), Err("tool_choice")),
        (
            "claude-opus-5",
            with(|o| (o.tool_choice, o.effort) = (Some(ToolChoice::Required), Some(Off))),
            in_body(json!({"tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}})),
        ),
        (
            "claude-sonnet-5-5",
            with(|o| (o.tool_choice, o.effort) = (Some(ToolChoice::Required), Some(Off))),
            Err("tool_choice"),
        ),
        // Reasoning by budget, which has to fit.
        ("claude-sonnet-4-5", with(|o| o.effort = Some(Off)), in_body(json!({"thinking": {"type": "disabled"}}))),
        ("claude-sonnet-4-5", with(|o| o.effort = Some(Minimal)), in_body(budget(1024))),
        ("claude-sonnet-4-5", with(|o| o.effort = Some(Low)), in_body(budget(2048))),
        ("claude-sonnet-4-5", with(|o| o.effort = Some(Medium)), in_body(budget(8192 - 1024))),
        (
            "claude-sonnet-4-5",
            with(|o| (o.effort, o.max_output_tokens) = (Some(Medium), Some(20_000))),
            in_body(budget(8192)),
        ),
        (
            "claude-3-7-sonnet-latest",
            with(|o| (o.effort, o.max_output_tokens) = (Some(High), Some(20_000))),
            in_body(budget(16_384)),
        ),
        (
            "claude-opus-4-20250514",
            with(|o| (o.effort, o.max_output_tokens) = (Some(Max), Some(50_000))),
            in_body(budget(32_768)),
        ),
        (
            "us.anthropic.claude-opus-4-1-20250805-v1:0",
            with(|o| (o.effort, o.max_output_tokens) = (Some(High), Some(1500))),
            in_body(budget(1024)),
        ),
        ("claude-sonnet-4-5", with(|o| (o.effort, o.max_output_tokens) = (Some(Low), Some(1024))), Err("effort")),
        ("kimi-k2-thinking", with(|o| o.effort = Some(Low)), in_body(budget(2048))),
        // Reasoning by effort.
        ("claude-opus-4-6", with(|o| o.effort = Some(Minimal)), in_body(adaptive("low", None))),
        ("anthropic/claude-sonnet-4.6", with(|o| o.effort = Some(XHigh)), in_body(adaptive("high", None))),
        ("claude-opus-4-6", with(|o| o.effort = Some(Max)), in_body(adaptive("max", None))),
        ("claude-opus-4-7", with(|o| o.effort = Some(XHigh)), in_body(adaptive("xhigh", Some("summarized")))),
        ("claude-haiku-5-5", with(|o| o.effort = Some(Medium)), in_body(adaptive("medium", Some("summarized")))),
        ("claude-haiku-5-5", with(|o| o.effort = Some(Off)), in_body(json!({"thinking": {"type": "disabled"}}))),
        ("claude-sonnet-5-5", with(|o| o.effort = Some(Off)), in_body(json!({"thinking": {"type": "between_tools"}}))),
        ("claude-opus-5-5", with(|o| o.effort = Some(Off)), Err("effort")),
        ("claude-fable-5", with(|o| o.effort = Some(Off)), Err("effort")),
        ("claude-mythos-preview", with(|o| o.effort = Some(High)), in_body(adaptive("high", Some("summarized")))),
        // No reasoning.
        ("claude-3-5-haiku-20241022", with(|o| o.effort = Some(Low)), Err("effort")),
        ("claude-3-5-haiku-20241022", with(|o| o.effort = Some(Off)), in_body(json!({}))),
        // Sampling, which reasoning narrows, and later models don't offer.
        ("claude-sonnet-4-5", with(|o| (o.effort, o.temperature) = (Some(Low), Some(0.5))), Err("temperature")),
        ("claude-sonnet-4-5", with(|o| (o.effort, o.top_k) = (Some(Low), Some(5))), Err("top_k")),
        ("claude-sonnet-4-5", with(|o| (o.effort, o.top_p) = (Some(Low), Some(0.5))), Err("top_p")),
        ("claude-sonnet-4-5", with(|o| (o.top_p, o.temperature) = (Some(0.5), Some(0.5))), Err("top_p")),
        ("claude-opus-4-7", with(|o| o.temperature = Some(0.5)), Err("temperature")),
        ("claude-opus-4-7", with(|o| o.temperature = Some(1.0)), in_body(json!({"temperature": 1.0}))),
        ("claude-opus-4-7", with(|o| o.top_p = Some(1.0)), Err("top_p")),
        ("claude-opus-4-7", with(|o| o.top_k = Some(5)), Err("top_k")),
    ] {
        let what = format!("{options:?} for {model}");
        let mut plain = body_of(model, &Request { options: no_cache(), ..request_with_tools() });
        if let Some(most) = options.max_output_tokens {
            plain["max_tokens"] = json!(most);
        }
        match (encode(model, &Request { options, ..request_with_tools() }), expected) {
            (Ok(encoded), Ok(fields)) => {
                plain.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
                assert_eq!(serde_json::from_slice::<Value>(&encoded.body.to_bytes()).unwrap(), plain, "{what}");
            }
            (Err(EncodeError::Unsupported { option, .. }), Err(expected)) => assert_eq!(option, expected, "{what}"),
            (encoded, expected) => panic!("{what}: {encoded:?}, expected {expected:?}"),
        }
    }
    let options = with(|o| {
        let schema = RawJson::parse(r#"{"type":"object"}"#).unwrap();
        o.output_schema = Some(OutputSchema { name: "answer".into(), schema });
        o.effort = Some(High);
    });
    let body = body_of("claude-opus-4-6", &Request { options, ..request_with_tools() });
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    assert_eq!(body["output_config"], json!({"effort": "high", "format": format}));
}

#[test]
fn without_tools_a_choice_of_them_is_vacuous_or_refused() {
    for (choice, expected) in [
        (ToolChoice::Auto, None),
        (ToolChoice::None, None),
        (ToolChoice::Required, Some("tool_choice")),
        (ToolChoice::Tool("read".into()), Some("tool_choice")),
    ] {
        let mut options = with(|o| o.parallel_tool_calls = Some(false));
        options.tool_choice = Some(choice.clone());
        match encode("claude-sonnet-4-5", &Request { options, ..request(json!([user("hi")])) }) {
            Ok(encoded) => {
                assert!(expected.is_none(), "{choice:?}");
                assert!(!encoded.body.to_bytes().windows(11).any(|bytes| bytes == b"tool_choice"), "{choice:?}");
            }
            Err(EncodeError::Unsupported { option, .. }) => assert_eq!(Some(option), expected, "{choice:?}"),
            Err(error) => panic!("{choice:?}: {error}"),
        }
    }
}

#[test]
fn the_output_limit_is_the_options_else_the_models_else_a_default() {
    let limit = |spec: &ModelSpec, options: Options| {
        let encoded = wire().encode(spec, &Request { options, ..request(json!([user("hi")])) }).unwrap();
        serde_json::from_slice::<Value>(&encoded.body.to_bytes()).unwrap()["max_tokens"].as_u64().unwrap()
    };
    let mut spec = spec("claude-sonnet-4-5");
    assert_eq!(limit(&spec, Options::default()), 8192);
    spec.max_output = Some(64_000);
    assert_eq!(limit(&spec, Options::default()), 64_000);
    assert_eq!(limit(&spec, with(|o| o.max_output_tokens = Some(100))), 100);
}

#[test]
fn cache_marks_follow_the_retention_and_the_host() {
    let marks = |spec: &ModelSpec, cache: CacheRetention| {
        let mut options = Options::default();
        options.cache = cache;
        let request = Request { system: Some("Be brief.".into()), options, ..request_with_tools() };
        let body: Value = serde_json::from_slice(&wire().encode(spec, &request).unwrap().body.to_bytes()).unwrap();
        [&body["system"][0], &body["tools"][0], &body["tools"][1], &body["messages"][0]["content"][0]]
            .map(|place| place["cache_control"].clone())
    };
    let mut spec = spec("claude-sonnet-4-5");
    let short = json!({"type": "ephemeral"});
    let long = json!({"type": "ephemeral", "ttl": "1h"});
    assert_eq!(marks(&spec, CacheRetention::Short), [short.clone(), json!(null), short.clone(), short]);
    assert_eq!(marks(&spec, CacheRetention::Long), [long.clone(), json!(null), long.clone(), long]);
    assert_eq!(marks(&spec, CacheRetention::None), [(); 4].map(|()| json!(null)));
    spec.compat.cache_marks = false;
    assert_eq!(marks(&spec, CacheRetention::Long), [(); 4].map(|()| json!(null)));
}

#[test]
fn a_request_without_messages_is_refused_and_a_blank_system_prompt_left_out() {
    assert_eq!(encode("claude-sonnet-4-5", &request(json!([]))), Err(EncodeError::NoMessages));
    let request = Request { system: Some(" \n".into()), ..request(json!([user("")])) };
    let body = body_of("claude-sonnet-4-5", &request);
    assert_eq!(body.get("system"), None);
    assert_eq!(body["messages"][0]["content"][0]["text"], "(empty message)");
}

#[test]
fn a_request_up_to_its_last_message_begins_the_next_one() {
    let conversation = json!([
        user("hi"),
        reply(json!([{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "toolCall", "id": "t1", "name": "read", "arguments": {}}])),
        {"role": "toolResult", "toolCallId": "t1", "toolName": "read", "content": "ok"},
        reply(json!([{"type": "text", "text": "done \n"}])),
        user(""),
        {"role": "assistant", "content": [{"type": "toolCall", "id": "a|b", "name": "", "arguments": [1]}]},
        {"role": "toolResult", "toolCallId": "a|b", "toolName": "", "content": []},
        user("more"),
        reply(json!([{"type": "text", "text": "broken"}, {"type": "toolCall", "id": "t2", "name": "read", "arguments": {}}])),
        user("still there?"),
    ]);
    let Value::Array(conversation) = conversation else { unreachable!() };
    let ends: Vec<usize> =
        (1..=conversation.len()).filter(|&end| conversation[end - 1]["role"] != "assistant").collect();
    let bodies: Vec<Vec<u8>> = ends
        .into_iter()
        .map(|end| Request { options: no_cache(), ..request(json!(conversation[..end])) })
        .map(|request| encode("claude-sonnet-4-5", &request).unwrap().body.to_bytes().to_vec())
        .collect();
    for pair in bodies.windows(2) {
        let [this, next] = pair else { unreachable!() };
        let this = std::str::from_utf8(this).unwrap();
        let last = this.rfind(r#"{"role":"#).unwrap();
        assert!(next.starts_with(&this.as_bytes()[..last]), "{}\n{}", this, String::from_utf8_lossy(next));
    }
}

// What a test gives

/// A stream of events, without the names that servers give them.
fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn ends_of_events(stream: &str) -> impl Iterator<Item = usize> {
    stream.match_indices("\n\n").map(|(end, _)| end).filter(|end| end + 2 < stream.len())
}

/// `message_start`, with these fields in its message.
fn started(fields: Value) -> Value {
    let mut message = json!({"id": "msg_1", "role": "assistant", "content": [], "stop_reason": null, "usage": {}});
    message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"type": "message_start", "message": message})
}

fn hi_block() -> Value {
    json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}})
}

fn opaque(raw: Value) -> Value {
    json!({"type": "opaque", "wire": "anthropic-messages", "raw": raw})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

/// A reply of `claude-sonnet-4-5`.
fn reply(content: Value) -> Value {
    json!({
        "role": "assistant",
        "content": content,
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "wire": "anthropic-messages",
        "stopReason": "stop",
    })
}

fn messages(messages: Value) -> Transcript {
    serde_json::from_value::<Vec<Message>>(messages).unwrap().into_iter().collect()
}

fn tools() -> std::sync::Arc<[ToolSpec]> {
    let parameters = |json| RawJson::parse(json).unwrap();
    [
        ToolSpec {
            name: "read".into(),
            description: "Reads a file.".into(),
            parameters: parameters(r#"{"type":"object"}"#),
        },
        ToolSpec { name: "ls".into(), description: String::new(), parameters: parameters(r#"{ "type": "object" }"#) },
    ]
    .into()
}

fn request(conversation: Value) -> Request {
    Request { messages: messages(conversation), ..Request::default() }
}

fn request_with_tools() -> Request {
    Request { tools: tools(), ..request(json!([user("hi")])) }
}

fn with(set: impl FnOnce(&mut Options)) -> Options {
    let mut options = no_cache();
    set(&mut options);
    options
}

fn no_cache() -> Options {
    let mut options = Options::default();
    options.cache = CacheRetention::None;
    options
}

fn budget(tokens: u32) -> Value {
    json!({"thinking": {"type": "enabled", "budget_tokens": tokens}})
}

fn adaptive(effort: &str, display: Option<&str>) -> Value {
    let mut thinking = json!({"type": "adaptive"});
    if let Some(display) = display {
        thinking["display"] = display.into();
    }
    json!({"thinking": thinking, "output_config": {"effort": effort}})
}

// What comes of it

fn wire() -> &'static dyn terret_llm::wire::Wire {
    WireFormat::AnthropicMessages.wire().unwrap()
}

fn spec(model: &str) -> ModelSpec {
    ModelSpec::new("anthropic", model, WireFormat::AnthropicMessages)
}

fn encode(model: &str, request: &Request) -> Result<Encoded, EncodeError> {
    wire().encode(&spec(model), request)
}

fn body_of(model: &str, request: &Request) -> Value {
    serde_json::from_slice(&encode(model, request).unwrap().body.to_bytes()).unwrap()
}

/// The message of a body that is read so many bytes at a time.
fn decode(body: &str, chunk: usize) -> Result<Value, Failed> {
    let mut reader = ReplyReader::new(wire().decoder(), Draft::new(&spec("claude-sonnet-4-5")));
    body.as_bytes().chunks(chunk.max(1)).for_each(|bytes| reader.push(bytes));
    reader.end();
    match std::iter::from_fn(|| reader.next_event()).last() {
        Some(StreamEvent::Done(reply)) => Ok(serde_json::to_value(reply.message()).unwrap()),
        Some(StreamEvent::Failed(failed)) => Err(failed),
        event => panic!("no end: {event:?}"),
    }
}

/// The content, with `fresh N` in place of the ids that were made up here.
fn with_fresh_ids(content: &Value) -> Value {
    let mut content = content.clone();
    let mut count = 0;
    for block in content.as_array_mut().unwrap() {
        if block["type"] == "toolCall" && !["t1", "t2"].contains(&block["id"].as_str().unwrap()) {
            assert_ne!(block["id"], "");
            count += 1;
            block["id"] = format!("fresh {count}").into();
        }
    }
    content
}
