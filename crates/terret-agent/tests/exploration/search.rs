//! The search: from each state, every input that could come.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;

use terret_agent::machine::{Effect, Input, Limits, Record, State, Task, apply, decide, due};

use crate::inputs::inputs;
use crate::invariants;
use crate::table::{CallStep, Step, call_steps, steps};

/// What is searched: the machine, or one with a rule broken.
pub(crate) trait Machine {
    fn decide(&self, state: &State, input: Input, at: i64) -> Vec<Record>;
    fn apply(&self, state: &mut State, record: &Record);
    fn due<'a>(&self, state: &'a State) -> Vec<Effect<'a>>;
}

/// The machine as it is.
pub(crate) struct Real;

impl Machine for Real {
    fn decide(&self, state: &State, input: Input, at: i64) -> Vec<Record> {
        decide(state, input, at)
    }

    fn apply(&self, state: &mut State, record: &Record) {
        apply(state, record);
    }

    fn due<'a>(&self, state: &'a State) -> Vec<Effect<'a>> {
        due(state)
    }
}

/// How much of each kind of input a path has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bounds {
    pub(crate) prompts: u8,
    /// Messages that are queued, withdrawn or changed.
    pub(crate) queued: u8,
    pub(crate) crashes: u8,
    pub(crate) cancels: u8,
    pub(crate) interrupts: u8,
}

/// A kind of run to be searched.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) bounds: Bounds,
    pub(crate) limits: Limits,
    pub(crate) models: NonZeroU32,
    pub(crate) task: Task,
    /// Whether replies make three calls at once.
    pub(crate) wide: bool,
    /// Whether there are only the usual replies and failures.
    pub(crate) few: bool,
    /// Whether a budget that is shared with others may be used up at any time.
    pub(crate) shared: bool,
}

/// What a search has seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) states: usize,
    pub(crate) steps: BTreeSet<Step>,
    pub(crate) call_steps: BTreeSet<CallStep>,
}

/// A state, and how much of the allowance has been used on the way.
#[derive(Clone)]
struct Node {
    state: State,
    used: Bounds,
}

/// Checks every state that can be reached. Panics at the first one in which something is wrong.
pub(crate) fn search(machine: &dyn Machine, scenario: &Scenario) -> Seen {
    let (mut steps_seen, mut call_steps_seen) = (BTreeSet::new(), BTreeSet::new());
    let mut json = Vec::new();
    let mut seen = HashSet::new();
    let mut open = VecDeque::from([Node { state: State::new(), used: Bounds::default() }]);
    while let Some(node) = open.pop_front() {
        for (input, at, used) in inputs(machine, &node.state, node.used, scenario) {
            let before = &node.state;
            let records = machine.decide(before, input.clone(), at);
            let mut state = before.clone();
            let mut between = Vec::new();
            for record in &records {
                between.push(state.clone());
                machine.apply(&mut state, record);
            }
            invariants::of_step(machine, before, (&input, at), &records, &state);
            steps_seen.extend(steps(before, &input, &records, &between));
            between.push(state.clone());
            call_steps_seen.extend(call_steps(&records, &between));
            json.clear();
            serde_json::to_writer(&mut json, &state).unwrap();
            if seen.insert(fingerprint(used, &json)) {
                invariants::of_state(machine, &state);
                invariants::it_can_be_stored(machine, &state, &json);
                between.iter().skip(1).for_each(|cut| invariants::a_crash_here_is_survived(machine, cut));
                open.push_back(Node { state, used });
            }
        }
    }
    Seen { states: seen.len(), steps: steps_seen, call_steps: call_steps_seen }
}

/// Enough of a hash that two different states never share it.
fn fingerprint(used: Bounds, json: &[u8]) -> (u64, u64) {
    let hash = |seed: u8| {
        let mut hash = DefaultHasher::new();
        (seed, used, json).hash(&mut hash);
        hash.finish()
    };
    (hash(0), hash(1))
}
