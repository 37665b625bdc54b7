//! `terret prompt show`: what the model is told.

use std::fs;

use serde_json::{Value, json};

use crate::server::Server;
use crate::servers::chat_text;
use crate::terret::Terret;

#[test]
fn the_system_prompt_and_the_tools_are_short() {
    let shown = Terret::new().args(["prompt", "show"]).run().exits(0).stdout;
    assert!(shown.starts_with("You are terret, a coding agent. You work in the folder /"), "{shown}");
    for tool in ["read", "bash", "edit", "write", "grep", "find", "ls"] {
        assert_eq!(shown.matches(&format!("\n[tool {tool}] ")).count(), 1, "{shown}");
    }
    // Under 2,000 tokens, of which each is longer than two bytes in English and in JSON.
    assert!(shown.len() / 2 < 2000, "{} bytes", shown.len());
}

#[test]
fn it_is_what_a_run_sends() {
    let server = Server::answering([chat_text("Hi.")]);
    let terret =
        Terret::new().file("AGENTS.md", "Be kind.\n").args(["-p", "Hi!", "-m", "custom/m", "--tools", "ls,read"]);
    let ran = terret.args(["--base-url", &server.url]).run().exits(0);
    let sent = server.requests()[0].body.clone();

    let show = || ran.then().args(["prompt", "show", "Hi!", "--tools", "ls,read"]);
    let shown = show().run().exits(0).stdout;
    let system = sent["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("Be kind."), "{system}");
    assert!(shown.starts_with(&format!("{system}\n\n[tool read] ")), "{shown}");
    assert!(shown.ends_with("\n\n[user] Hi!\n"), "{shown}");

    // The same to the byte, by way of the request.
    let request = show().args(["--json"]).run().exits(0).stdout;
    let encode = ["wire", "encode", "openai-completions", "--model", "custom/m"];
    let encoded: Value = serde_json::from_str(&ran.then().args(encode).stdin(request).run().exits(0).stdout).unwrap();
    assert_eq!((&encoded["messages"], &encoded["tools"]), (&sent["messages"], &sent["tools"]));
}

#[test]
fn it_is_the_same_for_every_run_in_a_folder() {
    let show = |terret: Terret| terret.args(["prompt", "show", "--json"]).run().exits(0);
    let ran = show(Terret::new().file(".git/HEAD", "").file("AGENTS.md", "Be kind.").file("a.txt", ""));
    let first = ran.stdout.clone();
    fs::write(ran.path("b.txt"), "").unwrap();
    assert_eq!(show(ran.then().env("OTHER", "1")).stdout, first);
}

#[test]
fn nothing_live_gets_to_a_terminal() {
    let terret = Terret::new().file("AGENTS.md", "a\u{1b}[2Jb\u{202e}").args(["prompt", "show"]);
    let shown = terret.run().exits(0).stdout;
    assert!(shown.contains("a[2Jb\n") && !shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    let ran = Terret::new().args(["prompt", "show", "--tools", "tea"]).run().exits(2);
    assert!(ran.stderr.contains("\"tea\""), "{}", ran.stderr);
    let settings = Terret::new().config("tools = ['ls']").args(["prompt", "show", "--json"]).run().exits(0);
    let request: Value = serde_json::from_str(&settings.stdout).unwrap();
    assert_eq!(request["tools"][0]["name"], json!("ls"));
    assert_eq!(request["tools"].as_array().unwrap().len(), 1);
}
