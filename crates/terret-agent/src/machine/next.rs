//! What a run does of its own accord, one record at a time, until something must be waited for.

use std::sync::Arc;

use terret_llm::{Message, StopReason};

use super::decide::{Plan, close, ended, error};
use super::state::{Progress, Tail};
use super::{
    Batch, Budget, Call, CallStage, Compaction, Failure, Outcome, QueueKind, Record, RunState, Stage, Task, context,
    told,
};
use crate::tool::ToolOutput;

impl Plan<'_> {
    /// The record that follows; none while something is waited for.
    pub(super) fn next(&self) -> Option<Record> {
        let (progress, at) = (&self.progress, self.at);
        let run = progress.run.as_ref()?;
        match (&run.stage, &progress.batch) {
            (Stage::Calling | Stage::Compacting { .. }, _) => None,
            (Stage::Waiting { until }, _) if run.waits_until(*until, at) => None,
            (Stage::Failing(failure), _) => Some(ended(Outcome::Failed { failure: failure.clone() })),
            (Stage::Stopping(_), None) => None,
            (Stage::Stopping(cause), Some(batch)) => batch.close_waiting(told::stopped(cause), at),
            (Stage::Acting, Some(batch)) => batch
                .end_loop(run)
                .or_else(|| batch.settle(run, at))
                .or_else(|| batch.close_beyond_budget(run, at))
                .or_else(|| batch.open_next(run)),
            (Stage::Acting | Stage::Waiting { .. }, _) => self.begin(progress.turn(run, Some(at))),
        }
    }

    fn begin(&self, turn: Turn) -> Option<Record> {
        let epoch = self.progress.epoch.next();
        match turn {
            Turn::Deliver(ids) => Some(Record::Delivered { ids }),
            Turn::Call => Some(Record::ModelCalled { epoch }),
            Turn::Review => None,
            Turn::End(outcome) => Some(ended(outcome)),
            Turn::Compact { wanted } => Some(match self.cut().filter(|cut| wanted || self.is_worth_it(*cut)) {
                Some(cut) => Record::CompactionStarted { epoch, cut },
                None if wanted => ended(Outcome::Failed { failure: Failure::Compaction(NOTHING_TO_CUT.into()) }),
                None => Record::ModelCalled { epoch },
            }),
        }
    }

    /// Whether a summary of what is before a cut can be shorter by more than a trifle. It isn't where what is sent beside
    /// the transcript takes most of the window.
    fn is_worth_it(&self, cut: usize) -> bool {
        let limits = self.progress.run.as_ref().and_then(|run| run.limits.compaction);
        let removed = self.messages().take(cut).map(|message| context::tokens(message)).sum::<u64>();
        limits.is_some_and(|limits| removed > limits.reserve / 8)
    }

    /// Where the transcript can be cut, if it can.
    pub(super) fn cut(&self) -> Option<usize> {
        let run = self.progress.run.as_ref()?;
        let limits = run.limits.compaction?;
        let len = self.messages().count();
        // A transcript that is too long although it seemed to fit was estimated too low, and so is what is kept of it.
        let all = self.messages().map(|message| context::tokens(message)).sum::<u64>();
        context::cut(self.messages().rev(), len, limits.keep.min(all / 3))
    }

    /// The transcript as it will be.
    pub(super) fn messages(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> {
        self.transcript.iter().chain(&self.appended)
    }
}

const NOTHING_TO_CUT: &str = "there is nothing before the last message that a summary could take the place of";

/// What a run does between turns.
pub(super) enum Turn {
    Deliver(Vec<u64>),
    Compact { wanted: bool },
    Call,
    Review,
    End(Outcome),
}

impl Progress {
    /// What a run does next, between turns. Without a time (`at`), as if it had enough of it left.
    pub(super) fn turn(&self, run: &RunState, at: Option<i64>) -> Turn {
        let expired = at.zip(run.deadline()).is_some_and(|(at, deadline)| at >= deadline);
        let out_of = run.out_of().or(expired.then_some(Budget::WallTime));
        let end = |budget| Turn::End(Outcome::OutOfBudget { budget, still_running: Vec::new() });
        let prompt = self.steering().filter(|_| run.task != Task::Compact && run.spent.model_calls == 0);
        if let Some(prompt) = prompt {
            return out_of.map_or(prompt, end);
        }
        match (run.task, self.tail) {
            // What is said meanwhile is handed back: nobody is going to answer it.
            (Task::Compact, _) => match (run.compaction, out_of) {
                (Some(Compaction::Done), _) => Turn::End(Outcome::Completed),
                (_, Some(budget)) => end(budget),
                (_, None) => Turn::Compact { wanted: true },
            },
            (_, Tail::ToAnswer | Tail::Answered(StopReason::Pause)) => {
                if let Some(budget) = out_of {
                    return end(budget);
                }
                self.steering().unwrap_or(match run.compaction {
                    Some(Compaction::Wanted) => Turn::Compact { wanted: true },
                    None if self.is_overfull(run) => Turn::Compact { wanted: false },
                    _ => Turn::Call,
                })
            }
            (_, Tail::Answered(StopReason::Refusal)) => Turn::End(Outcome::Failed { failure: Failure::Refused }),
            (task, tail) => {
                let queued = || self.steering().or_else(|| self.follow_up());
                out_of.is_none().then(queued).flatten().unwrap_or(match (task, tail) {
                    (Task::AnswerReviewed, Tail::Answered(_)) => Turn::Review,
                    _ => Turn::End(Outcome::Completed),
                })
            }
        }
    }

    /// All steering that waits.
    fn steering(&self) -> Option<Turn> {
        let waiting = self.queue.iter().filter(|queued| queued.kind == QueueKind::Steering);
        let ids: Vec<u64> = waiting.map(|queued| queued.id).collect();
        (!ids.is_empty()).then_some(Turn::Deliver(ids))
    }

    /// The first follow-up. Nothing else waits then.
    fn follow_up(&self) -> Option<Turn> {
        self.queue.first().map(|queued| Turn::Deliver(vec![queued.id]))
    }

    fn is_overfull(&self, run: &RunState) -> bool {
        let limit = run.limits.compaction.and_then(|limits| Some(limits.window?.saturating_sub(limits.reserve)));
        limit.is_some_and(|limit| self.context > limit)
    }
}

impl RunState {
    /// Whether a retry still has to wait. A time that is further off than any wait was set by a clock that went wrong.
    fn waits_until(&self, until: i64, at: i64) -> bool {
        let left = u64::try_from(until.saturating_sub(at)).unwrap_or(0);
        left > 0 && left <= self.limits.retry.longest() && self.exceeded.is_none()
    }
}

impl Batch {
    /// A result for the first call that gets one without its tool: it is unknown, cut off, refused or interrupted.
    fn settle(&self, run: &RunState, at: i64) -> Option<Record> {
        self.calls.iter().find_map(|it| match (&it.stage, it.tool, self.stop_reason) {
            (CallStage::Interrupted, ..) => Some(error(it, told::BROKEN_OFF, at)),
            (CallStage::Gating { .. }, _, StopReason::Length) => Some(error(it, told::CUT_OFF, at)),
            (CallStage::Gating { .. }, _, StopReason::Pause) => Some(error(it, told::PAUSED, at)),
            (CallStage::Gating { .. }, _, StopReason::Refusal) => Some(error(it, told::REFUSED, at)),
            (CallStage::Gating { .. }, None, _) => {
                let unknown = ToolOutput::error(told::unknown_tool(&it.call.name, &run.tools));
                Some(close(it, run.warned(unknown), at))
            }
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
        (repeats && untouched && run.exceeded.is_none()).then_some(Record::BudgetExceeded { budget: Budget::Loop })
    }

    /// Once a budget is used up, what waits is closed; what runs may finish.
    fn close_beyond_budget(&self, run: &RunState, at: i64) -> Option<Record> {
        match run.exceeded {
            Some(Budget::Loop) => return self.close_waiting(told::REPEATED, at),
            Some(Budget::ToolCalls) => return self.close_waiting(told::NO_BUDGET, at),
            // The tools of the last permitted reply still run.
            Some(_) | None => {}
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
