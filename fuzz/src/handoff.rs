//! Any conversation, to any model: handoff keeps its rules, and what is encoded after it is a sound body or a typed error.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::IgnoredAny;
use terret_llm::wire::{Encoder, WireFormat, handoff};
use terret_llm::{
    AssistantMessage, Block, CallIdRule, Content, Message, ModelSpec, Options, Request, StopReason, Transcript,
};

use crate::{body, made};

pub(crate) const WIRES: [WireFormat; 4] = [
    WireFormat::AnthropicMessages,
    WireFormat::OpenaiCompletions,
    WireFormat::OpenaiResponses,
    WireFormat::GoogleGenerativeAi,
];

pub(crate) fn check(data: &[u8]) {
    let Ok(made::Case { request, target }) = made::case(data) else { return };
    let whole = check_request(&request, &target);
    leaks_nothing(&request.messages, &target, whole.as_deref());

    // As the conversation grows: what stands stays, and an encoder that remembers writes what one without memory does.
    let accepted = but_results(&handoff(&request.messages, &target));
    let encoder = Encoder::new(target.clone());
    for end in 0..=request.messages.len() {
        let start = Transcript::from_iter(request.messages[..end].iter().cloned());
        let start = Request { messages: start, ..request.clone() };
        let known = but_results(&handoff(&start.messages, &target));
        assert_eq!(known, accepted[..known.len()], "the first {end} messages");
        assert_eq!(encoder.encode(&start), target.wire.wire().unwrap().encode(&target, &start), "{end} messages");
    }
}

/// Checks what this conversation becomes for a target.
pub(crate) fn check_for(transcript: &Transcript, target: &ModelSpec, options: &Options) {
    check_request(&Request { messages: transcript.clone(), options: options.clone(), ..Request::default() }, target);
}

fn check_request(request: &Request, target: &ModelSpec) -> Option<Vec<u8>> {
    let accepted = handoff(&request.messages, target);
    check_accepted(&accepted, target);
    let once = Transcript::from_iter(accepted.iter().map(|message| message.clone().into_owned()));
    for message in handoff(&once, target) {
        assert!(matches!(message, Cow::Borrowed(_)), "changed again: {message:?}");
    }
    match target.wire.wire().unwrap().encode(target, request) {
        Ok(encoded) => {
            let body = encoded.body.to_bytes().to_vec();
            assert_eq!(body.len(), encoded.body.len());
            body::check(&target.wire, &body);
            Some(body)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn check_accepted(accepted: &[Cow<'_, Message>], target: &ModelSpec) {
    assert!(accepted.first().is_none_or(|first| matches!(**first, Message::User(_))));
    let mut ids = HashSet::new();
    let mut open: Vec<(&str, &str)> = Vec::new();
    for message in accepted {
        match &**message {
            Message::User(user) => {
                assert!(open.is_empty(), "no result for {open:?}");
                has_something(&user.content, target);
            }
            Message::Assistant(reply) => {
                assert!(open.is_empty(), "no result for {open:?}");
                check_reply(reply, target);
                for call in reply.tool_calls() {
                    assert!(ids.insert(&call.id), "{} twice", call.id);
                    open.push((&call.id, &call.name));
                }
            }
            Message::ToolResult(result) => {
                assert!(!open.is_empty(), "a result without a call");
                assert_eq!(open.remove(0), (&*result.tool_call_id, &*result.tool_name));
                has_something(&result.content, target);
            }
        }
    }
    assert!(open.is_empty(), "no result for {open:?}");
}

fn check_reply(reply: &AssistantMessage, target: &ModelSpec) {
    let own = reply.provider == target.provider && reply.model == target.id && reply.wire == target.wire;
    assert!(!matches!(reply.stop_reason, StopReason::Error | StopReason::Aborted));
    assert!(reply.content.iter().any(|block| !matches!(block, Block::Thinking(_))));
    for block in &reply.content {
        match block {
            Block::Text(text) => {
                assert!(own || (text.signature.is_none() && text.annotations.is_none()));
                assert!(text.signature.is_some() || !text.text.trim().is_empty());
            }
            Block::Thinking(_) => assert!(own),
            Block::Image(_) => assert!(target.images && target.wire == WireFormat::GoogleGenerativeAi),
            Block::Opaque(opaque) => {
                assert!(opaque.wire == target.wire && reply.provider == target.provider);
                assert!(opaque.raw.as_str().starts_with('{'));
            }
            Block::ToolCall(call) => {
                assert!(own || call.signature.is_none());
                let rule = target.compat.call_id;
                let may_be_odd = own && matches!(rule, CallIdRule::AtMost(_)) && !call.id.is_empty();
                assert!(may_be_odd || is_legal(&call.id, rule), "{}", call.id);
                assert!((1..=64).contains(&call.name.len()));
                assert!(call.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
                let arguments = call.arguments.as_str();
                assert!(arguments.trim_start().starts_with('{') && is_json(arguments), "{arguments:?}");
            }
            other => panic!("a block of an unknown kind: {other:?}"),
        }
    }
}

/// However deep it is nested.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn has_something(content: &[Content], target: &ModelSpec) {
    assert!(!content.is_empty());
    for piece in content {
        assert!(piece.as_text().map_or(target.images, |text| !text.trim().is_empty()), "{piece:?}");
    }
}

fn is_legal(id: &str, rule: CallIdRule) -> bool {
    match rule {
        CallIdRule::AtMost(most) => {
            (1..=most).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        }
        CallIdRule::Exactly(length) => id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        _ => false,
    }
}

/// No signature in the body but the target's own.
fn leaks_nothing(messages: &Transcript, target: &ModelSpec, body: Option<&[u8]>) {
    let Some(body) = body else { return };
    for message in messages.iter() {
        let Message::Assistant(reply) = &**message else { continue };
        let own = reply.provider == target.provider && reply.model == target.id && reply.wire == target.wire;
        if !own {
            let secret = made::secret(&reply.provider, &reply.model, &reply.wire);
            assert!(memchr::memmem::find(body, secret.as_bytes()).is_none(), "{secret} of another model");
        }
    }
}

fn but_results(messages: &[Cow<'_, Message>]) -> Vec<Message> {
    let messages = messages.iter().filter(|message| !matches!(&***message, Message::ToolResult(_)));
    messages.cloned().map(Cow::into_owned).collect()
}
