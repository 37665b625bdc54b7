use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{EffectClass, FnTool, ToolError, ToolOutput, tool};

use crate::blocking;
use crate::listing::Listing;
use crate::workspace::{Access, Entry, PathError, Workspace, printable, read_directory};

const LIMIT: usize = 500;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// Default: the workspace root
    path: Option<String>,
    /// Default 500
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Details {
    path: String,
    entries: usize,
}

/// The tool that lists a directory: every name including hidden ones, sorted, `/` after directories, the target after
/// symbolic links.
pub fn ls(workspace: &Workspace) -> FnTool {
    let workspace = workspace.clone();
    tool("ls", "Lists a directory. Directories end in /.", move |arguments: Arguments, context| {
        let workspace = workspace.clone();
        blocking::or_cancelled(context.cancel, move |_| list(&workspace, &arguments))
    })
    .effect(EffectClass::ReadOnly)
}

fn list(workspace: &Workspace, arguments: &Arguments) -> Result<ToolOutput, ToolError> {
    let located = workspace.locate(arguments.path.as_deref().unwrap_or("."), Access::Read)?;
    let mut entries = match read_directory(&located) {
        Err(PathError::NotFound { .. }) => return Err(workspace.not_found(&located).into()),
        entries => entries?,
    };
    if entries.is_empty() {
        return Ok(format!("{} is empty.", located.shown).into());
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let total = entries.len();
    let mut listing = Listing::new(arguments.limit.unwrap_or(LIMIT));
    for entry in &entries {
        if !listing.entry(&line(entry)) {
            break;
        }
    }
    let details = Details { path: located.shown, entries: total };
    let advice = format!("There are {total}; raise limit, or use find with a pattern.");
    Ok(ToolOutput::text(listing.finish("entries", &advice)).with_details(&details))
}

fn line(entry: &Entry) -> String {
    let name = printable(&entry.name);
    match (entry.kind, &entry.target) {
        (FileType::Directory, _) => format!("{name}/"),
        (FileType::Symlink, Some(target)) => format!("{name} -> {}", printable(target)),
        _ => name,
    }
}
