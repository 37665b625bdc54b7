//! The parser of server-sent events, against the plainest reading of the standard.

use terret_llm::{SseEvent, SseParser};

use crate::pieces;

pub(crate) fn check(data: &[u8]) {
    let Some((lengths, stream)) = pieces::split(data) else { return };
    let expected = events(stream);
    assert_eq!(parsed([stream]), expected, "whole");
    assert_eq!(parsed(lengths.pieces(stream)), expected, "in pieces");
    assert_eq!(parsed(stream.chunks(1)), expected, "byte by byte");
    let most = lengths.place(expected.len());
    assert_eq!(first(most, lengths.pieces(stream)), expected[..most], "the first {most}");
}

fn parsed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
    first(usize::MAX, pieces)
}

/// The first events, so many that the one who takes them wants no more.
fn first<'a>(most: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
    let (mut parser, mut events) = (SseParser::new(), Vec::new());
    let mut pieces = pieces.into_iter();
    while events.len() < most {
        let mut take = |event: SseEvent<'_>| {
            events.push((event.name.into_owned(), event.data.into_owned()));
            events.len() < most
        };
        match pieces.next() {
            Some(piece) => parser.push(piece, &mut take),
            None => {
                parser.finish(&mut take);
                break;
            }
        }
    }
    events
}

/// The events of a whole stream, as the HTML standard has them; one that the end cuts short counts.
pub(crate) fn events(stream: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream)).into_owned();
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), Vec::new());
    for line in text.split('\n').chain([""]) {
        if line.is_empty() {
            if !data.is_empty() {
                events.push((name.clone(), data.join("\n")));
            }
            (name, data) = (String::new(), Vec::new());
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.to_owned(),
            "data" => data.push(value),
            _ => {}
        }
    }
    events
}
