//! Ctrl-C and its relatives.
#![cfg(target_os = "linux")]

use std::process::Stdio;

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::terret::{Terret, eventually};

/// A model that asks for this command, and then would be done.
fn asking_for(command: &str) -> Terret {
    let call = json!({"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": command}});
    Terret::scripted([json!({"content": [call]}), json!({"text": "Done."})])
}

/// Whether somebody sleeps for this time. In a sandbox, processes have other numbers than outside.
fn sleeps(time: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().map(Result::unwrap);
    let mut lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| line == format!("sleep\0{time}\0").into_bytes())
}

#[test]
fn a_signal_cancels_the_run_and_what_it_started() {
    for (signal, reason, code) in [(Signal::INT, "interrupted", 130), (Signal::TERM, "terminated", 143)] {
        let time = format!("600.{}{code}", std::process::id());
        let run = asking_for(&format!("sleep {time} & echo $! >pid; wait")).args(["--json"]).start();
        run.line_in("pid");
        eventually(|| sleeps(&time).then_some(()));
        run.signal(signal);
        let ran = run.wait().exits(code);
        assert!(!sleeps(&time));
        assert_eq!(ran.of_type("cancelled")[0]["reason"], reason);
        let result = ran.result();
        assert_eq!((&result["outcome"], &result["error"]["kind"]), (&json!("cancelled"), &json!("cancelled")));
        assert_eq!(result["modelCalls"], 1, "no model call after the cancel");
    }
}

#[test]
fn a_signal_ends_a_model_call_that_says_nothing() {
    let stalls = [json!({"content": [{"type": "text", "text": "Let me"}], "stall": true})];
    let run = Terret::scripted(stalls).args(["--json"]).start();
    run.says("Let me");
    run.signal(Signal::INT);
    let ran = run.wait().exits(130);
    assert_eq!(ran.messages().len(), 1, "half a reply is in the transcript");
}

#[test]
fn in_text_a_cancel_is_said_and_nothing_is_an_answer() {
    let run = asking_for("echo $$ >pid; sleep 600").start();
    run.line_in("pid");
    run.signal(Signal::INT);
    let ran = run.wait().exits(130);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("stopping: interrupted"), "{}", ran.stderr);
    assert!(ran.stderr.contains("terret: cancelled: interrupted"), "{}", ran.stderr);
}

#[test]
fn the_demo_is_cancelled_too_and_cleans_up() {
    let run = Terret::new().args(["demo"]).start();
    run.says("• ls");
    run.signal(Signal::INT);
    let ran = run.wait().exits(130);
    assert_eq!(ran.left_behind(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_second_signal_leaves_at_once_whatever_the_program_is_doing() {
    // It says more than a pipe holds, and nobody reads: not even the result can be written.
    let (mut command, _world) =
        Terret::scripted([json!({"text": "word ".repeat(100_000)})]).args(["--json"]).into_command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let unread = child.stdout.take().unwrap();
    eventually(|| (ioctl_fionread(&unread).unwrap() > 60_000).then_some(()));
    let status = eventually(|| {
        // The first one can't end it; signals of a kind that are pending together are one.
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        child.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_signal_while_the_prompt_is_awaited_ends_in_a_result() {
    let run = Terret::scripted([json!({"text": "Done."})]).args(["--json"]).stdin("and").stdin_stays_open().start();
    run.says("waiting for standard input");
    run.signal(Signal::TERM);
    assert_eq!(run.wait().exits(143).result()["outcome"], "cancelled");
}
