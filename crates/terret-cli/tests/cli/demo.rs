//! `terret demo`.

use std::process::Command;

use crate::terret::Terret;

#[test]
fn the_demo_repairs_the_project_and_says_what_is_real() {
    let ran = Terret::new().args(["demo"]).run().exits(0);
    let mut rest = ran.stdout.as_str();
    for part in [
        "the model is scripted; the loop, the tools and the files are real",
        "> The tests of this project fail.",
        "• read cart.sh",
        "• bash sh ./test.sh",
        "FAILED: ten pieces",
        // The model's first edit doesn't fit the schema: the refusal is shown, and repaired.
        "✗ edit: The arguments of edit were rejected",
        "The tests pass now.",
        "-    if [ \"$quantity\" -gt 10 ]; then",
        "+    if [ \"$quantity\" -ge 10 ]; then",
        "7 model calls · 6 tool calls",
        "$0.0",
    ] {
        let (_, behind) = rest.split_once(part).unwrap_or_else(|| panic!("no {part:?} in the rest of {}", ran.stdout));
        rest = behind;
    }
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.left_behind(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn the_project_is_kept_if_that_is_wanted_and_its_tests_pass() {
    let ran = Terret::new().args(["demo", "--keep"]).run().exits(0);
    let kept = ran.stdout.lines().last().unwrap().strip_prefix("kept: ").unwrap();
    assert_eq!(ran.left_behind(), [std::path::PathBuf::from(kept)]);
    let tests = Command::new("sh").arg("test.sh").current_dir(kept).output().unwrap();
    assert!(tests.status.success(), "{tests:?}");
    assert!(String::from_utf8(tests.stdout).unwrap().ends_with("\n0 failed\n"));
}

#[test]
fn without_a_place_for_the_project_it_says_where_the_place_comes_from() {
    let terret = Terret::new().file("not-a-folder", "");
    let place = terret.path("not-a-folder");
    let ran = terret.args(["demo"]).env("TMPDIR", &place).run().exits(1);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("TMPDIR") && ran.stderr.contains(place.to_str().unwrap()), "{}", ran.stderr);
}
