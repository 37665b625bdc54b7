use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use terret_agent::SessionId;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::owned::Owned;

/// Most of them wait for the disk, which syncs together what several have written.
const THREADS: usize = 16;

/// The threads that write. A session is always written by the same one, and each is started when it is first needed.
#[derive(Default)]
pub(crate) struct Writers([Mutex<Option<Sender<Job>>>; THREADS]);

/// The sessions that a thread has open.
pub(crate) type Sessions = HashMap<SessionId, Owned>;

type Job = Box<dyn FnOnce(&mut Sessions) + Send>;

impl Writers {
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
        let Some(writer) = self.0.get(at) else { return };
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = writer.get_or_insert_with(start);
        // A thread that is gone drops the job, and who waits for it is told.
        let _ = sender.send(job);
    }
}

fn start() -> Sender<Job> {
    let (sender, jobs) = channel::<Job>();
    std::thread::spawn(move || {
        let mut sessions = Sessions::new();
        for job in jobs {
            job(&mut sessions);
        }
    });
    sender
}
