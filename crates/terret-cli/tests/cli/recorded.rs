//! Recorded conversations with real providers, from end to end: served over HTTP, turn by turn, to the program.
//!
//! The recorded tools aren't this program's, so that each call gets an error result, which goes back like any other.

use serde_json::{Value, json};

use crate::corpus::{Conversation, Turn, conversations};
use crate::server::{Answer, Server};
use crate::terret::{Ran, Terret};

#[test]
fn anthropic_messages() {
    replay("anthropic-messages", |body| {
        let blocks = |message: &Value| message["content"].as_array().cloned().unwrap_or_default();
        let ids = |message: &Value, kind: &str, key: &str| {
            blocks(message).iter().filter(|block| block["type"] == kind).map(|block| block[key].clone()).collect()
        };
        let messages = body["messages"].as_array().unwrap();
        let calls = messages.iter().map(|message| ids(message, "tool_use", "id"));
        let results = messages.iter().skip(1).map(|message| ids(message, "tool_result", "tool_use_id"));
        calls.zip(results.chain([Vec::new()])).collect()
    });
}

#[test]
fn openai_completions() {
    replay("openai-completions", |body| {
        let messages = body["messages"].as_array().unwrap();
        let calls = |message: &Value| message["tool_calls"].as_array().cloned().unwrap_or_default();
        let turns = messages.iter().enumerate().filter(|(_, message)| message["role"] == "assistant");
        let turn = |(n, message): (usize, &Value)| {
            let results = messages[n + 1..].iter().take_while(|message| message["role"] == "tool");
            let results = results.map(|result| result["tool_call_id"].clone()).collect();
            (calls(message).iter().map(|call| call["id"].clone()).collect(), results)
        };
        turns.map(turn).collect()
    });
}

#[test]
fn openai_responses() {
    replay("openai-responses", |body| {
        let items = body["input"].as_array().unwrap();
        let ids =
            |kind: &str| items.iter().filter(|item| item["type"] == kind).map(|item| item["call_id"].clone()).collect();
        vec![(ids("function_call"), ids("function_call_output"))]
    });
}

#[test]
fn google_generative_ai() {
    replay("google-generative-ai", |body| {
        let names = |content: &Value, kind: &str| {
            let parts = content["parts"].as_array().unwrap();
            parts.iter().filter_map(|part| Some(part.get(kind)?["name"].clone())).collect()
        };
        let contents = body["contents"].as_array().unwrap();
        let calls = contents.iter().map(|content| names(content, "functionCall"));
        let results = contents.iter().skip(1).map(|content| names(content, "functionResponse"));
        calls.zip(results.chain([Vec::new()])).collect()
    });
}

/// The calls of a reply and the results behind it, by what the wire tells them apart.
type Paired = Vec<(Vec<Value>, Vec<Value>)>;

fn replay(format: &str, pairs: impl Fn(&Value) -> Paired) {
    let mut problems = Vec::new();
    for conversation in conversations(format).unwrap_or_default() {
        let found = replay_one(format, &conversation, &pairs);
        problems.extend(found.into_iter().map(|problem| format!("{}: {problem}", conversation.name)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn replay_one(
    format: &str,
    Conversation { turns, .. }: &Conversation,
    pairs: impl Fn(&Value) -> Paired,
) -> Vec<String> {
    let answer = |turn: &Turn| match turn.streamed {
        true => Answer::events(&turn.body),
        false => Answer::new("200 OK", "application/json", &turn.body),
    };
    let server = Server::answering(turns.iter().map(answer).collect::<Vec<_>>());
    let asks_on = turns.last().unwrap().has_calls();
    let ran = Terret::new()
        .args(["-p", "Go on.", "--json", "--tools", "ls", "--model", "custom/m", "--wire", format])
        .args(["--base-url", &server.url, "--max-turns", &turns.len().to_string()])
        .run();
    let mut problems = Vec::new();
    if ran.code() != if asks_on { 6 } else { 0 } {
        problems.push(format!("exit {}: {}", ran.code(), ran.result()["error"]));
    }
    problems.extend(wrong_transcript(&ran, turns));
    let requests = server.requests();
    if requests.len() != turns.len() {
        problems.push(format!("{} requests for {} turns", requests.len(), turns.len()));
    }
    let mut before = 0;
    for request in &requests {
        let paired = pairs(&request.body);
        problems.extend(paired.iter().filter(|(calls, results)| calls != results).map(|pair| format!("{pair:?}")));
        let calls: usize = paired.iter().map(|(calls, _)| calls.len()).sum();
        if before > 0 && calls <= before {
            problems.push(format!("{calls} calls in a request behind one with {before}"));
        }
        before = calls;
    }
    if before == 0 && turns.len() > 1 {
        problems.push("no call went back".to_owned());
    }
    problems
}

/// The transcript is the prompt, and then each recorded reply with an error result for each of its calls.
fn wrong_transcript(ran: &Ran, turns: &[Turn]) -> Vec<String> {
    let messages = ran.messages();
    let mut rest = messages.iter().skip(1).peekable();
    let mut problems = Vec::new();
    for (n, turn) in turns.iter().enumerate() {
        let Some(reply) = rest.next().filter(|message| message["role"] == "assistant") else {
            problems.push(format!("no reply {n}"));
            break;
        };
        let expected: Vec<Value> =
            turn.expected["content"].as_array().unwrap().iter().filter_map(in_our_words).collect();
        let got: Vec<Value> = reply["content"].as_array().unwrap().iter().filter_map(compared).collect();
        if got != expected {
            problems.push(format!("reply {n} is {got:?}, expected {expected:?}"));
        }
        let calls = reply["content"].as_array().unwrap().iter().filter(|block| block["type"] == "toolCall");
        let calls: Vec<&Value> = calls.map(|call| &call["id"]).collect();
        let results: Vec<&Value> =
            std::iter::from_fn(|| rest.next_if(|message| message["role"] == "toolResult")).collect();
        let answered: Vec<&Value> = results.iter().map(|result| &result["toolCallId"]).collect();
        if answered != calls || results.iter().any(|result| result["isError"] != true) {
            problems.push(format!("results {results:?} for the calls {calls:?}"));
        }
    }
    problems.extend(rest.next().map(|message| format!("one message too many: {message}")));
    problems
}

/// A block of the independent decoding; none for one that says nothing, or has no form here.
fn in_our_words(block: &Value) -> Option<Value> {
    match block["type"].as_str()? {
        "text" => says_something(json!({"type": "text", "text": block["text"]})),
        "thinking" => says_something(json!({"type": "thinking", "text": block["text"]})),
        "toolCall" => Some(json!({
            "type": "toolCall", "name": block["name"], "arguments": as_floats(&block["arguments"]),
        })),
        _ => None,
    }
}

/// What is compared of a block.
fn compared(block: &Value) -> Option<Value> {
    match block["type"].as_str()? {
        "text" => says_something(json!({"type": "text", "text": block["text"]})),
        "thinking" => says_something(json!({"type": "thinking", "text": block["thinking"]})),
        "toolCall" => Some(json!({
            "type": "toolCall", "name": block["name"], "arguments": as_floats(&block["arguments"]),
        })),
        _ => None,
    }
}

fn says_something(block: Value) -> Option<Value> {
    (block["text"].as_str() != Some("")).then_some(block)
}

/// 1 and 1.0 mean the same.
fn as_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(as_floats).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), as_floats(value))).collect(),
        _ => value.clone(),
    }
}
