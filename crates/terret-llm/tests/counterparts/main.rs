//! Calls to servers of other people: two mocks with their faults, on all four wires, and a real model on llama.cpp.
//!
//! They aren't part of this repository, and none of them is right in everything: a test here asserts what has to hold
//! whatever they answer. [README.md](README.md) says how to start them. The tests of one that isn't named by its
//! variable skip, and say so:
//!
//! - `TERRET_AIMOCK`: aimock with the fixtures beside this file, as in `http://127.0.0.1:4010`;
//! - `TERRET_LLMOCK`: llmock, as in `http://127.0.0.1:4020`;
//! - `TERRET_LOCAL_MODEL`: llama.cpp's server with a model that calls tools, as in `http://127.0.0.1:8081`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stderr)]

mod aimock;
mod llmock;
mod local_model;

use std::sync::Arc;
use std::time::Duration;

use terret_llm::wire::WireFormat;
use terret_llm::{
    Auth, AuthScheme, BaseUrl, Content, Endpoint, Failed, HttpModel, HttpTransport, Limits, Message, Model, ModelSpec,
    RawJson, Reply, Request, ToolResultMessage, ToolSpec, Transcript, UserMessage,
};
use tokio_util::sync::CancellationToken;

static WIRES: [WireFormat; 4] = [
    WireFormat::AnthropicMessages,
    WireFormat::OpenaiCompletions,
    WireFormat::OpenaiResponses,
    WireFormat::GoogleGenerativeAi,
];

/// The address in this variable; without one, the test is skipped.
fn counterpart(variable: &str) -> Option<String> {
    let address = std::env::var(variable).ok().filter(|address| !address.is_empty());
    if address.is_none() {
        eprintln!("SKIPPED: {variable} names no server; see crates/terret-llm/tests/counterparts/README.md");
    }
    address
}

/// The model of this name over this wire, below an address.
fn model(address: &str, name: &str, wire: &WireFormat) -> HttpModel {
    let endpoint = Endpoint::new(BaseUrl::new(address, wire).unwrap());
    let scheme = match wire {
        WireFormat::AnthropicMessages => AuthScheme::Header("x-api-key"),
        WireFormat::GoogleGenerativeAi => AuthScheme::Header("x-goog-api-key"),
        _ => AuthScheme::Bearer,
    };
    let endpoint = endpoint.with_auth(Auth::new(scheme, &"sk-of-nobody".into()));
    let spec = ModelSpec::new("custom", name, wire.clone());
    let limits = Limits { silence: Duration::from_secs(60), ..Limits::local() };
    HttpModel::new(spec, endpoint, Arc::new(HttpTransport::new())).with_limits(limits)
}

/// What the vendor of a wire calls one of its models; mocks may look at it.
fn name_for(wire: &WireFormat) -> &'static str {
    match wire {
        WireFormat::AnthropicMessages => "claude-sonnet-4-5",
        WireFormat::GoogleGenerativeAi => "gemini-2.5-flash",
        _ => "gpt-4o",
    }
}

fn ask(prompt: &str) -> Request {
    let messages = Transcript::from_iter([Message::from(UserMessage::text(prompt, 0))]);
    Request { messages, tools: [adding()].into(), ..Request::default() }
}

fn adding() -> ToolSpec {
    let parameters = r#"{
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": false
    }"#;
    ToolSpec {
        name: "add".into(),
        description: "Adds two numbers.".into(),
        parameters: RawJson::parse(parameters).unwrap(),
    }
}

async fn call(model: &impl Model, request: Request) -> Result<Reply, Failed> {
    model.stream(request, CancellationToken::new()).finish().await
}

/// The request that goes on behind a reply, with a result for each of its calls.
fn with_results(mut request: Request, reply: Reply, result: &str) -> Request {
    let message = Message::from(reply.into_message());
    let calls: Vec<_> = message.tool_calls().cloned().collect();
    request.messages.push(message);
    for call in calls {
        request.messages.push(Message::from(ToolResultMessage {
            tool_call_id: call.id,
            tool_name: call.name,
            content: vec![Content::text(result)],
            details: None,
            is_error: false,
            timestamp: 0,
        }));
    }
    request
}
