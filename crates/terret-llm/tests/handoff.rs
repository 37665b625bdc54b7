//! What a transcript becomes before it goes to a model.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod conversations;

use std::borrow::Cow;
use std::collections::HashSet;

use conversations::{FOREIGN, by, conversation, image, of_tool, opaque, reply, stopped};
use proptest::prelude::*;
use terret_llm::wire::{WireFormat, handoff};
use terret_llm::{
    AssistantMessage, Block, CallIdRule, Content, Message, ModelSpec, Opaque, RawJson, StopReason, Text, Thinking,
    ToolCall, ToolResultMessage, Transcript, UserMessage,
};

#[test]
fn a_conversation_with_the_same_model_goes_back_as_it_is() {
    let hidden = Block::Thinking(Thinking { thinking: String::new(), signature: Some("s2".into()), redacted: true });
    let signed = Block::Text(Text { text: String::new(), signature: Some("s3".into()), annotations: None });
    let transcript = transcript([
        user("hi"),
        reply([thought("hm"), hidden, signed, Block::text("let me look"), call("functions.read:0", r#"{ "a" : 1 }"#)]),
        result("functions.read:0", "text"),
        reply([opaque(r#"{"type":"server_tool_use"}"#), Block::text("done")]),
        user("thanks"),
    ]);
    let accepted = handoff(&transcript, &target());
    assert!(accepted.iter().all(|message| matches!(message, Cow::Borrowed(_))));
    assert!(accepted.iter().map(|message| &**message).eq(transcript.iter().map(|message| &**message)));
}

#[test]
fn another_models_thinking_and_signatures_stay_behind() {
    let annotations = RawJson::parse("[1]").unwrap();
    let text = Text { text: "hi".into(), signature: Some("s".into()), annotations: Some(annotations) };
    let mut asked = ToolCall::new("c1", "read", "{}");
    asked.signature = Some("s".into());
    let blocks = [thought("hm"), Block::Text(text), Block::ToolCall(asked)];
    for other in [("anthropic", "other", "anthropic-messages"), ("other", "claude", "anthropic-messages")] {
        let transcript = transcript([user("hi"), by(other, reply(blocks.clone())), result("c1", "ok")]);
        let accepted = handoff(&transcript, &target());
        let Message::Assistant(reply) = &*accepted[1] else { panic!("{accepted:?}") };
        assert_eq!(reply.content, [Block::text("hi"), call("c1", "{}")], "of {other:?}");
    }
}

#[test]
fn opaque_blocks_go_back_to_the_service_that_wrote_them() {
    let whole = r#"{"type":"server_tool_use"}"#;
    let cut_off = r#""{\"type\":\"ser""#;
    for (who, raw, expected) in [
        (("anthropic", "claude", "anthropic-messages"), whole, "reply: opaque, text hi"),
        (("anthropic", "other", "anthropic-messages"), whole, "reply: opaque, text hi"),
        (("other", "claude", "anthropic-messages"), whole, "reply: text hi"),
        (("anthropic", "claude", "anthropic-messages"), cut_off, "reply: text hi"),
    ] {
        let reply = by(who, reply([opaque(raw), Block::text("hi")]));
        assert_eq!(shown(&[user("hi"), reply], &target())[1], expected, "{who:?} {raw}");
    }
    let elsewhere = target_that(|target| target.wire = WireFormat::OpenaiCompletions);
    assert_eq!(shown(&[user("hi"), reply([opaque(whole), Block::text("hi")])], &elsewhere)[1], "reply: text hi");
}

#[test]
fn a_block_of_a_known_kind_that_could_not_be_read_stays_behind() {
    for (wire, raw, stays) in [
        ("anthropic-messages", r#"{"type":"tool_use","id":7,"name":"read","input":{}}"#, true),
        ("anthropic-messages", r#"{"text":"","type":"text","text":""}"#, true),
        ("anthropic-messages", r#"{"type":"text","type":"x"}"#, true),
        ("anthropic-messages", r#"{"type":"server_tool_use","id":"s1","name":"x","input":{}}"#, false),
        ("openai-completions", r#"{"type":"text","text":7}"#, true),
        ("openai-completions", r#"{"type":"document","document":{}}"#, false),
        ("openai-responses", r#"{"type":"function_call","call_id":7}"#, true),
        ("openai-responses", r#"{"type":"web_search_call","id":"ws_1"}"#, false),
        ("google-generative-ai", r#"{"functionCall":"read"}"#, true),
        ("google-generative-ai", r#"{"executableCode":{"code":"1"}}"#, false),
    ] {
        let target = target_that(|target| target.wire = wire.into());
        let block = Block::Opaque(Opaque { wire: wire.into(), raw: RawJson::parse(raw).unwrap() });
        let reply = by(("anthropic", "claude", wire), reply([Block::text("hi"), block]));
        let expected = if stays { "reply: text hi" } else { "reply: text hi, opaque" };
        assert_eq!(shown(&[user("hi"), reply], &target)[1], expected, "{raw}");
    }
}

#[test]
fn every_call_has_one_result_directly_after_it() {
    const MISSING: &str = "result c1 read, error: No result was recorded for this call. It may or may not have run.";
    let asks = |ids: &[&str]| reply(ids.iter().map(|id| call(id, "{}")).collect::<Vec<_>>());
    let broken = |reason| stopped(reason, asks(&["c1"]));
    for (what, given, expected) in [
        ("missing", vec![asks(&["c1"]), user("go on")], vec!["reply: call c1 read {}", MISSING, "user: go on"]),
        ("missing at the end", vec![asks(&["c1"])], vec!["reply: call c1 read {}", MISSING]),
        (
            "missing for one of two",
            vec![asks(&["c1", "c2"]), result("c2", "two")],
            vec!["reply: call c1 read {}, call c2 read {}", MISSING, "result c2 read: two"],
        ),
        (
            "in the order of completion",
            vec![asks(&["c1", "c2"]), result("c2", "two"), result("c1", "one")],
            vec!["reply: call c1 read {}, call c2 read {}", "result c1 read: one", "result c2 read: two"],
        ),
        (
            "behind a user message",
            vec![asks(&["c1"]), user("go on"), result("c1", "one")],
            vec!["reply: call c1 read {}", "result c1 read: one", "user: go on"],
        ),
        (
            "behind the next reply",
            vec![asks(&["c1"]), user("go on"), reply([Block::text("yes")]), result("c1", "one")],
            vec!["reply: call c1 read {}", "result c1 read: one", "user: go on", "reply: text yes"],
        ),
        (
            "twice",
            vec![asks(&["c1"]), result("c1", "one"), result("c1", "again")],
            vec!["reply: call c1 read {}", "result c1 read: one"],
        ),
        ("of no call", vec![result("x1", "what?"), user("go on")], vec!["user: go on"]),
        ("before its call", vec![result("c1", "one"), asks(&["c1"])], vec!["reply: call c1 read {}", MISSING]),
        ("of a cancelled reply", vec![broken(StopReason::Aborted), result("c1", "one")], vec![]),
        ("of a failed reply", vec![broken(StopReason::Error), result("c1", "one")], vec![]),
        (
            "of a cancelled reply that repeats an open call",
            vec![asks(&["c1"]), broken(StopReason::Aborted), result("c1", "one")],
            vec!["reply: call c1 read {}", MISSING],
        ),
        (
            "of a reply that ran out of tokens, which counts",
            vec![broken(StopReason::Length), result("c1", "not run")],
            vec!["reply: call c1 read {}", "result c1 read: not run"],
        ),
    ] {
        let given = [vec![user("hi")], given].concat();
        assert_eq!(shown(&given, &target()), [vec!["user: hi"], expected].concat(), "a result {what}");
    }
}

#[test]
fn ids_that_stand_twice_are_told_apart_and_results_follow_in_order() {
    let twice = || reply([call("c1", "{}"), call("c1", "{}")]);
    let given = [user("hi"), twice(), result("c1", "one"), result("c1", "two"), twice(), result("c1", "three")];
    let lines = shown(&given, &target());
    let results: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("result ")?.split_once(' ')).collect();
    let texts: Vec<_> = results.iter().map(|(_, text)| *text).collect();
    assert_eq!(&texts[..3], ["read: one", "read: two", "read: three"]);
    assert!(texts[3].starts_with("read, error: "), "{texts:?}");
    assert_eq!(results[0].0, "c1");
    assert_eq!(results.iter().map(|(id, _)| id).collect::<HashSet<_>>().len(), 4, "{results:?}");
}

#[test]
fn foreign_ids_become_legal_and_stay_apart() {
    let long = "a".repeat(70);
    let ids = ["a|b", "a_b", "a/b", "", " ", "ü", &format!("{long}1"), &format!("{long}2"), "functions.read:0"];
    for rule in [CallIdRule::AtMost(64), CallIdRule::AtMost(40), CallIdRule::Exactly(9)] {
        let target = target_that(|target| target.compat.call_id = rule);
        let given = ids.iter().flat_map(|id| [by(FOREIGN, reply([call(id, "{}")])), result(id, &format!("of {id}"))]);
        let transcript = transcript([user("hi")].into_iter().chain(given));
        let accepted = handoff(&transcript, &target);
        let mapped: Vec<String> = call_ids(&accepted).collect();
        assert_eq!(mapped.iter().collect::<HashSet<_>>().len(), ids.len(), "{mapped:?}");
        for (n, id) in mapped.iter().enumerate() {
            assert!(is_legal(id, rule), "{id} under {rule:?}");
            let Message::ToolResult(result) = &*accepted[2 + 2 * n] else { panic!("{accepted:?}") };
            assert_eq!(&result.tool_call_id, id);
            assert_eq!(result.content, [Content::text(format!("of {}", ids[n]))]);
        }
        assert_eq!(mapped[1] == "a_b", matches!(rule, CallIdRule::AtMost(_)), "a legal id stays: {mapped:?}");
    }
}

#[test]
fn a_later_id_that_equals_a_mapped_one_gives_way() {
    let first = [user("hi"), by(FOREIGN, reply([call("a|b", "{}")])), result("a|b", "one")];
    let mapped = call_ids(&handoff(&transcript(first.clone()), &target())).next().unwrap();
    let then = [reply([call(&mapped, "{}")]), result(&mapped, "two")];
    let later = transcript(first.into_iter().chain(then));
    let ids: Vec<String> = call_ids(&handoff(&later, &target())).collect();
    assert_eq!(ids[0], mapped);
    assert_ne!(ids[1], mapped);
}

#[test]
fn calls_that_no_target_would_take_are_made_harmless() {
    for (name, arguments, expected) in [
        ("", "{}", "reply: call c1 unnamed {}"),
        ("bad name!", "{}", "reply: call c1 bad_name_ {}"),
        ("näm", "{}", "reply: call c1 n_m {}"),
        ("read", r#"{"path":"/et"#, r#"reply: call c1 read {"malformed_arguments":"{\"path\":\"/et"}"#),
        ("read", "[1]", r#"reply: call c1 read {"malformed_arguments":"[1]"}"#),
        ("read", r#"{"a":1}{"b":2}"#, r#"reply: call c1 read {"malformed_arguments":"{\"a\":1}{\"b\":2}"}"#),
        ("read", " {\"a\" : 1.0e0}\n", "reply: call c1 read  {\"a\" : 1.0e0}\n"),
        ("read", r#"{"a":"\ud83d"}"#, r#"reply: call c1 read {"a":"\ufffd"}"#),
        ("read", "", "reply: call c1 read {}"),
    ] {
        let asked = Block::ToolCall(ToolCall::new("c1", name, arguments));
        let answer = ToolResultMessage { tool_name: name.into(), ..of_tool("c1", "no") };
        let lines = shown(&[user("hi"), reply([asked]), answer.into()], &target());
        assert_eq!(lines[1], expected);
        let name = expected.split(' ').nth(3).unwrap();
        assert_eq!(lines[2], format!("result c1 {name}: no"));
    }
    let long = Block::ToolCall(ToolCall::new("c1", "n".repeat(100), "{}"));
    assert_eq!(shown(&[user("hi"), reply([long])], &target())[1], format!("reply: call c1 {} {{}}", "n".repeat(64)));
}

#[test]
fn nothing_is_empty() {
    let blank = || Block::text(" \n\u{a0}");
    let missing_start = "user: (the beginning of this conversation is missing)";
    for (given, expected) in [
        (vec![user("")], vec!["user: (empty message)"]),
        (vec![user(" \n\t"), user("hi")], vec!["user: (empty message)", "user: hi"]),
        (vec![user("hi"), reply([])], vec!["user: hi"]),
        (vec![user("hi"), reply([blank(), thought("hm")])], vec!["user: hi"]),
        (vec![user("hi"), reply([blank(), Block::text("yo")])], vec!["user: hi", "reply: text yo"]),
        (vec![reply([Block::text("yo")])], vec![missing_start, "reply: text yo"]),
        (
            vec![user("hi"), reply([call("c1", "{}")]), result("c1", "\0")],
            vec!["user: hi", "reply: call c1 read {}", "result c1 read: (no output)"],
        ),
        (vec![], vec![]),
    ] {
        assert_eq!(shown(&given, &target()), expected, "{given:?}");
    }
}

#[test]
fn images_for_a_model_that_takes_none_become_words() {
    let both = UserMessage { content: vec![Content::text("look"), Content::Image(image())], timestamp: 0 };
    let shot = ToolResultMessage { content: vec![Content::Image(image())], ..of_tool("c1", "") };
    let given = [both.into(), reply([Block::Image(image()), call("c1", "{}")]), shot.into()];
    let words = "[image left out: image/png]";

    let lines = shown(&given, &target());
    let own = format!("reply: text {words}, call c1 read {{}}");
    assert_eq!(lines, ["user: look, image", &own, "result c1 read: image"], "a model's own image, to Anthropic");

    let lines = shown(&given, &target_that(|target| target.images = false));
    assert_eq!(lines, [format!("user: look, {words}"), own, format!("result c1 read: {words}")]);

    let google = target_that(|target| target.wire = WireFormat::GoogleGenerativeAi);
    assert_eq!(shown(&given, &google), ["user: look, image", "reply: image, call c1 read {}", "result c1 read: image"]);
}

proptest! {
    #[test]
    fn any_conversation_satisfies_the_rules(messages in conversation(), target in targets()) {
        let transcript = transcript(messages);
        let accepted = handoff(&transcript, &target);
        prop_assert!(accepted.first().is_none_or(|first| matches!(&**first, Message::User(_))));
        let mut ids = HashSet::new();
        let mut open: Vec<(&str, &str)> = Vec::new();
        for message in &accepted {
            match &**message {
                Message::User(user) => {
                    prop_assert!(open.is_empty(), "no result for {:?}", open);
                    prop_assert!(is_fine(&user.content, &target));
                }
                Message::Assistant(reply) => {
                    prop_assert!(open.is_empty(), "no result for {:?}", open);
                    check_reply(reply, &target)?;
                    for call in reply.tool_calls() {
                        prop_assert!(ids.insert(&call.id), "{} twice", call.id);
                        open.push((&call.id, &call.name));
                    }
                }
                Message::ToolResult(result) => {
                    prop_assert!(!open.is_empty(), "a result without a call");
                    prop_assert_eq!(open.remove(0), (&*result.tool_call_id, &*result.tool_name));
                    prop_assert!(is_fine(&result.content, &target));
                }
            }
        }
        prop_assert!(open.is_empty(), "no result for {:?}", open);
    }

    #[test]
    fn what_the_target_accepts_needs_no_more_change(messages in conversation(), target in targets()) {
        let once = transcript(handoff(&transcript(messages), &target).into_iter().map(Cow::into_owned));
        for message in handoff(&once, &target) {
            prop_assert!(matches!(message, Cow::Borrowed(_)), "{:?}", message);
        }
    }

    #[test]
    fn what_stands_does_not_change_when_messages_are_added(messages in conversation(), target in targets()) {
        let whole = transcript(messages.clone());
        let whole = but_results(handoff(&whole, &target));
        for end in 0..messages.len() {
            let start = transcript(messages[..end].iter().cloned());
            let start = but_results(handoff(&start, &target));
            prop_assert_eq!(&whole[..start.len()], &start[..]);
        }
    }
}

fn check_reply(reply: &AssistantMessage, target: &ModelSpec) -> Result<(), TestCaseError> {
    let own = reply.provider == target.provider && reply.model == target.id && reply.wire == target.wire;
    prop_assert!(!matches!(reply.stop_reason, StopReason::Error | StopReason::Aborted));
    prop_assert!(reply.content.iter().any(|block| !matches!(block, Block::Thinking(_))));
    for block in &reply.content {
        match block {
            Block::Text(text) => {
                prop_assert!(own || (text.signature.is_none() && text.annotations.is_none()));
                prop_assert!(text.signature.is_some() || !text.text.trim().is_empty());
            }
            Block::Thinking(_) => prop_assert!(own),
            Block::Image(_) => prop_assert!(target.images && target.wire == WireFormat::GoogleGenerativeAi),
            Block::Opaque(opaque) => {
                prop_assert!(opaque.wire == target.wire && reply.provider == target.provider);
                prop_assert!(opaque.raw.to_value().unwrap().is_object());
            }
            Block::ToolCall(call) => {
                prop_assert!(own || call.signature.is_none());
                let may_be_odd = own && matches!(target.compat.call_id, CallIdRule::AtMost(_)) && !call.id.is_empty();
                prop_assert!(may_be_odd || is_legal(&call.id, target.compat.call_id), "{}", call.id);
                prop_assert!((1..=64).contains(&call.name.len()));
                prop_assert!(call.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
                prop_assert!(call.arguments.parse::<serde_json::Map<_, _>>().is_ok());
            }
            _ => prop_assert!(false, "a block of an unknown kind"),
        }
    }
    Ok(())
}

fn but_results(messages: Vec<Cow<'_, Message>>) -> Vec<Message> {
    messages.into_iter().map(Cow::into_owned).filter(|message| !matches!(message, Message::ToolResult(_))).collect()
}

fn is_fine(content: &[Content], target: &ModelSpec) -> bool {
    let fine = |content: &Content| content.as_text().map_or(target.images, |text| !text.trim().is_empty());
    !content.is_empty() && content.iter().all(fine)
}

fn is_legal(id: &str, rule: CallIdRule) -> bool {
    match rule {
        CallIdRule::AtMost(most) => {
            (1..=most).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        }
        CallIdRule::Exactly(length) => id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        _ => unreachable!(),
    }
}

fn target() -> ModelSpec {
    ModelSpec::new("anthropic", "claude", WireFormat::AnthropicMessages)
}

fn target_that(deviates: impl FnOnce(&mut ModelSpec)) -> ModelSpec {
    let mut target = target();
    deviates(&mut target);
    target
}

fn targets() -> impl Strategy<Value = ModelSpec> {
    let wires = prop::sample::select(vec!["anthropic-messages", "openai-completions", "google-generative-ai"]);
    let rules = [CallIdRule::AtMost(64), CallIdRule::AtMost(20), CallIdRule::Exactly(9)];
    (wires, prop::sample::select(rules.to_vec()), any::<bool>()).prop_map(|(wire, rule, images)| {
        target_that(|target| {
            target.wire = WireFormat::from(wire);
            target.compat.call_id = rule;
            target.images = images;
        })
    })
}

fn transcript(messages: impl IntoIterator<Item = Message>) -> Transcript {
    Transcript::from_iter(messages)
}

fn user(text: &str) -> Message {
    UserMessage::text(text, 0).into()
}

fn thought(thinking: &str) -> Block {
    Block::Thinking(Thinking { thinking: thinking.into(), signature: Some("s1".into()), redacted: false })
}

fn call(id: &str, arguments: &str) -> Block {
    Block::ToolCall(ToolCall::new(id, "read", arguments))
}

fn result(id: &str, text: &str) -> Message {
    of_tool(id, text).into()
}

fn call_ids(messages: &[Cow<'_, Message>]) -> impl Iterator<Item = String> {
    messages.iter().flat_map(|message| message.tool_calls().map(|call| call.id.clone()))
}

/// What `target` accepts of these messages, a line each.
fn shown(messages: &[Message], target: &ModelSpec) -> Vec<String> {
    let transcript = transcript(messages.iter().cloned());
    handoff(&transcript, target).into_iter().map(|message| line(&message)).collect()
}

fn line(message: &Message) -> String {
    let content = |content: &[Content]| {
        let parts = content.iter().map(|content| content.as_text().unwrap_or("image"));
        parts.collect::<Vec<_>>().join(", ")
    };
    match message {
        Message::User(user) => format!("user: {}", content(&user.content)),
        Message::ToolResult(result) => {
            let error = if result.is_error { ", error" } else { "" };
            format!("result {} {}{error}: {}", result.tool_call_id, result.tool_name, content(&result.content))
        }
        Message::Assistant(reply) => {
            let blocks = reply.content.iter().map(|block| match block {
                Block::Text(text) => format!("text {}", text.text),
                Block::Thinking(thinking) => format!("thinking {}", thinking.thinking),
                Block::ToolCall(call) => format!("call {} {} {}", call.id, call.name, call.arguments.as_str()),
                Block::Image(_) => "image".into(),
                _ => "opaque".into(),
            });
            format!("reply: {}", blocks.collect::<Vec<_>>().join(", "))
        }
    }
}
