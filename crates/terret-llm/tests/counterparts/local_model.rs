//! A real model on llama.cpp's server, which speaks three of the wires.

use std::time::Duration;

use terret_llm::wire::WireFormat;
use terret_llm::{Options, StopReason, local_servers};

use crate::{ask, call, counterpart, model, with_results};

/// What is tested is the traffic, not the model's wit: it may need a few tries to make the call.
const TRIES: usize = 5;

#[tokio::test]
async fn a_real_model_calls_a_tool_and_reads_its_result() {
    let Some(address) = counterpart("TERRET_LOCAL_MODEL") else { return };
    for wire in [WireFormat::OpenaiCompletions, WireFormat::OpenaiResponses, WireFormat::AnthropicMessages] {
        let model = model(&address, "local", &wire);
        let mut request = ask("Call the tool add with a=17 and b=25. Then tell me the sum.");
        let mut options = Options::default();
        options.max_output_tokens = Some(200);
        request.options = options;
        let mut tries = 0;
        let reply = loop {
            tries += 1;
            assert!(tries <= TRIES, "{wire}: no call in {TRIES} tries");
            let reply = call(&model, request.clone()).await.unwrap_or_else(|failed| panic!("{wire}: {failed}"));
            if reply.message().tool_calls().next().is_some() {
                break reply;
            }
        };
        assert_eq!(reply.message().stop_reason, StopReason::ToolUse, "{wire}");
        assert!(reply.message().usage.output > 0 && reply.message().usage.total() > 50, "{wire}");
        for call in reply.message().tool_calls() {
            assert_eq!(call.name, "add", "{wire}");
            call.arguments.parse::<serde_json::Map<_, _>>().unwrap();
        }
        let reply = call(&model, with_results(request, reply, "42")).await.unwrap();
        eprintln!("{wire}: {tries} tries, then {:?}, {:?}", reply.message().text(), reply.message().usage);
        assert!(!reply.message().content.is_empty(), "{wire}");
    }
}

#[tokio::test]
async fn a_real_server_is_found_where_it_listens() {
    let Some(address) = counterpart("TERRET_LOCAL_MODEL") else { return };
    let env = |name: &str| (name == "LLAMACPP_BASE_URL").then(|| address.clone());
    let servers = local_servers(Duration::from_secs(10), env).await;
    let server = servers.iter().find(|server| server.host.id == "llamacpp").expect("found");
    eprintln!("{server:?}");
    assert!(server.models.iter().any(|model| model.context_window.is_some()));
}

#[tokio::test]
async fn a_real_model_s_text_ends_at_the_limit() {
    let Some(address) = counterpart("TERRET_LOCAL_MODEL") else { return };
    for wire in [WireFormat::OpenaiCompletions, WireFormat::OpenaiResponses, WireFormat::AnthropicMessages] {
        let mut request = ask("Count from one to one hundred, in words.");
        request.tools = [].into();
        let mut options = Options::default();
        options.max_output_tokens = Some(8);
        request.options = options;
        let reply = call(&model(&address, "local", &wire), request).await.unwrap();
        eprintln!("{wire}: {:?}, {:?}", reply.message().text(), reply.message().stop_reason);
        // Over Responses, this server says that the reply is complete.
        let says_complete = wire == WireFormat::OpenaiResponses && reply.message().stop_reason == StopReason::Stop;
        assert!(says_complete || reply.message().stop_reason == StopReason::Length, "{wire}");
        assert!(!reply.message().text().is_empty(), "{wire}");
    }
}
