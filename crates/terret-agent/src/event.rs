//! What a UI, a log or a trace is told. Never an input to the model.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use terret_llm::{Message, StreamEvent, ToolCall};

use crate::machine::{Epoch, Failure, Outcome, QueueKind, RunId, Spent};

/// Something that happened in a run. `Ended` is the last one, always.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The run began.
    RunStarted {
        /// Its name.
        run: RunId,
    },
    /// A model call began.
    ModelCalled {
        /// Its epoch; its deltas carry it.
        epoch: Epoch,
    },
    /// A fragment of a reply that is still streaming. Provisional: the message follows, or `AttemptFailed`.
    Delta {
        /// The epoch of the model call.
        epoch: Epoch,
        /// `Start`, `BlockStart`, `BlockDelta` or `BlockEnd`.
        event: StreamEvent,
    },
    /// A subscriber was too slow, and fragments were left out for it. The message will be whole.
    Lagged,
    /// A model call failed: what its deltas showed is to be discarded.
    AttemptFailed {
        /// The epoch of the model call.
        epoch: Epoch,
        /// Why.
        failure: Failure,
    },
    /// A message was appended to the transcript.
    Message(Arc<Message>),
    /// A user message waits for a safe point.
    Queued {
        /// Which safe point.
        kind: QueueKind,
        /// The message.
        message: Arc<Message>,
    },
    /// A person has to decide about a call: [`RunHandle::answer`](crate::RunHandle::answer). The run waits, if need be
    /// over restarts.
    Asked {
        /// The call.
        call: Arc<ToolCall>,
        /// The question.
        question: String,
        /// To be named by the answer: it is for this call with these arguments.
        digest: String,
    },
    /// A tool was started.
    ToolStarted {
        /// The call.
        call: Arc<ToolCall>,
    },
    /// A running tool tells how it is getting on.
    ToolProgress {
        /// The id of the call.
        call_id: String,
        /// More of its output.
        text: String,
    },
    /// A call has its result, in order of completion; a call that was refused has one without having started.
    ToolEnded {
        /// The result, of role `toolResult`. It is appended to the transcript together with those of its batch.
        result: Arc<Message>,
    },
    /// A cancel was accepted; what is running is being stopped.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// The run ended.
    Ended(Report),
}

/// How a run ended, and what it took.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What it spent.
    pub spent: Spent,
    /// The text of the last reply, if the run completed.
    pub text: Option<String>,
    /// Messages that were queued and not delivered, handed back in order.
    pub undelivered: Vec<Arc<Message>>,
}

/// How many bytes of fragments (of replies and of tools' progress) a reader may leave unread.
const UNREAD_FRAGMENTS: usize = 1 << 20;

/// The events of a run, for one reader.
///
/// A slow reader slows nobody: fragments that it hasn't read are joined, and beyond a limit left out and marked by
/// [`Event::Lagged`]. Everything else is kept; it shares its data with the transcript.
pub struct Events(Arc<Mutex<Unread>>);

/// The writing side of all readers of a run.
#[derive(Default)]
pub(crate) struct Publisher {
    readers: Arc<Mutex<Vec<Arc<Mutex<Unread>>>>>,
}

/// Opens further readers of a run.
#[derive(Clone)]
pub(crate) struct Subscriber {
    readers: Arc<Mutex<Vec<Arc<Mutex<Unread>>>>>,
}

#[derive(Default)]
struct Unread {
    events: VecDeque<Event>,
    fragments: usize,
    lagged: bool,
    ended: bool,
    abandoned: bool,
    waker: Option<Waker>,
}

impl Events {
    /// The next event; `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut unread = lock(&self.0);
        match unread.take() {
            Some(event) => Poll::Ready(Some(event)),
            None if unread.ended => Poll::Ready(None),
            None => {
                unread.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll(cx)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        lock(&self.0).abandoned = true;
    }
}

impl Publisher {
    pub(crate) fn subscriber(&self) -> Subscriber {
        Subscriber { readers: self.readers.clone() }
    }

    pub(crate) fn publish(&self, event: &Event) {
        lock(&self.readers).retain(|reader| lock(reader).put(event));
    }
}

/// However the run ends, its readers end, too.
impl Drop for Publisher {
    fn drop(&mut self) {
        for reader in lock(&self.readers).drain(..) {
            let mut unread = lock(&reader);
            unread.ended = true;
            unread.wake();
        }
    }
}

impl Subscriber {
    pub(crate) fn subscribe(&self) -> Events {
        let unread = Arc::new(Mutex::new(Unread::default()));
        lock(&self.readers).push(unread.clone());
        Events(unread)
    }
}

impl Unread {
    /// Keeps an event for the reader. False when there is no reader any more.
    fn put(&mut self, event: &Event) -> bool {
        if self.abandoned {
            return false;
        }
        let bytes = fragment_bytes(event);
        if bytes > 0 && self.fragments > 0 && self.fragments + bytes > UNREAD_FRAGMENTS {
            if !std::mem::replace(&mut self.lagged, true) {
                self.events.push_back(Event::Lagged);
            }
        } else {
            self.fragments += bytes;
            if !self.join(event) {
                self.events.push_back(event.clone());
            }
        }
        self.wake();
        true
    }

    /// Appends a fragment to the unread one before it, if both are of the same block.
    fn join(&mut self, event: &Event) -> bool {
        let Some(Event::Delta { epoch, event: StreamEvent::BlockDelta { index, text } }) = self.events.back_mut()
        else {
            return false;
        };
        match event {
            Event::Delta { epoch: e, event: StreamEvent::BlockDelta { index: i, text: more } }
                if (e, i) == (epoch, index) =>
            {
                text.push_str(more);
                true
            }
            _ => false,
        }
    }

    fn take(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.fragments -= fragment_bytes(&event);
        if event == Event::Lagged {
            self.lagged = false;
        }
        Some(event)
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// How much of an event is text that a slow reader can do without.
fn fragment_bytes(event: &Event) -> usize {
    match event {
        Event::Delta { event: StreamEvent::BlockDelta { text, .. }, .. } | Event::ToolProgress { text, .. } => {
            text.len()
        }
        _ => 0,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(index: usize, text: &str) -> Event {
        let event = StreamEvent::BlockDelta { index, text: text.into() };
        Event::Delta { epoch: Epoch::default(), event }
    }

    fn unread(events: &[Event]) -> Vec<Event> {
        let mut unread = Unread::default();
        events.iter().for_each(|event| assert!(unread.put(event)));
        std::iter::from_fn(|| unread.take()).collect()
    }

    #[test]
    fn unread_fragments_of_one_block_are_joined() {
        let events = [delta(0, "a"), delta(0, "b"), delta(1, "c"), delta(0, "d")];
        assert_eq!(unread(&events), [delta(0, "ab"), delta(1, "c"), delta(0, "d")]);
    }

    #[test]
    fn what_a_slow_reader_leaves_is_bounded_and_that_is_said_once() {
        let half = "x".repeat(UNREAD_FRAGMENTS / 2);
        let ended = Event::Cancelled { reason: "enough".into() };
        let events = [delta(0, &half), delta(1, &half), delta(2, &half), delta(3, &half), ended.clone()];
        assert_eq!(unread(&events), [delta(0, &half), delta(1, &half), Event::Lagged, ended]);
    }

    #[test]
    fn one_large_fragment_is_not_too_much() {
        let large = "x".repeat(UNREAD_FRAGMENTS * 2);
        assert_eq!(unread(&[delta(0, &large)]), [delta(0, &large)]);
    }
}
