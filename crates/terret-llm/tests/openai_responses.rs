//! The wire `openai-responses`: small streams in the shapes that OpenAI documents and that hosts were seen to send, and
//! the exact bodies of requests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use serde_json::{Value, json};
use terret_llm::wire::{EncodeError, ReplyReader, WireFormat};
use terret_llm::{Draft, Message, ModelSpec, Request, StreamEvent};

fn spec() -> ModelSpec {
    ModelSpec::new("openai", "gpt-5", WireFormat::OpenaiResponses)
}

/// Reads a body to its end: the message, or the error and what had arrived.
fn read(body: &str, chunk: usize) -> Result<Value, (Value, Value)> {
    let wire = spec().wire.wire().unwrap();
    let mut reader = ReplyReader::new(wire.decoder(), Draft::new(&spec()));
    body.as_bytes().chunks(chunk).for_each(|bytes| reader.push(bytes));
    reader.end();
    match std::iter::from_fn(|| reader.next_event()).last().unwrap() {
        StreamEvent::Done(reply) => Ok(stripped(json!(reply.message()))),
        StreamEvent::Failed(failed) => Err((json!(failed.error), stripped(json!(failed.partial)))),
        event => panic!("the last event is {event:?}"),
    }
}

/// Without what is the same in every message, or the clock's.
fn stripped(mut message: Value) -> Value {
    for field in ["provider", "model", "wire", "timestamp", "error"] {
        message.as_object_mut().unwrap().remove(field);
    }
    message
}

fn sse(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// What a stream means, whole and byte by byte.
fn decode(events: &[&str]) -> Value {
    let stream = sse(events);
    let whole = read(&stream, stream.len());
    assert_eq!(read(&stream, 1), whole, "{stream}");
    whole.unwrap_or_else(|(error, partial)| panic!("{error} after {partial} in {stream}"))
}

const CREATED: &str =
    r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[],"usage":null}}"#;
const COMPLETED: &str = r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[]}}"#;

#[test]
fn a_text_reply_with_usage() {
    let message = decode(&[
        CREATED,
        r#"{"type":"response.in_progress","response":{"id":"resp_1","status":"in_progress"}}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","phase":"final_answer","content":[],"role":"assistant"}}"#,
        r#"{"type":"response.content_part.added","item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","annotations":[],"text":""}}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hel","logprobs":[],"obfuscation":"x"}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"lo 😀"}"#,
        r#"{"type":"response.output_text.done","item_id":"msg_1","output_index":0,"content_index":0,"text":"Hello 😀"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","phase":"final_answer","content":[{"type":"output_text","annotations":[],"text":"Hello 😀"}],"role":"assistant"}}"#,
        r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[{"id":"msg_1","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"text":"Hello 😀"}],"role":"assistant"}],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":80},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":120}}}"#,
    ]);
    assert_eq!(
        message,
        json!({
            "content": [{"type": "text", "text": "Hello 😀", "signature": r#"{"id":"msg_1","phase":"final_answer"}"#}],
            "stopReason": "stop",
            "rawStopReason": "completed",
            "usage": {"input": 20, "cacheRead": 80, "cacheWrite": 0, "output": 20, "reasoning": 5},
            "responseId": "resp_1",
        })
    );
}

/// Streams and the content that they mean. They end with a response that repeats no output.
#[test]
fn content() {
    let text = |text: &str| json!({"type": "text", "text": text, "signature": r#"{"id":"m"}"#});
    let bare = |text: &str| json!({"type": "text", "text": text});
    let call = |id: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": "f", "arguments": arguments});
    let signed = |id: &str, item: &str, arguments: Value| {
        let mut call = call(id, arguments);
        call["signature"] = json!(format!(r#"{{"id":"{item}"}}"#));
        call
    };
    let cases: &[(&str, &[&str], Value)] = &[
        (
            "an end without content leaves what was streamed",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","content":[]}}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"hi"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[]}}"#,
            ],
            json!([text("hi")]),
        ),
        (
            "the text stands only at the end of its part",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","content":null}}"#,
                r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"hi"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":null}}"#,
            ],
            json!([text("hi")]),
        ),
        (
            "the text stands only at the end of its item",
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"hi"}]}}"#,
            ],
            json!([text("hi")]),
        ),
        (
            "content as a bare string",
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":"hi"}}"#,
            ],
            json!([text("hi")]),
        ),
        (
            "deltas of an item that never began and never ends",
            &[
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"h"}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"i"}"#,
            ],
            json!([bare("hi")]),
        ),
        (
            "the only part is streamed under the index 1 (vLLM)",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","content":[]}}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":1,"delta":"hi"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"hi"}]}}"#,
            ],
            json!([text("hi")]),
        ),
        (
            "several parts, one of them unknown",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","content":[]}}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a"}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":2,"delta":"b"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"a"},{"type":"hologram","text":{"x":1}},{"type":"output_text","text":"bc"}]}}"#,
            ],
            json!([text("a"), text("bc")]),
        ),
        (
            "a text that began before a call and came after it",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","content":[]}}"#,
                r#"{"type":"response.content_part.added","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"hi"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"hi"}]}}"#,
            ],
            json!([text("hi"), call("c", json!({}))]),
        ),
        (
            "a text that is told otherwise in the end stays as it was shown",
            &[
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"hi"}"#,
                r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"ho"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"ho"}]}}"#,
            ],
            json!([text("hi")]),
        ),
        (
            "annotations, as the vendor wrote them",
            &[
                r#"{"type":"response.output_text.annotation.added","output_index":0,"content_index":0,"annotation_index":0,"annotation":{"type":"url_citation"}}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"hi","annotations":[{"type":"url_citation","end_index":2, "url":"u"}]}]}}"#,
            ],
            json!([{"type": "text", "text": "hi", "signature": r#"{"id":"m"}"#, "annotations": [{"type": "url_citation", "end_index": 2, "url": "u"}]}]),
        ),
        (
            "a lone surrogate becomes a replacement character",
            &[
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a\ud83db"}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":\"\\ud83d\"}"}}"#,
            ],
            json!([bare("a\u{FFFD}b"), call("c", json!({"a": "\u{FFFD}"}))]),
        ),
        (
            "a surrogate pair that is cut between two deltas is whole",
            &[
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a\ud83d"}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"\ude00b"}"#,
                r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"a\ud83d\ude00b"}"#,
            ],
            json!([bare("a😀b")]),
        ),
        (
            "a call",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"c","name":"f"}}"#,
                r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":"{\"a\""}"#,
                r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":":1}"}"#,
                r#"{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":0,"arguments":"{\"a\":1}"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"a\":1}","call_id":"c","name":"f"}}"#,
            ],
            json!([signed("c", "fc_1", json!({"a": 1}))]),
        ),
        (
            "a call without an item id keeps its call id",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","arguments":"","call_id":"c1","name":"f"}}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","arguments":"{}","call_id":"c1","name":"f"}}"#,
            ],
            json!([call("c1", json!({}))]),
        ),
        (
            "arguments stand only at the end, once as an object",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c1","name":"f"}}"#,
                r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"a\":1}"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c1","name":"f"}}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c2","name":"f","arguments":{"a": 2}}}"#,
            ],
            json!([call("c1", json!({"a": 1})), call("c2", json!({"a": 2}))]),
        ),
        (
            "the name stands only at the end",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":null}}"#,
                r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"a\":1}"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c","name":"f","arguments":""}}"#,
            ],
            json!([call("c", json!({"a": 1}))]),
        ),
        (
            "two calls whose deltas interleave and whose ends are swapped",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c1","name":"f"}}"#,
                r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c2","name":"f"}}"#,
                r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"a\""}"#,
                r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"b\""}"#,
                r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":":1}"}"#,
                r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":":2}"}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c2","name":"f"}}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c1","name":"f"}}"#,
            ],
            json!([call("c1", json!({"a": 1})), call("c2", json!({"b": 2}))]),
        ),
        (
            "two calls under one index",
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c2","name":"f","arguments":"{}"}}"#,
            ],
            json!([call("c1", json!({})), call("c2", json!({}))]),
        ),
        (
            "item ids that change with every event (GitHub Copilot)",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"a","type":"message","content":[]}}"#,
                r#"{"type":"response.output_text.delta","item_id":"b","output_index":0,"content_index":0,"delta":"h"}"#,
                r#"{"type":"response.output_text.delta","item_id":"c","output_index":0,"content_index":0,"delta":"i"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"hi"}]}}"#,
            ],
            json!([text("hi")]),
        ),
        (
            "no output_index; the ends all come last (llama.cpp)",
            &[
                r#"{"type":"response.output_item.added","item":{"id":"rs_1","summary":[],"type":"reasoning","content":[],"encrypted_content":"","status":"in_progress"}}"#,
                r#"{"type":"response.reasoning_text.delta","delta":"hm","item_id":"rs_1"}"#,
                r#"{"type":"response.output_item.added","item":{"content":[],"id":"m","role":"assistant","status":"in_progress","type":"message"}}"#,
                r#"{"type":"response.output_text.delta","item_id":"m","delta":"hi"}"#,
                r#"{"type":"response.output_item.added","item":{"arguments":"","call_id":"fc_1","name":"f","type":"function_call","status":"in_progress"}}"#,
                r#"{"type":"response.function_call_arguments.delta","delta":"{\"a\":1}","item_id":"fc_1"}"#,
                r#"{"type":"response.output_item.added","item":{"arguments":"","call_id":"fc_2","name":"f","type":"function_call","status":"in_progress"}}"#,
                r#"{"type":"response.function_call_arguments.delta","delta":"{\"a\":2}","item_id":"fc_2"}"#,
                r#"{"type":"response.output_item.done","item":{"id":"rs_1","summary":[],"type":"reasoning","content":[{"text":"hm","type":"reasoning_text"}],"encrypted_content":""}}"#,
                r#"{"type":"response.output_text.done","item_id":"m","text":"hi"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"message","status":"completed","id":"m","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"hi"}],"role":"assistant"}}"#,
                r#"{"type":"response.output_item.done","item":{"type":"function_call","status":"completed","arguments":"{\"a\":1}","call_id":"fc_1","name":"f"}}"#,
                r#"{"type":"response.output_item.done","item":{"type":"function_call","status":"completed","arguments":"{\"a\":2}","call_id":"fc_2","name":"f"}}"#,
            ],
            json!([
                {"type": "thinking", "thinking": "hm", "signature": r#"{"id":"rs_1","summary":[],"type":"reasoning","content":[{"text":"hm","type":"reasoning_text"}],"encrypted_content":""}"#},
                text("hi"),
                call("fc_1", json!({"a": 1})),
                call("fc_2", json!({"a": 2})),
            ]),
        ),
        (
            "reasoning that is encrypted keeps its item verbatim, its summary's parts apart, and its place",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","encrypted_content":"unfinished","summary":[]}}"#,
                r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#,
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"fir"}"#,
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"st"}"#,
                r#"{"type":"response.reasoning_summary_text.done","output_index":0,"summary_index":0,"text":"first"}"#,
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"second"}"#,
                r#"{"type":"response.reasoning_summary_text.done","output_index":0,"summary_index":2,"text":"third"}"#,
                r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"m","type":"message","content":[]}}"#,
                r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"hi"}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"hi"}]}}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning", "encrypted_content":"gAAAA/+==","format":"v1","summary":[{"type":"summary_text","text":"first"},{"type":"summary_text","text":"second"},{"type":"summary_text","text":"third"}]}}"#,
            ],
            json!([
                {"type": "thinking", "thinking": "first\n\nsecond\n\nthird", "signature": r#"{"id":"rs_1","type":"reasoning", "encrypted_content":"gAAAA/+==","format":"v1","summary":[{"type":"summary_text","text":"first"},{"type":"summary_text","text":"second"},{"type":"summary_text","text":"third"}]}"#},
                text("hi"),
            ]),
        ),
        (
            "a summary is shown before the reasoning itself",
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"short"}],"content":[{"type":"reasoning_text","text":"long"}]}}"#,
            ],
            json!([{"type": "thinking", "thinking": "short", "signature": r#"{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"short"}],"content":[{"type":"reasoning_text","text":"long"}]}"#}]),
        ),
        (
            "reasoning of which nothing is told",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
            ],
            json!([{"type": "thinking", "thinking": ""}]),
        ),
        (
            "items without a type of ours stay verbatim, in their place",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"in_progress"}}"#,
                r#"{"type":"response.web_search_call.searching","output_index":0,"item_id":"ws_1"}"#,
                r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"m","type":"message","content":[]}}"#,
                r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"hi"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"completed","action":{"z":1,"a":1e3}}}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"hi"}]}}"#,
            ],
            json!([
                {"type": "opaque", "wire": "openai-responses", "raw": {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"z": 1, "a": 1e3}}},
                text("hi"),
            ]),
        ),
        (
            "an item without a type of ours that never ends",
            &[r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"telepathy_call","to":"you"}}"#],
            json!([{"type": "opaque", "wire": "openai-responses", "raw": {"type": "telepathy_call", "to": "you"}}]),
        ),
        (
            "a custom tool's input is a JSON string",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"ctc_1","type":"custom_tool_call","call_id":"c","input":"","name":"f"}}"#,
                r#"{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"say \""}"#,
                r#"{"type":"response.custom_tool_call_input.done","output_index":0,"input":"say \"hi\""}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"ctc_1","type":"custom_tool_call","call_id":"c","input":"say \"hi\"","name":"f"}}"#,
            ],
            json!([{"type": "toolCall", "id": "c", "name": "f", "arguments": "say \"hi\"", "signature": r#"{"id":"ctc_1","input":"say \"hi\""}"#}]),
        ),
        (
            "who made a call, and in which namespace its tool is",
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{}","namespace":"n","caller":{"type":"program","caller_id":"p"}}}"#,
            ],
            json!([{"type": "toolCall", "id": "c", "name": "f", "arguments": {}, "signature": r#"{"id":"fc_1","namespace":"n","caller":{"type":"program","caller_id":"p"}}"#}]),
        ),
        (
            "unknown events, fields of strange shapes, nulls",
            &[
                r#"{"type":"response.telepathy.delta","delta":{"x":1}}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"delta":null}"#,
                r#"{"type":"response.output_item.added","output_index":null,"item":null}"#,
                r#"{"type":null}"#,
                r#"[]"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"id":7,"type":"message","phase":{},"role":null,"content":[{"type":"output_text","text":"hi","annotations":null}]}}"#,
            ],
            json!([bare("hi")]),
        ),
    ];
    for (what, events, expected) in cases {
        let events: Vec<&str> = [CREATED].into_iter().chain(events.iter().copied()).chain([COMPLETED]).collect();
        assert_eq!(decode(&events)["content"], *expected, "{what}");
    }
}

/// The response at the end repeats what was streamed, or tells what was not.
#[test]
fn the_whole_response_completes_the_stream_and_repeats_nothing() {
    let completed = |output: &str| {
        format!(
            r#"{{"type":"response.completed","response":{{"id":"resp_1","status":"completed","output":[{output}]}}}}"#
        )
    };
    let message = |id: &str, text: &str| {
        format!(r#"{{"id":"{id}","type":"message","content":[{{"type":"output_text","text":"{text}"}}]}}"#)
    };
    let call = |id: &str| {
        format!(r#"{{"id":"fc_{id}","type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"}}"#)
    };
    let done = |index: u8, item: &str| {
        format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{item}}}"#)
    };
    let streamed = |text: &str| format!(r#"{{"type":"response.output_text.delta","output_index":0,"delta":"{text}"}}"#);
    for (what, events, expected) in [
        ("nothing was streamed", vec![completed(&format!("{},{}", message("m", "hi"), call("c")))], json!(["hi", "c"])),
        ("a text was cut short", vec![streamed("h"), completed(&message("m", "hi"))], json!(["hi"])),
        (
            "the indices have a gap and the ids differ",
            vec![
                done(0, &message("a", "one")),
                done(2, &message("b", "two")),
                completed(&format!("{},{}", message("c", "one"), message("d", "two"))),
            ],
            json!(["one", "two"]),
        ),
        (
            "the last item was not streamed",
            vec![done(0, &message("m", "hi")), completed(&format!("{},{}", message("m", "hi"), call("c")))],
            json!(["hi", "c"]),
        ),
        (
            "an item is left out",
            vec![done(0, &message("m", "hi")), done(1, &call("c")), completed(&call("c"))],
            json!(["hi", "c"]),
        ),
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let reply = decode(&events);
        let content = reply["content"].as_array().unwrap();
        let short: Vec<&Value> =
            content.iter().map(|block| if block["type"] == "text" { &block["text"] } else { &block["id"] }).collect();
        assert_eq!(json!(short), expected, "{what}");
    }
}

#[test]
fn call_ids_are_there_and_differ() {
    let done = |index: u8, id: &str| {
        format!(
            r#"{{"type":"response.output_item.done","output_index":{index},"item":{{"type":"function_call","call_id":{id},"name":"f","arguments":"[{index}]"}}}}"#
        )
    };
    let completed = r#"{"type":"response.completed","response":{"output":[
        {"type":"function_call","call_id":"c","name":"f","arguments":"[0]"},
        {"type":"function_call","call_id":"c","name":"f","arguments":"[1]"},
        {"type":"function_call","call_id":null,"name":"f","arguments":"[2]"}]}}"#;
    let streamed = [done(0, r#""c""#), done(1, r#""c""#), done(2, "null"), COMPLETED.to_owned()];
    for events in [streamed.to_vec(), vec![completed.replace('\n', " ")]] {
        let message = decode(&events.iter().map(String::as_str).collect::<Vec<_>>());
        let calls = message["content"].as_array().unwrap();
        let ids: std::collections::HashSet<&str> = calls.iter().filter_map(|call| call["id"].as_str()).collect();
        assert!(calls[0]["id"] == "c" && ids.len() == 3 && !ids.contains(""), "{message}");
        assert_eq!(calls.iter().map(|call| &call["arguments"][0]).collect::<Vec<_>>(), [0, 1, 2], "{message}");
    }
}

#[test]
fn why_it_stopped() {
    const TEXT: &str = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"hi"}]}}"#;
    const REFUSED: &str = r#"{"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"no"}"#;
    const CALL: &str = r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}"#;
    const CUT_CALL: &str = r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":""}}"#;
    const MAX_TOKENS: &str = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#;
    const FILTERED: &str = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}"#;
    const NEW_REASON: &str = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"brand_new"}}}"#;
    const NEW_STATUS: &str = r#"{"type":"response.completed","response":{"status":"brand_new"}}"#;
    for (events, reason, raw) in [
        ([TEXT, COMPLETED], "stop", "completed"),
        ([CALL, COMPLETED], "toolUse", "completed"),
        ([REFUSED, COMPLETED], "refusal", "completed"),
        ([TEXT, MAX_TOKENS], "length", "max_output_tokens"),
        ([CALL, MAX_TOKENS], "length", "max_output_tokens"),
        ([TEXT, FILTERED], "refusal", "content_filter"),
        ([TEXT, NEW_REASON], "stop", "brand_new"),
        ([CALL, NEW_REASON], "toolUse", "brand_new"),
        ([CUT_CALL, NEW_REASON], "length", "brand_new"),
        ([TEXT, NEW_STATUS], "stop", "brand_new"),
        ([TEXT, r#"{"type":"response.incomplete","response":null}"#], "length", "incomplete"),
        ([TEXT, r#"{"type":"response.done","response":{"status":"completed"}}"#], "stop", "completed"),
        (
            [
                TEXT,
                r#"{"type":"response.completed","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
            ],
            "length",
            "max_output_tokens",
        ),
    ] {
        let message = decode(&events);
        assert_eq!((&message["stopReason"], &message["rawStopReason"]), (&json!(reason), &json!(raw)), "{events:?}");
    }
}

#[test]
fn a_reply_that_reached_its_limit_keeps_everything() {
    let message = decode(&[
        r#"{"type":"response.output_text.delta","output_index":0,"delta":"let me see"}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"c","name":"f"}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"path\":\"/et"}"#,
        r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":3,"output_tokens":16}}}"#,
    ]);
    let content = json!([
        {"type": "text", "text": "let me see"},
        {"type": "toolCall", "id": "c", "name": "f", "argumentsText": "{\"path\":\"/et", "signature": r#"{"id":"fc_1"}"#},
    ]);
    assert_eq!(message["content"], content);
    assert_eq!(message["stopReason"], "length");
    assert_eq!(message["usage"], json!({"input": 3, "cacheRead": 0, "cacheWrite": 0, "output": 16}));
}

#[test]
fn a_refusal_is_text_and_knows_that_it_is_one() {
    let message = decode(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","content":[]}}"#,
        r#"{"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"I'm "}"#,
        r#"{"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"sorry"}"#,
        r#"{"type":"response.refusal.done","output_index":0,"content_index":0,"refusal":"I'm sorry"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"refusal","refusal":"I'm sorry"}]}}"#,
        COMPLETED,
    ]);
    let content = json!([{"type": "text", "text": "I'm sorry", "signature": r#"{"id":"m","refusal":true}"#}]);
    assert_eq!((&message["content"], &message["stopReason"]), (&content, &json!("refusal")));
}

#[test]
fn usage() {
    for (told, expected) in [
        (
            &[
                r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":80,"cache_write_tokens":5},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":5}}"#,
            ][..],
            json!({"input": 15, "cacheRead": 80, "cacheWrite": 5, "output": 20, "reasoning": 5}),
        ),
        (
            &[r#"{"input_tokens":3,"input_tokens_details":{"cached_tokens":4},"output_tokens":1}"#],
            json!({"input": 0, "cacheRead": 4, "cacheWrite": 0, "output": 1}),
        ),
        (
            &[r#"{"input_tokens":9,"output_tokens":2}"#, "null"],
            json!({"input": 9, "cacheRead": 0, "cacheWrite": 0, "output": 2}),
        ),
        (
            &[
                r#"{"input_tokens":9,"output_tokens":2}"#,
                r#"{"input_tokens":null,"output_tokens":7,"input_tokens_details":null}"#,
            ],
            json!({"input": 9, "cacheRead": 0, "cacheWrite": 0, "output": 7}),
        ),
        (
            &[r#"{"input_tokens":"many","output_tokens":2,"output_tokens_details":[]}"#],
            json!({"input": 0, "cacheRead": 0, "cacheWrite": 0, "output": 2}),
        ),
    ] {
        let (last, earlier) = told.split_last().unwrap();
        let event = |kind: &str, usage: &str| format!(r#"{{"type":"response.{kind}","response":{{"usage":{usage}}}}}"#);
        let events: Vec<String> =
            earlier.iter().map(|usage| event("in_progress", usage)).chain([event("completed", last)]).collect();
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        assert_eq!(decode(&events)["usage"], expected, "{told:?}");
    }
}

#[test]
fn framing_that_hosts_send() {
    let expected = json!([{"type": "text", "text": "hi"}]);
    for stream in [
        "event: response.output_text.delta\ndata: {\"delta\":\"hi\",\"output_index\":0}\n\nevent: response.completed\ndata: {\"response\":{}}\n\n",
        ": OPENROUTER PROCESSING\n\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"response.completed\"}\n\ndata: [DONE]\n\n",
        "data: {\"type\":\"response.output_text.delta\",\ndata: \"delta\":\"hi\"}\r\n\r\ndata: {\"type\":\"response.completed\"}",
    ] {
        for chunk in [1, stream.len()] {
            assert_eq!(read(stream, chunk).unwrap()["content"], expected, "{stream}");
        }
    }
}

#[test]
fn a_plain_body_means_what_the_stream_means() {
    let body = r#"{
      "id": "resp_1",
      "status": "completed",
      "error": null,
      "output": [
        {"id": "rs_1", "type": "reasoning", "summary": [],
         "encrypted_content": "gAAAA"},
        {"id": "m", "type": "message", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
        {"type": "file_search_call",
         "queries": ["q"]},
        {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
      ],
      "usage": {"input_tokens": 3, "output_tokens": 5}
    }"#;
    for chunk in [1, body.len()] {
        assert_eq!(
            read(body, chunk).unwrap(),
            json!({
                "content": [
                    {"type": "thinking", "thinking": "", "signature": r#"{"id": "rs_1", "type": "reasoning", "summary": [],          "encrypted_content": "gAAAA"}"#},
                    {"type": "text", "text": "hi", "signature": r#"{"id":"m"}"#},
                    {"type": "opaque", "wire": "openai-responses", "raw": {"type": "file_search_call", "queries": ["q"]}},
                    {"type": "toolCall", "id": "c", "name": "f", "arguments": {}, "signature": r#"{"id":"fc_1"}"#},
                ],
                "stopReason": "toolUse",
                "rawStopReason": "completed",
                "usage": {"input": 3, "cacheRead": 0, "cacheWrite": 0, "output": 5},
                "responseId": "resp_1",
            })
        );
    }
}

#[test]
fn failures() {
    let text = r#"{"type":"response.output_text.delta","output_index":0,"delta":"he"}"#;
    for (last, kind, code) in [
        (
            r#"{"type":"error","error":{"type":"insufficient_quota","code":"insufficient_quota","message":"no money"}}"#,
            "quota",
            json!("insufficient_quota"),
        ),
        (
            r#"{"type":"error","code":"context_length_exceeded","message":"too long"}"#,
            "context_overflow",
            json!("context_length_exceeded"),
        ),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","code":null,"message":"no such tool"}}"#,
            "invalid_request",
            json!("invalid_request_error"),
        ),
        (r#"{"error":{"code":502,"message":"upstream"}}"#, "server", Value::Null),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"try later \ud83d"}}"#,
            "overloaded",
            json!("overloaded_error"),
        ),
        (
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow"}}}"#,
            "rate_limited",
            json!("rate_limit_exceeded"),
        ),
        (
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"oops"}}}"#,
            "server",
            json!("server_error"),
        ),
        (
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"invalid_prompt","message":"no"}}}"#,
            "refused",
            json!("invalid_prompt"),
        ),
        (r#"{"type":"response.failed","response":{"status":"failed","error":null}}"#, "server", json!("failed")),
        (
            r#"{"type":"response.completed","response":{"status":"failed","error":{"code":"server_error","message":"oops"}}}"#,
            "server",
            json!("server_error"),
        ),
        (r#"{"type":"response.cancelled","response":{"status":"cancelled"}}"#, "server", json!("cancelled")),
        (r#"{"type":"response.output_text.delta" "delta":"x"}"#, "protocol", Value::Null),
        ("[DONE]", "truncated", Value::Null),
    ] {
        let stream = sse(&[CREATED, text, last]);
        let (error, partial) = read(&stream, stream.len()).unwrap_err();
        assert_eq!((&error["kind"], &error["code"]), (&json!(kind), &code), "{last}");
        assert_eq!(partial["content"], json!([{"type": "text", "text": "he"}]), "{last}");
        assert_eq!(partial["stopReason"], "error", "{last}");
    }
}

#[test]
fn plain_bodies_that_are_no_reply() {
    for (body, kind) in [
        (r#"{"id":"resp_1","status":"queued","output":[]}"#, "truncated"),
        (r#"{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"oops"},"output":[]}"#, "server"),
        (r#"{"error":{"message":"The model does not exist","code":"model_not_found"}}"#, "not_found"),
        (r#"{"detail":"rate limit"}"#, "rate_limited"),
        (r#"{"choices":[]}"#, "protocol"),
        ("<html>busy</html>", "protocol"),
        (r#"{"id":"resp_1","status":"comp"#, "truncated"),
    ] {
        let (error, _) = read(body, body.len()).unwrap_err();
        assert_eq!(error["kind"], kind, "{body}");
    }
}

#[test]
fn a_stream_that_breaks_off_anywhere_is_truncated() {
    let whole = sse(&[
        CREATED,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","content":[]}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"delta":"é\n"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"é\n"}]}}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}"#,
        COMPLETED,
    ]);
    let terminal = whole.find(COMPLETED).unwrap() + COMPLETED.len();
    for end in (0..terminal).filter(|end| whole.is_char_boundary(*end)) {
        let (error, _) = read(&whole[..end], 7).unwrap_err();
        assert_eq!(error["kind"], "truncated", "{:?}", &whole[..end]);
    }
    assert!(read(&whole[..terminal], 7).is_ok());
}

fn encode(request: impl ToString) -> Result<String, EncodeError> {
    encode_for(&spec(), &serde_json::from_str(&request.to_string()).unwrap())
}

fn encode_for(spec: &ModelSpec, request: &Request) -> Result<String, EncodeError> {
    let encoded = spec.wire.wire().unwrap().encode(spec, request)?;
    assert_eq!((encoded.path.as_str(), encoded.headers.len()), ("/responses", 0));
    Ok(String::from_utf8(encoded.body.to_bytes().to_vec()).unwrap())
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

fn own(content: Value) -> Value {
    json!({"role": "assistant", "content": content, "provider": "openai", "model": "gpt-5", "wire": "openai-responses"})
}

fn result(id: &str, content: Value) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "f", "content": content})
}

const START: &str = r#"{"model":"gpt-5","stream":true,"store":false,"include":["reasoning.encrypted_content"],"#;
const HI: &str = r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}"#;

#[test]
fn the_whole_body_in_its_order() {
    let body = encode(format!(
        r#"{{
            "system": "Be brief.",
            "messages": [{{"role": "user", "content": "hi"}}],
            "tools": [
                {{"name": "f", "description": "does f", "parameters": {{"type":"object","properties":{{"b":{{"type":"string"}},"a":{{}}}}}}}},
                {{"name": "g", "description": "does g", "parameters": {{"type":"object"}}}},
                {{"name": "h", "description": "does h", "parameters": {{}}}}
            ],
            "options": {{
                "maxOutputTokens": 1, "temperature": 0.7, "topP": 0.9, "toolChoice": {{"tool": "f"}},
                "parallelToolCalls": false, "effort": "low", "cache": "long", "cacheKey": "{}",
                "outputSchema": {{"name": "answer", "schema": {{"type":"object"}}}}
            }}
        }}"#,
        "s".repeat(65)
    ));
    let key = "s".repeat(64);
    let expected = format!(
        r#"{START}"instructions":"Be brief.","tools":[{{"type":"function","name":"f","description":"does f","parameters":{{"type":"object","properties":{{"b":{{"type":"string"}},"a":{{}}}}}},"strict":false}},{{"type":"function","name":"g","description":"does g","parameters":{{"type":"object","properties":{{}}}},"strict":false}},{{"type":"function","name":"h","description":"does h","parameters":{{"properties":{{}}}},"strict":false}}],"tool_choice":{{"type":"function","name":"f"}},"parallel_tool_calls":false,"reasoning":{{"effort":"low","summary":"auto"}},"text":{{"format":{{"type":"json_schema","name":"answer","schema":{{"type":"object"}},"strict":false}}}},"max_output_tokens":16,"temperature":0.7,"top_p":0.9,"prompt_cache_key":"{key}","prompt_cache_retention":"24h","input":[{HI}]}}"#
    );
    assert_eq!(body.unwrap(), expected);
}

#[test]
fn each_option_alone() {
    for (options, expected) in [
        (json!({}), ""),
        (json!({"maxOutputTokens": 1000}), r#""max_output_tokens":1000,"#),
        (json!({"toolChoice": "auto"}), r#""tool_choice":"auto","#),
        (json!({"toolChoice": "none"}), r#""tool_choice":"none","#),
        (json!({"parallelToolCalls": true}), r#""parallel_tool_calls":true,"#),
        (json!({"effort": "off"}), r#""reasoning":{"effort":"none"},"#),
        (json!({"effort": "minimal"}), r#""reasoning":{"effort":"minimal","summary":"auto"},"#),
        (json!({"effort": "xhigh"}), r#""reasoning":{"effort":"xhigh","summary":"auto"},"#),
        (json!({"effort": "max"}), r#""reasoning":{"effort":"max","summary":"auto"},"#),
        (json!({"cache": "none"}), ""),
        (json!({"cacheKey": "é"}), r#""prompt_cache_key":"é","#),
    ] {
        let body = encode(json!({"messages": [user("hi")], "options": options})).unwrap();
        assert_eq!(body, format!(r#"{START}{expected}"input":[{HI}]}}"#), "{options}");
    }
    for (options, option) in [
        (json!({"stop": ["END"]}), "stop"),
        (json!({"topK": 40}), "top_k"),
        (json!({"seed": 1}), "seed"),
        // A call can't be forced where there is nothing to call.
        (json!({"toolChoice": "required"}), "tool_choice"),
        (json!({"toolChoice": {"tool": "f"}}), "tool_choice"),
    ] {
        let error = encode(json!({"messages": [user("hi")], "options": options})).unwrap_err();
        assert!(matches!(error, EncodeError::Unsupported { option: named, .. } if named == option), "{error}");
    }
    assert_eq!(encode(json!({"messages": []})), Err(EncodeError::NoMessages));
}

#[test]
fn a_model_that_does_not_reason_is_not_asked_for_its_reasoning() {
    let mut spec = spec();
    spec.compat.encrypted_reasoning = false;
    let request: Request = serde_json::from_value(json!({"messages": [user("hi")]})).unwrap();
    let expected = format!(r#"{{"model":"gpt-5","stream":true,"store":false,"input":[{HI}]}}"#);
    assert_eq!(encode_for(&spec, &request).unwrap(), expected);
}

const REASONING: &str = r#"{"id":"rs_1","type":"reasoning", "encrypted_content":"gAAAA/+==","summary":[]}"#;

/// What messages after "hi" become.
#[test]
fn input_items() {
    let thinking = |signature: &str| json!({"type": "thinking", "thinking": "hm", "signature": signature});
    let call = json!({"type": "toolCall", "id": "c", "name": "f", "argumentsText": " {\"b\": 1,\n\"a\":2.0}"});
    let long = "x".repeat(65);
    let cases = [
        (
            "an image",
            vec![json!({"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image", "mediaType": "image/png", "data": "aGk="}]})],
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,aGk="}]}"#.into(),
        ),
        (
            "reasoning verbatim before its text, the text with its id and phase, a call with the model's own arguments",
            vec![
                own(json!([
                    thinking(REASONING),
                    {"type": "text", "text": "a", "signature": r#"{"id":"msg_1","phase":"commentary"}"#},
                    {"type": "toolCall", "id": "c", "name": "f", "argumentsText": " {\"b\": 1,\n\"a\":2.0}", "signature": r#"{"id":"fc_1"}"#},
                ])),
                result("c", json!([{"type": "text", "text": "3"}])),
            ],
            format!(
                r#"{REASONING},{{"type":"message","id":"msg_1","role":"assistant","status":"completed","phase":"commentary","content":[{{"type":"output_text","annotations":[],"text":"a"}}]}},{{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":" {{\"b\": 1,\n\"a\":2.0}}"}},{{"type":"function_call_output","call_id":"c","output":"3"}}"#
            ),
        ),
        (
            "plain reasoning goes back to the model that told it",
            vec![own(json!([
                thinking(r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}"#),
                {"type": "text", "text": "a"},
            ]))],
            r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"type":"message","role":"assistant","content":"a"}"#.into(),
        ),
        (
            "reasoning that only the provider could know doesn't: nothing is stored there",
            vec![own(json!([
                thinking(r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":null}"#),
                thinking(r#"{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":""}"#),
                thinking("something else"),
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "a"},
            ]))],
            r#"{"type":"message","role":"assistant","content":"a"}"#.into(),
        ),
        (
            "nor does reasoning that led to nothing",
            vec![own(json!([{"type": "text", "text": "a"}, thinking(REASONING)]))],
            r#"{"type":"message","role":"assistant","content":"a"}"#.into(),
        ),
        (
            "each reasoning item stands before what it led to",
            vec![
                own(json!([
                    thinking(REASONING),
                    {"type": "opaque", "wire": "openai-responses", "raw": {"id": "ws_1", "type": "web_search_call"}},
                    thinking(&REASONING.replace("rs_1", "rs_2")),
                    call.clone(),
                ])),
                result("c", json!([])),
            ],
            format!(
                r#"{REASONING},{{"id":"ws_1","type":"web_search_call"}},{},{{"type":"function_call","call_id":"c","name":"f","arguments":" {{\"b\": 1,\n\"a\":2.0}}"}},{{"type":"function_call_output","call_id":"c","output":"(no output)"}}"#,
                REASONING.replace("rs_1", "rs_2")
            ),
        ),
        (
            "to another model, no reasoning, no signatures, no blocks of the vendor's",
            vec![
                json!({"role": "assistant", "provider": "xai", "model": "grok-4", "wire": "openai-responses", "content": [
                    thinking(REASONING),
                    {"type": "text", "text": "a", "signature": r#"{"id":"msg_1"}"#},
                    {"type": "opaque", "wire": "openai-responses", "raw": {"type": "x_search_call"}},
                    {"type": "toolCall", "id": "c", "name": "f", "arguments": {}, "signature": r#"{"id":"fc_1"}"#},
                ]}),
                result("c", json!([{"type": "text", "text": "3"}])),
            ],
            r#"{"type":"message","role":"assistant","content":"a"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"3"}"#.into(),
        ),
        (
            "the parts of a message are one message again",
            vec![own(json!([
                {"type": "text", "text": "a", "signature": r#"{"id":"msg_1"}"#, "annotations": [{"file_id": "x", "index": 1, "type": "file_path"}]},
                {"type": "text", "text": "no", "signature": r#"{"id":"msg_1","refusal":true}"#},
                {"type": "text", "text": "b", "signature": r#"{"id":"msg_2"}"#},
            ]))],
            r#"{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","annotations":[{"file_id":"x","index":1,"type":"file_path"}],"text":"a"},{"type":"refusal","refusal":"no"}]},{"type":"message","id":"msg_2","role":"assistant","status":"completed","content":[{"type":"output_text","annotations":[],"text":"b"}]}"#.into(),
        ),
        (
            "a custom tool's call and its result",
            vec![
                own(json!([{"type": "toolCall", "id": "c", "name": "f", "arguments": "say \"hi\"", "signature": r#"{"id":"ctc_1","input":"say \"hi\""}"#}])),
                result("c", json!([{"type": "text", "text": "done"}])),
            ],
            r#"{"type":"custom_tool_call","id":"ctc_1","call_id":"c","name":"f","input":"say \"hi\""},{"type":"custom_tool_call_output","call_id":"c","output":"done"}"#.into(),
        ),
        (
            "who made a call, and in which namespace its tool is",
            vec![
                own(json!([{"type": "toolCall", "id": "c", "name": "f", "arguments": {}, "signature": r#"{"namespace":"n","caller":{"type":"program","caller_id":"p"}}"#}])),
                result("c", json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])),
            ],
            r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}","namespace":"n","caller":{"type":"program","caller_id":"p"}},{"type":"function_call_output","call_id":"c","output":"one\ntwo"}"#.into(),
        ),
        (
            "an image in a result stays an image",
            vec![own(json!([call])), result("c", json!([{"type": "text", "text": "see"}, {"type": "image", "mediaType": "image/png", "data": "aGk="}]))],
            r#"{"type":"function_call","call_id":"c","name":"f","arguments":" {\"b\": 1,\n\"a\":2.0}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"see"},{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,aGk="}]}"#.into(),
        ),
        (
            "ids that are too long for the wire stay behind",
            vec![
                own(json!([
                    thinking(&REASONING.replace("rs_1", &long)),
                    {"type": "text", "text": "a", "signature": format!(r#"{{"id":"{long}","phase":"final_answer"}}"#)},
                    {"type": "toolCall", "id": "c", "name": "f", "arguments": {}, "signature": format!(r#"{{"id":"{long}"}}"#)},
                ])),
                result("c", json!([{"type": "text", "text": "3"}])),
            ],
            format!(
                r#"{{"type":"reasoning","id":"rs_{}","summary":[],"encrypted_content":"gAAAA/+=="}},{{"type":"message","role":"assistant","phase":"final_answer","content":"a"}},{{"type":"function_call","call_id":"c","name":"f","arguments":"{{}}"}},{{"type":"function_call_output","call_id":"c","output":"3"}}"#,
                "x".repeat(61)
            ),
        ),
    ];
    for (what, messages, expected) in cases {
        let messages: Vec<Value> = [user("hi")].into_iter().chain(messages).collect();
        let body = encode(json!({ "messages": messages })).unwrap();
        assert_eq!(body, format!(r#"{START}"input":[{HI},{expected}]}}"#), "{what}");
    }
}

/// The provider's prompt cache works on prefixes.
#[test]
fn each_request_begins_with_the_one_before() {
    let mut messages = vec![user("hi")];
    let tools = json!([{"name": "f", "description": "does f", "parameters": {"type": "object"}}]);
    let mut earlier = encode(json!({"system": "s", "messages": messages, "tools": tools})).unwrap();
    for turn in 0..4 {
        let id = format!("c{turn}");
        messages.push(own(json!([
            {"type": "thinking", "thinking": "", "signature": REASONING},
            {"type": "text", "text": "a", "signature": r#"{"id":"msg_1"}"#},
            {"type": "toolCall", "id": id, "name": "f", "arguments": {}},
        ])));
        messages.push(result(&id, json!([{"type": "text", "text": "3"}])));
        let body = encode(json!({"system": "s", "messages": messages, "tools": tools})).unwrap();
        assert!(body.starts_with(earlier.strip_suffix("]}").unwrap()), "{earlier}\n{body}");
        earlier = body;
    }
}

#[test]
fn what_was_decoded_goes_back_as_it_came() {
    let item = r#"{"id":"rs_1","type":"reasoning","encrypted_content":"gAAAA","format":"v1","summary":[{"type":"summary_text","text":"hm\ud83d\ude00"}]}"#;
    let search = r#"{"type":"web_search_call","id":"ws_1","action":{"z":1,"a":1e3}}"#;
    let stream = sse(&[
        &format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{item}}}"#),
        &format!(r#"{{"type":"response.output_item.done","output_index":1,"item":{search}}}"#),
        r#"{"type":"response.output_item.done","output_index":2,"item":{"id":"m","type":"message","content":[{"type":"output_text","text":"hi","annotations":[]}]}}"#,
        COMPLETED,
    ]);
    let mut reader = ReplyReader::new(spec().wire.wire().unwrap().decoder(), Draft::new(&spec()));
    reader.push(stream.as_bytes());
    reader.end();
    let Some(StreamEvent::Done(reply)) = std::iter::from_fn(|| reader.next_event()).last() else { panic!() };
    // By way of the disk.
    let reply: Message =
        serde_json::from_str(&serde_json::to_string(&Message::from(reply.into_message())).unwrap()).unwrap();
    let hi: Message = serde_json::from_value(user("hi")).unwrap();
    let request = Request { messages: [hi, reply].into_iter().collect(), ..Request::default() };
    let message = r#"{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","annotations":[],"text":"hi"}]}"#;
    assert_eq!(encode_for(&spec(), &request).unwrap(), format!(r#"{START}"input":[{HI},{item},{search},{message}]}}"#));
}
