//! What must hold in every state and over every step.

use std::collections::HashSet;

use terret_agent::EffectClass;
use terret_agent::machine::{
    CallStage, Effect, Input, Outcome, QueueKind, Queued, Record, RunState, Stage, State, StopCause, Task, Verdict,
};
use terret_llm::{Message, StopReason};

use crate::inputs::stale;
use crate::search::Machine;

fn the_outcome_is_one_and_the_last_record(before: &State, input: &Input, records: &[Record]) {
    let mut of_run: Vec<&Record> = records.iter().collect();
    // A prompt may end a run that was left open, and start another one.
    if before.run().is_some()
        && let Some(started) = of_run.iter().position(|record| matches!(record, Record::RunStarted { .. }))
    {
        assert!(matches!(input, Input::Prompt(_)), "{input:?} starts a run beside another one: {records:?}");
        assert!(matches!(of_run[started - 1], Record::RunEnded { .. }), "a run starts beside another one: {records:?}");
        let after = of_run.split_off(started);
        let ends = after.iter().filter(|record| matches!(record, Record::RunEnded { .. })).count();
        let last = matches!(after.last(), Some(Record::RunEnded { .. }));
        assert!(ends == 0 || (ends == 1 && last), "the outcome is one, and the last record: {records:?}");
    }
    let outcomes = of_run.iter().filter(|record| matches!(record, Record::RunEnded { .. })).count();
    let last = matches!(of_run.last(), Some(Record::RunEnded { .. }));
    assert!(outcomes == 0 || (outcomes == 1 && last), "the outcome is one, and the last record: {records:?}");
    if before.run().is_none() {
        assert!(records.is_empty() || matches!(input, Input::Prompt(_)), "only a prompt starts anything: {input:?}");
    }
}

pub(crate) fn of_state(machine: &dyn Machine, state: &State) {
    nothing_is_stuck(machine, state);
    the_model_is_called_only_on_paired_transcripts(machine, state);
    results_stand_in_request_order(state);
    only_what_was_opened_is_due_to_start(machine, state);
    stale_inputs_change_nothing(machine, state);
    a_stopping_run_only_stops(machine, state);
    limits_hold(machine, state);
}

fn limits_hold(machine: &dyn Machine, state: &State) {
    let due = machine.due(state);
    let Some(run) = state.run() else {
        assert!(due.is_empty(), "nothing is due without a run");
        assert!(state.queue().is_empty(), "nothing waits without a run");
        return;
    };
    assert!(run.spent.model_calls <= run.limits.model_calls.get(), "model calls beyond the budget");
    let tool_calls = run.limits.tool_calls.map_or(u32::MAX, |limit| limit.get());
    assert!(run.spent.tool_calls <= tool_calls, "tools beyond the budget");
    assert!(run.objections <= run.limits.objections, "more objections than are allowed");
    assert!(run.model < run.models, "a model that there isn't");
    let calls_model = due.iter().any(|effect| matches!(effect, Effect::CallModel { .. } | Effect::Compact { .. }));
    assert!(!calls_model || run.tries < run.limits.retry.tries.get(), "more tries than are allowed");
    let cost = run.limits.cost.is_some_and(|limit| run.spent.cost >= limit);
    let tokens = run.limits.tokens.is_some_and(|limit| run.spent.usage.total() >= limit.get());
    assert!(!calls_model || !(cost || tokens), "a model call beyond what was spent already");
    let in_flight = state.batch().into_iter().flat_map(|batch| &batch.calls).filter(|call| call.is_in_flight());
    let starting = due.iter().filter(|effect| matches!(effect, Effect::StartTool { .. })).count();
    assert!(starting <= run.limits.parallel_tools.get() as usize, "too many tools at once");
    let exclusive = |call: &&terret_agent::machine::Call| call.tool.is_some_and(|tool| tool.exclusive);
    if in_flight.clone().any(|call| exclusive(&call)) {
        assert_eq!(in_flight.count(), 1, "an exclusive tool runs alone");
    }
}

pub(crate) fn of_step(
    machine: &dyn Machine,
    before: &State,
    (input, at): (&Input, i64),
    records: &[Record],
    after: &State,
) {
    the_outcome_is_one_and_the_last_record(before, input, records);
    queued_messages_are_delivered_once_or_handed_back(machine, before, records, after);
    effects_are_announced(machine, before, at, records, after);
    what_was_in_flight_is_stale(before, records, after);
    what_is_used_is_counted(before, input, records, after);
    what_is_resumed_is_not_repeated_wrongly(before, input, after);
    nothing_is_accepted_while_stopping(before, input, records);
    opened_once(before, records);
    what_is_asked_for_happens(before, input, at, records, after);
    nothing_runs_that_may_not(machine, before, input, records, after);
    compactions_shrink(before, records, after);
}

/// What is in flight after a step and wasn't before has its record; each model call has an epoch of its own.
fn effects_are_announced(machine: &dyn Machine, before: &State, at: i64, records: &[Record], after: &State) {
    let is_new = records.iter().any(|record| matches!(record, Record::RunStarted { .. }));
    let deadline = before.run().filter(|_| !is_new).or(after.run()).and_then(RunState::deadline);
    for record in records {
        if let Record::ModelCalled { epoch } | Record::CompactionStarted { epoch, .. } = record {
            assert!(*epoch > before.epoch(), "every model call has an epoch of its own");
            assert!(deadline.is_none_or(|deadline| at < deadline), "a model call beyond the run's time");
            let exceeded = |state: &State| state.run().is_some_and(|run| run.exceeded.is_some());
            assert!(!exceeded(after) && (is_new || !exceeded(before)), "a model call beyond a budget");
        }
    }
    let earlier = machine.due(before);
    for effect in machine.due(after).iter().filter(|effect| !earlier.contains(effect)) {
        let announced = |record: &Record| match (effect, record) {
            (Effect::CallModel { epoch: due, .. }, Record::ModelCalled { epoch }) => due == epoch,
            (Effect::Compact { epoch: due, .. }, Record::CompactionStarted { epoch, .. }) => due == epoch,
            (Effect::StartTool { call, .. }, Record::CallOpened { call_id }) => call.id == *call_id,
            // What was announced before a crash is due again after it.
            (Effect::StartTool { .. } | Effect::Discover { .. }, Record::Resumed | Record::Halted { .. }) => true,
            (Effect::Discover { .. }, Record::RunStarted { .. }) => true,
            (Effect::Ask { call, .. }, Record::CallAsked { call_id, .. }) => call.id == *call_id,
            (Effect::Gate { .. } | Effect::Review { .. } | Effect::Wake { .. } | Effect::Stop, _) => true,
            _ => false,
        };
        assert!(records.iter().any(announced), "{effect:?} is due, and no record announces it: {records:?}");
    }
}

/// Where everything begins anew, nothing that was in flight before can be mistaken for what is then.
fn what_was_in_flight_is_stale(before: &State, records: &[Record], after: &State) {
    let anew = |it: &Record| matches!(it, Record::RunStarted { .. } | Record::Halted { .. } | Record::Resumed);
    let stale = after.epoch() > before.epoch();
    assert!(stale || !records.iter().any(anew), "what was in flight isn't stale after {records:?}");
}

/// What a model call used is spent, and counts before another one is planned.
fn what_is_used_is_counted(before: &State, input: &Input, records: &[Record], after: &State) {
    let Some(run) = before.run() else { return };
    let (usage, cost) = match input {
        Input::Replied { reply, cost, .. } => (reply.message().usage, *cost),
        Input::Summarised { usage, cost, .. }
        | Input::AttemptFailed { usage, cost, .. }
        | Input::Stopped { usage, cost, .. } => (*usage, *cost),
        _ => Default::default(),
    };
    let spent = (run.spent.usage + usage, run.spent.cost + cost);
    if let (Some(after), false) = (after.run().filter(|after| after.id == run.id), records.is_empty()) {
        assert_eq!((after.spent.usage, after.spent.cost), spent, "what {input:?} used");
    }
    if let Some(Record::AttemptFailed { recovery: Some(recovery), .. }) = records.first() {
        let tokens = run.limits.tokens.is_none_or(|limit| spent.0.total() < limit.get());
        let money = run.limits.cost.is_none_or(|limit| spent.1 < limit);
        let planned = tokens && money && run.exceeded.is_none();
        assert!(planned, "{recovery:?} is planned beyond a budget: {:?}", run.limits);
    }
}

/// What somebody wants is done: a cancel, a withdrawal, the end of the time, an interruption that isn't an end.
fn what_is_asked_for_happens(before: &State, input: &Input, at: i64, records: &[Record], after: &State) {
    let Some(run) = before.run() else { return };
    let has = |wanted: fn(&Record) -> bool| records.iter().any(wanted);
    let cause = if let Stage::Stopping(cause) = &run.stage { Some(cause) } else { None };
    let goes_on = matches!(cause, None | Some(StopCause::Interrupted { .. }));
    match input {
        Input::Cancel { .. } if goes_on => {
            assert!(has(|it| matches!(it, Record::Cancelled { .. })), "a cancel is lost")
        }
        Input::GateDecided { call_id, verdict: Verdict::Deny { .. } | Verdict::Reject { .. }, .. } => {
            let closes = |record: &Record| match record {
                Record::CallClosed { result } => {
                    matches!(&**result, Message::ToolResult(result) if result.tool_call_id == *call_id && result.is_error)
                }
                _ => false,
            };
            assert!(records.is_empty() || records.iter().any(closes), "a denied call is not closed: {records:?}");
        }
        Input::Interrupt { .. } => {
            let kept = |until: i64| {
                matches!(after.run().map(|run| &run.stage),
                    Some(Stage::Stopping(StopCause::Interrupted { until: Some(kept) })) if *kept == until)
            };
            let waited = if let Stage::Waiting { until } = run.stage { Some(until) } else { None };
            assert!(waited.is_none_or(kept), "an interruption forgets when a retry was due");
        }
        Input::Withdraw { id } => assert!(after.queue().iter().all(|it| it.id != *id), "a withdrawal is lost"),
        Input::Wake if goes_on && run.deadline().is_some_and(|deadline| at >= deadline) => {
            assert!(has(|it| matches!(it, Record::Expired)), "the end of the time is lost");
        }
        Input::Stopped { .. } => {
            if let Some(StopCause::Interrupted { until }) = cause {
                assert!(has(|it| matches!(it, Record::Halted { .. })), "an interruption ends the run: {records:?}");
                let calls = has(|it| matches!(it, Record::ModelCalled { .. }));
                assert!(!calls || until.is_none_or(|until| at >= until), "an interruption shortens a wait");
            }
        }
        Input::Exhausted { .. } if goes_on => {
            let exceeded = after.run().is_none_or(|run| run.exceeded.is_some());
            assert!(exceeded, "a shared budget is used up, and nobody cares");
        }
        _ => {}
    }
}

/// A tool runs when its gate, or a person and then its schema, have let it; and of a reply that was complete.
fn nothing_runs_that_may_not(machine: &dyn Machine, before: &State, input: &Input, records: &[Record], after: &State) {
    let allows = match input {
        Input::GateDecided { verdict: Verdict::Allow, .. } => true,
        // What a person has approved for the run is not asked again.
        Input::GateDecided { verdict: Verdict::Ask { .. }, call_id, .. } => {
            let call = before.batch().and_then(|batch| batch.get(call_id));
            before.run().zip(call).is_some_and(|(run, call)| run.approved.contains(&call.call.name))
        }
        _ => false,
    };
    let allowed = records.iter().any(|record| matches!(record, Record::CallAllowed { .. }));
    assert!(allows || !allowed, "{input:?} allows a call: {records:?}");
    let approved = records.iter().any(|record| matches!(record, Record::CallApproved { .. }));
    assert!(!approved || matches!(input, Input::Answered { .. }), "{input:?} approves a call");
    let runs = |effect: &Effect<'_>| matches!(effect, Effect::Gate { .. } | Effect::StartTool { .. });
    let unfinished = after
        .batch()
        .is_some_and(|batch| matches!(batch.stop_reason, StopReason::Length | StopReason::Pause | StopReason::Refusal));
    assert!(!unfinished || !machine.due(after).iter().any(runs), "a call of an unfinished reply is run");
    let completed = |record: &Record| matches!(record, Record::RunEnded { outcome: Outcome::Completed });
    let reviewed = before.run().is_none_or(|run| run.task != Task::AnswerReviewed);
    let accepted = matches!(input, Input::Reviewed { objection: None, .. });
    assert!(reviewed || accepted || !records.iter().any(completed), "a run completes without its review");
}

/// A summary shortens.
fn compactions_shrink(before: &State, records: &[Record], after: &State) {
    let compacted = records.iter().any(|record| matches!(record, Record::Compacted { .. }));
    let length = |state: &State| serde_json::to_string(state.transcript()).unwrap().len();
    let appended = records.iter().any(|record| matches!(record, Record::Delivered { .. }));
    assert!(!compacted || appended || length(after) < length(before), "a summary made the transcript longer");
    // What a provider has told counts more than an estimate, and may be anything.
    let told = |message: &Message| matches!(message, Message::Assistant(reply) if reply.usage.total() > 0);
    let told = before.transcript().iter().any(|message| told(message));
    let shrinks = after.context_tokens() < before.context_tokens();
    assert!(!compacted || appended || told || shrinks, "a summary leaves the context as large as it was");
}

fn opened_once(before: &State, records: &[Record]) {
    let opened = records.iter().filter_map(|record| match record {
        Record::CallOpened { call_id } => Some(call_id),
        _ => None,
    });
    for id in opened {
        let stage = before.batch().and_then(|batch| batch.get(id)).map(|call| call.stage.clone());
        assert!(
            matches!(stage, None | Some(CallStage::Gating { .. } | CallStage::Allowed)),
            "a call is opened once: {stage:?}"
        );
    }
}

fn what_is_resumed_is_not_repeated_wrongly(before: &State, input: &Input, after: &State) {
    if !matches!(input, Input::Resume | Input::Prompt(_)) {
        return;
    }
    let goes_on = matches!(input, Input::Resume);
    let open = |state: &State, id: &str| {
        state.batch().and_then(|batch| batch.get(id)).is_some_and(|call| call.stage == CallStage::Open)
    };
    assert!(after.epoch() > before.epoch(), "what was in flight before a crash is stale after it");
    for call in before.batch().into_iter().flat_map(|batch| &batch.calls) {
        let at_most_once = call.tool.is_some_and(|tool| tool.effect == EffectClass::AtMostOnce);
        let was_open = call.stage == CallStage::Open;
        assert!(!(at_most_once && was_open && open(after, &call.call.id)), "an at-most-once call starts again");
        let repeatable = goes_on && was_open && !at_most_once && after.batch().is_some();
        assert!(!repeatable || open(after, &call.call.id) || is_stopping(after), "a harmless call isn't repeated");
    }
    if let (Some(Stage::Waiting { until }), Some(run)) = (before.run().map(|run| &run.stage), after.run())
        && before.run().map(|run| &run.id) == Some(&run.id)
    {
        let kept = matches!(run.stage, Stage::Waiting { until: kept } if kept == *until);
        assert!(kept, "a retry keeps its schedule over a restart: {:?}", run.stage);
    }
}

/// After a cancel, an interruption or the end of the run's time, nothing starts and no output is accepted until all has
/// stopped.
fn nothing_is_accepted_while_stopping(before: &State, input: &Input, records: &[Record]) {
    let Some(Stage::Stopping(cause)) = before.run().map(|run| &run.stage) else { return };
    if matches!(input, Input::Prompt(_)) {
        // After a crash nothing is in flight that would have to be stopped.
        return;
    }
    let goes_on = matches!(cause, StopCause::Interrupted { .. });
    let harmless = |record: &Record| match record {
        Record::Queued { .. } | Record::Withdrawn { .. } | Record::Requeued { .. } | Record::Resumed => true,
        Record::Cancelled { .. } | Record::Expired | Record::BudgetExceeded { .. } => goes_on,
        Record::CallClosed { .. } => {
            let never_ran = matches!(input, Input::NeverBegun { .. });
            never_ran || goes_on && !matches!(input, Input::ToolFinished { .. })
        }
        Record::RunEnded { .. } | Record::CallStopped { .. } => matches!(input, Input::Stopped { .. }),
        _ => goes_on && matches!(input, Input::Stopped { .. }),
    };
    assert!(records.iter().all(harmless), "{input:?} while stopping led to {records:?}");
}

/// After a crash, a resumed run either has something to do or has ended, and its due effects are those of its records.
pub(crate) fn a_crash_here_is_survived(machine: &dyn Machine, state: &State) {
    if state.run().is_none() {
        return;
    }
    let records = machine.decide(state, Input::Resume, 0);
    assert!(!records.is_empty(), "a run that was interrupted can be resumed");
    let mut resumed = state.clone();
    for record in &records {
        machine.apply(&mut resumed, record);
    }
    nothing_is_stuck(machine, &resumed);
    for call in state.batch().into_iter().flat_map(|batch| &batch.calls) {
        let cut_off = matches!(call.stage, CallStage::Gating { .. })
            && state.batch().is_some_and(|batch| batch.stop_reason == StopReason::Length);
        let closed = resumed.batch().and_then(|batch| batch.get(&call.call.id)).is_none_or(|call| call.is_closed());
        assert!(!cut_off || closed || is_stopping(state), "a call of a cut-off reply stays closed after a crash");
    }
}

/// A state survives JSON, with all that is due.
pub(crate) fn it_can_be_stored(machine: &dyn Machine, state: &State, json: &[u8]) {
    let reopened: State = serde_json::from_slice(json).unwrap();
    assert_eq!(&reopened, state);
    assert_eq!(machine.due(&reopened), machine.due(state));
}

fn is_stopping(state: &State) -> bool {
    state.run().is_some_and(|run| matches!(run.stage, Stage::Stopping(_)))
}

fn nothing_is_stuck(machine: &dyn Machine, state: &State) {
    let waiting = state.run().is_some_and(|run| matches!(run.stage, Stage::Waiting { .. }));
    let works = |effect: &Effect<'_>| waiting || !matches!(effect, Effect::Wake { .. });
    assert!(state.run().is_none() || machine.due(state).iter().any(works), "a run waits for nothing: {state:#?}");
}

fn the_model_is_called_only_on_paired_transcripts(machine: &dyn Machine, state: &State) {
    let calls = |effect: &Effect<'_>| matches!(effect, Effect::CallModel { .. } | Effect::Compact { .. });
    if !machine.due(state).iter().any(calls) {
        return;
    }
    assert!(state.batch().is_none(), "a model call beside open calls");
    let messages = state.transcript();
    let mut expected: Vec<&str> = Vec::new();
    for message in messages.iter() {
        match &**message {
            Message::ToolResult(result) => {
                assert_eq!(expected.first(), Some(&result.tool_call_id.as_str()), "a result out of place");
                expected.remove(0);
            }
            other => {
                assert!(expected.is_empty(), "calls without results: {expected:?}");
                expected.extend(other.tool_calls().map(|call| call.id.as_str()));
            }
        }
    }
    assert!(expected.is_empty(), "calls without results: {expected:?}");
}

fn results_stand_in_request_order(state: &State) {
    let mut requested = Vec::new();
    let mut answered = Vec::new();
    for message in state.transcript().iter() {
        requested.extend(message.tool_calls().map(|call| call.id.as_str()));
        if let Message::ToolResult(result) = &**message {
            answered.push(result.tool_call_id.as_str());
        }
    }
    assert!(requested.starts_with(&answered), "{answered:?} answer {requested:?}");
    let distinct: HashSet<_> = requested.iter().collect();
    assert_eq!(distinct.len(), requested.len(), "a call id was used twice");
}

fn only_what_was_opened_is_due_to_start(machine: &dyn Machine, state: &State) {
    for effect in machine.due(state) {
        if let Effect::StartTool { call, .. } = effect {
            let it = state.batch().and_then(|batch| batch.get(&call.id)).unwrap();
            assert_eq!(it.stage, CallStage::Open);
        }
    }
}

fn stale_inputs_change_nothing(machine: &dyn Machine, state: &State) {
    for input in stale(machine, state) {
        let records = machine.decide(state, input.clone(), 0);
        assert!(records.is_empty(), "{input:?} in {state:#?} led to {records:?}");
    }
}

fn a_stopping_run_only_stops(machine: &dyn Machine, state: &State) {
    if is_stopping(state) {
        assert_eq!(machine.due(state), [Effect::Stop]);
    }
}

fn queued_messages_are_delivered_once_or_handed_back(
    machine: &dyn Machine,
    before: &State,
    records: &[Record],
    after: &State,
) {
    let users =
        |state: &State| state.transcript().iter().filter(|message| matches!(***message, Message::User(_))).count();
    let mut waiting: Vec<u64> = before.queue().iter().map(|queued| queued.id).collect();
    let mut state = before.clone();
    let mut expected = users(before);
    for record in records {
        let said = users(&state);
        match record {
            Record::Delivered { ids } => {
                assert!(ids.iter().all(|id| waiting.contains(id)), "delivered what didn't wait");
                assert!(ids.is_sorted(), "delivered out of order");
                waiting.retain(|id| !ids.contains(id));
                expected += ids.len();
            }
            Record::ModelCalled { .. } => {
                let steering = |queued: &Queued| queued.kind == QueueKind::Steering;
                assert!(!state.queue().iter().any(steering), "the model is called while steering waits");
            }
            Record::Withdrawn { id } => waiting.retain(|waiting| waiting != id),
            Record::Objected { .. } => expected += 1,
            Record::RunEnded { .. } => waiting.clear(),
            _ => {}
        }
        machine.apply(&mut state, record);
        if let Record::Compacted { .. } = record {
            // The summary stands for those before the cut.
            expected = expected + users(&state) - said;
        }
        let known: HashSet<u64> = waiting.iter().copied().collect();
        waiting.extend(state.queue().iter().map(|queued| queued.id).filter(|id| !known.contains(id)));
    }
    assert_eq!(users(after), expected, "a message was lost or doubled");
    assert_eq!(after.queue().iter().map(|queued| queued.id).collect::<Vec<_>>(), waiting);
}
