//! The end of a run, and what is handed back with it.

use std::sync::Arc;

use terret_llm::Message;

use super::{Driver, Reins};
use crate::event::{Event, Report};
use crate::journal::JournalError;
use crate::machine::{Failure, Input, Outcome, Prompt, Spent};

/// The journal could not keep a record.
pub(super) struct NotDurable {
    pub(super) error: JournalError,
    /// The end of the run was among them, so that what waited may not wait any more.
    pub(super) end: bool,
}

impl Driver {
    /// Tells of the end, and hands back what was said while the run was ending.
    pub(super) fn end(mut self, report: Report, waited: Vec<Arc<Message>>) -> Report {
        let mut report = self.with_late_messages(report);
        report.undelivered.splice(..0, waited);
        self.publisher.publish(&Event::Ended(report.clone()));
        report
    }

    /// Ends a run whose journal has failed, with what was said when it did. What the journal holds waits there.
    pub(super) async fn not_durable(&mut self, failed: NotDurable, said: Option<Arc<Message>>) -> Report {
        // What was taken from the inbox and not decided about yet has not been kept, either.
        let before = std::mem::take(&mut self.stopped);
        let inputs = Box::pin(self.stop_everything()).await;
        let mut report = self.report(Outcome::Failed { failure: Failure::Journal(failed.error.to_string()) });
        if !failed.end {
            self.handed_back.clear();
            report.undelivered.clear();
        }
        report.undelivered.extend(said.into_iter().chain(before.iter().chain(&inputs).filter_map(self::said)));
        report
    }

    pub(super) fn report(&mut self, outcome: Outcome) -> Report {
        let spent = self.log.state.run().map_or_else(Spent::default, |run| run.spent);
        let last = self.log.state.transcript().last().map(|message| &**message);
        let text = match (&outcome, last) {
            (Outcome::Completed, Some(Message::Assistant(reply))) => Some(reply.text().into()),
            _ => None,
        };
        let queue = self.log.state.queue();
        let undelivered = queue.iter().map(|queued| queued.message.clone()).collect();
        self.handed_back = queue.iter().map(|queued| queued.id).collect();
        Report { outcome, spent, text, undelivered, still_running: self.still_running() }
    }

    /// Hands back what was said while the run was ending.
    pub(super) fn with_late_messages(&mut self, mut report: Report) -> Report {
        self.inbox.close();
        while let Ok(input) = self.inbox.try_recv() {
            match *input {
                Input::Requeue { id, message } => {
                    let place = self.handed_back.iter().position(|handed_back| *handed_back == id);
                    if let Some(changed) = place.and_then(|place| report.undelivered.get_mut(place)) {
                        *changed = Arc::new(message.into());
                    }
                }
                input => report.undelivered.extend(said(&input)),
            }
        }
        report
    }
}

impl Reins {
    /// Ends a run that was cancelled before it had its turn. Nothing of it is in the session.
    pub(crate) fn never_started(mut self, prompt: Prompt) -> Report {
        let mut report = Report::of(Outcome::Cancelled { reason: self.cancel.reason(), still_running: Vec::new() });
        report.undelivered.extend(prompt.message.map(|message| Arc::new(message.into())));
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
        Input::Queue { message, .. } | Input::Interrupt { message } => Some(Arc::new(message.clone().into())),
        _ => None,
    }
}
