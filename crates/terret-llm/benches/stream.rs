//! CPU per text delta, from the socket to the events that a reader gets.
//!
//! Two references are measured in the same run, through the same HTTP client and over the same bytes, so that what is
//! ours is told from what is not: (a) scanning the body for lines, (b) the same and a borrowed parse of nothing but the
//! delta's text. The server is a thread that writes each event as an HTTP chunk of its own, as fast as the socket takes
//! it. Only the CPU time of the client's thread counts.
//!
//! `cargo bench -p terret-llm --bench stream`

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program that prints a table"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use cpu_time::ThreadTime;
use futures_util::StreamExt;
use serde::Deserialize;
use terret_llm::transport::{HttpRequest, Transport};
use terret_llm::wire::WireFormat;
use terret_llm::{
    BaseUrl, Endpoint, HttpModel, HttpTransport, Model, ModelSpec, Request, Retry, RetryPolicy, StreamEvent,
    Transcript, UserMessage,
};
use tokio_util::sync::CancellationToken;

const SHORT: usize = 5_000;
const LONG: usize = 50_000;
/// Each figure is the least of so many measurements: whatever else the machine does only ever adds.
const ROUNDS: usize = 9;

fn main() {
    let address = serve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client { address, transport: Arc::new(HttpTransport::new()) };
    println!(
        "{:<20} {:>7} {:>11} {:>11} {:>11} {:>8} {:>8}",
        "", "deltas", "(a) lines", "(b) parse", "terret", "to (a)", "to (b)"
    );
    println!("{:<20} {:>7} {:>11} {:>11} {:>11}", "", "", "µs/delta", "µs/delta", "µs/delta");
    for wire in [WireFormat::AnthropicMessages, WireFormat::OpenaiCompletions] {
        let mut per_delta = Vec::new();
        for deltas in [SHORT, LONG] {
            let [lines, parse, ours] = runtime.block_on(client.measure(&wire, deltas));
            println!(
                "{:<20} {deltas:>7} {lines:>11.3} {parse:>11.3} {ours:>11.3} {:>8.2} {:>8.2}",
                wire.to_string(),
                ours / lines,
                ours / parse
            );
            per_delta.push(ours);
        }
        println!(
            "{:<20} {:>7} a delta of {LONG} costs {:.2} times one of {SHORT}",
            "",
            "",
            per_delta[1] / per_delta[0]
        );
    }
}

struct Client {
    address: String,
    transport: Arc<HttpTransport>,
}

impl Client {
    /// The least µs per delta of (a), (b) and ours, measured in turns.
    async fn measure(&self, wire: &WireFormat, deltas: usize) -> [f64; 3] {
        let mut least = [f64::INFINITY; 3];
        for _ in 0..ROUNDS {
            let times = [self.lines(wire, deltas).await, self.parse(wire, deltas).await, self.ours(wire, deltas).await];
            for (least, time) in least.iter_mut().zip(times) {
                *least = least.min(time.as_secs_f64() * 1e6 / deltas as f64);
            }
        }
        least
    }

    async fn ours(&self, wire: &WireFormat, deltas: usize) -> Duration {
        let base_url = BaseUrl::exact(&format!("{}/{wire}/{deltas}", self.address)).unwrap();
        let spec = ModelSpec::new("bench", "model", wire.clone());
        let model = HttpModel::new(spec, Endpoint::new(base_url), self.transport.clone());
        let model = Retry::new(model, RetryPolicy::default());
        let mut messages = Transcript::new();
        messages.push(terret_llm::Message::from(UserMessage::text("go", 0)));
        let request = Request { messages, ..Request::default() };
        let began = ThreadTime::now();
        let mut stream = model.stream(request, CancellationToken::new());
        let mut bytes = 0;
        let mut reply = None;
        while let Some(event) = stream.next().await {
            match event {
                StreamEvent::BlockDelta { text, .. } => bytes += text.len(),
                StreamEvent::Done(done) => reply = Some(done),
                StreamEvent::Failed(failed) => panic!("{failed}"),
                _ => {}
            }
        }
        let time = began.elapsed();
        assert_eq!(bytes, TEXT.len() * deltas);
        assert_eq!(reply.unwrap().message().text().len(), bytes);
        time
    }

    async fn lines(&self, wire: &WireFormat, deltas: usize) -> Duration {
        let began = ThreadTime::now();
        let mut lines = 0;
        self.each_line(wire, deltas, |_| lines += 1).await;
        let time = began.elapsed();
        assert!(lines > deltas);
        time
    }

    async fn parse(&self, wire: &WireFormat, deltas: usize) -> Duration {
        let text = match wire {
            WireFormat::AnthropicMessages => anthropic_text,
            _ => openai_text,
        };
        let began = ThreadTime::now();
        let mut reply = String::new();
        self.each_line(wire, deltas, |line| {
            if let Some(data) = line.strip_prefix(b"data: ") {
                reply.push_str(text(data).unwrap_or_default());
            }
        })
        .await;
        let time = began.elapsed();
        assert_eq!(reply.len(), TEXT.len() * deltas);
        time
    }

    /// Sends a request and hands each line of the answer over. A line may be split over two chunks.
    async fn each_line(&self, wire: &WireFormat, deltas: usize, mut on_line: impl FnMut(&[u8])) {
        let request = HttpRequest {
            url: format!("{}/{wire}/{deltas}/x", self.address),
            headers: Default::default(),
            body: "{}".into(),
        };
        let mut body = self.transport.send(request).await.unwrap().body;
        let mut rest = Vec::new();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.unwrap();
            let mut bytes = &chunk[..];
            while let Some(end) = memchr::memchr(b'\n', bytes) {
                if rest.is_empty() {
                    on_line(&bytes[..end]);
                } else {
                    rest.extend_from_slice(&bytes[..end]);
                    on_line(&rest);
                    rest.clear();
                }
                bytes = &bytes[end + 1..];
            }
            rest.extend_from_slice(bytes);
        }
    }
}

fn anthropic_text(data: &[u8]) -> Option<&str> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        delta: Delta<'a>,
    }
    #[derive(Deserialize)]
    struct Delta<'a> {
        text: &'a str,
    }
    serde_json::from_slice::<Event<'_>>(data).ok().map(|event| event.delta.text)
}

fn openai_text(data: &[u8]) -> Option<&str> {
    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(borrow)]
        choices: [Choice<'a>; 1],
    }
    #[derive(Deserialize)]
    struct Choice<'a> {
        #[serde(borrow)]
        delta: Delta<'a>,
    }
    #[derive(Deserialize)]
    struct Delta<'a> {
        content: &'a str,
    }
    serde_json::from_slice::<Chunk<'_>>(data).ok().map(|chunk| chunk.choices[0].delta.content)
}

/// The text of each delta: about a token.
const TEXT: &str = " delta";

/// Serves `/WIRE/DELTAS/…` on a loopback port, one connection after the other.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(|| answer_all(stream));
        }
    });
    address
}

fn answer_all(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(path) = read_request(&mut reader) {
        let mut parts = path.split('/').skip(1);
        let wire = WireFormat::from(parts.next().unwrap());
        let deltas: usize = parts.next().unwrap().parse().unwrap();
        if answer(&mut stream, &wire, deltas).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().to_ascii_lowercase() {
            line if line.is_empty() => break,
            line => {
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    first.split(' ').nth(1).map(str::to_owned)
}

fn answer(stream: &mut TcpStream, wire: &WireFormat, deltas: usize) -> std::io::Result<()> {
    let (begin, delta, end) = match wire {
        WireFormat::AnthropicMessages => anthropic_events(),
        _ => openai_events(),
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let chunk = |event: &str| format!("{:x}\r\n{event}\r\n", event.len());
    stream.write_all(chunk(&begin).as_bytes())?;
    let delta = chunk(&delta);
    for _ in 0..deltas {
        stream.write_all(delta.as_bytes())?;
    }
    stream.write_all(chunk(&end).as_bytes())?;
    stream.write_all(b"0\r\n\r\n")
}

/// What comes before the deltas, one delta, and what comes after them.
fn anthropic_events() -> (String, String, String) {
    let event = |name: &str, data: &str| format!("event: {name}\ndata: {data}\n\n");
    let begin = [
        event(
            "message_start",
            r#"{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":1}}}"#,
        ),
        event(
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
    ];
    let delta =
        format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{TEXT}"}}}}"#);
    let end = [
        event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
        event(
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}"#,
        ),
        event("message_stop", r#"{"type":"message_stop"}"#),
    ];
    (begin.concat(), event("content_block_delta", &delta), end.concat())
}

fn openai_events() -> (String, String, String) {
    let event = |choices: &str, usage: &str| {
        format!(
            "data: {}{choices}{}{usage}}}\n\n",
            r#"{"id":"chatcmpl-9xKQ","object":"chat.completion.chunk","created":1760000000,"model":"gpt-5","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":"#,
            r#","usage":"#
        )
    };
    let choice = |delta: &str, reason: &str| {
        format!(r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{reason}}}]"#)
    };
    let begin = event(&choice(r#"{"role":"assistant","content":"","refusal":null}"#, "null"), "null");
    let delta = event(&choice(&format!(r#"{{"content":"{TEXT}"}}"#), "null"), "null");
    let end = [
        event(&choice("{}", r#""stop""#), "null"),
        event("[]", r#"{"prompt_tokens":25,"completion_tokens":15,"total_tokens":40}"#),
        "data: [DONE]\n\n".to_owned(),
    ];
    (begin, delta, end.concat())
}
