use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directories::{Directories, is_git};
use crate::workspace::{Located, Target, Workspace, rename_beneath};

/// The git repositories of a workspace, and what in them makes git run programs, as it was before a command. Likewise
/// whatever the embedder has made read-only.
///
/// Bubblewrap keeps a `.git` that is there from being written, and nothing can keep a new one from being made. Landlock
/// can't except a directory from a permission. So whatever the walls let through is looked for afterwards, and undone:
/// settings are put back, hooks and repositories that would run programs are renamed, so that git doesn't find them.
#[derive(Debug)]
pub(crate) struct Protected {
    workspace: Workspace,
    directories: Arc<Directories>,
    before: BTreeMap<PathBuf, Programs>,
}

/// The files of one repository that make git run programs; all files of what else is protected.
type Programs = BTreeMap<PathBuf, Content>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    File { bytes: Vec<u8>, mode: u32 },
    Link(PathBuf),
}

/// What is appended to the name of something that git must not find.
const REFUSED: &str = ".refused";

/// More of a repository isn't looked at. It counts as one that would run programs.
const MAX_FILES: usize = 2_000;

/// The largest file that is kept to be put back, in bytes.
const MAX_BYTES: u64 = 1 << 20;

impl Protected {
    /// Finds them. Blocks.
    pub(crate) fn look(workspace: &Workspace, directories: &Arc<Directories>) -> Self {
        let before = look(workspace, directories);
        Self { workspace: workspace.clone(), directories: Arc::clone(directories), before }
    }

    /// Each `.git`, at whatever depth, and what else must stay as it is.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.before.keys().cloned().collect()
    }

    /// Undoes what must not stay, and says what that was. Blocks.
    pub(crate) fn undo(self) -> Vec<String> {
        let after = look(&self.workspace, &self.directories);
        let gone: Vec<&Programs> =
            self.before.iter().filter(|(path, _)| !after.contains_key(*path)).map(|(_, programs)| programs).collect();
        let mut notes = Vec::new();
        for (repository, programs) in &after {
            match self.before.get(repository) {
                Some(before) => self.restore(repository, before, programs, &mut notes),
                // Somebody has moved it.
                None if gone.iter().any(|gone| same(gone, programs)) => {}
                None if !is_git(repository.file_name().unwrap_or_default()) => {
                    self.refuse(repository, "is protected, and was made by the command", &mut notes);
                }
                None if would_run_programs(repository, programs) => self.refuse(
                    repository,
                    "is a new git repository that would run programs of its own (hooks, or settings that name some)",
                    &mut notes,
                ),
                None => {}
            }
        }
        notes
    }

    fn restore(&self, repository: &Path, before: &Programs, after: &Programs, notes: &mut Vec<String>) {
        for (path, content) in before {
            let Content::File { bytes, mode } = content else { continue };
            if after.get(path) == Some(content) {
                continue;
            }
            let located = Located { base: repository.to_owned(), ..self.located(path) };
            let restored = Target::open(&located, true).and_then(|target| {
                let existing = target.existing().unwrap_or_default();
                target.replace(bytes, existing.as_ref(), || true)
            });
            let shown = &located.shown;
            notes.push(match restored {
                Ok(_) => {
                    // The bits of a hook matter; a directory that was swapped meanwhile is none of ours to follow.
                    let _ = crate::workspace::set_mode(&located, *mode);
                    format!("{shown} was changed by the command, and is as before again: it is protected")
                }
                Err(error) => format!("{shown} was changed by the command, and could not be put back: {error}"),
            });
        }
        for path in after.keys().filter(|path| !before.contains_key(*path)) {
            self.refuse(path, "is protected, because programs are run by it", notes);
        }
    }

    fn refuse(&self, path: &Path, why: &str, notes: &mut Vec<String>) {
        let located = self.located(path);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(REFUSED);
        let shown = &located.shown;
        notes.push(match rename_beneath(&located, &name) {
            Ok(()) => format!("{shown} {why}, and was renamed to {}", Path::new(&name).display()),
            Err(error) => format!("{shown} {why}, and could not be renamed: {error}"),
        });
    }

    fn located(&self, path: &Path) -> Located {
        let base = path.parent().unwrap_or(path).to_owned();
        Located { real: path.to_owned(), base, shown: self.workspace.shown(path) }
    }
}

fn look(workspace: &Workspace, directories: &Directories) -> BTreeMap<PathBuf, Programs> {
    let mut found = BTreeMap::new();
    if !workspace.may_write() {
        return found;
    }
    for path in workspace.extra_read_only().filter(|path| path.symlink_metadata().is_ok()) {
        found.insert(path.clone(), files(path, true));
    }
    // A permission for a repository itself, or for something in it, is a permission to change it.
    let permitted: Vec<&PathBuf> = workspace.extra_writable().filter(|path| path.iter().any(is_git)).collect();
    let roots = workspace.extra_writable().filter(|path| !permitted.contains(path));
    for path in directories.repositories(std::iter::once(workspace.root()).chain(roots.map(PathBuf::as_path))) {
        if !permitted.iter().any(|permitted| path.starts_with(permitted) || permitted.starts_with(&path)) {
            let programs = files(&path, false);
            found.insert(path, programs);
        }
    }
    found
}

/// All files of a directory, or what in a repository makes git run programs: its settings and hooks, those of its
/// submodules and other working trees, and what points to another repository.
fn files(place: &Path, all: bool) -> Programs {
    let mut programs = Programs::new();
    let mut directories = Vec::new();
    match fs::symlink_metadata(place) {
        Ok(metadata) if metadata.is_dir() => directories.push((place.to_owned(), all)),
        _ => programs.extend(content(place).map(|content| (place.to_owned(), content))),
    }
    while let Some((directory, in_hooks)) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().filter_map(Result::ok) {
            let (name, path) = (entry.file_name(), entry.path());
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && !in_hooks && is_data(&name) {
                continue;
            }
            if is_directory {
                directories.push((path, in_hooks || name == "hooks"));
            } else if programs.len() < MAX_FILES && (in_hooks && !is_sample(&name) || is_setting(&name)) {
                programs.extend(content(&path).map(|content| (path, content)));
            }
        }
    }
    programs
}

fn is_data(name: &OsStr) -> bool {
    ["objects", "refs", "logs", "lfs", "annex", "rr-cache"].iter().any(|data| name == *data)
}

fn is_setting(name: &OsStr) -> bool {
    ["config", "config.worktree", "commondir", "gitdir", "hooks"].iter().any(|setting| name == *setting)
}

fn is_sample(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.ends_with(".sample") || name.ends_with(REFUSED)
}

fn content(path: &Path) -> Option<Content> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if metadata.is_symlink() {
        return fs::read_link(path).ok().map(Content::Link);
    }
    let bytes = if metadata.is_file() && metadata.len() <= MAX_BYTES { fs::read(path).ok()? } else { vec![] };
    Some(Content::File { bytes, mode: metadata.permissions().mode() })
}

/// Whether two repositories run the same programs, wherever they lie.
fn same(one: &Programs, other: &Programs) -> bool {
    one.values().eq(other.values())
}

fn would_run_programs(repository: &Path, programs: &Programs) -> bool {
    programs.len() >= MAX_FILES
        || programs.iter().any(|(path, content)| match content {
            Content::File { bytes, .. }
                if path.strip_prefix(repository).is_ok_and(|path| path == Path::new("config")) =>
            {
                !is_harmless(bytes)
            }
            _ => true,
        })
}

/// Whether settings are no others than git itself makes for a new repository or a clone.
fn is_harmless(config: &[u8]) -> bool {
    const KEYS: [(&str, &[&str]); 6] = [
        (
            "core",
            &[
                "repositoryformatversion",
                "filemode",
                "bare",
                "logallrefupdates",
                "ignorecase",
                "precomposeunicode",
                "symlinks",
                "autocrlf",
                "eol",
                "compression",
            ],
        ),
        ("remote", &["url", "fetch", "pushurl", "tagopt"]),
        ("branch", &["remote", "merge", "rebase"]),
        ("user", &["name", "email"]),
        ("extensions", &["objectformat", "refstorage", "partialclone"]),
        ("gc", &["auto"]),
    ];
    let Ok(config) = std::str::from_utf8(config) else { return false };
    let mut keys: &[&str] = &[];
    config.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])).all(|line| {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let name = section.split([' ', '.']).next().unwrap_or_default().to_lowercase();
            keys = KEYS.iter().find(|(known, _)| *known == name).map_or(&[], |(_, keys)| keys);
            return !keys.is_empty();
        }
        let key = line.split('=').next().unwrap_or_default().trim().to_lowercase();
        // A line that goes on could hide another behind it.
        keys.contains(&key.as_str()) && !line.ends_with('\\')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_name_programs_are_told_from_those_that_dont() {
        let harmless = [
            "",
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
            "[remote \"origin\"]\n\turl = /elsewhere\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            "[user]\n\tname = A\n\temail = a@b\n# a comment\n",
        ];
        for config in harmless {
            assert!(is_harmless(config.as_bytes()), "{config}");
        }
        let harmful = [
            "[core]\n\tfsmonitor = ./evil\n",
            "[core]\n\thooksPath = /evil\n",
            "[core] fsmonitor = ./evil\n",
            "[CORE]\n\tFSMonitor = ./evil\n",
            "[filter \"x\"]\n\tclean = evil\n",
            "[include]\n\tpath = ../evil\n",
            "[alias]\n\tst = !evil\n",
            "[diff]\n\texternal = evil\n",
            "[core]\n\tbare = false \\\n\n\tsshCommand = evil",
            "\u{feff}[core]\n\tbare = true",
            "bare = true",
        ];
        for config in harmful {
            assert!(!is_harmless(config.as_bytes()), "{config}");
        }
        assert!(!is_harmless(b"[core]\n\tbare = \xff"));
    }
}
