//! llmock: faults that are armed over HTTP, in each vendor's own shape.

use std::time::Duration;

use serde_json::{Value, json};
use terret_llm::wire::WireFormat;
use terret_llm::{ErrorKind, HttpModel, Limits, Request, Retry, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{WIRES, ask, call, counterpart, model, name_for};

const PROMPT: &str = "Say hello with a long and friendly sentence please";

/// Each fault on each wire, one after the other: a server has one that is armed.
#[tokio::test]
async fn every_fault_has_its_outcome() {
    let Some(address) = counterpart("TERRET_LLMOCK") else { return };
    let mut problems = Vec::new();
    for wire in &WIRES {
        let model = on(&address, wire);
        for case in cases() {
            arm(&address, &case.armed).await;
            let mut request = ask(case.prompt);
            if case.prompt == PROMPT {
                // It calls whatever tool it is offered.
                request.tools = [].into();
            }
            let outcome = match call(&case.model(&model), request).await {
                Ok(reply) => Ok(reply.into_message()),
                Err(failed) => Err(failed.error.kind),
            };
            eprintln!("{wire}, {}: {}", case.name, shown(&outcome));
            let holds = match (&case.expected, &outcome) {
                (Expected::Done, Ok(message)) => !message.text().is_empty(),
                (Expected::Call(is_right), Ok(message)) => {
                    message.tool_calls().next().is_some_and(|call| is_right(&call.name, call.arguments.as_str()))
                }
                (Expected::Failed(kinds), Err(kind)) => kinds.contains(kind),
                _ => false,
            };
            if !holds {
                problems.push(format!("{wire}, {}: {}", case.name, shown(&outcome)));
            }
        }
    }
    arm(&address, &json!([])).await;
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The server's own verdict on a client that retries: it waited as long as it was asked to, and not in vain.
#[tokio::test]
async fn a_retry_waits_as_long_as_it_is_asked_to() {
    let Some(address) = counterpart("TERRET_LLMOCK") else { return };
    for wire in &WIRES {
        arm(&address, &json!([{"type": "fail", "status": 429, "retry_after": 2, "times": 1}])).await;
        let began = std::time::Instant::now();
        let request = Request { tools: [].into(), ..ask(PROMPT) };
        let reply = call(&Retry::new(on(&address, wire), RetryPolicy::default()), request).await;
        assert!(!reply.unwrap_or_else(|failed| panic!("{wire}: {failed}")).message().text().is_empty());
        assert!(began.elapsed() >= Duration::from_secs(2), "{wire}");
        let verdict = http(&address, "GET", "/_llmock/verdict", &Value::Null).await;
        eprintln!("{wire}: {verdict}");
    }
    arm(&address, &json!([])).await;
}

struct Case {
    name: &'static str,
    armed: Value,
    prompt: &'static str,
    silence: Duration,
    expected: Expected,
}

enum Expected {
    Done,
    Call(fn(&str, &str) -> bool),
    Failed(&'static [ErrorKind]),
}

impl Case {
    fn model(&self, model: &HttpModel) -> HttpModel {
        model.clone().with_limits(Limits { silence: self.silence, ..Limits::default() })
    }
}

fn cases() -> Vec<Case> {
    use ErrorKind::*;
    let case = |name, armed, expected| Case { name, armed, prompt: PROMPT, silence: Duration::from_secs(20), expected };
    let in_stream = |kind: &str| json!([{"type": "stream_fault", "kind": kind, "after_chunks": 2}]);
    let stall = json!([{"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 3}]);
    let fails = |status: u16| json!([{"type": "fail", "status": status}]);
    let calls = |kind: &str| json!([{"type": "tool_fault", "kind": kind}]);
    vec![
        case("nothing", json!([]), Expected::Done),
        case("429", json!([{"type": "fail", "status": 429, "retry_after": 2}]), Expected::Failed(&[RateLimited])),
        case("503", fails(503), Expected::Failed(&[Overloaded])),
        case("529", fails(529), Expected::Failed(&[Overloaded])),
        case("a disconnect", in_stream("disconnect"), Expected::Failed(&[Truncated])),
        case("a clean end too early", in_stream("truncate"), Expected::Failed(&[Truncated])),
        // Garbage that no blank line follows may have been cut off.
        case("garbage in the stream", in_stream("malformed"), Expected::Failed(&[Protocol, Truncated])),
        Case { silence: Duration::from_secs(1), ..case("silence", stall, Expected::Failed(&[Stalled])) },
        case("a slow first token", json!([{"type": "slow_first_token", "seconds": 2}]), Expected::Done),
        Case {
            prompt: "Use the add tool",
            ..case(
                "broken arguments",
                calls("malformed_arguments"),
                // Google's wire has arguments as an object, which can't be broken in this way.
                Expected::Call(|_, arguments| arguments == "{}" || serde_json::from_str::<Value>(arguments).is_err()),
            )
        },
        Case {
            prompt: "Use the add tool",
            ..case("an unknown tool", calls("unknown_tool"), Expected::Call(|name, _| name != "add"))
        },
    ]
}

fn shown(outcome: &Result<terret_llm::AssistantMessage, ErrorKind>) -> String {
    match outcome {
        Ok(message) => {
            let calls = message.tool_calls().map(|call| format!("{}({})", call.name, call.arguments.as_str()));
            format!("done, {:?} {:?}", message.text(), calls.collect::<Vec<_>>())
        }
        Err(kind) => format!("failed, {kind:?}"),
    }
}

fn on(address: &str, wire: &WireFormat) -> HttpModel {
    let below = match wire {
        WireFormat::AnthropicMessages => "/anthropic",
        WireFormat::GoogleGenerativeAi => "/gemini",
        _ => "",
    };
    model(&format!("{address}{below}"), name_for(wire), wire)
}

async fn arm(address: &str, behaviors: &Value) {
    http(address, "POST", "/_llmock/reset", &json!({})).await;
    if behaviors != &json!([]) {
        http(address, "POST", "/_llmock/scenario", &json!({"behaviors": behaviors})).await;
    }
}

async fn http(address: &str, method: &str, path: &str, body: &Value) -> String {
    let host = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}
