//! The transition table of the documentation, against what the search sees.

use std::collections::BTreeSet;

use terret_agent::machine::{Input, Record, Stage, State};

/// A transition: in this stage, this input (or nothing, for what follows of its own accord) commits these records.
pub(crate) type Step = (&'static str, Option<&'static str>, Vec<&'static str>);

const TABLE: &str = include_str!("../../src/machine/table.md");
const ARCHITECTURE: &str = include_str!("../../../../ARCHITECTURE.md");

/// The transitions that these records of an input stand for. `between` are the states before each of them.
pub(crate) fn steps(before: &State, input: &Input, records: &[Record], between: &[State]) -> Vec<Step> {
    if records.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = records.iter().map(name).collect();
    let meant = meant(input, &names);
    let mut steps = vec![(stage(before), Some(input_name(input)), names[..meant].to_vec())];
    let follow = names.iter().zip(between).skip(meant);
    steps.extend(follow.map(|(name, state)| (stage(state), None, vec![*name])));
    steps
}

/// How many of the records are what the input itself means.
fn meant(input: &Input, names: &[&str]) -> usize {
    let second = names.get(1).copied();
    match (input, names[0], second) {
        (Input::Wake, "Expired", _) => 1,
        (Input::Wake, ..) => 0,
        (Input::Prompt(_), _, Some("BudgetExceeded")) => 2,
        (Input::Interrupt { .. }, _, Some("Interrupted")) => 2,
        (_, "CallStopped", _) => 2,
        _ => 1,
    }
}

/// What the search sees is in the table, and what is in the table the search sees.
pub(crate) fn assert_agrees(seen: &BTreeSet<Step>) {
    assert!(ARCHITECTURE.contains(TABLE), "ARCHITECTURE.md doesn't show src/machine/table.md as it is");
    let documented = documented();
    let missing: Vec<_> = seen.difference(&documented).collect();
    assert!(missing.is_empty(), "transitions that the table doesn't have: {missing:#?}");
    // A row for any stage is seen when it is seen in one.
    for row in rows() {
        assert!(row.iter().any(|step| seen.contains(step)), "the table has a transition that never happens: {row:#?}");
    }
}

fn documented() -> BTreeSet<Step> {
    rows().into_iter().flatten().collect()
}

/// Each row of both tables, as the transitions that it stands for.
fn rows() -> Vec<Vec<Step>> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let rows = TABLE.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let tables = rows.map(cells);
    let mut rows = Vec::new();
    let mut inputs = true;
    for row in tables {
        if row[0] == "in stage" {
            inputs = row[1] == "input";
            continue;
        }
        let (input, commits) = if inputs { (Some(quoted(row[1])[0]), row[2]) } else { (None, row[1]) };
        let step = |stage| (stage, input, quoted(commits));
        rows.push(stages(row[0]).into_iter().map(step).collect());
    }
    rows
}

/// What stands in backticks.
fn quoted(cell: &'static str) -> Vec<&'static str> {
    cell.split('`').skip(1).step_by(2).collect()
}

const STAGES: [&str; 6] = ["Calling", "Compacting", "Acting", "Waiting", "Failing", "Stopping"];

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
        Stage::Acting => "Acting",
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
        Input::Stopped { .. } => "Stopped",
        Input::Resume => "Resume",
    }
}
