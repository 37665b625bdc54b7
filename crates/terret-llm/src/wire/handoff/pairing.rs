//! Which result belongs to which call.

use std::borrow::Cow;

use super::ids::Ids;
use super::{is_own, is_replayed};
use crate::model::ModelSpec;
use crate::transcript::{Message, ToolCall, ToolResultMessage, Transcript};

/// A call that goes to the target, as the target will know it.
pub(super) struct Call<'a> {
    pub(super) asked: &'a ToolCall,
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) result: Option<(&'a Message, &'a ToolResultMessage)>,
}

/// The calls of all replayed replies in order, each with its result.
///
/// A result belongs to the nearest reply before it that has a call of its id, and there to the first call that has no
/// result yet.
pub(super) fn pair<'a>(transcript: &'a Transcript, target: &ModelSpec) -> Vec<Call<'a>> {
    let mut ids = Ids::new(transcript, target);
    let mut calls: Vec<Call<'a>> = Vec::new();
    // Indices of calls that may still get a result. Few at any time: a call leaves with its result.
    let mut open: Vec<usize> = Vec::new();
    for message in transcript.iter() {
        match &**message {
            Message::User(_) => {}
            Message::Assistant(reply) => {
                // Later results of these ids are for this reply's calls.
                open.retain(|&n| {
                    calls.get(n).is_some_and(|call| reply.tool_calls().all(|new| new.id != call.asked.id))
                });
                if !is_replayed(reply) {
                    continue;
                }
                let own = is_own(reply, target);
                for asked in reply.tool_calls() {
                    open.push(calls.len());
                    let id = ids.assign(&asked.id, own);
                    calls.push(Call { asked, id, name: legal_name(&asked.name), result: None });
                }
            }
            Message::ToolResult(result) => {
                let asked = |&n: &usize| calls.get(n).is_some_and(|call| call.asked.id == result.tool_call_id);
                if let Some(place) = open.iter().position(asked)
                    && let Some(call) = calls.get_mut(open.remove(place))
                {
                    call.result = Some((message, result));
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
