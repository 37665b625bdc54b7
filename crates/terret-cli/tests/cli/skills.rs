//! Skills of the user and of projects.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::command_line::complains;
use crate::terret::Terret;

fn skill(name: &str, description: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n{body}\n")
}

fn with_pdf() -> Terret {
    Terret::new()
        .home_file(".agents/skills/pdf/SKILL.md", skill("pdf", "Reads PDF files.", "Run `scripts/read.sh`."))
        .home_file(".agents/skills/pdf/scripts/read.sh", "echo read\n")
}

fn calls(arguments: Value) -> Value {
    json!({"content": [{"type": "toolCall", "id": "c1", "name": "skill", "arguments": arguments}]})
}

/// What the model is told of skills.
fn told(terret: Terret) -> String {
    let shown = terret.args(["prompt", "show"]).run().exits(0);
    let list = shown.stdout.split_once("Skills, which the tool skill reads:\n").map(|(_, rest)| rest);
    list.map(|rest| rest.split_once("\n\n").unwrap().0.to_owned()).unwrap_or_default()
}

#[test]
fn the_model_is_told_of_them_and_reads_them_when_it_needs_them() {
    assert_eq!(told(with_pdf()), "- pdf: Reads PDF files.");
    let none = with_pdf().args(["prompt", "show", "--no-skills"]).run().exits(0);
    assert!(!none.stdout.contains("pdf") && !none.stdout.contains("[tool skill]"), "{}", none.stdout);
    assert_eq!(told(with_pdf().config("no-skills = true")), "");

    let read = |arguments: Value| {
        let terret = with_pdf().script([calls(arguments), json!({"text": "Done."})]);
        let ran = terret.args(["-p", "x", "--json"]).run().exits(0);
        let home = ran.home("").canonicalize().unwrap().display().to_string();
        let (text, is_error) = ran.tool_results().remove(0);
        (text.replace(&home, "~"), is_error)
    };
    let body = "Skill pdf, in ~/.agents/skills/pdf (its paths are relative to that):\n\nRun `scripts/read.sh`.";
    assert_eq!(read(json!({"name": "pdf"})), (body.to_owned(), false));
    assert_eq!(read(json!({"name": "pdf", "file": "scripts/read.sh"})), ("echo read\n".to_owned(), false));
    for arguments in [
        json!({"name": "pdfs"}),
        json!({"name": "pdf", "file": "../../../secret"}),
        json!({"name": "pdf", "file": "/etc/passwd"}),
        json!({"name": "pdf", "file": "scripts"}),
        json!({"name": "pdf", "file": "none"}),
    ] {
        assert!(read(arguments.clone()).1, "{arguments}");
    }
}

#[test]
fn somebody_can_begin_a_prompt_with_one() {
    let ran =
        with_pdf().script([json!({"text": "Done."})]).args(["-p", "/skill:pdf Read a.pdf", "--json"]).run().exits(0);
    let prompt = crate::terret::text_of(&ran.messages()[0]);
    assert!(prompt.ends_with(":\n\nRun `scripts/read.sh`.\n\nRead a.pdf"), "{prompt}");
    let unknown = || with_pdf().script([json!({"text": "Done."})]).args(["-p", "/skill:pd f"]);
    complains(unknown, 2, "usage", &["/skill:pd: there is no such skill; there are pdf"]);
}

#[test]
fn one_that_is_for_people_alone_is_not_told_of() {
    let hidden = "---\nname: deploy\ndescription: Deploys.\ndisable-model-invocation: true\n---\nDeploy.\n";
    let terret = || with_pdf().home_file(".config/terret/skills/deploy/SKILL.md", hidden);
    assert_eq!(told(terret()), "- pdf: Reads PDF files.");
    let ran = terret().script([json!({"text": "Done."})]).args(["-p", "/skill:deploy", "--json"]).run().exits(0);
    assert!(crate::terret::text_of(&ran.messages()[0]).ends_with(":\n\nDeploy."));
}

#[test]
fn those_of_a_project_need_a_decision() {
    let terret = with_pdf()
        .file(".git/HEAD", "")
        .file(".agents/skills/pdf/SKILL.md", skill("pdf", "Ours.", "Ours."))
        .file("a/.claude/skills/test/SKILL.md", skill("test", "Tests.", "Test."))
        .within("a");
    let ran = terret.script([json!({"text": "Done."})]).args(["-p", "x"]).run().exits(0);
    assert!(ran.stderr.contains("/a/.claude/skills/test/SKILL.md, "), "{}", ran.stderr);
    assert!(ran.stderr.contains("/.agents/skills/pdf/SKILL.md, which nobody has trusted yet"), "{}", ran.stderr);
    let in_a = || ran.then().within("a");
    assert_eq!(told(in_a()), "- pdf: Reads PDF files.");
    let asked = || in_a().script([json!({"text": "Done."})]).args(["-p", "/skill:test"]);
    complains(asked, 4, "configuration", &["/skill:test: nobody has trusted this skill", "terret trust"]);

    let trusted = in_a().args(["trust", "--yes"]).run().exits(0);
    assert!(trusted.stdout.contains("  description: Ours.\n"), "{}", trusted.stdout);
    assert_eq!(told(in_a()), "- pdf: Ours.\n- test: Tests.");
    fs::write(ran.path(".agents/skills/pdf/SKILL.md"), skill("pdf", "Theirs.", "Theirs.")).unwrap();
    assert_eq!(told(in_a()), "- pdf: Reads PDF files.\n- test: Tests.");
}

#[test]
fn what_is_no_skill_is_left_out_and_named() {
    for (content, reason) in [
        ("no frontmatter".to_owned(), "it doesn't begin with a line of ---"),
        ("---\nname: odd\n".to_owned(), "there is no second line of ---"),
        ("---\ndescription: x\n---\n".to_owned(), "it has no name"),
        (skill("other", "x", ""), "it is called \"other\", but its folder isn't"),
        (skill("Odd", "x", ""), "\"Odd\" is no name"),
        (skill("o--dd", "x", ""), "\"o--dd\" is no name"),
        (skill("odd", "", ""), "its description must have 1 to 1024 characters"),
        (skill("odd", &"x".repeat(1025), ""), "its description must have 1 to 1024 characters"),
        (skill("odd", "a: b: c", ""), "mapping values"),
    ] {
        let ran = with_pdf().home_file(".agents/skills/odd/SKILL.md", &content).args(["prompt", "show"]).run().exits(0);
        assert!(ran.stderr.contains("not a skill: ~/.agents/skills/odd/SKILL.md: "), "{}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{content:?}: {}", ran.stderr);
        assert!(ran.stdout.contains("- pdf: "), "{}", ran.stdout);
    }
    let terret = with_pdf().home_file(".agents/skills/odd/x", "");
    fs::create_dir(terret.home(".agents/skills/odd/SKILL.md")).unwrap();
    symlink("nowhere", terret.home(".agents/skills/gone")).unwrap();
    let ran = terret.args(["prompt", "show"]).run().exits(0);
    assert_eq!(ran.stderr, "not a skill: ~/.agents/skills/odd/SKILL.md: it can't be read: it is a folder\n");
}
