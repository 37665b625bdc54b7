//! Server-sent events: bytes in at any split, events out.
//!
//! Follows the parsing rules of the [HTML standard](https://html.spec.whatwg.org/multipage/server-sent-events.html),
//! with one difference that real servers need: a last event with no blank line after it counts.

use std::borrow::Cow;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event:` field; empty when there was none.
    pub name: Cow<'a, str>,
    /// The `data:` lines, joined by line feeds. Broken UTF-8 has become U+FFFD.
    pub data: Cow<'a, str>,
}

/// The parser. Feed it with [`push`](Self::push), and call [`finish`](Self::finish) at the end of the stream.
#[derive(Debug, Default)]
pub struct SseParser {
    /// An unfinished line from earlier chunks.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR, so that an LF right after it belongs to the same line end.
    after_cr: bool,
    started: bool,
}

impl SseParser {
    /// A parser at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and hands each event that they complete to `on_event`, until it returns `false`.
    pub fn push(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(SseEvent<'_>) -> bool) {
        // The events of a piece are checked all at once. What stands behind broken UTF-8 takes the longer way below.
        let (length, valid) = (bytes.len(), valid_start(bytes));
        loop {
            let mut text = valid.get(length - bytes.len()..).unwrap_or_default();
            while self.is_between_events()
                && let Some((event, rest)) = usual_event(text)
            {
                bytes = bytes.get(text.len() - rest.len()..).unwrap_or_default();
                text = rest;
                if !on_event(event) {
                    return;
                }
            }
            if self.after_cr
                && let Some((first, rest)) = bytes.split_first()
            {
                self.after_cr = false;
                if *first == b'\n' {
                    bytes = rest;
                }
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.line.extend_from_slice(bytes);
                return;
            };
            let (line, rest) = bytes.split_at(end);
            self.after_cr = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            let go_on = if self.line.is_empty() {
                self.take_line(line, &mut on_event)
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                let go_on = self.take_line(&whole, &mut on_event);
                whole.clear();
                self.line = whole;
                go_on
            };
            if !go_on {
                return;
            }
        }
    }

    /// Ends the stream: what stands there without a line end or a blank line after it counts.
    pub fn finish(&mut self, mut on_event: impl FnMut(SseEvent<'_>) -> bool) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() || self.take_line(&line, &mut on_event) {
            self.dispatch(&mut on_event);
        }
    }

    fn is_between_events(&self) -> bool {
        self.started && !self.after_cr && !self.has_data && self.line.is_empty() && self.name.is_empty()
    }

    /// Takes a line without its end. Returns whether to go on.
    fn take_line(&mut self, mut line: &[u8], on_event: &mut impl FnMut(SseEvent<'_>) -> bool) -> bool {
        if !self.started {
            self.started = true;
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let (field, rest) = line.split_at(colon);
                let value = rest.strip_prefix(b":").unwrap_or_default();
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Comments (an empty field), `id`, `retry` and unknown fields carry nothing for us.
            _ => {}
        }
        true
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(SseEvent<'_>) -> bool) -> bool {
        let go_on = !self.has_data || on_event(SseEvent { name: text(&self.name), data: text(&self.data) });
        self.has_data = false;
        self.data.clear();
        self.name.clear();
        go_on
    }
}

/// The event at the beginning, and what follows it, if it is whole and of the usual form: a line of `event:` or none, one
/// of `data:`, a blank line, none of them ended by a lone CR. Nothing of such an event has to be copied.
fn usual_event(text: &str) -> Option<(SseEvent<'_>, &str)> {
    let (mut line, mut rest) = usual_line(text)?;
    let mut name = "";
    if let Some(rest_of_line) = line.strip_prefix("event:") {
        name = without_space(rest_of_line);
        (line, rest) = usual_line(rest)?;
    }
    let data = without_space(line.strip_prefix("data:")?);
    let (blank, rest) = usual_line(rest)?;
    blank.is_empty().then_some((SseEvent { name: name.into(), data: data.into() }, rest))
}

fn usual_line(text: &str) -> Option<(&str, &str)> {
    let (line, rest) = text.split_at_checked(memchr::memchr2(b'\n', b'\r', text.as_bytes())?)?;
    Some((line, rest.strip_prefix('\n').or_else(|| rest.strip_prefix("\r\n"))?))
}

fn without_space(value: &str) -> &str {
    value.strip_prefix(' ').unwrap_or(value)
}

/// The bytes as text, up to the first that is no UTF-8.
fn valid_start(bytes: &[u8]) -> &str {
    let valid = std::str::from_utf8(bytes).map_err(|error| bytes.get(..error.valid_up_to()));
    valid.unwrap_or_else(|valid| std::str::from_utf8(valid.unwrap_or_default()).unwrap_or_default())
}

/// `String::from_utf8_lossy`, several times as fast for what is UTF-8.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut parser = SseParser::new();
        let mut events = Vec::new();
        let mut collect = |event: SseEvent<'_>| {
            events.push((event.name.into_owned(), event.data.into_owned()));
            true
        };
        for piece in pieces {
            parser.push(piece, &mut collect);
        }
        parser.finish(&mut collect);
        events
    }

    fn event(name: &str, data: &str) -> (String, String) {
        (name.into(), data.into())
    }

    #[test]
    fn framing() {
        for (stream, expected) in [
            ("data: a\n\n", vec![event("", "a")]),
            ("event: x\ndata: a\n\n", vec![event("x", "a")]),
            ("data:a\r\n\r\ndata:b\r\n\r\n", vec![event("", "a"), event("", "b")]),
            ("data: a\r\rdata: b\r\r", vec![event("", "a"), event("", "b")]),
            ("data: a\ndata: b\n\n", vec![event("", "a\nb")]),
            ("data\n\n", vec![event("", "")]),
            (": ping\n\n: ping\n\ndata: a\n\n", vec![event("", "a")]),
            ("id: 7\nretry: 3\nunknown\ndata: a\n\n", vec![event("", "a")]),
            ("event: lonely\n\ndata: a\n\n", vec![event("", "a")]),
            ("\u{FEFF}data: a\n\n", vec![event("", "a")]),
            ("data: a\n\ndata: last", vec![event("", "a"), event("", "last")]),
            ("data:  two spaces\n\n", vec![event("", " two spaces")]),
            ("data: é😀\n\n", vec![event("", "é😀")]),
            ("", vec![]),
        ] {
            assert_eq!(events(&[stream.as_bytes()]), expected, "{stream:?}");
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            assert_eq!(events(&bytes), expected, "{stream:?} byte by byte");
            for cut in 0..stream.len() {
                let (head, tail) = stream.as_bytes().split_at(cut);
                assert_eq!(events(&[head, tail]), expected, "{stream:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn broken_utf8_becomes_replacement_characters() {
        assert_eq!(events(&[b"data: a\xff", b"b\n\n"]), [event("", "a\u{FFFD}b")]);
        let broken_in_the_middle = b"data: a\n\ndata: b\xff\n\ndata: \xc3\xa9\n\n";
        assert_eq!(events(&[broken_in_the_middle]), [event("", "a"), event("", "b\u{FFFD}"), event("", "\u{e9}")]);
    }
}
