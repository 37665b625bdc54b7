//! Everything that could come in a state.

use std::collections::BTreeMap;
use std::sync::Arc;

use terret_agent::machine::{
    Answer, Budget, CallStage, Effect, Epoch, Failure, Input, Prompt, QueueKind, RunId, RunState, Stage, State, Task,
    ToolFacts, Verdict,
};
use terret_agent::{EffectClass, ToolOutput};
use terret_llm::{
    BlockKind, Draft, ErrorKind, ModelError, ModelSpec, Money, Reply, Stop, StopReason, StreamEvent, Usage,
    UserMessage, wire::WireFormat,
};

use crate::search::{Bounds, Machine, Scenario};

/// What could come in this state, when, and what of the allowance is used then.
pub(crate) fn inputs(
    machine: &dyn Machine,
    state: &State,
    used: Bounds,
    scenario: &Scenario,
) -> Vec<(Input, i64, Bounds)> {
    let allowed = scenario.bounds;
    let mut inputs = Vec::new();
    inputs.extend(completions(machine, state, scenario).into_iter().map(|(input, at)| (input, at, used)));
    let mut add = |input, used| inputs.push((input, NOW, used));
    if state.run().is_none() && used.prompts < allowed.prompts {
        let n = used.prompts;
        let used = Bounds { prompts: n + 1, ..used };
        add(prompt(n, scenario, Some("prompt"), None), used);
        add(prompt(n, scenario, None, None), used);
        if scenario.shared {
            add(prompt(n, scenario, Some("prompt"), Some(Budget::Cost)), used);
        }
    }
    if state.run().is_none() {
        return inputs;
    }
    if used.prompts < allowed.prompts && used.crashes < allowed.crashes {
        // After a crash: the same run again, and another one.
        let n = used.prompts;
        let used = Bounds { prompts: n + 1, crashes: used.crashes + 1, ..used };
        add(prompt(n, scenario, None, None), used);
        add(prompt(n, scenario, Some("prompt"), None), used);
        add(apart(prompt(n, scenario, Some("prompt"), None)), used);
        if scenario.shared {
            add(prompt(n, scenario, Some("prompt"), Some(Budget::Cost)), used);
            add(prompt(n, scenario, None, Some(Budget::Cost)), used);
        }
        if let Some(deadline) = state.run().and_then(|run| run.deadline()) {
            inputs.push((prompt(n, scenario, Some("prompt"), None), deadline, used));
            inputs.push((prompt(n, scenario, None, None), deadline, used));
        }
    }
    let mut add = |input, used| inputs.push((input, NOW, used));
    if used.queued < allowed.queued {
        let used = Bounds { queued: used.queued + 1, ..used };
        for kind in [QueueKind::Steering, QueueKind::FollowUp] {
            add(Input::Queue { kind, message: user("queued") }, used);
        }
        if let Some(first) = state.queue().first() {
            add(Input::Withdraw { id: first.id }, used);
            add(Input::Requeue { id: first.id, message: user("changed") }, used);
        }
    }
    if used.interrupts < allowed.interrupts {
        add(Input::Interrupt { message: user("stop that") }, Bounds { interrupts: used.interrupts + 1, ..used });
    }
    if used.crashes < allowed.crashes {
        let used = Bounds { crashes: used.crashes + 1, ..used };
        add(Input::Resume, used);
        if let Some(deadline) = state.run().and_then(|run| run.deadline()) {
            inputs.push((Input::Resume, deadline, used));
        }
    }
    let mut add = |input, used| inputs.push((input, NOW, used));
    if used.cancels < allowed.cancels {
        add(Input::Cancel { reason: "enough".into() }, Bounds { cancels: used.cancels + 1, ..used });
    }
    if scenario.shared {
        add(Input::Exhausted { budget: Budget::Cost }, used);
    }
    inputs
}

/// The time, as long as nothing is waited for.
const NOW: i64 = 10;

/// How each effect that is due may complete, and when.
fn completions(machine: &dyn Machine, state: &State, scenario: &Scenario) -> Vec<(Input, i64)> {
    let mut inputs = Vec::new();
    let deadline = state.run().and_then(RunState::deadline);
    for effect in machine.due(state) {
        let mut add = |input| inputs.push((input, NOW));
        match effect {
            Effect::CallModel { epoch, .. } => {
                for reply in replies(state, scenario) {
                    add(Input::Replied { epoch, reply, cost: Money::from_nanos(1) });
                }
                use ErrorKind::*;
                let kinds = [Overloaded, Auth, ContextOverflow, InvalidRequest];
                for kind in kinds.into_iter().take(if scenario.few { 1 } else { kinds.len() }) {
                    add(failed(epoch, kind));
                }
            }
            Effect::Compact { epoch, messages, .. } => {
                assert!(!messages.is_empty(), "nothing to summarise");
                for summary in ["short".to_owned(), String::new(), "x".repeat(4_000)] {
                    add(Input::Summarised { epoch, summary, usage: used(1), cost: Money::from_nanos(1) });
                }
                for kind in [ErrorKind::Overloaded, ErrorKind::ContextOverflow] {
                    add(failed(epoch, kind));
                }
            }
            Effect::Review { epoch } => {
                for objection in [None, Some("not so".to_owned())] {
                    add(Input::Reviewed { epoch, objection });
                }
                let failure = Failure::Hook { hook: "at_end".into(), message: "broken".into() };
                add(Input::AttemptFailed { epoch, failure, usage: Usage::default(), cost: Money::ZERO });
            }
            Effect::Gate { epoch, call, approved } => {
                let deny = Verdict::Deny { reason: "no".into() };
                let ask = Verdict::Ask { question: "may it?".into() };
                // Told in the same words, so that what follows is searched once.
                let reject = Verdict::Reject { explanation: "The call was denied: no".into() };
                let verdicts = match (approved, &*call.name) {
                    (true, _) => vec![Verdict::Allow, reject],
                    (false, "write") => vec![Verdict::Allow, ask, deny, reject],
                    (false, _) => vec![Verdict::Allow, deny, reject],
                };
                for verdict in verdicts {
                    add(Input::GateDecided { epoch, call_id: call.id.clone(), verdict });
                }
            }
            Effect::Ask { call, .. } => {
                let batch = state.batch().unwrap();
                let digest = batch.digest(batch.get(&call.id).unwrap());
                for answer in answers() {
                    add(Input::Answered { call_id: call.id.clone(), digest: digest.clone(), answer });
                }
            }
            Effect::Wake { at } => {
                inputs.push((Input::Wake, at - 1));
                inputs.push((Input::Wake, at));
            }
            Effect::StartTool { epoch, call, .. } => {
                let output = ToolOutput::text(format!("ran and said {}", "x".repeat(150)));
                let finished = Input::ToolFinished { epoch, call_id: call.id.clone(), output };
                // At once, or when the time is up and nobody has said so.
                inputs.extend([Some(NOW), deadline].into_iter().flatten().map(|at| (finished.clone(), at)));
            }
            Effect::Discover { epoch, call, .. } => {
                for output in [None, Some(ToolOutput::text("found"))] {
                    add(Input::Discovered { epoch, call_id: call.id.clone(), output });
                }
            }
            Effect::Stop => {
                let open = state.batch().into_iter().flat_map(|batch| &batch.calls).filter(|call| call.is_in_flight());
                let still_running: Vec<String> = open.map(|call| call.call.id.clone()).collect();
                let announced = state.batch().into_iter().flat_map(|batch| &batch.calls);
                for call in announced.filter(|call| call.stage == CallStage::Open) {
                    add(Input::NeverBegun { epoch: state.epoch(), call_id: call.call.id.clone() });
                }
                let (usage, cost) = (Usage::default(), Money::ZERO);
                add(Input::Stopped { still_running: Vec::new(), usage, cost });
                add(Input::Stopped { still_running, usage, cost: Money::from_nanos(1) });
                inputs.extend(deadline.map(|at| (Input::Wake, at)));
            }
            _ => unreachable!("an effect that the exploration doesn't know"),
        }
    }
    inputs
}

fn failed(epoch: Epoch, kind: ErrorKind) -> Input {
    let failure = Failure::Model(ModelError::new(kind, "it failed"));
    Input::AttemptFailed { epoch, failure, usage: used(1), cost: Money::from_nanos(1) }
}

fn used(output: u64) -> Usage {
    let mut usage = Usage::default();
    usage.output = output;
    usage
}

fn answers() -> [Answer; 4] {
    let deny = Answer::Deny { reason: "no".into() };
    [Answer::Approve, Answer::ApproveForRun, Answer::Edit("{\"b\":1}".into()), deny]
}

/// Completions that must change nothing in this state: of an earlier epoch, of calls that are closed, of nobody.
pub(crate) fn stale(machine: &dyn Machine, state: &State) -> Vec<Input> {
    let epoch = state.epoch();
    let mut inputs = Vec::new();
    let due = machine.due(state);
    let (calling, compacting, reviewing) = due.iter().fold((false, false, false), |(call, compact, review), effect| {
        (
            call || matches!(effect, Effect::CallModel { .. }),
            compact || matches!(effect, Effect::Compact { .. }),
            review || matches!(effect, Effect::Review { .. }),
        )
    });
    let (usage, cost) = (Usage::default(), Money::ZERO);
    for (epoch, current) in [(epoch, true), (epoch.next(), false)] {
        if !(current && calling) {
            inputs.push(Input::Replied { epoch, reply: reply("late", &[], StopReason::Stop, 0), cost });
        }
        if !(current && compacting) {
            inputs.push(Input::Summarised { epoch, summary: "late".into(), usage, cost });
        }
        if !(current && reviewing) {
            inputs.push(Input::Reviewed { epoch, objection: Some("late".into()) });
            inputs.push(Input::Reviewed { epoch, objection: None });
        }
        if !(current && (calling || compacting || reviewing)) {
            inputs.push(failed(epoch, ErrorKind::Server));
        }
    }
    if !state.run().is_some_and(|run| matches!(run.stage, Stage::Stopping(_))) {
        inputs.push(Input::Stopped { still_running: vec!["c1".into()], usage, cost: Money::from_nanos(1) });
    }
    inputs.push(Input::Withdraw { id: 99 });
    inputs.push(Input::Requeue { id: 99, message: user("late") });
    let acting = state.run().is_some_and(|run| run.stage == Stage::Acting);
    let closed = |id: &str| state.batch().and_then(|batch| batch.get(id)).is_none_or(|call| call.is_closed());
    let asked = state.batch().into_iter().flat_map(|batch| &batch.calls);
    for call in asked {
        // To other arguments than those that are asked about, or to a call that isn't asked about.
        let digest = match call.stage {
            CallStage::Asked { .. } => "another".to_owned(),
            _ => state.batch().map(|batch| batch.digest(call)).unwrap_or_default(),
        };
        for answer in answers() {
            inputs.push(Input::Answered { call_id: call.call.id.clone(), digest: digest.clone(), answer });
        }
    }
    for call in state.batch().into_iter().flat_map(|batch| &batch.calls) {
        let (epoch, call_id) = (epoch.next(), call.call.id.clone());
        let output = ToolOutput::text("of another epoch");
        inputs.push(Input::ToolFinished { epoch, call_id: call_id.clone(), output: output.clone() });
        inputs.push(Input::Discovered { epoch, call_id: call_id.clone(), output: Some(output) });
        inputs.push(Input::NeverBegun { epoch, call_id: call_id.clone() });
        inputs.push(Input::GateDecided { epoch, call_id, verdict: Verdict::Allow });
    }
    let stopping = state.run().is_some_and(|run| matches!(run.stage, Stage::Stopping(_)));
    for call in state.batch().into_iter().flat_map(|batch| &batch.calls) {
        if !stopping || call.stage != CallStage::Open {
            inputs.push(Input::NeverBegun { epoch, call_id: call.call.id.clone() });
        }
    }
    let known = state.transcript().iter().flat_map(|message| message.tool_calls()).map(|call| &*call.id);
    for call in known.chain(["nobody"]).filter(|id| !acting || closed(id)) {
        let call_id = call.to_owned();
        let output = ToolOutput::text("late");
        inputs.push(Input::ToolFinished { epoch, call_id: call_id.clone(), output: output.clone() });
        inputs.push(Input::Discovered { epoch, call_id: call_id.clone(), output: Some(output) });
        inputs.push(Input::GateDecided { epoch, call_id, verdict: Verdict::Allow });
    }
    inputs
}

fn replies(state: &State, scenario: &Scenario) -> Vec<Reply> {
    // Ids are unique in the conversation, as the provider layer promises; two replies below break that on purpose.
    let n = state.epoch().to_string();
    let (a, b, c) = (format!("c{n}"), format!("d{n}"), format!("e{n}"));
    // Where tokens are limited, each reply takes one.
    let used = u64::from(scenario.limits.tokens.is_some());
    let reply = |text, calls, reason| reply(text, calls, reason, used);
    if scenario.few {
        return vec![reply("done", &[], StopReason::Stop), reply("", &[(&a, "write")], StopReason::ToolUse)];
    }
    if scenario.wide {
        return vec![
            reply("done", &[], StopReason::Stop),
            reply("", &[(&a, "write"), (&b, "look"), (&c, "look")], StopReason::ToolUse),
            reply("", &[(&a, "look"), (&b, "alone"), (&c, "write")], StopReason::ToolUse),
        ];
    }
    vec![
        reply("done", &[], StopReason::Stop),
        reply("", &[], StopReason::Stop),
        reply("", &[], StopReason::ToolUse),
        reply("no", &[], StopReason::Refusal),
        reply("wait", &[], StopReason::Pause),
        reply("", &[], StopReason::Pause),
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

fn reply(text: &str, calls: &[(&str, &str)], reason: StopReason, used: u64) -> Reply {
    let mut draft = Draft::new(&ModelSpec::new("test", "test", WireFormat::Other("test".into()))).at(0);
    if !text.is_empty() {
        draft.block(BlockKind::Text, text);
    }
    for (id, name) in calls {
        let kind = BlockKind::ToolCall { id: (*id).into(), name: (*name).into() };
        let index = draft.open_verbatim(kind);
        draft.append(index, "{}");
    }
    draft.usage_mut().output = used;
    match draft.done(Stop { reason, raw: None }).pop() {
        Some(StreamEvent::Done(reply)) => reply,
        other => panic!("not a reply: {other:?}"),
    }
}

fn prompt(n: u8, scenario: &Scenario, message: Option<&str>, exceeded: Option<Budget>) -> Input {
    // Where there is a window, something has to be worth a summary.
    let length = if scenario.limits.compaction.is_some_and(|limits| limits.window.is_some()) { 200 } else { 0 };
    Input::Prompt(Prompt {
        run: RunId(format!("run{n}")),
        message: message.map(|message| user(&format!("{message}{}", "p".repeat(length)))),
        limits: scenario.limits,
        tools: tools(),
        models: scenario.models,
        task: if message.is_some() && scenario.task == Task::Compact { Task::Answer } else { scenario.task },
        exceeded,
        apart: false,
    })
}

fn apart(mut prompt: Input) -> Input {
    if let Input::Prompt(prompt) = &mut prompt {
        prompt.apart = true;
    }
    prompt
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
