//! What a model is asked: a system prompt, a transcript, tools, and options.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use crate::effort::Effort;
use crate::transcript::{RawJson, Transcript};

/// One model call's input. Cheap to clone: its parts are shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// The conversation so far.
    pub messages: Transcript,
    /// The tools that the model may call, in the order in which they are sent.
    #[serde(skip_serializing_if = "no_tools")]
    pub tools: Arc<[ToolSpec]>,
    /// Everything else.
    #[serde(skip_serializing_if = "is_default")]
    pub options: Options,
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name by which the model calls it: letters, digits, `_` and `-`, at most 64 characters.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: RawJson,
}

/// Options of a model call. What is not set is left to the provider.
///
/// A wire that can't express an option refuses the request with
/// [`EncodeError::Unsupported`](crate::wire::EncodeError::Unsupported); nothing is dropped silently. Only `cache` and
/// `cache_key` are hints on `openai-completions`: a host that has no word for them caches as it does without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Options {
    /// The most tokens that the reply may have, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Nucleus sampling: the share of probability mass to sample from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// The number of candidate tokens to sample from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Texts at which the model stops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Seed for repeatable sampling, where the provider has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Which tools the model may or must call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether one reply may hold several tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// How much the model should reason. A level that the model doesn't have becomes its nearest one
    /// ([`ModelSpec::effective_effort`](crate::ModelSpec::effective_effort)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// How long the provider should keep the prompt cached.
    #[serde(skip_serializing_if = "is_default")]
    pub cache: CacheRetention,
    /// A stable key for the conversation, so that a provider can route its requests to a warm cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<String>,
    /// The JSON Schema that the reply's text has to satisfy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<OutputSchema>,
}

/// Which tools a model may or must call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No calls, although tools are listed.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Tool(String),
}

/// How long a provider should keep the prompt cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CacheRetention {
    /// No cache marks.
    None,
    /// The provider's usual time (five minutes, at Anthropic).
    #[default]
    Short,
    /// The provider's long time (an hour, at Anthropic).
    Long,
}

/// The schema that a reply's text has to satisfy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSchema {
    /// A short name: letters, digits, `_` and `-`, at most 64 characters.
    pub name: String,
    /// The JSON Schema.
    pub schema: RawJson,
}

fn no_tools(tools: &Arc<[ToolSpec]>) -> bool {
    tools.is_empty()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
