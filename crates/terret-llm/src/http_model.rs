//! A model behind HTTP: from a request to the stream of its reply.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_stream::stream;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, LOCATION};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::draft::Draft;
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, ModelError};
use crate::model::{Model, ModelSpec};
use crate::request::Request;
use crate::stream::{ReplyStream, StreamEvent};
use crate::transport::{Body, HttpRequest, HttpResponse, Transport};
use crate::wire::{self, EncodeError, Encoder, ReplyReader, Wire};

/// How long a server may keep us waiting. There is no limit on a whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a connection: name, TCP, TLS. Default: 15 s. Kept by the [`HttpTransport`](crate::HttpTransport).
    pub connect: Duration,
    /// From sending the request to the first event of the reply. Default: 5 minutes. A server that reads a long prompt
    /// on a processor may need more: [`Limits::local`].
    pub first_event: Duration,
    /// Between two events. Default: 5 minutes, because a model that reasons out of sight sends nothing for minutes.
    ///
    /// Only what a reader could see counts as an event. Comments and pings that keep a connection alive don't.
    pub silence: Duration,
}

impl Limits {
    /// For a server on this machine or next to it: 30 minutes for the first event.
    pub fn local() -> Self {
        Self { first_event: Duration::from_secs(30 * 60), ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let five_minutes = Duration::from_secs(300);
        Self { connect: Duration::from_secs(15), first_event: five_minutes, silence: five_minutes }
    }
}

/// A model behind HTTP. Makes one try per call; [`Retry`](crate::Retry) makes more.
///
/// A call that goes on with an earlier one's conversation costs what is new of it, also where several conversations
/// share the model ([`Encoder`]). Clones share what they know of conversations.
#[derive(Clone)]
pub struct HttpModel {
    spec: Arc<ModelSpec>,
    endpoint: Endpoint,
    transport: Arc<dyn Transport>,
    limits: Limits,
    encoder: Arc<Encoder>,
}

impl HttpModel {
    /// The model of this spec at this endpoint.
    pub fn new(spec: impl Into<Arc<ModelSpec>>, endpoint: Endpoint, transport: Arc<dyn Transport>) -> Self {
        let spec = spec.into();
        let encoder = Arc::new(Encoder::new(spec.clone()));
        Self { spec, endpoint, transport, limits: Limits::default(), encoder }
    }

    /// The same model with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where it is asked.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Model for HttpModel {
    fn spec(&self) -> &Arc<ModelSpec> {
        &self.spec
    }

    fn stream(&self, request: Request, cancel: CancellationToken) -> ReplyStream {
        let Self { spec, endpoint, transport, limits, encoder } = self.clone();
        ReplyStream::new(stream! {
            let draft = Draft::new(&spec).after(request.messages.clone()).coalescing();
            let mut watch = Watch::new(cancel, limits);
            let opened = match encode(&encoder, &spec, &endpoint, request) {
                Ok((wire, request)) => watch.over(open(&*transport, request)).await.flatten().map(|it| (wire, it)),
                Err(error) => Err(error),
            };
            let (wire, HttpResponse { headers, mut body, .. }) = match opened {
                Ok(opened) => opened,
                Err(mut error) => {
                    endpoint.redact(&mut error);
                    for event in draft.fail(error) {
                        yield event;
                    }
                    return;
                }
            };
            let mut reader = ReplyReader::new(wire.decoder(), draft);
            while !reader.is_over() {
                match watch.over(body.next()).await {
                    Ok(Some(Ok(bytes))) => reader.push(&bytes),
                    Ok(Some(Err(error))) => reader.break_off(&error.to_string()),
                    Ok(None) => reader.end(),
                    Err(error) => {
                        body = nothing();
                        reader.fail(error);
                    }
                }
                while !reader.is_over() && let Some(event) = reader.next_event() {
                    watch.heard();
                    yield event;
                }
            }
            drain(body).await;
            while let Some(mut event) = reader.next_event() {
                if let StreamEvent::Failed(failed) = &mut event {
                    complete(&mut failed.error, &headers, &endpoint);
                    failed.partial.error = Some(Box::new(failed.error.clone()));
                }
                yield event;
            }
        })
    }
}

impl std::fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpModel")
            .field("spec", &self.spec)
            .field("endpoint", &self.endpoint)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn encode(
    encoder: &Encoder,
    spec: &ModelSpec,
    endpoint: &Endpoint,
    request: Request,
) -> Result<(&'static dyn Wire, HttpRequest), ModelError> {
    let wire = spec.wire.wire().ok_or_else(|| EncodeError::NoWire(spec.wire.clone()))?;
    Ok((wire, endpoint.address(encoder.encode(&request)?)?))
}

/// Sends the request; a failure status is an error.
async fn open(transport: &dyn Transport, request: HttpRequest) -> Result<HttpResponse, ModelError> {
    let HttpResponse { status, headers, body } = transport.send(request).await?;
    let coding = headers.get(CONTENT_ENCODING).map(|coding| String::from_utf8_lossy(coding.as_bytes()).into_owned());
    let coding = coding.filter(|coding| !matches!(coding.trim(), "" | "identity"));
    if status.is_success() {
        return match coding {
            None => Ok(HttpResponse { status, headers, body }),
            Some(coding) => Err(ModelError::new(ErrorKind::Protocol, compressed(&coding))),
        };
    }
    if let (true, Some(location)) = (status.is_redirection(), headers.get(LOCATION)) {
        let location = String::from_utf8_lossy(location.as_bytes());
        let location = location.split('?').next().unwrap_or_default();
        let message = format!(
            "the server redirects to {location}, which is not followed, so that the key stays where it belongs; \
             if that is the right address, make it the base URL"
        );
        return Err(ModelError::new(ErrorKind::NotFound, message).with_status(status.as_u16()));
    }
    let body = if coding.is_none() { error_body(body).await } else { Bytes::new() };
    let mut error = wire::from_response(status.as_u16(), header(&headers), &body);
    if let Some(coding) = coding {
        error.message = compressed(&coding);
    }
    Err(error)
}

fn compressed(coding: &str) -> String {
    format!("the answer is compressed ({coding}), although it was asked for as it is; a proxy in between may do that")
}

/// As much of an error's body as arrives soon.
async fn error_body(mut body: Body) -> Bytes {
    const ENOUGH: usize = 64 * 1024;
    const SOON: Duration = Duration::from_secs(5);
    let mut bytes = BytesMut::new();
    let _ = tokio::time::timeout(SOON, async {
        while bytes.len() < ENOUGH
            && let Some(Ok(piece)) = body.next().await
        {
            bytes.extend_from_slice(&piece);
        }
    })
    .await;
    bytes.freeze()
}

/// Reads what a server sends behind the end of a reply, which is little and comes at once: only a connection whose
/// response was read to its end can carry the next request.
async fn drain(mut body: Body) {
    const BRIEFLY: Duration = Duration::from_millis(25);
    let _ = tokio::time::timeout(BRIEFLY, async { while let Some(Ok(_)) = body.next().await {} }).await;
}

fn nothing() -> Body {
    Box::pin(futures_util::stream::empty())
}

/// Adds to an error in mid-stream what only the headers know.
fn complete(error: &mut ModelError, headers: &HeaderMap, endpoint: &Endpoint) {
    error.request_id = error.request_id.take().or_else(|| wire::request_id(header(headers)));
    endpoint.redact(error);
}

fn header(headers: &HeaderMap) -> impl Fn(&str) -> Option<String> {
    |name| Some(String::from_utf8_lossy(headers.get(name)?.as_bytes()).into_owned())
}

/// Guards the waits of one call: against a cancel, and against a server that falls silent.
///
/// The clock is read at every event, but the timer is only set again when it goes off too early.
struct Watch {
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    alarm: Pin<Box<Sleep>>,
    heard: Instant,
    silence: Silence,
    limits: Limits,
    /// How many waits in a row were over at once, and didn't ask for a cancel or the time.
    unwatched: usize,
}

/// What is there already is taken without further ado, but only so often: bytes that never stop and never mean anything
/// are silence, too.
const UNWATCHED: usize = 32;

/// What a server is silent before.
#[derive(Clone, Copy, PartialEq)]
enum Silence {
    FirstEvent,
    NextEvent,
}

impl Watch {
    fn new(cancel: CancellationToken, limits: Limits) -> Self {
        Self {
            cancelled: Box::pin(cancel.cancelled_owned()),
            alarm: Box::pin(tokio::time::sleep(limits.first_event)),
            heard: Instant::now(),
            silence: Silence::FirstEvent,
            limits,
            unwatched: UNWATCHED,
        }
    }

    /// The output of `wait`, unless the call is cancelled or the server is silent for too long before.
    async fn over<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, ModelError> {
        let mut wait = std::pin::pin!(wait);
        std::future::poll_fn(|cx| {
            let unwatched = self.unwatched < UNWATCHED;
            if unwatched && let Poll::Ready(output) = wait.as_mut().poll(cx) {
                self.unwatched += 1;
                return Poll::Ready(Ok(output));
            }
            self.unwatched = 0;
            if self.cancelled.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(ModelError::new(ErrorKind::Aborted, "the call was cancelled")));
            }
            while self.alarm.as_mut().poll(cx).is_ready() {
                match self.deadline() {
                    passed if passed <= Instant::now() => return Poll::Ready(Err(self.stalled())),
                    later => self.alarm.as_mut().reset(later),
                }
            }
            if unwatched { Poll::Pending } else { wait.as_mut().poll(cx).map(Ok) }
        })
        .await
    }

    /// An event has arrived.
    fn heard(&mut self) {
        self.heard = Instant::now();
        if self.silence == Silence::FirstEvent {
            self.silence = Silence::NextEvent;
            let deadline = self.deadline();
            self.alarm.as_mut().reset(deadline);
        }
    }

    fn limit(&self) -> Duration {
        match self.silence {
            Silence::FirstEvent => self.limits.first_event,
            Silence::NextEvent => self.limits.silence,
        }
    }

    fn deadline(&self) -> Instant {
        self.heard + self.limit()
    }

    fn stalled(&self) -> ModelError {
        let what = match self.silence {
            Silence::FirstEvent => "the server did not begin to answer",
            Silence::NextEvent => "the server sent nothing of the reply",
        };
        ModelError::new(ErrorKind::Stalled, format!("{what} for {:?}", self.limit()))
    }
}
