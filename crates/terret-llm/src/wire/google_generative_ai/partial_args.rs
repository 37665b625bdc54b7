//! Arguments that come in pieces, each of which names its place by a JSONPath.
//!
//! Vertex AI sends them when a request asks for `streamFunctionCallArguments`. The model writes its arguments from left
//! to right, so that the JSON text can be written as the pieces come, and is cut where they are.

use std::collections::HashSet;
use std::iter::zip;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lossy::{Fragment, Lossy};

/// Deeper arguments are refused, as JSON parsers do.
const MAX_DEPTH: usize = 128;

/// One piece: a value, or a part of a string, and where it belongs.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PartialArg<'a> {
    #[serde(borrow)]
    json_path: Option<Lossy<'a>>,
    #[serde(borrow)]
    string_value: Option<Fragment<'a>>,
    #[serde(borrow)]
    number_value: Option<&'a RawValue>,
    bool_value: Option<bool>,
    /// More of this string follows.
    will_continue: Option<bool>,
}

/// Turns pieces into the text of one JSON object, which begins with [`START`](Self::START).
#[derive(Debug)]
pub(super) struct ArgumentsWriter {
    /// The containers that are open, outermost first.
    open: Vec<Container>,
    /// Where the last value stands: one step for each open container. Empty before the first value.
    path: Vec<Step>,
    /// The same as it was told.
    path_text: String,
    in_string: bool,
    /// A piece came that doesn't fit. The text stays cut, so that nobody can take it for the arguments.
    lost: bool,
    /// What the last piece has added.
    text: String,
}

#[derive(Debug)]
enum Container {
    Object { keys: HashSet<String> },
    Array { len: usize },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl PartialArg<'_> {
    fn is_empty(&self) -> bool {
        self.string_value.is_none() && self.number_value.is_none() && self.bool_value.is_none()
    }
}

impl Default for ArgumentsWriter {
    fn default() -> Self {
        let arguments = Container::Object { keys: HashSet::new() };
        Self {
            open: vec![arguments],
            path: Vec::new(),
            path_text: String::new(),
            in_string: false,
            lost: false,
            text: String::new(),
        }
    }
}

impl ArgumentsWriter {
    /// What the text begins with. Written before any piece has come, so that a call which is cut off there isn't taken
    /// for one without arguments.
    pub(super) const START: &str = "{";

    /// The text that this piece adds.
    pub(super) fn push(&mut self, piece: &PartialArg<'_>) -> &str {
        self.text.clear();
        if !self.lost {
            let path = piece.json_path.as_deref().unwrap_or_default();
            if self.write(path, piece).is_none() {
                self.lost = true;
                self.text.push('?');
                self.text.push_str(path);
            }
        }
        &self.text
    }

    /// The text that ends the arguments: the call is complete.
    pub(super) fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.lost {
            self.end_string();
            self.close_to(0);
        }
        &self.text
    }

    /// `None` if the piece doesn't continue what was written.
    fn write(&mut self, path: &str, piece: &PartialArg<'_>) -> Option<()> {
        let goes_on = self.in_string && path == self.path_text && piece.string_value.is_some();
        if !goes_on {
            let steps = parse_path(path)?;
            if steps == self.path && piece.is_empty() {
                // Says no more than that the value is complete.
                self.end_string();
                return Some(());
            }
            self.end_string();
            self.go_to(steps)?;
            path.clone_into(&mut self.path_text);
            if piece.string_value.is_some() {
                self.text.push('"');
                self.in_string = true;
            }
        }
        match (&piece.string_value, piece.number_value, piece.bool_value) {
            (Some(string), ..) => self.write_string(string)?,
            (None, Some(number), _) => self.text.push_str(number.get()),
            (None, None, Some(bool)) => self.text.push_str(if bool { "true" } else { "false" }),
            (None, None, None) => self.text.push_str("null"),
        }
        if piece.will_continue != Some(true) {
            self.end_string();
        }
        Some(())
    }

    /// A part of a string. Halves of a pair that was cut are written as escapes, which join with their other half.
    fn write_string(&mut self, Fragment { low, text, high }: &Fragment<'_>) -> Option<()> {
        let escape = |half: &u16| format!("\\u{half:04x}");
        self.text.extend(low.as_ref().map(escape));
        let quoted = serde_json::to_string(text).ok()?;
        self.text.push_str(quoted.strip_prefix('"')?.strip_suffix('"')?);
        self.text.extend(high.as_ref().map(escape));
        Some(())
    }

    fn end_string(&mut self) {
        if std::mem::take(&mut self.in_string) {
            self.text.push('"');
        }
    }

    fn close_to(&mut self, depth: usize) {
        for container in self.open.drain(depth.min(self.open.len())..).rev() {
            self.text.push(match container {
                Container::Object { .. } => '}',
                Container::Array { .. } => ']',
            });
        }
    }

    /// Closes and opens containers until a value can be written at `steps`.
    fn go_to(&mut self, steps: Vec<Step>) -> Option<()> {
        let common = zip(&self.path, &steps).take_while(|(old, new)| old == new).count();
        if steps.len() > MAX_DEPTH || common == steps.len() || (common == self.path.len() && common > 0) {
            return None;
        }
        self.close_to(common + 1);
        for (depth, step) in steps.iter().enumerate().skip(common) {
            if depth == self.open.len() {
                let (container, bracket) = match step {
                    Step::Key(_) => (Container::Object { keys: HashSet::new() }, '{'),
                    Step::Index(_) => (Container::Array { len: 0 }, '['),
                };
                self.open.push(container);
                self.text.push(bracket);
            }
            match (self.open.last_mut()?, step) {
                (Container::Object { keys }, Step::Key(key)) => {
                    if !keys.is_empty() {
                        self.text.push(',');
                    }
                    if !keys.insert(key.clone()) {
                        return None;
                    }
                    self.text.push_str(&serde_json::to_string(key).ok()?);
                    self.text.push(':');
                }
                (Container::Array { len }, Step::Index(index)) if index == len => {
                    if *len > 0 {
                        self.text.push(',');
                    }
                    *len += 1;
                }
                _ => return None,
            }
        }
        self.path = steps;
        Some(())
    }
}

/// `$.name[0]['other name']` as steps ([RFC 9535](https://www.rfc-editor.org/rfc/rfc9535)); at least one, of which the
/// first is a key, because arguments are an object.
fn parse_path(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at(end);
            steps.push(Step::Key(name.to_owned()));
            rest = after;
        } else {
            let inner = rest.strip_prefix('[')?;
            if let Some(quote) = inner.chars().next().filter(|first| matches!(first, '\'' | '"')) {
                let (name, after) = quoted(inner.get(1..)?, quote)?;
                steps.push(Step::Key(name));
                rest = after.strip_prefix(']')?;
            } else {
                let (index, after) = inner.split_once(']')?;
                steps.push(Step::Index(index.parse().ok()?));
                rest = after;
            }
        }
    }
    matches!(steps.first(), Some(Step::Key(_))).then_some(steps)
}

/// The string up to the closing quote, and what follows it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut json = String::from('"');
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                (_, '\'') => json.push('\''),
                (_, escaped) => json.extend(['\\', escaped]),
            },
            c if c == quote => {
                json.push('"');
                let name: Lossy<'_> = serde_json::from_str(&json).ok()?;
                return Some((name.into_string(), text.get(at + 1..)?));
            }
            '"' => json.push_str("\\\""),
            c => json.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text before and after the end of the call.
    fn written(pieces: &[&str]) -> (String, String) {
        let mut writer = ArgumentsWriter::default();
        let mut text = ArgumentsWriter::START.to_owned();
        for json in pieces {
            text.push_str(writer.push(&serde_json::from_str(json).unwrap()));
        }
        let end = writer.finish();
        (text.clone(), text + end)
    }

    #[test]
    fn pieces_become_json_as_they_come() {
        for (pieces, cut, whole) in [
            (&[][..], "{", "{}"),
            (&[r#"{"jsonPath":"$.n","numberValue":1.50}"#][..], r#"{"n":1.50"#, r#"{"n":1.50}"#),
            (&[r#"{"jsonPath":"$.b","boolValue":true}"#], r#"{"b":true"#, r#"{"b":true}"#),
            (&[r#"{"jsonPath":"$.z","nullValue":null}"#], r#"{"z":null"#, r#"{"z":null}"#),
            (
                &[
                    r#"{"jsonPath":"$.s","stringValue":"a\"","willContinue":true}"#,
                    r#"{"jsonPath":"$.s","stringValue":"é\n","willContinue":true}"#,
                ],
                r#"{"s":"a\"é\n"#,
                r#"{"s":"a\"é\n"}"#,
            ),
            (
                &[
                    r#"{"jsonPath":"$.s","stringValue":"a","willContinue":true}"#,
                    r#"{"jsonPath":"$.s"}"#,
                    r#"{"jsonPath":"$.t","stringValue":"b"}"#,
                    r#"{"jsonPath":"$.n","numberValue":1,"willContinue":true}"#,
                    r#"{"jsonPath":"$.n"}"#,
                ],
                r#"{"s":"a","t":"b","n":1"#,
                r#"{"s":"a","t":"b","n":1}"#,
            ),
            (
                &[
                    r#"{"jsonPath":"$.a[0].x","numberValue":1}"#,
                    r#"{"jsonPath":"$.a[0].y[0][0]","numberValue":2}"#,
                    r#"{"jsonPath":"$.a[1].x","numberValue":3}"#,
                    r#"{"jsonPath":"$['b.c']['it\\'s \"d\"']","numberValue":4}"#,
                ],
                r#"{"a":[{"x":1,"y":[[2]]},{"x":3}],"b.c":{"it's \"d\"":4"#,
                r#"{"a":[{"x":1,"y":[[2]]},{"x":3}],"b.c":{"it's \"d\"":4}}"#,
            ),
        ] {
            assert_eq!(written(pieces), (cut.to_owned(), whole.to_owned()), "{pieces:?}");
        }
    }

    #[test]
    fn pieces_that_do_not_fit_leave_text_that_is_not_json() {
        let one = r#"{"jsonPath":"$.a.b","numberValue":1}"#;
        for second in ["$.a.b", "$.a", "$.a.b.c", "$.a[0]", "$.c[1]", "$", "", "a", "$.c[x]", "$.c['d", "$[0]"] {
            let piece = format!(r#"{{"jsonPath":{second:?},"numberValue":2}}"#);
            for pieces in [&[one, &piece][..], &[one, &piece, r#"{"jsonPath":"$.z","numberValue":3}"#]] {
                let (_, whole) = written(pieces);
                assert!(serde_json::from_str::<serde_json::Value>(&whole).is_err(), "{second}: {whole}");
            }
        }
        let string = r#"{"jsonPath":"$.s","stringValue":"a","willContinue":true}"#;
        let (_, whole) = written(&[string, r#"{"jsonPath":"$.s","numberValue":2}"#]);
        assert!(serde_json::from_str::<serde_json::Value>(&whole).is_err(), "{whole}");
        let back = r#"{"jsonPath":"$.c","numberValue":2}"#;
        let (_, whole) = written(&[one, back, r#"{"jsonPath":"$.a.d","numberValue":3}"#]);
        assert!(serde_json::from_str::<serde_json::Value>(&whole).is_err(), "{whole}");
        let deep = format!(r#"{{"jsonPath":"${}","numberValue":2}}"#, ".a".repeat(200_000));
        assert!(serde_json::from_str::<serde_json::Value>(&written(&[&deep]).1).is_err());
    }
}
