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
async fn anchors_are_for_lines_whatever_ends_them() {
    let project = Project::new().file("a", "use b;\nfn c;\n\tfn d\nlast fn").file("b", "fn e;\r\nfn f\r\nuse g;\r\n");
    let cases = [
        ("^fn", "a:2: fn c;\nb:1: fn e;\nb:2: fn f"),
        ("fn$", "a:4: last fn"),
        (";$", "a:1: use b;\na:2: fn c;\nb:1: fn e;\nb:3: use g;"),
        ("^fn .;$", "a:2: fn c;\nb:1: fn e;"),
        (r"\Suse|^\s+fn", "a:3: \tfn d"),
    ];
    for (pattern, found) in cases {
        assert_eq!(project.ok("grep", json!({"pattern": pattern})).await, found, "{pattern}");
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
    assert!(error.contains("    run(\n       ^\n"), "it says where: {error}");
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

#[tokio::test]
async fn a_pattern_with_a_line_break_is_refused_with_what_to_do_instead() {
    let project = tree();
    for arguments in
        [json!({"pattern": "a\nb"}), json!({"pattern": r"a\nb"}), json!({"pattern": "a\nb", "literal": true})]
    {
        let error = project.error("grep", arguments.clone()).await;
        assert!(error.ends_with("Search for one of the lines, with context."), "{arguments}: {error}");
    }
}

#[tokio::test]
async fn the_first_matches_are_the_same_whichever_thread_is_quick() {
    let names = ["a", "a.b", "a/b", "ab", "b/a", "b/a.c", "b/ab/c", "b.d", "c"].map(|name| format!("x/{name}/f"));
    let project = names.iter().fold(Project::new(), |project, name| {
        (0..20).fold(project, |project, number| project.file(&format!("{name}{number:02}"), "hit\nhit\n"))
    });
    // What comes first holds nothing, and is more than what is searched in order.
    let project = (0..600).fold(project, |project, number| project.file(&format!("w/{number}"), ""));
    // By name within each directory: "a" with all that is in it comes before "a.b", and that before "ab".
    let order = ["a/b", "a", "a.b", "ab", "b/a", "b/a.c", "b/ab/c", "b.d", "c"];
    let files = order.iter().flat_map(|name| (0..20).map(move |number| format!("x/{name}/f{number:02}")));
    let all: Vec<String> = files.flat_map(|file| [format!("{file}:1: hit"), format!("{file}:2: hit")]).collect();
    for limit in [1, 2, 39, 40, 41, 200, 359, 360, 1_000] {
        let answer = project.call("grep", json!({"pattern": "hit", "limit": limit})).await;
        let matches: Vec<&str> = answer.text.lines().take_while(|line| !line.is_empty()).collect();
        assert_eq!(matches, all[..limit.min(all.len())], "{limit}");
        assert_eq!(answer.details["complete"], limit >= all.len());
        assert_eq!(answer.details["files"], limit.min(all.len()).div_ceil(2));
    }
}

#[tokio::test]
async fn pipes_and_loops_of_links_are_passed_over_and_a_pipe_to_search_is_refused() {
    let project = Project::new().file("sub/a", "hit\n").link("sub/loop", "..").link("sub/self", "self");
    let made = std::process::Command::new("mkfifo").arg(project.path("sub/pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(project.path("sub/socket")).unwrap();
    assert_eq!(project.ok("grep", json!({"pattern": "hit"})).await, "sub/a:1: hit");
    let names = "sub/\nsub/a\nsub/loop\nsub/pipe\nsub/self\nsub/socket";
    assert_eq!(project.ok("find", json!({"pattern": "*"})).await, names);
    let error = project.error("grep", json!({"pattern": "hit", "path": "sub/pipe"})).await;
    assert_eq!(error, "sub/pipe is a named pipe, not a regular file.");
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn names_that_are_not_utf8_are_searched_and_shown_lossily() {
    use std::os::unix::ffi::OsStrExt as _;
    let project = Project::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9\n\x1b[31m");
    std::fs::write(project.path("").join(name), "hit\n").unwrap();
    let shown = "caf\u{fffd}\\n\\u{1b}[31m";
    assert_eq!(project.ok("grep", json!({"pattern": "hit"})).await, format!("{shown}:1: hit"));
    assert_eq!(project.ok("find", json!({"pattern": "*"})).await, shown);
    assert_eq!(project.ok("ls", json!({})).await, shown);
}

#[tokio::test]
async fn files_that_vanish_during_the_walk_are_no_trouble() {
    let project =
        (0..800).fold(Project::new(), |project, number| project.file(&format!("d{}/f{number}", number % 10), "hit"));
    let project = project.file("e/last", "hit\n");
    let root = project.path("");
    let removing = std::thread::spawn(move || {
        (0..10).for_each(|number| std::fs::remove_dir_all(root.join(format!("d{number}"))).unwrap())
    });
    while !removing.is_finished() {
        let found = project.ok("grep", json!({"pattern": "hit", "limit": 900})).await;
        assert!(found.ends_with("e/last:1: hit"), "{found}");
    }
    removing.join().unwrap();
    assert_eq!(project.ok("grep", json!({"pattern": "hit"})).await, "e/last:1: hit");
}

#[tokio::test]
async fn a_line_that_is_too_long_to_search_is_told() {
    let long = vec![b'x'; 17 * 1024 * 1024];
    let project = Project::new().file("a", "hit\n").file("long", long);
    let found = project.ok("grep", json!({"pattern": "hit"})).await;
    assert_eq!(found, "a:1: hit\n[Not searched, because a line is too long: long.]");
}

#[tokio::test]
async fn a_search_that_was_cancelled_finds_nothing() {
    let project = tree();
    for (tool, pattern) in [("grep", "run"), ("find", "*")] {
        let context = terret_agent::ToolContext::detached("call");
        context.cancel.cancel();
        let answer = project.call_with(tool, json!({"pattern": pattern}), context).await;
        assert_eq!((answer.is_error, answer.text.as_str()), (true, "Cancelled."));
    }
}

/// Root may read everything; then this is run once more as somebody else, by
/// `the_sandbox_holds_for_an_ordinary_user_as_it_does_for_root`.
#[tokio::test]
async fn what_may_not_be_read_is_told() {
    use std::os::unix::fs::PermissionsExt as _;
    if rustix::process::geteuid().is_root() {
        return;
    }
    let project =
        Project::new().file("a", "hit\n").file("file", "hit\n").file("folder/in", "hit\n").file("other", "hit\n");
    for path in ["file", "folder", "other"] {
        std::fs::set_permissions(project.path(path), std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    let found = project.ok("grep", json!({"pattern": "hit"})).await;
    assert_eq!(found, "a:1: hit\n[Not searched, because it can't be read: file and 2 more.]");
    let found = project.ok("find", json!({"pattern": "*"})).await;
    assert_eq!(found, "a\nfile\nfolder/\nother\n[Not searched, because it can't be read: folder.]");
    let nothing = project.ok("find", json!({"pattern": "in"})).await;
    assert!(nothing.ends_with("\n[Not searched, because it can't be read: folder.]"), "{nothing}");
    std::fs::set_permissions(project.path("folder"), std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn what_is_hidden_is_neither_searched_nor_listed() {
    let hide = |workspace: terret_tools::Workspace, around: &std::path::Path| {
        let workspace = workspace.hide(around.join("project/keys")).unwrap();
        workspace.hide(around.join("project/token")).unwrap().readable(around.join("project/keys/public")).unwrap()
    };
    let project = Project::with(hide, terret_tools::BashOptions::default());
    let project = project
        .file("a", "hit\n")
        .file("keys/deep/b", "hit\n")
        .file("keys_public", "")
        .file("token", "hit\n")
        .file("keys/public/c", "hit\n");
    // What is permitted in what is hidden isn't.
    assert_eq!(project.ok("grep", json!({"pattern": "hit"})).await, "a:1: hit\nkeys/public/c:1: hit");
    assert_eq!(project.ok("find", json!({"pattern": "*"})).await, "a\nkeys/public/\nkeys/public/c\nkeys_public");
}
