use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{EffectClass, FnTool, ToolError, ToolOutput, tool};
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::found::{Found, Place};
use super::walk::{Glob, walk};
use crate::blocking;
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
    let found = Arc::new(Found::new(arguments.limit.unwrap_or(LIMIT)));
    walk(workspace, &base, &found, cancel, || {
        |entry| {
            let (path, is_directory) = (entry.path(), entry.file_type().is_some_and(|kind| kind.is_dir()));
            if (entry.depth() == 0 && is_directory) || !glob.matches(&base.real, path) {
                return;
            }
            let mut place = Place::default();
            place.push(
                format!("{}{}", workspace.shown(path), if is_directory { "/" } else { "" }),
                true,
                found.limit(),
            );
            found.add(path, place);
        }
    });
    if cancel.is_cancelled() {
        return Err(ToolError::new("Cancelled."));
    }
    let nothing =
        format!("Nothing beneath {} matches {:?}. Ignored files aren't searched.", base.shown, arguments.pattern);
    let advice = "Narrow the pattern, search a directory further down, or raise limit.";
    let answer = Answer::new(&found, workspace);
    let details = Details { entries: answer.entries(), complete: answer.is_complete() };
    let output = ToolOutput::text(answer.finish("results", advice, &nothing));
    Ok(if details.entries == 0 { output } else { output.with_details(&details) })
}
