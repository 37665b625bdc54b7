//! Instructions of the folders below the one that is worked in: the model reads them once it touches what is there.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::Value;
use terret::agent::{HookError, Hooks, ToolOutput};
use terret::llm::{Content, ToolCall};

use super::instructions::{self, Instructions, Reading};
use crate::project::Project;

/// What is found there belongs to others, or is no text for anybody.
const NOT_OURS: [&str; 4] = [".git", ".venv", "node_modules", "vendor"];

/// Tells of each folder once, behind the result of the first call that has a path in it.
pub(crate) struct Nested(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    root: PathBuf,
    names: Vec<String>,
    told: Mutex<Told>,
}

struct Told {
    folders: HashSet<PathBuf>,
    reading: Reading,
    room: usize,
}

impl Nested {
    /// For work in a folder, where files of these names were read down to it.
    pub(super) fn new(project: &Project, names: &[String], before: &[Instructions]) -> Self {
        let folder = project.folders.last().cloned().unwrap_or_default();
        let root = project.root().map_or_else(|| folder.clone(), Path::to_owned);
        let room = instructions::LONGEST.saturating_sub(before.iter().map(|it| it.text.len()).sum());
        let told = Told { folders: HashSet::new(), reading: Reading::after(before), room };
        Self(Arc::new(Shared { folder, root, names: names.to_vec(), told: Mutex::new(told) }))
    }
}

impl Shared {
    /// What the model wasn't told yet of the folders down to a path.
    fn of(&self, path: &str) -> Option<String> {
        let path = self.folder.join(path).canonicalize().ok()?;
        let deepest = if path.is_dir() { &path } else { path.parent()? };
        let below = deepest.strip_prefix(&self.folder).ok()?;
        if below.components().any(|part| NOT_OURS.iter().any(|name| part.as_os_str() == *name)) {
            return None;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Told { folders, reading, room } = &mut *told;
        let mut folder = self.folder.clone();
        for part in below {
            folder.push(part);
            if folders.insert(folder.clone()) {
                reading.folder(&folder, Some(&self.root), &self.names);
            }
        }
        let (mut found, mut left_out) = (std::mem::take(&mut reading.found), std::mem::take(&mut reading.left_out));
        *room = instructions::fit(&mut found, *room, &mut left_out);
        let found = found.iter().map(|it| format!("Instructions for what is in that folder:\n{it}"));
        let left_out = left_out.iter().map(|note| format!("[Instructions {note}]"));
        let texts: Vec<String> = found.chain(left_out).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }
}

impl Hooks for Nested {
    fn after_tool<'a>(
        &'a self,
        call: &'a ToolCall,
        mut output: ToolOutput,
    ) -> BoxFuture<'a, Result<ToolOutput, HookError>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let arguments: Value = call.arguments.parse().unwrap_or_default();
            let path = arguments.get("path").and_then(Value::as_str).filter(|_| !output.is_error);
            if let Some(path) = path.map(str::to_owned) {
                let told = tokio::task::spawn_blocking(move || shared.of(&path)).await;
                output.content.extend(told.ok().flatten().map(Content::text));
            }
            Ok(output)
        })
    }
}
