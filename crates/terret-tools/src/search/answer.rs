use std::path::PathBuf;

use super::found::{Found, Unread};
use crate::listing::Listing;
use crate::workspace::Workspace;

/// What was found, as the model is told.
pub(super) struct Answer {
    listing: Listing,
    files: usize,
    notes: Vec<String>,
}

impl Answer {
    pub(super) fn new(found: &Found, workspace: &Workspace) -> Self {
        let mut listing = Listing::new(found.limit());
        let mut files = 0;
        let mut unread: Vec<(PathBuf, Unread)> = Vec::new();
        for (path, place) in found.take() {
            let before = listing.entries();
            for line in place.lines {
                let fits = if line.counts { listing.entry(&line.text) } else { listing.line(&line.text) };
                if !fits {
                    break;
                }
            }
            files += usize::from(listing.entries() > before);
            if listing.is_full() {
                break;
            }
            unread.extend(place.unread.map(|why| (path, why)));
        }
        let note = |kind: Unread, why: &str| {
            let mut of_kind = unread.iter().filter(|(_, unread)| *unread == kind);
            let (first, _) = of_kind.next()?;
            let (first, more) = (workspace.shown(first), of_kind.count());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Some(format!("[Not searched, because {why}: {first}{more}.]"))
        };
        let notes = [note(Unread::NotPermitted, "it can't be read"), note(Unread::LineTooLong, "a line is too long")];
        Self { listing, files, notes: notes.into_iter().flatten().collect() }
    }

    /// How many entries are shown.
    pub(super) fn entries(&self) -> usize {
        self.listing.entries()
    }

    /// In how many files those are.
    pub(super) fn files(&self) -> usize {
        self.files
    }

    /// Whether that is all there is.
    pub(super) fn is_complete(&self) -> bool {
        !self.listing.is_full()
    }

    /// The text; `nothing` where there is no entry.
    pub(super) fn finish(self, entries: &str, advice: &str, nothing: &str) -> String {
        let is_empty = self.listing.entries() == 0 && !self.listing.is_full();
        let mut text = if is_empty { nothing.to_owned() } else { self.listing.finish(entries, advice) };
        for note in self.notes {
            text.push('\n');
            text.push_str(&note);
        }
        text
    }
}
