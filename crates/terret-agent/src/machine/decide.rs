use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use terret_llm::{AssistantMessage, Block, Content, Message, Money, Reply, StopReason, ToolResultMessage, Transcript};

use super::state::{Progress, Tail};
use super::{
    Answer, Batch, Budget, Call, CallStage, Epoch, Failure, Input, Outcome, Prompt, QueueKind, Record, RunState, Stage,
    State, StopCause, ToolFacts, Verdict, Violation,
};
use crate::limit::shortened;
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
        let stopping = matches!(run.stage, Stage::Stopping(_));
        match input {
            Input::Prompt(_) => {}
            Input::Queue { kind, message } => self.commit(Record::Queued { kind, message: Arc::new(message.into()) }),
            Input::Cancel { .. } if stopping => {}
            Input::Cancel { reason } => self.commit(Record::Cancelled { reason }),
            Input::Deadline if stopping || run.deadline().is_none_or(|deadline| self.at < deadline) => {}
            Input::Deadline => self.commit(Record::Expired),
            Input::Stopped { still_running } => match run.stage.clone() {
                Stage::Stopping(StopCause::Cancelled(reason)) => {
                    self.commit(ended(Outcome::Cancelled { reason, still_running }));
                }
                Stage::Stopping(StopCause::OutOfTime) => {
                    self.commit(ended(Outcome::OutOfBudget { budget: Budget::WallTime, still_running }));
                }
                _ => {}
            },
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
                if let Some(call) = self.acting(epoch, &call_id, |stage| matches!(stage, CallStage::Gating { .. })) {
                    self.commit(match verdict {
                        Verdict::Allow => Record::CallAllowed { call_id },
                        Verdict::Ask { question } => Record::CallAsked { call_id, question },
                        Verdict::Deny { reason } => error(&call, denied(&reason), self.at),
                        Verdict::Reject { explanation } => error(&call, explanation, self.at),
                    });
                }
            }
            Input::Answered { call_id, digest, answer } => {
                let epoch = self.progress.epoch;
                let asked = self.acting(epoch, &call_id, |stage| matches!(stage, CallStage::Asked { .. }));
                if let Some(call) = asked.filter(|call| call.digest() == digest) {
                    self.commit(answered(&call, answer, self.at));
                }
            }
            Input::ToolFinished { epoch, call_id, output } => {
                if let Some(call) = self.acting(epoch, &call_id, |stage| *stage == CallStage::Open) {
                    let output = self.annotated(&call, output);
                    self.commit(close(&call, output, self.at));
                }
            }
            Input::Discovered { epoch, call_id, output } => {
                if let Some(call) = self.acting(epoch, &call_id, |stage| *stage == CallStage::InDoubt) {
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
        self.commit(Record::RunStarted { run, limits, tools, at: self.at, prompt });
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
    fn acting(&self, epoch: Epoch, call_id: &str, waits: impl FnOnce(&CallStage) -> bool) -> Option<Call> {
        let run = self.progress.run.as_ref()?;
        let call = self.progress.batch.as_ref()?.get(call_id)?;
        let awaited = epoch == self.progress.epoch && run.stage == Stage::Acting && waits(&call.stage);
        awaited.then(|| call.clone())
    }

    /// An output with what the model has to know beside it.
    fn annotated(&self, call: &Call, mut output: ToolOutput) -> ToolOutput {
        if call.edited {
            let note = format!("[The user changed the arguments to: {}]", call.call.arguments.as_str());
            output.content.insert(0, Content::text(note));
        }
        let run = self.progress.run.as_ref();
        if let Some((run, limit)) = run.and_then(|run| Some((run, run.limits.repeats?)))
            && run.repeats() >= limit.warn.get()
        {
            let (count, end) = (run.repeats(), limit.end);
            let note = format!(
                "[You have made exactly this call {count} times in a row. Do something else, or say what keeps you; at \
                 {end} times the run ends.]"
            );
            output.content.push(Content::text(note));
        }
        output
    }
}

impl Progress {
    /// What the run does of its own accord, one record at a time, until something must be waited for.
    fn next(&self, at: i64) -> Option<Record> {
        let run = self.run.as_ref()?;
        match (&run.stage, &self.batch) {
            (Stage::Calling, _) => None,
            (Stage::Failing(failure), _) => Some(ended(Outcome::Failed { failure: failure.clone() })),
            (Stage::Stopping(_), None) => None,
            (Stage::Stopping(_), Some(batch)) => batch.close_waiting(CANCELLED, at),
            (Stage::Acting, Some(batch)) => batch
                .end_loop(run)
                .or_else(|| batch.settle(run, at))
                .or_else(|| batch.close_beyond_budget(run, at))
                .or_else(|| batch.open_next(run)),
            (Stage::Acting, None) => Some(self.next_turn(run)),
        }
    }

    /// Between turns: deliver what waits, call the model, or end.
    fn next_turn(&self, run: &RunState) -> Record {
        let out_of = run.out_of();
        match self.tail {
            Tail::Answered(StopReason::Refusal) => ended(Outcome::Failed { failure: Failure::Refused }),
            Tail::ToAnswer | Tail::Answered(StopReason::Pause) => match out_of {
                None => self.deliver_steering().unwrap_or(Record::ModelCalled { epoch: self.epoch.next() }),
                Some(budget) => ended(Outcome::OutOfBudget { budget, still_running: Vec::new() }),
            },
            Tail::Answered(_) if out_of.is_some() => ended(Outcome::Completed),
            Tail::Answered(_) => self
                .deliver_steering()
                .or_else(|| self.deliver_follow_up())
                .unwrap_or_else(|| ended(Outcome::Completed)),
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
            (CallStage::Interrupted, ..) => Some(error(it, INTERRUPTED, at)),
            (CallStage::Gating { .. }, _, StopReason::Length) => Some(error(it, CUT_OFF, at)),
            (CallStage::Gating { .. }, _, StopReason::Pause) => Some(error(it, PAUSED, at)),
            (CallStage::Gating { .. }, _, StopReason::Refusal) => Some(error(it, REFUSED, at)),
            (CallStage::Gating { .. }, None, _) => Some(error(it, unknown_tool(&it.call.name, &run.tools), at)),
            _ => None,
        })
    }

    /// A result for the first call whose tool never started, and now never will.
    fn close_waiting(&self, why: &str, at: i64) -> Option<Record> {
        self.calls.iter().find(|call| call.is_waiting()).map(|it| error(it, why, at))
    }

    /// Ends a loop before anything of its last reply is run, or so much as answered.
    fn end_loop(&self, run: &RunState) -> Option<Record> {
        let repeats = run.limits.repeats.is_some_and(|limit| run.repeats() >= limit.end.get());
        let untouched = self.calls.iter().any(|call| matches!(call.stage, CallStage::Gating { .. }));
        let loops = self.run == run.id && repeats && untouched && run.exceeded.is_none();
        loops.then_some(Record::BudgetExceeded { budget: Budget::Loop })
    }

    /// Once a budget is used up, what waits is closed; what runs may finish.
    fn close_beyond_budget(&self, run: &RunState, at: i64) -> Option<Record> {
        match run.exceeded {
            Some(Budget::Loop) => return self.close_waiting(REPEATED, at),
            Some(_) => return self.close_waiting(NO_BUDGET, at),
            None => {}
        }
        let spent = run.limits.tool_calls.is_some_and(|limit| run.spent.tool_calls >= limit.get());
        let wanted = self.calls.iter().any(Call::is_waiting);
        (spent && wanted).then_some(Record::BudgetExceeded { budget: Budget::ToolCalls })
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
const PAUSED: &str = "Not executed: the provider paused the reply. Make the call again if it is still needed.";
const REFUSED: &str = "Not executed: the reply ended in a refusal.";
const CANCELLED: &str = "Not executed: the run was cancelled before the tool started.";
const NO_BUDGET: &str = "Not executed: the run's budget is used up.";
const REPEATED: &str = "Not executed: exactly this call was made too many times in a row, and the run ends.";
const INTERRUPTED: &str = "The run was cancelled before the tool had finished. It changed nothing that a repetition \
                           would harm: call it again if its result is still needed.";
const OUTCOME_UNKNOWN: &str = "Outcome unknown: the tool was started and then interrupted. It may have done all of its \
                               work, a part, or nothing. It was not started again. Check before you repeat it.";

fn denied(reason: &str) -> String {
    format!("The call was denied: {reason}")
}

fn answered(call: &Call, answer: Answer, at: i64) -> Record {
    let call_id = call.call.id.clone();
    match answer {
        Answer::Approve => Record::CallApproved { call_id, arguments: None, for_run: false },
        Answer::ApproveForRun => Record::CallApproved { call_id, arguments: None, for_run: true },
        Answer::Edit(arguments) => Record::CallApproved { call_id, arguments: Some(arguments), for_run: false },
        Answer::Deny { reason } => error(call, denied(&reason), at),
    }
}

fn unknown_tool(name: &str, tools: &BTreeMap<String, ToolFacts>) -> String {
    let known: Vec<&str> = tools.keys().map(String::as_str).collect();
    let name = shortened(name, 100);
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

fn error(call: &Call, text: impl Into<String>, at: i64) -> Record {
    close(call, ToolOutput::error(text), at)
}

fn close(call: &Call, output: ToolOutput, at: i64) -> Record {
    let call = &call.call;
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
