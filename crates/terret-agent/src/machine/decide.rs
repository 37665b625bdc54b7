use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use terret_llm::{AssistantMessage, Block, Message, Money, Reply, StopReason, ToolCall, ToolResultMessage, Transcript};

use super::state::{Progress, Tail};
use super::{
    Batch, Budget, Call, CallStage, Epoch, Failure, Input, Outcome, Prompt, QueueKind, Record, RunState, Stage, State,
    ToolFacts, Verdict, Violation,
};
use crate::tool::ToolOutput;

/// What happens. `at` is the time in Unix milliseconds, for the messages that the machine itself writes.
///
/// Total over all inputs in all states; no record means that the state has no use for the input.
pub fn decide(state: &State, input: Input, at: i64) -> Vec<Record> {
    let mut plan = Plan { progress: state.progress.clone(), records: Vec::new(), at };
    plan.take(input, &state.transcript);
    if !plan.records.is_empty() {
        while let Some(record) = plan.progress.next(at) {
            plan.commit(record);
        }
    }
    plan.records
}

/// The records so far, and what they make of the state.
struct Plan {
    progress: Progress,
    records: Vec<Record>,
    at: i64,
}

impl Plan {
    fn commit(&mut self, record: Record) {
        self.progress.apply(&record);
        self.records.push(record);
    }

    /// What the input itself means. What follows from it is [`Progress::next`]'s.
    fn take(&mut self, input: Input, transcript: &Transcript) {
        let Some(run) = &self.progress.run else {
            if let Input::Prompt(prompt) = input {
                self.start(prompt);
            }
            return;
        };
        let stopping = matches!(run.stage, Stage::Stopping { .. });
        match input {
            Input::Prompt(_) => {}
            Input::Queue { kind, message } => self.commit(Record::Queued { kind, message: Arc::new(message.into()) }),
            Input::Cancel { .. } if stopping => {}
            Input::Cancel { reason } => self.commit(Record::Cancelled { reason }),
            Input::Stopped { still_running } => {
                if let Stage::Stopping { reason } = run.stage.clone() {
                    self.commit(Record::RunEnded { outcome: Outcome::Cancelled { reason, still_running } });
                }
            }
            Input::Resume => self.commit(Record::Resumed),
            Input::Replied { epoch, reply, cost } => {
                if self.is_calling(epoch) {
                    self.replied(reply, cost, transcript);
                }
            }
            Input::ModelFailed { epoch, error, usage, cost } => {
                if self.is_calling(epoch) {
                    self.commit(Record::AttemptFailed { failure: Failure::Model(error), usage, cost });
                }
            }
            Input::GateDecided { epoch, call_id, verdict } => {
                if let Some(call) = self.acting(epoch, &call_id, &CallStage::Gating) {
                    self.commit(match verdict {
                        Verdict::Allow => Record::CallAllowed { call_id },
                        Verdict::Deny { reason } => error(&call, format!("The call was denied: {reason}"), self.at),
                        Verdict::Reject { explanation } => error(&call, explanation, self.at),
                    });
                }
            }
            Input::ToolFinished { epoch, call_id, output } => {
                if let Some(call) = self.acting(epoch, &call_id, &CallStage::Open) {
                    self.commit(close(&call, output, self.at));
                }
            }
            Input::Discovered { epoch, call_id, output } => {
                if let Some(call) = self.acting(epoch, &call_id, &CallStage::InDoubt) {
                    self.commit(match output {
                        Some(output) => close(&call, output, self.at),
                        None => error(&call, OUTCOME_UNKNOWN, self.at),
                    });
                }
            }
        }
    }

    fn start(&mut self, prompt: Prompt) {
        let Prompt { run, message, limits, tools } = prompt;
        let prompt = message.map(|message| Arc::new(message.into()));
        self.commit(Record::RunStarted { run, limits, tools, prompt });
    }

    fn replied(&mut self, reply: Reply, cost: Money, transcript: &Transcript) {
        let message = reply.into_message();
        self.commit(match violation(&message, transcript) {
            Some(violation) => {
                Record::AttemptFailed { failure: Failure::Protocol(violation), usage: message.usage, cost }
            }
            None => Record::ReplyAccepted { message: Arc::new(message.into()), cost },
        });
    }

    fn is_calling(&self, epoch: Epoch) -> bool {
        epoch == self.progress.epoch && self.progress.run.as_ref().is_some_and(|run| run.stage == Stage::Calling)
    }

    /// The call that a completion is for, if the run still waits for it.
    fn acting(&self, epoch: Epoch, call_id: &str, stage: &CallStage) -> Option<Arc<ToolCall>> {
        let run = self.progress.run.as_ref()?;
        let call = self.progress.batch.as_ref()?.get(call_id)?;
        let awaited = epoch == self.progress.epoch && run.stage == Stage::Acting && call.stage == *stage;
        awaited.then(|| call.call.clone())
    }
}

impl Progress {
    /// What the run does of its own accord, one record at a time, until something must be waited for.
    fn next(&self, at: i64) -> Option<Record> {
        let run = self.run.as_ref()?;
        match (&run.stage, &self.batch) {
            (Stage::Calling, _) => None,
            (Stage::Failing(failure), _) => Some(ended(Outcome::Failed { failure: failure.clone() })),
            (Stage::Stopping { .. }, None) => None,
            (Stage::Stopping { .. }, Some(batch)) => batch.close_unstarted(at),
            (Stage::Acting, Some(batch)) => batch.settle(run, at).or_else(|| batch.open_next(run)),
            (Stage::Acting, None) => Some(self.next_turn(run)),
        }
    }

    /// Between turns: deliver what waits, call the model, or end.
    fn next_turn(&self, run: &RunState) -> Record {
        let may_call = run.spent.model_calls < run.limits.model_calls.get();
        match self.tail {
            Tail::Answered(StopReason::Refusal) => ended(Outcome::Failed { failure: Failure::Refused }),
            Tail::ToAnswer | Tail::Answered(StopReason::Pause) if may_call => {
                self.deliver_steering().unwrap_or(Record::ModelCalled { epoch: self.epoch.next() })
            }
            Tail::ToAnswer | Tail::Answered(StopReason::Pause) => {
                ended(Outcome::OutOfBudget { budget: Budget::ModelCalls })
            }
            Tail::Answered(_) if may_call => self
                .deliver_steering()
                .or_else(|| self.deliver_follow_up())
                .unwrap_or_else(|| ended(Outcome::Completed)),
            Tail::Answered(_) => ended(Outcome::Completed),
        }
    }

    fn deliver_steering(&self) -> Option<Record> {
        let waiting = self.queue.iter().filter(|queued| queued.kind == QueueKind::Steering);
        let ids: Vec<u64> = waiting.map(|queued| queued.id).collect();
        (!ids.is_empty()).then_some(Record::Delivered { ids })
    }

    fn deliver_follow_up(&self) -> Option<Record> {
        self.queue.first().map(|queued| Record::Delivered { ids: vec![queued.id] })
    }
}

impl Batch {
    /// A result for the first call that gets one without its tool: it is unknown, cut off, refused or interrupted.
    fn settle(&self, run: &RunState, at: i64) -> Option<Record> {
        self.calls.iter().find_map(|it| match (&it.stage, it.tool, self.stop_reason) {
            (CallStage::Interrupted, ..) => Some(error(&it.call, INTERRUPTED, at)),
            (CallStage::Gating, _, StopReason::Length) => Some(error(&it.call, CUT_OFF, at)),
            (CallStage::Gating, _, StopReason::Refusal) => Some(error(&it.call, REFUSED, at)),
            (CallStage::Gating, None, _) => Some(error(&it.call, unknown_tool(&it.call.name, &run.tools), at)),
            _ => None,
        })
    }

    /// A result for the first call whose tool never started, and now never will.
    fn close_unstarted(&self, at: i64) -> Option<Record> {
        let unstarted = |it: &&Call| matches!(it.stage, CallStage::Gating | CallStage::Allowed);
        self.calls.iter().find(unstarted).map(|it| error(&it.call, CANCELLED, at))
    }

    /// Opens the first allowed call whose turn has come: there is room, and no exclusive call stands between.
    fn open_next(&self, run: &RunState) -> Option<Record> {
        let in_flight = self.calls.iter().filter(|call| call.is_in_flight()).count();
        if in_flight >= run.limits.parallel_tools.get() as usize {
            return None;
        }
        let mut earlier_closed = true;
        for it in &self.calls {
            let alone = it.is_exclusive();
            if it.stage == CallStage::Allowed && (!alone || earlier_closed) {
                return Some(Record::CallOpened { call_id: it.call.id.clone() });
            }
            if alone && !it.is_closed() {
                return None;
            }
            earlier_closed &= it.is_closed();
        }
        None
    }
}

const CUT_OFF: &str = "Not executed: the reply was cut off at the output limit, so the arguments may be incomplete. \
                       Make the call again with shorter arguments, or split the work into several calls.";
const REFUSED: &str = "Not executed: the reply ended in a refusal.";
const CANCELLED: &str = "Not executed: the run was cancelled before the tool started.";
const INTERRUPTED: &str = "The run was cancelled before the tool had finished. It changed nothing that a repetition \
                           would harm: call it again if its result is still needed.";
const OUTCOME_UNKNOWN: &str = "Outcome unknown: the tool was started and then interrupted. It may have done all of its \
                               work, a part, or nothing. It was not started again. Check before you repeat it.";

fn unknown_tool(name: &str, tools: &BTreeMap<String, ToolFacts>) -> String {
    let known: Vec<&str> = tools.keys().map(String::as_str).collect();
    match known.is_empty() {
        true => format!("There is no tool {name:?}, and this run has no tools."),
        false => format!("There is no tool {name:?}. The tools are: {}.", known.join(", ")),
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
        StopReason::Pause => None,
        StopReason::Refusal => None,
        _ if !reply.content.iter().any(says_something) => Some(Violation::NoContent(reply.stop_reason)),
        StopReason::ToolUse if seen.is_empty() => Some(Violation::ToolUseWithoutCalls),
        _ => None,
    }
}

fn ended(outcome: Outcome) -> Record {
    Record::RunEnded { outcome }
}

fn error(call: &ToolCall, text: impl Into<String>, at: i64) -> Record {
    close(call, ToolOutput::error(text), at)
}

fn close(call: &ToolCall, output: ToolOutput, at: i64) -> Record {
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
