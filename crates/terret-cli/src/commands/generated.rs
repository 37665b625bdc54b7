//! `terret completions` and `terret man`: what is made of the parser of the command line, for shells and for readers.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{finish, unwritable};
use crate::cli::Cli;
use crate::exit::{Exit, Problem};

/// Print a script that makes a shell complete commands and options
///
/// Examples:
///   terret completions bash > ~/.local/share/bash-completion/completions/terret
///   terret completions zsh > ~/.zfunc/_terret
///   terret completions fish > ~/.config/fish/completions/terret.fish
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Print the manual page, or write those of all commands to a folder
#[derive(Args)]
pub(crate) struct Man {
    /// Write all pages here, as terret.1, terret-sessions.1 and so on
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn completions(args: &Completions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "terret", &mut script);
    finish(print(&script))
}

pub(crate) fn man(args: &Man) -> ExitCode {
    finish(match &args.folder {
        None => page().and_then(|page| print(&page)),
        Some(folder) => pages(folder),
    })
}

fn page() -> Result<Vec<u8>, Problem> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(unwritable)?;
    Ok(page)
}

fn pages(folder: &Path) -> Result<Exit, Problem> {
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        clap_mangen::generate_to(Cli::command(), folder)
    };
    write()
        .map_err(|error| Problem::new(Exit::RunFailed, format!("{}: can't be written: {error}", folder.display())))?;
    Ok(Exit::Completed)
}

fn print(text: &[u8]) -> Result<Exit, Problem> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).map_err(unwritable)?;
    Ok(Exit::Completed)
}
