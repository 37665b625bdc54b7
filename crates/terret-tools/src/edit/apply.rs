use std::fmt;
use std::ops::Range;

use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter, memrchr};

use super::nearest::nearest_lines;
use super::view::{Overlook, View};

/// A file with its edits.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) content: Vec<u8>,
    /// The line in the original at which each edit starts.
    pub(super) lines: Vec<usize>,
    /// What was overlooked to find a place, in words.
    pub(super) overlooked: Vec<String>,
}

/// Why edits can't be made. None of them is, then. Models read the text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EditError {
    #[error("edits[{0}].oldText is empty. Give the text to replace; to create or replace a whole file, use write.")]
    Empty(usize),

    #[error(
        "edits[{index}].oldText was not found. It must match the file exactly, white space included.{}",
        Nearest(.nearest)
    )]
    NotFound { index: usize, nearest: Vec<(usize, String)> },

    #[error(
        "edits[{index}].oldText matches more than one place: at lines {}. Add lines before or after it until it matches \
         only one.",
        Places(.lines, *.more)
    )]
    Ambiguous { index: usize, lines: Vec<usize>, more: bool },

    #[error("edits[{0}] and edits[{1}] overlap. Join them into one edit.")]
    Overlap(usize, usize),

    #[error("the edits leave it as it is. oldText and newText are the same.")]
    NoChange,
}

/// How many places of an ambiguous text are told.
const PLACES: usize = 5;

/// Replaces each old text by its new one. All are looked for in the original.
pub(super) fn apply(original: &[u8], edits: &[(&str, &str)]) -> Result<Applied, EditError> {
    let mut views = Views::default();
    let mut replacements = Vec::with_capacity(edits.len());
    let mut overlooked = Vec::new();
    for (index, (old, new)) in edits.iter().enumerate() {
        let (range, overlook) = locate(original, index, old, &mut views)?;
        let line_end = line_end_at(original, range.start);
        let new = adapt(new, line_end, overlook.is_some());
        if let Some(overlook) = overlook {
            overlooked.push(format!("edits[{index}] was matched overlooking {overlook}."));
        }
        replacements.push(Replacement { index, range, new });
    }
    let lines = replacements.iter().map(|replacement| line_number(original, replacement.range.start)).collect();
    replacements.sort_by_key(|replacement| replacement.range.start);
    for pair in replacements.windows(2) {
        if let [first, second] = pair
            && second.range.start < first.range.end
        {
            return Err(EditError::Overlap(first.index.min(second.index), first.index.max(second.index)));
        }
    }
    let content = replaced(original, &replacements);
    if content == original {
        return Err(EditError::NoChange);
    }
    Ok(Applied { content, lines, overlooked })
}

struct Replacement {
    index: usize,
    range: Range<usize>,
    new: Vec<u8>,
}

/// The original as it looks with differences overlooked, made when first needed.
#[derive(Default)]
struct Views([Option<View>; Overlook::ALL.len()]);

/// The one place of a text, and what had to be overlooked to find it.
fn locate(
    original: &[u8],
    index: usize,
    old: &str,
    views: &mut Views,
) -> Result<(Range<usize>, Option<Overlook>), EditError> {
    if old.is_empty() {
        return Err(EditError::Empty(index));
    }
    let ambiguous = |starts: Vec<usize>| {
        let mut lines: Vec<usize> = starts.iter().take(PLACES).map(|start| line_number(original, *start)).collect();
        lines.dedup();
        EditError::Ambiguous { index, lines, more: starts.len() > PLACES }
    };
    match occurrences(original, old.as_bytes()).as_slice() {
        [] => {}
        [start] => return Ok((*start..start + old.len(), None)),
        starts => return Err(ambiguous(starts.to_vec())),
    }
    for (overlook, view) in Overlook::ALL.into_iter().zip(&mut views.0) {
        let view = view.get_or_insert_with(|| View::new(original, overlook));
        let Some(pattern) = view.pattern(old) else { continue };
        match occurrences(&view.bytes, &pattern.bytes).as_slice() {
            [] => {}
            [start] => return Ok((view.original(*start, &pattern), Some(overlook))),
            starts => {
                return Err(ambiguous(starts.iter().map(|start| view.original(*start, &pattern).start).collect()));
            }
        }
    }
    Err(EditError::NotFound { index, nearest: nearest_lines(original, old) })
}

/// Where a text occurs, overlapping occurrences included: one more than [`PLACES`] at most.
fn occurrences(haystack: &[u8], needle: &[u8]) -> Vec<usize> {
    let finder = Finder::new(needle);
    let mut starts = Vec::new();
    let mut from = 0;
    while let Some(found) = haystack.get(from..).and_then(|rest| finder.find(rest)) {
        starts.push(from + found);
        from += found + 1;
        if starts.len() > PLACES {
            break;
        }
    }
    starts
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Lf,
    Crlf,
}

/// How the line at a place ends; for the last one, how the line before it does.
fn line_end_at(original: &[u8], at: usize) -> LineEnd {
    let (before, after) = original.split_at_checked(at).unwrap_or((original, &[]));
    let feed = memchr(b'\n', after).map(|feed| at + feed).or_else(|| memrchr(b'\n', before));
    let ends_in_crlf =
        feed.and_then(|feed| feed.checked_sub(1)).and_then(|before| original.get(before)) == Some(&b'\r');
    if ends_in_crlf { LineEnd::Crlf } else { LineEnd::Lf }
}

/// A new text with the line ends of the place where it goes. `loosely`: line ends weren't compared.
fn adapt(new: &str, line_end: LineEnd, loosely: bool) -> Vec<u8> {
    match line_end {
        LineEnd::Crlf => new.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes(),
        LineEnd::Lf if loosely => new.replace("\r\n", "\n").into_bytes(),
        LineEnd::Lf => new.as_bytes().to_vec(),
    }
}

fn replaced(original: &[u8], replacements: &[Replacement]) -> Vec<u8> {
    let mut content = Vec::with_capacity(original.len());
    let mut kept = 0;
    for Replacement { range, new, .. } in replacements {
        content.extend_from_slice(original.get(kept..range.start).unwrap_or_default());
        content.extend_from_slice(new);
        kept = range.end;
    }
    content.extend_from_slice(original.get(kept..).unwrap_or_default());
    content
}

fn line_number(bytes: &[u8], at: usize) -> usize {
    memchr_iter(b'\n', bytes.get(..at).unwrap_or(bytes)).count() + 1
}

struct Nearest<'a>(&'a [(usize, String)]);

impl fmt::Display for Nearest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(" Nothing in the file resembles it. Read the file again.");
        }
        f.write_str(" The nearest lines are:\n")?;
        for (number, line) in self.0 {
            writeln!(f, "{number}: {line}")?;
        }
        f.write_str("Read that part again and copy it as it stands.")
    }
}

struct Places<'a>(&'a [usize], bool);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(usize::to_string).collect();
        write!(f, "{}{}", lines.join(", "), if self.1 { " and more" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A text with everything overlooked, by the simplest means.
    fn plain(text: &str) -> String {
        let text = text.replace("\r\n", "\n").replace(['\u{2018}', '\u{2019}'], "'").replace('\u{a0}', " ");
        text.split('\n').map(|line| line.trim_end_matches([' ', '\t'])).collect::<Vec<_>>().join("\n")
    }

    fn text(length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
        const PIECES: &[&str] = &["a", "b", " ", "\n", "\r\n", "'", "\u{2019}", "\u{a0}"];
        prop::collection::vec(prop::sample::select(PIECES), length).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn an_exact_text_is_replaced_if_it_is_unique_and_nothing_else_ever_is(
            file in text(0..14), old in text(1..5), new in text(0..4),
        ) {
            let exact: Vec<usize> = (0..file.len()).filter(|at| file.as_bytes()[*at..].starts_with(old.as_bytes())).collect();
            match apply(file.as_bytes(), &[(&old, &new)]) {
                Err(EditError::Ambiguous { .. }) => prop_assert_ne!(exact.len(), 1),
                Err(EditError::NotFound { .. }) => prop_assert!(exact.is_empty()),
                Err(EditError::NoChange) => {}
                Err(error) => prop_assert!(false, "{}", error),
                Ok(Applied { content, overlooked, .. }) => {
                    prop_assert_eq!(overlooked.is_empty(), exact.len() == 1);
                    let news = [new.clone(), new.replace("\r\n", "\n"), new.replace("\r\n", "\n").replace('\n', "\r\n")];
                    // Some stretch that resembles the old text became the new one, and all around it stayed.
                    let explained = (0..=file.len()).any(|start| (start..=file.len()).any(|end| {
                        let (Some(before), Some(taken), Some(after)) = (file.get(..start), file.get(start..end), file.get(end..)) else {
                            return false;
                        };
                        let resembles = match exact[..] {
                            [at] => taken == old && start == at,
                            _ => plain(taken) == plain(&old) || (after.is_empty() && format!("{}\n", plain(taken)) == plain(&old)),
                        };
                        resembles && news.iter().any(|new| [before, new, after].concat().as_bytes() == content)
                    }));
                    prop_assert!(explained, "{:?}", String::from_utf8_lossy(&content));
                }
            }
        }
    }
}
