//! `terret auth`, and where a run takes its key from.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::server::{Answer, Server};
use crate::servers::chat_text;
use crate::terminal::Terminal;
use crate::terret::{Ran, Terret};

const KEPT: &str = ".data/terret/auth.json";

fn set(key: &str) -> Ran {
    Terret::new().args(["auth", "set", "openai"]).stdin(key).run()
}

/// With which key OpenAI would be asked.
#[track_caller]
fn asks_with(terret: Terret) -> String {
    let server = Server::answering([chat_text("Hi.")]);
    terret.args(["-p", "Hi!", "-m", "openai/m"]).env("OPENAI_BASE_URL", &server.url).run().exits(0);
    let head = server.requests()[0].head.clone();
    head.lines().find_map(|line| line.strip_prefix("authorization: bearer ")).unwrap().to_owned()
}

#[test]
fn a_key_is_kept_for_its_owner_alone_and_never_shown() {
    let ran = set("\n  sk-secret-1 \nwhatever\n").exits(0);
    assert_eq!(ran.stdout, "");
    assert_eq!(ran.stderr, "the key for openai is kept in ~/.data/terret/auth.json\n");
    let kept = ran.home(KEPT);
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(asks_with(ran.then()), "sk-secret-1");

    // By another name, and beside another one.
    ran.then().args(["auth", "set", "claude"]).stdin("sk-secret-2").run().exits(0);
    let list = ran.then().args(["auth", "list"]).env("OPENAI_API_KEY", "sk-secret-3").run().exits(0);
    assert_eq!(
        list.stdout,
        "openai        OPENAI_API_KEY; also ~/.data/terret/auth.json\nanthropic     ~/.data/terret/auth.json\n"
    );
    let list = ran.then().args(["auth", "list", "--json"]).run().exits(0).stdout;
    let from = "~/.data/terret/auth.json";
    assert_eq!(
        serde_json::from_str::<Value>(&list).unwrap(),
        json!([{"provider": "openai", "from": from, "also": []}, {"provider": "anthropic", "from": from, "also": []}])
    );

    ran.then().args(["auth", "remove", "openai"]).run().exits(0);
    ran.then().args(["auth", "remove", "openai"]).run().exits(2);
    let asked = ran.then().args(["-p", "Hi!", "-m", "openai/m"]).run().exits(3);
    assert!(asked.stderr.contains("keep one with `terret auth set openai`"), "{}", asked.stderr);
    assert!(!fs::read_to_string(kept).unwrap().contains("sk-secret-1"));
}

#[test]
fn on_a_terminal_it_is_asked_for_and_hidden() {
    for (typed, is_kept) in [("sk-secret-1\n", true), ("sk-secret-1\u{3}", false), ("\n", false)] {
        let ran = Terret::new().args(["auth", "list"]).run().exits(0);
        let terminal = Terminal::open();
        let (mut command, _world) = ran.then().args(["auth", "set", "openai"]).into_command();
        command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
        let shown = terminal.answers("isn't shown): ", typed, command);
        assert!(shown.starts_with("The key for openai (it isn't shown): \r\n"), "{shown:?}");
        assert!(!shown.contains("secret"), "{shown:?}");
        assert_eq!(ran.home(KEPT).exists(), is_kept, "{typed:?}");
    }
}

#[test]
fn what_is_no_key_is_not_kept() {
    for text in ["", " \n\n", "sk-secret 1", "sk-sec\u{1b}ret"] {
        let ran = set(text).exits(2);
        assert!(ran.stderr.contains("that is no key") && !ran.stderr.contains("sec"), "{}", ran.stderr);
        assert!(!ran.home(KEPT).exists());
    }
    let ran = Terret::new().args(["auth", "set", "openai"]).stdin(b"\xff".to_vec()).run().exits(2);
    assert!(ran.stderr.contains("UTF-8"), "{}", ran.stderr);
    let ran = Terret::new().args(["auth", "set", "opnai"]).stdin("k").run().exits(2);
    for part in ["opnai", "did you mean openai?", "openai, anthropic"] {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    // Never as an argument, where everybody on the machine can see it.
    Terret::new().args(["auth", "set", "openai", "sk-secret-1"]).run().exits(2);
}

#[test]
fn the_flag_comes_before_the_environment_the_command_and_what_is_kept() {
    let command = "[providers.openai]\napi-key = '! echo from-command; echo more'\n";
    let ran = set("from-kept").exits(0);
    assert_eq!(asks_with(ran.then()), "from-kept");
    assert_eq!(asks_with(ran.then().config(command)), "from-command");
    let variable = || ran.then().env("OPENAI_API_KEY", "from-variable");
    assert_eq!(asks_with(variable()), "from-variable");
    // The command isn't run if nobody needs it.
    let fails = "[providers.openai]\napi-key = '!touch ran; exit 1'\n";
    assert_eq!(asks_with(variable().config(fails)), "from-variable");
    assert!(!ran.path("ran").exists());

    let file = |mode| {
        let terret = variable().file("key", "from-file\n").args(["--api-key-file", "key"]);
        fs::set_permissions(terret.path("key"), fs::Permissions::from_mode(mode)).unwrap();
        terret
    };
    assert_eq!(asks_with(file(0o600)), "from-file");
    let refused = file(0o644).args(["-p", "x", "-m", "openai/m"]).run().exits(3);
    assert!(refused.stderr.contains("others can read; it is not used (chmod 600 key)"), "{}", refused.stderr);
    // A pipe has no mode.
    let terret = variable().args(["--api-key-file", "/dev/stdin"]).stdin("from-pipe");
    assert_eq!(asks_with(terret), "from-pipe");

    let explained = ran.then().args(["config", "explain"]).run().exits(0).stdout;
    assert!(!explained.contains("from-kept"), "{explained}");
    let list = ran.then().config(command).args(["auth", "list"]).run().exits(0).stdout;
    assert_eq!(list, "openai        the command in ~/.config/terret/config.toml:2; also ~/.data/terret/auth.json\n");
}

#[test]
fn a_key_makes_its_provider_the_default_one() {
    let server = Server::answering([chat_text("Hi.")]);
    let ran = set("sk-secret-1").exits(0).then().args(["-p", "Hi!"]).env("OPENAI_BASE_URL", &server.url).run().exits(0);
    let note = "model: openai/gpt-6.2-sol, because of ~/.data/terret/auth.json (--model names another one)\n";
    assert!(ran.stderr.starts_with(note), "{}", ran.stderr);
}

#[test]
fn a_command_that_prints_no_key_is_named() {
    for (command, part) in [
        ("!exit 3", "failed (exit status: 3)"),
        ("!true", "printed no key: there is nothing in it"),
        ("!echo sk secret", "printed no key: it holds white space"),
        ("!no-such-command-here", "failed (exit status: 127)"),
    ] {
        let config = format!("[providers.openai]\napi-key = '{command}'\n");
        let ran = Terret::new().args(["-p", "x", "-m", "openai/m"]).config(config).run().exits(3);
        let place = "the command for the key, in ~/.config/terret/config.toml:2, ";
        assert!(ran.stderr.contains(place) && ran.stderr.contains(part), "{}", ran.stderr);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
}

#[test]
fn a_command_that_takes_its_time_is_named_and_a_signal_ends_it() {
    let config = "[providers.openai]\napi-key = '!touch ran; exec sleep 1000'\n";
    let run = Terret::new().args(["-p", "x", "-m", "openai/m"]).config(config).start();
    run.says("waiting for the command for the key, in ~/.config/terret/config.toml:2");
    run.signal(rustix::process::Signal::INT);
    run.wait().exits(130);
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    for mode in [0o640, 0o604, 0o620, 0o777] {
        let ran = set("sk-secret-1").exits(0);
        fs::set_permissions(ran.home(KEPT), fs::Permissions::from_mode(mode)).unwrap();
        let asked = ran.then().args(["-p", "x", "-m", "openai/m"]).run().exits(3);
        assert!(
            asked.stderr.contains("holds a key that others can read; it is not used (chmod 600 "),
            "{}",
            asked.stderr
        );
        ran.then().args(["auth", "set", "openai"]).stdin("k").run().exits(3);
        // What comes before it is used all the same.
        assert_eq!(asks_with(ran.then().env("OPENAI_API_KEY", "from-variable")), "from-variable");
    }
}

#[test]
fn what_stands_in_the_place_of_the_file_is_named_and_not_shown() {
    let start = |make: &dyn Fn(&std::path::Path)| {
        let terret = Terret::new().home_file(".data/terret/other", "");
        make(&terret.home(KEPT));
        terret.args(["-p", "x", "-m", "openai/m"]).run().exits(3).stderr
    };
    let private = |content: &'static str| {
        move |path: &std::path::Path| {
            fs::write(path, content).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    };
    for content in
        ["", "sk-secret-1", "{\"keys\": {\"openai\": 7}}", "{\"openai\": \"sk-secret-1\"}", "{\"keys\": \"sk-secret\"}"]
    {
        let said = start(&private(content));
        assert!(said.contains("auth.json: line ") && !said.contains("secret"), "{said}");
    }
    assert!(start(&|path| fs::create_dir(path).unwrap()).contains("auth.json: can't be read: it is a folder"));
    assert!(start(&|path| symlink(path, path).unwrap()).contains("auth.json: can't be read: "));
}

#[test]
fn a_key_can_be_tried() {
    let test = |answer: Answer| {
        let server = Server::answering([answer]);
        let ran = Terret::new().args(["auth", "test", "openai"]).env("OPENAI_API_KEY", "sk-secret-1");
        let ran = ran.env("OPENAI_BASE_URL", &server.url).run();
        assert!(!ran.stdout.contains("secret") && !ran.stderr.contains("secret"), "{}", ran.stderr);
        assert_eq!(server.requests()[0].body["model"], "gpt-6.2-sol");
        ran
    };
    let good = test(chat_text("yes")).exits(0);
    let said = "asking openai/gpt-6.2-sol …\nopenai: gpt-6.2-sol has answered; the key is good\n";
    assert_eq!(good.stderr, said);
    let error = json!({"error": {"message": "Incorrect API key provided: sk-secret-1"}}).to_string();
    let bad = test(Answer::new("401 Unauthorized", "application/json", error)).exits(3);
    assert!(bad.stderr.contains("Incorrect API key provided"), "{}", bad.stderr);
    test(Answer::new("404 Not Found", "application/json", "{}")).exits(7);

    Terret::new().args(["auth", "test", "openai"]).run().exits(3);
    let ran = Terret::new().args(["auth", "test", "together"]).env("TOGETHER_API_KEY", "k").run().exits(2);
    assert!(ran.stderr.contains("--model ID"), "{}", ran.stderr);
}
