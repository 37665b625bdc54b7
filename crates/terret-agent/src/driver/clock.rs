use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Unix milliseconds on the runtime's clock, which tests can pause.
pub(super) struct Clock {
    started: Instant,
    at: i64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), at: now() }
    }

    pub(super) fn now(&self) -> i64 {
        self.at.saturating_add(i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// When a time will be. One that is over is now.
    pub(super) fn instant(&self, at: i64) -> Instant {
        let later = Duration::from_millis(u64::try_from(at.saturating_sub(self.at)).unwrap_or(0));
        from(self.started, later)
    }
}

/// So long after a time. What is beyond what the clock can count is as good as never: 30 years.
pub(super) fn from(time: Instant, later: Duration) -> Instant {
    time.checked_add(later).unwrap_or_else(|| time + Duration::from_secs(30 * 365 * 86_400))
}

/// Waits for a time, or for ever.
pub(super) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Unix milliseconds.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
