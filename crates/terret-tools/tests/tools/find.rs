use serde_json::json;

use crate::project::Project;

fn tree() -> Project {
    Project::new()
        .file("src/main.rs", "")
        .file("src/net/http.rs", "")
        .file("src/net/http_test.rs", "")
        .file("README.md", "")
        .file(".config/a.rs", "")
        .file(".git/objects/b.rs", "")
        .file("target/c.rs", "")
        .file(".gitignore", "target/\n")
        .file("../outside/d.rs", "")
        .link("linked", "../outside")
}

#[tokio::test]
async fn a_glob_without_a_slash_is_for_names_and_one_with_a_slash_for_paths() {
    let project = tree();
    let cases = [
        ("*.rs", ".config/a.rs\nsrc/main.rs\nsrc/net/http.rs\nsrc/net/http_test.rs"),
        ("http*.rs", "src/net/http.rs\nsrc/net/http_test.rs"),
        ("src/*.rs", "src/main.rs"),
        ("**/*_test.rs", "src/net/http_test.rs"),
        ("./src/**/*.rs", "src/main.rs\nsrc/net/http.rs\nsrc/net/http_test.rs"),
        ("*.{md,toml}", "README.md"),
        ("net", "src/net/"),
        ("src/net/**", "src/net/http.rs\nsrc/net/http_test.rs"),
    ];
    for (pattern, found) in cases {
        assert_eq!(project.ok("find", json!({"pattern": pattern})).await, found, "{pattern}");
    }
}

#[tokio::test]
async fn a_directory_to_search_is_where_path_globs_start() {
    let project = tree();
    let found = project.ok("find", json!({"pattern": "net/*.rs", "path": "src"})).await;
    assert_eq!(found, "src/net/http.rs\nsrc/net/http_test.rs");
}

#[tokio::test]
async fn ignored_files_git_and_what_lies_behind_links_are_left_out() {
    let project = tree();
    let found = project.ok("find", json!({"pattern": "*"})).await;
    let expected = ".config/\n.config/a.rs\n.gitignore\nREADME.md\nlinked\nsrc/\nsrc/main.rs\nsrc/net/\nsrc/net/http.rs\nsrc/net/http_test.rs";
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_long_list_is_cut_and_that_is_said() {
    let project = (0..30).fold(Project::new(), |project, number| project.file(&format!("f{number:02}"), ""));
    let answer = project.call("find", json!({"pattern": "f*", "limit": 3})).await;
    let note =
        "[Only the first 3 results are shown. Narrow the pattern, search a directory further down, or raise limit.]";
    assert_eq!(answer.text, format!("f00\nf01\nf02\n\n{note}"));
    assert_eq!(answer.details, json!({"entries": 3, "complete": false}));
    let answer = project.call("find", json!({"pattern": "f*", "limit": 30})).await;
    assert_eq!(answer.details, json!({"entries": 30, "complete": true}));
}

#[tokio::test]
async fn nothing_found_is_no_error_but_a_bad_glob_or_directory_is() {
    let project = tree();
    let nothing = project.ok("find", json!({"pattern": "*.py"})).await;
    assert_eq!(nothing, "Nothing beneath . matches \"*.py\". Ignored files aren't searched.");
    let error = project.error("find", json!({"pattern": "a[", "path": "."})).await;
    assert!(error.contains("Globs look like"), "{error}");
    assert_eq!(
        project.error("find", json!({"pattern": "*", "path": "scr"})).await,
        "There is no scr. Did you mean src?"
    );
}
