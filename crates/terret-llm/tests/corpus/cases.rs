//! Where the recordings are, and what one holds.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use terret_llm::wire::WireFormat;

/// One recorded response.
pub(crate) struct Case {
    /// Its path in the corpus.
    pub(crate) name: String,
    pub(crate) format: WireFormat,
    pub(crate) status: u16,
    pub(crate) headers: Value,
    /// What is special about it.
    pub(crate) features: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Whether the body is a stream, not plain JSON.
    pub(crate) streamed: bool,
    /// The independent decoding.
    pub(crate) expected: Value,
}

/// All cases below this folder of the corpus; `None`, loudly, where there is no corpus.
pub(crate) fn cases(folder: &str) -> Option<Vec<Case>> {
    let Some(root) = root() else {
        // Past the test runner, which shows nothing that a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "\nSKIPPED corpus::{}: no recordings at ../shared/wire/dev, and TERRET_WIRE_CORPUS isn't set",
            folder.replace('-', "_")
        );
        return None;
    };
    let mut cases = Vec::new();
    collect(&root, &root.join(folder), &mut cases);
    assert!(!cases.is_empty(), "no recordings in {}", root.join(folder).display());
    Some(cases)
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

fn collect(root: &Path, folder: &Path, cases: &mut Vec<Case>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in &entries {
        if entry.is_dir() {
            collect(root, entry, cases);
        } else if let Some((turn, extension)) = response(entry) {
            cases.extend(load(root, folder, &turn, &extension));
        }
    }
}

/// Splits `turn-2.response.sse` into `turn-2.` and `sse`.
fn response(file: &Path) -> Option<(String, String)> {
    let (turn, extension) = file.file_name()?.to_str()?.split_once("response.")?;
    Some((turn.to_owned(), extension.to_owned()))
}

fn load(root: &Path, folder: &Path, turn: &str, extension: &str) -> Option<Case> {
    let file = |name: &str| fs::read(folder.join(format!("{turn}{name}"))).ok();
    let json = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
    let expected = json(file("expected.json")?);
    let meta = json(fs::read(folder.join("meta.json")).unwrap());
    let number = turn.strip_prefix("turn-").and_then(|turn| turn.strip_suffix('.')?.parse::<usize>().ok());
    let of_turn = number.map_or(&Value::Null, |number| &meta["turns"][number - 1]);
    let of_either = |key: &str| of_turn.get(key).unwrap_or(&meta[key]);
    let features = if number.is_some() { &of_turn["features"] } else { &meta["features"] };
    let texts =
        |list: &Value| list.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect();
    let name = folder.strip_prefix(root).unwrap().join(turn.trim_end_matches('.'));
    Some(Case {
        name: name.display().to_string().trim_end_matches('/').to_owned(),
        format: meta["format"].as_str().unwrap().into(),
        status: of_either("http_status").as_u64().map_or(200, |status| status.try_into().unwrap()),
        headers: of_either("response_headers").clone(),
        features: texts(features),
        body: file(&format!("response.{extension}")).unwrap(),
        streamed: extension == "sse",
        expected,
    })
}
