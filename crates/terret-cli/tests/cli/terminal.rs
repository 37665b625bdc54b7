//! Nothing that a model, a tool or a provider says steers the terminal that shows it.

use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::terret::Terret;

/// Moves the cursor, sets the clipboard and the title, colours, comes as one C1 character, rewrites the line, and turns
/// the direction of writing. `é` stays.
const LIVE: &str = "\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{1b}]0;t\u{1b}\\\u{1b}[35m\u{9b}1m\u{9d}0;t\u{9c}\rX\u{8}\u{202e}é";

/// What of it a reader still sees.
const HARMLESS: &str = "[2J]52;c;aGk=]0;t\\[35m1m0;tXé";

/// A terminal: what is written to it comes out at the other end.
pub(crate) struct Terminal {
    inside: File,
    outside: OwnedFd,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let inside = File::options().read(true).write(true).open(path).unwrap();
        Self { inside, outside }
    }

    pub(crate) fn stdio(&self) -> Stdio {
        self.inside.try_clone().unwrap().into()
    }

    /// Types this, as a person would; also ahead of the question.
    pub(crate) fn types(&self, text: &str) {
        rustix::io::write(&self.outside, text.as_bytes()).unwrap();
    }

    /// What the command shows on it, when this is typed once it has asked.
    pub(crate) fn answers(self, question: &str, answer: &str, command: Command) -> String {
        self.converses(&[(question, answer)], command).1
    }

    /// How the command ends and what it shows, when each of these is typed once what is before it has been shown.
    pub(crate) fn converses(self, typed: &[(&str, &str)], mut command: Command) -> (ExitStatus, String) {
        let mut child = command.env("TERM", "xterm-256color").spawn().unwrap();
        drop((command, self.inside));
        let (mut shown, mut outside, mut typed) = (Vec::new(), File::from(self.outside), typed.iter().peekable());
        let mut piece = [0; 1024];
        // Linux reports the end as an I/O error.
        while let Ok(n @ 1..) = outside.read(&mut piece) {
            shown.extend_from_slice(&piece[..n]);
            while let Some((_, answer)) =
                typed.next_if(|(question, _)| String::from_utf8_lossy(&shown).contains(question))
            {
                outside.write_all(answer.as_bytes()).unwrap();
            }
        }
        (child.wait().unwrap(), String::from_utf8(shown).unwrap())
    }

    /// What the command shows on it.
    pub(crate) fn shows(self, command: Command) -> String {
        self.shows_as("xterm-256color", command)
    }

    /// The same on a terminal of another kind.
    fn shows_as(self, kind: &str, mut command: Command) -> String {
        let mut child = command.env("TERM", kind).spawn().unwrap();
        // The last one inside has to go, for the outside to see an end.
        drop((command, self.inside));
        let (mut shown, mut outside) = (Vec::new(), File::from(self.outside));
        // Linux reports the end as an I/O error.
        let _ = outside.read_to_end(&mut shown);
        child.wait().unwrap();
        String::from_utf8(shown).unwrap()
    }
}

/// The text without the program's own styles: bold, dim, red, green.
#[track_caller]
fn without_own_styles(shown: &str) -> String {
    let own = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m"];
    let plain = own.iter().fold(shown.replace("\r\n", "\n"), |text, style| text.replace(style, ""));
    // Where the machine is slow, it says what it waits for, on a line that goes away again.
    let (waited, rest) = plain.rsplit_once("\u{1b}[K").unwrap_or(("", &plain));
    let waited = waited.split("\u{1b}[K").map(|line| line.rsplit_once('\r').map_or(line, |(before, _)| before));
    let plain = waited.collect::<String>() + rest;
    let live = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!plain.contains(live), "{plain:?}");
    plain
}

fn hostile_run() -> Vec<Value> {
    let call = |id: &str, tool: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": tool, "arguments": arguments});
    let calls = json!({"content": [
        {"type": "thinking", "thinking": format!("think {LIVE}")},
        {"type": "text", "text": format!("say {LIVE}")},
        call("c1", "bash", json!({"command": format!("cat hostile.txt; echo '{LIVE}' >&2; exit 1")})),
        call("c2", "read", json!({"path": "hostile.txt"})),
        call("c3", "ls", json!({})),
        call("c4", &format!("tool{LIVE}"), json!({})),
        {"type": "toolCall", "id": "c5", "name": "read", "argumentsText": format!("{{\"path\": {LIVE}")},
    ], "chunk": 1});
    vec![calls, json!({"text": format!("answer {LIVE}"), "chunk": 1})]
}

fn hostile(args: &[&str]) -> (Command, Arc<tempfile::TempDir>) {
    Terret::scripted(hostile_run())
        .file("hostile.txt", format!("file {LIVE}\n"))
        .file(&format!("name{LIVE}").replace('/', ""), "")
        .args(args)
        .into_command()
}

#[test]
fn a_run_on_a_terminal_shows_text_only() {
    let terminal = Terminal::open();
    let (mut command, _world) = hostile(&[]);
    command.stdin(Stdio::null()).stdout(terminal.stdio()).stderr(terminal.stdio());
    let shown = without_own_styles(&terminal.shows(command));
    for part in ["think ", "say ", "answer ", "tool"] {
        assert!(shown.contains(&format!("{part}{HARMLESS}")), "{shown}");
    }
}

#[test]
fn an_answer_on_a_terminal_beside_a_redirected_progress_is_text_only() {
    let terminal = Terminal::open();
    let (mut command, _world) = hostile(&[]);
    command.stdin(Stdio::null()).stdout(terminal.stdio()).stderr(Stdio::null());
    assert_eq!(without_own_styles(&terminal.shows(command)), format!("answer {HARMLESS}\n"));
}

#[test]
fn progress_on_a_terminal_beside_a_redirected_answer_is_text_only() {
    let terminal = Terminal::open();
    let (mut command, _world) = hostile(&[]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(terminal.stdio());
    let shown = without_own_styles(&terminal.shows(command));
    assert!(shown.contains(&format!("• bash cat hostile.txt; echo '{HARMLESS}")), "{shown}");
}

#[test]
fn a_provider_s_error_on_a_terminal_is_text_only() {
    let error = json!({"error": {"kind": "server", "message": format!("sorry {LIVE}"), "code": LIVE}});
    let terminal = Terminal::open();
    let (mut command, _world) = Terret::scripted([error]).into_command();
    command.stdin(Stdio::null()).stdout(terminal.stdio()).stderr(terminal.stdio());
    let shown = without_own_styles(&terminal.shows(command));
    assert!(shown.contains(&format!("sorry {HARMLESS}")), "{shown}");
}

#[test]
fn json_is_escaped_and_means_the_same() {
    let terminal = Terminal::open();
    let (mut command, _world) = hostile(&["--json"]);
    command.stdin(Stdio::null()).stdout(terminal.stdio()).stderr(Stdio::null());
    let shown = without_own_styles(&terminal.shows(command));
    let result: Value = serde_json::from_str(shown.lines().last().unwrap()).unwrap();
    assert_eq!(result["text"], format!("answer {LIVE}"));
}

#[test]
fn what_a_wire_carried_is_escaped_for_a_terminal() {
    let event = json!({"choices": [{"index": 0, "delta": {"content": LIVE}, "finish_reason": "stop"}]});
    let request = json!({"messages": [{"role": "user", "content": LIVE}]});
    for (args, body, pointer) in [
        (
            &["wire", "decode", "openai-completions"][..],
            format!("data: {event}\n\ndata: [DONE]\n\n"),
            "/content/0/text",
        ),
        (
            &["wire", "encode", "openai-completions", "--model", "openai/gpt-5"],
            request.to_string(),
            "/messages/0/content",
        ),
    ] {
        let terminal = Terminal::open();
        let (mut command, _world) = Terret::new().file("body", body).args(args).args(["body"]).into_command();
        command.stdin(Stdio::null()).stdout(terminal.stdio()).stderr(Stdio::null());
        let shown = without_own_styles(&terminal.shows(command));
        let value: Value = serde_json::from_str(shown.trim_end()).unwrap();
        assert_eq!(value.pointer(pointer).unwrap(), LIVE);
    }
}

#[test]
fn the_demo_in_colour_is_the_demo() {
    let terminal = Terminal::open();
    let (mut command, _world) = Terret::new().args(["demo"]).into_command();
    command.stdin(Stdio::null()).stdout(terminal.stdio()).stderr(terminal.stdio());
    let shown = terminal.shows(command);
    assert!(shown.contains("\u{1b}[1mterret demo\u{1b}[0m"), "{shown}");
    assert!(without_own_styles(&shown).contains("The tests pass now."));
}

#[test]
fn a_session_on_a_terminal_is_text_only() {
    let mut run = hostile_run();
    run.insert(
        0,
        json!({"content": [{"type": "toolCall", "id": "c0", "name": "bash", "arguments": {"command": "true"}}]}),
    );
    let ran = Terret::new()
        .script(run)
        .args(["-p", &format!("prompt {LIVE}").replace('\0', "")])
        .args(["--session-id", "hostile", "--json"])
        .run();
    // Not by the program, which refuses it.
    ran.sessions().rename(&"hostile".to_owned().into(), Some(&format!("name {LIVE}"))).unwrap();
    for args in [
        &["list"][..],
        &["show", "hostile"],
        &["search", "prompt"],
        &["check"],
        &["list", "--json"],
        &["show", "hostile", "--json"],
        &["export", "hostile"],
        &["export", "hostile", "-f", "md"],
        &["export", "hostile", "-f", "html"],
    ] {
        let terminal = Terminal::open();
        let (mut command, _world) = ran.then().args(["sessions"]).args(args).into_command();
        command.stdin(Stdio::null()).stdout(terminal.stdio()).stderr(terminal.stdio());
        let shown = without_own_styles(&terminal.shows(command));
        assert!(!shown.is_empty(), "{args:?}");
    }
}

#[test]
fn a_session_is_chosen_from_a_list_on_a_terminal() {
    let ran =
        Terret::new().script([json!({"text": "One."})]).args(["-p", "First.", "--session-id", "first"]).run().exits(0);
    ran.then().script([json!({"text": "Two."})]).args(["-p", "Second.", "--session-id", "second"]).run().exits(0);
    for (typed, session) in [("\n", Some("second")), ("7\n", None), ("\u{4}", None), ("2\n", Some("first"))] {
        let terminal = Terminal::open();
        let (mut command, _world) = ran.then().script([json!({"text": "On."})]).args(["-r", "-p", "x"]).into_command();
        command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
        rustix::io::write(&terminal.outside, typed.as_bytes()).unwrap();
        let shown = without_own_styles(&terminal.shows(command));
        assert!(
            shown.contains("1.  second") && shown.contains("2.  first") && shown.contains("Which one? [1]"),
            "{shown}"
        );
        match session {
            Some(session) => assert!(shown.contains(&format!("· session {session}\n")), "{shown}"),
            None => assert!(shown.contains("that is none of them"), "{shown}"),
        }
    }
}

#[test]
fn a_session_is_deleted_if_somebody_says_so_on_a_terminal() {
    let ran =
        Terret::new().script([json!({"text": "One."})]).args(["-p", "First.", "--session-id", "first"]).run().exits(0);
    for (typed, left) in [("n\n", 1), ("\n", 1), ("y\n", 0)] {
        let terminal = Terminal::open();
        let (mut command, _world) = ran.then().args(["sessions", "delete", "first"]).into_command();
        command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
        rustix::io::write(&terminal.outside, typed.as_bytes()).unwrap();
        let shown = without_own_styles(&terminal.shows(command));
        assert!(shown.contains("first  First. (2 messages)") && shown.contains("Delete for good? [y/N]"), "{shown}");
        assert_eq!(ran.sessions().list().unwrap().len(), left);
    }
}

/// The model takes 1.5 s, and what is waited for is said after one.
#[test]
fn what_takes_its_time_says_so_on_a_terminal_and_nowhere_else() {
    let slow = || Terret::scripted([json!({"text": "Done.", "delayMs": 1500})]);
    let terminal = Terminal::open();
    let (mut command, _world) = slow().into_command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(terminal.stdio());
    let shown = terminal.shows(command);
    assert!(shown.contains("waiting for the model … 1 s"), "{shown:?}");
    // It is gone in the end: what follows stands at the begin of its line.
    let (_, after) = shown.rsplit_once("waiting for the model").unwrap();
    assert!(after.contains("\r\u{1b}[K\u{1b}[2m1 model call"), "{shown:?}");

    let ran = slow().run().exits(0);
    assert!(!ran.stderr.contains("waiting"), "{}", ran.stderr);

    let terminal = Terminal::open();
    let (mut command, _world) = slow().into_command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(terminal.stdio());
    let plain = terminal.shows_as("dumb", command);
    assert!(plain.contains("waiting for the model …\r\n") && !plain.contains('\u{1b}'), "{plain:?}");
}
