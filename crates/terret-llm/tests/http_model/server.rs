//! A server on a loopback port that writes scripted bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// The answer to one request: bytes as they go over the wire, and what happens after them.
pub(crate) struct Answer {
    pieces: Vec<Vec<u8>>,
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    /// Wait for the next request.
    KeepOpen,
    /// Close the connection.
    Close,
    /// Say nothing more.
    Stall,
}

impl Answer {
    /// A whole response.
    pub(crate) fn whole(status: &str, headers: &[&str], body: &str) -> Self {
        let head = head(status, headers, &format!("content-length: {}", body.len()));
        Self { pieces: vec![head, body.into()], then: Then::KeepOpen }
    }

    /// A stream of events, each as an HTTP chunk, that ends as it should.
    pub(crate) fn events(events: &[&str]) -> Self {
        let mut answer = Self::begun(events);
        answer.pieces.push(b"0\r\n\r\n".into());
        answer
    }

    /// A stream of events that has not ended.
    pub(crate) fn begun(events: &[&str]) -> Self {
        let mut pieces = vec![head("200 OK", &["content-type: text/event-stream"], "transfer-encoding: chunked")];
        pieces.extend(events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()));
        Self { pieces, then: Then::KeepOpen }
    }

    /// A stream of events that ends with the connection, as HTTP/1.0 has it.
    pub(crate) fn unframed(events: &[&str]) -> Self {
        let head = head("200 OK", &["content-type: text/event-stream"], "connection: close");
        Self { pieces: vec![head, events.concat().into()], then: Then::Close }
    }

    /// … in one write.
    pub(crate) fn at_once(self) -> Self {
        Self { pieces: vec![self.pieces.concat()], ..self }
    }

    /// … and then the connection is closed.
    pub(crate) fn then_close(self) -> Self {
        Self { then: Then::Close, ..self }
    }

    /// … and then nothing more comes.
    pub(crate) fn then_stall(self) -> Self {
        Self { then: Then::Stall, ..self }
    }
}

fn head(status: &str, headers: &[&str], framing: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\n");
    for header in headers.iter().chain([&framing]) {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// The running server.
pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    connections: Mutex<usize>,
    requests: Mutex<Vec<String>>,
    hung_up: Notify,
}

impl Server {
    /// Starts a server that gives these answers, one to each request.
    pub(crate) async fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let shared = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *shared.connections.lock().unwrap() += 1;
                tokio::spawn(serve(stream, answers.clone(), shared.clone()));
            }
        });
        Self { url, seen }
    }

    /// How many connections were opened.
    pub(crate) fn connections(&self) -> usize {
        *self.seen.connections.lock().unwrap()
    }

    /// The requests as text, heads in lower case.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits until a connection has been closed.
    pub(crate) async fn hung_up(&self) {
        self.seen.hung_up.notified().await;
    }
}

async fn serve(stream: TcpStream, answers: Arc<Mutex<VecDeque<Answer>>>, seen: Arc<Seen>) {
    stream.set_nodelay(true).unwrap();
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream).await {
        seen.requests.lock().unwrap().push(request);
        let Answer { pieces, then } = answers.lock().unwrap().pop_front().expect("a request too many");
        for piece in pieces {
            if stream.write_all(&piece).await.is_err() {
                break;
            }
        }
        match then {
            Then::KeepOpen => {}
            Then::Close => break,
            Then::Stall => {
                let _ = stream.read_to_end(&mut Vec::new()).await;
                break;
            }
        }
    }
    drop(stream);
    seen.hung_up.notify_one();
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let mut request = head.to_lowercase();
    let length = request.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    request.push_str(&String::from_utf8(body).unwrap());
    Some(request)
}
