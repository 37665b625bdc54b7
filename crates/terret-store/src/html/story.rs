//! A session as it is told: what was said and done, in order, and when.

use std::collections::VecDeque;
use std::sync::Arc;

use terret_agent::machine::{Outcome, Record};
use terret_llm::{Message, Money, ToolCall};

use crate::reader::Kept;

/// What happened, as a reader is told it. Times are in Unix milliseconds.
pub(super) enum Chapter {
    RunStarted {
        at: i64,
    },
    /// Somebody said something. `record` is the number of the record that delivered it.
    Said {
        record: u64,
        message: Arc<Message>,
    },
    Turn(Turn),
    AttemptFailed {
        at: i64,
        why: String,
        took: i64,
    },
    Cancelled {
        why: String,
    },
    Resumed {
        at: i64,
    },
    RunEnded {
        outcome: Outcome,
    },
}

/// A reply and what came of its calls.
pub(super) struct Turn {
    /// The number of the record that holds the reply.
    pub(super) record: u64,
    pub(super) message: Arc<Message>,
    pub(super) cost: Money,
    /// How long the model took; not known after a crash.
    pub(super) took: Option<i64>,
    pub(super) calls: Vec<Called>,
}

pub(super) struct Called {
    pub(super) call: ToolCall,
    /// What a person was asked.
    pub(super) question: Option<String>,
    /// What a person made of the arguments.
    pub(super) edited: Option<String>,
    /// When its tool was started, unless it was lost in a crash.
    opened: Option<i64>,
    closed: Option<i64>,
    pub(super) result: Option<Arc<Message>>,
}

/// Takes records in and gives chapters out.
#[derive(Default)]
pub(super) struct Story {
    /// What waits for a turn that isn't over.
    told: VecDeque<Chapter>,
    queue: Vec<(u64, Arc<Message>)>,
    queued_so_far: u64,
    model_called: Option<i64>,
}

impl Story {
    pub(super) fn take(&mut self, Kept { seq, at, record }: &Kept) {
        let (seq, at) = (*seq, *at);
        match record {
            Record::RunStarted { prompt, at: begun, .. } => {
                // What came from elsewhere was appended later than it happened.
                let at = if *begun > 0 { *begun } else { at };
                self.told.push_back(Chapter::RunStarted { at });
                if let Some(prompt) = prompt {
                    self.enqueue(prompt);
                }
            }
            Record::Queued { message, .. } => self.enqueue(message),
            Record::Delivered { ids } => {
                let delivered = self.queue.extract_if(.., |(id, _)| ids.contains(id));
                let said = delivered.map(|(_, message)| Chapter::Said { record: seq, message });
                self.told.extend(said);
            }
            Record::ModelCalled { .. } => self.model_called = Some(at),
            Record::ReplyAccepted { message, cost } => {
                let called = |call: &ToolCall| Called {
                    call: call.clone(),
                    question: None,
                    edited: None,
                    opened: None,
                    closed: None,
                    result: None,
                };
                let calls = message.tool_calls().map(called).collect();
                let took = self.model_called.take().map(|called| at - called);
                let turn = Turn { record: seq, message: message.clone(), cost: *cost, took, calls };
                self.told.push_back(Chapter::Turn(turn));
            }
            Record::AttemptFailed { failure, .. } => {
                let took = self.model_called.take().map_or(0, |called| at - called);
                self.told.push_back(Chapter::AttemptFailed { at, why: failure.to_string(), took });
            }
            Record::CallAsked { call_id, question } => {
                self.with_call(call_id, |call| call.question = Some(question.clone()));
            }
            Record::CallApproved { call_id, arguments, .. } => {
                self.with_call(call_id, |call| call.edited = arguments.clone());
            }
            Record::CallOpened { call_id } => self.with_call(call_id, |call| call.opened = Some(at)),
            Record::CallClosed { result } => {
                if let Message::ToolResult(message) = &**result {
                    self.with_call(&message.tool_call_id, |call| {
                        (call.closed, call.result) = (Some(at), Some(result.clone()));
                    });
                }
            }
            Record::Cancelled { reason } => self.told.push_back(Chapter::Cancelled { why: reason.clone() }),
            Record::Resumed => {
                // Nobody knows how long what was in flight went on.
                self.model_called = None;
                if let Some(turn) = self.turn() {
                    turn.calls.iter_mut().filter(|call| call.closed.is_none()).for_each(|call| call.opened = None);
                }
                self.told.push_back(Chapter::Resumed { at });
            }
            Record::RunEnded { outcome } => {
                self.told.push_back(Chapter::RunEnded { outcome: outcome.clone() });
                self.queue.clear();
            }
            _ => {}
        }
    }

    /// The next chapter to which nothing will be added.
    pub(super) fn next(&mut self) -> Option<Chapter> {
        match self.told.front() {
            Some(Chapter::Turn(turn)) if turn.calls.iter().any(|call| call.result.is_none()) => None,
            _ => self.told.pop_front(),
        }
    }

    /// What is left when no further record comes.
    pub(super) fn rest(self) -> impl Iterator<Item = Chapter> {
        self.told.into_iter()
    }

    fn enqueue(&mut self, message: &Arc<Message>) {
        self.queue.push((self.queued_so_far, message.clone()));
        self.queued_so_far += 1;
    }

    fn turn(&mut self) -> Option<&mut Turn> {
        self.told.iter_mut().rev().find_map(|chapter| if let Chapter::Turn(turn) = chapter { Some(turn) } else { None })
    }

    fn with_call(&mut self, id: &str, change: impl FnOnce(&mut Called)) {
        if let Some(call) = self.turn().and_then(|turn| turn.calls.iter_mut().find(|call| call.call.id == id)) {
            change(call);
        }
    }
}

impl Called {
    /// How long its tool ran.
    pub(super) fn took(&self) -> Option<i64> {
        Some(self.closed? - self.opened?)
    }
}

impl Turn {
    /// How long at least one of its tools ran.
    pub(super) fn tools_took(&self) -> i64 {
        let mut ran: Vec<(i64, i64)> =
            self.calls.iter().filter_map(|call| Some((call.opened?, call.closed?))).collect();
        ran.sort_unstable();
        let (mut took, mut until) = (0, i64::MIN);
        for (from, to) in ran {
            took += (to - from.max(until)).max(0);
            until = until.max(to);
        }
        took
    }
}
