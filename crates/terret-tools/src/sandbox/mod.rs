//! The sandbox that commands run in: a ladder of isolation, of which the best rung that works is taken.
//!
//! 1. [`Level::Bubblewrap`]: own user, process, network and other namespaces, and a file system made of what a command
//!    may see. What isn't bound into it doesn't exist.
//! 2. [`Level::Landlock`]: the kernel checks every path against two lists, and refuses sockets and odd system calls.
//! 3. Nothing: commands are refused, unless [`Profile::Full`] says in words that there shall be no sandbox.
//!
//! - [`ladder`] tries the rungs, and tells what is wrong with those that don't hold.
//! - [`view`] says which files a command sees, from the [`Workspace`] and the [`secrets`]. Both rungs are made of it.
//! - [`bubblewrap`], [`landlock`] and [`seccomp`] build the walls; [`restricted`] starts a command behind them.
//! - [`limits`] bounds what a command may use up.
//! - [`protected`] takes back what no wall can prevent: programs planted in a repository for git to run. Repositories are
//!   found by [`directories`].

#[cfg(target_os = "linux")]
mod bubblewrap;
mod directories;
mod ladder;
#[cfg(target_os = "linux")]
mod landlock;
mod limits;
mod protected;
#[cfg(target_os = "linux")]
mod restricted;
#[cfg(target_os = "linux")]
mod seccomp;
mod secrets;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there are no walls to build from it"))]
mod view;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::io::Write as _;
use std::process::Stdio;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::process::Command;

pub(crate) use directories::Directories;
pub use ladder::{Ladder, Rung};
pub use limits::ResourceLimits;
pub(crate) use protected::Protected;
pub(crate) use secrets::secrets;
pub(crate) use view::View;

/// What commands and file tools may do in a [`Workspace`](crate::Workspace).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Look at files, and run commands that can change none.
    ReadOnly,
    /// Write beneath the root of the workspace, and run commands that can't write elsewhere.
    #[default]
    Workspace,
    /// Whatever this program may do. There is no sandbox, and file tools go everywhere.
    Full,
}

/// A rung of the ladder that holds commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Namespaces, made by the program `bwrap`.
    Bubblewrap,
    /// Landlock and seccomp.
    Landlock,
}

impl Level {
    /// All of them, the best first.
    pub const ALL: [Level; 2] = [Level::Bubblewrap, Level::Landlock];

    /// As it is written in records: `bubblewrap`, `landlock`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Bubblewrap => "bubblewrap",
            Level::Landlock => "landlock",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a command can't be confined.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SandboxError {
    /// A rung doesn't hold on this machine.
    #[error("{0}")]
    Unavailable(String),

    /// The workspace holds something that must be hidden, and this rung can't hide parts of what may be written.
    #[error(
        "{path} lies in the workspace and must stay hidden, which {level} can't do; work in a folder further down, or \
         install bubblewrap"
    )]
    CannotHide {
        /// What must be hidden.
        path: String,
        /// The rung.
        level: Level,
    },
}

impl From<SandboxError> for io::Error {
    fn from(error: SandboxError) -> Self {
        io::Error::new(io::ErrorKind::PermissionDenied, error)
    }
}

/// A program and its arguments.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
}

/// Environment variables.
pub(crate) type Variables = BTreeMap<OsString, OsString>;

/// Walls that are ready for one command.
#[derive(Debug)]
pub(crate) struct Cell {
    #[cfg(target_os = "linux")]
    walls: Option<Walls>,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there are no walls to set them behind"))]
    limits: ResourceLimits,
}

#[cfg(target_os = "linux")]
#[derive(Debug)]
enum Walls {
    Bubblewrap(bubblewrap::Bubblewrap),
    /// And the pipe on which the command waits for the word to begin.
    Landlock(landlock::Rules, io::PipeReader, io::PipeWriter),
}

impl Cell {
    /// No walls at all.
    pub(crate) fn open() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            walls: None,
            limits: ResourceLimits::default(),
        }
    }

    /// Walls of a level around what a command sees. Blocks, for a millisecond or so.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(level: Level, view: &View, limits: ResourceLimits) -> Result<Self, SandboxError> {
        let walls = match level {
            Level::Bubblewrap => Walls::Bubblewrap(bubblewrap::Bubblewrap::new(view)?),
            Level::Landlock => {
                let pipe = io::pipe().map_err(|error| SandboxError::Unavailable(error.to_string()))?;
                Walls::Landlock(landlock::Rules::new(view)?, pipe.0, pipe.1)
            }
        };
        Ok(Self { walls: Some(walls), limits })
    }

    /// Nothing holds commands on this system.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(level: Level, _view: &View, _limits: ResourceLimits) -> Result<Self, SandboxError> {
        Err(SandboxError::Unavailable(format!("{level} needs Linux")))
    }

    /// The command that runs another one in the cell, with these environment variables and no others, and with nothing on
    /// its standard input.
    pub(crate) fn command(&self, inner: CommandLine, variables: &Variables) -> io::Result<Command> {
        #[cfg(target_os = "linux")]
        match &self.walls {
            Some(Walls::Bubblewrap(bubblewrap)) => {
                return bubblewrap.command(self.limits.around(inner, false), variables);
            }
            Some(Walls::Landlock(_, word, _)) => {
                let inner = self.limits.around(inner, true);
                let mut command = Command::new(inner.program);
                command.args(inner.arguments).env_clear().envs(variables).stdin(word.try_clone()?);
                return Ok(command);
            }
            None => {}
        }
        let mut command = Command::new(inner.program);
        command.args(inner.arguments).env_clear().envs(variables).stdin(Stdio::null());
        Ok(command)
    }

    /// Starts a command that [`command`](Self::command) has made. When the future is dropped, it is killed.
    pub(crate) async fn spawn(self, mut command: CommandWrap) -> io::Result<Box<dyn ChildWrapper>> {
        #[cfg(target_os = "linux")]
        match self.walls {
            Some(Walls::Bubblewrap(bubblewrap)) => {
                // It sees no threads but its own.
                let (child, _) = restricted::spawn(move || bubblewrap.restrict_starter(), command).await?;
                return Ok(child);
            }
            Some(Walls::Landlock(rules, _, mut word)) => {
                let (child, starter) = restricted::spawn(move || rules.restrict(), command).await?;
                starter.gone().await?;
                // If it has been killed meanwhile, its end tells.
                let _ = word.write_all(b"\n");
                return Ok(child);
            }
            None => {}
        }
        command.spawn()
    }
}
