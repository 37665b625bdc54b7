//! Where commands write and read.

use std::os::unix::fs::symlink;

use serde_json::json;
use terret_tools::Profile;

use super::{Arena, control_and_levels, levels};

/// Commands that change something outside the project. Each changes the content or the name of `outside/file`, or makes
/// something beside it.
const WRITES: &[&str] = &[
    "echo evil > ../outside/file",
    "echo evil > ../project-evil/file",
    "echo evil > link/file",
    "echo evil > dangling",
    "echo evil > project/../../outside/new",
    "cp /dev/null ../outside/file",
    "rm ../outside/file",
    "mv ../outside/file ../outside/moved",
    "mv ../outside/file stolen",
    "echo evil > inside && mv inside ../outside/new",
    "mkdir ../outside/new",
    "ln -s /etc/passwd ../outside/new",
    "echo evil > inside && ln inside ../outside/new",
    "ln ../outside/file hard && echo evil > hard",
    "truncate -s 0 ../outside/file",
    "perl -e 'truncate(\"../outside/file\", 0) or die'",
    "perl -e 'open(my $f, \"+<\", \"../outside/file\") or die; print $f \"evil\"'",
    "mknod ../outside/new p",
    "echo evil > \"$HOME/.bashrc\"",
    "sh -c 'cd .. && echo evil > outside/file'",
    "(echo evil > ../outside/file) & wait",
    "sed -i s/content/evil/ ../outside/file",
    "tar -cf ../outside/new /dev/null",
    "dd if=/dev/zero of=../outside/file bs=1 count=1 conv=notrunc",
];

/// What lies around a project, as far as it matters.
fn around(arena: &Arena) -> String {
    let mut found = Vec::new();
    let mut directories = vec![arena.path("outside"), arena.path("project-evil"), arena.path("home")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                found.push(format!("{}: {:?}", entry.path().display(), std::fs::read(entry.path()).unwrap()));
            } else {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found.sort();
    found.join("\n")
}

#[tokio::test]
async fn nothing_outside_the_workspace_is_changed() {
    for level in control_and_levels() {
        for command in WRITES {
            let arena = Arena::new(level).file("../outside/file", "content").file("../project-evil/file", "content");
            symlink("../outside", arena.path("project/link")).unwrap();
            symlink("../outside/new", arena.path("project/dangling")).unwrap();
            std::fs::create_dir(arena.path("project/project")).unwrap();
            let before = around(&arena);
            let answer = arena.run(command).await;
            let changed = around(&arena) != before;
            assert_eq!(changed, level.is_none(), "{command} on {level:?}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn in_the_workspace_commands_do_their_work() {
    for level in levels() {
        let arena = Arena::new(Some(level));
        let commands = [
            "mkdir -p a/b && echo text > a/b/file && mv a/b a/c && cat a/c/file",
            "echo text > \"$TMPDIR/file\" && cat \"$TMPDIR/file\"",
            "cat \"$TMPDIR/file\"",
            "mktemp -d >/dev/null && echo text",
            "echo text | tee /dev/null | cat",
            "perl -e 'print qq(text\\n)'",
            "diff <(echo text) <(echo text) && echo text",
            "ln a/c/file hard && ln -s a/c/file soft && chmod 755 hard && ./hard 2>/dev/null; cat soft",
        ];
        for command in commands {
            let answer = arena.run(command).await;
            assert_eq!(answer.text.lines().next(), Some("text"), "{command} on {level}: {}", answer.text);
        }
        assert_eq!(std::fs::read_to_string(arena.path("project/a/c/file")).unwrap(), "text\n");
    }
}

#[tokio::test]
async fn further_places_are_opened_by_the_embedder() {
    for level in levels() {
        let arena = Arena::with(Some(level), |workspace, _, around| {
            for name in ["readable", "writable", "closed"] {
                std::fs::create_dir(around.join(name)).unwrap();
                std::fs::write(around.join(name).join("file"), "text").unwrap();
            }
            workspace.readable(around.join("readable")).unwrap().writable(around.join("writable")).unwrap()
        });
        assert_eq!(arena.run("cat ../readable/file").await.text, "text");
        assert!(arena.run("echo evil > ../readable/file").await.is_error);
        assert_eq!(arena.run("echo new > ../writable/file && cat ../writable/file").await.text, "new");
        assert!(arena.run("cat ../closed/file").await.is_error);
        assert_eq!(std::fs::read(arena.path("readable/file")).unwrap(), b"text");
    }
}

#[tokio::test]
async fn what_was_too_long_to_be_shown_can_be_read_by_the_next_command() {
    for level in levels() {
        let arena = Arena::new(Some(level));
        let file = arena.run("seq 1 5000").await.details["outputFile"].as_str().unwrap().to_owned();
        assert_eq!(arena.run(&format!("wc -l < {file}")).await.text, "5000", "on {level}");
        assert!(arena.run(&format!("echo evil > {file}")).await.is_error, "on {level}");
    }
}

/// Commands that pass for reading, and that write or run something else.
const PRETENDERS: &[&str] = &[
    "find . -name file -delete",
    "find . -name file -exec sh -c 'echo evil > made' ';'",
    "sed -n '1e echo evil > made' file",
    "sed -n 'w made' file",
    "awk 'BEGIN { system(\"echo evil > made\") }'",
    "awk 'BEGIN { print \"evil\" > \"made\" }'",
    "echo made | xargs touch",
    "tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='touch made' file",
    "sort -o made file",
    "env touch made",
    "git -c core.fsmonitor='touch made;false' status",
    "git -c alias.x='!touch made' x",
    "git -c diff.external='touch made;true' diff --no-index file /etc/hostname",
    "git grep --no-index -O'touch made;true' content file",
    "bash -c 'touch made'",
    "echo $(touch made)",
    "echo x > made",
    "ls && touch made",
    "cd .. && cd project && touch made",
    "export PATH=$PWD:$PATH; touch made",
    "perl -e 'unlink \"file\"'",
];

#[tokio::test]
async fn what_passes_for_reading_changes_nothing_in_the_read_only_profile() {
    for level in control_and_levels() {
        for command in PRETENDERS {
            let arena =
                Arena::with(level, |workspace, _, _| workspace.profile(Profile::ReadOnly)).file("file", "content");
            let git =
                std::process::Command::new("git").args(["init", "-q"]).current_dir(arena.path("project")).status();
            assert!(git.unwrap().success());
            let answer = arena.run(command).await;
            let changed = arena.path("project/made").exists() || !arena.path("project/file").exists();
            assert_eq!(changed, level.is_none(), "{command} on {level:?}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn the_read_only_profile_reads_and_has_a_temporary_directory() {
    for level in levels() {
        let arena =
            Arena::with(Some(level), |workspace, _, _| workspace.profile(Profile::ReadOnly)).file("file", "text");
        assert_eq!(arena.run("cat file").await.text, "text");
        assert_eq!(arena.run("cp file $TMPDIR/copy && cat $TMPDIR/copy").await.text, "text");
        for (tool, arguments) in [
            ("write", json!({"path": "new", "content": "evil"})),
            ("edit", json!({"path": "file", "edits": [{"oldText": "text", "newText": "evil"}]})),
        ] {
            let error = arena.project.error(tool, arguments).await;
            assert!(error.contains("you may only look at files here"), "{error}");
        }
        assert_eq!(arena.project.ok("read", json!({"path": "file"})).await, "text");
    }
}

/// However a command is spelled that leaves the project, the walls don't read it.
#[tokio::test]
async fn however_a_command_is_spelled_it_stays_inside() {
    let spellings = [
        "echo x && touch ../outside/new",
        "echo x; touch ../outside/new",
        "bash -c 'touch ../outside/new'",
        "echo $(touch ../outside/new)",
        "echo `touch ../outside/new`",
        "export PATH=/nowhere; /usr/bin/touch ../outside/new",
        "t=tou; ${t}ch ../outside/new",
        "echo dG91Y2ggLi4vb3V0c2lkZS9uZXc= | base64 -d | sh",
        "cat <(touch ../outside/new)",
        "eval 'touch ../outside/new'",
        "printf 'touch ../outside/new' > run; sh run",
        "find . -maxdepth 0 -exec touch ../outside/new ';'",
        "trap 'touch ../outside/new' EXIT",
        "(sleep 0.1; touch ../outside/new) & wait",
        "PROMPT_COMMAND='touch ../outside/new' bash -ic true; bash -c 'touch ../outside/new'",
    ];
    for level in control_and_levels() {
        for command in spellings {
            let arena = Arena::new(level).file("../outside/file", "content");
            let answer = arena.run(command).await;
            let made = arena.path("outside/new").exists();
            assert_eq!(made, level.is_none(), "{command} on {level:?}: {}", answer.text);
        }
    }
}
