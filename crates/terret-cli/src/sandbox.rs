//! What holds the tools of a run: the workspace and the sandbox that the command line asks for.

use std::path::{Path, PathBuf};

use terret::agent::SharedTool;
use terret::tools::{BashOptions, Ladder, Profile, Workspace};

use crate::cli::{PermissionMode, RunArgs};
use crate::exit::{Exit, Problem};
use crate::places;

/// The workspace of a run, and how its commands are run.
pub(crate) fn workspace(args: &RunArgs, folder: &Path) -> Result<(Workspace, BashOptions), Problem> {
    let problem = |error: std::io::Error| Problem::usage(format!("can't work in {}: {error}", folder.display()));
    let further = args.add_dir.iter().filter_map(|further| further.canonicalize().ok());
    let writable: Vec<PathBuf> = further.chain([folder.to_owned()]).collect();
    if args.permission_mode != PermissionMode::Full && writable.iter().any(|folder| folder.parent().is_none()) {
        return Err(Problem::usage(
            "can't work in /: nothing would be outside, where commands may not write; use a folder further down (-C DIR), or \
             --permission-mode full",
        ));
    }
    let mut workspace = Workspace::new(folder).map_err(problem)?.profile(match args.permission_mode {
        PermissionMode::ReadOnly => Profile::ReadOnly,
        PermissionMode::Workspace | PermissionMode::Ask => Profile::Workspace,
        PermissionMode::Full => Profile::Full,
    });
    for further in &args.add_dir {
        let problem = |error: std::io::Error| Problem::usage(format!("--add-dir {}: {error}", further.display()));
        if !further.is_dir() {
            return Err(Problem::usage(format!("--add-dir {}: there is no such folder", further.display())));
        }
        workspace = workspace.writable(further).map_err(problem)?;
    }
    // Settings of a project are for its people to change.
    workspace = workspace.read_only(folder.join(".terret")).map_err(problem)?;
    // What the user has set and decided is the user's, also where it lies in a folder that is worked in.
    for ours in decisions().filter(|ours| writable.iter().any(|folder| ours.starts_with(folder))) {
        match workspace.clone().read_only(ours) {
            // There is a file where a folder would have to be.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
            read_only => workspace = read_only.map_err(problem)?,
        }
    }
    let hidden = [places::sessions().ok(), places::data().map(|folder| folder.join("auth.json"))];
    for ours in hidden.into_iter().flatten() {
        match workspace.clone().hide(ours) {
            // There is a file where a folder would have to be, and so nothing to hide.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
            hidden => workspace = hidden.map_err(problem)?,
        }
    }
    let mut options = BashOptions::default();
    options.network = args.network;
    Ok((workspace, options))
}

/// What says how later runs are done.
fn decisions() -> impl Iterator<Item = PathBuf> {
    let settings = ["config.toml", "models.json", "AGENTS.md", "skills"];
    let in_config = places::config().into_iter().flat_map(move |folder| settings.map(|name| folder.join(name)));
    let kept = ["permissions.json", "trust.json"];
    let in_state = places::state().into_iter().flat_map(move |folder| kept.map(|name| folder.join(name)));
    let by_link = |path: PathBuf| {
        path.parent().and_then(|folder| Some(folder.canonicalize().ok()?.join(path.file_name()?))).unwrap_or(path)
    };
    in_config.chain(in_state).map(by_link)
}

/// Refuses a run with tools that nothing holds, unless that was asked for in words.
pub(crate) fn require(args: &RunArgs, tools: &[SharedTool]) -> Result<(), Problem> {
    let changes = |tool: &SharedTool| ["bash", "write", "edit"].contains(&tool.spec().name.as_str());
    if matches!(args.permission_mode, PermissionMode::ReadOnly | PermissionMode::Full) || !tools.iter().any(changes) {
        return Ok(());
    }
    Ladder::best().map(drop).map_err(|ladder| Problem {
        exit: Exit::Permission,
        kind: Some("no_sandbox"),
        message: format!(
            "no sandbox works here, and without one nothing is written and no command is run:\n{ladder}\n\
             --permission-mode full runs commands with all your rights, as in a container that is thrown away; \
             --permission-mode read-only only looks at files"
        ),
    })
}
