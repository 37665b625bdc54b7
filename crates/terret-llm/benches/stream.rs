//! CPU per delta, from the socket to the events that a reader gets.
//!
//! Two references are measured in the same run, through the same HTTP client and over the same bytes, so that what is
//! ours is told from what is not: (a) scanning the body for lines, (b) the same and a borrowed parse of nothing but the
//! delta's text. The server is a thread that writes each event as an HTTP chunk of its own, as fast as the socket takes
//! it. Only the CPU time of the client's thread counts.
//!
//! What else the machine does slows whatever runs at the moment. So the three are measured in turns, one answer each,
//! and compared within a round, whose measurements are milliseconds apart: a ratio is the median of the rounds' ratios,
//! and beside it stands how far the middle half of them spreads. A time is the median of the rounds' times.
//!
//! `cargo bench -p terret-llm --bench stream`, with `-- NAME` for the wires whose names contain `NAME`; the environment
//! variable `ROUNDS` is the number of rounds.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program that prints a table"
)]

mod server;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use cpu_time::ThreadTime;
use futures_util::StreamExt;
use serde::Deserialize;
use server::{AROUND_ARGUMENTS, Kind};
use terret_llm::transport::{HttpRequest, Transport};
use terret_llm::wire::WireFormat;
use terret_llm::{
    BaseUrl, Endpoint, HttpModel, HttpTransport, Model, ModelSpec, Request, Retry, RetryPolicy, StreamEvent,
    Transcript, UserMessage,
};
use tokio_util::sync::CancellationToken;

const WIRES: [WireFormat; 4] = [
    WireFormat::AnthropicMessages,
    WireFormat::OpenaiCompletions,
    WireFormat::OpenaiResponses,
    WireFormat::GoogleGenerativeAi,
];

const ROUNDS: usize = 31;

fn main() {
    let rounds = std::env::var("ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let address = server::serve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client { address, transport: Arc::new(HttpTransport::new()), rounds };
    println!(
        "{:<31} {:>8} {:>9} {:>9} {:>7}   to (a)              to (b)",
        "µs CPU per delta", "deltas", "(a) lines", "(b) parse", "terret"
    );
    for (kind, short, long) in [(Kind::Text, 5_000, 50_000), (Kind::Arguments, 2_000, 20_000)] {
        for wire in WIRES.iter().filter(|wire| wire.as_str().contains(&wanted)) {
            let per_delta = [short, long].map(|deltas| {
                let rounds = runtime.block_on(client.measure(&Case { wire: wire.clone(), kind, deltas }));
                let [lines, parse, ours] = [0, 1, 2].map(|which| median(rounds.iter().map(|times| times[which])));
                println!(
                    "{:<21} {:<9} {deltas:>8} {lines:>9.3} {parse:>9.3} {ours:>7.3}   {:<19} {}",
                    wire.to_string(),
                    kind.name(),
                    spread(rounds.iter().map(|[lines, _, ours]| ours / lines)),
                    spread(rounds.iter().map(|[_, parse, ours]| ours / parse)),
                );
                ours
            });
            println!("{:<21} a delta of {long} costs {:.2} times one of {short}", "", per_delta[1] / per_delta[0]);
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    quartiles(values)[1]
}

/// The median, and where the middle half lies.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let [low, median, high] = quartiles(values);
    format!("{median:.2} ({low:.2}–{high:.2})")
}

fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

struct Client {
    address: String,
    transport: Arc<HttpTransport>,
    rounds: usize,
}

/// An answer.
struct Case {
    wire: WireFormat,
    kind: Kind,
    deltas: usize,
}

impl Case {
    fn path(&self) -> String {
        format!("{}/{}/{}", self.wire, self.kind.name(), self.deltas)
    }

    /// How many bytes the text or the arguments have.
    fn len(&self) -> usize {
        let around = if self.kind == Kind::Arguments { AROUND_ARGUMENTS } else { 0 };
        self.kind.fragment().len() * self.deltas + around
    }

    /// Reads nothing but a delta's text.
    fn delta(&self) -> fn(&[u8]) -> Option<Cow<'_, str>> {
        match (&self.wire, self.kind) {
            (WireFormat::AnthropicMessages, Kind::Text) => minimal::anthropic_text,
            (WireFormat::AnthropicMessages, Kind::Arguments) => minimal::anthropic_arguments,
            (WireFormat::OpenaiResponses, _) => minimal::responses,
            (WireFormat::GoogleGenerativeAi, Kind::Text) => minimal::google_text,
            (WireFormat::GoogleGenerativeAi, Kind::Arguments) => minimal::google_arguments,
            (_, Kind::Text) => minimal::completions_text,
            (_, Kind::Arguments) => minimal::completions_arguments,
        }
    }
}

impl Client {
    /// The µs per delta of (a), (b) and ours, round by round.
    async fn measure(&self, case: &Case) -> Vec<[f64; 3]> {
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            let times = [self.lines(case).await, self.parse(case).await, self.ours(case).await];
            rounds.push(times.map(|time| time.as_secs_f64() * 1e6 / case.deltas as f64));
        }
        rounds
    }

    async fn ours(&self, case: &Case) -> Duration {
        let base_url = BaseUrl::exact(&format!("{}/{}", self.address, case.path())).unwrap();
        let spec = ModelSpec::new("bench", "model", case.wire.clone());
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
        let reply = reply.unwrap().into_message();
        assert_eq!(bytes, case.len());
        assert_eq!(
            bytes,
            match case.kind {
                Kind::Text => reply.text().len(),
                Kind::Arguments => reply.tool_calls().next().unwrap().arguments.as_str().len(),
            }
        );
        time
    }

    async fn lines(&self, case: &Case) -> Duration {
        let began = ThreadTime::now();
        let mut lines = 0;
        self.each_line(case, |_| lines += 1).await;
        let time = began.elapsed();
        assert!(lines > case.deltas);
        time
    }

    async fn parse(&self, case: &Case) -> Duration {
        let delta = case.delta();
        let began = ThreadTime::now();
        let mut reply = String::new();
        self.each_line(case, |line| {
            if let Some(data) = line.strip_prefix(b"data: ") {
                reply.push_str(&delta(data).unwrap_or_default());
            }
        })
        .await;
        let time = began.elapsed();
        assert!(reply.len() >= case.kind.fragment().len() / 2 * case.deltas, "{} bytes", reply.len());
        time
    }

    /// Sends a request and hands each line of the answer over. A line may be split over two chunks.
    async fn each_line(&self, case: &Case, mut on_line: impl FnMut(&[u8])) {
        let url = format!("{}/{}/x", self.address, case.path());
        let request = HttpRequest { url, headers: Default::default(), body: "{}".into() };
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

/// The least that reads a delta: borrowed structs of the fields on the way to its text.
mod minimal {
    use super::{Cow, Deserialize};

    #[derive(Deserialize)]
    struct Delta<T> {
        delta: T,
    }

    #[derive(Deserialize)]
    struct Text<'a> {
        #[serde(borrow)]
        text: Cow<'a, str>,
    }

    #[derive(Deserialize)]
    struct PartialJson<'a> {
        #[serde(borrow)]
        partial_json: Cow<'a, str>,
    }

    #[derive(Deserialize)]
    struct Choices<T> {
        choices: [Delta<T>; 1],
    }

    #[derive(Deserialize)]
    struct ChoiceText<'a> {
        #[serde(borrow)]
        content: Cow<'a, str>,
    }

    #[derive(Deserialize)]
    struct ToolCalls<'a> {
        #[serde(borrow)]
        tool_calls: [ToolCall<'a>; 1],
    }

    #[derive(Deserialize)]
    struct ToolCall<'a> {
        #[serde(borrow)]
        function: Function<'a>,
    }

    #[derive(Deserialize)]
    struct Function<'a> {
        #[serde(borrow)]
        arguments: Cow<'a, str>,
    }

    #[derive(Deserialize)]
    struct OutputDelta<'a> {
        #[serde(borrow)]
        delta: Cow<'a, str>,
    }

    #[derive(Deserialize)]
    struct Candidates<T> {
        candidates: [Candidate<T>; 1],
    }

    #[derive(Deserialize)]
    struct Candidate<T> {
        content: Content<T>,
    }

    #[derive(Deserialize)]
    struct Content<T> {
        parts: [T; 1],
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Call<'a> {
        #[serde(borrow)]
        function_call: PartialCall<'a>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PartialCall<'a> {
        #[serde(borrow)]
        partial_args: [PartialArg<'a>; 1],
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PartialArg<'a> {
        #[serde(borrow)]
        string_value: Cow<'a, str>,
    }

    fn read<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Option<T> {
        serde_json::from_slice(data).ok()
    }

    pub(super) fn anthropic_text(data: &[u8]) -> Option<Cow<'_, str>> {
        read(data).map(|Delta { delta: Text { text } }| text)
    }

    pub(super) fn anthropic_arguments(data: &[u8]) -> Option<Cow<'_, str>> {
        read(data).map(|Delta { delta: PartialJson { partial_json } }| partial_json)
    }

    pub(super) fn completions_text(data: &[u8]) -> Option<Cow<'_, str>> {
        read(data).map(|Choices { choices: [Delta { delta: ChoiceText { content } }] }| content)
    }

    pub(super) fn completions_arguments(data: &[u8]) -> Option<Cow<'_, str>> {
        let Choices { choices: [Delta { delta: ToolCalls { tool_calls: [call] } }] } = read(data)?;
        Some(call.function.arguments)
    }

    pub(super) fn responses(data: &[u8]) -> Option<Cow<'_, str>> {
        read(data).map(|OutputDelta { delta }| delta)
    }

    pub(super) fn google_text(data: &[u8]) -> Option<Cow<'_, str>> {
        let Candidates { candidates: [Candidate { content: Content { parts: [Text { text }] } }] } = read(data)?;
        Some(text)
    }

    pub(super) fn google_arguments(data: &[u8]) -> Option<Cow<'_, str>> {
        let Candidates { candidates: [Candidate { content: Content { parts: [Call { function_call }] } }] } =
            read(data)?;
        let [PartialArg { string_value }] = function_call.partial_args;
        Some(string_value)
    }
}
