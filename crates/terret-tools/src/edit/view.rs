use std::fmt;
use std::ops::Range;

use memchr::{memchr_iter, memchr3};

/// Differences between a text and a file that are overlooked. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Overlook {
    /// CRLF against LF.
    LineEnds,
    /// Spaces and tabs before a line's end.
    TrailingSpace,
    /// Typographic quotes, dashes and spaces against those of ASCII.
    Typography,
}

impl Overlook {
    pub(super) const ALL: [Self; 3] = [Self::LineEnds, Self::TrailingSpace, Self::Typography];
}

impl fmt::Display for Overlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LineEnds => "the kind of line end",
            Self::TrailingSpace => "white space at line ends",
            Self::Typography => "the difference between typographic and plain quotes, dashes or spaces",
        })
    }
}

/// A file as it looks with differences overlooked, and the way back to its own bytes.
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    overlook: Overlook,
    runs: Vec<Run>,
}

/// Bytes of a view that stand for bytes of the original one to one, or (`width` other than 1) a single byte that
/// stands for `width` bytes.
#[derive(Clone, Copy)]
struct Run {
    view: usize,
    original: usize,
    width: usize,
}

/// A text to look for in a view.
pub(super) struct Pattern {
    pub(super) bytes: Vec<u8>,
    /// A line end was added, because white space before it was overlooked.
    line_end_added: bool,
}

impl View {
    pub(super) fn new(original: &[u8], overlook: Overlook) -> Self {
        let (mut view, _) = Self::of_part(original, overlook);
        // The last line ends, too, whether or not the file says so.
        if view.bytes.last().is_some_and(|last| *last != b'\n') {
            view.push(b'\n', original.len(), 0);
        }
        view
    }

    /// A text as it looks in this view; `None` if nothing is left to look for.
    pub(super) fn pattern(&self, text: &str) -> Option<Pattern> {
        let (View { mut bytes, .. }, trimmed) = Self::of_part(text.as_bytes(), self.overlook);
        // White space at the very end is overlooked only if the line ends there.
        if trimmed {
            bytes.push(b'\n');
        }
        let empty = bytes.iter().all(|byte| *byte == b'\n');
        (!empty).then_some(Pattern { bytes, line_end_added: trimmed })
    }

    /// The bytes of the original that an occurrence of a pattern stands for.
    pub(super) fn original(&self, start: usize, pattern: &Pattern) -> Range<usize> {
        let last = start + pattern.bytes.len() - 1;
        let (last_start, last_end) = self.source(last);
        self.source(start).0..if pattern.line_end_added { last_start } else { last_end }
    }

    /// The bytes of the original that one byte of the view stands for.
    fn source(&self, at: usize) -> (usize, usize) {
        let index = self.runs.partition_point(|run| run.view <= at).saturating_sub(1);
        let Some(run) = self.runs.get(index) else { return (0, 0) };
        let start = run.original + (at - run.view);
        (start, start + run.width)
    }

    /// The view of a text that may end within a line, and whether white space was overlooked at its end.
    fn of_part(text: &[u8], overlook: Overlook) -> (Self, bool) {
        let mut view = View { bytes: Vec::with_capacity(text.len() + 1), overlook, runs: Vec::new() };
        let mut begin = 0;
        for feed in memchr_iter(b'\n', text) {
            let end = if feed > begin && text.get(feed - 1) == Some(&b'\r') { feed - 1 } else { feed };
            view.push_line(text, begin..end);
            view.push(b'\n', end, feed + 1 - end);
            begin = feed + 1;
        }
        let trimmed = view.push_line(text, begin..text.len());
        (view, trimmed)
    }

    /// Adds a line without its end. Returns whether white space was overlooked at its end.
    fn push_line(&mut self, text: &[u8], line: Range<usize>) -> bool {
        let (mut start, mut rest) = (line.start, text.get(line).unwrap_or_default());
        let kept = self.bytes.len();
        if self.overlook == Overlook::Typography {
            while let Some(at) = memchr3(0xc2, 0xe2, 0xe3, rest) {
                let (before, from) = rest.split_at(at);
                self.push_as_it_is(before, start);
                let (byte, width) = first(from);
                self.push(byte, start + at, width);
                start += at + width;
                rest = from.get(width..).unwrap_or_default();
            }
        }
        self.push_as_it_is(rest, start);
        if self.overlook < Overlook::TrailingSpace {
            return false;
        }
        let line = self.bytes.get(kept..).unwrap_or_default();
        let spaces = line.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        self.truncate(self.bytes.len() - spaces);
        spaces > 0
    }

    fn push_as_it_is(&mut self, bytes: &[u8], original: usize) {
        if let [first, rest @ ..] = bytes {
            self.push(*first, original, 1);
            self.bytes.extend_from_slice(rest);
        }
    }

    fn push(&mut self, byte: u8, original: usize, width: usize) {
        let view = self.bytes.len();
        self.bytes.push(byte);
        let goes_on = self
            .runs
            .last()
            .is_some_and(|run| run.width == 1 && width == 1 && run.original + (view - run.view) == original);
        if !goes_on {
            self.runs.push(Run { view, original, width });
        }
    }

    fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        while self.runs.last().is_some_and(|run| run.view >= length) {
            self.runs.pop();
        }
    }
}

/// The first character of a text that isn't empty, as it looks with typography overlooked, and its width in bytes.
fn first(rest: &[u8]) -> (u8, usize) {
    match rest {
        // U+00A0; U+2000 to U+200A and U+202F; U+205F; U+3000.
        [0xc2, 0xa0, ..] => (b' ', 2),
        [0xe2, 0x80, 0x80..=0x8a | 0xaf, ..] | [0xe2, 0x81, 0x9f, ..] | [0xe3, 0x80, 0x80, ..] => (b' ', 3),
        // U+2018 to U+201B, and the prime U+2032.
        [0xe2, 0x80, 0x98..=0x9b | 0xb2, ..] => (b'\'', 3),
        // U+201C to U+201F, and the double prime U+2033.
        [0xe2, 0x80, 0x9c..=0x9f | 0xb3, ..] => (b'"', 3),
        // U+2010 to U+2015, and the minus sign U+2212.
        [0xe2, 0x80, 0x90..=0x95, ..] | [0xe2, 0x88, 0x92, ..] => (b'-', 3),
        [byte, ..] => (*byte, 1),
        [] => (b'\n', 0),
    }
}
