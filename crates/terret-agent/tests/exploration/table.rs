//! The transition tables of the documentation, against what the search sees.

use std::collections::BTreeSet;

use terret_agent::machine::{Call, CallStage, Effect, Input, Record, Stage, State, due};

/// A transition: in this stage, this input (or nothing, for what follows of its own accord) commits these records.
pub(crate) type Step = (&'static str, Option<&'static str>, Vec<&'static str>);

const TABLE: &str = include_str!("../../src/machine/table.md");
const ARCHITECTURE: &str = include_str!("../../../../ARCHITECTURE.md");

/// The transitions that these records of an input stand for. `between` are the states before each of them.
pub(crate) fn steps(before: &State, input: &Input, records: &[Record], between: &[State]) -> Vec<Step> {
    if records.is_empty() {
        return Vec::new();
    }
    let mut names: Vec<&str> = records.iter().map(name).collect();
    let mut between: Vec<&State> = between.iter().collect();
    if let (Input::Prompt(_), Some(started)) = (input, names.iter().position(|name| *name == "RunStarted")) {
        // The calls that a run that makes room closes are a row of their own.
        for place in (0..started).rev().filter(|place| names[*place] == "CallClosed").collect::<Vec<_>>() {
            names.remove(place);
            between.remove(place);
        }
        // And a budget that is used up from the start is one of the run that starts.
        if before.run().is_some()
            && let Some(place) = names.iter().rposition(|name| *name == "BudgetExceeded")
        {
            names.remove(place);
            between.remove(place);
        }
    }
    let meant = meant(input, &names);
    let mut steps = vec![(stage(before), Some(input_name(input)), names[..meant].to_vec())];
    let follow = names.iter().zip(between).skip(meant);
    steps.extend(follow.map(|(name, state)| (stage(state), None, vec![*name])));
    steps
}

/// What becomes of a call: from this stage, by this record, to that stage.
pub(crate) type CallStep = (&'static str, &'static str, &'static str);

/// What these records make of the calls. `states` are those before each of them, and the last one.
pub(crate) fn call_steps(records: &[Record], states: &[State]) -> Vec<CallStep> {
    let steps = records.iter().zip(states.iter().zip(&states[1..]));
    steps.flat_map(|(record, (before, after))| call_step(name(record), before, after)).collect()
}

fn call_step(record: &'static str, before: &State, after: &State) -> Vec<CallStep> {
    let calls = |state: &State| state.batch().map(|batch| batch.calls.clone()).unwrap_or_default();
    let (before, after) = (calls(before), calls(after));
    if before.is_empty() {
        return after.iter().map(|call| ("no call", record, call_stage(call))).collect();
    }
    // A batch is gone when all of its calls are closed.
    let then = |before: &Call| after.iter().find(|call| call.call.id == before.call.id).map_or("Closed", call_stage);
    let steps = before.iter().map(|call| (call_stage(call), record, then(call)));
    steps.filter(|(before, _, after)| before != after).collect()
}

fn call_stage(call: &Call) -> &'static str {
    match call.stage {
        CallStage::Gating { .. } => "Gating",
        CallStage::Asked { .. } => "Asked",
        CallStage::Allowed => "Allowed",
        CallStage::Open => "Open",
        CallStage::InDoubt => "InDoubt",
        CallStage::Interrupted => "Interrupted",
        CallStage::Closed(_) => "Closed",
    }
}

/// How many of the records are what the input itself means.
fn meant(input: &Input, names: &[&str]) -> usize {
    let second = names.get(1).copied();
    match (input, names[0], second) {
        (Input::Resume, _, Some("Expired")) => 2,
        (Input::Wake, "Expired", _) => 1,
        (Input::Wake, ..) => 0,
        (Input::Prompt(_), "RunStarted", Some("BudgetExceeded")) => 2,
        (Input::Prompt(_), "RunStarted", _) => 1,
        (Input::Prompt(_), "Resumed", _) => {
            let follows = |name: &str| !["Resumed", "Queued", "BudgetExceeded", "Expired"].contains(&name);
            names.iter().position(|name| follows(name)).unwrap_or(names.len())
        }
        (Input::Prompt(_), ..) => {
            let of_input = ["Cancelled", "Expired", "RunEnded"];
            let is_other = |name: &str| !of_input.contains(&name);
            match names.iter().position(|name| is_other(name)) {
                Some(place) if names[place] == "RunStarted" => place + 1,
                Some(place) => place,
                None => names.len(),
            }
        }
        (Input::Interrupt { .. }, _, Some("Interrupted")) => 2,
        (_, "CallStopped", _) => 2,
        _ => 1,
    }
}

/// What the search sees is in the table, and what is in the table the search sees.
pub(crate) fn assert_agrees(seen: &BTreeSet<Step>, calls: &BTreeSet<CallStep>) {
    assert!(ARCHITECTURE.contains(TABLE), "ARCHITECTURE.md doesn't show src/machine/table.md as it is");
    assert_has(seen, calls);
    // A row for any stage is seen when it is seen in one.
    for row in rows() {
        assert!(row.iter().any(|step| seen.contains(step)), "the table has a transition that never happens: {row:#?}");
    }
    for step in call_rows() {
        assert!(calls.contains(&step), "the table has a transition of a call that never happens: {step:?}");
    }
}

/// What was seen is in the table.
pub(crate) fn assert_has(seen: &BTreeSet<Step>, calls: &BTreeSet<CallStep>) {
    let documented: BTreeSet<Step> = rows().into_iter().flatten().collect();
    let missing: Vec<_> = seen.difference(&documented).collect();
    assert!(missing.is_empty(), "transitions that the table doesn't have: {missing:#?}");
    let documented: BTreeSet<CallStep> = call_rows().into_iter().collect();
    let missing: Vec<_> = calls.difference(&documented).collect();
    assert!(missing.is_empty(), "transitions of calls that the table doesn't have: {missing:#?}");
}

/// Each row of the tables of runs, as the transitions that it stands for.
fn rows() -> Vec<Vec<Step>> {
    let of =
        |row: &Row, input, commits| stages(row[0]).into_iter().map(|stage| (stage, input, quoted(commits))).collect();
    let inputs = table(&["in stage", "input"]).into_iter().map(|row| of(&row, Some(quoted(row[1])[0]), row[2]));
    let follow = table(&["in stage", "commits"]).into_iter().map(|row| of(&row, None, row[1]));
    inputs.chain(follow).collect()
}

/// Each transition of the table of calls.
fn call_rows() -> Vec<CallStep> {
    let stage = |cell: &'static str| quoted(cell).first().copied().unwrap_or(cell);
    let step = |row: Row| (stage(row[0]), quoted(row[1])[0], stage(row[2]));
    table(&["a call is", "record"]).into_iter().map(step).collect()
}

type Row = Vec<&'static str>;

/// The rows of the table whose head begins with these cells.
fn table(head: &[&str]) -> Vec<Row> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Row>();
    let lines = TABLE.lines().skip_while(|line| !cells(line).starts_with(head));
    lines.skip(2).take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// What stands in backticks.
fn quoted(cell: &'static str) -> Vec<&'static str> {
    cell.split('`').skip(1).step_by(2).collect()
}

const STAGES: [&str; 8] = ["Calling", "Compacting", "Acting", "Reviewing", "Between", "Waiting", "Failing", "Stopping"];

fn stages(cell: &'static str) -> Vec<&'static str> {
    let named = quoted(cell);
    let is_named = |stage: &&str| named.iter().any(|name| name == stage);
    match cell {
        "no run" => vec!["no run"],
        "any" => STAGES.to_vec(),
        _ if cell.starts_with("any but") => STAGES.into_iter().filter(|stage| !is_named(stage)).collect(),
        _ => STAGES.into_iter().filter(is_named).collect(),
    }
}

fn stage(state: &State) -> &'static str {
    let Some(run) = state.run() else { return "no run" };
    match run.stage {
        Stage::Calling => "Calling",
        Stage::Compacting { .. } => "Compacting",
        // The stage without a name of its own: it is seen by what there is to act on.
        Stage::Acting if state.batch().is_some() => "Acting",
        Stage::Acting if due(state).iter().any(|effect| matches!(effect, Effect::Review { .. })) => "Reviewing",
        Stage::Acting => "Between",
        Stage::Waiting { .. } => "Waiting",
        Stage::Failing(_) => "Failing",
        Stage::Stopping(_) => "Stopping",
    }
}

fn name(record: &Record) -> &'static str {
    match record {
        Record::RunStarted { .. } => "RunStarted",
        Record::Queued { .. } => "Queued",
        Record::Delivered { .. } => "Delivered",
        Record::Withdrawn { .. } => "Withdrawn",
        Record::Requeued { .. } => "Requeued",
        Record::ModelCalled { .. } => "ModelCalled",
        Record::ReplyAccepted { .. } => "ReplyAccepted",
        Record::AttemptFailed { .. } => "AttemptFailed",
        Record::CallStopped { .. } => "CallStopped",
        Record::CompactionStarted { .. } => "CompactionStarted",
        Record::Compacted { .. } => "Compacted",
        Record::Objected { .. } => "Objected",
        Record::CallAllowed { .. } => "CallAllowed",
        Record::CallAsked { .. } => "CallAsked",
        Record::CallApproved { .. } => "CallApproved",
        Record::CallOpened { .. } => "CallOpened",
        Record::CallClosed { .. } => "CallClosed",
        Record::BudgetExceeded { .. } => "BudgetExceeded",
        Record::Expired => "Expired",
        Record::Cancelled { .. } => "Cancelled",
        Record::Interrupted => "Interrupted",
        Record::Halted { .. } => "Halted",
        Record::Resumed => "Resumed",
        Record::RunEnded { .. } => "RunEnded",
        other => panic!("a record that the table doesn't know: {other:?}"),
    }
}

fn input_name(input: &Input) -> &'static str {
    match input {
        Input::Prompt(_) => "Prompt",
        Input::Replied { .. } => "Replied",
        Input::Summarised { .. } => "Summarised",
        Input::AttemptFailed { .. } => "AttemptFailed",
        Input::Reviewed { .. } => "Reviewed",
        Input::GateDecided { .. } => "GateDecided",
        Input::Answered { .. } => "Answered",
        Input::ToolFinished { .. } => "ToolFinished",
        Input::Discovered { .. } => "Discovered",
        Input::Queue { .. } => "Queue",
        Input::Withdraw { .. } => "Withdraw",
        Input::Requeue { .. } => "Requeue",
        Input::Interrupt { .. } => "Interrupt",
        Input::Exhausted { .. } => "Exhausted",
        Input::Wake => "Wake",
        Input::Cancel { .. } => "Cancel",
        Input::NeverBegun { .. } => "NeverBegun",
        Input::Stopped { .. } => "Stopped",
        Input::Resume => "Resume",
    }
}
