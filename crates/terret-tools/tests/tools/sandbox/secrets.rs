//! What commands must not learn.

use serde_json::json;
use terret_tools::Level;

use super::{Arena, control_and_levels, levels};
use crate::project::Project;

const SECRET: &str = "s3cr3t-of-the-person";

/// Where secrets lie beneath a home.
const PLACES: &[&str] = &[
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".gnupg/private-keys-v1.d/key",
    ".config/gh/hosts.yml",
    ".netrc",
    ".npmrc",
    ".cargo/credentials.toml",
    ".config/git/credentials",
    ".config/terret/config.toml",
    ".local/state/terret/sessions/x/session.db",
    "Documents/diary.txt",
    "other/project/.env",
];

fn with_secrets(level: Option<Level>) -> Arena {
    let mut arena = Arena::new(level);
    for place in PLACES {
        arena = arena.file(&format!("../home/{place}"), SECRET);
    }
    arena.file("../home/.cargo/config.toml", "no secret").file("../home/.gitconfig", "[user]\n\tname = A\n")
}

#[tokio::test]
async fn the_secrets_of_a_home_cannot_be_read() {
    for level in control_and_levels() {
        let arena = with_secrets(level);
        std::os::unix::fs::symlink(arena.path("home"), arena.path("project/link")).unwrap();
        for place in PLACES {
            let commands = [
                format!("cat ~/{place}"),
                format!("cat link/{place}"),
                format!("ln ~/{place} hard && cat hard"),
                format!("cp ~/{place} copy && cat copy"),
                format!("cat /proc/self/root{}/{place}", arena.path("home").display()),
                format!("cat /proc/$PPID/root{}/{place}", arena.path("home").display()),
            ];
            for command in commands {
                let read = arena.run(&format!("{command}; rm -f hard copy")).await.text.contains(SECRET);
                assert_eq!(read, level.is_none(), "{command} on {level:?}");
            }
        }
        if level.is_some() {
            assert_eq!(arena.run("cat ~/.cargo/config.toml").await.text, "no secret");
            assert_eq!(arena.run("git config user.name").await.text, "A");
        }
    }
}

#[tokio::test]
async fn what_others_cant_read_in_etc_is_not_for_commands_of_root_either() {
    let found = std::process::Command::new("find").args(["/etc", "-type", "f", "!", "-perm", "-o+r"]).output().unwrap();
    let files: Vec<&str> = std::str::from_utf8(&found.stdout).unwrap().lines().take(20).collect();
    for level in levels() {
        for file in &files {
            let answer = Arena::new(Some(level)).run(&format!("head -c 1 <'{file}' | wc -c")).await;
            assert_eq!(answer.text.lines().last(), Some("0"), "{file} on {level}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn what_only_the_administrator_reads_is_hidden_from_commands_of_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for level in control_and_levels() {
        let answer = Arena::new(level).run("cat /etc/shadow").await;
        assert_eq!(answer.text.contains("root:"), level.is_none(), "on {level:?}: {}", answer.text);
    }
}

/// The environment of this very test, which cargo has filled, stands for keys.
#[tokio::test]
async fn the_memory_of_the_program_cannot_be_read() {
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let id = std::process::id();
    let attacks = [
        format!("tr '\\0' '\\n' < /proc/{id}/environ | grep -o CARGO_PKG_NAME=.*"),
        format!("cat /proc/{id}/environ /proc/$PPID/environ | tr '\\0' '\\n' | grep -o CARGO_PKG_NAME=.*"),
        format!("head -c 8 /proc/{id}/maps"),
        format!(
            "a=$(head -c 12 /proc/{id}/maps) && dd if=/proc/{id}/mem bs=4096 skip=$((16#$a / 4096)) count=1 | head -c 4"
        ),
        format!("cat /proc/{id}/task/*/environ | tr '\\0' '\\n' | grep -o CARGO_PKG_NAME=.*"),
        format!("readlink /proc/{id}/fd/1 /proc/{id}/exe; ls /proc/{id}/cwd/"),
        format!("dd if=/proc/{id}/auxv bs=8 count=1 2>/dev/null | od | head -1 | grep -v '^0000000$'"),
    ];
    for level in control_and_levels() {
        let arena = Arena::new(level);
        for command in &attacks {
            let answer = arena.run(&format!("({command}) 2>/dev/null | head -c 100")).await;
            assert_eq!(answer.text != "(no output)", level.is_none(), "{command} on {level:?}: {}", answer.text);
        }
        assert!(!arena.run("env").await.text.contains("CARGO_PKG_NAME"), "an allow-list, on {level:?}");
    }
}

/// The thread that starts a command is restricted as the command is, which is no way into this program either. It is
/// there for a moment only, so many commands look for it, while the machine has other things to do.
#[tokio::test]
async fn no_thread_of_the_program_is_a_way_into_its_memory() {
    let busy = || std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut others: Vec<_> = (0..6).map(|_| busy()).collect();
    let attack = format!("cat /proc/{}/task/*/environ 2>/dev/null | wc -c", std::process::id());
    let mut read = Vec::new();
    for level in levels() {
        let arena = Arena::new(Some(level));
        for _ in 0..40 {
            read.push(arena.run(&attack).await.text);
        }
    }
    others.iter_mut().for_each(|other| other.kill().and_then(|()| other.wait()).map(drop).unwrap());
    assert!(read.iter().all(|bytes| bytes == "0"), "{read:?}");
}

#[tokio::test]
async fn what_is_hidden_in_the_workspace_is_hidden_from_file_tools_and_commands() {
    let change = |workspace: terret_tools::Workspace, around: &std::path::Path| {
        workspace.hide(around.join("project/.private")).unwrap().readable(around.join("project/.private/open")).unwrap()
    };
    let project = Project::with(change, terret_tools::BashOptions::default())
        .file(".private/key", SECRET)
        .file(".private/open", "open")
        .file("other", "text");
    for (tool, arguments) in [
        ("read", json!({"path": ".private/key"})),
        ("ls", json!({"path": ".private"})),
        ("write", json!({"path": ".private/key", "content": "x"})),
        ("grep", json!({"path": ".private", "pattern": SECRET})),
    ] {
        let error = project.error(tool, arguments).await;
        assert!(error.contains("commonly holds keys or tokens"), "{tool}: {error}");
    }
    let found = project.ok("grep", json!({"pattern": SECRET})).await;
    assert!(found.starts_with("No match"), "{found}");
    assert_eq!(project.ok("read", json!({"path": ".private/open"})).await, "open");

    for level in levels() {
        let arena = Arena::with(Some(level), |workspace, _, around| {
            std::fs::create_dir(around.join("project/.private")).unwrap();
            std::fs::write(around.join("project/.private/key"), SECRET).unwrap();
            workspace.hide(around.join("project/.private")).unwrap()
        });
        match level {
            Level::Bubblewrap => {
                assert!(!arena.run("cat .private/key").await.text.contains(SECRET));
                assert_eq!(arena.run("echo text > other && cat other").await.text, "text");
            }
            // It can't except anything from what may be written, and says so rather than show it.
            Level::Landlock => {
                let error = arena.project.error("bash", json!({"command": "true"})).await;
                assert!(error.contains("must stay hidden, which landlock can't do"), "{error}");
            }
            other => unreachable!("{other} is a level of another system"),
        }
    }
}

#[tokio::test]
async fn what_must_stay_as_it_is_elsewhere_does_not_come_to_light() {
    for level in levels() {
        let arena = Arena::with(Some(level), |workspace, _, around| {
            std::fs::create_dir(around.join("elsewhere")).unwrap();
            std::fs::write(around.join("elsewhere/key"), SECRET).unwrap();
            workspace.read_only(around.join("elsewhere")).unwrap()
        });
        let answer = arena.run("cat ../elsewhere/key; echo text > other && cat other").await.text;
        assert!(!answer.contains(SECRET) && answer.contains("text"), "on {level:?}: {answer}");
    }
}
