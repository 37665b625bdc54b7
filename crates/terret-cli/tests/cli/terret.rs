//! Runs the program in a world of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use terret::agent::SessionId;
use terret::store::SqliteJournal;

use crate::schema;

/// A command line of the program, with a home, a temporary folder and a project that are thrown away.
///
/// The project is the current folder. Nothing of the environment gets through but the search path.
pub(crate) struct Terret {
    world: Arc<TempDir>,
    command: Command,
    stdin: Vec<u8>,
    stdin_stays_open: bool,
}

impl Terret {
    pub(crate) fn new() -> Self {
        let world = tempfile::Builder::new().prefix("terret-cli-test-").tempdir().unwrap();
        for folder in ["home", "project", "tmp"] {
            fs::create_dir(world.path().join(folder)).unwrap();
        }
        Self::of(Arc::new(world))
    }

    /// A further command line in a world that is there.
    pub(crate) fn of(world: Arc<TempDir>) -> Self {
        Self::program(env!("CARGO_BIN_EXE_terret"), world)
    }

    /// Another program in such a world.
    pub(crate) fn program(program: &str, world: Arc<TempDir>) -> Self {
        let at = |name: &str| world.path().canonicalize().unwrap().join(name);
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", at("home")).env("TMPDIR", at("tmp")).current_dir(at("project"));
        for (variable, folder) in [("CONFIG", ".config"), ("DATA", ".data"), ("STATE", ".state"), ("CACHE", ".cache")] {
            command.env(format!("XDG_{variable}_HOME"), at("home").join(folder));
        }
        Self { world, command, stdin: Vec::new(), stdin_stays_open: false }
    }

    /// With a prompt for a model that gives these replies.
    pub(crate) fn scripted(replies: impl IntoIterator<Item = Value>) -> Self {
        Self::new().script(replies).args(["-p", "Do it."])
    }

    /// With a model that gives these replies.
    pub(crate) fn script(self, replies: impl IntoIterator<Item = Value>) -> Self {
        let script: String = replies.into_iter().map(|reply| format!("{reply}\n")).collect();
        let path = self.world.path().join("script.jsonl");
        fs::write(&path, script).unwrap();
        self.args(["--model", &format!("scripted:{}", path.display())])
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// A file of the project, with its folders.
    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// The user's configuration.
    pub(crate) fn config(self, content: impl AsRef<[u8]>) -> Self {
        self.home_file(".config/terret/config.toml", content)
    }

    /// A file of the home folder, with its folders.
    pub(crate) fn home_file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.home(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// A path in the home folder.
    pub(crate) fn home(&self, path: &str) -> PathBuf {
        self.world.path().canonicalize().unwrap().join("home").join(path)
    }

    /// The current folder, by its path in the project.
    pub(crate) fn within(mut self, folder: &str) -> Self {
        let folder = self.path(folder);
        fs::create_dir_all(&folder).unwrap();
        self.command.current_dir(folder);
        self
    }

    pub(crate) fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = text.into();
        self
    }

    /// Standard input doesn't end, as that of a pipe that somebody forgot to close.
    pub(crate) fn stdin_stays_open(mut self) -> Self {
        self.stdin_stays_open = true;
        self
    }

    /// A path in the project.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        project(&self.world).join(path)
    }

    pub(crate) fn run(self) -> Ran {
        self.start().wait()
    }

    pub(crate) fn start(mut self) -> Running {
        let mut child =
            self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that doesn't read its input may be gone before it is written.
        let _ = stdin.write_all(&self.stdin);
        let stdin = self.stdin_stays_open.then_some(stdin);
        let stdout = Collector::of(child.stdout.take().unwrap());
        let stderr = Collector::of(child.stderr.take().unwrap());
        Running { child, stdout, stderr, world: self.world, _stdin: stdin }
    }

    /// Hands the bare command over, for other ways to start it, with the world that it needs.
    pub(crate) fn into_command(self) -> (Command, Arc<TempDir>) {
        (self.command, self.world)
    }
}

/// The program at work.
pub(crate) struct Running {
    child: Child,
    stdout: Collector,
    stderr: Collector,
    world: Arc<TempDir>,
    _stdin: Option<ChildStdin>,
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a file of the project that holds a whole line, and returns the line.
    pub(crate) fn line_in(&self, path: &str) -> String {
        let path = project(&self.world).join(path);
        eventually(|| fs::read_to_string(&path).ok()?.strip_suffix('\n').map(str::to_owned))
    }

    /// A further command line in the same world, at the same time.
    pub(crate) fn beside(&self) -> Terret {
        Terret::of(self.world.clone())
    }

    /// What it has printed so far.
    pub(crate) fn printed(&self) -> String {
        String::from_utf8_lossy(&self.stdout.so_far.lock().unwrap()).into_owned()
    }

    /// Ends it as a crash would, and hands over what it has done.
    pub(crate) fn kill(mut self) -> Killed {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        Killed { stdout: self.stdout.text(), world: self.world }
    }

    /// Waits until the program has said this.
    pub(crate) fn says(&self, text: &str) {
        eventually(|| (self.stdout.holds(text) || self.stderr.holds(text)).then_some(()));
    }

    pub(crate) fn wait(mut self) -> Ran {
        let status = self.child.wait().unwrap();
        Ran::new(status, self.stdout.text(), self.stderr.text(), self.world)
    }
}

/// What a program that was killed has left.
pub(crate) struct Killed {
    pub(crate) stdout: String,
    world: Arc<TempDir>,
}

impl Killed {
    /// A further command line in the same world.
    pub(crate) fn then(&self) -> Terret {
        Terret::of(self.world.clone())
    }

    /// A path in the project.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        project(&self.world).join(path)
    }

    pub(crate) fn sessions(&self) -> SqliteJournal {
        sessions(&self.world)
    }
}

/// What the program did.
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    status: ExitStatus,
    world: Arc<TempDir>,
}

impl Ran {
    /// JSON output of a run is checked against the schema, wherever there is any. (That of a session that is shown begins with
    /// a message.)
    fn new(status: ExitStatus, stdout: String, stderr: String, world: Arc<TempDir>) -> Self {
        let ran = Self { stdout, stderr, status, world };
        if ran.stdout.starts_with(r#"{"v":"#) && !ran.stdout.starts_with(r#"{"v":1,"type":"message""#) {
            schema::check(&ran.stdout);
            assert_eq!(ran.result()["type"], "result", "{}", ran.stdout);
            assert_eq!(ran.result()["exitCode"], ran.code(), "{}", ran.stdout);
        }
        ran
    }

    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("signal {:?}: {}", self.status.signal(), self.stderr))
    }

    /// Fails with what the program said if it ended in another way.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{}\n{}", self.stdout, self.stderr);
        self
    }

    /// The lines of JSON output.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last line of JSON output.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        self.events().pop().unwrap()
    }

    /// The events of this type.
    pub(crate) fn of_type(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// The transcript.
    pub(crate) fn messages(&self) -> Vec<Value> {
        self.of_type("message").into_iter().map(|event| event["message"].clone()).collect()
    }

    /// The tool results of the transcript: text, and whether it is an error.
    pub(crate) fn tool_results(&self) -> Vec<(String, bool)> {
        let results = self.messages().into_iter().filter(|message| message["role"] == "toolResult");
        results.map(|result| (text_of(&result), result["isError"] == true)).collect()
    }

    /// A path in the project.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        project(&self.world).join(path)
    }

    /// A further command line in the same world.
    pub(crate) fn then(&self) -> Terret {
        Terret::of(self.world.clone())
    }

    /// The sessions, as a program that isn't terret reads them.
    pub(crate) fn sessions(&self) -> SqliteJournal {
        sessions(&self.world)
    }

    /// The session of a run with JSON output.
    pub(crate) fn session(&self) -> SessionId {
        SessionId::from(self.result()["sessionId"].as_str().unwrap().to_owned())
    }

    /// A path in the home folder.
    pub(crate) fn home(&self, path: &str) -> PathBuf {
        self.world.path().join("home").join(path)
    }

    /// What is left in the temporary folder.
    pub(crate) fn left_behind(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.world.path().join("tmp")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// The text blocks of a message.
pub(crate) fn text_of(message: &Value) -> String {
    let blocks = message["content"].as_array().unwrap();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

/// Waits until there is something.
pub(crate) fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match look() {
            Some(found) => return found,
            None if Instant::now() > patience => panic!("waited in vain"),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(crate) fn sessions(world: &TempDir) -> SqliteJournal {
    SqliteJournal::new(world.path().join("home/.state/terret/sessions"))
}

fn project(world: &TempDir) -> PathBuf {
    let world: &Path = world.path();
    world.canonicalize().unwrap().join("project")
}

/// Reads a pipe to its end, in a thread of its own.
struct Collector {
    so_far: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Collector {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let so_far = Arc::new(Mutex::new(Vec::new()));
        let shared = so_far.clone();
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 8192];
            while let n @ 1.. = pipe.read(&mut piece).unwrap() {
                shared.lock().unwrap().extend_from_slice(&piece[..n]);
            }
        });
        Self { so_far, reader }
    }

    fn holds(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.so_far.lock().unwrap()).contains(text)
    }

    fn text(self) -> String {
        self.reader.join().unwrap();
        String::from_utf8(self.so_far.lock().unwrap().split_off(0)).unwrap()
    }
}
