use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use terret_llm::{AssistantMessage, Request, ToolCall};

use crate::machine::Failure;
use crate::tool::ToolOutput;

/// Code of the embedder's at the four places where a run can be looked into. Each has a default that changes nothing.
///
/// Several hooks run in the order in which they were added, each on what the one before it made. A hook that fails or
/// panics is never passed over: a failed `before_model` or `at_end` fails the run, a failed `before_tool` closes the call
/// without running the tool, a failed `after_tool` withholds the tool's output. A cancel drops the future.
///
/// What may start at all is the [`Gate`](crate::Gate)'s to say.
pub trait Hooks: Send + Sync {
    /// Before each model call: the request may be changed. It is a copy; the transcript stays as it is.
    ///
    /// What a change puts before the last message costs the provider's prompt cache.
    fn before_model<'a>(&'a self, request: Request) -> BoxFuture<'a, Result<Request, HookError>> {
        Box::pin(std::future::ready(Ok(request)))
    }

    /// When a tool is about to start: its call was validated, gated and made durable. For a call that is repeated after a
    /// crash, again.
    fn before_tool<'a>(&'a self, call: &'a ToolCall, arguments: &'a Value) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = (call, arguments);
        Box::pin(std::future::ready(Ok(())))
    }

    /// When a tool has finished: its output may be changed before the model and the journal see it.
    fn after_tool<'a>(
        &'a self,
        call: &'a ToolCall,
        output: ToolOutput,
    ) -> BoxFuture<'a, Result<ToolOutput, HookError>> {
        let _ = call;
        Box::pin(std::future::ready(Ok(output)))
    }

    /// When the model is done and nothing waits: the final reply may be objected to. The objection is said to the model,
    /// which answers again, at most [`Limits::objections`](crate::machine::Limits::objections) times.
    fn at_end<'a>(&'a self, reply: &'a AssistantMessage) -> BoxFuture<'a, Result<Review, HookError>> {
        let _ = reply;
        Box::pin(std::future::ready(Ok(Review::Accept)))
    }
}

/// What is thought of a final reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Review {
    /// The run may complete.
    Accept,
    /// The model has to answer again, and is told this.
    Object(String),
}

/// Why a hook failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookError(pub String);

/// The hooks of an agent, in order.
#[derive(Clone, Default)]
pub(crate) struct HookList(pub(crate) Vec<Arc<dyn Hooks>>);

impl HookList {
    pub(crate) async fn before_model(&self, mut request: Request) -> Result<Request, Failure> {
        for hook in &self.0 {
            request = caught(async move { hook.before_model(request).await })
                .await
                .map_err(|error| failure("before_model", error))?;
        }
        Ok(request)
    }

    pub(crate) async fn before_tool(&self, call: &ToolCall, arguments: &Value) -> Result<(), ToolOutput> {
        for hook in &self.0 {
            if let Err(error) = caught(async { hook.before_tool(call, arguments).await }).await {
                return Err(ToolOutput::error(format!("Not executed: the hook before_tool failed: {error}")));
            }
        }
        Ok(())
    }

    pub(crate) async fn after_tool(&self, call: &ToolCall, mut output: ToolOutput) -> ToolOutput {
        for hook in &self.0 {
            output = match caught(async move { hook.after_tool(call, output).await }).await {
                Ok(output) => output,
                Err(error) => {
                    let text = format!("The tool ran. Its output is withheld: the hook after_tool failed: {error}");
                    return ToolOutput::error(text);
                }
            };
        }
        output
    }

    pub(crate) async fn at_end(&self, reply: &AssistantMessage) -> Result<Review, Failure> {
        for hook in &self.0 {
            match caught(async { hook.at_end(reply).await }).await.map_err(|error| failure("at_end", error))? {
                Review::Accept => {}
                objection => return Ok(objection),
            }
        }
        Ok(Review::Accept)
    }
}

fn failure(hook: &str, HookError(message): HookError) -> Failure {
    Failure::Hook { hook: hook.into(), message }
}

async fn caught<T>(hook: impl Future<Output = Result<T, HookError>>) -> Result<T, HookError> {
    let result = AssertUnwindSafe(hook).catch_unwind().await;
    result.unwrap_or_else(|panic| Err(HookError(format!("it panicked: {}", panic_message(&*panic)))))
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
