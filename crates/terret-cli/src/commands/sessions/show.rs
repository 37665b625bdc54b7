//! `terret sessions show`

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Args;
use terret::agent::Event;
use terret::agent::machine::{Outcome, Record, State, apply};
use terret::llm::{Block, Content, Message};
use terret::store::{Damage, SessionInfo, SqliteJournal};

use super::{find, unwritable};
use crate::exit::{Exit, Problem};
use crate::output::{self, Progress, ago, clean, cost, line, shortened_folder};
use crate::session;

#[derive(Args)]
pub(crate) struct Show {
    /// The session: its ID, the start of it, or its name
    #[arg(value_name = "ID")]
    session: String,
    /// Go on showing what happens until the run ends
    #[arg(short, long)]
    follow: bool,
    /// Print each message as a line of JSON, as a run with --json does
    #[arg(long)]
    json: bool,
}

/// How often a session that is followed is looked at. Looking is cheap, and disturbs nobody.
const EVERY: Duration = Duration::from_millis(100);

/// Exits with 1 if a part of the session can't be read. The rest is shown all the same.
pub(super) fn run(journal: &SqliteJournal, args: &Show) -> Result<Exit, Problem> {
    let info = find(journal, &args.session)?;
    let mut reader = journal.reader(&info.id).map_err(|error| session::failed(&error))?;
    let mut shown = Shown::new(args.json);
    let mut damage = Vec::new();
    if !args.json {
        shown.head(&info).map_err(unwritable)?;
    }
    let mut alone = false;
    loop {
        let mut reading = reader.read(1000).map_err(|error| session::failed(&error))?;
        let at_end = reading.records.is_empty();
        damage.append(&mut reading.damage);
        for kept in &reading.records {
            shown.record(&kept.record).map_err(unwritable)?;
        }
        if !at_end {
            continue;
        }
        if !args.follow || shown.state.run().is_none() || alone {
            break;
        }
        std::thread::sleep(EVERY);
        // Once more, for what it may have said before it died.
        alone = journal.owner(&info.id).is_none();
    }
    if alone && shown.state.run().is_some() {
        return Err(Problem::new(
            Exit::RunFailed,
            match journal.reader(&info.id) {
                Ok(_) => format!(
                    "nobody works on it any more: the run was interrupted, and terret -r {} goes on with it",
                    output::quoted(info.id.as_str())
                ),
                Err(error) => format!("it is gone: {error}"),
            },
        ));
    }
    if !args.follow {
        let mut rest = reader.read_all().map_err(|error| session::failed(&error))?;
        damage.append(&mut rest.damage);
    }
    damage.iter().for_each(tell_of);
    Ok(if damage.is_empty() { Exit::Completed } else { Exit::RunFailed })
}

fn tell_of(damage: &Damage) {
    output::complain(&damage.to_string());
}

/// What of a session has been shown.
struct Shown {
    state: State,
    messages: usize,
    json: bool,
    progress: Progress,
}

impl Shown {
    fn new(json: bool) -> Self {
        Self { state: State::new(), messages: 0, json, progress: Progress::new(Box::new(anstream::stdout()), false) }
    }

    fn head(&mut self, info: &SessionInfo) -> io::Result<()> {
        let out = &mut self.progress.out;
        if let Some(title) = &info.title {
            writeln!(out, "{BOLD}{}{BOLD:#}", line(title))?;
        }
        let mut facts = vec![line(info.id.as_str()), ago(info.updated)];
        facts.extend(info.model.as_ref().or(info.setup.model.as_ref()).map(|model| line(model)));
        facts.extend(info.setup.folder.as_deref().map(|folder| line(&shortened_folder(folder))));
        if info.cost.nanos() > 0 {
            facts.push(cost(info.cost));
        }
        if let Some(origin) = &info.origin {
            facts.push(format!("forked from {}", line(origin.session.as_str())));
        }
        writeln!(out, "{DIM}{}{DIM:#}", facts.join(" · "))
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        let before = self.state.transcript().len();
        let call = match record {
            Record::CallOpened { call_id } => self.state.batch().and_then(|batch| batch.get(call_id)).cloned(),
            _ => None,
        };
        apply(&mut self.state, record);
        let said: Vec<Arc<Message>> = self.state.transcript().get(before..).unwrap_or_default().to_vec();
        if self.json {
            return said.iter().try_for_each(|message| output::print_message(message));
        }
        for message in &said {
            // Not its place in the transcript, where a summary may stand for many.
            self.messages += 1;
            self.message(message, self.messages)?;
        }
        match record {
            Record::CallOpened { .. } => match call {
                Some(call) => self.progress.event(&Event::ToolStarted { call: call.call }),
                None => Ok(()),
            },
            Record::CallClosed { result } => self.progress.event(&Event::ToolEnded { result: result.clone() }),
            Record::AttemptFailed { failure, .. } => self.mark(BAD, &format!("the model call failed: {failure}")),
            Record::CallAsked { question, .. } => self.mark(DIM, &format!("asked: {question}")),
            Record::Cancelled { reason } => self.mark(DIM, &format!("stopping: {reason}")),
            Record::Compacted { .. } => self.mark(DIM, "summarised for the model: all that was said before"),
            Record::Interrupted => self.mark(DIM, "interrupted by the user"),
            Record::Resumed => self.mark(DIM, "interrupted, and gone on with"),
            Record::RunEnded { outcome: Outcome::Completed } => Ok(()),
            Record::RunEnded { outcome } => self.mark(BAD, &outcome.to_string()),
            _ => Ok(()),
        }
    }

    fn mark(&mut self, style: Style, text: &str) -> io::Result<()> {
        writeln!(self.progress.out, "{style}{}{style:#}", line(text))
    }

    /// A message with its number, which `--fork` takes. Results are shown when they come.
    fn message(&mut self, message: &Message, number: usize) -> io::Result<()> {
        let out = &mut self.progress.out;
        match message {
            Message::User(user) => {
                writeln!(out, "\n{DIM}{number:>3}{DIM:#} {USER}user{USER:#}")?;
                for content in &user.content {
                    match content {
                        Content::Text(text) => writeln!(out, "{}", clean(text.text.trim_end()))?,
                        Content::Image(image) => writeln!(out, "{DIM}(a picture, {}){DIM:#}", line(&image.media_type))?,
                        _ => {}
                    }
                }
            }
            Message::Assistant(reply) => {
                let model = line(&format!("{}/{}", reply.provider, reply.model));
                writeln!(out, "\n{DIM}{number:>3}{DIM:#} {MODEL}{model}{MODEL:#}")?;
                for block in &reply.content {
                    match block {
                        Block::Text(text) => writeln!(out, "{}", clean(text.text.trim_end()))?,
                        Block::Thinking(thinking) if thinking.thinking.trim().is_empty() => {}
                        Block::Thinking(thinking) => {
                            writeln!(out, "{DIM}{}{DIM:#}", clean(thinking.thinking.trim_end()))?;
                        }
                        Block::Image(image) => writeln!(out, "{DIM}(a picture, {}){DIM:#}", line(&image.media_type))?,
                        _ => {}
                    }
                }
            }
            Message::ToolResult(_) => {}
        }
        out.flush()
    }
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const USER: Style = AnsiColor::Green.on_default().bold();
const MODEL: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default();
