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
use terret_agent::{Journal as _, SessionId};
use terret_llm::UserMessage;
use terret_store::SqliteJournal;

const ROUNDS: usize = 400;
/// The sessions that append at the same time.
const TOGETHER: usize = 16;

fn main() {
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
        together(folder.path()).await;
        space(folder.path()).await;
        long(folder.path()).await;
    });
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

async fn together(folder: &Path) {
    let each = ROUNDS / 4;
    let files = (0..TOGETHER).map(|number| {
        let mut file = log(folder, &format!("together-{number}"));
        let body = serde_json::to_vec(&record(number, 1_000)).unwrap();
        std::thread::spawn(move || {
            for _ in 0..each {
                file.write_all(&body).unwrap();
                file.sync_data().unwrap();
            }
        })
    });
    let start = Instant::now();
    files.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let synced = (TOGETHER * each) as f64 / start.elapsed().as_secs_f64();

    let journal = SqliteJournal::new(folder);
    let sessions: Vec<_> = (0..TOGETHER).map(|_| SessionId::new()).collect();
    let owned: Vec<_> = join_all(sessions.iter().map(|session| journal.own(session))).await;
    let start = Instant::now();
    join_all(sessions.iter().map(|session| {
        let journal = journal.clone();
        async move {
            for (at, number) in (0..).zip(0..each) {
                journal.append(session, at, &[record(number, 1_000)]).await.unwrap();
            }
        }
    }))
    .await;
    let appended = (TOGETHER * each) as f64 / start.elapsed().as_secs_f64();
    drop(owned);
    println!(
        "{TOGETHER} at once, 1 KB each: {synced:.0} syncs/s, {appended:.0} appends/s, ratio {:.2}",
        synced / appended
    );
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

async fn long(folder: &Path) {
    let folder = folder.join("long");
    let (journal, session) = (SqliteJournal::new(&folder), SessionId::new());
    let records: Vec<_> = (0..100_000).map(|number| record(number, 200)).collect();
    journal.append(&session, 0, &records).await.unwrap();
    let first = timed(|| drop(journal.list().unwrap()));
    let again = timed(|| drop(journal.list().unwrap()));
    let owned = timed_async(journal.own(&session)).await;
    let loaded = timed_async(journal.load(&session)).await;
    println!(
        "100,000 records: listed in {first:.1?}, again in {again:.1?}; owned in {owned:.1?}, loaded in {loaded:.1?}"
    );
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
