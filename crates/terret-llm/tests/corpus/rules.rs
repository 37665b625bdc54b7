//! When a message agrees with the independent decoding of the same response.
//!
//! The expectation comes from the vendors' SDKs and has their words; these rules say what those mean in this crate's.

use std::collections::HashSet;

use serde_json::{Map, Value};
use terret_llm::wire::WireFormat;
use terret_llm::{AssistantMessage, Block, ErrorKind, ModelError, StopReason, ToolCall, Usage};

use crate::cases::Case;
use crate::cuts::has_a_terminal;
use crate::reading::End;

/// All differences, in words; none when the reading agrees.
pub(crate) fn compare(case: &Case, end: &End) -> Vec<String> {
    let expected = &case.expected;
    let broke_off = expected["partial"] == true;
    let sdk_failed = !expected["sdk_error"].is_null();
    let empty = expected["content"].as_array().is_none_or(Vec::is_empty);
    let fails = case.status >= 400 || broke_off || (sdk_failed && empty) || has(case, "prompt_blocked");
    match end {
        End::Failed(error, partial) if fails => {
            let mut problems: Vec<String> = wrong_kind(case, error).into_iter().collect();
            if case.status < 400 && !empty {
                problems.extend(compare_message(case, partial, false));
            }
            problems
        }
        // A stop reason arrived before the stream broke off: that reply may count as complete.
        End::Done(_) if fails && !expected["stop_reason_raw"].is_null() && !sdk_failed => Vec::new(),
        End::Done(message) if fails => vec![format!("expected a failure, got {:?}", message.content)],
        End::Done(message) => compare_message(case, message, true),
        // The SDK takes the end of any stream for the end of the reply; here, that is a broken connection.
        End::Failed(error, partial) if error.kind == ErrorKind::Truncated && !has_a_terminal(case) => {
            compare_message(case, partial, false)
        }
        End::Failed(error, _) => vec![format!("failed: {error}")],
    }
}

fn has(case: &Case, feature: &str) -> bool {
    case.features.iter().any(|has| has == feature)
}

/// What an error body means, where the recording is tagged with it. A used-up quota often has the status of a rate limit.
fn wrong_kind(case: &Case, error: &ModelError) -> Option<String> {
    use ErrorKind::*;
    let allowed: [(&str, &[ErrorKind]); 10] = [
        ("rate_limited", if has(case, "quota") { &[RateLimited, Quota] } else { &[RateLimited] }),
        ("auth_error", &[Auth, Permission]),
        ("overloaded", &[Overloaded, Server]),
        ("context_overflow", &[ContextOverflow]),
        ("model_not_found", &[NotFound, InvalidRequest]),
        ("server_error", &[Server, Overloaded, Protocol, InvalidRequest]),
        ("quota", &[Quota, RateLimited]),
        ("request_too_large", &[ContextOverflow, InvalidRequest]),
        ("refusal", &[Refused]),
        ("prompt_blocked", &[Refused]),
    ];
    let wrong = |(feature, kinds): &(&str, &[ErrorKind])| has(case, feature) && !kinds.contains(&error.kind);
    let (feature, kinds) = allowed.into_iter().find(|one| case.status >= 400 && wrong(one))?;
    Some(format!("error kind {:?}, expected one of {kinds:?} ({feature})", error.kind))
}

fn compare_message(case: &Case, message: &AssistantMessage, complete: bool) -> Vec<String> {
    let everything: Vec<&Map<String, Value>> = case.expected["content"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .filter(|block| carries_something(block))
        .collect();
    // Blocks that have no neutral form may be kept whole or split: the others are compared, in order.
    let expected: Vec<_> = everything.iter().copied().filter(|block| block["type"] != "other").collect();
    let got: Vec<&Block> = message.content.iter().filter(|block| is_compared(block)).collect();

    let mut problems = Vec::new();
    if expected.len() != got.len() {
        problems.push(format!("{} blocks {got:?}, expected {} {expected:?}", got.len(), expected.len()));
    }
    let ids: Vec<&str> = message.tool_calls().map(|call| call.id.as_str()).collect();
    if ids.contains(&"") || ids.iter().collect::<HashSet<_>>().len() != ids.len() {
        problems.push(format!("tool-call ids empty or repeated: {ids:?}"));
    }
    let mut seen = HashSet::new();
    for (n, (expected, got)) in expected.iter().zip(&got).enumerate() {
        let block = compare_block(&case.format, expected, got, &mut seen);
        problems.extend(block.into_iter().map(|problem| format!("block {n}: {problem}")));
    }
    let expects_vendor_blocks = everything.iter().any(|block| block["type"] == "other");
    let has_vendor_blocks = message.content.iter().any(|block| matches!(block, Block::Opaque(_) | Block::Image(_)));
    if expects_vendor_blocks && !has_vendor_blocks && case.format != WireFormat::GoogleGenerativeAi {
        problems.push("vendor blocks dropped, expected opaque blocks".to_owned());
    }
    problems.extend(compare_usage(case, &message.usage));
    if complete {
        let refused = everything.iter().any(|block| block.get("refusal").is_some_and(is_true));
        problems.extend(wrong_stop_reason(case, message, refused));
    }
    problems
}

/// Whether an expected block is more than unsigned, unredacted, empty text.
fn carries_something(block: &Map<String, Value>) -> bool {
    let carries = |key: &str| block.get(key).is_some_and(is_true);
    let words = block["type"] == "text" || block["type"] == "thinking";
    !words || ["text", "signature", "redacted", "reasoning_details"].into_iter().any(carries)
}

fn is_compared(block: &Block) -> bool {
    match block {
        Block::Text(text) => !text.text.is_empty() || text.signature.is_some(),
        Block::Thinking(thinking) => !thinking.thinking.is_empty() || thinking.signature.is_some() || thinking.redacted,
        Block::ToolCall(_) => true,
        _ => false,
    }
}

/// Neither null, false nor empty.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
    }
}

fn compare_block<'a>(
    format: &WireFormat,
    expected: &'a Map<String, Value>,
    got: &Block,
    seen: &mut HashSet<&'a str>,
) -> Vec<String> {
    let text_of = |key: &str| expected.get(key).and_then(Value::as_str);
    let mut problems = Vec::new();
    let mut check = |agrees: bool, problem: String| {
        if !agrees {
            problems.push(problem);
        }
    };
    let expected_text = text_of("text").unwrap_or_default();
    match (expected["type"].as_str().unwrap(), got) {
        ("text", Block::Text(text)) => {
            check(text.text == expected_text, format!("text {:?}, expected {expected_text:?}", text.text));
            check(signature_agrees(expected, text.signature.as_deref()), "signature lost or changed".into());
        }
        ("thinking", Block::Thinking(thinking)) => {
            let (got, redacted) = (&thinking.thinking, thinking.redacted);
            check(got == expected_text, format!("thinking {got:?}, expected {expected_text:?}"));
            check(signature_agrees(expected, thinking.signature.as_deref()), "signature lost or changed".into());
            // The other wires have no such flag; there it is a reading of the recorder's.
            let agrees =
                *format != WireFormat::AnthropicMessages || redacted == expected.get("redacted").is_some_and(is_true);
            check(agrees, format!("redacted {redacted}"));
        }
        ("toolCall", Block::ToolCall(call)) => {
            let name = text_of("name").unwrap_or_default();
            check(call.name == name, format!("name {:?}, expected {name:?}", call.name));
            // Of calls with the same id, the first keeps it.
            let id = text_of("id").unwrap_or_default();
            let keeps_its_id = !id.is_empty() && seen.insert(id);
            check(!keeps_its_id || call.id == id, format!("id {:?}, expected {id:?}", call.id));
            check(arguments_agree(expected, call), format!("arguments {:?}, expected {expected:?}", call.arguments));
            check(signature_agrees(expected, call.signature.as_deref()), "signature lost or changed".into());
        }
        (kind, _) => check(false, format!("{got:?}, expected a block of type {kind}")),
    }
    problems
}

/// A signature is opaque and may wrap the vendor's value (with the id of its item, say), plainly or as JSON.
fn signature_agrees(expected: &Map<String, Value>, got: Option<&str>) -> bool {
    let value = |key: &str| expected.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(signature) = value("signature") else { return true };
    let Some(got) = got else { return false };
    let holds = |signature: &str| {
        let quoted = Value::from(signature).to_string();
        got.contains(signature) || got.contains(quoted.trim_matches('"'))
    };
    holds(signature) || value("signature_in_item_done").is_some_and(holds)
}

fn arguments_agree(expected: &Map<String, Value>, call: &ToolCall) -> bool {
    if expected.get("arguments_complete") == Some(&Value::Bool(false)) {
        return !call.arguments.is_json() && Some(call.arguments.as_str()) == expected["arguments_raw"].as_str();
    }
    call.arguments.parse::<Value>().is_ok_and(|got| same(&got, &expected["arguments"]))
}

/// Whether two JSON values mean the same; 1 and 1.0 do.
fn same(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => one == two || one.as_f64() == two.as_f64(),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len() && one.iter().all(|(key, one)| two.get(key).is_some_and(|two| same(one, two)))
        }
        _ => one == two,
    }
}

fn compare_usage(case: &Case, got: &Usage) -> Vec<String> {
    let merged = &case.expected["usage_on_wire_merged"];
    let usage = if is_true(merged) { merged } else { &case.expected["usage_raw"] };
    if !usage.is_object() {
        return Vec::new();
    }
    let expected = Expected::of(&case.format, usage);
    [
        ("input", got.input, expected.input.as_slice()),
        ("output", got.output, &expected.output),
        ("cache reads", got.cache_read, &[expected.cache_read]),
        ("cache writes", got.cache_write, &[expected.cache_write]),
    ]
    .into_iter()
    .filter(|(_, got, allowed)| !allowed.contains(got))
    .map(|(name, got, allowed)| format!("{name} {got}, expected {allowed:?}"))
    .collect()
}

/// The tokens that a vendor's usage means. Where hosts disagree on what a number includes, both readings are right.
struct Expected {
    input: Vec<u64>,
    output: Vec<u64>,
    cache_read: u64,
    cache_write: u64,
}

impl Expected {
    fn of(format: &WireFormat, usage: &Value) -> Self {
        let number = |path: &str| usage.pointer(path).and_then(Value::as_f64).map(|number| number as u64);
        let count = |path: &str| number(path).unwrap_or(0);
        match format {
            WireFormat::AnthropicMessages => Self {
                input: vec![count("/input_tokens")],
                output: vec![count("/output_tokens")],
                cache_read: count("/cache_read_input_tokens"),
                cache_write: count("/cache_creation_input_tokens"),
            },
            WireFormat::GoogleGenerativeAi => {
                let cached = count("/cachedContentTokenCount");
                let prompt = count("/promptTokenCount");
                let with_tools = prompt + count("/toolUsePromptTokenCount");
                Self {
                    input: vec![with_tools.saturating_sub(cached), prompt.saturating_sub(cached)],
                    output: vec![count("/candidatesTokenCount") + count("/thoughtsTokenCount")],
                    cache_read: if with_tools == 0 { cached } else { cached.min(with_tools) },
                    cache_write: 0,
                }
            }
            WireFormat::OpenaiResponses => {
                let read = count("/input_tokens_details/cached_tokens");
                let write = count("/input_tokens_details/cache_write_tokens");
                Self {
                    input: vec![count("/input_tokens").saturating_sub(read + write)],
                    output: vec![count("/output_tokens")],
                    cache_read: read,
                    cache_write: write,
                }
            }
            _ => {
                let places = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
                let read = places.into_iter().find_map(number).unwrap_or(0);
                let write = count("/prompt_tokens_details/cache_write_tokens");
                let output = count("/completion_tokens");
                Self {
                    input: vec![count("/prompt_tokens").saturating_sub(read + write)],
                    output: vec![output, output + count("/completion_tokens_details/reasoning_tokens")],
                    cache_read: read,
                    cache_write: write,
                }
            }
        }
    }
}

fn wrong_stop_reason(case: &Case, message: &AssistantMessage, refused: bool) -> Option<String> {
    use StopReason::*;
    let raw = case.expected["stop_reason_raw"].as_str();
    let end = if message.tool_calls().next().is_some() { ToolUse } else { Stop };
    let expected = match (&case.format, raw?) {
        (WireFormat::AnthropicMessages, "max_tokens" | "model_context_window_exceeded") => Length,
        (WireFormat::AnthropicMessages, "refusal") => Refusal,
        (WireFormat::AnthropicMessages, "pause_turn") => Pause,
        (WireFormat::OpenaiCompletions, "length") => Length,
        (WireFormat::OpenaiCompletions, "content_filter") => Refusal,
        (WireFormat::OpenaiCompletions, "error") => return None,
        (WireFormat::OpenaiResponses, "incomplete:max_output_tokens") => Length,
        (WireFormat::OpenaiResponses, "incomplete:content_filter") => Refusal,
        (WireFormat::GoogleGenerativeAi, "MAX_TOKENS") => Length,
        (
            WireFormat::GoogleGenerativeAi,
            "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" | "LANGUAGE",
        ) => Refusal,
        _ => end,
    };
    let got = message.stop_reason;
    let agrees = got == expected || (refused && got == Refusal);
    (!agrees).then(|| format!("stop reason {got:?}, expected {expected:?} ({raw:?})"))
}
