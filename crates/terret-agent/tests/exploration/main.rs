//! Every interleaving of small runs: a breadth-first search over the pure machine, with all of its invariants checked in
//! every state that it reaches.
//!
//! From each state, every input that could come is tried: all kinds of replies and failures, all verdicts, tools that
//! finish in any order, summaries and reviews, steering, follow-ups, interruptions and changes of what waits, a cancel, a
//! crash (at every record, also between the records of one step), budgets that others use up, and completions that are
//! stale or doubled. The transitions that the search sees are those of the table in the documentation, all of them. And
//! a machine with any one rule broken is found out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

mod inputs;
mod invariants;
mod mutants;
mod search;
mod table;

use std::num::{NonZeroU32, NonZeroU64};

use terret_agent::machine::{CompactionLimits, Limits, LoopLimit, Task};
use terret_llm::Money;

use search::{Bounds, Real, Scenario, Seen, search};

/// Runs of each kind, small enough for every day.
fn scenarios() -> Vec<(&'static str, Scenario)> {
    let one = Bounds { prompts: 1, ..Bounds::default() };
    let out_of_tools = {
        let mut limits = limits(2);
        limits.tool_calls = NonZeroU32::new(1);
        limits.wall_time = 1.try_into().ok();
        limits
    };
    let out_of_time = {
        let mut limits = limits(2);
        limits.wall_time = 1.try_into().ok();
        limits
    };
    let money = {
        let mut limits = limits(4);
        limits.cost = Some(Money::from_nanos(3));
        limits
    };
    let tokens = {
        let mut limits = limits(3);
        limits.tokens = NonZeroU64::new(2);
        limits.repeats = Some(LoopLimit { warn: NonZeroU32::MIN, end: two() });
        limits
    };
    let compacting = plain(Bounds { crashes: 1, ..one }, with_window(limits(3), 80));
    // The largest one first, so that two threads are done at about the same time.
    vec![
        ("money", plain(Bounds { queued: 1, ..one }, money)),
        ("a cancel and a crash", plain(Bounds { crashes: 1, cancels: 1, ..one }, limits(2))),
        ("steering and follow-up", plain(Bounds { queued: 2, cancels: 1, ..one }, limits(2))),
        ("an interruption", plain(Bounds { interrupts: 1, crashes: 1, ..one }, limits(2))),
        ("an interruption and a cancel", plain(Bounds { interrupts: 1, cancels: 1, ..one }, limits(2))),
        ("tools and time run out", plain(Bounds { crashes: 1, cancels: 1, interrupts: 1, ..one }, out_of_tools)),
        (
            "time runs out while nobody is there",
            Scenario { few: true, ..plain(Bounds { prompts: 2, crashes: 1, ..one }, out_of_time) },
        ),
        ("runs that follow each other", plain(Bounds { prompts: 2, crashes: 1, cancels: 1, ..one }, limits(1))),
        ("wide batches", Scenario { wide: true, ..plain(Bounds { crashes: 1, cancels: 1, ..one }, limits(1)) }),
        ("models to fall back on", Scenario { models: two(), ..plain(one, limits(3)) }),
        (
            "a review",
            Scenario { task: Task::AnswerReviewed, ..plain(Bounds { queued: 1, crashes: 1, ..one }, limits(2)) },
        ),
        ("tokens and loops", plain(one, tokens)),
        ("a shared budget", Scenario { shared: true, ..plain(Bounds { cancels: 1, crashes: 1, ..one }, limits(2)) }),
        (
            "a shared budget after a crash",
            Scenario { shared: true, few: true, ..plain(Bounds { crashes: 1, prompts: 2, ..one }, limits(2)) },
        ),
        ("compactions", compacting),
        (
            "a compaction and no more",
            Scenario { task: Task::Compact, bounds: Bounds { prompts: 2, ..compacting.bounds }, ..compacting },
        ),
    ]
}

/// And larger ones, for when there is time.
fn large_scenarios() -> Vec<(&'static str, Scenario)> {
    let one = Bounds { prompts: 1, crashes: 1, ..Bounds::default() };
    vec![
        (
            "steering, an interruption and a cancel",
            plain(Bounds { crashes: 0, interrupts: 1, cancels: 1, queued: 1, ..one }, limits(2)),
        ),
        ("models to fall back on and a crash", Scenario { models: two(), ..plain(one, limits(3)) }),
        ("steering, a cancel and a crash", plain(Bounds { cancels: 1, queued: 2, ..one }, limits(2))),
        ("wide batches in a row", Scenario { wide: true, ..plain(one, limits(2)) }),
    ]
}

#[test]
fn every_invariant_holds_and_every_transition_is_in_the_table() {
    let seen = search_all(scenarios());
    assert!(seen.states > 500_000, "the exploration has shrunk to {} states", seen.states);
    table::assert_agrees(&seen.steps, &seen.call_steps);
}

#[test]
#[ignore = "slow: a minute or two; `cargo test -p terret-agent --test exploration -- --ignored` runs it, and so does CI"]
fn every_invariant_holds_in_larger_runs() {
    let states = search_all(scenarios()).states + search_all(large_scenarios()).states;
    println!("{states:>9} in both");
    assert!(states > 1_000_000, "the exploration has shrunk to {states} states");
}

/// Two at a time.
fn search_all(scenarios: Vec<(&'static str, Scenario)>) -> Seen {
    let next = std::sync::Mutex::new(scenarios.into_iter());
    let worker = || {
        let mut seen = Vec::new();
        loop {
            let Some((name, scenario)) = next.lock().unwrap().next() else { return seen };
            let of_this = search(&Real, &scenario);
            println!("{:>9} distinct states: {name}", of_this.states);
            seen.push(of_this);
        }
    };
    let all: Vec<Seen> = std::thread::scope(|scope| {
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let states = all.iter().map(|seen| seen.states).sum();
    println!("{states:>9} in all");
    Seen {
        states,
        steps: all.iter().flat_map(|seen| seen.steps.clone()).collect(),
        call_steps: all.into_iter().flat_map(|seen| seen.call_steps).collect(),
    }
}

/// One model, narrow replies, and nothing that others could use up.
fn plain(bounds: Bounds, limits: Limits) -> Scenario {
    Scenario { bounds, limits, models: NonZeroU32::MIN, task: Task::Answer, wide: false, few: false, shared: false }
}

fn limits(model_calls: u32) -> Limits {
    let mut limits = Limits::default();
    limits.model_calls = model_calls.try_into().unwrap();
    limits.parallel_tools = two();
    limits.retry.tries = two();
    limits.objections = 1;
    limits
}

fn with_window(mut limits: Limits, window: u64) -> Limits {
    limits.compaction = Some(CompactionLimits::for_window(Some(window)));
    limits
}

fn two() -> NonZeroU32 {
    NonZeroU32::new(2).unwrap()
}
