//! Everything that could come in a state.

use std::collections::BTreeMap;
use std::sync::Arc;

use terret_agent::machine::{
    Answer, CallStage, Effect, Input, Limits, Prompt, QueueKind, RunId, Stage, State, ToolFacts, Verdict, due,
};
use terret_agent::{EffectClass, ToolOutput};
use terret_llm::{
    BlockKind, Draft, ErrorKind, ModelError, ModelSpec, Money, Reply, Stop, StopReason, StreamEvent, Usage,
    UserMessage, wire::WireFormat,
};

/// How much of each kind of input a path has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bounds {
    pub(crate) prompts: u8,
    pub(crate) queued: u8,
    pub(crate) crashes: u8,
    pub(crate) cancels: u8,
}

pub(crate) fn inputs(state: &State, used: Bounds, allowed: Bounds, limits: Limits) -> Vec<(Input, Bounds)> {
    let mut inputs = completions(state).into_iter().map(|input| (input, used)).collect::<Vec<_>>();
    if state.run().is_none() && used.prompts < allowed.prompts {
        let used = Bounds { prompts: used.prompts + 1, ..used };
        inputs.push((prompt(used.prompts, limits, Some("prompt")), used));
        inputs.push((prompt(used.prompts, limits, None), used));
    }
    if state.run().is_some() && used.queued < allowed.queued {
        let used = Bounds { queued: used.queued + 1, ..used };
        for kind in [QueueKind::Steering, QueueKind::FollowUp] {
            inputs.push((Input::Queue { kind, message: user("queued") }, used));
        }
    }
    if state.run().is_some() && used.crashes < allowed.crashes {
        inputs.push((Input::Resume, Bounds { crashes: used.crashes + 1, ..used }));
    }
    if state.run().is_some() && used.cancels < allowed.cancels {
        inputs.push((Input::Cancel { reason: "enough".into() }, Bounds { cancels: used.cancels + 1, ..used }));
    }
    inputs
}

/// How each effect that is due may complete.
fn completions(state: &State) -> Vec<Input> {
    let mut inputs = Vec::new();
    for effect in due(state) {
        match effect {
            Effect::CallModel { epoch } => {
                for reply in replies(state) {
                    inputs.push(Input::Replied { epoch, reply, cost: Money::from_nanos(1) });
                }
                let error = ModelError::new(ErrorKind::Overloaded, "overloaded");
                inputs.push(Input::ModelFailed { epoch, error, usage: Usage::default(), cost: Money::ZERO });
            }
            Effect::Gate { epoch, call, approved } => {
                let deny = Verdict::Deny { reason: "no".into() };
                let ask = Verdict::Ask { question: "may it?".into() };
                let reject = Verdict::Reject { explanation: "not so".into() };
                let verdicts = match (approved, &*call.name) {
                    (true, _) => vec![Verdict::Allow, reject],
                    (false, "write") => vec![Verdict::Allow, ask],
                    (false, _) => vec![Verdict::Allow, deny],
                };
                for verdict in verdicts {
                    inputs.push(Input::GateDecided { epoch, call_id: call.id.clone(), verdict });
                }
            }
            Effect::Ask { call, digest, .. } => {
                let deny = Answer::Deny { reason: "no".into() };
                for answer in [Answer::ApproveForRun, Answer::Edit("{\"b\":1}".into()), deny] {
                    inputs.push(Input::Answered { call_id: call.id.clone(), digest: digest.clone(), answer });
                }
            }
            Effect::Deadline { .. } => inputs.push(Input::Deadline),
            Effect::StartTool { epoch, call, .. } => {
                let output = ToolOutput::text("ran");
                inputs.push(Input::ToolFinished { epoch, call_id: call.id.clone(), output });
            }
            Effect::Discover { epoch, call, .. } => {
                for output in [None, Some(ToolOutput::text("found"))] {
                    inputs.push(Input::Discovered { epoch, call_id: call.id.clone(), output });
                }
            }
            Effect::Stop => {
                let open = state.batch().into_iter().flat_map(|batch| &batch.calls).filter(|call| call.is_in_flight());
                let still_running = open.map(|call| call.call.id.clone()).collect();
                inputs.push(Input::Stopped { still_running: Vec::new() });
                inputs.push(Input::Stopped { still_running });
            }
            _ => unreachable!("an effect that the exploration doesn't know"),
        }
    }
    inputs
}

/// Completions that must change nothing in this state: of an earlier epoch, of calls that are closed, of nobody.
pub(crate) fn stale(state: &State) -> Vec<Input> {
    let epoch = state.epoch();
    let calling = state.run().is_some_and(|run| run.stage == Stage::Calling);
    let mut inputs = Vec::new();
    let epochs = if calling { vec![epoch.next()] } else { vec![epoch, epoch.next()] };
    for epoch in epochs {
        let error = ModelError::new(ErrorKind::Server, "late");
        inputs.push(Input::ModelFailed { epoch, error, usage: Usage::default(), cost: Money::ZERO });
        inputs.push(Input::Replied { epoch, reply: reply("late", &[], StopReason::Stop), cost: Money::ZERO });
    }
    let acting = state.run().is_some_and(|run| run.stage == Stage::Acting);
    let closed = |id: &str| state.batch().and_then(|batch| batch.get(id)).is_none_or(|call| call.is_closed());
    let asked = state.batch().into_iter().flat_map(|batch| &batch.calls);
    for call in asked {
        // To other arguments than those that are asked about, or to a call that isn't asked about.
        let digest = match call.stage {
            CallStage::Asked { .. } => "another".to_owned(),
            _ => call.digest(),
        };
        inputs.push(Input::Answered { call_id: call.call.id.clone(), digest, answer: Answer::Approve });
    }
    for call in state.batch().into_iter().flat_map(|batch| &batch.calls) {
        let (epoch, call_id) = (epoch.next(), call.call.id.clone());
        let output = ToolOutput::text("of another epoch");
        inputs.push(Input::ToolFinished { epoch, call_id: call_id.clone(), output: output.clone() });
        inputs.push(Input::Discovered { epoch, call_id: call_id.clone(), output: Some(output) });
        inputs.push(Input::GateDecided { epoch, call_id, verdict: Verdict::Allow });
    }
    for call in ["nobody", "c1", "c2"].into_iter().filter(|id| !acting || closed(id)) {
        let call_id = call.to_owned();
        let output = ToolOutput::text("late");
        inputs.push(Input::ToolFinished { epoch, call_id: call_id.clone(), output: output.clone() });
        inputs.push(Input::Discovered { epoch, call_id: call_id.clone(), output: Some(output) });
        inputs.push(Input::GateDecided { epoch, call_id, verdict: Verdict::Allow });
    }
    inputs
}

fn replies(state: &State) -> Vec<Reply> {
    // Ids are unique in the conversation, as the provider layer promises; two replies below break that on purpose.
    let n = state.transcript().call_count();
    let (a, b) = (format!("c{}", n + 1), format!("c{}", n + 2));
    vec![
        reply("done", &[], StopReason::Stop),
        reply("", &[], StopReason::Stop),
        reply("", &[], StopReason::ToolUse),
        reply("no", &[], StopReason::Refusal),
        reply("wait", &[], StopReason::Pause),
        reply("", &[(&a, "look")], StopReason::ToolUse),
        reply("", &[(&a, "write"), (&b, "look")], StopReason::ToolUse),
        reply("", &[(&a, "alone"), (&b, "look")], StopReason::ToolUse),
        reply("", &[(&a, "missing")], StopReason::Stop),
        reply("", &[(&a, "write")], StopReason::Length),
        reply("", &[(&a, "look")], StopReason::Refusal),
        reply("", &[(&a, "look")], StopReason::Pause),
        reply("", &[(&a, "write"), (&a, "write")], StopReason::ToolUse),
        reply("", &[("", "write")], StopReason::ToolUse),
    ]
}

fn reply(text: &str, calls: &[(&str, &str)], reason: StopReason) -> Reply {
    let mut draft = Draft::new(&ModelSpec::new("test", "test", WireFormat::Other("test".into()))).at(0);
    if !text.is_empty() {
        draft.block(BlockKind::Text, text);
    }
    for (id, name) in calls {
        let kind = BlockKind::ToolCall { id: (*id).into(), name: (*name).into() };
        let index = draft.open_verbatim(kind);
        draft.append(index, "{}");
    }
    match draft.done(Stop { reason, raw: None }).pop() {
        Some(StreamEvent::Done(reply)) => reply,
        other => panic!("not a reply: {other:?}"),
    }
}

fn prompt(n: u8, limits: Limits, message: Option<&str>) -> Input {
    Input::Prompt(Prompt { run: RunId(format!("run{n}")), message: message.map(user), limits, tools: tools() })
}

fn tools() -> Arc<BTreeMap<String, ToolFacts>> {
    let facts = |effect, exclusive| ToolFacts { effect, exclusive };
    Arc::new(BTreeMap::from([
        ("look".to_owned(), facts(EffectClass::ReadOnly, false)),
        ("write".to_owned(), facts(EffectClass::AtMostOnce, false)),
        ("alone".to_owned(), facts(EffectClass::Idempotent, true)),
    ]))
}

fn user(text: &str) -> UserMessage {
    UserMessage::text(text, 0)
}
