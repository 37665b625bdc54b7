//! Runs on a server: what is sent, and what becomes of servers that misbehave.

use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::{Answer, Server};
use crate::terret::Terret;

fn asking(model: &str, server: &Server) -> Terret {
    Terret::new().args(["-p", "Hi!", "--model", model, "--base-url", &server.url])
}

fn chat(chunks: impl IntoIterator<Item = Value>) -> String {
    let chunks: String = chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    chunks + "data: [DONE]\n\n"
}

pub(crate) fn chat_text(text: &str) -> Answer {
    let says = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let stops = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    Answer::events(chat([says, stops]))
}

/// A call of `read`, for a.txt.
pub(crate) fn chat_reads() -> Answer {
    let call = json!({"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a.txt\"}"}},
    ]}, "finish_reason": "tool_calls"}]});
    Answer::events(chat([call]))
}

#[test]
fn a_conversation_with_tools_goes_over_http() {
    let server = Server::answering([chat_reads(), chat_text("It says hello.")]);
    let ran = asking("custom/m", &server)
        .file("a.txt", "hello\n")
        .env("TERRET_API_KEY", "k-123")
        .args(["--max-output-tokens", "50", "--tools", "read"])
        .run()
        .exits(0);
    assert_eq!(ran.stdout, "It says hello.\n");

    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert!(request.head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{}", request.head);
        assert!(request.head.contains("\r\nauthorization: bearer k-123\r\n"), "{}", request.head);
        assert_eq!((&request.body["model"], &request.body["stream"]), (&json!("m"), &json!(true)));
        assert_eq!(request.body["tools"].as_array().unwrap().len(), 1);
        assert!(request.body.to_string().contains(":50"), "{}", request.body);
    }
    let roles: Vec<&Value> = requests[1].body["messages"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
    assert_eq!(requests[1].body["messages"][3]["tool_call_id"], "call_1");
    assert!(requests[1].body["messages"][3]["content"].as_str().unwrap().contains("hello"));
}

#[test]
fn each_wire_has_its_path_and_its_key() {
    for (model, args, variable, path, header) in [
        ("anthropic/m", &[][..], "ANTHROPIC_API_KEY", "/v1/messages", "x-api-key: k"),
        ("openai/m", &["--wire", "openai-responses"], "OPENAI_API_KEY", "/v1/responses", "authorization: bearer k"),
        ("openai/m", &[], "OPENAI_API_KEY", "/v1/chat/completions", "authorization: bearer k"),
        ("google/m", &[], "GEMINI_API_KEY", "/v1beta/models/m:streamgeneratecontent?alt=sse", "x-goog-api-key: k"),
        ("custom/m", &["--wire", "anthropic-messages"], "TERRET_API_KEY", "/v1/messages", "x-api-key: k"),
    ] {
        let server = Server::answering([Answer::new("400 Bad Request", "text/plain", "no")]);
        asking(model, &server).args(args).env(variable, "k").run().exits(7);
        let head = &server.requests()[0].head;
        assert!(head.starts_with(&format!("post {path} http/1.1\r\n")), "{head}");
        assert!(head.contains(&format!("\r\n{header}\r\n")), "{head}");
    }
}

#[test]
fn an_effort_behind_the_model_is_sent() {
    let server = Server::answering([chat_text("Hi.")]);
    asking("openrouter/some/model:high", &server).run().exits(0);
    let body = &server.requests()[0].body;
    assert_eq!(body["model"], "some/model");
    assert_eq!(body["reasoning"]["effort"], "high");
}

#[test]
fn what_a_server_answers_instead_is_told_by_kind_and_exit_code() {
    let json = "application/json";
    let error = |message: &str| json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
    for (answer, code, kind, part) in [
        (Answer::new("401 Unauthorized", json, error("bad key")), 3, "auth", "bad key"),
        (Answer::new("403 Forbidden", json, error("not for you")), 3, "permission", "not for you"),
        (Answer::new("404 Not Found", json, error("no such model")), 7, "not_found", "no such model"),
        (Answer::new("400 Bad Request", json, error("bad field")), 7, "invalid_request", "bad field"),
        (
            Answer::with_headers("429 Too Many Requests", &["retry-after: 3600"], error("limit of 10 requests")),
            7,
            "rate_limited",
            "3600s",
        ),
        (Answer::new("200 OK", "text/html", "<html>Log in</html>"), 7, "protocol", "HTML"),
        (Answer::new("200 OK", json, error("sorry")), 7, "invalid_request", "sorry"),
        (
            Answer::with_headers("302 Found", &["location: https://elsewhere/x?key=1"], ""),
            7,
            "not_found",
            "https://elsewhere/x",
        ),
    ] {
        let server = Server::answering([answer.clone()]);
        let ran = asking("custom/m", &server).args(["-o", "json"]).run().exits(code);
        let error = &ran.result()["error"];
        assert_eq!(error["kind"], kind, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        assert_eq!(server.requests().len(), 1, "asked again after {error}");

        let ran = asking("custom/m", &Server::answering([answer])).run().exits(code);
        assert_eq!(ran.stdout, "");
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}

#[test]
fn a_server_that_can_not_be_reached_fails_the_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let args = ["-p", "Hi!", "-m", "custom/m", "-o", "json", "--base-url", &format!("http://{address}/v1")];
    let error = Terret::new().args(args).run().exits(7).result()["error"].clone();
    assert_eq!(error["kind"], "network");
    assert!(error["message"].as_str().unwrap().contains(&address), "{error}");
}

#[test]
fn a_passing_failure_is_tried_again() {
    let server = Server::answering([Answer::new("503 Service Unavailable", "text/plain", "busy"), chat_text("Hi.")]);
    assert_eq!(asking("custom/m", &server).run().exits(0).stdout, "Hi.\n");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn half_a_reply_is_no_answer_and_none_of_its_calls_run() {
    let call = json!({"choices": [{"index": 0, "delta": {"content": "I'll do it.", "tool_calls": [
        {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": "{\"command\":\"touch ran\"}"}},
    ]}}]});
    let cut = format!("data: {call}\n\n");
    let half_a_chunk = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{cut}\r\n40\r\ndata: ",
        cut.len()
    );
    let overloaded = format!("{cut}data: {}\n\n", json!({"error": {"message": "overloaded", "code": 529}}));
    for (answer, kind) in [
        (Answer::events(cut), "truncated"),
        (Answer::raw(half_a_chunk), "truncated"),
        (Answer::events(overloaded), "overloaded"),
    ] {
        let ran = asking("custom/m", &Server::answering([answer.clone()])).args(["--json"]).run().exits(7);
        assert_eq!(ran.result()["error"]["kind"], kind);
        assert_eq!(ran.messages().len(), 1, "half a reply is in the transcript");
        assert!(!ran.path("ran").exists());

        let ran = asking("custom/m", &Server::answering([answer])).run().exits(7);
        assert_eq!(ran.stdout, "");
        assert!(!ran.path("ran").exists());
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_silent_server() {
    let says = json!({"choices": [{"index": 0, "delta": {"content": "Let me"}}]});
    for answer in
        [Answer::raw(""), Answer::events(""), Answer::events(": ping\n\n"), Answer::events(format!("data: {says}\n\n"))]
    {
        let server = Server::answering([answer.then_silence()]);
        let run = asking("custom/m", &server).args(["--json"]).start();
        crate::terret::eventually(|| (!server.requests().is_empty()).then_some(()));
        run.signal(Signal::INT);
        assert_eq!(run.wait().exits(130).result()["outcome"], "cancelled");
    }
}

#[test]
fn a_key_is_shown_nowhere() {
    let key = "sk-secret-123";
    let quoted = json!({"error": {"message": format!("Incorrect API key provided: {key}")}}).to_string();
    for format in ["text", "json", "stream-json"] {
        let server = Server::answering([Answer::new("401 Unauthorized", "application/json", &quoted)]);
        let ran = asking("openai/m", &server).args(["-o", format]).env("OPENAI_API_KEY", key).run().exits(3);
        assert!(server.requests()[0].head.contains(key));
        assert!(!ran.stdout.contains(key) && !ran.stderr.contains(key), "{}{}", ran.stdout, ran.stderr);
    }
}
