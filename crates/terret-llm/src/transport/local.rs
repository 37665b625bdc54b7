//! HTTP/1.1 to a server on this machine, without a task between the socket and the reader.
//!
//! A server next door writes faster than anybody reads. Where a connection is a task of its own, each chunk of a body,
//! which is a delta, costs two changes of task on its way to the reader, and the wake of a thread if the runtime has
//! several. That is a multiple of what the delta itself costs. Here the reader drives the connection, and takes
//! whatever has arrived in one piece.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use url::{Host, Position, Url};

use super::http::{AGENT, Segmented, innermost, server};
use super::{HttpRequest, HttpResponse, TransportError};

/// Connections to servers on this machine.
#[derive(Debug)]
pub(super) struct LocalClient {
    connect: Duration,
    idle: Arc<IdleLinks>,
}

impl LocalClient {
    /// A client that gives up on connections after this time.
    pub(super) fn new(connect: Duration) -> Self {
        Self { connect, idle: Arc::default() }
    }

    pub(super) async fn send(&self, url: &Url, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        let server = server(url);
        let mut message = message(url, request)?;
        loop {
            let idle = self.idle.take(&server);
            let was_idle = idle.is_some();
            let mut link = match idle {
                Some(link) => link,
                None => self.link(url, &server).await?,
            };
            match link.ask(message).await {
                Ok(response) => {
                    let (head, frames) = response.into_parts();
                    let body = LocalBody { frames, link: Some(link), idle: self.idle.clone(), server, broken: None };
                    return Ok(HttpResponse { status: head.status, headers: head.headers, body: Box::pin(body) });
                }
                // The server closed an idle connection just before it was used, and got nothing of the request.
                Err(mut unsent) => match unsent.take_message().filter(|_| was_idle) {
                    Some(again) => message = again,
                    None => return Err(broken(&unsent.into_error(), &server)),
                },
            }
        }
    }

    async fn link(&self, url: &Url, server: &str) -> Result<Link, TransportError> {
        let failed = |reason| TransportError::Connect { server: server.to_owned(), reason };
        let stream = tokio::time::timeout(self.connect, connect(url)).await;
        let stream = stream.map_err(|_| failed(format!("no connection within {:?}", self.connect)))?;
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        let link = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = link.map_err(|error| failed(innermost(&error)))?;
        Ok(Link { server: server.to_owned(), sender, connection: Some(Box::pin(connection)) })
    }
}

async fn connect(url: &Url) -> std::io::Result<TcpStream> {
    let port = url.port_or_known_default().unwrap_or(80);
    let stream = match url.host() {
        Some(Host::Ipv4(address)) => TcpStream::connect((address, port)).await?,
        Some(Host::Ipv6(address)) => TcpStream::connect((address, port)).await?,
        Some(Host::Domain(name)) => TcpStream::connect((name, port)).await?,
        None => return Err(std::io::ErrorKind::InvalidInput.into()),
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn message(url: &Url, request: HttpRequest) -> Result<Request<Segmented>, TransportError> {
    let HttpRequest { headers, body, .. } = request;
    let invalid = |error: http::Error| TransportError::Invalid(error.to_string());
    let message = Request::post(&url[Position::BeforePath..Position::AfterQuery]);
    let mut message = message.body(Segmented::from(body)).map_err(invalid)?;
    let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]);
    *message.headers_mut() = headers;
    message.headers_mut().insert(HOST, host.map_err(|error| invalid(error.into()))?);
    message.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    Ok(message)
}

fn broken(error: &hyper::Error, server: &str) -> TransportError {
    TransportError::Broken { server: server.to_owned(), reason: innermost(error) }
}

/// A connection. It does nothing unless it is driven.
struct Link {
    server: String,
    sender: SendRequest<Segmented>,
    /// `None` when it is closed.
    connection: Option<Pin<Box<Connection>>>,
}

type Connection = http1::Connection<TokioIo<TcpStream>, Segmented>;

impl Link {
    async fn ask(
        &mut self,
        message: Request<Segmented>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Segmented>>> {
        let mut answer = std::pin::pin!(self.sender.try_send_request(message));
        let connection = &mut self.connection;
        std::future::poll_fn(|cx| {
            drive(connection, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Whether it can carry another request.
    fn is_free(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        drive(&mut self.connection, &mut cx);
        self.connection.is_some() && matches!(self.sender.poll_ready(&mut cx), Poll::Ready(Ok(())))
    }
}

/// Reads and writes as much as the socket allows. How a connection ended is told to those who wait for it.
fn drive(connection: &mut Option<Pin<Box<Connection>>>, cx: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|connection| connection.as_mut().poll(cx).is_ready()) {
        *connection = None;
    }
}

/// Connections that wait for their next request.
#[derive(Default)]
struct IdleLinks(Mutex<Vec<(Instant, Link)>>);

/// How long a connection waits.
const IDLE: Duration = Duration::from_secs(90);

impl IdleLinks {
    /// The connection that was used last, if it is still open.
    fn take(&self, server: &str) -> Option<Link> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(at) = links.iter().rposition(|(_, link)| link.server == server) {
            let (since, mut link) = links.remove(at);
            if since.elapsed() < IDLE && link.is_free() {
                return Some(link);
            }
        }
        None
    }

    fn put(&self, link: Link) {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|(since, _)| since.elapsed() < IDLE);
        links.push((Instant::now(), link));
    }
}

impl std::fmt::Debug for IdleLinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdleLinks")
    }
}

/// The body of a response, and the connection on which it comes.
struct LocalBody {
    frames: Incoming,
    /// `None` behind the end.
    link: Option<Link>,
    idle: Arc<IdleLinks>,
    server: String,
    /// How the body ended, to tell behind what came before.
    broken: Option<TransportError>,
}

/// A piece that has grown so large, in bytes, is handed on: what follows may as well be a piece of its own.
const LARGE: usize = 32 * 1024;

impl LocalBody {
    /// The next frame, if the socket has it. Wakes whoever `cx` belongs to when there is more.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
        let Some(link) = &mut self.link else { return Poll::Ready(None) };
        drive(&mut link.connection, cx);
        // Nobody but the connection, which was just asked, delivers frames: there is nobody else to be woken by.
        let frame = Pin::new(&mut self.frames).poll_frame(&mut Context::from_waker(Waker::noop()));
        frame.map_ok(|frame| frame.into_data().unwrap_or_default())
    }

    /// The body has come to its end.
    fn end(&mut self, broken: Option<TransportError>) {
        self.broken = broken;
        if let Some(link) = self.link.take().filter(|_| self.broken.is_none()) {
            self.idle.put(link);
        }
    }
}

impl Stream for LocalBody {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let mut piece = Piece::default();
        while this.link.is_some() && piece.len() < LARGE {
            // Only who has nothing waits, and has to be woken.
            let frame = match this.poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(frame) => frame,
                Poll::Pending if piece.len() == 0 => ready!(this.poll_frame(cx)),
                Poll::Pending => break,
            };
            match frame {
                Some(Ok(bytes)) => piece.push(bytes),
                Some(Err(error)) => this.end(Some(broken(&error, &this.server))),
                None => this.end(None),
            }
        }
        if piece.len() > 0 {
            Poll::Ready(Some(Ok(piece.into_bytes())))
        } else {
            Poll::Ready(this.broken.take().map(Err))
        }
    }
}

/// Frames in one piece. A lone one is not copied.
#[derive(Default)]
struct Piece {
    first: Bytes,
    all: BytesMut,
}

impl Piece {
    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    fn push(&mut self, bytes: Bytes) {
        if self.len() == 0 {
            self.first = bytes;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(LARGE + bytes.len());
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&bytes);
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}
