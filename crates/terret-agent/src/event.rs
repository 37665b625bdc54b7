//! What a UI, a log or a trace is told. Never an input to the model.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use terret_llm::{BlockKind, Message, StopReason, StreamEvent, ToolCall};

use crate::machine::{Epoch, Failure, Outcome, Queued, Recovery, RunId, Spent};

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
    /// A subscriber was too slow, and fragments are left out for it until a `Snapshot`. The messages will be whole.
    Lagged,
    /// What is in flight, in place of all fragments before it: for a subscriber that lagged, or came later.
    Snapshot(Snapshot),
    /// A model call failed: what its deltas showed is to be discarded.
    AttemptFailed {
        /// The epoch of the model call.
        epoch: Epoch,
        /// Why.
        failure: Failure,
        /// What the run does about it; nothing if it fails.
        recovery: Option<Recovery>,
    },
    /// The conversation has become too long, and its older part is being summarised.
    CompactionStarted {
        /// The epoch of the summary.
        epoch: Epoch,
    },
    /// A summary took the place of older messages, which stay in the journal.
    Compacted {
        /// The summary, as the model will read it.
        summary: Arc<Message>,
        /// How many messages it stands for.
        replaced: usize,
    },
    /// A message was appended to the transcript.
    Message(Arc<Message>),
    /// A user message waits for a safe point; or one that waited was changed, and keeps its number and place.
    Queued(Queued),
    /// A user message that waited was taken back.
    Withdrawn(Queued),
    /// A person has to decide about a call: [`RunHandle::answer`](crate::RunHandle::answer). The run waits, if need be
    /// over restarts.
    Asked(Question),
    /// A person has let a call pass that was asked about.
    Approved {
        /// The call, with the arguments that the person has left it with.
        call: Arc<ToolCall>,
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
    /// Somebody has to say something now: what is running is being stopped, and the run goes on.
    Interrupted,
    /// The run's time is up; what is running is being stopped.
    Expired,
    /// What was running has stopped after an interruption, and the run goes on.
    Halted {
        /// The ids of calls whose tools could not be stopped.
        still_running: Vec<String>,
    },
    /// The run ended.
    Ended(Report),
}

/// A question about a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Question {
    /// The call.
    pub call: Arc<ToolCall>,
    /// The question, for the person.
    pub text: String,
    /// To be named by the answer: it is for this call with these arguments.
    pub digest: String,
}

/// What is in flight: the reply so far, the tools that run, and what waits for somebody.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The model call in flight, and the blocks of its reply so far. Provisional, like deltas.
    pub reply: Option<(Epoch, Vec<PartialBlock>)>,
    /// The calls whose tools are running, in the order in which they were started.
    pub running: Vec<Arc<ToolCall>>,
    /// The questions that nobody has answered yet.
    pub asked: Vec<Question>,
    /// The user messages that wait for a safe point.
    pub queue: Vec<Queued>,
}

/// A block of a reply that is still streaming.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartialBlock {
    /// Its index in the message's content.
    pub index: usize,
    /// What it is.
    pub kind: BlockKind,
    /// What there is of it.
    pub text: String,
}

/// How a run ended, and what it took.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What it spent.
    pub spent: Spent,
    /// The text of the run's last reply, if it completed with one.
    pub text: Option<Arc<str>>,
    /// Why that reply stopped. [`StopReason::Length`] says that it was cut off at the output limit.
    pub stop_reason: Option<StopReason>,
    /// Messages that were queued and not delivered, handed back in order. Where the run can be gone on with because its
    /// journal has failed, those that the journal has kept wait there; where the journal can't say what it has kept, they
    /// may do so as well.
    pub undelivered: Vec<Arc<Message>>,
    /// The ids of calls whose tools could not be stopped and are still at work: they block their thread.
    pub still_running: Vec<String>,
}

impl Report {
    /// Of a run whose task has come to an end before it.
    pub(crate) fn lost() -> Self {
        Self::of(Outcome::Failed { failure: Failure::Lost })
    }

    /// Of a run that nothing is known of but its outcome.
    pub(crate) fn of(outcome: Outcome) -> Self {
        let spent = Spent::default();
        Self { outcome, spent, text: None, stop_reason: None, undelivered: Vec::new(), still_running: Vec::new() }
    }
}

/// How many bytes of fragments (of replies and of tools' progress) a reader may leave unread.
const UNREAD_FRAGMENTS: usize = 1 << 20;

/// The events of a run, for one reader.
///
/// A slow reader slows nobody: fragments that it hasn't read are joined, and beyond a limit left out and marked by
/// [`Event::Lagged`]. Once such a reader has caught up it gets a [`Event::Snapshot`] of what is in flight, and fragments
/// again. Everything else is kept; it shares its data with the transcript.
pub struct Events {
    unread: Arc<Mutex<Unread>>,
    channel: Arc<Mutex<Channel>>,
}

/// The writing side of all readers of a run.
#[derive(Default)]
pub(crate) struct Publisher(Arc<Mutex<Channel>>);

/// Opens further readers of a run.
#[derive(Clone)]
pub(crate) struct Subscriber(Arc<Mutex<Channel>>);

/// What is in flight, and who reads. A reader's own lock is only taken under this one, or alone.
#[derive(Default)]
struct Channel {
    snapshot: Snapshot,
    readers: Vec<Arc<Mutex<Unread>>>,
    /// The end, for readers that come after it.
    ended: Option<Box<Event>>,
}

#[derive(Default)]
struct Unread {
    events: VecDeque<Event>,
    fragments: usize,
    lagged: bool,
    ended: bool,
    waker: Option<Waker>,
}

impl Events {
    /// The next event; `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// Hears of nothing any more, and keeps nothing.
    pub(crate) fn close(&mut self) {
        lock(&self.channel).readers.retain(|reader| !Arc::ptr_eq(reader, &self.unread));
        *lock(&self.unread) = Unread { ended: true, ..Unread::default() };
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut unread = lock(&self.unread);
        if unread.events.is_empty() && unread.lagged {
            drop(unread);
            return Poll::Ready(Some(self.catch_up()));
        }
        match unread.take() {
            Some(event) => Poll::Ready(Some(event)),
            None if unread.ended => Poll::Ready(None),
            None => {
                // Who waits, waits long: without room for events that may come.
                unread.events = VecDeque::new();
                unread.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// What stands for all fragments so far. None is published meanwhile, so that the next one goes on from here.
    fn catch_up(&self) -> Event {
        let channel = lock(&self.channel);
        let mut unread = lock(&self.unread);
        match unread.take() {
            // Something came in between.
            Some(event) => event,
            None => {
                unread.lagged = false;
                Event::Snapshot(channel.snapshot.clone())
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
        self.close();
    }
}

impl Publisher {
    pub(crate) fn subscriber(&self) -> Subscriber {
        Subscriber(self.0.clone())
    }

    pub(crate) fn publish(&self, event: &Event) {
        let mut channel = lock(&self.0);
        channel.snapshot.take_in(event);
        if let Event::Ended(_) = event {
            channel.ended = Some(Box::new(event.clone()));
        }
        channel.readers.iter().for_each(|reader| lock(reader).put(event));
    }
}

/// However the run ends, its readers hear of an end, and end, too.
impl Drop for Publisher {
    fn drop(&mut self) {
        if lock(&self.0).ended.is_none() {
            self.publish(&Event::Ended(Report::lost()));
        }
        for reader in lock(&self.0).readers.drain(..) {
            let mut unread = lock(&reader);
            unread.ended = true;
            unread.wake();
        }
    }
}

impl Subscriber {
    /// A reader of everything from now on, beginning with what is in flight, if something is.
    pub(crate) fn subscribe(&self) -> Events {
        let mut channel = lock(&self.0);
        let mut unread = Unread::default();
        if channel.snapshot != Snapshot::default() {
            unread.events.push_back(Event::Snapshot(channel.snapshot.clone()));
        }
        unread.ended = channel.ended.is_some();
        unread.events.extend(channel.ended.as_deref().cloned());
        let unread = Arc::new(Mutex::new(unread));
        channel.readers.push(unread.clone());
        Events { unread, channel: self.0.clone() }
    }
}

impl Snapshot {
    fn take_in(&mut self, event: &Event) {
        match event {
            Event::ModelCalled { epoch } => self.reply = Some((*epoch, Vec::new())),
            Event::Delta { event: StreamEvent::BlockStart { index, kind }, .. } => {
                let block = PartialBlock { index: *index, kind: kind.clone(), text: String::new() };
                self.reply.iter_mut().for_each(|(_, blocks)| blocks.push(block.clone()));
            }
            Event::Delta { event: StreamEvent::BlockDelta { index, text }, .. } => {
                let blocks = self.reply.iter_mut().flat_map(|(_, blocks)| blocks);
                // The block that grows is the last one, nearly always.
                blocks
                    .rev()
                    .find(|block| block.index == *index)
                    .into_iter()
                    .for_each(|block| block.text.push_str(text));
            }
            Event::AttemptFailed { .. } => self.reply = None,
            Event::Message(message) => match **message {
                Message::Assistant(_) => self.reply = None,
                // One that waited is the same message, not merely an equal one.
                _ => self.queue.retain(|queued| !Arc::ptr_eq(&queued.message, message)),
            },
            Event::Queued(queued) => match self.queue.iter_mut().find(|waiting| waiting.id == queued.id) {
                Some(waiting) => *waiting = queued.clone(),
                None => self.queue.push(queued.clone()),
            },
            Event::Withdrawn(queued) => self.queue.retain(|waiting| waiting.id != queued.id),
            Event::Asked(question) => {
                // There is one, nearly always, and it waits long.
                if self.asked.is_empty() {
                    self.asked.reserve_exact(1);
                }
                self.asked.push(question.clone());
            }
            Event::Approved { call } => self.asked.retain(|question| question.call.id != call.id),
            Event::ToolStarted { call } => self.running.push(call.clone()),
            Event::ToolEnded { result } => {
                if let Message::ToolResult(result) = &**result {
                    self.running.retain(|call| call.id != result.tool_call_id);
                    self.asked.retain(|question| question.call.id != result.tool_call_id);
                }
            }
            Event::Interrupted | Event::Expired | Event::Cancelled { .. } => {
                *self = Self { queue: std::mem::take(&mut self.queue), ..Self::default() };
            }
            Event::Ended(_) => *self = Self::default(),
            _ => {}
        }
    }
}

impl Unread {
    /// Keeps an event for the reader.
    fn put(&mut self, event: &Event) {
        let bytes = fragment_bytes(event);
        if self.lagged && is_fragment(event) {
            return;
        }
        // Nothing comes after the end.
        self.lagged &= !matches!(event, Event::Ended(_));
        if bytes > 0 && self.fragments > 0 && self.fragments + bytes > UNREAD_FRAGMENTS {
            self.lagged = true;
            self.events.push_back(Event::Lagged);
        } else if self.join(event) {
            self.fragments += bytes - FRAGMENT;
        } else {
            self.fragments += bytes;
            self.events.push_back(event.clone());
        }
        self.wake();
    }

    /// Appends a fragment to the unread one before it, if both are of the same block or tool.
    fn join(&mut self, event: &Event) -> bool {
        use StreamEvent::BlockDelta;
        match (self.events.back_mut(), event) {
            (
                Some(Event::Delta { epoch, event: BlockDelta { index, text } }),
                Event::Delta { epoch: e, event: BlockDelta { index: i, text: more } },
            ) if (e, i) == (epoch, &*index) => text.push_str(more),
            (Some(Event::ToolProgress { call_id, text }), Event::ToolProgress { call_id: id, text: more })
                if id == call_id =>
            {
                text.push_str(more)
            }
            _ => return false,
        }
        true
    }

    fn take(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.fragments -= fragment_bytes(&event);
        Some(event)
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Whether a snapshot stands for an event.
fn is_fragment(event: &Event) -> bool {
    matches!(event, Event::Delta { .. } | Event::ToolProgress { .. })
}

/// How much a slow reader can do without of an event: its text, and the room that it takes.
fn fragment_bytes(event: &Event) -> usize {
    match event {
        Event::Delta { event: StreamEvent::BlockDelta { text, .. }, .. } | Event::ToolProgress { text, .. } => {
            text.len() + FRAGMENT
        }
        Event::Delta { .. } => FRAGMENT,
        _ => 0,
    }
}

/// Bytes that a fragment takes beside its text.
const FRAGMENT: usize = size_of::<Event>();

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
        events.iter().for_each(|event| unread.put(event));
        std::iter::from_fn(|| unread.take()).collect()
    }

    #[test]
    fn unread_fragments_of_one_block_are_joined() {
        let events = [delta(0, "a"), delta(0, "b"), delta(1, "c"), delta(0, "d")];
        assert_eq!(unread(&events), [delta(0, "ab"), delta(1, "c"), delta(0, "d")]);
    }

    #[test]
    fn what_a_slow_reader_leaves_is_bounded_and_that_is_said_once() {
        let half = "x".repeat(UNREAD_FRAGMENTS / 2 - FRAGMENT);
        let ended = Event::Cancelled { reason: "enough".into() };
        let events = [delta(0, &half), delta(1, &half), delta(2, &half), delta(3, &half), ended.clone()];
        assert_eq!(unread(&events), [delta(0, &half), delta(1, &half), Event::Lagged, ended]);
    }

    #[test]
    fn a_reader_that_has_gone_keeps_nothing() {
        let message = Arc::new(Message::from(terret_llm::UserMessage::text("hello", 0)));
        let publisher = Publisher::default();
        let mut events = publisher.subscriber().subscribe();
        publisher.publish(&Event::Message(message.clone()));
        events.close();
        publisher.publish(&Event::Message(message.clone()));
        assert_eq!(Arc::strong_count(&message), 1);
    }

    #[test]
    fn one_large_fragment_is_not_too_much() {
        let large = "x".repeat(UNREAD_FRAGMENTS * 2);
        assert_eq!(unread(&[delta(0, &large)]), [delta(0, &large)]);
    }
}
