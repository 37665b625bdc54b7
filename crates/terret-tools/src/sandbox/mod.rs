//! The sandbox that commands run in: a ladder of isolation, of which the best rung that works is taken.
//!
//! 1. [`Level::Bubblewrap`]: own user, process, network and other namespaces, and a file system made of what a command
//!    may see. What isn't bound into it doesn't exist.
//! 2. [`Level::Landlock`]: the kernel checks every path against two lists, and refuses sockets and odd system calls.
//! 3. [`Level::Seatbelt`], on macOS: the kernel checks every operation against a profile.
//! 4. Nothing: commands are refused, unless [`Profile::Full`] says in words that there shall be no sandbox.
//!
//! - [`ladder`] tries the rungs, and tells what is wrong with those that don't hold.
//! - [`view`] says which files a command sees, from the [`Workspace`] and the [`secrets`]. Both rungs are made of it.
//! - [`bubblewrap`], [`landlock`] with [`seccomp`], and `seatbelt` build the walls; [`restricted`] starts a command behind
//!   them.
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
#[cfg(any(target_os = "macos", test))]
mod seatbelt;
#[cfg(target_os = "linux")]
mod seccomp;
mod secrets;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux builds walls from all of it"))]
mod view;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::io::Write as _;
use std::path::PathBuf;
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
#[non_exhaustive]
pub enum Level {
    /// Namespaces, made by the program `bwrap`.
    Bubblewrap,
    /// Landlock and seccomp.
    Landlock,
    /// A profile of macOS, set by `sandbox-exec`. It was never run: it holds where trying it says so.
    Seatbelt,
}

impl Level {
    /// Those of this system, the best first.
    pub const ALL: &[Level] = match () {
        #[cfg(target_os = "linux")]
        () => &[Level::Bubblewrap, Level::Landlock],
        #[cfg(target_os = "macos")]
        () => &[Level::Seatbelt],
        #[cfg(not(any(target_os = "linux", target_os = "macos")))]
        () => &[],
    };

    /// As it is written in records: `bubblewrap`, `landlock`, `seatbelt`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Bubblewrap => "bubblewrap",
            Level::Landlock => "landlock",
            Level::Seatbelt => "seatbelt",
        }
    }

    /// The `bwrap` that [`Level::Bubblewrap`] takes, which need not be that of `PATH`; none if it isn't there, or for the
    /// other levels.
    pub fn program(self) -> Option<PathBuf> {
        match self {
            #[cfg(target_os = "linux")]
            Level::Bubblewrap => bubblewrap::program(),
            _ => None,
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
    walls: Option<Walls>,
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "macos")),
        allow(dead_code, reason = "there are no walls to set them behind")
    )]
    limits: ResourceLimits,
}

#[derive(Debug)]
enum Walls {
    #[cfg(target_os = "linux")]
    Bubblewrap(bubblewrap::Bubblewrap),
    /// And the pipe on which the command waits for the word to begin.
    #[cfg(target_os = "linux")]
    Landlock(landlock::Rules, io::PipeReader, io::PipeWriter),
    #[cfg(target_os = "macos")]
    Seatbelt(seatbelt::Seatbelt),
}

impl Cell {
    /// No walls at all.
    pub(crate) fn open() -> Self {
        Self { walls: None, limits: ResourceLimits::default() }
    }

    /// Walls of a level around what a command sees. Blocks, for a millisecond or so.
    #[cfg_attr(not(any(target_os = "linux", target_os = "macos")), allow(unused_variables))]
    pub(crate) fn new(level: Level, view: &View, limits: ResourceLimits) -> Result<Self, SandboxError> {
        let walls = match level {
            #[cfg(target_os = "linux")]
            Level::Bubblewrap => Walls::Bubblewrap(bubblewrap::Bubblewrap::new(view)?),
            #[cfg(target_os = "linux")]
            Level::Landlock => {
                let pipe = io::pipe().map_err(|error| SandboxError::Unavailable(error.to_string()))?;
                Walls::Landlock(landlock::Rules::new(view)?, pipe.0, pipe.1)
            }
            #[cfg(target_os = "macos")]
            Level::Seatbelt => Walls::Seatbelt(seatbelt::Seatbelt::new(view)?),
            other => return Err(SandboxError::Unavailable(format!("{other} is a level of another system"))),
        };
        Ok(Self { walls: Some(walls), limits })
    }

    /// The command that runs another one in the cell, with these environment variables and no others, and with nothing on
    /// its standard input.
    pub(crate) fn command(&self, inner: CommandLine, variables: &Variables) -> io::Result<Command> {
        let (inner, input) = match &self.walls {
            None => (inner, Stdio::null()),
            #[cfg(target_os = "linux")]
            Some(Walls::Bubblewrap(bubblewrap)) => {
                return bubblewrap.command(self.limits.around(inner, false), variables);
            }
            #[cfg(target_os = "linux")]
            Some(Walls::Landlock(_, word, _)) => (self.limits.around(inner, true), word.try_clone()?.into()),
            #[cfg(target_os = "macos")]
            Some(Walls::Seatbelt(seatbelt)) => (seatbelt.around(self.limits.around(inner, false)), Stdio::null()),
            #[cfg(not(any(target_os = "linux", target_os = "macos")))]
            Some(walls) => match *walls {},
        };
        let mut command = Command::new(inner.program);
        command.args(inner.arguments).env_clear().envs(variables).stdin(input);
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
