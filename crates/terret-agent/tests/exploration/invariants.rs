//! What must hold in every state and over every step.

use std::collections::HashSet;

use terret_agent::EffectClass;
use terret_agent::machine::{CallStage, Effect, Input, Record, Stage, State, apply, decide, due};
use terret_llm::Message;

use crate::inputs::stale;

fn the_outcome_is_one_and_the_last_record(before: &State, input: &Input, records: &[Record]) {
    let outcomes = records.iter().filter(|record| matches!(record, Record::RunEnded { .. })).count();
    let last = matches!(records.last(), Some(Record::RunEnded { .. }));
    assert!(outcomes == 0 || (outcomes == 1 && last), "the outcome is one, and the last record: {records:?}");
    if before.run().is_none() {
        assert!(records.is_empty() || matches!(input, Input::Prompt(_)), "only a prompt starts anything: {input:?}");
    }
}

pub(crate) fn of_state(state: &State) {
    nothing_is_stuck(state);
    the_model_is_called_only_on_paired_transcripts(state);
    results_stand_in_request_order(state);
    at_most_once_calls_in_doubt_are_never_due_to_start(state);
    stale_inputs_change_nothing(state);
    a_stopping_run_only_stops(state);
    if let Some(run) = state.run() {
        assert!(run.spent.model_calls <= run.limits.model_calls.get(), "model calls beyond the budget");
        let tool_calls = run.limits.tool_calls.map_or(u32::MAX, |limit| limit.get());
        assert!(run.spent.tool_calls <= tool_calls, "tools beyond the budget");
        let in_flight = state.batch().into_iter().flat_map(|batch| &batch.calls).filter(|call| call.is_in_flight());
        let starting = due(state).iter().filter(|effect| matches!(effect, Effect::StartTool { .. })).count();
        assert!(starting <= run.limits.parallel_tools.get() as usize, "too many tools at once");
        let exclusive = |call: &&terret_agent::machine::Call| call.tool.is_some_and(|tool| tool.exclusive);
        if in_flight.clone().any(|call| exclusive(&call)) {
            assert_eq!(in_flight.count(), 1, "an exclusive tool runs alone");
        }
    } else {
        assert!(due(state).is_empty(), "nothing is due without a run");
        assert!(state.queue().is_empty(), "nothing waits without a run");
    }
}

pub(crate) fn of_step(before: &State, input: &Input, records: &[Record], after: &State) {
    the_outcome_is_one_and_the_last_record(before, input, records);
    queued_messages_are_delivered_once_or_handed_back(before, records, after);
    for record in records {
        if let Record::ModelCalled { epoch } = record {
            assert!(*epoch > before.epoch(), "every model call has an epoch of its own");
        }
    }
    let open = |state: &State, id: &str| {
        state.batch().and_then(|batch| batch.get(id)).is_some_and(|call| call.stage == CallStage::Open)
    };
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
    if matches!(input, Input::Resume) {
        assert!(after.epoch() > before.epoch(), "what was in flight before a crash is stale after it");
        for call in before.batch().into_iter().flat_map(|batch| &batch.calls) {
            let at_most_once = call.tool.is_some_and(|tool| tool.effect == EffectClass::AtMostOnce);
            let was_open = call.stage == CallStage::Open;
            assert!(!(at_most_once && was_open && open(after, &call.call.id)), "an at-most-once call starts again");
        }
    }
    if before.run().is_some_and(|run| matches!(run.stage, Stage::Stopping(_))) {
        let harmless =
            |record: &Record| matches!(record, Record::Queued { .. } | Record::Resumed | Record::RunEnded { .. });
        assert!(records.iter().all(harmless), "after a cancel nothing starts and no output is accepted: {records:?}");
    }
}

/// After a crash, a resumed run either has something to do or has ended, and its due effects are those of its records.
pub(crate) fn a_crash_here_is_survived(state: &State) {
    let reopened: State = serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap();
    assert_eq!(&reopened, state);
    assert_eq!(due(&reopened), due(state));
    if state.run().is_none() {
        return;
    }
    let records = decide(state, Input::Resume, 0);
    assert!(!records.is_empty(), "a run that was interrupted can be resumed");
    let mut resumed = reopened;
    for record in &records {
        apply(&mut resumed, record);
    }
    nothing_is_stuck(&resumed);
    for call in state.batch().into_iter().flat_map(|batch| &batch.calls) {
        let cut_off = matches!(call.stage, CallStage::Gating { .. })
            && state.batch().is_some_and(|batch| batch.stop_reason == terret_llm::StopReason::Length);
        let closed = resumed.batch().and_then(|batch| batch.get(&call.call.id)).is_none_or(|call| call.is_closed());
        assert!(!cut_off || closed, "a call of a cut-off reply stays closed after a crash");
    }
}

fn nothing_is_stuck(state: &State) {
    let work = due(state).into_iter().filter(|effect| !matches!(effect, Effect::Deadline { .. })).count();
    assert!(state.run().is_none() || work > 0, "a run waits for nothing: {state:#?}");
}

fn the_model_is_called_only_on_paired_transcripts(state: &State) {
    if !due(state).iter().any(|effect| matches!(effect, Effect::CallModel { .. })) {
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

fn at_most_once_calls_in_doubt_are_never_due_to_start(state: &State) {
    for effect in due(state) {
        if let Effect::StartTool { call, .. } = effect {
            let it = state.batch().and_then(|batch| batch.get(&call.id)).unwrap();
            assert_eq!(it.stage, CallStage::Open);
        }
    }
}

fn stale_inputs_change_nothing(state: &State) {
    for input in stale(state) {
        let records = decide(state, input.clone(), 0);
        assert!(records.is_empty(), "{input:?} in {state:#?} led to {records:?}");
    }
}

fn a_stopping_run_only_stops(state: &State) {
    if state.run().is_some_and(|run| matches!(run.stage, Stage::Stopping(_))) {
        assert_eq!(due(state), [Effect::Stop]);
    }
}

fn queued_messages_are_delivered_once_or_handed_back(before: &State, records: &[Record], after: &State) {
    let mut waiting: Vec<u64> = before.queue().iter().map(|queued| queued.id).collect();
    let mut state = before.clone();
    let mut delivered = 0;
    for record in records {
        match record {
            Record::Delivered { ids } => {
                assert!(ids.iter().all(|id| waiting.contains(id)), "delivered what didn't wait");
                assert!(ids.is_sorted(), "delivered out of order");
                waiting.retain(|id| !ids.contains(id));
                delivered += ids.len();
            }
            Record::RunEnded { .. } => waiting.clear(),
            _ => {}
        }
        apply(&mut state, record);
        let known: HashSet<u64> = waiting.iter().copied().collect();
        waiting.extend(state.queue().iter().map(|queued| queued.id).filter(|id| !known.contains(id)));
    }
    let users =
        |state: &State| state.transcript().iter().filter(|message| matches!(***message, Message::User(_))).count();
    assert_eq!(users(after) - users(before), delivered, "a message was lost or doubled");
    assert_eq!(after.queue().iter().map(|queued| queued.id).collect::<Vec<_>>(), waiting);
}
