//! The agent loop: a pure state machine, its driver, and tools, gates and the journal as contracts.
//!
//! The run [`machine`] decides; the driver makes each decision durable in a [`Journal`] and only then starts its effect.
//! Nothing here knows of HTTP, SQL, files or terminals: a model is a [`terret_llm::Model`], a tool is a [`Tool`].
//!
//! Three types are central. An [`Agent`] is a model with tools, rules and limits. A [`Session`] is a durable
//! conversation. A [`Run`] is one prompt in progress: a stream of [`Event`]s whose last one says how it ended.
//!
//! ```
//! use terret_agent::{Agent, Event, tool};
//! use terret_llm::{ScriptedModel, ScriptedReply, ToolCall};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add {
//!     a: i64,
//!     b: i64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::new([
//!     ScriptedReply::calls([ToolCall::new("1", "add", r#"{"a":2,"b":3}"#)]),
//!     ScriptedReply::text("It is 5."),
//! ]);
//! let add = tool("add", "Adds two integers.", |add: Add, _| async move { Ok((add.a + add.b).to_string()) });
//! let agent = Agent::builder(model).tool(add).build()?;
//!
//! let mut run = agent.prompt("What is 2 + 3?");
//! while let Some(event) = run.next().await {
//!     if let Event::Ended(report) = event {
//!         assert_eq!(report.text.as_deref(), Some("It is 5."));
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod agent;
mod budget;
mod compaction;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod driver;
mod event;
mod gate;
mod hooks;
mod journal;
mod limit;
pub mod machine;
mod review;
mod run;
mod session;
#[cfg(feature = "testing")]
pub mod testing;
mod tool;

pub use agent::{Agent, AgentBuilder, AgentError};
pub use budget::{SharedBudget, SharedLimits};
pub use compaction::{ModelSummary, Summarize, Summary, SummaryFailed};
pub use event::{Event, Events, PartialBlock, Question, Report, Snapshot};
pub use gate::{AllowAll, Gate};
pub use hooks::{HookError, Hooks, Review};
pub use journal::{Journal, JournalError, MemoryJournal, Ownership, Resumed, SessionId, fold};
pub use limit::Spill;
pub use machine::{Answer, Verdict};
pub use review::{Typed, TypedRun};
pub use run::{Run, RunHandle};
pub use session::{Session, UserPrompt};
pub use tool::{
    EffectClass, FnTool, InvalidSchema, Progress, ProgressSender, Rejected, SharedTool, Tool, ToolContext, ToolError,
    ToolOutput, ToolSet, ToolSetError, tool,
};

/// What the methods of [`Hooks`], [`Journal`], [`Gate`] and [`Tool`] return: `Box::pin(async move { … })` makes one.
pub use futures_util::future::BoxFuture;
