use std::fs::File;
use std::io::{self, Write as _};
use std::process::Stdio;
use std::sync::Mutex;

use rustix::process::Pid;
use tokio::process::Command;

use super::command::in_own_session;
use super::processes::MARK;

/// Outlives this program just long enough to kill what its commands left running.
///
/// It is a small shell process that reads the groups of living commands from a pipe. When the pipe closes, because the
/// guard is dropped or because this program died in whatever way, it kills them, and whatever carries the mark.
#[derive(Debug)]
pub(super) struct Guard {
    /// The beginning of the mark that all commands carry.
    mark: String,
    pipe: Mutex<Option<File>>,
}

/// Where its programs are. The person's search path may name folders of the workspace (`.venv/bin`), and the guard runs
/// outside of the sandbox: a command could put a `grep` of its own there.
const PATH: &str = "/usr/bin:/bin:/run/current-system/sw/bin";

const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=' '
while read -r sign group; do
    case $sign in
        +) groups="$groups$group " ;;
        -) groups="${groups%%" $group "*} ${groups#*" $group "}" ;;
    esac
done
# Between two programs a process shows no environment, so nothing found once means little.
nothing=0
for round in 1 2 3 4 5 6 7 8 9 10; do
    for group in $groups; do kill -KILL "-$group"; done
    marked=$(grep -lF -- "$1" /proc/[0-9]*/environ)
    for file in $marked; do
        pid=${file#/proc/}
        kill -KILL "${pid%/environ}"
    done
    if [ -n "$marked" ]; then nothing=0; else nothing=$((nothing + 1)); fi
    if [ $nothing -ge 2 ]; then break; fi
    sleep 0.05 || sleep 1
done 2>/dev/null
"#;

impl Guard {
    /// A guard for commands whose mark begins so. Its process is started with the first of them.
    pub(super) fn new(mark: String) -> Self {
        Self { mark, pipe: Mutex::new(None) }
    }

    /// Takes care of a command's group.
    pub(super) fn add(&self, group: Pid) {
        self.tell('+', group);
    }

    /// Forgets a group that has ended.
    pub(super) fn remove(&self, group: Pid) {
        self.tell('-', group);
    }

    /// Makes sure that the process runs.
    pub(super) fn start(&self) -> io::Result<()> {
        let mut pipe = self.pipe.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if pipe.is_some() {
            return Ok(());
        }
        let (reader, writer) = io::pipe()?;
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", SCRIPT, "terret-guard", &format!("{MARK}={}", self.mark)])
            .current_dir("/")
            .env_clear()
            .env("PATH", PATH)
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Not waited for: tokio reaps the child when it is dropped and has ended.
        in_own_session(shell).spawn()?;
        *pipe = Some(File::from(std::os::fd::OwnedFd::from(writer)));
        Ok(())
    }

    fn tell(&self, sign: char, group: Pid) {
        let mut pipe = self.pipe.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let told = pipe.as_mut().map(|pipe| writeln!(pipe, "{sign} {}", group.as_raw_pid()));
        if matches!(told, Some(Err(_))) {
            // Somebody killed it. The next command starts another.
            *pipe = None;
        }
    }
}
