//! From a request to the body of `POST /chat/completions`.
//!
//! `messages` stands last, and what becomes of a message depends on nothing after it, cache marks aside: the body up to
//! its last message is a prefix of the next request's.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::messages::{CacheControl, System};
use crate::model::{Compat, ModelSpec, SchemaSupport, ThinkingSwitch};
use crate::request::{CacheRetention, Effort, OutputSchema, Request, ToolChoice, ToolSpec};
use crate::transcript::RawJson;
use crate::wire::body::Head;
use crate::wire::openai_schemas::{self as schemas, Parameters};
use crate::wire::{EncodeError, WireFormat};

/// OpenAI refuses longer cache keys, in characters.
const LONGEST_KEY: usize = 64;

pub(super) fn head(model: &ModelSpec, request: &Request) -> Result<Head, EncodeError> {
    check(&model.compat, request)?;
    let effort = model.effort_to_send(request.options.effort)?;
    let key = request.options.cache_key.clone().filter(|key| key.bytes().all(|byte| byte.is_ascii_graphic()));
    let headers = model.compat.affinity_header.zip(key).into_iter().collect();
    Head::new("/chat/completions".into(), headers, &Body { model, request, effort })
}

/// What the host, or the wire, has no way to say.
fn check(compat: &Compat, request: &Request) -> Result<(), EncodeError> {
    let options = &request.options;
    let no_tools = request.tools.is_empty();
    let list_tools = "the request lists no tools";
    for (option, is_unsupported, hint) in [
        ("top_k", options.top_k.is_some() && !compat.top_k, "use top_p"),
        (
            "effort",
            options.effort.is_some() && !compat.reasoning_effort && compat.thinking_switch.is_none(),
            "this host has no control of reasoning",
        ),
        (
            "output_schema",
            options.output_schema.is_some() && compat.output_schema == SchemaSupport::None,
            "describe the form in the prompt",
        ),
        ("tool_choice", options.tool_choice.is_some() && no_tools, list_tools),
        ("parallel_tool_calls", options.parallel_tool_calls.is_some() && no_tools, list_tools),
    ] {
        if is_unsupported {
            return Err(EncodeError::Unsupported { wire: WireFormat::OpenaiCompletions, option, hint: Some(hint) });
        }
    }
    Ok(())
}

/// The body. Its fields stand in this order, from what changes least to what grows.
struct Body<'a> {
    model: &'a ModelSpec,
    request: &'a Request,
    effort: Option<Effort>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Body { model, request, effort } = self;
        let (compat, options) = (&model.compat, &request.options);
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", &model.id)?;
        body.serialize_entry("stream", &true)?;
        if compat.stream_usage {
            body.serialize_entry("stream_options", &Single("include_usage", true))?;
        }
        let limit = if compat.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        entry(&mut body, limit, options.max_output_tokens)?;
        entry(&mut body, "temperature", options.temperature)?;
        entry(&mut body, "top_p", options.top_p)?;
        entry(&mut body, "top_k", options.top_k)?;
        entry(&mut body, "stop", Some(&options.stop).filter(|stop| !stop.is_empty()))?;
        entry(&mut body, compat.seed_field, options.seed)?;
        if let Some(effort) = effort {
            reasoning(&mut body, compat, *effort)?;
        }
        // Hosts cache by themselves what they cache, so that `CacheRetention::None` and `Short` need no word, and a host
        // that doesn't know the key or the retention only caches less well.
        if compat.prompt_cache_key {
            entry(&mut body, "prompt_cache_key", options.cache_key.as_deref().map(|key| cut(key, LONGEST_KEY)))?;
        }
        if compat.prompt_cache_retention && options.cache == CacheRetention::Long {
            body.serialize_entry("prompt_cache_retention", "24h")?;
        }
        entry(&mut body, "response_format", options.output_schema.as_ref().map(|schema| Format { schema, compat }))?;
        if !request.tools.is_empty() || compat.tools_with_history && request.messages.call_count() > 0 {
            body.serialize_entry("tools", &Tools(&request.tools))?;
        }
        entry(&mut body, "tool_choice", options.tool_choice.as_ref().map(Choice))?;
        entry(&mut body, "parallel_tool_calls", options.parallel_tool_calls)?;
        let system = request.system.as_deref().filter(|system| !system.trim().is_empty());
        let mark = CacheControl::of(compat, options.cache);
        let system = system.map(|text| System { text, compat, mark });
        body.serialize_entry("messages", system.as_slice())?;
        body.end()
    }
}

fn entry<M: SerializeMap>(map: &mut M, key: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(key, &value))
}

/// By the [reference](https://platform.openai.com/docs/api-reference/chat/create), `reasoning_effort` has a word for each
/// level; not every model takes every one. A host with nothing but a switch takes all levels but off as on.
fn reasoning<M: SerializeMap>(body: &mut M, compat: &Compat, effort: Effort) -> Result<(), M::Error> {
    let on = effort != Effort::Off;
    let word = if on { effort.as_str() } else { "none" };
    match compat.thinking_switch {
        None => {}
        Some(ThinkingSwitch::Thinking) => {
            body.serialize_entry("thinking", &Single("type", if on { "enabled" } else { "disabled" }))?;
        }
        Some(ThinkingSwitch::EnableThinking) => body.serialize_entry("enable_thinking", &on)?,
        Some(ThinkingSwitch::ChatTemplate) => {
            body.serialize_entry("chat_template_kwargs", &Single("enable_thinking", on))?;
        }
        Some(ThinkingSwitch::Reasoning) => return body.serialize_entry("reasoning", &Single("effort", word)),
    }
    match compat.reasoning_effort && (on || compat.thinking_switch.is_none()) {
        true => body.serialize_entry("reasoning_effort", word),
        false => Ok(()),
    }
}

fn cut(text: &str, longest: usize) -> &str {
    text.char_indices().nth(longest).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// An object of one field.
pub(super) struct Single<T>(pub(super) &'static str, pub(super) T);

impl<T: Serialize> Serialize for Single<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, &self.1)])
    }
}

struct Tools<'a>(&'a [ToolSpec]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|ToolSpec { name, description, parameters }| Tool {
            kind: "function",
            function: FunctionSpec { name, description, parameters: Parameters(parameters) },
        }))
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: FunctionSpec<'a>,
}

#[derive(Serialize)]
struct FunctionSpec<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: Parameters<'a>,
}

struct Choice<'a>(&'a ToolChoice);

impl Serialize for Choice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ToolChoice::Auto => "auto".serialize(serializer),
            ToolChoice::None => "none".serialize(serializer),
            ToolChoice::Required => "required".serialize(serializer),
            ToolChoice::Tool(name) => {
                let mut choice = serializer.serialize_map(Some(2))?;
                choice.serialize_entry("type", "function")?;
                choice.serialize_entry("function", &Single("name", name))?;
                choice.end()
            }
        }
    }
}

struct Format<'a> {
    schema: &'a OutputSchema,
    compat: &'a Compat,
}

impl Serialize for Format<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct JsonSchema<'a> {
            name: &'a str,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            strict: bool,
            schema: &'a RawJson,
        }
        let OutputSchema { name, schema } = self.schema;
        let strict = self.compat.output_schema == SchemaSupport::Strict && schemas::is_strict(schema);
        let mut format = serializer.serialize_map(Some(2))?;
        format.serialize_entry("type", "json_schema")?;
        format.serialize_entry("json_schema", &JsonSchema { name, strict, schema })?;
        format.end()
    }
}
