//! Call ids in the target's alphabet and length.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::model::{CallIdRule, ModelSpec};

/// Gives out ids in the order of the calls, so that what is given out never changes when calls are added.
pub(super) struct Ids<'a, 'b> {
    rule: CallIdRule,
    before: &'b HashSet<String>,
    taken: HashSet<Cow<'a, str>>,
}

impl<'a, 'b> Ids<'a, 'b> {
    /// Ids that go on from those that were given out `before`.
    pub(super) fn new(before: &'b HashSet<String>, target: &ModelSpec) -> Self {
        Self { rule: target.compat.call_id, before, taken: HashSet::new() }
    }

    /// The id that the target sees for a call of this id; `own` if the target wrote it.
    pub(super) fn assign(&mut self, id: &'a str, own: bool) -> Cow<'a, str> {
        if fits(id, own, self.rule) && self.take(Cow::Borrowed(id)) {
            return Cow::Borrowed(id);
        }
        // A rule that has fewer ids than the conversation has calls can't be kept; then any id is as bad.
        let rule = self.rule;
        let mut candidates = (0..100).map(|attempt| derived(id, attempt, rule));
        candidates.find(|candidate| self.take(Cow::Owned(candidate.clone()))).map_or(Cow::Borrowed(id), Cow::Owned)
    }

    /// Whether the id was free.
    fn take(&mut self, id: Cow<'a, str>) -> bool {
        !self.before.contains(&*id) && self.taken.insert(id)
    }
}

/// Whether an id can go to the target as it is. A host takes its own ids back whatever they look like; where the length
/// is exact, it writes none of another length, and the id is one that was made up here.
fn fits(id: &str, own: bool, rule: CallIdRule) -> bool {
    match rule {
        CallIdRule::AtMost(most) => {
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            !id.is_empty() && (own || id.len() <= most && id.bytes().all(legal))
        }
        CallIdRule::Exactly(length) => id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
    }
}

/// A legal id made from an illegal one: what is legal of it, for people who read logs, and a hash of all of it.
fn derived(id: &str, attempt: u32, rule: CallIdRule) -> String {
    const HASHED: usize = 11;
    match rule {
        CallIdRule::Exactly(length) => hashed(id, attempt).take(length).collect(),
        CallIdRule::AtMost(most) => {
            let readable = id.chars().filter(char::is_ascii_alphanumeric).take(most.saturating_sub(HASHED + 1));
            let mut derived: String = readable.collect();
            if !derived.is_empty() {
                derived.push('_');
            }
            derived.extend(hashed(id, attempt).take(HASHED.min(most)));
            derived
        }
    }
}

/// Letters and digits without end that depend on the id and the attempt alone: FNV-1a, then Knuth's MMIX generator.
/// Not the standard hasher, which may change from one version to the next, and a conversation's ids with it.
fn hashed(id: &str, attempt: u32) -> impl Iterator<Item = char> {
    let bytes = id.bytes().chain(attempt.to_le_bytes());
    let hash =
        bytes.fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    let digit =
        |state: u64| b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".get((state >> 33) as usize % 62);
    std::iter::successors(next(&hash), next).filter_map(digit).map(|&byte| char::from(byte))
}
