//! A run as it goes: what is final scrolls by, what may still change stands at the end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anstyle::Style;
use terret::agent::machine::Recovery;
use terret::agent::{Event, Snapshot};
use terret::llm::{BlockKind, Content, Message, StreamEvent, ToolCall};

use super::calls;
use super::look::{BAD, BOLD, DIM, Look, fit};
use super::markdown::Markdown;
use super::screen::Screen;
use crate::output::{clean, line};

pub(crate) struct View {
    look: Look,
    /// What is being written, of which block, and how many bytes of it were seen.
    block: Option<(Markdown, usize, usize)>,
    calls: HashMap<String, Arc<ToolCall>>,
    running: Vec<Running>,
    /// What the run is doing.
    doing: String,
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
    Nothing,
    Said,
    Text,
    Thinking,
    Call,
    Note,
}

impl View {
    pub(crate) fn new(look: Look) -> Self {
        Self {
            look,
            block: None,
            calls: HashMap::new(),
            running: Vec::new(),
            doing: "starting".into(),
            last: Part::Nothing,
        }
    }

    /// What the run is doing, for the status line.
    pub(crate) fn doing(&self) -> &str {
        if self.running.is_empty() { &self.doing } else { "working" }
    }

    pub(crate) fn event(&mut self, event: &Event, screen: &mut Screen) {
        match event {
            Event::ModelCalled { .. } => self.doing = "waiting".into(),
            Event::Delta { event, .. } => self.delta(event, screen),
            Event::Snapshot(snapshot) => self.catch_up(snapshot, screen),
            Event::AttemptFailed { failure, recovery, .. } => {
                self.end_block(screen);
                // A failure that is the end of the run is said there.
                if let Some(recovery) = recovery {
                    let failure = failure.to_string();
                    let note = format!("the model call failed: {}; {}", line(&failure), what_then(*recovery));
                    self.note(screen, BAD, &note);
                }
            }
            Event::CompactionStarted { .. } => self.doing = "summarising".into(),
            Event::Compacted { replaced, .. } => {
                self.note(screen, DIM, &format!("{replaced} messages were summarised; the session keeps them"));
            }
            Event::Message(message) => self.message(message, screen),
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
                self.doing = "stopping".into();
            }
            _ => {}
        }
    }

    /// The run has ended.
    pub(crate) fn end(&mut self, screen: &mut Screen) {
        self.end_block(screen);
        self.running.clear();
        self.calls.clear();
        self.doing = "starting".into();
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
        for line in clean(text).lines() {
            screen.line(&self.look.paint(style, line));
        }
    }

    /// A message of an earlier run.
    pub(crate) fn recall(&mut self, message: &Message, screen: &mut Screen) {
        match message {
            Message::User(_) => self.message(message, screen),
            Message::Assistant(reply) => {
                let text: Vec<&str> = reply.content.iter().filter_map(|block| Some(&*block.as_text()?.text)).collect();
                self.begin_block(0, Part::Text, screen);
                self.feed(&text.join("\n\n"), screen);
                self.end_block(screen);
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

    /// Goes on behind what was seen of the block that is being written.
    fn catch_up(&mut self, snapshot: &Snapshot, screen: &mut Screen) {
        let blocks = snapshot.reply.iter().flat_map(|(_, blocks)| blocks);
        let Some((_, of, seen)) = &self.block else { return };
        let more = blocks.filter(|block| block.index == *of).find_map(|block| block.text.get(*seen..));
        if let Some(more) = more.map(str::to_owned) {
            self.feed(&more, screen);
        }
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
        if let Some((mut markdown, ..)) = self.block.take() {
            markdown.end();
            markdown.rows().iter().for_each(|row| screen.line(row));
        }
    }

    fn message(&mut self, message: &Message, screen: &mut Screen) {
        match message {
            Message::User(said) => {
                self.end_block(screen);
                self.part(Part::Said, screen);
                let text: Vec<&str> = said.content.iter().filter_map(Content::as_text).collect();
                for (n, line) in clean(&text.join("\n")).lines().enumerate() {
                    let lead = if n == 0 { "› " } else { "  " };
                    screen.line(&self.look.paint(BOLD, &format!("{lead}{line}")));
                }
            }
            Message::Assistant(_) => {
                self.end_block(screen);
                for call in message.tool_calls() {
                    self.calls.insert(call.id.clone(), Arc::new(call.clone()));
                }
            }
            Message::ToolResult(_) => {}
        }
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
        if apart && self.last != Part::Nothing {
            screen.line("");
        }
        self.last = part;
    }
}

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
