//! What was said before, over sessions.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::{files, places};

/// How many are remembered.
const MOST: usize = 1000;
/// How many bytes of the file are looked at.
const LARGEST: u64 = 16 << 20;

/// What was said, and which of it is in the editor.
pub(crate) struct History {
    said: Vec<String>,
    /// Which one is shown, and what was being typed before.
    at: Option<(usize, String)>,
    /// A JSON string a line, for its owner alone. None where nothing is to be kept.
    file: Option<PathBuf>,
}

impl History {
    /// What earlier sessions have left. What is said now is kept too, if it is to be.
    pub(crate) fn load(kept: bool) -> Self {
        let file = places::state().map(|folder| folder.join("history.jsonl"));
        let bytes = file.as_ref().and_then(|file| files::read(file, LARGEST).ok().flatten()).unwrap_or_default();
        let lines = String::from_utf8_lossy(&bytes);
        let mut said: Vec<String> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let file = file.filter(|_| kept);
        // The file is made shorter only when it has become much longer, and as a whole.
        let long = said.len() > 2 * MOST;
        said.drain(..said.len().saturating_sub(MOST));
        if let Some(file) = file.as_ref().filter(|_| long) {
            // It stays long, at worst.
            let _ = rewrite(file, &said);
        }
        Self { said, at: None, file }
    }

    pub(crate) fn add(&mut self, text: &str) {
        self.at = None;
        if text.trim().is_empty() || self.said.last().is_some_and(|last| last == text) {
            return;
        }
        self.said.push(text.to_owned());
        if let Some(file) = &self.file {
            // To forget it is no reason to stop.
            let _ = append(file, text);
        }
    }

    /// The one before; `now` is what is being typed.
    pub(crate) fn earlier(&mut self, now: &str) -> Option<&str> {
        let (at, typed) = match self.at.take() {
            Some((0, typed)) => {
                self.at = Some((0, typed));
                return None;
            }
            Some((at, typed)) => (at - 1, typed),
            None => (self.said.len().checked_sub(1)?, now.to_owned()),
        };
        self.at = Some((at, typed));
        self.said.get(at).map(String::as_str)
    }

    /// The one after, or at last what was being typed.
    pub(crate) fn later(&mut self) -> Option<String> {
        let (at, typed) = self.at.take()?;
        let Some(said) = self.said.get(at + 1) else { return Some(typed) };
        self.at = Some((at + 1, typed));
        Some(said.clone())
    }

    /// The last but so many that has this in it, whatever the case of its letters.
    pub(crate) fn find(&self, what: &str, passed: usize) -> Option<&str> {
        let what = what.to_lowercase();
        let mut hits: Vec<&str> = Vec::new();
        for said in self.said.iter().rev().filter(|said| said.to_lowercase().contains(&what)) {
            // What was said twice is one hit.
            if !hits.contains(&said.as_str()) {
                hits.push(said);
            }
            if hits.len() > passed {
                return Some(said);
            }
        }
        None
    }

    /// What is shown is being changed.
    pub(crate) fn leave(&mut self) {
        self.at = None;
    }
}

fn append(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let line = serde_json::to_string(text)? + "\n";
    // In one piece, so that other programs' lines stay whole.
    options.open(file)?.write_all(line.as_bytes())
}

fn rewrite(file: &Path, said: &[String]) -> io::Result<()> {
    let folder = file.parent().ok_or(io::ErrorKind::NotFound)?;
    // A temporary file is its owner's alone.
    let mut shorter = tempfile::NamedTempFile::new_in(folder)?;
    for said in said {
        writeln!(shorter, "{}", serde_json::to_string(said)?)?;
    }
    shorter.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_being_typed_comes_after_what_was_said() {
        let mut history = History { said: vec!["one".into(), "two".into()], at: None, file: None };
        assert_eq!(history.earlier("draft"), Some("two"));
        assert_eq!(history.earlier("two"), Some("one"));
        assert_eq!(history.earlier("one"), None);
        assert_eq!(history.later().as_deref(), Some("two"));
        assert_eq!(history.later().as_deref(), Some("draft"));
        assert_eq!(history.later(), None);
    }

    #[test]
    fn what_was_said_is_found_by_what_is_in_it() {
        let said = ["fix the test", "Test it", "other", "Test it"].map(String::from).to_vec();
        let history = History { said, at: None, file: None };
        assert_eq!(history.find("test", 0), Some("Test it"));
        assert_eq!(history.find("test", 1), Some("fix the test"));
        assert_eq!(history.find("test", 2), None);
        assert_eq!(history.find("nothing", 0), None);
    }
}
