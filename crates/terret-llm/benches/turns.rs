//! CPU per turn of a growing conversation: of writing the request, and of the whole model call.
//!
//! Each turn adds a reply of text and a tool call, and the call's result: about 1.5 KB. The writing is measured with an
//! encoder, and without one as the reference (all of the conversation anew). The whole call goes to a server on
//! loopback, and its reference is sending the same body, ready made, through the same HTTP client: what the kernel does
//! with more bytes is in both.
//!
//! `cargo bench -p terret-llm --bench turns`

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    dead_code,
    reason = "a program that prints a table, and a server of which it uses a part"
)]

mod server;

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use cpu_time::ThreadTime;
use futures_util::StreamExt;
use terret_llm::transport::{HttpRequest, Transport};
use terret_llm::wire::{Encoder, WireFormat};
use terret_llm::{
    AssistantMessage, BaseUrl, Block, Content, Endpoint, HttpModel, HttpTransport, Message, Model, ModelSpec, RawJson,
    Request, Segments, StopReason, ToolCall, ToolResultMessage, ToolSpec, Usage, UserMessage,
};
use tokio_util::sync::CancellationToken;

/// The turns whose cost is looked at: ten around each of 10, 100 and 400.
const WINDOWS: [Range<usize>; 3] = [5..15, 95..105, 395..405];

const WIRES: [WireFormat; 4] = [
    WireFormat::AnthropicMessages,
    WireFormat::OpenaiCompletions,
    WireFormat::OpenaiResponses,
    WireFormat::GoogleGenerativeAi,
];

/// Each figure is the least of so many measurements: whatever else the machine does only ever adds.
const ROUNDS: usize = 30;

fn main() {
    let address = server::serve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!("{:<33} {:>9} {:>9} {:>9} {:>9} {:>9}", "µs CPU per turn, at turn", 10, 100, 400, "100 : 10", "400 : 10");
    for wire in WIRES {
        let spec = Arc::new(ModelSpec::new("bench", "model", wire.clone()));
        let turns = turns(&spec);
        print(&wire, "encode", encode(&spec, &turns));
        print(&wire, "encode anew", encode_anew(&spec, &turns));
        print(&wire, "call", runtime.block_on(call(&address, &spec, &turns)));
        print(&wire, "send", runtime.block_on(send(&address, &spec, &turns)));
    }
}

fn print(wire: &WireFormat, what: &str, [at_10, at_100, at_400]: [f64; 3]) {
    println!(
        "{:<21} {what:<11} {at_10:>9.2} {at_100:>9.2} {at_400:>9.2} {:>9.2} {:>9.2}",
        wire.to_string(),
        at_100 / at_10,
        at_400 / at_10
    );
}

/// The requests of a conversation's turns. Their transcripts share messages, as those of an agent's run do.
fn turns(spec: &ModelSpec) -> Vec<Request> {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "Does something to a file in the workspace.".repeat(10),
        parameters: RawJson::parse(
            r#"{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}},"required":["path"]}"#,
        )
        .unwrap(),
    };
    let tools: Arc<[ToolSpec]> = ["read", "write", "edit", "bash", "grep", "find", "ls"].map(tool).into();
    let system: Arc<str> = "You are an agent. Be careful with other people's files. ".repeat(40).into();
    let mut messages = vec![Arc::new(Message::from(UserMessage::text("Fix the failing test.", 0)))];
    (0..WINDOWS[2].end)
        .map(|turn| {
            let request = Request {
                system: Some(system.clone()),
                messages: messages.iter().cloned().collect(),
                tools: tools.clone(),
                options: Default::default(),
            };
            let id = format!("call_{turn}");
            let arguments = format!(r#"{{"path":"src/module_{turn}.rs","text":"fn main() {{}}"}}"#);
            let text = Block::text(format!("Step {turn}: I look at the next module and see what it does. "));
            let reply = AssistantMessage {
                content: vec![text, Block::ToolCall(ToolCall::new(&id, "read", arguments))],
                provider: spec.provider.clone(),
                model: spec.id.clone(),
                wire: spec.wire.clone(),
                stop_reason: StopReason::ToolUse,
                raw_stop_reason: None,
                usage: Usage::default(),
                response_id: None,
                error: None,
                timestamp: 0,
            };
            let result = ToolResultMessage {
                tool_call_id: id,
                tool_name: "read".into(),
                content: vec![Content::text("    let value = compute(&input)?;\n".repeat(35))],
                details: None,
                is_error: false,
                timestamp: 0,
            };
            messages.extend([Message::from(reply), result.into()].map(Arc::new));
            request
        })
        .collect()
}

/// The least µs per turn in each window.
fn encode(spec: &Arc<ModelSpec>, turns: &[Request]) -> [f64; 3] {
    let mut least = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        let encoder = Encoder::new(spec.clone());
        let mut next = 0;
        for (least, window) in least.iter_mut().zip(WINDOWS) {
            for request in &turns[next..window.start] {
                black_box(encoder.encode(request).unwrap());
            }
            next = window.end;
            let began = ThreadTime::now();
            for request in &turns[window.clone()] {
                black_box(encoder.encode(request).unwrap());
            }
            *least = least.min(micros(began) / window.len() as f64);
        }
    }
    least
}

fn encode_anew(spec: &ModelSpec, turns: &[Request]) -> [f64; 3] {
    let wire = spec.wire.wire().unwrap();
    WINDOWS.map(|window| {
        let mut least = f64::INFINITY;
        for _ in 0..ROUNDS {
            let began = ThreadTime::now();
            for request in &turns[window.clone()] {
                black_box(wire.encode(spec, request).unwrap());
            }
            least = least.min(micros(began) / window.len() as f64);
        }
        least
    })
}

async fn call(address: &str, spec: &Arc<ModelSpec>, turns: &[Request]) -> [f64; 3] {
    let base_url = BaseUrl::exact(&format!("{address}/{}/text/10", spec.wire)).unwrap();
    let transport = Arc::new(HttpTransport::new());
    let mut least = [f64::INFINITY; 3];
    for _ in 0..ROUNDS / 3 {
        let model = HttpModel::new(spec.clone(), Endpoint::new(base_url.clone()), transport.clone());
        let ask = async |request: &Request| {
            black_box(model.stream(request.clone(), CancellationToken::new()).finish().await.unwrap());
        };
        let mut next = 0;
        for (least, window) in least.iter_mut().zip(WINDOWS) {
            for request in &turns[next..window.start] {
                ask(request).await;
            }
            next = window.end;
            let began = ThreadTime::now();
            for request in &turns[window.clone()] {
                ask(request).await;
            }
            *least = least.min(micros(began) / window.len() as f64);
        }
    }
    least
}

async fn send(address: &str, spec: &ModelSpec, turns: &[Request]) -> [f64; 3] {
    let url = format!("{address}/{}/text/10/x", spec.wire);
    let transport = HttpTransport::new();
    let wire = spec.wire.wire().unwrap();
    let mut least = [f64::INFINITY; 3];
    for (least, window) in least.iter_mut().zip(WINDOWS) {
        let whole = |request: &Request| wire.encode(spec, request).unwrap().body.to_bytes();
        let bodies: Vec<Segments> = turns[window].iter().map(|request| whole(request).into()).collect();
        for _ in 0..ROUNDS {
            let began = ThreadTime::now();
            for body in &bodies {
                let request = HttpRequest { url: url.clone(), headers: Default::default(), body: body.clone() };
                let mut answer = transport.send(request).await.unwrap().body;
                while let Some(piece) = answer.next().await {
                    black_box(piece.unwrap());
                }
            }
            *least = least.min(micros(began) / bodies.len() as f64);
        }
    }
    least
}

fn micros(began: ThreadTime) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}
