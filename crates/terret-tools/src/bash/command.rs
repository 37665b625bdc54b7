use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::PipeWriter;
use std::path::Path;

use process_wrap::tokio::{CommandWrap, CommandWrapper, ProcessSession};
use tokio::process::Command;

use crate::sandbox::{Cell, CommandLine};

/// A shell command that is ready to start in its cell: in a session of its own, without input, its output in one pipe.
///
/// This is where every command comes from, so that none gets around the sandbox.
pub(super) fn shell(
    cell: &Cell,
    command: &str,
    directory: &Path,
    variables: &BTreeMap<OsString, OsString>,
    output: PipeWriter,
) -> std::io::Result<CommandWrap> {
    let program = shell_program(variables.get(OsStr::new("PATH")));
    let arguments = vec!["-c".to_owned(), command.to_owned()];
    let mut shell = cell.command(CommandLine { program: program.to_owned(), arguments }, variables)?;
    shell.current_dir(directory).stdout(output.try_clone()?).stderr(output);
    Ok(in_own_session(shell))
}

/// A command that has no terminal, isn't reached by what the terminal sends to this program's group, and inherits no open
/// file.
pub(super) fn in_own_session(command: Command) -> CommandWrap {
    let mut command = CommandWrap::from(command);
    command.wrap(OwnSession);
    command
}

/// [`ProcessSession`] without its way of waiting, which is for the whole group: a daemon would hold it for ever.
#[derive(Debug)]
struct OwnSession;

impl CommandWrapper for OwnSession {
    fn pre_spawn(&mut self, command: &mut Command, core: &CommandWrap) -> std::io::Result<()> {
        // Whoever started this program may have left it descriptors, and behind a wall, an open directory is a door in it.
        close_fds::set_fds_cloexec_threadsafe(3, &[]);
        ProcessSession.pre_spawn(command, core)
    }
}

fn shell_program(path: Option<&OsString>) -> &'static str {
    let mut directories = path.into_iter().flat_map(std::env::split_paths);
    if directories.any(|directory| directory.join("bash").is_file()) { "bash" } else { "sh" }
}
