use std::fmt::Write as _;

use serde_json::Value;
use terret_llm::{Arguments, ToolSpec};

use crate::limit::shortened;

/// Checks arguments against the very schema that was sent to the model.
pub(super) struct Validator {
    schema: jsonschema::Validator,
}

/// A tool's argument schema that isn't valid JSON Schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the argument schema of tool {tool:?} is invalid: {message}")]
pub struct InvalidSchema {
    /// The tool's name.
    pub tool: String,
    /// What is wrong.
    pub message: String,
}

/// Arguments that don't fit, with every violation and what was received. The model is shown the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{explanation}")]
pub struct Rejected {
    explanation: String,
}

/// How much of received arguments is echoed, in characters.
const ECHO: usize = 2_000;

/// How many violations are listed.
const LISTED: usize = 20;

impl Validator {
    pub(super) fn new(spec: &ToolSpec) -> Result<Self, InvalidSchema> {
        let invalid = |message: String| InvalidSchema { tool: spec.name.clone(), message };
        let schema = spec.parameters.to_value().map_err(|error| invalid(error.to_string()))?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(invalid("its \"type\" must be \"object\"".into()));
        }
        let schema = jsonschema::validator_for(&schema).map_err(|error| invalid(error.to_string()))?;
        Ok(Self { schema })
    }

    /// The arguments as a value, or everything that is wrong with them.
    pub(super) fn validate(&self, tool: &str, arguments: &Arguments) -> Result<Value, Rejected> {
        let value: Value = match arguments.parse() {
            Ok(value) => value,
            Err(error) => return Err(rejected(tool, arguments, &[format!("not a JSON object: {error}")])),
        };
        let problems = violations(&self.schema, &value, "the arguments");
        if problems.is_empty() { Ok(value) } else { Err(rejected(tool, arguments, &problems)) }
    }
}

/// Where a value breaks a schema, by JSON pointer, and how. `whole` is what the value itself is called.
pub(crate) fn violations(schema: &jsonschema::Validator, value: &Value, whole: &str) -> Vec<String> {
    let violation = |error: jsonschema::ValidationError<'_>| {
        let pointer = error.instance_path().to_string();
        let place = if pointer.is_empty() { whole } else { &pointer };
        format!("{place}: {}", shortened(&error.to_string(), 300))
    };
    schema.iter_errors(value).map(violation).collect()
}

/// Violations and what was received, for the model.
pub(crate) fn explained(what: &str, problems: &[String], received: &str) -> String {
    let mut explanation = format!("{what}\n");
    for problem in problems.iter().take(LISTED) {
        let _ = writeln!(explanation, "- {problem}");
    }
    if let Some(more) = problems.len().checked_sub(LISTED).filter(|more| *more > 0) {
        let _ = writeln!(explanation, "- and {more} more");
    }
    let _ = write!(explanation, "Received: {}", shortened(received, ECHO));
    explanation
}

pub(super) fn rejected(tool: &str, arguments: &Arguments, problems: &[String]) -> Rejected {
    let what = format!("The arguments of {tool} were rejected, and the tool was not run:");
    Rejected { explanation: explained(&what, problems, arguments.as_str()) }
}
