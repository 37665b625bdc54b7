//! The terminal: text scrolls by above, and a few rows at its end are drawn anew when they change.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::adapter::strip_str;
use crossterm::{cursor, terminal};
use unicode_segmentation::UnicodeSegmentation as _;

use super::look::{Look, columns};

pub(crate) struct Screen {
    look: Look,
    width: usize,
    height: usize,
    /// What is to be written above the rows at the end: whole lines.
    ready: String,
    shown: Live,
    /// Whether the terminal may show something else by now, because it has another size.
    moved: bool,
}

/// The rows at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    /// Each with its styles, and less wide than the terminal.
    pub(crate) rows: Vec<String>,
    /// The row and the column of the cursor.
    pub(crate) cursor: (usize, usize),
}

/// Bracketed paste: what is pasted comes as such, and not as keys (xterm's private mode 2004).
const PASTE: &str = "\u{1b}[?2004h";
const NO_PASTE: &str = "\u{1b}[?2004l";
/// Synchronized output: what is written in between is shown at once (private mode 2026); others ignore it.
const HOLD: &str = "\u{1b}[?2026h";
const SHOW: &str = "\u{1b}[?2026l";

/// How much is written at once, in bytes, if it is more than a line: a slow terminal holds whoever writes, and nobody hears
/// the keys meanwhile.
const PIECE: usize = 16 << 10;

/// Whether the terminal is in a state that nobody else expects.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back as it was, whoever has it. Nothing happens when nobody has it.
pub(crate) fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // There is nobody to tell when this fails.
        let _ = write!(io::stdout(), "{}{}\r\n", NO_PASTE, cursor::Show);
        let _ = io::stdout().flush();
        let _ = terminal::disable_raw_mode();
    }
}

/// Gives the terminal back without writing to it.
pub(crate) fn let_go() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // There is nobody to tell when this fails.
        let _ = terminal::disable_raw_mode();
    }
}

fn take() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    terminal::enable_raw_mode()?;
    write!(io::stdout(), "{}", PASTE)?;
    io::stdout().flush()
}

/// Whether somebody sits at a terminal that shows both streams.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal()
}

impl Screen {
    pub(crate) fn take(look: Look) -> io::Result<Self> {
        let mut screen =
            Self { look, width: 80, height: 24, ready: String::new(), shown: Live::default(), moved: false };
        screen.resized();
        if look.moves {
            take()?;
        }
        Ok(screen)
    }

    /// Finds out which size the terminal has now.
    pub(crate) fn resized(&mut self) {
        if let Ok((width, height)) = terminal::size()
            && width > 0
            && height > 0
        {
            let before = std::mem::replace(&mut self.width, width.into());
            self.moved |= (before, std::mem::replace(&mut self.height, height.into())) != (self.width, self.height);
        }
    }

    /// How many columns a row may have.
    pub(crate) fn width(&self) -> usize {
        self.width.saturating_sub(1).max(8)
    }

    /// How many rows the terminal has.
    pub(crate) fn height(&self) -> usize {
        self.height
    }

    /// A line to be written above, with its styles, when the rows at the end are drawn next.
    pub(crate) fn line(&mut self, line: &str) {
        self.ready.push_str(&self.look.shown(line));
        self.ready.push('\n');
    }

    /// Whether something waits to be written.
    pub(crate) fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether there is more to be written than one drawing writes.
    pub(crate) fn is_behind(&self) -> bool {
        self.ready.len() > PIECE
    }

    /// Writes what is ready, or the begin of much, and draws the rows at the end, all at once.
    pub(crate) fn draw(&mut self, live: Live) -> io::Result<()> {
        if !self.look.moves {
            let piece = self.next_piece();
            return if piece.is_empty() { Ok(()) } else { write_all(&piece) };
        }
        let live = self.within(live);
        if self.ready.is_empty() && live == self.shown && !std::mem::take(&mut self.moved) {
            return Ok(());
        }
        let mut out = String::new();
        // Writing to a string doesn't fail.
        let _ = write!(out, "{}{}", HOLD, cursor::Hide);
        self.erase(&mut out);
        out.push_str(&self.next_piece().replace('\n', "\r\n"));
        out.push_str(&live.rows.join("\r\n"));
        let (row, column) = live.cursor;
        let below = live.rows.len().saturating_sub(row + 1);
        if below > 0 {
            let _ = write!(out, "{}", cursor::MoveUp(count(below)));
        }
        out.push('\r');
        if column > 0 {
            let _ = write!(out, "{}", cursor::MoveRight(count(column)));
        }
        let _ = write!(out, "{}{}", cursor::Show, SHOW);
        self.shown = live;
        write_all(&out)
    }

    /// The lines that are written next.
    fn next_piece(&mut self) -> String {
        if !self.is_behind() {
            return std::mem::take(&mut self.ready);
        }
        let bytes = self.ready.as_bytes();
        let is_end = |byte: &u8| *byte == b'\n';
        let within = bytes.iter().take(PIECE).rposition(is_end);
        // A line is written whole, however long it is.
        let end = within.or_else(|| bytes.iter().position(is_end)).map_or(bytes.len(), |end| end + 1);
        let rest = self.ready.split_off(end);
        std::mem::replace(&mut self.ready, rest)
    }

    /// What of the rows can be drawn anew: none that the terminal would wrap, and none above its first row.
    fn within(&self, live: Live) -> Live {
        let Live { mut rows, cursor: (row, column) } = live;
        let above = rows.len().saturating_sub(self.height).min(row);
        rows.drain(..above);
        rows.truncate(self.height);
        let most = self.width.saturating_sub(1).max(1);
        let rows = rows.iter().map(|row| cut(&self.look.shown(row), most).into_owned()).collect();
        Live { rows, cursor: (row - above, column.min(most)) }
    }

    /// From where the cursor stands to the top of the rows at the end, which go.
    fn erase(&self, out: &mut String) {
        // A terminal that has become narrower has wrapped them.
        let above = self.shown.rows.iter().take(self.shown.cursor.0);
        let above: usize = above.map(|row| rows_of(row, self.width)).sum();
        let above = above + self.shown.cursor.1 / self.width;
        if above > 0 {
            let _ = write!(out, "{}", cursor::MoveUp(count(above)));
        }
        let _ = write!(out, "\r{}", terminal::Clear(terminal::ClearType::FromCursorDown));
    }

    fn write_plain(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.ready);
        if out.is_empty() { Ok(()) } else { write_all(&out) }
    }

    /// Begins anew, on an empty screen.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.shown = Live::default();
        write_all(&format!("{}{}", terminal::Clear(terminal::ClearType::All), cursor::MoveTo(0, 0)))
    }

    /// Leaves the terminal to somebody else for a while.
    pub(crate) fn aside<T>(&mut self, then: impl FnOnce() -> T) -> io::Result<T> {
        self.leave()?;
        let done = then();
        self.enter()?;
        Ok(done)
    }

    /// Takes the terminal again.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        self.shown = Live::default();
        self.resized();
        if self.look.moves { take() } else { Ok(()) }
    }

    /// Gives the terminal back, without the rows at the end.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        if !self.look.moves {
            return self.write_plain();
        }
        let mut out = String::new();
        self.erase(&mut out);
        out.push_str(&self.ready.replace('\n', "\r\n"));
        self.ready.clear();
        let _ = write!(out, "{}{}", NO_PASTE, cursor::Show);
        self.shown = Live::default();
        let written = write_all(&out);
        TAKEN.store(false, Ordering::SeqCst);
        terminal::disable_raw_mode()?;
        written
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn write_all(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn count(cells: usize) -> u16 {
    u16::try_from(cells).unwrap_or(u16::MAX)
}

/// As much of a row as fits, with all its styles, which end in it.
fn cut(row: &str, most: usize) -> Cow<'_, str> {
    if row.is_ascii() && row.len() <= most || columns(&strip_str(row).to_string()) <= most {
        return Cow::Borrowed(row);
    }
    let (mut kept, mut room, mut rest) = (String::new(), most, row);
    while let Some(escape) = rest.find('\u{1b}') {
        let (text, styled) = rest.split_at(escape);
        keep(text, &mut kept, &mut room);
        let (style, after) = styled.split_at(styled.find('m').map_or(styled.len(), |end| end + 1));
        kept.push_str(style);
        rest = after;
    }
    keep(rest, &mut kept, &mut room);
    Cow::Owned(kept)
}

fn keep(text: &str, kept: &mut String, room: &mut usize) {
    for grapheme in text.graphemes(true) {
        let width = columns(grapheme);
        if width > *room {
            *room = 0;
            return;
        }
        *room -= width;
        kept.push_str(grapheme);
    }
}

/// How many rows a terminal of this width makes of one: a wide character isn't parted.
fn rows_of(row: &str, width: usize) -> usize {
    let (mut rows, mut column) = (1, 0);
    for grapheme in strip_str(row).to_string().graphemes(true) {
        let wide = columns(grapheme);
        if column > 0 && column + wide > width {
            rows += 1;
            column = 0;
        }
        column += wide;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_cut_at_the_margin_and_its_styles_end() {
        for (row, most, kept) in [
            ("plain", 5, "plain"),
            ("plain", 4, "plai"),
            ("\u{1b}[1mbold\u{1b}[0m on", 7, "\u{1b}[1mbold\u{1b}[0m on"),
            ("\u{1b}[1mbold\u{1b}[0m on", 2, "\u{1b}[1mbo\u{1b}[0m"),
            ("日本語", 5, "日本"),
        ] {
            assert_eq!(cut(row, most), kept, "{row}");
        }
    }

    #[test]
    fn a_terminal_wraps_wide_characters_whole() {
        assert_eq!(
            [("", 5), ("12345", 5), ("123456", 5), ("日本語日", 5)].map(|(row, width)| rows_of(row, width)),
            [1, 1, 2, 2]
        );
        assert_eq!(rows_of("日本語日本", 5), 3);
    }
}
