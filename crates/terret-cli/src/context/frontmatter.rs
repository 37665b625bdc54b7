//! What stands between two lines of `---` at the start of a Markdown file: YAML, of which only plain values matter here.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser};

/// The plain values of the outermost level, and the text behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frontmatter {
    pub(super) values: BTreeMap<String, String>,
    pub(super) body: String,
}

/// Reads a file; why it can't be read is for people. Nothing is built of what is nested or repeated by reference.
pub(super) fn read(text: &str) -> Result<Frontmatter, String> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let behind = text.strip_prefix("---\n").ok_or("it doesn't begin with a line of ---")?;
    let (yaml, body) = match behind.split_once("\n---\n") {
        Some(parts) => parts,
        None => (behind.strip_suffix("\n---").ok_or("there is no second line of ---")?, ""),
    };
    Ok(Frontmatter { values: plain_values(yaml)?, body: body.trim().to_owned() })
}

fn plain_values(yaml: &str) -> Result<BTreeMap<String, String>, String> {
    let mut values = BTreeMap::new();
    let (mut depth, mut key) = (0usize, None);
    for event in Parser::new_from_str(yaml) {
        let (event, _) = event.map_err(|error| error.to_string())?;
        match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => depth += 1,
            Event::MappingEnd | Event::SequenceEnd => {
                depth = depth.saturating_sub(1);
                // What was nested is the value of a key, and is passed over.
                if depth == 1 {
                    key = None;
                }
            }
            Event::Scalar(text, ..) if depth == 1 => match key.take() {
                None => key = Some(text.into_owned()),
                Some(key) => {
                    values.insert(key, text.into_owned());
                }
            },
            Event::Alias(_) if depth == 1 => key = None,
            _ => {}
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_are_read_and_the_rest_is_passed_over() {
        let text = "\u{feff}---\r\nname: pdf\r\ndescription: >-\r\n  Reads\r\n  \"PDF\" files.\r\nmetadata:\r\n  name: no\r\n\
                    tags: [a, b]\r\nlicense: 'MIT'\r\n---\r\n\r\n# Body\r\n---\r\nmore\r\n";
        let read = read(text).unwrap();
        let values: Vec<(&str, &str)> = read.values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(values, [("description", "Reads \"PDF\" files."), ("license", "MIT"), ("name", "pdf")]);
        assert_eq!(read.body, "# Body\n---\nmore");
    }

    #[test]
    fn what_is_no_frontmatter_is_refused() {
        for text in ["", "name: x", "---\nname: x\n", "---\nname: [x\n---\n", "---\na: b: c\n---\n"] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert_eq!(read("---\nname: x\n---").unwrap().values["name"], "x");
    }

    #[test]
    fn references_to_references_cost_nothing() {
        let mut yaml = "a0: &a0 [x, x]\n".to_owned();
        for n in 1..30 {
            yaml += &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "));
        }
        assert_eq!(read(&format!("---\n{yaml}name: x\n---\n")).unwrap().values.len(), 1);
    }
}
