//! Reading pi's session files: versions 1 to 3.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use terret_agent::SessionId;
use terret_agent::machine::{Limits, Outcome, QueueKind, Record, RunId, State, Task, apply};
use terret_llm::{AssistantMessage, Message, Money, StopReason, UserMessage};

use crate::copied::close_open_calls;
use crate::error::StoreError;
use crate::journal::SqliteJournal;
use crate::owned::Owned;
use crate::setup::Setup;
use crate::time::from_iso;

/// What became of a file of pi.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The new session.
    pub session: SessionId,
    /// How many messages it has.
    pub messages: usize,
    /// What was left out, and why: lines that can't be read, failed replies, results without a call, what stands on other
    /// branches or before a summary, and kinds of entries that are nothing to a model.
    pub left_out: Vec<String>,
}

impl SqliteJournal {
    /// Makes a session of a file of pi: of the branch that its last line is on, and after a compaction of the summary and
    /// what was kept. A line that can't be read costs that line only.
    pub fn import_pi(&self, file: impl BufRead, new: &SessionId) -> Result<Imported, StoreError> {
        let Tree { nodes, folder, created, mut left_out } = Tree::read(file)?;
        let title =
            nodes.iter().rev().find_map(|node| (node.line.kind == "session_info").then(|| node.line.name.clone()));
        let (mut history, mut passed_over) = (History::default(), PassedOver::default());
        let context = context(&nodes, &mut passed_over);
        for node in context {
            match node.line.message() {
                Ok(Meaning::Message(message, cost)) => {
                    left_out.extend(history.take(*message, cost).map(|why| (node.number, why.to_owned())));
                }
                Ok(Meaning::NotForModels) => passed_over.count("of commands that were kept from the model".into()),
                Ok(Meaning::Nothing) => passed_over.count(format!("of type {:?}", node.line.kind)),
                Ok(Meaning::Known) => {}
                Err(why) => {
                    let message = node.line.message.as_ref().map_or("nothing", |message| message.get());
                    left_out.push((node.number, format!("{why}; received {}", received(message))));
                }
            }
        }
        left_out.sort_by_key(|(line, _)| *line);
        let lines = left_out.into_iter().map(|(line, why)| format!("line {line}: {why}"));
        let left_out = lines.chain(passed_over.told()).collect();
        history.finish();
        let say = |owned: &Owned| created.map_or(Ok(()), |created| owned.set_created(created));
        self.make(new, &history.records, say, None)?;
        if !history.records.is_empty() {
            self.set_up(new, &Setup { folder, ..Setup::default() })?;
        }
        if let Some(title) = title.flatten().map(|title| named(&title)).filter(|title| !title.is_empty())
            && !history.records.is_empty()
        {
            self.rename(new, Some(&title))?;
        }
        Ok(Imported { session: new.clone(), messages: history.state.transcript().len(), left_out })
    }
}

/// A name as people give them: one line, and not a long one.
fn named(title: &str) -> String {
    let words: Vec<&str> =
        title.split(|c: char| c.is_whitespace() || c.is_control()).filter(|it| !it.is_empty()).collect();
    words.join(" ").chars().take(200).collect()
}

/// The start of what stood there.
fn received(text: &str) -> String {
    const MOST: usize = 80;
    let text = text.trim();
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// What has no place in a session, by what it is, and how often.
#[derive(Default)]
struct PassedOver(Vec<(String, usize)>);

impl PassedOver {
    fn count(&mut self, what: String) {
        match self.0.iter_mut().find(|(it, _)| *it == what) {
            Some((_, count)) => *count += 1,
            None => self.0.push((what, 1)),
        }
    }

    fn told(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(what, count)| match count {
            1 => format!("1 entry {what}"),
            _ => format!("{count} entries {what}"),
        })
    }
}

/// The entries of a file, each with the one that it follows.
struct Tree {
    nodes: Vec<Node>,
    /// Where the tools worked.
    folder: Option<String>,
    /// In Unix milliseconds.
    created: Option<i64>,
    /// By line.
    left_out: Vec<(usize, String)>,
}

struct Node {
    number: usize,
    line: Line,
    parent: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    version: Option<u64>,
    id: Option<String>,
    parent_id: Option<String>,
    message: Option<Box<RawValue>>,
    summary: Option<String>,
    first_kept_entry_id: Option<String>,
    content: Option<Box<RawValue>>,
    name: Option<String>,
    cwd: Option<String>,
    timestamp: Option<Box<RawValue>>,
}

impl Tree {
    fn read(file: impl BufRead) -> Result<Self, StoreError> {
        let (mut tree, mut by_id) =
            (Self { nodes: Vec::new(), folder: None, created: None, left_out: Vec::new() }, HashMap::new());
        for (line, number) in file.split(b'\n').zip(1..) {
            let line = line.map_err(StoreError::Input)?;
            let line = String::from_utf8_lossy(&line);
            if line.trim().is_empty() {
                continue;
            }
            let read = serde_json::from_str::<Line>(&line).map_err(|error| error.to_string());
            if number == 1 {
                let header = check_header(read, &line)?;
                (tree.created, tree.folder) = (header.at(), header.cwd);
                continue;
            }
            let line = match read {
                Ok(line) => line,
                Err(error) => {
                    tree.left_out.push((number, format!("{error}; received {}", received(&line))));
                    continue;
                }
            };
            let previous = tree.nodes.len().checked_sub(1);
            let parent = match (&line.id, &line.parent_id) {
                // The first version is a list.
                (None, _) => previous,
                (Some(_), None) => None,
                // A line that couldn't be read is no reason to lose what follows it.
                (Some(_), Some(parent)) => by_id.get(parent).copied().or(previous),
            };
            if let Some(id) = &line.id {
                by_id.insert(id.clone(), tree.nodes.len());
            }
            tree.nodes.push(Node { number, line, parent });
        }
        match by_id.is_empty() && tree.nodes.is_empty() && tree.left_out.is_empty() {
            true => Err(StoreError::NotPi("it has no entries".into())),
            false => Ok(tree),
        }
    }
}

fn check_header(header: Result<Line, String>, line: &str) -> Result<Line, StoreError> {
    let why = match header {
        Ok(header) if header.kind != "session" => {
            format!("the first line is of type {:?}, not \"session\"", header.kind)
        }
        Ok(Line { version: Some(version), .. }) if version > 3 => {
            format!("it is of version {version}, and 3 is the newest that is known here")
        }
        Ok(header) => return Ok(header),
        Err(error) => format!("the first line can't be read: {error}"),
    };
    Err(StoreError::NotPi(format!("{why}; received {}", received(line))))
}

/// What pi would send: the way from the root to the last line, with the newest summary in place of what it replaces.
fn context<'a>(nodes: &'a [Node], passed_over: &mut PassedOver) -> Vec<&'a Node> {
    let mut path = Vec::new();
    let mut at = nodes.len().checked_sub(1);
    // A file can claim that an entry follows a later one, but here each follows an earlier one.
    while let Some(node) = at.and_then(|at| nodes.get(at)) {
        path.push(node);
        at = node.parent;
    }
    path.reverse();
    let on_path: HashSet<usize> = path.iter().map(|node| node.number).collect();
    for _ in nodes.iter().filter(|node| node.line.is_told() && !on_path.contains(&node.number)) {
        passed_over.count("of branches that were left".into());
    }
    let Some(compacted) = path.iter().rposition(|node| node.line.kind == "compaction") else { return path };
    let (before, after) = path.split_at(compacted);
    let first_kept = after.first().and_then(|node| node.line.first_kept_entry_id.as_ref());
    let kept = before.iter().position(|node| node.line.id.is_some() && node.line.id.as_ref() == first_kept);
    let (replaced, kept) = before.split_at(kept.unwrap_or(before.len()));
    for _ in replaced.iter().filter(|node| node.line.is_told()) {
        passed_over.count("that a summary stands for".into());
    }
    let kept = kept.iter().filter(|node| node.line.kind != "compaction");
    after.iter().take(1).chain(kept).chain(after.iter().skip(1)).copied().collect()
}

/// The messages of pi's program, beside those of its models.
#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum AppMessage {
    BashExecution {
        command: String,
        #[serde(default)]
        output: String,
        #[serde(default)]
        exclude_from_context: bool,
    },
    #[serde(alias = "hookMessage")]
    Custom {
        content: Box<RawValue>,
    },
    BranchSummary {
        summary: String,
    },
    CompactionSummary {
        summary: String,
    },
}

#[derive(Default, Deserialize)]
struct Stamped {
    timestamp: Option<i64>,
    usage: Option<Priced>,
}

#[derive(Deserialize)]
struct Priced {
    cost: Option<Cost>,
}

#[derive(Deserialize)]
struct Cost {
    total: Option<f64>,
}

/// What an entry is to a model.
enum Meaning {
    /// A message that it is shown, and what it cost.
    Message(Box<Message>, Money),
    /// Something that happened, and that it is not to be told.
    NotForModels,
    /// Nothing, and what it says of the session is kept.
    Known,
    Nothing,
}

impl Meaning {
    fn said(message: Message) -> Self {
        Meaning::Message(Box::new(message), Money::ZERO)
    }
}

impl Line {
    fn message(&self) -> Result<Meaning, String> {
        let at = self.at().unwrap_or(0);
        let text = |text: String| Ok(Meaning::said(UserMessage::text(text, at).into()));
        match (self.kind.as_str(), &self.message, &self.summary, &self.content) {
            ("message", Some(message), ..) => message_of(message.get(), at),
            ("compaction", _, Some(summary), _) => text(compacted(summary)),
            ("branch_summary", _, Some(summary), _) => text(branched(summary)),
            ("custom_message", _, _, Some(content)) => Ok(Meaning::said(user(content, at)?)),
            ("session_info", ..) => Ok(Meaning::Known),
            _ => Ok(Meaning::Nothing),
        }
    }

    /// Whether a model may have been told it.
    fn is_told(&self) -> bool {
        matches!(self.kind.as_str(), "message" | "compaction" | "branch_summary" | "custom_message")
    }

    /// When it was written, in Unix milliseconds.
    fn at(&self) -> Option<i64> {
        let timestamp = self.timestamp.as_ref()?.get();
        timestamp.parse().ok().or_else(|| from_iso(timestamp.trim_matches('"')))
    }
}

fn message_of(json: &str, at: i64) -> Result<Meaning, String> {
    let stamped: Stamped = serde_json::from_str(json).unwrap_or_default();
    let at = stamped.timestamp.unwrap_or(at);
    let Ok(app) = serde_json::from_str::<AppMessage>(json) else {
        let dollars = stamped.usage.and_then(|usage| usage.cost?.total).unwrap_or(0.0);
        let mut message = serde_json::from_str(json).map_err(|error| error.to_string())?;
        match &mut message {
            Message::User(it) => it.timestamp = at,
            Message::Assistant(it) => it.timestamp = at,
            Message::ToolResult(it) => it.timestamp = at,
        }
        return Ok(Meaning::Message(Box::new(message), Money::from_nanos((dollars * 1e9).round() as i64)));
    };
    let text = match app {
        AppMessage::BashExecution { exclude_from_context: true, .. } => return Ok(Meaning::NotForModels),
        AppMessage::BashExecution { command, output, .. } => format!("I ran `{command}`. It printed:\n\n{output}"),
        AppMessage::BranchSummary { summary } => branched(&summary),
        AppMessage::CompactionSummary { summary } => compacted(&summary),
        AppMessage::Custom { content } => return Ok(Meaning::said(user(&content, at)?)),
    };
    Ok(Meaning::said(UserMessage::text(text, at).into()))
}

fn user(content: &RawValue, timestamp: i64) -> Result<Message, String> {
    let message = format!(r#"{{"role":"user","timestamp":{timestamp},"content":{}}}"#, content.get());
    serde_json::from_str(&message).map_err(|error| error.to_string())
}

fn compacted(summary: &str) -> String {
    format!("A summary of the conversation up to here:\n\n{summary}")
}

fn branched(summary: &str) -> String {
    format!("A summary of another way that this conversation took, and that was left:\n\n{summary}")
}

/// The records that the machine would have written.
#[derive(Default)]
struct History {
    records: Vec<Record>,
    state: State,
    runs: usize,
    /// Whether the last reply asked for nothing.
    answered: bool,
}

impl History {
    /// Takes a message in, or says why it has no place.
    fn take(&mut self, message: Message, cost: Money) -> Option<&'static str> {
        match message {
            Message::User(_) => self.user(Arc::new(message)),
            Message::Assistant(AssistantMessage { stop_reason: StopReason::Error | StopReason::Aborted, .. }) => {
                return Some("a reply that failed or was aborted");
            }
            Message::Assistant(_) => self.reply(message, cost),
            Message::ToolResult(ref result) => {
                let waits = self.state.batch().and_then(|batch| batch.get(&result.tool_call_id));
                if waits.is_none_or(|call| call.is_closed()) {
                    return Some("a result without a call");
                }
                self.push(Record::CallClosed { result: Arc::new(message) });
            }
        }
        None
    }

    fn user(&mut self, message: Arc<Message>) {
        self.close_open_calls();
        if self.answered {
            self.end_run();
        }
        match self.state.run() {
            None => self.start_run(Some(message)),
            Some(_) => self.push(Record::Queued { kind: QueueKind::Steering, message }),
        }
        let ids = self.state.queue().iter().map(|queued| queued.id).collect();
        self.push(Record::Delivered { ids });
    }

    fn reply(&mut self, message: Message, cost: Money) {
        self.close_open_calls();
        if self.state.run().is_none() {
            self.start_run(None);
        }
        self.push(Record::ModelCalled { epoch: self.state.epoch().next() });
        self.answered = message.tool_calls().next().is_none();
        self.push(Record::ReplyAccepted { message: Arc::new(message), cost });
    }

    fn finish(&mut self) {
        self.close_open_calls();
        self.end_run();
    }

    fn start_run(&mut self, prompt: Option<Arc<Message>>) {
        self.runs += 1;
        let run = RunId(format!("imported-{}", self.runs));
        let at = match prompt.as_deref() {
            Some(Message::User(user)) => user.timestamp,
            _ => 0,
        };
        let (models, task) = (NonZeroU32::MIN, Task::Answer);
        let (limits, tools) = (Limits::default(), Arc::default());
        self.push(Record::RunStarted { run, limits, tools, at, prompt, models, task });
    }

    fn end_run(&mut self) {
        self.answered = false;
        if self.state.run().is_some() {
            self.push(Record::RunEnded { outcome: Outcome::Completed });
        }
    }

    fn close_open_calls(&mut self) {
        for record in close_open_calls(&self.state) {
            self.push(record);
        }
    }

    fn push(&mut self, record: Record) {
        apply(&mut self.state, &record);
        self.records.push(record);
    }
}
