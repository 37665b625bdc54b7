//! Runs that are kept, and runs that go on with them.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use terret::store::SqliteJournal;

use crate::terret::{Ran, Running, Terret, text_of};

fn says(text: &str) -> Value {
    json!({"text": text, "usage": {"input": 10, "output": 5}})
}

fn bash(id: &str, command: &str) -> Value {
    json!({"content": [{"type": "toolCall", "id": id, "name": "bash", "arguments": {"command": command}}]})
}

fn first() -> Ran {
    Terret::scripted([says("One.")]).args(["--json"]).run().exits(0)
}

/// The texts of the messages of a session.
fn texts(ran: &Ran, session: &str) -> Vec<String> {
    let shown = ran.then().args(["sessions", "show", session, "--json"]).run();
    shown.stdout.lines().map(|line| text_of(&serde_json::from_str::<Value>(line).unwrap()["message"])).collect()
}

#[test]
fn a_run_is_kept_and_the_next_one_goes_on_with_it() {
    let ran = first();
    let session = ran.session();
    for (option, value) in [
        ("-c", None),
        ("--continue", None),
        ("-r", Some(session.as_str())),
        ("--resume", Some(&session.as_str()[..20])),
    ] {
        let reads = json!({"text": "More.", "expect": {"lastRole": "user", "contains": "go on"}});
        let on = ran.then().script([reads]).args([option]).args(value).args(["-p", "go on", "--json"]).run().exits(0);
        assert_eq!(on.session(), session);
        assert_eq!(on.messages().len(), 2, "what was said before is not told again");
    }
    assert_eq!(texts(&ran, session.as_str())[..4], ["Do it.", "One.", "go on", "More."]);
    let named = ran.then().args(["sessions", "rename", session.as_str(), "The first one"]).run();
    let on = named.exits(0).then().script([says("By name.")]).args(["-r", "The first one", "-p", "x"]).run().exits(0);
    assert_eq!(on.stdout, "By name.\n");
    assert!(on.stderr.starts_with(&format!("session {session}, 10 messages\n")), "{}", on.stderr);
    assert!(on.stderr.trim_end().ends_with(&format!(" · session {session}")), "{}", on.stderr);
}

#[test]
fn the_last_session_is_that_of_the_folder() {
    let ran = first();
    let other = ran.then().within("other").script([says("Two.")]).args(["-p", "Other.", "--json"]).run().exits(0);
    assert_ne!(other.session(), ran.session());
    let on = ran.then().script([says("More.")]).args(["-c", "-p", "x", "--json"]).run().exits(0);
    assert_eq!(on.session(), ran.session());
    let on = ran.then().script([says("More.")]).args(["-c", "-C", "other", "-p", "x", "--json"]).run().exits(0);
    assert_eq!(on.session(), other.session());
    let none = ran.then().within("third").script([says("-")]).args(["-c", "-p", "x"]).run().exits(2);
    assert!(none.stderr.contains("there is no session in ") && none.stderr.contains("/third yet"), "{}", none.stderr);
}

#[test]
fn a_session_goes_on_in_its_own_folder_and_says_so() {
    let ran = first();
    let session = ran.session();
    let pwd = || [bash("c1", "pwd"), says("There.")];
    let resume = || ran.then().within("elsewhere").args(["-r", session.as_str(), "-p", "Where?"]);
    let on = resume().script(pwd()).run().exits(0);
    let folder = ran.path("");
    let folder = folder.to_str().unwrap().trim_end_matches('/');
    assert!(on.stderr.contains(&format!("working in its folder {folder} (-C . works in this one)")), "{}", on.stderr);
    assert!(on.stderr.contains(&format!("✓ {folder}\n")), "{}", on.stderr);
    let on = resume().script([bash("c2", "pwd"), says("Here.")]).args(["-C", "."]).run().exits(0);
    assert!(on.stderr.contains(&format!("✓ {folder}/elsewhere\n")), "{}", on.stderr);
    fs::remove_dir_all(ran.path("elsewhere")).unwrap();
    let gone = ran.then().script([says("-")]).args(["-r", session.as_str(), "-p", "x"]).run().exits(2);
    assert!(gone.stderr.contains("the session's folder; -C DIR works in another one"), "{}", gone.stderr);
}

#[test]
fn a_session_that_is_not_there_or_not_one_is_named() {
    let ran = first();
    ran.then().script([says("Two.")]).args(["-p", "x"]).run().exits(0);
    for (args, part) in [
        (&["-r", "nobody", "-p", "x"][..], "there is no session \"nobody\""),
        (&["-r", "fix the test"], "-r -p \"…\""),
        (&["-r", "01", "-p", "x"], "\"01\" may be 2 sessions"),
        (&["-r", "-p", "x"], "where nobody can be asked: `terret sessions list`"),
        (&["-c"], "no prompt, and the session has no run to finish"),
        (&["--fork", "-p", "x"], "--fork copies a session to go on with"),
        (&["-c", "--session-id", "mine", "-p", "x"], "--session-id names a new session"),
        (&["-c", "-r", "01", "-p", "x"], "cannot be used with"),
        (&["-c", "--no-session", "-p", "x"], "cannot be used with"),
        (&["-c", "--fork", "two", "-p", "x"], "number of messages"),
    ] {
        let refused = ran.then().script([says("-")]).args(args).run().exits(2);
        assert!(refused.stderr.contains(part), "{args:?}: {}", refused.stderr);
    }
}

#[test]
fn a_fork_goes_its_own_way_and_leaves_the_other_one_as_it_was() {
    let ran = first();
    let session = ran.session();
    let before = texts(&ran, session.as_str());
    for (fork, kept) in [
        (&["--fork", "-p", "another way"][..], 2),
        (&["--fork", "another way"], 2),
        (&["--fork", "1", "-p", "another way"], 1),
        (&["--fork=1", "another way"], 1),
    ] {
        let forked =
            ran.then().script([says("Two.")]).args(["-r", session.as_str(), "--json"]).args(fork).run().exits(0);
        assert_ne!(forked.session(), session);
        let now = texts(&ran, forked.session().as_str());
        assert_eq!(now[..kept], before[..kept]);
        assert!(now.contains(&"another way".to_owned()), "{now:?}");
    }
    assert_eq!(texts(&ran, session.as_str()), before);
    let named = ["-r", session.as_str(), "--fork", "--session-id", "my-copy", "-p", "x", "--json"];
    let forked = ran.then().script([says("Two.")]).args(named).run().exits(0);
    assert_eq!(forked.session().as_str(), "my-copy");
    let listed = ran.sessions().find("my-copy").unwrap();
    assert_eq!(listed.origin.map(|origin| origin.session), Some(session));
    // Nothing to say: nothing is left of the copy.
    let count = ran.sessions().list().unwrap().len();
    ran.then().script([says("-")]).args(["-r", "my-copy", "--fork"]).run().exits(2);
    assert_eq!(ran.sessions().list().unwrap().len(), count);
}

#[test]
fn a_fork_of_more_messages_than_there_are_is_refused_with_their_number() {
    let ran = first();
    let refused = ran.then().script([says("-")]).args(["-c", "--fork", "99", "-p", "x"]).run().exits(2);
    assert!(refused.stderr.contains("has 2 messages, and 99 were asked for"), "{}", refused.stderr);
    assert_eq!(ran.sessions().list().unwrap().len(), 1);
}

#[test]
fn a_copy_of_a_damaged_session_says_how_much_it_leaves_out() {
    let ran = first();
    let session = ran.session();
    ran.then().script([says("Two.")]).args(["-c", "-p", "Again."]).run().exits(0);
    let database = ran.home(&format!(".state/terret/sessions/{session}/journal.db"));
    let bytes = fs::read(&database).unwrap();
    let at = bytes.windows(5).position(|bytes| bytes == b"\"One.").unwrap();
    fs::write(&database, [&bytes[..=at], b"X", &bytes[at + 2..]].concat()).unwrap();
    let copy = ran.then().script([says("On.")]).args(["-c", "--fork", "-p", "x", "--json"]).run().exits(0);
    assert!(copy.stderr.contains("was changed after it was written"), "{}", copy.stderr);
    assert!(copy.stderr.contains("3 messages are after the damage"), "{}", copy.stderr);
    assert_eq!(texts(&copy, copy.session().as_str()), ["Do it.", "x", "On."]);
}

#[test]
fn a_prompt_with_other_limits_gets_a_run_of_its_own() {
    let args = ["-c", "-p", "and be quick", "--max-turns", "1"];
    let on = waiting().kill().then().script([says("Quickly.")]).args(args).run().exits(0);
    assert!(on.stderr.contains("makes room for one with other limits"), "{}", on.stderr);
    assert!(on.stderr.contains("1 model call ·"), "its own calls alone: {}", on.stderr);
}

#[test]
fn limits_that_do_not_hold_for_a_run_that_goes_on_are_named() {
    let killed = waiting().kill();
    let args = ["-c", "--json", "--max-turns", "7", "--timeout", "90"];
    let on = killed.then().script([says("Done.")]).args(args).run().exits(0);
    assert!(
        on.stderr.contains("these don't hold: --max-turns 7 (it has 200), --timeout 90 s (it has no limit)"),
        "{}",
        on.stderr
    );
    // Nothing was asked for, and nothing is said.
    let on = waiting().kill().then().script([says("Done.")]).args(["-c", "--json"]).run().exits(0);
    assert_eq!(on.stderr, "");
}

#[test]
fn a_run_whose_time_is_up_when_it_goes_on_says_from_when_it_is_counted() {
    let waits = json!({"text": "Late.", "delayMs": 600_000});
    let run = Terret::scripted([waits]).args(["--timeout", "1s", "--json"]).start();
    run.says("model_start");
    let killed = run.kill();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let on = killed.then().script([says("-")]).args(["-c", "--json"]).run().exits(6);
    assert!(on.stderr.contains("it is counted from its begin"), "{}", on.stderr);
    let on = on.then().script([says("Done.")]).args(["-c", "--json"]).run().exits(0);
    assert_eq!(on.result()["text"], "Done.");
}

#[test]
fn a_session_has_the_name_that_it_was_given_once() {
    let named = Terret::scripted([says("One.")]).args(["--session-id", "Nightly build/7", "--json"]).run().exits(0);
    assert_eq!(named.session().as_str(), "Nightly build/7");
    let again = named.then().script([says("-")]).args(["-p", "x", "--session-id", "Nightly build/7"]).run().exits(2);
    assert!(again.stderr.contains("-r 'Nightly build/7' goes on with it"), "{}", again.stderr);
    for bad in ["", " x", "a\nb"] {
        named.then().script([says("-")]).args(["-p", "x", "--session-id", bad]).run().exits(2);
    }
}

#[test]
fn a_session_that_is_not_kept_leaves_nothing() {
    let ran = Terret::scripted([says("One.")]).args(["--no-session"]).run().exits(0);
    assert!(!ran.stderr.contains("session"), "{}", ran.stderr);
    assert!(!ran.home(".state").exists());
    let demo = Terret::new().args(["demo"]).run().exits(0);
    assert!(!demo.home(".state").exists());
    // Nor does one in which nothing was said.
    let ran = Terret::new().script([says("-")]).args(["-p"]).run().exits(2);
    assert_eq!(ran.sessions().list().unwrap(), []);
    let left = fs::read_dir(ran.home(".state/terret/sessions")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name != "index.db").count(), 0);
}

#[test]
fn sessions_are_where_xdg_and_one_variable_of_our_own_say() {
    let ran = Terret::scripted([says("One.")]).env("TERRET_HOME", "").run().exits(0);
    assert_eq!(ran.sessions().list().unwrap().len(), 1, "an empty one is none");
    let ran = ran.then().env("TERRET_HOME", "relative").script([says("One.")]).args(["-p", "x"]).run().exits(0);
    assert_eq!(SqliteJournal::new(ran.path("relative/sessions")).list().unwrap().len(), 1, "in the current folder");
    let home = ran.home("ours");
    let ran = ran.then().env("TERRET_HOME", &home).script([says("One.")]).args(["-p", "x"]).run().exits(0);
    assert_eq!(SqliteJournal::new(home.join("sessions")).list().unwrap().len(), 1);
    let ran = ran.then().env("XDG_STATE_HOME", "").script([says("One.")]).args(["-p", "x"]).run().exits(0);
    assert_eq!(SqliteJournal::new(ran.home(".local/state/terret/sessions")).list().unwrap().len(), 1);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(home.join("sessions")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "people say secrets to models");
}

#[test]
fn the_model_of_a_session_is_asked_again_unless_another_one_is_named() {
    let ran = first();
    let on = ran.then().args(["-c", "-p", "Again."]).run().exits(0);
    assert_eq!(on.stdout, "One.\n", "the script begins anew, as a scripted model does");
    let on = ran.then().script([says("Another.")]).args(["-c", "-p", "x"]).run().exits(0);
    assert_eq!(on.stdout, "Another.\n");
    // A key in an address isn't kept.
    let args =
        ["-p", "x", "-m", "custom/m", "--base-url", "http://127.0.0.1:1/v1?key=hunter2", "--session-id", "secret"];
    let failed = ran.then().args(args).args(["--json"]).run().exits(7);
    let setup = failed.sessions().reader(&failed.session()).unwrap().setup().unwrap();
    assert_eq!((setup.model, setup.base_url), (None, None));
    assert!(setup.folder.is_some());
}

#[test]
fn a_run_that_failed_is_tried_again_without_a_prompt() {
    let fails = json!({"error": {"kind": "server", "message": "sorry"}});
    let ran = Terret::scripted([bash("c1", "echo once >> log"), fails]).args(["--json"]).run().exits(7);
    let reads = json!({"text": "Done.", "expect": {"lastRole": "toolResult"}});
    let on = ran.then().script([reads]).args(["-c", "--json"]).run().exits(0);
    assert_eq!((on.session(), on.result()["text"].as_str()), (ran.session(), Some("Done.")));
    assert_eq!(fs::read_to_string(ran.path("log")).unwrap(), "once\n");
}

#[test]
fn a_run_that_was_cancelled_goes_on_without_a_prompt_and_the_model_is_told() {
    let run = Terret::scripted([bash("c1", "echo once >> log; sleep 600")]).args(["--json"]).start();
    run.line_in("log");
    run.signal(Signal::INT);
    let ran = run.wait().exits(130);
    let reads = json!({"text": "I see.", "expect": {"lastRole": "toolResult", "contains": "Outcome unknown"}});
    let on = ran.then().script([reads]).args(["-c", "--json"]).run().exits(0);
    assert_eq!((on.session(), on.result()["text"].as_str()), (ran.session(), Some("I see.")));
    assert_eq!(fs::read_to_string(ran.path("log")).unwrap(), "once\n");
}

/// A run that waits in its second turn, for as long as it is let.
fn waiting() -> Running {
    let waits = json!({"text": "Late.", "delayMs": 600_000});
    let run = Terret::scripted([bash("c1", "echo once >> log"), waits]).args(["--session-id", "it", "--json"]).start();
    run.says("\"role\":\"toolResult\"");
    run
}

#[test]
fn a_session_in_use_names_its_owner_and_offers_a_copy() {
    let run = waiting();
    for option in [&["-c"][..], &["-r", "it"]] {
        let refused = run.beside().script([says("-")]).args(option).args(["-p", "x", "-ojson"]).run().exits(1);
        let error = refused.result()["error"].clone();
        assert_eq!(error["kind"], "in_use");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("session it is open in process ") && message.contains("-r it --fork"), "{message}");
    }
    let deleted = run.beside().args(["sessions", "delete", "it", "--yes"]).run().exits(1);
    assert!(deleted.stderr.contains("is open in process "), "{}", deleted.stderr);
    let forked = run.beside().script([says("Copied.")]).args(["-c", "--fork", "-p", "x", "--json"]).run().exits(0);
    assert_eq!(forked.result()["text"], "Copied.");
    run.signal(Signal::INT);
    let ran = run.wait().exits(130);
    // What it was refused for was not so much as begun.
    assert_eq!(ran.messages().len(), 3);
    let on = ran.then().script([says("More.")]).args(["-r", "it", "-p", "x"]).run().exits(0);
    assert_eq!(on.stdout, "More.\n");
}

#[test]
fn a_run_that_was_killed_is_finished_without_a_prompt() {
    let killed = waiting().kill();
    let run = serde_json::from_str::<Value>(killed.stdout.lines().next().unwrap()).unwrap()["runId"].clone();
    let on = killed.then().script([says("Finished.")]).args(["-c", "--json"]).run().exits(0);
    let start = &on.events()[0];
    assert_eq!((&start["type"], &start["resumed"], &start["runId"]), (&json!("run_start"), &json!(true), &run));
    assert_eq!(on.result()["text"], "Finished.");
    assert_eq!(on.result()["modelCalls"], 3, "what was spent before the crash counts");
    assert_eq!(fs::read_to_string(killed.path("log")).unwrap(), "once\n");
    // With text, it says so.
    let killed = waiting().kill();
    let on =
        killed.then().script([says("Finished."), says("Quickly.")]).args(["-c", "-p", "and be quick"]).run().exits(0);
    assert!(on.stderr.contains("3 messages, its last run was interrupted and goes on"), "{}", on.stderr);
    assert!(texts(&on, "it").contains(&"and be quick".to_owned()));
}

#[test]
fn a_budget_is_not_given_anew_by_a_crash() {
    let waits = json!({"text": "Late.", "delayMs": 600_000});
    let run = Terret::scripted([bash("c1", "true"), waits]).args(["--max-turns", "2", "--json"]).start();
    run.says("\"role\":\"toolResult\"");
    run.says("\"epoch\":3");
    let killed = run.kill();
    let on = killed.then().script([says("Too much.")]).args(["-c", "--json"]).run().exits(6);
    assert_eq!(on.result()["error"]["kind"], "model_calls");
    assert_eq!(on.of_type("model_start").len(), 0);
}

#[test]
fn where_sessions_can_not_be_kept_nothing_is_begun() {
    let start = || Terret::scripted([bash("c1", "echo ran > log"), says("-")]).file("file", "");
    let file = |terret: Terret| {
        let path = terret.path("file");
        terret.env("XDG_STATE_HOME", path)
    };
    let ran = file(start()).args(["--json"]).run().exits(1);
    assert!(ran.stderr.contains("file/terret"), "{}", ran.stderr);
    assert!(!ran.path("log").exists() && ran.of_type("model_start").is_empty());
    let ran = start().env("HOME", "").env("XDG_STATE_HOME", "").env("HOME", "relative").run().exits(4);
    assert!(ran.stderr.contains("--no-session"), "{}", ran.stderr);
    file(start()).args(["--no-session"]).run().exits(0);
}

/// As on a full disk: files can't grow beyond what they are.
#[test]
fn a_run_whose_records_can_not_be_kept_ends_before_its_next_effect() {
    let long = "x".repeat(60_000);
    let (command, world) =
        Terret::scripted([bash("c1", &format!("echo ran > log; : {long}")), says("-")]).args(["--json"]).into_command();
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 80; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    limited.env_clear().current_dir(command.get_current_dir().unwrap());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    crate::schema::check(&stdout);
    let result: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((result["exitCode"].as_i64(), &result["error"]["kind"]), (Some(1), &json!("journal")), "{result}");
    assert!(!world.path().join("project/log").exists(), "the call of a reply that was not kept was not run");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("could not be written"), "{message}");
}
