use std::path::Path;
use std::sync::{Mutex, PoisonError};

use async_stream::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::CassetteError;
use super::exchange::{Answered, Asked, Exchange};
use super::nearest::{self, Recorded};
use super::redaction::Redaction;
use crate::transport::{HttpRequest, HttpResponse, SendFuture, Transport, TransportError};

/// A transport that answers from a cassette and never touches a network. See the [module](super).
#[derive(Debug)]
pub struct Replayer {
    name: String,
    exchanges: Mutex<Vec<Recorded>>,
    redaction: Redaction,
    timing: bool,
}

impl Replayer {
    /// Answers from this file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CassetteError> {
        let path = path.as_ref();
        let cassette = std::fs::read_to_string(path)
            .map_err(|source| CassetteError::Unreadable { path: path.to_owned(), source })?;
        Self::read(path.display().to_string(), &cassette)
    }

    /// Answers from this text, which is what a file would hold.
    pub fn parse(cassette: &str) -> Result<Self, CassetteError> {
        Self::read("text".into(), cassette)
    }

    /// The same with other secrets to take out of requests before they are compared: those that were taken out of the
    /// cassette.
    #[must_use]
    pub fn redacting(mut self, redaction: Redaction) -> Self {
        self.redaction = redaction;
        self
    }

    /// Waits, on tokio's clock, as long as the server did, where that was recorded.
    #[must_use]
    pub fn with_timing(mut self) -> Self {
        self.timing = true;
        self
    }

    /// How many exchanges have answered no request yet.
    pub fn remaining(&self) -> usize {
        self.lock().iter().filter(|recorded| !recorded.used).count()
    }

    fn read(name: String, cassette: &str) -> Result<Self, CassetteError> {
        let mut exchanges = Vec::new();
        for (index, line) in cassette.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line_number = index + 1;
            let malformed = |reason| CassetteError::Malformed { name: name.clone(), line: line_number, reason };
            let exchange: Exchange = serde_json::from_str(line).map_err(|error| malformed(error.to_string()))?;
            match &exchange.response {
                Some(response) => drop(head(response).map_err(malformed)?),
                None if exchange.failure.is_none() => {
                    return Err(malformed("it has no response and no failure".into()));
                }
                None => {}
            }
            exchanges.push(Recorded { exchange, used: false });
        }
        Ok(Self { name, exchanges: Mutex::new(exchanges), redaction: Redaction::default(), timing: false })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Recorded>> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first exchange for this request that has not been used.
    fn take(&self, asked: &Asked) -> Result<Exchange, TransportError> {
        let mut exchanges = self.lock();
        let free = exchanges.iter_mut().find(|recorded| !recorded.used && recorded.exchange.request.matches(asked));
        if let Some(recorded) = free {
            recorded.used = true;
            return Ok(recorded.exchange.clone());
        }
        Err(TransportError::NotRecorded(nearest::explain(&self.name, &exchanges, asked)))
    }
}

impl Transport for Replayer {
    fn send(&self, request: HttpRequest) -> SendFuture<'_> {
        Box::pin(async move {
            let (asked, _) = self.redaction.asked(&request);
            let Exchange { response, failure, .. } = self.take(&asked)?;
            let timing = self.timing;
            let failure = failure.map(TransportError::from);
            let response = match (response, failure.clone()) {
                (Some(response), _) => response,
                (None, Some(failure)) => return Err(failure),
                (None, None) => return Err(TransportError::Invalid("the exchange has no response".into())),
            };
            let (status, headers) = head(&response).map_err(TransportError::Invalid)?;
            if let Some(after) = response.after.filter(|_| timing) {
                tokio::time::sleep(after).await;
            }
            let body = stream! {
                for piece in response.body {
                    if let Some(after) = piece.after.filter(|_| timing) {
                        tokio::time::sleep(after).await;
                    }
                    yield Ok(piece.bytes);
                }
                if let Some(failure) = failure {
                    yield Err(failure);
                }
            };
            Ok(HttpResponse { status, headers, body: Box::pin(body) })
        })
    }
}

fn head(response: &Answered) -> Result<(StatusCode, HeaderMap), String> {
    let status = StatusCode::from_u16(response.status).map_err(|_| format!("{} is no status", response.status))?;
    let mut headers = HeaderMap::new();
    for (name, values) in &response.headers {
        for value in values.as_slice() {
            match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
                (Ok(name), Ok(value)) => headers.append(name, value),
                _ => return Err(format!("{name}: {value:?} is no header")),
            };
        }
    }
    Ok((status, headers))
}
