//! The tools of a coding agent: `read`, `bash`, `edit`, `write`, `grep`, `find` and `ls`, in a [`Workspace`].
//!
//! - A [`Workspace`] says where file tools may go, and takes them there without a race.
//! - Each tool is a function that makes one ([`read()`], [`bash()`], …); [`workspace_tools`] makes them all.
//! - [`BashOptions`] say how commands run and which environment variables they see.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use terret_agent::ToolSet;
//! use terret_tools::{BashOptions, Workspace, workspace_tools};
//!
//! # let project = std::env::temp_dir();
//! let workspace = Workspace::new(project)?;
//! let tools = ToolSet::new(workspace_tools(&workspace, BashOptions::default()))?;
//! assert_eq!(tools.specs().len(), 7);
//! # Ok(())
//! # }
//! ```
//!
//! `write`, `edit` and `bash` run alone; the others run beside each other. What a tool answers is limited to about 50 KB,
//! what was cut is said, and nothing that a command wrote for a terminal gets through. The file tools guard the
//! workspace's borders by themselves; commands run in a sandbox, whose best [`Level`] that holds is found by trying
//! ([`Ladder`]), and are refused where none does, unless [`Profile::Full`] says that they need none. Unix only. The
//! level of macOS was never run there; without `/proc`, of what commands start only the process group is killed.

mod bash;
mod blocking;
mod diff;
mod edit;
mod kind;
mod listing;
mod ls;
mod plain;
mod read;
mod rules;
mod sandbox;
mod search;
mod workspace;
mod write;

use std::sync::Arc;

use terret_agent::{FnTool, SharedTool};

pub use bash::{BashOptions, Environment, bash};
pub use edit::edit;
pub use ls::ls;
pub use read::read;
pub use rules::{Decision, Judgement, Rule, RuleError, RuleJudge, Rules, Unmatched, Why};
pub use sandbox::{Ladder, Level, Profile, ResourceLimits, Rung, SandboxError};
pub use search::{find, grep};
pub use workspace::Workspace;
pub use write::write;

/// All tools for a workspace, always in the same order.
pub fn workspace_tools(workspace: &Workspace, options: BashOptions) -> Vec<SharedTool> {
    let tools: [FnTool; 7] = [
        read(workspace),
        bash(workspace, options),
        edit(workspace),
        write(workspace),
        grep(workspace),
        find(workspace),
        ls(workspace),
    ];
    tools.into_iter().map(|tool| Arc::new(tool) as SharedTool).collect()
}
