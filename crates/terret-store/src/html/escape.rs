//! Text that is safe in a page: nothing in it is markup, and nothing in it steers who reads it.

/// Appends text, for content as for an attribute in double quotes.
///
/// Characters that can't be seen, or that turn the direction of writing, are made visible: what a page shows is what
/// stands in the session, in that order. (The Unicode standard, "Bidirectional Character Types" and "Control Pictures".)
pub(super) fn push(out: &mut String, text: &str) {
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            // The end of a line of Windows.
            '\r' if rest.peek() == Some(&'\n') => {}
            '\0'..='\u{1f}' => out.extend(char::from_u32(0x2400 + u32::from(c))),
            '\u{7f}' => out.push('\u{2421}'),
            c if is_hidden(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// The same as a text of its own.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    push(&mut out, text);
    out
}

/// C1 controls, marks of direction, separators of lines that aren't line feeds, and tags; noncharacters, which no page may
/// hold.
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{2028}' | '\u{2029}' | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}'
        | '\u{fdd0}'..='\u{fdef}')
        || u32::from(c) & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_is_markup_and_nothing_is_hidden() {
        for (text, expected) in [
            ("plain é 日本\n\ttext", "plain é 日本\n\ttext"),
            (
                "</script><img onerror='x' a=\"&\">",
                "&lt;/script&gt;&lt;img onerror=&#39;x&#39; a=&quot;&amp;&quot;&gt;",
            ),
            ("\u{1b}[31mred\u{7}\0", "␛[31mred␇␀"),
            ("a\r\nb\rc", "a\nb␍c"),
            ("\u{7f}\u{9b}1m\u{202e}evil\u{2066}\u{200f}", "␡\u{fffd}1m\u{fffd}evil\u{fffd}\u{fffd}"),
            ("\u{ffff}\u{1fffe}\u{e0041}\u{2028}", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }
}
