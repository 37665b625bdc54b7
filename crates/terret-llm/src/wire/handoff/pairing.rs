//! Which result belongs to which call.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::ids::Ids;
use super::{is_own, is_replayed};
use crate::model::ModelSpec;
use crate::transcript::{Message, ToolCall, ToolResultMessage};

/// A call that goes to the target, as the target will know it.
pub(super) struct Call<'a> {
    pub(super) asked: &'a ToolCall,
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) result: Option<(&'a Message, &'a ToolResultMessage)>,
    /// How many of the messages have to be known, so that none after them can be the result.
    pub(super) settled: usize,
}

/// The calls of all replayed replies in order, each with its result.
///
/// A result belongs to the nearest reply before it that has a call of its id, and there to the first call that has no
/// result yet. `taken` are the ids of calls before these messages.
pub(super) fn pair<'a>(messages: &'a [Arc<Message>], taken: &HashSet<String>, target: &ModelSpec) -> Vec<Call<'a>> {
    let mut ids = Ids::new(taken, target);
    let mut calls: Vec<Call<'a>> = Vec::new();
    // Indices of calls that may still get a result. Few at any time: a call leaves with its result.
    let mut open: Vec<usize> = Vec::new();
    for (known, message) in (1..).zip(messages) {
        match &**message {
            Message::User(_) => {}
            Message::Assistant(reply) => {
                // Later results of these ids are for this reply's calls.
                open.retain(|&n| {
                    let Some(call) = calls.get_mut(n) else { return false };
                    let is_open = reply.tool_calls().all(|new| new.id != call.asked.id);
                    if !is_open {
                        call.settled = known;
                    }
                    is_open
                });
                if !is_replayed(reply) {
                    continue;
                }
                let own = is_own(reply, target);
                for asked in reply.tool_calls() {
                    open.push(calls.len());
                    let id = ids.assign(&asked.id, own);
                    let name = legal_name(&asked.name);
                    calls.push(Call { asked, id, name, result: None, settled: usize::MAX });
                }
            }
            Message::ToolResult(result) => {
                let asked = |&n: &usize| calls.get(n).is_some_and(|call| call.asked.id == result.tool_call_id);
                if let Some(place) = open.iter().position(asked)
                    && let Some(call) = calls.get_mut(open.remove(place))
                {
                    call.result = Some((message, result));
                    call.settled = known;
                }
            }
        }
    }
    calls
}

/// A name that every wire takes: 1 to 64 of `A-Z a-z 0-9 _ -`. A model may have written any, or none.
fn legal_name(name: &str) -> Cow<'_, str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match name.len() {
        0 => Cow::Borrowed("unnamed"),
        1..=64 if name.chars().all(is_legal) => Cow::Borrowed(name),
        _ => Cow::Owned(name.chars().map(|c| if is_legal(c) { c } else { '_' }).take(64).collect()),
    }
}
