//! What the hosts are sent.

use serde_json::{Value, json};
use terret_llm::wire::{EncodeError, Encoded, WireFormat};
use terret_llm::{Compat, Message, ModelSpec, Request, SchemaSupport, ThinkingSwitch};

use crate::{done, stream};

/// What a host differs in from the wire.
type Differ = fn(&mut Compat);

#[test]
fn a_conversation_is_written_in_full() {
    let request = json!({
        "system": "Be brief.",
        "messages": [
            user(json!([text("look"), image()])),
            reply(json!([thinking("hm"), text("let "), text("me"), call("c1", "read", json!({"path": "a"})), call("c2", "now", json!({}))])),
            result("c1", json!([text("one"), text("two"), image()])),
            result("c2", json!([image()])),
            user(json!([text("and?")])),
            reply(json!([text("done")])),
            user(json!([text("a"), text("b")])),
        ],
        "tools": [{"name": "now", "description": "", "parameters": {"type": "object"}}, read_tool()],
    });
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    assert_eq!(
        body(&model(), &request),
        json!({
            "model": "gpt",
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [
                {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
                {"type": "function", "function": {"name": "read", "description": "Reads", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}},
            ],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
                {"role": "assistant", "content": "let me", "tool_calls": [
                    {"id": "c1", "type": "function", "function": function("read", r#"{"path":"a"}"#)},
                    {"id": "c2", "type": "function", "function": function("now", "{}")},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
                {"role": "tool", "tool_call_id": "c2", "content": "(see the images below)"},
                {"role": "user", "content": [
                    {"type": "text", "text": "Images of the result of c1:"}, picture,
                    {"type": "text", "text": "Images of the result of c2:"}, picture,
                ]},
                {"role": "user", "content": "and?"},
                {"role": "assistant", "content": "done"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            ],
        })
    );
    assert_eq!(encode(&model(), &request).unwrap().path, "/chat/completions");
}

/// Each row: an option, what the host differs in, and the fields that the option becomes.
#[test]
fn options_become_fields() {
    let plain = |_: &mut Compat| {};
    let strict = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    let loose = json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}});
    let schema = |schema: &Value| json!({"outputSchema": {"name": "answer", "schema": schema}});
    let format = |format: Value| json!({"response_format": {"type": "json_schema", "json_schema": format}});
    let rows: Vec<(Value, Differ, Value)> = vec![
        (json!({"maxOutputTokens": 9}), plain, json!({"max_tokens": 9})),
        (json!({"maxOutputTokens": 9}), |it| it.max_completion_tokens = true, json!({"max_completion_tokens": 9})),
        (json!({"temperature": 0.5}), plain, json!({"temperature": 0.5})),
        (json!({"topP": 0.5}), plain, json!({"top_p": 0.5})),
        (json!({"topK": 5}), |it| it.top_k = true, json!({"top_k": 5})),
        (json!({"stop": ["a", "b"]}), plain, json!({"stop": ["a", "b"]})),
        (json!({"seed": 7}), plain, json!({"seed": 7})),
        (json!({"seed": 7}), |it| it.seed_field = "random_seed", json!({"random_seed": 7})),
        (json!({"toolChoice": "auto"}), plain, json!({"tool_choice": "auto"})),
        (json!({"toolChoice": "none"}), plain, json!({"tool_choice": "none"})),
        (json!({"toolChoice": "required"}), plain, json!({"tool_choice": "required"})),
        (
            json!({"toolChoice": {"tool": "read"}}),
            plain,
            json!({"tool_choice": {"type": "function", "function": {"name": "read"}}}),
        ),
        (json!({"parallelToolCalls": false}), plain, json!({"parallel_tool_calls": false})),
        (json!({"effort": "off"}), plain, json!({"reasoning_effort": "none"})),
        (json!({"effort": "minimal"}), plain, json!({"reasoning_effort": "minimal"})),
        (json!({"effort": "xhigh"}), plain, json!({"reasoning_effort": "xhigh"})),
        (json!({"effort": "max"}), plain, json!({"reasoning_effort": "max"})),
        (
            json!({"effort": "high"}),
            |it| it.thinking_switch = Some(ThinkingSwitch::Thinking),
            json!({"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ),
        (
            json!({"effort": "off"}),
            |it| it.thinking_switch = Some(ThinkingSwitch::Thinking),
            json!({"thinking": {"type": "disabled"}}),
        ),
        (
            json!({"effort": "low"}),
            |it| (it.thinking_switch, it.reasoning_effort) = (Some(ThinkingSwitch::EnableThinking), false),
            json!({"enable_thinking": true}),
        ),
        (
            json!({"effort": "off"}),
            |it| it.thinking_switch = Some(ThinkingSwitch::ChatTemplate),
            json!({"chat_template_kwargs": {"enable_thinking": false}}),
        ),
        (
            json!({"effort": "off"}),
            |it| it.thinking_switch = Some(ThinkingSwitch::Reasoning),
            json!({"reasoning": {"effort": "none"}}),
        ),
        (json!({"cacheKey": "k"}), |it| it.prompt_cache_key = true, json!({"prompt_cache_key": "k"})),
        (
            json!({"cacheKey": "ké".repeat(40)}),
            |it| it.prompt_cache_key = true,
            json!({"prompt_cache_key": "ké".repeat(32)}),
        ),
        (json!({"cache": "long"}), |it| it.prompt_cache_retention = true, json!({"prompt_cache_retention": "24h"})),
        (json!({"cache": "short"}), |it| it.prompt_cache_retention = true, json!({})),
        // Hints at most: a host that knows neither only caches less well.
        (json!({"cacheKey": "k", "cache": "long"}), plain, json!({})),
        (schema(&strict), plain, format(json!({"name": "answer", "strict": true, "schema": strict}))),
        (
            schema(&strict),
            |it| it.output_schema = SchemaSupport::Plain,
            format(json!({"name": "answer", "schema": strict})),
        ),
        (schema(&loose), plain, format(json!({"name": "answer", "schema": loose}))),
    ];
    for (options, differ, fields) in rows {
        let mut expected = json!({
            "model": "gpt",
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "read", "description": "Reads", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}],
            "messages": [{"role": "user", "content": "hi"}],
        });
        expected.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let request = json!({"messages": [user(json!([text("hi")]))], "tools": [read_tool()], "options": options});
        assert_eq!(body(&model_that(differ), &request), expected, "{options}");
    }
}

#[test]
fn what_a_host_or_the_wire_cannot_say_is_an_error() {
    let rows: Vec<(Value, Differ, &str)> = vec![
        (json!({"topK": 5}), |_| {}, "top_k"),
        (json!({"effort": "low"}), |it| it.reasoning_effort = false, "effort"),
        (
            json!({"outputSchema": {"name": "a", "schema": {}}}),
            |it| it.output_schema = SchemaSupport::None,
            "output_schema",
        ),
        (json!({"toolChoice": "required"}), |_| {}, "tool_choice"),
        (json!({"parallelToolCalls": false}), |_| {}, "parallel_tool_calls"),
    ];
    for (options, differ, expected) in rows {
        let request = json!({"messages": [user(json!([text("hi")]))], "options": options});
        let error = encode(&model_that(differ), &request).unwrap_err();
        assert!(matches!(error, EncodeError::Unsupported { option, .. } if option == expected), "{options}: {error}");
    }
    assert_eq!(encode(&model(), &json!({"system": "Be brief.", "messages": []})), Err(EncodeError::NoMessages));
}

/// Each row: what the host differs in, and the messages of the same conversation there.
#[test]
fn hosts_differ() {
    let request = json!({
        "system": "Be brief.",
        "messages": [
            user(json!([text("hi")])),
            reply(json!([thinking("hm"), call("c1", "now", json!({}))])),
            result("c1", json!([text("1")])),
            user(json!([text("and?")])),
        ],
        "options": {"cacheKey": "k"},
    });
    let rows: Vec<(Differ, &str, Value)> = vec![
        (|it| it.stream_usage = false, "/stream_options", Value::Null),
        (|it| it.developer_role = true, "/messages/0/role", json!("developer")),
        (|_| {}, "/messages/2", json!({"role": "assistant", "content": null, "tool_calls": calls()})),
        (|it| it.null_content = false, "/messages/2/content", json!("")),
        (|it| it.reasoning_field = Some("reasoning_content"), "/messages/2/reasoning_content", json!("hm")),
        (
            |it| it.tool_result_name = true,
            "/messages/3",
            json!({"role": "tool", "tool_call_id": "c1", "name": "now", "content": "1"}),
        ),
        (|it| it.reply_after_tool_result = true, "/messages/4/role", json!("assistant")),
        (|it| it.reply_after_tool_result = true, "/messages/5/content", json!("and?")),
        (|_| {}, "/tools", Value::Null),
        (|it| it.tools_with_history = true, "/tools", json!([])),
        (
            |it| it.cache_control = true,
            "/messages/0/content",
            json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]),
        ),
        (|it| it.cache_control = true, "/messages/1/content", json!("hi")),
        (
            |it| it.cache_control = true,
            "/messages/4/content",
            json!([{"type": "text", "text": "and?", "cache_control": {"type": "ephemeral"}}]),
        ),
    ];
    for (row, (differ, pointer, expected)) in rows.into_iter().enumerate() {
        let body = body(&model_that(differ), &request);
        assert_eq!(body.pointer(pointer).unwrap_or(&Value::Null), &expected, "row {row}: {body:#}");
    }
    let headers = |differ: Differ| encode(&model_that(differ), &request).unwrap().headers;
    assert_eq!(headers(|_| {}), []);
    assert_eq!(headers(|it| it.affinity_header = Some("x-grok-conv-id")), [("x-grok-conv-id", "k".to_owned())]);

    let silent = json!({"messages": [user(json!([text("hi")])), reply(json!([text("a")])), user(json!([text("b")]))]});
    let differ = |it: &mut Compat| (it.reasoning_field, it.reasoning_field_always) = (Some("reasoning_content"), true);
    assert_eq!(
        body(&model_that(differ), &silent)["messages"][1],
        json!({"role": "assistant", "content": "a", "reasoning_content": ""})
    );
}

#[test]
fn what_is_opaque_goes_back_to_the_model_that_wrote_it() {
    let stream = stream([
        json!({"choices": [{"delta": {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "h", "index": 0}]}}]}),
        json!({"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.text", "text": "m", "signature": "s", "index": 0}]}}]}),
        json!({"choices": [{"delta": {"content": [{"type": "text", "text": "see"}, {"type": "reference", "n": 1}]}}]}),
        json!({"choices": [{"delta": {"tool_calls": [{"id": "functions.now:0", "function": {"name": "now", "arguments": "{ }"}, "extra_content": {"google": {"thought_signature": "s"}}}]}}]}),
    ]);
    let mut request = Request::default();
    request.messages.push(serde_json::from_value::<Message>(user(json!([text("hi")]))).unwrap());
    request.messages.push(Message::from(done(&stream)));
    let mut model = ModelSpec::new("host", "model", WireFormat::OpenaiCompletions);
    let encoded = model.wire.wire().unwrap().encode(&model, &request).unwrap();
    let body: Value = serde_json::from_slice(&encoded.body.to_bytes()).unwrap();
    assert_eq!(
        body["messages"][1],
        json!({
            "role": "assistant",
            "content": [{"type": "text", "text": "see"}, {"type": "reference", "n": 1}],
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}],
            "tool_calls": [{
                "id": "functions.now:0",
                "type": "function",
                "function": {"name": "now", "arguments": "{ }"},
                "extra_content": {"google": {"thought_signature": "s"}},
            }],
        })
    );
    model.id = "other".into();
    model.provider = "other".into();
    let encoded = model.wire.wire().unwrap().encode(&model, &request).unwrap();
    let body: Value = serde_json::from_slice(&encoded.body.to_bytes()).unwrap();
    assert_eq!(body["messages"][1]["content"], "see");
    assert_eq!(body["messages"][1].as_object().unwrap().keys().collect::<Vec<_>>(), ["content", "role", "tool_calls"]);
}

#[test]
fn a_request_up_to_its_last_message_is_a_prefix_of_the_next() {
    let messages = [
        user(json!([text("hi"), image()])),
        reply(json!([thinking("hm"), text("let me"), call("c1", "now", json!({})), call("c2", "now", json!({}))])),
        result("c1", json!([text("1"), image()])),
        result("c2", json!([text("2")])),
        reply(json!([call("c3", "now", json!({}))])),
        result("c3", json!([image()])),
        user(json!([text("and?")])),
        reply(json!([text("done")])),
        user(json!([text("thanks")])),
    ];
    let models =
        [model(), model_that(|it| (it.reply_after_tool_result, it.reasoning_field) = (true, Some("reasoning")))];
    for model in &models {
        // Requests are made when all calls have their results.
        let requests: Vec<Vec<u8>> = [1, 4, 6, 7, 9]
            .map(|count| json!({"system": "s", "messages": messages[..count], "tools": [read_tool()]}))
            .map(|request| encode(model, &request).unwrap().body.to_bytes().to_vec())
            .into();
        for pair in requests.windows(2) {
            let [before, after] = pair else { unreachable!() };
            let end = before.strip_suffix(b"]}").unwrap();
            assert!(after.starts_with(end), "{}\n{}", String::from_utf8_lossy(before), String::from_utf8_lossy(after));
        }
    }
}

fn model() -> ModelSpec {
    ModelSpec::new("openai", "gpt", WireFormat::OpenaiCompletions)
}

fn model_that(differ: impl Fn(&mut Compat)) -> ModelSpec {
    let mut model = model();
    differ(&mut model.compat);
    model
}

fn encode(model: &ModelSpec, request: &Value) -> Result<Encoded, EncodeError> {
    model.wire.wire().unwrap().encode(model, &serde_json::from_value(request.clone()).unwrap())
}

fn body(model: &ModelSpec, request: &Value) -> Value {
    serde_json::from_slice(&encode(model, request).unwrap().body.to_bytes()).unwrap()
}

fn user(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

fn reply(content: Value) -> Value {
    json!({"role": "assistant", "provider": "openai", "model": "gpt", "wire": "openai-completions", "content": content})
}

fn result(id: &str, content: Value) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "now", "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn thinking(thinking: &str) -> Value {
    json!({"type": "thinking", "thinking": thinking})
}

fn image() -> Value {
    json!({"type": "image", "mediaType": "image/png", "data": "AAAA"})
}

fn call(id: &str, name: &str, arguments: Value) -> Value {
    json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments})
}

fn calls() -> Value {
    json!([{"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}])
}

fn read_tool() -> Value {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    json!({"name": "read", "description": "Reads", "parameters": parameters})
}
