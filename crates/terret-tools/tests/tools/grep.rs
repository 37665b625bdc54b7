use serde_json::json;

use crate::project::Project;

fn tree() -> Project {
    Project::new()
        .file("src/a.rs", "fn main() {\n    let a = 1;\n    run(a);\n}\n")
        .file("src/b.rs", "fn run(a: u8) {}\n")
        .file("notes.md", "How to RUN it: run(1)\r\n")
        .file(".github/ci.yml", "run: make\n")
        .file(".git/config", "run = yes\n")
        .file("target/out", "run\n")
        .file(".gitignore", "target\n")
        .file("data.bin", b"run\0run")
        .file("../outside/secret", "run")
        .link("linked", "../outside")
        .link("file_link", "../outside/secret")
}

#[tokio::test]
async fn matches_come_with_path_and_line_in_a_stable_order() {
    let project = tree();
    let answer = project.call("grep", json!({"pattern": "run"})).await;
    let expected = ".github/ci.yml:1: run: make\nnotes.md:1: How to RUN it: run(1)\nsrc/a.rs:3:     run(a);\nsrc/b.rs:1: fn run(a: u8) {}";
    assert_eq!(answer.text, expected);
    assert_eq!(answer.details, json!({"matches": 4, "files": 4, "complete": true}));
}

#[tokio::test]
async fn a_search_can_be_narrowed() {
    let project = tree();
    let cases = [
        (json!({"pattern": "run", "glob": "*.rs"}), "src/a.rs:3:     run(a);\nsrc/b.rs:1: fn run(a: u8) {}"),
        (json!({"pattern": "run", "path": "src", "glob": "a*"}), "src/a.rs:3:     run(a);"),
        (json!({"pattern": "run", "path": "src/b.rs"}), "src/b.rs:1: fn run(a: u8) {}"),
        (json!({"pattern": "run", "glob": "src/*"}), "src/a.rs:3:     run(a);\nsrc/b.rs:1: fn run(a: u8) {}"),
        (json!({"pattern": r"^fn \w+\(\)"}), "src/a.rs:1: fn main() {"),
        (json!({"pattern": "RUN IT", "ignore_case": true}), "notes.md:1: How to RUN it: run(1)"),
        (json!({"pattern": "run(a", "literal": true}), "src/a.rs:3:     run(a);\nsrc/b.rs:1: fn run(a: u8) {}"),
    ];
    for (arguments, found) in cases {
        assert_eq!(project.ok("grep", arguments.clone()).await, found, "{arguments}");
    }
}

#[tokio::test]
async fn lines_around_a_match_are_told_from_it() {
    let project = Project::new().file("a", "1\n2 hit\n3\n4\n5\n6\n7 hit\n8\n");
    let found = project.ok("grep", json!({"pattern": "hit", "context": 1})).await;
    assert_eq!(found, "a-1- 1\na:2: 2 hit\na-3- 3\n--\na-6- 6\na:7: 7 hit\na-8- 8");
}

#[tokio::test]
async fn matches_are_limited_and_that_is_said() {
    let project = Project::new().file("a", "hit\n".repeat(150));
    let found = project.ok("grep", json!({"pattern": "hit"})).await;
    let (matches, note) = found.split_once("\n\n").unwrap();
    assert_eq!(matches.lines().count(), 100);
    assert_eq!(note, "[Only the first 100 matches are shown. Narrow the search with path or glob, or raise limit.]");
    let answer = project.call("grep", json!({"pattern": "hit", "limit": 150})).await;
    assert_eq!(answer.details["complete"], true);
}

#[tokio::test]
async fn the_answer_stays_below_50_kb() {
    let project = Project::new().file("a", format!("hit{}\n", "x".repeat(400)).repeat(1_000));
    let found = project.ok("grep", json!({"pattern": "hit", "limit": 1_000})).await;
    assert!(found.len() < 52_000, "{}", found.len());
    assert!(found.ends_with("[Only the first 50 KB are shown. Narrow the search with path or glob, or raise limit.]"));
}

#[tokio::test]
async fn of_a_long_line_the_part_with_the_match_is_shown() {
    let project = Project::new().file("a", format!("{}needle{}\n", "é".repeat(5_000), "y".repeat(5_000)));
    let found = project.ok("grep", json!({"pattern": "needle"})).await;
    assert!(found.contains("needle") && found.ends_with("… [line cut]"), "{found}");
    assert!(found.chars().count() < 600, "{}", found.chars().count());
}

#[tokio::test]
async fn no_match_is_no_error_but_a_bad_pattern_is() {
    let project = tree();
    let nothing = project.ok("grep", json!({"pattern": "zzz"})).await;
    assert_eq!(nothing, "No match for \"zzz\" in .. Ignored and binary files aren't searched.");
    let error = project.error("grep", json!({"pattern": "run("})).await;
    assert!(error.starts_with("The pattern can't be used") && error.contains("literal"), "{error}");
    assert!(project.error("grep", json!({"pattern": "a\nb"})).await.starts_with("The pattern can't be used"));
    assert_eq!(
        project.error("grep", json!({"pattern": "a", "path": "scr"})).await,
        "There is no scr. Did you mean src?"
    );
}

#[tokio::test]
async fn utf16_with_a_byte_order_mark_is_searched_and_latin1_is_shown_lossily() {
    let project = Project::new().file("utf16", b"\xff\xfeh\0i\0t\0\n\0").file("latin1", b"hit \xe9\n");
    assert_eq!(project.ok("grep", json!({"pattern": "hit"})).await, "latin1:1: hit \u{fffd}\nutf16:1: hit");
}
