//! The line mode, as somebody at a terminal sees it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pty_process::Size;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::{Value, json};
use tempfile::TempDir;
use terret::llm::Message;

use crate::server::{Answer, Server};
use crate::terret::{Terret, eventually, sessions};

const ENTER: &str = "\r";
const ESC: &str = "\u{1b}";
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const CTRL_G: &str = "\u{7}";
const CTRL_R: &str = "\u{12}";
const UP: &str = "\u{1b}[A";
const ALT_ENTER: &str = "\u{1b}\r";

/// Somebody at a terminal in which the program runs.
struct Seat {
    child: Child,
    outside: Arc<pty_process::blocking::Pty>,
    terminal: Arc<Mutex<vt100::Parser>>,
    /// The terminal as the program has it; also keeps it there when the program is gone.
    inside: OwnedFd,
    world: Arc<TempDir>,
}

impl Seat {
    fn take(terret: Terret) -> Self {
        Self::of_size(terret, 24, 80)
    }

    fn of_size(terret: Terret, rows: u16, columns: u16) -> Self {
        let (command, world) = terret.into_command();
        let (outside, inside) = pty_process::blocking::open().unwrap();
        outside.resize(Size::new(rows, columns)).unwrap();
        let name = rustix::pty::ptsname(&outside, Vec::new()).unwrap();
        let kept = fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        // Under a shell, as the first program of a terminal can't be stopped.
        let mut seated =
            pty_process::blocking::Command::new("/bin/sh").arg("-c").arg("trap : INT; \"$@\"; exit $?").arg("sh");
        seated = seated.arg(command.get_program()).args(command.get_args()).env_clear();
        seated = seated.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            seated = seated.env(name, value);
        }
        let child = seated.current_dir(command.get_current_dir().unwrap()).spawn(inside).unwrap();
        let outside = Arc::new(outside);
        let terminal = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 500)));
        let (reader, screen) = (outside.clone(), terminal.clone());
        std::thread::spawn(move || {
            let mut piece = [0; 8192];
            while let Ok(n @ 1..) = (&*reader).read(&mut piece) {
                screen.lock().unwrap().process(&piece[..n]);
            }
        });
        Self { child, outside, terminal, inside: kept.into(), world }
    }

    fn types(&self, keys: &str) -> &Self {
        (&*self.outside).write_all(keys.as_bytes()).unwrap();
        self
    }

    /// As somebody does who thinks before the next key.
    fn pauses(&self) -> &Self {
        std::thread::sleep(std::time::Duration::from_millis(700));
        self
    }

    /// Waits until the screen shows this.
    #[track_caller]
    fn sees(&self, text: &str) -> &Self {
        self.until(text, |screen| screen.contains(text))
    }

    /// Waits until the screen shows this, and the run has ended.
    #[track_caller]
    fn is_told(&self, text: &str) -> &Self {
        self.sees(text).sees_no_more("esc interrupts")
    }

    /// Waits until somebody is asked, and reads the question.
    #[track_caller]
    fn is_asked(&self, choices: &str) -> &Self {
        self.sees(choices);
        std::thread::sleep(std::time::Duration::from_millis(400));
        self
    }

    #[track_caller]
    fn sees_no_more(&self, text: &str) -> &Self {
        self.until(text, |screen| !screen.contains(text))
    }

    #[track_caller]
    fn until(&self, what: &str, shows: impl Fn(&str) -> bool) -> &Self {
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !shows(&self.screen()) {
            assert!(std::time::Instant::now() < patience, "{what:?} in:\n{}", self.screen());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self
    }

    /// What the screen shows.
    fn screen(&self) -> String {
        self.terminal.lock().unwrap().screen().contents()
    }

    fn resize(&self, rows: u16, columns: u16) {
        self.terminal.lock().unwrap().screen_mut().set_size(cells(rows), cells(columns));
        self.outside.resize(Size::new(rows, columns)).unwrap();
    }

    /// Whether keys come as they are, and not as lines.
    fn is_raw(&self) -> bool {
        !tcgetattr(self.inside.as_fd()).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// The program under the shell.
    fn program(&self) -> Pid {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let pid = eventually(|| fs::read_to_string(&path).ok()?.split_whitespace().next()?.parse().ok());
        Pid::from_raw(pid).unwrap()
    }

    /// Whether the shell still has a program under it.
    fn is_at_work(&self) -> bool {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        fs::read_to_string(&path).is_ok_and(|children| !children.trim().is_empty())
    }

    /// Waits for the end, and sees to it that the terminal is as it was.
    #[track_caller]
    fn exits(mut self, code: i32) -> Self {
        let status: ExitStatus = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{}", self.screen());
        let modes = tcgetattr(self.inside.as_fd()).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        let terminal = self.terminal.lock().unwrap();
        assert!(!terminal.screen().bracketed_paste() && !terminal.screen().hide_cursor());
        drop(terminal);
        self
    }

    /// The transcript of its one session.
    fn transcript(&self) -> Vec<Value> {
        let journal = sessions(&self.world);
        let infos = journal.list().unwrap();
        assert_eq!(infos.len(), 1);
        let state = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(async { terret::agent::Journal::resume(&journal, &infos[0].id).await.unwrap().state });
        state.transcript().iter().map(|message: &Arc<Message>| serde_json::to_value(&**message).unwrap()).collect()
    }

    /// What the user has said, in order.
    fn said(&self) -> Vec<String> {
        let said = self.transcript().into_iter().filter(|message| message["role"] == "user");
        said.map(|message| crate::terret::text_of(&message)).collect()
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

fn seat(replies: impl IntoIterator<Item = Value>) -> Seat {
    Seat::take(Terret::new().script(replies))
}

fn text(text: &str) -> Value {
    json!({"text": text})
}

/// A reply that begins, and goes on until somebody stops it.
fn endless(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "stall": true})
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({"content": [{"type": "toolCall", "id": "c1", "name": tool, "arguments": arguments}]})
}

#[test]
fn a_session_is_talked_through_and_can_be_gone_on_with() {
    let seat = seat([text("# Title\n\nSome **bold** `code`.\n\n- an item"), text("Second answer.")]);
    seat.sees("/help says").types("hello").types(ENTER).sees("• an item");
    let screen = seat.screen();
    assert!(
        screen.contains("› hello") && screen.contains("\nTitle\n") && screen.contains("Some bold code."),
        "{screen}"
    );
    seat.types("more").types(ENTER).sees("Second answer.").types(CTRL_D).sees("goes on with this session");
    let seat = seat.exits(0);
    assert_eq!(seat.said(), ["hello", "more"]);

    let again = Seat::take(Terret::of(seat.world.clone()).script([text("Third.")]).args(["-c"]));
    again.sees("› more").sees("Second answer.").types("on").types(ENTER).sees("Third.").types("/quit").types(ENTER);
    assert_eq!(again.exits(0).said(), ["hello", "more", "on"]);
}

#[test]
fn an_interruption_keeps_what_was_done_and_the_session_goes_on() {
    for key in [ESC, CTRL_C] {
        let seat = seat([call("ls", json!({})), endless("Half an answer"), text("The rest.")]);
        seat.sees("/help").types("go").types(ENTER).sees("Half an answer").types(key).sees("interrupted");
        seat.types("and now").types(ENTER).is_told("The rest.").sees("Half an answer").types(CTRL_D);
        let transcript = seat.exits(0).transcript();
        let roles: Vec<&str> = transcript.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "toolResult", "user", "assistant"]);
    }
}

#[test]
fn an_interruption_stops_the_tool_at_once() {
    let seat = Seat::take(
        Terret::new()
            .script([call("bash", json!({"command": "touch begun; sleep 600"})), text("On.")])
            .args(["--permission-mode", "full"]),
    );
    seat.sees("/help").types("go").types(ENTER);
    let begun = seat.world.path().join("project/begun");
    eventually(|| begun.exists().then_some(()));
    seat.types(ESC).sees("interrupted").types("on").types(ENTER).sees("On.").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn what_is_typed_while_the_model_works_steers_it_or_follows() {
    let slow = call("bash", json!({"command": "until [ -e go ]; do sleep 0.05; done"}));
    let steered = json!({"text": "Heard.", "expect": {"contains": "steer"}});
    let seat = Seat::take(Terret::new().script([slow, steered, text("Followed.")]).args(["--permission-mode", "full"]));
    seat.sees("/help").types("go").types(ENTER).sees("• bash");
    seat.types("then this").types(ALT_ENTER).sees("then: then this");
    seat.types("steer").types(ENTER).sees("next: steer").sees("2 queued");
    fs::write(seat.world.path().join("project/go"), "").unwrap();
    seat.sees("Followed.").types(CTRL_D);
    assert_eq!(seat.exits(0).said(), ["go", "steer", "then this"]);
}

#[test]
fn what_is_queued_can_be_taken_back_and_comes_back_undelivered() {
    let seat = seat([endless("Well"), text("Done.")]);
    seat.sees("/help").types("go").types(ENTER).sees("Well");
    seat.types("one").types(ENTER).sees("next: one").types("two").types(ENTER).sees("next: two");
    seat.types(UP).sees("› two").sees_no_more("next: two").types(ESC).sees("interrupted").sees("› one");
    seat.types(ENTER).sees("Done.").types(CTRL_D);
    assert_eq!(seat.exits(0).said(), ["go", "one\ntwo"]);
}

#[test]
fn a_question_is_answered_by_a_key() {
    let write = |content: &str| call("write", json!({"path": "a.txt", "content": content}));
    let asked = |replies: [Value; 2]| {
        let seat = Seat::take(Terret::new().script(replies).args(["--permission-mode", "ask"]));
        seat.sees("/help").types("go").types(ENTER).sees("? write a.txt").sees("+hello").is_asked("y once");
        seat
    };
    let file = |seat: &Seat| fs::read_to_string(seat.world.path().join("project/a.txt")).ok();

    let seat = asked([write("hello\n"), text("Done.")]);
    seat.types("y").sees("Done.").types(CTRL_D);
    assert_eq!(file(&seat.exits(0)).as_deref(), Some("hello\n"));

    let denied = json!({"text": "Done.", "expect": {"lastRole": "toolResult", "contains": "not today"}});
    let seat = asked([write("hello\n"), denied]);
    seat.types("n").sees("why not?").types("not today").types(ENTER).sees("Done.").types(CTRL_D);
    assert_eq!(file(&seat.exits(0)), None);

    let seat = asked([write("hello\n"), text("Done.")]);
    seat.types("e").sees("arguments ›").types("\u{15}").types(UP).types("x");
    // What isn't JSON isn't taken.
    seat.types(ENTER).sees("no JSON").types(ESC).is_asked("y once").types("e").sees("arguments ›");
    seat.types(&format!("{}{{\"path\":\"a.txt\",\"content\":\"other\"}}", "\u{7f}".repeat(80)));
    seat.types(ENTER).sees("Done.").types(CTRL_D);
    assert_eq!(file(&seat.exits(0)).as_deref(), Some("other"));
}

#[test]
fn what_was_being_typed_comes_back_after_a_question() {
    let slow = call("bash", json!({"command": "touch x"}));
    let slow = json!({"content": slow["content"], "delayMs": 700});
    let seat = Seat::take(Terret::new().script([slow, text("Done.")]).args(["--permission-mode", "ask"]));
    seat.sees("/help").types("go").types(ENTER).sees("waiting").types("half a").sees("› half a");
    seat.sees("y once").pauses().types("a").is_told("Done.").sees("› half a").types(CTRL_C).types(CTRL_D);
    seat.exits(0);
}

#[test]
fn keys_of_a_text_that_is_being_typed_answer_no_question() {
    let write = call("write", json!({"path": "a.txt", "content": "x"}));
    let write = json!({"content": write["content"], "delayMs": 3000});
    let seat = Seat::take(Terret::new().script([write, text("Done.")]).args(["--permission-mode", "ask"]));
    seat.sees("/help").types("go").types(ENTER).sees("waiting").types("y").sees("› y");
    while !seat.screen().contains("y once") {
        seat.types("y");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    seat.types("a").types("\u{1b}[200~\npasted\u{1b}[201~").sees("comes back after this question");
    assert!(seat.screen().contains("y once") && !seat.world.path().join("project/a.txt").exists());
    seat.pauses().types("y").is_told("Done.").sees("a\n  pasted").types(CTRL_C).types(CTRL_D);
    seat.exits(0);
}

#[test]
fn a_tool_that_was_interrupted_and_the_end_of_one_that_failed_are_shown() {
    let count = call("bash", json!({"command": "for i in 1 2 3 4 5 6 7 8 9; do echo line $i; done; exit 3"}));
    let sleep =
        json!({"content": [{"type": "toolCall", "id": "c2", "name": "bash", "arguments": {"command": "sleep 600"}}]});
    let seat = Seat::take(Terret::new().script([count, sleep]).args(["--permission-mode", "full"]));
    seat.sees("/help").types("go").types(ENTER).sees("• bash sleep 600");
    let screen = seat.screen();
    assert!(screen.contains("✗ line 1") && screen.contains("more lines") && screen.contains("line 9"), "{screen}");
    assert!(!screen.contains("line 5"), "{screen}");
    seat.types(ESC).sees("interrupted").sees("• bash sleep 600\n  ✗ stopped").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn where_there_is_nothing_to_do_it_says_so() {
    let seat = seat([text("x")]);
    seat.sees("/help").types("/continue").types(ENTER).sees("there is nothing to go on with");
    seat.types("/compact").types(ENTER).sees("could not be summarised: there is nothing").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn what_was_said_is_found_and_paths_are_completed() {
    let terret = Terret::new().script([text("One."), text("Two."), text("Three.")]).file("src/main.rs", "");
    let seat = Seat::take(terret);
    seat.sees("/help").types("fix the tests").types(ENTER).is_told("One.").types("other").types(ENTER).is_told("Two.");
    seat.types("draft").types(CTRL_R).types("TEST").sees("find › TEST\nfix the tests").types(ESC).sees("› draft");
    seat.types(CTRL_R).types("test").sees("\nfix the tests").types(ENTER).sees("› fix the tests");
    seat.types(" in @s\t").sees("@src/").types("\t").sees("@src/main.rs").types(ENTER).sees("Three.").types(CTRL_D);
    assert_eq!(seat.exits(0).said(), ["fix the tests", "other", "fix the tests in @src/main.rs"]);
}

#[test]
fn what_is_typed_can_be_edited_in_another_program() {
    let editor = "#!/bin/sh\n[ \"$1\" = -w ] && stty -a | grep -q ' icanon' && echo \"and more\" >>\"$2\"\n";
    let terret = Terret::new().script([text("Heard.")]).file("editor", editor);
    fs::set_permissions(terret.path("editor"), fs::Permissions::from_mode(0o755)).unwrap();
    let named = format!("{} -w", terret.path("editor").display());
    let seat = Seat::take(terret.env("VISUAL", named));
    seat.sees("/help").types("begun\\\r").types(CTRL_G).sees("and more").types(ENTER).sees("Heard.").types(CTRL_D);
    assert_eq!(seat.exits(0).said(), ["begun\nand more"]);

    let seat = Seat::take(Terret::new().script([text("Heard.")]).env("EDITOR", "false"));
    seat.sees("/help").types("kept").types(CTRL_G).sees("false failed").sees("› kept").types(CTRL_C).types(CTRL_D);
    seat.exits(0);
}

#[test]
fn a_long_paste_is_said_whole_and_shown_in_part() {
    let seat = seat([text("Got it.")]);
    let pasted: String = (0..2000).map(|n| format!("row {n}\r")).collect();
    seat.sees("/help").types(&format!("\u{1b}[200~{pasted}\u{1b}[201~")).sees("row 1999").types(ENTER);
    seat.sees("Got it.").sees("… 1970 more lines").types(CTRL_D);
    assert_eq!(seat.exits(0).said()[0].lines().count(), 2000);
}

#[test]
fn a_run_that_a_crash_has_interrupted_is_paid_for_once() {
    let usage = json!({"prompt_tokens": 1_000_000, "completion_tokens": 0});
    let answer = |delta: Value, reason: &str| {
        let event = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": usage});
        Answer::events(format!("data: {event}\n\ndata: [DONE]\n\n"))
    };
    let bash = json!({"name": "bash", "arguments": "{\"command\": \"sleep 600\"}"});
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": bash}]});
    let server = Server::answering([answer(call, "tool_calls"), answer(json!({"content": "Done."}), "stop")]);
    let models = r#"{"models": {"custom/mine": {"price": {"input": 1, "output": 1}}}}"#;
    let asked = ["-m", "custom/mine", "--base-url", &server.url, "--permission-mode", "full"];
    let seat = Seat::take(Terret::new().args(asked).home_file(".config/terret/models.json", models));
    seat.sees("/help").types("go").types(ENTER).sees("• bash").sees("$1.0");
    kill_process(seat.program(), Signal::KILL).unwrap();
    let world = seat.world.clone();
    drop(seat);
    let again = Seat::take(Terret::of(world).args(asked).args(["-c"]));
    again.is_told("Done.").types("/cost").types(ENTER).sees("this session: $2.0").types(CTRL_D);
    again.exits(0);
}

#[test]
fn a_command_for_a_key_that_takes_its_time_can_be_interrupted() {
    let config = "[providers.anthropic]\napi-key = \"!touch asked; sleep 600\"\n";
    let seat = Seat::take(Terret::new().script([text("Still here.")]).config(config));
    seat.sees("/help").types("/model anthropic/claude-sonnet-4-5").types(ENTER);
    let asked = seat.world.path().join("project/asked");
    eventually(|| asked.exists().then_some(()));
    seat.types(CTRL_C).sees("nothing has changed").types("go").types(ENTER).sees("Still here.").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn it_ends_when_it_is_told_to_though_the_terminal_takes_nothing_more() {
    let mut seat = seat([json!({"text": "line\n\n".repeat(100_000), "chunk": 16})]);
    let terminal = seat.sees("/help").terminal.clone();
    let held = terminal.lock().unwrap();
    seat.types("go").types(ENTER).pauses();
    kill_process(seat.program(), Signal::TERM).unwrap();
    let status = seat.child.wait();
    drop(held);
    assert_eq!(status.unwrap().code(), Some(143));
}

#[test]
fn what_comes_faster_than_the_terminal_is_shown_whole() {
    let rows: String = (0..20_000).map(|n| format!("row {n} of many\n\n")).collect();
    let reply = json!({"text": format!("{rows}THE END"), "chunk": 16});
    let seat = seat([reply.clone()]);
    // Nobody reads for a while.
    let held = seat.sees("/help").terminal.lock().unwrap();
    seat.types("go").types(ENTER).pauses();
    drop(held);
    seat.sees("row 19999 of many").sees("THE END").types(CTRL_D);
    seat.exits(0);

    let seat = Seat::take(Terret::new().script([reply]).args(["go"]));
    let held = seat.terminal.lock().unwrap();
    seat.pauses();
    drop(held);
    seat.sees("row 19999 of many").sees("THE END").sees("1 model call");
    seat.exits(0);
}

#[test]
fn a_run_ends_when_its_terminal_goes() {
    let seat = seat([endless("Well")]);
    seat.sees("/help").types("go").types(ENTER).sees("Well");
    // The system says it, and so does a shell.
    for _ in 0..2 {
        kill_process(seat.program(), Signal::HUP).unwrap();
    }
    let again = Seat::take(Terret::of(seat.exits(143).world).script([text("x")]).args(["-c"]));
    again.sees("/help").sees("› go").types("/cost").types(ENTER).sees("this session");
    assert!(!again.screen().contains("goes on"), "{}", again.screen());
    again.types(CTRL_D);
    again.exits(0);
}

#[test]
fn a_paste_is_one_text_and_history_stays() {
    let seat = seat([text("Got it.")]);
    seat.sees("/help").types("\u{1b}[200~line one\r\nline \u{1b}[2Jtwo\u{1b}[201~").sees("line [2Jtwo").types(ENTER);
    seat.sees("Got it.").types(CTRL_D);
    let seat = seat.exits(0);
    assert_eq!(seat.said(), ["line one\nline [2Jtwo"]);
    let file = seat.world.path().join("home/.state/terret/history.jsonl");
    assert_eq!(fs::read_to_string(&file).unwrap(), "\"line one\\nline [2Jtwo\"\n");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let again = Seat::take(Terret::of(seat.world.clone()).script([text("x")]));
    again.sees("/help").types(UP).sees("› line one").types(CTRL_C).sees_no_more("› line one").types(CTRL_C);
    again.sees("Ctrl-C again leaves").types(CTRL_C);
    again.exits(0);
}

#[test]
fn wide_characters_and_another_size_keep_the_cursor_where_it_belongs() {
    let seat = Seat::of_size(Terret::new().script([text("x")]), 12, 40);
    let cursor = |seat: &Seat| seat.terminal.lock().unwrap().screen().cursor_position().1;
    seat.sees("/help").types("日本e\u{301}").sees("› 日本e\u{301}");
    assert_eq!(cursor(&seat), 2 + 5);
    seat.types("\u{1b}[D\u{1b}[D").until("the cursor to move", |_| cursor(&seat) == 2 + 2);
    seat.resize(10, 24);
    let rows = |screen: &str| screen.lines().filter(|line| line.contains("ww")).count();
    seat.types("\u{5}").until("a second row", |screen| {
        seat.types("w");
        rows(screen) == 2 && screen.lines().all(|line| line.chars().count() <= 24)
    });
    // What a smaller terminal has cut off is drawn again at once.
    seat.types("\u{15}").sees("› \n").resize(4, 24);
    seat.sees("scripted/").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn commands_tell_and_unknown_ones_suggest_the_near_one() {
    let seat = seat([json!({"text": "Hi.", "usage": {"input": 1200, "output": 34}})]);
    seat.sees("/help").types("/hlep").types(ENTER).sees("did you mean /help?").types("\u{15}/help").types(ENTER);
    seat.sees("/export FILE").sees("Alt-Enter").types("/tools").types(ENTER).sees("grep");
    seat.types("hi").types(ENTER).is_told("Hi.").sees("1.2k tokens").types("/cost").types(ENTER).sees("this session:");
    seat.types("/export page.html").types(ENTER).sees("written to page.html");
    seat.types("/sessions").types(ENTER).sees("goes on with one").types("/clear").types(ENTER).sees("a new session");
    seat.types("/model nobody/nothing").types(ENTER).sees("nobody").types("/quit").types(ENTER);
    let seat = seat.exits(0);
    let page = fs::read_to_string(seat.world.path().join("project/page.html")).unwrap();
    assert!(page.contains("Hi."), "{page}");
}

/// Said once, before there is a screen, and not over it when another model is asked or a session begins.
#[test]
fn what_is_not_used_is_said_once() {
    let skill = "---\nname: two\ndescription: Two.\n---\nx\n";
    let terret = Terret::new().script([text("Hi.")]).file(".terret/skills/two/SKILL.md", skill);
    let script = format!("/model scripted:{}", terret.path("../script.jsonl").display());
    let seat = Seat::of_size(terret.args(["--deny", "bsh"]), 24, 200);
    seat.sees("which nobody has trusted yet").sees("there is no tool \"bsh\"").sees("/help");
    seat.types(&script).types(ENTER).sees("from now on").types("/clear").types(ENTER).sees("a new session");
    let screen = seat.screen();
    for said in ["which nobody has trusted yet", "there is no tool"] {
        assert_eq!(screen.matches(said).count(), 1, "{screen}");
    }
    seat.types(CTRL_D);
    seat.exits(0);
}

#[test]
fn nothing_live_reaches_the_terminal() {
    let live = "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}1m\u{202e}";
    let run = call("bash", json!({"command": format!("echo '{live}x'")}));
    let seat = seat([run, text(&format!("say {live}end"))]);
    seat.sees("/help says").types("go").types(ENTER).sees("end");
    let screen = seat.screen();
    assert!(screen.contains("say [2J]0;title1mend") && screen.contains("/help says"), "{screen}");
    seat.types(CTRL_D);
    seat.exits(0);
}

#[test]
fn signals_end_it_with_their_codes_and_give_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let idle = seat([text("x")]);
        idle.sees("/help");
        kill_process(idle.program(), signal).unwrap();
        idle.exits(code);
    }
    let busy = seat([endless("Well")]);
    busy.sees("/help").types("go").types(ENTER).sees("Well");
    kill_process(busy.program(), Signal::TERM).unwrap();
    assert_eq!(busy.exits(143).said(), ["go"]);
}

#[test]
fn it_stops_and_goes_on() {
    let seat = seat([text("Here.")]);
    seat.sees("/help").types("draft").sees("› draft");
    let program = seat.program();
    let group = Pid::from_raw(seat.child.id().cast_signed()).unwrap();
    seat.types("\u{1a}");
    let stat = format!("/proc/{}/stat", program.as_raw_nonzero());
    eventually(|| fs::read_to_string(&stat).ok()?.contains(") T ").then_some(()));
    assert!(!seat.is_raw());
    kill_process_group(group, Signal::CONT).unwrap();
    eventually(|| seat.is_raw().then_some(()));
    seat.types("!").sees("› draft!").types(ENTER).sees("Here.").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn no_color_and_another_encoding_are_plain() {
    let plain = Terret::new().script([text("**b** … é")]).env("NO_COLOR", "1").env("LC_ALL", "C");
    let seat = Seat::take(plain);
    seat.sees("/help").types("go").types(ENTER).sees("**b** ... ?").types(CTRL_D);
    let seat = seat.exits(0);
    let terminal = seat.terminal.lock().unwrap();
    let formatted = terminal.screen().contents_formatted();
    assert!(terminal.screen().contents().is_ascii());
    assert!(!formatted.contains("\u{1b}[1m") && !formatted.contains("\u{1b}[2m"), "{formatted:?}");
}

#[test]
fn a_dumb_terminal_is_written_to_line_by_line() {
    let seat = Seat::take(Terret::new().script([text("One."), endless("Two\n\nthree")]).env("TERM", "dumb"));
    // The last line of a run is its status.
    seat.sees("/help")
        .types("go\n")
        .sees("One.")
        .sees("scripted/script")
        .types("more\n")
        .sees("Two")
        .types(CTRL_C)
        .sees("interrupted");
    seat.types(CTRL_D);
    seat.exits(0);
}

#[test]
fn without_a_terminal_a_prompt_is_needed() {
    let ran = Terret::new().script([text("x")]).run().exits(2);
    assert!(ran.stderr.contains("no prompt"), "{}", ran.stderr);
}

fn bash(id: &str, command: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": "bash", "arguments": {"command": command}})
}

/// A reply with these commands, in order.
fn commands(list: &[(&str, &str)]) -> Value {
    json!({"content": list.iter().map(|(id, command)| bash(id, command)).collect::<Vec<_>>()})
}

/// Somebody who is asked about everything, in a project of their own.
fn asked(replies: impl IntoIterator<Item = Value>) -> Seat {
    Seat::take(Terret::new().file(".git/HEAD", "").script(replies).args(["--permission-mode", "ask"]))
}

/// A further command line of the same person.
fn beside(seat: &Seat) -> Terret {
    Terret::of(seat.world.clone())
}

#[test]
fn a_rule_for_the_session_holds_at_once_and_when_it_goes_on() {
    let both = commands(&[("c1", "touch a"), ("c2", "touch a; ls")]);
    let seat = asked([both, commands(&[("c3", "touch b")]), commands(&[("c4", "touch a")]), text("Done.")]);
    seat.sees("/help").types("go").types(ENTER).is_asked("y once").types("s").sees("for this session › bash(touch a)");
    // The other question that the rule covers is answered with it, and a later one that it doesn't cover is asked.
    seat.types(ENTER).sees("allowed in this session: bash(touch a)").sees("touch b").is_asked("y once");
    seat.types("n").sees("why not?").types(ENTER).sees("Done.");
    seat.types("/permissions").types(ENTER).sees("1  allow  bash(touch a)  this session").types(CTRL_D);
    let seat = seat.exits(0);
    let results: Vec<bool> = seat
        .transcript()
        .iter()
        .filter(|message| message["role"] == "toolResult")
        .map(|result| result["isError"] == true)
        .collect();
    assert_eq!(results, [false, false, true, false]);

    let on = |args: &[&str]| {
        let terret = beside(&seat).script([commands(&[("d1", "touch a")]), text("Again.")]);
        terret.args(["-p", "on", "--permission-mode", "ask"]).args(args).run().code()
    };
    assert_eq!(on(&["-c", "--fork"]), 5, "a copy has no rules");
    let id = sessions(&seat.world).list().unwrap().last().unwrap().id.to_string();
    assert_eq!((on(&["-r", &id]), on(&[])), (0, 5));
}

#[test]
fn a_rule_for_the_project_holds_in_other_sessions_until_it_is_revoked() {
    let go = |id: &str| commands(&[(id, "touch a")]);
    let seat = asked([go("c1"), text("Done."), go("c2"), text("Twice."), go("c3"), text("Thrice.")]);
    seat.sees("/help").types("go").types(ENTER).is_asked("y once").types("p").sees("for this project › bash(touch a)");
    // A rule that is none, and one that is about something else, are refused, and nothing is lost.
    seat.types("\u{7f}").types(ENTER).sees("the closing parenthesis is missing").sees("› bash(touch a");
    seat.types("\u{7f}b)").types(ENTER).sees("this doesn't cover the call").sees("› bash(touch b)");
    seat.types("\u{7f}\u{7f}*)").types(ENTER).sees("allowed in this project: bash(touch *)").sees("Done.");
    let ran = beside(&seat).script([commands(&[("d1", "touch other")]), text("x")]);
    ran.args(["-p", "x", "--permission-mode", "ask"]).run().exits(0);

    // It holds no more for the next call.
    seat.types("/permissions revoke bash(tuoch *)").types(ENTER).sees("did you mean bash(touch *)?").types("\u{15}");
    seat.types("/permissions revoke 1").types(ENTER).sees("revoked: allow bash(touch *) (project)");
    seat.types("go").types(ENTER).is_asked("y once").types("y").sees("Twice.");
    // What another program gives holds from the next prompt on.
    beside(&seat).args(["permissions", "allow", "bash(touch *)"]).run().exits(0);
    seat.types("go").types(ENTER).sees("Thrice.").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn a_rule_that_is_given_after_a_crash_answers_what_was_asked_before_it() {
    let in_lines = |seat: &Seat| {
        let terret = beside(seat).script([text("Done.")]).args(["-c", "-p", "--json", "--permission-mode", "ask"]);
        terret.run()
    };
    for (rule, code) in [("bash(touch a)", 0), ("bash(touch b)", 5)] {
        let seat = asked([commands(&[("c1", "touch a")]), text("x")]);
        seat.sees("/help").types("go").types(ENTER).sees("y once");
        kill_process(seat.program(), Signal::KILL).unwrap();
        eventually(|| (!seat.is_at_work()).then_some(()));
        beside(&seat).args(["permissions", "allow", rule]).run().exits(0);
        let ran = in_lines(&seat).exits(code);
        assert_eq!(ran.of_type("approved").len(), usize::from(code == 0), "{}", ran.stdout);
        assert_eq!(ran.path("a").exists(), code == 0);
    }
    let seat = asked([commands(&[("c1", "touch a")]), text("x")]);
    seat.sees("/help").types("go").types(ENTER).sees("y once");
    kill_process(seat.program(), Signal::KILL).unwrap();
    eventually(|| (!seat.is_at_work()).then_some(()));
    beside(&seat).args(["permissions", "allow", "bash(touch a)"]).run().exits(0);
    let again = Seat::take(beside(&seat).script([text("Done.")]).args(["-c", "--permission-mode", "ask"]));
    again.sees("Done.").types(CTRL_D);
    again.exits(0);
}

#[test]
fn what_a_rule_asks_about_can_not_be_allowed_for_longer() {
    let terret = Terret::new().script([commands(&[("c1", "touch a")]), text("Done.")]).args(["--ask", "bash(touch *)"]);
    let seat = Seat::take(terret);
    seat.sees("/help").types("go").types(ENTER).is_asked("y once").types("s");
    assert_eq!(seat.screen().matches("touch a").count(), 1, "{}", seat.screen());
    seat.sees("bash(touch *) (--ask) asks about it, whatever is allowed").types("y").sees("Done.").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn a_call_that_only_a_wide_rule_covers_says_so_and_several_commands_get_a_rule_each() {
    let wide = commands(&[("c1", "for f in a b; do touch $f; done")]);
    let seat = asked([wide, commands(&[("c2", "touch a && touch b")]), commands(&[("c3", "touch b")]), text("Done.")]);
    seat.sees("/help").types("go").types(ENTER).is_asked("y once").types("s").sees("every call of bash").types(ESC);
    seat.is_asked("y once").types("y").sees("touch a && touch b").is_asked("y once").types("s");
    seat.sees("bash(touch a)").sees("bash(touch b)").types(ENTER).sees("Done.");
    // Rules can be given by name, too, and a denial wins.
    seat.types("/permissions deny bash(rm").types(ENTER).sees("closing").types(" *)").types(ENTER);
    seat.sees("deny in this session: bash(rm *)").types("/permissions").types(ENTER).sees("3  deny   bash(rm *)");
    seat.types(CTRL_D);
    seat.exits(0);
}

#[test]
fn rules_of_a_session_that_is_not_kept_hold_as_long_as_it_does() {
    let go = |id: &str| commands(&[(id, "touch a")]);
    let terret = Terret::new().script([go("c1"), text("Done."), go("c2"), text("Twice.")]);
    let seat = Seat::take(terret.args(["--permission-mode", "ask", "--no-session"]));
    seat.sees("/help")
        .types("go")
        .types(ENTER)
        .is_asked("y once")
        .types("s")
        .sees("session ›")
        .types(ENTER)
        .sees("Done.");
    seat.types("go").types(ENTER).sees("Twice.").types("/clear").types(ENTER).sees("a new session");
    seat.types("/permissions").types(ENTER).sees("no rules; permission mode ask").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn a_dumb_terminal_takes_a_rule_on_a_line() {
    let terret = Terret::new().script([commands(&[("c1", "touch a")]), text("Done.")]).env("TERM", "dumb");
    let seat = Seat::take(terret.args(["--permission-mode", "ask"]));
    seat.sees("/help").types("go\n").is_asked("y once").types("p\n").sees("the rule; nothing takes bash(touch a)");
    seat.types("-\n").until("the choices again", |screen| screen.matches("y once").count() == 2);
    // A line that was begun before the question came is no answer.
    seat.types("yes, and more\n").until("them once more", |screen| screen.matches("y once").count() == 3).types("p\n");
    seat.types("bash(touch b)\n").sees("this doesn't cover the call").types("\n").sees("allowed in this project");
    seat.sees("Done.").types(CTRL_D);
    seat.exits(0);
}

#[test]
fn a_flood_holds_up_neither_the_keys_nor_what_is_drawn() {
    let rows: String = (0..400_000).map(|n| format!("row {n} of a flood that goes on\n\n")).collect();
    let seat = seat([json!({"text": rows + "THE END", "chunk": 16, "stall": true})]);
    seat.sees("/help");
    let (terminal, is_slow) = (seat.terminal.clone(), Arc::new(AtomicBool::new(true)));
    let slow = is_slow.clone();
    // A terminal that takes some hundred kilobytes a second.
    let slower = std::thread::spawn(move || {
        while slow.load(Ordering::SeqCst) {
            let held = terminal.lock().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(10));
            drop(held);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    });
    seat.types("go").types(ENTER).sees("of a flood").pauses().pauses().types("half a").sees("› half a").types(ESC);
    is_slow.store(false, Ordering::SeqCst);
    slower.join().unwrap();
    seat.sees("interrupted");
    assert!(!seat.screen().contains("THE END"), "{}", seat.screen());
    seat.types(CTRL_C).types(CTRL_D);
    seat.exits(0);
}

#[test]
fn a_key_answers_one_question_and_none_that_nobody_has_read() {
    let all = commands(&[("c1", "touch a"), ("c2", "touch b"), ("c3", "touch c")]);
    let seat = asked([all, text("Done.")]);
    // Ctrl-A, Ctrl-E, Ctrl-N, Ctrl-Y and Alt-Y are none of the answers; the questions come in any order.
    seat.sees("/help").types("go").types(ENTER).is_asked("y once").types("\u{1}\u{5}\u{e}\u{19}\u{1b}y").pauses();
    // A key that is held is one answer.
    seat.sees("3 questions wait for you").types("yyyyy").pauses();
    // Whoever begins to type when a question comes says something.
    seat.types("y").types("no, but").sees("comes back after this question").pauses();
    seat.types("n").sees("why not?").types(ENTER).is_told("Done.").sees("› no, but").types(CTRL_C).types(CTRL_D);
    let seat = seat.exits(0);
    let made = ["a", "b", "c"].map(|name| seat.world.path().join("project").join(name).exists());
    assert_eq!(made.iter().filter(|made| **made).count(), 2);
}

#[test]
fn a_question_is_answered_though_the_rules_of_projects_have_become_unreadable() {
    let seat = asked([commands(&[("c1", "touch a")]), text("Done.")]);
    seat.sees("/help").types("go").types(ENTER).is_asked("y once");
    let place = seat.world.path().join("home/.state/terret/permissions.json");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, "{\"projects\":").unwrap();
    seat.types("p").sees("for this project › bash(touch a)").types(ENTER).sees("gives new ones").types(ESC);
    // What is said about it has moved the question away; it is still there.
    seat.sees("? bash touch a").sees("y once").types("y").is_told("Done.").types(CTRL_D);
    assert_eq!(fs::read_to_string(&place).unwrap(), "{\"projects\":");
    seat.exits(0);
}
