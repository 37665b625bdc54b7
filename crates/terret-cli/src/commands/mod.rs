//! The commands, a file each, and what they have in common.

pub(crate) mod auth;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod generated;
pub(crate) mod models;
pub(crate) mod permissions;
pub(crate) mod prompt;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod trust;
pub(crate) mod wire;

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::Serialize;

use crate::exit::{Exit, Problem};
use crate::output::{self, clean_json};

const BROKEN_PIPE: &str = "broken_pipe";

/// How a command ends that is no run: with a complaint, if there is one.
fn finish(done: Result<Exit, Problem>) -> ExitCode {
    let exit = done.unwrap_or_else(|problem| {
        // A reader that left, as in `| head`, has what it wanted.
        if problem.kind == Some(BROKEN_PIPE) {
            return Exit::Completed;
        }
        output::complain(&problem.message);
        problem.exit
    });
    exit.into()
}

/// What it means that standard output can't be written.
fn unwritable(error: io::Error) -> Problem {
    let kind = (error.kind() == io::ErrorKind::BrokenPipe).then_some(BROKEN_PIPE);
    Problem { exit: Exit::RunFailed, kind, message: format!("the output can't be written: {error}") }
}

/// Prints a value as JSON on a line, without anything that could steer a terminal.
fn print_json(value: &impl Serialize) -> Result<(), Problem> {
    let json = serde_json::to_string(value).map_err(|error| Problem::new(Exit::RunFailed, error.to_string()))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", clean_json(json)).and_then(|()| out.flush()).map_err(unwritable)
}
