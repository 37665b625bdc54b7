//! What can go wrong with a model call, as data.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A failed model call. Cheap to inspect: decide by `kind`, show `message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelError {
    /// What to do about it.
    pub kind: ErrorKind,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's own code or type, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The provider's message, or ours where it sent none.
    pub message: String,
    /// The provider's id of the request, for its support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How long the provider asks to wait before the next try. JSON has it in whole milliseconds.
    #[serde(default, rename = "retryAfterMs", skip_serializing_if = "Option::is_none", with = "optional_millis")]
    pub retry_after: Option<Duration>,
    /// Whether the provider itself says that a retry makes sense (`x-should-retry`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub should_retry: Option<bool>,
    /// How many tries were made before this was reported; 0 where there is only one, and it isn't counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
}

impl ModelError {
    /// An error of this kind and message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            code: None,
            message: message.into(),
            request_id: None,
            retry_after: None,
            should_retry: None,
            tries: 0,
        }
    }

    /// The same error with the provider's code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The same error with an HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The same error with the time to wait that the provider asks for.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }

    /// Whether the same request may succeed later: what the provider says, else what the kind says.
    pub fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or_else(|| self.kind.is_retryable())
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match (self.status, &self.code) {
            (Some(status), Some(code)) => write!(f, " (HTTP {status}, {code})")?,
            (Some(status), None) => write!(f, " (HTTP {status})")?,
            (None, Some(code)) => write!(f, " ({code})")?,
            (None, None) => {}
        }
        write!(f, ": {}", self.message)?;
        if let Some(id) = &self.request_id {
            write!(f, " [request {id}]")?;
        }
        Ok(())
    }
}

/// The kinds of failed model calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key is missing, wrong or expired.
    Auth,
    /// The key is good but may not do this.
    Permission,
    /// Too many requests or tokens in too short a time.
    RateLimited,
    /// The account's money or allowance is used up; waiting a moment doesn't help.
    Quota,
    /// The provider has no capacity right now.
    Overloaded,
    /// The provider failed.
    Server,
    /// The request doesn't fit the model's context window.
    ContextOverflow,
    /// The provider doesn't accept the request as it is.
    InvalidRequest,
    /// No such model or path.
    NotFound,
    /// The provider or a filter declined to answer.
    Refused,
    /// No connection, or it broke.
    Network,
    /// The server was silent for longer than the limit.
    Stalled,
    /// The stream ended without the wire's terminal.
    Truncated,
    /// The answer isn't what the wire promises.
    Protocol,
    /// The call was cancelled.
    Aborted,
}

impl ErrorKind {
    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        use ErrorKind::*;
        match self {
            Auth => "auth",
            Permission => "permission",
            RateLimited => "rate_limited",
            Quota => "quota",
            Overloaded => "overloaded",
            Server => "server",
            ContextOverflow => "context_overflow",
            InvalidRequest => "invalid_request",
            NotFound => "not_found",
            Refused => "refused",
            Network => "network",
            Stalled => "stalled",
            Truncated => "truncated",
            Protocol => "protocol",
            Aborted => "aborted",
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        use ErrorKind::*;
        matches!(self, RateLimited | Overloaded | Server | Network | Stalled | Truncated)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Auth => "authentication failed",
            ErrorKind::Permission => "permission denied by the provider",
            ErrorKind::RateLimited => "rate limited",
            ErrorKind::Quota => "quota used up",
            ErrorKind::Overloaded => "provider overloaded",
            ErrorKind::Server => "provider error",
            ErrorKind::ContextOverflow => "context window exceeded",
            ErrorKind::InvalidRequest => "invalid request",
            ErrorKind::NotFound => "not found",
            ErrorKind::Refused => "refused",
            ErrorKind::Network => "network error",
            ErrorKind::Stalled => "the provider fell silent",
            ErrorKind::Truncated => "the stream broke off",
            ErrorKind::Protocol => "unexpected answer",
            ErrorKind::Aborted => "cancelled",
        })
    }
}

mod optional_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

fn is_zero(tries: &u32) -> bool {
    *tries == 0
}
