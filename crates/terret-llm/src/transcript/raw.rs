use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::value::RawValue;

/// A JSON value kept as the exact text in which it was written, on one line: line breaks between its tokens become
/// spaces.
///
/// Cheap to clone. Equality is equality of the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Arc<str>);

impl RawJson {
    /// Takes JSON text; surrounding white space is not kept.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self::from(serde_json::from_str::<&RawValue>(text)?))
    }

    /// Writes a value as JSON.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self(on_one_line(&serde_json::to_string(value)?).into()))
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parsed value. Lone surrogate escapes become U+FFFD.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_str(&super::replace_lone_surrogates(&self.0))
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&RawValue> for RawJson {
    fn from(raw: &RawValue) -> Self {
        Self(on_one_line(raw.get()).into())
    }
}

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer).map_err(de::Error::custom)?;
        Ok(Self::from(&*raw))
    }
}

/// The same JSON with spaces for line breaks. In valid JSON, these stand only between tokens.
pub(super) fn on_one_line(json: &str) -> Cow<'_, str> {
    match memchr::memchr2(b'\n', b'\r', json.as_bytes()) {
        None => Cow::Borrowed(json),
        Some(_) => Cow::Owned(json.replace(['\n', '\r'], " ")),
    }
}
