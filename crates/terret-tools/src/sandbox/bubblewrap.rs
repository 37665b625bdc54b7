use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::seccomp::Sockets;
use super::view::TEMPORARY;
use super::{CommandLine, SandboxError, Variables, View, landlock, restricted, seccomp};

/// A namespace to be made by `bwrap`.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    program: PathBuf,
    arguments: Vec<OsString>,
    filter: Vec<u8>,
}

/// What stands at a path.
enum Mount<'a> {
    Read(&'a Path),
    Write(&'a Path),
    /// Something empty, which takes what is written and forgets it.
    Empty,
    /// The same in place of what is there, be it a file or a directory.
    Nothing,
}

impl Bubblewrap {
    pub(super) fn new(view: &View) -> Result<Self, SandboxError> {
        let program = program().ok_or_else(|| {
            SandboxError::Unavailable("bwrap is not installed (the package is called bubblewrap)".to_owned())
        })?;
        let sockets = if view.network { Sockets::All } else { Sockets::Namespaced };
        let filter = seccomp::apart(sockets).map_err(|error| SandboxError::Unavailable(error.to_string()))?;
        Ok(Self { program, arguments: arguments(view), filter: seccomp::bytes(&filter) })
    }

    /// `bwrap` reads the filter from its standard input, which is then closed. So the inner command has to open its own.
    ///
    /// What the loader of programs goes by (`LD_LIBRARY_PATH`) is not for `bwrap` itself, which is not in the sandbox: it
    /// may name folders in which a command can put libraries.
    pub(super) fn command(&self, inner: CommandLine, variables: &Variables) -> io::Result<Command> {
        let (reader, mut writer) = io::pipe()?;
        // A filter is smaller than a pipe.
        writer.write_all(&self.filter)?;
        let mut command = Command::new(&self.program);
        let (of_loader, others): (Variables, Variables) =
            variables.clone().into_iter().partition(|(name, _)| is_of_loader(name));
        command.args(&self.arguments).env_clear().envs(others);
        for (name, value) in &of_loader {
            command.arg("--setenv").arg(name).arg(value);
        }
        command.args(["--seccomp", "0", "--"]);
        command.arg(inner.program).args(inner.arguments).stdin(reader);
        Ok(command)
    }

    /// Restricts the thread that starts `bwrap`, as far as that leaves `bwrap` able to work.
    pub(super) fn restrict_starter(self) -> io::Result<()> {
        restricted::gain_nothing()?;
        landlock::restrict_scopes()?;
        seccomp::apply(&seccomp::without_clone3()?)
    }
}

fn is_of_loader(name: &OsStr) -> bool {
    ["LD_", "GLIBC_"].iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
}

/// Where `bwrap` is: in the system's own directories. The search path may name some that a command can write to.
pub(super) fn program() -> Option<PathBuf> {
    let directories = ["/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin"];
    directories.into_iter().map(|directory| Path::new(directory).join("bwrap")).find(|program| program.is_file())
}

fn arguments(view: &View) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--cap-drop",
        "ALL",
    ]
    .map(OsString::from)
    .to_vec();
    if !view.network {
        arguments.push("--unshare-net".into());
    }
    arguments.extend(["--proc", "/proc", "--dev", "/dev"].map(OsString::from));
    let [tmp, var_tmp] = TEMPORARY;
    let mut mounts: Vec<(&Path, Mount<'_>)> =
        vec![(Path::new(tmp), Mount::Write(&view.scratch)), (Path::new(var_tmp), Mount::Empty)];
    mounts.extend(view.home.as_deref().map(|home| (home, Mount::Empty)));
    mounts.extend(view.hidden.iter().map(|path| (path.as_path(), Mount::Nothing)));
    mounts.extend(view.readable.iter().map(|path| (path.as_path(), Mount::Read(path))));
    mounts.extend(view.writable.iter().map(|path| (path.as_path(), Mount::Write(path))));
    mounts.extend(view.read_only.iter().map(|path| (path.as_path(), Mount::Read(path))));
    // What lies deeper comes later, and so on top. The sort is stable: of two at one place, the later one stays.
    mounts.sort_by_key(|(path, _)| path.components().count());
    for (path, mount) in mounts {
        let arguments = &mut arguments;
        match mount {
            Mount::Read(from) if let Some(target) = link(from) => {
                push(arguments, ["--symlink".as_ref(), target.as_path(), path])
            }
            Mount::Read(from) => push(arguments, ["--ro-bind-try".as_ref(), from, path]),
            Mount::Write(from) => push(arguments, ["--bind-try".as_ref(), from, path]),
            Mount::Empty => push(arguments, ["--tmpfs".as_ref(), path]),
            Mount::Nothing if path.is_dir() => push(arguments, ["--tmpfs".as_ref(), path]),
            Mount::Nothing => push(arguments, ["--ro-bind".as_ref(), "/dev/null".as_ref(), path]),
        }
    }
    // What stands in `/proc/sys` asks for the number of the user, and not for capabilities: root could write it.
    push(&mut arguments, ["--remount-ro".as_ref(), Path::new("/proc")]);
    push(&mut arguments, ["--remount-ro".as_ref(), Path::new("/"), "--chdir".as_ref(), &view.directory]);
    arguments
}

/// Where a link at the root of the file system leads. Those further down come with their directories.
fn link(path: &Path) -> Option<PathBuf> {
    if path.components().count() == 2 { std::fs::read_link(path).ok() } else { None }
}

fn push<const N: usize>(arguments: &mut Vec<OsString>, more: [&Path; N]) {
    arguments.extend(more.map(|argument| argument.as_os_str().to_owned()));
}
