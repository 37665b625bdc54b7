//! Where the program keeps things: in `$TERRET_HOME` everything (a relative one is one of the current folder), else in the
//! places of the XDG Base Directory Specification (by which a relative path counts as none).

use std::path::PathBuf;

use crate::exit::{Exit, Problem};

/// The folder of all sessions: `sessions` in `$TERRET_HOME`, else `terret/sessions` in `$XDG_STATE_HOME`, else in
/// `~/.local/state`.
pub(crate) fn sessions() -> Result<PathBuf, Problem> {
    let ours = state().ok_or_else(|| {
        Problem::new(
            Exit::Configuration,
            "there is no place to keep sessions: set HOME or XDG_STATE_HOME to an absolute path, or TERRET_HOME, or use \
             --no-session",
        )
    });
    Ok(ours?.join("sessions"))
}

/// The folder of what the program remembers, the sessions' parent.
pub(crate) fn state() -> Option<PathBuf> {
    place("XDG_STATE_HOME", ".local/state")
}

/// The folder of the user's configuration: `$TERRET_HOME`, else `terret` in `$XDG_CONFIG_HOME`, else in `~/.config`.
pub(crate) fn config() -> Option<PathBuf> {
    place("XDG_CONFIG_HOME", ".config")
}

/// The folder of what is the user's alone: `$TERRET_HOME`, else `terret` in `$XDG_DATA_HOME`, else in `~/.local/share`.
pub(crate) fn data() -> Option<PathBuf> {
    place("XDG_DATA_HOME", ".local/share")
}

/// The folder of what can be fetched again: `$TERRET_HOME`, else `terret` in `$XDG_CACHE_HOME`, else in `~/.cache`.
pub(crate) fn cache() -> Option<PathBuf> {
    place("XDG_CACHE_HOME", ".cache")
}

/// A path as people type it, where `~/` begins that of their home.
pub(crate) fn typed(path: &str) -> PathBuf {
    match path.strip_prefix("~/").zip(std::env::home_dir()) {
        Some((rest, home)) => home.join(rest),
        None => path.into(),
    }
}

fn place(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let ours = std::env::var_os("TERRET_HOME").filter(|home| !home.is_empty());
    let ours = ours.and_then(|home| std::path::absolute(home).ok());
    let xdg = || std::env::var_os(variable).map(PathBuf::from).and_then(absolute);
    let home = || std::env::home_dir().and_then(absolute).map(|home| home.join(in_home));
    ours.or_else(|| xdg().or_else(home).map(|folder| folder.join("terret")))
}
