//! How fast `bash` takes what a command writes, against a reader that reads the same pipe and throws it away; and how much
//! memory it takes, which is held to a limit.
//!
//! `cargo bench -p terret-tools --bench output`

#![allow(clippy::indexing_slicing, clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

mod cost;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use terret_agent::{FnTool, Tool as _, ToolContext};
use terret_tools::{BashOptions, Profile, Workspace, bash};

use self::cost::{Cost, median};

/// Of each kind.
const BYTES: usize = 500_000_000;
const ROUNDS: usize = 3;

/// Taking all of it may not add more to the memory of this process, in MB.
const GROWTH: f64 = 24.0;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = BashOptions::default();
    options.timeout = std::time::Duration::from_secs(600);
    let tool = bash(&Workspace::new(folder.path()).unwrap().profile(Profile::Full), options);
    println!(
        "{:<32} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}",
        "500 MB", "reader, s", "bash, s", "ratio", "CPU", "MB/s", "memory, MB"
    );
    for (name, piece) in kinds() {
        fill(&folder.path().join("file"), &piece);
        let (mut wall, mut cpu, mut ours, mut theirs, mut grown) = (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let ((), reference) = Cost::of(|| read_and_drop(folder.path()));
            let before = forget_peak();
            let (length, cost) = Cost::of(|| runtime.block_on(call(&tool)));
            let growth = peak() - before;
            assert!(length < 60_000, "{length}");
            assert!(growth < GROWTH, "{name}: {growth} MB");
            wall.push(cost.wall / reference.wall);
            cpu.push(cost.cpu / reference.cpu);
            ours.push(cost.wall / 1e3);
            theirs.push(reference.wall / 1e3);
            grown.push(growth);
        }
        let time = median(ours);
        println!(
            "{name:<32} {:>9.2} {time:>9.2} {:>9.2} {:>9.2} {:>9.0} {:>11.1}",
            median(theirs),
            median(wall),
            median(cpu),
            BYTES as f64 / 1e6 / time,
            median(grown)
        );
    }
}

/// What commands write, each in a piece that is repeated.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let repeated = |text: &str| text.repeat(100_000 / text.len()).into_bytes();
    let mut random = fastrand::Rng::with_seed(7);
    vec![
        ("lines of text", repeated("    Compiling something v1.2.3 (/home/person/project/something) and so on\n")),
        ("one line", repeated("all of it in one line without any end, ")),
        ("lines with other letters", repeated("Grüße aus Köln — 日本語のテキスト, naïve café ✓\n")),
        (
            "colours",
            repeated("\x1b[1m\x1b[32m   Compiling\x1b[0m something v1.2.3 \x1b[90m(/home/person/project)\x1b[0m\n"),
        ),
        ("progress by carriage returns", repeated("\r 42% [=================>                      ] 421/1000 kB")),
        ("random bytes", (0..100_000).map(|_| random.u8(..)).collect()),
        ("zeros", vec![0; 100_000]),
    ]
}

fn fill(file: &Path, piece: &[u8]) {
    let mut file = std::fs::File::create(file).unwrap();
    let mut left = BYTES;
    while left > 0 {
        let length = left.min(piece.len());
        file.write_all(&piece[..length]).unwrap();
        left -= length;
    }
}

/// The reference.
fn read_and_drop(folder: &Path) {
    let mut command = Command::new("bash");
    command.args(["-c", "cat file"]).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut output, mut buffer, mut length) = (child.stdout.take().unwrap(), vec![0; 64 * 1024], 0);
    loop {
        match output.read(&mut buffer).unwrap() {
            0 => break,
            read => length += read,
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(length, BYTES);
}

async fn call(tool: &FnTool) -> usize {
    let output = tool.call(json!({"command": "cat file"}), ToolContext::detached("call")).await.unwrap();
    assert!(!output.is_error, "{output:?}");
    assert_eq!(output.details.as_ref().unwrap().to_value().unwrap()["bytes"], BYTES);
    output.content.iter().filter_map(|content| content.as_text()).map(str::len).sum()
}

/// Starts the most memory of this process anew, and returns what it is, in MB.
fn forget_peak() -> f64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak()
}

fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}
