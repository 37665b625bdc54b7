use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use terret_llm::{RawJson, ToolSpec};

use super::{EffectClass, Tool, ToolContext, ToolError, ToolOutput};

type Discover = dyn Fn(String) -> BoxFuture<'static, Option<ToolOutput>> + Send + Sync;
type Call = dyn Fn(Value, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// A tool made of an async function. See [`tool`].
#[derive(Clone)]
pub struct FnTool {
    spec: ToolSpec,
    effect: EffectClass,
    exclusive: bool,
    time_limit: Option<Duration>,
    /// Whether the type takes what the schema lets pass: an integer beyond 64 bits, say, or one written as `1.0`.
    check: fn(&Value) -> Result<(), String>,
    call: Arc<Call>,
    discover: Option<Arc<Discover>>,
}

/// Makes a tool of an async function whose arguments are a struct with `Deserialize` and `JsonSchema`.
///
/// The schema that the model is sent is derived from the struct; doc comments become descriptions. Fields that the
/// struct doesn't have are rejected. The class is [`EffectClass::AtMostOnce`] until it is said otherwise.
///
/// ```
/// # use terret_agent::{EffectClass, tool};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// let add = tool("add", "Adds two integers.", |add: Add, _context| async move { Ok((add.a + add.b).to_string()) })
///     .effect(EffectClass::ReadOnly);
/// ```
pub fn tool<A, F, R, O>(name: impl Into<String>, description: impl Into<String>, function: F) -> FnTool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, ToolError>> + Send + 'static,
    O: Into<ToolOutput>,
{
    let call = move |arguments: Value, context: ToolContext| match serde_json::from_value(arguments) {
        Ok(arguments) => function(arguments, context).map(|output| output.map(Into::into)).boxed(),
        Err(error) => std::future::ready(Err(ToolError::from(error))).boxed(),
    };
    let check = |arguments: &Value| A::deserialize(arguments).map(drop).map_err(|error| error.to_string());
    FnTool {
        spec: ToolSpec { name: name.into(), description: description.into(), parameters: schema::<A>() },
        effect: EffectClass::AtMostOnce,
        exclusive: false,
        time_limit: None,
        check,
        call: Arc::new(call),
        discover: None,
    }
}

impl FnTool {
    /// Says whether a call may be repeated.
    #[must_use]
    pub fn effect(mut self, effect: EffectClass) -> Self {
        self.effect = effect;
        self
    }

    /// Says that a call must not run beside other calls of the same reply.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }

    /// Says how long a call may run.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Tells what an earlier attempt under a key did, if that can be told. See [`Tool::discover`].
    #[must_use]
    pub fn discover<F, R>(mut self, function: F) -> Self
    where
        F: Fn(String) -> R + Send + Sync + 'static,
        R: Future<Output = Option<ToolOutput>> + Send + 'static,
    {
        self.discover = Some(Arc::new(move |key| function(key).boxed()));
        self
    }
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        self.effect
    }

    fn exclusive(&self) -> bool {
        self.exclusive
    }

    fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    fn check(&self, arguments: &Value) -> Result<(), String> {
        (self.check)(arguments)
    }

    fn call(&self, arguments: Value, context: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        (self.call)(arguments, context)
    }

    fn discover(&self, key: &str) -> BoxFuture<'static, Option<ToolOutput>> {
        self.discover.as_ref().map_or_else(|| std::future::ready(None).boxed(), |discover| discover(key.to_owned()))
    }
}

impl std::fmt::Debug for FnTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FnTool").field("spec", &self.spec).field("effect", &self.effect).finish_non_exhaustive()
    }
}

/// The schema of a type as models are sent it: self-contained, without titles, closed to unknown fields.
fn schema<A: JsonSchema>() -> RawJson {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    tidy(&mut schema, false);
    RawJson::from(&schema)
}

/// Drops what models don't need (titles, and formats of numbers, which no validator checks), and closes every object
/// that doesn't say whether it is open.
///
/// An enum that is flattened into a struct makes alternatives beside the struct's own fields. Each of the two would refuse
/// the other's fields, so that it is the whole that is closed.
fn tidy(schema: &mut Value, is_part: bool) {
    const ALTERNATIVES: [&str; 3] = ["oneOf", "anyOf", "allOf"];
    match schema {
        Value::Object(map) => {
            if map.get("title").is_some_and(Value::is_string) {
                map.remove("title");
            }
            let number_format = |format: &str| format.starts_with("int") || format.starts_with("uint");
            if map.get("format").and_then(Value::as_str).is_some_and(number_format) {
                map.remove("format");
            }
            let has_fields = map.contains_key("properties");
            let has_parts = has_fields && ALTERNATIVES.iter().any(|keyword| map.contains_key(*keyword));
            let closed = Value::Bool(false);
            if is_part {
                map.retain(|keyword, value| !(keyword == "additionalProperties" && *value == closed));
            } else if has_parts {
                map.remove("additionalProperties");
                map.entry("unevaluatedProperties").or_insert(closed);
            } else if has_fields {
                map.entry("additionalProperties").or_insert(closed);
            }
            for (keyword, value) in map {
                tidy(value, (has_parts || is_part) && ALTERNATIVES.contains(&keyword.as_str()));
            }
        }
        // Alternatives are parts, each of them.
        Value::Array(list) => list.iter_mut().for_each(|value| tidy(value, is_part)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Change {
        path: String,
        #[serde(flatten)]
        what: What,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "do", rename_all = "lowercase")]
    #[expect(dead_code, reason = "only its schema matters")]
    enum What {
        Write { content: String },
        Delete,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Wrapped {
        path: String,
        #[serde(flatten)]
        what: Outside,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    enum Outside {
        Write { content: String },
        Delete { force: bool },
    }

    #[test]
    fn a_flattened_enum_has_a_schema_that_takes_its_values_and_no_others() {
        let valid = |schema: &RawJson, value: Value| {
            let schema: Value = serde_json::from_str(schema.as_str()).unwrap();
            jsonschema::validator_for(&schema).unwrap().is_valid(&value)
        };
        let tagged = schema::<Change>();
        assert!(valid(&tagged, json!({"path": "a", "do": "write", "content": "x"})));
        assert!(valid(&tagged, json!({"path": "a", "do": "delete"})));
        for refused in [
            json!({"path": "a", "do": "write"}),
            json!({"do": "delete"}),
            json!({"path": "a"}),
            json!({"path": "a", "do": "delete", "other": 1}),
        ] {
            assert!(!valid(&tagged, refused.clone()), "{refused} by {}", tagged.as_str());
        }
        let wrapped = schema::<Wrapped>();
        assert!(valid(&wrapped, json!({"path": "a", "Delete": {"force": true}})));
        for refused in [
            json!({"path": "a"}),
            json!({"path": "a", "Delete": {"force": true, "other": 1}}),
            json!({"path": "a", "Delete": {"force": true}, "other": 1}),
        ] {
            assert!(!valid(&wrapped, refused.clone()), "{refused} by {}", wrapped.as_str());
        }
    }
}
