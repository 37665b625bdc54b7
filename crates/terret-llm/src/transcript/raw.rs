use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// A JSON value kept as the exact text in which it was written, on one line: line breaks between its tokens become
/// spaces.
///
/// Cheap to clone. Equality is equality of the text.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// Takes JSON text; surrounding white space is not kept.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self::from(serde_json::from_str::<&RawValue>(text)?))
    }

    /// Writes a value as JSON.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self::from(&*to_raw_value(value)?))
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The same as serde knows it: it is written as it stands.
    pub(crate) fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// The parsed value. Lone surrogate escapes become U+FFFD.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_str(&super::replace_lone_surrogates(self.as_str()))
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
    }
}

impl Eq for RawJson {}

impl Hash for RawJson {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<&RawValue> for RawJson {
    fn from(raw: &RawValue) -> Self {
        let on_one_line = match on_one_line(raw.get()) {
            Cow::Borrowed(_) => None,
            // It stays JSON.
            Cow::Owned(line) => RawValue::from_string(line).ok(),
        };
        Self(on_one_line.unwrap_or_else(|| raw.to_owned()).into())
    }
}

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        // A value can always be written.
        Self(to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned()).into())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*Box::<RawValue>::deserialize(deserializer)?))
    }
}

/// The same JSON with spaces for line breaks. In valid JSON, these stand only between tokens.
pub(super) fn on_one_line(json: &str) -> Cow<'_, str> {
    match memchr::memchr2(b'\n', b'\r', json.as_bytes()) {
        None => Cow::Borrowed(json),
        Some(_) => Cow::Owned(json.replace(['\n', '\r'], " ")),
    }
}
