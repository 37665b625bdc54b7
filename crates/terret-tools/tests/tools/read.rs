use serde_json::json;
use terret_tools::{BashOptions, Profile};

use crate::project::Project;

#[tokio::test]
async fn a_file_is_read_as_it_stands() {
    let project = Project::new().file("a.txt", "a\n\tb \nc\n");
    assert_eq!(project.ok("read", json!({"path": "a.txt"})).await, "a\n\tb \nc");
}

#[tokio::test]
async fn a_line_end_at_the_end_is_not_another_line() {
    let project = Project::new().file("three", "a\nb\nc\n").file("also_three", "a\nb\nc");
    for path in ["three", "also_three"] {
        assert_eq!(project.ok("read", json!({"path": path, "offset": 3})).await, "c");
        let error = project.error("read", json!({"path": path, "offset": 4})).await;
        assert_eq!(error, format!("{path} has 3 lines, so there is no line 4. Use an offset up to 3."));
    }
}

#[tokio::test]
async fn a_part_tells_where_to_go_on() {
    let project = Project::new().file("a", "1\n2\n3\n4\n");
    assert_eq!(
        project.ok("read", json!({"path": "a", "offset": 2, "limit": 2})).await,
        "2\n3\n\n[Lines 2-3 are shown. Continue with offset=4.]"
    );
    assert_eq!(project.ok("read", json!({"path": "a", "offset": 3, "limit": 2})).await, "3\n4");
}

#[tokio::test]
async fn an_answer_has_2000_lines_at_most() {
    let lines: String = (1..=2_500).map(|number| format!("{number}\n")).collect();
    let project = Project::new().file("a", &lines);
    let answer = project.call("read", json!({"path": "a", "limit": 2_400})).await;
    assert!(answer.text.ends_with("\n2000\n\n[Lines 1-2000 are shown. Continue with offset=2001.]"));
    assert_eq!(answer.details, json!({"path": "a", "firstLine": 1, "lastLine": 2000, "complete": false}));
    let rest = project.ok("read", json!({"path": "a", "offset": 2001})).await;
    assert!(rest.starts_with("2001\n") && rest.ends_with("\n2500"));
}

#[tokio::test]
async fn an_answer_has_50_kb_at_most_and_whole_lines() {
    let line = format!("{}\n", "x".repeat(999));
    let project = Project::new().file("a", line.repeat(100));
    let answer = project.ok("read", json!({"path": "a"})).await;
    let (text, note) = answer.split_once("\n\n").unwrap();
    assert_eq!(text, line.repeat(51).trim_end());
    assert_eq!(note, "[Lines 1-51 are shown. Continue with offset=52.]");
}

#[tokio::test]
async fn a_line_that_is_too_long_shows_its_beginning_and_how_to_see_more() {
    let project = Project::new().file("a", format!("short\n{}\nlast\n", "x".repeat(60_000)));
    let before = project.ok("read", json!({"path": "a"})).await;
    assert_eq!(before, "short\n\n[Lines 1-1 are shown. Continue with offset=2.]");
    let long = project.ok("read", json!({"path": "a", "offset": 2})).await;
    let (text, note) = long.split_once("\n\n").unwrap();
    assert_eq!(text, "x".repeat(2_000));
    assert!(note.contains("sed -n 2p") && note.contains("offset=3"), "{note}");
    assert_eq!(project.ok("read", json!({"path": "a", "offset": 3})).await, "last");
}

#[tokio::test]
async fn the_beginning_of_a_long_line_ends_with_a_whole_character() {
    let project = Project::new().file("a", format!("x{}", "\u{65e5}".repeat(30_000)));
    let long = project.ok("read", json!({"path": "a"})).await;
    let (text, note) = long.split_once("\n\n").unwrap();
    // 1 and 666 times 3 bytes are the most that fit into 2000.
    assert_eq!(text, format!("x{}", "\u{65e5}".repeat(666)));
    assert!(note.contains("its first 1999 bytes are shown") && note.contains("cut -b 2000-3998"), "{note}");
}

#[tokio::test]
async fn an_empty_file_is_said_to_be_empty() {
    let project = Project::new().file("a", "").file("bom", "\u{feff}");
    assert_eq!(project.ok("read", json!({"path": "a"})).await, "a is empty.");
    assert_eq!(project.ok("read", json!({"path": "bom"})).await, "bom is empty.");
}

#[tokio::test]
async fn what_is_not_utf8_is_shown_with_a_warning() {
    let project = Project::new().file("latin1", b"Stra\xdfe\ncaf\xe9\n");
    assert_eq!(
        project.ok("read", json!({"path": "latin1"})).await,
        "Stra\u{fffd}e\ncaf\u{fffd}\n\n[Not all of it is UTF-8; bytes that aren't are shown as \u{fffd}.]"
    );
}

#[tokio::test]
async fn a_byte_order_mark_is_not_shown_and_crlf_is_told() {
    let project = Project::new().file("a", b"\xef\xbb\xbfone\r\ntwo\r\n");
    assert_eq!(project.ok("read", json!({"path": "a"})).await, "one\ntwo\n\n[Lines end in CRLF.]");
}

#[tokio::test]
async fn a_binary_file_is_an_error_that_says_so() {
    let project = Project::new()
        .file("data", b"ab\0cd\x01")
        .file("a.pdf", b"%PDF-1.7\n\xe2\xe3")
        .file("utf16.txt", b"\xff\xfea\0b\0");
    let cases = [("data", "binary data"), ("a.pdf", "a PDF document"), ("utf16.txt", "UTF-16 text")];
    for (path, what) in cases {
        let error = project.error("read", json!({"path": path})).await;
        assert!(error.starts_with(&format!("{path} is {what}")), "{error}");
    }
}

#[tokio::test]
async fn a_picture_is_shown_whatever_its_name() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    let project = Project::new().file("picture.txt", png);
    let answer = project.call("read", json!({"path": "picture.txt"})).await;
    assert_eq!(
        answer.content,
        json!([
            {"type": "text", "text": "picture.txt (image/png, 16 bytes)"},
            {"type": "image", "mediaType": "image/png", "data": "iVBORw0KGgoAAAANSUhEUg=="},
        ])
    );
}

#[tokio::test]
async fn a_picture_that_no_provider_takes_is_refused() {
    let mut jpeg = b"\xff\xd8\xff\xe0".to_vec();
    jpeg.resize(3_700_001, 0);
    let project = Project::new().file("a.jpg", jpeg);
    let error = project.error("read", json!({"path": "a.jpg"})).await;
    assert!(error.starts_with("a.jpg is an image above 3700000 bytes"), "{error}");
}

#[tokio::test]
async fn a_missing_file_tells_what_there_is_instead() {
    let project = Project::new().file("src/main.rs", "").file("src/other.txt", "").file("README.md", "");
    assert_eq!(
        project.error("read", json!({"path": "src/mian.rs"})).await,
        "There is no src/mian.rs. Did you mean src/main.rs?"
    );
    assert_eq!(
        project.error("read", json!({"path": "readme.md"})).await,
        "There is no readme.md. Did you mean README.md?"
    );
    // Of a path with a missing directory, that is what is looked for.
    assert_eq!(
        project.error("read", json!({"path": "scr/main.rs"})).await,
        "There is no scr/main.rs. Did you mean src?"
    );
    assert_eq!(project.error("read", json!({"path": "src/zzz"})).await, "There is no src/zzz.");
}

#[tokio::test]
async fn a_directory_is_an_error_that_points_to_ls() {
    let project = Project::new().file("src/main.rs", "");
    let error = project.error("read", json!({"path": "src"})).await;
    assert_eq!(error, "src is a directory, not a file. Use ls to see what is in it.");
    let error = project.error("read", json!({"path": "src/main.rs/x"})).await;
    assert_eq!(error, "src/main.rs is a file, not a directory.");
}

#[tokio::test]
async fn a_pipe_is_refused_and_not_waited_for() {
    let project = Project::new();
    let made = std::process::Command::new("mkfifo").arg(project.path("pipe")).status().unwrap();
    assert!(made.success());
    for tool in ["read", "write"] {
        let arguments = if tool == "read" { json!({"path": "pipe"}) } else { json!({"path": "pipe", "content": ""}) };
        assert_eq!(project.error(tool, arguments).await, "pipe is a named pipe, not a regular file.");
    }
    let _socket = std::os::unix::net::UnixListener::bind(project.path("socket")).unwrap();
    let error = project.error("read", json!({"path": "socket"})).await;
    assert_eq!(error, "socket is a socket or a device, not a regular file.");
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_device_is_refused_and_what_the_kernel_tells_is_read() {
    let project = Project::with(|workspace, _| workspace.profile(Profile::Full), BashOptions::default());
    for device in ["/dev/zero", "/dev/null", "/dev/tty"] {
        let error = project.error("read", json!({"path": device})).await;
        assert!(error.ends_with("is a socket or a device, not a regular file."), "{error}");
    }
    // Such a file says that it has no bytes.
    let status = project.ok("read", json!({"path": "/proc/self/status"})).await;
    assert!(status.starts_with("Name:"), "{status}");
}

#[tokio::test]
async fn a_line_far_behind_the_end_is_an_error_and_no_overflow() {
    let project = Project::new().file("a", "1\n2\n");
    let error = project.error("read", json!({"path": "a", "offset": u64::MAX})).await;
    assert_eq!(error, format!("a has 2 lines, so there is no line {}. Use an offset up to 2.", u64::MAX));
    assert_eq!(project.ok("read", json!({"path": "a", "limit": u64::MAX})).await, "1\n2");
}
