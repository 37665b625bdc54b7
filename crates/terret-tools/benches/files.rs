//! `edit`, `read` and `write` on files of 1 to 10 MB: whether the work grows as the file does, and what it is beside reading
//! a file and putting another in its place.
//!
//! `cargo bench -p terret-tools --bench files`

#![allow(clippy::indexing_slicing, clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

mod cost;

use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use terret_agent::{FnTool, Tool as _, ToolContext, ToolError};
use terret_tools::{Workspace, edit, read, write};

use self::cost::{Cost, median};

const SIZES: [usize; 4] = [1_000_000, 2_500_000, 5_000_000, 10_000_000];
const ROUNDS: usize = 9;

/// A file, and what is done to it.
struct Case {
    name: &'static str,
    content: fn(usize) -> Vec<u8>,
    arguments: fn(&[u8]) -> Value,
    fails: bool,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // In memory where that can be had: what a disk takes to sync isn't the question.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let workspace = Workspace::new(folder.path()).unwrap();
    let file = folder.path().join("file");
    println!(
        "{:<42} {:>7} {:>7} {:>7} {:>7} {:>8} {:>13} {:>18}",
        "CPU, ms per MB", "1 MB", "2.5 MB", "5 MB", "10 MB", "10 : 1", "to the floor", "10 MB, ms of wall"
    );
    for (tool, cases) in [(edit(&workspace), EDITS), (read(&workspace), READS), (write(&workspace), WRITES)] {
        for case in cases {
            let (mut costs, mut floor, mut walls) = (Vec::new(), Vec::new(), Vec::new());
            for size in SIZES {
                let content = (case.content)(size);
                let arguments = (case.arguments)(&content);
                let (mut ours, mut theirs, mut wall) = (Vec::new(), Vec::new(), Vec::new());
                for round in 0..=ROUNDS {
                    std::fs::write(&file, &content).unwrap();
                    let (answer, cost) = Cost::of(|| runtime.block_on(call(&tool, &arguments)));
                    assert_eq!(answer.is_err(), case.fails, "{}: {answer:?}", case.name);
                    let ((), least) = Cost::of(|| replace(&file, &content));
                    // The first one fills caches.
                    if round > 0 {
                        ours.push(cost.cpu);
                        theirs.push(cost.cpu / least.cpu);
                        wall.push(cost.wall);
                    }
                }
                costs.push(median(ours) / (size as f64 / 1e6));
                floor.push(median(theirs));
                walls.push(median(wall));
            }
            print!("{:<42}", case.name);
            costs.iter().for_each(|cost| print!(" {cost:>7.2}"));
            println!(" {:>8.2} {:>13.2} {:>18.1}", costs[3] / costs[0], floor[3], walls[3]);
        }
    }
}

/// The floor: reads a file, and puts another one in its place.
fn replace(file: &Path, content: &[u8]) {
    let bytes = std::fs::read(file).unwrap();
    assert_eq!(bytes.is_empty(), content.is_empty());
    let beside = file.with_extension("new");
    let mut new = std::fs::File::create(&beside).unwrap();
    new.write_all(content).unwrap();
    new.sync_data().unwrap();
    std::fs::rename(beside, file).unwrap();
}

async fn call(tool: &FnTool, arguments: &Value) -> Result<String, String> {
    let output = tool.call(arguments.clone(), ToolContext::detached("call")).await;
    let output = output.unwrap_or_else(ToolError::into_output);
    let text = output.content.iter().filter_map(|content| content.as_text()).collect();
    if output.is_error { Err(text) } else { Ok(text) }
}

const EDITS: &[Case] = &[
    Case { name: "edit: exact", content: lines, arguments: |_| edits(&[("unique(\"it's\");", "x")]), fails: false },
    Case { name: "edit: 20 exact", content: lines, arguments: |file| twenty(file), fails: false },
    Case {
        name: "edit: exact, CRLF",
        content: crlf,
        arguments: |_| edits(&[("unique(\"it's\");", "x")]),
        fails: false,
    },
    Case {
        name: "edit: near, line ends",
        content: crlf,
        arguments: |_| edits(&[("unique(\"it's\");  \n", "x\n")]),
        fails: false,
    },
    Case {
        name: "edit: near, white space at line ends",
        content: lines,
        arguments: |_| edits(&[("unique(\"it's\");\n", "x\n")]),
        fails: false,
    },
    Case {
        name: "edit: near, typography",
        content: lines,
        arguments: |_| edits(&[("unique(\"it\u{2019}s\");\n", "x\n")]),
        fails: false,
    },
    Case {
        name: "edit: not found, lines that resemble it",
        content: lines,
        arguments: |_| edits(&[("    unique(\"it is\");\n    let resembling = nothing;\n", "x\n")]),
        fails: true,
    },
    Case {
        name: "edit: not found, nothing resembles it",
        content: lines,
        arguments: |_| edits(&[("0123456789 0123456789", "x")]),
        fails: true,
    },
    Case {
        name: "edit: one line, exact",
        content: line,
        arguments: |_| edits(&[("unique(\"it's\");", "x")]),
        fails: false,
    },
    Case {
        name: "edit: one line, near",
        content: line,
        arguments: |_| edits(&[("unique(\"it\u{2019}s\");", "x")]),
        fails: false,
    },
    Case {
        name: "edit: one line, not found",
        content: line,
        arguments: |_| edits(&[("0123456789 0123456789", "x")]),
        fails: true,
    },
];

const READS: &[Case] = &[Case {
    name: "read: the last lines",
    content: lines,
    arguments: |file| json!({"path": "file", "offset": file.iter().filter(|byte| **byte == b'\n').count() - 20}),
    fails: false,
}];

const WRITES: &[Case] = &[Case {
    name: "write: another content",
    content: lines,
    arguments: |file| json!({"path": "file", "content": format!("{}x", String::from_utf8_lossy(file))}),
    fails: false,
}];

fn edits(pairs: &[(&str, &str)]) -> Value {
    let edits: Vec<Value> = pairs.iter().map(|(old, new)| json!({"oldText": old, "newText": new})).collect();
    json!({"path": "file", "edits": edits})
}

/// Twenty lines all over the file.
fn twenty(file: &[u8]) -> Value {
    let text = std::str::from_utf8(file).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("let value_")).collect();
    let chosen: Vec<(&str, &str)> = (0..20).map(|part| (lines[part * (lines.len() / 20)], "x")).collect();
    edits(&chosen)
}

/// Lines as in a source file. Some end in white space; some quotes are typographic.
fn lines(size: usize) -> Vec<u8> {
    let mut text = String::with_capacity(size + 200);
    let mut number = 0;
    while text.len() < size {
        number += 1;
        if text.len() < size * 9 / 10 && text.len() + 70 >= size * 9 / 10 {
            text.push_str("    unique(\"it's\");  \n");
        }
        text.push_str(&format!("    let value_{number} = compute({number}, \"text\");\n"));
        match number % 50 {
            0 => text.push_str("    // \u{201c}quoted\u{201d} \u{2013} and so on\n"),
            10 | 30 => text.push_str("}  \n\n"),
            _ => {}
        }
    }
    text.into_bytes()
}

fn crlf(size: usize) -> Vec<u8> {
    String::from_utf8(lines(size)).unwrap().replace('\n', "\r\n").into_bytes()
}

fn line(size: usize) -> Vec<u8> {
    String::from_utf8(lines(size)).unwrap().replace('\n', " ").into_bytes()
}
