//! Several processes and one session, a full disk, and a folder that can't be written.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{records, said, texts, written};
use terret_agent::machine::{Outcome, Record};
use terret_agent::{Agent, Journal as _, JournalError, SessionId, tool};
use terret_llm::{Content, ScriptedModel, ScriptedReply, ToolCall};
use terret_store::SqliteJournal;

#[tokio::test]
async fn a_second_process_is_told_who_owns_the_session_until_that_one_dies() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Process::start(folder.path(), None);
    assert_eq!(owner.ask("own"), "ok");
    assert_eq!(owner.ask("append 0 3"), "ok");
    let journal = SqliteJournal::new(folder.path());

    let refused = journal.own(&session()).await.unwrap_err();
    let JournalError::Owned { owner: name, .. } = &refused else { panic!("{refused:?}") };
    assert!(name.contains(&format!("process {}", owner.0.id())), "{name}");
    assert!(refused.to_string().ends_with("end that first, or fork the session"));
    assert!(matches!(journal.append(&session(), 3, &texts(3..4, 10)).await, Err(JournalError::Owned { .. })));
    assert_eq!(journal.load(&session()).await.unwrap(), texts(0..3, 10), "reading is nobody's right");

    owner.kill();
    let _owned = journal.own(&session()).await.unwrap();
    journal.append(&session(), 3, &texts(3..4, 10)).await.unwrap();
    assert_eq!(journal.load(&session()).await.unwrap(), texts(0..4, 10));
}

#[tokio::test]
async fn whoever_looks_who_owns_a_session_disturbs_nobody_and_notices_a_death_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    assert_eq!(journal.owner(&session()), None, "there is none");
    let mut owner = Process::start(folder.path(), None);
    assert_eq!(owner.ask("own"), "ok");
    for n in 0..3 {
        let name = journal.owner(&session()).unwrap();
        assert!(name.contains(&format!("process {}", owner.0.id())), "{name}");
        assert_eq!(owner.ask(&format!("append {n} 1")), "ok");
    }
    owner.kill();
    assert_eq!(journal.owner(&session()), None);
    let owned = journal.own(&session()).await.unwrap();
    assert!(journal.owner(&session()).is_some());
    drop(owned);
    assert_eq!(patiently(async || journal.owner(&session()).is_none().then_some(())).await, ());
}

#[tokio::test]
async fn an_owner_that_was_stopped_and_replaced_is_fenced() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Process::start(folder.path(), None);
    assert_eq!(owner.ask("own"), "ok");
    assert_eq!(owner.ask("append 0 3"), "ok");
    owner.signal(Signal::STOP);

    let journal = SqliteJournal::new(folder.path());
    let _owned = journal.take_over(&session()).await.unwrap();
    journal.append(&session(), 3, &texts(3..5, 10)).await.unwrap();

    owner.signal(Signal::CONT);
    for append in ["append 3 1", "append 5 1"] {
        let told = owner.ask(append);
        assert!(told.contains("was taken over by") && told.contains(&std::process::id().to_string()), "{told}");
    }
    journal.append(&session(), 5, &texts(5..6, 10)).await.unwrap();
    assert_eq!(journal.load(&session()).await.unwrap(), texts(0..6, 10));
    let third = SqliteJournal::new(folder.path()).own(&session()).await;
    assert!(matches!(third, Err(JournalError::Owned { .. })), "the new owner has the lock: {third:?}");
}

#[tokio::test]
async fn an_owner_that_is_silent_for_longer_than_its_lease_is_replaced_and_told() {
    const LEASE: Duration = Duration::from_millis(1500);
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Process::start_with(folder.path(), &[("TERRET_LEASE", "1500")]);
    assert_eq!(owner.ask("own"), "ok");
    assert_eq!(owner.ask("append 0 3"), "ok");
    let journal = SqliteJournal::new(folder.path());
    tokio::time::sleep(LEASE * 2).await;
    let refused = journal.own(&session()).await.unwrap_err();
    assert!(matches!(refused, JournalError::Owned { .. }), "it says that it is there: {refused}");

    owner.signal(Signal::STOP);
    assert!(journal.own(&session()).await.is_err(), "its lease still runs");
    let owned = patiently(async || journal.own(&session()).await.ok()).await;
    journal.append(&session(), 3, &texts(3..5, 10)).await.unwrap();

    owner.signal(Signal::CONT);
    for append in ["append 3 1", "append 5 1"] {
        let told = owner.ask(append);
        assert!(told.contains("was taken over by") && told.contains(&std::process::id().to_string()), "{told}");
    }
    assert_eq!(journal.load(&session()).await.unwrap(), texts(0..5, 10));
    drop(owned);
    assert_eq!(owner.ask("own"), "ok", "it can have it back");
    assert_eq!(owner.ask("append 5 1"), "ok");
}

#[tokio::test]
async fn a_run_that_was_stopped_past_its_lease_and_resumed_elsewhere_starts_nothing_further() {
    let folder = tempfile::tempdir().unwrap();
    let did = |what: &str| folder.path().join(what).exists();
    let mut stopped = Process::start_with(folder.path(), &[("TERRET_LEASE", "300")]);
    stopped.tell("run");
    patiently(async || did("waiting").then_some(())).await;
    stopped.signal(Signal::STOP);

    let journal = Arc::new(SqliteJournal::new(folder.path()));
    let agent = Agent::builder(ScriptedModel::new([ScriptedReply::text("I see.")])).build().unwrap();
    let here = patiently(async || match agent.open(journal.clone(), session()).await {
        Ok(here) => Some(here),
        Err(error) => {
            if error.to_string().contains("in the middle of a write") {
                stopped.signal(Signal::CONT);
                tokio::time::sleep(Duration::from_millis(100)).await;
                stopped.signal(Signal::STOP);
            }
            None
        }
    })
    .await;
    assert_eq!(here.go_on().report().await.outcome, Outcome::Completed);
    let transcript = here.transcript().await;
    let result = |at: usize| format!("{:?}", transcript[at]);
    assert!(result(2).contains("Outcome unknown"), "it may have waited: {}", result(2));
    assert!(result(3).contains("not there any more"), "it was never started: {}", result(3));

    std::fs::write(folder.path().join("go"), "").unwrap();
    stopped.signal(Signal::CONT);
    let outcome = stopped.answer();
    assert!(outcome.contains("was taken over by process"), "{outcome}");
    assert!(did("waited") && !did("sent"), "what had started ended, and nothing else was started");
    assert_eq!(here.transcript().await, transcript, "and nothing of it was kept");
}

#[tokio::test]
async fn what_tools_can_say_survives_a_kill_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Process::start(folder.path(), None);
    assert_eq!(owner.ask("own"), "ok");
    assert_eq!(owner.ask("strange"), "ok");
    owner.kill();
    assert!(SqliteJournal::new(folder.path()).load(&session()).await.unwrap() == strange());
}

/// Separators that are no line ends, line ends, NULs, what broken UTF-8 and lone surrogates become, escapes, a line of
/// 2 MB, and more than some journals take in one record.
fn strange() -> Vec<Record> {
    let broken = String::from_utf8_lossy(b"\xff\xfe broken \xed\xa0\xbd").into_owned();
    let texts =
        ["\u{2028}\u{2029}\u{85}", "a\nb\r\nc\r", "\0a\0", &broken, "\u{1b}[2J\u{7}\\u0000\\ud83d\"", "{\"a\":"];
    let mut records: Vec<_> = texts.iter().map(|text| said(vec![Content::text(*text)])).collect();
    records.push(said(vec![Content::text("x".repeat(2 << 20))]));
    records.push(said(vec![Content::text("0123456789\n".repeat(3_200_000))]));
    records
}

#[tokio::test]
async fn an_owner_that_was_stopped_in_the_middle_of_a_write_is_named_and_can_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Process::start_with(folder.path(), &[("TERRET_LEASE", "100")]);
    assert_eq!(owner.ask("own"), "ok");
    assert_eq!(owner.ask("append 0 1"), "ok");
    assert_eq!(owner.ask("begin"), "ok");
    owner.signal(Signal::STOP);
    let journal = SqliteJournal::new(folder.path());
    for _ in 0..2 {
        let refused = patiently(async || {
            let refused = journal.own(&session()).await.unwrap_err().to_string();
            refused.contains("was stopped in the middle of a write: end that first").then_some(refused)
        });
        let refused = refused.await;
        assert!(refused.contains(&format!("process {}", owner.0.id())), "{refused}");
        assert_eq!(journal.load(&session()).await.unwrap(), texts(0..1, 10));
    }
    owner.signal(Signal::CONT);
    assert_eq!(owner.ask("end"), "ok");
    assert_eq!(owner.ask("append 1 1"), "ok", "nobody has taken over");
    owner.kill();
    let _owned = journal.own(&session()).await.unwrap();
    journal.append(&session(), 2, &texts(2..3, 10)).await.unwrap();
}

/// Asks until there is an answer.
async fn patiently<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no answer");
}

#[tokio::test]
async fn readers_see_a_growing_prefix_and_the_writer_never_waits() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Process::start(folder.path(), None);
    assert_eq!(owner.ask("own"), "ok");
    assert_eq!(owner.ask("append 0 1"), "ok");
    // A reader in the middle of its reading, for as long as the writer writes.
    let database = rusqlite::Connection::open_with_flags(
        folder.path().join("session/journal.db"),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
    );
    let database = database.unwrap();
    database.execute_batch("BEGIN; SELECT count(*) FROM record").unwrap();

    owner.tell("append 1 300");
    let journal = SqliteJournal::new(folder.path());
    let mut follower = journal.reader(&session()).unwrap();
    let mut followed = Vec::new();
    while followed.len() < 301 {
        let reading = follower.read(7).unwrap();
        assert_eq!(reading.damage, []);
        followed.extend(records(&reading));
        let whole = journal.reader(&session()).unwrap().read_all().unwrap();
        assert_eq!(whole.damage, []);
        assert!(whole.records.len() >= followed.len());
    }
    assert_eq!(followed, texts(0..301, 10));
    assert_eq!(owner.answer(), "ok");
    assert_eq!(database.query_row("SELECT count(*) FROM record", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[test]
fn a_full_disk_costs_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let small_disk = format!("mount -t tmpfs -o size=1500k tmpfs '{}'", folder.path().display());
    if !Command::new("unshare").args(["-rm", "sh", "-c", &small_disk]).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: a small disk can't be mounted here");
        return;
    }
    let mut process = Process::start(folder.path(), Some(&small_disk));
    assert_eq!(process.ask("own"), "ok");
    for long in [false, true] {
        assert_eq!(process.ask("fill"), "ok");
        let (size, from) = if long { (100_000, process.ask("count")) } else { (10, process.ask("count")) };
        let from: u64 = from.parse().unwrap();
        let mut kept = from;
        let refused = loop {
            match process.ask(&format!("append {kept} 1 {size}")).as_str() {
                "ok" => kept += 1,
                refused => break refused.to_owned(),
            }
        };
        assert!(refused.contains("the disk is full") && refused.contains("Make room and go on"), "{refused}");
        assert_eq!(process.ask("count"), kept.to_string(), "all that was acknowledged, and nothing else");
        assert_eq!(process.ask("free"), "ok");
        assert_eq!(process.ask(&format!("append {kept} 1 {size}")), "ok", "it goes on without a gap");
        assert_eq!(process.ask("count"), (kept + 1).to_string());
    }
}

#[tokio::test]
async fn a_folder_that_can_not_be_written_can_be_read() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can become somebody else");
        return;
    }
    let (killed, closed) = (written(&texts(0..3, 10)).await.killed(), written(&texts(0..3, 10)).await.closed().await);
    for files in [killed, closed] {
        use std::os::unix::fs::PermissionsExt as _;
        use std::os::unix::process::CommandExt as _;
        let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        open(files.folder.path());
        // The test's own program, where somebody else can run it.
        let program = files.folder.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(&program);
        command.uid(NOBODY).gid(NOBODY);
        let mut nobody = Process::run(command, files.folder.path());
        assert_eq!(nobody.ask("count"), "3");
        let refused = nobody.ask("own");
        assert!(refused.contains("can't be written") && refused.contains("make it writable"), "{refused}");
        assert_eq!(nobody.ask("count"), "3");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_user_may_look_into_a_session() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("state/sessions");
    SqliteJournal::new(&root).append(&session(), 0, &texts(0..1, 10)).await.unwrap();
    for made in [root.clone(), root.join("session")] {
        assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{}", made.display());
    }
}

#[tokio::test]
async fn a_folder_that_can_not_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let journal = SqliteJournal::new(file.path());
    let refused = journal.own(&session()).await.unwrap_err().to_string();
    assert!(refused.contains(&file.path().display().to_string()), "{refused}");
}

fn session() -> SessionId {
    "session".to_owned().into()
}

/// Another process with a journal, which does what it is told a line at a time.
struct Process(Child, ChildStdin, BufReader<ChildStdout>);

impl Process {
    fn start(folder: &Path, setup: Option<&str>) -> Self {
        let program = std::env::current_exe().unwrap();
        Self::run(
            match setup {
                None => Command::new(program),
                Some(setup) => {
                    let mut command = Command::new("unshare");
                    command.args(["-rm", "sh", "-c", &format!("{setup} && exec \"$0\" \"$@\"")]).arg(program);
                    command
                }
            },
            folder,
        )
    }

    fn start_with(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.envs(variables.iter().copied());
        Self::run(command, folder)
    }

    fn run(mut command: Command, folder: &Path) -> Self {
        command.args(["--exact", "another_process", "--ignored", "--nocapture", "--quiet"]);
        command.env("TERRET_FOLDER", folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self(child, stdin, BufReader::new(stdout))
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.1, "{command}").unwrap();
    }

    /// The next line that isn't the test harness's own.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.2.read_line(&mut line).unwrap() > 0 {
            if let Some((_, answer)) = line.trim_end().split_once("> ") {
                return answer.to_owned();
            }
            line.clear();
        }
        panic!("the other process has ended");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test]
#[ignore = "run by the other tests in a process of its own"]
async fn another_process() {
    let Some(folder) = std::env::var_os("TERRET_FOLDER").map(std::path::PathBuf::from) else { return };
    let lease = std::env::var("TERRET_LEASE").map_or(30_000, |lease| lease.parse().unwrap());
    let journal = SqliteJournal::new(&folder).lease(Duration::from_millis(lease));
    let (mut owned, mut writing) = (None, None);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        let command = words.next().unwrap();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let done = match command {
            "own" => journal.own(&session()).await.map(|ownership| owned = Some(ownership)),
            "append" => {
                let (from, count) = (number().unwrap(), number().unwrap());
                let size = usize::try_from(number().unwrap_or(10)).unwrap();
                let mut done = Ok(());
                for record in from..from + count {
                    done = done.and(journal.append(&session(), record, &texts(record..record + 1, size)).await);
                }
                done
            }
            "count" => {
                println!("> {}", journal.reader(&session()).unwrap().read_all().unwrap().records.len());
                continue;
            }
            "strange" => journal.append(&session(), 0, &strange()).await,
            "begin" => {
                let database = rusqlite::Connection::open(folder.join("session/journal.db")).unwrap();
                database.execute_batch("BEGIN IMMEDIATE").unwrap();
                writing = Some(database);
                Ok(())
            }
            "end" => {
                writing = None;
                Ok(())
            }
            "run" => {
                println!("> {:?}", run_with_two_calls(&folder, &journal).await);
                continue;
            }
            "fill" => {
                // Until the disk is full, but for a little.
                let mut file = std::fs::File::create(folder.join("filler")).unwrap();
                while file.write_all(&[0; 4096]).is_ok() {}
                let length = file.metadata().unwrap().len();
                file.set_len(length - 150_000).unwrap();
                Ok(())
            }
            "free" => {
                std::fs::remove_file(folder.join("filler")).unwrap();
                Ok(())
            }
            other => panic!("{other}"),
        };
        match done {
            Ok(()) => println!("> ok"),
            Err(error) => println!("> {error}"),
        }
    }
    drop((owned, writing));
}

/// A run that waits in its first call, and would send in its second.
async fn run_with_two_calls(folder: &Path, journal: &SqliteJournal) -> Outcome {
    let (waiting, waited, sent) = (folder.join("waiting"), folder.join("waited"), folder.join("sent"));
    let go = folder.join("go");
    let wait = tool("wait", "", move |_: Nothing, _| {
        let (waiting, waited, go) = (waiting.clone(), waited.clone(), go.clone());
        async move {
            std::fs::write(waiting, "").unwrap();
            while !go.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            std::fs::write(waited, "").unwrap();
            Ok("waited")
        }
    });
    let send = tool("send", "", move |_: Nothing, _| {
        std::fs::write(&sent, "").unwrap();
        async { Ok("sent") }
    });
    let calls = [ToolCall::new("c1", "wait", "{}"), ToolCall::new("c2", "send", "{}")];
    let model = ScriptedModel::new([ScriptedReply::calls(calls), ScriptedReply::text("Done.")]);
    let agent = Agent::builder(model).tool(wait.exclusive()).tool(send.exclusive()).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), session()).await.unwrap();
    session.prompt("Go on.").report().await.outcome
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}
