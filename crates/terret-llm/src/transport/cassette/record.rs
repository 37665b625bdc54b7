use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_stream::stream;
use futures_util::StreamExt;
use tokio::time::Instant;

use super::CassetteError;
use super::exchange::{Answered, Exchange, Failure, Piece};
use super::redaction::{Redaction, Secrets};
use crate::transport::{HttpRequest, HttpResponse, SendFuture, Transport, TransportError};

/// A transport that writes what another one carries to a cassette. See the [module](super).
///
/// An exchange is written when it is over: its body has ended, broken, or been dropped. The writing is synchronous.
pub struct Recorder {
    inner: Arc<dyn Transport>,
    tape: Arc<Tape>,
    redaction: Arc<Redaction>,
    timing: bool,
}

impl Recorder {
    /// Records what this transport carries to a new file, in place of one that is there. Missing folders are made.
    pub fn create(path: impl AsRef<Path>, inner: Arc<dyn Transport>) -> Result<Self, CassetteError> {
        let path = path.as_ref();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = folder
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| File::create(path))
            .map_err(|source| CassetteError::Unwritable { path: path.to_owned(), source })?;
        let tape = Tape { path: path.to_owned(), state: Mutex::new(State { file, error: None }) };
        Ok(Self { inner, tape: Arc::new(tape), redaction: Arc::default(), timing: false })
    }

    /// The same with other secrets to take out.
    #[must_use]
    pub fn redacting(mut self, redaction: Redaction) -> Self {
        self.redaction = Arc::new(redaction);
        self
    }

    /// Also records when everything came, in milliseconds.
    #[must_use]
    pub fn with_timing(mut self) -> Self {
        self.timing = true;
        self
    }

    /// The error of the first exchange that could not be written, if there is one. After it, nothing more is sent.
    pub fn check(&self) -> Result<(), CassetteError> {
        match self.tape.lock().error.as_ref() {
            Some(error) => {
                let source = std::io::Error::new(error.kind(), error.to_string());
                Err(CassetteError::Unwritable { path: self.tape.path.clone(), source })
            }
            None => Ok(()),
        }
    }
}

impl Transport for Recorder {
    fn send(&self, request: HttpRequest) -> SendFuture<'_> {
        Box::pin(async move {
            self.check().map_err(|error| TransportError::Invalid(error.to_string()))?;
            let mut take = Take::new(self, &request);
            let HttpResponse { status, headers, mut body } = match self.inner.send(request).await {
                Ok(response) => response,
                Err(error) => {
                    take.exchange.failure = Some(Failure::from(&error));
                    return Err(error);
                }
            };
            take.exchange.response = Some(Answered {
                after: take.since(),
                status: status.as_u16(),
                headers: self.redaction.headers(&headers, &take.secrets),
                body: Vec::new(),
            });
            let body = stream! {
                while let Some(piece) = body.next().await {
                    match &piece {
                        Ok(bytes) => take.piece(bytes.clone()),
                        Err(error) => take.exchange.failure = Some(Failure::from(error)),
                    }
                    yield piece;
                }
                take.end();
            };
            Ok(HttpResponse { status, headers, body: Box::pin(body) })
        })
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("path", &self.tape.path).finish_non_exhaustive()
    }
}

/// The file.
struct Tape {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    error: Option<std::io::Error>,
}

impl Tape {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, exchange: &Exchange) {
        let mut state = self.lock();
        let line = serde_json::to_string(exchange).map_err(std::io::Error::from);
        let written = line.and_then(|line| state.file.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            state.error.get_or_insert(error);
        }
    }
}

/// One exchange while it goes on. Dropping it writes it, and until it has ended, that is because the reader went.
struct Take {
    exchange: Exchange,
    secrets: Secrets,
    tape: Arc<Tape>,
    /// When the last thing came, if that is recorded.
    clock: Option<Instant>,
}

impl Take {
    fn new(recorder: &Recorder, request: &HttpRequest) -> Self {
        let (request, secrets) = recorder.redaction.asked(request);
        Self {
            exchange: Exchange { request, response: None, failure: Some(Failure::HungUp) },
            secrets,
            tape: recorder.tape.clone(),
            clock: recorder.timing.then(Instant::now),
        }
    }

    fn since(&mut self) -> Option<std::time::Duration> {
        self.clock.as_mut().map(|clock| std::mem::replace(clock, Instant::now()).elapsed())
    }

    fn piece(&mut self, bytes: bytes::Bytes) {
        let after = self.since();
        if let Some(response) = &mut self.exchange.response {
            response.body.push(Piece { after, bytes });
        }
    }

    /// The body has ended, as it should or by an error.
    fn end(mut self) {
        self.exchange.failure.take_if(|failure| *failure == Failure::HungUp);
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        if let Some(response) = &mut self.exchange.response {
            self.secrets.clean_pieces(&mut response.body);
        }
        if let Some(reason) = self.exchange.failure.as_mut().and_then(Failure::reason_mut) {
            *reason = self.secrets.clean(reason);
        }
        self.tape.write(&self.exchange);
    }
}
