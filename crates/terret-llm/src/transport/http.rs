use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http_body::{Frame, SizeHint};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::local::LocalClient;
use super::{HttpRequest, HttpResponse, SendFuture, Transport, TransportError};
use crate::endpoint::is_loopback;
use crate::error::{ErrorKind, ModelError};
use crate::http_model::Limits;
use crate::segments::Segments;
use crate::wire;

/// What requests call us.
pub(super) const AGENT: &str = concat!("terret/", env!("CARGO_PKG_VERSION"));

/// HTTP/1.1 and HTTP/2 over TCP and TLS, with pooled connections.
///
/// - Proxies are taken from the system: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`. Servers on this machine
///   (`localhost`, `127.0.0.0/8`, `::1`) are never asked through one.
/// - A server on this machine that speaks HTTP without TLS, as local models do, is read without a task in between: the
///   reader gets all that has arrived in one piece.
/// - TLS trusts what the system trusts. Its certificates are read at the first handshake, not before.
/// - A redirect is an answer like any other; a key never travels to another address.
///
/// The pool belongs to the tokio runtime that the first request ran on: share one transport between all models of a
/// program (it is cheap to make, and nothing happens before the first request), and don't share it between runtimes.
#[derive(Debug)]
pub struct HttpTransport {
    connect: Duration,
    local: LocalClient,
    remote: OnceLock<Result<reqwest::Client, TransportError>>,
    loopback: OnceLock<Result<reqwest::Client, TransportError>>,
}

impl HttpTransport {
    /// A transport with the default [`Limits`].
    pub fn new() -> Self {
        Self::with_limits(&Limits::default())
    }

    /// A transport that gives up on connections after [`Limits::connect`].
    pub fn with_limits(limits: &Limits) -> Self {
        let connect = limits.connect;
        Self { connect, local: LocalClient::new(connect), remote: OnceLock::new(), loopback: OnceLock::new() }
    }

    /// What is at this address, if that is a text of reasonable length. The request's body isn't sent.
    pub(crate) async fn fetch(&self, request: HttpRequest) -> Result<String, ModelError> {
        const REASONABLE: usize = 16 << 20;
        let url = reqwest::Url::parse(&request.url).map_err(|error| TransportError::Invalid(error.to_string()))?;
        let server = server(&url);
        let sent = self.client(&url)?.get(url).headers(request.headers).send().await;
        let mut response = sent.map_err(|error| unanswered(&error, &server, self.connect))?;
        let mut bytes = Vec::new();
        let broken =
            |error: reqwest::Error| TransportError::Broken { server: server.clone(), reason: innermost(&error) };
        while let Some(piece) = response.chunk().await.map_err(broken)? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > REASONABLE {
                return Err(ModelError::new(ErrorKind::Protocol, "the answer is far too long"));
            }
        }
        if !response.status().is_success() {
            let header =
                |name: &str| Some(String::from_utf8_lossy(response.headers().get(name)?.as_bytes()).into_owned());
            return Err(wire::from_response(response.status().as_u16(), header, &bytes));
        }
        String::from_utf8(bytes).map_err(|_| ModelError::new(ErrorKind::Protocol, "the answer is not UTF-8"))
    }

    fn client(&self, url: &reqwest::Url) -> Result<&reqwest::Client, TransportError> {
        let (client, proxies) = if is_loopback(url) { (&self.loopback, false) } else { (&self.remote, true) };
        client.get_or_init(|| self.build(proxies)).as_ref().map_err(Clone::clone)
    }

    fn build(&self, proxies: bool) -> Result<reqwest::Client, TransportError> {
        let client = reqwest::Client::builder()
            .user_agent(AGENT)
            .tls_backend_preconfigured(tls()?)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.connect)
            .tcp_nodelay(true)
            // A peer that vanished (a laptop that slept, a dropped NAT entry) is noticed before the limits on silence.
            .tcp_keepalive(Duration::from_secs(30))
            .http2_keep_alive_interval(Duration::from_secs(30))
            .http2_keep_alive_timeout(Duration::from_secs(20));
        let client = if proxies { client } else { client.no_proxy() };
        client.build().map_err(|error| TransportError::Invalid(innermost(&error)))
    }
}

impl Default for HttpTransport {
    fn default() -> Self {
        Self::new()
    }
}

impl Transport for HttpTransport {
    fn send(&self, request: HttpRequest) -> SendFuture<'_> {
        Box::pin(async move {
            let url = reqwest::Url::parse(&request.url).map_err(|error| TransportError::Invalid(error.to_string()))?;
            if url.scheme() == "http" && is_loopback(&url) {
                return self.local.send(&url, request).await;
            }
            let server = server(&url);
            let client = self.client(&url)?;
            let mut resends = 0..2;
            let response = loop {
                let post = client.post(url.clone()).headers(request.headers.clone());
                let body = reqwest::Body::wrap(Segmented::from(request.body.clone()));
                match post.body(body).send().await {
                    Ok(response) => break response,
                    Err(error) if is_untouched(&error) && resends.next().is_some() => {}
                    Err(error) => return Err(unanswered(&error, &server, self.connect)),
                }
            };
            Ok(HttpResponse {
                status: response.status(),
                headers: response.headers().clone(),
                body: Box::pin(response.bytes_stream().map_err(move |error| broken(&error, &server))),
            })
        })
    }
}

/// A body in pieces, of a length that is known: some servers refuse bodies that don't tell it.
pub(super) struct Segmented(std::vec::IntoIter<Bytes>);

impl From<Segments> for Segmented {
    fn from(body: Segments) -> Self {
        Self(body.into_iter())
    }
}

impl http_body::Body for Segmented {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_slice().iter().map(|piece| piece.len() as u64).sum())
    }
}

/// Whether the server says that it has not looked at the request: a graceful shutdown of the connection, or a stream
/// over its limit ([RFC 9113, 8.7](https://www.rfc-editor.org/rfc/rfc9113#section-8.7)).
fn is_untouched(error: &reqwest::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let is = |reason| error.is_remote() && error.reason() == Some(reason);
            return error.is_go_away() && is(h2::Reason::NO_ERROR)
                || error.is_reset() && is(h2::Reason::REFUSED_STREAM);
        }
        source = error.source();
    }
    false
}

fn unanswered(error: &reqwest::Error, server: &str, limit: Duration) -> TransportError {
    if error.is_builder() {
        return TransportError::Invalid(innermost(error));
    }
    if !error.is_connect() {
        return broken(error, server);
    }
    let reason = if error.is_timeout() { format!("no connection within {limit:?}") } else { innermost(error) };
    TransportError::Connect { server: server.to_owned(), reason }
}

fn broken(error: &reqwest::Error, server: &str) -> TransportError {
    TransportError::Broken { server: server.to_owned(), reason: innermost(error) }
}

/// The error at the end of the chain, which says what happened; those around it say where, and name the address.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

pub(super) fn server(url: &reqwest::Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn tls() -> Result<ClientConfig, TransportError> {
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(crypto.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TransportError::Invalid(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SystemTrust { crypto, verifier: OnceLock::new() }))
        .with_no_client_auth();
    config.alpn_protocols = vec!["h2".into(), "http/1.1".into()];
    Ok(config)
}

/// The system's verifier, set up when the first certificate has to be verified: reading the system's certificates takes
/// milliseconds, which a program that talks to a server without TLS should not pay at every start.
#[derive(Debug)]
struct SystemTrust {
    crypto: Arc<CryptoProvider>,
    verifier: OnceLock<Result<rustls_platform_verifier::Verifier, rustls::Error>>,
}

impl SystemTrust {
    fn verifier(&self) -> Result<&rustls_platform_verifier::Verifier, rustls::Error> {
        let set_up = || rustls_platform_verifier::Verifier::new(self.crypto.clone());
        self.verifier.get_or_init(set_up).as_ref().map_err(Clone::clone)
    }
}

impl ServerCertVerifier for SystemTrust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier()?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier()?.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier()?.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.crypto.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
