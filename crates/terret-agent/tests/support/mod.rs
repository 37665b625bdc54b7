//! What the tests of runs share: an agent that can add, and a run read to its end.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{iter, once};
use terret_agent::machine::Outcome;
use terret_agent::{Agent, AgentBuilder, EffectClass, Event, FnTool, Report, Run, tool};
use terret_llm::wire::WireFormat;
use terret_llm::{
    BlockKind, Draft, ErrorKind, Message, Model, ModelError, ModelSpec, ReplyStream, Request, ScriptedModel,
    ScriptedReply, ToolCall, ToolResultMessage, Usage,
};
use tokio_util::sync::CancellationToken;

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub(crate) struct Add {
    a: i8,
    b: i8,
}

pub(crate) fn add() -> FnTool {
    tool("add", "Adds two small integers.", |add: Add, _context| async move {
        Ok((i32::from(add.a) + i32::from(add.b)).to_string())
    })
    .effect(EffectClass::ReadOnly)
}

pub(crate) fn agent(replies: impl IntoIterator<Item = ScriptedReply>) -> AgentBuilder {
    Agent::builder(ScriptedModel::new(replies)).tool(add())
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> ScriptedReply {
    ScriptedReply::calls([ToolCall::new(id, name, arguments)])
}

/// A run that was read to its end.
pub(crate) struct Ran {
    pub(crate) events: Vec<Event>,
}

impl Ran {
    pub(crate) async fn to_end(mut run: Run) -> Self {
        let mut events = Vec::new();
        while let Some(event) = run.next().await {
            events.push(event);
        }
        Self { events }
    }

    pub(crate) fn report(&self) -> &Report {
        match self.events.last() {
            Some(Event::Ended(report)) => report,
            other => panic!("the last event is {other:?}"),
        }
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.report().outcome
    }

    /// The messages that were appended to the transcript.
    pub(crate) fn messages(&self) -> Vec<Arc<Message>> {
        let message = |event: &Event| if let Event::Message(message) = event { Some(message.clone()) } else { None };
        self.events.iter().filter_map(message).collect()
    }

    pub(crate) fn results(&self) -> Vec<ToolResultMessage> {
        let result = |message: Arc<Message>| match &*message {
            Message::ToolResult(result) => Some(result.clone()),
            _ => None,
        };
        self.messages().into_iter().filter_map(result).collect()
    }

    pub(crate) fn tools_started(&self) -> Vec<String> {
        let started = |event: &Event| match event {
            Event::ToolStarted { call } => Some(call.id.clone()),
            _ => None,
        };
        self.events.iter().filter_map(started).collect()
    }

    pub(crate) fn tools_ended(&self) -> Vec<String> {
        let ended = |event: &Event| match event {
            Event::ToolEnded { result } => match &**result {
                Message::ToolResult(result) => Some(result.tool_call_id.clone()),
                _ => None,
            },
            _ => None,
        };
        self.events.iter().filter_map(ended).collect()
    }
}

pub(crate) fn text(result: &ToolResultMessage) -> String {
    result.content.iter().filter_map(|content| content.as_text()).collect()
}

/// A model that tells its usage at the beginning, as some do, and then goes on for ever.
pub(crate) struct Talkative {
    pub(crate) spec: Arc<ModelSpec>,
    usage: Usage,
}

impl Talkative {
    pub(crate) fn new(usage: Usage) -> Self {
        Self { spec: Arc::new(ModelSpec::new("test", "slow", WireFormat::from("test"))), usage }
    }
}

impl Model for Talkative {
    fn spec(&self) -> &Arc<ModelSpec> {
        &self.spec
    }

    fn stream(&self, _request: Request, cancel: CancellationToken) -> ReplyStream {
        let mut draft = Draft::new(&self.spec);
        *draft.usage_mut() = self.usage;
        draft.block(BlockKind::Text, "well, ");
        let mut begun = Vec::new();
        begun.extend(std::iter::from_fn(|| draft.next_event()));
        let end = async move {
            cancel.cancelled().await;
            iter(draft.fail(ModelError::new(ErrorKind::Aborted, "cancelled")))
        };
        ReplyStream::new(iter(begun).chain(once(end).flatten()))
    }
}
