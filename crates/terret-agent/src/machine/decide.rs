use std::collections::HashSet;
use std::sync::Arc;

use terret_llm::{
    AssistantMessage, Block, Content, Message, Money, Reply, StopReason, ToolResultMessage, Transcript, Usage,
    UserMessage,
};

use super::next::Turn;
use super::state::Progress;
use super::{
    Answer, Budget, Call, CallStage, Epoch, Failure, Input, Outcome, Prompt, QueueKind, Record, RunState, Stage, State,
    StopCause, Task, Verdict, Violation, context, told,
};
use crate::tool::ToolOutput;

/// What happens. `at` is the time in Unix milliseconds.
///
/// Total over all inputs in all states; no record means that the state has no use for the input.
pub fn decide(state: &State, input: Input, at: i64) -> Vec<Record> {
    let mut plan = Plan {
        progress: state.progress.clone(),
        transcript: &state.transcript,
        appended: Vec::new(),
        records: Vec::new(),
        at,
    };
    let woken = input == Input::Wake;
    plan.take(input);
    if woken || !plan.records.is_empty() {
        while let Some(record) = plan.next() {
            plan.commit(record);
        }
    }
    plan.records
}

/// The records so far, and what they make of the state.
pub(super) struct Plan<'a> {
    pub(super) progress: Progress,
    pub(super) transcript: &'a Transcript,
    pub(super) appended: Vec<Arc<Message>>,
    pub(super) records: Vec<Record>,
    pub(super) at: i64,
}

impl Plan<'_> {
    fn commit(&mut self, record: Record) {
        self.appended.extend(self.progress.apply(&record));
        self.records.push(record);
    }

    /// What the input itself means. What follows from it is [`Plan::next`]'s.
    fn take(&mut self, input: Input) {
        let Some(run) = &self.progress.run else {
            if let Input::Prompt(prompt) = input {
                self.start(prompt);
            }
            return;
        };
        let cause = if let Stage::Stopping(cause) = &run.stage { Some(cause.clone()) } else { None };
        let goes_on = matches!(cause, None | Some(StopCause::Interrupted { .. }));
        let expired = run.deadline().is_some_and(|deadline| self.at >= deadline);
        match input {
            Input::Prompt(prompt) if run.is_joined_by(&prompt, self.at) => self.join(prompt),
            Input::Prompt(prompt) => {
                self.make_room();
                self.start(prompt);
            }
            Input::Queue { kind, message } => self.commit(Record::Queued { kind, message: Arc::new(message.into()) }),
            Input::Withdraw { id } if self.waits(id) => self.commit(Record::Withdrawn { id }),
            Input::Requeue { id, message } if self.waits(id) => {
                self.commit(Record::Requeued { id, message: Arc::new(message.into()) });
            }
            Input::Withdraw { .. } | Input::Requeue { .. } => {}
            Input::Interrupt { message } => {
                self.commit(Record::Queued { kind: QueueKind::Steering, message: Arc::new(message.into()) });
                if cause.is_none() {
                    self.commit(Record::Interrupted);
                }
            }
            Input::Cancel { reason } if goes_on => self.commit(Record::Cancelled { reason }),
            Input::Cancel { .. } => {}
            Input::Wake if goes_on && expired => self.commit(Record::Expired),
            Input::Wake => {}
            Input::Exhausted { budget } if goes_on && run.exceeded.is_none() => {
                self.commit(Record::BudgetExceeded { budget });
            }
            Input::Exhausted { .. } => {}
            Input::NeverBegun { epoch, call_id } => {
                let call = self.progress.batch.as_ref().and_then(|batch| batch.get(&call_id));
                let announced = call.filter(|call| epoch == self.progress.epoch && call.stage == CallStage::Open);
                if let Some((cause, call)) = cause.zip(announced) {
                    self.commit(error(call, told::stopped(&cause), self.at));
                }
            }
            Input::Stopped { still_running, usage, cost } => {
                if let Some(cause) = cause {
                    self.stopped(cause, still_running, usage, cost);
                }
            }
            Input::Resume => self.resume(),
            Input::Replied { epoch, reply, cost } => {
                if epoch == self.progress.epoch && run.stage == Stage::Calling {
                    self.replied(reply, cost);
                }
            }
            Input::Summarised { epoch, summary, usage, cost } => match run.stage {
                Stage::Compacting { cut } if epoch == self.progress.epoch => self.summarised(cut, summary, usage, cost),
                _ => {}
            },
            Input::AttemptFailed { epoch, failure, usage, cost } => {
                let attempts = matches!(run.stage, Stage::Calling | Stage::Compacting { .. });
                if (attempts && epoch == self.progress.epoch) || self.is_reviewing(epoch) {
                    self.failed(failure, usage, cost);
                }
            }
            Input::Reviewed { epoch, objection } => {
                if self.is_reviewing(epoch) {
                    self.reviewed(objection);
                }
            }
            Input::GateDecided { epoch, call_id, verdict } => {
                if let Some(call) = self.acting(epoch, &call_id, |stage| matches!(stage, CallStage::Gating { .. })) {
                    self.commit(match verdict {
                        Verdict::Allow => Record::CallAllowed { call_id },
                        // What a person has approved for the run saves the question, and nothing else.
                        Verdict::Ask { .. } if self.is_approved(&call) => Record::CallAllowed { call_id },
                        Verdict::Ask { question } => Record::CallAsked { call_id, question },
                        Verdict::Deny { reason } => self.result(&call, ToolOutput::error(told::denied(&reason))),
                        Verdict::Reject { explanation } => self.result(&call, ToolOutput::error(explanation)),
                    });
                }
            }
            Input::Answered { call_id, digest, answer } => {
                let epoch = self.progress.epoch;
                let asked = self.acting(epoch, &call_id, |stage| matches!(stage, CallStage::Asked { .. }));
                if let Some(call) = asked.filter(|call| self.digest(call) == digest) {
                    self.commit(self.answered(&call, answer));
                }
            }
            Input::ToolFinished { epoch, call_id, output } => {
                if let Some(call) = self.acting(epoch, &call_id, |stage| *stage == CallStage::Open) {
                    self.commit(self.result(&call, output));
                }
            }
            Input::Discovered { epoch, call_id, output } => {
                if let Some(call) = self.acting(epoch, &call_id, |stage| *stage == CallStage::InDoubt) {
                    self.commit(match output {
                        Some(output) => self.result(&call, output),
                        None => error(&call, told::OUTCOME_UNKNOWN, self.at),
                    });
                }
            }
        }
    }

    fn resume(&mut self) {
        let run = self.progress.run.as_ref();
        let expired = run.and_then(RunState::deadline).is_some_and(|deadline| self.at >= deadline);
        let is_ending = run.is_some_and(RunState::is_ending);
        self.commit(Record::Resumed);
        if expired && !is_ending {
            self.commit(Record::Expired);
        }
    }

    /// Goes on with a run that a crash has left open.
    fn join(&mut self, prompt: Prompt) {
        self.resume();
        if let Some(message) = prompt.message {
            self.commit(Record::Queued { kind: QueueKind::Steering, message: Arc::new(message.into()) });
        }
        if let Some(budget) = prompt.exceeded {
            self.commit(Record::BudgetExceeded { budget });
        }
    }

    /// Ends a run that a crash has left open. What was open of its calls is settled by the run that follows.
    fn make_room(&mut self) {
        let Some(run) = &self.progress.run else { return };
        let expired = run.deadline().is_some_and(|deadline| self.at >= deadline);
        let outcome = match &run.stage {
            Stage::Failing(failure) => Outcome::Failed { failure: failure.clone() },
            Stage::Stopping(StopCause::Cancelled(reason)) => cancelled(reason),
            Stage::Stopping(StopCause::OutOfTime) => out_of_time(Vec::new()),
            _ if expired => {
                self.commit(Record::Expired);
                out_of_time(Vec::new())
            }
            _ => {
                self.commit(Record::Cancelled { reason: TAKEN_OVER.into() });
                cancelled(TAKEN_OVER)
            }
        };
        // The calls whose tools never started.
        while let Some(record) = self.next() {
            self.commit(record);
        }
        if self.progress.run.is_some() {
            self.commit(ended(outcome));
        }
    }

    fn start(&mut self, prompt: Prompt) {
        let Prompt { run, message, limits, tools, models, task, exceeded, apart: _ } = prompt;
        let prompt = message.map(|message| Arc::new(message.into()));
        self.commit(Record::RunStarted { run, limits, tools, at: self.at, prompt, models, task });
        if let Some(budget) = exceeded {
            self.commit(Record::BudgetExceeded { budget });
        }
    }

    fn stopped(&mut self, cause: StopCause, still_running: Vec<String>, usage: Usage, cost: Money) {
        if (usage, cost) != Default::default() {
            self.commit(Record::CallStopped { usage, cost });
        }
        self.commit(match cause {
            StopCause::Cancelled(reason) => ended(Outcome::Cancelled { reason, still_running }),
            StopCause::OutOfTime => ended(out_of_time(still_running)),
            StopCause::Interrupted { .. } => Record::Halted { still_running },
        });
    }

    fn replied(&mut self, reply: Reply, cost: Money) {
        let message = reply.into_message();
        match violation(&message, self.transcript) {
            Some(violation) => self.failed(Failure::Protocol(violation), message.usage, cost),
            None => self.commit(Record::ReplyAccepted { message: Arc::new(message.into()), cost }),
        }
    }

    fn summarised(&mut self, cut: usize, summary: String, usage: Usage, cost: Money) {
        let text = told::summary(&summary);
        let message = Arc::new(Message::from(UserMessage::text(text, self.at)));
        let tokens = |messages: &[Arc<Message>]| messages.iter().map(|message| context::tokens(message)).sum::<u64>();
        let (before, after) = self.transcript.split_at_checked(cut).unwrap_or_default();
        let (removed, added) = (tokens(before), context::tokens(&message));
        let problem = if summary.trim().is_empty() {
            "the summary is empty".to_owned()
        } else if added >= removed {
            format!("the summary takes about {added} tokens, and what it stands for {removed}")
        } else {
            let context = added + tokens(after);
            return self.commit(Record::Compacted { summary: message, cut, context, usage, cost });
        };
        self.failed(Failure::Compaction(problem), usage, cost);
    }

    fn failed(&mut self, failure: Failure, usage: Usage, cost: Money) {
        let spent = self.progress.run.as_ref().map(|run| run.spent.and(usage, cost)).unwrap_or_default();
        let recovery = self.progress.recovery(&failure, &spent, self.at, || self.cut().is_some());
        self.commit(Record::AttemptFailed { failure, recovery, usage, cost });
    }

    fn reviewed(&mut self, objection: Option<String>) {
        let Some(run) = &self.progress.run else { return };
        let record = match objection {
            None => ended(Outcome::Completed),
            Some(text) if run.objections >= run.limits.objections => {
                ended(Outcome::Failed { failure: Failure::Objected(text) })
            }
            Some(text) => Record::Objected { message: Arc::new(UserMessage::text(text, self.at).into()) },
        };
        self.commit(record);
    }

    /// Whether the final reply is being reviewed.
    fn is_reviewing(&self, epoch: Epoch) -> bool {
        let Some(run) = &self.progress.run else { return false };
        let between = run.stage == Stage::Acting && self.progress.batch.is_none();
        between && epoch == self.progress.epoch && matches!(self.progress.turn(run, None), Turn::Review)
    }

    fn digest(&self, call: &Call) -> String {
        self.progress.batch.as_ref().map(|batch| batch.digest(call)).unwrap_or_default()
    }

    fn is_approved(&self, call: &Call) -> bool {
        self.progress.run.as_ref().is_some_and(|run| run.approved.contains(&call.call.name))
    }

    fn waits(&self, id: u64) -> bool {
        self.progress.queue.iter().any(|queued| queued.id == id)
    }

    /// The call that a completion is for, if the run still waits for it.
    fn acting(&self, epoch: Epoch, call_id: &str, waits: impl FnOnce(&CallStage) -> bool) -> Option<Call> {
        let run = self.progress.run.as_ref()?;
        let call = self.progress.batch.as_ref()?.get(call_id)?;
        let awaited = epoch == self.progress.epoch && run.stage == Stage::Acting && waits(&call.stage);
        awaited.then(|| call.clone())
    }

    fn answered(&self, call: &Call, answer: Answer) -> Record {
        let call_id = call.call.id.clone();
        match answer {
            Answer::Approve => Record::CallApproved { call_id, arguments: None, for_run: false },
            Answer::ApproveForRun => Record::CallApproved { call_id, arguments: None, for_run: true },
            Answer::Edit(arguments) => Record::CallApproved { call_id, arguments: Some(arguments), for_run: false },
            Answer::Deny { reason } => self.result(call, ToolOutput::error(told::denied(&reason))),
        }
    }

    /// Closes a call with what came of it.
    fn result(&self, call: &Call, output: ToolOutput) -> Record {
        let output = match &self.progress.run {
            Some(run) => run.warned(output),
            None => output,
        };
        close(call, output, self.at)
    }
}

/// What makes a complete reply unusable, checked before anything of it runs.
fn violation(reply: &AssistantMessage, transcript: &Transcript) -> Option<Violation> {
    let mut seen = HashSet::new();
    for call in reply.tool_calls() {
        if call.id.is_empty() {
            return Some(Violation::EmptyCallId);
        }
        if transcript.has_call_id(&call.id) || !seen.insert(&call.id) {
            return Some(Violation::RepeatedCallId(call.id.clone()));
        }
    }
    let says_something = |block: &Block| match block {
        Block::Text(text) => !text.text.trim().is_empty(),
        Block::Thinking(_) => false,
        _ => true,
    };
    match reply.stop_reason {
        StopReason::Refusal => None,
        // The provider goes on from what it has thought.
        StopReason::Pause if reply.content.iter().any(|block| matches!(block, Block::Thinking(_))) => None,
        _ if !reply.content.iter().any(says_something) => Some(Violation::NoContent(reply.stop_reason)),
        StopReason::ToolUse if seen.is_empty() => Some(Violation::ToolUseWithoutCalls),
        _ => None,
    }
}

/// Why a run was cancelled that a crash had left open.
const TAKEN_OVER: &str = "it was interrupted, and another run has taken its place";

impl RunState {
    /// Whether a prompt goes on with this run, which a crash has left open.
    fn is_joined_by(&self, prompt: &Prompt, at: i64) -> bool {
        if prompt.apart || (prompt.task == Task::Compact && self.task != Task::Compact) {
            return false;
        }
        // Who says nothing wants this run to be finished. A crash gives nobody a new budget.
        let is_same = self.task == prompt.task && self.tools == prompt.tools && self.models == prompt.models.get();
        let has_time = self.deadline().is_none_or(|deadline| at < deadline);
        let answers = self.limits == prompt.limits && !self.is_ending() && has_time && self.out_of().is_none();
        prompt.message.is_none() || (is_same && answers)
    }

    /// Whether it does nothing any more but end.
    fn is_ending(&self) -> bool {
        match &self.stage {
            Stage::Failing(_) => true,
            Stage::Stopping(cause) => !matches!(cause, StopCause::Interrupted { .. }),
            _ => false,
        }
    }
}

fn cancelled(reason: &str) -> Outcome {
    Outcome::Cancelled { reason: reason.to_owned(), still_running: Vec::new() }
}

fn out_of_time(still_running: Vec<String>) -> Outcome {
    Outcome::OutOfBudget { budget: Budget::WallTime, still_running }
}

pub(super) fn ended(outcome: Outcome) -> Record {
    Record::RunEnded { outcome }
}

pub(super) fn error(call: &Call, text: impl Into<String>, at: i64) -> Record {
    close(call, ToolOutput::error(text), at)
}

pub(super) fn close(it: &Call, mut output: ToolOutput, at: i64) -> Record {
    let call = &it.call;
    if it.edited {
        output.content.insert(0, Content::text(told::edited(call.arguments.as_str())));
    }
    Record::CallClosed {
        result: Arc::new(Message::ToolResult(ToolResultMessage {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            content: output.content,
            details: output.details,
            is_error: output.is_error,
            timestamp: at,
        })),
    }
}
