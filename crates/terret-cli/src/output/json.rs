//! JSON output. `docs/events.schema.json` describes every line.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use terret::agent::machine::{Budget, Epoch, Failure, Outcome, QueueKind, Queued, Recovery};
use terret::agent::{Event, PartialBlock, Question, Report};
use terret::llm::{BlockKind, Message, StopReason, StreamEvent, ToolCall, Usage};

use super::{Output, Start, clean_json};
use crate::exit::{Exit, Problem};

/// The version of the events. It changes when a reader of an older one would misread.
const VERSION: u32 = 1;

/// `--output-format json`: the result, as one object.
pub(crate) struct Json {
    start: Start,
    last: LastReply,
}

/// `--output-format stream-json`: an event a line; the result is the last line.
pub(crate) struct StreamJson {
    start: Start,
    last: LastReply,
    begun: bool,
}

impl Json {
    pub(crate) fn new(start: &Start) -> Self {
        Self { start: start.clone(), last: LastReply::default() }
    }
}

impl Output for Json {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.last.see(event);
        Ok(())
    }

    fn ended(&mut self, report: &Report, took: Duration) -> io::Result<()> {
        print(&Line::Result(Box::new(ResultLine::of(report, &self.start, &self.last, took))))
    }
}

impl StreamJson {
    pub(crate) fn new(start: &Start) -> Self {
        Self { start: start.clone(), last: LastReply::default(), begun: false }
    }

    /// Tells of a run that goes on where it was interrupted. It began in another process.
    fn resume(&mut self) -> io::Result<()> {
        match &self.start.interrupted {
            Some(run) if !std::mem::replace(&mut self.begun, true) => self.run_start(run, true),
            _ => Ok(()),
        }
    }

    fn run_start(&self, run_id: &str, resumed: bool) -> io::Result<()> {
        let Start { session, model, folder, tools, .. } = &self.start;
        print(&Line::RunStart { session_id: session, run_id, model, cwd: folder, tools, resumed })
    }
}

impl Output for StreamJson {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.last.see(event);
        if !matches!(event, Event::RunStarted { .. }) {
            self.resume()?;
        }
        match event {
            Event::RunStarted { run } => {
                self.begun = true;
                self.run_start(&run.0, false)
            }
            Event::ModelCalled { epoch } => print(&Line::ModelStart { epoch: *epoch }),
            Event::Delta { epoch, event } => print(&Line::Delta { epoch: *epoch, event }),
            Event::Lagged => print(&Line::Lagged),
            Event::Snapshot(snapshot) => print(&Line::Snapshot {
                epoch: snapshot.reply.as_ref().map(|(epoch, _)| *epoch),
                blocks: snapshot.reply.iter().flat_map(|(_, blocks)| blocks).map(BlockLine::of).collect(),
                running: &snapshot.running,
            }),
            Event::AttemptFailed { epoch, failure, recovery } => {
                print(&Line::AttemptFailed { epoch: *epoch, error: ErrorLine::of(failure), recovery: *recovery })
            }
            Event::CompactionStarted { epoch } => print(&Line::CompactionStart { epoch: *epoch }),
            Event::Compacted { summary, replaced } => print(&Line::Compacted { summary, replaced: *replaced }),
            Event::Message(message) => print(&Line::Message { message }),
            Event::Queued(Queued { id, kind, message }) => print(&Line::Queued { id: *id, kind: *kind, message }),
            Event::Withdrawn(Queued { id, .. }) => print(&Line::Withdrawn { id: *id }),
            Event::Asked(Question { call, text, digest, .. }) => print(&Line::Asked { call, question: text, digest }),
            Event::Approved { call } => print(&Line::Approved { call }),
            Event::ToolStarted { call } => print(&Line::ToolStart { call }),
            Event::ToolProgress { call_id, text } => print(&Line::ToolProgress { tool_call_id: call_id, text }),
            Event::ToolEnded { result } => match &**result {
                Message::ToolResult(result) => print(&Line::ToolEnd {
                    tool_call_id: &result.tool_call_id,
                    tool_name: &result.tool_name,
                    is_error: result.is_error,
                }),
                _ => Ok(()),
            },
            Event::Interrupted => print(&Line::Interrupted),
            Event::Halted { still_running } => print(&Line::Halted { still_running }),
            Event::Cancelled { reason } => print(&Line::Cancelled { reason }),
            Event::Expired => print(&Line::Expired),
            _ => Ok(()),
        }
    }

    fn ended(&mut self, report: &Report, took: Duration) -> io::Result<()> {
        self.resume()?;
        print(&Line::Result(Box::new(ResultLine::of(report, &self.start, &self.last, took))))
    }
}

/// What the result tells of the last reply.
#[derive(Default)]
struct LastReply {
    stop_reason: Option<StopReason>,
}

impl LastReply {
    fn see(&mut self, event: &Event) {
        if let Event::Message(message) = event
            && let Message::Assistant(reply) = &**message
        {
            self.stop_reason = Some(reply.stop_reason);
        }
    }
}

/// A line as it is printed.
#[derive(Serialize)]
struct Versioned<'a> {
    v: u32,
    #[serde(flatten)]
    line: &'a Line<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Line<'a> {
    RunStart {
        session_id: &'a str,
        run_id: &'a str,
        model: &'a str,
        cwd: &'a str,
        tools: &'a [String],
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        resumed: bool,
    },
    ModelStart {
        epoch: Epoch,
    },
    Delta {
        epoch: Epoch,
        event: &'a StreamEvent,
    },
    Lagged,
    Snapshot {
        #[serde(skip_serializing_if = "Option::is_none")]
        epoch: Option<Epoch>,
        blocks: Vec<BlockLine<'a>>,
        running: &'a [Arc<ToolCall>],
    },
    AttemptFailed {
        epoch: Epoch,
        error: ErrorLine,
        #[serde(skip_serializing_if = "Option::is_none")]
        recovery: Option<Recovery>,
    },
    CompactionStart {
        epoch: Epoch,
    },
    Compacted {
        summary: &'a Message,
        replaced: usize,
    },
    Message {
        message: &'a Message,
    },
    Queued {
        id: u64,
        kind: QueueKind,
        message: &'a Message,
    },
    Withdrawn {
        id: u64,
    },
    Asked {
        call: &'a Arc<ToolCall>,
        question: &'a str,
        digest: &'a str,
    },
    Approved {
        call: &'a Arc<ToolCall>,
    },
    ToolStart {
        call: &'a Arc<ToolCall>,
    },
    ToolProgress {
        tool_call_id: &'a str,
        text: &'a str,
    },
    ToolEnd {
        tool_call_id: &'a str,
        tool_name: &'a str,
        is_error: bool,
    },
    Interrupted,
    Halted {
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        still_running: &'a [String],
    },
    Cancelled {
        reason: &'a str,
    },
    Expired,
    Result(Box<ResultLine<'a>>),
}

/// A block that is still streaming.
#[derive(Serialize)]
struct BlockLine<'a> {
    index: usize,
    #[serde(flatten)]
    kind: &'a BlockKind,
    text: &'a str,
}

impl<'a> BlockLine<'a> {
    fn of(block: &'a PartialBlock) -> Self {
        Self { index: block.index, kind: &block.kind, text: &block.text }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultLine<'a> {
    outcome: &'static str,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    model_calls: u32,
    tool_calls: u32,
    usage: Usage,
    /// Dollars; null where the price isn't known.
    cost_usd: Option<f64>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    undelivered: Vec<&'a Message>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    still_running: Vec<&'a str>,
}

#[derive(Serialize)]
struct ErrorLine {
    kind: Value,
    message: String,
    #[serde(flatten)]
    more: Option<Value>,
}

impl ErrorLine {
    fn of(failure: &Failure) -> Self {
        let plain = |kind: &str| Self { kind: kind.into(), message: failure.to_string(), more: None };
        match failure {
            Failure::Model(error) => {
                let mut more = serde_json::to_value(error).unwrap_or_default();
                let kind = more.as_object_mut().and_then(|fields| fields.remove("kind")).unwrap_or_default();
                more.as_object_mut().map(|fields| fields.remove("message"));
                Self { kind, message: error.to_string(), more: Some(more) }
            }
            Failure::Protocol(_) => plain("protocol"),
            Failure::Refused => plain("refused"),
            Failure::Compaction(_) => plain("compaction"),
            Failure::Objected(_) => plain("output_schema"),
            Failure::Hook { .. } => plain("hook"),
            Failure::Lost => plain("lost"),
            Failure::Journal(_) => plain("journal"),
            _ => plain("other"),
        }
    }
}

impl<'a> ResultLine<'a> {
    fn of(report: &'a Report, start: &'a Start, last: &LastReply, took: Duration) -> Self {
        let plain = |kind: &str| ErrorLine { kind: kind.into(), message: report.outcome.to_string(), more: None };
        let (outcome, error, still_running) = match &report.outcome {
            Outcome::Completed => ("completed", None, &[][..]),
            Outcome::Cancelled { still_running, .. } => {
                let kind = if Exit::of(&report.outcome) == Exit::Permission { "permission" } else { "cancelled" };
                ("cancelled", Some(plain(kind)), still_running.as_slice())
            }
            Outcome::Failed { failure } => ("failed", Some(ErrorLine::of(failure)), &[][..]),
            Outcome::OutOfBudget { budget, still_running } => {
                ("outOfBudget", Some(plain(kind_of(*budget))), still_running.as_slice())
            }
            _ => ("failed", Some(plain("other")), &[][..]),
        };
        Self {
            outcome,
            exit_code: Exit::of(&report.outcome).code(),
            text: report.text.as_deref(),
            stop_reason: report.stop_reason.or(last.stop_reason),
            error,
            session_id: Some(&start.session),
            model: Some(&start.model),
            model_calls: report.spent.model_calls,
            tool_calls: report.spent.tool_calls,
            usage: report.spent.usage,
            cost_usd: start.priced.then(|| report.spent.cost.dollars()),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            undelivered: report.undelivered.iter().map(|message| &**message).collect(),
            still_running: still_running.iter().map(String::as_str).collect(),
        }
    }
}

fn kind_of(budget: Budget) -> &'static str {
    match budget {
        Budget::ModelCalls => "model_calls",
        Budget::ToolCalls => "tool_calls",
        Budget::Tokens => "tokens",
        Budget::Cost => "cost",
        Budget::WallTime => "time",
        Budget::Loop => "loop",
        _ => "other",
    }
}

/// A message of a session, as a run would have told it.
pub(crate) fn print_message(message: &Message) -> io::Result<()> {
    print(&Line::Message { message })
}

/// The result line of a run that was never started.
pub(crate) fn failed_start(problem: &Problem) -> String {
    let (outcome, kind) = match problem.exit {
        Exit::Usage => ("failed", "usage"),
        Exit::Authentication => ("failed", "auth"),
        Exit::Configuration => ("failed", "configuration"),
        Exit::Interrupted | Exit::Terminated => ("cancelled", "cancelled"),
        Exit::OutOfBudget => ("outOfBudget", "time"),
        _ => ("failed", "start"),
    };
    let line = Line::Result(Box::new(ResultLine {
        outcome,
        exit_code: problem.exit.code(),
        text: None,
        stop_reason: None,
        error: Some(ErrorLine {
            kind: problem.kind.unwrap_or(kind).into(),
            message: problem.message.clone(),
            more: None,
        }),
        session_id: None,
        model: None,
        model_calls: 0,
        tool_calls: 0,
        usage: Usage::default(),
        cost_usd: None,
        duration_ms: 0,
        undelivered: Vec::new(),
        still_running: Vec::new(),
    }));
    to_line(&line).unwrap_or_default()
}

fn print(line: &Line<'_>) -> io::Result<()> {
    print_line(&to_line(line)?)
}

fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

fn to_line(line: &Line<'_>) -> io::Result<String> {
    Ok(clean_json(serde_json::to_string(&Versioned { v: VERSION, line })?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Those that a run of the program comes by only where somebody answers, or interrupts.
    #[test]
    fn lines_for_what_people_do_are_as_the_schema_says() {
        let schema = serde_json::from_str(include_str!("../../../../docs/events.schema.json")).unwrap();
        let schema = jsonschema::draft202012::new(&schema).unwrap();
        let call = Arc::new(ToolCall::new("c1", "bash", r#"{"command":"ls"}"#));
        let call_json = json!({"id": "c1", "name": "bash", "arguments": {"command": "ls"}});
        let ids = ["c1".to_owned()];
        for (line, expected) in [
            (Line::Approved { call: &call }, json!({"v": 1, "type": "approved", "call": call_json})),
            (Line::Halted { still_running: &ids }, json!({"v": 1, "type": "halted", "stillRunning": ["c1"]})),
            (Line::Halted { still_running: &[] }, json!({"v": 1, "type": "halted"})),
        ] {
            let line: Value = serde_json::from_str(&to_line(&line).unwrap()).unwrap();
            assert_eq!(line, expected);
            assert!(schema.is_valid(&line), "{line}");
        }
    }
}
