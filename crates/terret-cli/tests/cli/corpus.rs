//! Recorded conversations with real providers.
//!
//! They aren't part of this repository. They are looked for at `TERRET_WIRE_CORPUS`, else at `../shared/wire/dev` beside
//! it; without them the tests skip, and say so.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Successive turns of a recorded conversation, up to a reply that asks for no tool, or to its end.
pub(crate) struct Conversation {
    pub(crate) name: String,
    pub(crate) turns: Vec<Turn>,
}

/// A recorded response, and its independent decoding.
#[derive(Clone)]
pub(crate) struct Turn {
    pub(crate) body: Vec<u8>,
    /// Whether the body is a stream, not plain JSON.
    pub(crate) streamed: bool,
    pub(crate) expected: Value,
}

impl Turn {
    pub(crate) fn has_calls(&self) -> bool {
        self.expected["content"].as_array().unwrap().iter().any(|block| block["type"] == "toolCall")
    }
}

/// The conversations over this wire, in parts that are one run each; `None`, loudly, where there is no corpus.
pub(crate) fn conversations(format: &str) -> Option<Vec<Conversation>> {
    let Some(root) = root() else {
        // Past the test runner, which shows nothing that a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "\nSKIPPED cli::recorded {format}: no recordings at ../shared/wire/dev, and TERRET_WIRE_CORPUS isn't set"
        );
        return None;
    };
    let folders = fs::read_dir(root.join("multi-turn")).unwrap();
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let mut conversations = Vec::new();
    for folder in folders.iter().filter(|folder| json(&folder.join("meta.json"))["format"] == format) {
        let turns: Vec<Turn> = (1..).map_while(|number| turn(folder, number)).collect();
        let name = folder.file_name().unwrap().to_string_lossy();
        let parts = turns.split_inclusive(|turn| !turn.has_calls());
        conversations.extend(parts.map(|turns| Conversation { name: name.to_string(), turns: turns.to_vec() }));
    }
    assert!(conversations.iter().any(|conversation| conversation.turns.len() > 1), "no turns with tools for {format}");
    Some(conversations)
}

fn root() -> Option<PathBuf> {
    if let Some(set) = std::env::var_os("TERRET_WIRE_CORPUS") {
        let set = PathBuf::from(set);
        assert!(set.is_dir(), "TERRET_WIRE_CORPUS names {}, which is no folder", set.display());
        return Some(set);
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/wire/dev");
    beside.is_dir().then_some(beside)
}

fn turn(folder: &Path, number: usize) -> Option<Turn> {
    let file = |name: &str| folder.join(format!("turn-{number}.{name}"));
    let (body, streamed) = match fs::read(file("response.sse")) {
        Ok(body) => (body, true),
        Err(_) => (fs::read(file("response.json")).ok()?, false),
    };
    Some(Turn { body, streamed, expected: json(&file("expected.json")) })
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}
