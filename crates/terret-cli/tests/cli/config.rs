//! `terret config`, and what configuration does to runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use serde_json::{Value, json};

use crate::command_line::complains;
use crate::server::Server;
use crate::servers::chat_text;
use crate::terret::Terret;

/// A run that only has to start.
fn run() -> Terret {
    Terret::scripted([json!({"text": "Done."})])
}

#[test]
fn what_is_stronger_wins() {
    // Which format was chosen shows in what is printed.
    let format = |terret: Terret| match terret.run().exits(0).stdout.as_str() {
        "Done.\n" => "text",
        json if json.lines().count() == 1 => "json",
        _ => "stream-json",
    };
    let user = || run().config("output-format = \"json\"\n");
    assert_eq!(format(run()), "text");
    assert_eq!(format(user()), "json");
    assert_eq!(format(user().env("TERRET_OUTPUT_FORMAT", "stream-json")), "stream-json");
    assert_eq!(format(user().env("TERRET_OUTPUT_FORMAT", "")), "json");
    let set = || user().env("TERRET_OUTPUT_FORMAT", "stream-json").args(["--set", "output-format=text"]);
    assert_eq!(format(set()), "text");
    assert_eq!(format(set().args(["-o", "json"])), "json");
    assert_eq!(format(set().args(["--set", "output-format = 'json'"])), "json");
    assert_eq!(format(user().args(["--json"])), "stream-json");
    let home = run().home_file("elsewhere/config.toml", "output-format = 'stream-json'\n");
    let elsewhere = home.home("elsewhere");
    assert_eq!(format(home.config("output-format = \"json\"\n").env("TERRET_HOME", elsewhere)), "stream-json");
}

#[test]
fn each_kind_of_value_can_be_set() {
    let script = || [json!({"content": [{"type": "toolCall", "id": "c1", "name": "ls", "arguments": {}}]})];
    let terret = || Terret::scripted(script()).args(["--json"]);
    // A number.
    let ran = terret().config("max-turns = 1\n").run().exits(6);
    assert_eq!(ran.result()["error"]["kind"], "model_calls");
    // A text that is a time, and a fraction.
    terret().config("timeout = '1h'\nmax-turns = 1\n").run().exits(6);
    let ran = terret().config("max-cost = 0.5\n").run().exits(2);
    assert!(ran.stderr.contains("--max-cost"), "{}", ran.stderr);
    // A list.
    for tools in ["['ls', 'read']", "'ls,read'"] {
        let ran = terret().config(format!("max-turns = 1\ntools = {tools}\n")).run().exits(6);
        assert_eq!(ran.events()[0]["tools"], json!(["read", "ls"]));
    }
    let ran = run().args(["--json"]).config("tools = []\n").run().exits(0);
    assert_eq!(ran.events()[0]["tools"], json!([]));
    // A switch, which a session that is named turns off.
    let ran = run().config("no-session = true\n").run().exits(0);
    assert_eq!(ran.sessions().list().unwrap().len(), 0);
    let ran = run().config("no-session = true\n").args(["--set", "no-session=false"]).run().exits(0);
    assert_eq!(ran.sessions().list().unwrap().len(), 1);
    let ran = ran.then().config("no-session = true\n").script([json!({"text": "Again."})]).args(["-c", "Again!"]);
    assert_eq!(ran.run().exits(0).sessions().list().unwrap()[0].messages, 4);
}

#[test]
fn the_same_holds_for_the_run_command() {
    let ran = Terret::new().args(["exec"]).script([json!({"text": "Done."})]).args(["Do it."]);
    assert_eq!(ran.config("output-format = 'json'\n").run().exits(0).result()["text"], "Done.");
}

#[test]
fn an_address_goes_with_the_model_that_it_stands_beside() {
    let (one, other) = (Server::answering([chat_text("one")]), Server::answering([chat_text("other")]));
    let config = format!("model = \"custom/m\"\nbase-url = \"{}\"\n", one.url);
    let terret = || Terret::new().args(["-p", "Hi!"]).config(&config);
    assert_eq!(terret().run().exits(0).stdout, "one\n");
    // The key of another provider isn't sent there.
    let asked = || terret().env("OPENAI_API_KEY", "k").env("OPENAI_BASE_URL", &other.url);
    assert_eq!(asked().args(["-m", "openai/m"]).run().exits(0).stdout, "other\n");
    assert_eq!(asked().env("TERRET_MODEL", "openai/m").run().exits(0).stdout, "other\n");
    assert_eq!(asked().args(["--set", "model=openai/m"]).run().exits(0).stdout, "other\n");
    assert_eq!(asked().args(["--base-url", &other.url]).run().exits(0).stdout, "other\n");
    assert_eq!(one.requests().len(), 1);
    // What goes on, goes on with its own model.
    let ran = Terret::new().args(["-p", "Hi!", "-m", "custom/m", "--base-url", &other.url]).run().exits(0);
    assert_eq!(ran.then().args(["-c", "And?"]).config(&config).run().exits(0).stdout, "other\n");
}

#[test]
fn the_address_of_a_provider_can_be_set_and_its_variable_wins() {
    let (one, other) = (Server::answering([chat_text("one")]), Server::answering([chat_text("other")]));
    let config =
        format!("[providers.gemini]\nbase-url = 'http://127.0.0.1:9'\n[providers.openai]\nbase-url = '{}'", one.url);
    let terret = || Terret::new().args(["-p", "Hi!", "-m", "openai/m"]).env("OPENAI_API_KEY", "k").config(&config);
    assert_eq!(terret().run().exits(0).stdout, "one\n");
    for variable in ["OPENAI_BASE_URL", "OPENAI_API_BASE"] {
        assert_eq!(terret().env(variable, &other.url).run().exits(0).stdout, "other\n");
    }
}

#[test]
fn what_is_wrong_in_a_file_is_said_with_its_place() {
    for (content, complaint) in [
        ("modle = 'x'", "1:1: there is no key \"modle\"; did you mean model?"),
        ("\n  max_turns = 5", "2:3: there is no key \"max_turns\"; did you mean max-turns?"),
        ("tea = 1", "1:1: there is no key \"tea\""),
        ("prompt = 'x'", "1:1: there is no key \"prompt\""),
        ("max-turns = 0", "1:13: max-turns: \"0\": expected a whole number above 0"),
        ("max-turns = true", "1:13: max-turns: it takes N, not a boolean"),
        ("max-turns = 0x10", "1:13: max-turns: it takes N, not a number"),
        ("model = 5", "1:9: model: it takes MODEL, not a number"),
        ("model = ['a/b']", "1:9: model: it takes MODEL, not a list"),
        ("no-session = 'yes'", "1:14: no-session: it takes true or false, not a text"),
        ("tools = ['ls', 1]", "1:9: tools: it takes list of NAMES, not a list"),
        ("timeout = 1979-05-27", "1:11: timeout: it takes TIME, not a date"),
        ("output-format = 'xml'", "1:17: output-format: \"xml\" is none of text, json, stream-json"),
        ("model = \"a\\u0000b\"", "1:9: model: it holds a NUL"),
        (
            "base-url = 'localhost'",
            "1:12: base-url: \"localhost\" is not a base URL: it must look like https://host/path",
        ),
        ("model = 'a'\nmodel = 'b'", "2:1: duplicate key"),
        ("a = 'é' x", "1:9: unexpected key or value, expected newline, `#`, behind \"a = 'é'\""),
        ("é = 'é'", "1:1: "),
        ("providers = 1", "1:13: providers is a table, as in [providers.openai]"),
        ("[providers.antropic]", "1:12: there is no provider \"antropic\"; did you mean anthropic?"),
        ("providers.openai = 1", "1:20: providers.openai is a table, as in [providers.openai]"),
        ("[providers.openai]\nkey = 'x'", "2:1: there is no key \"key\""),
        ("[providers.openai]\nbase-url = 'x'", "2:12: providers.openai.base-url: \"x\" is not a base URL"),
        ("[providers.openai]\napi-key = 7", "2:11: providers.openai.api-key is a text, not a number"),
    ] {
        let ran = run().config(content).run().exits(4);
        let place = format!("/home/.config/terret/config.toml:{complaint}");
        assert!(ran.stderr.contains(&place), "{content:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
    let several = || run().config("modle = 'x'\nmax-turns = 0\n");
    complains(several, 4, "configuration", &["config.toml:1:1: ", "config.toml:2:13: "]);
    for (set, complaint) in [
        ("modle=x", "--set: there is no key \"modle\"; did you mean model?"),
        ("model", "--set: \"model\" is not KEY=VALUE"),
        ("max-turns=many", "--set: max-turns: \"many\": expected a whole number"),
        ("=", "--set: "),
    ] {
        complains(|| run().args(["--set", set]), 4, "configuration", &[complaint]);
    }
    complains(
        || run().env("TERRET_MAX_TURNS", "many"),
        4,
        "configuration",
        &["TERRET_MAX_TURNS: \"many\": expected a whole number"],
    );
    complains(|| run().env("TERRET_NO_SESSION", "perhaps"), 4, "configuration", &["TERRET_NO_SESSION: \"perhaps\""]);
}

#[test]
fn a_key_in_a_file_is_refused_and_never_shown() {
    for content in [
        "[providers.openai]\napi-key = 'sk-secret-123'",
        "[providers.openai]\napi-key = sk-secret-123",
        "api-key = 'sk-secret-123'",
        "base-url = 'https://me:sk-secret-123@host/v1'",
    ] {
        let ran = run().config(content).run().exits(4);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    }
    let ran = run().config("[providers.openai]\napi-key = 'sk-secret-123'").run().exits(4);
    assert!(ran.stderr.contains("2:11: ") && ran.stderr.contains("`terret auth set openai`"), "{}", ran.stderr);
    let ran =
        Terret::new().args(["config", "explain"]).config("base-url = 'https://host/v1?key=secret'").run().exits(0);
    assert!(ran.stdout.contains("base-url = \"https://host/v1\"  ~/"), "{}", ran.stdout);
}

#[test]
fn odd_files_are_read_or_named() {
    // A byte order mark and the line ends of Windows.
    let ran = run().config("\u{feff}output-format = 'json'\r\nmax-turns = 5\r\n").run().exits(0);
    assert_eq!(ran.result()["text"], "Done.");
    let ran = run().config("\u{feff}\r\nmax-turns = 0\r\n").run().exits(4);
    assert!(ran.stderr.contains(":2:13: max-turns"), "{}", ran.stderr);

    for (content, complaint) in [
        (&b"model = 'a/\xff'"[..], "config.toml:1:12: it is not UTF-8 here"),
        (b"model = 'a'\n\xff\xfe", "config.toml:2:1: it is not UTF-8 here"),
        (b"\xff\xfem\0o\0", "config.toml:1:1: it is not UTF-8 here"),
        (b"a\0b = 1", "config.toml:1:"),
        (b"\x1b[31m = 1", "config.toml:1:2: "),
        (&vec![b'#'; 10 << 20], "it has more than 1024 KiB"),
        (&[&b"tools = "[..], &vec![b'['; 100_000]].concat(), "config.toml:1:"),
    ] {
        let ran = run().config(content).run().exits(4);
        assert!(ran.stderr.contains(complaint), "{}", ran.stderr);
        assert!(!ran.stderr.contains(['\0', '\x1b']) && ran.stderr.len() < 1000, "{:?}", ran.stderr);
    }
    run().config("").run().exits(0);
}

#[test]
fn what_stands_in_the_place_of_a_file_is_named_or_read() {
    let place = ".config/terret/config.toml";
    let in_place = |make: &dyn Fn(&std::path::Path)| {
        let terret = run().home_file(".config/terret/other", "output-format = 'json'\n");
        make(&terret.home(place));
        terret.run()
    };
    let ran = in_place(&|path| fs::create_dir(path).unwrap()).exits(4);
    assert!(ran.stderr.contains("config.toml: can't be read: it is a folder"), "{}", ran.stderr);
    let ran = in_place(&|path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())).exits(4);
    assert!(ran.stderr.contains("config.toml: can't be read: it is not a plain file"), "{}", ran.stderr);
    let ran = in_place(&|path| symlink("other", path).unwrap()).exits(0);
    assert_eq!(ran.result()["text"], "Done.");
    // Nothing is there.
    in_place(&|path| symlink("nowhere", path).unwrap()).exits(0);
    let ran = in_place(&|path| symlink("config.toml", path).unwrap()).exits(4);
    assert!(ran.stderr.contains("config.toml: can't be read: "), "{}", ran.stderr);
    run().home_file(".config/terret", "a file").run().exits(0);
    // Root reads everything.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let ran = in_place(&|path| {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    });
    assert!(ran.exits(4).stderr.contains("config.toml: can't be read: Permission denied"));
}

#[test]
fn it_explains_where_a_value_comes_from() {
    let terret = |args: &[&str]| {
        let config = "max-turns = 7\n\nmodel = 'a/b'\nbase-url = 'http://one/v1'\n[providers.openai]\napi-key = '!k'\n";
        let terret = Terret::new().args(["config", "explain"]).args(args).config(config);
        terret.env("TERRET_MODEL", "c/d").run().exits(0).stdout
    };
    assert_eq!(
        terret(&["model"]),
        "model = \"c/d\"  TERRET_MODEL\n    instead of 'a/b'  ~/.config/terret/config.toml:3\n    The model, as \
         provider/model[:effort], as MODEL alone with --base-url, or scripted:FILE\n"
    );
    let all = terret(&["--set", "max-turns=9"]);
    for part in [
        "max-turns = 9  --set\n    instead of 7  ~/.config/terret/config.toml:1\n    instead of 200  the default\n",
        "base-url  not set\n    instead of \"http://one/v1\"  ~/.config/terret/config.toml:4, which is for another model\n",
        "output-format = \"text\"  the default\n",
        "max-cost  not set\n",
        "providers.openai.api-key = '!k'  ~/.config/terret/config.toml:6\n",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
    let json: Value = serde_json::from_str(&terret(&["--json", "max-turns"])).unwrap();
    assert_eq!(
        json,
        json!([{"key": "max-turns", "value": "7", "from": "~/.config/terret/config.toml:1",
                "overrides": [{"value": "200", "from": "the default"}]}])
    );
    Terret::new().args(["config", "explain", "tea"]).run().exits(2);
    let ran = Terret::new().args(["config", "explain", "max-turn"]).run().exits(2);
    assert!(ran.stderr.contains("did you mean max-turns?"), "{}", ran.stderr);
    let ran = Terret::new().args(["config", "explain"]).config("tea = 1").run().exits(4);
    assert!(ran.stderr.contains("config.toml:1:1"), "{}", ran.stderr);
}

#[test]
fn it_says_where_the_files_are() {
    let ran = Terret::new().args(["config", "path"]).run().exits(0);
    assert_eq!(ran.stdout, format!("{}  not there\n", ran.home(".config/terret/config.toml").display()));
    let ran = Terret::new().args(["config", "path"]).config("").run().exits(0);
    assert_eq!(ran.stdout, format!("{}\n", ran.home(".config/terret/config.toml").display()));
}

/// The flags that say which run it is, rather than how it is done; and a key, which each provider has for itself.
const NO_SETTINGS: [&str; 13] = [
    "api-key-file",
    "continue",
    "resume",
    "fork",
    "session-id",
    "print",
    "json",
    "cd",
    "set",
    "record",
    "replay",
    "help",
    "version",
];

#[test]
fn every_flag_of_a_run_is_a_setting_that_the_documentation_lists() {
    let keys = Terret::new().args(["config", "keys"]).run().exits(0).stdout;
    let documentation =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md")).unwrap();
    assert!(
        documentation.contains(&keys),
        "docs/configuration.md does not hold what `terret config keys` prints:\n{keys}"
    );

    let help = Terret::new().args(["--help"]).run().stdout;
    let mut flags = 0;
    for line in help.lines().map(str::trim).filter(|line| line.starts_with('-')) {
        let Some((_, flag)) = line.split_once("--") else { continue };
        let flag = flag.split([' ', '[', ',']).next().unwrap();
        let is_setting = keys.contains(&format!("| `{flag}` |"));
        assert_eq!(is_setting, !NO_SETTINGS.contains(&flag), "--{flag}");
        flags += 1;
    }
    assert!(flags > 15, "{help}");
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_named() {
    let ran = Terret::scripted([json!({"text": "Done."})]).env("TERRET_MAX_TURN", "3").env("TERRET_ELSE", "x");
    let ran = ran.run().exits(0);
    assert!(ran.stderr.contains("not used: TERRET_MAX_TURN; did you mean TERRET_MAX_TURNS?\n"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("TERRET_ELSE"), "{}", ran.stderr);
}
