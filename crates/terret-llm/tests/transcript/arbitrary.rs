//! Messages of every shape that the types allow.

use std::time::Duration;

use proptest::prelude::*;
use terret_llm::wire::WireFormat;
use terret_llm::{
    AssistantMessage, Block, Content, ErrorKind, Image, Message, ModelError, Opaque, RawJson, StopReason, Text,
    Thinking, ToolCall, ToolResultMessage, Usage, UserMessage,
};

/// Any message.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (contents(), any::<i64>()).prop_map(|(content, timestamp)| UserMessage { content, timestamp }.into()),
        assistant().prop_map(Message::from),
        tool_result().prop_map(Message::from),
    ]
}

fn assistant() -> impl Strategy<Value = AssistantMessage> {
    let blocks = prop::collection::vec(block(), 0..4);
    let origin = (any::<String>(), any::<String>(), wire());
    let stop = (stop_reason(), maybe_string());
    let rest = (usage(), maybe_string(), prop::option::of(error()), any::<i64>());
    (blocks, origin, stop, rest).prop_map(|(content, (provider, model, wire), (stop_reason, raw_stop_reason), rest)| {
        let (usage, response_id, error, timestamp) = rest;
        AssistantMessage {
            content,
            provider: provider.into(),
            model: model.into(),
            wire,
            stop_reason,
            raw_stop_reason,
            usage,
            response_id,
            error: error.map(Box::new),
            timestamp,
        }
    })
}

fn tool_result() -> impl Strategy<Value = ToolResultMessage> {
    let names = (any::<String>(), any::<String>());
    (names, contents(), prop::option::of(raw_json()), any::<bool>(), any::<i64>()).prop_map(
        |((tool_call_id, tool_name), content, details, is_error, timestamp)| ToolResultMessage {
            tool_call_id,
            tool_name,
            content,
            details,
            is_error,
            timestamp,
        },
    )
}

fn block() -> impl Strategy<Value = Block> {
    let thinking = (any::<String>(), maybe_string(), any::<bool>())
        .prop_map(|(thinking, signature, redacted)| Thinking { thinking, signature, redacted });
    let call = (any::<String>(), any::<String>(), arguments(), maybe_string())
        .prop_map(|(id, name, text, signature)| ToolCall { signature, ..ToolCall::new(id, name, text) });
    prop_oneof![
        text().prop_map(Block::Text),
        thinking.prop_map(Block::Thinking),
        image().prop_map(Block::Image),
        call.prop_map(Block::ToolCall),
        (wire(), raw_json()).prop_map(|(wire, raw)| Block::Opaque(Opaque { wire, raw })),
    ]
}

fn contents() -> impl Strategy<Value = Vec<Content>> {
    let content = prop_oneof![text().prop_map(Content::Text), image().prop_map(Content::Image)];
    prop::collection::vec(content, 0..4)
}

fn text() -> impl Strategy<Value = Text> {
    (any::<String>(), maybe_string(), prop::option::of(raw_json())).prop_map(|(text, signature, annotations)| Text {
        text,
        signature,
        annotations,
    })
}

fn image() -> impl Strategy<Value = Image> {
    (any::<String>(), any::<Vec<u8>>()).prop_map(|(media_type, bytes)| Image::new(media_type, &bytes))
}

fn usage() -> impl Strategy<Value = Usage> {
    any::<[u64; 6]>().prop_map(|[input, cache_read, cache_write, cache_write_long, output, reasoning]| {
        let mut usage = Usage::default();
        (usage.input, usage.cache_read, usage.output, usage.reasoning) = (input, cache_read, output, reasoning);
        (usage.cache_write, usage.cache_write_long) = (cache_write, cache_write_long);
        usage
    })
}

fn error() -> impl Strategy<Value = ModelError> {
    use ErrorKind::*;
    let kind = prop::sample::select(vec![
        Auth,
        Permission,
        RateLimited,
        Quota,
        Overloaded,
        Server,
        ContextOverflow,
        InvalidRequest,
        NotFound,
        Refused,
        Network,
        Stalled,
        Truncated,
        Protocol,
        Aborted,
    ]);
    let wait = prop::option::of(any::<u64>().prop_map(Duration::from_millis));
    (kind, any::<String>(), prop::option::of(any::<u16>()), maybe_string(), maybe_string(), wait).prop_map(
        |(kind, message, status, code, request_id, retry_after)| {
            let mut error = ModelError::new(kind, message);
            (error.status, error.code, error.request_id, error.retry_after) = (status, code, request_id, retry_after);
            error
        },
    )
}

fn wire() -> impl Strategy<Value = WireFormat> {
    const KNOWN: [&str; 4] = ["anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"];
    let name = prop_oneof![prop::sample::select(&KNOWN[..]).prop_map(str::to_owned), any::<String>()];
    name.prop_map(|name| WireFormat::from(name.as_str()))
}

fn stop_reason() -> impl Strategy<Value = StopReason> {
    use StopReason::*;
    prop::sample::select(vec![Stop, Length, ToolUse, Pause, Refusal, Error, Aborted])
}

fn maybe_string() -> impl Strategy<Value = Option<String>> {
    prop::option::of(any::<String>())
}

fn raw_json() -> impl Strategy<Value = RawJson> {
    json_text().prop_map(|text| RawJson::parse(&text).unwrap())
}

/// JSON, JSON that was cut off, and any text at all.
fn arguments() -> impl Strategy<Value = String> {
    let cut_off = (json_text(), any::<prop::sample::Index>())
        .prop_map(|(text, end)| text.chars().take(end.index(text.chars().count())).collect());
    prop_oneof![json_text(), cut_off, any::<String>()]
}

/// JSON texts of every shape, with odd spacing, odd numbers, odd escapes and repeated keys.
fn json_text() -> impl Strategy<Value = String> {
    let number = prop::sample::select(vec!["0", "-0", "1e999", "12345678901234567890123.450", "1E-7"]);
    let escape = prop::sample::select(vec!["\\n", "\\u0000", "\\ud83d", "\\ud83d\\ude00", "\\\"", "\\/", "é", "😀"]);
    let string = prop::collection::vec(prop_oneof![escape.prop_map(str::to_owned), "[ -!#-\\[\\]-~]{0,3}"], 0..4)
        .prop_map(|pieces| format!("\"{}\"", pieces.concat()));
    let key = prop::sample::select(vec!["\"a\"", "\"b\"", "\"\\u0061\"", "\"\""]);
    let leaf = prop_oneof![Just("null".to_owned()), Just("true".to_owned()), number.prop_map(str::to_owned), string];
    let spaced = |value: BoxedStrategy<String>| {
        (space(), value, space()).prop_map(|(before, value, after)| format!("{before}{value}{after}"))
    };
    let value = leaf.prop_recursive(4, 24, 4, move |inner| {
        let member = (spaced(key.clone().prop_map(str::to_owned).boxed()), spaced(inner.clone()))
            .prop_map(|(key, value)| format!("{key}:{value}"));
        prop_oneof![
            prop::collection::vec(spaced(inner), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    });
    spaced(value.boxed())
}

fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", " ", "\n", "\r\n", "\t "])
}
