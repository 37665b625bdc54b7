//! Which session a run belongs to: a new one, or one to go on with.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use terret::agent::machine::{Limits, RunId};
use terret::agent::{Agent, Journal as _, JournalError, Session, SessionId};
use terret::llm::{Message, Money};
use terret::store::{GivenRules, Reading, SessionInfo, Setup, SqliteJournal, StoreError};

use crate::cli::RunArgs;
use crate::exit::{Exit, Problem};
use crate::output::{self, Patience, Table, patiently};
use crate::places;

/// The session that was asked for. Nothing of it is made or changed yet.
#[derive(Clone)]
pub(crate) enum Chosen {
    /// In memory only.
    Unkept,
    New {
        journal: SqliteJournal,
        id: SessionId,
    },
    /// One that is there.
    Old {
        journal: SqliteJournal,
        info: Box<SessionInfo>,
        fork: Option<Fork>,
    },
}

/// A copy to go on with in place of the session itself.
#[derive(Clone)]
pub(crate) struct Fork {
    id: SessionId,
    /// How many messages to copy; all of them without a number.
    messages: Option<usize>,
}

/// A session that this process may go on with.
pub(crate) struct Opened {
    pub(crate) session: Session,
    /// The run that a crash interrupted.
    pub(crate) interrupted: Option<Interrupted>,
    /// Whether a later run can go on with it.
    pub(crate) kept: bool,
    pub(crate) messages: usize,
    /// Whether the model has to answer what stands there.
    pub(crate) unanswered: bool,
}

/// A run that goes on as it was begun.
pub(crate) struct Interrupted {
    pub(crate) run: RunId,
    pub(crate) limits: Limits,
    /// Unix milliseconds.
    pub(crate) deadline: Option<i64>,
    /// What it had cost when it was interrupted.
    pub(crate) cost: Money,
}

/// What is said while lists take their time.
pub(crate) const READING: &str = "reading the sessions";

/// Finds out which session is meant. Asks on a terminal, if need be.
pub(crate) fn choose(args: &mut RunArgs) -> Result<Chosen, Problem> {
    let fork = args.fork()?;
    let wanted = &args.session;
    if fork.is_some() && !wanted.goes_on() {
        return Err(Problem::usage("--fork copies a session to go on with: say which, with -c or -r ID"));
    }
    if wanted.session_id.is_some() && wanted.goes_on() && fork.is_none() {
        return Err(Problem::usage("--session-id names a new session, and -c and -r go on with one that has a name"));
    }
    if wanted.no_session {
        return Ok(Chosen::Unkept);
    }
    let journal = SqliteJournal::new(places::sessions()?);
    let id = || wanted.session_id.clone().map_or_else(SessionId::new, SessionId::from);
    if !wanted.goes_on() {
        return new(journal, id());
    }
    let info = match &wanted.resume {
        Some(Some(meant)) => journal.find(meant).map_err(|error| unknown(&error, meant))?,
        Some(None) => pick(&journal)?,
        None => last(&journal, args.cd.as_deref().unwrap_or(Path::new(".")))?,
    };
    let fork = fork.map(|messages| Fork { id: id(), messages });
    Ok(Chosen::Old { journal, info: Box::new(info), fork })
}

fn new(journal: SqliteJournal, id: SessionId) -> Result<Chosen, Problem> {
    // What was killed before anything was said has left a session without a record.
    match journal.reader(&id).and_then(|mut reader| reader.read(1)) {
        Ok(reading) if reading == Reading::default() => Ok(Chosen::New { journal, id }),
        Err(StoreError::Unknown { .. }) => Ok(Chosen::New { journal, id }),
        Ok(_) => Err(Problem::usage(format!(
            "there is a session {id} already: -r {} goes on with it",
            output::quoted(id.as_str())
        ))),
        Err(error) => Err(failed(&error)),
    }
}

fn unknown(error: &StoreError, meant: &str) -> Problem {
    match error {
        // Somebody may have taken the option for one without a value.
        StoreError::Unknown { .. } if meant.contains(' ') => {
            Problem::usage(format!("{error}; to choose from a list, put -r before another option, as in -r -p \"…\""))
        }
        StoreError::Unknown { .. } => Problem::usage(format!("{error}; `terret sessions list` shows those that are")),
        StoreError::Ambiguous { .. } => Problem::usage(error.to_string()),
        _ => failed(error),
    }
}

/// The session of a folder that was last added to.
fn last(journal: &SqliteJournal, folder: &Path) -> Result<SessionInfo, Problem> {
    let here = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let infos = patiently(READING, || journal.list()).map_err(|error| failed(&error))?;
    infos.into_iter().find(|info| is_of(info, &here)).ok_or_else(|| {
        Problem::usage(format!(
            "there is no session in {} yet; `terret sessions list` shows those of other folders, and -r ID goes on with one",
            here.display()
        ))
    })
}

fn is_of(info: &SessionInfo, folder: &Path) -> bool {
    info.setup.folder.as_deref().is_some_and(|its| Path::new(its) == folder)
}

/// Lets somebody choose, of the sessions of this folder if there are any.
fn pick(journal: &SqliteJournal) -> Result<SessionInfo, Problem> {
    const MOST: usize = 20;
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Problem::usage(
            "-r needs the name of a session where nobody can be asked: `terret sessions list` shows them, and -c goes on \
             with the last one of this folder",
        ));
    }
    let infos = patiently(READING, || journal.list()).map_err(|error| failed(&error))?;
    let here = Path::new(".").canonicalize().unwrap_or_default();
    let some_here = infos.iter().any(|info| is_of(info, &here));
    let table = Table::of(&infos).only(|info| !some_here || is_of(info, &here)).first(MOST).numbered();
    if infos.is_empty() {
        return Err(Problem::usage("there is no session yet"));
    }
    let ask = || -> io::Result<Option<usize>> {
        let mut out = anstream::stderr();
        table.write(&mut out, output::width())?;
        write!(out, "Which one? [1] ")?;
        out.flush()?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(if line.trim().is_empty() { Some(1) } else { line.trim().parse().ok() })
    };
    let number =
        ask().map_err(|error| Problem::new(Exit::RunFailed, format!("nobody can be asked which session: {error}")))?;
    let chosen = number.and_then(|number| table.rows.get(number.checked_sub(1)?));
    chosen.map(|(info, _)| (*info).clone()).ok_or_else(|| Problem::usage("that is none of them"))
}

impl Chosen {
    /// What it was set up with.
    pub(crate) fn setup(&self) -> Setup {
        let Chosen::Old { info, fork, .. } = self else { return Setup::default() };
        let mut setup = info.setup.clone();
        // One that came from elsewhere tells only who replied.
        if setup.model.is_none() {
            setup.model = info.model.clone();
        }
        if fork.is_some() {
            setup.rules = GivenRules::default();
        }
        setup
    }

    /// Opens it for an agent. What is made for it now is kept only once something is said.
    pub(crate) async fn open(&self, agent: &Agent, setup: &Setup) -> Result<Opened, Problem> {
        let (journal, id) = match self {
            Chosen::Unkept => {
                return Ok(Opened {
                    session: agent.session(),
                    interrupted: None,
                    kept: false,
                    messages: 0,
                    unanswered: false,
                });
            }
            Chosen::New { journal, id } => (journal, id),
            Chosen::Old { journal, info, fork: None } => (journal, &info.id),
            Chosen::Old { journal, info, fork: Some(Fork { id, messages }) } => {
                fork(journal, info, *messages, id)?;
                (journal, id)
            }
        };
        let opening = matches!(self, Chosen::Old { .. }).then(|| Patience::new("opening the session"));
        let session = agent.open(Arc::new(journal.clone()), id.clone()).await.map_err(refused)?;
        drop(opening);
        if !matches!(self, Chosen::Old { info, .. } if info.setup == *setup) {
            self.set_up(id, setup)?;
        }
        let transcript = session.transcript().await;
        let unanswered = match transcript.last().map(|message| &**message) {
            None => false,
            // Calls that a cancel has left open have no results yet.
            Some(message @ Message::Assistant(_)) => message.tool_calls().next().is_some(),
            Some(Message::User(_) | Message::ToolResult(_)) => true,
        };
        let interrupted = match session.interrupted().await {
            None => None,
            Some(_) => journal.resume(id).await.map_err(refused)?.state.run().map(|run| Interrupted {
                run: run.id.clone(),
                limits: run.limits,
                deadline: run.deadline(),
                cost: run.spent.cost,
            }),
        };
        Ok(Opened { session, interrupted, kept: true, messages: transcript.len(), unanswered })
    }

    /// A new one, kept as this one is.
    pub(crate) fn another(&self) -> Self {
        match self.journal() {
            None => Chosen::Unkept,
            Some(journal) => Chosen::New { journal: journal.clone(), id: SessionId::new() },
        }
    }

    /// Where it is kept.
    pub(crate) fn journal(&self) -> Option<&SqliteJournal> {
        match self {
            Chosen::Unkept => None,
            Chosen::New { journal, .. } | Chosen::Old { journal, .. } => Some(journal),
        }
    }

    /// Notes what later runs need again. The session's rules stay as they are kept.
    pub(crate) fn set_up(&self, id: &SessionId, setup: &Setup) -> Result<(), Problem> {
        let Some(journal) = self.journal() else { return Ok(()) };
        let change = |kept: &mut Setup| {
            let rules = std::mem::take(&mut kept.rules);
            *kept = Setup { rules, ..setup.clone() };
        };
        journal.change_setup(id, change).map(drop).map_err(|error| failed(&error))
    }

    /// Takes back what opening it has made, if nothing was said after all.
    pub(crate) fn abandon(&self, opened: Opened) {
        drop(opened);
        if let Chosen::Old { journal, fork: Some(fork), .. } = self {
            // A copy too many, at worst.
            let _ = journal.delete(&fork.id);
        }
    }

    /// Waits until its files are closed.
    pub(crate) fn close(&self) {
        let (journal, id) = match self {
            Chosen::Unkept => return,
            Chosen::New { journal, id } | Chosen::Old { journal, fork: Some(Fork { id, .. }), .. } => (journal, id),
            Chosen::Old { journal, info, .. } => (journal, &info.id),
        };
        journal.flush(id, Duration::from_secs(2));
    }
}

fn fork(journal: &SqliteJournal, of: &SessionInfo, messages: Option<usize>, id: &SessionId) -> Result<(), Problem> {
    let forked = journal.fork(&of.id, messages, id).map_err(|error| match error {
        StoreError::Behind { session, .. } => Problem::usage(format!("there is a session {session} already")),
        StoreError::TooFew { .. } => Problem::usage(format!("--fork: {error}; `terret sessions show` numbers them")),
        error => failed(&error),
    })?;
    for damage in &forked.damage {
        output::complain(&format!("of session {}: {damage}", of.id));
    }
    if forked.left_out > 0 {
        output::complain(&format!(
            "{} after the damage can't be gone on with and left out of the copy; `terret sessions show {}` shows what can be \
             read",
            match forked.left_out {
                1 => "1 message is".to_owned(),
                messages => format!("{messages} messages are"),
            },
            of.id
        ));
    }
    Ok(())
}

fn refused(error: JournalError) -> Problem {
    match error {
        JournalError::Owned { session, owner } => Problem {
            exit: Exit::RunFailed,
            kind: Some("in_use"),
            message: format!(
                "session {session} is open in {owner}: end that first, or go on in a copy with -r {} --fork",
                output::quoted(session.as_str())
            ),
        },
        error => Problem::new(Exit::RunFailed, error.to_string()),
    }
}

pub(crate) fn failed(error: &StoreError) -> Problem {
    Problem::new(Exit::RunFailed, error.to_string())
}
