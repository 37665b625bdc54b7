use std::sync::Arc;

use terret_llm::{Content, Message, ToolCall, ToolResultMessage};

use crate::event::{Event, Report};
use crate::machine::Outcome;
use crate::run::{Run, RunHandle};

/// A run that was read to its end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// All of its events.
    pub events: Vec<Event>,
    report: Report,
}

impl Recorded {
    /// Reads a run to its end.
    pub async fn of(run: Run) -> Self {
        Self::watched(run, |_, _| {}).await
    }

    /// The same, with somebody who watches: who may steer, answer and cancel by the handle, at any event.
    pub async fn watched(mut run: Run, mut watch: impl FnMut(&Event, &RunHandle)) -> Self {
        let handle = run.handle();
        let mut events = Vec::new();
        while let Some(event) = run.next().await {
            watch(&event, &handle);
            events.push(event);
        }
        Self { events, report: run.report().await }
    }

    /// How the run ended, and what it took.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// How the run ended.
    pub fn outcome(&self) -> &Outcome {
        &self.report.outcome
    }

    /// The text of the last reply, if the run completed.
    pub fn text(&self) -> Option<&str> {
        self.report.text.as_deref()
    }

    /// The messages that were appended to the transcript.
    pub fn messages(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.events.iter().filter_map(|event| if let Event::Message(message) = event { Some(message) } else { None })
    }

    /// The calls whose tools were started, in that order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.events
            .iter()
            .filter_map(|event| if let Event::ToolStarted { call } = event { Some(&**call) } else { None })
    }

    /// The results that the model was shown, in the order of its calls.
    pub fn results(&self) -> impl Iterator<Item = &ToolResultMessage> {
        self.messages().filter_map(|message| match &**message {
            Message::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    /// What the model was shown as the result of a call, by the call's id: its text.
    pub fn result(&self, call_id: &str) -> Option<String> {
        let result = self.results().find(|result| result.tool_call_id == call_id)?;
        let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
        Some(texts.join("\n"))
    }

    /// The run completed; returns its text.
    #[track_caller]
    pub fn assert_completed(&self) -> &str {
        match (self.outcome(), self.text()) {
            (Outcome::Completed, text) => text.unwrap_or_default(),
            (outcome, _) => panic!("the run did not complete: {outcome:?}"),
        }
    }

    /// These tools were started, in this order, and no others.
    #[track_caller]
    pub fn assert_called(&self, tools: &[&str]) {
        let called: Vec<&str> = self.calls().map(|call| &*call.name).collect();
        assert_eq!(called, tools, "the tools that were started, and those that should have been");
    }
}
