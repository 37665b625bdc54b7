//! Tools as a contract: a name, a description, an argument schema, an effect class, and a function.

mod arguments;
mod output;
mod set;
mod typed;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use terret_llm::ToolSpec;
use tokio_util::sync::CancellationToken;

pub use arguments::{InvalidSchema, Rejected};
pub(crate) use arguments::{explained, violations};
pub use output::{ToolError, ToolOutput};
pub use set::{ToolSet, ToolSetError};
pub use typed::{FnTool, tool};

/// Something that a model can call.
///
/// Most tools are made by [`tool`] from an async function and a struct of arguments. Implement the trait for a tool
/// whose schema is known only at run time, or which can [`discover`](Tool::discover) what a lost attempt did.
pub trait Tool: Send + Sync {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// Whether a call may be repeated.
    fn effect(&self) -> EffectClass {
        EffectClass::AtMostOnce
    }

    /// Whether a call must not run beside other calls of the same reply.
    fn exclusive(&self) -> bool {
        false
    }

    /// How long a call may run before it is told to stop, and dropped when it doesn't within the grace period. By default
    /// the agent's own limit holds ([`AgentBuilder::tool_time_limit`](crate::AgentBuilder::tool_time_limit)).
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    /// What the schema can't say about arguments that satisfy it, checked before the tool is gated and started.
    fn check(&self, arguments: &serde_json::Value) -> Result<(), String> {
        let _ = arguments;
        Ok(())
    }

    /// Runs the tool. The arguments have been validated against the schema of [`spec`](Tool::spec), and checked.
    ///
    /// It must not block its thread: what does can be neither limited nor stopped, only named
    /// ([`Report::still_running`](crate::Report::still_running)). An error and a panic are this call's error result, nothing
    /// more. After `context.cancel` the future has a grace period to clean up; then it is dropped.
    fn call(
        &self,
        arguments: serde_json::Value,
        context: ToolContext,
    ) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;

    /// Tells what an earlier attempt under this key did, if it can be told. `None` means unknown.
    fn discover(&self, key: &str) -> BoxFuture<'static, Option<ToolOutput>> {
        let _ = key;
        Box::pin(std::future::ready(None))
    }
}

/// A tool that can be shared.
pub type SharedTool = Arc<dyn Tool>;

/// Whether a call may be repeated when a first attempt may have been lost half way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EffectClass {
    /// It changes nothing, and may be repeated freely.
    ReadOnly,
    /// It may be repeated with the same idempotency key.
    Idempotent,
    /// It is never started twice for one call.
    #[default]
    AtMostOnce,
}

/// What a running tool is given besides its arguments.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// The id of the call.
    pub call_id: String,
    /// The same for every attempt at this call, and different for every other call.
    pub idempotency_key: String,
    /// Fires when the run is cancelled or interrupted, when the call's time is up, and at the latest when the run has ended.
    pub cancel: CancellationToken,
    /// Where the tool tells how it is getting on.
    pub progress: ProgressSender,
}

/// Where a running tool tells how it is getting on. For people and UIs; the model never sees it.
#[derive(Clone, Debug, Default)]
pub struct ProgressSender(Option<(String, tokio::sync::mpsc::Sender<Progress>)>);

/// The id of a call, and more of its tool's output.
pub type Progress = (String, String);

impl ProgressSender {
    /// Sends each update to a channel, as a pair of the call's id and the text.
    pub fn new(call_id: String, sender: tokio::sync::mpsc::Sender<Progress>) -> Self {
        Self(Some((call_id, sender)))
    }

    /// Tells more output. Never waits: when nobody keeps up, the update is dropped.
    pub fn send(&self, text: impl Into<String>) {
        if let Some((call_id, sender)) = &self.0 {
            // Full or closed: an update is worth neither waiting nor memory.
            let _ = sender.try_send((call_id.clone(), text.into()));
        }
    }
}

impl ToolContext {
    /// A context for calling a tool outside an agent, in tests say.
    pub fn detached(call_id: impl Into<String>) -> Self {
        let call_id = call_id.into();
        Self {
            idempotency_key: call_id.clone(),
            call_id,
            cancel: CancellationToken::new(),
            progress: ProgressSender::default(),
        }
    }
}
