//! terret-llm
mod draft;
mod error;
mod lossy;
mod model;
mod money;
mod request;
pub mod scripted;
mod sse;
mod stream;
mod transcript;
pub mod wire;

pub use draft::{Draft, Stop};
pub use error::{ErrorKind, ModelError};
pub use model::{CallIdRule, Compat, Model, ModelSpec, SchemaSupport, ThinkingSwitch};
pub use money::{Money, Price, Rates, Tier};
pub use request::{CacheRetention, Effort, Options, OutputSchema, Request, ToolChoice, ToolSpec};
pub use scripted::{ScriptedModel, ScriptedReply};
pub use sse::{SseEvent, SseParser};
pub use stream::{BlockKind, Failed, Reply, ReplyStream, StreamEvent};
pub use transcript::{
    Arguments, ArgumentsError, AssistantMessage, Block, Content, Image, InvalidBase64, Message, Opaque, RawJson,
    StopReason, Text, Thinking, ToolCall, ToolResultMessage, Transcript, Usage, UserMessage,
};
