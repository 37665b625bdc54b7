use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use terret_agent::{ToolContext, ToolError, ToolOutput, ToolSet};
use terret_tools::{BashOptions, Workspace, workspace_tools};

/// A temporary directory with a workspace `project` in it, and the tools for that.
pub(crate) struct Project {
    tools: ToolSet,
    directory: TempDir,
}

/// What a tool answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) is_error: bool,
    pub(crate) details: Value,
    pub(crate) content: Value,
}

impl Project {
    pub(crate) fn new() -> Self {
        Self::with(|workspace, _| workspace, BashOptions::default())
    }

    /// A project whose workspace is changed before it is used; the function is given the directory around it, too.
    pub(crate) fn with(change: impl FnOnce(Workspace, &Path) -> Workspace, options: BashOptions) -> Self {
        let directory = tempfile::Builder::new().prefix("terret-test-").tempdir().unwrap();
        let root = directory.path().join("project");
        std::fs::create_dir(&root).unwrap();
        let workspace = change(Workspace::new(root).unwrap(), directory.path());
        Self::made(directory, &workspace, options)
    }

    /// A project of a workspace that lies in a temporary directory.
    pub(crate) fn made(directory: TempDir, workspace: &Workspace, options: BashOptions) -> Self {
        let tools = ToolSet::new(workspace_tools(workspace, options)).unwrap();
        Self { tools, directory }
    }

    /// The directory alone, once the tools are dropped.
    pub(crate) fn without_tools(self) -> TempDir {
        self.directory
    }

    /// A file of the workspace, with its directories.
    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// A symbolic link in the workspace.
    pub(crate) fn link(self, path: &str, target: impl AsRef<Path>) -> Self {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
        self
    }

    /// A path in the workspace, as the system sees it.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("project").join(path)
    }

    /// The content of a file of the workspace.
    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.call_with(tool, arguments, ToolContext::detached("call")).await
    }

    pub(crate) async fn call_with(&self, tool: &str, arguments: Value, context: ToolContext) -> Answer {
        let text = terret_llm::Arguments::new(arguments.to_string());
        let checked = self.tools.validate(tool, &text).unwrap();
        let output = match checked {
            Ok(arguments) => self.tools.get(tool).unwrap().call(arguments, context).await,
            Err(rejected) => Ok(ToolOutput::error(rejected.to_string())),
        };
        Answer::of(output)
    }

    /// The answer of a call that must succeed.
    pub(crate) async fn ok(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        assert!(!answer.is_error, "{}", answer.text);
        answer.text
    }

    /// The answer of a call that must fail.
    pub(crate) async fn error(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        assert!(answer.is_error, "{}", answer.text);
        answer.text
    }
}

impl Answer {
    fn of(output: Result<ToolOutput, ToolError>) -> Self {
        let output = output.unwrap_or_else(ToolError::into_output);
        let text = output.content.iter().filter_map(|content| content.as_text()).collect();
        let details = output.details.map_or(Value::Null, |details| details.to_value().unwrap());
        Self { text, is_error: output.is_error, details, content: serde_json::to_value(&output.content).unwrap() }
    }
}

/// Waits until something holds, for ten seconds at most.
pub(crate) async fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    for _ in 0..1_000 {
        if holds() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}
