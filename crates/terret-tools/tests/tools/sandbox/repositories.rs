//! What commands do to git repositories, so that git runs programs for them later.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::{Arena, control_and_levels, levels};

/// Commands after which git, run by a person in the folder named, would run `touch $MARKER`.
const TRAPS: &[(&str, &str)] = &[
    (
        ".",
        "echo 'touch MARKER' > .git/hooks/pre-commit; sed -i '1i #!/bin/sh' .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    ),
    (".", "git config core.fsmonitor 'touch MARKER;false'"),
    (".", "printf '[core]\\n\\tfsmonitor = touch MARKER;false\\n' >> .git/config"),
    (".", "cp .git/config c && printf '[core]\\n\\tfsmonitor = touch MARKER;false\\n' >> c && mv c .git/config"),
    (
        ".",
        "git config core.hooksPath hooks; mkdir hooks; printf '#!/bin/sh\\ntouch MARKER\\n' > hooks/pre-commit; chmod +x hooks/pre-commit",
    ),
    (
        ".",
        "mv .git old; git init -q; git config user.name A; git config user.email a@b; git config core.fsmonitor 'touch MARKER;false'",
    ),
    (".", "mv .git old; cp -r old .git; printf '[core]\\n\\tfsmonitor = touch MARKER;false\\n' >> .git/config"),
    (".", "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor 'touch MARKER;false'"),
    (
        "nested",
        "printf '#!/bin/sh\\ntouch MARKER\\n' > nested/.git/hooks/pre-commit; chmod +x nested/.git/hooks/pre-commit",
    ),
    (
        "nested",
        "mv nested away; mkdir nested; git -C nested init -q; git -C nested config core.fsmonitor 'touch MARKER;false'",
    ),
    (
        "new",
        "git init -q new; printf '#!/bin/sh\\ntouch MARKER\\n' > new/.git/hooks/pre-commit; chmod +x new/.git/hooks/pre-commit",
    ),
    ("new", "git init -q new; git -C new config core.fsmonitor 'touch MARKER;false'"),
    (
        "new",
        "git init -q evil; git -C evil config core.fsmonitor 'touch MARKER;false'; mkdir new; mv evil/.git new/data; echo 'gitdir: data' > new/.git",
    ),
    (
        "new",
        "git init -q evil; git -C evil config core.fsmonitor 'touch MARKER;false'; mkdir new; mv evil/.git new/data; ln -s data new/.git",
    ),
    (
        "new",
        "git init -q new; printf '#!/bin/sh\\ntouch MARKER\\n' > new/.git/hooks/pre-commit; chmod +x new/.git/hooks/pre-commit; chmod 311 new",
    ),
    (
        "new",
        "git init -q new; printf '#!/bin/sh\\ntouch MARKER\\n' > new/.git/hooks/pre-commit; chmod +x new/.git/hooks/pre-commit; chmod 311 new/.git/hooks",
    ),
    (
        ".",
        "cd .git/hooks; seq -f z%g 10500 | xargs touch; printf '#!/bin/sh\\ntouch MARKER\\n' > pre-commit; chmod +x pre-commit",
    ),
    (
        "new",
        "git init -q new; printf '[include]\\n\\tpath = ../evil\\n' >> new/.git/config; printf '[core]\\n\\tfsmonitor = touch MARKER;false\\n' > new/evil",
    ),
];

fn git(directory: &Path, arguments: &[&str]) {
    // As a person would, with no care at all.
    let identity = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "safe.directory=*"];
    let mut command = Command::new("git");
    command
        .args(identity)
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1");
    command.output().unwrap();
}

fn use_git(directory: &Path) {
    std::fs::write(directory.join("changed"), "text").unwrap();
    git(directory, &["status"]);
    git(directory, &["add", "changed"]);
    git(directory, &["commit", "-q", "-m", "message"]);
}

fn with_repositories(arena: Arena) -> Arena {
    for name in ["project", "project/nested"] {
        std::fs::create_dir_all(arena.path(name)).unwrap();
        git(&arena.path(name), &["init", "-q"]);
        std::fs::create_dir_all(arena.path(name).join(".git/hooks")).unwrap();
        use_git(&arena.path(name));
    }
    arena
}

#[tokio::test]
async fn a_person_who_runs_git_later_runs_nothing_of_a_command() {
    for level in control_and_levels() {
        for (folder, trap) in TRAPS {
            let arena = with_repositories(Arena::new(level));
            let marker = arena.path("project/marker");
            let answer = arena.run(&trap.replace("MARKER", marker.to_str().unwrap())).await;
            let _ = std::fs::remove_file(&marker);
            let directory = arena.path("project").join(folder);
            if directory.is_dir() {
                use_git(&directory);
            }
            assert_eq!(marker.exists(), level.is_none(), "{trap} on {level:?}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_folder_that_cant_be_listed_hides_no_repository_from_the_next_command() {
    let hook = "printf '#!/bin/sh\\ntouch marker\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit";
    for level in control_and_levels() {
        let arena = with_repositories(Arena::new(level));
        arena.run("chmod 311 .").await;
        let answer = arena.run(hook).await;
        use_git(&arena.path("project"));
        assert_eq!(arena.path("project/marker").exists(), level.is_none(), "on {level:?}: {}", answer.text);
        // And it stays as somebody wanted it to be.
        let mode = std::fs::metadata(arena.path("project")).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o311);
    }
}

#[tokio::test]
async fn a_setting_behind_a_section_that_a_comment_seems_to_close_is_seen() {
    for level in control_and_levels() {
        let arena = Arena::new(level);
        let answer = arena
            .run(
                "git init -q new; printf '[remote \"origin\"] uploadpack = touch %s/marker; false #]\\n' \"$PWD\" \
                 >> new/.git/config; printf '[remote \"origin\"]\\nurl = .\\n' >> new/.git/config",
            )
            .await;
        git(&arena.path("project/new"), &["fetch", "origin"]);
        assert_eq!(arena.path("project/marker").exists(), level.is_none(), "on {level:?}: {}", answer.text);
    }
}

#[tokio::test]
async fn hooks_that_are_links_or_large_stay_the_person_s() {
    for level in levels() {
        let arena = with_repositories(Arena::new(Some(level))).file("scripts/check", "#!/bin/sh\nexit 0\n");
        let hooks = arena.path("project/.git/hooks");
        let large = vec![b'x'; 5 << 20];
        std::os::unix::fs::symlink("../../scripts/check", hooks.join("pre-commit")).unwrap();
        std::fs::write(hooks.join("large"), &large).unwrap();
        for attack in ["echo evil > new && mv new .git/hooks/pre-commit", "rm .git/hooks/pre-commit"] {
            arena.run(attack).await;
            let target = std::fs::read_link(hooks.join("pre-commit")).unwrap();
            assert_eq!(target, Path::new("../../scripts/check"), "{attack} on {level}");
        }
        let answer = arena.run("echo evil >> .git/hooks/large").await;
        // What can't be put back isn't left for git to run, and what it holds isn't lost.
        let is_there = std::fs::read(hooks.join("large")).is_ok_and(|bytes| bytes == large);
        let is_away = std::fs::read(hooks.join("large.refused")).is_ok_and(|bytes| bytes.starts_with(&large));
        assert!(is_there != is_away, "on {level}: {}", answer.text);
        assert!(is_there || answer.text.contains("can't be put back"), "{}", answer.text);
    }
}

#[tokio::test]
async fn submodules_and_working_trees_of_any_name_are_protected() {
    for level in levels() {
        let arena = with_repositories(Arena::new(Some(level)));
        for place in ["modules/logs", "modules/a/refs", "worktrees/objects"] {
            let place = arena.path("project/.git").join(place);
            std::fs::create_dir_all(place.join("hooks")).unwrap();
            std::fs::write(place.join("config"), "[core]\n").unwrap();
            let attack = format!("echo evil >> {0}/config; echo evil > {0}/hooks/post-checkout", place.display());
            arena.run(&attack).await;
            assert_eq!(std::fs::read(place.join("config")).unwrap(), b"[core]\n", "{attack} on {level}");
            assert!(!place.join("hooks/post-checkout").exists(), "{attack} on {level}");
        }
    }
}

#[tokio::test]
async fn the_plan_of_a_rebase_runs_no_commands() {
    for level in levels() {
        let arena = with_repositories(Arena::new(Some(level)));
        let plan = arena.path("project/.git/rebase-merge/git-rebase-todo");
        arena.run("mkdir .git/rebase-merge; echo 'exec touch marker' > .git/rebase-merge/git-rebase-todo").await;
        assert!(!plan.exists(), "on {level}");
    }
}

#[tokio::test]
async fn what_was_taken_back_is_said_and_nothing_else_is_touched() {
    for level in levels() {
        let arena = with_repositories(Arena::new(Some(level)));
        let config = std::fs::read(arena.path("project/.git/config")).unwrap();
        let hook = "printf '#!/bin/sh\\n' > new/.git/hooks/pre-push; chmod +x new/.git/hooks/pre-push";
        let answer = arena
            .run(&format!("git init -q new; mkdir -p new/.git/hooks; {hook}; git init -q fine; echo x > file"))
            .await;
        assert!(answer.text.contains("new/.git is a new git repository that would run programs"), "{}", answer.text);
        assert!(arena.path("project/new/.git.refused/hooks/pre-push").exists());
        assert!(arena.path("project/fine/.git/HEAD").exists());
        assert!(!answer.text.contains("fine"), "{}", answer.text);
        assert_eq!(std::fs::read(arena.path("project/.git/config")).unwrap(), config);
        assert_eq!(
            arena.run("git log --oneline | wc -l && git status --porcelain | wc -l").await.text.lines().next(),
            Some("1")
        );
    }
}

#[tokio::test]
async fn a_hook_of_the_person_s_is_put_back_as_it_was() {
    for level in levels() {
        let arena = with_repositories(Arena::new(Some(level)));
        let hook = arena.path("project/.git/hooks/pre-push");
        std::fs::write(&hook, "#!/bin/sh\nexit 0\n").unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
        for attack in ["rm .git/hooks/pre-push", "echo evil >> .git/hooks/pre-push", "rm -rf .git/hooks"] {
            arena.run(attack).await;
            assert_eq!(std::fs::read_to_string(&hook).unwrap(), "#!/bin/sh\nexit 0\n", "{attack} on {level}");
            assert_eq!(std::fs::metadata(&hook).unwrap().permissions().mode() & 0o777, 0o755, "{attack} on {level}");
        }
    }
}

#[tokio::test]
async fn in_a_folder_of_a_repository_git_works_and_the_rest_of_it_is_only_read() {
    for level in levels() {
        let arena = Arena::with(Some(level), |_, _, around| {
            std::fs::create_dir_all(around.join("repository/folder")).unwrap();
            terret_tools::Workspace::new(around.join("repository/folder")).unwrap()
        });
        let arena = arena.file("../repository/other/file", "text");
        git(&arena.path("repository"), &["init", "-q"]);
        git(&arena.path("repository"), &["add", "other"]);
        git(&arena.path("repository"), &["commit", "-q", "-m", "message"]);
        assert_eq!(arena.run("git log --format=%s && cat ../other/file").await.text, "message\ntext");
        assert!(arena.run("echo evil > ../other/file").await.is_error);
        assert!(arena.run("git config core.fsmonitor evil").await.is_error);
        assert_eq!(arena.run("echo text > file && cat file").await.text, "text");
    }
}

#[tokio::test]
async fn a_repository_that_the_embedder_opens_can_be_committed_to() {
    for level in levels() {
        let arena = Arena::with(Some(level), |workspace, _, around| {
            git(&around.join("project"), &["init", "-q"]);
            workspace.writable(around.join("project/.git")).unwrap()
        });
        let commit = "echo text > file && git add file && git -c user.name=A -c user.email=a@b commit -q -m message";
        assert_eq!(arena.run(&format!("{commit}; git log --format=%s")).await.text, "message", "on {level}");
    }
}

#[tokio::test]
async fn odd_repositories_keep_no_command_from_running() {
    for level in levels() {
        let arena = Arena::new(Some(level)).file("data/config", "").file("worktree/.git", "gitdir: /nowhere\n");
        std::os::unix::fs::symlink("data", arena.path("project/.git")).unwrap();
        std::fs::create_dir(arena.path("project/dangling")).unwrap();
        std::os::unix::fs::symlink("nowhere", arena.path("project/dangling/.git")).unwrap();
        std::fs::create_dir_all(arena.path("project/GIT/.GIT")).unwrap();
        let answer = arena.run("echo text > file && cat file").await;
        assert_eq!(answer.text, "text", "on {level}");
    }
}
