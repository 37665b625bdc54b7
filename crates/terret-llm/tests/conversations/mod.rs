//! Conversations of every kind, and what they are made of.

use proptest::prelude::*;
use terret_llm::wire::WireFormat;
use terret_llm::{
    AssistantMessage, Block, Content, Image, Message, Opaque, RawJson, StopReason, Text, Thinking, ToolCall,
    ToolResultMessage, Usage, UserMessage,
};

/// A model that is not the one that is asked.
pub(crate) const FOREIGN: (&str, &str, &str) = ("openai", "gpt", "openai-completions");

/// Messages in any order, with so few ids and names that they meet.
pub(crate) fn conversation() -> impl Strategy<Value = Vec<Message>> {
    use StopReason::*;
    let long = "a".repeat(64);
    let ids = ["", "c1", "c2", "a|b", "a_b", &format!("{long}x"), &format!("{long}y")].map(str::to_owned);
    let id = prop::sample::select(ids.to_vec());
    let name = prop::sample::select(vec!["read".to_owned(), "".into(), "bad name!".into(), "n".repeat(65)]);
    let text = prop::sample::select(vec!["", " \n", "\0", "hi", " hi "]);
    let signature = prop::option::of(prop::sample::select(vec!["s".to_owned(), "t".into(), r#"{"id":"m1"}"#.into()]));
    let arguments = prop::sample::select(vec!["{}", r#"{"a":1}"#, r#"{"a":"#, "[1]", "7", "{} {}"]);
    let block = prop_oneof![
        (text.clone(), signature.clone(), any::<bool>()).prop_map(|(text, signature, annotated)| {
            let annotations = annotated.then(|| RawJson::parse("[]").unwrap());
            Block::Text(Text { text: text.into(), signature, annotations })
        }),
        (text.clone(), signature.clone(), any::<bool>()).prop_map(|(text, signature, redacted)| {
            Block::Thinking(Thinking { thinking: text.into(), signature, redacted })
        }),
        Just(Block::Image(image())),
        prop::sample::select(vec![r#"{"type":"x"}"#, r#""{\"ty""#]).prop_map(opaque),
        (id.clone(), name.clone(), arguments, signature).prop_map(|(id, name, arguments, signature)| {
            Block::ToolCall(ToolCall { signature, ..ToolCall::new(id, name, arguments) })
        }),
    ];
    let content = prop::collection::vec(prop_oneof![text.prop_map(Content::text), Just(Content::Image(image()))], 0..3);
    let who = prop::sample::select(vec![
        ("anthropic", "claude", "anthropic-messages"),
        ("anthropic", "claude", "openai-completions"),
        ("anthropic", "claude", "openai-responses"),
        ("anthropic", "claude", "google-generative-ai"),
        ("anthropic", "other", "anthropic-messages"),
        FOREIGN,
    ]);
    let reason = prop::sample::select(vec![Stop, ToolUse, ToolUse, Length, Error, Aborted]);
    let message = prop_oneof![
        content.clone().prop_map(|content| UserMessage { content, timestamp: 0 }.into()),
        (prop::collection::vec(block, 0..4), who, reason)
            .prop_map(|(blocks, who, reason)| stopped(reason, by(who, reply(blocks)))),
        (id, name, content, any::<bool>()).prop_map(|(id, tool_name, content, is_error)| {
            ToolResultMessage { tool_name, content, is_error, ..of_tool(&id, "") }.into()
        }),
    ];
    prop::collection::vec(message, 0..12)
}

/// A reply of the target's own.
pub(crate) fn reply(content: impl Into<Vec<Block>>) -> Message {
    AssistantMessage {
        content: content.into(),
        provider: "anthropic".into(),
        model: "claude".into(),
        wire: WireFormat::AnthropicMessages,
        stop_reason: StopReason::Stop,
        raw_stop_reason: None,
        usage: Usage::default(),
        response_id: None,
        error: None,
        timestamp: 0,
    }
    .into()
}

pub(crate) fn by((provider, model, wire): (&str, &str, &str), message: Message) -> Message {
    let Message::Assistant(reply) = message else { panic!("not a reply: {message:?}") };
    AssistantMessage { provider: provider.into(), model: model.into(), wire: wire.into(), ..reply }.into()
}

pub(crate) fn stopped(stop_reason: StopReason, message: Message) -> Message {
    let Message::Assistant(reply) = message else { panic!("not a reply: {message:?}") };
    AssistantMessage { stop_reason, ..reply }.into()
}

pub(crate) fn opaque(raw: &str) -> Block {
    Block::Opaque(Opaque { wire: WireFormat::AnthropicMessages, raw: RawJson::parse(raw).unwrap() })
}

pub(crate) fn image() -> Image {
    Image::new("image/png", b"png")
}

pub(crate) fn of_tool(id: &str, text: &str) -> ToolResultMessage {
    ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: "read".into(),
        content: vec![Content::text(text)],
        details: None,
        is_error: false,
        timestamp: 0,
    }
}
