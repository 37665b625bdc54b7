//! CPU of the view of arguments that are still streaming: two megabytes in 20,000 fragments, looked at after each one.
//!
//! The reference is one parse of the whole text by `serde_json`, measured in the same run. That the cost is linear shows
//! in the last column: the time of the text against that of its half, in half as many fragments.
//!
//! `cargo bench -p terret-llm --bench partial_json`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

use cpu_time::ThreadTime;
use serde_json::{Value, json};
use terret_llm::PartialJson;

const FRAGMENTS: usize = 20_000;
const BYTES: usize = 2_000_000;
/// Each figure is the least of so many measurements: whatever else the machine does only ever adds.
const ROUNDS: usize = 9;

fn main() {
    println!("{:<28} {:>9} {:>10} {:>11} {:>11} {:>8}", "", "bytes", "serde_json", "PartialJson", "to it", "to half");
    let one_string = |bytes: usize| json!({"path": "a.rs", "content": "let x = \"y\";\n".repeat(bytes / 16)});
    let many_values = |bytes: usize| {
        let edit = |n: usize| json!({"old": "a line", "new": ["another line", n, true, null], "at": {"line": n}});
        json!({"edits": (0..bytes / 84).map(edit).collect::<Vec<_>>()})
    };
    row("one string", one_string);
    row("many values", many_values);
}

fn row(name: &str, arguments: impl Fn(usize) -> Value) {
    let [half, whole] = [BYTES / 2, BYTES].map(|bytes| arguments(bytes).to_string());
    let reference = least(|| drop(serde_json::from_str::<Value>(&whole).unwrap()));
    let [half, ours] = [(&half, FRAGMENTS / 2), (&whole, FRAGMENTS)].map(|(text, n)| least(|| view(text, n)));
    println!(
        "{name:<28} {:>9} {:>7.2} ms {:>8.2} ms {:>11.2} {:>8.2}",
        whole.len(),
        reference * 1e3,
        ours * 1e3,
        ours / reference,
        ours / half
    );
}

/// Feeds the text in so many fragments and looks after each one.
fn view(text: &str, fragments: usize) {
    let mut partial = PartialJson::new();
    let pieces: Vec<&str> = text.as_bytes().chunks(text.len().div_ceil(fragments)).map(as_str).collect();
    for piece in pieces {
        partial.push(piece);
        std::hint::black_box(partial.value());
    }
    std::hint::black_box(partial.finish().unwrap());
}

/// The texts here are ASCII.
fn as_str(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn least(work: impl Fn()) -> f64 {
    let measure = |_| {
        let began = ThreadTime::now();
        work();
        began.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(measure).fold(f64::INFINITY, f64::min)
}
