use std::fmt::Write as _;

use rustix::process::{Resource, getrlimit};

use super::CommandLine;

/// What a confined command and all that it starts may use up. No core is ever dumped.
///
/// A limit that is above the one of this program has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLimits {
    /// Processes and threads that the user has, others than the command's included. Linux doesn't count those of root
    /// on [`Level::Landlock`](super::Level). Default: 16,384.
    pub processes: Option<u64>,
    /// The size of a file that is written, in bytes. Default: 32 GiB.
    pub file_size: Option<u64>,
    /// Address space of each process, in bytes. Default: no limit, because many programs reserve more than they use.
    pub memory: Option<u64>,
    /// Time on processors of each process, in seconds. Default: no limit but the command's own time.
    pub cpu_time: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { processes: Some(16_384), file_size: Some(32 << 30), memory: None, cpu_time: None }
    }
}

impl ResourceLimits {
    /// Sets the limits in a shell that becomes the command, with `gated` once it is given a line.
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "macos")),
        allow(dead_code, reason = "there are no walls to set them behind")
    )]
    pub(super) fn around(self, inner: CommandLine, gated: bool) -> CommandLine {
        let mut script = "ulimit -c 0; ".to_owned();
        // `sh` is bash here and dash there, which call the number of processes by different letters.
        let limits = [
            (Resource::Fsize, self.file_size, 512, "-f"),
            (Resource::As, self.memory, 1024, "-v"),
            (Resource::Cpu, self.cpu_time, 1, "-t"),
            (Resource::Nproc, self.processes, 1, "$([ -n \"$BASH_VERSION\" ] && echo -u || echo -p)"),
        ];
        for (resource, limit, unit, flag) in limits {
            let Some(limit) = limit else { continue };
            if getrlimit(resource).maximum.is_none_or(|maximum| limit < maximum) {
                // Writing to a string can't fail.
                let _ = write!(script, "ulimit {flag} {}; ", limit.div_ceil(unit));
            }
        }
        if gated {
            script.push_str("read -r _ || exit 126; ");
        }
        script.push_str("exec \"$@\" </dev/null");
        let mut arguments = vec!["-c".to_owned(), script, "sh".to_owned(), inner.program];
        arguments.extend(inner.arguments);
        CommandLine { program: "/bin/sh".to_owned(), arguments }
    }
}
