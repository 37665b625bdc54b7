use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::json;
use terret_agent::ToolContext;

use crate::project::Project;

#[tokio::test]
async fn a_new_file_is_made_with_its_directories() {
    let project = Project::new();
    let answer = project.call("write", json!({"path": "a/b/c.txt", "content": "one\ntwo\n"})).await;
    assert_eq!(answer.text, "Created a/b/c.txt (2 lines, 8 bytes).");
    assert_eq!(answer.details["created"], true);
    assert_eq!(project.content("a/b/c.txt"), b"one\ntwo\n");
}

#[tokio::test]
async fn an_existing_file_is_replaced_and_what_changed_is_kept_for_people() {
    let project = Project::new().file("a", "one\ntwo\n");
    let answer = project.call("write", json!({"path": "a", "content": "one\nthree\n"})).await;
    assert_eq!(answer.text, "Replaced a (2 lines, 10 bytes).");
    assert_eq!(answer.details["diff"], "--- a\n+++ a\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
    assert_eq!(project.content("a"), b"one\nthree\n");
}

#[tokio::test]
async fn the_same_content_again_changes_nothing() {
    let project = Project::new().file("a", "same");
    let before = std::fs::metadata(project.path("a")).unwrap().ino();
    assert_eq!(
        project.ok("write", json!({"path": "a", "content": "same"})).await,
        "a already has this content (1 line, 4 bytes)."
    );
    assert_eq!(std::fs::metadata(project.path("a")).unwrap().ino(), before);
}

#[tokio::test]
async fn an_empty_file_can_be_written() {
    let project = Project::new();
    assert_eq!(project.ok("write", json!({"path": "a", "content": ""})).await, "Created a (0 lines, 0 bytes).");
    assert_eq!(project.content("a"), b"");
}

#[tokio::test]
async fn permissions_stay_and_nothing_else_is_left_behind() {
    let project = Project::new().file("run.sh", "old");
    std::fs::set_permissions(project.path("run.sh"), std::fs::Permissions::from_mode(0o751)).unwrap();
    project.ok("write", json!({"path": "run.sh", "content": "new"})).await;
    let mode = std::fs::metadata(project.path("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751);
    let names: Vec<_> = std::fs::read_dir(project.path(".")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["run.sh"]);
}

#[tokio::test]
async fn what_the_system_says_is_told_once() {
    let long = "x".repeat(300);
    let error = Project::new().error("write", json!({"path": long, "content": ""})).await;
    assert_eq!(error.matches("File name too long").count(), 1, "{error}");
}

#[tokio::test]
async fn a_program_of_another_content_no_longer_runs_as_its_owner() {
    let project = Project::new().file("run", "old");
    for (tool, arguments) in [
        ("write", json!({"path": "run", "content": "new"})),
        ("edit", json!({"path": "run", "edits": [{"oldText": "new", "newText": "newer"}]})),
    ] {
        std::fs::set_permissions(project.path("run"), std::fs::Permissions::from_mode(0o6755)).unwrap();
        project.ok(tool, arguments).await;
        let mode = std::fs::metadata(project.path("run")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{tool}");
    }
}

#[tokio::test]
async fn a_reader_sees_the_old_file_or_the_new_one() {
    let project = Project::new().file("a", "old");
    let mut open = std::fs::File::open(project.path("a")).unwrap();
    project.ok("write", json!({"path": "a", "content": "new and longer"})).await;
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut open, &mut seen).unwrap();
    assert_eq!(seen, "old");
}

#[tokio::test]
async fn a_link_inside_the_workspace_stays_and_its_target_is_written() {
    let project = Project::new().file("real", "old").link("link", "real").link("dangling", "sub/new");
    assert_eq!(project.ok("write", json!({"path": "link", "content": "x"})).await, "Replaced real (1 line, 1 bytes).");
    assert_eq!(project.content("real"), b"x");
    assert!(project.path("link").is_symlink());
    project.ok("write", json!({"path": "dangling", "content": "y"})).await;
    assert_eq!(project.content("sub/new"), b"y");
}

#[tokio::test]
async fn a_file_larger_than_what_is_compared_is_replaced_all_the_same() {
    let project = Project::new().file("a", vec![b'x'; 3_000_000]);
    let answer = project.call("write", json!({"path": "a", "content": "small"})).await;
    assert_eq!((answer.is_error, answer.details.get("diff")), (false, None));
    assert_eq!(project.content("a"), b"small");
}

#[tokio::test]
async fn directories_and_files_in_the_way_are_told() {
    let project = Project::new().file("src/main.rs", "");
    assert!(project.error("write", json!({"path": "src", "content": ""})).await.starts_with("src is a directory"));
    assert!(project.error("write", json!({"path": "new/", "content": ""})).await.starts_with("new names a directory"));
    assert!(project.error("write", json!({"path": ".", "content": ""})).await.starts_with(". is a directory"));
    assert!(project.error("write", json!({"path": "", "content": ""})).await.starts_with("The path is empty"));
    let error = project.error("write", json!({"path": "src/main.rs/x", "content": ""})).await;
    assert_eq!(error, "src/main.rs is a file, not a directory.");
}

#[tokio::test]
async fn a_write_that_was_cancelled_before_it_was_done_is_not_done() {
    let project = Project::new().file("a", "old");
    let context = ToolContext::detached("call");
    context.cancel.cancel();
    let answer = project.call_with("write", json!({"path": "a", "content": "new"}), context).await;
    assert!(answer.is_error);
    assert_eq!(project.content("a"), b"old");
    assert_eq!(std::fs::read_dir(project.path(".")).unwrap().count(), 1);
}
