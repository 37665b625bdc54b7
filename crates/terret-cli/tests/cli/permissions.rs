//! What runs without a question, what happens where nobody can be asked, and `terret permissions`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::command_line::complains;
use crate::terret::{Ran, Terret};

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

#[test]
fn a_rule_about_a_tool_that_there_is_not_is_complained_about() {
    let ran = Terret::scripted(bash("ls")).args(["--deny", "bsh(rm *)", "--allow", "skill"]).run().exits(0);
    assert!(ran.stderr.contains("--deny: there is no tool \"bsh\", which bsh(rm *) is about"), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("there is no tool").count(), 1, "{}", ran.stderr);
    // One that isn't offered is one all the same.
    let ran = Terret::scripted(bash("ls")).args(["--tools", "read", "--deny", "write"]).run().exits(0);
    assert!(!ran.stderr.contains("there is no tool \"write\""), "{}", ran.stderr);
}

/// Whether a further run in this mode lets a command run.
#[track_caller]
fn lets(terret: Terret, command: &str, mode: &str) -> bool {
    let ran = terret.script(bash(command)).args(["-p", "Do it.", "--json", "--permission-mode", mode]).run();
    match ran.code() {
        0 => ran.tool_results().iter().all(|(_, is_error)| !is_error),
        5 => false,
        code => panic!("{code}: {}", ran.stderr),
    }
}

#[track_caller]
fn permissions(terret: Terret, args: &[&str]) -> Ran {
    terret.args(["permissions"]).args(args).run().exits(0)
}

/// What is listed, as decision, rule and scope.
#[track_caller]
fn listed(terret: Terret, args: &[&str]) -> Vec<String> {
    let ran = permissions(terret, &[args, &["--json"]].concat());
    let rules: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    rules.iter().map(|rule| [text(rule, "decision"), text(rule, "rule"), text(rule, "scope")].join(" ")).collect()
}

#[test]
fn a_rule_of_a_project_holds_in_all_of_it_until_it_is_revoked_and_nowhere_else() {
    let ran = permissions(Terret::new().file(".git/HEAD", ""), &["allow", "bash(touch x)"]);
    let root = ran.path("").canonicalize().unwrap();
    assert_eq!(ran.stderr, format!("allow bash(touch x) in {}\n", root.display()));
    assert!(lets(ran.then(), "touch x", "ask"));
    assert!(lets(ran.then().within("a/b"), "touch x", "ask"));
    assert!(!lets(ran.then(), "touch y", "ask"));

    // By a link to it, it is the same project; what only lies beside it is another one.
    std::os::unix::fs::symlink(&root, ran.home("link")).unwrap();
    let link = ran.home("link").display().to_string();
    assert!(lets(ran.then().args(["-C", &link]), "touch x", "ask"));
    let home = ran.home("").display().to_string();
    assert!(!lets(ran.then().args(["-C", &home]), "touch x", "ask"));
    assert_eq!(listed(ran.then(), &["-C", &link]), ["allow bash(touch x) project"]);
    assert_eq!(listed(ran.then(), &["-C", &home]), [""; 0]);

    let file = ran.home(".state/terret/permissions.json");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let none = ran.then().args(["permissions", "revoke", "bash(tuoch x)"]).run().exits(2);
    assert!(none.stderr.contains("did you mean 'bash(touch x)'?"), "{}", none.stderr);
    let revoked = permissions(ran.then().within("a"), &["revoke", "bash(touch x)"]);
    assert_eq!(revoked.stderr, "revoked: allow bash(touch x)\n");
    assert!(!lets(ran.then(), "touch x", "ask"));
}

#[test]
fn a_rule_about_a_tool_that_is_not_there_is_kept_and_said() {
    let ran = permissions(Terret::new(), &["allow", "bsh(ls)", "bash(ls)", "*"]);
    assert_eq!(ran.stderr.matches("there is no tool").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("there is no tool \"bsh\""), "{}", ran.stderr);
    assert_eq!(listed(ran.then(), &[]).len(), 3);
}

#[test]
fn paths_in_a_rule_of_a_project_count_from_its_root() {
    let ran = permissions(Terret::new().file(".git/HEAD", ""), &["allow", "write(src/**)"]);
    for (folder, path, decision) in
        [("", "src/a", "allow"), ("part", "src/a", "ask"), ("part", "../src/a", "allow"), ("src", "a", "allow")]
    {
        let check = ["check", "write", path, "--permission-mode", "ask"];
        let checked = permissions(ran.then().within(folder), &check);
        assert!(checked.stdout.starts_with(&format!("{decision}: ")), "{folder} {path}: {}", checked.stdout);
    }
}

#[test]
fn programs_that_give_rules_at_the_same_time_lose_none() {
    let ran = permissions(Terret::new(), &["deny", "read(.env)"]);
    let give = |n: u32| ran.then().args(["permissions", "allow", &format!("bash(make {n})")]).start();
    let running: Vec<_> = (0..12).map(give).collect();
    running.into_iter().for_each(|running| drop(running.wait().exits(0)));
    let mut rules = listed(ran.then(), &[]);
    rules.sort();
    let mut expected: Vec<String> = (0..12).map(|n| format!("allow bash(make {n}) project")).collect();
    expected.push("deny read(.env) project".into());
    expected.sort();
    assert_eq!(rules, expected);

    let all = permissions(ran.then(), &["revoke", "--all"]);
    assert_eq!((all.stderr.lines().count(), listed(ran.then(), &[]).len()), (13, 0));
}

#[test]
fn a_file_of_rules_that_can_not_be_read_is_named_and_left_as_it_is() {
    for damaged in [
        "",
        "{",
        "[]",
        r#"{"projects": {}, "more": 1}"#,
        r#"{"projects": {"/x": {"allow": ["bash("]}}}"#,
        r#"{"projects": {"/x": {"alow": []}}}"#,
    ] {
        let terret = || Terret::scripted(bash("ls")).home_file(".state/terret/permissions.json", damaged);
        complains(terret, 4, "configuration", &["/.state/terret/permissions.json: ", " line 1 "]);
        for args in [&["permissions"][..], &["permissions", "allow", "read"], &["permissions", "revoke", "--all"]] {
            let ran = Terret::new().home_file(".state/terret/permissions.json", damaged).args(args).run().exits(4);
            assert_eq!(fs::read_to_string(ran.home(".state/terret/permissions.json")).unwrap(), damaged);
        }
    }
}

#[test]
fn no_permission_widens_a_mode_that_only_looks() {
    let ran = permissions(Terret::new(), &["allow", "bash", "write", "edit"]);
    assert!(!lets(ran.then(), "touch x", "read-only"));
    assert!(listed(ran.then(), &[]).iter().all(|rule| rule.starts_with("allow ")));
    // What somebody allows in the same breath runs, and can't write all the same.
    assert!(!lets(ran.then().args(["--allow", "*"]), "touch x", "read-only"));
    assert!(!ran.path("x").exists());
    // What is denied and asked about is so in every mode.
    permissions(ran.then(), &["ask", "bash(ls *)"]);
    assert!(!lets(ran.then(), "ls", "read-only"));
    let list = permissions(ran.then().env("TERRET_PERMISSION_MODE", "read-only"), &[]).stdout;
    assert_eq!(list.matches("not in read-only mode").count(), 3, "{list}");
}

#[test]
fn rules_of_all_places_hold_together_and_are_listed_with_where_they_come_from() {
    let ran =
        permissions(Terret::new().config("deny = ['bash(rm *)']\nask = ['bash(mv *)']\n"), &["allow", "bash(ls)"]);
    let terret = || ran.then().env("TERRET_DENY", "bash(ln *)");
    let list = permissions(terret(), &[]).stdout;
    let root = ran.path("").canonicalize().unwrap();
    let expected = [
        "deny   bash(ln *)  environment  TERRET_DENY".to_owned(),
        "deny   bash(rm *)  file         ~/.config/terret/config.toml:1".to_owned(),
        "ask    bash(mv *)  file         ~/.config/terret/config.toml:2".to_owned(),
        format!("allow  bash(ls)    project      {}", root.display()),
    ];
    assert_eq!(list.lines().collect::<Vec<_>>(), expected);
    for command in ["rm -f x", "ln -s a b", "touch x", "mv a b"] {
        assert!(!lets(terret().args(["--deny", "bash(touch *)"]), command, "workspace"), "{command}");
    }
    let explained = terret().args(["config", "explain", "deny"]).run().exits(0).stdout;
    assert!(explained.contains("\n    as well as ['bash(rm *)']  ~/.config/terret/config.toml:1\n"), "{explained}");
    let elsewhere = ran.then().args(["permissions", "revoke", "bash(rm *)"]).run().exits(2);
    assert!(elsewhere.stderr.contains("comes from ~/.config/terret/config.toml:1"), "{}", elsewhere.stderr);
}

#[test]
fn a_call_is_checked_without_being_made() {
    let ran = permissions(Terret::new(), &["deny", "bash(git push *)"]);
    permissions(ran.then(), &["ask", "bash(rm *)"]);
    let root = ran.path("").canonicalize().unwrap().display().to_string();
    for (args, told, proposed) in [
        (&["git push --force"][..], format!("deny: bash(git push *) (project, {root})\n"), ""),
        (&["cd x && rm y"], format!("ask: bash(rm *) (project, {root})\n"), ""),
        (&["ls -l"], "allow: it only reads\n".into(), ""),
        (&["make"], "allow: no rule is about it, and the permission mode is workspace\n".into(), ""),
        (
            &["make", "--permission-mode", "ask"],
            "ask: no rule is about it, and the permission mode is ask\n".into(),
            "terret permissions allow 'bash(make)' would let it run\n",
        ),
        (&["write", "x"], "allow: no rule is about it, and the permission mode is workspace\n".into(), ""),
    ] {
        let checked = permissions(ran.then(), &[&["check"], args].concat());
        assert_eq!((checked.stdout, checked.stderr.as_str()), (told, proposed), "{args:?}");
    }
    let unknown = ran.then().args(["permissions", "check", "wirte", "x"]).run().exits(2);
    assert!(unknown.stderr.contains("there is no tool \"wirte\""), "{}", unknown.stderr);
    let json = permissions(ran.then(), &["check", "rm x", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["decision"], &json["why"], &json["rules"][0]["rule"]),
        (&json!("ask"), &json!("rules"), &json!("bash(rm *)"))
    );
}

#[test]
fn a_rule_of_a_session_holds_where_it_goes_on_and_not_in_a_fork() {
    let ran = Terret::scripted([json!({"text": "Hello."})]).args(["--json"]).run().exits(0);
    let id = ran.session().to_string();
    permissions(ran.then(), &["allow", "-r", &id, "bash(touch x)"]);
    assert_eq!(listed(ran.then(), &["-r", &id]), ["allow bash(touch x) session"]);
    assert_eq!(listed(ran.then(), &[]), [""; 0]);
    assert!(!lets(ran.then(), "touch x", "ask"));
    assert!(lets(ran.then().args(["-r", &id]), "touch x", "ask"));
    assert!(!lets(ran.then().args(["-r", &id, "--fork", "1"]), "touch x", "ask"));
    // Also after what a run has noted of its own.
    assert!(lets(ran.then().args(["-r", &id]), "touch x", "ask"));
    permissions(ran.then(), &["revoke", "-r", &id, "bash(touch x)"]);
    assert!(!lets(ran.then().args(["-r", &id]), "touch x", "ask"));
}

#[test]
fn what_a_rule_asks_about_is_said_where_no_permission_would_help() {
    let ran = Terret::scripted(bash("touch x")).args(["--json", "--ask", "bash(touch *)", "--allow", "bash"]).run();
    let message = ran.exits(5).result()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("; the rule bash(touch *) asks about it, whatever is allowed"), "{message}");
    let ran = Terret::scripted(bash("touch x && touch 'y z'")).args(["--json", "--permission-mode", "ask"]).run();
    let message = ran.exits(5).result()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.ends_with(
            "; --allow 'bash(touch x)' --allow 'bash(touch y?z)' lets it run, and `terret permissions allow 'bash(touch \
             x)' 'bash(touch y?z)'` from now on in this project"
        ),
        "{message}"
    );
}
