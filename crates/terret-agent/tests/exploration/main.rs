//! Every interleaving of small runs: a breadth-first search over the pure machine, with all of its invariants checked in
//! every state that it reaches.
//!
//! From each state, every input that could come is tried: all kinds of replies and failures, all verdicts, tools that
//! finish in any order, steering and follow-ups, a cancel, a crash (at every record, also between the records of one
//! step), and completions that are stale or doubled.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod inputs;
mod invariants;

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use terret_agent::machine::{State, apply, decide};

use inputs::{Bounds, inputs};

/// A state, and how much of the exploration's allowance has been used on the way.
#[derive(Clone)]
struct Node {
    state: State,
    used: Bounds,
}

#[test]
fn every_invariant_holds_in_every_reachable_state() {
    let allowed = Bounds { prompts: 1, calls: 2, queued: 1, crashes: 1, cancels: 1 };
    let states = explore(allowed);
    println!("{states} distinct states");
    assert!(states > 10_000, "the exploration has shrunk to {states} states");
}

fn explore(allowed: Bounds) -> usize {
    let mut seen = HashSet::new();
    let mut open = VecDeque::from([Node { state: State::new(), used: Bounds::default() }]);
    while let Some(node) = open.pop_front() {
        for (input, used) in inputs(&node.state, node.used, allowed) {
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
    seen.len()
}

fn fingerprint(node: &Node) -> (u64, u64) {
    let text = serde_json::to_string(&node.state).unwrap();
    let hash = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, &text, node.used).hash(&mut hasher);
        hasher.finish()
    };
    (hash(1), hash(2))
}
