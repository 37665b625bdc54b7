//! Outputs that can't be written, and readers that leave.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::terret::Terret;

/// A run that would go on for long after its first line.
fn long_run() -> Vec<Value> {
    let call =
        |n| json!({"type": "toolCall", "id": format!("c{n}"), "name": "bash", "arguments": {"command": "touch ran"}});
    (0..50).map(|n| json!({"content": [call(n)], "delayMs": 1000})).collect()
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let (mut command, _world) = Terret::scripted(long_run()).args(["--json"]).into_command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains(r#""type":"run_start""#), "{first}");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_can_not_be_written_ends_the_run_and_is_said() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = |mut command: Command| command.stdin(Stdio::null()).stdout(full()).output().unwrap();
    let answer = || [json!({"text": "Done."})];
    for (terret, code) in [
        (Terret::scripted(long_run()).args(["--json"]), 1),
        (Terret::scripted(answer()).args(["-o", "json"]), 1),
        (Terret::scripted(answer()), 1),
        (Terret::new().args(["demo"]), 1),
        (Terret::new().args(["wire", "decode", "openai-completions", "/dev/null"]), 2),
    ] {
        let (command, world) = terret.into_command();
        let output = run(command);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{complaint}");
        assert!(complaint.contains("No space left"), "{complaint}");
        assert!(!world.path().join("project/ran").exists(), "a tool ran although nobody can be told");
    }
    let (command, _world) = Terret::new().args(["--help"]).into_command();
    assert_eq!(run(command).status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_progress_that_can_not_be_written_is_left_out() {
    let call = json!({"type": "toolCall", "id": "c1", "name": "ls", "arguments": {}});
    let (mut command, _world) = Terret::scripted([json!({"content": [call]}), json!({"text": "Done."})]).into_command();
    command.stdin(Stdio::null()).stderr(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"Done.\n".as_slice()));
}

#[test]
fn nobody_is_asked_when_standard_input_is_closed() {
    let (mut command, _world) = Terret::scripted([json!({"text": "Done."})]).into_command();
    let output = command.stdin(File::open("/dev/null").unwrap()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"Done.\n".as_slice()));
}
