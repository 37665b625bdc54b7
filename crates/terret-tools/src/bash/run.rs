use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use process_wrap::tokio::ChildWrapper;
use rustix::process::{Pid, test_kill_process_group};
use tempfile::TempDir;
use terret_agent::{ProgressSender, ToolContext};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::BashOptions;
use super::capture::{Capture, Captured};
use super::command::shell;
use super::guard::Guard;
use super::processes::{CALL, Family, MARK, keeps_a_namespace};
use crate::sandbox::{Cell, Directories, Ladder, Level, Profile, Protected, View};
use crate::workspace::Workspace;

/// How long a command has to end by itself when it is told to.
const GRACE: Duration = Duration::from_millis(400);

/// After the shell's end, output is awaited until the pipe is silent for this long, …
const SILENCE: Duration = Duration::from_millis(100);

/// … and no longer than this in all: a process in the background may write for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Progress is told no more often.
const PROGRESS: Duration = Duration::from_millis(100);

/// As much output is taken at once, in bytes.
const BUFFER: usize = 256 * 1024;

/// Runs commands, and owns what they leave running.
#[derive(Debug)]
pub(super) struct Runner {
    workspace: Workspace,
    options: BashOptions,
    /// The temporary directory of confined commands.
    scratch: OnceLock<TempDir>,
    directories: Arc<Directories>,
    /// The beginning of the mark of all its commands.
    mark: String,
    commands: AtomicU64,
    guard: Guard,
    /// The groups of commands that left something running.
    remaining: Mutex<Vec<Pid>>,
    /// Reads on what processes in the background write, so that writing neither blocks nor kills them.
    drains: Mutex<JoinSet<()>>,
}

struct Prepared {
    cell: Cell,
    level: Option<Level>,
    protected: Option<Protected>,
    variables: BTreeMap<OsString, OsString>,
}

/// Nothing holds commands here.
#[derive(Debug, thiserror::Error)]
#[error("no sandbox works on this machine, and commands don't run without one ({}); only the person can permit it", .0.to_string().replace('\n', "; "))]
struct Unconfined(Ladder);

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) ending: Ending,
    pub(super) output: Captured,
    /// Processes that it left running.
    pub(super) background: Vec<u32>,
    /// Processes that could not be killed.
    pub(super) survivors: Vec<u32>,
    /// What held it; nothing, where that was asked for.
    pub(super) level: Option<Level>,
    /// What it did that was undone.
    pub(super) undone: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Exited(ExitStatus),
    TimedOut,
    Cancelled,
}

impl Runner {
    pub(super) fn new(workspace: Workspace, options: BashOptions) -> Self {
        let mark = format!("{}-{:016x}-", std::process::id(), RandomState::new().hash_one(0));
        Self {
            workspace,
            options,
            scratch: OnceLock::new(),
            directories: Arc::default(),
            guard: Guard::new(mark.clone()),
            mark,
            commands: AtomicU64::new(0),
            remaining: Mutex::default(),
            drains: Mutex::default(),
        }
    }

    /// Runs a command to its end. When the future is dropped before, the command is killed.
    pub(super) async fn run(
        self: &Arc<Self>,
        command: &str,
        limit: Duration,
        context: &ToolContext,
    ) -> io::Result<Done> {
        self.forget_the_dead();
        let variables = self.variables(&context.idempotency_key);
        let runner = Arc::clone(self);
        let prepared = tokio::task::spawn_blocking(move || runner.prepare(variables)).await;
        let Prepared { cell, level, protected, variables } =
            prepared.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        self.guard.start()?;
        let (reader, writer) = io::pipe()?;
        #[cfg(target_os = "linux")]
        // Fewer changes between those who write and us. Where the user has many pipes, it stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(&reader, BUFFER);
        let mut reader = Receiver::from_owned_fd(reader.into())?;
        let shell = shell(&cell, command, self.workspace.root(), &variables, writer)?;
        let mut child = cell.spawn(shell).await?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let leader = leader.ok_or_else(|| io::Error::other("the shell has no process id"))?;
        let mark = variables.get(OsStr::new(MARK)).map(|mark| mark.to_string_lossy().into_owned()).unwrap_or_default();
        let family = Family::new(leader, &mark);
        self.guard.add(leader);
        let abandoned = KillOnDrop(Some(&family));

        let (exited, exit) = oneshot::channel();
        let mut capture = Capture::new(self.workspace.outputs().clone());
        let end = async {
            let ended = end(&mut *child, &family, limit, &context.cancel).await;
            // The other side waits for nothing else, so it is there.
            let _ = exited.send(());
            ended
        };
        let (ended, open) = tokio::join!(end, pump(&mut reader, &mut capture, &context.progress, exit));
        let (ending, survivors) = ended?;
        abandoned.disarm();

        let background = match ending {
            Ending::Exited(_) => self.left_running(&family).await,
            Ending::TimedOut | Ending::Cancelled => vec![],
        };
        if background.is_empty() && survivors.is_empty() {
            self.guard.remove(leader);
        } else {
            lock(&self.remaining).push(leader);
        }
        if open {
            self.drain(reader);
        }
        let undone = match protected {
            Some(protected) => tokio::task::spawn_blocking(move || protected.undo()).await.map_err(io::Error::other)?,
            None => vec![],
        };
        Ok(Done { ending, output: capture.finish().await, background, survivors, level, undone })
    }

    /// Builds the walls for a command, or says why there can be none. Blocks.
    fn prepare(&self, mut variables: BTreeMap<OsString, OsString>) -> io::Result<Prepared> {
        if self.workspace.current_profile() == Profile::Full {
            return Ok(Prepared { cell: Cell::open(), level: None, protected: None, variables });
        }
        let level = match self.options.level {
            Some(level) => level,
            None => {
                Ladder::best().map_err(|ladder| io::Error::new(io::ErrorKind::PermissionDenied, Unconfined(ladder)))?
            }
        };
        let scratch = self.scratch()?;
        let temporary = if level == Level::Bubblewrap { Path::new("/tmp") } else { scratch };
        for name in ["TMPDIR", "TMP", "TEMP"] {
            variables.insert(name.into(), temporary.into());
        }
        // What is cached goes where writing is permitted.
        variables.insert("XDG_CACHE_HOME".into(), temporary.join(".cache").into());
        let protected = Protected::look(&self.workspace, &self.directories);
        let view = View::new(&self.workspace, &variables, scratch, self.options.network, &protected.paths());
        let cell = Cell::new(level, &view, self.options.limits)?;
        Ok(Prepared { cell, level: Some(level), protected: Some(protected), variables })
    }

    fn scratch(&self) -> io::Result<&Path> {
        if self.scratch.get().is_none() {
            let made =
                tempfile::Builder::new().prefix("terret-tmp-").tempdir_in(std::env::temp_dir().canonicalize()?)?;
            // Whoever was quicker has made one as good as this, which is removed again.
            let _ = self.scratch.set(made);
        }
        self.scratch.get().map(TempDir::path).ok_or_else(|| io::Error::other("no temporary directory"))
    }

    fn variables(&self, key: &str) -> BTreeMap<OsString, OsString> {
        let mut variables = self.options.environment.variables(std::env::vars_os());
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        variables.insert(MARK.into(), format!("{}{number}", self.mark).into());
        // A model can write anything into an id, and a variable can't hold everything.
        variables.insert(CALL.into(), key.replace('\0', "").into());
        variables
    }

    /// A number of a group that has ended may be given to another.
    fn forget_the_dead(&self) {
        lock(&self.remaining).retain(|group| {
            let lives = test_kill_process_group(*group).is_ok();
            if !lives {
                self.guard.remove(*group);
            }
            lives
        });
    }

    async fn left_running(&self, family: &Family) -> Vec<u32> {
        let family = family.clone();
        let living = move || family.living().into_iter().filter(|process| !keeps_a_namespace(*process)).collect();
        let living: Result<Vec<Pid>, _> = tokio::task::spawn_blocking(living).await;
        living.unwrap_or_default().into_iter().map(number).collect()
    }

    fn drain(&self, mut reader: Receiver) {
        let mut drains = lock(&self.drains);
        while drains.try_join_next().is_some() {}
        drains.spawn(async move {
            let mut buffer = vec![0; 4 * 1024];
            while !matches!(reader.read(&mut buffer).await, Ok(0) | Err(_)) {}
        });
    }
}

/// Kills what is left of a call whose program is gone. Returns what was found, and what of it could not be killed.
pub(super) async fn end_survivors(key: &str) -> (Vec<u32>, Vec<u32>) {
    let family = Family::of_call(&key.replace('\0', ""));
    let end = move || {
        let found = family.living();
        let left = if found.is_empty() { vec![] } else { family.kill() };
        (found, left)
    };
    let (found, left) = tokio::task::spawn_blocking(end).await.unwrap_or_default();
    (found.into_iter().map(number).collect(), left.into_iter().map(number).collect())
}

/// Waits until the shell has ended, or ends it and everything that it started.
async fn end(
    child: &mut dyn ChildWrapper,
    family: &Family,
    limit: Duration,
    cancel: &CancellationToken,
) -> io::Result<(Ending, Vec<u32>)> {
    let ending = tokio::select! {
        biased;
        status = child.wait() => return Ok((Ending::Exited(status?), vec![])),
        () = cancel.cancelled() => Ending::Cancelled,
        () = sleep(limit) => Ending::TimedOut,
    };
    family.terminate();
    let gone = async {
        let _ = child.wait().await;
        while family.has_group() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = timeout(GRACE, gone).await;
    let condemned = family.clone();
    let survivors = tokio::task::spawn_blocking(move || condemned.kill()).await.unwrap_or_default();
    // Reaps the shell. It is dead, unless it is among the survivors.
    let _ = timeout(GRACE, child.wait()).await;
    Ok((ending, survivors.into_iter().map(number).collect()))
}

/// Reads what is written until the pipe closes, or has been silent for a while after the shell's end. Returns whether
/// somebody still holds its other end.
async fn pump(
    reader: &mut Receiver,
    capture: &mut Capture,
    progress: &ProgressSender,
    mut exit: oneshot::Receiver<()>,
) -> bool {
    let mut buffer = vec![0; BUFFER];
    let mut told = Instant::now();
    let mut last_words: Option<Instant> = None;
    loop {
        if last_words.is_some_and(|end| Instant::now() >= end) {
            return true;
        }
        let read = tokio::select! {
            biased;
            _ = &mut exit, if last_words.is_none() => {
                last_words = Some(Instant::now() + LAST_WORDS);
                continue;
            }
            read = reader.read(&mut buffer) => read,
            () = sleep_until(told + PROGRESS), if capture.has_news() => {
                told = tell(capture, progress);
                continue;
            }
            () = sleep(SILENCE), if last_words.is_some() => return true,
        };
        match read {
            Ok(0) | Err(_) => return false,
            Ok(length) => capture.push(buffer.get(..length).unwrap_or_default()).await,
        }
        if told.elapsed() >= PROGRESS {
            told = tell(capture, progress);
        }
    }
}

fn tell(capture: &mut Capture, progress: &ProgressSender) -> Instant {
    if let Some(news) = capture.take_news() {
        progress.send(news);
    }
    Instant::now()
}

/// Kills a command that nobody waits for any more.
struct KillOnDrop<'a>(Option<&'a Family>);

impl KillOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(family) = self.0 {
            family.kill_group();
            // The rest takes a look at every process, which is too long for a drop. If there is no thread to be had, or
            // the program ends first, the guard does it.
            let family = family.clone();
            let _ = std::thread::Builder::new().spawn(move || family.kill());
        }
    }
}

fn number(process: Pid) -> u32 {
    process.as_raw_pid().unsigned_abs()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
