//! The work of a peer: one call, or a run of tool turns, against the mock server.
//!
//! `(text N | args N | agent K | conc R K DELAY_US)` as arguments, the server's address in `BASE`, the wire in `API`. What
//! comes out is a line of JSON by which the run is checked.

use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use terret_llm::wire::WireFormat;
use terret_llm::{
    AssistantMessage, Auth, AuthScheme, BaseUrl, Content, Endpoint, HttpModel, HttpTransport, Message, Model,
    ModelSpec, RawJson, Request, Retry, RetryPolicy, StreamEvent, ToolResultMessage, ToolSpec, Transcript, UserMessage,
};

const SYSTEM: &str = "You are a careful assistant. Use the add tool for every addition.";
const PROMPT: &str = "Add the numbers, one pair at a time.";

/// The names by which the server's programs call the wires.
pub(crate) fn wire(api: &str) -> WireFormat {
    match api {
        "chat" => WireFormat::OpenaiCompletions,
        "responses" => WireFormat::OpenaiResponses,
        "anthropic" => WireFormat::AnthropicMessages,
        "google" => WireFormat::GoogleGenerativeAi,
        _ => panic!("no wire is called {api}"),
    }
}

pub(crate) async fn run(work: &str, numbers: &[usize]) {
    let scenario = match (work, numbers) {
        ("text" | "args", [n]) => format!("bench-{work}-{n}"),
        ("agent", [turns]) => format!("bench-tool-{turns}"),
        ("conc", [_, turns, delay]) => format!("bench-tool-{turns}-d{delay}"),
        _ => panic!("no such work: {work} {numbers:?}"),
    };
    let wire = wire(&std::env::var("API").unwrap());
    let base_url = BaseUrl::new(&std::env::var("BASE").unwrap(), &wire).unwrap();
    let endpoint = Endpoint::new(base_url).with_auth(Auth::new(AuthScheme::Bearer, &"sk-dummy".into()));
    let spec = ModelSpec::new("bench", scenario, wire);
    let model = HttpModel::new(spec, endpoint, Arc::new(HttpTransport::new()));
    let model: Arc<dyn Model> = Arc::new(Retry::new(model, RetryPolicy::default()));
    match (work, numbers) {
        ("conc", [runs, ..]) => concurrent(&model, *runs).await,
        ("agent", _) => println!("{}", agent(&*model).await),
        _ => single(&*model, work).await,
    }
}

/// One reply, of text or of one long call.
async fn single(model: &dyn Model, work: &str) {
    let write_file = r#"{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path","content"],"additionalProperties":false}"#;
    let tools = if work == "args" { vec![tool("write_file", write_file)] } else { Vec::new() };
    let (mut deltas, mut streamed) = (0, 0);
    let reply = reply(model, request(Transcript::new(), tools.into()), |delta| {
        deltas += 1;
        streamed += delta.chars().count();
    });
    let reply = reply.await;
    #[derive(Deserialize)]
    struct WriteFile {
        content: String,
    }
    let content = reply
        .tool_calls()
        .next()
        .map_or(0, |call| serde_json::from_str::<WriteFile>(call.arguments.as_str()).unwrap().content.len());
    let text = reply.text().chars().count();
    assert!(content > 0 || streamed == text);
    println!(r#"{{"text_chars":{text},"deltas":{deltas},"content_bytes":{content}}}"#);
}

/// Many runs at once in one process.
async fn concurrent(model: &Arc<dyn Model>, runs: usize) {
    let runs: Vec<_> = (0..runs)
        .map(|_| {
            let model = model.clone();
            tokio::spawn(async move {
                let began = Instant::now();
                let outcome = agent(&*model).await;
                (outcome, began.elapsed().as_secs_f64() * 1e3)
            })
        })
        .collect();
    let mut total = Outcome::default();
    let mut times = Vec::new();
    for run in runs {
        let (outcome, time) = run.await.unwrap();
        total.text_chars += outcome.text_chars;
        total.calls += outcome.calls;
        total.sum += outcome.sum;
        times.push(time);
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!(
        r#"{},"runs":{},"p50_ms":{},"p99_ms":{}}}"#,
        total.to_string().trim_end_matches('}'),
        times.len(),
        at(50),
        at(99)
    );
}

#[derive(Default)]
struct Outcome {
    text_chars: usize,
    calls: usize,
    sum: u64,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { text_chars, calls, sum } = self;
        write!(f, r#"{{"text_chars":{text_chars},"calls":{calls},"sum":{sum}}}"#)
    }
}

/// Model calls until one asks for no tool.
async fn agent(model: &dyn Model) -> Outcome {
    #[derive(Deserialize)]
    struct Add {
        a: u64,
        b: u64,
    }
    let add = r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false}"#;
    let tools: Arc<[ToolSpec]> = [tool("add", add)].into();
    let mut outcome = Outcome::default();
    let mut request = request(Transcript::new(), tools);
    loop {
        let reply = reply(model, request.clone(), |_| {}).await;
        let mut results = Vec::new();
        for call in reply.tool_calls() {
            let Add { a, b } = serde_json::from_str(call.arguments.as_str()).unwrap();
            outcome.calls += 1;
            outcome.sum += a + b;
            results.push(ToolResultMessage {
                tool_call_id: call.id.clone(),
                tool_name: call.name.clone(),
                content: vec![Content::text((a + b).to_string())],
                details: None,
                is_error: false,
                timestamp: 0,
            });
        }
        if results.is_empty() {
            outcome.text_chars = reply.text().chars().count();
            return outcome;
        }
        request.messages.push(Message::from(reply));
        results.into_iter().for_each(|result| request.messages.push(Message::from(result)));
    }
}

fn request(mut messages: Transcript, tools: Arc<[ToolSpec]>) -> Request {
    messages.push(Message::from(UserMessage::text(PROMPT, 0)));
    Request { system: Some(SYSTEM.into()), messages, tools, ..Request::default() }
}

fn tool(name: &str, parameters: &str) -> ToolSpec {
    ToolSpec { name: name.into(), description: name.into(), parameters: RawJson::parse(parameters).unwrap() }
}

async fn reply(model: &dyn Model, request: Request, mut on_delta: impl FnMut(&str)) -> AssistantMessage {
    let mut stream = model.stream(request, Default::default());
    while let Some(event) = stream.next().await {
        match event {
            StreamEvent::BlockDelta { text, .. } => on_delta(&text),
            StreamEvent::Done(reply) => return reply.into_message(),
            StreamEvent::Failed(failed) => panic!("{failed}"),
            _ => {}
        }
    }
    panic!("the stream has no end")
}
