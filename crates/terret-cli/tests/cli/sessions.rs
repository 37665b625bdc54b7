//! `terret sessions`: listed, shown, searched, renamed, deleted, exported, imported and checked.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::terret::{Ran, Running, Terret};

/// A session of a question, a call with its result, and an answer.
fn talked() -> Ran {
    let look = json!({
        "content": [
            {"type": "thinking", "thinking": "Where is it?"},
            {"type": "text", "text": "I'll look."},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a.txt"}},
        ],
        "usage": {"input": 100, "cacheRead": 20, "output": 7},
    });
    let answer = json!({"text": "It says hello.", "usage": {"input": 10, "output": 5}});
    let terret =
        Terret::scripted([look, answer]).file("a.txt", "hello WORLD\n").args(["--session-id", "talked-1", "--json"]);
    terret.run().exits(0)
}

fn listed(ran: &Ran) -> Vec<Value> {
    let list = ran.then().args(["sessions", "list", "--json"]).run().exits(0);
    serde_json::from_str::<Value>(&list.stdout).unwrap().as_array().unwrap().clone()
}

#[test]
fn the_list_says_what_people_know_a_session_by() {
    let nothing = Terret::new().args(["sessions", "list"]).run().exits(0);
    assert_eq!((nothing.stdout.as_str(), nothing.stderr.as_str()), ("", "there are no sessions\n"));
    let ran = talked();
    ran.then()
        .within("other")
        .script([json!({"text": "Two."})])
        .args(["-p", "Second\nline", "--session-id", "second"])
        .run();
    let list = ran.then().args(["sessions", "list"]).run().exits(0);
    let lines: Vec<Vec<&str>> = list.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["ID", "WHEN", "MSGS", "COST", "MODEL", "FOLDER", "NAME"]);
    assert_eq!(lines[1][..6], ["second", "just", "now", "2", "-", "scripted/script"]);
    assert_eq!(lines[1].last(), Some(&"Second"), "one line of it");
    assert_eq!(lines[2][..6], ["talked-1", "just", "now", "4", "-", "scripted/script"]);
    assert!(list.stdout.ends_with("Do it.\n"), "{}", list.stdout);
    let json = listed(&ran);
    assert_eq!(json.len(), 2);
    let it = &json[1];
    assert_eq!(it["usage"], json!({"input": 110, "cacheRead": 20, "cacheWrite": 0, "output": 12}));
    for (key, value) in [
        ("id", json!("talked-1")),
        ("firstPrompt", json!("Do it.")),
        ("name", Value::Null),
        ("cwd", json!(ran.path("").to_str().unwrap().trim_end_matches('/'))),
        ("model", json!("scripted/script")),
        ("messages", json!(4)),
        ("turns", json!(2)),
        ("unfinished", json!(false)),
        ("trouble", Value::Null),
    ] {
        assert_eq!(it[key], value, "{key}");
    }
    for (args, expected) in [(&["--here"][..], "talked-1"), (&["--here", "other"], "second"), (&["-n", "1"], "second")]
    {
        let some = ran.then().args(["sessions", "ls", "--json"]).args(args).run().exits(0);
        let some: Value = serde_json::from_str(&some.stdout).unwrap();
        assert_eq!(some.as_array().unwrap().iter().map(|it| &it["id"]).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn a_session_is_shown_as_it_went() {
    let ran = talked();
    let shown = ran.then().args(["sessions", "show", "talked"]).run().exits(0);
    let (head, rest) = shown.stdout.split_once('\n').unwrap();
    assert!(head.starts_with("talked-1 · just now · scripted/script · "), "{head}");
    let expected = "\n  1 user\nDo it.\n\n  2 scripted/script\nWhere is it?\nI'll look.\n• read a.txt\n  ✓ hello WORLD\n\n  4 \
                    scripted/script\nIt says hello.\n";
    assert_eq!(rest, expected);
    let json = ran.then().args(["sessions", "show", "talked-1", "--json"]).run().exits(0);
    assert_eq!(json.events(), ran.of_type("message"), "as the run itself told it");
    ran.then().args(["sessions", "show", "nobody"]).run().exits(2);
}

#[test]
fn a_running_session_is_followed_to_the_end_of_its_run() {
    let waits = json!({"content": [
        {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "until [ -e go ]; do sleep 0.01; done"}},
    ]});
    let run = Terret::scripted([waits, json!({"text": "The end."})]).args(["--session-id", "it", "--json"]).start();
    run.says("tool_start");
    let follows = run.beside().args(["sessions", "show", "it", "--follow"]).start();
    follows.says("• bash until");
    assert!(!follows.printed().contains("The end."));
    fs::write(run.beside().path("go"), "").unwrap();
    let ran = run.wait().exits(0);
    let followed = follows.wait().exits(0);
    assert!(followed.stdout.ends_with("The end.\n"), "{}", followed.stdout);
    assert_eq!(ran.sessions().check(&ran.session()).unwrap(), []);
}

#[test]
fn what_was_said_is_found_with_what_stands_around_it() {
    let ran = talked();
    for (text, record_line) in [("world", "hello WORLD"), ("IT SAYS", "It says hello."), ("a.txt", "a.txt")] {
        let found = ran.then().args(["sessions", "search", text]).run().exits(0);
        let (head, rest) = found.stdout.split_once('\n').unwrap();
        assert!(head.starts_with("talked-1  Do it. ("), "{head}");
        assert!(rest.contains(record_line), "{rest}");
        let json = ran.then().args(["sessions", "search", text, "--json"]).run().exits(0);
        let found: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(found[0]["sessionId"], "talked-1");
        assert!(found[0]["line"].as_str().unwrap().contains(record_line));
    }
    let nothing = ran.then().args(["sessions", "search", "Wetterbericht"]).run().exits(1);
    assert_eq!(nothing.stdout, "");
    ran.then().args(["sessions", "search", " "]).run().exits(2);
}

#[test]
fn a_session_is_renamed_and_found_by_its_name() {
    let ran = talked();
    ran.then().args(["sessions", "rename", "talked-1", "  The greeting "]).run().exits(0);
    assert_eq!(listed(&ran)[0]["name"], "The greeting");
    assert!(ran.then().args(["sessions", "show", "The greeting"]).run().exits(0).stdout.starts_with("The greeting\n"));
    ran.then().args(["sessions", "rename", "The greeting", ""]).run().exits(0);
    assert_eq!(listed(&ran)[0]["name"], Value::Null);
    ran.then().args(["sessions", "rename", "nobody", "x"]).run().exits(2);
    for (bad, why) in
        [("two\nlines", "more than a line"), ("\u{1b}[31m", "control"), (&"x".repeat(10_000), "10000 long")]
    {
        let refused = ran.then().args(["sessions", "rename", "talked-1", bad]).run().exits(2);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}

#[test]
fn of_several_sessions_those_that_can_be_are_deleted_and_the_others_named() {
    let waits = json!({"text": "Late.", "delayMs": 600_000});
    let run = Terret::scripted([waits]).args(["--session-id", "in-use", "--json"]).start();
    run.says("model_start");
    for name in ["first", "last"] {
        run.beside().script([json!({"text": "One."})]).args(["-p", "x", "--session-id", name]).run().exits(0);
    }
    let args = ["sessions", "delete", "first", "in-use", "last", "first", "--yes"];
    let deleted = run.beside().args(args).run().exits(1);
    assert!(deleted.stderr.contains("session in-use is still there"), "{}", deleted.stderr);
    assert!(
        deleted.stderr.contains("deleted first\n") && deleted.stderr.contains("deleted last\n"),
        "{}",
        deleted.stderr
    );
    let ran = run.kill();
    assert_eq!(ran.sessions().list().unwrap().iter().map(|info| info.id.as_str()).collect::<Vec<_>>(), ["in-use"]);
}

/// A run that waits for its model, followed by somebody.
fn followed() -> (Running, Running) {
    let waits = json!({"text": "Late.", "delayMs": 600_000});
    let run = Terret::scripted([waits]).args(["--session-id", "it-runs", "--json"]).start();
    run.says("model_start");
    let follows = run.beside().args(["sessions", "show", "it-runs", "--follow"]).start();
    follows.says("Do it.");
    (run, follows)
}

#[test]
fn whoever_follows_a_session_is_told_when_its_run_dies_or_it_is_deleted() {
    let (run, follows) = followed();
    run.kill();
    let told = follows.wait().exits(1);
    assert!(told.stderr.contains("the run was interrupted, and terret -r it-runs goes on with it"), "{}", told.stderr);
    let again = told.then().args(["sessions", "show", "it-runs", "-f"]).run().exits(1);
    assert!(again.stderr.contains("nobody works on it any more"), "{}", again.stderr);

    let (run, follows) = followed();
    let folder = run.beside().home(".state/terret/sessions");
    fs::rename(folder.join("it-runs"), folder.join(".gone")).unwrap();
    let told = follows.wait().exits(1);
    assert!(told.stderr.contains("it is gone: there is no session"), "{}", told.stderr);
    run.kill();
}

#[test]
fn a_session_of_a_newer_version_is_told_from_a_damaged_one() {
    let ran = talked();
    let database = ran.home(".state/terret/sessions/talked-1/journal.db");
    let mut bytes = fs::read(&database).unwrap();
    // The user_version of SQLite's header.
    bytes[63] = 7;
    fs::write(&database, bytes).unwrap();
    let checked = ran.then().args(["sessions", "check"]).run().exits(1);
    assert!(checked.stdout.contains("newer    talked-1") && !checked.stdout.contains("damaged"), "{}", checked.stdout);
    assert!(checked.stdout.contains("was written by a newer terret (format 7"), "{}", checked.stdout);
    assert_eq!(checked.stderr, "");
}

#[test]
fn a_session_whose_database_lost_its_header_and_its_end_is_shown_and_gone_on_with_in_a_copy() {
    let ran = talked();
    let database = ran.home(".state/terret/sessions/talked-1/journal.db");
    let whole = fs::read(&database).unwrap();
    for cut in [whole.len(), whole.len() - 4096] {
        let mut bytes = whole[..cut].to_vec();
        bytes[..16].fill(b'?');
        fs::write(&database, &bytes).unwrap();
        let shown = ran.then().args(["sessions", "show", "talked-1"]).run().exits(1);
        assert!(
            shown.stdout.contains("I'll look.") && shown.stderr.contains("the database is damaged"),
            "{}",
            shown.stderr
        );
        let refused = ran.then().script([json!({"text": "-"})]).args(["-r", "talked-1", "-p", "x"]).run().exits(1);
        assert!(refused.stderr.contains("forked into a new session"), "{}", refused.stderr);
        let args = ["-r", "talked-1", "--fork", "-p", "x", "--json"];
        let rescued = ran.then().script([json!({"text": "On."})]).args(args).run().exits(0);
        assert_eq!(rescued.result()["text"], "On.");
        ran.then().args(["sessions", "rm", "-y", rescued.session().as_str()]).run().exits(0);
        assert_eq!(fs::read(&database).unwrap(), bytes, "the damaged one stays as it is");
    }
}

#[test]
fn a_session_is_deleted_on_somebody_s_word_only() {
    let ran = talked();
    let asked = ran.then().args(["sessions", "delete", "talked-1"]).run().exits(2);
    assert!(asked.stderr.contains("say --yes"), "{}", asked.stderr);
    // One that isn't there keeps the others from being deleted.
    ran.then().args(["sessions", "delete", "talked-1", "nobody", "--yes"]).run().exits(2);
    assert_eq!(listed(&ran).len(), 1);
    ran.then().args(["sessions", "rm", "talked-1", "-y"]).run().exits(0);
    assert_eq!(listed(&ran).len(), 0);
}

#[test]
fn a_session_is_exported_as_a_page_as_markdown_and_for_pi() {
    let ran = talked();
    for (args, start, part) in [
        (&[][..], "{\"type\":\"session\",\"version\":3,", "It says hello."),
        (&["--format", "md"], "# ", "## scripted/script"),
        (&["-f", "html"], "<!doctype html>\n", "<p>It says hello.</p>"),
    ] {
        let exported = ran.then().args(["sessions", "export", "talked-1"]).args(args).run().exits(0);
        assert!(exported.stdout.starts_with(start) && exported.stdout.contains(part), "{}", exported.stdout);
        let format = args.last().unwrap_or(&"jsonl");
        let file = format!("out.{format}");
        fs::write(ran.path(&file), "old").unwrap();
        let written = ran.then().args(["sessions", "export", "talked-1", "-o", &file]).run().exits(0);
        assert_eq!((written.stdout.as_str(), written.stderr.as_str()), ("", ""));
        assert_eq!(fs::read_to_string(ran.path(&file)).unwrap(), exported.stdout);
    }
    assert_eq!(fs::read_dir(ran.path("")).unwrap().count(), 4, "nothing else is left beside the files");
    let unknown = ran.then().args(["sessions", "export", "talked-1", "-o", "page.pdf"]).run().exits(2);
    assert!(unknown.stderr.contains(".html, .md or .jsonl"), "{}", unknown.stderr);
    ran.then().args(["sessions", "export", "talked-1", "-f", "md", "-o", "page.txt"]).run().exits(0);
    let nowhere = ran.then().args(["sessions", "export", "talked-1", "-o", "no/such/file"]).run().exits(1);
    let said = "terret: no/such/file: No such file or directory (os error 2)\n";
    assert_eq!(nowhere.stderr, said, "the name that was given, and no other");
}

#[test]
fn what_was_exported_for_pi_comes_back_and_goes_on() {
    let ran = talked();
    ran.then().args(["sessions", "export", "talked-1", "-o", "talk.jsonl"]).run().exits(0);
    let imported = ran.then().args(["sessions", "import", "talk.jsonl"]).run().exits(0);
    let id = imported.stdout.trim_end();
    assert_eq!(imported.stderr, format!("4 messages; `terret -r {id} \"…\"` goes on with them\n"));
    let messages = |id: &str| ran.then().args(["sessions", "show", id, "--json"]).run().exits(0).stdout;
    assert_eq!(messages(id), messages("talked-1"));
    // It is a session of the folder that its tools worked in.
    let on = ran.then().script([json!({"text": "More."})]).args(["-c", "-p", "x", "--json"]).run().exits(0);
    assert_eq!(on.session().as_str(), id);

    let piped = fs::read(ran.path("talk.jsonl")).unwrap();
    let piped = ran.then().args(["sessions", "import", "-", "--session-id", "piped"]).stdin(piped).run().exits(0);
    assert_eq!(piped.stdout, "piped\n");
    for (file, code, part) in [
        ("a.txt", 2, "not a session file of pi"),
        ("a.txt", 2, "received hello WORLD"),
        ("none", 2, "none: "),
        ("talk.jsonl", 2, "already"),
        (".", 2, ".: Is a directory"),
    ] {
        let refused = ran.then().args(["sessions", "import", file, "--session-id", "piped"]).run().exits(code);
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
}

#[test]
fn damage_is_found_and_named_and_what_is_readable_is_kept() {
    let ran = talked();
    ran.then().script([json!({"text": "Whole."})]).args(["-p", "x", "--session-id", "whole"]).run().exits(0);
    let well = ran.then().args(["sessions", "check"]).run().exits(0);
    assert_eq!(well.stdout.lines().count(), 2);
    let database = ran.home(".state/terret/sessions/talked-1/journal.db");
    let bytes = fs::read(&database).unwrap();
    let at = bytes.windows(11).position(|bytes| bytes == b"hello WORLD").unwrap();
    fs::write(&database, [&bytes[..at], b"j", &bytes[at + 1..]].concat()).unwrap();
    let checked = ran.then().args(["sessions", "check"]).run().exits(1);
    assert!(checked.stdout.contains("ok       whole"), "{}", checked.stdout);
    assert!(
        checked.stdout.contains("damaged  talked-1") && checked.stdout.contains("was changed after it was written"),
        "{}",
        checked.stdout
    );
    let json = ran.then().args(["sessions", "check", "talked-1", "--json"]).run().exits(1);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json[0]["sessionId"], &json[0]["ok"]), (&json!("talked-1"), &json!(false)));
    for command in [&["show", "talked-1"][..], &["export", "talked-1", "-f", "html"], &["export", "talked-1"]] {
        let read = ran.then().args(["sessions"]).args(command).run().exits(1);
        assert!(read.stdout.contains("I'll look.") || read.stdout.contains("I&#39;ll look."), "{}", read.stdout);
        assert!(read.stderr.contains("was changed after it was written"), "{}", read.stderr);
    }
    let refused = ran.then().script([json!({"text": "-"})]).args(["-r", "talked-1", "-p", "x"]).run().exits(1);
    assert!(
        refused.stderr.contains("damaged") && refused.stderr.contains("forked into a new session"),
        "{}",
        refused.stderr
    );
    let rescued =
        ran.then().script([json!({"text": "On."})]).args(["-r", "talked-1", "--fork", "-p", "x"]).run().exits(0);
    assert_eq!(rescued.stdout, "On.\n");
}

#[test]
fn a_reader_that_leaves_is_no_trouble() {
    let long = "line of text\n".repeat(20_000);
    let ran = Terret::scripted([json!({"text": long})]).args(["--session-id", "long-one", "--json"]).run().exits(0);
    for args in
        ["export long-one", "export long-one -f html", "export long-one -f md", "show long-one", "show long-one --json"]
    {
        let (command, _world) = ran.then().into_command();
        let mut piped = Command::new("sh");
        piped.arg("-c").arg(format!("\"$0\" sessions {args} | head -c 10 > /dev/null")).arg(command.get_program());
        piped.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = piped.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args}");
        let (command, _world) = ran.then().into_command();
        let mut piped = Command::new("bash");
        piped.args(["-o", "pipefail", "-c"]).arg(format!("\"$0\" sessions {args} | true")).arg(command.get_program());
        piped.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert_eq!(piped.status().unwrap().code(), Some(0), "{args}: nothing has failed");
    }
}
