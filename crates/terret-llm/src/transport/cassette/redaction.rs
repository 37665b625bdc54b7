//! What must not get into a cassette.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::exchange::{Asked, Piece, Values};
use crate::transcript::replace_lone_surrogates;
use crate::transport::HttpRequest;

/// What is written in place of a secret.
const REDACTED: &str = "[redacted]";

/// What is taken out of a cassette. Each of these becomes `[redacted]`:
///
/// - the values of headers that are marked as sensitive, as the one that carries the key is, and of `authorization`,
///   `proxy-authorization`, `cookie`, `set-cookie`, `api-key`, `x-api-key`, `x-goog-api-key`, `x-amz-security-token`,
///   `openai-organization`, `openai-project`, `anthropic-organization-id`;
/// - the values of the query's parameters `key`, `api_key`, `access_token`, `token`, `auth`, `sig`, `signature`,
///   `x-amz-credential`, `x-amz-security-token`, `x-amz-signature`;
/// - what stands in the request's JSON, if it isn't an object or a list, under `api_key`, `access_token`, `refresh_token`, `id_token`, `client_secret`,
///   `authorization`, `password`, `secret`;
/// - anywhere, also in what the server answers: every secret that was found in the request's headers or query, if it has
///   eight bytes or more, and what looks like a key (`sk-`, `AIza`, `gsk_`, `xai-`, `hf_`, `ghp_`, `github_pat_`, `AKIA`,
///   and at least sixteen letters, digits, `-` or `_` after it).
///
/// Everything else stays: what was asked and answered is what a cassette is for. Read it before you publish it.
///
/// In names, case, `-` and `_` don't count: `api_key` is `apiKey`. A secret that a model says in several fragments is not
/// found, because something stands between them.
///
/// What a request is compared with was redacted, and so it is itself before. A field that differs from run to run, such
/// as a date, can therefore be made to match by [`field`](Self::field).
#[derive(Clone)]
pub struct Redaction {
    headers: Vec<String>,
    parameters: Vec<String>,
    fields: Vec<String>,
    texts: Vec<SecretString>,
}

const HEADERS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "x-amz-security-token",
    "openai-organization",
    "openai-project",
    "anthropic-organization-id",
];

const PARAMETERS: &[&str] = &[
    "key",
    "api_key",
    "access_token",
    "token",
    "auth",
    "sig",
    "signature",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
];

const FIELDS: &[&str] =
    &["api_key", "access_token", "refresh_token", "id_token", "client_secret", "authorization", "password", "secret"];

const PREFIXES: &[&str] = &["sk-", "AIza", "gsk_", "xai-", "hf_", "ghp_", "github_pat_", "AKIA"];

/// A shorter secret would be found in what is none.
const SHORTEST_SECRET: usize = 8;

/// What has to follow a prefix, in bytes.
const SHORTEST_TAIL: usize = 16;

impl Default for Redaction {
    fn default() -> Self {
        let names = |list: &[&str]| list.iter().map(|name| plain(name)).collect();
        Self { headers: names(HEADERS), parameters: names(PARAMETERS), fields: names(FIELDS), texts: Vec::new() }
    }
}

impl Redaction {
    /// Also the values of this header.
    #[must_use]
    pub fn header(mut self, name: &str) -> Self {
        self.headers.push(plain(name));
        self
    }

    /// Also the values of this parameter of the query.
    #[must_use]
    pub fn parameter(mut self, name: &str) -> Self {
        self.parameters.push(plain(name));
        self
    }

    /// Also whatever stands under this key in the request's JSON, at any depth, if it isn't an object or a list.
    #[must_use]
    pub fn field(mut self, name: &str) -> Self {
        self.fields.push(plain(name));
        self
    }

    /// Also this text, wherever it stands.
    #[must_use]
    pub fn text(mut self, text: impl Into<SecretString>) -> Self {
        self.texts.push(text.into());
        self
    }

    /// The request without its secrets, and the secrets, to look for in what is answered.
    pub(super) fn asked(&self, request: &HttpRequest) -> (Asked, Secrets) {
        let secrets = self.secrets(request);
        let mut headers = BTreeMap::new();
        for (name, values) in &self.headers(&request.headers, &secrets) {
            headers.insert(name.clone(), values.as_slice().join(", "));
        }
        let body = request.body.to_bytes();
        let text = String::from_utf8_lossy(&body);
        let text = replace_lone_surrogates(&text);
        let mut body = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned()));
        self.clean_json(&mut body, &secrets);
        let path = secrets.clean(&self.path(&request.url));
        (Asked { method: "POST".into(), path, headers, body }, secrets)
    }

    pub(super) fn headers(&self, headers: &HeaderMap, secrets: &Secrets) -> BTreeMap<String, Values> {
        let shown = |name: &HeaderName, value: &HeaderValue| match self.is_secret(name, value) {
            true => REDACTED.to_owned(),
            false => secrets.clean(&String::from_utf8_lossy(value.as_bytes())),
        };
        let values = |name: &HeaderName| {
            let mut values: Vec<String> = headers.get_all(name).iter().map(|value| shown(name, value)).collect();
            if values.len() == 1 { Values::One(values.remove(0)) } else { Values::Many(values) }
        };
        headers.keys().map(|name| (name.as_str().to_owned(), values(name))).collect()
    }

    fn secrets(&self, request: &HttpRequest) -> Secrets {
        let headers = request.headers.iter().filter(|(name, value)| self.is_secret(name, value));
        // Of `Bearer KEY`, the key.
        let in_headers = headers.filter_map(|(_, value)| {
            let value = std::str::from_utf8(value.as_bytes()).ok()?;
            Some(value.rsplit(' ').next().unwrap_or(value).to_owned())
        });
        let url = Url::parse(&request.url).ok();
        let pairs = url.iter().flat_map(Url::query_pairs);
        let in_query =
            pairs.filter(|(name, _)| self.parameters.contains(&plain(name))).map(|(_, value)| value.into_owned());
        let in_texts = self.texts.iter().map(|text| text.expose_secret().to_owned());
        let long = in_headers.chain(in_query).filter(|secret| secret.len() >= SHORTEST_SECRET);
        Secrets(long.chain(in_texts.filter(|text| !text.is_empty())).collect())
    }

    fn is_secret(&self, name: &HeaderName, value: &HeaderValue) -> bool {
        value.is_sensitive() || self.headers.contains(&plain(name.as_str()))
    }

    fn path(&self, url: &str) -> String {
        let Ok(url) = Url::parse(url) else { return String::new() };
        let pair = |pair: &str| {
            let name = pair.split('=').next().unwrap_or_default();
            if self.parameters.contains(&plain(name)) { format!("{name}={REDACTED}") } else { pair.to_owned() }
        };
        match url.query() {
            Some(query) => format!("{}?{}", url.path(), query.split('&').map(pair).collect::<Vec<_>>().join("&")),
            None => url.path().to_owned(),
        }
    }

    fn clean_json(&self, json: &mut Value, secrets: &Secrets) {
        match json {
            Value::String(text) => *text = secrets.clean(text),
            Value::Array(list) => list.iter_mut().for_each(|item| self.clean_json(item, secrets)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    let is_leaf = !matches!(value, Value::Object(_) | Value::Array(_) | Value::Null);
                    if is_leaf && self.fields.contains(&plain(name)) {
                        *value = Value::String(REDACTED.into());
                    } else {
                        self.clean_json(value, secrets);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Without the texts.
impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { headers, parameters, fields, texts } = self;
        f.debug_struct("Redaction")
            .field("headers", headers)
            .field("parameters", parameters)
            .field("fields", fields)
            .field("texts", &texts.len())
            .finish()
    }
}

/// The secrets of one exchange.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// The text without them.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut rest = 0;
        let mut clean = String::new();
        for found in self.find(text.as_bytes()) {
            // What was found is text in text, so that it begins and ends between characters.
            clean.push_str(text.get(rest..found.start).unwrap_or_default());
            clean.push_str(REDACTED);
            rest = found.end;
        }
        clean.push_str(text.get(rest..).unwrap_or_default());
        clean
    }

    /// The pieces without them, also where they were cut in two. They stay as many pieces.
    pub(super) fn clean_pieces(&self, pieces: &mut [Piece]) {
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| &piece.bytes).copied().collect();
        let found = self.find(&whole);
        let mut at = 0;
        for piece in pieces {
            let (start, end) = (at, at + piece.bytes.len());
            let mut clean = BytesMut::new();
            for secret in found.iter().filter(|secret| secret.start < end && secret.end > start) {
                clean.extend_from_slice(whole.get(at..secret.start).unwrap_or_default());
                if secret.start >= start {
                    clean.extend_from_slice(REDACTED.as_bytes());
                }
                at = secret.end.min(end);
            }
            clean.extend_from_slice(whole.get(at..end).unwrap_or_default());
            piece.bytes = Bytes::from(clean);
            at = end;
        }
    }

    /// Where they stand: in order, and apart from one another.
    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let known = self.0.iter().flat_map(|secret| {
            memchr::memmem::find_iter(bytes, secret.as_bytes()).map(|start| start..start + secret.len())
        });
        let alike = PREFIXES.iter().flat_map(|prefix| {
            memchr::memmem::find_iter(bytes, prefix.as_bytes())
                .filter(|start| {
                    start.checked_sub(1).and_then(|before| bytes.get(before)).is_none_or(|it| !is_of_key(it))
                })
                .filter_map(|start| {
                    let tail = bytes.get(start + prefix.len()..)?;
                    let length = tail.iter().take_while(|byte| is_of_key(byte)).count();
                    (length >= SHORTEST_TAIL).then_some(start..start + prefix.len() + length)
                })
        });
        let mut found: Vec<Range<usize>> = known.chain(alike).collect();
        found.sort_by_key(|range| (range.start, range.end));
        found.dedup_by(|later, earlier| {
            let overlap = later.start < earlier.end;
            if overlap {
                earlier.end = earlier.end.max(later.end);
            }
            overlap
        });
        found
    }
}

fn is_of_key(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// A name by which it is looked up: `api_key`, `apiKey` and `Api-Key` are one.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect()
}
