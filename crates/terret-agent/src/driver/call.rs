//! The model call in flight.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use terret_llm::{ErrorKind, Model, ModelError, Money, ReplyStream, Request, StreamEvent, Transcript, Usage};
use tokio_util::sync::CancellationToken;

use super::trace::CallSpan;
use crate::agent::Agent;
use crate::event::{Event, Publisher};
use crate::hooks::panic_message;
use crate::machine::{Epoch, Failure, Input};

/// A model call, from the hooks before it to its end.
pub(super) struct ModelCall {
    epoch: Epoch,
    model: Arc<dyn Model>,
    phase: Phase,
    span: CallSpan,
}

enum Phase {
    /// The hooks are at the request.
    Preparing(BoxFuture<'static, Result<ReplyStream, Failure>>),
    Streaming(ReplyStream),
}

impl ModelCall {
    pub(super) fn start(
        agent: &Agent,
        epoch: Epoch,
        model: u32,
        messages: Transcript,
        stop: &CancellationToken,
    ) -> Self {
        let parts = &agent.0;
        let request = Request {
            system: parts.system.clone(),
            messages,
            tools: parts.tools.specs().clone(),
            options: parts.options.clone(),
        };
        let model = agent.model_at(model).clone();
        let span = CallSpan::chat(model.spec());
        let cancel = stop.child_token();
        let phase = match parts.hooks.0.is_empty() {
            true => match span.enter(|| stream(&*model, request, cancel)) {
                Ok(stream) => Phase::Streaming(stream),
                Err(failure) => Phase::Preparing(Box::pin(std::future::ready(Err(failure)))),
            },
            false => {
                let (hooks, model) = (parts.hooks.clone(), model.clone());
                Phase::Preparing(Box::pin(async move {
                    let request = hooks.before_model(request).await?;
                    stream(&*model, request, cancel)
                }))
            }
        };
        Self { epoch, model, phase, span }
    }

    /// The end of the call in flight, as an input; publishes what streams by. `None` without a call. Cancel safe.
    pub(super) async fn next_input(call: &mut Option<Self>, publisher: &Publisher) -> Option<Input> {
        let call = call.as_mut()?;
        let epoch = call.epoch;
        loop {
            let stream = match &mut call.phase {
                Phase::Streaming(stream) => stream,
                Phase::Preparing(prepared) => match prepared.await {
                    Ok(stream) => {
                        call.phase = Phase::Streaming(stream);
                        continue;
                    }
                    Err(failure) => {
                        call.span.failed(&failure);
                        return Some(failed(epoch, failure, Usage::default(), Money::ZERO));
                    }
                },
            };
            let event = match next(stream).await {
                Ok(event) => event,
                Err(failure) => {
                    call.span.failed(&failure);
                    return Some(failed(epoch, failure, Usage::default(), Money::ZERO));
                }
            };
            match event {
                Some(StreamEvent::Done(reply)) => {
                    call.span.replied(reply.message());
                    let cost = cost(&*call.model, &reply.message().usage);
                    return Some(Input::Replied { epoch, reply, cost });
                }
                Some(StreamEvent::Failed(failure)) => {
                    let usage = failure.partial.usage;
                    let failure = Failure::Model(failure.error);
                    call.span.failed(&failure);
                    return Some(failed(epoch, failure, usage, cost(&*call.model, &usage)));
                }
                Some(event) => {
                    publisher.publish(&Event::Delta { epoch, event });
                    // A stream that is always ready must not keep the run from hearing a cancel.
                    tokio::task::consume_budget().await;
                }
                None => {
                    let error = ModelError::new(ErrorKind::Truncated, "the reply stream ended without an end");
                    return Some(failed(epoch, Failure::Model(error), Usage::default(), Money::ZERO));
                }
            }
        }
    }

    /// What a call has used up that was told to stop.
    pub(super) async fn stopped(self) -> (Usage, Money) {
        let Phase::Streaming(mut stream) = self.phase else { return (Usage::default(), Money::ZERO) };
        let end = async {
            loop {
                match next(&mut stream).await {
                    Ok(Some(StreamEvent::Done(reply))) => return reply.message().usage,
                    Ok(Some(StreamEvent::Failed(failed))) => return failed.partial.usage,
                    Ok(None) | Err(_) => return Usage::default(),
                    // A stream that is always ready must not keep the run from ending.
                    Ok(Some(_)) => tokio::task::consume_budget().await,
                }
            }
        };
        let usage = tokio::time::timeout(PATIENCE, end).await.unwrap_or_default();
        (usage, cost(&*self.model, &usage))
    }
}

/// Starts a call. A model that panics has failed, and no more.
fn stream(model: &dyn Model, request: Request, cancel: CancellationToken) -> Result<ReplyStream, Failure> {
    catch_unwind(AssertUnwindSafe(|| model.stream(request, cancel))).map_err(|panic| panicked(&*panic))
}

async fn next(stream: &mut ReplyStream) -> Result<Option<StreamEvent>, Failure> {
    AssertUnwindSafe(stream.next()).catch_unwind().await.map_err(|panic| panicked(&*panic))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let message = format!("the model failed by a bug of its own (it panicked): {}", panic_message(panic));
    Failure::Model(ModelError::new(ErrorKind::Protocol, message))
}

/// How long a call may take to end that was cancelled. Models promise 100 ms.
const PATIENCE: Duration = Duration::from_millis(200);

pub(super) fn cost(model: &dyn Model, usage: &Usage) -> Money {
    model.spec().price.as_ref().map_or(Money::ZERO, |price| price.cost(usage))
}

pub(super) fn failed(epoch: Epoch, failure: Failure, usage: Usage, cost: Money) -> Input {
    Input::AttemptFailed { epoch, failure, usage, cost }
}
