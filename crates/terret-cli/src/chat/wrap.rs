//! Rows of styled text that comes bit by bit: a row that is full is final.

use anstyle::Style;
use unicode_width::UnicodeWidthChar as _;

use super::look::{Look, columns};

const JOINER: char = '\u{200d}';

/// Breaks a text into rows between words. What a character costs doesn't depend on what came before its row.
pub(crate) struct Wrap {
    look: Look,
    /// How many columns a row may have; a row that isn't broken is left to the terminal to wrap.
    width: usize,
    broken: bool,
    /// Under what begins the line.
    indent: usize,
    row: Spans,
    word: Spans,
    /// Whether the row has more than its indent.
    begun: bool,
    full: Vec<String>,
}

/// The most of a line that waits for its end, in columns, where rows aren't broken.
const LONGEST: usize = 4096;

#[derive(Default)]
struct Spans {
    spans: Vec<(Style, String)>,
    /// An upper bound, for what is joined into one character.
    width: usize,
    last: Option<char>,
}

impl Wrap {
    pub(crate) fn new(look: Look, width: usize) -> Self {
        let (row, word) = Default::default();
        Self { look, width: width.max(8), broken: true, indent: 0, row, word, begun: false, full: Vec::new() }
    }

    pub(crate) fn resize(&mut self, width: usize) {
        self.width = width.max(8);
    }

    /// Whether long lines of the text that follows are broken.
    pub(crate) fn breaks(&mut self, broken: bool) {
        self.broken = broken;
    }

    /// Under which column the rows of this line begin after the first one.
    pub(crate) fn hang(&mut self, columns: usize) {
        self.indent = columns.min(self.width / 2);
    }

    pub(crate) fn push_str(&mut self, text: &str, style: Style) {
        text.chars().for_each(|c| self.push(c, style));
    }

    pub(crate) fn push(&mut self, c: char, style: Style) {
        let width = c.width().unwrap_or(0);
        if c == ' ' && self.broken {
            self.end_word();
            // At the end of a row, the break is the space.
            if self.row.width < self.width && (self.begun || self.row.width == 0 || self.indent == 0) {
                self.row.push(c, style, width);
            }
            return;
        }
        let joined = width == 0 || self.word.last == Some(JOINER) || is_modifier(c);
        let breakable = width > 1 || self.word.last.and_then(char::width).is_some_and(|width| width > 1);
        if self.broken && !joined && breakable && !closes(c) {
            self.end_word();
        }
        if !joined && self.word.width + width > if self.broken { self.width - self.indent } else { LONGEST } {
            self.word.settle();
            if self.word.width + width > if self.broken { self.width - self.indent } else { LONGEST } {
                self.end_word();
                self.end_row();
            }
        }
        self.word.push(c, style, width);
    }

    /// The line has ended.
    pub(crate) fn end_line(&mut self) {
        self.end_word();
        self.indent = 0;
        self.end_row();
    }

    /// Whether a line has begun.
    pub(crate) fn is_in_line(&self) -> bool {
        self.row.width > 0 || self.word.width > 0
    }

    /// The rows that have become full since the last time.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.full)
    }

    /// The row that isn't full yet, and a word that may still go on. It has two rows at most.
    pub(crate) fn pending(&self) -> Vec<String> {
        if !self.is_in_line() {
            return Vec::new();
        }
        let all = self.row.spans.iter().chain(&self.word.spans);
        if !self.broken {
            let plain: String = all.map(|(_, text)| text.as_str()).collect();
            return vec![self.look.shown(&super::look::fit(&plain, self.width)).into_owned()];
        }
        if self.row.width + self.word.width <= self.width {
            return vec![render(self.look, all)];
        }
        let indent = " ".repeat(self.indent);
        vec![render(self.look, self.row.spans.iter()), indent + &render(self.look, self.word.spans.iter())]
    }

    fn end_word(&mut self) {
        if self.word.spans.is_empty() {
            return;
        }
        self.word.settle();
        if self.broken && self.begun && self.row.width + self.word.width > self.width {
            self.end_row();
        }
        self.row.append(&mut self.word);
        self.begun = true;
    }

    fn end_row(&mut self) {
        let row = std::mem::take(&mut self.row);
        self.full.push(render(self.look, row.spans.iter()).trim_end_matches(' ').to_owned());
        self.begun = false;
        for _ in 0..self.indent {
            self.row.push(' ', Style::new(), 1);
        }
    }
}

impl Spans {
    fn push(&mut self, c: char, style: Style, width: usize) {
        match self.spans.last_mut() {
            Some((last, text)) if *last == style => text.push(c),
            _ => self.spans.push((style, c.into())),
        }
        self.width += width;
        self.last = Some(c);
    }

    /// Measures what is joined.
    fn settle(&mut self) {
        if self.spans.iter().any(|(_, text)| !text.is_ascii()) {
            self.width = self.spans.iter().map(|(_, text)| columns(text)).sum();
        }
    }

    fn append(&mut self, other: &mut Self) {
        self.width += std::mem::take(&mut other.width);
        self.last = other.last.take();
        for (style, text) in other.spans.drain(..) {
            match self.spans.last_mut() {
                Some((last, before)) if *last == style => before.push_str(&text),
                _ => self.spans.push((style, text)),
            }
        }
    }
}

fn render<'a>(look: Look, spans: impl Iterator<Item = &'a (Style, String)>) -> String {
    spans.map(|(style, text)| look.paint(*style, &look.shown(text))).collect()
}

/// Skin tones, which belong to what is before them.
fn is_modifier(c: char) -> bool {
    matches!(c, '\u{1f3fb}'..='\u{1f3ff}')
}

/// What doesn't begin a row.
fn closes(c: char) -> bool {
    matches!(c, '。' | '、' | '，' | '．' | '）' | '」' | '』' | '！' | '？' | '：' | '；') || c.is_ascii_punctuation()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(width: usize, text: &str) -> Vec<String> {
        let mut wrap = Wrap::new(Look { styled: false, unicode: true, moves: true }, width);
        wrap.push_str(text, Style::new());
        wrap.end_line();
        wrap.take()
    }

    #[test]
    fn rows_are_broken_between_words() {
        assert_eq!(rows(10, "one two three four"), ["one two", "three four"]);
        assert_eq!(rows(10, "0123456789 and"), ["0123456789", "and"]);
        assert_eq!(rows(10, "01234567890123456789abc"), ["0123456789", "0123456789", "abc"]);
        assert_eq!(rows(10, ""), [""]);
    }

    #[test]
    fn wide_characters_and_joined_ones_take_what_the_terminal_gives_them() {
        assert_eq!(rows(10, "日本語日本語"), ["日本語日本", "語"]);
        assert_eq!(rows(10, "日本語日本。語"), ["日本語日", "本。語"]);
        assert_eq!(rows(8, &"e\u{301}".repeat(10)), ["e\u{301}".repeat(8), "e\u{301}".repeat(2)]);
        // A family is one character of two columns.
        let family = "👩\u{200d}👩\u{200d}👧";
        assert_eq!(rows(8, &family.repeat(5)), [family.repeat(4), family.into()]);
    }

    #[test]
    fn rows_hang_under_what_begins_the_line() {
        let mut wrap = Wrap::new(Look { styled: false, unicode: true, moves: true }, 10);
        wrap.push_str("- ", Style::new());
        wrap.hang(2);
        wrap.push_str("one two three", Style::new());
        wrap.end_line();
        assert_eq!(wrap.take(), ["- one two", "  three"]);
    }

    #[test]
    fn a_line_that_is_not_broken_is_one_row() {
        let mut wrap = Wrap::new(Look { styled: false, unicode: true, moves: true }, 10);
        wrap.breaks(false);
        wrap.push_str("let  x = 1234567890;", Style::new());
        assert_eq!(wrap.pending(), ["let  x = …"]);
        wrap.end_line();
        assert_eq!(wrap.take(), ["let  x = 1234567890;"]);
    }
}
