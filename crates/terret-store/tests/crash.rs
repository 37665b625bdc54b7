//! A process with a real run is killed, at every record and at random instants; the next one resumes, and everything is
//! as it was promised.
//!
//! The random part is short by default: `TERRET_CRASH_KILLS=500 cargo test -p terret-store --test crash --release`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustix::process::{Signal, getpid, kill_process};
use terret_agent::machine::{Outcome, Record, State};
use terret_agent::{
    Agent, EffectClass, Journal, JournalError, Ownership, SessionId, Tool, ToolContext, ToolError, ToolOutput, fold,
};
use terret_llm::{Message, RawJson, ScriptedModel, ScriptedReply, ToolCall, ToolResultMessage, ToolSpec};
use terret_store::SqliteJournal;

/// What the model asks for, turn by turn.
const TURNS: [&[(&str, &str)]; 3] = [
    &[("c1", "look"), ("c2", "put"), ("c3", "send"), ("c4", "pay")],
    &[("c5", "send"), ("c6", "look"), ("c7", "put")],
    &[("c8", "pay")],
];
const CALLS: usize = 8;

#[test]
fn killed_at_every_record_and_resumed() {
    let undisturbed = Case::new();
    undisturbed.run(Kill::Never).wait();
    let records = undisturbed.check().len();
    assert!(records > 30, "{records}");
    for at in 1..=records {
        for kill in [Kill::Before(at), Kill::After(at)] {
            let mut case = Case::new();
            case.run(kill).wait();
            case.note_kill();
            case.run(Kill::Never).wait();
            case.check();
        }
    }
}

#[test]
fn killed_at_random_instants_twice_and_resumed() {
    let kills: u64 = std::env::var("TERRET_CRASH_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut in_doubt = 0;
    let whole = {
        let case = Case::new();
        let started = Instant::now();
        case.run(Kill::Never).wait();
        u64::try_from(started.elapsed().as_micros()).unwrap()
    };
    // On a busy machine it may take more kills until one of them hits a tool.
    for kill in 0.. {
        if kill >= kills && (in_doubt > 0 || kill >= 20 * kills) {
            break;
        }
        let mut case = Case::new();
        for _ in 0..2 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            case.run(Kill::Never).kill_after(Duration::from_micros(random % whole));
            case.note_kill();
        }
        case.run(Kill::Never).wait();
        case.check();
        in_doubt += usize::from(!case.in_flight.is_empty());
    }
    println!("{in_doubt} of {kills} runs or more were killed while a tool was open");
    assert!(in_doubt > 0);
}

/// A summary is written as any record, and then a checkpoint, which may be torn or missing.
#[tokio::test]
async fn killed_at_every_write_of_a_compaction_and_resumed() {
    let talked = || async {
        let case = Case::new();
        let replies = (0..3).map(|n| ScriptedReply::text(format!("{n} {}", "y".repeat(4000))));
        let agent = Agent::builder(ScriptedModel::new(replies)).build().unwrap();
        let journal = Arc::new(SqliteJournal::new(case.folder.path()));
        let talk = agent.open(journal, session()).await.unwrap();
        for _ in 0..3 {
            assert_eq!(talk.prompt("Go on.").report().await.outcome, Outcome::Completed);
        }
        case
    };
    let undisturbed = talked().await;
    let before = undisturbed.records().len();
    undisturbed.run_with("a_process_with_a_compaction", Kill::Never).wait();
    let after = undisturbed.records().len();
    assert_eq!(after - before, 4, "begun, a summary begun, made, ended");
    assert!(undisturbed.folder.path().join("session/checkpoint").exists());
    let at_records = (before + 1..=after).flat_map(|at| [Kill::Before(at), Kill::After(at)]);
    let mut with_checkpoint = 0;
    for kill in at_records.chain([Kill::BeforeCheckpoint, Kill::InCheckpoint, Kill::AfterCheckpoint]) {
        let mut case = talked().await;
        let said = case.records();
        case.run_with("a_process_with_a_compaction", kill).wait();
        case.note_kill();
        let kept = case.records();
        assert!(kept.starts_with(&said), "{kill:?}: what was said before is still there");
        with_checkpoint += usize::from(case.folder.path().join("session/checkpoint").exists());

        let journal = Arc::new(SqliteJournal::new(case.folder.path()));
        let resumed = journal.resume(&session()).await.unwrap();
        assert_eq!((resumed.records, resumed.state), (kept.len() as u64, fold(&kept)), "{kill:?}");
        let made = |records: &[Record]| records.iter().filter(|it| matches!(it, Record::Compacted { .. })).count();
        let notes = (fold(&kept).run().is_some() && made(&kept) == 0).then(|| ScriptedReply::text("Notes."));
        let model = ScriptedModel::new(notes.into_iter().chain([ScriptedReply::text("So.")]));
        let agent = Agent::builder(model.clone()).build().unwrap();
        let open = agent.open(journal, session()).await.unwrap();
        if open.interrupted().await.is_some() {
            assert_eq!(open.go_on().report().await.outcome, Outcome::Completed, "{kill:?}");
        }
        let report = open.prompt("And now?").report().await;
        assert_eq!((report.outcome, report.text.as_deref()), (Outcome::Completed, Some("So.")), "{kill:?}");
        let records = case.records();
        let summarised = made(&records);
        assert_eq!(
            summarised,
            usize::from(kept.len() > said.len()),
            "{kill:?}: the summary is made once, or was never begun"
        );
        let requests = model.requests();
        let told = format!("{:?}", requests.last().unwrap().messages[0]);
        assert_eq!(told.contains("Notes."), summarised == 1, "{kill:?}: {told}");
    }
    assert_eq!(with_checkpoint, 2, "a torn one and a whole one");
}

/// When the process kills itself.
#[derive(Clone, Copy, Debug)]
enum Kill {
    Never,
    /// Before the record of this number (from 1) is given to the journal: what it reports has already happened.
    Before(usize),
    /// After it is durable, and before anybody hears of it.
    After(usize),
    BeforeCheckpoint,
    /// While it is written.
    InCheckpoint,
    AfterCheckpoint,
}

/// A session that is run, killed and resumed.
struct Case {
    folder: tempfile::TempDir,
    /// What was in the journal after each kill.
    kept: Vec<Vec<Record>>,
    /// The calls that were open at some kill.
    in_flight: BTreeSet<String>,
}

impl Case {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), kept: Vec::new(), in_flight: BTreeSet::new() }
    }

    fn run(&self, kill: Kill) -> Running {
        self.run_with("a_process_with_a_run", kill)
    }

    fn run_with(&self, program: &str, kill: Kill) -> Running {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", program, "--ignored", "--nocapture", "--quiet"]);
        let kill = match kill {
            Kill::Never => String::new(),
            Kill::Before(at) => format!("before {at}"),
            Kill::After(at) => format!("after {at}"),
            Kill::BeforeCheckpoint => "checkpoint before".into(),
            Kill::InCheckpoint => "checkpoint in".into(),
            Kill::AfterCheckpoint => "checkpoint after".into(),
        };
        command.env("TERRET_FOLDER", self.folder.path()).env("TERRET_KILL", kill);
        Running(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    fn records(&self) -> Vec<Record> {
        let journal = SqliteJournal::new(self.folder.path());
        let Ok(mut reader) = journal.reader(&session()) else { return Vec::new() };
        let reading = reader.read_all().unwrap();
        assert_eq!(reading.damage, []);
        reading.records.into_iter().map(|kept| kept.record).collect()
    }

    /// Nothing that was acknowledged is lost.
    fn note_kill(&mut self) {
        let kept = self.records();
        let acknowledged = std::fs::read_to_string(self.folder.path().join("acknowledged")).unwrap_or_default();
        let acknowledged: usize = acknowledged.trim().parse().unwrap_or(0);
        assert!(kept.len() >= acknowledged, "{acknowledged} records were acknowledged, {} are there", kept.len());
        for record in &kept {
            match record {
                Record::CallOpened { call_id } => drop(self.in_flight.insert(call_id.clone())),
                Record::CallClosed { result } if !self.was_in_flight_before(result) => {
                    self.in_flight.remove(id(result));
                }
                _ => {}
            }
        }
        self.kept.push(kept);
    }

    /// Whether a call was open at an earlier kill: it stays in doubt, also if it has been settled since.
    fn was_in_flight_before(&self, result: &Message) -> bool {
        let open = |records: &Vec<Record>| {
            let is = |record: &Record| matches!(record, Record::CallOpened { call_id } if call_id == id(result));
            let closed = |record: &Record| matches!(record, Record::CallClosed { result: it } if id(it) == id(result));
            records.iter().any(is) && !records.iter().any(closed)
        };
        self.kept.iter().any(open)
    }

    /// Everything that was promised, after the run was resumed to its end.
    fn check(&self) -> Vec<Record> {
        let records = self.records();
        for kept in &self.kept {
            assert!(records.starts_with(kept), "what was kept is still there");
        }
        let ends: Vec<_> = records.iter().filter(|record| matches!(record, Record::RunEnded { .. })).collect();
        assert_eq!(ends, [&Record::RunEnded { outcome: Outcome::Completed }]);

        let log = Log::read(self.folder.path());
        let results = self.paired_results(&records);
        assert_eq!(results.len(), CALLS);
        for result in results.values() {
            let (call, tool) = (result.tool_call_id.as_str(), result.tool_name.as_str());
            let (starts, ends) = (log.count("start", call), log.count("end", call));
            let text: String = result.content.iter().filter_map(|content| content.as_text()).collect();
            assert!(log.keys(call).len() <= 1, "{call}: every attempt and every question has the same key");
            match (tool, self.in_flight.contains(call)) {
                (_, false) => assert_eq!((starts, ends, text.as_str()), (1, 1, "done"), "{call}"),
                ("look" | "put", true) => {
                    assert!(
                        starts >= 1 && ends >= 1 && text == "done",
                        "{call} was repeated: {starts}, {ends}, {text}"
                    );
                }
                ("send", true) => {
                    assert!(starts <= 1, "{call} started {starts} times");
                    assert!(result.is_error && text.starts_with("Outcome unknown"), "{call}: {text}");
                }
                ("pay", true) => {
                    assert!(starts <= 1, "{call} started {starts} times");
                    assert!(log.count("discover", call) >= 1, "{call}: the tool was asked");
                    match ends {
                        0 => assert!(result.is_error && text.starts_with("Outcome unknown"), "{call}: {text}"),
                        _ => assert!(!result.is_error && text == "done, as I found", "{call}: {text}"),
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        records
    }

    /// The results by call, of a transcript in which each call has exactly one, in order and directly after its message.
    fn paired_results(&self, records: &[Record]) -> BTreeMap<String, ToolResultMessage> {
        let state = fold(records);
        let mut messages = state.transcript().iter();
        assert!(matches!(&**messages.next().unwrap(), Message::User(_)));
        let mut results = BTreeMap::new();
        let mut replies = 0;
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
        assert_eq!(replies, TURNS.len() + 1);
        results
    }
}

/// What the tools have done, as they wrote it down outside the journal.
struct Log(Vec<[String; 3]>);

impl Log {
    fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("log")).unwrap();
        let line = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
        Self(text.lines().map(line).collect())
    }

    fn count(&self, what: &str, call: &str) -> usize {
        self.0.iter().filter(|[did, key, _]| did == what && key.ends_with(&format!("/{call}"))).count()
    }

    fn keys(&self, call: &str) -> BTreeSet<&str> {
        self.0.iter().map(|[_, key, _]| key.as_str()).filter(|key| key.ends_with(&format!("/{call}"))).collect()
    }
}

struct Running(Child);

impl Running {
    fn wait(mut self) {
        self.0.wait().unwrap();
    }

    /// Kills it so long after it has begun to open the session.
    fn kill_after(mut self, delay: Duration) {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        while let Some(Ok(line)) = lines.next() {
            if line.contains("ready") {
                std::thread::sleep(delay);
                break;
            }
        }
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn session() -> SessionId {
    "session".to_owned().into()
}

fn id(result: &Message) -> &str {
    match result {
        Message::ToolResult(result) => &result.tool_call_id,
        other => panic!("not a result: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the other tests in a process of its own"]
async fn a_process_with_a_run() {
    let Some(folder) = std::env::var_os("TERRET_FOLDER").map(PathBuf::from) else { return };
    println!("ready");
    let journal = Arc::new(Killing::new(&folder));
    let state = fold(&journal.load(&session()).await.unwrap());
    let replied = state.transcript().iter().filter(|message| matches!(&***message, Message::Assistant(_))).count();
    let call = |(id, tool): &(&str, &str)| ToolCall::new(*id, *tool, "{}");
    let calls = TURNS.iter().map(|calls| ScriptedReply::calls(calls.iter().map(call)));
    let script: Vec<_> = calls.chain([ScriptedReply::text("That is all.")]).skip(replied).collect();
    let mut agent = Agent::builder(ScriptedModel::new(script));
    for (name, effect) in [
        ("look", EffectClass::ReadOnly),
        ("put", EffectClass::Idempotent),
        ("send", EffectClass::AtMostOnce),
        ("pay", EffectClass::AtMostOnce),
    ] {
        agent = agent.tool(Logged::new(name, effect, &folder));
    }
    let session = agent.build().unwrap().open(journal, session()).await.unwrap();
    let run = match (state.transcript().is_empty(), state.run()) {
        (true, None) => session.prompt("Do it all."),
        (_, Some(_)) => session.go_on(),
        (false, None) => return,
    };
    assert_eq!(run.report().await.outcome, Outcome::Completed);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test in a process of its own"]
async fn a_process_with_a_compaction() {
    let Some(folder) = std::env::var_os("TERRET_FOLDER").map(PathBuf::from) else { return };
    let agent = Agent::builder(ScriptedModel::new([ScriptedReply::text("Notes.")])).build().unwrap();
    let session = agent.open(Arc::new(Killing::new(&folder)), session()).await.unwrap();
    assert_eq!(session.compact().report().await.outcome, Outcome::Completed);
}

/// A journal that kills its process.
struct Killing {
    journal: SqliteJournal,
    kill: Kill,
    folder: PathBuf,
}

impl Killing {
    fn new(folder: &Path) -> Self {
        let kill = std::env::var("TERRET_KILL").unwrap();
        let kill = match kill.split_once(' ') {
            None => Kill::Never,
            Some(("before", at)) => Kill::Before(at.parse().unwrap()),
            Some(("checkpoint", "before")) => Kill::BeforeCheckpoint,
            Some(("checkpoint", "in")) => Kill::InCheckpoint,
            Some(("checkpoint", _)) => Kill::AfterCheckpoint,
            Some((_, at)) => Kill::After(at.parse().unwrap()),
        };
        Self { journal: SqliteJournal::new(folder), kill, folder: folder.into() }
    }
}

impl Journal for Killing {
    fn own<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Ownership, JournalError>> {
        self.journal.own(session)
    }

    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let before = usize::try_from(expected).unwrap();
        let after = before + records.len();
        async move {
            if matches!(self.kill, Kill::Before(at) if (before + 1..=after).contains(&at)) {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            self.journal.append(session, expected, records).await?;
            if matches!(self.kill, Kill::After(at) if (before + 1..=after).contains(&at)) {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            std::fs::write(self.folder.join("acknowledged.new"), after.to_string()).unwrap();
            std::fs::rename(self.folder.join("acknowledged.new"), self.folder.join("acknowledged")).unwrap();
            Ok(())
        }
        .boxed()
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        self.journal.load(session)
    }

    fn checkpoint<'a>(&'a self, session: &'a SessionId, records: u64, state: &'a State) -> BoxFuture<'a, ()> {
        let place = self.folder.join(session.as_str());
        async move {
            if matches!(self.kill, Kill::BeforeCheckpoint) {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            self.journal.checkpoint(session, records, state).await;
            self.journal.flush(session, Duration::from_secs(60));
            if matches!(self.kill, Kill::InCheckpoint) {
                // As it is on the disk in between: a new one that nobody reads, which may even have got the name.
                let whole = std::fs::read(place.join("checkpoint")).unwrap();
                std::fs::write(place.join("checkpoint.new"), &whole[..whole.len() / 2]).unwrap();
                std::fs::write(place.join("checkpoint"), &whole[..whole.len() - 1]).unwrap();
            }
            if matches!(self.kill, Kill::InCheckpoint | Kill::AfterCheckpoint) {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
        }
        .boxed()
    }
}

/// A tool that writes down what it does.
struct Logged {
    spec: ToolSpec,
    effect: EffectClass,
    folder: PathBuf,
}

impl Logged {
    fn new(name: &str, effect: EffectClass, folder: &Path) -> Self {
        let parameters = RawJson::parse(r#"{"type":"object"}"#).unwrap();
        let spec = ToolSpec { name: name.into(), description: String::new(), parameters };
        Self { spec, effect, folder: folder.into() }
    }
}

fn log(folder: &Path, what: &str, key: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap();
    // One write, so that a kill doesn't tear the line.
    file.write_all(format!("{what} {key} {}\n", std::process::id()).as_bytes()).unwrap();
}

impl Tool for Logged {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        self.effect
    }

    fn call(&self, _: serde_json::Value, context: ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let folder = self.folder.clone();
        async move {
            log(&folder, "start", &context.idempotency_key);
            tokio::time::sleep(Duration::from_millis(3)).await;
            log(&folder, "end", &context.idempotency_key);
            Ok(ToolOutput::text("done"))
        }
        .boxed()
    }

    fn discover(&self, key: &str) -> BoxFuture<'static, Option<ToolOutput>> {
        log(&self.folder, "discover", key);
        let pays = self.spec.name == "pay";
        let done = Log::read(&self.folder).0.iter().any(|[what, by, _]| what == "end" && by == key);
        std::future::ready((pays && done).then(|| ToolOutput::text("done, as I found"))).boxed()
    }
}
