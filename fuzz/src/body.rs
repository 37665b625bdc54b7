//! What every body has to keep to, whatever the conversation was: the vendors refuse one that doesn't.

use serde::de::IgnoredAny;
use serde_json::Value;
use terret_llm::wire::WireFormat;

/// Checks a body of this wire: JSON, begun by the user, each call with its one result directly after it.
pub(crate) fn check(wire: &WireFormat, body: &[u8]) {
    serde_json::from_slice::<IgnoredAny>(body).unwrap_or_else(|error| panic!("{error}: {}", shown(body)));
    // What is nested too deeply for this reader is left to the providers'.
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return };
    let problem = match wire {
        WireFormat::AnthropicMessages => anthropic(&value),
        WireFormat::OpenaiCompletions => completions(&value),
        WireFormat::OpenaiResponses => responses(&value),
        _ => google(&value),
    };
    assert_eq!(problem, Ok(()), "{}", shown(body));
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

type Checked = Result<(), String>;

fn list<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    value[name].as_array().into_iter().flatten().collect()
}

fn strings<'a>(list: &[&'a Value], kind: (&str, &str), name: &str) -> Vec<&'a str> {
    let of_kind = list.iter().filter(|one| one[kind.0] == kind.1);
    of_kind.map(|one| one[name].as_str().unwrap_or("(none)")).collect()
}

fn anthropic(body: &Value) -> Checked {
    let messages = list(body, "messages");
    expect(messages.first().is_some_and(|first| first["role"] == "user"), "the user doesn't begin")?;
    let mut asked: Vec<&str> = Vec::new();
    for message in messages {
        let parts = list(message, "content");
        expect(!parts.is_empty() || message["content"].as_str().is_some_and(|text| !text.is_empty()), "empty content")?;
        let given = strings(&parts, ("type", "tool_result"), "tool_use_id");
        if message["role"] == "user" {
            expect(given == asked, "the results aren't those of the calls")?;
            let ahead = parts.iter().take_while(|part| part["type"] == "tool_result").count();
            expect(ahead == given.len(), "something stands before a result")?;
            asked = Vec::new();
        } else {
            expect(message["role"] == "assistant", "a role that there isn't")?;
            expect(given.is_empty(), "a result in a reply")?;
            expect(asked.is_empty(), "a reply follows calls")?;
            asked = strings(&parts, ("type", "tool_use"), "id");
        }
        let blank =
            |part: &&Value| part["type"] == "text" && part["text"].as_str().is_none_or(|it| it.trim().is_empty());
        expect(!parts.iter().any(blank), "a blank text")?;
    }
    expect(asked.is_empty(), "calls without results")
}

fn completions(body: &Value) -> Checked {
    let messages = list(body, "messages");
    let first = messages.iter().find(|message| message["role"] != "system" && message["role"] != "developer");
    expect(first.is_some_and(|first| first["role"] == "user"), "the user doesn't begin")?;
    let mut asked: Vec<&str> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            expect(!asked.is_empty(), "a result without a call")?;
            expect(message["tool_call_id"].as_str() == Some(asked.remove(0)), "a result of another call")?;
            expect(message["content"].as_str().is_none_or(|text| !text.is_empty()), "an empty result")?;
        } else {
            expect(asked.is_empty(), "calls without results")?;
            asked = strings(&list(message, "tool_calls"), ("type", "function"), "id");
            expect(asked.is_empty() || message["role"] == "assistant", "the user calls")?;
            let spoken = !message["content"].is_null() && message["content"] != "";
            expect(spoken || !asked.is_empty() || message["role"] == "assistant", "empty content")?;
        }
    }
    expect(asked.is_empty(), "calls without results")
}

fn responses(body: &Value) -> Checked {
    let mut asked: Vec<(&str, &str)> = Vec::new();
    let items = list(body, "input");
    expect(items.first().is_some_and(|first| first["role"] == "user"), "the user doesn't begin")?;
    for item in items {
        let id = || item["call_id"].as_str().unwrap_or("(none)");
        match item["type"].as_str().unwrap_or_default() {
            "function_call" => asked.push(("function_call_output", id())),
            "custom_tool_call" => asked.push(("custom_tool_call_output", id())),
            kind @ ("function_call_output" | "custom_tool_call_output") => {
                expect(!asked.is_empty(), "a result without a call")?;
                expect(asked.remove(0) == (kind, id()), "a result of another call")?;
            }
            _ => expect(asked.is_empty() || item["role"] != "user", "calls without results")?,
        }
    }
    expect(asked.is_empty(), "calls without results")
}

fn google(body: &Value) -> Checked {
    let contents = list(body, "contents");
    expect(contents.first().is_some_and(|first| first["role"] == "user"), "the user doesn't begin")?;
    let mut asked: Vec<&Value> = Vec::new();
    for content in contents {
        let parts = list(content, "parts");
        expect(!parts.is_empty(), "a turn without parts")?;
        let named =
            |kind: &str| -> Vec<&Value> { parts.iter().filter_map(|part| part.get(kind)?.get("name")).collect() };
        let (calls, given) = (named("functionCall"), named("functionResponse"));
        if content["role"] == "user" {
            expect(calls.is_empty(), "the user calls")?;
            expect(given == asked, "the results aren't those of the calls")?;
            let ahead = parts.iter().take_while(|part| part.get("functionResponse").is_some()).count();
            expect(ahead == given.len(), "something stands before a result")?;
            asked = Vec::new();
        } else {
            expect(content["role"] == "model", "a role that there isn't")?;
            expect(given.is_empty(), "a result in a reply")?;
            expect(asked.is_empty(), "a reply follows calls")?;
            asked = calls;
        }
    }
    expect(asked.is_empty(), "calls without results")
}

fn expect(holds: bool, problem: &str) -> Checked {
    if holds { Ok(()) } else { Err(problem.to_owned()) }
}
