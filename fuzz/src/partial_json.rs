//! The incremental view of JSON, against `serde_json` and against itself.

use serde_json::Value;
use terret_llm::{PartialJson, PartialJsonError};

use crate::pieces;

/// So many views of one text are compared with each other; the text is as long as libFuzzer makes it.
const VIEWS: usize = 16;

pub(crate) fn check(data: &[u8]) {
    let Some((lengths, text)) = pieces::split(data) else { return };
    let text = String::from_utf8_lossy(text);
    let end = finish([&*text]);
    agrees(&text, &end);
    let in_pieces = lengths.pieces_of_text(&text);
    assert_eq!(finish(in_pieces.iter().copied()), end, "in pieces");

    // Looked at after each character, the work is still linear, or libFuzzer's time limit ends it.
    let mut looked_at = PartialJson::new();
    let mut buffer = [0; 4];
    for c in text.chars() {
        looked_at.push(c.encode_utf8(&mut buffer));
        let _ = looked_at.value();
    }
    assert_eq!(looked_at.finish(), end, "character by character");

    let (mut partial, mut read, mut views) = (PartialJson::new(), 0, Vec::new());
    for piece in in_pieces.into_iter().take(VIEWS) {
        read += piece.len();
        partial.push(piece);
        let mut fresh = PartialJson::new();
        fresh.push(&text[..read]);
        assert_eq!(partial.value(), fresh.value(), "after {read} bytes");
        assert_eq!(partial.is_broken(), fresh.is_broken(), "after {read} bytes");
        views.extend(partial.value().cloned());
    }
    if repeats_a_name(&text) {
        return;
    }
    views.extend(end.ok());
    for pair in views.windows(2) {
        assert!(begins(&pair[0], &pair[1]), "{} was taken back: {}", pair[0], pair[1]);
    }
}

fn finish<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Result<Value, PartialJsonError> {
    let mut partial = PartialJson::new();
    for piece in pieces {
        partial.push(piece);
    }
    partial.finish()
}

/// Whether this is how `serde_json` reads the text, lone surrogates aside, which it refuses.
fn agrees(text: &str, end: &Result<Value, PartialJsonError>) {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => assert_eq!(end.as_ref(), Ok(&value)),
        Err(_) if text.contains("\\u") => {}
        Err(error) if error.is_eof() => assert_eq!(end, &Err(PartialJsonError::Incomplete), "{error}"),
        Err(error) => assert_eq!(end, &Err(PartialJsonError::Invalid), "{error}"),
    }
}

/// Whether one view can become the other when more arrives.
fn begins(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::String(one), Value::String(other)) => other.starts_with(one),
        (Value::Array(one), Value::Array(other)) => {
            one.len() <= other.len() && one.iter().zip(other).all(|(one, other)| begins(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.iter().all(|(name, one)| other.get(name).is_some_and(|other| begins(one, other)))
        }
        _ => one == other,
    }
}

/// Whether a string of the text, which may be a name, stands there twice; then a later value can replace an earlier one.
fn repeats_a_name(text: &str) -> bool {
    let mut names: Vec<&str> = text.split('"').skip(1).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    text.contains('\\') || names.len() < count
}
