//! How bytes get to a provider and back.

#[cfg(feature = "cassette")]
pub mod cassette;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod local;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures_core::Stream;

use crate::error::{ErrorKind, ModelError};
use crate::segments::Segments;

#[cfg(feature = "http")]
pub use http::HttpTransport;

/// Carries a request to a server and the answer back: the HTTP client, a recorder, a replayer, a test double.
///
/// Dropping the future, or the body of the response, ends the connection (or the HTTP/2 stream). A transport doesn't
/// retry, doesn't follow redirects, and has no limit on the whole exchange.
pub trait Transport: Send + Sync {
    /// Sends a request; ready when the status and the headers are there. Every status is a success here.
    fn send(&self, request: HttpRequest) -> SendFuture<'_>;
}

/// The pending answer to a request.
pub type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, TransportError>> + Send + 'a>>;

/// The body of a response, in the pieces in which it arrives.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// A request. The method is `POST`, which is all that the wires need.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// The absolute address.
    pub url: String,
    /// All headers but those that belong to the connection. The value of the key's header is marked as sensitive.
    pub headers: HeaderMap,
    /// The JSON body.
    pub body: Segments,
}

/// A response as far as its headers, and the body to come.
pub struct HttpResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

/// Why there is no (further) answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The request can't be sent as it is, or the client can't be set up.
    #[error("can't send the request: {0}")]
    Invalid(String),
    /// A replayer has no answer to the request. The text shows the nearest one that it has.
    #[error("{0}")]
    NotRecorded(String),
    /// There is no connection: the name isn't known, nobody listens, TLS failed, or it took too long.
    #[error("can't connect to {server}: {reason}")]
    Connect {
        /// Host and port.
        server: String,
        /// What the system says.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection to {server} broke: {reason}")]
    Broken {
        /// Host and port.
        server: String,
        /// What the system says.
        reason: String,
    },
}

impl From<TransportError> for ModelError {
    fn from(error: TransportError) -> Self {
        let kind = match error {
            TransportError::Invalid(_) | TransportError::NotRecorded(_) => ErrorKind::InvalidRequest,
            TransportError::Connect { .. } | TransportError::Broken { .. } => ErrorKind::Network,
        };
        ModelError::new(kind, error.to_string())
    }
}

/// Without the query of the address, which may hold a secret, and with the size of the body instead of the body.
impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest")
            .field("url", &self.url.split('?').next())
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish()
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
