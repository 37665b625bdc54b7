//! The conversation: one session, many runs, and somebody who types meanwhile.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crossterm::event::KeyCode;
use terret::agent::machine::{Answer, Failure, Outcome, Queued};
use terret::agent::{Event, Question, Report, Run, RunHandle};
use terret::llm::{Content, Message, StopReason};
use tokio::time::{Instant, MissedTickBehavior};

use super::editor::Editor;
use super::history::History;
use super::input::{Arrivals, Input, Told, Typed, suspend};
use super::look::{ASKING, BAD, BOLD, DIM, Look, columns, fit};
use super::screen::{Live, Screen};
use super::status::Status;
use super::view::View;
use super::{Desk, calls, elsewhere, screen};
use crate::exit::{Exit, Problem};
use crate::output::line;
use crate::permissions::Scope;
use crate::signals;

pub(crate) struct Talk {
    pub(super) desk: Desk,
    pub(super) look: Look,
    pub(super) screen: Screen,
    pub(super) view: View,
    pub(super) status: Status,
    pub(super) editor: Editor,
    pub(super) history: History,
    pub(super) busy: Option<Busy>,
    /// An event of the run with more text in it than is taken in at once.
    late: Option<Event>,
    /// What waits to be said.
    pub(super) queue: Vec<Queued>,
    pub(super) questions: VecDeque<Question>,
    pub(super) mode: Mode,
    /// What was being typed when a question came.
    pub(super) stash: String,
    /// When the last key of it was typed.
    pub(super) typing: Option<Instant>,
    /// When the first question was put.
    pub(super) put: Option<Instant>,
    /// The key that answered the question before.
    pub(super) held: Option<KeyCode>,
    /// A word for the person, until the next key.
    pub(super) notice: Option<String>,
    /// What was being typed when something was looked for, and how many hits were passed over.
    pub(super) find: (String, usize),
    /// What needs the terminal next.
    pub(super) aside: Option<Aside>,
    /// Whether the next Ctrl-C leaves.
    pub(super) leaving: bool,
    pub(super) exit: Option<Exit>,
}

/// A run that goes on.
pub(super) struct Busy {
    run: Run,
    pub(super) handle: RunHandle,
    since: Instant,
}

/// What is done while the terminal is as other programs expect it: it may be theirs, or take as long as they do.
pub(super) enum Aside {
    /// Edits what is typed, in the editor that its user likes.
    Editor,
    /// Asks another model, for whose key a program may be asked.
    Model(String),
    /// Begins another session.
    Clear,
}

/// What the keys are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// To say something.
    Say,
    /// To decide about the first question.
    Decide,
    /// To edit the arguments of its call.
    Edit,
    /// To say why it is denied.
    Reason,
    /// To write rules that let it run.
    Permit(Scope),
    /// To find what was said before.
    Find,
}

/// How often the rows at the end are drawn at most, while a reply streams.
const FRAME: Duration = Duration::from_millis(25);
/// How long a signal may take that others have got already.
const INSTANT: Duration = Duration::from_millis(200);
/// How long a run may take to stop when the program is told to.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Talk {
    pub(super) fn new(desk: Desk, look: Look, screen: Screen) -> Self {
        let status = Status::new(desk.agent.model().spec(), desk.cost_so_far());
        let history = History::load(desk.is_kept());
        Self {
            desk,
            look,
            screen,
            view: View::new(look),
            status,
            editor: Editor::default(),
            history,
            busy: None,
            late: None,
            queue: Vec::new(),
            questions: VecDeque::new(),
            mode: Mode::Say,
            stash: String::new(),
            typing: None,
            put: None,
            held: None,
            notice: None,
            find: Default::default(),
            aside: None,
            leaving: false,
            exit: None,
        }
    }

    /// Talks until somebody leaves.
    pub(super) async fn go_on(mut self) -> Result<Exit, Problem> {
        let gone = |error: io::Error| Problem::new(Exit::RunFailed, format!("the terminal can't be used: {error}"));
        let mut arrivals = Arrivals::listen().map_err(gone)?;
        tokio::spawn(end_in_any_case(Arrivals::listen().map_err(gone)?));
        self.greet().await;
        let talked = self.converse(&mut arrivals).await;
        // Without a terminal, nobody is there who could go on.
        let exit = self.exit.unwrap_or(Exit::Terminated);
        self.last_words(exit, &mut arrivals).await;
        // Nobody may be there to be told.
        let _ = self.screen.leave();
        self.desk.close();
        talked.map(|()| exit).map_err(gone)
    }

    async fn converse(&mut self, arrivals: &mut Arrivals) -> io::Result<()> {
        let mut input = Input::of(self.look);
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.draw()?;
        // When the rows at the end were drawn, and when they are to be drawn next.
        let (mut drawn, mut due) = (Instant::now(), None);
        while self.exit.is_none() {
            // Nothing that a run says holds up the keys, nor the drawing. It waits itself while the terminal is slower.
            tokio::select! {
                biased;
                told = arrivals.next() => {
                    self.told(told)?;
                    due = Some(drawn);
                }
                typed = input.next() => {
                    self.typed(typed).await?;
                    if let Some(aside) = self.aside.take() {
                        input.rest();
                        self.step_aside(aside, arrivals).await?;
                        input.go_on();
                    }
                    due = Some(drawn);
                }
                () = reached(due) => {
                    self.draw()?;
                    drawn = Instant::now();
                    due = self.screen.has_more().then_some(drawn);
                }
                () = std::future::ready(()), if self.late.is_some() => {
                    self.go_on_late();
                    due = due.or(Some(drawn + FRAME));
                }
                event = next_of(&mut self.busy) => {
                    self.event(event);
                    due = due.or(Some(drawn + FRAME));
                }
                _ = second.tick(), if self.busy.is_some() => due = due.or(Some(drawn)),
            }
        }
        Ok(())
    }

    /// Leaves the terminal to what may need it, or may take its time.
    async fn step_aside(&mut self, aside: Aside, arrivals: &mut Arrivals) -> io::Result<()> {
        self.screen.leave()?;
        let told = match aside {
            Aside::Editor => match elsewhere::edit(self.editor.text(), arrivals).await {
                Ok(Ok(text)) => {
                    self.editor.set(&text);
                    None
                }
                Ok(Err(problem)) => {
                    self.notice = Some(line(&problem));
                    None
                }
                Err(told) => Some(told),
            },
            Aside::Model(name) => {
                let before = self.desk.task.args.model.clone();
                match arrivals.unless_told(self.desk.ask_model(&name)).await {
                    Ok(done) => {
                        let told = told_as_it_failed(&done, arrivals).await;
                        self.has_asked_model(done);
                        told
                    }
                    Err(told) => {
                        self.desk.task.args.model = before;
                        Some(told)
                    }
                }
            }
            Aside::Clear => match arrivals.unless_told(self.desk.begin_anew()).await {
                Ok(done) => {
                    let told = told_as_it_failed(&done, arrivals).await;
                    self.has_begun_anew(done);
                    told
                }
                Err(told) => Some(told),
            },
        };
        self.screen.enter()?;
        match told {
            None => {}
            Some(Told::Interrupt) => self.notice = Some("nothing has changed".into()),
            Some(told) => self.told(told)?,
        }
        Ok(())
    }

    /// Lets a run that goes on end.
    async fn last_words(&mut self, exit: Exit, arrivals: &mut Arrivals) {
        if let Some(busy) = &self.busy {
            busy.handle.cancel(exit.reason());
        }
        let patience = tokio::time::sleep(LAST_WORDS);
        tokio::pin!(patience);
        while self.busy.is_some() {
            while self.late.is_some() {
                self.go_on_late();
            }
            tokio::select! {
                biased;
                // Whoever says it twice means it.
                Told::Terminate | Told::Interrupt = arrivals.next() => break,
                event = next_of(&mut self.busy) => self.event(event),
                () = &mut patience => break,
            }
        }
        if self.desk.is_kept() && self.desk.has_messages().await {
            let id = crate::output::quoted(self.desk.session.id().as_str());
            self.view.note(&mut self.screen, DIM, &format!("terret -r {id} goes on with this session"));
        }
    }

    fn told(&mut self, told: Told) -> io::Result<()> {
        match told {
            Told::Interrupt if self.busy.is_some() => self.interrupt(),
            Told::Interrupt => self.exit = Some(Exit::Interrupted),
            Told::Terminate | Told::HangUp => self.exit = Some(Exit::Terminated),
            Told::Suspend => self.suspend()?,
            // Whoever has had the terminal meanwhile may have changed it.
            Told::Continue => {
                self.screen.leave()?;
                self.screen.enter()?;
            }
        }
        Ok(())
    }

    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.screen.aside(suspend)
    }

    async fn typed(&mut self, typed: Typed) -> io::Result<()> {
        match typed {
            Typed::Key(key) => self.key(key).await?,
            Typed::Pasted(text) => self.paste(&text),
            Typed::Line(line) => self.line(&line).await?,
            // It is drawn anew.
            Typed::Resized => {}
            Typed::End => self.exit = Some(if self.look.moves { Exit::Terminated } else { Exit::Completed }),
        }
        Ok(())
    }

    pub(super) fn start(&mut self, run: Run) {
        self.status.took = None;
        self.look_up_rules();
        let handle = run.handle();
        self.busy = Some(Busy { run, handle, since: Instant::now() });
    }

    /// Ends the run, and keeps what it has done.
    pub(super) fn interrupt(&mut self) {
        if let Some(busy) = &self.busy {
            busy.handle.cancel(signals::INTERRUPTED);
        }
        // Whoever stops a flood doesn't wait for what there is of it.
        if self.late.take().is_some() {
            self.view.note(&mut self.screen, DIM, "… the rest isn't shown");
        }
    }

    fn event(&mut self, event: Option<Event>) {
        let Some(event) = event else {
            self.busy = None;
            return;
        };
        match &event {
            Event::Queued(queued) => match self.queue.iter_mut().find(|waiting| waiting.id == queued.id) {
                Some(waiting) => *waiting = queued.clone(),
                None => self.queue.push(queued.clone()),
            },
            Event::Withdrawn(queued) => {
                self.queue.retain(|waiting| waiting.id != queued.id);
                self.editor.put_before(&said(&queued.message));
            }
            Event::Message(message) => {
                self.queue.retain(|queued| !std::sync::Arc::ptr_eq(&queued.message, message));
                self.status.see(message);
                self.status.pay(message);
            }
            Event::Compacted { .. } => self.status.forget_context(),
            Event::Asked(question) => self.ask(question),
            Event::Approved { call } => self.answered(&call.id),
            Event::ToolEnded { result } => {
                if let Message::ToolResult(result) = &**result {
                    self.answered(&result.tool_call_id);
                }
            }
            Event::Snapshot(snapshot) => {
                self.queue = snapshot.queue.clone();
                let known: Vec<String> = self.questions.iter().map(|question| question.call.id.clone()).collect();
                snapshot.asked.iter().filter(|asked| !known.contains(&asked.call.id)).for_each(|asked| self.ask(asked));
            }
            Event::Cancelled { .. } | Event::Expired => self.stop_asking(),
            Event::Ended(report) => return self.ended(report),
            _ => {}
        }
        if !self.view.event(&event, &mut self.screen) {
            self.late = Some(event);
        }
    }

    /// Takes in more of an event's text.
    fn go_on_late(&mut self) {
        self.late = self.late.take().filter(|late| !self.view.event(late, &mut self.screen));
    }

    fn ended(&mut self, report: &Report) {
        self.status.took = self.busy.take().map(|busy| busy.since.elapsed());
        self.view.end(&mut self.screen);
        self.stop_asking();
        self.queue.clear();
        self.status.settle(report.spent.cost);
        match &report.outcome {
            Outcome::Completed if report.stop_reason == Some(StopReason::Length) => {
                let cut = "the answer was cut off at the output limit (--max-output-tokens raises it)";
                self.view.note(&mut self.screen, BAD, cut);
            }
            Outcome::Completed if report.spent.model_calls == 0 => {
                self.view.note(&mut self.screen, DIM, "there is nothing to go on with");
            }
            Outcome::Completed => {}
            Outcome::Failed { failure: Failure::Compaction(why) } => {
                self.view.note(&mut self.screen, BAD, &format!("the conversation could not be summarised: {why}"));
            }
            Outcome::Cancelled { reason, .. } if reason == signals::INTERRUPTED => {
                self.view.note(&mut self.screen, DIM, "interrupted; /continue lets it go on");
            }
            outcome => self.view.note(&mut self.screen, BAD, &outcome.to_string()),
        }
        if !report.still_running.is_empty() {
            let note = format!("still running, because it could not be stopped: {}", report.still_running.join(", "));
            self.view.note(&mut self.screen, BAD, &note);
        }
        let undelivered: Vec<String> = report.undelivered.iter().map(|message| said(message)).collect();
        if !undelivered.is_empty() {
            match self.look.moves {
                true => self.editor.put_before(&undelivered.join("\n")),
                // Nobody sees the editor.
                false => self.view.note(&mut self.screen, BAD, &format!("not heard: {}", undelivered.join("\n"))),
            }
        }
        if !self.look.moves {
            let status = self.status.line(None, 0, usize::MAX);
            self.screen.line(&status);
        }
    }

    fn ask(&mut self, question: &Question) {
        // A rule may have been given since it was asked.
        if let Some(busy) = self.busy.as_ref().filter(|_| self.desk.is_allowed(&question.call)) {
            busy.handle.answer(question.call.id.clone(), question.digest.clone(), Answer::Approve);
            return;
        }
        self.questions.push_back(question.clone());
        if self.questions.len() == 1 {
            self.stop_finding();
            self.stash = self.editor.take();
            self.put_question();
        }
    }

    /// Shows the first question.
    fn put_question(&mut self) {
        let Some(question) = self.questions.front().cloned() else { return };
        self.mode = Mode::Decide;
        self.put = Some(Instant::now());
        self.view.question(&mut self.screen, &question.call, &question.text);
        if !self.look.moves {
            self.screen.line(CHOICES);
        }
    }

    /// A call needs no decision any more.
    pub(super) fn answered(&mut self, call_id: &str) {
        let first = self.questions.front().is_some_and(|question| question.call.id == call_id);
        self.questions.retain(|question| question.call.id != call_id);
        match (first, self.questions.is_empty()) {
            (true, false) => self.put_question(),
            (true, true) => self.stop_asking(),
            (false, _) => {}
        }
    }

    fn stop_asking(&mut self) {
        self.questions.clear();
        if self.mode != Mode::Say {
            self.mode = Mode::Say;
            let stash = std::mem::take(&mut self.stash);
            self.editor.set(&stash);
        }
    }

    /// Draws the rows at the end.
    pub(super) fn draw(&mut self) -> io::Result<()> {
        // Before the terminal wraps what is too wide for it by now: nobody waits for the word that it has another size.
        self.screen.resized();
        self.view.resized(self.screen.width());
        let width = self.screen.width();
        let most = (self.screen.height() / 2).max(3);
        let mut below = Vec::new();
        let prompt = self.look.shown(match self.mode {
            Mode::Say | Mode::Decide => "› ",
            Mode::Find => "find › ",
            Mode::Edit => "arguments › ",
            Mode::Reason => "why not? › ",
            Mode::Permit(Scope::Session) => "for this session › ",
            Mode::Permit(Scope::Project) => "for this project › ",
        });
        let cursor = if self.mode == Mode::Decide {
            // What has come since then may have moved the question away.
            if let Some(question) = self.questions.front().filter(|_| !self.view.is_asking()) {
                below.push(calls::reminder(self.look, width, &question.call));
            }
            let room = width.saturating_sub(2);
            let fits = [CHOICES, SHORT_CHOICES].into_iter().find(|choices| columns(choices) <= room);
            let choices = fit(fits.unwrap_or(SHORTEST_CHOICES), room).into_owned();
            below.push(self.look.paint(ASKING, &choices));
            (below.len() - 1, columns(&choices) + 1)
        } else {
            let indent = columns(&prompt);
            let laid = self.editor.lay_out(width.saturating_sub(indent));
            // The rows around the cursor.
            let first = (laid.cursor.0 + 1).saturating_sub(most);
            for (n, row) in laid.rows.iter().enumerate().skip(first).take(most) {
                let lead = if n == 0 { self.look.paint(BOLD, &prompt) } else { " ".repeat(indent) };
                below.push(lead + row);
            }
            (laid.cursor.0 - first, laid.cursor.1 + indent)
        };
        let doing = match self.questions.len() {
            0 => self.view.doing(),
            1 => "waiting for you".into(),
            more => format!("{more} questions wait for you").into(),
        };
        let waiting = self.busy.as_ref().map(|busy| (&*doing, busy.since.elapsed()));
        if self.mode == Mode::Find {
            let found = self.found().unwrap_or("nothing that was said has this in it");
            below.push(self.look.paint(DIM, &fit(&line(found), width)));
        }
        if let Some(notice) = &self.notice {
            below.push(self.look.paint(DIM, &fit(notice, width)));
        }
        below.push(self.look.paint(DIM, &self.status.line(waiting, self.queue.len(), width)));
        let mut above = Vec::new();
        for queued in self.queue.iter().rev().take(3).rev() {
            let kind = if queued.kind == terret::agent::machine::QueueKind::Steering { "next" } else { "then" };
            let row = format!("  {kind}: {}", line(&said(&queued.message)));
            above.push(self.look.paint(DIM, &fit(&row, width)));
        }
        let room = self.screen.height().saturating_sub(below.len() + above.len() + 2);
        // What may still change comes after what waits to be written.
        let mut rows = if self.screen.is_behind() { Vec::new() } else { self.view.rows(width) };
        rows.drain(..rows.len().saturating_sub(room));
        rows.push(String::new());
        rows.append(&mut above);
        let cursor = (rows.len() + cursor.0, cursor.1);
        rows.append(&mut below);
        self.screen.draw(Live { rows, cursor })
    }

    async fn greet(&mut self) {
        let transcript = self.desk.session.transcript().await;
        let folder = crate::output::shortened_folder(&self.desk.task.folder.display().to_string());
        let name = self.look.paint(BOLD, "terret");
        let width = self.screen.width();
        let about = format!(" {} · {folder}", env!("CARGO_PKG_VERSION"));
        self.screen.line(&format!("{name}{}", self.look.paint(DIM, &fit(&line(&about), width.saturating_sub(6)))));
        let hint = if self.desk.is_kept() {
            "/help says what you can do"
        } else {
            "/help says what you can do; nothing is kept"
        };
        self.screen.line(&self.look.paint(DIM, &fit(hint, width)));
        transcript.iter().for_each(|message| self.status.see(message));
        let last = transcript.iter().rposition(|message| matches!(**message, Message::User(_)));
        if let Some(last) = last {
            if last > 0 {
                self.view.note(&mut self.screen, DIM, &format!("… {last} earlier messages"));
            }
            transcript.iter().skip(last).for_each(|message| self.view.recall(message, &mut self.screen));
        }
        if let Some(interrupted) = &self.desk.interrupted {
            self.status.goes_on_from(interrupted.cost);
            self.view.note(&mut self.screen, DIM, "the last run was interrupted, and goes on");
            let run = self.desk.session.go_on();
            self.start(run);
        }
    }
}

pub(super) const CHOICES: &str = "y once · a this run · s this session · p this project · e edit · n no";

/// The same, where there is less room.
const SHORT_CHOICES: &str = "y once · a run · s session · p project · e edit · n no";
const SHORTEST_CHOICES: &str = "y a s p e n (/help says more)";

/// A terminal that takes nothing more holds whoever writes to it. The program ends all the same when it is told to.
async fn end_in_any_case(mut arrivals: Arrivals) {
    while !matches!(arrivals.next().await, Told::Terminate | Told::HangUp) {}
    tokio::time::sleep(LAST_WORDS + Duration::from_secs(3)).await;
    screen::let_go();
    std::process::exit(Exit::Terminated.code().into());
}

/// What ended a program that was asked for something may be meant for this one too, and come an instant later.
async fn told_as_it_failed(done: &Result<(), Problem>, arrivals: &mut Arrivals) -> Option<Told> {
    match done {
        Ok(()) => None,
        Err(_) => tokio::time::timeout(INSTANT, arrivals.next()).await.ok(),
    }
}

/// Ready at this time, and without a look at the runtime's clock where it has passed: that stands while others are ready.
async fn reached(due: Option<Instant>) {
    match due {
        None => std::future::pending().await,
        Some(due) if due <= Instant::now() => {}
        Some(due) => tokio::time::sleep_until(due).await,
    }
}

/// The next event of the run, if there is one.
async fn next_of(busy: &mut Option<Busy>) -> Option<Event> {
    match busy {
        Some(busy) => busy.run.next().await,
        None => std::future::pending().await,
    }
}

fn said(message: &Message) -> String {
    match message {
        Message::User(message) => {
            let text: Vec<&str> = message.content.iter().filter_map(Content::as_text).collect();
            text.join("\n")
        }
        _ => String::new(),
    }
}
