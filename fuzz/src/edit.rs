//! The matching of edits, which is private to its tool: an exact text that is unique is replaced, and nothing else changes.

#![allow(dead_code, reason = "the tool uses more of it")]

#[path = "../../crates/terret-tools/src/edit/apply.rs"]
mod apply;
#[path = "../../crates/terret-tools/src/edit/nearest.rs"]
mod nearest;
#[path = "../../crates/terret-tools/src/edit/view.rs"]
mod view;

use arbitrary::Unstructured;

use self::apply::{Applied, EditError, apply};

pub(crate) fn check(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok((file, edits)) = case(&mut data) else { return };
    let edits: Vec<(&str, &str)> = edits.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
    let outcome = apply(&file, &edits);
    match &outcome {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            refused_rightly(&file, &edits, error);
        }
        Ok(applied) => {
            assert_eq!(applied.lines.len(), edits.len());
            let lines = file.iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!(applied.lines.iter().all(|line| (1..=lines).contains(line)));
            let (from, to) = (String::from_utf8_lossy(&file), String::from_utf8_lossy(&applied.content));
            assert!(is_explained(&file, &applied.content, &edits), "{from:?} became {to:?} by {edits:?}");
        }
    }
    // In whatever order: each edit is looked for in the file as it was.
    let backwards: Vec<(&str, &str)> = edits.iter().rev().copied().collect();
    match (&outcome, apply(&file, &backwards)) {
        (Ok(Applied { content, .. }), Ok(other)) => assert_eq!(content, &other.content),
        (Err(_), Err(_)) => {}
        (one, other) => panic!("in order {one:?}, backwards {other:?}"),
    }
}

/// A file, and what is to be replaced by what.
type Case = (Vec<u8>, Vec<(String, String)>);

/// A file of few kinds of bytes, and edits that mostly are for something in it.
fn case(data: &mut Unstructured<'_>) -> arbitrary::Result<Case> {
    let file = pieces(data, 60)?;
    let mut edits = Vec::new();
    for _ in 0..data.int_in_range(0..=3)? {
        let old = if data.ratio(3, 4)? {
            let from = data.int_in_range(0..=file.len())?;
            let to = data.int_in_range(from..=file.len())?;
            let old = String::from_utf8_lossy(&file[from..to]).into_owned();
            match data.int_in_range(0..=4)? {
                0 => old.replace("\r\n", "\n"),
                1 => old.replace(['\u{2019}', '\u{2018}'], "'").replace('\u{a0}', " "),
                2 => old.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"),
                _ => old,
            }
        } else {
            String::from_utf8_lossy(&pieces(data, 8)?).into_owned()
        };
        edits.push((old, String::from_utf8_lossy(&pieces(data, 6)?).into_owned()));
    }
    Ok((file, edits))
}

fn pieces(data: &mut Unstructured<'_>, most: usize) -> arbitrary::Result<Vec<u8>> {
    const PIECES: [&[u8]; 20] = [
        b"a",
        b"b",
        b"c",
        b"d",
        b" ",
        b"\t",
        b"\n",
        b"\r\n",
        b"\r",
        b"'",
        b"\"",
        b"-",
        b"\xff",
        b"\xe2\x80",
        "\u{2019}".as_bytes(),
        "\u{201c}".as_bytes(),
        "\u{2014}".as_bytes(),
        "\u{a0}".as_bytes(),
        "\u{3000}".as_bytes(),
        "é".as_bytes(),
    ];
    let count = data.int_in_range(0..=most)?;
    (0..count).map(|_| data.choose(&PIECES).copied()).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
}

fn refused_rightly(file: &[u8], edits: &[(&str, &str)], error: &EditError) {
    let exact = |index: usize| {
        let old = edits[index].0.as_bytes();
        (0..file.len()).filter(|at| file[*at..].starts_with(old)).count()
    };
    match error {
        EditError::Empty(index) => assert!(edits[*index].0.is_empty()),
        EditError::NotFound { index, .. } => assert_eq!(exact(*index), 0),
        EditError::Ambiguous { index, lines, .. } => {
            assert_ne!(exact(*index), 1);
            assert!(!lines.is_empty());
        }
        EditError::Overlap(one, other) => assert!(one < other && *other < edits.len()),
        EditError::NoChange => {}
    }
}

/// Whether the content is the file with a stretch that resembles each old text replaced by its new text.
fn is_explained(file: &[u8], content: &[u8], edits: &[(&str, &str)]) -> bool {
    if edits.is_empty() {
        return file == content;
    }
    (0..edits.len()).any(|index| {
        let (old, new) = edits[index];
        let others: Vec<(&str, &str)> =
            edits.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, edit)| *edit).collect();
        let news = [new.to_owned(), new.replace("\r\n", "\n"), new.replace("\r\n", "\n").replace('\n', "\r\n")];
        // This edit is the first one: what stands before it stands in both.
        (0..=file.len()).take_while(|start| content.starts_with(&file[..*start])).any(|start| {
            (start..=file.len()).filter(|end| resembles(&file[start..*end], old, *end == file.len())).any(|end| {
                news.iter().any(|new| {
                    content[start..]
                        .strip_prefix(new.as_bytes())
                        .is_some_and(|after| is_explained(&file[end..], after, &others))
                })
            })
        })
    })
}

fn resembles(stretch: &[u8], old: &str, at_the_end: bool) -> bool {
    let (stretch, old) = (plain(stretch), plain(old.as_bytes()));
    stretch == old || at_the_end && [stretch, b"\n".to_vec()].concat() == old
}

/// A text with everything overlooked, by the simplest means.
fn plain(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    for (typographic, ascii) in
        [("\r\n", "\n"), ("\u{2019}", "'"), ("\u{201c}", "\""), ("\u{2014}", "-"), ("\u{a0}", " "), ("\u{3000}", " ")]
    {
        text = replaced(&text, typographic.as_bytes(), ascii.as_bytes());
    }
    let trim = |line: &[u8]| {
        let end = line.iter().rposition(|byte| !b" \t".contains(byte)).map_or(0, |last| last + 1);
        line[..end].to_vec()
    };
    text.split(|byte| *byte == b'\n').map(trim).collect::<Vec<_>>().join(&b'\n')
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let (mut rest, mut replaced) = (text, Vec::new());
    while let Some(at) = memchr::memmem::find(rest, from) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    [replaced.as_slice(), rest].concat()
}
