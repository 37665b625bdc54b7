//! Replacing pieces of a file.

mod apply;
mod nearest;
mod view;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{FnTool, ToolError, ToolOutput, tool};
use tokio_util::sync::CancellationToken;

use self::apply::{Applied, apply};
use crate::workspace::{Access, PathError, Target, Workspace};
use crate::{blocking, diff};

/// A larger file isn't edited, in bytes. The file and its edited copy are held in memory.
const LIMIT: usize = 256 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    path: String,
    /// All are matched against the file as it is now; they may not overlap
    #[schemars(length(min = 1))]
    edits: Vec<Edit>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Edit {
    /// Exact text that occurs once in the file
    old_text: String,
    new_text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    path: String,
    /// The first line of each replacement in the old file, in the order of the edits.
    lines: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

/// The tool that replaces pieces of a file.
///
/// Each old text must occur exactly once. It is looked for byte by byte first. Only where that finds nothing, these
/// differences are overlooked, one after the other: line ends (LF, CRLF), white space at line ends, and typographic
/// quotes, dashes and spaces. Whatever wasn't matched keeps its bytes, also when they aren't UTF-8. Line feeds in a new
/// text become CRLF where the file's lines end so. A file that has changed since the tools of this workspace read or wrote
/// it has to be read again first.
pub fn edit(workspace: &Workspace) -> FnTool {
    let workspace = workspace.clone();
    let description = "Replaces pieces of a file. Each oldText must match exactly one place.";
    tool("edit", description, move |arguments: Arguments, context| {
        let workspace = workspace.clone();
        blocking::to_the_end(move || edit_file(&workspace, &arguments, &context.cancel))
    })
    .exclusive()
}

fn edit_file(
    workspace: &Workspace,
    arguments: &Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let located = workspace.locate(&arguments.path, Access::Write)?;
    let missing = || workspace.not_found(&located);
    let target = match Target::open(&located, false) {
        Err(PathError::NotFound { .. }) => return Err(missing().into()),
        target => target?,
    };
    let existing = target.existing()?.ok_or_else(missing)?;
    workspace.check_seen(&located, &existing)?;
    let Some(original) = existing.read(LIMIT)? else {
        let message = format!("{} is larger than {LIMIT} bytes, too large for edit. Use bash.", located.shown);
        return Err(ToolError::new(message));
    };
    let edits: Vec<(&str, &str)> =
        arguments.edits.iter().map(|edit| (edit.old_text.as_str(), edit.new_text.as_str())).collect();
    let Applied { content, lines, overlooked } = apply(&original, &edits)
        .map_err(|error| ToolError::new(format!("{} was not changed: {error}", located.shown)))?;
    let mut changed = false;
    let mut commit = || {
        changed = !target.holds(&existing);
        !changed && !cancel.is_cancelled()
    };
    let replaced = target.replace(&content, Some(&existing), &mut commit)?;
    if changed {
        return Err(PathError::Changed { path: located.shown }.into());
    }
    let Some(replaced) = replaced else {
        return Err(ToolError::new(format!("Cancelled. {} was not changed.", located.shown)));
    };
    workspace.note_seen(&located, &replaced);
    let numbers: Vec<String> = lines.iter().map(usize::to_string).collect();
    let (s, numbers) = (if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "));
    let mut text = format!("Edited {}: {} replacement{s}, at line{s} {numbers}.", located.shown, lines.len());
    for note in overlooked {
        text.push_str(&format!("\n{note}"));
    }
    let details = Details { diff: diff::unified(&located.shown, &original, &content), path: located.shown, lines };
    Ok(ToolOutput::text(text).with_details(&details))
}
