//! Rules about calls: what runs, what is asked about, what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use serde_json::json;
use terret_agent::machine::Verdict;
use terret_tools::{BashOptions, Decision, Rule, RuleJudge, Rules, Unmatched, Why, Workspace, workspace_tools};

struct Given {
    folder: tempfile::TempDir,
    judge: RuleJudge,
}

fn given(rules: &[(Decision, &str)], unmatched: Unmatched) -> Given {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::new(folder.path()).unwrap();
    let tools = workspace_tools(&workspace, BashOptions::default());
    let mut list = Rules::new();
    rules.iter().for_each(|(decision, rule)| list.add(*decision, rule.parse().unwrap()));
    Given { judge: RuleJudge::new(&workspace, &tools, list, unmatched), folder }
}

impl Given {
    fn bash(&self, command: &str) -> &'static str {
        said(self.judge.judge("bash", &json!({ "command": command })))
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn path(&self, tool: &str, path: &str) -> &'static str {
        said(self.judge.judge(tool, &json!({ "path": path })))
    }
}

fn said(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask { .. } => "ask",
        Verdict::Deny { .. } => "deny",
        other => panic!("{other:?}"),
    }
}

use Decision::{Allow, Ask, Deny};

#[test]
fn a_permission_needs_every_command_to_be_permitted() {
    let given = given(&[(Allow, "bash(cargo test *)"), (Allow, "bash(echo *)")], Unmatched::Ask);
    for command in ["cargo test", "cargo test --lib && echo done", "cd src; cargo test | tail -5", "echo x >/dev/null"]
    {
        assert_eq!(given.bash(command), "allow", "{command}");
    }
    for command in [
        "cargo run",
        "echo x && id",
        "echo $(id)",
        "echo `id`",
        "echo x > y",
        "PATH=/tmp echo x",
        "export PATH=/tmp; echo x",
        "bash -c 'echo x'",
        "echo x | sh",
        "echo x & id",
        "./echo x",
        "echo x\rid",
        "cargo test\nid",
        "lsof",
        "cargo tests",
        "eval echo x",
        "echo() { id; }; echo x",
        "alias echo=id; echo x",
        "source x; echo y",
        "echo x ; . ./y",
        "echo x |& id",
    ] {
        assert_eq!(given.bash(command), "ask", "{command}");
    }
}

#[test]
fn what_only_reads_needs_no_permission() {
    let given = given(&[], Unmatched::Ask);
    assert_eq!(given.bash("ls -l | grep x && cat README.md"), "allow");
    assert_eq!(given.path("read", "src/main.rs"), "allow");
    for (tool, path) in [("write", "x"), ("edit", "src/main.rs")] {
        assert_eq!(given.path(tool, path), "ask");
    }
    for command in
        ["find . -exec id ;", "sed 1e x", "sort -o x y", "xargs id", "env id", "git -c core.fsmonitor=id status"]
    {
        assert_eq!(given.bash(command), "ask", "{command}");
    }
}

#[test]
fn a_denial_finds_its_command_wherever_it_stands() {
    let given = given(&[(Deny, "bash(rm *)"), (Allow, "bash")], Unmatched::Allow);
    for command in [
        "rm -rf x",
        "ls && rm x",
        "ls; (rm x)",
        "for f in *; do rm $f; done",
        "echo $(rm x)",
        "/bin/rm x",
        "sudo rm x",
        "find . | xargs -n 1 rm",
        "bash -c 'rm x'",
        "timeout 5 nice rm x",
        "x() { rm y; }; x",
        "eval 'rm x'",
        "\\rm x",
        "'rm' x",
        "A=1 rm x",
        "cat <(rm x)",
        "if rm x; then ls; fi",
        "sudo -u bob rm x",
        "sudo --user bob -- rm x",
        "timeout -s KILL 5 rm x",
        "ls | xargs -I {} rm {}",
        "ls | xargs -I{} -d '\\n' rm {}",
        "env -u A B=1 rm x",
        "env -S 'rm x'",
        "exec -a ls rm x",
        "flock lock rm x",
        "flock lock -c 'rm x'",
        "busybox rm x",
        "find . -name x -exec rm {} +",
        "find . -exec sh -c 'rm \"$1\"' _ {} \\;",
        "fd x -X rm",
        "watch -n 1 'rm x'",
        "ls | parallel rm {}",
        "trap 'rm x' EXIT",
        "bash -ce 'rm x'",
        "bash -c -x 'rm x'",
        "bash -o pipefail -c 'rm x'",
        "su bob -c 'rm x'",
        "\\time -f %e rm x",
        // What can't be told beforehand.
        "$'rm' x",
        "x=rm; $x y",
        "$(echo rm) x",
        "/bin/r? x",
        "r{m,} x",
        "eval \"$x\"",
        "bash -c \"$x\"",
        r#"bash -c "bash -c \"bash -c 'bash -c rm'\"""#,
    ] {
        assert_eq!(given.bash(command), "deny", "{command}");
    }
    for command in ["sudo apt rm x", "ls | xargs grep rm", "find . -name rm", "cargo $x", "echo {} \"$rm\""] {
        assert_eq!(given.bash(command), "allow", "{command}");
    }
    assert_eq!(given.bash("echo rm; cargo rm"), "allow");
}

#[test]
fn a_denial_wins_over_a_question_and_that_over_a_permission() {
    let rules = [(Allow, "bash(git *)"), (Ask, "bash(git push *)"), (Deny, "bash(git push --force *)")];
    let given = given(&rules, Unmatched::Allow);
    assert_eq!(given.bash("git status"), "allow");
    assert_eq!(given.bash("git push"), "ask");
    assert_eq!(given.bash("git push --force origin"), "deny");
    assert_eq!(given.bash("make"), "allow", "what no rule is about");
}

#[test]
fn a_command_line_that_is_too_long_to_be_read_is_asked_about_where_commands_are_restricted() {
    let long = format!("{} rm x", "a;".repeat(100_000));
    assert_eq!(given(&[(Deny, "bash(rm *)")], Unmatched::Allow).bash(&long), "ask");
    assert_eq!(given(&[], Unmatched::Allow).bash(&long), "allow");
    assert_eq!(given(&[(Deny, "bash")], Unmatched::Allow).bash(&long), "deny");
}

#[test]
fn paths_are_judged_by_where_they_lead() {
    let rules = [(Allow, "write(out/**)"), (Deny, "read(.env)"), (Deny, "read(secret)")];
    let given = given(&rules, Unmatched::Ask);
    let root = given.folder.path();
    std::fs::create_dir_all(root.join("out")).unwrap();
    std::fs::create_dir_all(root.join("secret")).unwrap();
    std::os::unix::fs::symlink(root.join("secret"), root.join("open")).unwrap();
    std::os::unix::fs::symlink(root, root.join("out/up")).unwrap();
    assert_eq!(given.path("write", "out/a/b.txt"), "allow");
    assert_eq!(given.path("write", "out/../x"), "ask");
    assert_eq!(given.path("write", "out/up/x"), "ask", "a link out of the folder");
    assert_eq!(given.path("read", "a/../.env"), "deny");
    assert_eq!(given.path("read", "open/key"), "deny", "a link into a forbidden folder");
    assert_eq!(given.path("read", "README.md"), "allow");
    assert_eq!(given.path("read", "/elsewhere/.env"), "deny", "a denied name, in any folder");
}

#[test]
fn rules_can_be_changed_while_they_are_in_use() {
    let given = given(&[], Unmatched::Ask);
    assert_eq!(given.bash("make"), "ask");
    given.judge.clone().change(|rules| rules.add(Allow, "bash(make *)".parse().unwrap()));
    assert_eq!(given.bash("make"), "allow");
    given.judge.change(|rules| assert!(rules.remove(&"bash(make *)".parse().unwrap())));
    assert_eq!(given.bash("make"), "ask");
}

#[test]
fn where_nothing_but_reading_is_allowed_the_model_is_told_so() {
    let given = given(&[], Unmatched::Deny);
    assert_eq!((given.bash("ls"), given.bash("make")), ("allow", "deny"));
    let Verdict::Deny { reason } = given.judge.judge("write", &json!({"path": "x"})) else { panic!() };
    assert!(reason.contains("only look"), "{reason}");
}

#[test]
fn the_rules_that_are_proposed_permit_the_call_and_hardly_any_other() {
    let given = given(&[(Allow, "bash(cargo fmt)"), (Ask, "bash(git push *)"), (Deny, "write(.env)")], Unmatched::Ask);
    let folder = given.root();
    let proposed = |tool: &str, arguments| -> Vec<String> {
        given.judge.permissions_for(tool, &arguments, &folder).iter().map(ToString::to_string).collect()
    };
    for (command, rules, others) in [
        ("cargo test --lib", &["bash(cargo test --lib)"][..], &["cargo test", "cargo test --lib x"][..]),
        ("cargo fmt && cargo build; ls", &["bash(cargo build)"], &["cargo build -q"]),
        ("make a && make b", &["bash(make a)", "bash(make b)"], &["make"]),
        ("rm *.o 'a[1]' \\*", &["bash(rm \\*.o a\\[1\\] \\*)"], &["rm x.o a1 x", "rm x.o 'a[1]' x y"]),
        ("git commit -m 'a b'", &["bash(git commit -m a?b)"], &["git commit -m ab"]),
        (r#"make 'a;b' '|' "it's""#, &["bash(make a?b ? it?s)"], &["make a;b '|' it's x"]),
        ("for f in a b; do rm $f; done", &["bash"], &[]),
        ("touch ''", &["bash"], &[]),
        ("cd x && git push --force", &[], &[]),
    ] {
        assert_eq!(proposed("bash", json!({ "command": command })), rules, "{command}");
        let parsed: Vec<_> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let with = given.judge.with_permissions(&parsed);
        let judged = |command| said(with.judge("bash", &json!({ "command": command })));
        assert_eq!(judged(command), if rules.is_empty() { "ask" } else { "allow" }, "{command}");
        others.iter().for_each(|other| assert_eq!(judged(other), "ask", "{other}"));
    }
    assert_eq!(proposed("write", json!({"path": "src/a[1].rs"})), ["write(./src/a\\[1\\].rs)"]);
    assert_eq!(proposed("edit", json!({"path": "/etc/hosts"})), ["edit(/etc/hosts)"]);
    assert_eq!(proposed("write", json!({"path": ".env"})), [""; 0]);
    assert_eq!(proposed("write", json!({"path": "a)\nbash\nwrite(b"})), ["write"]);
    assert_eq!(proposed("fetch", json!({"url": "x"})), ["fetch"]);

    // From the folder above, for rules that count from there.
    let above = folder.parent().unwrap();
    let rules = given.judge.permissions_for("write", &json!({"path": "a"}), above);
    let name = folder.file_name().unwrap().to_str().unwrap();
    assert_eq!(rules, [format!("write(./{name}/a)").parse::<Rule>().unwrap().from_folder(above)]);
}

#[test]
fn a_judgement_names_the_rules_that_made_it() {
    let given = given(
        &[(Allow, "bash(cargo *)"), (Allow, "bash(make)"), (Ask, "bash(rm *)"), (Deny, "bash(git push *)")],
        Unmatched::Deny,
    );
    let rules = |rules: &[&str]| Why::Rules(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    for (command, decision, why) in [
        ("ls; cargo test && make && cargo doc", Allow, rules(&["bash(cargo *)", "bash(make)"])),
        ("cargo test && rm x", Ask, rules(&["bash(rm *)"])),
        ("rm x; git push", Deny, rules(&["bash(git push *)"])),
        ("cat x", Allow, Why::Reads),
        ("touch x", Deny, Why::Unmatched),
        (&"x".repeat(100_000), Ask, Why::Unreadable),
    ] {
        let judged = given.judge.explain("bash", &json!({ "command": command }));
        assert_eq!((judged.decision, judged.why), (decision, why), "{:.40}", command);
    }
}

#[test]
fn rules_are_lists_of_texts() {
    let text = r#"{"allow":["bash(cargo test *)","read"],"ask":[],"deny":["read(.env)"]}"#;
    let rules: Rules = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&rules).unwrap(), text);
    assert_eq!(serde_json::from_str::<Rules>("{}").unwrap(), Rules::new());
    for (wrong, why) in [(r#"{"allow":["bash("]}"#, "the closing parenthesis is missing"), (r#"{"alow":[]}"#, "alow")] {
        assert!(serde_json::from_str::<Rules>(wrong).unwrap_err().to_string().contains(why), "{wrong}");
    }
}
