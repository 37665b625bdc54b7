//! Providers' lists of models. The answers have the shape of the examples in the providers' own documentation.

use serde_json::{Value, json};
use terret_llm::{ErrorKind, ListedModel, ModelError, Overrides, list_models, resolve};

use crate::server::{Answer, Server};

async fn ask(host: &str, answer: Answer) -> (Result<Vec<ListedModel>, ModelError>, String) {
    let server = Server::answering([answer]).await;
    let overrides =
        Overrides { base_url: Some(server.url.clone()), api_key: Some("sk-secret-1".into()), ..Overrides::default() };
    let resolved = resolve(&format!("{host}/any").parse().unwrap(), &overrides, |_| None).unwrap();
    let listed = list_models(&resolved).await;
    (listed, server.requests().remove(0))
}

/// A line for each model: its id, and what is known of it.
async fn lines(host: &str, list: Value) -> Vec<String> {
    let (listed, _) = ask(host, Answer::whole("200 OK", &[], &list.to_string())).await;
    let line = |model: ListedModel| format!("{} {}", model.id, serde_json::to_string(&model.facts).unwrap());
    listed.unwrap().into_iter().map(line).collect()
}

#[tokio::test]
async fn each_provider_says_what_it_says() {
    for (host, list, expected) in [
        (
            "anthropic",
            json!({"data": [{"type": "model", "id": "claude-x", "display_name": "Claude X", "max_input_tokens": 200_000,
                             "max_tokens": 64_000, "capabilities": {"batch": {"supported": true}}}],
                   "has_more": false, "first_id": "claude-x", "last_id": "claude-x"}),
            vec![r#"claude-x {"contextWindow":200000,"maxOutput":64000}"#],
        ),
        (
            "google",
            json!({"models": [
                {"name": "models/gemini-x", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536,
                 "supportedGenerationMethods": ["generateContent", "countTokens"]},
                {"name": "models/aqa", "inputTokenLimit": 7168, "supportedGenerationMethods": ["generateAnswer"]},
            ]}),
            vec![r#"gemini-x {"contextWindow":1048576,"maxOutput":65536}"#],
        ),
        (
            "openrouter",
            json!({"data": [
                {"id": "a/b", "context_length": 131_072,
                 "architecture": {"input_modalities": ["text", "image"], "output_modalities": ["text"]},
                 "pricing": {"prompt": "0.0000025", "completion": "0.00001", "input_cache_read": "0.00000025"},
                 "top_provider": {"context_length": 128_000, "max_completion_tokens": 16_384}},
                {"id": "google/g", "context_length": 1_000_000, "architecture": {"input_modalities": ["text"]},
                 "pricing": {"prompt": "0.000001", "completion": "0.000002", "input_cache_write": "0.0000005"},
                 "top_provider": {"context_length": null, "max_completion_tokens": null}},
                {"id": "auto", "context_length": 1000, "pricing": {"prompt": "-1", "completion": "-1"}},
                {"id": "gift", "pricing": {"prompt": "0", "completion": "0"}},
                {"id": "gift:free", "pricing": {"prompt": "0", "completion": "0"}},
                {"id": "paint", "architecture": {"output_modalities": ["image"]}},
            ]}),
            vec![
                r#"a/b {"contextWindow":128000,"maxOutput":16384,"images":true,"price":{"input":2.5,"output":10,"cacheRead":0.25}}"#,
                r#"google/g {"contextWindow":1000000,"images":false,"price":{"input":1,"output":2,"cacheWrite":1.5}}"#,
                r#"auto {"contextWindow":1000}"#,
                "gift {}",
                r#"gift:free {"price":{"input":0,"output":0}}"#,
            ],
        ),
        (
            "vercel",
            json!({"object": "list", "data": [
                {"id": "v/w", "type": "language", "context_window": 8192, "max_tokens": 4096,
                 "pricing": {"input": "0.000003", "output": "0.000015"}},
                {"id": "v/e", "type": "embedding", "context_window": 8192},
            ]}),
            vec![r#"v/w {"contextWindow":8192,"maxOutput":4096,"price":{"input":3,"output":15}}"#],
        ),
        (
            "mistral",
            json!({"object": "list", "data": [
                {"id": "m", "max_context_length": 32_768, "capabilities": {"completion_chat": true}, "type": "base"},
                {"id": "o", "max_context_length": 32_768, "capabilities": {"completion_chat": false}},
            ]}),
            vec![r#"m {"contextWindow":32768}"#],
        ),
        (
            "groq",
            json!({"object": "list", "data": [
                {"id": "g", "object": "model", "context_window": 131_072, "max_completion_tokens": 32_768},
                {"id": "whisper-large-v3", "object": "model", "context_window": 448, "max_completion_tokens": 448},
            ]}),
            vec![r#"g {"contextWindow":131072,"maxOutput":32768}"#],
        ),
        (
            "together",
            json!([{"id": "t/u", "type": "chat", "context_length": 2048, "pricing": {"input": 0.3, "output": 0.3}},
                   {"id": "t/i", "type": "image"}]),
            vec![r#"t/u {"contextWindow":2048}"#],
        ),
        (
            "openai",
            json!({"object": "list", "data": [{"id": "gpt-x", "object": "model", "owned_by": "openai"},
                                              {"id": "text-embedding-3", "object": "model"},
                                              {"id": ""}, {"object": "model"}, null, "x"]}),
            vec!["gpt-x {}"],
        ),
    ] {
        assert_eq!(lines(host, list).await, expected, "{host}");
    }
}

#[tokio::test]
async fn it_is_asked_for_where_the_provider_has_it_and_with_the_key() {
    for (host, line, key) in [
        ("anthropic", "get /v1/models?limit=1000 ", "x-api-key: sk-secret-1"),
        ("google", "get /v1beta/models?pagesize=1000 ", "x-goog-api-key: sk-secret-1"),
        ("openai", "get /v1/models ", "authorization: bearer sk-secret-1"),
    ] {
        let (listed, request) = ask(host, Answer::whole("200 OK", &[], "{\"data\": []}")).await;
        assert_eq!(listed, Ok(vec![]));
        assert!(request.starts_with(line) && request.contains(key), "{request}");
        assert_eq!(request.contains("anthropic-version: 2023-06-01"), host == "anthropic", "{request}");
    }
}

#[tokio::test]
async fn what_is_no_list_is_an_error_that_never_holds_the_key() {
    let of = async |answer: Answer| {
        let error = ask("openai", answer).await.0.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sk-secret-1"), "{error:?}");
        error
    };
    let refused = r#"{"error":{"message":"Incorrect API key provided: sk-secret-1","type":"invalid_request_error"}}"#;
    assert_eq!(of(Answer::whole("401 Unauthorized", &[], refused)).await.kind, ErrorKind::Auth);
    assert_eq!(of(Answer::whole("404 Not Found", &[], "no")).await.kind, ErrorKind::NotFound);
    for body in ["<html>", "", "{}", "{\"data\": {}}"] {
        let error = of(Answer::whole("200 OK", &[], body)).await;
        assert_eq!(error.kind, ErrorKind::Protocol, "{body}");
        assert!(error.message.starts_with("that is no list of models: "), "{error}");
    }
}
