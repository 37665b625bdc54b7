//! Many LLM APIs behind one set of transcript types and one streaming call.
//!
//! Three types are central. A [`Message`] is one entry of a conversation, the same for every provider. A [`Model`] is
//! something that can be asked: over HTTP ([`connect`]), by a script ([`ScriptedModel`]), your own. A [`ReplyStream`] is
//! a running call: provisional fragments, and then exactly one end, a complete [`Reply`] or a typed [`Failed`].
//!
//! ```no_run
//! use terret_llm::{Message, Model as _, Request, UserMessage, connect};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let model = connect("anthropic/claude-sonnet-4-5")?;
//! let messages = [Message::from(UserMessage::text("Say hello.", 0))].into_iter().collect();
//! let request = Request { messages, ..Request::default() };
//! let reply = model.stream(request, Default::default()).finish().await?;
//! println!("{}", reply.message().text());
//! # Ok(())
//! # }
//! ```
//!
//! Tests need neither a key nor a network: a [`ScriptedModel`] replies what you write down, and a
//! [cassette](transport::cassette) what a provider once replied.
//!
//! A [`Catalog`] holds what models can take and what they cost. Beneath: [`wire`] holds the vendors' protocols as pure
//! functions, [`transport`] is what carries their bytes, [`hosts()`] who serves them. Nothing here runs a tool, loops or
//! keeps a session.

// What the wires share has fewer users where some of them are left out.
#![cfg_attr(
    not(all(
        feature = "anthropic-messages",
        feature = "openai-completions",
        feature = "openai-responses",
        feature = "google-generative-ai",
        feature = "http",
    )),
    allow(dead_code, unused_imports)
)]

mod catalog;
#[cfg(feature = "schema")]
mod complete;
mod draft;
mod effort;
mod endpoint;
mod error;
mod hosts;
mod http_model;
#[cfg(feature = "http")]
mod listing;
#[cfg(feature = "http")]
mod local;
mod lossy;
mod model;
mod money;
mod partial_json;
mod price;
mod provider;
mod request;
mod retry;
pub mod scripted;
mod segments;
mod sse;
mod stream;
mod transcript;
pub mod transport;
pub mod wire;

pub use catalog::{Catalog, CatalogError, ModelFacts};
#[cfg(feature = "schema")]
pub use complete::{CompleteError, Completed, Expected, complete};
pub use draft::{Draft, Stop};
pub use effort::{Effort, Efforts, InvalidEffort};
pub use endpoint::{Auth, AuthScheme, BaseUrl, Endpoint, InvalidBaseUrl};
pub use error::{ErrorKind, ModelError};
pub use hosts::{Host, OtherWire, hosts};
pub use http_model::{HttpModel, Limits};
#[cfg(feature = "http")]
pub use listing::{ListedModel, list_models};
#[cfg(feature = "http")]
pub use local::{LocalModel, LocalServer, local_servers};
pub use model::{CallIdRule, Compat, Model, ModelSpec, SchemaSupport, ThinkingSwitch};
pub use money::Money;
pub use partial_json::{PartialJson, PartialJsonError};
pub use price::{Price, Rates, Tier};
#[cfg(feature = "http")]
pub use provider::{ConnectError, connect};
pub use provider::{InvalidModelRef, ModelRef, Overrides, ResolveError, Resolved, resolve};
pub use request::{CacheRetention, Options, OutputSchema, Request, ToolChoice, ToolSpec};
pub use retry::{Retry, RetryPolicy};
pub use scripted::{ScriptedModel, ScriptedReply};
pub use segments::Segments;
pub use sse::{SseEvent, SseParser};
pub use stream::{BlockKind, Failed, Reply, ReplyStream, StreamEvent};
pub use transcript::{
    Arguments, ArgumentsError, AssistantMessage, Block, Content, Image, InvalidBase64, Message, Opaque, RawJson,
    StopReason, Text, Thinking, ToolCall, ToolResultMessage, Transcript, Usage, UserMessage,
};
#[cfg(feature = "http")]
pub use transport::HttpTransport;
