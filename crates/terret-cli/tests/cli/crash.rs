//! The program is killed in the middle of runs with real tools, at every record and at random instants; `terret -c` goes on,
//! and everything is as it was promised.
//!
//! The random part is short by default: `TERRET_CRASH_KILLS=300 cargo test -p terret-cli --test cli crash`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terret::agent::machine::{Outcome, Record, State};
use terret::agent::{Journal as _, SessionId, fold};
use terret::llm::{Message, ToolResultMessage};
use terret::store::SqliteJournal;

use crate::terret::{Killed, Running, Terret, eventually};

const CALLS: usize = 8;
const TURNS: usize = 3;

/// What the model does: commands that write down when they start and end, and files that are written, edited and read.
fn replies() -> Vec<Value> {
    let call = |id: &str, tool: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": tool, "arguments": arguments});
    let bash = |id: &str| {
        let command = format!(
            "echo start {id} >> log; sleep 300 & sleep 0.01; echo end {id} >> log; kill $!; wait; echo did {id}"
        );
        call(id, "bash", json!({"command": command}))
    };
    let turn = |calls: Vec<Value>| json!({"content": calls, "delayMs": 5});
    vec![
        turn(vec![
            bash("c1"),
            call("c2", "write", json!({"path": "a.txt", "content": "one\n"})),
            call("c3", "ls", json!({})),
        ]),
        turn(vec![
            bash("c4"),
            bash("c5"),
            call("c6", "read", json!({"path": "a.txt"})),
            call("c7", "write", json!({"path": "b.txt", "content": "two\n"})),
        ]),
        turn(vec![bash("c8")]),
        json!({"text": "All done.", "delayMs": 5}),
    ]
}

#[test]
fn killed_at_every_record_and_gone_on_with() {
    let records = Case::new().finish().records().len();
    assert!(records > 30, "{records}");
    for at in 1..=records {
        let mut case = Case::new();
        let run = case.start();
        let reached = case.wait_for(at, &run);
        case.kill(run);
        assert!(reached || case.records().len() >= at || case.is_over(), "{at}");
        case.finish();
    }
}

/// Killed between the last reply and the end of the run: there is nothing left to show, and a result all the same.
#[test]
fn a_run_that_has_only_to_end_says_how_its_reply_stopped() {
    let ran = Terret::scripted([json!({"text": "Done."})]).args(["--json"]).run().exits(0);
    let reading = ran.sessions().reader(&ran.session()).unwrap().read_all().unwrap();
    let mut records: Vec<Record> = reading.records.into_iter().map(|kept| kept.record).collect();
    assert!(matches!(records.pop(), Some(Record::RunEnded { .. })));
    let cut = SessionId::from("cut".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(ran.sessions().append(&cut, 0, &records)).unwrap();
    let ended = ran.then().script([]).args(["-r", "cut", "--json"]).run().exits(0).result();
    assert_eq!((&ended["text"], &ended["stopReason"]), (&json!("Done."), &json!("stop")));
}

#[test]
fn killed_at_random_instants_twice_and_gone_on_with() {
    let kills: u64 = std::env::var("TERRET_CRASH_KILLS").map_or(12, |kills| kills.parse().unwrap());
    let begun = Instant::now();
    Case::new().finish();
    let longest = u64::try_from(begun.elapsed().as_micros()).unwrap();
    // Several at a time: most of it is waiting for the disk.
    let all = std::thread::scope(|scope| {
        let share = |n: u64| (kills + n) / THREADS;
        let threads: Vec<_> =
            (0..THREADS).map(|n| scope.spawn(move || kill_twice_each(share(n), n, longest))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1))
    });
    println!("{kills} runs, each killed twice: {} times in mid-run; {} runs while a tool was open", all.0, all.1);
    assert!(all.0 > 0);
}

const THREADS: u64 = 4;

/// How many kills hit a run at work, and how many of the runs had a tool open at one.
fn kill_twice_each(runs: u64, seed: u64, longest: u64) -> (usize, usize) {
    let (mut random, mut midway, mut in_doubt) = (0x9e37_79b9_7f4a_7c15_u64 ^ (seed << 32), 0, 0);
    for _ in 0..runs {
        let mut case = Case::new();
        for _ in 0..2 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let run = case.start();
            std::thread::sleep(Duration::from_micros(random % longest));
            case.kill(run);
            midway += usize::from(!case.records().is_empty() && !case.is_over());
        }
        case.finish();
        in_doubt += usize::from(!case.in_flight.is_empty());
    }
    (midway, in_doubt)
}

/// A session that is run, killed and gone on with.
struct Case {
    /// Keeps the world, and starts command lines in it.
    world: Killed,
    /// What was in the journal after each kill.
    kept: Vec<Vec<Record>>,
    /// The calls that were open at some kill.
    in_flight: BTreeSet<String>,
}

impl Case {
    fn new() -> Self {
        let world = Terret::new().args(["sessions", "list"]).start().kill();
        Self { world, kept: Vec::new(), in_flight: BTreeSet::new() }
    }

    /// The run, or what goes on with it. A script is read from its start: what was replied already isn't in it.
    fn start(&self) -> Running {
        let state = fold(&self.records());
        let rest = replies().into_iter().skip(replied(&state));
        let terret = self.world.then().script(rest).args(["--json"]);
        match state.transcript().is_empty() && state.run().is_none() {
            true => terret.args(["-p", "Do it all.", "--session-id", "session"]).start(),
            false => terret.args(["-r", "session"]).start(),
        }
    }

    fn journal(&self) -> SqliteJournal {
        self.world.sessions()
    }

    fn records(&self) -> Vec<Record> {
        let Ok(mut reader) = self.journal().reader(&session()) else { return Vec::new() };
        let reading = reader.read_all().unwrap();
        assert_eq!(reading.damage, []);
        reading.records.into_iter().map(|kept| kept.record).collect()
    }

    /// Looks until the record of this number (from 1) is there. False if the run was faster.
    fn wait_for(&self, at: usize, run: &Running) -> bool {
        let mut reader = eventually(|| self.journal().reader(&session()).ok());
        let mut seen = 0;
        loop {
            seen += reader.read(at).unwrap().records.len();
            if seen >= at {
                return true;
            }
            if run.printed().contains(r#""type":"result""#) {
                return false;
            }
            std::thread::yield_now();
        }
    }

    fn is_over(&self) -> bool {
        let records = self.records();
        matches!(records.last(), Some(Record::RunEnded { .. }))
    }

    /// Nothing that the world was told of is lost.
    fn kill(&mut self, run: Running) {
        let killed = run.kill();
        let kept = self.records();
        let transcript: Vec<Value> =
            fold(&kept).transcript().iter().map(|message| serde_json::to_value(&**message).unwrap()).collect();
        // A line that was cut off was not told.
        for line in killed.stdout.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let event: Value = serde_json::from_str(line).unwrap();
            if event["type"] == "message" {
                assert!(transcript.contains(&event["message"]), "{line} was told, and is not in {transcript:?}");
            }
        }
        for record in &kept {
            match record {
                Record::CallOpened { call_id } => drop(self.in_flight.insert(call_id.clone())),
                Record::CallClosed { result } if !self.was_in_flight_before(id(result)) => {
                    self.in_flight.remove(id(result));
                }
                _ => {}
            }
        }
        self.kept.push(kept);
    }

    /// Whether a call was open at an earlier kill: it stays in doubt, also if it has been settled since.
    fn was_in_flight_before(&self, call: &str) -> bool {
        let open = |records: &Vec<Record>| {
            let opened = |record: &Record| matches!(record, Record::CallOpened { call_id } if call_id == call);
            let closed = |record: &Record| matches!(record, Record::CallClosed { result } if id(result) == call);
            records.iter().any(opened) && !records.iter().any(closed)
        };
        self.kept.iter().any(open)
    }

    /// Lets it run to its end, and checks everything that was promised.
    fn finish(&self) -> &Self {
        if !self.is_over() {
            let ran = self.start().wait().exits(0);
            assert_eq!(ran.result()["text"], "All done.");
        }
        let records = self.records();
        for kept in &self.kept {
            assert!(records.starts_with(kept), "what was kept is still there");
        }
        let ends: Vec<_> = records.iter().filter(|record| matches!(record, Record::RunEnded { .. })).collect();
        assert_eq!(ends, [&Record::RunEnded { outcome: Outcome::Completed }]);

        let log = fs::read_to_string(self.world.path("log")).unwrap();
        let count = |what: &str, call: &str| log.lines().filter(|line| *line == format!("{what} {call}")).count();
        let results = paired_results(&fold(&records));
        assert_eq!(results.len(), CALLS);
        for result in results.values() {
            let (call, tool) = (result.tool_call_id.as_str(), result.tool_name.as_str());
            let text: String = result.content.iter().filter_map(|content| content.as_text()).collect();
            let (starts, ends) = (count("start", call), count("end", call));
            match (tool, self.in_flight.contains(call)) {
                ("bash", false) => {
                    assert_eq!((starts, ends, text.trim_end()), (1, 1, &*format!("did {call}")), "{call}");
                }
                ("bash", true) => {
                    assert!(starts <= 1, "{call} was started {starts} times");
                    // Nothing is claimed that isn't known.
                    let truth = ["Outcome unknown", "This program was stopped while the command ran."];
                    assert!(result.is_error && truth.iter().any(|start| text.starts_with(start)), "{call}: {text}");
                }
                _ => assert!(!result.is_error, "{call} was repeated: {text}"),
            }
        }
        assert_eq!(fs::read_to_string(self.world.path("a.txt")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(self.world.path("b.txt")).unwrap(), "two\n");
        eventually(|| at_work_in(&self.world.path("")).is_empty().then_some(()));
        self
    }
}

fn session() -> SessionId {
    "session".to_owned().into()
}

fn replied(state: &State) -> usize {
    state.transcript().iter().filter(|message| matches!(&***message, Message::Assistant(_))).count()
}

fn id(result: &Message) -> &str {
    match result {
        Message::ToolResult(result) => &result.tool_call_id,
        other => panic!("not a result: {other:?}"),
    }
}

/// The results by call, of a transcript in which each call has exactly one, in order and directly after its message.
fn paired_results(state: &State) -> BTreeMap<String, ToolResultMessage> {
    let mut messages = state.transcript().iter();
    assert!(matches!(&**messages.next().unwrap(), Message::User(_)));
    let (mut results, mut replies) = (BTreeMap::new(), 0);
    while let Some(message) = messages.next() {
        let Message::Assistant(reply) = &**message else { panic!("not a reply: {message:?}") };
        replies += 1;
        for call in reply.tool_calls() {
            let Some(Message::ToolResult(result)) = messages.next().map(|message| &**message) else {
                panic!("{} has no result", call.id)
            };
            assert_eq!(result.tool_call_id, call.id);
            results.insert(call.id.clone(), result.clone());
        }
    }
    assert_eq!(replies, TURNS + 1);
    results
}

/// The processes whose current folder this is.
fn at_work_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let folders = processes.filter_map(|process| Some((process.ok()?.path(), ())));
    let at_work = folders.filter(|(process, ())| {
        fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder.canonicalize().unwrap()))
    });
    at_work.map(|(process, ())| process).collect()
}
