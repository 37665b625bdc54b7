//! The wire `google-generative-ai`: what streams mean, and what a model is sent.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::HashSet;

use serde_json::{Value, json};
use terret_llm::wire::{EncodeError, ReplyReader, WireFormat};
use terret_llm::{AssistantMessage, Draft, ErrorKind, Failed, Message, ModelSpec, Request, StreamEvent, Transcript};

const WIRE: WireFormat = WireFormat::GoogleGenerativeAi;

fn model(id: &str) -> ModelSpec {
    ModelSpec::new("google", id, WIRE)
}

/// A chunk with these parts.
fn chunk(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}}}],"responseId":"r1"}}"#)
}

/// A chunk with these parts and a finish reason.
fn last(parts: &str, reason: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"{reason}"}}],"responseId":"r1"}}"#)
}

fn sse(chunks: &[String]) -> String {
    let data = |chunk: &String| chunk.lines().map(|line| format!("data: {line}\r\n")).collect::<String>();
    chunks.iter().map(|chunk| data(chunk) + "\r\n").collect()
}

/// The events of a body that arrives in pieces of this size.
fn events(body: &[u8], size: usize) -> Vec<StreamEvent> {
    let mut reader = ReplyReader::new(WIRE.wire().unwrap().decoder(), Draft::new(&model("gemini-3-pro-preview")));
    body.chunks(size.max(1)).for_each(|piece| reader.push(piece));
    reader.end();
    std::iter::from_fn(|| reader.next_event()).collect()
}

fn reply(body: &str) -> Result<AssistantMessage, Failed> {
    match events(body.as_bytes(), body.len()).pop() {
        Some(StreamEvent::Done(reply)) => Ok(reply.into_message()),
        Some(StreamEvent::Failed(failed)) => Err(failed),
        other => panic!("no end: {other:?}"),
    }
}

/// Content as JSON without the calls' ids, which have a test of their own.
fn content(message: &AssistantMessage) -> Value {
    let mut content = serde_json::to_value(&message.content).unwrap();
    for block in content.as_array_mut().unwrap() {
        if block["type"] == "toolCall" {
            block.as_object_mut().unwrap().remove("id");
        }
    }
    content
}

/// What was streamed, what it means, and why the model stopped.
fn streams() -> Vec<(&'static str, Vec<String>, Value, &'static str)> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let call = |name: &str, arguments: Value| json!({"type": "toolCall", "name": name, "arguments": arguments});
    vec![
        (
            "unsigned text of one kind is one block, thoughts are thinking",
            vec![
                chunk(r#"{"text":"hm","thought":true}"#),
                chunk(r#"{"text":"…","thought":true},{"text":"An"},{"text":""}"#),
                last(r#"{"text":"swer"}"#, "STOP"),
            ],
            json!([{"type": "thinking", "thinking": "hm…"}, text("Answer")]),
            "stop",
        ),
        (
            "a signed part is a block of its own",
            vec![
                chunk(r#"{"text":"a"}"#),
                chunk(r#"{"text":"b","thoughtSignature":"c2ln+/=="}"#),
                chunk(r#"{"text":"c"}"#),
                last(r#"{"text":"","thoughtSignature":"bGFzdA-_"}"#, "STOP"),
            ],
            json!([
                text("a"),
                {"type": "text", "text": "b", "signature": "c2ln+/=="},
                text("c"),
                {"type": "text", "text": "", "signature": "bGFzdA-_"},
            ]),
            "stop",
        ),
        (
            "a signature without anything else is a signed empty text",
            vec![chunk(r#"{"text":"a"},{}"#), last(r#"{"thoughtSignature":"c2ln"}"#, "STOP")],
            json!([text("a"), {"type": "text", "text": "", "signature": "c2ln"}]),
            "stop",
        ),
        (
            "signed thinking keeps its signature",
            vec![last(r#"{"text":"hm","thought":true,"thoughtSignature":"c2ln"},{"text":"a"}"#, "STOP")],
            json!([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, text("a")]),
            "stop",
        ),
        (
            "calls finish with STOP; of parallel calls only the first is signed",
            vec![last(
                r#"{"text":"I'll look."},{"functionCall":{"name":"read","args":{"path":"a"}},"thoughtSignature":"c2ln"},
                   {"functionCall":{"name":"list"}}"#,
                "STOP",
            )],
            json!([
                text("I'll look."),
                {"type": "toolCall", "name": "read", "arguments": {"path": "a"}, "signature": "c2ln"},
                call("list", json!({})),
            ]),
            "toolUse",
        ),
        (
            "text after calls keeps its place, a call without a name is kept",
            vec![last(r#"{"functionCall":{"args":{"a":1}}},{"text":"done"}"#, "STOP")],
            json!([call("", json!({"a": 1})), text("done")]),
            "toolUse",
        ),
        (
            "parts after a finish reason count, and so does the last reason",
            vec![last(r#"{"text":"a"}"#, "STOP"), last(r#"{"text":"b"}"#, "STOP"), last("", "MAX_TOKENS")],
            json!([text("ab")]),
            "length",
        ),
        (
            "arguments come in pieces by JSONPath",
            vec![
                chunk(r#"{"functionCall":{"name":"cook","willContinue":true},"thoughtSignature":"c2ln"}"#),
                chunk(
                    r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.steps[0].what","stringValue":"Boil ","willContinue":true}],"willContinue":true}}"#,
                ),
                chunk(
                    r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.steps[0].what","stringValue":"wa\"ter"}],"willContinue":true}}"#,
                ),
                chunk(r#"{"functionCall":{"willContinue":true}}"#),
                chunk(
                    r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.steps[1].minutes","numberValue":8},{"jsonPath":"$.hot","boolValue":true}],"willContinue":true}}"#,
                ),
                chunk(r#"{"functionCall":{}}"#),
                chunk(r#"{"functionCall":{"name":"serve","willContinue":true}}"#),
                last(r#"{"functionCall":{}}"#, "STOP"),
            ],
            json!([
                {"type": "toolCall", "name": "cook", "signature": "c2ln",
                 "arguments": {"steps": [{"what": "Boil wa\"ter"}, {"minutes": 8}], "hot": true}},
                call("serve", json!({})),
            ]),
            "toolUse",
        ),
        (
            "a call that is cut off has no arguments that could be run",
            vec![
                chunk(r#"{"functionCall":{"name":"wipe","willContinue":true}}"#),
                chunk(r#"{"functionCall":{"name":"rm","willContinue":true}}"#),
                last(
                    r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.path","stringValue":"/et"}],"willContinue":true}}"#,
                    "MAX_TOKENS",
                ),
            ],
            json!([
                {"type": "toolCall", "name": "wipe", "argumentsText": "{"},
                {"type": "toolCall", "name": "rm", "argumentsText": "{\"path\":\"/et\""},
            ]),
            "length",
        ),
        (
            "an image is an image; what has no type here is kept verbatim, in its place",
            vec![
                chunk(r#"{"inlineData":{"mimeType":"image/png","data":"aGk\u003d"}}"#),
                chunk(r#"{"executableCode":{"language":"PYTHON","code":"print(1)"},"thoughtSignature":"c2ln"}"#),
                chunk(r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1\n"}},{"text":"One."}"#),
                chunk(r#"{"fileData":{"mimeType":"text/plain","fileUri":"gs://a/b"}},{"brandNew":{"deep":[null]}}"#),
                last(r#"{"inlineData":{"mimeType":"image/png","data":"aGk="},"thoughtSignature":"c2ln"}"#, "STOP"),
            ],
            json!([
                {"type": "image", "mediaType": "image/png", "data": "aGk="},
                {"type": "opaque", "wire": "google-generative-ai",
                 "raw": {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "c2ln"}},
                {"type": "opaque", "wire": "google-generative-ai",
                 "raw": {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}},
                text("One."),
                {"type": "opaque", "wire": "google-generative-ai",
                 "raw": {"fileData": {"mimeType": "text/plain", "fileUri": "gs://a/b"}}},
                {"type": "opaque", "wire": "google-generative-ai", "raw": {"brandNew": {"deep": [null]}}},
                {"type": "opaque", "wire": "google-generative-ai",
                 "raw": {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "c2ln"}},
            ]),
            "stop",
        ),
        (
            "candidates without content, content without parts, nulls and unknown fields lose nothing",
            vec![
                r#"{"usageMetadata":{"promptTokenCount":3}}"#.into(),
                "null".into(),
                r#"{"candidates":null,"promptFeedback":null,"usageMetadata":null,"error":null,"new":{}}"#.into(),
                r#"{"candidates":[null,{"content":null,"finishReason":null}],"promptFeedback":{"safetyRatings":[]}}"#
                    .into(),
                r#"{"candidates":[{"content":{"parts":null,"role":"model"},"safetyRatings":[{}]}]}"#.into(),
                chunk(r#"null,{"text":"a","thought":null,"thoughtSignature":null,"functionCall":null,"new":1}"#),
                r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"another candidate"}]}}]}"#.into(),
                r#"{"candidates":[{"finishReason":"STOP"}]}"#.into(),
            ],
            json!([text("a")]),
            "stop",
        ),
        (
            "lone surrogates become replacement characters",
            vec![last(r#"{"text":"a\ud83d"},{"functionCall":{"name":"read","args":{"path":"\ud83d"}}}"#, "STOP")],
            json!([text("a\u{FFFD}"), call("read", json!({"path": "\u{FFFD}"}))]),
            "toolUse",
        ),
        (
            "a pair that is cut between two pieces is whole",
            vec![
                chunk(r#"{"text":"a\ud83d"}"#),
                chunk(r#"{"text":"\ude00b"}"#),
                chunk(
                    r#"{"functionCall":{"name":"say","willContinue":true,"partialArgs":[{"jsonPath":"$.s","stringValue":"c\ud83d","willContinue":true}]}}"#,
                ),
                last(r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.s","stringValue":"\ude00\ud83d"}]}}"#, "STOP"),
            ],
            json!([text("a😀b"), call("say", json!({"s": "c😀\u{FFFD}"}))]),
            "toolUse",
        ),
        (
            "values of another shape cost no more than themselves",
            vec![
                r#"{"candidates":"none","usageMetadata":[],"promptFeedback":7,"responseId":{}}"#.into(),
                r#"{"candidates":[7,{"index":"0","content":[],"finishReason":7,"finishMessage":[]}]}"#.into(),
                r#"{"candidates":{"index":"0","content":{"parts":{"text":"a"}},"groundingMetadata":""}}"#.into(),
                chunk(r#"7,"x",{"text":"b","brandNew":{}}"#),
                last(r#"{"text":"c"}"#, "STOP"),
            ],
            json!([text("abc")]),
            "stop",
        ),
        (
            "a finish reason that nobody knows keeps the answer",
            vec![last(r#"{"text":"hi"}"#, "BRAND_NEW")],
            json!([text("hi")]),
            "stop",
        ),
        (
            "a blocked answer is refused, and what was said stays",
            vec![chunk(r#"{"text":"Once upon"}"#), last("", "RECITATION")],
            json!([text("Once upon")]),
            "refusal",
        ),
        (
            "a blocked answer may be empty",
            vec![r#"{"candidates":[{"finishReason":"SAFETY"}]}"#.into()],
            json!([]),
            "refusal",
        ),
    ]
}

#[test]
fn streams_decode_to_what_they_mean() {
    for (what, chunks, expected, stop) in streams() {
        let message = reply(&sse(&chunks)).unwrap_or_else(|failed| panic!("{what}: {failed}"));
        assert_eq!(content(&message), expected, "{what}");
        assert_eq!(json!(message.stop_reason), json!(stop), "{what}");
    }
}

#[test]
fn the_raw_finish_reason_and_the_response_id_are_kept() {
    let message = reply(&sse(&[last(r#"{"text":"hi"}"#, "BRAND_NEW")])).unwrap();
    assert_eq!(message.raw_stop_reason.as_deref(), Some("BRAND_NEW"));
    assert_eq!(message.response_id.as_deref(), Some("r1"));
}

/// Events as JSON, without the time.
fn timeless(events: &[StreamEvent]) -> Vec<Value> {
    let mut events: Vec<Value> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    if let Some(message) = events.last_mut().and_then(|end| end.get_mut("message")) {
        message["timestamp"] = Value::Null;
    }
    events
}

#[test]
fn every_chunking_gives_the_same_events() {
    for (what, chunks, ..) in streams() {
        let body = sse(&chunks);
        let whole = timeless(&events(body.as_bytes(), body.len()));
        for size in [1, 2, 7] {
            assert_eq!(timeless(&events(body.as_bytes(), size)), whole, "{what}, {size} bytes at a time");
        }
    }
}

#[test]
fn a_json_array_means_what_its_stream_means() {
    for (what, chunks, ..) in streams() {
        let stream = reply(&sse(&chunks)).unwrap();
        for body in [format!("[{}]", chunks.join(",\r\n")), format!(" [{}\n]\n", chunks.join("\n,\n"))] {
            let message = AssistantMessage { timestamp: stream.timestamp, ..reply(&body).unwrap() };
            assert_eq!(message, stream, "{what}");
        }
    }
    let plain = last(r#"{"text":"hi"}"#, "STOP");
    assert_eq!(content(&reply(&plain).unwrap()), json!([{"type": "text", "text": "hi"}]));
}

#[test]
fn every_prefix_without_a_finish_reason_is_truncated() {
    for (what, chunks, ..) in streams() {
        let stream = sse(&chunks);
        let finish = stream.find("\"finishReason\":\"").unwrap();
        for cut in 0..=finish {
            let prefix = stream.as_bytes().get(..cut).unwrap();
            let Some(StreamEvent::Failed(failed)) = events(prefix, usize::MAX).pop() else { panic!("{what} at {cut}") };
            assert_eq!(failed.error.kind, ErrorKind::Truncated, "{what} at {cut}");
        }
        let array = format!("[{}]", chunks.join(","));
        for cut in 0..array.len() {
            let prefix = array.as_bytes().get(..cut).unwrap();
            let Some(StreamEvent::Failed(failed)) = events(prefix, usize::MAX).pop() else { panic!("{what} at {cut}") };
            assert_eq!(failed.error.kind, ErrorKind::Truncated, "{what} at {cut}");
        }
    }
    let failed = reply(&sse(&[chunk(r#"{"text":"he"}"#)])).unwrap_err();
    assert!(failed.error.is_retryable());
    assert_eq!(failed.partial.text(), "he");
}

#[test]
fn call_ids_are_the_models_or_fresh_ones() {
    let body = sse(&[last(
        r#"{"functionCall":{"name":"a"}},{"functionCall":{"name":"b","id":"call_320"}},
           {"functionCall":{"name":"c","id":"call_320"}},{"functionCall":{"name":"d","id":""}}"#,
        "STOP",
    )]);
    let first = reply(&body).unwrap();
    let ids: Vec<String> = first.tool_calls().map(|call| call.id.clone()).collect();
    assert_eq!(ids[1], "call_320");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4, "{ids:?}");
    assert!(ids.iter().all(|id| !id.is_empty()));

    let earlier: Transcript = [Message::from(first)].into_iter().collect();
    let mut reader = ReplyReader::new(WIRE.wire().unwrap().decoder(), Draft::new(&model("gemini")).after(earlier));
    reader.push(body.as_bytes());
    reader.end();
    let Some(StreamEvent::Done(second)) = std::iter::from_fn(|| reader.next_event()).last() else { panic!("no end") };
    assert!(second.message().tool_calls().all(|call| !ids.contains(&call.id)));
}

#[test]
fn tokens_are_counted_once() {
    let input_cached_output_reasoning = |counts: &[&str]| {
        let count = |counts: &&str| format!(r#"{{"usageMetadata":{counts}}}"#);
        let mut chunks: Vec<String> = counts.iter().map(count).collect();
        chunks.push(last(r#"{"text":"hi"}"#, "STOP"));
        let usage = reply(&sse(&chunks)).unwrap().usage;
        assert_eq!(usage.cache_write, 0);
        (usage.input, usage.cache_read, usage.output, usage.reasoning)
    };
    for (counts, expected) in [
        // The thoughts are not part of the candidates' count, what was cached is part of the prompt's.
        (
            &[
                r#"{"promptTokenCount":100,"cachedContentTokenCount":80,"candidatesTokenCount":15,"thoughtsTokenCount":5,"totalTokenCount":120}"#,
            ][..],
            (20, 80, 20, 5),
        ),
        (&[r#"{"promptTokenCount":3,"cachedContentTokenCount":4}"#], (0, 3, 0, 0)),
        // What server-side tools read is input, too.
        (&[r#"{"promptTokenCount":15,"toolUsePromptTokenCount":770,"candidatesTokenCount":18}"#], (785, 0, 18, 0)),
        // Counts replace earlier ones; nulls and what is left out don't.
        (
            &[
                r#"{"promptTokenCount":145,"candidatesTokenCount":1,"thoughtsTokenCount":7}"#,
                r#"{"promptTokenCount":85,"candidatesTokenCount":15,"thoughtsTokenCount":null}"#,
                r#"{"trafficType":"ON_DEMAND"}"#,
            ],
            (85, 0, 22, 7),
        ),
        (&[r#"{"promptTokenCount":"9","candidatesTokenCount":-1}"#], (9, 0, 0, 0)),
    ] {
        assert_eq!(input_cached_output_reasoning(counts), expected, "{counts:?}");
    }
}

#[test]
fn sources_annotate_the_last_text_without_repetition() {
    let candidate = |fields: &str| format!(r#"{{"candidates":[{{{fields}}}]}}"#);
    let citation = r#""citationMetadata":{"citations":[{"uri":"https://c.example"}]}"#;
    let message = reply(&sse(&[
        candidate(r#""content":{"parts":[{"text":"hm","thought":true},{"text":"Sky"}]},"groundingMetadata":{},"urlContextMetadata":{"urlMetadata":[1]}"#),
        candidate(&format!(r#""content":{{"parts":[{{"text":" is"}}]}},"groundingMetadata":{{"groundingChunks":[1]}},{citation}"#)),
        candidate(&format!(r#""content":{{"parts":[{{"text":" blue"}}]}},{citation}"#)),
        candidate(r#""content":{"parts":[{"text":"","thoughtSignature":"c2ln"}]},"finishReason":"STOP","groundingMetadata":{"groundingChunks":[1,2]}"#),
    ]))
    .unwrap();
    assert_eq!(
        content(&message),
        json!([
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "Sky is blue", "annotations": {
                "groundingMetadata": {"groundingChunks": [1, 2]},
                "urlContextMetadata": {"urlMetadata": [1]},
                "citationMetadata": [{"citations": [{"uri": "https://c.example"}]}],
            }},
            {"type": "text", "text": "", "signature": "c2ln"},
        ])
    );
}

#[test]
fn failures_are_typed_and_keep_the_partial() {
    let he = || chunk(r#"{"text":"he"}"#);
    let error =
        |code: u16, status: &str| format!(r#"{{"error":{{"code":{code},"message":"no","status":"{status}"}}}}"#);
    for (what, chunks, kind, code, message) in [
        ("overloaded", vec![he(), error(503, "UNAVAILABLE")], ErrorKind::Overloaded, "UNAVAILABLE", "no"),
        (
            "rate limit",
            vec![he(), error(429, "RESOURCE_EXHAUSTED")],
            ErrorKind::RateLimited,
            "RESOURCE_EXHAUSTED",
            "no",
        ),
        ("server", vec![he(), error(500, "INTERNAL")], ErrorKind::Server, "INTERNAL", "no"),
        (
            "after a finish reason",
            vec![last(r#"{"text":"he"}"#, "STOP"), error(503, "UNAVAILABLE")],
            ErrorKind::Overloaded,
            "UNAVAILABLE",
            "no",
        ),
        (
            "a blocked prompt",
            vec![he(), r#"{"promptFeedback":{"blockReason":"SAFETY","safetyRatings":[]}}"#.into()],
            ErrorKind::Refused,
            "SAFETY",
            "the prompt was blocked (SAFETY)",
        ),
        (
            "a blocked prompt with a message",
            vec![he(), r#"{"promptFeedback":{"blockReason":"OTHER","blockReasonMessage":"Try again."}}"#.into()],
            ErrorKind::Refused,
            "OTHER",
            "the prompt was blocked (OTHER): Try again.",
        ),
        (
            "a call that the API could not parse",
            vec![
                he(),
                r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"Malformed: print("}]}"#
                    .into(),
            ],
            ErrorKind::Server,
            "MALFORMED_FUNCTION_CALL",
            "Malformed: print(",
        ),
        (
            "a missing signature",
            vec![he(), last("", "MISSING_THOUGHT_SIGNATURE")],
            ErrorKind::InvalidRequest,
            "MISSING_THOUGHT_SIGNATURE",
            "the API ended the reply with MISSING_THOUGHT_SIGNATURE",
        ),
    ] {
        for body in [sse(&chunks), format!("[{}]", chunks.join(","))] {
            let failed = reply(&body).unwrap_err();
            let error = &failed.error;
            assert_eq!((error.kind, error.code.as_deref(), &*error.message), (kind, Some(code), message), "{what}");
            assert_eq!(failed.partial.text(), "he", "{what}");
        }
    }
    for (body, kind) in [
        ("data: {\"candidates\":{}}\n\n", ErrorKind::Truncated),
        ("data: {\"candidates\":[}\n\n", ErrorKind::Protocol),
        ("data: hello\n\n", ErrorKind::Protocol),
        ("<html>", ErrorKind::Protocol),
        ("data: \n\ndata: [DONE]\n\n", ErrorKind::Truncated),
        ("[]", ErrorKind::Truncated),
        ("", ErrorKind::Truncated),
    ] {
        assert_eq!(reply(body).unwrap_err().error.kind, kind, "{body:?}");
    }
}

/// The path and body of a request that is written in JSON.
fn encode(id: &str, request: &str) -> Result<(String, String), EncodeError> {
    let request: Request = serde_json::from_str(request).unwrap();
    let encoded = WIRE.wire().unwrap().encode(&model(id), &request)?;
    Ok((encoded.path, String::from_utf8(encoded.body.to_bytes().to_vec()).unwrap()))
}

fn body(id: &str, request: &str) -> String {
    encode(id, request).unwrap().1
}

/// JSON without the white space at the ends of its lines.
fn compact(json: &str) -> String {
    json.lines().map(str::trim).collect()
}

const HI: &str = r#"{"role":"user","content":"hi"}"#;
const SAID_HI: &str = r#"{"role":"user","parts":[{"text":"hi"}]}"#;
const READ: &str = r#"{"name":"read","description":"Reads.","parameters":{"type":"object","properties":{}}}"#;

/// A reply of `gemini-3-pro-preview` with this content.
fn from_gemini(content: &str) -> String {
    format!(
        r#"{{"role":"assistant","provider":"google","model":"gemini-3-pro-preview","wire":"google-generative-ai","stopReason":"toolUse","content":[{content}]}}"#
    )
}

fn result(id: &str, name: &str, content: &str, is_error: bool) -> String {
    format!(
        r#"{{"role":"toolResult","toolCallId":"{id}","toolName":"{name}","content":[{content}],"isError":{is_error}}}"#
    )
}

fn messages(messages: &[&str]) -> String {
    format!(r#"{{"messages":[{}]}}"#, messages.join(","))
}

#[test]
fn paths_name_the_model() {
    for (id, path) in [
        ("gemini-3-pro-preview", "/models/gemini-3-pro-preview:streamGenerateContent?alt=sse"),
        ("models/gemini-2.5-flash", "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("a b/c:d?é", "/models/a%20b%2Fc%3Ad%3F%C3%A9:streamGenerateContent?alt=sse"),
    ] {
        assert_eq!(encode(id, &messages(&[HI])).unwrap().0, path);
    }
}

#[test]
fn contents_come_last() {
    let request = format!(
        r#"{{"system":"Be brief.","messages":[{HI}],"tools":[{READ}],"options":{{"toolChoice":{{"tool":"read"}},
            "maxOutputTokens":100,"temperature":0.7,"topP":0.9,"topK":40,"stop":["END"],"seed":7,"effort":"low",
            "outputSchema":{{"name":"answer","schema":{{"type":"object"}}}}}}}}"#
    );
    let expected = r#"
        {"systemInstruction":{"parts":[{"text":"Be brief."}]},
        "tools":[{"functionDeclarations":[{"name":"read","description":"Reads.",
        "parametersJsonSchema":{"type":"object","properties":{}}}]}],
        "toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["read"]}},
        "generationConfig":{"maxOutputTokens":100,"temperature":0.7,"topP":0.9,"topK":40,"stopSequences":["END"],
        "seed":7,"responseMimeType":"application/json","responseJsonSchema":{"type":"object"},
        "thinkingConfig":{"includeThoughts":true,"thinkingLevel":"LOW"}},
        "contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#;
    assert_eq!(body("gemini-3-pro-preview", &request), compact(expected));
    assert_eq!(body("gemini-3-pro-preview", &messages(&[HI])), format!(r#"{{"contents":[{SAID_HI}]}}"#));
}

#[test]
fn what_the_model_wrote_goes_back_part_by_part() {
    let reply = from_gemini(
        r#"{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"},
           {"type":"text","text":"","signature":"ZW1wdHk="},
           {"type":"opaque","wire":"google-generative-ai","raw":{"executableCode":{"code":"1"},"thoughtSignature":"Y29kZQ=="}},
           {"type":"image","mediaType":"image/png","data":"aGk="},
           {"type":"toolCall","id":"9d532gc9","name":"read","arguments":{"b":1.50,"a":"\u00e9"},"signature":"Y2Fs+/=="},
           {"type":"toolCall","id":"x","name":"list","arguments":{}}"#,
    );
    let text = r#"{"type":"text","text":"ok"}"#;
    let second = result("x", "list", text, true);
    let first = result("9d532gc9", "read", text, false);
    let request = messages(&[HI, &reply, &second, &first, r#"{"role":"user","content":"and?"}"#]);
    let expected = r#"
        {"contents":[{"role":"user","parts":[{"text":"hi"}]},
        {"role":"model","parts":[{"text":"hm","thought":true},{"text":"a"},
        {"text":"","thoughtSignature":"ZW1wdHk="},
        {"executableCode":{"code":"1"},"thoughtSignature":"Y29kZQ=="},
        {"inlineData":{"mimeType":"image/png","data":"aGk="}},
        {"functionCall":{"id":"9d532gc9","name":"read","args":{"b":1.50,"a":"\u00e9"}},"thoughtSignature":"Y2Fs+/=="},
        {"functionCall":{"id":"x","name":"list","args":{}}}]},
        {"role":"user","parts":[
        {"functionResponse":{"id":"9d532gc9","name":"read","response":{"output":"ok"}}},
        {"functionResponse":{"id":"x","name":"list","response":{"error":"ok"}}},
        {"text":"and?"}]}]}"#;
    assert_eq!(body("gemini-3-pro-preview", &request), compact(expected));
}

/// What one model calls, decoded and sent back to it.
fn sent_back(id: &str, parts: &str) -> String {
    let Message::Assistant(reply) = Message::from(reply(&sse(&[last(parts, "STOP")])).unwrap()) else { unreachable!() };
    let results: Vec<String> =
        reply.tool_calls().map(|call| result(&call.id, &call.name, r#"{"type":"text","text":"ok"}"#, false)).collect();
    let mut all = vec![HI.to_owned(), serde_json::to_string(&Message::from(reply)).unwrap()];
    all.extend(results);
    body(id, &messages(&all.iter().map(String::as_str).collect::<Vec<_>>()))
}

#[test]
fn ids_that_were_made_up_stay_here() {
    let expected = r#"
        {"contents":[{"role":"user","parts":[{"text":"hi"}]},
        {"role":"model","parts":[
        {"functionCall":{"name":"read","args":{"n":1}},"thoughtSignature":"c2ln"},
        {"functionCall":{"id":"call_320","name":"read","args":{"n":2}}},
        {"functionCall":{"name":"read","args":{"n":3}}}]},
        {"role":"user","parts":[
        {"functionResponse":{"name":"read","response":{"output":"ok"}}},
        {"functionResponse":{"id":"call_320","name":"read","response":{"output":"ok"}}},
        {"functionResponse":{"name":"read","response":{"output":"ok"}}}]}]}"#;
    let parts = r#"{"functionCall":{"name":"read","args":{"n":1}},"thoughtSignature":"c2ln"},
                   {"functionCall":{"id":"call_320","name":"read","args":{"n":2}}},
                   {"functionCall":{"id":"call_320","name":"read","args":{"n":3}}}"#;
    assert_eq!(sent_back("gemini-3-pro-preview", parts), compact(expected));
}

#[test]
fn another_models_calls_go_without_ids_and_with_the_documented_signature() {
    let reply = r#"{"role":"assistant","provider":"anthropic","model":"claude","wire":"anthropic-messages",
        "stopReason":"toolUse","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},
        {"type":"toolCall","id":"toolu_1","name":"read","arguments":{}},
        {"type":"toolCall","id":"toolu_2","name":"read","arguments":{}}]}"#;
    let text = r#"{"type":"text","text":"ok"}"#;
    let request =
        messages(&[HI, reply, &result("toolu_1", "read", text, false), &result("toolu_2", "read", text, false)]);
    let expected = |signature: &str| {
        compact(&format!(
            r#"{{"contents":[{SAID_HI},
            {{"role":"model","parts":[{{"functionCall":{{"name":"read","args":{{}}}}{signature}}},
            {{"functionCall":{{"name":"read","args":{{}}}}}}]}},
            {{"role":"user","parts":[{{"functionResponse":{{"name":"read","response":{{"output":"ok"}}}}}},
            {{"functionResponse":{{"name":"read","response":{{"output":"ok"}}}}}}]}}]}}"#
        ))
    };
    let stand_in = r#","thoughtSignature":"skip_thought_signature_validator""#;
    assert_eq!(body("gemini-3-pro-preview", &request), expected(stand_in));
    assert_eq!(body("gemini-2.5-flash", &request), expected(""));
}

#[test]
fn images_in_results_stand_where_the_generation_takes_them() {
    let image = r#"{"type":"image","mediaType":"image/png","data":"aGk="}"#;
    let calls = from_gemini(
        r#"{"type":"toolCall","id":"a","name":"shot","arguments":{},"signature":"c2ln"},
           {"type":"toolCall","id":"b","name":"list","arguments":{}}"#,
    );
    let shot = result("a", "shot", image, false);
    let list = result("b", "list", r#"{"type":"text","text":"1"},{"type":"text","text":"2"}"#, false);
    let request = messages(&[HI, &calls, &shot, &list]);
    let inside = r#"
        {"role":"user","parts":[
        {"functionResponse":{"id":"a","name":"shot","response":{"output":"(see the attached images)"},
        "parts":[{"inlineData":{"mimeType":"image/png","data":"aGk="}}]}},
        {"functionResponse":{"id":"b","name":"list","response":{"output":"1\n2"}}}]}]}"#;
    let beside = r#"
        {"role":"user","parts":[
        {"functionResponse":{"id":"a","name":"shot","response":{"output":"(see the attached images)"}}},
        {"functionResponse":{"id":"b","name":"list","response":{"output":"1\n2"}}},
        {"text":"Images in the result of shot:"},{"inlineData":{"mimeType":"image/png","data":"aGk="}}]}]}"#;
    for (id, expected) in [("gemini-3-pro-preview", inside), ("gemini-2.5-pro", beside)] {
        let body = body(id, &request);
        assert!(body.ends_with(&compact(expected)), "{id}: {body}");
    }
}

#[test]
fn arguments_are_sent_as_an_object_whatever_they_are() {
    for (arguments, args) in [
        (r#""arguments":{"a":1}"#, json!({"a": 1})),
        (r#""arguments":{"a":"\ud83d"}"#, json!({"a": "\u{FFFD}"})),
        (r#""arguments":[1]"#, json!({"malformed_arguments": "[1]"})),
        (r#""argumentsText":"{\"path\":\"/et""#, json!({"malformed_arguments": "{\"path\":\"/et"})),
        (r#""argumentsText":"""#, json!({})),
    ] {
        let reply = from_gemini(&format!(r#"{{"type":"toolCall","id":"a","name":"read",{arguments}}}"#));
        let body: Value = serde_json::from_str(&body("gemini-3-pro-preview", &messages(&[HI, &reply]))).unwrap();
        assert_eq!(body.pointer("/contents/1/parts/0/functionCall/args"), Some(&args), "{arguments}");
    }
}

#[test]
fn each_request_begins_with_the_one_before_it() {
    let calls = from_gemini(r#"{"type":"toolCall","id":"a","name":"read","arguments":{}}"#);
    let image = r#"{"type":"image","mediaType":"image/png","data":"aGk="}"#;
    let result = result("a", "read", image, false);
    let said = from_gemini(r#"{"type":"text","text":"done"}"#);
    let all = [HI, &calls, &result, HI, &said, HI, HI];
    for id in ["gemini-3-pro-preview", "gemini-2.5-flash"] {
        let bodies = [1, 3, 4, 6, 7].map(|count| body(id, &messages(&all[..count])));
        for pair in bodies.windows(2) {
            let (before, next) = (pair[0].strip_suffix("]}]}").unwrap(), &pair[1]);
            assert!(next.starts_with(before), "{id}:\n{before}\n{next}");
        }
    }
}

#[test]
fn effort_speaks_the_models_generation() {
    let config = |id: &str, effort: &str| {
        let request = format!(r#"{{"messages":[{HI}],"options":{{"effort":"{effort}"}}}}"#);
        let body: Value = serde_json::from_str(&body(id, &request)).unwrap();
        body.pointer("/generationConfig/thinkingConfig").cloned().unwrap_or_default()
    };
    let level = |level: &str| json!({"includeThoughts": true, "thinkingLevel": level});
    let budget = |tokens: u32| json!({"includeThoughts": true, "thinkingBudget": tokens});
    for (id, effort, expected) in [
        ("gemini-3-pro-preview", "off", json!({"thinkingLevel": "LOW"})),
        ("gemini-3-pro-preview", "minimal", level("LOW")),
        ("gemini-3-pro-preview", "medium", level("HIGH")),
        ("gemini-3.1-pro-preview", "medium", level("MEDIUM")),
        ("gemini-3-flash-preview", "off", json!({"thinkingLevel": "MINIMAL"})),
        ("gemini-3.6-flash", "minimal", level("MINIMAL")),
        ("gemini-3.8-flash", "minimal", level("LOW")),
        ("gemini-3.5-flash-lite", "minimal", level("MINIMAL")),
        ("gemini-4-argon", "max", level("HIGH")),
        ("gemini-flash-latest", "xhigh", level("HIGH")),
        ("gemma-4-31b-it", "low", level("MINIMAL")),
        ("gemma-4-31b-it", "medium", level("HIGH")),
        ("gemini-2.5-pro", "off", json!({"thinkingBudget": 128})),
        ("gemini-2.5-pro", "low", budget(2048)),
        ("gemini-2.5-pro", "max", budget(32768)),
        ("gemini-2.5-flash", "off", json!({"thinkingBudget": 0})),
        ("gemini-2.5-flash", "medium", budget(8192)),
        ("gemini-2.5-flash", "high", budget(24576)),
        ("gemini-2.5-flash-lite", "minimal", budget(512)),
        ("gemini-2.0-flash", "off", Value::Null),
    ] {
        assert_eq!(config(id, effort), expected, "{id} {effort}");
    }
}

#[test]
fn an_option_is_in_the_body_or_refused() {
    let encoded = |id: &str, tools: &str, options: &str| {
        encode(id, &format!(r#"{{"messages":[{HI}],"tools":[{tools}],"options":{{{options}}}}}"#))
    };
    for (options, written) in [
        (r#""toolChoice":"auto""#, r#""functionCallingConfig":{"mode":"AUTO"}"#),
        (r#""toolChoice":"none""#, r#""functionCallingConfig":{"mode":"NONE"}"#),
        (r#""toolChoice":"required""#, r#""functionCallingConfig":{"mode":"ANY"}"#),
    ] {
        let (_, body) = encoded("gemini-3-pro-preview", READ, options).unwrap();
        assert!(body.contains(written), "{body}");
    }
    let schema = r#""outputSchema":{"name":"n","schema":{"type":"object"}}"#;
    for (id, tools, options, refused) in [
        ("gemini-3-pro-preview", READ, r#""parallelToolCalls":false"#, "parallel_tool_calls"),
        ("gemini-3-pro-preview", READ, r#""cache":"long""#, "cache"),
        ("gemini-3-pro-preview", READ, r#""cacheKey":"k""#, "cache_key"),
        ("gemini-3-pro-preview", READ, r#""seed":4294967296"#, "seed"),
        ("gemini-3-pro-preview", "", r#""toolChoice":"required""#, "tool_choice"),
        ("gemini-2.0-flash", "", r#""effort":"low""#, "effort"),
        ("gemini-2.5-pro", READ, schema, "output_schema"),
    ] {
        match encoded(id, tools, options) {
            Err(EncodeError::Unsupported { option, .. }) => assert_eq!(option, refused),
            other => panic!("{options}: {other:?}"),
        }
    }
    assert_eq!(encode("gemini-3-pro-preview", r#"{"messages":[]}"#), Err(EncodeError::NoMessages));
}
