//! What holds the commands of a run, and what the program says where nothing does.

use std::process::Command;

use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
use serde_json::{Value, json};

use crate::terret::{Ran, Terret};

/// A model that runs this command, and then is done.
fn running(command: &str) -> Terret {
    let call = json!({"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": command}});
    Terret::scripted([json!({"content": [call]}), json!({"text": "Done."})]).args(["--json"])
}

fn sandbox_of(ran: &Ran) -> Value {
    let ended = ran.events().into_iter().find_map(|event| event.pointer("/message/details/sandbox").cloned());
    ended.unwrap_or_else(|| panic!("no call says what held it:\n{}", ran.stdout))
}

#[test]
fn by_default_commands_write_in_the_folder_alone_and_see_no_secrets() {
    let terret =
        running("echo in > made; echo out > ../made; cat ~/.ssh/key ~/.state/terret/sessions/*/* | head -c 20; env")
            .file("../home/.ssh/key", "the-secret")
            .env("ANTHROPIC_API_KEY", "sk-the-secret");
    let ran = terret.run().exits(0);
    assert_eq!(std::fs::read_to_string(ran.path("made")).unwrap(), "in\n");
    assert!(!ran.path("../made").exists());
    let (text, _) = &ran.tool_results()[0];
    assert!(!text.contains("the-secret") && !text.contains("SQLite"), "{text}");
    assert!(["bubblewrap", "landlock"].contains(&sandbox_of(&ran).as_str().unwrap()));
}

#[test]
fn kept_keys_are_nobodys_business_wherever_they_are_kept() {
    for home in ["../ours", ".ours"] {
        let key = Terret::new().args(["auth", "set", "openai"]).env("TERRET_HOME", home).stdin("sk-the-secret").run();
        let command = format!("cat {home}/auth.json || echo closed");
        let calls = json!([
            {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": command}},
            {"type": "toolCall", "id": "c2", "name": "read", "arguments": {"path": format!("{home}/auth.json")}},
        ]);
        let run = key.exits(0).then().script([json!({"content": calls}), json!({"text": "Done."})]);
        let ran = run.args(["-p", "x", "--json"]).env("TERRET_HOME", home).run().exits(0);
        assert!(ran.path(home).join("auth.json").exists());
        assert!(!ran.stdout.contains("the-secret"), "{}", ran.stdout);
    }
}

#[test]
fn what_the_user_has_decided_stays_so_also_where_it_lies_in_the_folder_that_is_worked_in() {
    let files = ["config.toml", "permissions.json", "trust.json"];
    for (home, is_there) in [(".ours", true), (".ours", false), ("deep/ours", true)] {
        let commands = files.map(|name| format!("mkdir -p {home}; echo evil > {home}/{name}; mv {home} moved; true"));
        let call = |n: usize, tool: &str, arguments: Value| json!({"type": "toolCall", "id": format!("{tool}{n}"), "name": tool, "arguments": arguments});
        let bash = commands.iter().enumerate().map(|(n, command)| call(n, "bash", json!({"command": command})));
        let path = |name: &str| format!("{home}/{name}");
        let write = |(n, name): (usize, &&str)| call(n, "write", json!({"path": path(name), "content": "evil"}));
        let calls: Vec<Value> = bash.chain(files.iter().enumerate().map(write)).collect();
        let mut terret = Terret::scripted([json!({"content": calls}), json!({"text": "Done."})]);
        if is_there {
            terret = terret.file(&path("config.toml"), "").file(&path("trust.json"), "{\"trusted\": {}}");
        }
        let ran = terret.args(["--json"]).env("TERRET_HOME", home).run().exits(0);
        for name in files {
            let content = std::fs::read_to_string(ran.path(&path(name))).unwrap_or_default();
            assert!(!content.contains("evil"), "{home} {is_there} {name}: {}", ran.stdout);
        }
    }
}

#[test]
fn a_command_makes_no_configuration_of_the_program_where_the_folder_is_a_home() {
    let ran =
        running("mkdir -p .config/terret && echo 'permission-mode = \"full\"' > .config/terret/config.toml; true")
            .env("XDG_CONFIG_HOME", "")
            .args(["-C", "../home"])
            .run()
            .exits(0);
    assert!(!ran.path("../home/.config/terret/config.toml").exists(), "{}", ran.stdout);
}

#[test]
fn full_says_in_words_that_there_is_no_sandbox() {
    let ran = running("echo out > ../made").args(["--permission-mode", "full"]).run().exits(0);
    assert!(ran.path("../made").exists());
    assert_eq!(sandbox_of(&ran), "none");
}

#[test]
fn further_folders_and_the_network_are_opened_by_options() {
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let command = format!("echo out > ../further/made; exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached");
    let closed = running(&command).file("../further/there", "").run().exits(0);
    assert!(!closed.path("../further/made").exists() && !closed.tool_results()[0].0.contains("reached"));
    let options = ["--add-dir", "../further", "--network"];
    let open = running(&command).file("../further/there", "").args(options).run().exits(0);
    assert!(open.path("../further/made").exists() && open.tool_results()[0].0.contains("reached"));
    running("true").args(["--add-dir", "nowhere"]).run().exits(2);
}

/// Files with which projects make tools of other kinds run programs, or believe things.
#[test]
fn a_project_that_nobody_has_trusted_runs_nothing_and_its_settings_stay_as_they_are() {
    let trap = |marker: &str| format!("touch ../{marker}");
    let git = |folder: &std::path::Path, arguments: &[&str]| {
        assert!(Command::new("git").args(arguments).current_dir(folder).status().unwrap().success());
    };
    let terret = running("echo evil > .terret/config.toml; git status; cat .env; ls")
        .file(".env", "ANTHROPIC_BASE_URL=http://127.0.0.1:1\n")
        .file(".mcp.json", format!(r#"{{"mcpServers":{{"x":{{"command":"sh","args":["-c","{}"]}}}}}}"#, trap("mcp")))
        .file(".envrc", trap("envrc"))
        .file(".terret/config.toml", "")
        .file(".git/hooks/post-checkout", "");
    std::fs::remove_dir_all(terret.path(".git")).unwrap();
    git(&terret.path("."), &["init", "-q"]);
    git(&terret.path("."), &["config", "core.fsmonitor", &trap("fsmonitor")]);
    let ran = terret.run().exits(0);
    for marker in ["mcp", "envrc", "fsmonitor"] {
        assert!(!ran.path("..").join(marker).exists(), "{marker}");
    }
    assert_eq!(std::fs::read_to_string(ran.path(".terret/config.toml")).unwrap(), "");
}

/// Runs it where the kernel has neither namespaces nor Landlock, as in an old container.
fn without_a_sandbox(terret: Terret) -> Ran {
    let new_user = libc::CLONE_NEWUSER as u64;
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(new_user), new_user);
    let rules = std::collections::BTreeMap::from([
        (libc::SYS_unshare, vec![]),
        (libc::SYS_landlock_create_ruleset, vec![]),
        (libc::SYS_clone, vec![SeccompRule::new(vec![condition.unwrap()]).unwrap()]),
    ]);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(1), arch).unwrap();
    let filter: seccompiler::BpfProgram = filter.try_into().unwrap();
    let restricted = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        seccompiler::apply_filter(&filter).unwrap();
        terret.run()
    });
    restricted.join().unwrap()
}

#[test]
fn where_no_sandbox_works_a_run_that_needs_one_does_not_start() {
    let ran = without_a_sandbox(running("touch made")).exits(5);
    let error = &ran.result()["error"];
    assert_eq!(error["kind"], "no_sandbox");
    let message = error["message"].as_str().unwrap();
    for part in ["bubblewrap: ", "landlock: ", "--permission-mode full", "--permission-mode read-only"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!ran.path("made").exists());

    let full = without_a_sandbox(running("touch made").args(["--permission-mode", "full"])).exits(0);
    assert!(full.path("made").exists());
    let reading = ["--permission-mode", "read-only"];
    assert!(!without_a_sandbox(running("touch made").args(reading)).exits(0).path("made").exists());
    without_a_sandbox(Terret::scripted([json!({"text": "Done."})]).args(["--tools", "read,grep"])).exits(0);
    without_a_sandbox(Terret::new().args(["demo"])).exits(0);
}

#[test]
fn the_whole_file_system_is_no_folder_to_work_in() {
    let running = || Terret::scripted([json!({"text": "Done."})]);
    for args in [&["-C", "/"][..], &["--add-dir", "/"], &["-C", "/", "--permission-mode", "read-only"]] {
        let ran = running().args(args).run().exits(2);
        assert!(ran.stderr.contains("use a folder further down"), "{}", ran.stderr);
    }
    running().args(["-C", "/", "--permission-mode", "full"]).run().exits(0);
}

#[test]
fn the_doctor_tells_what_works_and_never_a_key() {
    let doctor = |json: bool| {
        let terret = Terret::new().args(["doctor"]).env("GROQ_API_KEY", "sk-the-secret");
        if json { terret.args(["--json"]) } else { terret }
    };
    let said = doctor(false).run().exits(0);
    for part in ["Sandbox", "bubblewrap", "landlock", "works", "GROQ_API_KEY", "Sessions", "none answers"] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("sk-the-secret"));
    let told: Value = serde_json::from_str(&doctor(true).run().exits(0).stdout).unwrap();
    assert_eq!(told["keys"], json!([{"provider": "groq", "from": "GROQ_API_KEY"}]));
    assert_eq!(told["model"], json!({"name": "groq/openai/gpt-oss-120b", "because": "GROQ_API_KEY"}));
    assert_eq!(told["sessions"]["count"], 0);
    assert!(told["programs"][0]["version"].as_str().unwrap().starts_with("GNU bash"), "{told}");
    assert!(told["sandbox"].as_array().unwrap().iter().any(|rung| rung["works"] == true), "{told}");

    // The walls are built by the system's own program, wherever others are looked for.
    let elsewhere: Value = serde_json::from_str(&doctor(true).env("PATH", "/nowhere").run().exits(0).stdout).unwrap();
    assert_eq!(elsewhere["programs"][2], told["programs"][2]);

    // A mistake in the configuration keeps runs from starting, and doesn't keep the rest from being told.
    let mistaken = doctor(true).config("max-turns = 'many'\n").run().exits(1);
    let mistaken: Value = serde_json::from_str(&mistaken.stdout).unwrap();
    assert!(mistaken["configuration"]["problem"].as_str().unwrap().contains("max-turns"), "{mistaken}");
    assert!(mistaken["sandbox"].as_array().is_some_and(|rungs| !rungs.is_empty()), "{mistaken}");

    let broken: Value = serde_json::from_str(&without_a_sandbox(doctor(true)).exits(1).stdout).unwrap();
    assert!(broken["sandbox"].as_array().unwrap().iter().all(|rung| rung["works"] == false), "{broken}");
    assert!(broken["sandbox"][0]["notes"][0].as_str().is_some_and(|note| !note.is_empty()), "{broken}");
    let said = without_a_sandbox(doctor(false)).exits(1);
    assert!(said.stdout.contains("need --permission-mode full"), "{}", said.stdout);
}
