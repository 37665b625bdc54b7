//! Machines with one rule broken. The search has to find each of them out, or it would not find a mistake of ours.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::{Value, json};

use terret_agent::ToolOutput;
use terret_agent::machine::{
    Answer, Budget, CallStage, Effect, Failure, Input, Outcome, Record, Recovery, Stage, State, StopCause, Verdict,
};
use terret_llm::{ErrorKind, Message, StopReason, ToolResultMessage};

use crate::search::{Machine, Real, Scenario, search};
use crate::table;

/// A rule broken: in what is decided, in what a record changes, or in what is due.
struct Mutant {
    rule: &'static str,
    /// The scenario that finds it out.
    scenario: &'static str,
    decide: fn(&State, Input, i64) -> Vec<Record>,
    apply: fn(&mut State, &Record),
    due: for<'a> fn(&'a State) -> Vec<Effect<'a>>,
}

impl Machine for Mutant {
    fn decide(&self, state: &State, input: Input, at: i64) -> Vec<Record> {
        (self.decide)(state, input, at)
    }

    fn apply(&self, state: &mut State, record: &Record) {
        (self.apply)(state, record);
    }

    fn due<'a>(&self, state: &'a State) -> Vec<Effect<'a>> {
        (self.due)(state)
    }
}

#[test]
fn a_machine_with_any_one_rule_broken_is_found_out() {
    let scenarios = crate::scenarios();
    let mutants = mutants();
    assert!(mutants.len() >= 15);
    note_where_it_panics();
    let mut survivors = Vec::new();
    for mutant in &mutants {
        let scenario = scenarios.iter().find(|(name, _)| *name == mutant.scenario).map(|(_, scenario)| scenario);
        let scenario = scenario.unwrap_or_else(|| panic!("no scenario {:?}", mutant.scenario));
        match found_out(mutant, scenario) {
            Some(Found { file, message }) if file.ends_with("invariants.rs") || file.ends_with("table.rs") => {
                println!("{}: {}", mutant.rule, message.lines().next().unwrap_or_default());
            }
            other => survivors.push(format!("{} ({}): {other:?}", mutant.rule, mutant.scenario)),
        }
    }
    assert!(survivors.is_empty(), "not found out by a rule: {survivors:#?}");
}

/// What the search says when it finds something, and the file that says so.
#[derive(Clone, Debug)]
struct Found {
    file: String,
    message: String,
}

thread_local! {
    /// Of a search that is looking for a mutant: there, finding something is no failure.
    static FOUND: RefCell<Option<Found>> = const { RefCell::new(None) };
    static HUNTING: RefCell<bool> = const { RefCell::new(false) };
}

fn note_where_it_panics() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !HUNTING.with_borrow(|hunting| *hunting) {
            return hook(panic);
        }
        let file = panic.location().map(|location| location.file().to_owned()).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or_default().to_owned();
        FOUND.set(Some(Found { file, message }));
    }));
}

fn found_out(mutant: &Mutant, scenario: &Scenario) -> Option<Found> {
    HUNTING.set(true);
    let searched = catch_unwind(AssertUnwindSafe(|| {
        let seen = search(mutant, scenario);
        table::assert_has(&seen.steps, &seen.call_steps);
    }));
    HUNTING.set(false);
    searched.err().and_then(|_| FOUND.take())
}

fn mutants() -> Vec<Mutant> {
    let real = |rule, scenario| Mutant {
        rule,
        scenario,
        decide: |state, input, at| Real.decide(state, input, at),
        apply: |state, record| Real.apply(state, record),
        due: |state| Real.due(state),
    };
    let in_decide = |rule, scenario, decide| Mutant { decide, ..real(rule, scenario) };
    let in_apply = |rule, scenario, apply| Mutant { apply, ..real(rule, scenario) };
    let in_due = |rule, scenario, due| Mutant { due, ..real(rule, scenario) };
    vec![
        in_apply("an interruption doesn't make stale what was in flight", "an interruption", |state, record| {
            let halted = matches!(record, Record::Halted { .. });
            applied(state, record, halted, |before, after| {
                after["progress"]["epoch"] = before["progress"]["epoch"].take()
            });
        }),
        in_apply("a restart doesn't make stale what was in flight", CRASH, |state, record| {
            let resumed = *record == Record::Resumed;
            applied(state, record, resumed, |before, after| {
                after["progress"]["epoch"] = before["progress"]["epoch"].take()
            });
        }),
        in_apply("the context is as large after a summary as before", "compactions", |state, record| {
            let compacted = matches!(record, Record::Compacted { .. });
            applied(state, record, compacted, |before, after| {
                after["progress"]["context"] = before["progress"]["context"].take();
            });
        }),
        in_apply("a call in doubt is open after a restart", CRASH, |state, record| {
            let resumed = *record == Record::Resumed;
            applied(state, record, resumed, |before, after| {
                after["progress"]["batch"] = before["progress"]["batch"].take()
            });
        }),
        in_apply("what waits is kept for the next run", "steering and follow-up", |state, record| {
            let ended = matches!(record, Record::RunEnded { .. });
            applied(state, record, ended, |before, after| {
                after["progress"]["queue"] = before["progress"]["queue"].take()
            });
        }),
        in_apply("what is delivered waits on", "steering and follow-up", |state, record| {
            let delivered = matches!(record, Record::Delivered { .. });
            applied(state, record, delivered, |before, after| {
                after["progress"]["queue"] = before["progress"]["queue"].take();
            });
        }),
        in_apply("results stand in the order in which they came", "wide batches", |state, record| {
            let closed = if let Record::CallClosed { result } = record { Some(json!(result)) } else { None };
            let had_calls = state.batch().is_some();
            applied(state, record, closed.is_some() && had_calls, |_, after| {
                let messages = after["transcript"].as_array_mut().unwrap();
                if let Some(at) = messages.iter().position(|message| Some(message) == closed.as_ref()) {
                    let last = messages.remove(at);
                    messages.push(last);
                }
            });
        }),
        in_apply("an interruption forgets when a retry was due", "an interruption", |state, record| {
            applied(state, record, *record == Record::Interrupted, |_, after| {
                after["progress"]["run"]["stage"] = json!({"stopping": {"interrupted": {}}});
            });
        }),
        in_apply("what a summary used isn't counted", "compactions", |state, record| {
            let compacted = matches!(record, Record::Compacted { .. });
            applied(state, record, compacted, |before, after| {
                after["progress"]["run"]["spent"] = before["progress"]["run"]["spent"].take();
            });
        }),
        in_decide("a retry is planned beyond a budget", "money", |state, input, at| {
            let mut records = Real.decide(state, input, at);
            if let Some(Record::AttemptFailed { recovery: recovery @ None, .. }) = records.first_mut() {
                *recovery = Some(Recovery::Retry { at: at + 1 });
                records.truncate(1);
            }
            records
        }),
        in_decide("a cancelled run runs out of time", "tools and time run out", |state, input, at| {
            let cancelled = matches!(state.run().map(|run| &run.stage), Some(Stage::Stopping(StopCause::Cancelled(_))));
            match input {
                Input::Wake if cancelled => vec![Record::Expired],
                input => Real.decide(state, input, at),
            }
        }),
        in_decide("an edit fits any arguments", CRASH, |state, input, at| match input {
            Input::Answered { call_id, answer: answer @ Answer::Edit(_), digest } => {
                let digest = state.batch().and_then(|batch| Some(batch.digest(batch.get(&call_id)?))).unwrap_or(digest);
                Real.decide(state, Input::Answered { call_id, answer, digest }, at)
            }
            input => Real.decide(state, input, at),
        }),
        in_decide("the model is called when the time is up", "tools and time run out", |state, input, at| {
            let up = state.run().and_then(|run| run.deadline()).is_some_and(|deadline| at >= deadline);
            let finished = matches!(input, Input::ToolFinished { .. });
            Real.decide(state, input, if up && finished { at - 1 } else { at })
        }),
        in_due("a tool starts once it is allowed, before that is durable", CRASH, |state| {
            starting(state, |stage| *stage == CallStage::Allowed)
        }),
        in_due("a tool starts while a person is asked", CRASH, |state| {
            starting(state, |stage| matches!(stage, CallStage::Asked { .. }))
        }),
        in_due("a call in doubt starts again", CRASH, |state| starting(state, |stage| *stage == CallStage::InDoubt)),
        in_due("the model is called while it waits for a retry", "models to fall back on", |state| {
            let mut due = Real.due(state);
            if state.run().is_some_and(|run| matches!(run.stage, Stage::Waiting { .. })) {
                due.push(Effect::CallModel { epoch: state.epoch(), model: 0 });
            }
            due
        }),
        in_due("tools go on after a cancel", CRASH, |state| {
            let mut due = Real.due(state);
            let open = state.batch().into_iter().flat_map(|batch| &batch.calls).filter(|call| call.is_in_flight());
            if due == [Effect::Stop] {
                due.extend(open.map(|call| Effect::StartTool {
                    epoch: state.epoch(),
                    call: &call.call,
                    key: String::new(),
                }));
            }
            due
        }),
        in_decide("a late reply is accepted", CRASH, |state, input, at| {
            Real.decide(state, with_current_epoch(state, input, |input| matches!(input, Input::Replied { .. })), at)
        }),
        in_decide("a late result is accepted", CRASH, |state, input, at| {
            Real.decide(
                state,
                with_current_epoch(state, input, |input| matches!(input, Input::ToolFinished { .. })),
                at,
            )
        }),
        in_decide("a late verdict is accepted", CRASH, |state, input, at| {
            Real.decide(state, with_current_epoch(state, input, |input| matches!(input, Input::GateDecided { .. })), at)
        }),
        in_decide("an answer fits any arguments", CRASH, |state, input, at| {
            let input = match input {
                Input::Answered { call_id, answer, digest } => {
                    let call = state.batch().and_then(|batch| Some(batch.digest(batch.get(&call_id)?)));
                    let digest = call.unwrap_or(digest);
                    Input::Answered { call_id, answer, digest }
                }
                other => other,
            };
            Real.decide(state, input, at)
        }),
        in_decide("a question that nobody was asked is answered", CRASH, |state, input, at| match &input {
            Input::Answered { call_id, answer: Answer::Approve, .. } if !is_asked(state, call_id) => {
                vec![Record::CallApproved { call_id: call_id.clone(), arguments: None, for_run: false }]
            }
            _ => Real.decide(state, input, at),
        }),
        in_decide("edited arguments are not validated", CRASH, |state, input, at| {
            let records = Real.decide(state, input, at);
            let mut all = Vec::new();
            for record in records {
                let allowed = match &record {
                    Record::CallApproved { call_id, .. } => Some(Record::CallAllowed { call_id: call_id.clone() }),
                    _ => None,
                };
                all.push(record);
                all.extend(allowed);
            }
            all
        }),
        in_decide("a denied call is run", CRASH, |state, input, at| match &input {
            Input::GateDecided { epoch, call_id, verdict: Verdict::Deny { .. } } => {
                let input = Input::GateDecided { epoch: *epoch, call_id: call_id.clone(), verdict: Verdict::Allow };
                Real.decide(state, input, at)
            }
            _ => Real.decide(state, input, at),
        }),
        in_decide("a cancel is not heard", CRASH, |state, input, at| match input {
            Input::Cancel { .. } => Vec::new(),
            input => Real.decide(state, input, at),
        }),
        in_decide("a result is accepted after a cancel", CRASH, |state, input, at| match &input {
            Input::ToolFinished { epoch, call_id, .. } if is_stopping(state) && *epoch == state.epoch() => {
                let open = state.batch().and_then(|batch| batch.get(call_id)).filter(|call| call.is_in_flight());
                open.map(|_| closed(call_id)).into_iter().collect()
            }
            _ => Real.decide(state, input, at),
        }),
        in_decide("a reply with a used call id is accepted", CRASH, |state, input, at| match &input {
            Input::Replied { epoch, reply, cost } if *epoch == state.epoch() && repeats_an_id(reply.message()) => {
                vec![Record::ReplyAccepted { message: Arc::new(reply.clone().into_message().into()), cost: *cost }]
            }
            _ => Real.decide(state, input, at),
        }),
        in_decide("calls of a cut-off reply are run", CRASH, |state, input, at| match &input {
            Input::Replied { reply, .. } if reply.message().stop_reason == StopReason::Length => {
                Real.decide(state, input, at).into_iter().take(1).collect()
            }
            _ => Real.decide(state, input, at),
        }),
        in_decide("a run ends twice", CRASH, |state, input, at| {
            let mut records = Real.decide(state, input, at);
            let end = records.iter().find(|record| matches!(record, Record::RunEnded { .. })).cloned();
            records.extend(end);
            records
        }),
        in_decide("a run that is out of model calls makes one more", CRASH, |state, input, at| {
            goes_on_beyond(state, input, at, Budget::ModelCalls)
        }),
        in_decide("money is not looked at", "money", |state, input, at| goes_on_beyond(state, input, at, Budget::Cost)),
        in_decide("tokens are not looked at", "tokens and loops", |state, input, at| {
            goes_on_beyond(state, input, at, Budget::Tokens)
        }),
        in_decide("a message is delivered twice", "steering and follow-up", |state, input, at| {
            let mut all = Vec::new();
            for record in Real.decide(state, input, at) {
                let again = matches!(record, Record::Delivered { .. }).then(|| record.clone());
                all.push(record);
                all.extend(again);
            }
            all
        }),
        in_decide("a message is lost", "steering and follow-up", |state, input, at| {
            let mut records = Real.decide(state, input, at);
            for record in &mut records {
                if let Record::Delivered { ids } = record {
                    let first = ids.first().copied();
                    ids.retain(|id| Some(*id) == first);
                }
            }
            records
        }),
        in_decide("what was withdrawn is delivered all the same", "steering and follow-up", |state, input, at| {
            match input {
                Input::Withdraw { .. } => Vec::new(),
                input => Real.decide(state, input, at),
            }
        }),
        in_decide("an exclusive tool starts beside others", "wide batches", |state, input, at| {
            opening_more(state, input, at, |call| call.tool.is_some_and(|tool| tool.exclusive))
        }),
        in_decide("more tools start than are allowed at once", "wide batches", |state, input, at| {
            opening_more(state, input, at, |call| call.tool.is_some_and(|tool| !tool.exclusive))
        }),
        in_decide("the tool budget is not looked at", "tools and time run out", |state, input, at| {
            let records = Real.decide(state, input, at);
            match records.iter().position(|record| matches!(record, Record::BudgetExceeded { .. })) {
                None => records,
                Some(at) => {
                    let waiting = state.batch().into_iter().flat_map(|batch| &batch.calls);
                    let waiting = waiting.filter(|call| call.stage == CallStage::Allowed);
                    let open = waiting.map(|call| Record::CallOpened { call_id: call.call.id.clone() });
                    records.into_iter().take(at).chain(open).collect()
                }
            }
        }),
        in_decide("a run goes on when its time is up", "tools and time run out", |state, input, at| match input {
            Input::Wake => Vec::new(),
            input => Real.decide(state, input, at),
        }),
        in_decide("a failed call is tried again without end", "models to fall back on", |state, input, at| {
            let mut records = Real.decide(state, input, at);
            let overloaded =
                |failure: &Failure| matches!(failure, Failure::Model(e) if e.kind == ErrorKind::Overloaded);
            if let Some(Record::AttemptFailed { failure, recovery, .. }) = records.first_mut()
                && overloaded(failure)
            {
                *recovery = Some(Recovery::Retry { at: at + 1 });
                records.truncate(1);
            }
            records
        }),
        in_decide("a run falls back on a model that there isn't", "models to fall back on", |state, input, at| {
            let mut records = Real.decide(state, input, at);
            if let Some(Record::AttemptFailed { recovery: recovery @ None, .. }) = records.first_mut() {
                *recovery = Some(Recovery::FallBack);
                records.truncate(1);
                records.push(Record::ModelCalled { epoch: state.epoch().next() });
            }
            records
        }),
        in_decide("a retry is made at once after a restart", CRASH, |state, input, at| {
            let restarted =
                input == Input::Resume && state.run().is_some_and(|run| matches!(run.stage, Stage::Waiting { .. }));
            let mut records = Real.decide(state, input, at);
            if restarted {
                records.push(Record::ModelCalled { epoch: state.epoch().next().next() });
            }
            records
        }),
        in_decide("a summary cuts a call from its result", "compactions", |state, input, at| {
            let mut records = Real.decide(state, input, at);
            for record in &mut records {
                if let Record::CompactionStarted { cut, .. } = record {
                    *cut += 1;
                }
            }
            records
        }),
        in_decide("a summary may be as long as it likes", "compactions", |state, input, at| match input {
            Input::Summarised { epoch, summary, usage, cost } if summary.len() > 1_000 => {
                let mut records = Real.decide(state, Input::Summarised { epoch, summary: "x".into(), usage, cost }, at);
                if let Some(Record::Compacted { summary: message, .. }) = records.first_mut() {
                    *message = Arc::new(terret_llm::UserMessage::text(summary, 0).into());
                }
                records
            }
            input => Real.decide(state, input, at),
        }),
        in_decide("a run completes without its review", "a review", |state, input, at| {
            let reviewed = matches!(input, Input::Reviewed { .. });
            let mut records = Real.decide(state, input, at);
            if !reviewed && matches!(records.last(), Some(Record::ReplyAccepted { .. })) {
                records.push(Record::RunEnded { outcome: Outcome::Completed });
            }
            records
        }),
        in_decide("a reply may be objected to without end", "a review", |state, input, at| match &input {
            Input::Reviewed { objection: Some(text), .. } => {
                let message = terret_llm::UserMessage::text(text.clone(), at);
                let records = Real.decide(state, input.clone(), at);
                match records.as_slice() {
                    [Record::RunEnded { .. }] => vec![
                        Record::Objected { message: Arc::new(message.into()) },
                        Record::ModelCalled { epoch: state.epoch().next() },
                    ],
                    _ => records,
                }
            }
            _ => Real.decide(state, input, at),
        }),
        in_decide("an interruption ends the run", "an interruption", |state, input, at| {
            let mut records = Real.decide(state, input, at);
            if let Some(halted) = records.iter().position(|record| matches!(record, Record::Halted { .. })) {
                records.truncate(halted);
                let outcome = Outcome::Cancelled { reason: "interrupted".into(), still_running: Vec::new() };
                records.push(Record::RunEnded { outcome });
            }
            records
        }),
        in_decide("an interruption shortens a wait", "an interruption", |state, input, at| {
            let waits = matches!(
                state.run().map(|run| &run.stage),
                Some(Stage::Stopping(StopCause::Interrupted { until: Some(_) }))
            );
            let stopped = matches!(input, Input::Stopped { .. });
            let mut records = Real.decide(state, input, at);
            if waits && stopped {
                records.push(Record::ModelCalled { epoch: state.epoch().next().next() });
            }
            records
        }),
        in_decide("a shared budget is not looked at", "a shared budget", |state, input, at| {
            let records = Real.decide(state, input, at);
            records.into_iter().filter(|record| !matches!(record, Record::BudgetExceeded { .. })).collect()
        }),
        in_decide("a crash leaves a run with nothing to do", CRASH, |state, input, at| match input {
            Input::Resume => vec![Record::Resumed],
            input => Real.decide(state, input, at),
        }),
    ]
}

const CRASH: &str = "a cancel and a crash";

/// Takes a record in and, if it is one that is taken in wrongly, makes something else of the state: as JSON, since
/// nothing else can change one.
fn applied(state: &mut State, record: &Record, wrongly: bool, change: impl FnOnce(&mut Value, &mut Value)) {
    let before = wrongly.then(|| json!(state));
    Real.apply(state, record);
    if let Some(mut before) = before {
        let mut after = json!(state);
        change(&mut before, &mut after);
        *state = serde_json::from_value(after).unwrap();
    }
}

/// What is due, and the tools of these calls as well.
fn starting(state: &State, which: fn(&CallStage) -> bool) -> Vec<Effect<'_>> {
    let mut due = Real.due(state);
    let calls = state.batch().into_iter().flat_map(|batch| &batch.calls).filter(|call| which(&call.stage));
    due.extend(calls.map(|call| Effect::StartTool { epoch: state.epoch(), call: &call.call, key: String::new() }));
    due
}

/// Calls the model where the run should end out of this budget.
fn goes_on_beyond(state: &State, input: Input, at: i64, which: Budget) -> Vec<Record> {
    let mut records = Real.decide(state, input, at);
    for record in &mut records {
        if matches!(record, Record::RunEnded { outcome: Outcome::OutOfBudget { budget, .. } } if *budget == which) {
            *record = Record::ModelCalled { epoch: state.epoch().next() };
        }
    }
    records
}

/// Opens every call of a kind that was just allowed, whatever runs.
fn opening_more(state: &State, input: Input, at: i64, which: fn(&terret_agent::machine::Call) -> bool) -> Vec<Record> {
    let mut records = Real.decide(state, input, at);
    if let [Record::CallAllowed { call_id }] = records.as_slice()
        && state.batch().and_then(|batch| batch.get(call_id)).is_some_and(which)
    {
        let call_id = call_id.clone();
        records.push(Record::CallOpened { call_id });
    }
    records
}

fn with_current_epoch(state: &State, mut input: Input, which: fn(&Input) -> bool) -> Input {
    if which(&input)
        && let Input::Replied { epoch, .. } | Input::ToolFinished { epoch, .. } | Input::GateDecided { epoch, .. } =
            &mut input
    {
        *epoch = state.epoch();
    }
    input
}

fn is_asked(state: &State, call_id: &str) -> bool {
    let call = state.batch().and_then(|batch| batch.get(call_id));
    call.is_none_or(|call| matches!(call.stage, CallStage::Asked { .. }))
}

fn is_stopping(state: &State) -> bool {
    state.run().is_some_and(|run| matches!(run.stage, Stage::Stopping(_)))
}

fn repeats_an_id(reply: &terret_llm::AssistantMessage) -> bool {
    let mut ids: Vec<&str> = reply.tool_calls().map(|call| &*call.id).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    ids.len() < all
}

fn closed(call_id: &str) -> Record {
    let ToolOutput { content, details, is_error } = ToolOutput::text("late");
    Record::CallClosed {
        result: Arc::new(Message::ToolResult(ToolResultMessage {
            tool_call_id: call_id.to_owned(),
            tool_name: "late".into(),
            content,
            details,
            is_error,
            timestamp: 0,
        })),
    }
}
