//! The same work beside other libraries: CPU, memory and start-up of whole processes, against one mock server.
//!
//! The server, the other libraries' drivers and the floors (blocking sockets and a borrowed parse, no library at all)
//! are programs of their own, in one folder. `TERRET_MOCK_LLM` is the path of the server there; without it there is
//! nothing to measure. This program is the driver for `terret`, when it is called as drivers are, and else the one that
//! calls them all, in turns: a round has one run of each. Figures are medians of rounds, ratios are medians of the
//! rounds' ratios, and a run whose answer isn't what the server scripted stops everything.
//!
//! `TERRET_MOCK_LLM=…/mock cargo bench -p terret-llm --bench peers`; the environment variable `ROUNDS` is the number of
//! rounds. Prints the tables of `docs/performance.md`.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program that prints tables"
)]

mod driver;
mod lab;

use std::collections::HashMap;

use lab::{Lab, Run};

const ROUNDS: usize = 9;
const MANY_ROUNDS: usize = 5;

const WIRES: [(&str, &str); 4] = [
    ("anthropic", "anthropic-messages"),
    ("chat", "openai-completions"),
    ("responses", "openai-responses"),
    ("google", "google-generative-ai"),
];

/// The others, and the wires that their drivers speak.
const PEERS: [(&str, &str, &[&str]); 3] = [
    ("async-openai", "aoip", &["chat", "responses"]),
    ("genai", "genaip", &["anthropic", "chat", "responses", "google"]),
    ("rig", "rigp", &["anthropic", "chat", "responses", "google"]),
];

/// What is measured of a run.
type Measure = fn(&Run) -> f64;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [work, numbers @ ..] = args.as_slice() {
        let numbers: Vec<usize> = numbers.iter().map(|number| number.parse().unwrap()).collect();
        // The runtime of `#[tokio::main]`, as the others' drivers have it.
        return tokio::runtime::Runtime::new().unwrap().block_on(driver::run(work, &numbers));
    }
    let Some(mock) = std::env::var_os("TERRET_MOCK_LLM") else {
        return println!("TERRET_MOCK_LLM is not set: no server to measure against");
    };
    let rounds = std::env::var("ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut lab = Lab::new(mock.as_ref(), rounds);
    let columns = |lab: &Lab, work: &[&str]| WIRES.map(|(api, _)| column(lab, api, work));
    let milliseconds: Measure = |run| run.cpu_us / 1e3;
    let memory: Measure = |run| run.memory_mb;
    let text = columns(&lab, &["text", "50000"]);
    table("50,000 deltas of text: µs CPU per delta", &text, 3, |run| run.cpu_us / 50_000.0);
    table("The same: most memory of the process, MB", &text, 1, memory);
    table("Start to the first byte of a request at the server: ms", &columns(&lab, &["text", "20"]), 1, |run| {
        run.first_byte_ms
    });
    table("2 MB of arguments in 20,000 fragments: ms CPU", &columns(&lab, &["args", "20000"]), 1, milliseconds);
    table("400 turns with a tool: ms CPU", &columns(&lab, &["agent", "400"]), 1, milliseconds);
    // These last longest, and it is the many runs in each that even out.
    lab.rounds = rounds.min(MANY_ROUNDS);
    let many = columns(&lab, &["conc", "1000", "5", "50000"]);
    table("1,000 runs of 5 turns at once, 50 ms between events: ms CPU", &many, 0, milliseconds);
    table("The same: most memory of the process, MB", &many, 1, memory);
}

/// What was measured on a wire, round by round.
type Column = Vec<HashMap<&'static str, Run>>;

fn column(lab: &Lab, api: &str, work: &[&str]) -> Column {
    let speakers = PEERS.iter().filter(|(.., wires)| wires.contains(&api)).map(|(name, program, _)| (*name, *program));
    let floor = lab.floor(work, api).map(|program| ("floor", program));
    lab.rounds(api, work, floor.into_iter().chain(speakers))
}

/// Prints a table: a row for each program, a column for each wire, and what the others' figures are of ours.
fn table(title: &str, columns: &[Column; WIRES.len()], digits: usize, measure: Measure) {
    println!("\n### {title}\n");
    println!("| | {} |\n|---|{}", WIRES.map(|(_, wire)| wire).join(" | "), "---:|".repeat(WIRES.len()));
    for name in ["terret", "floor"].into_iter().chain(PEERS.map(|(name, ..)| name)) {
        let cells = columns.each_ref().map(|rounds| cell(rounds, name, digits, measure));
        if cells.iter().any(|cell| cell != NOTHING) {
            println!("| {name} | {} |", cells.join(" | "));
        }
    }
}

/// What stands where there is no figure.
const NOTHING: &str = "–";

fn cell(rounds: &Column, name: &str, digits: usize, measure: Measure) -> String {
    let of = |name: &str| rounds.iter().filter_map(|round| round.get(name).map(measure)).collect::<Vec<_>>();
    let (ours, theirs) = (of("terret"), of(name));
    if theirs.is_empty() {
        return NOTHING.to_owned();
    }
    let figure = median(theirs.clone());
    match name {
        "terret" => format!("**{figure:.digits$}**"),
        // How far we are from what can't be undercut, and how many times ours the others are.
        "floor" => format!("{figure:.digits$}; terret {:.2}×", median(ratios(&ours, &theirs))),
        _ => format!("{:.1}× ({figure:.digits$})", median(ratios(&theirs, &ours))),
    }
}

fn ratios(some: &[f64], others: &[f64]) -> Vec<f64> {
    some.iter().zip(others).map(|(some, other)| some / other).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
