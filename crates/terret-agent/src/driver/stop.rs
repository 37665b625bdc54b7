//! Stopping everything that is in flight.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terret_llm::{Money, Usage};
use tokio::time::Instant;

use super::task::TaskKind;
use super::{Driver, clock};
use crate::machine::Input;

impl Driver {
    /// Stops the model call, tells the tools, waits for the grace period, and then drops what is left. Names the calls
    /// whose tools had not begun, and those whose tools go on all the same, because they block their thread. What people
    /// have said meanwhile is heard before the end.
    pub(super) async fn stop_everything(&mut self) -> VecDeque<Input> {
        self.stop.cancel();
        // Only tools and summaries have something to bring to an end.
        let others = self.in_flight.values().filter(|it| !matches!(it.id.kind, TaskKind::Tool | TaskKind::Compact));
        others.for_each(|it| it.task.abort());
        let (mut usage, mut cost) = match self.call.take() {
            Some(call) => call.stopped().await,
            None => (Usage::default(), Money::ZERO),
        };
        for left in [self.agent.0.grace, Duration::from_millis(100)] {
            for (more, its_cost) in self.join_until(clock::from(Instant::now(), left)).await {
                usage += more;
                cost += its_cost;
            }
            self.tasks.abort_all();
        }
        self.tasks.detach_all();
        self.started.clear();
        self.validated.clear();
        let left = self.in_flight.drain().map(|(_, left)| left).filter(|it| it.id.kind == TaskKind::Tool);
        self.unstoppable.extend(left.map(|it| (it.id.call_id, it.task)));
        let epoch = self.log.state.epoch();
        let calls = self.log.state.batch().into_iter().flat_map(|batch| &batch.calls).map(|call| &call.call.id);
        let never_begun = calls.filter(|id| self.begun.get(*id).is_some_and(|begun| !begun.load(Ordering::SeqCst)));
        let mut inputs: VecDeque<Input> =
            never_begun.map(|id| Input::NeverBegun { epoch, call_id: id.clone() }).collect();
        self.begun.clear();
        // As many as there are now: who goes on talking must not keep the run from ending.
        inputs.extend((0..self.inbox.len()).filter_map(|_| self.inbox.try_recv().ok()).map(|input| *input));
        inputs.push_back(Input::Stopped { still_running: self.still_running(), usage, cost });
        inputs
    }

    /// Waits for everything in flight, and returns what it has used up.
    pub(super) async fn join_until(&mut self, deadline: Instant) -> Vec<(Usage, Money)> {
        let mut used = Vec::new();
        while let Ok(Some(finished)) = tokio::time::timeout_at(deadline, self.tasks.join_next_with_id()).await {
            let id = match finished {
                Ok((id, finished)) => {
                    used.extend(finished.used());
                    id
                }
                Err(error) => error.id(),
            };
            self.in_flight.remove(&id);
        }
        used
    }

    /// The calls whose tools go on although they were told to stop.
    pub(super) fn still_running(&self) -> Vec<String> {
        self.unstoppable.iter().filter(|(_, task)| !task.is_finished()).map(|(id, _)| id.clone()).collect()
    }
}
