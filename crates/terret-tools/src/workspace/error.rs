use std::io;

use super::Access;

/// Why a path can't be used. Models read the text, so it says what to do next.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    #[error("The path is empty. Give one relative to the workspace, such as \"src/main.rs\"; \".\" is its root.")]
    Empty,

    #[error(
        "{path} is outside the workspace, and was not {}. Use a path inside {root}; relative paths start there.",
        match .access { Access::Read => "read", Access::Write => "written" }
    )]
    Outside { path: String, root: String, access: Access },

    #[error("There is no {path}.{}", near_names(.near))]
    NotFound { path: String, near: Vec<String> },

    #[error("{path} is a directory, not a file. Use ls to see what is in it.")]
    IsDirectory { path: String },

    #[error("{path} is a file, not a directory.")]
    NotDirectory { path: String },

    #[error("{path} is {kind}, not a regular file.")]
    Special { path: String, kind: &'static str },

    #[error("{path} is read-only for file tools. Git's own files are changed by git commands.")]
    Protected { path: String },

    #[error(
        "{path} was not written: you may only look at files here. Say what you would change instead; only the person can \
         permit it."
    )]
    ReadOnly { path: String },

    #[error("{path} commonly holds keys or tokens, and tools don't touch it. If it is needed, ask the person.")]
    Hidden { path: String },

    #[error("{path} was changed or replaced by somebody else meanwhile. Nothing was done; read it again.")]
    Changed { path: String },

    #[error("{path} has changed since it was read, by a command or by somebody else. Nothing was done; read it again.")]
    Stale { path: String },

    #[error("The file permissions of {path} don't allow this: {error}.")]
    Denied { path: String, error: io::Error },

    #[error("{path}: {error}.")]
    Io { path: String, error: io::Error },
}

impl PathError {
    pub(crate) fn from_io(path: &str, error: impl Into<io::Error>) -> Self {
        let (path, error) = (path.to_owned(), error.into());
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path, near: vec![] },
            io::ErrorKind::IsADirectory => Self::IsDirectory { path },
            io::ErrorKind::NotADirectory => Self::NotDirectory { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Denied { path, error },
            _ => Self::Io { path, error },
        }
    }
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" Did you mean {}?", near.join(" or ")) }
}
