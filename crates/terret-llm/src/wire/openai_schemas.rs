//! JSON Schemas as OpenAI's two wires take them.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::transcript::RawJson;

/// An object's schema, which OpenAI refuses without `properties`.
pub(super) struct Parameters<'a>(pub(super) &'a RawJson);

impl Serialize for Parameters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Deserialize)]
        struct Schema<'a> {
            #[serde(borrow)]
            properties: Option<&'a RawValue>,
        }
        let json = self.0.as_str().trim_end();
        let lacks_properties = serde_json::from_str::<Schema<'_>>(json).is_ok_and(|schema| schema.properties.is_none());
        if let Some(fields) = json.strip_suffix('}').map(str::trim_end).filter(|_| lacks_properties) {
            let comma = if fields.ends_with('{') { "" } else { "," };
            if let Ok(complete) = RawJson::parse(&format!("{fields}{comma}\"properties\":{{}}}}")) {
                return complete.serialize(serializer);
            }
        }
        self.0.serialize(serializer)
    }
}

/// Whether OpenAI takes a schema as a strict one, which the reply is sure to satisfy: every object requires all of its
/// properties and forbids others. Of
/// [Structured Outputs](https://platform.openai.com/docs/guides/structured-outputs#supported-schemas). It refuses
/// `strict` with a schema of another kind.
pub(super) fn is_strict(schema: &RawJson) -> bool {
    schema.to_value().is_ok_and(|schema| is_strict_value(&schema))
}

fn is_strict_value(schema: &Value) -> bool {
    let Value::Object(fields) = schema else { return true };
    if ["allOf", "oneOf", "not", "if", "then", "else", "patternProperties", "dependentRequired", "dependentSchemas"]
        .iter()
        .any(|unsupported| fields.contains_key(*unsupported))
    {
        return false;
    }
    let properties = fields.get("properties").and_then(Value::as_object);
    let is_object = properties.is_some() || fields.get("type").is_some_and(|kind| kind == "object");
    let required = fields.get("required").and_then(Value::as_array);
    let requires = |name: &String| required.is_some_and(|list| list.iter().any(|required| required == name));
    let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.is_none_or(|properties| properties.keys().all(requires));
    let maps = ["properties", "$defs", "definitions"].into_iter().filter_map(|key| fields.get(key)?.as_object());
    let lists = fields.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let mut below = maps.flat_map(|map| map.values()).chain(lists).chain(fields.get("items"));
    (!is_object || is_closed) && below.all(is_strict_value)
}
