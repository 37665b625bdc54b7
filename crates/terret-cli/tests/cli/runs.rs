//! Runs on scripted models, to each kind of end.

use serde_json::{Value, json};

use crate::terret::{Ran, Terret, text_of};

fn call(id: &str, tool: &str, arguments: Value) -> Value {
    json!({"type": "toolCall", "id": id, "name": tool, "arguments": arguments})
}

fn calls(calls: impl Into<Vec<Value>>) -> Value {
    json!({"content": calls.into()})
}

fn streamed(replies: impl IntoIterator<Item = Value>) -> Ran {
    Terret::scripted(replies).args(["--json"]).run()
}

fn looks_and_answers() -> Terret {
    let look = json!({
        "content": [{"type": "text", "text": "I'll look."}, call("c1", "read", json!({"path": "a.txt"}))],
        "usage": {"input": 100, "cacheRead": 20, "output": 7},
    });
    let answer = json!({
        "text": "It says hello.", "usage": {"input": 10, "output": 5},
        "expect": {"lastRole": "toolResult", "contains": "hello"},
    });
    Terret::scripted([look, answer]).file("a.txt", "hello\n")
}

#[test]
fn text_is_the_answer_on_standard_output_and_progress_on_standard_error() {
    let ran = looks_and_answers().run().exits(0);
    assert_eq!(ran.stdout, "It says hello.\n");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines[..2], ["• read a.txt", "  ✓ hello"]);
    assert!(lines[2].starts_with("2 model calls · 1 tool call · 130 tokens in, 12 out · "), "{}", ran.stderr);
    assert_eq!(lines.len(), 3, "{}", ran.stderr);
}

#[test]
fn json_is_one_result() {
    let ran = looks_and_answers().args(["-o", "json"]).run().exits(0);
    assert_eq!(ran.events().len(), 1);
    let mut result = ran.result();
    for key in ["sessionId", "durationMs"] {
        result.as_object_mut().unwrap().remove(key).unwrap();
    }
    let expected = json!({
        "v": 1, "type": "result", "outcome": "completed", "exitCode": 0, "text": "It says hello.",
        "stopReason": "stop", "model": "scripted/script", "modelCalls": 2, "toolCalls": 1, "costUsd": null,
        "usage": {"input": 110, "cacheRead": 20, "cacheWrite": 0, "output": 12},
    });
    assert_eq!(result, expected);
    assert_eq!(ran.stderr, "");
}

#[test]
fn stream_json_is_every_event_and_then_the_result() {
    for option in [&["--json"][..], &["--output-format", "stream-json"], &["-ostream-json"]] {
        let ran = looks_and_answers().args(option).run().exits(0);
        let types: Vec<Value> = ran.events().iter().map(|event| event["type"].clone()).collect();
        let without_deltas: Vec<&Value> = types.iter().filter(|kind| *kind != "delta").collect();
        let turn = ["model_start", "message"];
        let tool = ["tool_start", "tool_end", "message"];
        let expected = [&["run_start", "message"][..], &turn, &tool, &turn, &["result"]].concat();
        assert_eq!(without_deltas, expected);
        let roles: Vec<Value> = ran.messages().iter().map(|message| message["role"].clone()).collect();
        assert_eq!(roles, ["user", "assistant", "toolResult", "assistant"]);
        let start = &ran.events()[0];
        assert_eq!(start["cwd"], ran.path("").to_str().unwrap().trim_end_matches('/'));
        assert_eq!(start["sessionId"], ran.result()["sessionId"]);
        assert_eq!(ran.result()["text"], "It says hello.");
    }
}

#[test]
fn deltas_add_up_to_the_message() {
    let reply = json!({
        "content": [
            {"type": "thinking", "thinking": "Hm, é.", "signature": "s1"},
            {"type": "text", "text": "Let me look.", "signature": "s2"},
            {"type": "toolCall", "id": "c1", "name": "ls", "arguments": {"path": "."}, "signature": "s3"},
        ],
        "chunk": 2,
    });
    let ran = streamed([reply.clone(), json!({"text": "Done."})]).exits(0);
    let mut blocks: Vec<(Value, String)> = Vec::new();
    for delta in ran.of_type("delta").iter().filter(|delta| delta["epoch"] == ran.of_type("model_start")[0]["epoch"]) {
        let event = &delta["event"];
        match event["type"].as_str().unwrap() {
            "block_start" => blocks.push((event.clone(), String::new())),
            "block_delta" => blocks[event["index"].as_u64().unwrap() as usize].1 += event["text"].as_str().unwrap(),
            _ => {}
        }
    }
    let kinds: Vec<&Value> = blocks.iter().map(|(start, _)| &start["kind"]).collect();
    assert_eq!(kinds, ["thinking", "text", "toolCall"]);
    assert_eq!((&blocks[2].0["id"], &blocks[2].0["name"]), (&json!("c1"), &json!("ls")));
    let texts: Vec<&str> = blocks.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["Hm, é.", "Let me look.", r#"{"path":"."}"#]);
    assert_eq!(ran.messages()[1]["content"], reply["content"]);
}

#[test]
fn a_failed_tool_is_a_result_that_the_model_reads() {
    let fails = calls([call("c1", "bash", json!({"command": "echo out; exit 3"}))]);
    let reads = json!({"text": "It failed.", "expect": {"lastRole": "toolResult", "contains": "[exit code 3]"}});
    let ran = streamed([fails, reads]).exits(0);
    assert_eq!(ran.tool_results(), [("out\n\n[exit code 3]".to_owned(), true)]);
    assert_eq!(ran.of_type("tool_end")[0]["isError"], true);
}

#[test]
fn rejected_arguments_and_unknown_tools_are_results_without_a_start() {
    let malformed = json!({"type": "toolCall", "id": "c3", "name": "read", "argumentsText": "{\"path\": \"a"});
    let wrong = [call("c1", "read", json!({"file": "a"})), call("c2", "tea", json!({})), malformed];
    let ran = streamed([calls(wrong), json!({"text": "Sorry."})]).exits(0);
    let results = ran.tool_results();
    for ((text, is_error), parts) in results.iter().zip([
        &["read", "rejected", "path", r#"Received: {"file":"a"}"#][..],
        &["There is no tool \"tea\"", "bash", "read", "write"],
        &["read", "rejected", r#"Received: {"path": "a"#],
    ]) {
        assert!(is_error);
        parts.iter().for_each(|part| assert!(text.contains(part), "{text}"));
    }
    assert_eq!(results.len(), 3);
    assert_eq!((ran.of_type("tool_start").len(), ran.of_type("tool_end").len()), (0, 3));
    assert_eq!(ran.result()["toolCalls"], 0);
    assert_eq!(ran.messages()[1]["content"][2]["argumentsText"], r#"{"path": "a"#);
}

#[test]
fn results_stand_in_the_order_of_the_calls() {
    let reads = [1, 2, 3].map(|n| call(&format!("c{n}"), "read", json!({"path": format!("{n}.txt")})));
    let ran = Terret::scripted([calls(reads), json!({"text": "Done."})])
        .file("1.txt", "one ".repeat(50_000))
        .file("2.txt", "two")
        .file("3.txt", "three")
        .args(["--json"])
        .run()
        .exits(0);
    let ids: Vec<Value> = ran.messages()[2..5].iter().map(|result| result["toolCallId"].clone()).collect();
    assert_eq!(ids, ["c1", "c2", "c3"]);
}

#[test]
fn a_failed_model_call_ends_the_run_and_nothing_of_it_is_an_answer() {
    let broken = json!({"text": "Half an ans", "error": {"kind": "overloaded", "message": "try later", "status": 529}});
    let ran = streamed([broken.clone()]).exits(7);
    let failures = ran.of_type("attempt_failed");
    let tried_again = failures.iter().map(|it| it["recovery"]["retry"]["at"].is_i64()).collect::<Vec<_>>();
    assert_eq!(tried_again, [true, true, false], "a provider that is overloaded is asked three times");
    let failed = &failures[2];
    assert_eq!((&failed["error"]["kind"], &failed["error"]["status"]), (&json!("overloaded"), &json!(529)));
    let result = ran.result();
    assert_eq!((&result["outcome"], &result["error"]), (&json!("failed"), &failed["error"]));
    assert_eq!(ran.messages().len(), 1, "only the prompt is in the transcript");

    let ran = Terret::scripted([broken]).run().exits(7);
    assert_eq!(ran.stdout, "");
    let error = "provider overloaded (HTTP 529): try later";
    assert!(ran.stderr.starts_with(&format!("✗ the model call failed: {error}; trying again in ")), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("\nterret: {error}\n")), "{}", ran.stderr);
}

#[test]
fn each_kind_of_model_error_has_its_exit_code() {
    for (kind, code) in [
        ("auth", 3),
        ("permission", 3),
        ("rate_limited", 7),
        ("quota", 7),
        ("overloaded", 7),
        ("server", 7),
        ("context_overflow", 7),
        ("invalid_request", 7),
        ("not_found", 7),
        ("refused", 1),
        ("network", 7),
        ("stalled", 7),
        ("truncated", 7),
        ("protocol", 7),
    ] {
        let ran = streamed([json!({"error": {"kind": kind}})]).exits(code);
        assert_eq!(ran.result()["error"]["kind"], kind);
    }
}

#[test]
fn an_exhausted_script_and_an_unmet_expectation_say_so() {
    let ran = streamed([calls([call("c1", "ls", json!({}))])]).exits(7);
    let message = ran.result()["error"]["message"].clone();
    assert!(message.as_str().unwrap().contains("the script is exhausted: it had 1 reply"), "{message}");

    let ran = streamed([json!({"text": "Hi.", "expect": {"contains": "tea"}})]).exits(7);
    let message = ran.result()["error"]["message"].clone();
    assert!(message.as_str().unwrap().contains("\"tea\", got a user message with the text \"Do it.\""), "{message}");
}

#[test]
fn the_last_permitted_model_call_still_has_its_tools_run() {
    let again = |n: u32| calls([call(&format!("c{n}"), "bash", json!({"command": format!("echo {n} >>log")}))]);
    let ran = Terret::scripted([again(1), again(2), again(3)]).args(["--json", "--max-turns", "2"]).run().exits(6);
    assert_eq!(std::fs::read_to_string(ran.path("log")).unwrap(), "1\n2\n");
    assert_eq!(ran.messages().last().unwrap()["toolCallId"], "c2");
    let result = ran.result();
    assert_eq!((&result["outcome"], &result["error"]["kind"]), (&json!("outOfBudget"), &json!("model_calls")));
    assert_eq!((&result["modelCalls"], &result["toolCalls"]), (&json!(2), &json!(2)));

    let text = Terret::scripted([again(1)]).args(["--max-turns", "1"]).run().exits(6);
    assert_eq!(text.stdout, "");
    assert!(text.stderr.contains("terret: out of budget: model calls"), "{}", text.stderr);
}

#[test]
fn a_refusal_fails_the_run() {
    let ran = streamed([json!({"text": "I can't help with that.", "stopReason": "refusal"})]).exits(1);
    let result = ran.result();
    assert_eq!((&result["error"]["kind"], &result["stopReason"]), (&json!("refused"), &json!("refusal")));
    assert_eq!(text_of(&ran.messages()[1]), "I can't help with that.");
}

#[test]
fn an_answer_that_was_cut_off_is_marked() {
    let cut = json!({"text": "Once upon a", "stopReason": "length"});
    let ran = streamed([cut.clone()]).exits(0);
    let result = ran.result();
    assert_eq!((&result["text"], &result["stopReason"]), (&json!("Once upon a"), &json!("length")));

    let ran = Terret::scripted([cut]).run().exits(0);
    assert_eq!(ran.stdout, "Once upon a\n");
    assert!(ran.stderr.contains("terret: the answer was cut off at the output limit"), "{}", ran.stderr);
}

#[test]
fn a_call_of_a_reply_that_was_cut_off_is_not_run() {
    let cut = json!({
        "content": [{"type": "toolCall", "id": "c1", "name": "bash", "argumentsText": "{\"command\":\"touch x\"}"}],
        "stopReason": "length",
    });
    let ran = streamed([cut, json!({"text": "Again.", "expect": {"contains": "cut off"}})]).exits(0);
    assert!(!ran.path("x").exists());
    assert_eq!(ran.of_type("tool_start").len(), 0);
}

#[test]
fn a_reply_that_can_not_be_worked_with_fails_the_run() {
    let twice = [call("c1", "ls", json!({})), call("c1", "ls", json!({}))];
    for (reply, part) in [
        (json!({"content": []}), "neither text nor a tool call"),
        (json!({"text": "  \n"}), "neither text nor a tool call"),
        (json!({"text": "Wait.", "stopReason": "toolUse"}), "called none"),
        (json!({"content": [], "stopReason": "length"}), "output limit"),
        (calls([call("", "ls", json!({}))]), "no id"),
        (calls(twice), "\"c1\""),
    ] {
        let ran = streamed([reply]).exits(1);
        let error = ran.result()["error"].clone();
        assert_eq!(error["kind"], "protocol");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        assert_eq!(ran.of_type("tool_start").len(), 0);
    }
}

#[test]
fn a_run_whose_time_is_up_is_stopped() {
    let reply = calls([call("c1", "bash", json!({"command": "touch before; sleep 600; touch after"}))]);
    let ran = Terret::scripted([reply]).args(["--json", "--timeout", "1s"]).run().exits(6);
    assert_eq!(ran.of_type("expired").len(), 1);
    assert_eq!(ran.result()["error"]["kind"], "time");
    assert!(ran.path("before").exists() && !ran.path("after").exists());
}

#[test]
fn the_same_call_over_and_over_ends_the_run() {
    let again = |n| calls([call(&format!("c{n}"), "ls", json!({}))]);
    let ran = Terret::scripted((1..20).map(again)).args(["--json"]).run().exits(6);
    assert_eq!(ran.result()["error"]["kind"], "loop");
}

#[test]
fn a_cost_that_can_not_be_known_can_not_be_limited() {
    let ran = Terret::scripted([json!({"text": "hi"})]).args(["--max-cost", "0.50"]).run().exits(2);
    assert!(ran.stderr.contains("the price of scripted/"), "{}", ran.stderr);
}

#[test]
fn waiting_for_standard_input_is_a_part_of_the_time() {
    let ran = Terret::scripted([json!({"text": "hi"})]).args(["--json", "--timeout", "300ms"]).stdin_stays_open().run();
    assert_eq!(ran.exits(6).result()["error"]["kind"], "time");
}
