//! The terminal: text scrolls by above, and a few rows at its end are drawn anew when they change.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::{cursor, terminal};

use super::look::{Look, columns};

pub(crate) struct Screen {
    look: Look,
    width: usize,
    height: usize,
    /// What is to be written above the rows at the end: whole lines.
    ready: String,
    shown: Live,
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
        let mut screen = Self { look, width: 80, height: 24, ready: String::new(), shown: Live::default() };
        screen.resized();
        if look.moves {
            take()?;
        }
        Ok(screen)
    }

    /// The terminal may have another size now.
    pub(crate) fn resized(&mut self) {
        if let Ok((width, height)) = terminal::size()
            && width > 0
            && height > 0
        {
            (self.width, self.height) = (width.into(), height.into());
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

    /// Writes what is ready, and draws the rows at the end, all at once.
    pub(crate) fn draw(&mut self, live: Live) -> io::Result<()> {
        if !self.look.moves {
            return self.write_plain();
        }
        if self.ready.is_empty() && live == self.shown {
            return Ok(());
        }
        let mut out = String::new();
        // Writing to a string doesn't fail.
        let _ = write!(out, "{}{}", HOLD, cursor::Hide);
        self.erase(&mut out);
        out.push_str(&self.ready.replace('\n', "\r\n"));
        self.ready.clear();
        let rows: Vec<_> = live.rows.iter().map(|row| self.look.shown(row)).collect();
        out.push_str(&rows.join("\r\n"));
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

    /// From where the cursor stands to the top of the rows at the end, which go.
    fn erase(&self, out: &mut String) {
        // A terminal that has become narrower has wrapped them.
        let above = self.shown.rows.iter().take(self.shown.cursor.0);
        let above: usize = above.map(|row| width_of(row).max(1).div_ceil(self.width)).sum();
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

/// The columns of a row with styles.
fn width_of(row: &str) -> usize {
    columns(&anstream::adapter::strip_str(row).to_string())
}
