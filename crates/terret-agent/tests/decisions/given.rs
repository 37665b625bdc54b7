//! A session that is told what happens, and what it makes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use terret_agent::machine::{
    Answer, Budget, CompactionLimits, Effect, Epoch, Failure, Input, Limits, Outcome, Prompt, Record, Recovery, RunId,
    Spent, State, Task, ToolFacts, Verdict, apply, decide, due,
};
use terret_agent::{EffectClass, ToolOutput};
use terret_llm::{
    BlockKind, Draft, ErrorKind, Message, ModelError, ModelSpec, Money, Reply, Stop, StopReason, StreamEvent, Usage,
    UserMessage, wire::WireFormat,
};

/// When the first run is started, in Unix milliseconds.
pub(crate) const START: i64 = 1_000_000;

/// A session, and what time it is there.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) state: State,
    pub(crate) at: i64,
}

/// A session whose first run, `run-1`, has been prompted: the model is being called.
pub(crate) fn given(limits: Limits) -> Session {
    let mut session = empty();
    session.is_prompted("run-1", "go on", limits);
    session
}

/// A session in which nothing has been said.
pub(crate) fn empty() -> Session {
    Session { state: State::new(), at: START }
}

impl Session {
    /// What happens on an input, made durable.
    pub(crate) fn when(&mut self, input: Input) -> Vec<Record> {
        let records = decide(&self.state, input, self.at);
        records.iter().for_each(|record| apply(&mut self.state, record));
        records
    }

    /// The same, on something that must change nothing.
    pub(crate) fn ignores(&self, input: Input) {
        let records = decide(&self.state, input.clone(), self.at);
        assert!(records.is_empty(), "{input:?} led to {records:?}");
    }

    pub(crate) fn is_prompted(&mut self, run: &str, message: &str, limits: Limits) -> Vec<Record> {
        self.when(Input::Prompt(prompt(run, message, limits)))
    }

    pub(crate) fn replies(&mut self, reply: Reply) -> Vec<Record> {
        let epoch = self.epoch();
        self.when(Input::Replied { epoch, reply, cost: Money::ZERO })
    }

    /// The model call fails, and this is done about it.
    pub(crate) fn fails(&mut self, error: ModelError) -> Option<Recovery> {
        self.fails_having_used(error, Usage::default(), Money::ZERO)
    }

    pub(crate) fn fails_having_used(&mut self, error: ModelError, usage: Usage, cost: Money) -> Option<Recovery> {
        let input = Input::AttemptFailed { epoch: self.epoch(), failure: Failure::Model(error), usage, cost };
        match self.when(input).first() {
            Some(Record::AttemptFailed { recovery, .. }) => *recovery,
            other => panic!("{other:?}"),
        }
    }

    /// The model call fails, and is made again when its time has come. Tells how long that took, in milliseconds.
    pub(crate) fn fails_and_is_tried_again(&mut self, error: ModelError) -> i64 {
        let Some(Recovery::Retry { at }) = self.fails(error) else { panic!("no retry: {:?}", self.state) };
        let waited = at - std::mem::replace(&mut self.at, at);
        assert!(calls_the_model(&self.when(Input::Wake)));
        waited
    }

    pub(crate) fn is_summarised(&mut self, summary: &str, usage: Usage, cost: Money) -> Vec<Record> {
        let epoch = self.epoch();
        self.when(Input::Summarised { epoch, summary: summary.into(), usage, cost })
    }

    pub(crate) fn gate_says(&mut self, call_id: &str, verdict: Verdict) -> Vec<Record> {
        let epoch = self.epoch();
        self.when(Input::GateDecided { epoch, call_id: call_id.into(), verdict })
    }

    pub(crate) fn allows(&mut self, call_id: &str) -> Vec<Record> {
        self.gate_says(call_id, Verdict::Allow)
    }

    /// The gate asks, and this is what an answer has to name.
    pub(crate) fn asks_about(&mut self, call_id: &str) -> String {
        self.gate_says(call_id, Verdict::Ask { question: "may it?".into() });
        let asks = |effect: &Effect<'_>| matches!(effect, Effect::Ask { call, .. } if call.id == call_id);
        assert!(due(&self.state).iter().any(asks), "a question");
        let batch = self.state.batch().unwrap();
        batch.digest(batch.get(call_id).unwrap())
    }

    pub(crate) fn finishes(&mut self, call_id: &str, output: &str) -> Vec<Record> {
        let epoch = self.epoch();
        self.when(Input::ToolFinished { epoch, call_id: call_id.into(), output: ToolOutput::text(output) })
    }

    /// The model calls a tool, which is allowed and says something: the model is called again.
    pub(crate) fn uses_a_tool(&mut self, call_id: &str, output: &str) {
        self.replies(calling(&[(call_id, "look")]));
        self.allows(call_id);
        assert!(calls_the_model(&self.finishes(call_id, output)));
    }

    pub(crate) fn is_interrupted(&mut self) {
        self.when(Input::Interrupt { message: user("stop that") });
    }

    pub(crate) fn is_cancelled(&mut self) {
        self.when(Input::Cancel { reason: "enough".into() });
    }

    pub(crate) fn has_stopped(&mut self) -> Vec<Record> {
        self.when(Input::Stopped { still_running: Vec::new(), usage: Usage::default(), cost: Money::ZERO })
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.state.epoch()
    }

    pub(crate) fn spent(&self) -> Spent {
        self.state.run().expect("a run").spent
    }

    pub(crate) fn due(&self) -> Vec<Effect<'_>> {
        due(&self.state)
    }

    /// When the run wants to be woken.
    pub(crate) fn wakes_at(&self) -> Option<i64> {
        self.due().into_iter().find_map(|effect| if let Effect::Wake { at } = effect { Some(at) } else { None })
    }

    /// The key under which a call's tool is started.
    pub(crate) fn key(&self, call_id: &str) -> String {
        let key = |effect| match effect {
            Effect::StartTool { call, key, .. } if call.id == call_id => Some(key),
            _ => None,
        };
        self.due().into_iter().find_map(key).expect("a tool to start")
    }
}

/// With the tools `look` (read only) and `write` (at most once).
pub(crate) fn prompt(run: &str, message: &str, limits: Limits) -> Prompt {
    let facts = |effect| ToolFacts { effect, exclusive: false };
    let tools = [("look", EffectClass::ReadOnly), ("write", EffectClass::AtMostOnce)];
    Prompt {
        run: RunId(run.into()),
        message: Some(user(message)),
        limits,
        tools: Arc::new(
            tools.map(|(name, effect)| (name.to_owned(), facts(effect))).into_iter().collect::<BTreeMap<_, _>>(),
        ),
        models: std::num::NonZeroU32::MIN,
        task: Task::Answer,
        exceeded: None,
        apart: false,
    }
}

pub(crate) fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

pub(crate) fn with_window(tokens: u64) -> Limits {
    limits(|limits| limits.compaction = Some(CompactionLimits::for_window(Some(tokens))))
}

pub(crate) fn saying(text: &str) -> Reply {
    reply(text, &[], StopReason::Stop, Usage::default())
}

/// A reply that calls tools by id and name.
pub(crate) fn calling(calls: &[(&str, &str)]) -> Reply {
    let calls: Vec<_> = calls.iter().map(|(id, name)| (*id, *name, "{}")).collect();
    reply("", &calls, StopReason::ToolUse, Usage::default())
}

pub(crate) fn reply(text: &str, calls: &[(&str, &str, &str)], reason: StopReason, usage: Usage) -> Reply {
    let mut draft = Draft::new(&ModelSpec::new("test", "test", WireFormat::Other("test".into()))).at(0);
    if !text.is_empty() {
        draft.block(BlockKind::Text, text);
    }
    for (id, name, arguments) in calls {
        let index = draft.open_verbatim(BlockKind::ToolCall { id: (*id).into(), name: (*name).into() });
        draft.append(index, arguments);
    }
    *draft.usage_mut() = usage;
    match draft.done(Stop { reason, raw: None }).pop() {
        Some(StreamEvent::Done(reply)) => reply,
        other => panic!("not a reply: {other:?}"),
    }
}

pub(crate) fn tokens(output: u64) -> Usage {
    let mut usage = Usage::default();
    usage.output = output;
    usage
}

pub(crate) fn user(text: &str) -> UserMessage {
    UserMessage::text(text, 0)
}

pub(crate) fn overloaded() -> ModelError {
    ModelError::new(ErrorKind::Overloaded, "come back later")
}

pub(crate) fn too_long() -> ModelError {
    ModelError::new(ErrorKind::ContextOverflow, "too long")
}

pub(crate) fn every_answer() -> [Answer; 4] {
    let deny = Answer::Deny { reason: "no".into() };
    [Answer::Approve, Answer::ApproveForRun, Answer::Edit("{\"b\":1}".into()), deny]
}

pub(crate) fn calls_the_model(records: &[Record]) -> bool {
    records.iter().any(|record| matches!(record, Record::ModelCalled { .. }))
}

pub(crate) fn opened(records: &[Record]) -> Vec<&str> {
    let mut opened = Vec::new();
    for record in records {
        if let Record::CallOpened { call_id } = record {
            opened.push(&**call_id);
        }
    }
    opened
}

/// The messages that are delivered, by their numbers.
pub(crate) fn delivered(records: &[Record]) -> Vec<Vec<u64>> {
    let ids = |record: &Record| if let Record::Delivered { ids } = record { Some(ids.clone()) } else { None };
    records.iter().filter_map(ids).collect()
}

/// What a call's result says, and whether as an error.
pub(crate) fn result(records: &[Record], call_id: &str) -> Option<(String, bool)> {
    records.iter().find_map(|record| match record {
        Record::CallClosed { result } => match &**result {
            Message::ToolResult(it) if it.tool_call_id == call_id => {
                Some((it.content.iter().filter_map(|content| content.as_text()).collect(), it.is_error))
            }
            _ => None,
        },
        _ => None,
    })
}

/// How the run ended with the last of these records.
pub(crate) fn outcome(records: &[Record]) -> &Outcome {
    match records.last() {
        Some(Record::RunEnded { outcome }) => outcome,
        other => panic!("the run has not ended: {other:?}"),
    }
}

pub(crate) fn out_of(budget: Budget) -> Outcome {
    Outcome::OutOfBudget { budget, still_running: Vec::new() }
}
