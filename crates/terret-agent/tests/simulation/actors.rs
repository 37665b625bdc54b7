//! The model, the tools and the gate, each with a mind of its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use terret_agent::machine::{Record, Verdict};
use terret_agent::{EffectClass, Gate, HookError, Hooks, Review, Tool, ToolContext, ToolError, ToolOutput};
use terret_llm::wire::WireFormat;
use terret_llm::{
    AssistantMessage, Content, ErrorKind, Message, Model, ModelError, ModelSpec, ReplyStream, Request, ScriptedModel,
    ScriptedReply, StopReason, ToolCall, ToolSpec,
};
use tokio_util::sync::CancellationToken;

use crate::world::{Gated, Seen, World};

pub(crate) const TOOLS: [(&str, EffectClass, bool); 4] = [
    ("look", EffectClass::ReadOnly, false),
    ("put", EffectClass::Idempotent, false),
    ("pay", EffectClass::AtMostOnce, false),
    ("lock", EffectClass::AtMostOnce, true),
];

/// A model that says anything.
pub(crate) struct AnyModel {
    world: Arc<World>,
    spec: Arc<ModelSpec>,
}

impl AnyModel {
    pub(crate) fn new(world: &Arc<World>, name: &str) -> Self {
        let mut spec = ModelSpec::new("any", name, WireFormat::from("any"));
        spec.context_window = Some(2_000);
        Self { world: world.clone(), spec: Arc::new(spec) }
    }

    fn reply(&self, request: &Request) -> ScriptedReply {
        let world = &self.world;
        let text = |n| ScriptedReply::text("a word ".repeat(1 + world.roll(n) as usize));
        let reply = match world.roll(24) {
            0..3 => text(40),
            3..5 => text(300),
            5 => text(20).error(self.failure()),
            6 => ScriptedReply::text("").error(self.failure()),
            7 if world.once_in(2) => text(20).stall(),
            8 => text(20).stop(StopReason::Pause),
            9 if world.once_in(3) => ScriptedReply::new([]),
            10 if world.once_in(3) => text(5).stop(StopReason::Refusal),
            11 => self.calls(request).stop(StopReason::Length),
            _ => self.calls(request),
        };
        let pause = || Duration::from_millis(u64::from(world.roll(3)) * 100);
        reply.chunk(60).delay(pause()).delta_delay(pause())
    }

    fn failure(&self) -> ModelError {
        let kind = match self.world.roll(6) {
            0..3 => ErrorKind::Overloaded,
            3 => ErrorKind::Stalled,
            4 => ErrorKind::ContextOverflow,
            _ => ErrorKind::Auth,
        };
        // Waits of our own choice depend on the run's name, which no seed decides.
        ModelError::new(kind, "no").with_retry_after(Duration::from_millis(700))
    }

    fn calls(&self, request: &Request) -> ScriptedReply {
        let world = &self.world;
        let used: Vec<&ToolCall> = request.messages.iter().flat_map(|message| message.tool_calls()).collect();
        ScriptedReply::calls((0..=world.roll(3)).map(|_| {
            let id = match world.roll(60) {
                0 => String::new(),
                1 => used.last().map_or_else(|| "twice".to_owned(), |call| call.id.clone()),
                _ => format!("c{}", world.number()),
            };
            let name = match world.roll(20) {
                0 => "unknown",
                1 => "",
                _ => TOOLS[world.roll(TOOLS.len() as u32) as usize].0,
            };
            let arguments =
                if world.once_in(15) { r#"{"n":"#.to_owned() } else { format!(r#"{{"n":{}}}"#, world.roll(3)) };
            ToolCall::new(id, name, arguments)
        }))
    }

    /// Every call has exactly one result, directly after its message, and nothing is said twice.
    fn check(&self, request: &Request) {
        let mut said = HashSet::new();
        let mut open: Vec<&str> = Vec::new();
        for message in &*request.messages {
            match &**message {
                Message::ToolResult(result) => match open.iter().position(|id| *id == result.tool_call_id) {
                    Some(0) => _ = open.remove(0),
                    _ => self.world.problem(format!("a model was sent a result out of order: {}", result.tool_call_id)),
                },
                _ if !open.is_empty() => {
                    self.world.problem(format!("a model was sent calls without results: {open:?}"))
                }
                Message::User(user) => {
                    for text in user.content.iter().filter_map(Content::as_text).filter(|it| it.starts_with("said-")) {
                        if !said.insert(text) {
                            self.world.problem(format!("a model was told {text} twice"));
                        }
                    }
                }
                Message::Assistant(_) => open = message.tool_calls().map(|call| &*call.id).collect(),
            }
        }
        if !open.is_empty() {
            self.world.problem(format!("a model was sent calls without results: {open:?}"));
        }
    }
}

impl Model for AnyModel {
    fn spec(&self) -> &Arc<ModelSpec> {
        &self.spec
    }

    fn stream(&self, request: Request, cancel: CancellationToken) -> ReplyStream {
        let calls = self.world.lock().records.iter().rev().find_map(|record| match record {
            Record::ModelCalled { .. } | Record::CompactionStarted { .. } => Some(true),
            Record::RunEnded { .. } => Some(false),
            _ => None,
        });
        if calls != Some(true) {
            self.world.problem("a model was called before its record was in the journal".into());
        }
        if cancel.is_cancelled() {
            self.world.problem("a model was called that had been told to stop".into());
        }
        self.check(&request);
        self.world.note(format!("model {} called", self.spec.id));
        let reply = ScriptedModel::new([self.reply(&request)]).with_spec((*self.spec).clone());
        let world = self.world.clone();
        let events = futures_util::stream::unfold(reply.stream(request, cancel), move |mut events| {
            let world = world.clone();
            async move {
                world.point("a model's stream").await;
                events.next().await.map(|event| (event, events))
            }
        });
        ReplyStream::new(events.fuse())
    }
}

/// A tool that does anything but what it should.
pub(crate) struct AnyTool {
    world: Arc<World>,
    spec: ToolSpec,
    effect: EffectClass,
    exclusive: bool,
}

impl AnyTool {
    pub(crate) fn new(world: &Arc<World>, (name, effect, exclusive): (&str, EffectClass, bool)) -> Self {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        let parameters = terret_llm::RawJson::parse(schema).unwrap();
        let spec = ToolSpec { name: name.into(), description: String::new(), parameters };
        Self { world: world.clone(), spec, effect, exclusive }
    }
}

/// Notes the end of a tool however it comes: with its result, by a panic, or dropped.
struct Running(Arc<World>, String);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.tool_ends(&self.1);
    }
}

impl Tool for AnyTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        self.effect
    }

    fn exclusive(&self) -> bool {
        self.exclusive
    }

    fn call(
        &self,
        _arguments: serde_json::Value,
        context: ToolContext,
    ) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let world = self.world.clone();
        world.tool_starts(&context.call_id, &self.spec.name, self.effect, self.exclusive, &context.idempotency_key);
        let running = Running(world.clone(), context.call_id.clone());
        Box::pin(async move {
            let _running = running;
            world.point("a tool").await;
            match world.roll(12) {
                0 => {
                    world.see(Seen::ToolPanicked);
                    std::panic::resume_unwind(Box::new("a bug"));
                }
                1 => return Err(ToolError::new("it can't be done")),
                2 => {
                    // It doesn't hear a cancel, and is late for its time limit.
                    world.see(Seen::ToolLate);
                    tokio::time::sleep(Duration::from_secs(u64::from(world.roll(20)))).await;
                }
                3 => {
                    context.cancel.cancelled().await;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                4 => (0..400).for_each(|n| context.progress.send(format!("{n} "))),
                5..8 => tokio::time::sleep(Duration::from_millis(100 * u64::from(world.roll(20)))).await,
                _ => {}
            }
            world.point("a tool that is done").await;
            Ok("done".into())
        })
    }

    fn discover(&self, _key: &str) -> BoxFuture<'static, Option<ToolOutput>> {
        let world = self.world.clone();
        Box::pin(async move {
            world.see(Seen::Discovered);
            world.point("a discovery").await;
            (world.once_in(2)).then(|| "it was done".into())
        })
    }
}

/// A gate that can't make up its mind.
pub(crate) struct AnyGate(pub(crate) Arc<World>);

impl Gate for AnyGate {
    fn decide<'a>(&'a self, call: &'a ToolCall, _arguments: &'a serde_json::Value) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            self.0.point("the gate").await;
            let (gated, verdict) = match self.0.roll(8) {
                0 => (Gated::Denied, Verdict::Deny { reason: "no".into() }),
                1 => {
                    self.0.lock().verdicts.insert(call.id.clone(), Gated::Denied);
                    std::panic::resume_unwind(Box::new("a bug"))
                }
                2 => (Gated::Asked, Verdict::Ask { question: "?".into() }),
                _ => (Gated::Allowed, Verdict::Allow),
            };
            self.0.lock().verdicts.insert(call.id.clone(), gated);
            verdict
        })
    }
}

/// Hooks that fail, and that are never content.
pub(crate) struct AnyHooks(pub(crate) Arc<World>);

impl Hooks for AnyHooks {
    fn before_model<'a>(&'a self, request: Request) -> BoxFuture<'a, Result<Request, HookError>> {
        Box::pin(async move {
            self.0.point("a hook").await;
            if self.0.once_in(40) { Err(HookError("no".into())) } else { Ok(request) }
        })
    }

    fn at_end<'a>(&'a self, _reply: &'a AssistantMessage) -> BoxFuture<'a, Result<Review, HookError>> {
        Box::pin(async move {
            self.0.point("a review").await;
            Ok(if self.0.once_in(4) { Review::Object("once more".into()) } else { Review::Accept })
        })
    }
}
