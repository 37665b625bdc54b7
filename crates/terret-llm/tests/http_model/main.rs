//! Model calls over HTTP: against a real server on a loopback port, and, where time matters, against a transport double
//! on a paused clock.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests")]

mod double;
mod listing;
mod local;
mod server;
mod ways;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use double::{Double, Step};
use futures_util::StreamExt;
use server::{Answer, Server};
use terret_llm::transport::{HttpRequest, Transport};
use terret_llm::wire::WireFormat;
use terret_llm::{
    Auth, AuthScheme, BaseUrl, Content, Endpoint, ErrorKind, Failed, HttpModel, HttpTransport, Image, Limits, Message,
    Model, ModelSpec, Reply, Request, Retry, RetryPolicy, StopReason, StreamEvent, UserMessage,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const KEY: &str = "sk-very-secret-0123456789";

const HE: &str = "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"he\"}}]}\n\n";
const LLO: &str = "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"llo\"}}]}\n\n";
const STOP: &str = "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const END: &str = "data: [DONE]\n\n";
const COMMENT: &str = ": keep-alive\n\n";

/// A model at this address, through this transport.
fn model(url: &str, transport: Arc<dyn Transport>) -> HttpModel {
    let auth = Auth::new(AuthScheme::Bearer, &KEY.into());
    let endpoint = Endpoint::new(BaseUrl::new(url, &WireFormat::OpenaiCompletions).unwrap()).with_auth(auth);
    HttpModel::new(ModelSpec::new("test", "model-1", WireFormat::OpenaiCompletions), endpoint, transport)
}

fn at(server: &Server) -> HttpModel {
    model(&server.url, Arc::new(HttpTransport::new()))
}

/// The server's two addresses. The system takes the second one for this machine, too, and the transport doesn't: it
/// goes there as it goes to any server.
fn near_and_far(server: &Server) -> [HttpModel; 2] {
    let far = server.url.replace("127.0.0.1", "0.0.0.0");
    [at(server), model(&far, Arc::new(HttpTransport::new()))]
}

fn through(double: &Arc<Double>) -> HttpModel {
    model("http://double", double.clone())
}

fn hello() -> Request {
    let messages = [Message::from(UserMessage::text("hello", 0))].into_iter().collect();
    Request { messages, ..Request::default() }
}

async fn call(model: &impl Model) -> Result<Reply, Failed> {
    model.stream(hello(), CancellationToken::new()).finish().await
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn a_reply_streams_from_a_server() {
    let server = Server::answering([(); 2].map(|()| Answer::events(&[HE, COMMENT, LLO, STOP, END]))).await;
    for model in near_and_far(&server) {
        let reply = call(&model).await.unwrap();
        assert_eq!(reply.message().text(), "hello");
        assert_eq!(&*reply.message().model, "model-1");
    }
    for (request, host) in server.requests().iter().zip(["127.0.0.1", "0.0.0.0"]) {
        assert!(request.starts_with("post /v1/chat/completions http/1.1\r\n"), "{request}");
        for header in [
            &format!("authorization: bearer {KEY}"),
            "content-type: application/json",
            concat!("user-agent: terret/", env!("CARGO_PKG_VERSION")),
            &server.url.replace("http://127.0.0.1", &format!("host: {host}")),
        ] {
            assert!(request.contains(&format!("\r\n{header}\r\n")), "{request}");
        }
        assert!(request.contains(r#""model":"model-1""#), "{request}");
    }
}

#[tokio::test]
async fn one_connection_carries_call_after_call() {
    let answers = || {
        let limited = Answer::whole("429 Too Many Requests", &[], "{}");
        [Answer::events(&[HE, STOP, END]), limited, Answer::events(&[LLO, STOP, END])]
    };
    let server = Server::answering(answers().into_iter().chain(answers())).await;
    for (model, connections) in near_and_far(&server).iter().zip(1..) {
        call(model).await.unwrap();
        call(model).await.unwrap_err();
        call(model).await.unwrap();
        assert_eq!((server.requests().len(), server.connections()), (3 * connections, connections));
    }
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_is_not_used_again() {
    let server =
        Server::answering([Answer::events(&[HE, STOP, END]).then_close(), Answer::events(&[LLO, STOP, END])]).await;
    let model = at(&server);
    call(&model).await.unwrap();
    server.hung_up().await;
    assert_eq!(call(&model).await.unwrap().message().text(), "llo");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_body_may_end_with_its_connection() {
    let server = Server::answering([(); 4].map(|()| Answer::unframed(&[HE, LLO, STOP, END]))).await;
    for model in near_and_far(&server) {
        for _ in 0..2 {
            assert_eq!(call(&model).await.unwrap().message().text(), "hello");
        }
    }
    assert_eq!(server.connections(), 4);
}

#[tokio::test]
async fn what_has_arrived_comes_in_one_piece() {
    let answer = Answer::events(&[HE; 50]).at_once();
    let server = Server::answering([answer]).await;
    let request = HttpRequest { url: server.url.clone(), headers: Default::default(), body: "{}".into() };
    let body = HttpTransport::new().send(request).await.unwrap().body;
    let pieces: Vec<Bytes> = body.map(Result::unwrap).collect().await;
    assert_eq!(pieces, [HE.repeat(50)]);
}

#[tokio::test]
async fn a_body_in_pieces_tells_its_length_and_is_sent_again_as_it_was() {
    let server = Server::answering([
        Answer::begun(&[COMMENT]).then_close(),
        Answer::events(&[HE, STOP, END]),
        Answer::events(&[HE, STOP, END]),
    ])
    .await;
    let model = Retry::new(at(&server), RetryPolicy { base: Duration::ZERO, ..RetryPolicy::default() });
    let picture = Image::new("image/png", &[7; 100_000]);
    let look = UserMessage { content: vec![Content::Image(picture), Content::text("What is it?")], timestamp: 0 };
    let mut request = Request { messages: [Message::from(look)].into_iter().collect(), ..Request::default() };
    let mut expected = Vec::new();
    for _ in 0..2 {
        let wire = WireFormat::OpenaiCompletions.wire().unwrap();
        let body = wire.encode(model.spec(), &request).unwrap().body;
        assert!(body.iter().count() > 2, "{} pieces", body.iter().count());
        expected.push(String::from_utf8(body.to_bytes().to_vec()).unwrap());
        let reply = model.stream(request.clone(), CancellationToken::new()).finish().await.unwrap();
        request.messages.push(Message::from(reply.into_message()));
        request.messages.push(Message::from(UserMessage::text("And its colour?", 0)));
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for (request, body) in requests.iter().zip([&expected[0], &expected[0], &expected[1]]) {
        let (head, sent) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.lines().any(|line| line == format!("content-length: {}", body.len())), "{head}");
        assert!(!head.contains("transfer-encoding"), "{head}");
        assert!(sent == body, "the body is another one");
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_the_end_of_a_reply_is_read_but_not_waited_for() {
    let tail = [Step::Bytes(HE), Step::Bytes(STOP), Step::Bytes(END), Step::Wait(Duration::from_millis(10))];
    let double = Double::answering([double::Answer::new(200, tail)]);
    call(&through(&double)).await.unwrap();
    assert!(!double.hung_up(), "the connection could have been used again");

    let endless = [Step::Bytes(HE), Step::Bytes(STOP), Step::Bytes(END), Step::Stall];
    let double = Double::answering([double::Answer::new(200, endless)]);
    let began = Instant::now();
    call(&through(&double)).await.unwrap();
    assert!(began.elapsed() <= Duration::from_millis(50), "{:?}", began.elapsed());
    assert!(double.hung_up());
}

#[tokio::test]
async fn a_failure_status_is_an_error_of_its_kind() {
    let json = |message: &str| format!(r#"{{"error":{{"message":"{message}","code":"some_code"}}}}"#);
    for (status, headers, body, kind) in [
        ("401 Unauthorized", &[][..], json("no"), ErrorKind::Auth),
        ("429 Too Many Requests", &["retry-after: 7"], json("limit of 10 requests"), ErrorKind::RateLimited),
        ("400 Bad Request", &[], json("maximum context length is 8192 tokens"), ErrorKind::ContextOverflow),
        ("529 Overloaded", &[], String::new(), ErrorKind::Overloaded),
        ("502 Bad Gateway", &["content-type: text/html"], "<html>Bad Gateway</html>".into(), ErrorKind::Server),
        ("404 Not Found", &[], json("no such model"), ErrorKind::NotFound),
    ] {
        let headers = [headers, &["x-request-id: req-7"]].concat();
        let server = Server::answering([Answer::whole(status, &headers, &body)]).await;
        let failed = call(&at(&server)).await.unwrap_err();
        assert_eq!(failed.error.kind, kind, "{failed}");
        assert_eq!(failed.error.status.map(|status| status.to_string()).as_deref(), status.split(' ').next());
        assert_eq!(failed.error.request_id.as_deref(), Some("req-7"));
        assert_eq!(failed.error.retry_after.is_some(), status.starts_with("429"));
        assert_eq!(failed.partial.stop_reason, StopReason::Error);
        assert_eq!(failed.partial.error.as_deref(), Some(&failed.error));
    }
}

#[tokio::test]
async fn an_error_as_a_plain_answer_with_status_200_is_an_error() {
    let body = r#"{"error":{"message":"The server is overloaded","type":"server_error","code":"overloaded"}}"#;
    let server = Server::answering([Answer::whole("200 OK", &["x-request-id: req-7"], body)]).await;
    let failed = call(&at(&server)).await.unwrap_err();
    assert_eq!(failed.error.kind, ErrorKind::Overloaded, "{failed}");
    assert_eq!(failed.error.request_id.as_deref(), Some("req-7"));
}

#[tokio::test]
async fn a_web_page_with_status_200_is_no_reply() {
    let page = "<!doctype html><html><body>Please log in to the network</body></html>";
    let server = Server::answering([Answer::whole("200 OK", &["content-type: text/html"], page)]).await;
    let failed = call(&at(&server)).await.unwrap_err();
    assert_eq!(failed.error.kind, ErrorKind::Protocol);
    assert!(!failed.error.is_retryable());
    assert!(failed.error.message.contains("Please log in to the network"), "{failed}");
}

#[tokio::test]
async fn a_compressed_answer_is_not_asked_for_and_said_to_be_one() {
    for (status, kind) in [("200 OK", ErrorKind::Protocol), ("401 Unauthorized", ErrorKind::Auth)] {
        let answer = Answer::whole(status, &["content-encoding: gzip"], "\u{1f}\u{8b}\u{8}");
        let server = Server::answering([answer]).await;
        let failed = call(&at(&server)).await.unwrap_err();
        assert_eq!(failed.error.kind, kind, "{failed}");
        assert!(failed.error.message.contains("compressed (gzip)"), "{failed}");
        assert!(server.requests()[0].contains("accept-encoding: identity"), "{:?}", server.requests());
    }
    let answer = Answer::whole("200 OK", &["content-encoding: identity"], &[HE, LLO, STOP, END].concat());
    assert_eq!(call(&at(&Server::answering([answer]).await)).await.unwrap().message().text(), "hello");
}

#[tokio::test]
async fn an_error_in_mid_stream_keeps_the_partial_and_learns_its_request() {
    let error = "data: {\"error\":{\"message\":\"boom\",\"code\":\"server_error\"}}\n\n";
    let answer = double::Answer::new(200, [Step::Bytes(HE), Step::Bytes(error)]).header("x-request-id", "req-7");
    let failed = call(&through(&Double::answering([answer]))).await.unwrap_err();
    assert_eq!((failed.error.kind, failed.error.request_id.as_deref()), (ErrorKind::Server, Some("req-7")));
    assert_eq!(failed.partial.text(), "he");
    assert_eq!(failed.partial.error.as_deref(), Some(&failed.error));
}

#[tokio::test(start_paused = true)]
async fn an_error_whose_body_never_ends_is_reported_soon() {
    let answer = double::Answer::new(500, [Step::Bytes(r#"{"error":{"message":"boom"}}"#), Step::Stall]);
    let began = Instant::now();
    let failed = call(&through(&Double::answering([answer]))).await.unwrap_err();
    assert_eq!((failed.error.kind, failed.error.message.as_str()), (ErrorKind::Server, "boom"));
    assert!(began.elapsed() <= seconds(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_says_where_it_leads() {
    let elsewhere = Server::answering([]).await;
    let location = format!("location: {}/v1/chat/completions?token=hidden", elsewhere.url);
    let server = Server::answering([Answer::whole("307 Temporary Redirect", &[&location], "")]).await;
    let failed = call(&at(&server)).await.unwrap_err();
    assert_eq!(elsewhere.connections(), 0);
    assert!(!failed.error.is_retryable());
    assert!(failed.error.message.contains(&elsewhere.url), "{failed}");
    assert!(!failed.error.message.contains("hidden"), "{failed}");
}

#[tokio::test]
async fn no_key_gets_into_an_error_or_a_debug_text() {
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#);
    let in_stream = format!("data: {body}\n\n");
    let server = Server::answering([
        Answer::whole("401 Unauthorized", &[], &body),
        Answer::events(&[HE, &in_stream]),
        Answer::whole("200 OK", &[], &body),
    ])
    .await;
    let model = at(&server);
    for _ in 0..3 {
        let failed = call(&model).await.unwrap_err();
        assert!(failed.error.message.contains("[key]"), "{failed}");
        let shown = format!("{failed} {failed:?} {}", serde_json::to_string(&failed).unwrap());
        assert!(!shown.contains("very-secret"), "{shown}");
    }
    let shown = format!("{model:?} {:?}", Retry::new(model.clone(), RetryPolicy::default()));
    assert!(!shown.contains("very-secret"), "{shown}");
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_truncated_and_keeps_the_partial() {
    for answer in [
        || Answer::begun(&[HE]).then_close(),
        || Answer::begun(&[HE, "data: {\"id\":\"c1\",\"choi"]).then_close(),
        || Answer::events(&[HE]),
        || Answer::events(&[HE, "data: {\"id\":\"c1\",\"choi"]),
    ] {
        let server = Server::answering([answer(), answer()]).await;
        for model in near_and_far(&server) {
            let failed = call(&model).await.unwrap_err();
            assert_eq!(failed.error.kind, ErrorKind::Truncated, "{failed}");
            assert!(failed.error.is_retryable());
            assert_eq!(failed.partial.text(), "he");
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_behind_a_whole_reply_loses_nothing() {
    let server = Server::answering([Answer::begun(&[HE, STOP, END]).then_close()]).await;
    assert_eq!(call(&at(&server)).await.unwrap().message().text(), "he");
    let double = Double::answering([double::Answer::new(200, [Step::Bytes(HE), Step::Break])]);
    let failed = call(&through(&double)).await.unwrap_err();
    assert!(failed.error.message.contains("reset"), "the cause is told: {failed}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_network_error_that_names_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let failed = call(&model(&format!("http://{address}"), Arc::new(HttpTransport::new()))).await.unwrap_err();
    assert_eq!(failed.error.kind, ErrorKind::Network);
    assert!(failed.error.message.contains(&address), "{failed}");
    assert!(failed.error.message.contains("refused"), "{failed}");
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_is_given_up() {
    // Listens, and never takes part in the TLS handshake.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let limits = Limits { connect: Duration::from_millis(50), ..Limits::default() };
    let failed = call(&model(&url, Arc::new(HttpTransport::with_limits(&limits)))).await.unwrap_err();
    assert_eq!(failed.error.kind, ErrorKind::Network);
    assert!(failed.error.message.contains("50ms"), "{failed}");
}

#[tokio::test]
async fn a_request_that_no_wire_can_write_fails_in_the_stream() {
    let double = Double::answering([]);
    let events = through(&double).stream(Request::default(), CancellationToken::new());
    let failed = events.finish().await.unwrap_err();
    assert_eq!(failed.error.kind, ErrorKind::InvalidRequest);
}

/// The end of a call to the double, and how much time it took.
async fn timed(answer: double::Answer) -> (Result<Reply, Failed>, Duration) {
    let limits = Limits { first_event: seconds(300), silence: seconds(120), ..Limits::default() };
    let double = Double::answering([answer]);
    let began = Instant::now();
    let end = call(&through(&double).with_limits(limits)).await;
    if end.is_err() {
        assert!(double.hung_up());
    }
    (end, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_stalls_the_call_after_the_limit() {
    let every_second = || [Step::Bytes(COMMENT), Step::Wait(seconds(1))].into_iter().cycle().take(2000);
    let first = |after, rest: Vec<Step>| [vec![Step::Wait(seconds(after)), Step::Bytes(HE)], rest].concat();
    for (answer, text, limit) in [
        (double::Answer::new(200, []).headers_after(seconds(1000)), "", 300),
        (double::Answer::new(200, [Step::Stall]), "", 300),
        (double::Answer::new(200, every_second()), "", 300),
        (double::Answer::new(200, first(10, vec![Step::Stall])), "he", 10 + 120),
        (double::Answer::new(200, first(200, vec![Step::Stall])), "he", 200 + 120),
        (double::Answer::new(200, first(200, every_second().collect())), "he", 200 + 120),
    ] {
        let (end, elapsed) = timed(answer).await;
        let failed = end.unwrap_err();
        assert_eq!(failed.error.kind, ErrorKind::Stalled);
        assert!(failed.error.is_retryable());
        assert_eq!(failed.partial.text(), text);
        // The timer of tokio's clock is a millisecond coarse.
        assert!((seconds(limit)..=seconds(limit) + Duration::from_millis(2)).contains(&elapsed), "{elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_may_take_for_ever_as_long_as_something_comes() {
    let slowly = [Step::Wait(seconds(119)), Step::Bytes(LLO)].into_iter().cycle().take(200);
    let body = [Step::Wait(seconds(299)), Step::Bytes(HE)]
        .into_iter()
        .chain(slowly)
        .chain([Step::Bytes(STOP), Step::Bytes(END)]);
    let (end, elapsed) = timed(double::Answer::new(200, body)).await;
    assert_eq!(end.unwrap().message().text().len(), 2 + 3 * 100);
    assert!(elapsed > seconds(3 * 3600), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_call_at_once_whatever_the_server_does() {
    for (answer, text) in [
        (double::Answer::new(200, []).headers_after(seconds(100)), ""),
        (double::Answer::new(500, [Step::Wait(seconds(4)), Step::Stall]), ""),
        (double::Answer::new(200, [Step::Stall]), ""),
        (double::Answer::new(200, [Step::Bytes(HE), Step::Stall]), "he"),
        (double::Answer::new(200, [Step::Bytes(COMMENT), Step::Wait(seconds(1))].into_iter().cycle().take(200)), ""),
    ] {
        let double = Double::answering([answer]);
        let cancel = CancellationToken::new();
        let began = Instant::now();
        let (end, ()) = tokio::join!(through(&double).stream(hello(), cancel.clone()).finish(), async {
            tokio::time::sleep(Duration::from_millis(3500)).await;
            cancel.cancel();
        });
        let failed = end.unwrap_err();
        assert_eq!((failed.error.kind, failed.partial.stop_reason), (ErrorKind::Aborted, StopReason::Aborted));
        assert_eq!(failed.partial.text(), text);
        assert!(began.elapsed() < Duration::from_millis(3600), "{:?}", began.elapsed());
        assert!(double.hung_up());
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_begins_sends_nothing() {
    let double = Double::answering([]);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let failed = through(&double).stream(hello(), cancel).finish().await.unwrap_err();
    assert_eq!(failed.error.kind, ErrorKind::Aborted);
}

#[tokio::test]
async fn a_cancel_and_a_drop_close_the_connection() {
    let server = Server::answering([(); 4].map(|()| Answer::begun(&[HE]).then_stall())).await;
    for model in near_and_far(&server) {
        let cancel = CancellationToken::new();
        let mut stream = model.stream(hello(), cancel.clone());
        while !matches!(stream.next().await, Some(StreamEvent::BlockDelta { .. })) {}
        cancel.cancel();
        assert!(matches!(stream.next().await, Some(StreamEvent::Failed(_))));
        assert!(stream.next().await.is_none());
        server.hung_up().await;

        let mut stream = model.stream(hello(), CancellationToken::new());
        while !matches!(stream.next().await, Some(StreamEvent::BlockDelta { .. })) {}
        drop(stream);
        server.hung_up().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_rate_limited_is_made_again_after_the_wait_that_the_server_asks_for() {
    for (header, value, wait) in [
        ("retry-after", "7", seconds(7)),
        ("retry-after-ms", "7000", seconds(7)),
        ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", seconds(30)),
    ] {
        let limited = double::Answer::new(429, [Step::Bytes("{}")]).header(header, value);
        let limited = limited.header("date", "Sun, 06 Nov 1994 08:49:07 GMT");
        let answered = double::Answer::new(200, [HE, STOP, END].map(Step::Bytes));
        let model = Retry::new(through(&Double::answering([limited, answered])), RetryPolicy::default());
        let began = Instant::now();
        assert_eq!(call(&model).await.unwrap().message().text(), "he");
        assert!((wait..wait + Duration::from_millis(5)).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_before_its_first_block_is_asked_for_again() {
    let broken = double::Answer::new(200, [Step::Bytes(COMMENT), Step::Break]);
    let answered = double::Answer::new(200, [HE, STOP, END].map(Step::Bytes));
    let model = Retry::new(through(&Double::answering([broken, answered])), RetryPolicy::default());
    assert_eq!(call(&model).await.unwrap().message().text(), "he");
}
