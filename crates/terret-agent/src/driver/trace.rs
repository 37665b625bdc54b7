//! Spans, named after OpenTelemetry's conventions for generative AI.
//!
//! <https://opentelemetry.io/docs/specs/semconv/gen-ai/>: `invoke_agent`, `chat`, `execute_tool`. What was said is never
//! in them.

use terret_llm::{AssistantMessage, ModelSpec, ToolCall, Usage};
use tracing::Span;
use tracing::field::Empty;

use crate::event::Report;
use crate::journal::SessionId;
use crate::machine::{Failure, Outcome};
use crate::tool::ToolOutput;

/// A run.
pub(crate) fn run(session: &SessionId, model: &ModelSpec) -> Span {
    tracing::info_span!(
        "invoke_agent",
        "otel.kind" = "internal",
        "gen_ai.operation.name" = "invoke_agent",
        "gen_ai.provider.name" = &*model.provider,
        "gen_ai.request.model" = &*model.id,
        "gen_ai.conversation.id" = session.as_str(),
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "gen_ai.usage.cache_read.input_tokens" = Empty,
        "gen_ai.usage.cache_creation.input_tokens" = Empty,
        "error.type" = Empty,
    )
}

/// The end of the run of this span.
pub(crate) fn run_ended(span: &Span, report: &Report) {
    usage(span, &report.spent.usage);
    let error = match &report.outcome {
        Outcome::Completed => return,
        Outcome::Cancelled { .. } => "cancelled",
        Outcome::OutOfBudget { .. } => "out_of_budget",
        Outcome::Failed { failure } => kind(failure),
    };
    span.record("error.type", error);
}

/// A model call.
pub(super) struct CallSpan(Span);

impl CallSpan {
    pub(super) fn chat(model: &ModelSpec) -> Self {
        Self(chat(model, "chat"))
    }

    pub(super) fn enter<T>(&self, of: impl FnOnce() -> T) -> T {
        self.0.in_scope(of)
    }

    pub(super) fn replied(&self, reply: &AssistantMessage) {
        usage(&self.0, &reply.usage);
        self.0.record("gen_ai.response.model", &*reply.model);
        self.0.record("gen_ai.response.finish_reasons", tracing::field::debug(reply.stop_reason));
        if let Some(id) = &reply.response_id {
            self.0.record("gen_ai.response.id", id.as_str());
        }
    }

    pub(super) fn failed(&self, failure: &Failure) {
        self.0.record("error.type", kind(failure));
    }
}

/// A summary, which is a model call by default.
pub(super) fn compaction(model: &ModelSpec) -> Span {
    chat(model, "chat")
}

fn chat(model: &ModelSpec, operation: &'static str) -> Span {
    tracing::info_span!(
        "chat",
        "otel.name" = format!("{operation} {}", model.id),
        "otel.kind" = "client",
        "gen_ai.operation.name" = operation,
        "gen_ai.provider.name" = &*model.provider,
        "gen_ai.request.model" = &*model.id,
        "gen_ai.response.model" = Empty,
        "gen_ai.response.id" = Empty,
        "gen_ai.response.finish_reasons" = Empty,
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "gen_ai.usage.cache_read.input_tokens" = Empty,
        "gen_ai.usage.cache_creation.input_tokens" = Empty,
        "error.type" = Empty,
    )
}

/// A tool that runs.
pub(super) fn tool(call: &ToolCall) -> Span {
    tracing::info_span!(
        "execute_tool",
        "otel.name" = format!("execute_tool {}", call.name),
        "otel.kind" = "internal",
        "gen_ai.operation.name" = "execute_tool",
        "gen_ai.tool.name" = call.name,
        "gen_ai.tool.call.id" = call.id,
        "error.type" = Empty,
    )
}

/// The end of the tool of the current span.
pub(super) fn tool_ended(output: &ToolOutput) {
    if output.is_error {
        Span::current().record("error.type", "tool_error");
    }
}

/// Input tokens are all of them here, cached ones included; that is how the conventions count.
fn usage(span: &Span, usage: &Usage) {
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    span.record("gen_ai.usage.input_tokens", input);
    span.record("gen_ai.usage.output_tokens", usage.output);
    span.record("gen_ai.usage.cache_read.input_tokens", usage.cache_read);
    span.record("gen_ai.usage.cache_creation.input_tokens", usage.cache_write);
}

fn kind(failure: &Failure) -> &'static str {
    match failure {
        Failure::Model(error) => error.kind.as_str(),
        Failure::Protocol(_) => "protocol",
        Failure::Refused => "refused",
        Failure::Compaction(_) => "compaction",
        Failure::Objected(_) => "objected",
        Failure::Hook { .. } => "hook",
        Failure::Lost => "lost",
        Failure::Journal(_) => "journal",
    }
}
