//! What `--help` says, as people read it, and what is said of a slip of the finger.

use std::fs;
use std::path::Path;

use crate::terret::Terret;

pub(crate) fn help(command: &[String]) -> String {
    Terret::new().args(command).args(["--help"]).run().exits(0).stdout
}

/// All commands, each after the one that it belongs to. The first one is the program itself.
pub(crate) fn commands() -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut next = 0;
    while let Some(command) = commands.get(next).cloned() {
        let page = help(&command);
        let list = page.split_once("Commands:\n").map_or("", |(_, list)| list.split("\n\n").next().unwrap());
        let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        commands.extend(names.map(|name| [&*command, &[name.to_owned()]].concat()));
        next += 1;
    }
    commands
}

/// `UPDATE=1` writes them anew, to be looked at.
#[test]
fn the_pages_are_these() {
    let pages = commands().into_iter().map(|command| {
        let page: String = help(&command).lines().map(|line| format!("{}\n", line.trim_end())).collect();
        format!("=== terret {}\n\n{page}\n", command.join(" "))
    });
    let pages = pages.collect::<String>().replace("=== terret \n", "=== terret\n");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/help.txt");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &pages).unwrap();
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    let differs = pages.lines().zip(expected.lines()).find(|(is, expected)| is != expected);
    assert!(pages == expected, "with UPDATE=1, the test writes help.txt anew; the first difference: {differs:?}");
}

#[test]
fn they_fit_a_terminal_of_80_columns() {
    for command in commands() {
        for line in help(&command).lines() {
            assert!(line.chars().count() <= 80, "terret {}: {line}", command.join(" "));
        }
    }
}

#[test]
fn their_examples_parse() {
    let mut examples = 0;
    for command in commands() {
        let page = help(&command);
        let Some((_, list)) = page.split_once("Examples:\n") else { continue };
        for line in list.split("\n\n").next().unwrap().lines() {
            let words = line.split("terret").last().unwrap().split("  ").next().unwrap();
            let words = words.split([';', '>', '|']).next().unwrap();
            let quoted: Vec<&str> = words.split('"').collect();
            // What is in quotes is one word.
            let args = quoted.iter().enumerate().flat_map(|(n, part)| match n % 2 {
                0 => part.split_whitespace().collect(),
                _ => vec![*part],
            });
            let ran = Terret::new().args(args).args(["--help"]).run();
            assert_eq!(ran.code(), 0, "{line}\n{}", ran.stderr);
            examples += 1;
        }
    }
    assert!(examples > 20, "only {examples} examples were found");
}

#[test]
fn a_slip_of_the_finger_is_told_with_what_was_meant() {
    for (args, meant) in [
        (&["sesions"][..], "`terret sessions`"),
        (&["sesions", "list"], "`terret sessions list`"),
        (&["sessions", "exprt", "x"], "'export'"),
        (&["auth", "tst"], "'test'"),
        (&["-p", "x", "--aks", "bash"], "'--ask'"),
        (&["-p", "x", "--no-sesion"], "'--no-session'"),
        (&["sessions", "list", "--jsno"], "'--json'"),
        (&["-p", "x", "--permission-mode", "read-onyl"], "'read-only'"),
        (&["completions", "bsh"], "'bash'"),
    ] {
        let ran = Terret::new().args(args).run().exits(2);
        assert!(ran.stderr.contains(meant), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("quotes"), "{args:?}: {}", ran.stderr);
    }
}
