//! Options, the prompt, and everything that keeps a run from starting.

use std::process::Command;

use serde_json::{Value, json};

use crate::terret::{Terret, text_of};

/// One complaint that holds these parts, no output, and in JSON the same as a result.
#[track_caller]
pub(crate) fn complains(start: impl Fn() -> Terret, code: i32, kind: &str, parts: &[&str]) {
    let ran = start().run().exits(code);
    assert_eq!(ran.stdout, "");
    for part in parts {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    let ran = start().args(["--output-format=json"]).run().exits(code);
    assert_eq!(ran.events().len(), 1);
    let result = ran.result();
    assert_eq!((&result["outcome"], &result["error"]["kind"]), (&json!("failed"), &json!(kind)));
    for part in parts {
        assert!(result["error"]["message"].as_str().unwrap().contains(part), "{result}");
    }
}

#[test]
fn the_prompt_is_the_argument_and_then_standard_input() {
    for (args, stdin, prompt) in [
        (&["Do it."][..], &b""[..], "Do it."),
        (&["-p", "Do it."], b"", "Do it."),
        (&["-p", "--", "--version"], b"", "--version"),
        (&["-p", "Review:"], b"+ a\n- b\n", "Review:\n\n+ a\n- b"),
        (&["-p"], b"Do it.\n", "Do it."),
        (&["-p", " \u{dc} \n"], b" \n", "\u{dc}"),
        (&["-p", "Read:"], b"a\xFFb", "Read:\n\na\u{FFFD}b"),
    ] {
        for command in [&[][..], &["run"], &["exec"]] {
            let terret = Terret::new().args(command).script([json!({"text": "Done."})]).args(["--json"]);
            let ran = terret.args(args).stdin(stdin).run().exits(0);
            assert_eq!(text_of(&ran.messages()[0]), prompt);
        }
    }
}

#[test]
fn without_a_prompt_it_says_what_to_do() {
    let start = || Terret::new().script([json!({"text": "Done."})]).args(["-p"]).stdin(" \n");
    complains(start, 2, "usage", &["no prompt", "terret -p", "terret demo", "--help"]);
}

#[test]
fn what_is_wrong_is_said_before_standard_input_has_ended() {
    let run = Terret::new().args(["-p", "x", "-m", "openai/gpt-5"]).stdin_stays_open().start();
    run.says("no key");
    run.wait().exits(3);
}

#[test]
fn a_prompt_without_quotes_is_told_from_a_command() {
    for words in [&["fix", "the", "test"][..], &["-p", "fix", "the", "test"], &["run", "fix", "the"]] {
        complains(|| Terret::new().args(words), 2, "usage", &["\"the\"", "quotes"]);
    }
}

#[test]
fn a_misspelt_command_is_no_prompt() {
    for (word, command) in [("modls", "models"), ("sesions", "session"), ("demos", "demo"), ("comfig", "config")] {
        let start = || Terret::new().script([json!({"text": "Done."})]).args([word]);
        complains(start, 2, "usage", &["did you mean `terret ", command, "terret -p"]);
        start().args(["-p"]).run().exits(0);
        Terret::new().args(["run"]).script([json!({"text": "Done."})]).args([word]).run().exits(0);
    }
    for prompt in ["test", "fix", "modls please"] {
        Terret::new().script([json!({"text": "Done."})]).args([prompt]).run().exits(0);
    }
}

#[test]
fn an_unknown_option_is_named_with_the_nearest_one() {
    let ran = Terret::new().args(["-p", "x", "--modle", "a/b"]).run().exits(2);
    assert!(ran.stderr.contains("--modle") && ran.stderr.contains("'--model'"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    for json in [&["--json"][..], &["-o", "json"], &["-ostream-json"], &["--output-format=stream-json"]] {
        let ran = Terret::new().args(["-p", "x", "--modle", "a/b"]).args(json).run().exits(2);
        let error = ran.result()["error"].clone();
        assert_eq!(error, json!({"kind": "usage", "message": "unexpected argument '--modle' found"}));
    }
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for (args, part) in [
        (&["--max-turns", "0"][..], "'--max-turns <N>': expected a whole number above 0"),
        (&["--max-cost", "-1"], "'--max-cost <DOLLARS>': expected an amount of dollars above 0"),
        (&["--max-turns", "many"], "--max-turns"),
        (&["--max-output-tokens", "-1"], "-1"),
        (&["--output-format", "xml"], "stream-json"),
        (&["--permission-mode", "yolo"], "read-only"),
        (&["--wire", "soap"], "anthropic-messages"),
        (&["--json", "--output-format", "text"], "--output-format"),
    ] {
        let ran = Terret::new().args(["-p", "x"]).args(args).run().exits(2);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}

#[test]
fn half_a_models_name_is_completed() {
    for (half, part) in [
        ("openai", "did you mean openai/gpt-6.2-sol?"),
        ("claude", "did you mean anthropic/claude-sonnet-5-5?"),
        ("gpt-6.2-sol:high", "did you mean openai/gpt-6.2-sol:high?"),
        ("nothing-of-this-name", "write provider/model"),
    ] {
        let ran = Terret::new().args(["-p", "x", "--model", half]).run().exits(2);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}

#[test]
fn help_and_version_are_output_and_no_errors() {
    let version = Terret::new().args(["--version"]).run().exits(0);
    let commit = ["log", "-1", "--format= (%h %cs)", "--abbrev=12"];
    let commit = Command::new("git").args(commit).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    // None where the sources were unpacked from an archive.
    let commit = commit.map(|output| String::from_utf8(output.stdout).unwrap()).unwrap_or_default();
    assert_eq!(version.stdout, format!("terret {}{}\n", env!("CARGO_PKG_VERSION"), commit.trim_end()));
    for args in [&["--help"][..], &["-h"], &["help"], &["demo", "--help"], &["wire", "decode", "--help"]] {
        let help = Terret::new().args(args).run().exits(0);
        assert!(help.stdout.contains("Usage: terret"), "{}", help.stdout);
        assert_eq!(help.stderr, "");
    }
    let help = Terret::new().args(["--help"]).run().stdout;
    for part in ["130 interrupted", "anthropic    ANTHROPIC_API_KEY", "ollama       on this machine", "terret demo"] {
        assert!(help.contains(part), "{help}");
    }
}

#[test]
fn it_works_in_the_folder_that_it_is_given() {
    let list =
        json!({"content": [{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "pwd; ls"}}]});
    let ran = Terret::scripted([list, json!({"text": "Done."})])
        .file("sub/inside.txt", "")
        .args(["-C", "sub", "--json"])
        .run()
        .exits(0);
    let folder = ran.path("sub").display().to_string();
    assert_eq!(ran.tool_results(), [(format!("{folder}\ninside.txt"), false)]);
    assert_eq!(ran.events()[0]["cwd"], folder);
}

#[test]
fn a_folder_that_is_none_is_named() {
    for (folder, part) in [("nowhere", "nowhere"), ("a.txt", "not a folder")] {
        let start = || Terret::scripted([json!({"text": "Done."})]).file("a.txt", "").args(["--cd", folder]);
        complains(start, 2, "usage", &["can't work in", part]);
    }
}

#[test]
fn only_the_tools_that_were_picked_are_offered() {
    let tools = |names: &str| {
        let ran = Terret::scripted([json!({"text": "Done."})]).args(["--json", "--tools", names]).run().exits(0);
        ran.events()[0]["tools"].clone()
    };
    assert_eq!(tools("ls,read"), json!(["read", "ls"]));
    assert_eq!(tools(" ls , "), json!(["ls"]));
    assert_eq!(tools(""), json!([]));
    let start = || Terret::scripted([json!({"text": "Done."})]).args(["--tools", "ls,tea"]);
    complains(start, 2, "usage", &["--tools", "\"tea\"", "read, bash, edit, write, grep, find, ls"]);
}

#[test]
fn a_tool_that_was_not_picked_can_not_be_called() {
    let call =
        json!({"content": [{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "touch x"}}]});
    let ran = Terret::scripted([call, json!({"text": "Done."})]).args(["--json", "--tools", "ls"]).run().exits(0);
    assert_eq!(ran.tool_results(), [("There is no tool \"bash\". The tools are: ls.".to_owned(), true)]);
    assert!(!ran.path("x").exists());
}

#[test]
fn read_only_allows_looking_and_nothing_else() {
    let call = |id: &str, tool: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": tool, "arguments": arguments});
    let calls = json!({"content": [
        call("c1", "read", json!({"path": "a.txt"})),
        call("c2", "ls", json!({})),
        call("c3", "grep", json!({"pattern": "he"})),
        call("c4", "find", json!({"pattern": "*.txt"})),
        call("c5", "write", json!({"path": "b.txt", "content": "x"})),
        call("c6", "edit", json!({"path": "a.txt", "edits": [{"oldText": "hello", "newText": "bye"}]})),
        call("c7", "bash", json!({"command": "touch c.txt"})),
    ]});
    let ran = Terret::scripted([calls, json!({"text": "Done."})])
        .file("a.txt", "hello\n")
        .args(["--json", "--permission-mode", "read-only"])
        .run()
        .exits(0);
    let errors: Vec<bool> = ran.tool_results().iter().map(|(_, is_error)| *is_error).collect();
    assert_eq!(errors, [false, false, false, false, true, true, true]);
    for (text, _) in &ran.tool_results()[4..] {
        assert!(text.contains("denied") && text.contains("read-only"), "{text}");
    }
    assert_eq!(std::fs::read_to_string(ran.path("a.txt")).unwrap(), "hello\n");
    assert!(!ran.path("b.txt").exists() && !ran.path("c.txt").exists());
}

#[test]
fn a_model_that_can_not_be_asked_is_explained() {
    for (model, parts) in [
        ("gpt-5", &["\"gpt-5\"", "openai/gpt-5?"][..]),
        ("/gpt-5", &["provider/model"]),
        ("openai/", &["provider/model"]),
        ("", &["provider/model"]),
        ("antropic/claude", &["no provider \"antropic\"", "did you mean anthropic?"]),
        ("zzz/m", &["no provider \"zzz\"", "custom/MODEL", "--base-url"]),
        ("custom/m", &["--base-url", "TERRET_BASE_URL"]),
    ] {
        complains(|| Terret::new().args(["-p", "x", "--model", model]), 2, "usage", parts);
    }
    for (option, value) in [("--base-url", "http://127.0.0.1:9"), ("--wire", "openai-completions")] {
        let start = || Terret::scripted([json!({"text": "Done."})]).args([option, value]);
        complains(start, 2, "usage", &["scripted", "--base-url"]);
    }
}

#[test]
fn a_missing_key_is_an_authentication_problem_that_names_the_variables() {
    for (model, variables) in [
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
        ("openai/gpt-5:high", "OPENAI_API_KEY"),
        ("google/gemini-2.5-pro", "GEMINI_API_KEY"),
        ("openrouter/qwen/qwen3-coder:free", "OPENROUTER_API_KEY"),
    ] {
        complains(|| Terret::new().args(["-p", "x", "--model", model]), 3, "auth", &["no key", variables]);
    }
}

#[test]
fn a_script_that_can_not_be_read_is_named_with_its_line() {
    let script = |content: &'static [u8]| {
        move || Terret::new().file("s.jsonl", content).args(["-p", "x", "-m", "scripted:s.jsonl"])
    };
    complains(script(b"{\"text\":\"a\"}\n\n{\"txt\":\"b\"}\n"), 2, "usage", &["s.jsonl, line 3", "txt"]);
    complains(script(b"{\"text\":\"a\"\n"), 2, "usage", &["s.jsonl, line 1"]);
    complains(script(b"{\"text\":\"\xFF\"}\n"), 2, "usage", &["s.jsonl", "UTF-8"]);
    complains(|| Terret::new().args(["-p", "x", "-m", "scripted:none.jsonl"]), 2, "usage", &["none.jsonl"]);
}
