//! Agents beside those of other libraries: a long run, and many at once, against one mock server.
//!
//! `TERRET_MOCK_LLM` is the path of the server, in a folder with the other libraries' drivers; without it there is
//! nothing to measure. This program is the driver for `terret`, when it is called as drivers are, and else the one that
//! calls them all, in turns. Figures are medians of rounds, ratios are medians of the rounds' ratios, and a run whose
//! answer isn't what the server scripted stops everything. Of async-openai and genai, whose libraries have no agents, the
//! loop is the driver's own: no machine, no journal, no events, no limits.
//!
//! `TERRET_MOCK_LLM=…/mock cargo bench -p terret --bench agents`; `ROUNDS` is the number of rounds.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    dead_code,
    reason = "a program that prints tables, with a lab of which it uses a part"
)]

#[path = "../../../terret-llm/benches/peers/lab.rs"]
mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lab::{Lab, Run};
use terret::agent::machine::Outcome;
use terret::agent::{Agent, EffectClass, tool};
use terret::llm::wire::WireFormat;
use terret::llm::{Auth, AuthScheme, BaseUrl, Endpoint, HttpModel, HttpTransport, ModelSpec, Retry, RetryPolicy};

const ROUNDS: usize = 5;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [work, numbers @ ..] = args.as_slice() {
        let numbers: Vec<usize> = numbers.iter().map(|number| number.parse().unwrap()).collect();
        // The runtime of `#[tokio::main]`, as the others' drivers have it.
        return tokio::runtime::Runtime::new().unwrap().block_on(run(work, &numbers));
    }
    let Some(mock) = std::env::var_os("TERRET_MOCK_LLM") else {
        return println!("TERRET_MOCK_LLM is not set: no server to measure against");
    };
    let rounds = std::env::var("ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let lab = Lab::new(mock.as_ref(), rounds);
    println!("| | CPU, ms | most memory, MB |\n|---|---:|---:|");
    table(&lab, "a run of 10 turns", &["agent", "10"]);
    table(&lab, "a run of 400 turns", &["agent", "400"]);
    table(&lab, "1,000 runs of 5 turns at once, 50 ms between events", &["conc", "1000", "5", "50000"]);
}

const PEERS: [(&str, &str); 4] =
    [("the raw loop", "floorloop"), ("async-openai", "aoip"), ("genai", "genaip"), ("rig", "rigp")];

fn table(lab: &Lab, title: &str, work: &[&str]) {
    // The raw loop has no runs at once.
    let peers = PEERS.into_iter().filter(|(_, file)| work[0] == "agent" || *file != "floorloop");
    let rounds = lab.rounds("chat", work, peers);
    println!("| **{title}** | | |");
    for name in ["terret"].into_iter().chain(PEERS.map(|(name, _)| name)) {
        let cell = |measure: fn(&Run) -> f64, digits: usize| {
            let of = |name| rounds.iter().filter_map(|round| round.get(name).map(measure)).collect::<Vec<_>>();
            let (ours, theirs) = (of("terret"), of(name));
            let ratios = theirs.iter().zip(&ours).map(|(theirs, ours)| theirs / ours).collect();
            match theirs.is_empty() {
                true => None,
                false if name == "terret" => Some(format!("**{:.digits$}**", median(theirs))),
                false => Some(format!("{:.1}× ({:.digits$})", median(ratios), median(theirs))),
            }
        };
        if let (Some(cpu), Some(memory)) = (cell(|run| run.cpu_us / 1e3, 0), cell(|run| run.memory_mb, 1)) {
            println!("| {name} | {cpu} | {memory} |");
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The driver: `agent K`, or `conc R K DELAY_US`.
async fn run(work: &str, numbers: &[usize]) {
    let (runs, scenario) = match (work, numbers) {
        ("agent", [turns]) => (1, format!("bench-tool-{turns}")),
        ("conc", [runs, turns, delay]) => (*runs, format!("bench-tool-{turns}-d{delay}")),
        _ => panic!("no such work: {work} {numbers:?}"),
    };
    let wire = WireFormat::OpenaiCompletions;
    let base_url = BaseUrl::new(&std::env::var("BASE").unwrap(), &wire).unwrap();
    let endpoint = Endpoint::new(base_url).with_auth(Auth::new(AuthScheme::Bearer, &"sk-dummy".into()));
    let model = HttpModel::new(ModelSpec::new("bench", scenario, wire), endpoint, Arc::new(HttpTransport::new()));
    let (calls, sum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let agent = Agent::builder(Retry::new(model, RetryPolicy::default()))
        .system("You are a careful assistant. Use the add tool for every addition.")
        .tool(adding(calls.clone(), sum.clone()))
        .max_model_calls(10_000)
        .build()
        .unwrap();
    let one = || {
        let mut run = agent.prompt("Add the numbers, one pair at a time.");
        async move {
            // As a user interface would, it reads the stream.
            while run.next().await.is_some() {}
            let report = run.report().await;
            assert_eq!(report.outcome, Outcome::Completed);
            report.text.unwrap().chars().count()
        }
    };
    let running: Vec<_> = (0..runs).map(|_| tokio::spawn(one())).collect();
    let mut chars = 0;
    for run in running {
        chars += run.await.unwrap();
    }
    let (calls, sum) = (calls.load(Ordering::Relaxed), sum.load(Ordering::Relaxed));
    println!(r#"{{"text_chars":{chars},"calls":{calls},"sum":{sum}}}"#);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: u64,
    b: u64,
}

fn adding(calls: Arc<AtomicUsize>, sum: Arc<AtomicU64>) -> impl terret::agent::Tool + 'static {
    let add = tool("add", "Adds two integers.", move |Add { a, b }: Add, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(a + b, Ordering::Relaxed);
        async move { Ok((a + b).to_string()) }
    });
    add.effect(EffectClass::ReadOnly)
}
