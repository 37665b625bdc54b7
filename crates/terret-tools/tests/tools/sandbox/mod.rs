//! What commands can't do in the sandbox, on each level that holds here. Every attack is tried without a sandbox first,
//! where it must succeed: one that fails by itself proves nothing.
//!
//! As root, all of it is run once more as an ordinary user.

/// Says what isn't tested here, past the harness, which keeps what a test prints that doesn't fail.
macro_rules! skipped {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "SKIPPED sandbox: {}", format_args!($($what)*));
    }};
}

mod files;
mod network;
mod repositories;
mod secrets;
mod survivors;
mod user;
mod walls;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::json;
use terret_tools::{BashOptions, Environment, Ladder, Level, Profile, Workspace};

use crate::project::{Answer, Project};

/// A project with a home beside it, and commands that are held somehow.
struct Arena {
    project: Project,
    /// What holds the commands; nothing, to see that an attack works.
    level: Option<Level>,
}

impl Arena {
    fn new(level: Option<Level>) -> Self {
        Self::with(level, |workspace, _, _| workspace)
    }

    /// An arena whose workspace and options are changed before; the function is given the directory around it, too.
    fn with(level: Option<Level>, change: impl Fn(Workspace, &mut BashOptions, &Path) -> Workspace) -> Self {
        let directory = tempfile::Builder::new().prefix("terret-test-").tempdir().unwrap();
        let around = directory.path().canonicalize().unwrap();
        let (root, home) = (around.join("project"), around.join("home"));
        std::fs::create_dir(&root).unwrap();
        std::fs::create_dir(&home).unwrap();
        let mut options = BashOptions::default();
        options.level = level;
        options.environment = Environment::default().set("HOME", home.to_str().unwrap());
        let workspace = change(Workspace::new(root).unwrap(), &mut options, &around);
        let workspace = if level.is_none() { workspace.profile(Profile::Full) } else { workspace };
        Self { project: Project::made(directory, &workspace, options), level }
    }

    /// A file beside or in the project.
    fn file(mut self, path: &str, content: &str) -> Self {
        self.project = self.project.file(path, content);
        self
    }

    /// Runs a command.
    async fn run(&self, command: &str) -> Answer {
        let answer = self.project.call("bash", json!({"command": command, "timeout": 60})).await;
        let expected = self.level.map_or("none", Level::name);
        assert_eq!(answer.details["sandbox"], expected, "{}", answer.text);
        answer
    }

    fn path(&self, path: &str) -> PathBuf {
        self.project.path("..").canonicalize().unwrap().join(path)
    }
}

/// The levels that hold here. Says once which don't.
fn levels() -> Vec<Level> {
    static LEVELS: OnceLock<Vec<Level>> = OnceLock::new();
    let try_all = || {
        let ladder = Ladder::probe();
        let holding = ladder.rungs.iter().filter_map(|rung| match &rung.holds {
            Ok(()) => Some(rung.level),
            Err(error) => {
                skipped!("all attacks on {}: {error}", rung.level);
                None
            }
        });
        let holding: Vec<Level> = holding.collect();
        assert!(!holding.is_empty(), "nothing holds commands here, so nothing can be tested:\n{ladder}");
        holding
    };
    LEVELS.get_or_init(try_all).clone()
}

/// No level at all, for the control, and then each that holds.
fn control_and_levels() -> impl Iterator<Item = Option<Level>> {
    std::iter::once(None).chain(levels().into_iter().map(Some))
}
