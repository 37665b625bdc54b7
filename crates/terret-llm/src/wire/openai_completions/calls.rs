//! Which tool call a delta belongs to.
//!
//! By the reference a delta carries the call's index, and its first delta the id and the name as well. Hosts leave out
//! the index or the id, repeat the name, change the id from delta to delta, or use one index for several calls.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::frame::{CallDelta, arguments};
use crate::draft::Draft;
use crate::lossy::Fragment;
use crate::stream::BlockKind;

/// The calls of one reply, in the order of their first deltas.
#[derive(Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The call of the latest delta.
    last: Option<usize>,
}

#[derive(Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    /// The arguments so far, until the call's block is opened; then they stand there.
    held: Fragment<'static>,
    signature: String,
    block: Option<usize>,
}

/// Which of the calls that have no block yet get one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    /// Those whose id and name are known, in the order of their indices without a gap.
    Known,
    /// Those whose name is known: something else begins, and has to stand after them.
    Named,
    /// All.
    All,
}

/// What a delta is to the calls so far.
enum Role {
    New,
    More(usize),
    /// The call once more.
    Repeat,
}

impl Calls {
    /// Takes a delta. `alone` tells that it is not one of several in its list, which stand for different calls.
    pub(super) fn take(&mut self, draft: &mut Draft, delta: &CallDelta<'_>, alone: bool) {
        let id = delta.id.as_deref().unwrap_or_default();
        let fragment = arguments(delta.function.arguments);
        let at = match self.role(draft, delta, &fragment.text, alone) {
            Role::Repeat => return,
            Role::More(at) => at,
            // A delta that says nothing begins no call.
            Role::New if id.is_empty() && delta.function.is_empty() => return,
            Role::New => {
                self.calls.push(Call { index: delta.index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return };
        self.last = Some(at);
        call.index = call.index.or(delta.index);
        fill(&mut call.id, id);
        fill(&mut call.name, delta.function.name.as_deref().unwrap_or_default());
        let signature = delta.extra_content.map_or("", RawValue::get);
        match call.block {
            None => {
                call.held.push(&fragment);
                fill(&mut call.signature, signature);
            }
            Some(block) => {
                draft.append_fragment(block, &fragment);
                if call.signature.is_empty() && !signature.is_empty() {
                    call.signature = signature.to_owned();
                    draft.sign(block, signature);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether [`open`](Self::open) would open a block.
    pub(super) fn can_open(&self, which: Open) -> bool {
        self.next(which).is_some()
    }

    /// Opens blocks for calls.
    pub(super) fn open(&mut self, draft: &mut Draft, which: Open) {
        while let Some(at) = self.next(which) {
            let Some(call) = self.calls.get_mut(at) else { return };
            let block = draft.open(BlockKind::ToolCall { id: call.id.clone(), name: call.name.clone() });
            call.block = Some(block);
            draft.append_fragment(block, &std::mem::take(&mut call.held));
            if !call.signature.is_empty() {
                draft.sign(block, &call.signature);
            }
        }
    }

    /// The next call to open.
    fn next(&self, which: Open) -> Option<usize> {
        let waiting = self.calls.iter().enumerate().filter(|(_, call)| call.block.is_none());
        let in_question = waiting.filter(|(_, call)| which != Open::Named || !call.name.is_empty());
        let (at, call) = in_question.min_by_key(|(_, call)| call.index.unwrap_or(0))?;
        let is_known =
            !call.id.is_empty() && !call.name.is_empty() && call.index.is_none_or(|index| self.follows(index));
        (which != Open::Known || is_known).then_some(at)
    }

    /// Whether all calls before this index are there.
    fn follows(&self, index: u64) -> bool {
        let opened = self.calls.iter().filter(|call| call.block.is_some()).filter_map(|call| call.index).max();
        index <= opened.map_or(0, |opened| opened + 1)
    }

    fn role(&self, draft: &Draft, delta: &CallDelta<'_>, fragment: &str, alone: bool) -> Role {
        let id = delta.id.as_deref().unwrap_or_default();
        let same_id = || self.calls.iter().rposition(|call| !id.is_empty() && call.id == id);
        let is_named = delta.function.name.as_deref().is_some_and(|name| !name.is_empty());
        let has_no_index = |at: usize| self.calls.get(at).is_some_and(|call| call.index.is_none());
        let found = match delta.index {
            Some(index) => self
                .calls
                .iter()
                .rposition(|call| call.index == Some(index))
                // A call begins with its name. What brings none goes on with a call whose index was not told yet.
                .or_else(|| same_id().or(self.last.filter(|_| !is_named)).filter(|&at| has_no_index(at))),
            None => same_id().or(self.last),
        };
        let Some((at, call)) = found.and_then(|at| Some((at, self.calls.get(at)?))) else { return Role::New };
        let other_id = !id.is_empty() && !call.id.is_empty() && id != call.id;
        if !alone && is_named && (other_id || id.is_empty() && delta.index.is_none()) {
            return Role::New;
        }
        let so_far = call.block.map_or(&*call.held.text, |block| draft.text(block));
        call.role(at, so_far, id, delta.function.name.as_deref().unwrap_or_default(), fragment.trim())
    }
}

impl Call {
    /// What a delta is whose index, or place, is this call's.
    fn role(&self, at: usize, arguments: &str, id: &str, name: &str, fragment: &str) -> Role {
        let other_id = !id.is_empty() && !self.id.is_empty() && id != self.id;
        let named_again = !name.is_empty() && !self.name.is_empty();
        if !other_id && !named_again {
            return Role::More(at);
        }
        // Both change: another call, whatever the state of this one.
        if named_again && name != self.name && (other_id || arguments.trim().is_empty()) {
            return Role::New;
        }
        // Some hosts repeat id and name with each delta, and some write another id each time. So only a delta that
        // comes after whole arguments, and has some of its own or another name, is another call.
        let says_something = !fragment.is_empty() || (named_again && name != self.name);
        if !says_something || !is_complete(arguments) {
            return Role::More(at);
        }
        let same_call = named_again && name == self.name && id == self.id && !id.is_empty();
        if same_call && fragment == arguments.trim() { Role::Repeat } else { Role::New }
    }
}

/// The first text that isn't empty counts.
fn fill(text: &mut String, with: &str) {
    if text.is_empty() {
        text.push_str(with);
    }
}

/// Whether argument text is a whole object. The last byte is asked first, for the check reads all of the text.
fn is_complete(arguments: &str) -> bool {
    arguments.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}
