//! Wires: the vendors' protocols as pure functions. Nothing here does I/O.

#[cfg(feature = "anthropic-messages")]
mod anthropic_messages;
mod body;
mod encoder;
mod failure;
#[cfg(feature = "google-generative-ai")]
mod google_generative_ai;
mod handoff;
mod lax;
#[cfg(feature = "openai-completions")]
mod openai_completions;
#[cfg(feature = "openai-responses")]
mod openai_responses;
#[cfg(any(feature = "openai-completions", feature = "openai-responses"))]
mod openai_schemas;
mod reader;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::draft::{Draft, Stop};
use crate::error::{ErrorKind, ModelError};
use crate::model::ModelSpec;
use crate::request::Request;
use crate::segments::Segments;
use crate::sse::SseEvent;

use body::BodyWriter;

pub use encoder::Encoder;
pub use failure::from_response;
pub(crate) use failure::request_id;
pub use handoff::handoff;
pub use reader::ReplyReader;

/// The name of a protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireFormat {
    /// Anthropic's Messages API: `anthropic-messages`.
    AnthropicMessages,
    /// OpenAI's Chat Completions API, which many hosts speak: `openai-completions`.
    #[default]
    OpenaiCompletions,
    /// OpenAI's Responses API: `openai-responses`.
    OpenaiResponses,
    /// Google's Generative Language API: `google-generative-ai`.
    GoogleGenerativeAi,
    /// A protocol that this crate doesn't speak: a script, somebody's own model, another program's history.
    Other(Arc<str>),
}

impl WireFormat {
    /// The name, as it stands in transcripts.
    pub fn as_str(&self) -> &str {
        match self {
            WireFormat::AnthropicMessages => "anthropic-messages",
            WireFormat::OpenaiCompletions => "openai-completions",
            WireFormat::OpenaiResponses => "openai-responses",
            WireFormat::GoogleGenerativeAi => "google-generative-ai",
            WireFormat::Other(name) => name,
        }
    }

    /// The wire of this name, if this crate speaks it and its Cargo feature, which has the same name, is on.
    pub fn wire(&self) -> Option<&'static dyn Wire> {
        match self {
            #[cfg(feature = "anthropic-messages")]
            WireFormat::AnthropicMessages => Some(&anthropic_messages::AnthropicMessages),
            #[cfg(feature = "openai-completions")]
            WireFormat::OpenaiCompletions => Some(&openai_completions::OpenaiCompletions),
            #[cfg(feature = "openai-responses")]
            WireFormat::OpenaiResponses => Some(&openai_responses::OpenaiResponses),
            #[cfg(feature = "google-generative-ai")]
            WireFormat::GoogleGenerativeAi => Some(&google_generative_ai::GoogleGenerativeAi),
            _ => None,
        }
    }
}

impl From<&str> for WireFormat {
    fn from(name: &str) -> Self {
        use WireFormat::*;
        [AnthropicMessages, OpenaiCompletions, OpenaiResponses, GoogleGenerativeAi]
            .into_iter()
            .find(|wire| wire.as_str() == name)
            .unwrap_or_else(|| Other(name.into()))
    }
}

impl fmt::Display for WireFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for WireFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for WireFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer)?.as_str().into())
    }
}

/// One vendor protocol: requests out, events in.
pub trait Wire: BodyWriter + Sync {
    /// Writes a request. The bytes up to the last message are a prefix of the next request's, cache marks aside.
    ///
    /// For the calls of a conversation that grows, an [`Encoder`] writes the same and remembers it.
    fn encode(&self, model: &ModelSpec, request: &Request) -> Result<Encoded, EncodeError> {
        encoder::encode(self, model, request)
    }

    /// A decoder for one response.
    fn decoder(&self) -> Box<dyn Decoder>;
}

/// Folds one response into a draft.
pub trait Decoder: Send {
    /// Takes one event of a stream. `Some` is the wire's own terminal; an error ends the reply, too.
    fn event(&mut self, draft: &mut Draft, event: &SseEvent<'_>) -> Result<Option<Stop>, ModelError>;

    /// Takes the body of a plain response, which isn't a stream.
    fn body(&mut self, draft: &mut Draft, body: &str) -> Result<Stop, ModelError>;

    /// The stream has ended and no terminal was seen. A wire whose terminal is optional may still know a good end.
    fn end(&mut self, _draft: &mut Draft) -> Result<Stop, ModelError> {
        Err(truncated())
    }
}

/// A request as a wire writes it. The host adds its address and the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The path below the host's base URL, with a query if the wire needs one.
    pub path: String,
    /// Headers that the wire needs, besides the content type and the key.
    pub headers: Vec<(&'static str, String)>,
    /// The JSON body.
    pub body: Segments,
}

/// Why a request can't be written for a wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The wire or the host has no way to say this.
    #[error("{wire} can't express {option}{}", .hint.map(|hint| format!(": {hint}")).unwrap_or_default())]
    Unsupported {
        /// The wire.
        wire: WireFormat,
        /// The option, by its name in [`Options`](crate::Options).
        option: &'static str,
        /// What to do instead.
        hint: Option<&'static str>,
    },
    /// This crate doesn't speak the model's wire, or was built without it.
    #[error("there is no wire of the name {0} in this program")]
    NoWire(WireFormat),
    /// The request has no message that the wire could send.
    #[error("the request has no message to answer; add a user message")]
    NoMessages,
    /// Something in the request has no JSON form.
    #[error("the request can't be written as JSON: {0}")]
    Json(String),
}

impl From<serde_json::Error> for EncodeError {
    fn from(error: serde_json::Error) -> Self {
        EncodeError::Json(error.to_string())
    }
}

impl From<EncodeError> for ModelError {
    fn from(error: EncodeError) -> Self {
        ModelError::new(ErrorKind::InvalidRequest, error.to_string())
    }
}

pub(crate) fn truncated() -> ModelError {
    ModelError::new(ErrorKind::Truncated, "the stream ended before the reply was complete")
}
