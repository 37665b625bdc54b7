//! The file's format: what was asked and what was answered.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::transport::TransportError;

/// One request and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    pub(super) request: Asked,
    /// As much as came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<Answered>,
    /// Why no (more of the) response came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Failure>,
}

/// A request, without its host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    pub(super) method: String,
    /// With the query.
    pub(super) path: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Value,
}

impl Asked {
    /// Whether the same exchange answers both.
    pub(super) fn matches(&self, other: &Asked) -> bool {
        self.method == other.method && self.path == other.path && self.body == other.body
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Answered {
    #[serde(default, rename = "afterMs", with = "millis", skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Duration>,
    pub(super) status: u16,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Values>,
    pub(super) body: Vec<Piece>,
}

/// A header that may stand there several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Values {
    One(String),
    Many(Vec<String>),
}

impl Values {
    pub(super) fn as_slice(&self) -> &[String] {
        match self {
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        }
    }
}

/// A piece of a response's body, and how long after the one before it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PieceJson", into = "PieceJson")]
pub(super) struct Piece {
    pub(super) after: Option<Duration>,
    pub(super) bytes: Bytes,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PieceJson {
    Plain(String),
    #[serde(rename_all = "camelCase")]
    Detailed {
        #[serde(default, rename = "afterMs", with = "millis", skip_serializing_if = "Option::is_none")]
        after: Option<Duration>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
    },
}

impl From<Piece> for PieceJson {
    fn from(Piece { after, bytes }: Piece) -> Self {
        match (after, std::str::from_utf8(&bytes)) {
            (None, Ok(text)) => PieceJson::Plain(text.to_owned()),
            (after, Ok(text)) => PieceJson::Detailed { after, text: Some(text.to_owned()), base64: None },
            (after, Err(_)) => PieceJson::Detailed { after, text: None, base64: Some(STANDARD.encode(&bytes)) },
        }
    }
}

impl TryFrom<PieceJson> for Piece {
    type Error = String;

    fn try_from(json: PieceJson) -> Result<Self, String> {
        match json {
            PieceJson::Plain(text) => Ok(Self { after: None, bytes: text.into() }),
            PieceJson::Detailed { after, text: Some(text), base64: None } => Ok(Self { after, bytes: text.into() }),
            PieceJson::Detailed { after, text: None, base64: Some(base64) } => match STANDARD.decode(base64) {
                Ok(bytes) => Ok(Self { after, bytes: bytes.into() }),
                Err(error) => Err(format!("a piece is no base64: {error}")),
            },
            PieceJson::Detailed { .. } => Err("a piece needs either text or base64".into()),
        }
    }
}

/// Why a response ended early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Failure {
    Invalid {
        reason: String,
    },
    Connect {
        server: String,
        reason: String,
    },
    Broken {
        server: String,
        reason: String,
    },
    /// The reader went, before the end.
    HungUp,
}

impl Failure {
    /// What the system says.
    pub(super) fn reason_mut(&mut self) -> Option<&mut String> {
        match self {
            Failure::Invalid { reason } | Failure::Connect { reason, .. } | Failure::Broken { reason, .. } => {
                Some(reason)
            }
            Failure::HungUp => None,
        }
    }
}

impl From<&TransportError> for Failure {
    fn from(error: &TransportError) -> Self {
        match error.clone() {
            TransportError::Invalid(reason) | TransportError::NotRecorded(reason) => Failure::Invalid { reason },
            TransportError::Connect { server, reason } => Failure::Connect { server, reason },
            TransportError::Broken { server, reason } => Failure::Broken { server, reason },
        }
    }
}

impl From<Failure> for TransportError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Invalid { reason } => TransportError::Invalid(reason),
            Failure::Connect { server, reason } => TransportError::Connect { server, reason },
            Failure::Broken { server, reason } => TransportError::Broken { server, reason },
            Failure::HungUp => {
                let reason = "the recording ends here, because its reader hung up".into();
                TransportError::Broken { server: "the cassette".into(), reason }
            }
        }
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}
