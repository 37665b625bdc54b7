//! The real driver on a paused clock, with models, tools, gates and people that misbehave at random, from a seed.
//!
//! A seed is a session: some prompts, some faults (a cancel, a crash, something said, a journal that fails …), each at one
//! of the moments at which anybody waits. A crash drops everything but the journal's records; the next life of the
//! process opens the session again. What is checked comes from records that the tests' own actors keep: see `world`.
//!
//! A failing seed is replayed with `TERRET_SIMULATION_SEED=n cargo test -p terret-agent --test simulation`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

mod actors;
mod journal;
mod life;
mod said;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use world::{Seen, World};

/// How many seeds everybody runs, and how many a change has to survive before it lands.
const EVERY_DAY: u64 = 2_000;
const SLOW: u64 = 15_000;

/// How long a session may take that takes milliseconds, in steps of 20 ms.
const STUCK: u32 = 1_500;

#[test]
fn random_sessions_keep_every_rule() {
    match std::env::var("TERRET_SIMULATION_SEED") {
        Ok(seed) => {
            let world = simulate(seed.parse().expect("a number"));
            world.trace().iter().for_each(|line| println!("{line}"));
            assert_eq!(world.problems(), Vec::<String>::new());
        }
        Err(_) => check(0..EVERY_DAY),
    }
}

#[test]
#[ignore = "slow"]
fn many_random_sessions_keep_every_rule() {
    check(EVERY_DAY..EVERY_DAY + SLOW);
}

#[test]
fn a_seed_is_the_same_session_every_time() {
    for seed in 0..50 {
        assert_eq!(simulate(seed).trace(), simulate(seed).trace(), "seed {seed}");
    }
}

/// Runs the seeds, on two threads. Every kind of thing has to have happened in them.
fn check(seeds: std::ops::Range<u64>) {
    let started = Instant::now();
    let count = seeds.end - seeds.start;
    let halves = [0, 1].map(|odd| {
        let (at, seeds) = (Arc::new(AtomicU64::new(0)), seeds.clone().filter(move |seed| seed % 2 == odd));
        let now = at.clone();
        let run = move |seed| {
            now.store(seed, Ordering::Relaxed);
            (seed, std::panic::catch_unwind(|| simulate(seed)))
        };
        (at, std::thread::spawn(move || seeds.map(run).fold(Added::default(), add_up)))
    });
    let halves = halves.map(|(at, half)| {
        while !half.is_finished() {
            let before = at.load(Ordering::Relaxed);
            (0..STUCK).take_while(|_| !half.is_finished()).for_each(|_| std::thread::sleep(Duration::from_millis(20)));
            let stuck = !half.is_finished() && at.load(Ordering::Relaxed) == before;
            assert!(!stuck, "something is busy for ever:\n  {}", replay(before));
        }
        half.join().expect("a half of the seeds")
    });
    let mut seen: BTreeMap<Seen, u64> = BTreeMap::new();
    let mut problems = Vec::new();
    for (more, failed) in halves {
        more.into_iter().for_each(|(kind, count)| *seen.entry(kind).or_default() += count);
        problems.extend(failed);
    }
    println!("{count} sessions in {:.1?}: {seen:?}", started.elapsed());
    assert!(problems.is_empty(), "{} seeds fail:\n{}", problems.len(), problems[..problems.len().min(10)].join("\n"));
    for kind in Seen::ALL {
        assert!(seen.contains_key(kind), "no seed has seen: {kind:?}");
    }
}

fn replay(seed: u64) -> String {
    format!("TERRET_SIMULATION_SEED={seed} cargo test -p terret-agent --test simulation")
}

type Added = (BTreeMap<Seen, u64>, Vec<String>);

fn add_up((mut seen, mut problems): Added, (seed, world): (u64, std::thread::Result<Arc<World>>)) -> Added {
    let problem = match &world {
        Ok(world) => world.problems().into_iter().next(),
        Err(_) => Some("the simulation panicked".into()),
    };
    if let Ok(world) = world {
        world.seen().into_iter().for_each(|(kind, count)| *seen.entry(kind).or_default() += count);
    }
    if let Some(problem) = problem {
        problems
            .push(format!("{problem}\n  TERRET_SIMULATION_SEED={seed} cargo test -p terret-agent --test simulation"));
    }
    (seen, problems)
}

/// A session from its first prompt to its last, over as many lives of the process as it takes.
fn simulate(seed: u64) -> Arc<World> {
    let world = Arc::new(World::new(seed));
    while !world.is_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = world.crashed() => world.see(Seen::Crash),
                () = life::live(&world) => {}
            }
        });
        // Everything that runs is dropped where it stands.
        drop(runtime);
        world.next_life();
    }
    said::check(&world);
    world
}
