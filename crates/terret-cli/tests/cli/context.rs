//! Files with instructions.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

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
