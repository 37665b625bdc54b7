use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use terret_agent::SessionId;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::owned::Owned;

/// Most of them wait for the disk, which syncs together what several have written.
const THREADS: usize = 16;

/// The threads that write, and that renew the leases of what they have open. A session is always written by the same
/// one, and each is started when it is first needed.
pub(crate) struct Writers {
    threads: [Mutex<Option<Sender<Job>>>; THREADS],
    /// How long a session stays its owner's without being renewed.
    pub(crate) lease: Duration,
}

/// The sessions that a thread has open.
pub(crate) type Sessions = HashMap<SessionId, Owned>;

type Job = Box<dyn FnOnce(&mut Sessions) + Send>;

impl Writers {
    pub(crate) fn new(lease: Duration) -> Self {
        Self { threads: Default::default(), lease }
    }

    /// Runs a job on the session's thread, after all that were given before. It runs also if nobody waits for it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        session: &SessionId,
        job: impl FnOnce(&mut Sessions) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (done, result) = oneshot::channel();
        self.send(
            session,
            Box::new(move |sessions| {
                // Nobody waits any more.
                let _ = done.send(job(sessions));
            }),
        );
        result.await.unwrap_or(Err(StoreError::Gone))
    }

    /// Gives a job without waiting for it.
    pub(crate) fn send(&self, session: &SessionId, job: Job) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(session);
        let at = usize::try_from(hash).unwrap_or(0) % THREADS;
        let Some(writer) = self.threads.get(at) else { return };
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = writer.get_or_insert_with(|| start(self.lease));
        // A thread that is gone drops the job, and who waits for it is told.
        let _ = sender.send(job);
    }
}

fn start(lease: Duration) -> Sender<Job> {
    let (sender, jobs) = channel();
    // Neither without a pause nor later than a clock can tell.
    let beat = (lease / 3).clamp(Duration::from_millis(10), Duration::from_secs(3600));
    std::thread::spawn(move || write(&jobs, beat));
    sender
}

/// Does what it is given until nobody can give it anything any more, and renews leases in between.
fn write(jobs: &Receiver<Job>, beat: Duration) {
    let mut sessions = Sessions::new();
    let mut next = Instant::now() + beat;
    loop {
        let job = match sessions.is_empty() {
            true => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => jobs.recv_timeout(next.saturating_duration_since(Instant::now())),
        };
        match job {
            Ok(job) => job(&mut sessions),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if Instant::now() >= next {
            sessions.values().for_each(Owned::renew);
            next = Instant::now() + beat;
        }
    }
}
