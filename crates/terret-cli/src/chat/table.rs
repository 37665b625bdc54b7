//! A table as Markdown writes it, in columns.

use anstream::adapter::strip_str;
use anstyle::Style;

use super::look::{BOLD, DIM, Look, columns};

/// The lines of a table that may go on.
#[derive(Default)]
pub(crate) struct Table {
    lines: Vec<String>,
    bytes: usize,
    /// Whether the last line hasn't ended.
    open: bool,
    /// It is no table, or too long to be waited for.
    given_up: bool,
}

#[derive(Clone, Copy)]
enum Align {
    Left,
    Middle,
    Right,
}

/// How long a table is waited for, in bytes and in lines.
const LONGEST: usize = 1 << 16;
const MOST: usize = 200;

impl Table {
    pub(crate) fn is_untouched(&self) -> bool {
        self.lines.is_empty() && !self.given_up
    }

    /// Whether a further line can be taken in.
    pub(crate) fn goes_on(&self) -> bool {
        !self.given_up
    }

    /// False if that makes it too long.
    pub(crate) fn push(&mut self, c: char) -> bool {
        if !self.open {
            self.lines.push(String::new());
            self.open = true;
        }
        if let Some(line) = self.lines.last_mut() {
            line.push(c);
            self.bytes += c.len_utf8();
        }
        self.bytes <= LONGEST
    }

    /// A line has ended. False if it makes no table, or too long a one.
    pub(crate) fn end_line(&mut self) -> bool {
        self.open = false;
        let begun = match self.lines.as_slice() {
            [head, under] => {
                let aligned = alignments(under);
                !aligned.is_empty() && aligned.len() == cells(head).len()
            }
            _ => true,
        };
        begun && self.bytes <= LONGEST && self.lines.len() <= MOST
    }

    /// As they are written.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Hands its lines over; those that come stand for themselves.
    pub(crate) fn give_up(&mut self) -> Vec<String> {
        self.given_up = true;
        std::mem::take(&mut self.lines)
    }

    /// In columns, if it is one and has room. `shown` is how the text of a cell looks in a style.
    pub(crate) fn rows(&self, look: Look, width: usize, shown: impl Fn(&str, Style) -> String) -> Option<Vec<String>> {
        let [head, under, body @ ..] = self.lines.as_slice() else { return None };
        let aligned = alignments(under);
        let row = |line: &String, style| -> Vec<(String, usize)> {
            let mut cells = cells(line);
            cells.resize(aligned.len(), String::new());
            let shown = cells.iter().map(|cell| shown(cell, style));
            shown
                .map(|cell| (strip_str(&cell).to_string(), cell))
                .map(|(plain, cell)| (cell, columns(&plain)))
                .collect()
        };
        let head = row(head, BOLD);
        let body: Vec<_> = body.iter().map(|line| row(line, Style::new())).collect();
        let mut widths = vec![1; aligned.len()];
        for row in std::iter::once(&head).chain(&body) {
            widths.iter_mut().zip(row).for_each(|(width, (_, cell))| *width = (*cell).max(*width));
        }
        if widths.iter().sum::<usize>() + 3 * (widths.len() - 1) > width {
            return None;
        }
        let beside = look.paint(DIM, " │ ");
        let line = |row: &Vec<(String, usize)>| {
            let cells = row.iter().zip(&widths).zip(&aligned).map(|(((cell, taken), width), align)| {
                let room = width.saturating_sub(*taken);
                let before = match align {
                    Align::Left => 0,
                    Align::Middle => room / 2,
                    Align::Right => room,
                };
                format!("{}{cell}{}", " ".repeat(before), " ".repeat(room - before))
            });
            cells.collect::<Vec<_>>().join(&beside).trim_end_matches(' ').to_owned()
        };
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        let mut rows = vec![line(&head), look.paint(DIM, &rule.join("─┼─"))];
        rows.extend(body.iter().map(line));
        Some(rows)
    }
}

/// The cells of a line, between bars that aren't escaped.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let (mut cells, mut cell, mut escaped) = (Vec::new(), String::new(), false);
    for c in line.strip_prefix('|').unwrap_or(line).chars() {
        match c {
            '|' if escaped => {
                cell.pop();
                cell.push(c);
            }
            '|' => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    if !cell.trim().is_empty() {
        cells.push(cell);
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// What the second line says of each column; nothing, if it says something else.
fn alignments(line: &str) -> Vec<Align> {
    let cells = cells(line);
    let align = |cell: &String| {
        let dashes = cell.trim_start_matches(':').trim_end_matches(':');
        if dashes.is_empty() || !dashes.chars().all(|c| c == '-') {
            return None;
        }
        Some(match (cell.starts_with(':'), cell.ends_with(':')) {
            (true, true) => Align::Middle,
            (false, true) => Align::Right,
            _ => Align::Left,
        })
    };
    cells.iter().map(align).collect::<Option<_>>().unwrap_or_default()
}
