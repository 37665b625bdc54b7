//! What an encoder remembers never shows in what it writes, and is not written again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod conversations;

use std::sync::Arc;

use conversations::{conversation, of_tool, reply, stopped};
use proptest::prelude::*;
use terret_llm::wire::{EncodeError, Encoder, WireFormat};
use terret_llm::{
    Block, CacheRetention, CallIdRule, Content, Image, Message, ModelSpec, Options, RawJson, Request, Segments,
    StopReason, ToolCall, ToolResultMessage, ToolSpec, Transcript, UserMessage,
};

/// What becomes of the conversations that share an encoder.
#[derive(Clone, Debug)]
struct Step {
    /// Which conversation.
    conversation: usize,
    /// Where it forks into another one, if it does.
    fork: Option<prop::sample::Index>,
    added: Vec<Message>,
    /// Whether the model is asked, and with which options.
    ask: Option<CacheRetention>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use CacheRetention::{None, Short};
    let fork = prop::option::weighted(0.2, any::<prop::sample::Index>());
    let ask = prop::option::weighted(0.8, prop::sample::select(vec![Short, Short, Short, None]));
    // Most steps add what an agent adds: a call's result, and what the model says to it.
    let turn = "[a-d]{1,2}".prop_map(|id| vec![calling(&id), of_tool(&id, "done").into()]);
    let added = prop_oneof![3 => turn, 2 => conversation(), 1 => Just(Vec::new())];
    let step = (0..3_usize, fork, added, ask).prop_map(|(conversation, fork, added, ask)| Step {
        conversation,
        fork,
        added,
        ask,
    });
    prop::collection::vec(step, 0..16)
}

fn targets() -> impl Strategy<Value = ModelSpec> {
    let wires = prop::sample::select(WIRES.to_vec());
    let rules = prop::sample::select(vec![CallIdRule::AtMost(64), CallIdRule::AtMost(20), CallIdRule::Exactly(9)]);
    (wires, rules, any::<[bool; 6]>()).prop_map(|(wire, rule, is)| {
        let id = if is[0] { "claude" } else { "gemini-2.5-pro" };
        let mut target = ModelSpec::new("anthropic", id, WireFormat::from(wire));
        target.images = is[1];
        target.compat.call_id = rule;
        target.compat.cache_marks = is[2];
        target.compat.cache_control = is[2];
        target.compat.reply_after_tool_result = is[3];
        target.compat.tools_with_history = is[4];
        target.compat.developer_role = is[5];
        target
    })
}

proptest! {
    #[test]
    fn what_is_remembered_never_shows(target in targets(), steps in steps()) {
        let encoder = Encoder::new(target.clone());
        let mut conversations = vec![Transcript::from_iter([UserMessage::text("go", 0)].map(Message::from)); 1];
        for Step { conversation, fork, added, ask } in steps {
            let mut at = conversation % conversations.len();
            if let Some(fork) = fork {
                let length = fork.index(conversations[at].len() + 1);
                conversations.push(conversations[at][..length].iter().cloned().collect());
                at = conversations.len() - 1;
            }
            conversations[at].extend(added);
            if let Some(cache) = ask {
                let mut request = ask_about(&conversations[at]);
                request.options.cache = cache;
                let expected = target.wire.wire().unwrap().encode(&target, &request);
                prop_assert_eq!(encoder.encode(&request), expected);
            }
        }
    }
}

#[test]
fn what_stands_is_shared_with_the_call_before() {
    for wire in WIRES {
        let encoder = Encoder::new(spec(wire));
        let mut messages = Transcript::from_iter([UserMessage::text("go", 0)].map(Message::from));
        let mut before = Segments::default();
        let (mut asked, mut new) = (0, 0);
        for turn in 0..500 {
            let body = encoder.encode(&ask_about(&messages)).unwrap().body;
            let addresses: Vec<_> = before.iter().map(|piece| piece.as_ptr()).collect();
            let unshared = body.iter().filter(|piece| !addresses.contains(&piece.as_ptr()));
            new += unshared.map(|piece| piece.len()).sum::<usize>();
            asked += body.len();
            assert!(body.iter().count() < 40, "{wire}: turn {turn}: {:?} pieces", body.iter().count());
            before = body;
            let id = format!("call_{turn}");
            messages.push(calling(&id));
            messages.push(Message::from(of_tool(&id, &"result ".repeat(300))));
        }
        assert!(asked > 250_000_000, "{wire}: {asked} bytes");
        assert!(new < 10_000_000, "{wire}: {new} of {asked} bytes were written anew");
    }
}

#[test]
fn an_image_is_never_copied() {
    let picture = Image::new("image/png", &[7; 1 << 20]);
    for wire in WIRES {
        let encoder = Encoder::new(spec(wire));
        let asked = UserMessage { content: vec![Content::text("?"), Content::Image(picture.clone())], timestamp: 0 };
        let mut messages = Transcript::from_iter([Message::from(asked)]);
        messages.push(calling("call_1"));
        let shot = vec![Content::Image(picture.clone())];
        messages.push(Message::from(ToolResultMessage { content: shot, ..of_tool("call_1", "") }));
        for turn in 0..3 {
            let request = ask_about(&messages);
            let body = encoder.encode(&request).unwrap().body;
            let pictures = body.iter().filter(|piece| piece.as_ptr() == picture.base64().as_ptr());
            assert_eq!(pictures.map(|piece| piece.len()).collect::<Vec<_>>(), [picture.base64().len(); 2], "{wire}");
            let model = spec(wire);
            assert_eq!(body, model.wire.wire().unwrap().encode(&model, &request).unwrap().body, "{wire}");
            let whole: serde_json::Value = serde_json::from_slice(&body.to_bytes()).unwrap();
            assert_eq!(whole.to_string().matches(picture.base64()).count(), 2, "{wire}");
            let id = format!("call_{turn}_more");
            messages.push(calling(&id));
            messages.push(Message::from(of_tool(&id, "done")));
        }
    }
}

#[test]
fn a_conversation_that_loses_its_last_messages_is_written_anew() {
    for wire in WIRES {
        let model = spec(wire);
        let encoder = Encoder::new(model.clone());
        let mut messages = vec![Arc::new(Message::from(UserMessage::text("go", 0)))];
        for turn in 0..4 {
            let id = format!("call_{turn}");
            messages.extend([calling(&id), of_tool(&id, "done").into()].map(Arc::new));
        }
        messages.push(Arc::new(stopped(StopReason::Pause, reply([Block::text("wait ")]))));
        for length in (1..=messages.len()).rev() {
            let request = ask_about(&messages[..length].iter().cloned().collect());
            assert_eq!(
                encoder.encode(&request),
                model.wire.wire().unwrap().encode(&model, &request),
                "{wire} {length}"
            );
        }
    }
}

#[test]
fn what_can_not_be_asked_is_the_same_error_each_time() {
    let encoder = Encoder::new(spec("anthropic-messages"));
    for _ in 0..2 {
        assert_eq!(encoder.encode(&ask_about(&Transcript::new())), Err(EncodeError::NoMessages));
    }
    let encoder = Encoder::new(spec("morse"));
    let go = Transcript::from_iter([Message::from(UserMessage::text("go", 0))]);
    assert_eq!(encoder.encode(&ask_about(&go)), Err(EncodeError::NoWire("morse".into())));
}

const WIRES: [&str; 4] = ["anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"];

fn spec(wire: &str) -> ModelSpec {
    let mut spec = ModelSpec::new("anthropic", "claude", WireFormat::from(wire));
    spec.compat.cache_marks = true;
    spec
}

fn ask_about(messages: &Transcript) -> Request {
    let parameters = RawJson::parse(r#"{"type":"object","properties":{}}"#).unwrap();
    let read = ToolSpec { name: "read".into(), description: "Reads.".into(), parameters };
    let options = Options::default();
    Request { system: Some("Be brief.".into()), messages: messages.clone(), tools: [read].into(), options }
}

fn calling(id: &str) -> Message {
    stopped(StopReason::ToolUse, reply([Block::ToolCall(ToolCall::new(id, "read", "{}"))]))
}
