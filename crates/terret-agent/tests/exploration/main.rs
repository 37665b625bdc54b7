//! Every interleaving of small runs: a breadth-first search over the pure machine, with all of its invariants checked in
//! every state that it reaches.
//!
//! From each state, every input that could come is tried: all kinds of replies and failures, all verdicts, tools that
//! finish in any order, steering and follow-ups, a cancel, a crash (at every record, also between the records of one
//! step), and completions that are stale or doubled.

mod invariants;
mod inputs;

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use terret_agent::machine::{Input, State, apply, decide};

use inputs::{Bounds, inputs};

/// A state, and how much of the exploration's allowance has been used on the way.
#[derive(Clone)]
struct Node {
    state: State,
    used: Bounds,
}

#[test]
fn every_invariant_holds_in_every_reachable_state() {
    let allowed = Bounds { prompts: 2, calls: 2, queued: 1, crashes: 1, cancels: 1 };
    let states = explore(allowed);
    println!("{states} distinct states");
    assert!(states > 20_000, "the exploration has shrunk to {states} states");
}

fn explore(allowed: Bounds) -> usize {
    let mut seen = HashSet::new();
    let mut open = VecDeque::from([Node { state: State::new(), used: Bounds::default() }]);
    while let Some(node) = open.pop_front() {
        for (input, used) in inputs(&node.state, node.used, allowed) {
            for state in step(&node.state, &input) {
                let next = Node { state, used };
                if seen.insert(fingerprint(&next)) {
                    open.push_back(next);
                }
            }
        }
    }
    seen.len()
}

/// The state after an input; and, for a crash, the states after a crash between any two records of the step, too.
fn step(before: &State, input: &Input) -> Vec<State> {
    let records = decide(before, input.clone(), 0);
    invariants::of_records(before, input, &records);
    let mut state = before.clone();
    let mut cut_short = Vec::new();
    for record in &records {
        apply(&mut state, &invariants::through_json(record));
        cut_short.push(state.clone());
    }
    for cut in &cut_short {
        invariants::a_crash_here_is_survived(cut);
    }
    invariants::of_state(&state);
    invariants::of_step(before, input, &records, &state);
    vec![state]
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
