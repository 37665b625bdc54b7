use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{EffectClass, FnTool, ToolError, ToolOutput, tool};
use tokio_util::sync::CancellationToken;

use super::walk::{Glob, walk};
use crate::blocking;
use crate::listing::Listing;
use crate::workspace::{Access, Workspace};

const LIMIT: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// Glob such as "*.rs" or "src/**/test_*.py"
    pattern: String,
    /// Directory to search; default: the workspace root
    path: Option<String>,
    /// Default 1000
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Details {
    entries: usize,
    complete: bool,
}

/// The tool that finds files and directories by name.
pub fn find(workspace: &Workspace) -> FnTool {
    let workspace = workspace.clone();
    let description = "Finds files and directories by glob. Respects .gitignore. Directories end in /.";
    tool("find", description, move |arguments: Arguments, context| {
        let workspace = workspace.clone();
        blocking::or_cancelled(context.cancel, move |cancel| search(&workspace, &arguments, cancel))
    })
    .effect(EffectClass::ReadOnly)
}

fn search(workspace: &Workspace, arguments: &Arguments, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
    let glob = Glob::new(&arguments.pattern)?;
    let base = workspace.locate(arguments.path.as_deref().unwrap_or("."), Access::Read)?;
    if !base.real.exists() {
        return Err(workspace.not_found(&base).into());
    }
    let mut listing = Listing::new(arguments.limit.unwrap_or(LIMIT));
    for entry in walk(&base.real) {
        if cancel.is_cancelled() {
            return Err(ToolError::new("Cancelled."));
        }
        let found = entry.path();
        if (entry.depth() == 0 && found.is_dir()) || !glob.matches(&base.real, found) {
            continue;
        }
        let slash = if entry.file_type().is_some_and(|kind| kind.is_dir()) { "/" } else { "" };
        if !listing.entry(&format!("{}{slash}", workspace.shown(found))) {
            break;
        }
    }
    if listing.entries() == 0 {
        let message =
            format!("Nothing beneath {} matches {:?}. Ignored files aren't searched.", base.shown, arguments.pattern);
        return Ok(message.into());
    }
    let details = Details { entries: listing.entries(), complete: !listing.is_full() };
    let advice = "Narrow the pattern, search a directory further down, or raise limit.";
    Ok(ToolOutput::text(listing.finish("results", advice)).with_details(&details))
}
