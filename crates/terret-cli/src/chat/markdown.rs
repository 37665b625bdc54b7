//! Markdown as it streams in, for a terminal.
//!
//! It is read character by character and never again: what a line is, is known from its first few characters, and what is
//! emphasised, from the characters around the marks. That is less than CommonMark, which knows what a line is only when
//! the next ones have come, and so can't be shown while it is written. Links and tables wait for their end, if that is near.

use anstyle::Style;

use super::look::{CODE, DIM, Look, columns, fit};
use super::table::Table;
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
    link: Option<Link>,
    /// Whether what is put is the text of a link.
    linked: bool,
    table: Table,
    /// Marks that wait for what follows them.
    marks: String,
    before: char,
}

#[derive(Clone, Copy, PartialEq)]
enum Line {
    Text,
    Heading,
    /// In a fenced block, or of a table that can't wait: as it stands.
    Verbatim,
    /// Of a table.
    Row,
    /// The line that opens or closes a fence.
    Fence,
}

struct Fence {
    mark: char,
    length: usize,
    /// How many marks its line has so far.
    marks: usize,
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

/// What may become a link: `[text](url)`.
struct Link {
    /// What was written of it, with its marks.
    held: String,
    /// Where its text has ended, in bytes.
    text: Option<usize>,
    /// How many parentheses are open in its address.
    open: usize,
}

/// How much of a line is looked at to find out what it is, in bytes.
const LONGEST_LEAD: usize = 256;
/// The longest link that is waited for, in bytes.
const LONGEST_LINK: usize = 2048;

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
            link: None,
            linked: false,
            table: Table::default(),
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

    /// The rows that are being written.
    pub(crate) fn pending(&self) -> Vec<String> {
        let shown = |text: &str| self.look.shown(&fit(text, self.wrap.width())).into_owned();
        let mut rows: Vec<String> = self.table.lines().map(shown).collect();
        rows.extend(self.wrap.pending());
        let waiting = match (&self.lead, &self.link) {
            (Some(lead), _) => lead,
            (None, Some(link)) => &link.held,
            (None, None) => &self.marks,
        };
        if !self.wrap.is_in_line() && !waiting.is_empty() {
            rows.push(shown(waiting));
        }
        rows
    }

    /// The text has ended, perhaps in mid-line.
    pub(crate) fn end(&mut self) {
        if self.lead.as_ref().is_none_or(|lead| !lead.is_empty()) || self.wrap.is_in_line() {
            self.character('\n');
        }
        self.end_table();
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
        let ended = ended || lead.len() > LONGEST_LEAD;
        if first != '|' && (ended || !rest.is_empty()) {
            self.end_table();
        }
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
                if undecided {
                    return false;
                }
                self.fence = Some(Fence { mark: first, length: run, marks: 0 });
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
                self.wrap.hang("│ ", DIM);
                self.paragraph(rest.trim_start_matches('>').trim_start())
            }
            '|' if self.table.goes_on() => {
                self.line = Line::Row;
                lead.chars().for_each(|c| self.inside(c));
                true
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
        self.wrap.hang(&" ".repeat(spaces + columns(mark) + 1), Style::new());
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
        if self.line == Line::Row {
            if !self.table.end_line() {
                self.give_up_table();
            }
            self.line = Line::Text;
            self.lead = Some(String::new());
            return;
        }
        self.give_up_link();
        self.marks('\n');
        self.emphasis = Emphasis::default();
        self.wrap.end_line();
        self.wrap.breaks(true);
        self.line = Line::Text;
        self.lead = Some(String::new());
        self.before = '\n';
    }

    /// The table is whole: in columns, if it has room.
    fn end_table(&mut self) {
        if self.table.is_untouched() {
            return;
        }
        let cell = |text: &str, style| Self::inline(self.look, self.base, style, text);
        match self.table.rows(self.look, self.wrap.width(), cell) {
            Some(rows) => rows.into_iter().for_each(|row| self.wrap.put_row(row)),
            None => self.give_up_table(),
        }
        self.table = Table::default();
    }

    /// As it stands, also what still comes of it.
    fn give_up_table(&mut self) {
        let lines = self.table.give_up();
        self.as_they_stand(lines);
    }

    fn as_they_stand(&mut self, lines: Vec<String>) {
        self.wrap.breaks(false);
        for line in lines {
            self.wrap.push_str(&line.replace('\t', "    "), self.base);
            self.wrap.end_line();
        }
        self.wrap.breaks(true);
    }

    /// A text in mid-line, with its styles.
    fn inline(look: Look, base: Style, style: Style, text: &str) -> String {
        let mut part = Self::new(look, usize::MAX, if base == DIM { base } else { style });
        part.lead = None;
        part.before = ' ';
        text.chars().for_each(|c| part.inside(c));
        part.end_line();
        part.rows().concat()
    }

    /// A character of what may become a link. False if it is something else.
    fn link(&mut self, c: char) -> bool {
        let Some(link) = &mut self.link else { return false };
        let fits = link.held.len() < LONGEST_LINK;
        match (link.text, c) {
            _ if !fits => {}
            // Another one begins, of which the first may be the text.
            (None, '[') => {}
            (None, ']') => {
                link.text = Some(link.held.len());
                link.held.push(c);
                return true;
            }
            (Some(text), c) if link.held.len() == text + 1 => {
                if c == '(' {
                    link.held.push(c);
                    return true;
                }
            }
            (Some(text), ')') if link.open == 0 => {
                let held = std::mem::take(&mut link.held);
                self.link = None;
                self.end_link(&held, text);
                return true;
            }
            (_, c) => {
                match c {
                    '(' if link.text.is_some() => link.open += 1,
                    ')' if link.text.is_some() => link.open -= 1,
                    _ => {}
                }
                link.held.push(c);
                return true;
            }
        }
        self.give_up_link();
        false
    }

    /// `held` is a link as it is written, up to its last mark.
    fn end_link(&mut self, held: &str, text: usize) {
        let address = held.get(text + 2..).unwrap_or_default();
        let text = held.get(1..text).unwrap_or_default();
        // Behind the address, a title may stand.
        let address = address.split_whitespace().next().unwrap_or_default();
        let address = address.trim_start_matches('<').trim_end_matches('>');
        self.linked = true;
        text.chars().for_each(|c| self.inside(c));
        self.marks(' ');
        self.linked = false;
        if address != text && !address.is_empty() {
            let style = if self.base == DIM { DIM } else { self.base.dimmed() };
            self.wrap.push(' ', self.base);
            self.wrap.push_str(&format!("({address})"), style);
        }
        self.before = ')';
    }

    /// It is none: what was held is what it is.
    fn give_up_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        self.put('[');
        link.held.chars().skip(1).for_each(|c| self.text(c));
    }

    /// A character behind the begin of its line.
    fn inside(&mut self, c: char) {
        match self.line {
            Line::Row => {
                if !self.table.push(c) {
                    let mut lines = self.table.give_up();
                    let open = lines.pop().unwrap_or_default();
                    self.as_they_stand(lines);
                    self.verbatim(Line::Verbatim, &open);
                }
            }
            Line::Verbatim | Line::Fence => {
                if let (Line::Fence, Some(fence)) = (self.line, &mut self.fence) {
                    fence.marks += usize::from(c == fence.mark);
                    // A line of code in backticks has some more of them, and opens nothing.
                    if fence.mark == '`' && fence.marks > fence.length {
                        self.fence = None;
                    }
                }
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
                if self.link(c) {
                    return;
                }
                if c == '[' && !self.linked && !self.emphasis.escaped {
                    self.marks(c);
                    if self.emphasis.code.is_none() {
                        self.link = Some(Link { held: c.into(), text: None, open: 0 });
                        return;
                    }
                }
                self.text(c);
            }
        }
    }

    /// A character of a text that is no link.
    fn text(&mut self, c: char) {
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
        if self.linked {
            style = style.underline();
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
            ("\u{1b}[4m", "<u>"),
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
            ("a [**b** c](http://x/y_(z)) d", &["a <b><u>b</><u> c</> <d>(http://x/y_(z))</> d"]),
            ("[http://x](http://x \"title\").", &["<u>http://x</>."]),
            ("[x] y, a[0](), [[b]] [c", &["[x] y, a<u>0</>, [[b]] [c"]),
            ("`[a](b)` \\[a](b)", &["<c>[a](b)</> [a](b)"]),
            (
                "> one two three four five six seven eight nine",
                &["<d>│ </>one two three four five six seven", "<d>│ </>eight nine"],
            ),
            (
                "```rust\n# x *y*\n\tz\n```\n*i*",
                &["<d>```rust</>", "  <c># x *y*</>", "  <c>    z</>", "<d>```</>", "<i>i</>"],
            ),
            ("```one``` line\n# h", &["<d>```one``` line</>", "<b>h</>"]),
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
    fn tables_are_shown_in_columns_where_they_have_room() {
        let table = "| Name | Price | `x` |\n|:--|--:|---|\n| tea | 3 | **b** |\n|日本|1200\\|| |\nend";
        let rows = ["Name │ Price │ x", "─────┼───────┼──", "tea  │     3 │ b", "日本 │ 1200| │ ", "end"];
        let strip = |rows: Vec<String>| -> Vec<String> {
            let styles = ["<b>", "<d>", "<c>", "</>"];
            rows.into_iter().map(|row| styles.iter().fold(row, |row, style| row.replace(style, ""))).collect()
        };
        assert_eq!(strip(shown(STYLED, &[table])), rows);
        let characters: Vec<String> = table.chars().map(String::from).collect();
        let pieces: Vec<&str> = characters.iter().map(String::as_str).collect();
        assert_eq!(strip(shown(STYLED, &pieces)), rows);

        let wide = format!("| a | {} |\n|---|---|\n| c | d |", "b".repeat(50));
        assert_eq!(shown(STYLED, &[&wide]), wide.split('\n').collect::<Vec<_>>());
        // A line of one that doesn't end isn't waited for.
        let long = format!("|a|\n|-|\n| {}", "x".repeat(1 << 17));
        let mut begun = Markdown::new(STYLED, 40, Style::new());
        begun.push(&long);
        assert_eq!(begun.rows().iter().take(2).collect::<Vec<_>>(), ["|a|", "|-|"]);
        assert!(begun.pending().concat().len() < 1 << 14);
        assert_eq!(shown(STYLED, &["| no\n| table\n\n|a|\n|-|"]), ["| no", "| table", "", "<b>a</>", "<d>─</>"]);
    }

    #[test]
    fn a_line_of_marks_is_not_looked_at_again_and_again() {
        for mark in ["`", "~", "-", "*", "_", "+", "#", ">", "1", "|", "[", "!["] {
            let line = mark.repeat(200_000);
            let pieces: Vec<&str> = line.split_inclusive(mark).collect();
            assert!(!shown(STYLED, &pieces).is_empty(), "{mark}");
            assert!(!shown(STYLED, &["```\n", &line]).is_empty(), "{mark} in a block of code");
        }
    }

    #[test]
    fn nothing_live_gets_through() {
        assert_eq!(shown(PLAIN, &["a\u{1b}[2Jb\u{9b}1m\u{202e}c"]), ["a[2Jb1mc"]);
    }
}
