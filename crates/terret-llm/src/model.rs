//! A model: something that can be asked, and the facts about it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::effort::{Effort, Efforts};
use crate::price::Price;
use crate::request::Request;
use crate::stream::ReplyStream;
use crate::wire::{EncodeError, WireFormat};

/// Something that answers requests: a provider over HTTP, a script, your own.
pub trait Model: Send + Sync {
    /// The facts about this model.
    fn spec(&self) -> &Arc<ModelSpec>;

    /// Starts a model call. Every failure, also of the set-up, is the stream's last item; the call ends within 100 ms
    /// after `cancel`, and when the stream is dropped.
    fn stream(&self, request: Request, cancel: CancellationToken) -> ReplyStream;
}

impl<M: Model + ?Sized> Model for Arc<M> {
    fn spec(&self) -> &Arc<ModelSpec> {
        (**self).spec()
    }

    fn stream(&self, request: Request, cancel: CancellationToken) -> ReplyStream {
        (**self).stream(request, cancel)
    }
}

/// The facts about a model that the layers above need.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelSpec {
    /// Who is asked, as in `provider/model`.
    pub provider: Arc<str>,
    /// The model's id at that provider.
    pub id: Arc<str>,
    /// The protocol it speaks.
    pub wire: WireFormat,
    /// The most tokens that fit, input and output together.
    pub context_window: Option<u32>,
    /// The most tokens that the input can have, where that is less than the window.
    pub max_input: Option<u32>,
    /// The most tokens that a reply can have.
    pub max_output: Option<u32>,
    /// Whether it accepts images.
    pub images: bool,
    /// The levels of reasoning that it can be asked for, where they are known.
    pub efforts: Option<Efforts>,
    /// What it costs, where that is known.
    pub price: Option<Price>,
    /// What its host deviates in from the wire.
    pub compat: Compat,
}

impl ModelSpec {
    /// A model of which nothing else is known.
    pub fn new(provider: impl Into<Arc<str>>, id: impl Into<Arc<str>>, wire: WireFormat) -> Self {
        Self {
            provider: provider.into(),
            id: id.into(),
            wire,
            context_window: None,
            max_input: None,
            max_output: None,
            images: true,
            efforts: None,
            price: None,
            compat: Compat::default(),
        }
    }

    /// The effort that a request is sent with if it wants `wanted`: the nearest one that the model has, searched upward
    /// first ([`Efforts::nearest`]), or `wanted` itself where the model's levels aren't known.
    ///
    /// `None` if the model can't be asked to reason; a request that wants it is refused.
    pub fn effective_effort(&self, wanted: Effort) -> Option<Effort> {
        self.efforts.map_or(Some(wanted), |efforts| efforts.nearest(wanted))
    }

    /// The effort that a wire has to express. A model that doesn't reason needs no word to stay so.
    pub(crate) fn effort_to_send(&self, wanted: Option<Effort>) -> Result<Option<Effort>, EncodeError> {
        let Some(wanted) = wanted else { return Ok(None) };
        let refused = |hint| EncodeError::Unsupported { wire: self.wire.clone(), option: "effort", hint: Some(hint) };
        match self.efforts {
            Some(efforts) if efforts == Efforts::default() => {
                Err(refused("this model reasons as it likes; leave it out"))
            }
            Some(efforts) if !efforts.reasons() && wanted == Effort::Off => Ok(None),
            _ => {
                self.effective_effort(wanted).map(Some).ok_or_else(|| refused("this model can't reason; leave it out"))
            }
        }
    }
}

/// What a host of a wire deviates in. The default is the wire as its vendor documents it, without what only the vendor's
/// own models take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compat {
    /// `openai-completions`: the field that limits the output is `max_completion_tokens` (else `max_tokens`).
    pub max_completion_tokens: bool,
    /// `openai-completions`: the system prompt goes in the role `developer` (else `system`).
    pub developer_role: bool,
    /// `openai-completions`: the host knows `stream_options.include_usage`. Mistral refuses it.
    pub stream_usage: bool,
    /// `openai-completions`: the host knows `prompt_cache_key`.
    pub prompt_cache_key: bool,
    /// `openai-completions`: the host knows `prompt_cache_retention`.
    pub prompt_cache_retention: bool,
    /// `openai-completions`: the header in which the cache key goes to hosts that route by it: `x-grok-conv-id` at xAI,
    /// `x-session-affinity` at Fireworks.
    pub affinity_header: Option<&'static str>,
    /// `openai-completions`: the host caches what Anthropic's `cache_control` marks, and nothing else; OpenRouter does,
    /// for Anthropic's models.
    pub cache_control: bool,
    /// `openai-completions`: the host knows `reasoning_effort`.
    pub reasoning_effort: bool,
    /// `openai-completions`: how the host switches reasoning on and off, if not by `reasoning_effort` alone.
    pub thinking_switch: Option<ThinkingSwitch>,
    /// `openai-completions`: the field in which earlier reasoning text goes back to the host, if it wants it.
    pub reasoning_field: Option<&'static str>,
    /// `openai-completions`: the reasoning field stands in every reply, if need be empty. DeepSeek and Moonshot refuse
    /// replies with tool calls that lack it, while thinking is on.
    pub reasoning_field_always: bool,
    /// `openai-completions`: the content of a reply that holds nothing but tool calls can be null (else it is `""`).
    pub null_content: bool,
    /// `openai-completions`: a tool result carries the tool's name.
    pub tool_result_name: bool,
    /// `openai-completions`: a user message can't stand directly after a tool result, so that a reply goes between.
    pub reply_after_tool_result: bool,
    /// `openai-completions`: a conversation with tool calls needs `tools`, if need be an empty list. LiteLLM in front of
    /// Anthropic wants it.
    pub tools_with_history: bool,
    /// `openai-completions`: the host knows `top_k`, which the reference doesn't. OpenRouter, vLLM, llama.cpp and most
    /// hosts of open models do.
    pub top_k: bool,
    /// `openai-completions`: the field of the seed. Mistral's is `random_seed`.
    pub seed_field: &'static str,
    /// `openai-completions`: what the host knows of `response_format`.
    pub output_schema: SchemaSupport,
    /// `openai-responses`: the model can hand out its reasoning encrypted. OpenAI refuses the question
    /// (`include: ["reasoning.encrypted_content"]`) for models that don't reason.
    pub encrypted_reasoning: bool,
    /// `anthropic-messages`: the host takes cache marks (`cache_control`).
    pub cache_marks: bool,
    /// The longest tool-call id that the host takes, and whether it must be exactly that long (Mistral: nine).
    pub call_id: CallIdRule,
}

/// How a host of `openai-completions` switches reasoning on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThinkingSwitch {
    /// `"thinking": {"type": "enabled"}`: DeepSeek, Z.ai, Moonshot.
    Thinking,
    /// `"enable_thinking": true`: Alibaba.
    EnableThinking,
    /// `"chat_template_kwargs": {"enable_thinking": true}`: vLLM, SGLang, llama.cpp.
    ChatTemplate,
    /// `"reasoning": {"effort": "high"}`: OpenRouter.
    Reasoning,
}

/// What a host of `openai-completions` knows of `"response_format": {"type": "json_schema", …}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaSupport {
    /// Nothing.
    None,
    /// The schema, without `strict`.
    Plain,
    /// The schema, and `strict`, which holds the model to it if the schema is of the strict kind.
    Strict,
}

/// Which tool-call ids a host takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallIdRule {
    /// `[A-Za-z0-9_-]`, at most this many.
    AtMost(usize),
    /// `[A-Za-z0-9]`, exactly this many.
    Exactly(usize),
}

impl Default for Compat {
    fn default() -> Self {
        Self {
            max_completion_tokens: false,
            developer_role: false,
            stream_usage: true,
            prompt_cache_key: false,
            prompt_cache_retention: false,
            affinity_header: None,
            cache_control: false,
            reasoning_effort: true,
            thinking_switch: None,
            reasoning_field: None,
            reasoning_field_always: false,
            null_content: true,
            tool_result_name: false,
            reply_after_tool_result: false,
            tools_with_history: false,
            top_k: false,
            seed_field: "seed",
            output_schema: SchemaSupport::Strict,
            encrypted_reasoning: true,
            cache_marks: true,
            call_id: CallIdRule::AtMost(64),
        }
    }
}
