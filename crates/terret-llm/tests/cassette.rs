//! Recording and replaying, against a transport double on a paused clock.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use terret_llm::transport::cassette::{CassetteError, Recorder, Redaction, Replayer};
use terret_llm::transport::{HttpRequest, HttpResponse, SendFuture, Transport, TransportError};
use terret_llm::wire::WireFormat;
use terret_llm::{
    Auth, AuthScheme, BaseUrl, Endpoint, ErrorKind, HttpModel, Message, Model, ModelSpec, Request, Retry, RetryPolicy,
    StreamEvent, UserMessage,
};
use tokio::time::Instant;

const KEY: &str = "very-secret-0123456789";

const HE: &str = "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hé\"}}]}\n\n";
const LLO: &str = "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"llo\"}}]}\n\n";
const STOP: &str = "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const END: &str = "data: [DONE]\n\n";

/// Gives its answers one after the other.
struct Double(Mutex<VecDeque<Result<Answer, TransportError>>>);

struct Answer {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    pieces: Vec<(u64, Result<Bytes, TransportError>)>,
}

/// An answer that comes in these pieces, 100 ms apart.
fn answer(status: u16, pieces: impl IntoIterator<Item = impl Into<Bytes>>) -> Answer {
    let pieces = pieces.into_iter().map(|piece| (100, Ok(piece.into()))).collect();
    Answer { status, headers: vec![("content-type", "text/event-stream")], pieces }
}

fn hello() -> Answer {
    answer(200, [HE, LLO, STOP, END])
}

fn double(answers: impl IntoIterator<Item = Result<Answer, TransportError>>) -> Arc<dyn Transport> {
    Arc::new(Double(Mutex::new(answers.into_iter().collect())))
}

impl Transport for Double {
    fn send(&self, _: HttpRequest) -> SendFuture<'_> {
        let answer = self.0.lock().unwrap().pop_front().expect("a request too many");
        Box::pin(async move {
            let Answer { status, headers, pieces } = answer?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            let body = stream! {
                for (after, piece) in pieces {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    yield piece;
                }
            };
            let (status, headers) = (StatusCode::from_u16(status).unwrap(), headers.collect());
            Ok(HttpResponse { status, headers, body: Box::pin(body) })
        })
    }
}

/// A folder with a cassette in it.
struct Shelf(TempDir);

impl Shelf {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn cassette(&self) -> PathBuf {
        self.0.path().join("new/cassette.jsonl")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.cassette()).unwrap()
    }

    fn recorder(&self, answers: impl IntoIterator<Item = Result<Answer, TransportError>>) -> Recorder {
        Recorder::create(self.cassette(), double(answers)).unwrap()
    }

    fn replayer(&self) -> Replayer {
        Replayer::open(self.cassette()).unwrap()
    }
}

fn model_at(url: &str, key: &str, transport: Arc<dyn Transport>) -> HttpModel {
    let auth = Auth::new(AuthScheme::Bearer, &key.into());
    let endpoint = Endpoint::new(BaseUrl::new(url, &WireFormat::OpenaiCompletions).unwrap()).with_auth(auth);
    HttpModel::new(ModelSpec::new("test", "model-1", WireFormat::OpenaiCompletions), endpoint, transport)
}

fn model(transport: impl Transport + 'static) -> HttpModel {
    model_at("https://host.invalid", KEY, Arc::new(transport))
}

fn asking(text: &str) -> Request {
    Request { messages: [Message::from(UserMessage::text(text, 0))].into_iter().collect(), ..Request::default() }
}

/// The events of a call, without the date.
async fn events(model: &impl Model, text: &str) -> Vec<Value> {
    let events: Vec<StreamEvent> = model.stream(asking(text), Default::default()).collect().await;
    let mut events = serde_json::to_value(events).unwrap();
    for event in events.as_array_mut().unwrap() {
        for place in ["/message/timestamp", "/partial/timestamp"] {
            event.pointer_mut(place).map(Value::take);
        }
    }
    events.as_array().unwrap().clone()
}

fn last(events: &[Value]) -> (&str, &str) {
    let last = events.last().unwrap();
    (last["type"].as_str().unwrap(), last.pointer("/error/message").and_then(Value::as_str).unwrap_or_default())
}

fn request(url: &str, body: &str) -> HttpRequest {
    HttpRequest { url: url.into(), headers: HeaderMap::new(), body: body.to_owned().into() }
}

/// The pieces of the body that a transport answers with, as far as they come.
async fn pieces(transport: &impl Transport, request: HttpRequest) -> Vec<Result<Bytes, TransportError>> {
    transport.send(request).await.unwrap().body.collect().await
}

#[tokio::test(start_paused = true)]
async fn a_replayed_call_is_the_recorded_one() {
    let shelf = Shelf::new();
    let refused = answer(401, [r#"{"error":{"message":"no","code":"invalid_api_key"}}"#]);
    let recorded = model(shelf.recorder([Ok(hello()), Ok(refused)]));
    let (greeting, refusal) = (events(&recorded, "hello").await, events(&recorded, "again").await);
    assert_eq!((last(&greeting).0, last(&refusal)), ("done", ("failed", "no")));

    // In another order, at another address, with another key.
    let replayer = Arc::new(shelf.replayer());
    let replayed = model_at("http://127.0.0.1:1", "none", replayer.clone());
    assert_eq!(events(&replayed, "again").await, refusal);
    assert_eq!(replayer.remaining(), 1);
    assert_eq!(events(&replayed, "hello").await, greeting);
    assert_eq!(replayer.remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cassette_is_readable() {
    let shelf = Shelf::new();
    events(&model(shelf.recorder([Ok(hello())])), "hello").await;
    let [line] = shelf.text().lines().map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["request"]["method"], "POST");
    assert_eq!(line["request"]["path"], "/v1/chat/completions");
    assert_eq!(line["request"]["headers"]["authorization"], "[redacted]");
    assert_eq!(line["request"]["headers"]["content-type"], "application/json");
    assert_eq!(line["request"]["body"]["messages"], json!([{"role": "user", "content": "hello"}]));
    let response =
        json!({"status": 200, "headers": {"content-type": "text/event-stream"}, "body": [HE, LLO, STOP, END]});
    assert_eq!(line["response"], response);
    assert_eq!(line.get("failure"), None);
}

#[tokio::test(start_paused = true)]
async fn no_secret_gets_into_a_cassette() {
    let shelf = Shelf::new();
    const OTHERS: [&str; 7] = [
        "query-secret-1",
        "cookie-secret-1",
        "field-secret-1",
        "tenant-1",
        "the launch code",
        "sk-proj-0123456789abcdef",
        "org-secret-1",
    ];
    // The server quotes the key, cut in the middle of it.
    let mut told = answer(
        401,
        ["{\"error\":{\"message\":\"no key very-sec", "ret-01234", "56789 of sk-proj-0123", "456789abcdef\"}}"],
    );
    told.headers.extend([("set-cookie", "cookie-secret-1"), ("openai-organization", "org-secret-1"), ("x-echo", KEY)]);
    let redaction = Redaction::default().header("x-tenant").field("session").text("the launch code");
    let recorder = shelf.recorder([Ok(told)]).redacting(redaction);
    let mut asked = request(
        &format!("https://host/v1/m?alt=sse&key=query-secret-1&echo={KEY}"),
        &json!({
            "session": 7,
            "tool": {"properties": {"password": {"type": "string"}}},
            "list": [{"apiKey": "field-secret-1"}],
            "text": format!("{KEY}, query-secret-1, and the launch code; sk-proj-0123456789abcdef"),
        })
        .to_string(),
    );
    let mut key = HeaderValue::from_str(&format!("Bearer {KEY}")).unwrap();
    key.set_sensitive(true);
    asked.headers.insert("x-any-name", key);
    asked.headers.insert("x-tenant", HeaderValue::from_static("tenant-1"));
    let told: Vec<Bytes> = pieces(&recorder, asked).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(told[0], "{\"error\":{\"message\":\"no key very-sec", "the reader gets what was sent");

    let text = shelf.text();
    for secret in OTHERS.into_iter().chain([KEY, "very-sec", "56789"]) {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["request"]["path"], "/v1/m?alt=sse&key=[redacted]&echo=[redacted]");
    let body = json!({
        "session": "[redacted]",
        "tool": {"properties": {"password": {"type": "string"}}},
        "list": [{"apiKey": "[redacted]"}],
        "text": "[redacted], [redacted], and [redacted]; [redacted]",
    });
    assert_eq!(line["request"]["body"], body);
    let told = json!(["{\"error\":{\"message\":\"no key [redacted]", "", " of [redacted]", "\"}}"]);
    assert_eq!(line["response"]["body"], told);
    assert_eq!(line["response"]["headers"]["set-cookie"], "[redacted]");
}

#[tokio::test(start_paused = true)]
async fn no_secret_gets_into_a_cassette_by_way_of_a_failure() {
    let shelf = Shelf::new();
    let reason = format!("no route for {KEY}");
    let failure = TransportError::Connect { server: "host".into(), reason };
    let failed = events(&model(shelf.recorder([Err(failure)])), "hello").await;
    assert_eq!(last(&failed).0, "failed");
    assert!(shelf.text().contains("no route for [redacted]"), "{}", shelf.text());
}

#[tokio::test(start_paused = true)]
async fn what_was_redacted_still_matches() {
    let shelf = Shelf::new();
    let redaction = || Redaction::default().field("session");
    let recorder = shelf.recorder([Ok(hello())]).redacting(redaction());
    pieces(&recorder, request("https://host/m?key=query-secret-1", r#"{"session":"a","n":1}"#)).await;
    let replayer = shelf.replayer().redacting(redaction());
    pieces(&replayer, request("https://host/m?key=another", r#"{"n":1,"session":"b"}"#)).await;
    assert_eq!(replayer.remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_miss_shows_the_nearest_request_and_what_differs() {
    let shelf = Shelf::new();
    let recorded = model(shelf.recorder([Ok(hello()), Ok(hello()), Ok(hello())]));
    for text in ["one two three", "hello", "farewell, and so on"] {
        events(&recorded, text).await;
    }
    let replayed = Retry::new(model(shelf.replayer()), RetryPolicy::default()).with_random(|| 0.0);
    let began = Instant::now();
    let events = events(&replayed, "hello!").await;
    let (end, message) = last(&events);
    assert_eq!(end, "failed");
    assert_eq!(began.elapsed(), Duration::ZERO, "a miss is not tried again");
    for part in [
        "has no answer to POST /v1/chat/completions; the nearest request is that of exchange",
        "-       \"content\": \"",
        "+       \"content\": \"hello!\"",
        "        \"role\": \"user\"",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("stream_options"), "what is the same isn't shown: {message}");
}

#[tokio::test(start_paused = true)]
async fn the_nearest_request_is_the_one_that_shares_most() {
    let exchange = |path: &str, body: Value| json!({"request": {"method": "POST", "path": path, "body": body}, "response": {"status": 200, "body": []}});
    let cassette = [
        exchange("/a", json!({"model": "m", "x": 1, "y": 2, "z": 3})),
        exchange("/a", json!({"model": "m", "x": 1, "y": 2, "z": 0})),
        exchange("/b", json!({"model": "m", "x": 1, "y": 2, "z": 4})),
    ];
    let cassette: String = cassette.iter().map(|exchange| format!("{exchange}\n\n")).collect();
    let replayer = Replayer::parse(&cassette).unwrap();
    for (path, body, nearest) in [
        ("/a", json!({"model": "m", "x": 1, "y": 9, "z": 0}), "exchange 2"),
        ("/b", json!({"model": "m", "x": 1, "y": 2, "z": 3}), "exchange 3"),
        ("/c", json!({"model": "m", "x": 1, "y": 2, "z": 3}), "exchange 1"),
    ] {
        let error = replayer.send(request(&format!("https://host{path}"), &body.to_string())).await.err().unwrap();
        assert!(error.to_string().contains(nearest), "{error}");
    }
    assert_eq!(replayer.remaining(), 3);
    let empty = Replayer::parse("").unwrap().send(request("https://host/a", "{}")).await.err().unwrap();
    assert!(empty.to_string().contains("is empty"), "{empty}");
}

#[tokio::test(start_paused = true)]
async fn equal_requests_are_answered_in_order_and_once_each() {
    let shelf = Shelf::new();
    let recorder = shelf.recorder([Ok(answer(200, ["first"])), Ok(answer(200, ["second"]))]);
    let ask = || request("https://host/m", "{}");
    pieces(&recorder, ask()).await;
    pieces(&recorder, ask()).await;
    let replayer = shelf.replayer();
    assert_eq!(pieces(&replayer, ask()).await, [Ok(Bytes::from("first"))]);
    assert_eq!(pieces(&replayer, ask()).await, [Ok(Bytes::from("second"))]);
    let error = replayer.send(ask()).await.err().unwrap();
    assert!(matches!(&error, TransportError::NotRecorded(text) if text.contains("given already")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn pieces_stay_as_they_were_cut() {
    let shelf = Shelf::new();
    let cut: Vec<Bytes> = [&b"h\xc3"[..], b"\xa9", b"llo\n", b"\xff\x00", b""].map(Bytes::from_static).to_vec();
    pieces(&shelf.recorder([Ok(answer(200, cut.clone()))]), request("https://host/m", "not JSON")).await;
    let replayed = pieces(&shelf.replayer(), request("https://host/m", "not JSON")).await;
    assert_eq!(replayed, cut.into_iter().map(Ok).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn time_is_recorded_and_replayed_on_request_only() {
    let took = async |transport: Arc<dyn Transport>| {
        let began = Instant::now();
        events(&model_at("https://host", KEY, transport), "hello").await;
        began.elapsed()
    };
    // One second to the headers, and 100 ms to each of four pieces.
    let whole = Duration::from_millis(1400);
    let shelf = Shelf::new();
    assert_eq!(took(Arc::new(shelf.recorder([Ok(hello())]).with_timing())).await, whole);
    assert_eq!(took(Arc::new(shelf.replayer().with_timing())).await, whole);
    assert_eq!(took(Arc::new(shelf.replayer())).await, Duration::ZERO);

    took(Arc::new(shelf.recorder([Ok(hello())]))).await;
    assert!(!shelf.text().contains("afterMs"));
    assert_eq!(took(Arc::new(shelf.replayer().with_timing())).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn failures_are_part_of_a_recording() {
    let shelf = Shelf::new();
    let connect = TransportError::Connect { server: "host".into(), reason: "refused".into() };
    let broken = TransportError::Broken { server: "host".into(), reason: "reset".into() };
    let mut breaks = answer(200, ["some"]);
    breaks.pieces.push((0, Err(broken.clone())));
    let recorder = shelf.recorder([Err(connect.clone()), Ok(breaks), Ok(answer(200, ["one", "two"]))]);
    let ask = || request("https://host/m", "{}");
    assert_eq!(recorder.send(ask()).await.err(), Some(connect.clone()));
    pieces(&recorder, ask()).await;
    let mut left = recorder.send(ask()).await.unwrap();
    left.body.next().await.unwrap().unwrap();
    drop(left);

    let replayer = shelf.replayer();
    assert_eq!(replayer.send(ask()).await.err(), Some(connect));
    assert_eq!(pieces(&replayer, ask()).await, [Ok(Bytes::from("some")), Err(broken)]);
    let [Ok(one), Err(end)] = <[_; 2]>::try_from(pieces(&replayer, ask()).await).unwrap() else { panic!("no end") };
    assert_eq!(one, "one");
    assert!(end.to_string().contains("its reader hung up"), "{end}");
    assert_eq!(terret_llm::ModelError::from(end).kind, ErrorKind::Network);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_hang_up_after_the_end_is_recorded_as_well() {
    let shelf = Shelf::new();
    let mut stays = hello();
    stays.pieces.push((3_600_000, Ok(Bytes::from("data: too late\n\n"))));
    let recorded = events(&model(shelf.recorder([Ok(stays)])), "hello").await;
    assert_eq!(last(&recorded).0, "done");
    assert!(shelf.text().contains(r#""failure":{"kind":"hungUp"}"#), "{}", shelf.text());
    assert_eq!(events(&model(shelf.replayer()), "hello").await, recorded);
}

#[tokio::test(start_paused = true)]
async fn what_only_looks_like_a_secret_stays() {
    let shelf = Shelf::new();
    let text = "a disk-0123456789abcdefgh, sk-short, and a day key";
    let mut asked = request("https://host/m?keys=1&token=day", &json!({"text": text}).to_string());
    asked.headers.insert("x-api-key", HeaderValue::from_static("day key"));
    pieces(&shelf.recorder([Ok(answer(200, [text]))]), asked).await;
    let line: Value = serde_json::from_str(&shelf.text()).unwrap();
    assert_eq!(line["request"]["path"], "/m?keys=1&token=[redacted]");
    assert_eq!(line["request"]["headers"]["x-api-key"], "[redacted]");
    assert_eq!(line["request"]["body"]["text"], text, "secrets as short as these are looked for in no text");
    assert_eq!(line["response"]["body"], json!([text]));
}

#[test]
fn what_is_no_cassette_is_refused_with_its_line() {
    let asked = r#""request":{"method":"POST","path":"/m","body":{}}"#;
    for (line, reason) in [
        ("nonsense".to_owned(), "expected"),
        (format!("{{{asked}}}"), "no response and no failure"),
        (format!(r#"{{{asked},"response":{{"status":20,"body":[]}}}}"#), "20 is no status"),
        (format!(r#"{{{asked},"response":{{"status":200,"headers":{{"a b":"c"}},"body":[]}}}}"#), "is no header"),
        (format!(r#"{{{asked},"response":{{"status":200,"body":[{{"base64":"?"}}]}}}}"#), "no base64"),
        (format!(r#"{{{asked},"response":{{"status":200,"body":[{{}}]}}}}"#), "either text or base64"),
        (format!(r#"{{{asked},"answer":{{}}}}"#), "unknown field `answer`"),
    ] {
        let good = format!(r#"{{{asked},"response":{{"status":200,"body":["x"]}}}}"#);
        let error = Replayer::parse(&format!("{good}\n\n{line}\n")).unwrap_err();
        assert!(matches!(error, CassetteError::Malformed { line: 3, .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let error = Replayer::open("/no/such/cassette.jsonl").unwrap_err();
    assert!(error.to_string().contains("/no/such/cassette.jsonl"), "{error}");
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_recorder_that_cannot_write_says_so_and_sends_nothing_more() {
    let recorder = Recorder::create("/dev/full", double([Ok(hello())])).unwrap();
    let ask = || request("https://host/m", "{}");
    pieces(&recorder, ask()).await;
    assert!(matches!(recorder.check(), Err(CassetteError::Unwritable { .. })));
    let error = recorder.send(ask()).await.err().unwrap();
    assert!(error.to_string().contains("/dev/full"), "{error}");
}
