use serde_json::json;

use crate::project::Project;

#[tokio::test]
async fn names_are_sorted_and_tell_directories_and_links() {
    let project = Project::new()
        .file("b.txt", "")
        .file("src/main.rs", "")
        .file(".hidden", "")
        .file("B.txt", "")
        .link("broken", "nowhere")
        .link("linked", "src");
    let listed = ".hidden\nB.txt\nb.txt\nbroken -> nowhere\nlinked -> src\nsrc/";
    assert_eq!(project.ok("ls", json!({})).await, listed);
    assert_eq!(project.ok("ls", json!({"path": "."})).await, listed);
    assert_eq!(project.ok("ls", json!({"path": "linked"})).await, "main.rs");
}

#[tokio::test]
async fn an_empty_directory_is_said_to_be_empty() {
    let project = Project::new();
    assert_eq!(project.ok("ls", json!({})).await, ". is empty.");
}

#[tokio::test]
async fn a_long_list_is_cut_and_that_is_said() {
    let project = (0..600).fold(Project::new(), |project, number| project.file(&format!("f{number:03}"), ""));
    let listed = project.ok("ls", json!({})).await;
    let (names, note) = listed.split_once("\n\n").unwrap();
    assert_eq!(names.lines().count(), 500);
    assert_eq!(note, "[Only the first 500 entries are shown. There are 600; raise limit, or use find with a pattern.]");
    let listed = project.ok("ls", json!({"limit": 2})).await;
    assert!(listed.starts_with("f000\nf001\n\n[Only the first 2"), "{listed}");
    assert_eq!(project.ok("ls", json!({"limit": 600})).await.lines().count(), 600);
}

#[tokio::test]
async fn a_file_and_a_missing_directory_are_told() {
    let project = Project::new().file("src/main.rs", "");
    assert_eq!(project.error("ls", json!({"path": "src/main.rs"})).await, "src/main.rs is a file, not a directory.");
    assert_eq!(project.error("ls", json!({"path": "sr"})).await, "There is no sr. Did you mean src?");
}
