use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::{mpsc, oneshot};

use crate::driver::Cancel;
use crate::event::{Event, Events, Report, Subscriber};
use crate::machine::{Answer, Input, QueueKind};
use crate::session::UserPrompt;

/// A run in progress: a stream of its events. Dropping it cancels the run.
#[derive(Debug)]
pub struct Run {
    pub(crate) events: Events,
    pub(crate) handle: RunHandle,
    pub(crate) report: Option<oneshot::Receiver<Report>>,
    pub(crate) is_detached: bool,
}

impl Run {
    /// The next event; `None` after [`Event::Ended`]. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.next().await
    }

    /// Waits for the end.
    pub async fn report(mut self) -> Report {
        let lost = Report::lost;
        // Nobody reads them any more.
        self.events.close();
        match self.report.take() {
            Some(report) => report.await.unwrap_or_else(|_| lost()),
            None => lost(),
        }
    }

    /// Steers and cancels the run from elsewhere.
    pub fn handle(&self) -> RunHandle {
        self.handle.clone()
    }

    /// Lets the run go on by itself. It ends with its outcome; or it is cut off when the runtime is shut down, as by a
    /// crash, and a session on disk can be gone on with: a question waits there for its answer.
    pub fn detach(mut self) -> RunHandle {
        self.is_detached = true;
        self.handle()
    }
}

impl Stream for Run {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        Pin::new(&mut self.events).poll_next(cx)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.is_detached {
            self.handle.cancel("the run was dropped");
        }
    }
}

/// Steers and cancels a run. Cheap to clone; holding one doesn't keep the run alive.
#[derive(Clone)]
pub struct RunHandle {
    pub(crate) commands: mpsc::UnboundedSender<Box<Input>>,
    pub(crate) cancel: Cancel,
    pub(crate) subscriber: Subscriber,
}

impl RunHandle {
    /// Says something to the model before its next call. False if the run has ended.
    pub fn steer(&self, prompt: impl Into<UserPrompt>) -> bool {
        self.queue(QueueKind::Steering, prompt.into())
    }

    /// Says something to the model when it would otherwise be done. False if the run has ended.
    pub fn follow_up(&self, prompt: impl Into<UserPrompt>) -> bool {
        self.queue(QueueKind::FollowUp, prompt.into())
    }

    /// Says something to the model now: the model call and the tools are stopped, and the run goes on with this. What was
    /// stopped half way is settled as after a crash, and the model is told. False if the run has ended.
    pub fn interrupt(&self, prompt: impl Into<UserPrompt>) -> bool {
        self.send(Input::Interrupt { message: prompt.into().now() })
    }

    /// Takes back a message that waits ([`Event::Queued`]); [`Event::Withdrawn`] hands it back. Nothing happens when it
    /// has been delivered. False if the run has ended.
    pub fn withdraw(&self, id: u64) -> bool {
        self.send(Input::Withdraw { id })
    }

    /// Changes a message that waits; it keeps its place. Nothing happens when it has been delivered. False if the run has
    /// ended.
    pub fn requeue(&self, id: u64, prompt: impl Into<UserPrompt>) -> bool {
        self.send(Input::Requeue { id, message: prompt.into().now() })
    }

    /// Answers a question ([`Event::Asked`]). An answer to another call, or to other arguments, changes nothing. False
    /// if the run has ended.
    pub fn answer(&self, call_id: impl Into<String>, digest: impl Into<String>, answer: Answer) -> bool {
        let (call_id, digest) = (call_id.into(), digest.into());
        self.send(Input::Answered { call_id, digest, answer })
    }

    /// Ends the run: the model call and the tools are stopped. The first reason counts.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.cancel.request(reason.into());
    }

    /// Another reader of the run's events, from now on. What is in flight comes first ([`Event::Snapshot`]).
    pub fn events(&self) -> Events {
        self.subscriber.subscribe()
    }

    fn send(&self, input: Input) -> bool {
        self.commands.send(Box::new(input)).is_ok()
    }

    fn queue(&self, kind: QueueKind, prompt: UserPrompt) -> bool {
        self.send(Input::Queue { kind, message: prompt.now() })
    }
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunHandle")
    }
}
