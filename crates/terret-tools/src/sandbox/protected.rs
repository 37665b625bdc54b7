use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directories::{Directories, is_git};
use crate::workspace::{Located, OpenedUp, PathError, Target, Workspace, link_beneath, open_up, rename_beneath};

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

#[derive(Debug, Default)]
struct Found {
    places: BTreeMap<PathBuf, Programs>,
    /// What was opened up to be looked into. It is closed again with this.
    opened: Vec<OpenedUp>,
}

/// The files of one repository that make git run programs, by their paths within it; all files of what else is protected.
#[derive(Debug, Default, PartialEq, Eq)]
struct Programs {
    files: BTreeMap<PathBuf, Content>,
    /// There are more, which weren't looked at.
    too_many: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    File {
        bytes: Vec<u8>,
        mode: u32,
    },
    Link(PathBuf),
    /// What is too large to be kept, or can't be read, as program files needn't be to be run.
    Opaque {
        inode: u64,
        changed: (i64, i64),
    },
}

/// What is appended to the name of something that git must not find.
const REFUSED: &str = ".refused";

/// More of a repository isn't looked at. It counts as one that would run programs.
const MAX_FILES: usize = 10_000;

/// The largest file that is kept to be put back, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// So much is told of what was undone.
const MAX_NOTES: usize = 20;

impl Protected {
    /// Finds them. Blocks.
    pub(crate) fn look(workspace: &Workspace, directories: &Arc<Directories>) -> Self {
        let before = look(workspace, directories).places;
        Self { workspace: workspace.clone(), directories: Arc::clone(directories), before }
    }

    /// Each `.git`, at whatever depth, and what else must stay as it is.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.before.keys().cloned().collect()
    }

    /// Undoes what must not stay, and says what that was. Blocks.
    pub(crate) fn undo(self) -> Vec<String> {
        let after = look(&self.workspace, &self.directories);
        let mut notes = Vec::new();
        let (before, after) = (&self.before, &after.places);
        let gone: Vec<&Programs> =
            before.iter().filter(|(path, _)| !after.contains_key(*path)).map(|(_, programs)| programs).collect();
        for (repository, programs) in after {
            match before.get(repository) {
                Some(before) if programs.too_many && !before.too_many => self.refuse(
                    repository,
                    "holds more files than can be looked at that make git run programs",
                    &mut notes,
                ),
                Some(before) => self.restore(repository, before, programs, &mut notes),
                // Somebody has moved it.
                None if gone.contains(&programs) => {}
                None if !is_git(repository.file_name().unwrap_or_default()) => {
                    self.refuse(repository, "is protected, and was made by the command", &mut notes);
                }
                None if would_run_programs(programs) => self.refuse(
                    repository,
                    "is a new git repository that would run programs of its own (hooks, or settings that name some)",
                    &mut notes,
                ),
                None => {}
            }
        }
        if notes.len() > MAX_NOTES {
            let more = notes.len() - MAX_NOTES;
            notes.truncate(MAX_NOTES);
            notes.push(format!("So it was with {more} more"));
        }
        notes
    }

    /// Takes away what is new first: it may stand in the way of what was there.
    fn restore(&self, repository: &Path, before: &Programs, after: &Programs, notes: &mut Vec<String>) {
        for path in after.files.keys().filter(|path| !before.files.contains_key(*path)) {
            self.refuse(&within(repository, path), "is protected, because programs are run by it", notes);
        }
        for (path, content) in &before.files {
            let now = after.files.get(path);
            if now == Some(content) {
                continue;
            }
            let path = within(repository, path);
            let located = Located { base: repository.to_owned(), ..self.located(&path) };
            let restored = match content {
                Content::Link(to) => link_beneath(&located, to),
                Content::File { bytes, mode } => put_back(&located, bytes, *mode),
                Content::Opaque { .. } if now.is_some() => {
                    self.refuse(&path, "was changed by the command, and can't be put back", notes);
                    continue;
                }
                Content::Opaque { .. } => {
                    notes.push(format!("{} was removed by the command, and can't be put back", located.shown));
                    continue;
                }
            };
            let shown = &located.shown;
            notes.push(match restored {
                Ok(()) => format!("{shown} was changed by the command, and is as before again: it is protected"),
                Err(error) => format!("{shown} was changed by the command, and could not be put back: {error}"),
            });
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

fn put_back(located: &Located, bytes: &[u8], mode: u32) -> Result<(), PathError> {
    let target = Target::open(located, true)?;
    let existing = target.existing().unwrap_or_default();
    target.replace(bytes, existing.as_ref(), || true)?;
    // The bits of a hook matter; a directory that was swapped meanwhile is none of ours to follow.
    let _ = crate::workspace::set_mode(located, mode);
    Ok(())
}

/// A file of a repository; the repository itself, which may be a file or a link.
fn within(repository: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { repository.to_owned() } else { repository.join(path) }
}

fn look(workspace: &Workspace, directories: &Directories) -> Found {
    let mut found = Found::default();
    if !workspace.may_write() {
        return found;
    }
    for path in workspace.extra_read_only().filter(|path| path.symlink_metadata().is_ok()) {
        let programs = Programs::of(path, true, &mut found.opened);
        found.places.insert(path.clone(), programs);
    }
    // A permission for a repository itself, or for something in it, is a permission to change it.
    let permitted: Vec<&PathBuf> = workspace.extra_writable().filter(|path| path.iter().any(is_git)).collect();
    let roots = workspace.extra_writable().filter(|path| !permitted.contains(path));
    let roots = std::iter::once(workspace.root()).chain(roots.map(PathBuf::as_path));
    let (repositories, opened) = directories.repositories(roots);
    found.opened.extend(opened);
    for path in repositories {
        if !permitted.iter().any(|permitted| path.starts_with(permitted) || permitted.starts_with(&path)) {
            let programs = Programs::of(&path, false, &mut found.opened);
            found.places.insert(path, programs);
        }
    }
    found
}

impl Programs {
    /// All files of a directory, or what in a repository makes git run programs: its settings and hooks, those of its
    /// submodules and other working trees, what points to another repository, and commands of a rebase that was begun.
    fn of(place: &Path, all: bool, opened: &mut Vec<OpenedUp>) -> Self {
        let mut programs = Self::default();
        let mut directories = Vec::new();
        match fs::symlink_metadata(place) {
            Ok(metadata) if metadata.is_dir() => directories.push((place.to_owned(), all)),
            _ => programs.files.extend(Content::of(place).map(|content| (PathBuf::new(), content))),
        }
        while let Some((directory, in_hooks)) = directories.pop() {
            let entries = match fs::read_dir(&directory) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => open_up(&directory).and_then(|up| {
                    opened.push(up);
                    fs::read_dir(&directory)
                }),
                entries => entries,
            };
            for entry in entries.into_iter().flatten().filter_map(Result::ok) {
                let (name, path) = (entry.file_name(), entry.path());
                let Ok(inside) = path.strip_prefix(place).map(Path::to_owned) else { continue };
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_directory {
                    if in_hooks || !is_data(&inside) {
                        directories.push((path, in_hooks || name == "hooks"));
                    }
                } else if in_hooks && !is_sample(&name)
                    || is_setting(&name)
                    || name == "git-rebase-todo" && runs_commands(&path)
                {
                    programs.too_many |= programs.files.len() >= MAX_FILES;
                    if programs.too_many {
                        return programs;
                    }
                    programs.files.extend(Content::of(&path).map(|content| (inside, content)));
                }
            }
        }
        programs
    }
}

/// Whether a directory of a repository holds nothing but data. Submodules and other working trees have names of any kind.
fn is_data(inside: &Path) -> bool {
    let has_any_name = inside.iter().next().is_some_and(|first| first == "modules" || first == "worktrees");
    let name = inside.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if !has_any_name {
        return ["objects", "refs", "logs", "lfs", "annex", "rr-cache"].contains(&name);
    }
    let in_objects = inside.parent().is_some_and(|parent| parent.ends_with("objects"));
    in_objects && (name == "pack" || (name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit())))
}

fn is_setting(name: &OsStr) -> bool {
    ["config", "config.worktree", "commondir", "gitdir", "hooks"].iter().any(|setting| name == *setting)
}

fn is_sample(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.ends_with(".sample") || name.ends_with(REFUSED)
}

/// Whether the plan of a rebase runs commands when it goes on.
fn runs_commands(plan: &Path) -> bool {
    match Content::of(plan) {
        Some(Content::File { bytes, .. }) => String::from_utf8_lossy(&bytes)
            .lines()
            .any(|line| matches!(line.split_ascii_whitespace().next(), Some("exec" | "x"))),
        content => content.is_some(),
    }
}

impl Content {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path).ok()?;
        if metadata.is_symlink() {
            return fs::read_link(path).ok().map(Content::Link);
        }
        let opaque = Content::Opaque { inode: metadata.ino(), changed: (metadata.ctime(), metadata.ctime_nsec()) };
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return Some(opaque);
        }
        Some(match fs::read(path) {
            Ok(bytes) => Content::File { bytes, mode: metadata.permissions().mode() },
            Err(_) => opaque,
        })
    }
}

fn would_run_programs(programs: &Programs) -> bool {
    programs.too_many
        || programs.files.iter().any(|(path, content)| match content {
            Content::File { bytes, .. } if path == Path::new("config") => !is_harmless(bytes),
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
            let (name, part) = section.split_once(' ').unwrap_or((section, "\"\""));
            let part = part.trim().strip_prefix('"').and_then(|part| part.strip_suffix('"'));
            // What looks like the end of the section may be the end of a comment behind a setting.
            let is_all = name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
                && part.is_some_and(|part| !part.contains('"'));
            let name = name.split('.').next().unwrap_or_default().to_lowercase();
            keys = KEYS.iter().find(|(known, _)| is_all && *known == name).map_or(&[], |(_, keys)| keys);
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
            "[remote \"origin\"] uploadpack = evil #]\n",
            "[remote \"a\"] uploadpack = \"evil\" # [remote \"b\"]\n",
            "[remote.origin] uploadpack = evil ;]\n",
            "[remote.origin]uploadpack=evil;\"\"]\n",
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
