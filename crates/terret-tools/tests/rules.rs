//! Rules about calls: what runs, what is asked about, what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use serde_json::json;
use terret_agent::machine::Verdict;
use terret_tools::{BashOptions, Decision, RuleJudge, Rules, Unmatched, Workspace, workspace_tools};

struct Given {
    _folder: tempfile::TempDir,
    judge: RuleJudge,
}

fn given(rules: &[(Decision, &str)], unmatched: Unmatched) -> Given {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::new(folder.path()).unwrap();
    let tools = workspace_tools(&workspace, BashOptions::default());
    let mut list = Rules::new();
    rules.iter().for_each(|(decision, rule)| list.add(*decision, rule.parse().unwrap()));
    Given { judge: RuleJudge::new(&workspace, &tools, list, unmatched), _folder: folder }
}

impl Given {
    fn bash(&self, command: &str) -> &'static str {
        said(self.judge.judge("bash", &json!({ "command": command })))
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
    let root = given._folder.path();
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
