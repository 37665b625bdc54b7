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

/// The same for JSON text, which stays the same JSON: what JSON lets stand in strings is escaped all the same. So are the
/// line and paragraph separators, at which some readers of lines split (that of Node.js does).
pub(crate) fn clean_json(json: String) -> String {
    let stays = |c: char| is_harmless(c) && !matches!(c, '\u{2028}' | '\u{2029}');
    if json.chars().all(stays) {
        return json;
    }
    // Outside strings there is nothing that isn't ASCII, and inside them no control character below U+007F.
    let escaped = json.chars().map(|c| if stays(c) { c.to_string() } else { format!("\\u{:04x}", c as u32) });
    escaped.collect()
}

fn is_harmless(c: char) -> bool {
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

    #[test]
    fn json_is_the_same_json_without_anything_live() {
        let live = serde_json::to_string("a\u{9b}31m\u{7f}\u{202e}é\u{1b}\u{2028}").unwrap();
        let clean = clean_json(live.clone());
        assert_eq!(clean, r#""a\u009b31m\u007f\u202eé\u001b\u2028""#);
        let parse = |json: &str| serde_json::from_str::<String>(json).unwrap();
        assert_eq!(parse(&clean), parse(&live));
    }
}
