//! terret-agent
mod agent;
mod driver;
mod event;
mod gate;
mod journal;
mod limit;
pub mod machine;
mod tool;

pub use agent::{Agent, AgentBuilder, AgentError, Run, RunHandle, Session, UserPrompt};
pub use event::{Event, Events, Report};
pub use gate::{AllowAll, Gate};
pub use journal::{Journal, JournalError, MemoryJournal, SessionId, fold};
pub use tool::{
    EffectClass, FnTool, InvalidSchema, ProgressSender, Rejected, SharedTool, Tool, ToolContext, ToolError, ToolOutput,
    ToolSet, ToolSetError, tool,
};
