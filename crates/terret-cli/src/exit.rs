//! Exit codes, and what leads to them.

use std::fmt;
use std::process::ExitCode;

use terret::agent::machine::{Failure, Outcome};
use terret::llm::{ErrorKind, ModelError};

use crate::{permissions, signals};

/// How the program ends. The numbers are a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Completed = 0,
    RunFailed = 1,
    Usage = 2,
    Authentication = 3,
    Configuration = 4,
    Permission = 5,
    OutOfBudget = 6,
    Provider = 7,
    OutputSchema = 8,
    Interrupted = 130,
    Terminated = 143,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// The reason of a cancel that a signal asked for, by what the signal means for the program.
    pub(crate) fn reason(self) -> &'static str {
        if self == Exit::Terminated { signals::TERMINATED } else { signals::INTERRUPTED }
    }

    /// What a run's outcome means for the program.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Completed => Exit::Completed,
            Outcome::Failed { failure: Failure::Model(error) } => Exit::of_model(error),
            // Nothing but the output schema objects to a reply.
            Outcome::Failed { failure: Failure::Objected(_) } => Exit::OutputSchema,
            Outcome::OutOfBudget { .. } => Exit::OutOfBudget,
            Outcome::Cancelled { reason, .. } if reason == signals::TERMINATED => Exit::Terminated,
            Outcome::Cancelled { reason, .. } if reason.starts_with(permissions::NOBODY) => Exit::Permission,
            Outcome::Cancelled { reason, .. } if reason == signals::INTERRUPTED => Exit::Interrupted,
            _ => Exit::RunFailed,
        }
    }

    /// What it means for the program that a model can't be asked.
    pub(crate) fn of_model(error: &ModelError) -> Self {
        match error.kind {
            ErrorKind::Auth | ErrorKind::Permission => Exit::Authentication,
            ErrorKind::Refused | ErrorKind::Aborted => Exit::RunFailed,
            _ => Exit::Provider,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Why the program can't even start a run.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) exit: Exit,
    /// What scripts decide by, where the exit code says too little.
    pub(crate) kind: Option<&'static str>,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, kind: None, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
