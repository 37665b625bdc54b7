//! Where the program keeps things.

use std::path::PathBuf;

use crate::exit::{Exit, Problem};

/// The folder of all sessions: `sessions` in `$TERRET_HOME`, else `terret/sessions` in `$XDG_STATE_HOME`, else in
/// `~/.local/state`. (The XDG Base Directory Specification: a relative path counts as none.)
pub(crate) fn sessions() -> Result<PathBuf, Problem> {
    let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = || {
        let home = || std::env::home_dir().filter(|path| path.is_absolute()).map(|home| home.join(".local/state"));
        folder("XDG_STATE_HOME").or_else(home).map(|state| state.join("terret"))
    };
    let ours = folder("TERRET_HOME").or_else(state).ok_or_else(|| {
        Problem::new(
            Exit::Configuration,
            "there is no place to keep sessions: set HOME, XDG_STATE_HOME or TERRET_HOME to an absolute path, or use \
             --no-session",
        )
    });
    Ok(ours?.join("sessions"))
}
