//! Runs that name no model.

use serde_json::json;

use crate::command_line::complains;
use crate::server::{Answer, Server};
use crate::servers::chat_text;
use crate::terret::Terret;

#[test]
fn it_is_that_of_the_first_provider_whose_key_is_set() {
    let server = Server::answering([chat_text("Hi.")]);
    let ran = Terret::new()
        .args(["-p", "Hi!"])
        .env("GROQ_API_KEY", "k")
        .env("OPENAI_API_KEY", "k")
        .env("OPENAI_BASE_URL", &server.url)
        .run()
        .exits(0);
    assert_eq!(ran.stdout, "Hi.\n");
    assert_eq!(server.requests()[0].body["model"], "gpt-6.2-sol");
    let note = "model: openai/gpt-6.2-sol, because of OPENAI_API_KEY (--model names another one)\n";
    assert!(ran.stderr.starts_with(note), "{}", ran.stderr);

    // What goes on, goes on with the same model.
    let ran = ran.then().args(["-c", "And now?"]).env("ANTHROPIC_API_KEY", "k").env("OPENAI_API_KEY", "k");
    let ran = ran.env("OPENAI_BASE_URL", &server.url).run().exits(0);
    assert_eq!(server.requests()[1].body["model"], "gpt-6.2-sol");
    assert!(!ran.stderr.contains("because of"), "{}", ran.stderr);
}

#[test]
fn without_a_key_it_is_that_of_a_server_on_this_machine() {
    let models = json!({"models": [{"name": "qwen3:8b"}, {"name": "gemma3:4b"}]}).to_string();
    let server = Server::answering([Answer::new("200 OK", "application/json", models), chat_text("Hi.")]);
    let ran = Terret::new().args(["-p", "Hi!"]).env("OLLAMA_HOST", &server.url).run().exits(0);
    assert_eq!(ran.stdout, "Hi.\n");
    let requests = server.requests();
    assert!(requests[0].head.starts_with("get /api/tags "), "{}", requests[0].head);
    assert_eq!(requests[1].body["model"], "qwen3:8b");
    assert!(
        ran.stderr.contains("model: ollama/qwen3:8b, because of the server at http://127.0.0.1:"),
        "{}",
        ran.stderr
    );
}

#[test]
fn when_there_is_none_it_says_what_to_do() {
    let nothing = || Terret::new().args(["-p", "Hi!"]);
    let parts = ["no model", "ANTHROPIC_API_KEY", "Ollama", "--base-url", "terret --help", "terret demo"];
    complains(nothing, 4, "configuration", &parts);

    let silent = Server::answering([Answer::raw("").then_silence()]);
    complains(|| nothing().env("OLLAMA_HOST", &silent.url), 4, "configuration", &["no model"]);
    let empty = Server::answering([Answer::new("200 OK", "application/json", r#"{"models": []}"#)]);
    complains(|| nothing().env("OLLAMA_HOST", &empty.url), 4, "configuration", &["no model"]);

    // A key whose provider has no default, or that is often there for something else.
    let key = || nothing().env("HF_TOKEN", "k");
    complains(key, 4, "configuration", &["there is a key for huggingface", "--model huggingface/MODEL"]);
    let server = || nothing().args(["--base-url", "http://127.0.0.1:9"]);
    complains(server, 2, "usage", &["which model", "--model custom/MODEL"]);
}
