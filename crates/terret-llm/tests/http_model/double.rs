//! A transport without a network, on tokio's clock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use terret_llm::transport::{HttpRequest, HttpResponse, SendFuture, Transport, TransportError};

/// What happens next in an answer.
#[derive(Clone)]
pub(crate) enum Step {
    /// These bytes arrive.
    Bytes(&'static str),
    /// Time passes.
    Wait(Duration),
    /// The connection breaks.
    Break,
    /// Nothing happens any more.
    Stall,
}

/// One answer.
#[derive(Clone)]
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    before_headers: Duration,
    body: Vec<Step>,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl IntoIterator<Item = Step>) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            before_headers: Duration::ZERO,
            body: body.into_iter().collect(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    pub(crate) fn headers_after(mut self, wait: Duration) -> Self {
        self.before_headers = wait;
        self
    }
}

/// Gives its answers one after the other.
pub(crate) struct Double {
    answers: Mutex<VecDeque<Answer>>,
    /// Whether a body was dropped before its end.
    pub(crate) hung_up: Arc<AtomicBool>,
}

impl Double {
    pub(crate) fn answering(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), hung_up: Arc::default() })
    }

    pub(crate) fn hung_up(&self) -> bool {
        self.hung_up.load(Ordering::Relaxed)
    }
}

impl Transport for Double {
    fn send(&self, _: HttpRequest) -> SendFuture<'_> {
        let answer = self.answers.lock().unwrap().pop_front().expect("a request too many");
        let mut line = Line(Some(self.hung_up.clone()));
        Box::pin(async move {
            tokio::time::sleep(answer.before_headers).await;
            let body = stream! {
                for step in answer.body {
                    match step {
                        Step::Bytes(bytes) => yield Ok(Bytes::from_static(bytes.as_bytes())),
                        Step::Wait(wait) => tokio::time::sleep(wait).await,
                        Step::Break => {
                            yield Err(TransportError::Broken { server: "double".into(), reason: "reset".into() });
                        }
                        Step::Stall => std::future::pending().await,
                    }
                }
                line.end();
            };
            Ok(HttpResponse { status: answer.status, headers: answer.headers, body: Box::pin(body) })
        })
    }
}

/// Notes when it is dropped before the body has ended.
struct Line(Option<Arc<AtomicBool>>);

impl Line {
    fn end(&mut self) {
        self.0 = None;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(hung_up) = &self.0 {
            hung_up.store(true, Ordering::Relaxed);
        }
    }
}
