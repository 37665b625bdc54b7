//! What an append costs, against writing the same bytes to a plain file and syncing it.
//!
//! Both are measured in turns in the same run and on the same disk, so that what is ours is told from what the disk and
//! its other users do. `cargo bench -p terret-store --bench append`

#![allow(clippy::indexing_slicing, clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints a table")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use terret_agent::machine::{QueueKind, Record};
use terret_agent::{Agent, EffectClass, Journal, MemoryJournal, SessionId, tool};
use terret_llm::{ScriptedModel, ScriptedReply, ToolCall, UserMessage};
use terret_store::SqliteJournal;

const ROUNDS: usize = 400;
/// The sessions that append at the same time.
const TOGETHER: usize = 16;

fn main() {
    if let Some(folder) = std::env::var_os("TERRET_BENCH_FOLDER") {
        return one_of_several_processes(Path::new(&folder));
    }
    // On a real disk: a temporary folder may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        println!(
            "{:>6} {:>12} {:>12} {:>6} {:>12} {:>12}",
            "bytes", "sync p50", "append p50", "ratio", "sync p99", "append p99"
        );
        for bytes in [1_000, 50_000, 200_000] {
            alone(folder.path(), bytes).await;
        }
        println!(
            "{:>8} {:>29} {:>15} {:>29}",
            "at once", "a second: sync, SQLite, ours", "ratio to each", "CPU µs each"
        );
        for sessions in [1, 4, TOGETHER, TOGETHER] {
            together(folder.path(), sessions).await;
        }
        turns(folder.path()).await;
        space(folder.path()).await;
    });
    println!("{:>9} {:>9} {:>10} {:>12} {:>12}", "processes", "sessions", "appends/s", "p50", "p99");
    for (processes, sessions) in [(1, 1), (1, 8), (2, 4), (8, 1), (8, 4)] {
        across_processes(folder.path(), processes, sessions);
    }
}

async fn alone(folder: &Path, bytes: usize) {
    let mut file = log(folder, "alone");
    let (journal, session) = (SqliteJournal::new(folder), SessionId::new());
    let _owned = journal.own(&session).await.unwrap();
    let (mut syncs, mut appends) = (Vec::new(), Vec::new());
    for (at, number) in (0..).zip(0..ROUNDS) {
        let record = record(number, bytes);
        let body = serde_json::to_vec(&record).unwrap();
        syncs.push(timed(|| {
            file.write_all(&body).unwrap();
            file.sync_data().unwrap();
        }));
        let start = Instant::now();
        journal.append(&session, at, &[record]).await.unwrap();
        appends.push(start.elapsed());
    }
    let (sync, append) = (percentiles(syncs), percentiles(appends));
    let ratio = append[0].as_secs_f64() / sync[0].as_secs_f64();
    println!("{bytes:>6} {:>12.2?} {:>12.2?} {ratio:>6.2} {:>12.2?} {:>12.2?}", sync[0], append[0], sync[1], append[1]);
}

/// Several sessions of one process, each in its own file; against as many threads that each sync their own file, and as
/// many that each commit the same bytes to their own database, with nothing of ours.
async fn together(folder: &Path, sessions: usize) {
    let each = ROUNDS / 2;
    let body = |number| serde_json::to_string(&record(number, 1_000)).unwrap();
    let synced = in_threads(sessions, each, |number| {
        let (mut file, body) = (log(folder, SessionId::new().as_str()), body(number));
        move || {
            file.write_all(body.as_bytes()).unwrap();
            file.sync_data().unwrap();
        }
    });
    let committed = in_threads(sessions, each, |number| {
        let db = rusqlite::Connection::open(folder.join(format!("{}.db", SessionId::new()))).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE record (body TEXT)")
            .unwrap();
        let body = body(number);
        move || _ = db.prepare_cached("INSERT INTO record VALUES (?1)").unwrap().execute([&body]).unwrap()
    });
    let journal = SqliteJournal::new(folder);
    let names: Vec<_> = (0..sessions).map(|_| SessionId::new()).collect();
    let owned: Vec<_> = join_all(names.iter().map(|session| journal.own(session))).await;
    let (start, used) = (Instant::now(), cpu());
    append_to_all(&journal, &names, each).await;
    let appended = [per_second(sessions * each, start), (cpu() - used) / (sessions * each) as f64];
    drop(owned);
    println!(
        "{sessions:>8} {:>9.0} {:>9.0} {:>9.0} {:>6.2} {:>8.2} {:>9.0} {:>9.0} {:>9.0}",
        synced[0],
        committed[0],
        appended[0],
        synced[0] / appended[0],
        committed[0] / appended[0],
        synced[1],
        committed[1],
        appended[1]
    );
}

/// How often threads do something in a second, and the microseconds of CPU that it takes.
fn in_threads<Work: FnMut() + Send + 'static>(threads: usize, each: usize, work: impl Fn(usize) -> Work) -> [f64; 2] {
    let works: Vec<_> = (0..threads).map(work).collect();
    let (start, used) = (Instant::now(), cpu());
    let run = |mut work: Work| std::thread::spawn(move || (0..each).for_each(|_| work()));
    works.into_iter().map(run).collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    [per_second(threads * each, start), (cpu() - used) / (threads * each) as f64]
}

/// Returns how long each append took.
async fn append_to_all(journal: &SqliteJournal, sessions: &[SessionId], each: usize) -> Vec<Duration> {
    let appends = sessions.iter().map(|session| {
        let (journal, session) = (journal.clone(), session.clone());
        tokio::spawn(async move {
            let mut times = Vec::new();
            for (at, number) in (0..).zip(0..each) {
                let record = record(number, 1_000);
                times.push(timed_async(journal.append(&session, at, &[record])).await);
            }
            times
        })
    });
    join_all(appends).await.into_iter().flat_map(Result::unwrap).collect()
}

/// Processes that each append to sessions of their own.
fn across_processes(folder: &Path, processes: usize, sessions: usize) {
    let start = Instant::now();
    let children: Vec<_> = (0..processes)
        .map(|_| {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child
                .env("TERRET_BENCH_FOLDER", folder.join("processes"))
                .env("TERRET_BENCH_SESSIONS", sessions.to_string());
            child.stdout(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut times = Vec::new();
    for child in children {
        let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        times.extend(output.lines().map(|line| Duration::from_nanos(line.parse().unwrap())));
    }
    let rate = per_second(times.len(), start);
    let [p50, p99] = percentiles(times);
    println!("{processes:>9} {sessions:>9} {rate:>10.0} {p50:>12.2?} {p99:>12.2?}");
}

fn one_of_several_processes(folder: &Path) {
    let sessions: usize = std::env::var("TERRET_BENCH_SESSIONS").unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let journal = SqliteJournal::new(folder);
        let names: Vec<_> = (0..sessions).map(|_| SessionId::new()).collect();
        let _owned: Vec<_> = join_all(names.iter().map(|session| journal.own(session))).await;
        for time in append_to_all(&journal, &names, ROUNDS / 2).await {
            println!("{}", time.as_nanos());
        }
    });
}

/// What the journal adds to a turn of a model that replies at once and a tool that does nothing.
async fn turns(folder: &Path) {
    const TURNS: u32 = 100;
    let mut times = Vec::new();
    let journals: [Arc<dyn Journal>; 2] = [Arc::new(MemoryJournal::new()), Arc::new(SqliteJournal::new(folder))];
    for journal in journals {
        let call =
            |number| ScriptedReply::calls([ToolCall::new(format!("c{number}"), "look", format!("{{\"a\":{number}}}"))]);
        let model = ScriptedModel::new((0..TURNS).map(call).chain([ScriptedReply::text("Done.")]));
        let look = tool("look", "", |look: Look, _| async move { Ok(format!("{}", look.a)) });
        let agent = Agent::builder(model).tool(look.effect(EffectClass::ReadOnly)).build().unwrap();
        let session = agent.open(journal.clone(), "turns".to_owned().into()).await.unwrap();
        let start = Instant::now();
        session.prompt("Go on.").report().await;
        times.push(start.elapsed() / TURNS);
    }
    println!("a turn with one call: {:.2?} of its own, {:.2?} with the journal on disk", times[0], times[1]);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Look {
    a: u32,
}

async fn space(folder: &Path) {
    let (journal, session) = (SqliteJournal::new(folder), SessionId::from("space".to_owned()));
    let records: Vec<_> = (0..500).map(|number| record(number, 50_000)).collect();
    let payload: usize = records.iter().map(|record| serde_json::to_vec(record).unwrap().len()).sum();
    let owned = journal.own(&session).await.unwrap();
    for (at, record) in (0..).zip(&records) {
        journal.append(&session, at, std::slice::from_ref(record)).await.unwrap();
    }
    drop(owned);
    drop(journal.own(&session).await.unwrap());
    let start = Instant::now();
    let read = journal.load(&session).await.unwrap().len();
    let loaded = start.elapsed();
    let kept: u64 =
        std::fs::read_dir(folder.join("space")).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    println!(
        "{read} records of 50 KB: {:.2} bytes kept for each byte, loaded in {loaded:.0?}",
        kept as f64 / payload as f64
    );
}

fn per_second(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

/// The CPU time of this process, in microseconds; 0 where it can't be told.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks * 10_000.0
}

async fn timed_async<T>(work: impl Future<Output = T>) -> Duration {
    let start = Instant::now();
    work.await;
    start.elapsed()
}

fn record(number: usize, bytes: usize) -> Record {
    let mut text = format!("{number} ");
    let mut state = number as u64;
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:x}\n", state >> 16));
    }
    text.truncate(bytes);
    Record::Queued { kind: QueueKind::Steering, message: Arc::new(UserMessage::text(text, 0).into()) }
}

fn log(folder: &Path, name: &str) -> File {
    OpenOptions::new().append(true).create(true).open(folder.join(name)).unwrap()
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn percentiles(mut times: Vec<Duration>) -> [Duration; 2] {
    times.sort();
    [times[times.len() / 2], times[times.len() * 99 / 100]]
}
