//! `terret` without a prompt, on a terminal: the line mode.
//!
//! What is said and done scrolls by and stays in the terminal's own memory; only a few rows at the end are drawn anew
//! (`screen.rs`). `talk.rs` is the loop, `view.rs` what is shown of a run, `keys.rs` and `slash.rs` what somebody can do.

mod calls;
mod commands;
mod editor;
mod elsewhere;
mod history;
mod input;
mod keys;
mod look;
mod markdown;
mod paths;
mod permits;
mod screen;
mod slash;
mod status;
mod table;
mod talk;
mod view;
mod wrap;

use std::path::Path;

use terret::agent::{Agent, Session};
use terret::llm::{Money, Usage};
use terret::store::{GivenRules, SessionInfo};
use terret::tools::RuleJudge;

use crate::cli::{OutputFormat, RunArgs};
use crate::commands::run::{Prepared, Task, prepare};
use crate::commands::sessions;
use crate::context::Skills;
use crate::exit::{Exit, Problem};
use crate::permissions::Permissions;
use crate::session::{self, Chosen, Interrupted, Opened};

/// Whether a command line means it: without a prompt, and with somebody who can type one.
pub(crate) fn is_meant(args: &RunArgs) -> bool {
    args.prompt.is_none() && !args.print && args.format() == OutputFormat::Text && screen::is_there()
}

/// Talks until somebody leaves.
pub(crate) async fn run(chosen: Chosen, task: Task) -> Result<Exit, Problem> {
    if task.args.output_schema.is_some() {
        return Err(Problem::usage("--output-schema is for a single answer: say what to do, as in terret -p \"…\""));
    }
    let prepared = prepare(&task, &chosen.setup()).await?;
    prepared.tell();
    let Prepared { agent, skills, setup, permissions, judge, .. } = prepared;
    let Opened { session, interrupted, .. } = chosen.open(&agent, &setup).await?;
    let desk = Desk { task, chosen, agent, skills, session, permissions, judge, interrupted };
    let look = look::Look::of_terminal();
    restore_on_panic();
    let screen = screen::Screen::take(look)
        .map_err(|error| Problem::new(Exit::RunFailed, format!("the terminal can't be used: {error}")))?;
    talk::Talk::new(desk, look, screen).go_on().await
}

/// A panic of the program gives the terminal back first. One of a tool is the tool's error, and shown as such.
fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() == Some("main") {
            screen::restore();
            report(panic);
        }
    }));
}

/// What the conversation works with.
pub(crate) struct Desk {
    task: Task,
    chosen: Chosen,
    agent: Agent,
    skills: Skills,
    session: Session,
    permissions: Permissions,
    /// What judges the calls of the agent, by these permissions.
    judge: RuleJudge,
    /// A run that waits to be gone on with.
    interrupted: Option<Interrupted>,
}

impl Desk {
    /// Lets go of the session, and waits until its files are closed.
    fn close(self) {
        let Self { chosen, session, .. } = self;
        drop(session);
        chosen.close();
    }

    fn is_kept(&self) -> bool {
        !matches!(self.chosen, Chosen::Unkept)
    }

    async fn has_messages(&self) -> bool {
        !self.session.transcript().await.is_empty()
    }

    fn info(&self) -> Option<SessionInfo> {
        self.chosen.journal()?.find(self.session.id().as_str()).ok()
    }

    /// What the session has cost in runs that have ended.
    fn cost_so_far(&self) -> Money {
        let all = self.info().map_or(Money::ZERO, |info| info.cost);
        let open = self.interrupted.as_ref().map_or(Money::ZERO, |run| run.cost);
        Money::from_nanos(all.nanos() - open.nanos())
    }

    fn usage(&self) -> Option<Usage> {
        self.info().map(|info| info.usage)
    }

    /// Asks another model from now on.
    async fn ask_model(&mut self, name: &str) -> Result<(), Problem> {
        let before = self.task.args.model.replace(name.to_owned());
        match prepare(&self.task, &self.chosen.setup()).await {
            Ok(Prepared { agent, setup, judge, .. }) => {
                self.session = self.session.with_agent(agent.clone());
                self.agent = agent;
                self.judge = judge;
                self.apply_rules();
                self.chosen.set_up(self.session.id(), &setup)
            }
            Err(problem) => {
                self.task.args.model = before;
                Err(problem)
            }
        }
    }

    /// Begins another session; the one before is let go of.
    async fn begin_anew(&mut self) -> Result<(), Problem> {
        let mut setup = self.chosen.setup();
        setup.rules = GivenRules::default();
        let chosen = self.chosen.another();
        let Prepared { agent, setup, permissions, judge, .. } = prepare(&self.task, &setup).await?;
        self.session = chosen.open(&agent, &setup).await?.session;
        self.chosen.close();
        (self.agent, self.chosen, self.permissions, self.judge) = (agent, chosen, permissions, judge);
        self.interrupted = None;
        Ok(())
    }

    fn list_sessions(&self) -> Result<(), Problem> {
        let Some(journal) = self.chosen.journal() else {
            return Err(Problem::usage("nothing is kept, with --no-session"));
        };
        let infos = journal.list().map_err(|error| session::failed(&error))?;
        slash::list(&infos, &self.task.folder.display().to_string())
            .map_err(|error| Problem::new(Exit::RunFailed, error.to_string()))
    }

    fn export(&self, file: &Path) -> Result<(), Problem> {
        let Some(journal) = self.chosen.journal() else {
            return Err(Problem::usage("nothing is kept, with --no-session"));
        };
        sessions::export(journal, self.session.id(), file)
    }
}
