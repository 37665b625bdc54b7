//! A server on a loopback port that writes scripted bytes, one answer to each request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// The answer to one request, as it goes over the wire. The connection is closed behind it.
#[derive(Clone)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    then_silence: bool,
}

impl Answer {
    /// A status line's rest (`200 OK`), a content type and a body.
    pub(crate) fn new(status: &str, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        Self::with_headers(status, &[&format!("content-type: {content_type}")], body)
    }

    pub(crate) fn with_headers(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Self {
        let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
        headers.iter().for_each(|header| head += &format!("{header}\r\n"));
        let bytes = [format!("{head}\r\n").as_bytes(), body.as_ref()].concat();
        Self { bytes, then_silence: false }
    }

    /// A stream of events. It ends with the connection, as HTTP permits.
    pub(crate) fn events(body: impl AsRef<[u8]>) -> Self {
        Self::new("200 OK", "text/event-stream", body)
    }

    /// Bytes that may be no HTTP at all.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), then_silence: false }
    }

    /// … and then nothing more comes, until the client hangs up.
    pub(crate) fn then_silence(self) -> Self {
        Self { then_silence: true, ..self }
    }
}

/// The running server. It ends with the test's process.
pub(crate) struct Server {
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A request as it arrived.
#[derive(Clone)]
pub(crate) struct Request {
    /// The request line and the headers, in lower case.
    pub(crate) head: String,
    /// Null where there is none.
    pub(crate) body: Value,
}

impl Server {
    /// Gives these answers in order, and the last one again to whoever asks more.
    pub(crate) fn answering(answers: impl Into<Vec<Answer>>) -> Self {
        let answers = answers.into();
        Self::by(move |_, number| answers.get(number - 1).or(answers.last()).unwrap().clone())
    }

    /// Gives the answer that is made of a request and its number, from 1 on.
    pub(crate) fn by(answer: impl Fn(&Request, usize) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                // The client may be gone already, which is its right.
                let Ok((request, mut stream)) = connection.and_then(read_request) else { continue };
                let answer = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request);
                    answer(seen.last().unwrap(), seen.len())
                };
                let _ = stream.write_all(&answer.bytes);
                if answer.then_silence {
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            }
        });
        Self { url, requests }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_request(stream: TcpStream) -> std::io::Result<(Request, TcpStream)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body)?;
    let body = match body.as_slice() {
        b"" => Value::Null,
        json => serde_json::from_slice(json).unwrap_or_else(|error| panic!("the request's body: {error}")),
    };
    Ok((Request { head, body }, reader.into_inner()))
}
