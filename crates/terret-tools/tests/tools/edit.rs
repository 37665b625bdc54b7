use serde_json::{Value, json};
use terret_agent::ToolContext;

use crate::project::Project;

fn edits(path: &str, edits: &[(&str, &str)]) -> Value {
    let edits: Vec<Value> = edits.iter().map(|(old, new)| json!({"oldText": old, "newText": new})).collect();
    json!({"path": path, "edits": edits})
}

#[track_caller]
fn same(actual: &[u8], expected: &[u8]) {
    assert_eq!(actual.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[tokio::test]
async fn one_place_is_replaced_and_what_changed_is_kept_for_people() {
    let project = Project::new().file("a.rs", "fn a() {}\nfn b() {}\n");
    let answer = project.call("edit", edits("a.rs", &[("fn b()", "fn c()")])).await;
    assert_eq!(answer.text, "Edited a.rs: 1 replacement, at line 2.");
    assert_eq!(answer.details["lines"], json!([2]));
    assert_eq!(answer.details["diff"], "--- a.rs\n+++ a.rs\n@@ -1,2 +1,2 @@\n fn a() {}\n-fn b() {}\n+fn c() {}\n");
    assert_eq!(project.content("a.rs"), b"fn a() {}\nfn c() {}\n");
}

#[tokio::test]
async fn all_edits_are_matched_against_the_original() {
    let project = Project::new().file("a", "one two three");
    let answer = project.call("edit", edits("a", &[("three", "one"), ("one", "two"), ("two", "three")])).await;
    assert_eq!(answer.text, "Edited a: 3 replacements, at lines 1, 1, 1.");
    assert_eq!(project.content("a"), b"two three one");
}

/// File, old text, new text, and the file afterwards.
#[tokio::test]
async fn an_edit_changes_what_it_matched_and_not_a_byte_more() {
    let cases: &[(&[u8], &str, &str, &[u8])] = &[
        // Bytes elsewhere needn't be UTF-8.
        (b"caf\xe9\nx = 1\n", "x = 1", "x = 2", b"caf\xe9\nx = 2\n"),
        (b"\xef\xbb\xbfx = 1\r\ny\n", "x = 1", "x = 2", b"\xef\xbb\xbfx = 2\r\ny\n"),
        // A part of a character's bytes isn't the character.
        ("é è".as_bytes(), "è", "e", "é e".as_bytes()),
        // Line ends of the place are taken over by what is new, others stay.
        (b"a\r\nb\r\nc\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\n"),
        (b"a\r\nb\r\nc\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\n"),
        (b"a\nb\r\nc", "a", "x\ny", b"x\ny\nb\r\nc"),
        (b"a\r\nb", "b", "x\ny", b"a\r\nx\r\ny"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\nb\n", "b", "x\r\ny", b"a\nx\r\ny\n"),
        (b"a\r\nb\r\n", "a\r\nb\r\n", "x\r\n", b"x\r\n"),
        // White space at line ends is overlooked, inside a line it isn't.
        (b"if a {  \n\tb\t\n}\n", "if a {\n\tb\n}", "c", b"c\n"),
        (b"a  \nb\n", "a\nb", "a\nc", b"a\nc\n"),
        (b"one\nfoo \t\nbar  \n", "foo\nbar", "x", b"one\nx  \n"),
        (b"a\nb\nc\n", "a \nb  ", "x", b"x\nc\n"),
        (b"b\nbar\n", "b  ", "x", b"x\nbar\n"),
        (b"last", "last\n", "x\n", b"x\n"),
        // Typography is overlooked.
        ("say “it’s” – now\n".as_bytes(), "\"it's\" - now", "it", b"say it\n"),
        ("a\u{a0}b\u{2003}c d\n".as_bytes(), "a b c", "x", b"x d\n"),
        ("“a” – “b”\n".as_bytes(), "\"a\"", "x", "x – “b”\n".as_bytes()),
        ("it's\n".as_bytes(), "it\u{2019}s", "its", b"its\n"),
        ("“a”  \r\nb\r\n".as_bytes(), "\"a\"\nb", "c\nd", b"c\r\nd\r\n"),
        // What matches exactly wins over what looks like it.
        ("it’s it's it’s\n".as_bytes(), "it's", "X", "it’s X it’s\n".as_bytes()),
        (b"end  \nend\nx\n", "end\nx", "y", b"end  \ny\n"),
        // Deletion.
        (b"a\nb\nc\n", "b\n", "", b"a\nc\n"),
    ];
    for (before, old, new, after) in cases {
        let project = Project::new().file("a", before);
        let answer = project.call("edit", edits("a", &[(old, new)])).await;
        assert!(!answer.is_error, "{old:?}: {}", answer.text);
        same(&project.content("a"), after);
    }
}

#[tokio::test]
async fn what_was_overlooked_is_told() {
    let project = Project::new().file("a", "it’s\n");
    let text = project.ok("edit", edits("a", &[("it's", "its")])).await;
    assert_eq!(
        text,
        "Edited a: 1 replacement, at line 1.\nedits[0] was matched overlooking the difference between typographic and \
         plain quotes, dashes or spaces."
    );
}

#[tokio::test]
async fn edits_that_cannot_be_made_change_nothing_and_say_why() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);
    let cases: &[Case] = &[
        ("aaa", &[("aa", "b")], "edits[0].oldText matches more than one place: at lines 1."),
        ("x\ny\nx\n", &[("x", "z")], "edits[0].oldText matches more than one place: at lines 1, 3."),
        (
            "x\nx\nx\nx\nx\nx\nx\n",
            &[("x", "z")],
            "edits[0].oldText matches more than one place: at lines 1, 2, 3, 4, 5 and more.",
        ),
        ("it’s it’s", &[("it's", "x")], "edits[0].oldText matches more than one place: at lines 1."),
        ("abcd", &[("abc", "x"), ("bcd", "y")], "edits[0] and edits[1] overlap. Join them into one edit."),
        ("abcd", &[("d", "x"), ("abc", "y"), ("bc", "z")], "edits[1] and edits[2] overlap."),
        ("abc", &[("a", "x"), ("", "y")], "edits[1].oldText is empty."),
        ("abc", &[("b", "b")], "the edits leave it as it is."),
        ("abc", &[("a", "x"), ("z", "y")], "edits[1].oldText was not found."),
        ("foobar\n", &[("foo ", "x")], "edits[0].oldText was not found."),
        ("a b\n", &[("a  b", "x")], "edits[0].oldText was not found."),
        ("\n\n", &[(" ", "x")], "edits[0].oldText was not found."),
    ];
    for (content, pairs, message) in cases {
        let project = Project::new().file("a", content);
        let error = project.error("edit", edits("a", pairs)).await;
        assert!(error.starts_with(&format!("a was not changed: {message}")), "{error}");
        assert_eq!(project.content("a"), content.as_bytes());
    }
}

#[tokio::test]
async fn adjacent_edits_do_not_overlap() {
    let project = Project::new().file("a", "abcd");
    project.ok("edit", edits("a", &[("cd", "2"), ("ab", "1")])).await;
    assert_eq!(project.content("a"), b"12");
}

#[tokio::test]
async fn what_is_not_found_tells_the_nearest_lines() {
    let content = "fn one() {\n    first();\n}\n\nfn two() {\n    second();\n    third(a, b);\n}\n";
    let project = Project::new().file("a.rs", content);
    let error = project.error("edit", edits("a.rs", &[("fn two() {\n  second();\n  third(a, c);\n}", "")])).await;
    assert!(
        error.contains("The nearest lines are:\n5: fn two() {\n6:     second();\n7:     third(a, b);\n8: }\n"),
        "{error}"
    );
    let error = project.error("edit", edits("a.rs", &[("    third(a, x);", "")])).await;
    assert!(error.contains("The nearest lines are:\n7:     third(a, b);\n"), "{error}");
    let error = project.error("edit", edits("a.rs", &[("0123456789", "")])).await;
    assert!(error.contains("Nothing in the file resembles it."), "{error}");
}

#[tokio::test]
async fn a_missing_file_tells_what_there_is_instead() {
    let project = Project::new().file("src/main.rs", "");
    let error = project.error("edit", edits("src/mian.rs", &[("a", "b")])).await;
    assert_eq!(error, "There is no src/mian.rs. Did you mean src/main.rs?");
    let error = project.error("edit", edits("scr/main.rs", &[("a", "b")])).await;
    assert_eq!(error, "There is no scr/main.rs. Did you mean src?");
}

#[tokio::test]
async fn an_edit_that_was_cancelled_before_it_was_done_is_not_done() {
    let project = Project::new().file("a", "old");
    let context = ToolContext::detached("call");
    context.cancel.cancel();
    let answer = project.call_with("edit", edits("a", &[("old", "new")]), context).await;
    assert!(answer.is_error);
    assert_eq!(project.content("a"), b"old");
}

#[tokio::test]
async fn a_large_file_of_look_alikes_is_edited_in_one_pass() {
    // Quadratic work on this would take hours.
    let mut content = "a".repeat(4_000_000);
    content.push_str("b\u{2019}\n");
    let project = Project::new().file("a", &content);
    project.ok("edit", edits("a", &[(&format!("{}b'", "a".repeat(1_000)), "c")])).await;
    assert_eq!(project.content("a").len(), 4_000_000 - 1_000 + 2);
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_read_is_read_again_first() {
    let project = Project::new().file("a", "one\ntwo\n").file("never-read", "one\n");
    let path = project.path("a");
    project.ok("read", json!({"path": "a"})).await;
    // What the tools themselves do is known, and a mode is no content.
    project.ok("edit", edits("a", &[("one", "1")])).await;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    project.ok("edit", edits("a", &[("1", "one")])).await;
    project.ok("write", json!({"path": "a", "content": "one\ntwo\nthree\n"})).await;

    let others: [&dyn Fn(); 3] = [
        &|| std::fs::write(&path, "one\nTWO\n").unwrap(),
        &|| {
            std::fs::write(project.path("new"), "one\nTWO\n").unwrap();
            std::fs::rename(project.path("new"), &path).unwrap();
        },
        &|| {
            assert!(std::process::Command::new("sed").args(["-i", "s/TWO/two/"]).arg(&path).status().unwrap().success())
        },
    ];
    for change in others {
        // Times of files are coarse.
        std::thread::sleep(std::time::Duration::from_millis(20));
        change();
        let before = project.content("a");
        for (tool, arguments) in
            [("edit", edits("a", &[("one", "1")])), ("write", json!({"path": "a", "content": "x"}))]
        {
            let error = project.error(tool, arguments).await;
            assert!(error.starts_with("a has changed since it was read, "), "{error}");
            assert_eq!(project.content("a"), before);
            // A read that showed nothing of it is none.
            project.error("read", json!({"path": "a", "offset": 100})).await;
        }
        project.ok("read", json!({"path": "./a", "limit": 1})).await;
        project.ok("edit", edits("a", &[("one", "one!")])).await;
        project.ok("edit", edits("a", &[("one!", "one")])).await;
    }
    project.ok("edit", edits("never-read", &[("one", "1")])).await;
}
