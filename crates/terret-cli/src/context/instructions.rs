//! Files with instructions, such as `AGENTS.md` ([agents.md](https://agents.md)).
//!
//! They are read without a decision about them, unlike what can run or send something: the model would read the same text
//! on its first look at the folder, and can do no more because of it. But a file of a project can be a link to anything,
//! and what it links to would be sent to a provider; so it has to lead to a file of the project.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::output::shortened_folder;
use crate::project::Project;
use crate::{files, places};

/// How many bytes all files may have together; enough for some hundred lines of rules.
pub(super) const LONGEST: usize = 32 << 10;

/// The longest file that is looked into, in bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instructions {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<instructions from=\"{}\">\n{}\n</instructions>", self.path.display(), self.text)
    }
}

/// How deep files may import each other.
const DEEPEST: usize = 5;

/// The user's file, and one of each folder of the project: the first of these names that is there.
pub(super) fn load(project: &Project, names: &[String], left_out: &mut Vec<String>) -> Vec<Instructions> {
    let folders = places::config().into_iter().map(|folder| (folder, None));
    let folders = folders.chain(project.folders.iter().map(|folder| (folder.clone(), project.root())));
    let mut reading = Reading::default();
    for (folder, root) in folders {
        reading.folder(&folder, root, names);
    }
    left_out.append(&mut reading.left_out);
    fit(&mut reading.found, LONGEST, left_out);
    reading.found
}

/// What is found while files are read, each once.
#[derive(Default)]
pub(super) struct Reading {
    seen: HashSet<PathBuf>,
    pub(super) found: Vec<Instructions>,
    /// What was left out, and why.
    pub(super) left_out: Vec<String>,
}

impl Reading {
    /// Goes on where some were read.
    pub(super) fn after(before: &[Instructions]) -> Self {
        Self { seen: before.iter().map(|it| it.path.clone()).collect(), ..Self::default() }
    }

    /// The first of these names that is in a folder; what it imports stands before it. A file of a project has to lead to
    /// one below the root.
    pub(super) fn folder(&mut self, folder: &Path, root: Option<&Path>, names: &[String]) {
        let names = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        let mut paths = names.map(|name| folder.join(name));
        if let Some(path) = paths.find(|path| path.canonicalize().is_ok()) {
            self.file(&path, root, DEEPEST);
        }
    }

    fn file(&mut self, path: &Path, root: Option<&Path>, depth: usize) {
        let text = match read(path, root) {
            Ok(None) => return,
            Ok(Some(read)) if !self.seen.insert(read.path.clone()) => return,
            Ok(Some(read)) => read,
            Err(reason) => return self.left_out.push(format!("not read: {}, {reason}", shown(path))),
        };
        let folder = text.path.parent().unwrap_or(Path::new("/"));
        if let Some(depth) = depth.checked_sub(1) {
            imports(&text.text)
                .filter_map(|name| imported(folder, name))
                .for_each(|path| self.file(&path, root, depth));
        }
        if !text.text.is_empty() {
            self.found.push(text);
        }
    }
}

fn read(path: &Path, root: Option<&Path>) -> Result<Option<Instructions>, String> {
    let Ok(real) = path.canonicalize() else { return Ok(None) };
    if root.is_some_and(|root| !real.starts_with(root)) {
        return Err(format!("which leads out of the project, to {}", shown(&real)));
    }
    let bytes = match files::read_judged(&real, LONGEST_FILE) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(error) => return Err(format!("which can't be read: {error}")),
    };
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_start_matches('\u{feff}').trim().replace("\r\n", "\n");
    Ok(Some(Instructions { path: real, text }))
}

/// What a text names as `@path`, at the start of a word and outside of code.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    let prose = text.lines().filter(move |line| {
        let line = line.trim_start();
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    let pieces = prose.flat_map(|line| line.split('`').step_by(2));
    pieces.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix('@')).filter(|name| !name.is_empty())
}

/// The file that is meant, if there is one; `@` stands before much else. Hidden files hold settings and keys, and are not
/// meant.
fn imported(folder: &Path, name: &str) -> Option<PathBuf> {
    let trimmed = name.trim_end_matches(['.', ',', ';', ':', ')', '!', '?']);
    [name, trimmed].into_iter().find_map(|name| {
        let path = folder.join(places::typed(name));
        let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        (!is_hidden && path.is_file()).then_some(path)
    })
}

/// Cuts off what is longer together than the room, in bytes, the farthest first: what is nearest to the work counts most.
/// Returns the room that is left.
pub(super) fn fit(found: &mut Vec<Instructions>, mut room: usize, left_out: &mut Vec<String>) -> usize {
    for instructions in found.iter_mut().rev() {
        let length = instructions.text.len();
        if length > room {
            let end = instructions.text.floor_char_boundary(room);
            instructions.text.truncate(end);
            left_out.push(format!(
                "cut: {} has {length} bytes, of which {end} fit (all such files together may have {LONGEST})",
                shown(&instructions.path)
            ));
        }
        room -= instructions.text.len();
    }
    found.retain(|instructions| !instructions.text.is_empty());
    room
}

fn shown(path: &Path) -> String {
    shortened_folder(&path.display().to_string())
}
