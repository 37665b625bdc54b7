//! What something costs, in time and in CPU, children included.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// In milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

impl Cost {
    /// Does something, and says what it cost.
    pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (T, Self) {
        let (started, before) = (Instant::now(), cpu());
        let done = work();
        let (wall, cpu) = (started.elapsed().as_secs_f64() * 1e3, cpu() - before);
        (done, Self { wall, cpu })
    }
}

/// User and system time of this process and of the children that it has waited for, in milliseconds.
fn cpu() -> f64 {
    let of = |who| {
        let usage = getrusage(who).unwrap();
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e3
    };
    of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN)
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
