//! The end of a run, and what is handed back with it.

use std::sync::Arc;

use terret_llm::{Message, UserMessage};

use super::{Driver, Reins};
use crate::event::{Event, Report};
use crate::journal::JournalError;
use crate::machine::{Failure, Input, Outcome, Prompt, Queued, Record, Spent, apply};

/// The journal could not keep records, or may not have.
pub(super) struct NotDurable {
    pub(super) error: JournalError,
    pub(super) records: Arc<[Record]>,
}

impl Driver {
    /// Tells of the end, and hands back what was said while the run was ending.
    pub(super) fn end(mut self: Box<Self>, report: Report) -> Report {
        let mut report = self.with_late_messages(report);
        report.undelivered.splice(..0, std::mem::take(&mut self.waited));
        self.publisher.publish(&Event::Ended(report.clone()));
        let Driver { mut log, unanswered, .. } = *self;
        if let Some(append) = unanswered {
            tokio::spawn(async move {
                let _ = append.await;
                log.stale = true;
            });
        }
        report
    }

    /// Ends a run whose journal has failed. What the journal holds waits there; what it doesn't, or may not, is handed back.
    pub(super) async fn not_durable(&mut self, failed: NotDurable, said: Option<Arc<Message>>) -> Report {
        // What was taken from the inbox and not decided about yet has not been kept, either.
        let before = std::mem::take(&mut self.stopped);
        let inputs = Box::pin(self.stop_everything()).await;
        let NotDurable { error, records } = failed;
        let mut report = self.report(Outcome::Failed { failure: Failure::Journal(error.to_string()) });
        let mut kept = self.log.state.clone();
        let (mut let_go, mut taken_back): (Vec<Queued>, Vec<Queued>) = Default::default();
        for record in &*records {
            // What a reply used is spent, whether or not it is in the journal. What is only announced has not begun.
            use Record::{CallOpened, CompactionStarted, ModelCalled};
            if !matches!(record, ModelCalled { .. } | CompactionStarted { .. } | CallOpened { .. }) {
                report.spent.note(record);
                self.agent.0.shared.iter().for_each(|shared| shared.note(record));
            }
            match record {
                Record::RunEnded { .. } => let_go.extend(kept.queue().iter().cloned()),
                Record::Withdrawn { id } => {
                    taken_back.extend(kept.queue().iter().find(|queued| queued.id == *id).cloned());
                }
                _ => {}
            }
            apply(&mut kept, record);
        }
        let expected = self.log.records;
        let asked = tokio::time::timeout(self.agent.0.grace, self.log.catch_up(&*self.journal, &self.session)).await;
        let is_known = self.unanswered.is_none() && matches!(asked, Ok(Ok(())));
        let is_kept = is_known && self.log.records > expected;
        if is_known && !is_kept {
            let_go.clear();
            taken_back.clear();
        }
        taken_back.into_iter().for_each(|queued| self.publisher.publish(&Event::Withdrawn(queued)));
        report.undelivered = let_go.iter().map(|queued| queued.message.clone()).collect();
        self.handed_back = let_go;
        // Before what was said, a budget may have been recorded.
        let says = |record: &Record| matches!(record, Record::Queued { .. } | Record::RunStarted { .. });
        let said = said.filter(|_| !(is_kept && records.iter().any(says)));
        report.undelivered.extend(said);
        for input in before.into_iter().chain(inputs) {
            // What a model call has used up that was stopped for this.
            if let Input::Stopped { usage, cost, .. } = input {
                let stopped = Record::CallStopped { usage, cost };
                report.spent.note(&stopped);
                self.agent.0.shared.iter().for_each(|shared| shared.note(&stopped));
            }
            self.hand_back(input, &mut report);
        }
        report
    }

    pub(super) fn report(&mut self, outcome: Outcome) -> Report {
        // One that a crash has left open, and that this one could not so much as join, is another's.
        let run = self.log.state.run().filter(|_| self.has_begun);
        let spent = run.map_or_else(Spent::default, |run| run.spent);
        let last = self.log.state.transcript().last().map(|message| &**message);
        let reply = match (&outcome, last) {
            (Outcome::Completed, Some(Message::Assistant(reply))) if self.has_replied => Some(reply),
            _ => None,
        };
        let (text, stop_reason) = (reply.map(|reply| reply.text().into()), reply.map(|reply| reply.stop_reason));
        let queue = self.log.state.queue();
        let undelivered = queue.iter().map(|queued| queued.message.clone()).collect();
        self.handed_back = queue.to_vec();
        Report { outcome, spent, text, stop_reason, undelivered, still_running: self.still_running() }
    }

    /// Hands back what was said while the run was ending.
    pub(super) fn with_late_messages(&mut self, mut report: Report) -> Report {
        self.inbox.close();
        while let Ok(input) = self.inbox.try_recv() {
            self.hand_back(*input, &mut report);
        }
        report
    }

    /// Hands back what is said with an input that comes too late. What waited can still be changed, and taken back.
    pub(super) fn hand_back(&mut self, input: Input, report: &mut Report) {
        let place = |id: u64| self.handed_back.iter().position(|waited| waited.id == id);
        match input {
            Input::Requeue { id, message } => {
                if let Some(changed) = place(id).and_then(|place| report.undelivered.get_mut(place)) {
                    *changed = Arc::new(message.into());
                }
            }
            Input::Withdraw { id } => {
                if let Some(place) = place(id).filter(|place| *place < report.undelivered.len()) {
                    let message = report.undelivered.remove(place);
                    self.publisher.publish(&Event::Withdrawn(Queued { message, ..self.handed_back.remove(place) }));
                }
            }
            input => report.undelivered.extend(said(&input)),
        }
    }
}

impl Reins {
    /// Ends a run that was cancelled before it had its turn. Nothing of it is in the session.
    pub(crate) fn never_started(mut self, prompt: Option<UserMessage>) -> Report {
        let mut report = Report::of(Outcome::Cancelled { reason: self.cancel.reason(), still_running: Vec::new() });
        report.undelivered.extend(prompt.map(|message| Arc::new(message.into())));
        self.inbox.close();
        while let Ok(input) = self.inbox.try_recv() {
            report.undelivered.extend(said(&input));
        }
        self.publisher.publish(&Event::Ended(report.clone()));
        report
    }
}

/// What somebody says with an input.
pub(super) fn said(input: &Input) -> Option<Arc<Message>> {
    match input {
        Input::Prompt(Prompt { message: Some(message), .. })
        | Input::Queue { message, .. }
        | Input::Interrupt { message } => Some(Arc::new(message.clone().into())),
        _ => None,
    }
}
