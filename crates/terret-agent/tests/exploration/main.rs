//! Every interleaving of small runs: a breadth-first search over the pure machine, with all of its invariants checked in
//! every state that it reaches.
//!
//! From each state, every input that could come is tried: all kinds of replies and failures, all verdicts, tools that
//! finish in any order, steering and follow-ups, a cancel, a crash (at every record, also between the records of one
//! step), and completions that are stale or doubled.

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

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use terret_agent::machine::{Limits, State, apply, decide};

use inputs::{Bounds, inputs};

/// A state, and how much of the exploration's allowance has been used on the way.
#[derive(Clone)]
struct Node {
    state: State,
    used: Bounds,
}

#[test]
fn every_invariant_holds_in_every_state_of_a_run() {
    let states = explore(Bounds { prompts: 1, queued: 1, crashes: 1, cancels: 1 }, limits(2));
    assert!(states > 40_000, "the exploration has shrunk to {states} states");
}

#[test]
fn every_invariant_holds_when_tools_and_time_run_out() {
    let mut limits = limits(2);
    limits.tool_calls = Some(1.try_into().unwrap());
    limits.wall_time = Some(1.try_into().unwrap());
    let states = explore(Bounds { prompts: 1, queued: 0, crashes: 1, cancels: 1 }, limits);
    assert!(states > 3_000, "the exploration has shrunk to {states} states");
}

#[test]
fn every_invariant_holds_over_runs_that_follow_each_other() {
    let states = explore(Bounds { prompts: 2, queued: 0, crashes: 1, cancels: 1 }, limits(1));
    assert!(states > 40_000, "the exploration has shrunk to {states} states");
}

fn limits(model_calls: u32) -> Limits {
    let mut limits = Limits::default();
    limits.model_calls = model_calls.try_into().unwrap();
    limits.parallel_tools = 2.try_into().unwrap();
    limits
}

/// The number of distinct states, all of which have been checked.
fn explore(allowed: Bounds, limits: Limits) -> usize {
    let mut seen = HashSet::new();
    let mut open = VecDeque::from([Node { state: State::new(), used: Bounds::default() }]);
    while let Some(node) = open.pop_front() {
        for (input, used) in inputs(&node.state, node.used, allowed, limits) {
            let before = &node.state;
            let records = decide(before, input.clone(), 10);
            let mut state = before.clone();
            let mut between = Vec::new();
            for record in &records {
                between.push(state.clone());
                apply(&mut state, record);
            }
            let next = Node { state, used };
            if seen.insert(fingerprint(&next)) {
                invariants::of_step(before, &input, &records, &next.state);
                invariants::of_state(&next.state);
                between.iter().skip(1).chain([&next.state]).for_each(invariants::a_crash_here_is_survived);
                open.push_back(next);
            }
        }
    }
    println!("{} distinct states", seen.len());
    seen.len()
}

/// Enough of a hash that two different states never share it.
fn fingerprint(node: &Node) -> (u64, u64) {
    let mut hash = TwoHashes(DefaultHasher::new(), DefaultHasher::new());
    1_u8.hash(&mut hash.1);
    node.used.hash(&mut hash.0);
    node.used.hash(&mut hash.1);
    serde_json::to_writer(&mut hash, &node.state).unwrap();
    (hash.0.finish(), hash.1.finish())
}

struct TwoHashes(DefaultHasher, DefaultHasher);

impl io::Write for TwoHashes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        self.1.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
