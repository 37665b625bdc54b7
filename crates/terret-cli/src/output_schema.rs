//! `--output-schema`: a final reply that is JSON of a given schema.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use jsonschema::Validator;
use serde_json::Value;
use terret::agent::{Event, HookError, Hooks, Report, Review};
use terret::llm::{AssistantMessage, OutputSchema, RawJson};

use crate::exit::Problem;
use crate::output::Output;

/// What a final reply has to be.
#[derive(Clone)]
pub(crate) struct Expected {
    schema: Value,
    validator: Arc<Validator>,
}

impl Expected {
    pub(crate) fn load(path: &Path) -> Result<Self, Problem> {
        let problem = |reason: String| Problem::usage(format!("--output-schema: {}: {reason}", path.display()));
        let text = fs::read(path).map_err(|error| problem(error.to_string()))?;
        let schema: Value = serde_json::from_slice(&text).map_err(|error| problem(error.to_string()))?;
        let validator = jsonschema::validator_for(&schema).map_err(|error| problem(error.to_string()))?;
        Ok(Self { schema, validator: Arc::new(validator) })
    }

    /// What the model is told of it, behind the system prompt.
    pub(crate) fn told(&self) -> String {
        format!(
            "When you are done, your final reply has to be a JSON value of this schema, and nothing else: {}",
            self.schema
        )
    }

    /// What providers can be held to, if it is plain enough for all of them: they refuse requests with what they don't know.
    pub(crate) fn for_providers(&self) -> Option<OutputSchema> {
        let is_object = self.schema.get("type").is_some_and(|kind| kind == "object");
        (is_object && is_plain(&self.schema))
            .then(|| OutputSchema { name: "output".into(), schema: RawJson::from(&self.schema) })
    }

    /// The JSON of a reply, or what is wrong with it.
    fn read<'a>(&self, reply: &'a str) -> Result<&'a str, String> {
        const MOST: usize = 10;
        let json = bare(reply);
        let value: Value = serde_json::from_str(json).map_err(|error| format!("it is no JSON: {error}"))?;
        let problems: Vec<String> = self
            .validator
            .iter_errors(&value)
            .take(MOST)
            .map(|error| format!("at {:?}: {error}", error.instance_path().as_str()))
            .collect();
        if problems.is_empty() { Ok(json) } else { Err(problems.join("; ")) }
    }
}

/// Sends a final reply back that is something else.
impl Hooks for Expected {
    fn at_end<'a>(
        &'a self,
        reply: &'a AssistantMessage,
    ) -> Pin<Box<dyn Future<Output = Result<Review, HookError>> + Send + 'a>> {
        let review = match self.read(&reply.text()) {
            Ok(_) => Review::Accept,
            Err(problem) => Review::Object(format!(
                "Your reply is not the JSON value that is wanted: {problem}. Reply again, with nothing but a JSON value of \
                 this schema: {}",
                self.schema
            )),
        };
        Box::pin(std::future::ready(Ok(review)))
    }
}

/// Tells the JSON of the final reply, without a Markdown fence around it.
pub(crate) struct Bare<'a> {
    pub(crate) expected: Expected,
    pub(crate) inner: Box<dyn Output + 'a>,
}

impl Output for Bare<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.inner.event(event)
    }

    fn ended(&mut self, report: &Report, took: Duration) -> io::Result<()> {
        let mut report = report.clone();
        report.text = report.text.map(|text| self.expected.read(&text).map(Arc::from).unwrap_or(text.clone()));
        self.inner.ended(&report, took)
    }
}

/// Without the Markdown fence that models like to put around JSON.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner).trim())
}

/// Whether every provider takes the schema: closed objects that require all they have, and none but these words.
fn is_plain(schema: &Value) -> bool {
    const WORDS: [&str; 8] =
        ["type", "description", "properties", "required", "additionalProperties", "items", "enum", "anyOf"];
    let Value::Object(fields) = schema else { return false };
    if !fields.keys().all(|word| WORDS.contains(&word.as_str())) {
        return false;
    }
    let properties = fields.get("properties").and_then(Value::as_object);
    let required = fields.get("required").and_then(Value::as_array);
    let requires = |name: &String| required.is_some_and(|names| names.iter().any(|required| required == name));
    let is_object = properties.is_some() || fields.get("type").is_some_and(|kind| kind == "object");
    let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.is_some_and(|properties| properties.keys().all(requires));
    let choices = fields.get("anyOf").and_then(Value::as_array);
    let mut below = properties.into_iter().flat_map(|map| map.values()).chain(choices.into_iter().flatten());
    (!is_object || is_closed) && below.all(is_plain) && fields.get("items").is_none_or(is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn providers_are_held_to_schemas_that_all_of_them_take() {
        let plain = json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "array",
            "items": {"type": "object", "properties": {}, "additionalProperties": false}}}, "required": ["a", "b"],
            "additionalProperties": false});
        assert!(is_plain(&plain));
        for (pointer, value) in [
            ("/required", json!(["a"])),
            ("/additionalProperties", json!(true)),
            ("/properties/a", json!({"type": "string", "minLength": 1})),
            ("/properties/b/items", json!({"type": "object"})),
            ("/properties/a", json!({"$ref": "#"})),
            ("/properties/a", json!(true)),
        ] {
            let mut changed = plain.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert!(!is_plain(&changed), "{changed}");
        }
    }

    #[test]
    fn a_fence_is_no_part_of_the_json() {
        for text in ["{}", " {}\n", "```json\n{}\n```", "```\n{}\n```\n"] {
            assert_eq!(bare(text), "{}", "{text:?}");
        }
        assert_eq!(bare("```json\n{}"), "```json\n{}");
    }
}
