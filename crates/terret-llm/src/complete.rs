//! A call whose reply is a value of a Rust type.

use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::model::{Model, ModelSpec};
use crate::request::{Options, OutputSchema, Request, ToolSpec};
use crate::stream::{Failed, Reply};
use crate::transcript::{Message, RawJson, StopReason, UserMessage};
use crate::wire::{EncodeError, WireFormat};

/// A reply as a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Completed<T> {
    /// What the model answered.
    pub value: T,
    /// The reply that it stands in: its usage, its message for the transcript.
    pub reply: Reply,
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// The model can't be held to a schema. Nothing was sent.
    #[error(transparent)]
    Unsupported(EncodeError),
    /// The call failed.
    #[error(transparent)]
    Failed(Box<Failed>),
    /// The model stopped for another reason than that it was done: it declined, ran into a limit, or called a tool.
    #[error("the model gave no answer: it stopped because of {:?}", .reply.message().stop_reason)]
    Unfinished {
        /// What it said.
        reply: Reply,
    },
    /// What the model answered is not a value of the type.
    #[error("the answer is not what was asked for: {source}")]
    Malformed {
        /// What is wrong with it, and where.
        source: serde_json::Error,
        /// The answer.
        text: String,
        /// The reply that it stands in.
        reply: Reply,
    },
}

/// Asks for a value of type `T`: makes the schema of `T` the request's [`Options::output_schema`], and reads the reply by
/// it. Dropping the future ends the call.
///
/// The schema is [`OutputSchema::of`]. Providers want an object at its top; where `T` is none (a list, an enum, a
/// number), it is asked for as the only field of one. Whether the model is held to the schema or only told it is up to
/// the host; the reply is parsed in either case, and a Markdown fence around it is ignored.
///
/// ```
/// use terret_llm::{Message, Request, ScriptedModel, UserMessage, complete};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct City {
///     name: String,
///     inhabitants: Option<u64>,
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let model = ScriptedModel::parse(r#"{"text":"{\"name\":\"Bern\",\"inhabitants\":null}"}"#).unwrap();
/// let messages = [Message::from(UserMessage::text("What is the capital of Switzerland?", 0))].into_iter().collect();
/// let city = complete::<City>(&model, Request { messages, ..Request::default() }).await?;
/// assert_eq!(city.value.name, "Bern");
/// # Ok::<_, terret_llm::CompleteError>(())
/// # }).unwrap();
/// ```
pub async fn complete<T: JsonSchema + DeserializeOwned>(
    model: &(impl Model + ?Sized),
    mut request: Request,
) -> Result<Completed<T>, CompleteError> {
    let expected = Expected::<T>::new();
    request.options.output_schema = Some(expected.schema().clone());
    check(model.spec(), &request).map_err(CompleteError::Unsupported)?;
    let call = model.stream(request, Default::default());
    let reply = call.finish().await.map_err(|failed| CompleteError::Failed(Box::new(failed)))?;
    if reply.message().stop_reason != StopReason::Stop {
        return Err(CompleteError::Unfinished { reply });
    }
    let text = reply.message().text();
    match expected.read(&text) {
        Ok(value) => Ok(Completed { value, reply }),
        Err(source) => Err(CompleteError::Malformed { source, text, reply }),
    }
}

impl OutputSchema {
    /// The schema of a type, as all providers take it, under the type's name.
    ///
    /// It keeps to what the vendors' pages on structured outputs
    /// ([OpenAI](https://platform.openai.com/docs/guides/structured-outputs#supported-schemas),
    /// [Anthropic](https://platform.claude.com/docs/en/build-with-claude/structured-outputs),
    /// [Google](https://ai.google.dev/gemini-api/docs/structured-output)) have in common:
    ///
    /// - Objects are closed, and all their fields are required; an `Option` is one that can be null.
    /// - Limits (`minimum`, `maxLength`, `pattern` …) stand in the description, for the model to read.
    /// - `oneOf` is `anyOf`, `const` is an `enum` of one value; titles, defaults and examples are left out.
    ///
    /// Maps and untyped JSON have no such form, and most providers refuse them; use a list of pairs.
    pub fn of<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
        narrow(&mut schema);
        Self { name: name(&T::schema_name()), schema: RawJson::from(&schema) }
    }
}

/// A value of type `T` as a model is asked for it and gives it: what [`complete`] uses, for callers that make the call
/// themselves.
#[derive(Debug)]
pub struct Expected<T> {
    schema: OutputSchema,
    /// Whether the type stands in a field of an object.
    within: bool,
    of: PhantomData<fn() -> T>,
}

#[derive(Deserialize)]
struct Within<T> {
    value: T,
}

impl<T: JsonSchema + DeserializeOwned> Expected<T> {
    /// What to ask for. Makes the schema anew each time.
    #[expect(clippy::new_without_default, reason = "there is no default type")]
    pub fn new() -> Self {
        let OutputSchema { name, schema } = OutputSchema::of::<T>();
        let mut json = schema.to_value().unwrap_or_default();
        if json.get("type").is_some_and(|kind| kind == "object") && json.get("properties").is_some() {
            return Self { schema: OutputSchema { name, schema }, within: false, of: PhantomData };
        }
        // References are from the top.
        let definitions = json.as_object_mut().and_then(|json| json.remove("$defs"));
        let mut outer = json!({
            "type": "object",
            "properties": {"value": json},
            "required": ["value"],
            "additionalProperties": false,
        });
        if let (Some(definitions), Some(outer)) = (definitions, outer.as_object_mut()) {
            outer.insert("$defs".into(), definitions);
        }
        Self { schema: OutputSchema { name, schema: RawJson::from(&outer) }, within: true, of: PhantomData }
    }

    /// The schema with an object at its top, as providers want it.
    pub fn schema(&self) -> &OutputSchema {
        &self.schema
    }

    /// The value that a reply's text is. A Markdown fence around it is ignored.
    pub fn read(&self, text: &str) -> Result<T, serde_json::Error> {
        match self.within {
            true => serde_json::from_str(bare(text)).map(|Within { value }| value),
            false => serde_json::from_str(bare(text)),
        }
    }

    /// The same as untyped JSON, to be held against the [`schema`](Self::schema): [`read`](Self::read) asks no more of it
    /// than `T` needs.
    pub fn read_untyped(&self, text: &str) -> Result<Value, serde_json::Error> {
        serde_json::from_str(bare(text))
    }
}

/// Whatever `T` is.
impl<T> Clone for Expected<T> {
    fn clone(&self) -> Self {
        Self { schema: self.schema.clone(), within: self.within, of: PhantomData }
    }
}

impl OutputSchema {
    /// Whether requests to this model can carry the schema, beside these tools.
    ///
    /// On `google-generative-ai` never beside tools: models before Gemini 3 refuse a request that has both
    /// ([structured output with tools](https://ai.google.dev/gemini-api/docs/structured-output)), and an id doesn't tell
    /// which model it is.
    pub fn is_supported_by(&self, model: &ModelSpec, tools: &Arc<[ToolSpec]>) -> bool {
        if model.wire == WireFormat::GoogleGenerativeAi && !tools.is_empty() {
            return false;
        }
        let options = Options { output_schema: Some(self.clone()), ..Options::default() };
        check(model, &Request { tools: tools.clone(), options, ..Request::default() }).is_ok()
    }
}

/// Whether the model's wire can say it, found out by a request that is small whatever the transcript.
fn check(spec: &ModelSpec, request: &Request) -> Result<(), EncodeError> {
    let Some(wire) = spec.wire.wire() else { return Ok(()) };
    let options = Options { output_schema: request.options.output_schema.clone(), ..Options::default() };
    let messages = [Message::from(UserMessage::text(".", 0))].into_iter().collect();
    match wire.encode(spec, &Request { system: None, messages, tools: request.tools.clone(), options }) {
        Err(error @ EncodeError::Unsupported { .. }) => Err(error),
        // Anything else is for the call itself to report.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Without the Markdown fence that models like to put around JSON.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    fenced.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner))
}

/// A name as providers take it: letters, digits, `_` and `-`, at most 64.
fn name(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(legal).collect();
    if name.is_empty() { "answer".into() } else { name }
}

/// Keywords that say no more than what a model could read.
const LIMITS: &[&str] = &[
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// Formats of strings that all providers know.
const FORMATS: &[&str] = &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Formats of numbers, which repeat what their limits say, or Rust's own type.
const OF_NUMBERS: &[&str] = &["int", "uint", "float", "double"];

fn narrow(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    for keyword in ["title", "default", "examples", "deprecated", "readOnly", "writeOnly"] {
        schema.remove(keyword);
    }
    if let Some(value) = schema.remove("const") {
        schema.insert("enum".into(), json!([value]));
    }
    if let Some(variants) = schema.remove("oneOf") {
        schema.insert("anyOf".into(), variants);
    }
    describe_limits(schema);
    close(schema);
    for (keyword, value) in schema.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "$defs", Value::Object(map)) => map.values_mut().for_each(narrow),
            ("anyOf" | "allOf" | "prefixItems", Value::Array(list)) => list.iter_mut().for_each(narrow),
            ("items" | "additionalProperties", value) => narrow(value),
            _ => {}
        }
    }
    // Nothing may stand beside a reference.
    if schema.contains_key("$ref") {
        schema.retain(|keyword, _| keyword.starts_with('$'));
    }
}

/// Moves limits to the description.
fn describe_limits(schema: &mut Map<String, Value>) {
    let mut said = Vec::new();
    for keyword in LIMITS {
        let Some(value) = schema.get(*keyword) else { continue };
        let format = value.as_str().filter(|_| *keyword == "format");
        if format.is_some_and(|format| FORMATS.contains(&format)) {
            continue;
        }
        if format.is_none_or(|format| !OF_NUMBERS.contains(&format.trim_end_matches(|c: char| c.is_ascii_digit()))) {
            said.push(format!("{keyword}: {value}"));
        }
        schema.remove(*keyword);
    }
    if said.is_empty() {
        return;
    }
    let said = said.join(", ");
    let description = match schema.get("description").and_then(Value::as_str) {
        Some(description) => format!("{description} ({said})"),
        None => said,
    };
    schema.insert("description".into(), Value::String(description));
}

/// Closes an object, and requires all of its fields.
fn close(schema: &mut Map<String, Value>) {
    let is_object = schema.get("type").is_some_and(|kind| kind == "object");
    let names: Option<Vec<Value>> = schema
        .get("properties")
        .and_then(Value::as_object)
        .map(|properties| properties.keys().map(|name| Value::String(name.clone())).collect());
    if is_object || names.is_some() {
        schema.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    let Some(names) = names else { return };
    // What is required by itself stands in the order of the type's fields, which some models write them in.
    let required = schema.entry("required").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(required) = required.as_array_mut() {
        let missing: Vec<Value> = names.into_iter().filter(|name| !required.contains(name)).collect();
        required.extend(missing);
    }
}
