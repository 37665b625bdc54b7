//! OpenRouter's `reasoning_details`, put together from the fragments of a stream so that they can go back.
//!
//! [The documentation](https://openrouter.ai/docs/use-cases/reasoning-tokens) wants them back unmodified and in order.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::frame;
use crate::lossy::Lossy;

/// The details of one thinking block.
#[derive(Default)]
pub(super) struct Details(Vec<Detail>);

struct Detail {
    fields: Vec<(String, Value)>,
}

enum Value {
    /// Text that comes in fragments.
    Text(String),
    /// Anything else, as it stood on the wire.
    Json(Box<RawValue>),
}

impl Details {
    /// Takes a fragment.
    pub(super) fn take(&mut self, fragment: &frame::Detail<'_>) {
        if fragment.0.is_empty() {
            return;
        }
        let at = match self.0.iter().rposition(|detail| detail.continues_with(fragment)) {
            Some(at) => at,
            None => {
                self.0.push(Detail { fields: Vec::with_capacity(fragment.0.len()) });
                self.0.len() - 1
            }
        };
        let Some(detail) = self.0.get_mut(at) else { return };
        for (key, value) in &fragment.0 {
            detail.take(key, value);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something is in them that the model needs back although nobody can read it.
    pub(super) fn are_opaque(&self) -> bool {
        let opaque = |(key, value): &(String, Value)| {
            matches!(key.as_str(), "data" | "signature") && matches!(value, Value::Text(text) if !text.is_empty())
        };
        self.0.iter().any(|detail| detail.fields.iter().any(opaque))
    }

    /// The JSON list.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

impl Detail {
    /// Whether a fragment belongs to this detail: they agree in type and index, and in the id if both have one.
    fn continues_with(&self, fragment: &frame::Detail<'_>) -> bool {
        let theirs = |key| fragment.0.iter().find(|(name, _)| name == key).map(|(_, json)| json.get());
        let ours = |key| match self.field(key) {
            Some(Value::Json(json)) => Some(json.get()),
            Some(Value::Text(_)) | None => None,
        };
        ours("type") == theirs("type")
            && ours("index") == theirs("index")
            && (ours("id").is_none() || theirs("id").is_none() || ours("id") == theirs("id"))
            // What is encrypted comes whole.
            && theirs("data").is_none()
    }

    fn field(&self, key: &str) -> Option<&Value> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn take(&mut self, key: &str, json: &RawValue) {
        if json.get() == "null" {
            return;
        }
        let text = match key {
            "text" | "summary" | "signature" | "data" => serde_json::from_str::<Lossy<'_>>(json.get()).ok(),
            _ => None,
        };
        let held = self.fields.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value);
        match (held, text) {
            (Some(Value::Text(held)), Some(text)) => held.push_str(&text),
            (Some(_), _) => {}
            (None, Some(text)) => self.fields.push((key.to_owned(), Value::Text(text.into_string()))),
            (None, None) => self.fields.push((key.to_owned(), Value::Json(json.to_owned()))),
        }
    }
}

impl Serialize for Detail {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (key, value) in &self.fields {
            match value {
                Value::Text(text) => map.serialize_entry(key, text)?,
                Value::Json(json) => map.serialize_entry(key, json)?,
            }
        }
        map.end()
    }
}
