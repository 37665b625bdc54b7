//! aimock: scripted conversations and faults, the prompt says which.

use std::time::Duration;

use serde_json::{Value, json};
use terret_llm::{Block, ErrorKind, Failed, HttpModel, Reply, StopReason};

use crate::{WIRES, ask, call, counterpart, model, name_for, with_results};

const HELLO: &str = "Hello, with a sentence that takes a few chunks.";
const COUNT: &str = "One two three four five six seven eight nine ten.";

/// A model on each wire, with the wire's name; none without a server.
fn models() -> Vec<(&'static str, HttpModel)> {
    let Some(address) = counterpart("TERRET_AIMOCK") else { return Vec::new() };
    WIRES.iter().map(|wire| (wire.as_str(), model(&address, name_for(wire), wire))).collect()
}

async fn replies(prompt: &str) -> Vec<(&'static str, Reply)> {
    let mut replies = Vec::new();
    for (wire, model) in models() {
        replies.push((wire, call(&model, ask(prompt)).await.unwrap_or_else(|failed| panic!("{wire}: {failed}"))));
    }
    replies
}

async fn failures(prompt: &str) -> Vec<(&'static str, Failed)> {
    let mut failures = Vec::new();
    for (wire, model) in models() {
        match call(&model, ask(prompt)).await {
            Ok(reply) => panic!("{wire}: done: {reply:?}"),
            Err(failed) => failures.push((wire, failed)),
        }
    }
    failures
}

#[tokio::test]
async fn a_text_arrives_whole() {
    for (prompt, text) in [("hello", HELLO), ("slowly", "One two three four.")] {
        for (wire, reply) in replies(prompt).await {
            assert_eq!(reply.message().text(), text, "{wire}");
            assert_eq!(reply.message().stop_reason, StopReason::Stop, "{wire}");
        }
    }
}

#[tokio::test]
async fn a_call_and_its_result_go_round() {
    for (wire, model) in models() {
        let request = ask("sum");
        let reply = call(&model, request.clone()).await.unwrap();
        assert_eq!(reply.message().text(), "I add them.", "{wire}");
        assert_eq!(reply.message().stop_reason, StopReason::ToolUse, "{wire}");
        let calls: Vec<_> = reply.message().tool_calls().collect();
        assert_eq!(calls.len(), 1, "{wire}");
        assert_eq!(calls[0].name, "add", "{wire}");
        assert_eq!(calls[0].arguments.parse::<Value>().unwrap(), json!({"a": 17, "b": 25}), "{wire}");
        let reply = call(&model, with_results(request, reply, "42")).await.unwrap();
        assert_eq!(
            (reply.message().text(), reply.message().stop_reason),
            ("It is 42.".into(), StopReason::Stop),
            "{wire}"
        );
    }
}

#[tokio::test]
async fn two_calls_at_once_stay_two() {
    for (wire, reply) in replies("both sums").await {
        let calls: Vec<_> = reply.message().tool_calls().collect();
        let arguments: Vec<Value> = calls.iter().map(|call| call.arguments.parse().unwrap()).collect();
        assert_eq!(arguments, [json!({"a": 1, "b": 2}), json!({"a": 3, "b": 4})], "{wire}");
        assert_ne!(calls[0].id, calls[1].id, "{wire}");
    }
}

#[tokio::test]
async fn reasoning_is_thinking_and_not_text() {
    for (wire, reply) in replies("think").await {
        assert_eq!(reply.message().text(), "Seen.", "{wire}");
        let thinking = reply.message().content.iter().find_map(|block| match block {
            Block::Thinking(thinking) => Some(thinking.thinking.as_str()),
            _ => None,
        });
        assert_eq!(thinking, Some("Let me see."), "{wire}");
    }
}

#[tokio::test]
async fn a_failure_status_has_its_kind() {
    for (prompt, kind, status) in
        [("rate limit", ErrorKind::RateLimited, 429), ("overload", ErrorKind::Overloaded, 529)]
    {
        for (wire, failed) in failures(prompt).await {
            assert_eq!((failed.error.kind, failed.error.status), (kind, Some(status)), "{wire}: {failed}");
            assert!(failed.error.is_retryable(), "{wire}");
            let wait = (status == 429).then_some(Duration::from_secs(2));
            assert_eq!(failed.error.retry_after, wait, "{wire}");
        }
    }
}

#[tokio::test]
async fn a_text_that_breaks_off_is_truncated_with_its_beginning() {
    for prompt in ["cut short", "hang up"] {
        for (wire, failed) in failures(prompt).await {
            assert_eq!(failed.error.kind, ErrorKind::Truncated, "{wire}, {prompt}: {failed}");
            let text = failed.partial.text();
            assert!(COUNT.starts_with(&text) && text.len() < COUNT.len(), "{wire}, {prompt}: {text:?}");
            assert!(!text.is_empty(), "{wire}, {prompt}");
        }
    }
}

#[tokio::test]
async fn half_a_call_is_no_reply() {
    // On Google's wire, the call comes in one piece and the reason for the end with it.
    for (wire, model) in models().into_iter().filter(|(wire, _)| *wire != "google-generative-ai") {
        let failed = call(&model, ask("half a call")).await.unwrap_err();
        assert_eq!(failed.error.kind, ErrorKind::Truncated, "{wire}: {failed}");
    }
}

#[tokio::test]
async fn what_is_no_reply_at_all_fails() {
    for prompt in ["garbage", "no answer"] {
        for (wire, failed) in failures(prompt).await {
            let kinds = match prompt {
                "garbage" => [ErrorKind::Protocol, ErrorKind::Server, ErrorKind::Truncated],
                _ => [ErrorKind::Network; 3],
            };
            assert!(kinds.contains(&failed.error.kind), "{wire}, {prompt}: {failed}");
            assert!(failed.partial.content.is_empty(), "{wire}, {prompt}");
        }
    }
}
