//! Files with instructions, such as `AGENTS.md` ([agents.md](https://agents.md)).
//!
//! They are read without a decision about them, unlike what can run or send something: the model would read the same text
//! on its first look at the folder, and can do no more because of it. But a file of a project can be a link to anything,
//! and what it links to would be sent to a provider; so it has to lead to a file of the project.

use std::path::{Path, PathBuf};

use crate::output::shortened_folder;
use crate::project::Project;
use crate::{files, places};

/// How many bytes all files may have together; enough for some hundred lines of rules.
const LONGEST: usize = 32 << 10;

/// The longest file that is looked into, in bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instructions {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The user's file, and one of each folder of the project: the first of these names that is there.
pub(super) fn load(project: &Project, names: &[String], left_out: &mut Vec<String>) -> Vec<Instructions> {
    let names: Vec<&str> = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
    let folders = places::config().into_iter().map(|folder| (folder, None));
    let folders = folders.chain(project.folders.iter().map(|folder| (folder.clone(), project.root())));
    let mut found: Vec<Instructions> = Vec::new();
    for (folder, root) in folders {
        for name in &names {
            match read(&folder.join(name), root) {
                Ok(None) => continue,
                Ok(Some(instructions)) => {
                    if !instructions.text.is_empty() && !found.iter().any(|other| other.path == instructions.path) {
                        found.push(instructions);
                    }
                }
                Err(reason) => left_out.push(format!("not read: {}, {reason}", shown(&folder.join(name)))),
            }
            break;
        }
    }
    fit(&mut found, left_out);
    found
}

fn read(path: &Path, root: Option<&Path>) -> Result<Option<Instructions>, String> {
    let Ok(real) = path.canonicalize() else { return Ok(None) };
    if root.is_some_and(|root| !real.starts_with(root)) {
        return Err(format!("which leads out of the project, to {}", shown(&real)));
    }
    let bytes = match files::read(&real, LONGEST_FILE) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(error) => return Err(format!("which can't be read: {error}")),
    };
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_start_matches('\u{feff}').trim().replace("\r\n", "\n");
    Ok(Some(Instructions { path: real, text }))
}

/// Cuts off what is too long, the farthest first: what is nearest to the work counts most.
fn fit(found: &mut Vec<Instructions>, left_out: &mut Vec<String>) {
    let mut room = LONGEST;
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
}

fn shown(path: &Path) -> String {
    shortened_folder(&path.display().to_string())
}
