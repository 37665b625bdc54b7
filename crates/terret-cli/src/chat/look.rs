//! How things look: what the terminal and its user let us use.

use std::borrow::Cow;

use anstyle::{AnsiColor, Style};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const CODE: Style = AnsiColor::Cyan.on_default();
pub(crate) const ASKING: Style = AnsiColor::Magenta.on_default().bold();

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether there are colours, bold and dim. `NO_COLOR` and `TERM=dumb` say no.
    pub(crate) styled: bool,
    /// Whether characters beyond ASCII can be shown: unless the locale names another encoding.
    pub(crate) unicode: bool,
    /// Whether the cursor can be moved. `TERM=dumb` can't.
    pub(crate) moves: bool,
}

impl Look {
    pub(crate) fn of_terminal() -> Self {
        let moves = std::env::var_os("TERM").is_none_or(|term| term != "dumb" && !term.is_empty());
        let choice = anstream::AutoStream::choice(&std::io::stdout());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| {
            let value = std::env::var(name).unwrap_or_default();
            (!value.is_empty()).then_some(value)
        });
        let unicode = locale.is_none_or(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Self { styled: moves && choice != anstream::ColorChoice::Never, unicode, moves }
    }

    /// The text in a style, if styles are shown.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        match self.styled && style != Style::new() && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }

    /// The text as it can be shown: in ASCII, where there is nothing else.
    pub(crate) fn shown(self, text: &str) -> Cow<'_, str> {
        if self.unicode || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut plain = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                c if c.is_ascii() => plain.push(c),
                '…' => plain.push_str("..."),
                '•' => plain.push('*'),
                '·' => plain.push('|'),
                '›' => plain.push('>'),
                '✓' => plain.push('+'),
                '✗' => plain.push('x'),
                '─' | '–' | '—' => plain.push('-'),
                '‘' | '’' => plain.push('\''),
                '“' | '”' => plain.push('"'),
                _ => plain.push('?'),
            }
        }
        Cow::Owned(plain)
    }
}

/// How many columns a text without styles takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// As much of a line as fits, with an ellipsis if it isn't all.
pub(crate) fn fit(line: &str, most: usize) -> Cow<'_, str> {
    if columns(line) <= most {
        return Cow::Borrowed(line);
    }
    let mut kept = String::new();
    let mut room = most.saturating_sub(1);
    for grapheme in line.graphemes(true) {
        let width = columns(grapheme);
        if width > room {
            break;
        }
        room -= width;
        kept.push_str(grapheme);
    }
    Cow::Owned(kept + "…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_measured_in_columns() {
        for (line, most, fits) in [
            ("plain", 5, "plain"),
            ("plain", 4, "pla…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
        ] {
            assert_eq!(fit(line, most), fits, "{line} in {most}");
        }
    }

    #[test]
    fn ascii_is_all_that_an_old_locale_gets() {
        let look = Look { styled: false, unicode: false, moves: true };
        assert_eq!(look.shown("› “é” … ✓"), "> \"?\" ... +");
    }
}
