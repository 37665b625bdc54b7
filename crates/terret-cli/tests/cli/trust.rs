//! `terret trust`, and what is not used without it.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::command_line::complains;
use crate::terminal::Terminal;
use crate::terret::{Ran, Terret};

/// A run in a project that wants JSON.
fn run() -> Terret {
    Terret::scripted([json!({"text": "Done."})]).file(".terret/config.toml", "output-format = 'json'\n")
}

/// A further run, and whether the project's file was used.
#[track_caller]
fn uses_it(ran: &Ran) -> bool {
    let ran = ran.then().script([json!({"text": "Done."})]).args(["-p", "Do it."]).run().exits(0);
    let used = ran.stdout.starts_with('{');
    assert_eq!(ran.stderr.contains("not used: "), !used, "{}", ran.stderr);
    used
}

#[test]
fn a_file_of_a_project_is_used_only_once_it_is_trusted() {
    let ran = run().run().exits(0);
    assert_eq!(ran.stdout, "Done.\n");
    let file = ran.path(".terret/config.toml");
    let note = format!("not used: {}, which nobody has trusted yet (terret trust shows it and asks)\n", file.display());
    assert!(ran.stderr.starts_with(&note), "{}", ran.stderr);

    let trusted = ran.then().args(["trust", "--yes"]).run().exits(0);
    assert_eq!(trusted.stdout, format!("{}\n  output-format = 'json'\n", file.display()));
    assert!(uses_it(&ran));
    let doctor = ran.then().args(["doctor"]).run();
    assert!(doctor.stdout.contains(&format!("Configuration\n  {}\n", file.display())), "{}", doctor.stdout);
    let again = ran.then().args(["trust"]).run().exits(0);
    assert!(again.stderr.contains("is trusted already"), "{}", again.stderr);

    // Another content is another file.
    fs::write(&file, "output-format = 'json' # or so\n").unwrap();
    assert!(!uses_it(&ran));
    let list = ran.then().args(["trust", "--list"]).run().exits(0);
    assert_eq!(list.stdout, format!("{}  changed, so that it isn't used\n", file.display()));
    fs::write(&file, "output-format = 'json'\n").unwrap();
    assert!(uses_it(&ran));

    let revoked = ran.then().args(["trust", "--revoke"]).run().exits(0);
    assert_eq!(revoked.stderr, format!("no longer trusted: {}\n", file.display()));
    assert!(!uses_it(&ran));
    assert_eq!(ran.then().args(["trust", "--list"]).run().exits(0).stdout, "");
}

#[test]
fn nobody_is_asked_without_a_terminal() {
    let ran = run().run().exits(0);
    let refused = ran.then().args(["trust"]).stdin("y\n").run().exits(2);
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert!(!uses_it(&ran));
}

#[test]
fn a_person_is_shown_what_stands_there_and_asked() {
    for (answer, trusted) in [("y\n", true), ("n\n", false), ("\n", false), ("\u{4}", false)] {
        let ran = run().file(".terret/config.toml", "output-format = 'json' # \u{9b}2J\u{202e}\n").run().exits(0);
        let terminal = Terminal::open();
        terminal.types(answer);
        let (mut command, _world) = ran.then().args(["trust"]).into_command();
        command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
        let shown = terminal.shows(command);
        assert!(shown.contains("  output-format = 'json' # 2J\r\n"), "{shown:?}");
        assert!(shown.contains("Trust what stands there? It can run commands"), "{shown:?}");
        assert_eq!(uses_it(&ran), trusted, "{answer:?}");
    }
}

#[test]
fn a_project_is_stronger_than_the_user_and_weaker_than_the_environment() {
    let ran = run().config("output-format = 'stream-json'\nmax-turns = 5\n").run().exits(0);
    ran.then().args(["trust", "--yes"]).run().exits(0);
    assert!(uses_it(&ran));
    let again = ran.then().script([json!({"text": "Done."})]).args(["-p", "x"]).env("TERRET_OUTPUT_FORMAT", "text");
    assert_eq!(again.run().exits(0).stdout, "Done.\n");
    let explained = ran.then().args(["config", "explain", "output-format"]).run().exits(0).stdout;
    let file = ran.path(".terret/config.toml").display().to_string();
    let expected = format!(
        "output-format = 'json'  {file}:1\n    instead of 'stream-json'  ~/.config/terret/config.toml:1\n    instead of \
         \"text\"  the default\n"
    );
    assert!(explained.starts_with(&expected), "{explained}");
    let paths = ran.then().args(["config", "path"]).run().exits(0).stdout;
    assert!(paths.ends_with(&format!("/config.toml\n{file}\n")), "{paths}");
}

#[test]
fn the_nearest_folder_of_a_repository_wins() {
    let of = |terret: Terret| {
        let ran = terret
            .file(".terret/config.toml", "max-turns = 1\ntimeout = 1\n")
            .file("a/.terret/config.toml", "max-turns = 2\n")
            .within("a/b")
            .args(["trust", "--yes"])
            .run()
            .exits(0);
        ran.then().within("a/b").args(["config", "explain"]).run().exits(0).stdout
    };
    let explained = of(Terret::new().file(".git/HEAD", ""));
    assert!(explained.contains("max-turns = 2  /") && explained.contains("timeout = 1  /"), "{explained}");
    // Outside of a repository only the folder itself counts.
    let explained = of(Terret::new());
    assert!(explained.contains("max-turns = 200") && explained.contains("timeout  not set"), "{explained}");
    // As in a worktree or a submodule.
    let explained = of(Terret::new().file(".git", "gitdir: elsewhere\n"));
    assert!(explained.contains("timeout = 1  /"), "{explained}");
}

#[test]
fn a_decision_does_not_move_with_the_files() {
    let ran = run().run().exits(0);
    ran.then().args(["trust", "--yes"]).run().exits(0);
    fs::create_dir(ran.path("copy")).unwrap();
    fs::create_dir(ran.path("copy/.terret")).unwrap();
    fs::copy(ran.path(".terret/config.toml"), ran.path("copy/.terret/config.toml")).unwrap();
    let copied = ran.then().within("copy").script([json!({"text": "Done."})]).args(["-p", "x"]).run().exits(0);
    assert_eq!(copied.stdout, "Done.\n");
}

#[test]
fn what_is_wrong_in_a_file_counts_once_it_is_trusted() {
    let ran = run().file(".terret/config.toml", "modle = 1\n").run().exits(0);
    ran.then().args(["trust", "--yes"]).run().exits(0);
    let start = || ran.then().script([json!({"text": "Done."})]).args(["-p", "x"]);
    complains(start, 4, "configuration", &["/.terret/config.toml:1:1: there is no key \"modle\""]);
}

#[test]
fn nothing_that_a_project_holds_keeps_a_run_from_starting() {
    let with = |make: &dyn Fn(&std::path::Path)| {
        let terret = Terret::scripted([json!({"text": "Done."})]).file(".terret/x", "");
        make(&terret.path(".terret/config.toml"));
        let ran = terret.run().exits(0);
        assert_eq!(ran.stdout, "Done.\n");
        ran.then().args(["trust", "--yes"]).run().exits(0);
        ran.stderr
    };
    assert!(with(&|path| fs::create_dir(path).unwrap()).contains("which can't be read: it is a folder"));
    assert!(with(&|path| fs::write(path, vec![0; 10 << 20]).unwrap()).contains("it has more than 1024 KiB"));
    let fifo = |path: &std::path::Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    assert!(with(&fifo).contains("it is not a plain file"));
    assert!(with(&|path| fs::write(path, b"\xff\0").unwrap()).contains("which nobody has trusted yet"));
    let ran = Terret::scripted([json!({"text": "Done."})]).file(".terret", "a file").run().exits(0);
    assert!(!ran.stderr.contains("not used"), "{}", ran.stderr);
}

#[test]
fn decisions_that_can_not_be_read_are_named() {
    for damaged in ["", "{", "[]", "{\"trusted\": {}, \"more\": 1}"] {
        let terret = || run().home_file(".state/terret/trust.json", damaged);
        complains(terret, 4, "configuration", &["trust.json: ", "all decisions are open again"]);
    }
}
