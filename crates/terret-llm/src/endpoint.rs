//! Where a model is served, and the key that opens it.

use std::fmt;

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::error::{ErrorKind, ModelError};
use crate::segments::Segments;
use crate::transport::HttpRequest;
use crate::wire::{Encoded, WireFormat};

/// The address of a server and the key for it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    base_url: BaseUrl,
    auth: Option<Auth>,
}

impl Endpoint {
    /// A server that asks for no key.
    pub fn new(base_url: BaseUrl) -> Self {
        Self { base_url, auth: None }
    }

    /// The same server with a key.
    #[must_use]
    pub fn with_auth(mut self, auth: Auth) -> Self {
        self.auth = Some(auth);
        self
    }

    /// The address.
    pub fn base_url(&self) -> &BaseUrl {
        &self.base_url
    }

    /// The key, and how it is sent.
    pub fn auth(&self) -> Option<&Auth> {
        self.auth.as_ref()
    }

    /// What a wire wrote, addressed and with the key.
    pub(crate) fn address(&self, encoded: Encoded) -> Result<HttpRequest, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        // Who doesn't say so may be sent a body in any coding (RFC 9110, 12.5.3); a compressed one comes in clumps.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in &encoded.headers {
            match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
                (Ok(name), Ok(value)) => headers.insert(name, value),
                _ => return Err(ModelError::new(ErrorKind::InvalidRequest, format!("{name}: {value:?} is no header"))),
            };
        }
        if let Some(auth) = &self.auth {
            let (name, value) = auth.header()?;
            headers.insert(name, value);
        }
        Ok(HttpRequest { url: self.base_url.join(&encoded.path), headers, body: encoded.body })
    }

    /// The request for a path that is counted from the server's root, with the key; none if the key can't be sent.
    pub(crate) fn listing(&self, path: &str) -> Option<HttpRequest> {
        self.question(self.base_url.root().join(path), &[]).ok()
    }

    /// The request for the list of models, with these headers.
    pub(crate) fn models(
        &self,
        query: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<HttpRequest, ModelError> {
        self.question(self.base_url.join(&format!("models{query}")), headers)
    }

    fn question(&self, url: String, more: &[(&'static str, &'static str)]) -> Result<HttpRequest, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        for (name, value) in more {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Some(auth) = &self.auth {
            let (name, value) = auth.header()?;
            headers.insert(name, value);
        }
        Ok(HttpRequest { url, headers, body: Segments::default() })
    }

    /// Takes the key out of an error: some servers quote what they were sent.
    pub(crate) fn redact(&self, error: &mut ModelError) {
        let Some(key) = self.auth.as_ref().map(|auth| auth.key.expose_secret()).filter(|key| !key.is_empty()) else {
            return;
        };
        let fields = [Some(&mut error.message), error.code.as_mut(), error.request_id.as_mut()];
        for field in fields.into_iter().flatten() {
            *field = without_key(field, key);
        }
    }
}

/// The text without the key; nor its beginning, where an excerpt was cut in the middle of it.
fn without_key(text: &str, key: &str) -> String {
    /// Fewer characters of a key are no secret, and stand in many a text.
    const TELLING: usize = 6;
    // Control characters that a printer leaves out must not hide one.
    let text: String = text.chars().filter(|c| !c.is_control() || c.is_whitespace()).collect();
    let text = text.replace(key, "[key]");
    let cut = (TELLING..key.len()).rev().filter_map(|len| key.get(..len)).find(|start| text.ends_with(start));
    match cut.and_then(|start| text.strip_suffix(start)) {
        Some(before) => format!("{before}[key]"),
        None => text,
    }
}

/// A key, and how a server wants to be sent it. Never printed.
#[derive(Clone, Debug)]
pub struct Auth {
    scheme: AuthScheme,
    key: SecretString,
}

/// How a server wants to be sent a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthScheme {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// A header of this name that holds the key alone.
    Header(&'static str),
}

impl Auth {
    /// A key for a server. White space around it is not part of it.
    pub fn new(scheme: AuthScheme, key: &SecretString) -> Self {
        Self { scheme, key: key.expose_secret().trim().into() }
    }

    fn header(&self) -> Result<(HeaderName, HeaderValue), ModelError> {
        let key = self.key.expose_secret();
        let (name, value) = match self.scheme {
            AuthScheme::Bearer => (Ok(AUTHORIZATION), HeaderValue::from_str(&format!("Bearer {key}"))),
            AuthScheme::Header(name) => (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(key)),
        };
        let (Ok(name), Ok(mut value)) = (name, value) else {
            let reason = "the key can't be sent: it holds a character that a header can't; was it copied whole?";
            return Err(ModelError::new(ErrorKind::Auth, reason));
        };
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// The address below which a server serves its wire: `https://api.openai.com/v1`.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// Why a text is no base URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a base URL: {reason}")]
pub struct InvalidBaseUrl {
    text: String,
    reason: &'static str,
}

impl BaseUrl {
    /// Reads a base URL and completes it with the version under which vendors serve the wire, where that is missing.
    ///
    /// | wire | appended |
    /// |---|---|
    /// | `openai-completions`, `openai-responses` | `/v1` to an address without a path |
    /// | `anthropic-messages` | `/v1`, unless the path ends in a version |
    /// | `google-generative-ai` | `/v1beta`, unless the path ends in a version |
    ///
    /// These are the conventions of the vendors' own SDKs, so that what stands in `OPENAI_BASE_URL`,
    /// `ANTHROPIC_BASE_URL` and `GOOGLE_GEMINI_BASE_URL` for them works here.
    pub fn new(text: &str, wire: &WireFormat) -> Result<Self, InvalidBaseUrl> {
        let mut base = Self::exact(text)?;
        let path = base.0.path().trim_end_matches('/');
        let version = match wire {
            WireFormat::AnthropicMessages if !ends_in_version(path) => "/v1",
            WireFormat::GoogleGenerativeAi if !ends_in_version(path) => "/v1beta",
            WireFormat::OpenaiCompletions | WireFormat::OpenaiResponses if path.is_empty() => "/v1",
            _ => "",
        };
        let path = format!("{path}{version}");
        base.0.set_path(&path);
        Ok(base)
    }

    /// Reads a base URL and takes it as it is.
    pub fn exact(text: &str) -> Result<Self, InvalidBaseUrl> {
        let invalid = |reason| InvalidBaseUrl { text: shown(text), reason };
        let url = Url::parse(text.trim()).map_err(|_| invalid("it must look like https://host/path"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(invalid("it must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it holds a user name or password; give the key by itself"));
        }
        if url.fragment().is_some() {
            return Err(invalid("it has a fragment (#…)"));
        }
        Ok(Self(url))
    }

    /// The same address, with this path if it has none.
    pub(crate) fn or_path(mut self, path: &str) -> Self {
        if self.0.path().trim_end_matches('/').is_empty() {
            self.0.set_path(path);
        }
        self
    }

    /// The address without the version that it ends in.
    fn root(&self) -> Self {
        let mut root = self.clone();
        let path = self.0.path().trim_end_matches('/');
        if ends_in_version(path) {
            root.0.set_path(path.rsplit_once('/').map_or("", |(before, _)| before));
        }
        root
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.0)
    }

    /// The address of a path below this one. A query of the base URL (`?api-version=…`) goes behind the path's own.
    fn join(&self, path: &str) -> String {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut url = self.0.clone();
        let path = format!("{}/{}", self.0.path().trim_end_matches('/'), path.trim_start_matches('/'));
        url.set_path(&path);
        let queries: Vec<&str> = [query, self.0.query().unwrap_or("")].into_iter().filter(|q| !q.is_empty()).collect();
        url.set_query((!queries.is_empty()).then(|| queries.join("&")).as_deref());
        url.into()
    }
}

/// Without the query, which may hold a secret.
impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.clone();
        url.set_query(None);
        f.write_str(url.as_str())
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// Whether the last segment of a path is like `v1`, `v1beta`, `v4`.
fn ends_in_version(path: &str) -> bool {
    let segment = path.rsplit('/').next().unwrap_or_default();
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// What to show of a text that may hold a secret: what stands before a query, and behind a user name.
fn shown(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, behind))) => format!("{scheme}://…@{behind}"),
        (None, Some((_, behind))) => format!("…@{behind}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_version_is_appended_as_the_vendors_sdks_do() {
        use WireFormat::*;
        for (wire, text, expected) in [
            (OpenaiCompletions, "https://api.openai.com", "https://api.openai.com/v1"),
            (OpenaiCompletions, "http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
            (OpenaiResponses, "https://host", "https://host/v1"),
            (OpenaiCompletions, "https://api.groq.com/openai/v1/", "https://api.groq.com/openai/v1"),
            (OpenaiCompletions, "https://host/api/paas/v4", "https://host/api/paas/v4"),
            (OpenaiCompletions, "https://gateway/acme", "https://gateway/acme"),
            (AnthropicMessages, "https://api.anthropic.com", "https://api.anthropic.com/v1"),
            (AnthropicMessages, "https://api.anthropic.com/v1", "https://api.anthropic.com/v1"),
            (AnthropicMessages, "https://api.minimax.io/anthropic", "https://api.minimax.io/anthropic/v1"),
            (GoogleGenerativeAi, "https://host", "https://host/v1beta"),
            (GoogleGenerativeAi, "https://host/gemini/v1", "https://host/gemini/v1"),
        ] {
            assert_eq!(BaseUrl::new(text, &wire).unwrap().to_string(), expected, "{wire} {text}");
        }
    }

    #[test]
    fn a_path_is_joined_once_and_queries_are_kept() {
        for (base, path, expected) in [
            ("https://host/v1", "/chat/completions", "https://host/v1/chat/completions"),
            ("https://host/v1/", "chat/completions", "https://host/v1/chat/completions"),
            ("https://host/v1?api-version=1", "/messages", "https://host/v1/messages?api-version=1"),
            ("https://host/v1?k=1", "/m:stream?alt=sse", "https://host/v1/m:stream?alt=sse&k=1"),
            ("http://127.0.0.1:9/a;chunk=1/@/v1", "/m", "http://127.0.0.1:9/a;chunk=1/@/v1/m"),
        ] {
            assert_eq!(BaseUrl::exact(base).unwrap().join(path), expected);
        }
    }

    #[test]
    fn what_is_no_base_url_is_refused_without_showing_secrets() {
        for (text, reason) in [
            ("api.openai.com", "https://host/path"),
            ("localhost:8080", "http:// or https://"),
            ("ftp://host", "http:// or https://"),
            ("https://me:hunter2@host/v1", "user name or password"),
            ("https://host/v1?key=hunter2#x", "fragment"),
            ("", "https://host/path"),
        ] {
            let error = BaseUrl::exact(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let base = BaseUrl::exact("https://host/v1?key=hunter2").unwrap();
        assert_eq!(format!("{base} {base:?}"), r#"https://host/v1 "https://host/v1""#);
    }

    #[test]
    fn a_key_is_sent_as_the_server_wants_it_and_shown_nowhere() {
        for (scheme, name, value) in [
            (AuthScheme::Bearer, "authorization", "Bearer sk-secret"),
            (AuthScheme::Header("x-api-key"), "x-api-key", "sk-secret"),
        ] {
            let auth = Auth::new(scheme, &" sk-secret\n".into());
            let endpoint = Endpoint::new(BaseUrl::exact("https://host").unwrap()).with_auth(auth);
            let encoded =
                Encoded { path: "/x".into(), headers: vec![("anthropic-version", "1".into())], body: "{}".into() };
            let request = endpoint.address(encoded).unwrap();
            assert_eq!(request.headers[name], value);
            assert_eq!(request.headers["anthropic-version"], "1");
            let shown = format!("{endpoint:?} {request:?}");
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn a_key_that_no_header_can_hold_is_an_auth_error_that_does_not_show_it() {
        let auth = Auth::new(AuthScheme::Bearer, &"sk-sec\nret".into());
        let error = auth.header().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Auth);
        assert!(!error.to_string().contains("sec"), "{error}");
    }

    #[test]
    fn neither_a_key_nor_the_beginning_of_one_stays_in_an_error() {
        let key = "sk-SECRETKEY-123456";
        let base_url = BaseUrl::exact("https://api.example.com/v1").unwrap();
        let endpoint = Endpoint::new(base_url).with_auth(Auth::new(AuthScheme::Bearer, &key.into()));
        let mut error =
            ModelError::new(ErrorKind::Auth, format!("bad key {key} or sk-SEC\u{0}RETKEY-123456, that is, sk-SECRETK"))
                .with_code(key);
        error.request_id = Some(format!("req-{key}"));
        endpoint.redact(&mut error);
        assert_eq!(error.message, "bad key [key] or [key], that is, [key]");
        assert_eq!((error.code.as_deref(), error.request_id.as_deref()), (Some("[key]"), Some("req-[key]")));
    }
}
