//! A session as it is told: what was said and done, in order, and when.

use std::collections::VecDeque;
use std::sync::Arc;

use terret_agent::machine::{Outcome, Record};
use terret_llm::{Message, Money, ToolCall, Usage};

use crate::numbering::Numbering;
use crate::reader::Kept;

/// What happened, as a reader is told it. Times are in Unix milliseconds.
pub(super) enum Chapter {
    RunStarted {
        at: i64,
    },
    /// Somebody said something.
    Said {
        /// The message's number.
        number: u64,
        message: Arc<Message>,
    },
    Turn(Turn),
    AttemptFailed {
        at: i64,
        why: String,
        took: i64,
    },
    /// A summary took the place of what the model was told before.
    Compacted {
        summary: Arc<Message>,
        usage: Usage,
        cost: Money,
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
    /// The number of the reply among the messages. Those of its results follow.
    pub(super) number: u64,
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
    numbering: Numbering,
    model_called: Option<i64>,
}

impl Story {
    pub(super) fn take(&mut self, Kept { seq, at, record }: &Kept) {
        let (at, numbered) = (*at, self.numbering.take(*seq, record));
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
                let said = delivered
                    .zip(numbered)
                    .map(|((_, message), numbered)| Chapter::Said { number: numbered.message, message });
                self.told.extend(said);
            }
            Record::Withdrawn { id } => self.queue.retain(|(queued, _)| queued != id),
            Record::Requeued { id, message } => {
                let queued = self.queue.iter_mut().find(|(queued, _)| queued == id);
                if let Some((_, queued)) = queued {
                    *queued = message.clone();
                }
            }
            Record::Compacted { summary, usage, cost, .. } => {
                let (summary, usage, cost) = (summary.clone(), *usage, *cost);
                self.told.push_back(Chapter::Compacted { summary, usage, cost });
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
                let number = numbered.first().map_or(0, |numbered| numbered.message);
                let turn = Turn { number, message: message.clone(), cost: *cost, took, calls };
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use terret_agent::machine::{Epoch, Limits, RunId, Task};
    use terret_llm::wire::WireFormat;
    use terret_llm::{AssistantMessage, Block, Content, StopReason, ToolResultMessage, UserMessage};

    use super::*;

    fn reply(calls: &[&str]) -> Record {
        let content = calls.iter().map(|id| Block::ToolCall(ToolCall::new(*id, "look", "{}"))).collect();
        let message = AssistantMessage {
            content,
            provider: "p".into(),
            model: "m".into(),
            wire: WireFormat::from("scripted"),
            stop_reason: StopReason::ToolUse,
            raw_stop_reason: None,
            usage: Usage::default(),
            response_id: None,
            error: None,
            timestamp: 0,
        };
        Record::ReplyAccepted { message: Arc::new(message.into()), cost: Money::ZERO }
    }

    fn opened(id: &str) -> Record {
        Record::CallOpened { call_id: id.into() }
    }

    fn closed(id: &str) -> Record {
        let result = ToolResultMessage {
            tool_call_id: id.into(),
            tool_name: "look".into(),
            content: vec![Content::text("done")],
            details: None,
            is_error: false,
            timestamp: 0,
        };
        Record::CallClosed { result: Arc::new(result.into()) }
    }

    fn called() -> Record {
        Record::ModelCalled { epoch: Epoch::default() }
    }

    fn started() -> Record {
        let prompt = Some(Arc::new(UserMessage::text("Do it.", 0).into()));
        let (models, task) = (NonZeroU32::MIN, Task::Answer);
        let (run, limits) = (RunId("r".into()), Limits::default());
        Record::RunStarted { run, limits, tools: Arc::default(), at: 0, prompt, models, task }
    }

    fn told(records: impl IntoIterator<Item = (i64, Record)>) -> Vec<Chapter> {
        let (mut story, mut told) = (Story::default(), Vec::new());
        for ((at, record), seq) in records.into_iter().zip(0..) {
            story.take(&Kept { seq, at, record });
            told.extend(std::iter::from_fn(|| story.next()));
        }
        told.extend(story.rest());
        told
    }

    fn kinds(chapters: &[Chapter]) -> Vec<&'static str> {
        let kind = |chapter: &Chapter| match chapter {
            Chapter::RunStarted { .. } => "started",
            Chapter::Said { .. } => "said",
            Chapter::Turn(_) => "turn",
            Chapter::AttemptFailed { .. } => "failed",
            Chapter::Compacted { .. } => "compacted",
            Chapter::Cancelled { .. } => "cancelled",
            Chapter::Resumed { .. } => "resumed",
            Chapter::RunEnded { .. } => "ended",
        };
        chapters.iter().map(kind).collect()
    }

    fn turn(chapters: Vec<Chapter>) -> Turn {
        let turn =
            chapters.into_iter().find_map(|chapter| if let Chapter::Turn(turn) = chapter { Some(turn) } else { None });
        turn.unwrap()
    }

    #[test]
    fn the_time_of_a_turn_is_the_model_s_and_then_that_in_which_any_tool_ran() {
        let turn = turn(told([
            (0, started()),
            (0, Record::Delivered { ids: vec![0] }),
            (1_000, called()),
            (4_000, reply(&["a", "b", "c"])),
            // Two at the same time, and one after a pause.
            (4_000, opened("a")),
            (5_000, opened("b")),
            (7_000, closed("a")),
            (9_000, closed("b")),
            (10_000, opened("c")),
            (11_000, closed("c")),
        ]));
        assert_eq!((turn.took, turn.tools_took()), (Some(3_000), 6_000));
        assert_eq!(turn.calls.iter().map(Called::took).collect::<Vec<_>>(), [Some(3_000), Some(4_000), Some(1_000)]);
    }

    #[test]
    fn nobody_knows_how_long_something_went_on_that_was_in_flight_at_a_crash() {
        let turn = turn(told([
            (0, started()),
            (1_000, called()),
            (90_000_000, Record::Resumed),
            (90_000_000, called()),
            (90_001_000, reply(&["a"])),
            (90_001_000, opened("a")),
            (180_000_000, Record::Resumed),
            (180_000_000, closed("a")),
        ]));
        assert_eq!((turn.took, turn.tools_took()), (Some(1_000), 0));
    }

    #[test]
    fn a_summary_stands_where_it_was_made_and_what_was_said_before_is_still_told() {
        let summary = Arc::new(UserMessage::text("Much was said.", 0).into());
        let (usage, cost) = (Usage::default(), Money::ZERO);
        let chapters = told([
            (0, started()),
            (0, Record::Delivered { ids: vec![0] }),
            (0, called()),
            (0, reply(&[])),
            (0, Record::Compacted { summary, cut: 2, context: 9, usage, cost }),
            (0, Record::RunEnded { outcome: Outcome::Completed }),
        ]);
        assert_eq!(kinds(&chapters), ["started", "said", "turn", "compacted", "ended"]);
    }

    #[test]
    fn what_follows_a_turn_is_told_after_its_results_have_come() {
        let records = [
            (0, started()),
            (0, Record::Delivered { ids: vec![0] }),
            (0, called()),
            (0, reply(&["a"])),
            (0, opened("a")),
            (0, Record::Cancelled { reason: "enough".into() }),
            (0, Record::RunEnded { outcome: Outcome::Completed }),
            (0, started()),
            (0, closed("a")),
            (0, Record::Delivered { ids: vec![1] }),
        ];
        let expected = ["started", "said", "turn", "cancelled", "ended", "started", "said"];
        let chapters = told(records.clone());
        assert_eq!(kinds(&chapters), expected);
        assert!(turn(chapters).calls[0].result.is_some());
        // Without them, nothing that was said is lost.
        assert_eq!(kinds(&told(records.into_iter().take(7))), expected[..5]);
    }
}
