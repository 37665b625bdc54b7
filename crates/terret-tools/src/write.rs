use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{EffectClass, FnTool, ToolError, ToolOutput, tool};
use tokio_util::sync::CancellationToken;

use crate::workspace::{Access, Target, Workspace};
use crate::{blocking, diff};

/// A larger file is replaced without being looked at, in bytes.
const COMPARED: usize = 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    path: String,
    content: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    path: String,
    created: bool,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

/// The tool that writes a whole file. It makes the directories that are missing, and replaces what is there at once. A file
/// that has changed since the tools of this workspace read or wrote it has to be read again first.
pub fn write(workspace: &Workspace) -> FnTool {
    let workspace = workspace.clone();
    let description = "Creates or overwrites a file, with parent directories. To change part of a file, use edit.";
    tool("write", description, move |arguments: Arguments, context| {
        let workspace = workspace.clone();
        blocking::to_the_end(move || replace(&workspace, &arguments, &context.cancel))
    })
    .effect(EffectClass::Idempotent)
    .exclusive()
}

fn replace(workspace: &Workspace, arguments: &Arguments, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
    let Arguments { path, content } = arguments;
    let located = workspace.locate(path, Access::Write)?;
    if path.ends_with('/') {
        return Err(ToolError::new(format!("{} names a directory. Give the path of a file to write.", located.shown)));
    }
    let target = Target::open(&located, true)?;
    let existing = target.existing()?;
    let before = match &existing {
        Some(existing) => existing.read(COMPARED)?,
        None => Some(Vec::new()),
    };
    let bytes = content.as_bytes();
    let created = existing.is_none();
    if !created && before.as_deref() == Some(bytes) {
        return Ok(format!("{} already has this content ({}).", located.shown, size(content)).into());
    }
    if let Some(existing) = &existing {
        workspace.check_seen(&located, existing)?;
    }
    let Some(replaced) = target.replace(bytes, existing.as_ref(), || !cancel.is_cancelled())? else {
        return Err(ToolError::new(format!("Cancelled. {} was not written.", located.shown)));
    };
    workspace.note_seen(&located, &replaced);
    let details = Details {
        diff: before.and_then(|before| diff::unified(&located.shown, &before, bytes)),
        path: located.shown,
        created,
        bytes: bytes.len(),
    };
    let verb = if created { "Created" } else { "Replaced" };
    Ok(ToolOutput::text(format!("{verb} {} ({}).", details.path, size(content))).with_details(&details))
}

fn size(content: &str) -> String {
    let lines = content.lines().count();
    let (bytes, s) = (content.len(), if lines == 1 { "" } else { "s" });
    format!("{lines} line{s}, {bytes} bytes")
}
