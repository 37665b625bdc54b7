use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeOwned, IgnoredAny};

/// The argument text of a tool call, exactly as the model wrote it.
///
/// It is never parsed and printed again on its way to disk or back to a provider. Text that is not valid JSON can be
/// held and stored, but not executed. Empty text means `{}` and becomes it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Arguments {
    text: Arc<str>,
    json: bool,
}

/// Why argument text can't be read as the wanted type.
#[derive(Debug, thiserror::Error)]
#[error("the arguments are not valid JSON for this call: {source}")]
pub struct ArgumentsError {
    #[from]
    source: serde_json::Error,
}

impl Arguments {
    /// Takes the text as it stands.
    pub fn new(text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        let text = if text.trim().is_empty() { "{}" } else { text };
        Self { text: text.into(), json: serde_json::from_str::<IgnoredAny>(text).is_ok() }
    }

    /// The text as the model wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the text is one JSON value with nothing after it.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Reads the text as `T`. Lone surrogate escapes become U+FFFD; anything after the value is an error.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ArgumentsError> {
        Ok(serde_json::from_str(&replace_lone_surrogates(&self.text))?)
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Self::new("{}")
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Replaces `\u` escapes of surrogates that have no partner by `\ufffd`, in text that is JSON or the start of it.
/// Most parsers refuse a whole document for such an escape.
pub(crate) fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    let escapes = LoneSurrogates { json: json.as_bytes(), at: 0 };
    let mut replaced: Option<String> = None;
    for at in escapes {
        let text = replaced.get_or_insert_with(|| json.to_owned());
        // An escape is six ASCII bytes, and its replacement is as long: offsets stay valid.
        text.replace_range(at..at + 6, "\\ufffd");
    }
    replaced.map_or(Cow::Borrowed(json), Cow::Owned)
}

/// Yields the offsets of the escapes that name half a surrogate pair.
struct LoneSurrogates<'a> {
    json: &'a [u8],
    at: usize,
}

impl LoneSurrogates<'_> {
    fn unit(&self, at: usize) -> Option<u16> {
        let digits = self.json.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }
}

impl Iterator for LoneSurrogates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let at = self.at + memchr::memchr(b'\\', self.json.get(self.at..)?)?;
            match self.unit(at) {
                None => self.at = at + 2,
                Some(0xD800..=0xDBFF) if matches!(self.unit(at + 6), Some(0xDC00..=0xDFFF)) => self.at = at + 12,
                Some(0xD800..=0xDFFF) => {
                    self.at = at + 6;
                    return Some(at);
                }
                Some(_) => self.at = at + 6,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_become_replacement_characters_and_pairs_stay() {
        for (text, expected) in [
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\ud83d\ude00"}"#),
            (r#"{"a":"\ude00\ud83d x"}"#, r#"{"a":"\ufffd\ufffd x"}"#),
            (r#"{"a":"\\ud83d"}"#, r#"{"a":"\\ud83d"}"#),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, r#"{"a":"\ufffd\ud83d\ude00"}"#),
            (r#"{"a":"\ud8"#, r#"{"a":"\ud8"#),
        ] {
            assert_eq!(replace_lone_surrogates(text), expected);
        }
    }

    #[test]
    fn empty_text_is_an_empty_object() {
        assert_eq!(Arguments::new("").as_str(), "{}");
        assert_eq!(Arguments::new(" \n").as_str(), "{}");
    }

    #[test]
    fn trailing_data_is_not_json() {
        assert!(!Arguments::new(r#"{"a":1}{"b":2}"#).is_json());
        assert!(!Arguments::new(r#"{"a":1} and"#).is_json());
        assert!(Arguments::new(r#" {"a":1} "#).is_json());
    }
}
