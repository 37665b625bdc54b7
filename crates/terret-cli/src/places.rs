//! Where the program keeps things.

use std::path::PathBuf;

use crate::exit::{Exit, Problem};

/// The folder of all sessions: `sessions` in `$TERRET_HOME`, else `terret/sessions` in `$XDG_STATE_HOME`, else in
/// `~/.local/state`. A relative `TERRET_HOME` is one of the current folder. (The XDG Base Directory Specification: there, a
/// relative path counts as none.)
pub(crate) fn sessions() -> Result<PathBuf, Problem> {
    let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = || {
        let home = || std::env::home_dir().filter(|path| path.is_absolute()).map(|home| home.join(".local/state"));
        folder("XDG_STATE_HOME").or_else(home).map(|state| state.join("terret"))
    };
    let ours = match std::env::var_os("TERRET_HOME").filter(|home| !home.is_empty()) {
        Some(home) => Some(std::path::absolute(&home).map_err(|error| {
            let home = home.display();
            Problem::new(Exit::Configuration, format!("TERRET_HOME is {home:?}, which is no place: {error}"))
        })?),
        None => state(),
    };
    let ours = ours.ok_or_else(|| {
        Problem::new(
            Exit::Configuration,
            "there is no place to keep sessions: set HOME or XDG_STATE_HOME to an absolute path, or TERRET_HOME, or use \
             --no-session",
        )
    });
    Ok(ours?.join("sessions"))
}
