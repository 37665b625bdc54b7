//! No option is dropped in silence: at every host, each is in the request, or refused by its name, or one of the hints that
//! docs/wires.md says are left out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use serde_json::{Value, json};
use terret_llm::wire::{EncodeError, Encoded, WireFormat};
use terret_llm::{Compat, ModelSpec, Options, Request, hosts};

/// Each option by its name, with a value that isn't what goes without saying.
fn options() -> Vec<(&'static str, Value)> {
    vec![
        ("max_output_tokens", json!({"maxOutputTokens": 77})),
        ("temperature", json!({"temperature": 0.5})),
        ("top_p", json!({"topP": 0.75})),
        ("top_k", json!({"topK": 7})),
        ("stop", json!({"stop": ["END"]})),
        ("seed", json!({"seed": 7})),
        ("tool_choice", json!({"toolChoice": "required"})),
        ("parallel_tool_calls", json!({"parallelToolCalls": false})),
        ("effort", json!({"effort": "low"})),
        ("cache", json!({"cache": "long"})),
        ("cache_key", json!({"cacheKey": "k"})),
        ("output_schema", json!({"outputSchema": {"name": "answer", "schema": {"type": "object"}}})),
    ]
}

#[test]
fn each_option_is_in_the_request_or_refused_by_its_name() {
    let names: Vec<String> = options().into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, fields(&Options::default()), "an option is missing here");
    for spec in specs() {
        let plain = encode(&spec, &json!({})).unwrap();
        for (name, option) in options() {
            let case = format!("{name} at {} over {}", spec.provider, spec.wire);
            match encode(&spec, &option) {
                Ok(encoded) => assert_eq!(encoded == plain, is_left_out(name, &spec), "{case}: {encoded:?}"),
                Err(EncodeError::Unsupported { option, .. }) => assert_eq!(option, name, "{case}"),
                Err(error) => panic!("{case}: {error}"),
            }
        }
    }
}

/// Hints: a host that has no word for one only caches less well.
fn is_left_out(option: &str, ModelSpec { wire, compat, .. }: &ModelSpec) -> bool {
    match (option, wire) {
        ("cache", WireFormat::OpenaiCompletions) => !compat.prompt_cache_retention && !compat.cache_control,
        ("cache", WireFormat::AnthropicMessages) => !compat.cache_marks,
        ("cache_key", WireFormat::OpenaiCompletions) => !compat.prompt_cache_key && compat.affinity_header.is_none(),
        _ => false,
    }
}

/// A model of each host, and of a host of which nothing is known on each wire.
fn specs() -> Vec<ModelSpec> {
    use WireFormat::*;
    let id = |wire: &WireFormat| match wire {
        AnthropicMessages => "claude-sonnet-4-5",
        GoogleGenerativeAi => "gemini-3-pro-preview",
        _ => "gpt-5",
    };
    let known = hosts().iter().flat_map(|host| {
        let others = host.other_wires.iter().map(|other| &other.wire);
        let wires = std::iter::once(&host.wire).chain(&host.imitated_by).chain(others);
        wires.map(|wire| (host.id, wire.clone(), host.compat_for(id(wire)).clone()))
    });
    let unknown = [AnthropicMessages, OpenaiCompletions, OpenaiResponses, GoogleGenerativeAi];
    let unknown = unknown.map(|wire| ("unknown", wire, Compat::default()));
    let spec = |(provider, wire, compat): (&str, WireFormat, Compat)| {
        let mut spec = ModelSpec::new(provider, id(&wire), wire);
        spec.compat = compat;
        spec
    };
    known.chain(unknown).map(spec).collect()
}

fn encode(spec: &ModelSpec, options: &Value) -> Result<Encoded, EncodeError> {
    let request = json!({
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "tools": [{"name": "now", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}}],
        "options": options,
    });
    let request: Request = serde_json::from_value(request).unwrap();
    spec.wire.wire().unwrap().encode(spec, &request)
}

/// The names of a type's fields.
fn fields(value: &impl std::fmt::Debug) -> Vec<String> {
    let lines = format!("{value:#?}");
    let fields = lines.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':'));
    fields.map(|(name, _)| name.to_owned()).filter(|name| !name.starts_with(' ')).collect()
}
