//! Markdown as it streams in, for a terminal.
//!
//! It is read character by character and never again: what a line is, is known from its first few characters, and what is
//! emphasised, from the characters around the marks. That is less than CommonMark, which knows what a line is only when
//! the next ones have come, and so can't be shown while it is written.

use anstyle::Style;

use super::look::{CODE, DIM, Look, columns};
use super::wrap::Wrap;
use crate::output::clean;

pub(crate) struct Markdown {
    look: Look,
    base: Style,
    wrap: Wrap,
    /// The begin of a line that isn't known for anything yet.
    lead: Option<String>,
    line: Line,
    fence: Option<Fence>,
    emphasis: Emphasis,
    /// Marks that wait for what follows them.
    marks: String,
    before: char,
}

#[derive(Clone, Copy, PartialEq)]
enum Line {
    Text,
    Heading,
    /// In a fenced block, or of a table: as it stands.
    Verbatim,
    /// The line that opens or closes a fence.
    Fence,
}

struct Fence {
    mark: char,
    length: usize,
}

#[derive(Default)]
struct Emphasis {
    bold: bool,
    italic: bool,
    struck: bool,
    /// The number of backticks that end the code.
    code: Option<usize>,
    escaped: bool,
}

impl Markdown {
    /// In a terminal of this width, upon a style.
    pub(crate) fn new(look: Look, width: usize, base: Style) -> Self {
        Self {
            look,
            base,
            wrap: Wrap::new(look, width),
            lead: Some(String::new()),
            line: Line::Text,
            fence: None,
            emphasis: Emphasis::default(),
            marks: String::new(),
            before: '\n',
        }
    }

    pub(crate) fn resize(&mut self, width: usize) {
        self.wrap.resize(width);
    }

    /// Takes in more. Whatever is in it that could steer a terminal is left out.
    pub(crate) fn push(&mut self, text: &str) {
        for c in clean(text).chars() {
            self.character(c);
        }
    }

    /// The rows that are final since the last time.
    pub(crate) fn rows(&mut self) -> Vec<String> {
        self.wrap.take()
    }

    /// The row that is being written.
    pub(crate) fn pending(&self) -> Vec<String> {
        let waiting = self.lead.as_deref().unwrap_or(&self.marks);
        match self.wrap.pending() {
            rows if waiting.is_empty() => rows,
            rows if rows.is_empty() => vec![self.look.shown(waiting).into_owned()],
            rows => rows,
        }
    }

    /// The text has ended, perhaps in mid-line.
    pub(crate) fn end(&mut self) {
        if self.lead.as_ref().is_some_and(String::is_empty) && !self.wrap.is_in_line() {
            return;
        }
        self.character('\n');
    }

    fn character(&mut self, c: char) {
        match self.lead.take() {
            Some(mut lead) => {
                if c != '\n' {
                    lead.push(c);
                }
                match self.begin(&lead, c == '\n') {
                    false => self.lead = Some(lead),
                    true if c == '\n' => self.end_line(),
                    true => {}
                }
            }
            None if c == '\n' => self.end_line(),
            None => self.inside(c),
        }
    }

    /// Finds out what a line is that begins so. False if more is needed.
    fn begin(&mut self, lead: &str, ended: bool) -> bool {
        let rest = lead.trim_start_matches(' ');
        let spaces = lead.len() - rest.len();
        let first = rest.chars().next().unwrap_or(' ');
        let run = rest.chars().take_while(|c| *c == first).count();
        let after: String = rest.chars().skip(run).collect();
        if let Some(fence) = &self.fence {
            if first == fence.mark && after.trim().is_empty() {
                if !ended {
                    return false;
                }
                if run >= fence.length {
                    self.fence = None;
                    self.verbatim(Line::Fence, lead);
                    return true;
                }
            }
            // A line that may still close it is short.
            if rest.is_empty() && !ended && spaces < 4 {
                return false;
            }
            self.verbatim(Line::Verbatim, lead);
            return true;
        }
        if rest.is_empty() {
            if ended {
                return true;
            }
            return match spaces < 24 {
                true => false,
                false => self.paragraph(lead),
            };
        }
        let undecided = !ended && after.is_empty();
        match first {
            '`' | '~' if run >= 3 => {
                // A line of code in backticks has some more of them.
                self.fence = Some(Fence { mark: first, length: run });
                if undecided {
                    self.fence = None;
                    return false;
                }
                self.verbatim(Line::Fence, lead);
                true
            }
            '`' | '~' if undecided => false,
            '#' if run <= 6 && undecided => false,
            '#' if run <= 6 && after.starts_with(' ') => {
                self.line = Line::Heading;
                // Without bold type, the marks are what shows it.
                if !self.look.styled {
                    self.wrap.push_str(rest, self.base);
                }
                self.before = ' ';
                true
            }
            '-' | '*' | '+' | '_' if undecided => false,
            '-' | '*' | '_' if ended && run >= 3 && after.trim().is_empty() => {
                self.wrap.push_str(&"─".repeat(24), DIM);
                true
            }
            '-' | '*' | '+' if run == 1 && after.starts_with(' ') => self.item(spaces, "•", &after),
            '0'..='9' => {
                let digits = rest.chars().take_while(char::is_ascii_digit).count();
                let after: String = rest.chars().skip(digits).collect();
                match after.as_str() {
                    "" | "." | ")" if !ended && digits <= 9 => false,
                    after if digits <= 9 && (after.starts_with(". ") || after.starts_with(") ")) => {
                        let number: String = rest.chars().take(digits + 1).collect();
                        self.item(spaces, &number, after.get(1..).unwrap_or_default())
                    }
                    _ => self.paragraph(lead),
                }
            }
            '>' if undecided && run == 1 => false,
            '>' => {
                self.wrap.push_str("│ ", DIM);
                self.wrap.hang(2);
                self.paragraph(rest.trim_start_matches('>').trim_start())
            }
            '|' => {
                self.verbatim(Line::Verbatim, lead);
                true
            }
            _ => self.paragraph(lead),
        }
    }

    fn item(&mut self, spaces: usize, mark: &str, after: &str) -> bool {
        let mark = if self.look.styled { mark } else { if mark == "•" { "-" } else { mark } };
        self.wrap.push_str(&" ".repeat(spaces), self.base);
        self.wrap.push_str(mark, self.base);
        self.wrap.push(' ', self.base);
        self.wrap.hang(spaces + columns(mark) + 1);
        self.paragraph(after.trim_start())
    }

    fn paragraph(&mut self, lead: &str) -> bool {
        self.line = Line::Text;
        self.before = ' ';
        lead.chars().for_each(|c| self.inside(c));
        true
    }

    fn verbatim(&mut self, line: Line, lead: &str) {
        self.line = line;
        self.wrap.breaks(false);
        self.wrap.push_str(if self.fence.is_some() && line == Line::Verbatim { "  " } else { "" }, self.base);
        lead.chars().for_each(|c| self.inside(c));
    }

    fn end_line(&mut self) {
        self.marks('\n');
        self.emphasis = Emphasis::default();
        self.wrap.end_line();
        self.wrap.breaks(true);
        self.line = Line::Text;
        self.lead = Some(String::new());
        self.before = '\n';
    }

    /// A character behind the begin of its line.
    fn inside(&mut self, c: char) {
        match self.line {
            Line::Verbatim | Line::Fence => {
                let style = match self.line {
                    Line::Fence => DIM,
                    _ if self.fence.is_some() => {
                        if self.base == DIM {
                            DIM
                        } else {
                            CODE
                        }
                    }
                    _ => self.base,
                };
                match c {
                    '\t' => self.wrap.push_str("    ", style),
                    c => self.wrap.push(c, style),
                }
            }
            Line::Text | Line::Heading => {
                let c = if c == '\t' { ' ' } else { c };
                if !self.look.styled {
                    return self.wrap.push(c, self.base);
                }
                if self.emphasis.escaped {
                    self.emphasis.escaped = false;
                    if !c.is_ascii_punctuation() {
                        self.put('\\');
                    }
                    return self.put(c);
                }
                if !self.marks.starts_with(c) {
                    self.marks(c);
                }
                let is_mark = match self.emphasis.code {
                    Some(_) => c == '`',
                    None => matches!(c, '*' | '_' | '`' | '~'),
                };
                if is_mark {
                    return self.marks.push(c);
                }
                match c {
                    '\\' if self.emphasis.code.is_none() => self.emphasis.escaped = true,
                    c => self.put(c),
                }
            }
        }
    }

    /// Decides about the marks that wait, now that it is known what follows.
    fn marks(&mut self, after: char) {
        let marks = std::mem::take(&mut self.marks);
        let Some(mark) = marks.chars().next() else { return };
        let number = marks.len();
        let (before, emphasis) = (self.before, &mut self.emphasis);
        if mark == '`' {
            match emphasis.code {
                Some(wanted) if wanted == number => emphasis.code = None,
                None if after != '\n' => emphasis.code = Some(number),
                _ => marks.chars().for_each(|c| self.put(c)),
            }
            return;
        }
        let word = |c: char| c.is_alphanumeric();
        let opens = !(after.is_whitespace() || mark == '_' && word(before));
        let closes = !(before.is_whitespace() || mark == '_' && word(after));
        let (bold, italic) = (number == 2 || number == 3, number == 1 || number == 3);
        let on = match mark {
            '~' => emphasis.struck,
            _ => (!bold || emphasis.bold) && (!italic || emphasis.italic),
        };
        let changes = if on { closes } else { opens };
        if !changes || number > 3 || (mark == '~' && number != 2) {
            return marks.chars().for_each(|c| self.put(c));
        }
        if mark == '~' {
            emphasis.struck = !on;
            return;
        }
        if bold {
            emphasis.bold = !on;
        }
        if italic {
            emphasis.italic = !on;
        }
    }

    fn put(&mut self, c: char) {
        let mut style = self.base;
        if self.line == Line::Heading {
            style = style.bold();
        }
        if self.emphasis.bold {
            style = style.bold();
        }
        if self.emphasis.italic {
            style = style.italic();
        }
        if self.emphasis.struck {
            style = style.strikethrough();
        }
        if self.emphasis.code.is_some() && self.base != DIM {
            style = style.fg_color(CODE.get_fg_color());
        }
        self.before = c;
        self.wrap.push(c, style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLED: Look = Look { styled: true, unicode: true, moves: true };
    const PLAIN: Look = Look { styled: false, unicode: true, moves: true };

    /// With `<b>`, `<i>`, `<c>` and `<d>` for bold, italic, code and dim.
    fn shown(look: Look, pieces: &[&str]) -> Vec<String> {
        let mut markdown = Markdown::new(look, 40, Style::new());
        pieces.iter().for_each(|piece| markdown.push(piece));
        markdown.end();
        let names = [
            ("\u{1b}[1m", "<b>"),
            ("\u{1b}[3m", "<i>"),
            ("\u{1b}[36m", "<c>"),
            ("\u{1b}[2m", "<d>"),
            ("\u{1b}[0m", "</>"),
            ("\u{1b}[9m", "<s>"),
        ];
        let named = |row: String| names.iter().fold(row, |row, (escape, name)| row.replace(escape, name));
        markdown.rows().into_iter().map(named).collect()
    }

    #[test]
    fn what_is_marked_is_shown() {
        for (text, rows) in [
            ("plain", &["plain"][..]),
            ("# A heading\ntext", &["<b>A heading</>", "text"]),
            ("a **bold** b", &["a <b>bold</> b"]),
            ("an *italic* b", &["an <i>italic</> b"]),
            ("***both***", &["<b><i>both</>"]),
            ("`let x` is", &["<c>let x</> is"]),
            ("~~gone~~", &["<s>gone</>"]),
            ("``a ` b``", &["<c>a ` b</>"]),
            ("`**not bold**`", &["<c>**not bold**</>"]),
            ("2 * 3 * 4 and snake_case_name", &["2 * 3 * 4 and snake_case_name"]),
            ("a \\*star\\* \\d", &["a *star* \\d"]),
            ("- one\n* two\n  + three", &["• one", "• two", "  • three"]),
            ("1. one\n10) ten", &["1. one", "10) ten"]),
            ("2026 was", &["2026 was"]),
            ("> said", &["<d>│ </>said"]),
            ("---", &["<d>────────────────────────</>"]),
            ("**bold\nnot", &["<b>bold</>", "not"]),
            ("#hashtag", &["#hashtag"]),
            ("a\n\nb", &["a", "", "b"]),
            (
                "```rust\n# x *y*\n\tz\n```\n*i*",
                &["<d>```rust</>", "  <c># x *y*</>", "  <c>    z</>", "<d>```</>", "<i>i</>"],
            ),
            ("````\n```\n````\n# h", &["<d>````</>", "  <c>```</>", "<d>````</>", "<b>h</>"]),
        ] {
            assert_eq!(shown(STYLED, &[text]), rows, "{text}");
            // Whatever the pieces are in which it comes.
            let characters: Vec<String> = text.chars().map(String::from).collect();
            let pieces: Vec<&str> = characters.iter().map(String::as_str).collect();
            assert_eq!(shown(STYLED, &pieces), rows, "{text}, by character");
        }
    }

    #[test]
    fn without_styles_the_marks_stay() {
        assert_eq!(shown(PLAIN, &["## H\na **b** `c`\n- d"]), ["## H", "a **b** `c`", "- d"]);
    }

    #[test]
    fn nothing_live_gets_through() {
        assert_eq!(shown(PLAIN, &["a\u{1b}[2Jb\u{9b}1m\u{202e}c"]), ["a[2Jb1mc"]);
    }
}
