//! Files with instructions.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use crate::terret::{Ran, Terret};

/// What the model is told by which files, and the rest that is said.
fn told(terret: Terret) -> (Vec<(String, String)>, Ran) {
    let ran = terret.args(["--tools", ""]).run().exits(0);
    let mut told = Vec::new();
    for part in ran.stdout.split("<instructions from=\"").skip(1) {
        let (path, rest) = part.split_once("\">\n").unwrap();
        let (text, _) = rest.split_once("\n</instructions>").unwrap();
        let path = path.split_once("/home/").or(path.split_once("/project/")).unwrap().1;
        told.push((path.to_owned(), text.to_owned()));
    }
    (told, ran)
}

#[track_caller]
fn tells(terret: Terret, expected: &[(&str, &str)]) -> Ran {
    let (told, ran) = told(terret);
    let told: Vec<(&str, &str)> = told.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    assert_eq!(told, expected, "{}", ran.stderr);
    ran
}

/// A command line that shows what the model is told.
fn show() -> Terret {
    Terret::new().args(["prompt", "show"])
}

fn repository() -> Terret {
    show().file(".git/HEAD", "")
}

#[test]
fn they_come_from_the_user_and_from_each_folder_of_the_repository() {
    let terret = repository()
        .home_file(".config/terret/AGENTS.md", "Mine.\n")
        .file("AGENTS.md", "\u{feff}Root.\r\nMore.\r\n")
        .file("a/CLAUDE.md", "A.")
        .file("a/b/AGENTS.override.md", "B.")
        .file("a/b/AGENTS.md", "not this one")
        .file("a/other/AGENTS.md", "not this one either")
        .within("a/b");
    let ran = tells(
        terret,
        &[
            (".config/terret/AGENTS.md", "Mine."),
            ("AGENTS.md", "Root.\nMore."),
            ("a/CLAUDE.md", "A."),
            ("a/b/AGENTS.override.md", "B."),
        ],
    );
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.contains("the later one counts, and what the user says counts before all of them"));

    // Outside of a repository, only the folder itself.
    let terret = show().file("AGENTS.md", "no").file("a/AGENTS.md", "A.").within("a");
    tells(terret, &[("a/AGENTS.md", "A.")]);
    tells(show().file("AGENTS.md", " \n"), &[]);
}

#[test]
fn their_names_can_be_set() {
    let terret = || repository().file("AGENTS.md", "A.").file("GEMINI.md", "G.");
    tells(terret().args(["--context-files", "GEMINI.md,AGENTS.md"]), &[("GEMINI.md", "G.")]);
    tells(terret().config("context-files = ['RULES.md', 'GEMINI.md']\n"), &[("GEMINI.md", "G.")]);
    tells(terret().args(["--context-files", ""]), &[]);
    tells(terret().config("context-files = []\n"), &[]);
}

#[test]
fn what_is_too_long_is_cut_and_that_is_said() {
    let terret = repository().file("AGENTS.md", "é".repeat(20_000)).file("a/AGENTS.md", "B".repeat(30_001)).within("a");
    let (told, ran) = told(terret);
    // The nearer one is whole, and the other one has what is left, to a whole character.
    let lengths: Vec<usize> = told.iter().map(|(_, text)| text.len()).collect();
    assert_eq!(lengths, [2766, 30_001]);
    let note = format!(
        "cut: {} has 40000 bytes, of which 2766 fit (all such files together may have 32768)\n",
        ran.path("AGENTS.md").display()
    );
    assert_eq!(ran.stderr, note);
}

#[test]
fn a_link_that_leads_out_of_the_project_is_not_followed() {
    let with_link = |target: &str, name: &str| {
        let terret =
            repository().home_file("secret", "sk-secret-1").file("docs/RULES.md", "Rules.").file("AGENTS.md", "A.");
        fs::remove_file(terret.path("AGENTS.md")).unwrap();
        symlink(target, terret.path(name)).unwrap();
        terret
    };
    tells(with_link("docs/RULES.md", "AGENTS.md"), &[("docs/RULES.md", "Rules.")]);
    let ran = tells(with_link("../home/secret", "AGENTS.md"), &[]);
    assert!(ran.stderr.contains("AGENTS.md, which leads out of the project, to "), "{}", ran.stderr);
    assert!(!ran.stdout.contains("sk-secret"));
    tells(with_link("../home/secret", "CLAUDE.md"), &[]);
    // A folder on the way counts as well.
    let terret = with_link("../home", "sub");
    fs::write(terret.home("AGENTS.md"), "no").unwrap();
    let terret = terret.args(["--context-files", "sub/AGENTS.md"]);
    tells(terret, &[]);
    // The user's own may lead anywhere.
    let terret = repository().home_file("dotfiles/AGENTS.md", "Mine.").home_file(".config/terret/x", "");
    symlink("../../dotfiles/AGENTS.md", terret.home(".config/terret/AGENTS.md")).unwrap();
    tells(terret, &[("dotfiles/AGENTS.md", "Mine.")]);
}

#[test]
fn odd_files_are_passed_over_or_read_as_far_as_they_can_be() {
    let place = |make: &dyn Fn(&std::path::Path)| {
        let terret = repository();
        make(&terret.path("AGENTS.md"));
        terret
    };
    let ran = tells(place(&|path| fs::create_dir(path).unwrap()), &[]);
    assert!(ran.stderr.contains("AGENTS.md, which can't be read: it is a folder"), "{}", ran.stderr);
    let fifo = |path: &std::path::Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    assert!(tells(place(&fifo), &[]).stderr.contains("it is not a plain file"));
    assert!(tells(place(&|path| fs::write(path, vec![b'x'; 10 << 20]).unwrap()), &[]).stderr.contains("1024 KiB"));
    tells(place(&|path| symlink("AGENTS.md", path).unwrap()), &[]);
    tells(place(&|path| fs::write(path, b"a\xffb").unwrap()), &[("AGENTS.md", "a\u{fffd}b")]);
    tells(place(&|path| fs::write(path, "").unwrap()), &[]);
}

#[test]
fn a_file_imports_others() {
    let terret = repository()
        .home_file("notes.md", "secret notes")
        .home_file(".config/terret/AGENTS.md", "See @~/notes.md.")
        .home_file("secret", "sk-secret-1")
        .file(".env", "KEY=sk-secret-2")
        .file("docs/style.md", "Style. @more.md (@../AGENTS.md)")
        .file("docs/more.md", "More.")
        .file("code.md", "not this one")
        .file(
            "AGENTS.md",
            "Read @docs/style.md, please.\nAsk @somebody or a@code.md; @docs and @.env and @../home/secret are none.\n\
             `@code.md`\n```\n@code.md\n```\n",
        );
    let (told, ran) = told(terret);
    let paths: Vec<&str> = told.iter().map(|(path, _)| path.as_str()).collect();
    // What is imported stands before what imports it, and each once.
    assert_eq!(paths, ["notes.md", ".config/terret/AGENTS.md", "docs/more.md", "docs/style.md", "AGENTS.md"]);
    assert!(!ran.stdout.contains("sk-secret"), "{}", ran.stdout);
    assert!(ran.stderr.contains("home/secret, which leads out of the project, to "), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);

    // Not for ever.
    let chain = (0..9).fold(repository().file("AGENTS.md", "@f0.md"), |terret, n| {
        terret.file(&format!("f{n}.md"), format!("@f{}.md", n + 1))
    });
    let (told, _) = self::told(chain);
    let paths: Vec<&str> = told.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["f4.md", "f3.md", "f2.md", "f1.md", "f0.md", "AGENTS.md"]);
}

#[test]
fn those_of_folders_below_are_told_once_something_there_is_touched() {
    let mut id = 0;
    let mut calls = |calls: &[(&str, Value)]| {
        let calls: Vec<Value> = calls
            .iter()
            .map(|(name, arguments)| {
                id += 1;
                json!({"type": "toolCall", "id": format!("c{id}"), "name": name, "arguments": arguments})
            })
            .collect();
        json!({ "content": calls })
    };
    let read = |path: &str| ("read", json!({"path": path}));
    let terret = Terret::new()
        .file(".git/HEAD", "")
        .file("AGENTS.md", "Root.")
        .file("a/AGENTS.md", "A. @rules.md")
        .file("a/rules.md", "Imported.")
        .file("a/b/CLAUDE.md", "B.")
        .file("a/b/x.txt", "x")
        .file("c/AGENTS.md", "C".repeat(40_000))
        .file("node_modules/n/AGENTS.md", "no")
        .file("node_modules/n/n.txt", "n");
    let replies = [
        calls(&[read("a/b/none.txt"), read("node_modules/n/n.txt"), read("AGENTS.md")]),
        calls(&[read("a/b/x.txt")]),
        calls(&[read("a/b/../b/x.txt"), ("write", json!({"path": "c/new.txt", "content": "new"}))]),
        json!({"text": "Done."}),
    ];
    let ran = terret.script(replies).args(["-p", "x", "--json"]).run().exits(0);
    let results: Vec<String> = ran.tool_results().into_iter().map(|(text, _)| text).collect();
    let told: Vec<bool> = results.iter().map(|text| text.contains("<instructions")).collect();
    assert_eq!(told, [false, false, false, true, false, true], "{results:#?}");
    let file = |path: &str, text: &str| {
        format!("<instructions from=\"{}\">\n{text}\n</instructions>", ran.path(path).display())
    };
    let [imported, a, b] = [("a/rules.md", "Imported."), ("a/AGENTS.md", "A. @rules.md"), ("a/b/CLAUDE.md", "B.")]
        .map(|(path, text)| results[3].find(&file(path, text)).unwrap());
    assert!(imported < a && a < b, "{}", results[3]);
    assert!(results[5].contains("has 40000 bytes, of which "), "{}", results[5]);
    assert!(results[5].len() < 33_500, "{}", results[5].len());
}
