use std::collections::BTreeSet;
use std::sync::Arc;

use terret_llm::{Arguments, Message, StopReason, ToolCall, Usage};

use super::state::{Progress, Tail};
use super::{
    Batch, Call, CallStage, Compaction, Epoch, Failure, QueueKind, Queued, Record, Recovery, RunState, Spent, Stage,
    State, StopCause, Task, context,
};
use crate::tool::EffectClass;

/// Takes a record into the state. The only way in which state changes.
///
/// Total: a record that doesn't fit (of a damaged journal) changes as much as it can and never panics.
pub fn apply(state: &mut State, record: &Record) {
    let appended = state.progress.apply(record);
    if let Record::Compacted { summary, cut, .. } = record {
        let kept = state.transcript.get(*cut..).unwrap_or_default();
        state.transcript = std::iter::once(summary).chain(kept).cloned().collect();
    }
    state.transcript.extend(appended);
}

impl Progress {
    /// Takes a record in, and returns the messages that it appends to the transcript.
    pub(super) fn apply(&mut self, record: &Record) -> Vec<Arc<Message>> {
        let appended = self.advance(record);
        // What a reply's usage counts includes the reply.
        if !matches!(record, Record::ReplyAccepted { .. }) {
            let more = appended.iter().map(|message| context::tokens(message)).sum();
            self.context = self.context.saturating_add(more);
        }
        appended
    }

    fn advance(&mut self, record: &Record) -> Vec<Arc<Message>> {
        self.with_run(|run| run.spent.note(record));
        match record {
            Record::RunStarted { run, limits, tools, at, prompt, models, task } => {
                self.epoch = self.epoch.next();
                self.run = Some(RunState {
                    id: run.clone(),
                    limits: *limits,
                    spent: Spent::default(),
                    tools: tools.clone(),
                    stage: Stage::Acting,
                    started: *at,
                    exceeded: None,
                    approved: BTreeSet::new(),
                    repeated: None,
                    models: models.get(),
                    model: 0,
                    tries: 0,
                    compaction: (*task == Task::Compact).then_some(Compaction::Wanted),
                    task: *task,
                    objections: 0,
                });
                self.lose_open_calls(CallStage::Interrupted);
                if let Some(prompt) = prompt {
                    self.enqueue(QueueKind::Steering, prompt);
                }
            }
            Record::Queued { kind, message } => self.enqueue(*kind, message),
            Record::Delivered { ids } => {
                self.tail = Tail::ToAnswer;
                return self.queue.extract_if(.., |queued| ids.contains(&queued.id)).map(|it| it.message).collect();
            }
            Record::Withdrawn { id } => self.queue.retain(|queued| queued.id != *id),
            Record::Requeued { id, message } => {
                for queued in self.queue.iter_mut().filter(|queued| queued.id == *id) {
                    queued.message = message.clone();
                }
            }
            Record::ModelCalled { epoch } => self.call(*epoch, Stage::Calling),
            Record::CompactionStarted { epoch, cut } => self.call(*epoch, Stage::Compacting { cut: *cut }),
            Record::CallStopped { .. } => {}
            Record::Compacted { context, .. } => {
                self.context = *context;
                self.with_run(|run| {
                    run.stage = Stage::Acting;
                    run.compaction = Some(Compaction::Done);
                    run.tries = 0;
                });
            }
            Record::Objected { message } => {
                self.tail = Tail::ToAnswer;
                self.with_run(|run| run.objections = run.objections.saturating_add(1));
                return vec![message.clone()];
            }
            Record::ReplyAccepted { message, .. } => {
                self.accept(message);
                // The usage counts what the provider was sent, the system prompt and the tools as well.
                self.context = match usage(message).total() {
                    0 => self.context.saturating_add(context::tokens(message)),
                    total => total,
                };
                self.with_run(|run| {
                    run.stage = Stage::Acting;
                    run.compaction = None;
                    run.tries = 0;
                });
                return vec![message.clone()];
            }
            Record::AttemptFailed { failure, recovery, .. } => self.with_run(|run| run.fail(failure, *recovery)),
            Record::CallAllowed { call_id } => self.set_stage(call_id, CallStage::Allowed),
            Record::CallAsked { call_id, question } => {
                self.set_stage(call_id, CallStage::Asked { question: question.clone() });
            }
            Record::CallApproved { call_id, arguments, for_run } => {
                self.approve(call_id, arguments.as_deref(), *for_run)
            }
            Record::CallOpened { call_id } => self.set_stage(call_id, CallStage::Open),
            Record::CallClosed { result } => {
                if let Message::ToolResult(message) = &**result {
                    self.set_stage(&message.tool_call_id, CallStage::Closed(result.clone()));
                }
                return self.results_when_complete();
            }
            Record::BudgetExceeded { budget } => self.with_run(|run| run.exceeded = Some(*budget)),
            Record::Expired => self.with_run(|run| run.stage = Stage::Stopping(StopCause::OutOfTime)),
            Record::Cancelled { reason } => {
                self.with_run(|run| run.stage = Stage::Stopping(StopCause::Cancelled(reason.clone())));
            }
            Record::Interrupted => self.with_run(|run| {
                let until = if let Stage::Waiting { until } = run.stage { Some(until) } else { None };
                run.stage = Stage::Stopping(StopCause::Interrupted { until });
            }),
            Record::Halted { .. } => {
                self.epoch = self.epoch.next();
                self.lose_open_calls(CallStage::Interrupted);
                self.with_run(|run| {
                    run.stage = match run.stage {
                        Stage::Stopping(StopCause::Interrupted { until: Some(until) }) => Stage::Waiting { until },
                        _ => Stage::Acting,
                    }
                });
            }
            Record::Resumed => {
                self.epoch = self.epoch.next();
                self.lose_open_calls(CallStage::Open);
                self.with_run(|run| {
                    if matches!(run.stage, Stage::Calling | Stage::Compacting { .. }) {
                        run.stage = Stage::Acting;
                    }
                });
            }
            Record::RunEnded { .. } => {
                self.run = None;
                self.queue.clear();
            }
        }
        Vec::new()
    }

    fn with_run(&mut self, change: impl FnOnce(&mut RunState)) {
        if let Some(run) = &mut self.run {
            change(run);
        }
    }

    fn call(&mut self, epoch: Epoch, stage: Stage) {
        self.epoch = epoch;
        self.with_run(|run| run.stage = stage);
    }

    fn enqueue(&mut self, kind: QueueKind, message: &Arc<Message>) {
        self.queue.push(Queued { id: self.queued_so_far, kind, message: message.clone() });
        self.queued_so_far = self.queued_so_far.saturating_add(1);
    }

    fn accept(&mut self, message: &Arc<Message>) {
        let Message::Assistant(reply) = &**message else { return };
        self.tail = Tail::Answered(reply.stop_reason);
        let Some(run) = &mut self.run else { return };
        let call = |call: &ToolCall| Call {
            call: Arc::new(call.clone()),
            edited: false,
            tool: run.tools.get(&call.name).copied(),
            stage: CallStage::Gating { approved: false },
        };
        let calls: Vec<Call> = reply.tool_calls().map(call).collect();
        if calls.is_empty() {
            run.repeated = None;
            return;
        }
        let before = run.repeated.take().filter(|(before, _)| makes_the_same_calls(before, message));
        run.repeated = Some((message.clone(), before.map_or(1, |(_, count)| count + 1)));
        let (epoch, stop_reason) = (self.epoch, reply.stop_reason);
        self.batch = Some(Batch { calls, run: run.id.clone(), epoch, stop_reason });
    }

    fn call_mut(&mut self, call_id: &str) -> Option<&mut Call> {
        // A damaged reply may have an id twice: then each of its calls gets its turn.
        self.batch.as_mut()?.calls.iter_mut().find(|call| call.call.id == call_id && !call.is_closed())
    }

    fn set_stage(&mut self, call_id: &str, stage: CallStage) {
        if let Some(call) = self.call_mut(call_id) {
            call.stage = stage;
        }
    }

    fn approve(&mut self, call_id: &str, arguments: Option<&str>, for_run: bool) {
        let Some(call) = self.call_mut(call_id) else { return };
        call.stage = CallStage::Gating { approved: true };
        if let Some(arguments) = arguments {
            call.edited = true;
            call.call = Arc::new(ToolCall { arguments: Arguments::new(arguments), ..(*call.call).clone() });
        }
        if !for_run {
            return;
        }
        let tool = call.call.name.clone();
        for sibling in self.batch.iter_mut().flat_map(|batch| &mut batch.calls) {
            if sibling.call.name == tool && matches!(sibling.stage, CallStage::Asked { .. }) {
                sibling.stage = CallStage::Gating { approved: true };
            }
        }
        self.with_run(|run| _ = run.approved.insert(tool));
    }

    /// What was open may have been lost half way. At-most-once calls are in doubt; the others go to `harmless`.
    fn lose_open_calls(&mut self, harmless: CallStage) {
        for call in self.batch.iter_mut().flat_map(|batch| &mut batch.calls) {
            if call.stage == CallStage::Open {
                let repeatable = call.tool.is_some_and(|tool| tool.effect != EffectClass::AtMostOnce);
                call.stage = if repeatable { harmless.clone() } else { CallStage::InDoubt };
            }
        }
    }

    /// The batch's results in request order, once every call has its own. A refusal stays one.
    fn results_when_complete(&mut self) -> Vec<Arc<Message>> {
        let Some(batch) = self.batch.take_if(|batch| batch.calls.iter().all(Call::is_closed)) else {
            return Vec::new();
        };
        if batch.stop_reason != StopReason::Refusal {
            self.tail = Tail::ToAnswer;
        }
        let result = |call: Call| if let CallStage::Closed(result) = call.stage { Some(result) } else { None };
        batch.calls.into_iter().filter_map(result).collect()
    }
}

impl RunState {
    fn fail(&mut self, failure: &Failure, recovery: Option<Recovery>) {
        if let Failure::Model(error) = failure {
            self.tries = self.tries.saturating_add(error.tries.max(1));
        }
        self.stage = match recovery {
            None => Stage::Failing(failure.clone()),
            Some(Recovery::Retry { at }) => Stage::Waiting { until: at },
            Some(Recovery::FallBack | Recovery::Compact) => Stage::Acting,
        };
        match recovery {
            Some(Recovery::FallBack) => {
                self.model = self.model.saturating_add(1);
                self.tries = 0;
            }
            Some(Recovery::Compact) => {
                self.compaction = Some(Compaction::Wanted);
                self.tries = 0;
            }
            Some(Recovery::Retry { .. }) | None => {}
        }
    }
}

fn makes_the_same_calls(a: &Message, b: &Message) -> bool {
    let calls = |message: &'_ Message| -> Vec<(String, Arguments)> {
        message.tool_calls().map(|call| (call.name.clone(), call.arguments.clone())).collect()
    };
    calls(a) == calls(b)
}

fn usage(message: &Message) -> Usage {
    if let Message::Assistant(reply) = message { reply.usage } else { Usage::default() }
}
