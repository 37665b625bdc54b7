//! Several processes and one session, a full disk, and a folder that can't be written.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::{records, texts, written};
use terret_agent::{Journal as _, JournalError, SessionId};
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
    let journal = SqliteJournal::new(&folder);
    let mut owned = None;
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
    drop(owned);
}
