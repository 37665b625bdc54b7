//! terret-agent
mod gate;
mod journal;
pub mod machine;
mod tool;

pub use gate::{AllowAll, Gate};
pub use journal::{Journal, JournalError, MemoryJournal, SessionId, fold};
pub use tool::{
    EffectClass, FnTool, InvalidSchema, ProgressSender, Rejected, SharedTool, Tool, ToolContext, ToolError, ToolOutput,
    ToolSet, ToolSetError, tool,
};
