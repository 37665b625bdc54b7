//! The embedded list.
//!
//! Its text is JSON with one model on a line, in the order of their names. So a look-up is a binary search that reads the
//! names of about ten lines and parses one of them, and nothing is parsed or indexed before.

use memchr::{memchr, memrchr};

use super::ModelFacts;

#[cfg(feature = "catalog")]
const TEXT: &str = include_str!("catalog.json");
#[cfg(not(feature = "catalog"))]
const TEXT: &str = "";

/// What is known about the model of this name, `provider/model`.
pub(super) fn find(name: &str) -> Option<ModelFacts> {
    let line = search(models(), name)?;
    // A test reads every line.
    serde_json::from_str(line).ok()
}

/// All names, in order.
pub(super) fn names<'a>() -> impl Iterator<Item = &'a str> {
    models().lines().filter_map(|line| Some(split(line)?.0))
}

/// The lines with models; above them stands where they come from.
fn models() -> &'static str {
    TEXT.split_once("\"models\":{\n").map_or("", |(_, models)| models)
}

/// The value on the line with this name.
fn search<'a>(lines: &'a str, name: &str) -> Option<&'a str> {
    let (mut low, mut high) = (0, lines.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let bytes = lines.as_bytes();
        let start = memrchr(b'\n', bytes.get(low..middle)?).map_or(low, |before| low + before + 1);
        let end = memchr(b'\n', bytes.get(middle..high)?).map_or(high, |after| middle + after);
        match split(lines.get(start..end)?) {
            Some((found, value)) if found == name => return Some(value),
            Some((found, _)) if found < name => low = end + 1,
            // The lines that close the list hold no name and stand behind all names.
            _ => high = start,
        }
    }
    None
}

/// A line's name and its value. Names hold nothing that JSON escapes.
fn split(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix('"')?.split_once("\":")?;
    Some((name, value.trim_end_matches(',')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_name() {
        let lines = "\"a\":1,\n\"a-b\":2,\n\"a/b\":3,\n\"é\":4,\n\"ü\":5\n}}\n";
        for (name, value) in [("a", "1"), ("a-b", "2"), ("a/b", "3"), ("é", "4"), ("ü", "5")] {
            assert_eq!(search(lines, name), Some(value), "{name}");
        }
        for name in ["", "0", "a-", "a-c", "b", "z", "ÿ", "}}"] {
            assert_eq!(search(lines, name), None, "{name:?}");
        }
        assert_eq!(search("", "a"), None);
    }

    #[cfg(feature = "catalog")]
    #[test]
    fn every_model_is_found_as_a_json_reader_finds_it() {
        #[derive(serde::Deserialize)]
        struct Whole {
            models: std::collections::BTreeMap<String, ModelFacts>,
        }
        let whole: Whole = serde_json::from_str(TEXT).unwrap();
        assert!(whole.models.len() > 500, "{}", whole.models.len());
        // As many lines as names: none stands twice, and all are in order.
        assert_eq!(names().collect::<Vec<_>>(), whole.models.keys().collect::<Vec<_>>());
        for (name, facts) in &whole.models {
            assert_eq!(find(name).as_ref(), Some(facts), "{name}");
        }
    }
}
