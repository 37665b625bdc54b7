//! terret-llm
mod draft;
mod endpoint;
mod error;
mod hosts;
mod http_model;
mod lossy;
mod model;
mod money;
mod provider;
mod request;
mod retry;
pub mod scripted;
mod sse;
mod stream;
mod transcript;
pub mod transport;
pub mod wire;

pub use draft::{Draft, Stop};
pub use endpoint::{Auth, AuthScheme, BaseUrl, Endpoint, InvalidBaseUrl};
pub use error::{ErrorKind, ModelError};
pub use hosts::{Host, hosts};
pub use http_model::{HttpModel, Limits};
pub use model::{CallIdRule, Compat, Model, ModelSpec, SchemaSupport, ThinkingSwitch};
pub use money::{Money, Price, Rates, Tier};
pub use provider::{InvalidModelRef, ModelRef, Overrides, ResolveError, Resolved, resolve};
pub use request::{CacheRetention, Effort, Options, OutputSchema, Request, ToolChoice, ToolSpec};
pub use retry::{Retry, RetryPolicy};
pub use scripted::{ScriptedModel, ScriptedReply};
pub use sse::{SseEvent, SseParser};
pub use stream::{BlockKind, Failed, Reply, ReplyStream, StreamEvent};
pub use transcript::{
    Arguments, ArgumentsError, AssistantMessage, Block, Content, Image, InvalidBase64, Message, Opaque, RawJson,
    StopReason, Text, Thinking, ToolCall, ToolResultMessage, Transcript, Usage, UserMessage,
};
pub use transport::HttpTransport;
