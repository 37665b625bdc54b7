//! Servers on this machine are found where they listen. The lists are those of the servers' own documentation.

use std::time::Duration;

use terret_llm::{LocalServer, local_servers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::server::{Answer, Server};

const OLLAMA: &str = r#"{"models":[{"name":"gemma3","model":"gemma3","modified_at":"2025-10-03T23:34:03.409490317-07:00",
    "size":3338801804,"digest":"a2af","details":{"format":"gguf","family":"gemma","families":["gemma"]}}]}"#;
const LLAMACPP: &str = r#"{"object":"list","data":[{"id":"../models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
    "object":"model","created":1735142223,"owned_by":"llamacpp","meta":{"vocab_type":2,"n_vocab":128256,
    "n_ctx_train":131072,"n_embd":4096,"n_params":8030261312,"size":4912898304}}]}"#;
const VLLM: &str = r#"{"object":"list","data":[{"id":"facebook/opt-125m","object":"model","created":1677610602,
    "owned_by":"vllm","root":"facebook/opt-125m","parent":null,"max_model_len":2048,"permission":[]}]}"#;
const LM_STUDIO_0: &str = r#"{"object":"list","data":[
    {"id":"qwen2-vl-7b-instruct","object":"model","type":"vlm","state":"not-loaded","max_context_length":32768},
    {"id":"text-embedding-nomic-embed-text-v1.5","object":"model","type":"embeddings","state":"not-loaded",
     "max_context_length":2048}]}"#;
const LM_STUDIO_1: &str = r#"{"models":[
    {"type":"llm","key":"qwen3-4b","max_context_length":262144,
     "loaded_instances":[{"id":"qwen3-4b","config":{"context_length":4096}}]},
    {"type":"embedding","key":"nomic","max_context_length":2048,"loaded_instances":[]}]}"#;

/// What is found with these variables, a line for each model; the other servers aren't looked for.
async fn found(variables: &[(&str, &str)]) -> Vec<String> {
    let servers = found_within(Duration::from_secs(20), variables).await;
    let lines = servers.iter().flat_map(|server| {
        let line = |id: &str, window| format!("{} {}: {id} {window:?}", server.host.id, server.base_url);
        server.models.iter().map(move |model| line(&model.id, model.context_window))
    });
    lines.collect()
}

async fn found_within(within: Duration, variables: &[(&str, &str)]) -> Vec<LocalServer> {
    let env = |name: &str| match variables.iter().find(|(known, _)| *known == name) {
        Some((_, value)) => Some((*value).to_owned()),
        // No address that could be used: the servers of whoever runs this test are left alone.
        None => name.ends_with("_BASE_URL").then(|| "http://nobody@localhost".to_owned()),
    };
    local_servers(within, env).await
}

#[tokio::test]
async fn each_server_is_found_by_its_own_list() {
    for (variable, host, path, list, expected) in [
        ("OLLAMA_BASE_URL", "ollama", "/api/tags", OLLAMA, "gemma3 None"),
        (
            "LLAMACPP_BASE_URL",
            "llamacpp",
            "/v1/models",
            LLAMACPP,
            "../models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf Some(131072)",
        ),
        ("VLLM_BASE_URL", "vllm", "/v1/models", VLLM, "facebook/opt-125m Some(2048)"),
        ("LMSTUDIO_BASE_URL", "lmstudio", "/api/v1/models", LM_STUDIO_1, "qwen3-4b Some(4096)"),
    ] {
        let server = Server::answering([Answer::whole("200 OK", &[], list)]).await;
        let lines = found(&[(variable, &server.url)]).await;
        assert_eq!(lines, [format!("{host} {}/v1: {expected}", server.url)]);
        let requests = server.requests();
        assert_eq!(requests.len(), 1);
        assert!(requests[0].starts_with(&format!("get {path} http/1.1\r\n")), "{}", requests[0]);
    }
}

#[tokio::test]
async fn an_lm_studio_without_the_new_list_is_asked_for_the_old_one() {
    let server = Server::answering([
        Answer::whole("404 Not Found", &[], r#"{"error":"Unexpected endpoint"}"#),
        Answer::whole("200 OK", &[], LM_STUDIO_0),
    ])
    .await;
    let lines = found(&[("LMSTUDIO_BASE_URL", &server.url)]).await;
    assert_eq!(lines, [format!("lmstudio {}/v1: qwen2-vl-7b-instruct Some(32768)", server.url)]);
    assert!(server.requests()[1].starts_with("get /api/v0/models "));
}

#[tokio::test]
async fn what_is_not_the_server_that_is_looked_for_is_not_found() {
    let other = VLLM.replace(r#""owned_by":"vllm""#, r#""owned_by":"somebody""#);
    for answer in [
        Answer::whole("200 OK", &[], &other),
        Answer::whole("200 OK", &[], "<html>It works!</html>"),
        Answer::whole("401 Unauthorized", &[], VLLM),
        Answer::whole("302 Found", &["location: http://127.0.0.1:1/v1/models"], ""),
        Answer::begun(&[]).then_close(),
    ] {
        let server = Server::answering([answer]).await;
        assert_eq!(found(&[("VLLM_BASE_URL", &server.url)]).await, [""; 0]);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn one_that_is_silent_costs_only_itself() {
    let silent = Server::answering([Answer::begun(&[]).then_stall()]).await;
    let answers = Server::answering([Answer::whole("200 OK", &[], OLLAMA)]).await;
    let variables = [("OLLAMA_BASE_URL", answers.url.as_str()), ("VLLM_BASE_URL", silent.url.as_str())];
    let servers = found_within(Duration::from_secs(2), &variables).await;
    assert_eq!(servers.iter().map(|server| server.host.id).collect::<Vec<_>>(), ["ollama"]);
    silent.hung_up().await;
}

#[tokio::test]
async fn all_are_asked_at_once() {
    let listeners = [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let urls = listeners.each_ref().map(|listener| format!("http://{}", listener.local_addr().unwrap()));
    // Neither is answered before both have been asked.
    let server = tokio::spawn(async move {
        let mut ollama = listeners[0].accept().await.unwrap().0;
        let mut vllm = listeners[1].accept().await.unwrap().0;
        for (stream, list) in [(&mut ollama, OLLAMA), (&mut vllm, VLLM)] {
            stream.read_u8().await.unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{list}", list.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        (ollama, vllm)
    });
    assert_eq!(found(&[("OLLAMA_BASE_URL", &urls[0]), ("VLLM_BASE_URL", &urls[1])]).await.len(), 2);
    server.await.unwrap();
}

#[tokio::test]
async fn a_key_goes_to_the_server_that_it_is_for() {
    let vllm = Server::answering([Answer::whole("200 OK", &[], VLLM)]).await;
    let ollama = Server::answering([Answer::whole("200 OK", &[], OLLAMA)]).await;
    let variables = [
        ("VLLM_BASE_URL", vllm.url.as_str()),
        ("VLLM_API_KEY", "token-abc123"),
        ("OLLAMA_HOST", ollama.url.trim_start_matches("http://")),
        // Empty is not set.
        ("OLLAMA_BASE_URL", ""),
    ];
    assert_eq!(found(&variables).await.len(), 2);
    assert!(vllm.requests()[0].contains("authorization: bearer token-abc123\r\n"));
    assert!(!ollama.requests()[0].contains("authorization"));
}
