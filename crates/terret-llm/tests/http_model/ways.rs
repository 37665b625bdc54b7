//! The ways that a request takes and doesn't take: redirects, proxies, and a cancel wherever it is.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use terret_llm::wire::WireFormat;
use terret_llm::{BaseUrl, Endpoint, ErrorKind, HttpModel, HttpTransport, Limits, Model, ModelSpec, StreamEvent};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::double::{self, Double, Step};
use crate::server::{Answer, Server};
use crate::{END, HE, KEY, STOP, at, call, hello, model};

#[tokio::test]
async fn no_redirect_is_followed_so_that_no_key_travels() {
    for status in
        ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let elsewhere = Server::answering([]).await;
        let location = format!("location: {}/v1/chat/completions", elsewhere.url);
        let server = Server::answering([Answer::whole(status, &[&location], "")]).await;
        assert!(call(&at(&server)).await.unwrap_err().error.message.contains("redirect"), "{status}");
        assert_eq!((server.requests().len(), elsewhere.connections()), (1, 0), "{status}");
    }
}

/// Set in the processes that run the ignored tests of this file, which mean nothing elsewhere.
const CHILD: &str = "TERRET_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the ignored test of this name in a process with this environment.
fn in_environment(test: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command.env(CHILD, "yes").args(["--exact", test, "--ignored", "--nocapture"]).envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_asked_for_servers_elsewhere() {
    let proxy = Server::answering([Answer::events(&[HE, STOP, END])]).await;
    let url = proxy.url.clone();
    let child = move || in_environment("ways::a_server_elsewhere_answers", &[("HTTP_PROXY", &url)]);
    tokio::task::spawn_blocking(child).await.unwrap();
    let [request] = proxy.requests().try_into().unwrap();
    assert!(request.starts_with("post http://model.invalid/v1/chat/completions http/1.1\r\n"), "{request}");
}

#[tokio::test]
#[ignore = "is run by the test above, which sets the proxy"]
async fn a_server_elsewhere_answers() {
    if !is_child() {
        return;
    }
    let reply = call(&model("http://model.invalid", Arc::new(HttpTransport::new()))).await.unwrap();
    assert_eq!(reply.message().text(), "he");
}

#[tokio::test]
async fn a_proxy_sees_no_key_of_a_server_with_tls() {
    let proxy = Server::answering([Answer::whole("403 Forbidden", &[], "")]).await;
    let url = proxy.url.clone();
    let child = move || in_environment("ways::a_server_with_tls_is_out_of_reach", &[("HTTPS_PROXY", &url)]);
    tokio::task::spawn_blocking(child).await.unwrap();
    let [request] = proxy.requests().try_into().unwrap();
    assert!(request.starts_with("connect model.invalid:443 http/1.1\r\n"), "{request}");
    assert!(!request.contains(KEY), "{request}");
}

#[tokio::test]
#[ignore = "is run by the test above, which sets the proxy"]
async fn a_server_with_tls_is_out_of_reach() {
    if !is_child() {
        return;
    }
    let failed = call(&model("https://model.invalid", Arc::new(HttpTransport::new()))).await.unwrap_err();
    assert_eq!(failed.error.kind, ErrorKind::Network, "{failed}");
}

#[tokio::test]
async fn no_proxy_is_asked_for_a_server_of_this_machine() {
    let proxy = Server::answering([]).await;
    let server = Server::answering([Answer::events(&[HE, STOP, END])]).await;
    let environment =
        [("HTTP_PROXY", proxy.url.clone()), ("ALL_PROXY", proxy.url.clone()), (ADDRESS, server.url.clone())];
    let child = move || {
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        in_environment("ways::a_server_of_this_machine_answers", &environment);
    };
    tokio::task::spawn_blocking(child).await.unwrap();
    assert_eq!((server.requests().len(), proxy.connections()), (1, 0));
}

/// Where the child finds the server.
const ADDRESS: &str = "TERRET_TEST_ADDRESS";

#[tokio::test]
#[ignore = "is run by the test above, which starts the server"]
async fn a_server_of_this_machine_answers() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    call(&model(&address, Arc::new(HttpTransport::new()))).await.unwrap();
}

#[tokio::test]
async fn a_cancel_ends_a_connection_that_is_not_there_yet() {
    // Listens, and never takes part in the TLS handshake.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let limits = Limits { connect: Duration::from_secs(3600), ..Limits::default() };
    let model = model(&url, Arc::new(HttpTransport::with_limits(&limits))).with_limits(limits);
    let cancel = CancellationToken::new();
    let (end, connection) = tokio::join!(model.stream(hello(), cancel.clone()).finish(), async {
        let connection = listener.accept().await.unwrap();
        cancel.cancel();
        connection
    });
    assert_eq!(end.unwrap_err().error.kind, ErrorKind::Aborted);
    drop(connection);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_reply_at_once_on_every_wire() {
    for (wire, begins) in [
        (
            WireFormat::AnthropicMessages,
            "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n\
             data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"he\"}}\n\n",
        ),
        (WireFormat::OpenaiCompletions, HE),
        (
            WireFormat::OpenaiResponses,
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"he\"}\n\n",
        ),
        (WireFormat::GoogleGenerativeAi, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"he\"}]}}]}\n\n"),
    ] {
        if wire.wire().is_none() {
            continue;
        }
        let double = Double::answering([double::Answer::new(200, [Step::Bytes(begins), Step::Stall])]);
        let endpoint = Endpoint::new(BaseUrl::new("http://double", &wire).unwrap());
        let model = HttpModel::new(ModelSpec::new("test", "m", wire.clone()), endpoint, double.clone());
        let cancel = CancellationToken::new();
        let mut stream = model.stream(hello(), cancel.clone());
        while !matches!(stream.next().await, Some(StreamEvent::BlockDelta { .. })) {}
        cancel.cancel();
        let cancelled = Instant::now();
        let failed = stream.finish().await.unwrap_err();
        assert_eq!((failed.error.kind, failed.partial.text().as_str()), (ErrorKind::Aborted, "he"), "{wire}");
        assert!(cancelled.elapsed() < Duration::from_millis(100), "{wire}: {:?}", cancelled.elapsed());
        assert!(double.hung_up(), "{wire}");
    }
}
