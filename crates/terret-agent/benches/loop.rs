//! What the loop itself costs: per turn, per waiting run, and of many runs at once.
//!
//! The model is in this process and answers at once, the tool adds two numbers, the journal is in memory: what is
//! measured is the machine, the driver and the events.
//!
//! - CPU per turn in runs of 10, 100 and 1,000 turns, against the first: nothing that a turn does may grow with what is
//!   old.
//! - Memory of a run that waits for a person, and of a session in memory with the same messages and no run.
//! - 10,000 runs of 5 turns at once, each reply streamed in 50 deltas with a pause before each, on two threads.
//!
//! `cargo bench -p terret-agent --bench loop`

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program that prints a table"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use futures_util::StreamExt as _;
use terret_agent::machine::{Outcome, Verdict};
use terret_agent::{Agent, AgentBuilder, EffectClass, Event, tool};
use terret_llm::wire::WireFormat;
use terret_llm::{BlockKind, Draft, Model, ModelSpec, ReplyStream, Request, Stop, StopReason, StreamEvent};
use tokio_util::sync::CancellationToken;

fn main() {
    per_turn();
    waiting();
    at_once();
}

/// Each figure is the least of so many measurements: whatever else the machine does only ever adds.
const ROUNDS: usize = 7;

fn per_turn() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lengths = [10_u32, 100, 1_000];
    let cpu = |turns: u32| {
        // As many turns in every measurement.
        let runs = 2_000 / turns;
        let agent = adding(Counting { turns, deltas: 1, pause: Duration::ZERO, ..Counting::new() }).build().unwrap();
        let started = ProcessTime::now();
        runtime.block_on(async {
            for _ in 0..runs {
                let report = agent.prompt("Count.").report().await;
                assert_eq!((report.outcome, report.spent.tool_calls), (Outcome::Completed, turns));
            }
        });
        started.elapsed().as_secs_f64() * 1e6 / f64::from(runs * turns)
    };
    let mut least = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        for (least, turns) in least.iter_mut().zip(lengths) {
            *least = least.min(cpu(turns));
        }
    }
    println!("CPU per turn (a model call and a tool), µs, in a run of so many turns");
    for (turns, cpu) in lengths.iter().zip(least) {
        println!("{turns:>7} {cpu:>9.1}   {:>5.2} of the first", cpu / least[0]);
    }
}

fn waiting() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (waiting, ended) = runtime.block_on(async {
        let ask = |_: &terret_llm::ToolCall, _: &serde_json::Value| Verdict::Ask { question: "May it?".into() };
        let asking = adding(Counting { turns: 1, ..Counting::new() }).gate(ask).build().unwrap();
        let (waiting, _runs) = memory_of_each(async || {
            let mut run = asking.prompt("Count.");
            while !matches!(run.next().await, Some(Event::Asked(_))) {}
            run
        })
        .await;
        let done = adding(Counting { turns: 0, ..Counting::new() }).build().unwrap();
        let (ended, _sessions) = memory_of_each(async || {
            let session = done.session();
            session.prompt("Count.").report().await;
            session
        })
        .await;
        (waiting, ended)
    });
    println!(
        "\nMemory, bytes: {waiting:.0} of a run that waits for a person, {ended:.0} of a session in memory with as many \
         messages (2) and no run: {:.0} more",
        waiting - ended
    );
}

/// Of many that are alive together, and those: what is freed would be taken again, and not seen. The first thousand warm
/// the allocator up.
async fn memory_of_each<T>(make: impl AsyncFn() -> T) -> (f64, Vec<T>) {
    const KEPT: usize = 10_000;
    let mut kept = Vec::with_capacity(KEPT + 1_000);
    let mut before = 0;
    for n in 0..KEPT + 1_000 {
        if n == 1_000 {
            before = resident();
        }
        kept.push(make().await);
    }
    ((resident() - before) as f64 / KEPT as f64, kept)
}

fn at_once() {
    const RUNS: usize = 10_000;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let model = Counting { turns: 5, deltas: 50, pause: Duration::from_millis(50), ..Counting::new() };
    let agent = adding(model).build().unwrap();
    let (before, cpu, wall) = (resident(), ProcessTime::now(), Instant::now());
    let peak = runtime.block_on(async {
        let runs: Vec<_> = (0..RUNS)
            .map(|_| {
                let mut run = agent.prompt("Count.");
                tokio::spawn(async move {
                    let mut deltas = 0;
                    while let Some(event) = run.next().await {
                        match event {
                            Event::Delta { event: StreamEvent::BlockDelta { .. }, .. } => deltas += 1,
                            Event::Ended(report) => assert_eq!(report.outcome, Outcome::Completed),
                            _ => {}
                        }
                    }
                    deltas
                })
            })
            .collect();
        let mut peak = 0;
        let mut all = Box::pin(futures_util::future::join_all(runs));
        loop {
            tokio::select! {
                deltas = &mut all => {
                    let deltas: usize = deltas.into_iter().map(Result::unwrap).sum();
                    assert!(deltas > 0);
                    break peak;
                }
                () = tokio::time::sleep(Duration::from_millis(100)) => peak = peak.max(resident()),
            }
        }
    });
    let (cpu, wall) = (cpu.elapsed(), wall.elapsed());
    println!(
        "\n{RUNS} runs of 5 turns at once, 50 deltas a reply: {:.2} ms CPU and {:.1} KB a run; {:.1} s in all",
        cpu.as_secs_f64() * 1e3 / RUNS as f64,
        peak.saturating_sub(before) as f64 / 1e3 / RUNS as f64,
        wall.as_secs_f64()
    );
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

fn adding(model: Counting) -> AgentBuilder {
    let add = tool("add", "Adds two integers.", |add: Add, _| async move { Ok((add.a + add.b).to_string()) });
    Agent::builder(model).tool(add.effect(EffectClass::ReadOnly)).max_model_calls(10_000)
}

/// Asks for a number of additions, one in each reply, and is then done.
struct Counting {
    spec: Arc<ModelSpec>,
    turns: u32,
    /// In how many deltas a reply streams.
    deltas: usize,
    /// Before each of them.
    pause: Duration,
}

impl Counting {
    fn new() -> Self {
        let spec = Arc::new(ModelSpec::new("bench", "counting", WireFormat::from("bench")));
        Self { spec, turns: 1, deltas: 1, pause: Duration::ZERO }
    }
}

impl Model for Counting {
    fn spec(&self) -> &Arc<ModelSpec> {
        &self.spec
    }

    fn stream(&self, request: Request, _cancel: CancellationToken) -> ReplyStream {
        let done = request.messages.call_count();
        let mut draft = Draft::new(&self.spec);
        let text = draft.open_verbatim(BlockKind::Text);
        for _ in 0..self.deltas {
            draft.append(text, "word ");
        }
        draft.close(text);
        let stop = if done < self.turns as usize {
            let call = BlockKind::ToolCall { id: format!("c{done}"), name: "add".into() };
            let call = draft.open_verbatim(call);
            draft.append(call, &format!(r#"{{"a":{done},"b":1}}"#));
            draft.close(call);
            StopReason::ToolUse
        } else {
            StopReason::Stop
        };
        let mut events: Vec<StreamEvent> = std::iter::from_fn(|| draft.next_event()).collect();
        events.extend(draft.done(Stop { reason: stop, raw: None }));
        let pause = self.pause;
        ReplyStream::new(futures_util::stream::iter(events).then(move |event| async move {
            if !pause.is_zero() && matches!(event, StreamEvent::BlockDelta { .. }) {
                tokio::time::sleep(pause).await;
            }
            event
        }))
    }
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
