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
    /// What the rows of a line begin with, after the first one: mostly spaces.
    margin: (String, Style),
    indent: usize,
    row: Spans,
    word: Spans,
    /// Whether the row has more than its indent.
    begun: bool,
    full: Vec<String>,
}

/// The most that waits for its end, in columns: of a line that isn't broken, and of a word. A word that is longer than a row
/// is left to the terminal to wrap, so that it can be copied in one piece.
const LONGEST: usize = 4096;

#[derive(Default)]
struct Spans {
    spans: Vec<(Style, String)>,
    /// An upper bound, for what is joined into one character.
    width: usize,
    bytes: usize,
    last: Option<char>,
}

impl Wrap {
    pub(crate) fn new(look: Look, width: usize) -> Self {
        let (row, word, margin, full) = Default::default();
        Self { look, width: width.max(8), broken: true, margin, indent: 0, row, word, begun: false, full }
    }

    /// The rows to come have another width, also the one that has begun.
    pub(crate) fn resize(&mut self, width: usize) {
        self.width = width.max(8);
        if !self.broken || self.row.width <= self.width {
            return;
        }
        let (row, word) = (std::mem::take(&mut self.row), std::mem::take(&mut self.word));
        self.begun = false;
        let mut leads = true;
        for (style, text) in row.spans.into_iter().chain(word.spans) {
            for c in text.chars() {
                leads &= c == ' ';
                match leads {
                    true => self.row.push(c, style, 1),
                    false => self.push(c, style),
                }
            }
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Whether long lines of the text that follows are broken.
    pub(crate) fn breaks(&mut self, broken: bool) {
        self.broken = broken;
    }

    /// What the rows of this line begin with, after the first one.
    pub(crate) fn hang(&mut self, margin: &str, style: Style) {
        self.indent = columns(margin);
        self.margin = (margin.to_owned(), style);
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
        // What takes no room at all isn't kept for ever either.
        if self.word.bytes > 8 * LONGEST {
            self.end_word();
            self.end_row();
        } else if !joined && self.word.width + width > LONGEST {
            self.word.settle();
            if self.word.width + width > LONGEST {
                self.end_word();
                self.end_row();
            }
        }
        self.word.push(c, style, width);
    }

    /// The line has ended.
    pub(crate) fn end_line(&mut self) {
        self.end_word();
        self.hang("", Style::new());
        self.end_row();
    }

    /// A row that is whole already, with its styles.
    pub(crate) fn put_row(&mut self, row: String) {
        self.full.push(row);
    }

    /// Whether a line has begun.
    pub(crate) fn is_in_line(&self) -> bool {
        self.row.width > 0 || self.word.width > 0
    }

    /// The rows that have become full since the last time.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.full)
    }

    /// The row that isn't full yet, and a word that may still go on.
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
        let mut rows = vec![render(self.look, self.row.spans.iter())];
        rows.retain(|_| self.begun);
        let (mut row, mut column) = (Spans::default(), 0);
        for (style, text) in &self.word.spans {
            for c in text.chars() {
                let width = c.width().unwrap_or(0);
                if column + width > self.width {
                    rows.push(render(self.look, std::mem::take(&mut row).spans.iter()));
                    column = 0;
                }
                row.push(c, *style, width);
                column += width;
            }
        }
        rows.push(render(self.look, row.spans.iter()));
        rows
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
        // In a narrow terminal, the text needs the room more.
        let (margin, style) = if self.indent <= self.width / 2 { &self.margin } else { &(String::new(), Style::new()) };
        for c in margin.chars() {
            self.row.push(c, *style, c.width().unwrap_or(0));
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
        self.bytes += c.len_utf8();
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
        self.bytes += std::mem::take(&mut other.bytes);
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
        assert_eq!(rows(10, ""), [""]);
    }

    #[test]
    fn a_word_that_is_longer_than_a_row_stays_one_piece() {
        assert_eq!(rows(10, "a 01234567890123456789 b"), ["a", "01234567890123456789", "b"]);
        assert_eq!(rows(10, &"x".repeat(2 * LONGEST)), ["x".repeat(LONGEST), "x".repeat(LONGEST)]);
        let mut wrap = Wrap::new(Look { styled: false, unicode: true, moves: true }, 10);
        wrap.push_str("a 01234567890123", Style::new());
        assert_eq!(wrap.pending(), ["a ", "0123456789", "0123"]);
    }

    #[test]
    fn a_row_that_has_begun_is_broken_anew_in_a_narrower_terminal() {
        let mut wrap = Wrap::new(Look { styled: false, unicode: true, moves: true }, 30);
        wrap.push_str("  - ", Style::new());
        wrap.hang("    ", Style::new());
        wrap.push_str("one two 日本語日本語 th", Style::new());
        wrap.resize(12);
        wrap.push_str("ree", Style::new());
        wrap.end_line();
        assert_eq!(wrap.take(), ["  - one two", "    日本語日", "    本語", "    three"]);
    }

    #[test]
    fn wide_characters_and_joined_ones_take_what_the_terminal_gives_them() {
        assert_eq!(rows(10, "日本語日本語"), ["日本語日本", "語"]);
        assert_eq!(rows(10, "日本語日本。語"), ["日本語日", "本。語"]);
        assert_eq!(rows(8, &"e\u{301} ".repeat(5)), ["e\u{301} e\u{301} e\u{301} e\u{301}", "e\u{301}"]);
        // A family is one character of two columns.
        let family = "👩\u{200d}👩\u{200d}👧";
        assert_eq!(rows(8, &family.repeat(5)), [family.repeat(4), family.into()]);
    }

    #[test]
    fn rows_hang_under_what_begins_the_line() {
        let mut wrap = Wrap::new(Look { styled: false, unicode: true, moves: true }, 10);
        wrap.push_str("- ", Style::new());
        wrap.hang("  ", Style::new());
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
