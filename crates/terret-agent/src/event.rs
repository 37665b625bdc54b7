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

/// How many bytes of unread fragments a subscriber may have.
const UNREAD_DELTAS: usize = 1 << 20;

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
    delta_bytes: usize,
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
        match event {
            Event::Delta { epoch, event: StreamEvent::BlockDelta { index, text } } => {
                self.put_delta(*epoch, *index, text);
            }
            event => self.events.push_back(event.clone()),
        }
        self.wake();
        true
    }

    fn put_delta(&mut self, epoch: Epoch, index: usize, text: &str) {
        if self.delta_bytes + text.len() > UNREAD_DELTAS {
            if !std::mem::replace(&mut self.lagged, true) {
                self.events.push_back(Event::Lagged);
            }
            return;
        }
        self.delta_bytes += text.len();
        match self.events.back_mut() {
            Some(Event::Delta { epoch: e, event: StreamEvent::BlockDelta { index: i, text: unread } })
                if (*e, *i) == (epoch, index) =>
            {
                unread.push_str(text);
            }
            _ => {
                let event = StreamEvent::BlockDelta { index, text: text.to_owned() };
                self.events.push_back(Event::Delta { epoch, event });
            }
        }
    }

    fn take(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        match &event {
            Event::Delta { event: StreamEvent::BlockDelta { text, .. }, .. } => self.delta_bytes -= text.len(),
            Event::Lagged => self.lagged = false,
            _ => {}
        }
        Some(event)
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
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
