//! `--record` and `--replay`.

use std::fs;

use crate::command_line::complains;
use crate::server::Server;
use crate::servers::{chat_reads, chat_text};
use crate::terret::Terret;

#[test]
fn what_was_recorded_once_is_answered_again_without_a_key() {
    let server = Server::answering([chat_reads(), chat_text("It says hello.")]);
    let asking = |terret: Terret, prompt: &str| terret.args(["-m", "groq/some-model", "-p", prompt, "--json"]);
    let terret = asking(Terret::new().file("a.txt", "hello\n"), "What does it say?");
    let terret = terret.env("GROQ_API_KEY", "sk-secret-1").env("GROQ_BASE_URL", format!("{}/openai/v1", server.url));
    let recorded = terret.args(["--record", "tapes/one.jsonl"]).run().exits(0);
    let tape = fs::read_to_string(recorded.path("tapes/one.jsonl")).unwrap();
    assert_eq!(tape.lines().count(), 2);
    assert!(!tape.contains("sk-secret-1"), "{tape}");

    // Neither a key nor the server is needed.
    let replay = |prompt: &str| asking(recorded.then(), prompt).args(["--replay", "tapes/one.jsonl"]).run();
    let again = replay("What does it say?").exits(0);
    assert_eq!(again.result()["text"], "It says hello.");
    assert_eq!(again.tool_results(), recorded.tool_results());
    assert_eq!(server.requests().len(), 2);
    // Other requests are not answered, and it is said what was recorded.
    let other = replay("What else?").exits(7).result();
    let message = other["error"]["message"].as_str().unwrap();
    assert!(message.contains("What does it say?") && message.contains("What else?"), "{message}");
}

#[test]
fn a_recording_stays_until_there_is_something_to_record() {
    let terret = || Terret::new().file("one.jsonl", "kept\n").args(["-p", "x", "--record", "one.jsonl"]);
    for (arguments, code) in [(&["-m", "groq/m"][..], 3), (&["-m", "nobody/m"], 2), (&["-m", "scripted:none"], 2)] {
        let ran = terret().args(arguments).run().exits(code);
        assert_eq!(fs::read_to_string(ran.path("one.jsonl")).unwrap(), "kept\n", "{arguments:?}");
    }
}

#[test]
fn what_is_no_recording_is_said() {
    let terret = || Terret::new().file("one.jsonl", "{\"request\": 1}\n").args(["-p", "x", "-m", "groq/m"]);
    complains(|| terret().args(["--replay", "one.jsonl"]), 2, "usage", &["--replay: line 1 of the cassette one.jsonl"]);
    complains(|| terret().args(["--replay", "none"]), 2, "usage", &["--replay: can't read the cassette none"]);
    let unwritable = || terret().env("GROQ_API_KEY", "k").args(["--record", "one.jsonl/x"]);
    complains(unwritable, 2, "usage", &["--record: can't write the cassette one.jsonl/x"]);
    complains(|| terret().args(["--record", "a", "--replay", "b"]), 2, "usage", &["cannot be used with"]);
    let scripted = || Terret::new().script([]).args(["-p", "x", "--record", "a"]);
    complains(scripted, 2, "usage", &["there is nothing to --record"]);
}
