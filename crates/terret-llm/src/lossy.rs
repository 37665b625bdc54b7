//! Strings from the other side, which may hold what Rust's can't.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A JSON string in which lone surrogate escapes and broken UTF-8 have become U+FFFD.
///
/// `serde_json` refuses a lone surrogate in a string, but hands it over as bytes (WTF-8) when bytes are asked for.
/// Borrows from the input where the string has no escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lossy<'a>(pub(crate) Cow<'a, str>);

impl Lossy<'_> {
    pub(crate) fn into_string(self) -> String {
        self.0.into_owned()
    }
}

impl std::ops::Deref for Lossy<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Lossy<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl<'de> Visitor<'de> for Bytes {
            type Value = Lossy<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Lossy<'de>, E> {
                Ok(Lossy(decode(bytes)))
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Lossy<'de>, E> {
                Ok(Lossy(Cow::Owned(decode(bytes).into_owned())))
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Lossy<'de>, E> {
                Ok(Lossy(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Lossy<'de>, E> {
                Ok(Lossy(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

/// A piece of a longer text, which may have been cut inside a surrogate pair: servers that count in UTF-16 do so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fragment<'a> {
    /// The low half of a pair whose high half should have ended the piece before.
    pub(crate) low: Option<u16>,
    pub(crate) text: Cow<'a, str>,
    /// The high half of a pair whose low half should begin the next piece.
    pub(crate) high: Option<u16>,
}

impl<'a> Fragment<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.low.is_none() && self.high.is_none()
    }

    /// Appends the next piece.
    pub(crate) fn push(&mut self, next: &Fragment<'_>) {
        if !next.is_empty() {
            let halves = self.high.take().into_iter().chain(next.low);
            let joined = char::decode_utf16(halves).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
            let text = self.text.to_mut();
            text.extend(joined);
            text.push_str(&next.text);
            self.high = next.high;
        }
    }

    fn new(mut bytes: &'a [u8]) -> Self {
        let low = match bytes {
            [0xED, second @ 0xB0..=0xBF, third @ 0x80..=0xBF, rest @ ..] => {
                bytes = rest;
                Some(surrogate(*second, *third))
            }
            _ => None,
        };
        let high = match bytes {
            [rest @ .., 0xED, second @ 0xA0..=0xAF, third @ 0x80..=0xBF] => {
                bytes = rest;
                Some(surrogate(*second, *third))
            }
            _ => None,
        };
        Self { low, text: decode(bytes), high }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fragment<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl<'de> Visitor<'de> for Bytes {
            type Value = Fragment<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Fragment<'de>, E> {
                Ok(Fragment::new(bytes))
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Fragment<'de>, E> {
                let Fragment { low, text, high } = Fragment::new(bytes);
                Ok(Fragment { low, text: Cow::Owned(text.into_owned()), high })
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

/// The surrogate whose WTF-8 is 0xED and these two bytes.
fn surrogate(second: u8, third: u8) -> u16 {
    0xD000 | u16::from(second & 0x3F) << 6 | u16::from(third & 0x3F)
}

/// WTF-8 as UTF-8, with one U+FFFD for each lone surrogate and each broken sequence.
fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(chunk) = rest.utf8_chunks().next() {
        text.push_str(chunk.valid());
        rest = rest.get(chunk.valid().len()..).unwrap_or_default();
        if chunk.invalid().is_empty() {
            continue;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        // A surrogate is three bytes in WTF-8, of which Rust counts each as a broken sequence of its own.
        let broken = if matches!(rest, [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..]) { 3 } else { chunk.invalid().len() };
        rest = rest.get(broken..).unwrap_or_default();
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_and_broken_utf8_become_one_replacement_character_each() {
        for (json, expected) in [
            (&br#""plain""#[..], "plain"),
            (br#""\ud83d""#, "\u{FFFD}"),
            (br#""a\ud83db\ude00c""#, "a\u{FFFD}b\u{FFFD}c"),
            (br#""\ud83d\ude00""#, "😀"),
            (br#""\u0000""#, "\0"),
        ] {
            let text: Lossy<'_> = serde_json::from_slice(json).unwrap();
            assert_eq!(&*text, expected);
        }
        assert_eq!(decode(b"a\xffb\xc3"), "a\u{FFFD}b\u{FFFD}");
    }

    #[test]
    fn halves_of_a_pair_at_the_ends_of_a_fragment_are_kept() {
        for (json, low, text, high) in [
            (r#""plain 😀""#, None, "plain 😀", None),
            (r#""a\ud83d""#, None, "a", Some(0xD83D)),
            (r#""\ude00b""#, Some(0xDE00), "b", None),
            (r#""\ude00\ud83d""#, Some(0xDE00), "", Some(0xD83D)),
            (r#""\ud83d\ude00""#, None, "😀", None),
            (r#""\ud83db""#, None, "\u{FFFD}b", None),
            (r#""""#, None, "", None),
        ] {
            let fragment: Fragment<'_> = serde_json::from_str(json).unwrap();
            assert_eq!(fragment, Fragment { low, text: text.into(), high }, "{json}");
        }
    }
}
