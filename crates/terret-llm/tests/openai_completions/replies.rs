//! What the streams and plain responses of many hosts mean.

use serde_json::{Value, json};
use terret_llm::{AssistantMessage, Block, ErrorKind, StopReason, Usage};

use crate::{decode, done, stream};

/// Each row: what it shows, the deltas of choice 0, and the blocks that they make.
#[test]
fn deltas_become_blocks() {
    let call = |fields: Value| json!({ "tool_calls": [fields] });
    for (behaviour, deltas, expected) in [
        (
            "fragments of text are one block, the empty ones are nothing",
            vec![json!({"role": "assistant", "content": ""}), json!({"content": "he"}), json!({"content": "llo"})],
            vec!["text hello"],
        ),
        (
            "a value of an unexpected type costs itself alone",
            vec![
                json!({"content": "hi", "role": 7, "reasoning": {"a": 1}, "tool_calls": "none", "refusal": [], "images": 1}),
            ],
            vec!["text hi"],
        ),
        (
            "content can be a list of parts",
            vec![json!({"content": [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]})],
            vec!["text hello"],
        ),
        (
            "Mistral: reasoning comes in parts, and then content becomes a string",
            vec![
                json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "let "}]}]}),
                json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "me see"}], "closed": true}]}),
                json!({"content": [{"type": "text", "text": "4"}]}),
                json!({"content": "4"}),
            ],
            vec!["thinking let me see", "text 44"],
        ),
        (
            "an unknown part is kept in its place",
            vec![
                json!({"content": [{"type": "text", "text": "see "}, {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "there"}]}),
            ],
            vec!["text see ", r#"opaque {"reference_ids":[1],"type":"reference"}"#, "text there"],
        ),
        (
            "a picture is an image block",
            vec![
                json!({"content": "here", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}),
            ],
            vec!["text here", "image image/png AAAA"],
        ),
        ("a refusal is text", vec![json!({"refusal": "I "}), json!({"refusal": "can't."})], vec!["text I can't."]),
        (
            "reasoning has three names",
            vec![
                json!({"reasoning_content": "a"}),
                json!({"reasoning": "b"}),
                json!({"reasoning_text": "c"}),
                json!({"content": "d"}),
            ],
            vec!["thinking abc", "text d"],
        ),
        (
            "the same reasoning under several names is there once",
            vec![
                json!({"reasoning": "a", "reasoning_content": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a"}]}),
                json!({"content": "b"}),
            ],
            vec![r#"thinking a [{"text":"a","type":"reasoning.text"}]"#, "text b"],
        ),
        (
            "thinking ends where text begins, and may begin again",
            vec![
                json!({"reasoning": "a"}),
                json!({"content": "b"}),
                json!({"reasoning": "c"}),
                json!({"content": "d"}),
            ],
            vec!["thinking a", "text b", "thinking c", "text d"],
        ),
        (
            "fragments of details are put together, the signature's, too",
            vec![
                json!({"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "format": "x"}]}),
                json!({"reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0, "format": "x", "signature": ""}]}),
                json!({"reasoning_details": [{"type": "reasoning.text", "signature": "si", "index": 0}]}),
                json!({"content": "c"}),
                // Late.
                json!({"reasoning_details": [{"type": "reasoning.text", "signature": "g", "index": 0}, {"type": "reasoning.encrypted", "data": "zz", "index": 0}]}),
            ],
            vec![
                r#"thinking ab [{"format":"x","index":0,"text":"ab","type":"reasoning.text","signature":"sig"},{"data":"zz","index":0,"type":"reasoning.encrypted"}]"#,
                "text c",
            ],
        ),
        (
            "encrypted reasoning alone is a redacted block",
            vec![
                json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "zz", "id": "rs_1"}]}),
                json!({"content": "a"}),
            ],
            vec![r#"redacted [{"data":"zz","id":"rs_1","type":"reasoning.encrypted"}]"#, "text a"],
        ),
        (
            "details without anything in them are nothing",
            vec![
                json!({"content": "a", "reasoning_details": [{"type": "reasoning.text", "text": "", "signature": null}]}),
            ],
            vec!["text a"],
        ),
        (
            "a call comes in fragments, after text and before it",
            vec![
                json!({"content": "a"}),
                call(json!({"index": 0, "id": "x", "type": "function", "function": {"name": "read", "arguments": ""}})),
                call(json!({"index": 0, "function": {"arguments": "{\"pa"}})),
                call(json!({"index": 0, "function": {"arguments": "th\":1}"}})),
                json!({"content": "b"}),
            ],
            vec!["text a", r#"call x read {"path":1}"#, "text b"],
        ),
        (
            "an index and an id that come after the name belong to the call",
            vec![
                call(json!({"index": null, "id": null, "function": {"name": "read", "arguments": null}})),
                call(json!({"index": 0, "id": "x", "function": {"name": null, "arguments": "{\"pa"}})),
                call(json!({"index": 1, "id": "y", "function": {"name": "now", "arguments": "{}"}})),
                call(json!({"index": 0, "function": {"arguments": "th\":1}"}})),
            ],
            vec![r#"call x read {"path":1}"#, "call y now {}"],
        ),
        (
            "a delta with neither index nor id belongs to the last call",
            vec![
                call(json!({"id": "x", "function": {"name": "read", "arguments": "{\"pa"}})),
                call(json!({"function": {"arguments": "th\":1}"}})),
            ],
            vec![r#"call x read {"path":1}"#],
        ),
        (
            "an id can change from delta to delta",
            vec![
                call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": ""}})),
                call(json!({"index": 0, "id": "y", "function": {"arguments": "{\"pa"}})),
                call(json!({"index": 0, "id": "z", "function": {"name": "read", "arguments": "th\":1}"}})),
                call(json!({"index": 0, "id": "z", "function": {"arguments": ""}})),
            ],
            vec![r#"call x read {"path":1}"#],
        ),
        (
            "id and name can stand in every delta",
            vec![
                call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"pa"}})),
                call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": "th\":1}"}})),
                call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": ""}})),
            ],
            vec![r#"call x read {"path":1}"#],
        ),
        (
            "a new name after whole arguments is a second call at the same index",
            vec![
                call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"a\":1}"}})),
                call(json!({"index": 0, "id": "y", "function": {"name": "write", "arguments": "{\"b\":"}})),
                call(json!({"index": 0, "function": {"arguments": "2}"}})),
            ],
            vec![r#"call x read {"a":1}"#, r#"call y write {"b":2}"#],
        ),
        (
            "so are a new id and arguments of its own",
            vec![
                call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"a\":1}"}})),
                call(json!({"index": 0, "id": "y", "function": {"name": "read", "arguments": "{\"a\":2}"}})),
            ],
            vec![r#"call x read {"a":1}"#, r#"call y read {"a":2}"#],
        ),
        (
            "calls without index and id are told apart by their names",
            vec![
                call(json!({"function": {"name": "read", "arguments": "{\"a\":1}"}})),
                call(json!({"function": {"name": "read", "arguments": "{\"a\":2}"}})),
            ],
            vec![r#"call fresh read {"a":1}"#, r#"call fresh read {"a":2}"#],
        ),
        (
            "several calls in one delta are several calls, at whatever index",
            vec![json!({"tool_calls": [
                {"index": 0, "id": "x", "function": {"name": "now", "arguments": ""}},
                {"index": 0, "id": "y", "function": {"name": "now", "arguments": ""}},
            ]})],
            vec!["call x now {}", "call y now {}"],
        ),
        (
            "also those that say nothing of themselves but their name",
            vec![json!({"tool_calls": [{"function": {"name": "now"}}, {"function": {"name": "now"}}]})],
            vec!["call fresh now {}", "call fresh now {}"],
        ),
        (
            "deltas of two calls interleave",
            vec![
                json!({"tool_calls": [
                    {"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"a\":"}},
                    {"index": 1, "id": "y", "function": {"name": "write", "arguments": "{\"b\":"}},
                ]}),
                json!({"tool_calls": [{"index": 1, "function": {"arguments": "2"}}, {"index": 0, "function": {"arguments": "1"}}]}),
                call(json!({"index": 0, "function": {"arguments": "}"}})),
                call(json!({"index": 1, "function": {"arguments": "}"}})),
            ],
            vec![r#"call x read {"a":1}"#, r#"call y write {"b":2}"#],
        ),
        (
            "calls stand in the order of their indices",
            vec![
                call(json!({"index": 1, "id": "y", "function": {"name": "write", "arguments": "{\"b\":2}"}})),
                call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"a\":1}"}})),
            ],
            vec![r#"call x read {"a":1}"#, r#"call y write {"b":2}"#],
        ),
        (
            "an index that never comes is not waited for, once something else begins or the reply ends",
            vec![
                call(json!({"index": 1, "id": "x", "function": {"name": "read", "arguments": "{}"}})),
                json!({"content": "a"}),
                call(json!({"index": 7, "id": "y", "function": {"name": "read", "arguments": "{}"}})),
            ],
            vec!["call x read {}", "text a", "call y read {}"],
        ),
        (
            "the id and the name can come late",
            vec![
                call(json!({"index": 0, "function": {"arguments": "{\"pa"}})),
                call(json!({"index": 0, "id": "x", "function": {"arguments": "th"}})),
                call(json!({"index": 0, "function": {"name": "read", "arguments": "\":1}"}})),
            ],
            vec![r#"call x read {"path":1}"#],
        ),
        (
            "a call without an id, and one whose id is taken, get one",
            vec![
                call(json!({"index": 0, "id": "", "function": {"name": "read", "arguments": "{}"}})),
                call(json!({"index": 1, "id": "x", "function": {"name": "read", "arguments": "{}"}})),
                call(json!({"index": 2, "id": "x", "function": {"name": "write", "arguments": "{}"}})),
            ],
            vec!["call fresh read {}", "call x read {}", "call fresh write {}"],
        ),
        (
            "an empty name stays",
            vec![call(json!({"index": 0, "id": "x", "function": {"name": "", "arguments": "{}"}}))],
            vec!["call x  {}"],
        ),
        (
            "a delta that says nothing is no call",
            vec![
                json!({"content": "a"}),
                call(json!({"index": 0, "type": "function", "id": "", "function": {"arguments": null}})),
            ],
            vec!["text a"],
        ),
        (
            "arguments can be a value instead of its text",
            vec![call(
                json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": {"path": ["a", 1.50]}}}),
            )],
            vec![r#"call x read {"path":["a",1.5]}"#],
        ),
        (
            "arguments that are no JSON are kept as text",
            vec![call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"pa"}}))],
            vec![r#"call x read {"pa"#],
        ),
        (
            "a lone object in place of a list of calls is a call",
            vec![json!({"tool_calls": {"index": 0, "id": "x", "function": {"name": "now"}}})],
            vec!["call x now {}"],
        ),
        (
            "a function call of the old kind is a call",
            vec![
                json!({"function_call": {"name": "read", "arguments": "{\"pa"}}),
                json!({"function_call": {"arguments": "th\":1}"}}),
            ],
            vec![r#"call fresh read {"path":1}"#],
        ),
        (
            "Google: a call's thought signature stays with it",
            vec![call(
                json!({"index": 0, "id": "x", "function": {"name": "now", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "s"}}}),
            )],
            vec![r#"call x now {} [{"google":{"thought_signature":"s"}}]"#],
        ),
        (
            "a lone surrogate becomes a replacement character, a pair stays",
            vec![
                json!({"content": "a"}),
                json!({"content": "\u{1f600}"}),
                json!({"content": "HIGH"}),
                json!({"content": "b"}),
            ],
            vec!["text a\u{1f600}\u{fffd}b"],
        ),
        (
            "a surrogate pair that is cut between two deltas is whole",
            vec![
                json!({"reasoning": "aHIGH"}),
                json!({"reasoning": "LOWb"}),
                json!({"content": "HIGH"}),
                json!({"content": "LOW"}),
                call(json!({"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"a\":\"HIGH"}})),
                call(json!({"index": 0, "function": {"arguments": "LOW\"}"}})),
            ],
            vec!["thinking a\u{1f600}b", "text \u{1f600}", "call x read {\"a\":\"\u{1f600}\"}"],
        ),
    ] {
        let frames = deltas.iter().map(|delta| json!({"id": "c1", "choices": [{"index": 0, "delta": delta}]}));
        let body = stream(
            frames.chain([json!({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})]),
        );
        let body = body.replace("HIGH", r"\ud83d").replace("LOW", r"\ude00");
        let reply = done(&body);
        assert_eq!(shown(&reply, &body), expected, "{behaviour}");
        let calls = reply.tool_calls().count();
        let stop = if calls > 0 {
            StopReason::ToolUse
        } else if behaviour.contains("refusal") {
            StopReason::Refusal
        } else {
            StopReason::Stop
        };
        assert_eq!((reply.stop_reason, reply.raw_stop_reason.as_deref()), (stop, Some("stop")), "{behaviour}");
        let mut ids: Vec<_> = reply.tool_calls().map(|call| &call.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), calls, "{behaviour}");
        assert!(ids.iter().all(|id| !id.is_empty()), "{behaviour}");
    }
}

/// Each row: what it shows, the chunks, and the blocks that they make.
#[test]
fn chunks_that_other_hosts_would_not_send() {
    let delta = |content: &str| json!({"choices": [{"index": 0, "delta": {"content": content}}]});
    let message =
        |content: &str| json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]});
    for (behaviour, chunks, expected) in [
        (
            "no choices, and nothing at all",
            vec![
                json!({"id": "", "model": "", "choices": []}),
                json!({"choices": null}),
                json!({}),
                json!(null),
                json!("note"),
                json!([]),
                delta("hi"),
                json!({"type": "brand_new", "choices": [null, 7, {"delta": null}, {"index": 0, "delta": "x"}]}),
            ],
            vec!["text hi"],
        ),
        (
            "other choices than the first",
            vec![
                json!({"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]}),
            ],
            vec!["text yes"],
        ),
        ("`message` for `delta`", vec![message("he"), message("llo")], vec!["text hello"]),
        ("a `message` that grows", vec![message("he"), message("hello"), message("hello")], vec!["text hello"]),
        (
            "all that there is so far, beside the delta",
            vec![
                json!({"choices": [{"delta": {"content": "he"}, "message": {"content": "he"}}]}),
                json!({"choices": [{"delta": {"content": "llo"}, "message": {"content": "hello"}}]}),
                json!({"choices": [{"delta": {"content": ""}, "message": {"content": "hello"}}]}),
            ],
            vec!["text hello"],
        ),
        (
            "the whole message once more at the end",
            vec![
                json!({"choices": [{"delta": {"reasoning": "hm", "content": "hello"}}]}),
                json!({"choices": [{"delta": {"tool_calls": [{"id": "x", "function": {"name": "now", "arguments": "{}"}}]}}]}),
                json!({"choices": [{"message": {"reasoning": "hm", "content": "hello!", "tool_calls": [{"id": "x", "function": {"name": "now", "arguments": "{}"}}]}}]}),
            ],
            vec!["thinking hm", "text hello", "call x now {}", "text !"],
        ),
        (
            "content after the finish",
            vec![json!({"choices": [{"delta": {"content": "he"}, "finish_reason": "stop"}]}), delta("llo")],
            vec!["text hello"],
        ),
    ] {
        let body = stream(chunks);
        assert_eq!(shown(&done(&body), &body), expected, "{behaviour}");
    }
    for (behaviour, chunk) in
        [("a key twice", r#"{"choices":[{"delta":{"content":"no","content":"hi"}}]}"#), ("notes", "keep-alive")]
    {
        let body = format!(
            "data: {chunk}\n\ndata: {}\n\ndata: [DONE]\n\n",
            delta(if behaviour == "notes" { "hi" } else { "" })
        );
        assert_eq!(shown(&done(&body), &body), ["text hi"], "{behaviour}");
    }
}

#[test]
fn annotations_are_gathered_at_the_text() {
    let annotate =
        |n: u32| json!({"choices": [{"delta": {"content": "a", "annotations": [{"type": "url_citation", "n": n}]}}]});
    let reply = done(&stream([annotate(1), annotate(2)]));
    let Block::Text(text) = &reply.content[0] else { panic!("{reply:?}") };
    let annotations = text.annotations.as_ref().unwrap().to_value().unwrap();
    assert_eq!(annotations, json!([{"type": "url_citation", "n": 1}, {"type": "url_citation", "n": 2}]));

    let cited = json!({"citations": ["https://a", "https://b"], "choices": [{"delta": {"content": "a[1]"}}]});
    let reply = done(&stream([cited.clone(), cited]));
    let Block::Text(text) = &reply.content[0] else { panic!("{reply:?}") };
    assert_eq!(text.annotations.as_ref().unwrap().to_value().unwrap(), json!(["https://a", "https://b"]));
}

#[test]
fn why_a_reply_ends() {
    let text = json!({"content": "hi"});
    let call = json!({"tool_calls": [{"id": "x", "function": {"name": "now", "arguments": "{}"}}]});
    for (reason, delta, expected) in [
        (json!("stop"), &text, Ok(StopReason::Stop)),
        (json!("stop"), &call, Ok(StopReason::ToolUse)),
        (json!("tool_calls"), &call, Ok(StopReason::ToolUse)),
        (json!("tool_calls"), &text, Ok(StopReason::Stop)),
        (json!("function_call"), &call, Ok(StopReason::ToolUse)),
        (json!("length"), &text, Ok(StopReason::Length)),
        (json!("length"), &call, Ok(StopReason::Length)),
        (json!("model_length"), &text, Ok(StopReason::Length)),
        (json!("model_context_window_exceeded"), &text, Ok(StopReason::Length)),
        (json!("content_filter"), &text, Ok(StopReason::Refusal)),
        (json!("sensitive"), &text, Ok(StopReason::Refusal)),
        (json!("brand_new"), &text, Ok(StopReason::Stop)),
        (json!("brand_new"), &call, Ok(StopReason::ToolUse)),
        (json!("error"), &text, Err(ErrorKind::Server)),
        (json!("network_error"), &text, Err(ErrorKind::Server)),
        (json!("insufficient_system_resource"), &text, Err(ErrorKind::Overloaded)),
    ] {
        let body = stream([json!({"choices": [{"delta": delta, "finish_reason": reason}]})]);
        match (decode(&body, usize::MAX), expected) {
            (Ok(reply), Ok(stop)) => {
                assert_eq!((reply.stop_reason, reply.raw_stop_reason.as_deref()), (stop, reason.as_str()), "{reason}");
            }
            (Err(failed), Err(kind)) => {
                assert_eq!((failed.error.kind, failed.error.code.as_deref()), (kind, reason.as_str()), "{reason}");
                assert_eq!(failed.partial.text(), "hi");
            }
            (got, _) => panic!("{reason}: {got:?}"),
        }
    }
    // None, an empty one, and one that comes twice.
    let hi = json!({"choices": [{"delta": {"content": "hi"}, "finish_reason": ""}]});
    assert_eq!(done(&stream([hi.clone()])).raw_stop_reason, None);
    let finish = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    assert_eq!(done(&stream([hi, finish.clone(), finish])).raw_stop_reason.as_deref(), Some("stop"));
}

#[test]
fn a_stream_ends_with_its_terminal_or_has_broken_off() {
    let hi = r#"data: {"choices":[{"delta":{"content":"hi"}}]}"#;
    let finish = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":1}}"#;
    for (lines, ends) in [
        (vec![hi, "data: [DONE]"], Ok("hi")),
        (vec![hi, finish, usage, "data:[DONE]", "data: {\"error\":{}}"], Ok("hi")),
        (vec![hi, finish], Ok("hi")),
        (vec![hi, finish, usage], Ok("hi")),
        (vec![hi, finish, r#"data: {"choices":[],"usa"#], Ok("hi")),
        // All of the reply was there.
        (vec![hi, finish, "data: {\"choices\":[}", "data: [DONE]"], Ok("hi")),
        (vec![hi], Err(ErrorKind::Truncated)),
        (vec![], Err(ErrorKind::Truncated)),
        (vec![hi, r#"data: {"choices":[{"delta":{},"finish_re"#], Err(ErrorKind::Truncated)),
        (vec![hi, "data: [DON"], Err(ErrorKind::Truncated)),
        // What was lost in mid-stream can't be known.
        (vec![r#"data: {"choices":[{"de"#, hi, "data: [DONE]"], Err(ErrorKind::Protocol)),
        (vec![hi, r#"data: {"choices":[}"#, "data: [DONE]"], Err(ErrorKind::Protocol)),
    ] {
        let body = lines.join("\n\n");
        match (decode(&body, usize::MAX), ends) {
            (Ok(reply), Ok(text)) => assert_eq!(reply.text(), text, "{body}"),
            (Err(failed), Err(kind)) => {
                assert_eq!(failed.error.kind, kind, "{body}");
                assert_eq!(failed.partial.text(), if lines.first() == Some(&hi) { "hi" } else { "" }, "{body}");
            }
            (got, _) => panic!("{body}: {got:?}"),
        }
    }
}

#[test]
fn every_prefix_of_a_stream_is_a_failure_that_keeps_what_came() {
    let body = stream([
        json!({"choices": [{"delta": {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}]}}]}),
        json!({"choices": [{"delta": {"content": "hé"}}]}),
        json!({"choices": [{"delta": {"tool_calls": [{"index": 1, "id": "x", "function": {"name": "now", "arguments": "{}"}}]}}]}),
    ]);
    let terminal = body.find("data: [DONE]").unwrap();
    for cut in (0..terminal + 11).filter(|cut| body.is_char_boundary(*cut)) {
        let failed = decode(&body[..cut], usize::MAX).unwrap_err();
        assert_eq!(failed.error.kind, ErrorKind::Truncated, "{}", &body[..cut]);
        assert_eq!(failed.partial.stop_reason, StopReason::Error);
    }
    let failed = decode(&body[..terminal], usize::MAX).unwrap_err();
    let signed = r#"thinking hm [{"signature":"s","text":"hm","type":"reasoning.text"}]"#;
    assert_eq!(shown(&failed.partial, &body), [signed, "text hé", "call x now {}"]);
}

#[test]
fn tokens_are_counted_once() {
    let usage = |usage: Value| json!({"choices": [], "usage": usage});
    for (behaviour, chunks, [input, cache_read, cache_write, output, reasoning]) in [
        (
            "cached tokens are a part of the prompt, reasoning of the completion",
            vec![usage(
                json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "prompt_tokens_details": {"cached_tokens": 80}, "completion_tokens_details": {"reasoning_tokens": 5}}),
            )],
            [20, 80, 0, 20, 5],
        ),
        (
            "a later null erases nothing",
            vec![
                usage(
                    json!({"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 80}}),
                ),
                usage(json!({"prompt_tokens": null, "completion_tokens": 30, "prompt_tokens_details": null})),
                usage(json!(null)),
            ],
            [20, 80, 0, 30, 0],
        ),
        (
            "counts in every chunk are the counts so far",
            vec![
                usage(json!({"prompt_tokens": 9, "completion_tokens": 1})),
                usage(json!({"prompt_tokens": 9, "completion_tokens": 2})),
            ],
            [9, 0, 0, 2, 0],
        ),
        (
            "more cached than prompted",
            vec![usage(json!({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}))],
            [0, 4, 0, 0, 0],
        ),
        (
            "in the choice",
            vec![json!({"choices": [{"delta": {}, "usage": {"prompt_tokens": 3, "cached_tokens": 1}}]})],
            [2, 1, 0, 0, 0],
        ),
        (
            "Groq",
            vec![json!({"choices": [], "x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 2}}})],
            [3, 0, 0, 2, 0],
        ),
        (
            "DeepSeek",
            vec![usage(json!({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5}))],
            [5, 4, 0, 0, 0],
        ),
        (
            "OpenRouter",
            vec![usage(
                json!({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3}}),
            )],
            [4, 2, 3, 0, 0],
        ),
        (
            "xAI counts reasoning besides, and the total tells",
            vec![usage(
                json!({"prompt_tokens": 165, "completion_tokens": 140, "total_tokens": 434, "completion_tokens_details": {"reasoning_tokens": 129}}),
            )],
            [165, 0, 0, 269, 129],
        ),
        (
            "numbers of other kinds",
            vec![usage(json!({"prompt_tokens": 3.0, "completion_tokens": -1, "total_tokens": "many"}))],
            [3, 0, 0, 0, 0],
        ),
    ] {
        let hi = json!({"choices": [{"delta": {"content": "hi"}}]});
        let mut expected = Usage::default();
        (expected.input, expected.cache_read, expected.cache_write) = (input, cache_read, cache_write);
        (expected.output, expected.reasoning) = (output, reasoning);
        assert_eq!(done(&stream([hi].into_iter().chain(chunks))).usage, expected, "{behaviour}");
    }
}

#[test]
fn an_error_in_a_stream_is_typed_and_keeps_what_came() {
    let data = |json: Value| format!("data: {json}\n\n");
    for (event, kind, message) in [
        (data(json!({"error": {"message": "m", "type": "overloaded_error"}})), ErrorKind::Overloaded, "m"),
        (data(json!({"error": {"message": "m", "code": 429}})), ErrorKind::RateLimited, "m"),
        (data(json!({"error": "m"})), ErrorKind::Server, "m"),
        (data(json!([{"error": {"message": "m", "status": "UNAVAILABLE"}}])), ErrorKind::Overloaded, "m"),
        (
            data(
                json!({"error": {"message": "m", "code": 502}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}),
            ),
            ErrorKind::Server,
            "m",
        ),
        (
            data(
                json!({"choices": [{"delta": {}, "finish_reason": "error", "error": {"message": "m", "code": "rate_limit_exceeded"}}]}),
            ),
            ErrorKind::RateLimited,
            "m",
        ),
        (
            data(json!({"object": "error", "message": "m", "type": "InternalServerError", "code": 500})),
            ErrorKind::Server,
            "m",
        ),
        (
            data(json!({"x_groq": {"id": "req_1", "error": "over_capacity"}, "choices": []})),
            ErrorKind::Overloaded,
            "over_capacity",
        ),
        (
            data(json!({"base_resp": {"status_code": 1002, "status_msg": "m"}, "choices": null})),
            ErrorKind::RateLimited,
            "m",
        ),
        (format!("event: error\n{}", data(json!({"message": "m", "code": "invalid_api_key"}))), ErrorKind::Auth, "m"),
        ("event: error\ndata: m\n\n".into(), ErrorKind::Server, "m"),
    ] {
        let body = format!("{}{event}data: [DONE]\n\n", data(json!({"choices": [{"delta": {"content": "hi"}}]})));
        let failed = decode(&body, usize::MAX).unwrap_err();
        assert_eq!((failed.error.kind, &*failed.error.message), (kind, message), "{event}");
        assert_eq!(failed.partial.text(), "hi", "{event}");
    }
    // What says nothing is no error.
    let fine = json!({"error": null, "base_resp": {"status_code": 0, "status_msg": ""}, "choices": [{"error": null, "delta": {"content": "hi"}}]});
    assert_eq!(done(&stream([fine])).text(), "hi");
}

#[test]
fn a_plain_response_is_read_like_a_stream() {
    let message = json!({
        "content": "hi",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "read", "arguments": "{\"a\":1}"}},
            {"id": "y", "type": "function", "function": {"name": "read", "arguments": "{\"a\":2}"}},
        ],
    });
    let body = json!({
        "id": "c1",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    });
    for body in [body.to_string(), format!("\n{body:#}\n")] {
        let reply = done(&body);
        assert_eq!(
            shown(&reply, &body),
            ["thinking hm", "text hi", r#"call x read {"a":1}"#, r#"call y read {"a":2}"#]
        );
        assert_eq!((reply.stop_reason, reply.response_id.as_deref()), (StopReason::ToolUse, Some("c1")));
        assert_eq!((reply.usage.input, reply.usage.output), (3, 2));
    }
    for (body, kind) in [
        (r#"{"error":{"message":"m","type":"overloaded_error"}}"#, ErrorKind::Overloaded),
        (r#"{"detail":"m"}"#, ErrorKind::Server),
        (r#"{"id":"c1","choices":[{"mess"#, ErrorKind::Truncated),
        ("<html><h1>Welcome</h1></html>", ErrorKind::Protocol),
    ] {
        assert_eq!(decode(body, usize::MAX).unwrap_err().error.kind, kind, "{body}");
    }
}

/// The blocks in short. An id that the host did not write is `fresh`.
fn shown(reply: &AssistantMessage, body: &str) -> Vec<String> {
    let signed = |signature: &Option<String>| signature.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
    let mut seen = Vec::new();
    let mut show = |block: &Block| match block {
        Block::Text(text) => format!("text {}", text.text),
        Block::Thinking(it) if it.redacted => format!("redacted{}", signed(&it.signature)),
        Block::Thinking(it) => format!("thinking {}{}", it.thinking, signed(&it.signature)),
        Block::ToolCall(call) => {
            let written =
                body.contains(&format!("\"id\":\"{}\"", call.id)) || body.contains(&format!("\"id\": \"{}\"", call.id));
            let id = if written && !seen.contains(&call.id) { &*call.id } else { "fresh" };
            seen.push(call.id.clone());
            let signature = call.signature.as_ref().map(|it| format!(" [{it}]")).unwrap_or_default();
            format!("call {id} {} {}{signature}", call.name, call.arguments.as_str())
        }
        Block::Image(image) => format!("image {} {}", image.media_type, image.base64()),
        Block::Opaque(opaque) => format!("opaque {}", opaque.raw.as_str()),
        other => format!("{other:?}"),
    };
    reply.content.iter().map(&mut show).collect()
}
