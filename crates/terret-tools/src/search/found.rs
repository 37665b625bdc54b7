use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::listing::MAX_BYTES;

/// What several threads find in any order, kept in the order of paths, and no more of it than an answer shows.
///
/// Once that much is found, a path [behind](Self::is_behind) all of it needn't be looked at. So which threads were quick
/// doesn't show: the answer is the one that a walk in order would have stopped with.
#[derive(Debug)]
pub(super) struct Found {
    limit: usize,
    enough: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    places: BTreeMap<PathBuf, Place>,
    entries: usize,
    bytes: usize,
}

/// What was found at a path.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) lines: Vec<Line>,
    /// Why not everything there was looked at.
    pub(super) unread: Option<Unread>,
    entries: usize,
    bytes: usize,
}

/// A line of an answer.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) text: String,
    /// Whether it counts as an entry.
    pub(super) counts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    NotPermitted,
    LineTooLong,
}

impl Found {
    /// For an answer of up to so many entries.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, enough: AtomicBool::new(false), kept: Mutex::default() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether there is as much as an answer shows.
    pub(super) fn is_enough(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    /// How much of an answer there is, from 0.
    pub(super) fn share(&self) -> f64 {
        let kept = self.kept();
        let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
        share(kept.entries, self.limit).max(share(kept.bytes, MAX_BYTES))
    }

    /// Whether everything that is shown of what was found so far comes before a path.
    pub(super) fn is_behind(&self, path: &Path) -> bool {
        self.is_enough() && self.kept().places.last_key_value().is_some_and(|(last, _)| path > last.as_path())
    }

    /// Keeps what was found at a path, and lets go of what has fallen behind.
    pub(super) fn add(&self, path: &Path, place: Place) {
        if self.is_behind(path) {
            return;
        }
        let mut kept = self.kept();
        kept.entries += place.entries;
        kept.bytes += place.bytes;
        match kept.places.get_mut(path) {
            Some(known) => known.join(place),
            None => drop(kept.places.insert(path.to_owned(), place)),
        }
        while let Some(last) = kept.places.last_entry() {
            let (entries, bytes) = (last.get().entries, last.get().bytes);
            if !is_enough(kept.entries - entries, kept.bytes - bytes, self.limit) {
                break;
            }
            kept.places.pop_last();
            kept.entries -= entries;
            kept.bytes -= bytes;
        }
        if is_enough(kept.entries, kept.bytes, self.limit) {
            self.enough.store(true, Ordering::Relaxed);
        }
    }

    /// All that was kept, in the order of paths. Nothing is left.
    pub(super) fn take(&self) -> BTreeMap<PathBuf, Place> {
        self.enough.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.kept()).places
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn unread(unread: Unread) -> Self {
        Self { unread: Some(unread), ..Self::default() }
    }

    /// Whether there is anything to be told.
    pub(super) fn has_something(&self) -> bool {
        !self.lines.is_empty() || self.unread.is_some()
    }

    fn join(&mut self, other: Self) {
        self.lines.extend(other.lines);
        self.unread = self.unread.or(other.unread);
        self.entries += other.entries;
        self.bytes += other.bytes;
    }

    /// Adds a line. Returns whether an answer of up to so many entries could show more.
    pub(super) fn push(&mut self, text: String, counts: bool, limit: usize) -> bool {
        self.entries += usize::from(counts);
        self.bytes += text.len() + 1;
        self.lines.push(Line { text, counts });
        !is_enough(self.entries, self.bytes, limit)
    }
}

/// Whether an answer is full with so much: one more than what is shown, which tells that there is more.
fn is_enough(entries: usize, bytes: usize, limit: usize) -> bool {
    entries > limit || bytes > MAX_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(path: &str, matches: usize, limit: usize) -> Place {
        let mut place = Place::default();
        for number in 0..matches {
            if !place.push(format!("{path}:{number}"), true, limit) {
                break;
            }
        }
        place
    }

    proptest! {
        #[test]
        fn what_is_found_in_any_order_begins_as_what_is_found_in_order(
            found in prop::collection::btree_map("[ab]/[abc]{1,2}([.]c|/[ab])?", 0_usize..4, 0..20),
            limit in 1_usize..12,
            order in any::<prop::sample::Selector>(),
        ) {
            let mut in_order: Vec<(PathBuf, usize)> = found.iter().map(|(path, matches)| (path.into(), *matches)).collect();
            in_order.sort();
            let all: Vec<String> = in_order
                .iter()
                .flat_map(|(path, matches)| (0..*matches).map(move |number| format!("{}:{number}", path.display())))
                .collect();

            let kept = Found::new(limit);
            let mut left = in_order;
            while !left.is_empty() {
                let index = order.select(0..left.len());
                let (path, matches) = left.remove(index);
                if !kept.is_behind(&path) {
                    kept.add(&path, place(path.to_str().unwrap(), matches, limit));
                }
            }
            let lines: Vec<String> = kept.take().into_values().flat_map(|place| place.lines).map(|line| line.text).collect();
            // One more than the limit tells that there is more; what comes with it in one place may stay.
            prop_assert!(lines.len() >= all.len().min(limit + 1));
            prop_assert_eq!(&lines[..], &all[..lines.len()]);
        }
    }

    #[test]
    fn memory_does_not_grow_with_what_is_found() {
        let kept = Found::new(10);
        for number in (0..10_000).rev() {
            kept.add(Path::new(&format!("{number:05}")), place("x", 3, 10));
            assert!(kept.kept().places.len() <= 4);
        }
        assert!(kept.is_behind(Path::new("00004")) && !kept.is_behind(Path::new("00003")));
    }
}
