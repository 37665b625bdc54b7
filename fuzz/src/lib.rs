//! What the fuzz targets check. Each check takes any bytes and panics where a promise is broken.

mod body;
mod decoder;
mod edit;
#[path = "../../crates/terret-llm/tests/fold/mod.rs"]
mod fold;
mod handoff;
mod made;
mod partial_json;
mod pi_import;
mod pieces;
mod sse;

use terret_llm::wire::WireFormat;

/// The targets, by name.
pub const TARGETS: [&str; 9] = [
    "sse",
    "anthropic_messages",
    "openai_completions",
    "openai_responses",
    "google_generative_ai",
    "partial_json",
    "handoff",
    "pi_import",
    "edit",
];

/// Checks what a target checks, with this input.
pub fn check(target: &str, data: &[u8]) {
    match target {
        "sse" => sse::check(data),
        "anthropic_messages" => decoder::check(WireFormat::AnthropicMessages, data),
        "openai_completions" => decoder::check(WireFormat::OpenaiCompletions, data),
        "openai_responses" => decoder::check(WireFormat::OpenaiResponses, data),
        "google_generative_ai" => decoder::check(WireFormat::GoogleGenerativeAi, data),
        "partial_json" => partial_json::check(data),
        "handoff" => handoff::check(data),
        "pi_import" => pi_import::check(data),
        "edit" => edit::check(data),
        other => panic!("there is no target of the name {other}"),
    }
}
