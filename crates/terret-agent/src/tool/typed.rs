use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use terret_llm::{RawJson, ToolSpec};

use super::{EffectClass, Tool, ToolContext, ToolError, ToolOutput};

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
    tidy(&mut schema);
    RawJson::from(&schema)
}

/// Drops what models don't need (titles, and formats of numbers, which no validator checks), and closes every object
/// that doesn't say whether it is open.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("title").is_some_and(Value::is_string) {
                map.remove("title");
            }
            let number_format = |format: &str| format.starts_with("int") || format.starts_with("uint");
            if map.get("format").and_then(Value::as_str).is_some_and(number_format) {
                map.remove("format");
            }
            if map.contains_key("properties") {
                map.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(list) => list.iter_mut().for_each(tidy),
        _ => {}
    }
}
