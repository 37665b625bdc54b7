//! What a command wrote, as plain text.
//!
//! Commands write for terminals: colours, progress bars that overwrite themselves, titles, and now and then bytes that
//! are meant to do harm. A model needs the text, and a person's terminal must not be steered by it.
//!
//! - Escape sequences (CSI, OSC, DCS and the other strings, in their 7-bit and C1 forms) are dropped. One that isn't
//!   finished by its line's end is finished there, so that it can't swallow what follows.
//! - A carriage return that doesn't end a line starts it anew: of a progress bar, the last state stays. A backspace
//!   takes a character back.
//! - Bytes that aren't UTF-8 become U+FFFD, one for each run of them. Other control characters are dropped.
//! - Characters that turn the writing direction, hide text or have no width become visible, as in `\u{202e}`.
//!
//! A line is held back until it ends, up to [`LINE`] bytes of it; a part that has been let go is not overwritten any
//! more. So memory is bounded whatever comes. Every character is looked at once.

/// How much of a line is held back, in bytes.
const LINE: usize = 4 * 1024;

/// How long a sequence may be, in characters, before it is taken for text.
const CONTROL_SEQUENCE: usize = 256;
const STRING: usize = 64 * 1024;

/// Turns bytes into plain text, in whatever pieces they come.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    state: State,
    /// The beginning of a character that isn't complete yet.
    partial: Vec<u8>,
    line: String,
    /// A part of the line has been let go.
    line_begun: bool,
    returned: bool,
    after_invalid: bool,
    sequence: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    ControlSequence,
    String,
    /// In a string, after an ESC that may belong to its terminator.
    StringEscape,
}

/// Whether a character is invisible and turns, joins or hides what stands around it: bidirectional controls, characters
/// without a width, fillers, and tags. The two joiners stay, because scripts and emoji need them.
pub(crate) fn is_invisible_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e01ef}')
}

impl Plain {
    /// Takes the next bytes, and appends the text that is certain now.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        let joined;
        let bytes = if self.partial.is_empty() {
            bytes
        } else {
            joined = [&std::mem::take(&mut self.partial), bytes].concat();
            &joined
        };
        // By far the quicker way, as long as all is well but for a character that isn't complete yet.
        let (most, end) = bytes.split_at(bytes.len() - begun_character(bytes));
        let (text, bytes) = std::str::from_utf8(most).map_or(("", bytes), |text| (text, end));
        self.text(text, out);
        for chunk in bytes.utf8_chunks() {
            self.text(chunk.valid(), out);
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            let at_end = std::ptr::eq(invalid.as_ptr_range().end, bytes.as_ptr_range().end);
            let may_go_on = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if at_end && may_go_on {
                self.partial.extend_from_slice(invalid);
            } else {
                self.invalid(out);
            }
        }
    }

    /// Ends the text, and appends what was held back.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.invalid(out);
        }
        out.push_str(&self.line);
        *self = Self::default();
    }

    fn text(&mut self, text: &str, out: &mut String) {
        let mut rest = text;
        while !rest.is_empty() {
            let may_be_special = |byte: u8| BEGINS_SPECIAL.get(usize::from(byte)) == Some(&true);
            if self.state == State::Text && !rest.bytes().next().is_some_and(may_be_special) {
                let (ordinary, special) = rest.split_at(ordinary(rest));
                self.ordinary(ordinary, out);
                rest = special;
            }
            if self.state == State::Text
                && let Some(behind) = behind_control_sequence(rest)
            {
                rest = behind;
                continue;
            }
            let mut chars = rest.chars();
            if let Some(c) = chars.next() {
                self.special(c, out);
            }
            rest = chars.as_str();
        }
    }

    /// Text in which nothing but line feeds means more than itself. Lines that are complete needn't be held back.
    fn ordinary(&mut self, text: &str, out: &mut String) {
        let Some((first, rest)) = text.split_once('\n') else {
            return self.write(text, out);
        };
        self.write(first, out);
        self.control('\n', out);
        let complete = memchr::memrchr(b'\n', rest.as_bytes()).map_or(0, |end| end + 1);
        let (complete, begun) = rest.split_at(complete);
        out.push_str(complete);
        self.write(begun, out);
    }

    /// A character of a sequence, or one that might mean more than itself.
    fn special(&mut self, c: char, out: &mut String) {
        self.sequence += 1;
        match (self.state, c) {
            (_, '\n' | '\r') => {
                self.state = State::Text;
                self.control(c, out);
            }
            (State::Text, _) => self.control(c, out),
            (State::Escape, '[') => self.begin(State::ControlSequence),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => self.begin(State::String),
            (State::Escape | State::ControlSequence, '\u{1b}') => self.begin(State::Escape),
            (State::Escape, ' '..='/') if self.sequence < CONTROL_SEQUENCE => {}
            (State::Escape, '0'..='~') => self.state = State::Text,
            (State::ControlSequence, ' '..='?') if self.sequence < CONTROL_SEQUENCE => {}
            (State::ControlSequence, '@'..='~') => self.state = State::Text,
            (State::String, '\u{7}' | '\u{9c}' | '\u{18}' | '\u{1a}') => self.state = State::Text,
            (State::String, '\u{1b}') => self.state = State::StringEscape,
            (State::String, _) if self.sequence < STRING => {}
            (State::StringEscape, '\\') => self.state = State::Text,
            (State::StringEscape, _) => {
                self.begin(State::Escape);
                self.special(c, out);
            }
            // Not what a sequence can hold: it ends here, and the character counts for itself.
            (State::Escape | State::ControlSequence | State::String, _) => {
                self.state = State::Text;
                self.control(c, out);
            }
        }
    }

    fn control(&mut self, c: char, out: &mut String) {
        match c {
            '\n' => {
                out.push_str(&self.line);
                out.push('\n');
                self.line.clear();
                self.line_begun = false;
                self.returned = false;
                self.after_invalid = false;
            }
            '\r' => self.returned = true,
            '\u{8}' => {
                self.line.pop();
            }
            '\u{1b}' => self.begin(State::Escape),
            '\u{9b}' => self.begin(State::ControlSequence),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.begin(State::String),
            '\t' => self.write("\t", out),
            c if c.is_control() => {}
            c if is_invisible_control(c) => self.write(&c.escape_unicode().to_string(), out),
            c => self.write(c.encode_utf8(&mut [0; 4]), out),
        }
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.sequence = 0;
    }

    fn invalid(&mut self, out: &mut String) {
        if self.state == State::Text && !self.after_invalid {
            self.write("\u{fffd}", out);
            self.after_invalid = true;
        }
    }

    fn write(&mut self, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        self.after_invalid = false;
        if std::mem::take(&mut self.returned) {
            self.line.clear();
            if std::mem::take(&mut self.line_begun) {
                out.push('\n');
            }
        }
        if self.line.len() + text.len() > LINE {
            out.push_str(&self.line);
            out.push_str(text);
            self.line.clear();
            self.line_begun = true;
        } else {
            self.line.push_str(text);
        }
    }
}

/// How many bytes at the end may be the beginning of a character.
fn begun_character(bytes: &[u8]) -> usize {
    let needed = |lead| match lead {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let lead = bytes.iter().rev().take(3).position(|byte| !matches!(byte, 0x80..=0xbf));
    let begun = lead.map_or(0, |back| back + 1);
    match bytes.iter().nth_back(begun.saturating_sub(1)) {
        Some(lead) if begun > 0 && needed(*lead) > begun => begun,
        _ => 0,
    }
}

/// How many bytes at the beginning of a text are characters that mean nothing but themselves, or line feeds.
fn ordinary(text: &str) -> usize {
    /// Compilers turn a test of so many bytes into a few instructions.
    const BLOCK: usize = 32;

    let is_special_at = |at| text.get(at..).and_then(|rest| rest.chars().next()).is_some_and(is_special);
    for (block, number) in text.as_bytes().chunks(BLOCK).zip(0..) {
        if block.iter().fold(false, |any, byte| any | begins_special(*byte)) {
            let bytes = block.iter().zip(number * BLOCK..);
            let mut suspects = bytes.filter(|(byte, _)| BEGINS_SPECIAL.get(usize::from(**byte)) == Some(&true));
            if let Some((_, at)) = suspects.find(|(_, at)| is_special_at(*at)) {
                return at;
            }
        }
    }
    text.len()
}

/// Whether a byte may begin a special character. Without branches, so that it is done to a block at once.
const fn begins_special(byte: u8) -> bool {
    let control = (byte < b' ') & (byte != b'\n') & (byte != b'\t') | (byte == 0x7f);
    let of_two = (byte == 0xc2) | (byte == 0xd8);
    let of_more = (byte == 0xe1) | (byte == 0xe2) | (byte == 0xe3) | (byte == 0xef) | (byte == 0xf3);
    control | of_two | of_more
}

/// The same for each byte, which is quicker for one at a time.
static BEGINS_SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = u8::MAX;
    loop {
        #[allow(clippy::indexing_slicing, reason = "every byte is within, and the compiler does it")]
        {
            table[byte as usize] = begins_special(byte);
        }
        if byte == 0 {
            break table;
        }
        byte -= 1;
    }
};

/// What follows a control sequence that is as they should be, and all there. Most are: colours.
fn behind_control_sequence(text: &str) -> Option<&str> {
    let sequence = text.strip_prefix("\x1b[")?;
    let end = sequence.bytes().take(CONTROL_SEQUENCE / 2).position(|byte| !matches!(byte, b' '..=b'?'))?;
    let (_, rest) = sequence.split_at_checked(end)?;
    rest.strip_prefix(|end| matches!(end, '@'..='~'))
}

fn is_special(c: char) -> bool {
    !matches!(c, '\n' | '\t') && (c.is_control() || is_invisible_control(c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(bytes: &[u8]) -> String {
        let (mut plain, mut out) = (Plain::default(), String::new());
        plain.push(bytes, &mut out);
        plain.finish(&mut out);
        out
    }

    const CASES: &[(&[u8], &str)] = &[
        (b"two\nlines\n", "two\nlines\n"),
        (
            "caf\u{e9} \u{2014} \u{65e5}\u{672c} \u{1f600}\ttab".as_bytes(),
            "caf\u{e9} \u{2014} \u{65e5}\u{672c} \u{1f600}\ttab",
        ),
        // Colours, erasing, cursor movement, character sets.
        (b"\x1b[1;31mred\x1b[0m \x1b[Kok\x1b(B\x1b[?25l", "red ok"),
        // Titles, links, the clipboard, device strings; ended by BEL or by ST.
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b]52;c;ZXZpbA==\x07b", "alink b"),
        (b"\x1bPq#0;2;0\x1b\\a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d", "abcd"),
        // C1 forms of the same.
        ("\u{9b}31mred\u{9d}0;title\u{9c}!\u{90}dcs\u{9c}\u{85}".as_bytes(), "red!"),
        // Sequences that never end, or end in something else, take no text with them.
        (b"\x1b]0;never ended\nnext line", "\nnext line"),
        (b"\x1b[31\nnext", "\nnext"),
        (b"\x1b[31\x1b[0mx", "x"),
        (b"\x1b]0;a\x1b[1mb", "b"),
        (b"\x1b\x1b[1mx", "x"),
        (b"cut \x1b[3", "cut "),
        ("\u{1b}[3\u{e9}".as_bytes(), "\u{e9}"),
        // Progress bars, line ends of Windows, overstriking.
        (b" 10%\r 50%\r100%\ndone", "100%\ndone"),
        (b"windows\r\ntext\r\r\n", "windows\ntext\n"),
        (b"last state\r", "last state"),
        (b"N\x08NA\x08A spin|\x08/\x08-", "NA spin-"),
        (b"\x08\x08x", "x"),
        // Binary.
        (b"\x00\x01a\x7fb\x07", "ab"),
        (b"a\xff\xfe\x80b\xc3", "a\u{fffd}b\u{fffd}"),
        (b"caf\xe9!", "caf\u{fffd}!"),
        (b"\xff\n\xff\xff\n", "\u{fffd}\n\u{fffd}\n"),
        // Direction and tags.
        ("a\u{202e}b\u{2066}c\u{e0041}".as_bytes(), "a\\u{202e}b\\u{2066}c\\u{e0041}"),
        // What has no width, but not what joins letters and emoji.
        ("a\u{200b}b\u{2060}c\u{feff}d\u{3164}".as_bytes(), "a\\u{200b}b\\u{2060}c\\u{feff}d\\u{3164}"),
        (
            "\u{645}\u{200c}\u{62e} \u{1f468}\u{200d}\u{1f469}".as_bytes(),
            "\u{645}\u{200c}\u{62e} \u{1f468}\u{200d}\u{1f469}",
        ),
    ];

    #[test]
    fn what_is_meant_for_terminals_becomes_text() {
        for (bytes, expected) in CASES {
            assert_eq!(plain(bytes), *expected, "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn the_pieces_in_which_bytes_come_make_no_difference() {
        for (bytes, expected) in CASES {
            let (mut plain, mut out) = (Plain::default(), String::new());
            for byte in *bytes {
                plain.push(std::slice::from_ref(byte), &mut out);
            }
            plain.finish(&mut out);
            assert_eq!(out, *expected, "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn what_means_more_than_itself_is_found_wherever_it_stands() {
        for c in (char::MIN..=char::MAX).filter(|c| is_special(*c)) {
            for before in [0, 1, 31, 32, 33, 100] {
                for filling in ["x", "\u{e9}", "\u{2014}", "\n"] {
                    let before = filling.repeat(before);
                    assert_eq!(ordinary(&format!("{before}{c}{}", "y".repeat(40))), before.len(), "{c:?}");
                }
            }
        }
        for c in (char::MIN..=char::MAX).filter(|c| is_special(*c)) {
            assert!(begins_special(c.to_string().as_bytes()[0]), "{c:?}");
        }
        let text = "all of it \u{65e5}\u{672c}\t\u{1f600}\n".repeat(10);
        assert_eq!(ordinary(&text), text.len());
    }

    #[test]
    fn a_line_without_end_is_let_go_and_a_return_then_starts_another() {
        let (mut plain, mut out) = (Plain::default(), String::new());
        for _ in 0..1_000 {
            plain.push(&[b'x'; 1_000], &mut out);
            assert!(plain.line.len() <= LINE);
        }
        plain.push(b"\rnew", &mut out);
        plain.finish(&mut out);
        assert_eq!(out, format!("{}\nnew", "x".repeat(1_000_000)));
    }

    #[test]
    fn a_string_without_end_is_given_up_in_the_end() {
        let mut bytes = b"\x1b]52;".to_vec();
        bytes.extend([b'x'; 2 * STRING]);
        let text = plain(&bytes);
        assert!(text.len() >= STRING && text.len() < 2 * STRING, "{}", text.len());
    }

    proptest! {
        #[test]
        fn nothing_steers_a_terminal_whatever_comes_and_however_it_is_cut(
            pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40),
            cuts in prop::collection::vec(1_usize..5, 1..10),
        ) {
            let bytes = pieces.concat();
            let whole = plain(&bytes);
            prop_assert!(whole.chars().all(|c| matches!(c, '\n' | '\t') || !(c.is_control() || is_invisible_control(c))));

            let (mut plain, mut out, mut rest) = (Plain::default(), String::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                let (piece, more) = rest.split_at(rest.len().min(*cut));
                plain.push(piece, &mut out);
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
            plain.finish(&mut out);
            prop_assert_eq!(out, whole);
        }
    }

    const PIECES: &[&[u8]] = &[
        b"a",
        b"text",
        b"\n",
        b"\r",
        b"\t",
        b"\x08",
        b"\x1b",
        b"[",
        b"]",
        b"P",
        b"\\",
        b"3",
        b";",
        b"m",
        b"\x07",
        b"\0",
        b"\x18",
        b"\x7f",
        b"\xff",
        b"\xc2",
        b"\x9b",
        b"\xc2\x9d",
        b"\xe2\x80",
        b"\xae",
        b"\xf3\xa0\x81\x81",
        b"\xf0\x9f\x98\x80",
    ];
}
