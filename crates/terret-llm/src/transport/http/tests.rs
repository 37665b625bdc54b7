//! What is sent again over HTTP/2, against a server that writes frames
//! ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113)).

use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A frame's type, flags, stream and payload.
type Frame = (u8, u8, u32, Vec<u8>);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;

/// The first request of a connection is on this stream.
const FIRST: u32 = 1;

fn goes_away(last_stream: u32, reason: u32) -> Frame {
    (GOAWAY, 0, 0, [last_stream.to_be_bytes(), reason.to_be_bytes()].concat())
}

fn resets(reason: u32) -> Frame {
    (RST_STREAM, 0, FIRST, reason.to_be_bytes().to_vec())
}

fn begins() -> Frame {
    // The static table's `:status: 200`; the end of the headers.
    (HEADERS, 4, FIRST, vec![0x88])
}

fn ends() -> Frame {
    // The end of the stream.
    (DATA, 1, FIRST, b"hi".to_vec())
}

#[tokio::test]
async fn what_the_server_has_not_looked_at_is_sent_again() {
    let untouched = [vec![goes_away(0, NO_ERROR)], vec![resets(REFUSED_STREAM)]];
    for frames in untouched.clone() {
        let (answer, asked) = call(vec![frames.clone(), vec![begins(), ends()]]).await;
        assert_eq!((answer.as_deref(), asked), (Ok("hi"), 2), "{frames:?}");
    }
    let [goes_away, refuses] = untouched;
    let (answer, asked) = call(vec![refuses.clone(), goes_away.clone(), vec![begins(), ends()]]).await;
    assert_eq!((answer.as_deref(), asked), (Ok("hi"), 3));
    let (answer, asked) = call(vec![refuses.clone(), goes_away, refuses, vec![begins(), ends()]]).await;
    assert!(matches!(answer, Err(TransportError::Broken { .. })), "{answer:?}");
    assert_eq!(asked, 3, "not for ever");
}

#[tokio::test]
async fn what_the_server_may_have_worked_on_is_sent_once() {
    for frames in [
        vec![],
        vec![goes_away(FIRST, NO_ERROR)],
        vec![goes_away(FIRST, INTERNAL_ERROR)],
        vec![resets(INTERNAL_ERROR)],
        vec![resets(NO_ERROR)],
        vec![begins(), resets(REFUSED_STREAM)],
        vec![begins()],
    ] {
        let (answer, asked) = call(vec![frames.clone(), vec![begins(), ends()]]).await;
        assert!(matches!(answer, Err(TransportError::Broken { .. })), "{answer:?} after {frames:?}");
        assert_eq!(asked, 1, "{frames:?}");
    }
}

/// What a call gets from a server that answers its connections with these frames, one list each, and closes them; and
/// how often it was asked.
async fn call(connections: Vec<Vec<Frame>>) -> (Result<String, TransportError>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // By this name the server is none of this machine's, which are spoken to in HTTP/1.1.
    let url = format!("http://0.0.0.0:{}/v1/messages", listener.local_addr().unwrap().port());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = tokio::spawn(async move {
        for frames in connections {
            let stream = listener.accept().await.unwrap().0;
            tokio::spawn(serve(stream, frames, count.clone()));
        }
    });
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls().unwrap()).http2_prior_knowledge();
    let transport = HttpTransport {
        connect: Duration::from_secs(20),
        local: LocalClient::new(Duration::from_secs(20)),
        remote: OnceLock::from(client.no_proxy().build().map_err(|_| unreachable!())),
        loopback: OnceLock::new(),
    };
    let answer = async {
        let mut response = transport.send(HttpRequest { url, headers: HeaderMap::new(), body: "{}".into() }).await?;
        let mut text = String::new();
        while let Some(piece) = response.body.try_next().await? {
            text.push_str(&String::from_utf8_lossy(&piece));
        }
        Ok(text)
    };
    let answer = answer.await;
    server.abort();
    (answer, asked.load(Ordering::SeqCst))
}

async fn serve(mut stream: TcpStream, frames: Vec<Frame>, asked: Arc<AtomicUsize>) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    assert!(preface.starts_with(b"PRI * HTTP/2.0"));
    write(&mut stream, (SETTINGS, 0, 0, Vec::new())).await;
    // The request is whole with the frame that ends its stream.
    while let Some((kind, flags, stream_id, _)) = read(&mut stream).await {
        if stream_id == FIRST && matches!(kind, DATA | HEADERS) && flags & 1 == 1 {
            asked.fetch_add(1, Ordering::SeqCst);
            break;
        }
    }
    for frame in frames {
        write(&mut stream, frame).await;
    }
    let _ = stream.shutdown().await;
    while read(&mut stream).await.is_some() {}
}

async fn read(stream: &mut TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let [high, middle, low, kind, flags, id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some((kind, flags, u32::from_be_bytes(id), payload))
}

async fn write(stream: &mut TcpStream, (kind, flags, stream_id, payload): Frame) {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[..], &[kind, flags], &stream_id.to_be_bytes()].concat();
    // A client that has seen enough may be gone.
    let _ = stream.write_all(&[head, payload].concat()).await;
}
