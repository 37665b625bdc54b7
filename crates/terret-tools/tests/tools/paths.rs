//! Where file tools go, and where they don't.

use std::path::Path;

use serde_json::{Value, json};
use terret_tools::BashOptions;

use crate::project::Project;

/// A call of each tool that takes a path.
fn calls(path: &str) -> [(&'static str, Value); 6] {
    [
        ("read", json!({"path": path})),
        ("write", json!({"path": path, "content": "evil"})),
        ("edit", json!({"path": path, "edits": [{"oldText": "secret", "newText": "evil"}]})),
        ("ls", json!({"path": path})),
        ("find", json!({"path": path, "pattern": "*"})),
        ("grep", json!({"path": path, "pattern": "secret"})),
    ]
}

#[tokio::test]
async fn nothing_outside_the_workspace_is_read_or_written() {
    let project = Project::new()
        .file("../outside/secret", "secret")
        .file("../project-evil/secret", "secret")
        .link("directory_link", "../outside")
        .link("file_link", "../outside/secret")
        .link("dangling", "../outside/new")
        .link("chain", "directory_link");
    let absolute = project.path("../outside/secret").canonicalize().unwrap();
    let neighbour = project.path("../project-evil/secret").canonicalize().unwrap();
    let paths = [
        "..",
        "../outside/secret",
        "x/../../outside/secret",
        "../project-evil/secret",
        absolute.to_str().unwrap(),
        neighbour.to_str().unwrap(),
        "directory_link",
        "directory_link/secret",
        "directory_link/new",
        "directory_link/../project-evil/secret",
        "chain/secret",
        "file_link",
        "dangling",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "/",
    ];
    for path in paths {
        for (tool, arguments) in calls(path) {
            let error = project.error(tool, arguments).await;
            assert!(error.contains("is outside the workspace"), "{tool} {path}: {error}");
        }
    }
    assert_eq!(std::fs::read(&absolute).unwrap(), b"secret");
    assert_eq!(std::fs::read(&neighbour).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(absolute.parent().unwrap()).unwrap().count(), 1);
}

#[tokio::test]
async fn paths_that_end_up_inside_are_fine() {
    let project = Project::new().file("a/b", "text").link("up", "a/../a");
    let absolute = project.path("a/b");
    let around = format!("../project/{}", "a/b");
    for path in ["a/b", "./a//b", "a/../a/b", "up/b", "missing/../a/b", absolute.to_str().unwrap(), &around] {
        assert_eq!(project.ok("read", json!({"path": path})).await, "text", "{path}");
    }
    let project = project.link("absolute_link", &absolute);
    assert_eq!(project.ok("read", json!({"path": "absolute_link"})).await, "text");
}

#[tokio::test]
async fn a_circle_of_links_is_an_error() {
    let project = Project::new().link("a", "b").link("b", "a");
    let error = project.error("read", json!({"path": "a"})).await;
    assert!(error.contains("too many symbolic links"), "{error}");
}

#[tokio::test]
async fn git_is_read_but_not_written_at_any_depth() {
    let project = Project::new()
        .file(".git/config", "[core]")
        .file("vendor/lib/.git/hooks/pre-commit", "#!/bin/sh")
        .file("submodule/.git", "gitdir: elsewhere")
        .link("hooks", ".git/hooks")
        .file(".gitignore", "old");
    assert_eq!(project.ok("read", json!({"path": ".git/config"})).await, "[core]");
    let paths = [
        ".git",
        ".git/config",
        ".git/hooks/pre-commit",
        "hooks/pre-commit",
        "vendor/lib/.git/hooks/pre-commit",
        "submodule/.git",
        "new/.git/config",
        ".GIT/config",
        "x/../.git/config",
    ];
    for path in paths {
        let error = project.error("write", json!({"path": path, "content": "evil"})).await;
        assert!(error.contains("read-only for file tools"), "{path}: {error}");
        let edits = json!([{"oldText": "c", "newText": "d"}]);
        let error = project.error("edit", json!({"path": path, "edits": edits})).await;
        assert!(error.contains("read-only for file tools"), "{path}: {error}");
    }
    project.ok("write", json!({"path": ".gitignore", "content": "new"})).await;
    project.ok("write", json!({"path": ".github/workflows/ci.yml", "content": "on: push"})).await;
}

#[tokio::test]
async fn the_embedder_opens_and_closes_further_places() {
    let change = |workspace: terret_tools::Workspace, around: &Path| {
        for name in ["docs", "scratch", "project/settings"] {
            std::fs::create_dir(around.join(name)).unwrap();
            std::fs::write(around.join(name).join("file"), "text").unwrap();
        }
        let workspace = workspace.readable(around.join("docs")).unwrap().writable(around.join("scratch")).unwrap();
        workspace.read_only(around.join("project/settings")).unwrap()
    };
    let project = Project::with(change, BashOptions::default());
    let write = |path: &str| json!({"path": path, "content": "new"});

    assert_eq!(project.ok("read", json!({"path": "../docs/file"})).await, "text");
    assert!(project.error("write", write("../docs/file")).await.contains("outside the workspace"));
    assert_eq!(project.ok("read", json!({"path": "../scratch/file"})).await, "text");
    project.ok("write", write("../scratch/file")).await;
    assert!(project.error("write", write("../scratch/.git/config")).await.contains("read-only"));
    assert_eq!(project.ok("read", json!({"path": "settings/file"})).await, "text");
    assert!(project.error("write", write("settings/file")).await.contains("read-only"));
    assert!(project.error("read", json!({"path": "../file"})).await.contains("outside the workspace"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_turns_into_a_link_meanwhile_leads_nowhere() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};

    const ROUNDS: usize = 300;
    let project =
        Project::new().file("../outside/file", "secret").file("inside/file", "inside").link("spare", "../outside");
    let (inside, spare) = (project.path("inside"), project.path("spare"));
    let stop = AtomicBool::new(false);
    let mut read = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = renameat_with(CWD, &inside, CWD, &spare, RenameFlags::EXCHANGE);
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for round in 0..ROUNDS {
            let arguments = json!({"path": "inside/new", "content": round.to_string()});
            runtime.block_on(project.call("write", arguments));
            read.push(runtime.block_on(project.call("read", json!({"path": "inside/file"}))));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(std::fs::read_dir(project.path("../outside")).unwrap().count(), 1);
    assert!(read.iter().all(|answer| answer.is_error || answer.text == "inside"));
    // Both sides of the race were seen, so that it was one.
    assert!(read.iter().any(|answer| answer.is_error) && read.iter().any(|answer| !answer.is_error));
}

#[tokio::test]
async fn names_cannot_forge_lines_or_steer_a_terminal() {
    let project = Project::new().file("a\nb\u{1b}[31m\u{202e}", "text");
    assert_eq!(project.ok("ls", json!({})).await, "a\\nb\\u{1b}[31m\\u{202e}");
    assert_eq!(project.ok("find", json!({"pattern": "a*"})).await, "a\\nb\\u{1b}[31m\\u{202e}");
}
