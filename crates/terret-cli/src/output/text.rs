//! Text output: what a person reads.

use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use terret::agent::machine::{Failure, Outcome, Recovery};
use terret::agent::{Event, Report};
use terret::llm::{Block, BlockKind, Content, Message, StopReason, StreamEvent, ToolCall, ToolResultMessage};

use super::{Output, Patience, Start, clean, complain};

/// `--output-format text`: the result on standard output, progress on standard error.
pub(crate) struct Text {
    progress: Progress,
    priced: bool,
    /// The session, if a later run can go on with it.
    session: Option<String>,
    /// What is waited for.
    waiting: Option<Patience>,
    /// How many tools run.
    running: usize,
}

impl Text {
    pub(crate) fn new(start: &Start) -> Self {
        // Where both streams go to the same terminal, the reply can be shown as it comes.
        let live = io::stdout().is_terminal() && io::stderr().is_terminal();
        let progress = Progress::new(Box::new(anstream::stderr()), live);
        let session = start.kept.then(|| start.session.clone());
        Self { progress, priced: start.priced, session, waiting: None, running: 0 }
    }
}

impl Output for Text {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        // What is shown takes the place of what was waited for.
        if self.progress.shows(event) {
            self.waiting = None;
        }
        let shown = self.progress.event(event);
        if let Some(what) = self.waits_for(event) {
            // One at a time has the line.
            self.waiting = None;
            self.waiting = Some(Patience::new(what));
        }
        // A log that nobody keeps is no reason to stop. A terminal that is gone is one.
        if self.progress.live { shown } else { Ok(()) }
    }

    fn ended(&mut self, report: &Report, took: Duration) -> io::Result<()> {
        self.waiting = None;
        let shown = self.progress.end_line();
        if let Some(text) = &report.text
            && !self.progress.live
        {
            let mut out = io::stdout().lock();
            let text = if out.is_terminal() { clean(text) } else { (&**text).into() };
            writeln!(out, "{}", text.trim_end())?;
            out.flush()?;
        }
        match &report.outcome {
            Outcome::Completed if report.stop_reason == Some(StopReason::Length) => {
                complain("the answer was cut off at the output limit (--max-output-tokens raises it)");
            }
            Outcome::Completed => {}
            Outcome::Failed { failure: Failure::Model(error) } => complain(&error.to_string()),
            outcome => complain(&outcome.to_string()),
        }
        for message in &report.undelivered {
            if let Message::User(message) = &**message {
                let said: String = message.content.iter().filter_map(|content| content.as_text()).collect();
                complain(&format!("not told to the model: {}", shortened(&said.replace('\n', " "), 200)));
            }
        }
        let mut summary = summary(report, took, self.priced);
        if let Some(session) = &self.session {
            summary += &format!(" · session {}", clean(session));
        }
        let summed_up = writeln!(self.progress.out, "{DIM}{summary}{DIM:#}");
        if self.progress.live { shown.and(summed_up) } else { Ok(()) }
    }
}

impl Text {
    /// What may take its time from this event on.
    fn waits_for(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::ModelCalled { .. } => Some("waiting for the model".into()),
            Event::Delta { event: StreamEvent::BlockStart { kind: BlockKind::ToolCall { name, .. }, .. }, .. } => {
                Some(format!("the model writes a call of {}", clean(name)))
            }
            Event::CompactionStarted { .. } => Some("summarising".into()),
            Event::ToolStarted { call } => {
                self.running += 1;
                Some(format!("{} is at work", clean(&call.name)))
            }
            Event::ToolEnded { .. } => {
                self.running = self.running.saturating_sub(1);
                (self.running > 0).then(|| "tools are at work".into())
            }
            _ => None,
        }
    }
}

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// What a run took, on a line.
pub(crate) fn summary(report: &Report, took: Duration, priced: bool) -> String {
    let spent = &report.spent;
    let input = spent.usage.input + spent.usage.cache_read + spent.usage.cache_write;
    let mut line = format!(
        "{} · {} · {input} tokens in, {} out",
        count(spent.model_calls, "model call"),
        count(spent.tool_calls, "tool call"),
        spent.usage.output,
    );
    if priced {
        line += &format!(" · {}", spent.cost);
    }
    line + &format!(" · {:.1} s", took.as_secs_f64())
}

fn count(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Shows a run as it goes: each tool call with what came of it; the model's text too, when it is to be live.
pub(crate) struct Progress {
    pub(crate) out: Box<dyn Write>,
    live: bool,
    /// Whether the cursor stands behind a text that has no line end yet.
    in_line: bool,
    showing: Showing,
    /// The block of the reply that is being shown, and how many bytes of it were.
    seen: (usize, usize),
    /// Whether fragments are missing, for which the terminal was too slow.
    lagged: bool,
}

/// What of the streaming reply is shown.
#[derive(Clone, Copy, PartialEq)]
enum Showing {
    Nothing,
    Text,
    Thinking,
}

impl Showing {
    fn of(kind: &BlockKind) -> Self {
        match kind {
            BlockKind::Text => Showing::Text,
            BlockKind::Thinking { .. } => Showing::Thinking,
            _ => Showing::Nothing,
        }
    }
}

impl Progress {
    pub(crate) fn new(out: Box<dyn Write>, live: bool) -> Self {
        Self { out, live, in_line: false, showing: Showing::Nothing, seen: (0, 0), lagged: false }
    }

    /// Whether anything is written for an event.
    fn shows(&self, event: &Event) -> bool {
        match event {
            Event::Delta { event: StreamEvent::BlockDelta { .. }, .. } => self.live && self.showing != Showing::Nothing,
            Event::Delta { event: StreamEvent::BlockStart { .. } | StreamEvent::BlockEnd { .. }, .. } => self.live,
            Event::Delta { .. } | Event::ModelCalled { .. } => false,
            _ => true,
        }
    }

    pub(crate) fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Delta { event, .. } if self.live => self.delta(event),
            Event::ModelCalled { .. } => {
                self.seen = (0, 0);
                Ok(())
            }
            Event::Lagged => {
                self.lagged = self.live;
                Ok(())
            }
            Event::Snapshot(snapshot) if std::mem::take(&mut self.lagged) => {
                let mut blocks = snapshot.reply.iter().flat_map(|(_, blocks)| blocks);
                blocks.try_for_each(|block| self.go_on(block.index, Showing::of(&block.kind), &block.text))
            }
            Event::Message(message) if self.lagged => {
                let Message::Assistant(reply) = &**message else { return Ok(()) };
                reply.content.iter().enumerate().try_for_each(|(index, block)| match block {
                    Block::Text(text) => self.go_on(index, Showing::Text, &text.text),
                    Block::Thinking(thinking) => self.go_on(index, Showing::Thinking, &thinking.thinking),
                    _ => Ok(()),
                })?;
                self.end_line()
            }
            // A failure that is the end of the run is said there.
            Event::AttemptFailed { recovery: None, .. } => self.end_line(),
            Event::AttemptFailed { failure, recovery: Some(recovery), .. } => {
                self.end_line()?;
                let (failure, then) = (failure.to_string(), what_then(*recovery));
                writeln!(self.out, "{BAD}✗{BAD:#} {DIM}the model call failed: {}; {then}{DIM:#}", clean(&failure))
            }
            Event::CompactionStarted { .. } => {
                self.end_line()?;
                writeln!(self.out, "{DIM}the conversation has become long; summarising its beginning{DIM:#}")
            }
            Event::ToolStarted { call } => {
                self.end_line()?;
                writeln!(self.out, "{BOLD}• {}{BOLD:#} {}", clean(&call.name), headline(call))?;
                self.out.flush()
            }
            Event::ToolEnded { result } => match &**result {
                Message::ToolResult(result) => self.tool_ended(result),
                _ => Ok(()),
            },
            Event::Cancelled { reason } => {
                self.end_line()?;
                writeln!(self.out, "{DIM}stopping: {}{DIM:#}", clean(reason))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.in_line, false) { writeln!(self.out) } else { Ok(()) }
    }

    fn delta(&mut self, event: &StreamEvent) -> io::Result<()> {
        match event {
            StreamEvent::BlockStart { index, kind } => {
                (self.showing, self.seen) = (Showing::of(kind), (*index, 0));
                self.end_line()
            }
            StreamEvent::BlockDelta { text, .. } => {
                self.seen.1 += text.len();
                self.text(text)
            }
            StreamEvent::BlockEnd { index, .. } => {
                self.seen = (index + 1, 0);
                self.end_line()
            }
            _ => Ok(()),
        }
    }

    /// Shows the rest of a block, of which this is the text so far.
    fn go_on(&mut self, index: usize, showing: Showing, text: &str) -> io::Result<()> {
        if index < self.seen.0 {
            return Ok(());
        }
        if index > self.seen.0 {
            self.end_line()?;
            self.seen = (index, 0);
        }
        self.showing = showing;
        let rest = text.get(self.seen.1..).unwrap_or_default();
        self.seen.1 += rest.len();
        if rest.is_empty() { Ok(()) } else { self.text(rest) }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        let text = clean(text);
        match self.showing {
            Showing::Nothing => return Ok(()),
            Showing::Text => write!(self.out, "{text}")?,
            Showing::Thinking => write!(self.out, "{DIM}{text}{DIM:#}")?,
        }
        self.in_line = !text.ends_with('\n');
        self.out.flush()
    }

    fn tool_ended(&mut self, result: &ToolResultMessage) -> io::Result<()> {
        self.end_line()?;
        let text: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
        let text = text.join("\n");
        let text = clean(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let (mark, style) = if result.is_error { ("✗", BAD) } else { ("✓", GOOD) };
        let first = if result.is_error { format!("{}: ", clean(&result.tool_name)) } else { String::new() };
        for (n, line) in lines.iter().take(SHOWN).enumerate() {
            let lead = if n == 0 { format!("{style}{mark}{style:#} {first}") } else { "  ".into() };
            writeln!(self.out, "  {lead}{DIM}{}{DIM:#}", shortened(line, 120))?;
        }
        if lines.is_empty() {
            writeln!(self.out, "  {style}{mark}{style:#} {DIM}no output{DIM:#}")?;
        }
        if lines.len() > SHOWN {
            writeln!(self.out, "    {DIM}… {} more lines{DIM:#}", lines.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// How many lines of a result are shown.
const SHOWN: usize = 6;

/// What the run does about a failed model call.
fn what_then(recovery: Recovery) -> String {
    match recovery {
        Recovery::Retry { at } => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let wait = u64::try_from(at).map(Duration::from_millis).unwrap_or_default().saturating_sub(now);
            format!("trying again in {:.1} s", wait.as_secs_f64())
        }
        Recovery::FallBack => "asking the next model".into(),
        Recovery::Compact => "summarising the conversation, which has become too long".into(),
        _ => "trying something else".into(),
    }
}

/// A call's arguments on a line: the command, the path, else the arguments themselves.
fn headline(call: &ToolCall) -> String {
    let arguments = call.arguments.parse::<Value>().unwrap_or_default();
    let known = ["command", "path", "pattern"].into_iter().find_map(|key| arguments.get(key)?.as_str());
    let text = known.map_or_else(|| call.arguments.as_str().to_owned(), str::to_owned);
    let text = clean(&text);
    let mut lines = text.lines();
    let first = shortened(lines.next().unwrap_or_default(), 100);
    if lines.next().is_some() && !first.ends_with('…') { format!("{first} …") } else { first }
}

fn shortened(line: &str, limit: usize) -> String {
    match line.char_indices().nth(limit) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
    }
}
