//! Text that is safe to show on a terminal.

use std::borrow::Cow;

/// The text without what could steer a terminal or mislead its reader: control characters other than line feed and tab
/// (so also every escape sequence's first byte, and C1), and the marks that turn the direction of writing.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| is_harmless(*c)).collect())
}

pub(crate) fn is_harmless(c: char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || is_bidi(c))
}

/// Embeddings, overrides and isolates: U+202A to U+202E, U+2066 to U+2069.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(clean("plain\n\ttext é"), "plain\n\ttext é");
        assert_eq!(clean("\x1b[31mred\x1b[0m"), "[31mred[0m");
        assert_eq!(clean("\x1b]52;c;aGk=\x07"), "]52;c;aGk=");
        assert_eq!(clean("a\u{9b}31mb\u{202e}c\u{0}d\rz\u{7f}"), "a31mbcdz");
    }
}
