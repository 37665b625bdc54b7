//! Encoding the calls of growing conversations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::body::{BodyWriter, Head, MessageList};
use super::handoff::{Group, Handoff};
use super::{EncodeError, Encoded};
use crate::model::ModelSpec;
use crate::request::{Options, Request, ToolSpec};
use crate::transcript::{Message, Transcript};

/// Writes the requests to one model, and remembers what it has written: a call that goes on with an earlier one's
/// conversation costs what is new, and its body shares the rest with the earlier one's.
///
/// A conversation is known by the identity of its messages, which are shared and never change: the body is always what
/// [`Wire::encode`](super::Wire::encode) writes, byte for byte. Any number of conversations can share an encoder. It
/// remembers about 32 MiB of them at most, those that were used last. Images count for nothing, because their data is
/// the transcript's, and a conversation that nobody holds any more is forgotten.
#[derive(Debug)]
pub struct Encoder {
    spec: Arc<ModelSpec>,
    heads: Mutex<Vec<(HeadKey, Head)>>,
    recent: Mutex<Recent>,
}

/// The most heads that are remembered. Sessions with the same prompt, tools and options share one.
const HEADS: usize = 16;

impl Encoder {
    /// An encoder for this model that knows no conversation yet.
    pub fn new(spec: impl Into<Arc<ModelSpec>>) -> Self {
        Self { spec: spec.into(), heads: Mutex::default(), recent: Mutex::default() }
    }

    /// Writes a request.
    pub fn encode(&self, request: &Request) -> Result<Encoded, EncodeError> {
        let wire = self.spec.wire.wire().ok_or_else(|| EncodeError::NoWire(self.spec.wire.clone()))?;
        let head = match self.known_head(request) {
            Some(head) => head,
            None => self.remember_head(request, wire.head(&self.spec, request)?),
        };
        let earlier = lock(&self.recent).take(&request.messages);
        let known = match earlier {
            Some(earlier) => earlier.extend(wire, &self.spec, request)?,
            None => None,
        };
        let (messages, conversation) = match known {
            Some(known) => known,
            None => Conversation::default().extend(wire, &self.spec, request)?.ok_or(EncodeError::NoMessages)?,
        };
        lock(&self.recent).keep(conversation);
        Ok(head.with(messages))
    }

    fn known_head(&self, request: &Request) -> Option<Head> {
        let mut heads = lock(&self.heads);
        let place = heads.iter().position(|(key, _)| key.fits(request))?;
        heads.get_mut(..=place)?.rotate_right(1);
        heads.first().map(|(_, head)| head.clone())
    }

    fn remember_head(&self, request: &Request, head: Head) -> Head {
        let mut heads = lock(&self.heads);
        heads.truncate(HEADS - 1);
        heads.insert(0, (HeadKey::of(request), head.clone()));
        head
    }
}

/// Writes a request without knowing any before it.
pub(super) fn encode(
    wire: &(impl BodyWriter + ?Sized),
    spec: &ModelSpec,
    request: &Request,
) -> Result<Encoded, EncodeError> {
    let head = wire.head(spec, request)?;
    let (messages, _) = Conversation::default().extend(wire, spec, request)?.ok_or(EncodeError::NoMessages)?;
    Ok(head.with(messages))
}

/// Nothing here is left half-changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a head depends on, besides the model.
#[derive(Debug)]
struct HeadKey {
    system: Option<Arc<str>>,
    tools: Arc<[ToolSpec]>,
    options: Options,
    has_calls: bool,
}

impl HeadKey {
    fn of(request: &Request) -> Self {
        let Request { system, tools, options, messages } = request;
        let has_calls = messages.call_count() > 0;
        Self { system: system.clone(), tools: tools.clone(), options: options.clone(), has_calls }
    }

    fn fits(&self, request: &Request) -> bool {
        self.has_calls == (request.messages.call_count() > 0)
            && self.options == request.options
            && self.system == request.system
            && (Arc::ptr_eq(&self.tools, &request.tools) || self.tools == request.tools)
    }
}

/// The beginning of a conversation as it was written, which stays so whatever is added.
#[derive(Debug, Default)]
struct Conversation {
    /// The messages, held weakly: as long as they are, no other message can have their address.
    messages: Vec<Weak<Message>>,
    handoff: Handoff,
    list: MessageList,
}

impl Conversation {
    /// The messages of a request that begins with this, and what of them stays so. None if nothing in what follows is
    /// the user's, because a body may look different from the last thing of the user's on.
    fn extend(
        mut self,
        wire: &(impl BodyWriter + ?Sized),
        spec: &ModelSpec,
        request: &Request,
    ) -> Result<Option<(MessageList, Self)>, EncodeError> {
        let new = request.messages.get(self.messages.len()..).unwrap_or_default();
        let groups = self.handoff.groups(new, spec);
        if !groups.iter().any(|group| group.is_last_of_user) {
            return Ok(None);
        }
        let write = |group: &Group<'_>, list: &mut MessageList| {
            list.expect(group.images());
            wire.group(spec, &request.options, group, list)?;
            list.breathe();
            Ok::<_, EncodeError>(())
        };
        let (settled, known) = Handoff::settled(&groups);
        for group in groups.iter().take(settled) {
            write(group, &mut self.list)?;
            self.handoff.done(group);
        }
        self.messages.extend(new.iter().take(known).map(Arc::downgrade));
        let mut list = self.list.clone();
        for group in groups.iter().skip(settled) {
            write(group, &mut list)?;
        }
        Ok(Some((list, self)))
    }

    fn begins(&self, transcript: &Transcript) -> bool {
        transcript.get(..self.messages.len()).is_some_and(|beginning| {
            self.messages.iter().zip(beginning).all(|(ours, theirs)| std::ptr::eq(ours.as_ptr(), Arc::as_ptr(theirs)))
        })
    }

    /// Whether a request can still begin with this.
    fn is_alive(&self) -> bool {
        self.messages.last().is_some_and(|last| last.strong_count() > 0)
    }

    /// In bytes, about.
    fn weight(&self) -> usize {
        const PER_MESSAGE: usize = 64;
        self.list.own_len() + self.messages.len() * PER_MESSAGE
    }
}

/// The conversations that were used last, by the address of their first message.
///
/// In two generations: what is used becomes young again, and when the young ones are too many, the old ones go.
#[derive(Debug, Default)]
struct Recent {
    young: HashMap<usize, Vec<Conversation>>,
    old: HashMap<usize, Vec<Conversation>>,
    young_weight: usize,
    count: usize,
    /// How many were kept since those were dropped that nobody holds any more.
    kept: usize,
}

/// The most that each generation weighs, in bytes.
const GENERATION: usize = 16 << 20;

impl Recent {
    /// Takes out the longest one that this transcript begins with.
    fn take(&mut self, transcript: &Transcript) -> Option<Conversation> {
        let first = Arc::as_ptr(transcript.first()?).addr();
        let mut take_from = |generation: &mut HashMap<usize, Vec<Conversation>>| {
            let forks = generation.get_mut(&first)?;
            let fitting = forks.iter().enumerate().filter(|(_, fork)| fork.begins(transcript));
            let (place, _) = fitting.max_by_key(|(_, fork)| fork.messages.len())?;
            let taken = forks.swap_remove(place);
            if forks.is_empty() {
                generation.remove(&first);
            }
            self.count -= 1;
            Some(taken)
        };
        if let Some(young) = take_from(&mut self.young) {
            self.young_weight = self.young_weight.saturating_sub(young.weight());
            return Some(young);
        }
        take_from(&mut self.old)
    }

    fn keep(&mut self, conversation: Conversation) {
        let Some(first) = conversation.messages.first().map(|first| first.as_ptr().addr()) else { return };
        self.young_weight += conversation.weight();
        self.young.entry(first).or_default().push(conversation);
        self.count += 1;
        self.kept += 1;
        if self.young_weight > GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
            self.recount();
        }
        if self.kept > self.count {
            self.drop_dead();
        }
    }

    fn drop_dead(&mut self) {
        for generation in [&mut self.young, &mut self.old] {
            generation.retain(|_, forks| {
                forks.retain(Conversation::is_alive);
                !forks.is_empty()
            });
        }
        self.young_weight = self.young.values().flatten().map(Conversation::weight).sum();
        self.kept = 0;
        self.recount();
    }

    fn recount(&mut self) {
        self.count = self.young.values().chain(self.old.values()).map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::{AssistantMessage, Block, StopReason, Usage, UserMessage};
    use crate::wire::WireFormat;

    /// A request of two exchanges, of which this is the first text.
    fn request(text: &str) -> Request {
        let reply = AssistantMessage {
            content: vec![Block::text("yes")],
            provider: "p".into(),
            model: "m".into(),
            wire: WireFormat::default(),
            stop_reason: StopReason::Stop,
            raw_stop_reason: None,
            usage: Usage::default(),
            response_id: None,
            error: None,
            timestamp: 0,
        };
        let said = [UserMessage::text(text, 0).into(), Message::from(reply), UserMessage::text("more", 0).into()];
        Request { messages: said.into_iter().collect(), ..Request::default() }
    }

    fn encoder() -> Encoder {
        Encoder::new(ModelSpec::new("p", "m", WireFormat::default()))
    }

    #[test]
    fn a_conversation_that_nobody_holds_is_forgotten() {
        let encoder = encoder();
        for _ in 0..1000 {
            encoder.encode(&request("hi")).unwrap();
        }
        let held = request("hi");
        for _ in 0..1000 {
            encoder.encode(&held).unwrap();
        }
        let recent = lock(&encoder.recent);
        assert!(recent.count <= 2, "{}", recent.count);
        assert_eq!(recent.young.len() + recent.old.len(), recent.count);
        drop(recent);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let encoder = encoder();
        let requests: Vec<Request> = (0..50).map(|_| request(&"x".repeat(1 << 20))).collect();
        for request in requests.iter().cycle().take(120) {
            encoder.encode(request).unwrap();
            let recent = lock(&encoder.recent);
            let all = || recent.young.values().chain(recent.old.values()).flatten();
            assert!(all().map(Conversation::weight).sum::<usize>() <= 2 * GENERATION + (2 << 20));
            assert_eq!(all().count(), recent.count);
            let young: usize = recent.young.values().flatten().map(Conversation::weight).sum();
            assert_eq!(young, recent.young_weight);
        }
    }
}
