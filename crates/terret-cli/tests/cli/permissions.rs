//! What runs without a question, and what happens where nobody can be asked.

use serde_json::{Value, json};

use crate::terret::Terret;

fn bash(command: &str) -> [Value; 2] {
    let call = json!({"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": command}});
    [json!({"content": [call]}), json!({"text": "Done."})]
}

#[test]
fn a_question_that_nobody_can_answer_ends_the_run_and_says_what_would_spare_it() {
    let ran = Terret::scripted(bash("touch x")).args(["--json", "--permission-mode", "ask"]).run().exits(5);
    assert!(!ran.path("x").exists());
    let result = ran.result();
    assert_eq!(result["outcome"], "cancelled");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("--allow 'bash(touch x)'"), "{message}");
}

#[test]
fn what_is_suggested_lets_the_call_run() {
    for command in ["touch x", "touch x && echo done > y"] {
        let ran = Terret::scripted(bash(command)).args(["--json", "--permission-mode", "ask"]).run().exits(5);
        let message = ran.result()["error"]["message"].as_str().unwrap().to_owned();
        let rule = message.split('\'').nth(1).unwrap();
        let flags = ["--json", "--permission-mode", "ask", "--allow", rule];
        assert!(Terret::scripted(bash(command)).args(flags).run().exits(0).path("x").exists(), "{rule}");
    }
}

#[test]
fn what_is_allowed_runs_and_so_does_what_only_reads() {
    for (command, flags) in [("echo hello", &[][..]), ("touch x", &["--allow", "bash(touch *)"])] {
        let ran = Terret::scripted(bash(command)).args(["--json", "--permission-mode", "ask"]).args(flags).run();
        ran.exits(0);
    }
}

#[test]
fn a_rule_that_denies_wins_over_everything() {
    let flags = ["--json", "--deny", "bash(touch *)", "--allow", "bash"];
    let ran = Terret::scripted(bash("echo x && /usr/bin/touch x")).args(flags).run().exits(0);
    let (text, is_error) = &ran.tool_results()[0];
    assert!(*is_error && text.contains("a rule forbids it: bash(touch *)"), "{text}");
    assert!(!ran.path("x").exists());
}

#[test]
fn a_rule_that_is_none_is_a_usage_error() {
    let ran = Terret::scripted(bash("ls")).args(["--allow", "bash(ls"]).run().exits(2);
    assert!(ran.stderr.contains("the closing parenthesis is missing"), "{}", ran.stderr);
}
