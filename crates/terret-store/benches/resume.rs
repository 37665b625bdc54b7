//! What it costs to list, to open and to search long sessions: time, and the most memory that a process has for it.
//!
//! Each figure is of a process of its own. `cargo bench -p terret-store --bench resume`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use terret_agent::machine::{Failure, Record};
use terret_agent::{Journal as _, SessionId, fold};
use terret_llm::{AssistantMessage, ErrorKind, Message, ModelError, Money, Usage};
use terret_store::SqliteJournal;

fn main() {
    if let Some(folder) = std::env::var_os("TERRET_BENCH_FOLDER") {
        return measured(Path::new(&folder), &std::env::var("TERRET_BENCH_WORK").unwrap());
    }
    println!("{:>9} {:>22} {:>12} {:>12} {:>12}", "records", "of which needed", "work", "ms", "peak MB");
    for needed in ["all", "the last hundredth"] {
        for records in [1_000, 10_000, 100_000] {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            make(folder.path(), records, needed == "all");
            for work in ["nothing", "list", "list again", "load", "resume", "search", "search again"] {
                let output = Command::new(std::env::current_exe().unwrap())
                    .env("TERRET_BENCH_FOLDER", folder.path())
                    .env("TERRET_BENCH_WORK", work)
                    .output()
                    .unwrap();
                let output = String::from_utf8(output.stdout).unwrap();
                let (time, peak) = output.trim().split_once(' ').unwrap();
                println!("{records:>9} {needed:>22} {work:>12} {time:>12} {peak:>12}");
            }
        }
    }
}

/// A conversation of replies and results of 1 KB. Where not all is needed, its state after 99 of 100 records is a
/// checkpoint that holds next to nothing, as after a compaction.
fn make(folder: &Path, records: u64, all: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let journal = SqliteJournal::new(folder);
        let session = session();
        let _owned = journal.own(&session).await.unwrap();
        let kept: Vec<_> = (0..records).map(|number| record(number, all || number * 100 >= records * 99)).collect();
        for (at, batch) in (0..).zip(kept.chunks(1000)) {
            journal.append(&session, at * 1000, batch).await.unwrap();
        }
        if !all {
            let cut = records / 100 * 99;
            let before = kept.iter().take(usize::try_from(cut).unwrap());
            journal.checkpoint(&session, cut, &fold(before)).await;
            journal.append(&session, records, &[]).await.unwrap();
        }
    });
}

fn record(number: u64, needed: bool) -> Record {
    let text = format!("{number} {}", "word and word ".repeat(70));
    if !needed {
        let failure = Failure::Model(ModelError::new(ErrorKind::Server, text));
        return Record::AttemptFailed { failure, recovery: None, usage: Usage::default(), cost: Money::ZERO };
    }
    let reply: Message = serde_json::from_value::<AssistantMessage>(serde_json::json!({
        "content": [{"type": "text", "text": text}], "provider": "p", "model": "m", "wire": "openai-completions",
        "stopReason": "stop", "usage": {"input": 1, "output": 1}, "timestamp": 0,
    }))
    .unwrap()
    .into();
    Record::ReplyAccepted { message: Arc::new(reply), cost: Money::ZERO }
}

fn measured(folder: &Path, work: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let journal = SqliteJournal::new(folder);
    let start = Instant::now();
    runtime.block_on(async {
        match work {
            "nothing" => {}
            "load" => drop(journal.load(&session()).await.unwrap()),
            "resume" => {
                let _owned = journal.own(&session()).await.unwrap();
                drop(journal.resume(&session()).await.unwrap());
            }
            "list" | "list again" => drop(journal.list().unwrap()),
            _ => assert!(journal.search("77 word", 1).unwrap().len() <= 1),
        }
    });
    let time = start.elapsed().as_secs_f64() * 1e3;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or_default();
    println!("{time:.1} {:.1}", peak / 1024.0);
}

fn session() -> SessionId {
    "session".to_owned().into()
}
