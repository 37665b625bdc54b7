//! A run as it goes: what is final scrolls by, what may still change stands at the end.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anstyle::Style;
use terret::agent::machine::Recovery;
use terret::agent::{Event, Snapshot};
use terret::llm::{Block, BlockKind, Content, Message, StreamEvent, ToolCall};

use super::calls;
use super::look::{BAD, BOLD, DIM, Look, fit};
use super::markdown::Markdown;
use super::screen::Screen;
use super::wrap::Wrap;
use crate::output::{clean, line};

pub(crate) struct View {
    look: Look,
    /// What is being written, of which block, and how many bytes of it were seen.
    block: Option<(Markdown, usize, usize)>,
    /// The first block of the reply that isn't shown whole.
    next: usize,
    /// Whether fragments are missing, for which the screen was too slow.
    lagged: bool,
    calls: HashMap<String, Arc<ToolCall>>,
    running: Vec<Running>,
    /// What the run is doing.
    doing: String,
    /// When the model is called again, in Unix milliseconds, after a failure.
    again: i64,
    last: Part,
}

struct Running {
    call: Arc<ToolCall>,
    since: Instant,
    progress: String,
}

/// What was written last: another part begins after an empty line.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Said,
    Text,
    Thinking,
    Call,
    Question,
    Note,
}

/// How much of a text that comes all at once is taken in at once, in bytes.
const PIECE: usize = 64 << 10;

/// How many lines of a prompt are shown.
const MOST_SAID: usize = 30;

impl View {
    pub(crate) fn new(look: Look) -> Self {
        Self {
            look,
            block: None,
            next: 0,
            lagged: false,
            calls: HashMap::new(),
            running: Vec::new(),
            doing: "starting".into(),
            again: 0,
            // The greeting.
            last: Part::Note,
        }
    }

    /// What the run is doing, for the status line.
    pub(crate) fn doing(&self) -> Cow<'_, str> {
        match until(self.again).as_secs_f64().ceil() {
            seconds if seconds > 0.0 => format!("trying again in {seconds} s").into(),
            _ if self.running.is_empty() => self.doing.as_str().into(),
            _ => "working".into(),
        }
    }

    /// Whether the last that was written is a question.
    pub(crate) fn is_asking(&self) -> bool {
        self.last == Part::Question
    }

    pub(crate) fn question(&mut self, screen: &mut Screen, call: &ToolCall, text: &str) {
        self.end_block(screen);
        self.part(Part::Question, screen);
        for row in calls::question(self.look, screen.width(), call, text) {
            screen.line(&row);
        }
    }

    /// Shows an event. False if there is more text in it than is taken in at once: it is to come again.
    pub(crate) fn event(&mut self, event: &Event, screen: &mut Screen) -> bool {
        match event {
            Event::ModelCalled { .. } => (self.doing, self.next) = ("waiting".into(), 0),
            Event::Lagged => self.lagged = true,
            Event::Delta { event, .. } => self.delta(event, screen),
            Event::Snapshot(snapshot) => return self.catch_up(snapshot, screen),
            Event::AttemptFailed { failure, recovery, .. } => {
                self.end_block(screen);
                // A failure that is the end of the run is said there.
                if let Some(recovery) = recovery {
                    let failure = failure.to_string();
                    let note = format!("the model call failed: {}; {}", line(&failure), what_then(*recovery));
                    self.note(screen, BAD, &note);
                    self.again = if let Recovery::Retry { at } = recovery { *at } else { 0 };
                }
            }
            Event::CompactionStarted { .. } => self.doing = "summarising".into(),
            Event::Compacted { replaced, .. } => {
                self.note(screen, DIM, &format!("{replaced} messages were summarised; the session keeps them"));
            }
            Event::Message(message) => return self.message(message, screen),
            Event::Approved { call } => drop(self.calls.insert(call.id.clone(), call.clone())),
            Event::ToolStarted { call } => {
                self.end_block(screen);
                self.calls.insert(call.id.clone(), call.clone());
                self.running.push(Running { call: call.clone(), since: Instant::now(), progress: String::new() });
            }
            Event::ToolProgress { call_id, text } => {
                let running = self.running.iter_mut().find(|running| running.call.id == *call_id);
                let last = text.lines().rev().find(|line| !line.trim().is_empty());
                if let (Some(running), Some(last)) = (running, last) {
                    running.progress = line(last);
                }
            }
            Event::ToolEnded { result } => self.tool_ended(result, screen),
            Event::Cancelled { .. } | Event::Expired => {
                self.end_block(screen);
                (self.doing, self.again) = ("stopping".into(), 0);
            }
            _ => {}
        }
        true
    }

    /// The run has ended.
    pub(crate) fn end(&mut self, screen: &mut Screen) {
        self.end_block(screen);
        for running in std::mem::take(&mut self.running) {
            self.part(Part::Call, screen);
            screen.line(&calls::call(self.look, screen.width(), &running.call));
            screen.line(&calls::stopped(self.look));
        }
        (self.doing, self.again) = ("starting".into(), 0);
    }

    /// What may still change.
    pub(crate) fn rows(&self, width: usize) -> Vec<String> {
        let mut rows = self.block.as_ref().map(|(text, ..)| text.pending()).unwrap_or_default();
        for running in &self.running {
            let time = running.since.elapsed().as_secs();
            let time = if time > 0 { format!(" {time} s") } else { String::new() };
            let call = calls::call(self.look, width.saturating_sub(time.len()), &running.call);
            rows.push(call + &self.look.paint(DIM, &time));
            if !running.progress.is_empty() {
                let progress = fit(&running.progress, width.saturating_sub(4)).into_owned();
                rows.push(format!("    {}", self.look.paint(DIM, &progress)));
            }
        }
        rows
    }

    /// A line about the run or the program itself.
    pub(crate) fn note(&mut self, screen: &mut Screen, style: Style, text: &str) {
        self.part(Part::Note, screen);
        let mut wrap = Wrap::new(self.look, screen.width());
        for line in clean(text).lines() {
            wrap.push_str(line, style);
            wrap.end_line();
        }
        wrap.take().iter().for_each(|row| screen.line(row));
    }

    /// A message of an earlier run.
    pub(crate) fn recall(&mut self, message: &Message, screen: &mut Screen) {
        match message {
            Message::User(_) => drop(self.message(message, screen)),
            Message::Assistant(reply) => {
                let text: Vec<&str> = reply.content.iter().filter_map(|block| Some(&*block.as_text()?.text)).collect();
                if !text.is_empty() {
                    self.begin_block(0, Part::Text, screen);
                    self.feed(&text.join("\n\n"), screen);
                    self.end_block(screen);
                }
                for call in message.tool_calls() {
                    self.part(Part::Call, screen);
                    screen.line(&calls::call(self.look, screen.width(), call));
                }
            }
            Message::ToolResult(_) => {}
        }
    }

    pub(crate) fn resized(&mut self, width: usize) {
        if let Some((text, ..)) = &mut self.block {
            text.resize(width);
        }
    }

    fn delta(&mut self, event: &StreamEvent, screen: &mut Screen) {
        match event {
            StreamEvent::BlockStart { index, kind } => match kind {
                BlockKind::Text => self.begin_block(*index, Part::Text, screen),
                BlockKind::Thinking { .. } => self.begin_block(*index, Part::Thinking, screen),
                BlockKind::ToolCall { name, .. } => {
                    self.end_block(screen);
                    self.doing = format!("calling {}", line(name));
                }
                _ => self.end_block(screen),
            },
            StreamEvent::BlockDelta { index, text } if self.is_in(*index) => self.feed(text, screen),
            StreamEvent::BlockEnd { index, .. } if self.is_in(*index) => self.end_block(screen),
            _ => {}
        }
    }

    /// Shows what there is of a reply and wasn't seen. False if there is more.
    fn catch_up(&mut self, snapshot: &Snapshot, screen: &mut Screen) -> bool {
        self.lagged = false;
        snapshot.reply.iter().flat_map(|(_, blocks)| blocks).all(|block| {
            let part = match block.kind {
                BlockKind::Text => Some(Part::Text),
                BlockKind::Thinking { .. } => Some(Part::Thinking),
                _ => None,
            };
            self.go_on(block.index, part, &block.text, screen)
        })
    }

    /// Shows the rest of a block, of which this is the text so far, if it is one to be read. False if there is more.
    fn go_on(&mut self, index: usize, part: Option<Part>, text: &str, screen: &mut Screen) -> bool {
        if index < self.next {
            return true;
        }
        let Some(part) = part else {
            if self.block.as_ref().is_some_and(|(_, of, _)| *of < index) {
                self.end_block(screen);
            }
            return true;
        };
        if !self.is_in(index) {
            self.begin_block(index, part, screen);
        }
        let seen = self.block.as_ref().map_or(0, |(.., seen)| *seen);
        let rest = text.get(seen..).unwrap_or_default();
        let piece = rest.char_indices().map(|(at, _)| at).find(|at| *at >= PIECE).unwrap_or(rest.len());
        self.feed(rest.get(..piece).unwrap_or_default(), screen);
        piece == rest.len()
    }

    fn is_in(&self, index: usize) -> bool {
        self.block.as_ref().is_some_and(|(_, of, _)| *of == index)
    }

    fn begin_block(&mut self, index: usize, part: Part, screen: &mut Screen) {
        self.end_block(screen);
        self.part(part, screen);
        let thinking = part == Part::Thinking;
        self.doing = if thinking { "thinking" } else { "answering" }.into();
        let base = if thinking { DIM } else { Style::new() };
        self.block = Some((Markdown::new(self.look, screen.width(), base), index, 0));
    }

    fn feed(&mut self, text: &str, screen: &mut Screen) {
        if let Some((markdown, _, seen)) = &mut self.block {
            *seen += text.len();
            markdown.push(text);
            markdown.rows().iter().for_each(|row| screen.line(row));
        }
    }

    fn end_block(&mut self, screen: &mut Screen) {
        if let Some((mut markdown, index, _)) = self.block.take() {
            self.next = index + 1;
            markdown.end();
            markdown.rows().iter().for_each(|row| screen.line(row));
        }
    }

    /// False if there is more of it.
    fn message(&mut self, message: &Message, screen: &mut Screen) -> bool {
        match message {
            Message::User(said) => {
                self.end_block(screen);
                self.part(Part::Said, screen);
                let text: Vec<&str> = said.content.iter().filter_map(Content::as_text).collect();
                let text = clean(&text.join("\n")).replace('\t', "    ");
                let lines = text.lines().count();
                // Whoever has pasted a file knows it.
                let most = if lines > MOST_SAID + 1 { MOST_SAID } else { lines };
                let mut wrap = Wrap::new(self.look, screen.width());
                for (n, line) in text.lines().take(most).enumerate() {
                    wrap.push_str(if n == 0 { "› " } else { "  " }, BOLD);
                    wrap.hang("  ", BOLD);
                    wrap.push_str(line, BOLD);
                    wrap.end_line();
                }
                wrap.take().iter().for_each(|row| screen.line(row));
                if lines > most {
                    screen.line(&self.look.paint(DIM, &format!("  … {} more lines", lines - most)));
                }
            }
            Message::Assistant(reply) => {
                let is_whole = !self.lagged
                    || reply.content.iter().enumerate().all(|(index, block)| match block {
                        Block::Text(text) => self.go_on(index, Some(Part::Text), &text.text, screen),
                        Block::Thinking(block) => self.go_on(index, Some(Part::Thinking), &block.thinking, screen),
                        _ => self.go_on(index, None, "", screen),
                    });
                if !is_whole {
                    return false;
                }
                self.end_block(screen);
                for call in message.tool_calls() {
                    self.calls.insert(call.id.clone(), Arc::new(call.clone()));
                }
            }
            Message::ToolResult(_) => {}
        }
        true
    }

    fn tool_ended(&mut self, result: &Message, screen: &mut Screen) {
        let Message::ToolResult(result) = result else { return };
        self.end_block(screen);
        self.running.retain(|running| running.call.id != result.tool_call_id);
        self.doing = "waiting".into();
        self.part(Part::Call, screen);
        if let Some(call) = self.calls.remove(&result.tool_call_id) {
            screen.line(&calls::call(self.look, screen.width(), &call));
        }
        for row in calls::result(self.look, screen.width(), result) {
            screen.line(&row);
        }
    }

    fn part(&mut self, part: Part, screen: &mut Screen) {
        let apart = part != self.last || matches!(part, Part::Text | Part::Said);
        if apart {
            screen.line("");
        }
        self.last = part;
    }
}

/// How long it is until then, in Unix milliseconds.
fn until(at: i64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(at).map(Duration::from_millis).unwrap_or_default().saturating_sub(now)
}

/// What the run does about a failed model call.
fn what_then(recovery: Recovery) -> String {
    match recovery {
        Recovery::Retry { at } => {
            format!("trying again in {:.1} s", until(at).as_secs_f64())
        }
        Recovery::FallBack => "asking the next model".into(),
        Recovery::Compact => "summarising the conversation, which has become too long".into(),
        _ => "trying something else".into(),
    }
}
