//! The processes that a command started.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

/// The environment variable that marks what a command starts.
pub(super) const MARK: &str = "TERRET_COMMAND";

/// The environment variable that says for which call a command was started, for whoever comes after this program.
pub(super) const CALL: &str = "TERRET_CALL";

/// A command's processes, living and dead.
///
/// They are whoever carries its mark, the members of the sessions of those and of the one that its shell leads, and the
/// children of all these. Where there is no `/proc`, only the shell's process group is seen.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// The shell, if it is known.
    leader: Option<Pid>,
    /// An entry of the environment.
    mark: String,
}

impl Family {
    pub(super) fn new(leader: Pid, mark: &str) -> Self {
        Self { leader: Some(leader), mark: format!("{MARK}={mark}") }
    }

    /// What is left of a call of a program that is gone.
    pub(super) fn of_call(key: &str) -> Self {
        Self { leader: None, mark: format!("{CALL}={key}") }
    }

    /// Those that live. Blocks, for some milliseconds at most.
    pub(super) fn living(&self) -> Vec<Pid> {
        const LOOKS: u32 = 4;
        let mut members = BTreeSet::new();
        for _ in 0..LOOKS {
            let clear = self.look(&mut members);
            if clear {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        members.into_iter().filter_map(Pid::from_raw).collect()
    }

    /// Looks at all processes once. Returns whether there was none that might be a member and can't be told: between
    /// two programs a process shows no environment.
    fn look(&self, members: &mut BTreeSet<i32>) -> bool {
        members.clear();
        let processes = processes();
        if processes.is_empty()
            && self.has_group()
            && let Some(leader) = self.leader
        {
            members.insert(leader.as_raw_pid());
        }
        let mut clear = true;
        let mut sessions: BTreeSet<i32> = self.leader.map(Pid::as_raw_pid).into_iter().collect();
        for process in &processes {
            if sessions.contains(&process.session) {
                continue;
            }
            match has_mark(process.id, &self.mark) {
                Some(true) => {
                    members.insert(process.id);
                    sessions.insert(process.session);
                }
                Some(false) => {}
                None => clear = false,
            }
        }
        let is_in = |process: &&Process| sessions.contains(&process.session) || sessions.contains(&process.group);
        members.extend(processes.iter().filter(is_in).map(|process| process.id));
        loop {
            let is_child = |process: &&Process| members.contains(&process.parent) && !members.contains(&process.id);
            let children: Vec<i32> = processes.iter().filter(is_child).map(|process| process.id).collect();
            if children.is_empty() {
                return clear;
            }
            members.extend(children);
        }
    }

    /// Asks the shell's group to end.
    pub(super) fn terminate(&self) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, Signal::TERM);
        }
    }

    /// Whether anything is left of the shell's group. Cheap.
    pub(super) fn has_group(&self) -> bool {
        self.leader.is_some_and(|leader| test_kill_process_group(leader).is_ok())
    }

    /// Kills the shell's group at once.
    pub(super) fn kill_group(&self) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Kills all, and those too that are started meanwhile. Blocks until they are dead, for half a second at most;
    /// returns those that aren't.
    pub(super) fn kill(&self) -> Vec<Pid> {
        const ROUNDS: u32 = 50;
        self.kill_group();
        for _ in 0..ROUNDS {
            let living = self.living();
            if living.is_empty() {
                return living;
            }
            for process in living {
                let _ = kill_process(process, Signal::KILL);
            }
            self.kill_group();
            std::thread::sleep(Duration::from_millis(10));
        }
        self.living()
    }
}

struct Process {
    id: i32,
    parent: i32,
    group: i32,
    session: i32,
}

/// Whether a process is only there to keep a process namespace of its own for those that were started in it.
pub(super) fn keeps_a_namespace(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_pid())).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // Its numbers from the outermost namespace to the innermost.
    let ids: Vec<&str> = ids.into_iter().flat_map(str::split_ascii_whitespace).collect();
    ids.len() > 1 && ids.last() == Some(&"1")
}

/// All processes that aren't dead; none where there is no `/proc`.
fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|id: i32| {
            let stat = std::fs::read(format!("/proc/{id}/stat")).ok()?;
            // The program's name stands in parentheses and can hold anything, parentheses included.
            let after = stat.get(memchr::memrchr(b')', &stat)? + 1..)?;
            let mut fields = std::str::from_utf8(after).ok()?.split_ascii_whitespace();
            let state = fields.next()?;
            let mut number = || fields.next()?.parse().ok();
            let process = Process { id, parent: number()?, group: number()?, session: number()? };
            // Kernel threads have no group.
            (process.group != 0 && !matches!(state, "Z" | "X" | "x")).then_some(process)
        })
        .collect()
}

/// Whether a process carries a mark; `None` if it shows no environment. What is hidden belongs to somebody else.
fn has_mark(process: i32, mark: &str) -> Option<bool> {
    let Ok(environment) = std::fs::read(format!("/proc/{process}/environ")) else { return Some(false) };
    let mut variables = environment.split(|byte| *byte == 0);
    (!environment.is_empty()).then(|| variables.any(|variable| variable == mark.as_bytes()))
}
