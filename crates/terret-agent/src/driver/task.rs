//! What runs beside the model call: gates, tools, summaries, reviews. Each is a task that the driver owns.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::Value;
use terret_llm::{ErrorKind, Message, ModelError, Money, ToolCall, Usage};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::call::{cost, failed};
use super::{Driver, InFlight, trace};
use crate::agent::Agent;
use crate::compaction::{Summary, SummaryFailed};
use crate::event::Event;
use crate::hooks::{Review, panic_message};
use crate::limit::limit;
use crate::machine::{Epoch, Failure, Input, Verdict};
use crate::tool::{ProgressSender, Tool, ToolContext, ToolError, ToolOutput};

/// What a task is to do.
pub(super) enum Work {
    Compact { model: u32, messages: Vec<Arc<Message>> },
    Review { reply: Arc<Message> },
    Validate(ToolCall),
    Gate(ToolCall),
    Tool { call: ToolCall, key: String },
    Discover { call: ToolCall, key: String },
}

/// What a task is.
#[derive(Clone, Debug)]
pub(super) struct TaskId {
    pub(super) kind: TaskKind,
    pub(super) epoch: Epoch,
    /// Empty for what isn't about a call.
    pub(super) call_id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskKind {
    Compact,
    Review,
    Validate,
    Gate,
    Tool,
    Discover,
}

/// What a task yields.
pub(super) enum Finished {
    Summarised(Result<Summary, SummaryFailed>, Money),
    Reviewed(Result<Review, Failure>),
    Gated { verdict: Verdict, arguments: Option<Value> },
    Ran(ToolOutput),
    Discovered(Option<ToolOutput>),
}

impl Finished {
    /// What it has used up of the model.
    pub(super) fn used(&self) -> Option<(Usage, Money)> {
        let Finished::Summarised(summary, cost) = self else { return None };
        let usage = summary.as_ref().map_or_else(|failed| failed.usage, |summary| summary.usage);
        Some((usage, *cost))
    }
}

impl Work {
    pub(super) fn id(&self, epoch: Epoch) -> TaskId {
        let (kind, call_id) = match self {
            Work::Compact { .. } => (TaskKind::Compact, ""),
            Work::Review { .. } => (TaskKind::Review, ""),
            Work::Validate(call) => (TaskKind::Validate, &*call.id),
            Work::Gate(call) => (TaskKind::Gate, &*call.id),
            Work::Tool { call, .. } => (TaskKind::Tool, &*call.id),
            Work::Discover { call, .. } => (TaskKind::Discover, &*call.id),
        };
        TaskId { kind, epoch, call_id: call_id.to_owned() }
    }
}

impl Driver {
    pub(super) fn spawn(&mut self, work: Work) -> AbortHandle {
        let agent = self.agent.clone();
        let cancel = self.stop.child_token();
        match work {
            Work::Compact { model, messages } => {
                let model = agent.model_at(model).clone();
                let span = trace::compaction(model.spec());
                let summary = async move {
                    // It may get its first turn when everything is being stopped.
                    if cancel.is_cancelled() {
                        let failure = Failure::Model(ModelError::new(ErrorKind::Aborted, "stopped before it started"));
                        let failed = SummaryFailed { failure, usage: Usage::default() };
                        return Finished::Summarised(Err(failed), Money::ZERO);
                    }
                    let summary = agent.0.summarizer.summarize(&messages, &*model, cancel).await;
                    let usage = summary.as_ref().map_or_else(|failed| failed.usage, |summary| summary.usage);
                    Finished::Summarised(summary, cost(&*model, &usage))
                };
                self.tasks.spawn(summary.instrument(span))
            }
            Work::Review { reply } => {
                let reviewer = self.reviewer.clone();
                self.tasks.spawn(async move { Finished::Reviewed(review(&agent, &reviewer, &reply).await) })
            }
            Work::Validate(call) => self.tasks.spawn(async move { gate(&agent, &call, true).await }),
            Work::Gate(call) => self.tasks.spawn(async move { gate(&agent, &call, false).await }),
            Work::Tool { call, key } => {
                self.publisher.publish(&Event::ToolStarted { call: Arc::new(call.clone()) });
                let (sender, _) = self.progress.get_or_insert_with(|| mpsc::channel(256));
                let progress = ProgressSender::new(call.id.clone(), sender.clone());
                let context = ToolContext { call_id: call.id.clone(), idempotency_key: key, cancel, progress };
                let validated = self.validated.remove(&call.id);
                let span = trace::tool(&call);
                // What another driver has announced may have begun there.
                let begun = self.begun.entry(call.id.clone()).or_insert_with(|| Arc::new(true.into())).clone();
                let running = async move {
                    let output = run_tool(&agent, &call, validated, context, &begun).await;
                    trace::tool_ended(&output);
                    Finished::Ran(output)
                };
                self.tasks.spawn(running.instrument(span))
            }
            Work::Discover { call, key } => self.tasks.spawn(async move {
                let Some(tool) = agent.0.tools.get(&call.name) else { return Finished::Discovered(None) };
                let discovered = match tool.time_limit().or(agent.0.tool_time_limit) {
                    Some(limit) => tokio::time::timeout(limit, tool.discover(&key)).await.ok().flatten(),
                    None => tool.discover(&key).await,
                };
                Finished::Discovered(match discovered {
                    Some(output) => Some(for_the_model(&agent, &call, output).await),
                    None => None,
                })
            }),
        }
    }

    /// What a task came to, as an input. A task that panicked has come to something, too.
    pub(super) fn finished(
        &mut self,
        finished: Result<(tokio::task::Id, Finished), tokio::task::JoinError>,
    ) -> Option<Input> {
        let (id, finished) = match finished {
            Ok((id, finished)) => (id, Some(finished)),
            Err(error) => (error.id(), None),
        };
        let InFlight { id, .. } = self.in_flight.remove(&id)?;
        self.started.remove(&id.call_id);
        let TaskId { kind, epoch, call_id } = id;
        Some(match (finished, kind) {
            (Some(Finished::Summarised(Ok(Summary { text: summary, usage }), cost)), _) => {
                Input::Summarised { epoch, summary, usage, cost }
            }
            (Some(Finished::Summarised(Err(SummaryFailed { failure, usage }), cost)), _) => {
                failed(epoch, failure, usage, cost)
            }
            (Some(Finished::Reviewed(Ok(review))), _) => {
                let objection = if let Review::Object(text) = review { Some(text) } else { None };
                Input::Reviewed { epoch, objection }
            }
            (Some(Finished::Reviewed(Err(failure))), _) => failed(epoch, failure, Usage::default(), Money::ZERO),
            (Some(Finished::Gated { verdict, arguments }), _) => {
                if let Some(arguments) = arguments {
                    self.validated.insert(call_id.clone(), arguments);
                }
                Input::GateDecided { epoch, call_id, verdict }
            }
            (Some(Finished::Ran(output)), _) => Input::ToolFinished { epoch, call_id, output },
            (Some(Finished::Discovered(output)), _) => Input::Discovered { epoch, call_id, output },
            (None, TaskKind::Compact) => {
                let failure = Failure::Compaction("the summariser failed by a bug of its own (it panicked)".into());
                failed(epoch, failure, Usage::default(), Money::ZERO)
            }
            (None, TaskKind::Review) => {
                let failure = Failure::Hook { hook: "at_end".into(), message: "it panicked".into() };
                failed(epoch, failure, Usage::default(), Money::ZERO)
            }
            (None, TaskKind::Gate | TaskKind::Validate) => {
                let verdict = Verdict::Deny { reason: "the gate failed to decide (it panicked)".into() };
                Input::GateDecided { epoch, call_id, verdict }
            }
            (None, TaskKind::Tool) => {
                let output = ToolOutput::error("The tool was stopped before it had finished.");
                Input::ToolFinished { epoch, call_id, output }
            }
            (None, TaskKind::Discover) => Input::Discovered { epoch, call_id, output: None },
        })
    }
}

async fn review(agent: &Agent, reviewer: &super::Reviewer, reply: &Message) -> Result<Review, Failure> {
    let Message::Assistant(reply) = reply else { return Ok(Review::Accept) };
    match reviewer.review(reply) {
        Review::Accept => agent.0.hooks.at_end(reply).await,
        objection => Ok(objection),
    }
}

/// Validates a call's arguments, and asks the gate unless a person has approved the call.
async fn gate(agent: &Agent, call: &ToolCall, approved: bool) -> Finished {
    match agent.0.tools.validate(&call.name, &call.arguments) {
        Some(Ok(arguments)) => {
            let verdict = match approved {
                true => Verdict::Allow,
                false => agent.0.gate.decide(call, &arguments).await,
            };
            Finished::Gated { verdict, arguments: Some(arguments) }
        }
        Some(Err(rejected)) => {
            Finished::Gated { verdict: Verdict::Reject { explanation: rejected.to_string() }, arguments: None }
        }
        None => Finished::Gated { verdict: Verdict::Reject { explanation: gone(&call.name) }, arguments: None },
    }
}

/// Runs a tool between its hooks, and tells when it has begun. Its error and its panic are its output.
async fn run_tool(
    agent: &Agent,
    call: &ToolCall,
    validated: Option<Value>,
    context: ToolContext,
    begun: &AtomicBool,
) -> ToolOutput {
    let parts = &agent.0;
    let Some(tool) = parts.tools.get(&call.name) else { return ToolOutput::error(gone(&call.name)) };
    let arguments = match validated.map(Ok).or_else(|| parts.tools.validate(&call.name, &call.arguments)) {
        Some(Ok(arguments)) => arguments,
        Some(Err(rejected)) => return ToolOutput::error(rejected.to_string()),
        None => return ToolOutput::error(gone(&call.name)),
    };
    if let Err(output) = parts.hooks.before_tool(call, &arguments).await {
        return output;
    }
    // Said before the question, so that who stops everything at this moment is seen here, or sees it.
    begun.store(true, Ordering::SeqCst);
    if context.cancel.is_cancelled() {
        begun.store(false, Ordering::SeqCst);
        return ToolOutput::error("The tool was stopped before it started.");
    }
    let time_limit = tool.time_limit().or(parts.tool_time_limit);
    let output = within(time_limit, parts.grace, context, |context| caught(tool, arguments, context)).await;
    for_the_model(agent, call, output).await
}

/// An output after its hooks, and within the limits.
async fn for_the_model(agent: &Agent, call: &ToolCall, output: ToolOutput) -> ToolOutput {
    let parts = &agent.0;
    let output = parts.hooks.after_tool(call, output).await;
    limit(output, parts.room, &call.id, parts.spill.as_deref()).await
}

async fn caught(tool: &dyn Tool, arguments: Value, context: ToolContext) -> ToolOutput {
    match AssertUnwindSafe(async { tool.call(arguments, context).await }).catch_unwind().await {
        Ok(output) => output.unwrap_or_else(ToolError::into_output),
        Err(panic) => {
            let message = panic_message(&*panic);
            ToolOutput::error(format!("The tool failed by a bug of its own (it panicked): {message}"))
        }
    }
}

/// Tells a tool to stop when its time is up, and drops it when it doesn't within the grace period.
async fn within<F: Future<Output = ToolOutput>>(
    time_limit: Option<Duration>,
    grace: Duration,
    mut context: ToolContext,
    run: impl FnOnce(ToolContext) -> F,
) -> ToolOutput {
    let Some(time_limit) = time_limit else { return run(context).await };
    let stop: CancellationToken = context.cancel.child_token();
    context.cancel = stop.clone();
    let mut running = Box::pin(run(context));
    if let Ok(output) = tokio::time::timeout(time_limit, &mut running).await {
        return output;
    }
    stop.cancel();
    let said = tokio::time::timeout(grace, running).await.unwrap_or_default();
    let seconds = time_limit.as_secs_f64();
    let mut output = ToolOutput::error(format!(
        "The tool was stopped after its time limit of {seconds} s. It may have done a part of its work."
    ));
    output.content.extend(said.content);
    ToolOutput { details: said.details, ..output }
}

/// For a session that was resumed by an agent with fewer tools.
fn gone(tool: &str) -> String {
    format!("The tool {tool:?} is not there any more.")
}
