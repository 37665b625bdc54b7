use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use terret_agent::machine::Record;
use terret_agent::{Journal, JournalError, Ownership, SessionId};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::lock::{Held, Lock};
use crate::owned::{Owned, make_folder};
use crate::place::Place;
use crate::reader::{Reader, exists};
use crate::writers::{Sessions, Writers};

/// A journal that keeps sessions in a folder. Clones share their threads and what they own.
///
/// Appending is not cancel safe: what was given to the disk is kept also if nobody waits for it, and the next append must
/// expect it.
#[derive(Clone)]
pub struct SqliteJournal {
    root: PathBuf,
    writers: Arc<Writers>,
}

impl SqliteJournal {
    /// A journal of this folder. Nothing is read or made yet; a folder that isn't there is made by the first append.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { root: folder.into(), writers: Arc::default() }
    }

    /// The folder of all sessions.
    pub fn folder(&self) -> &Path {
        &self.root
    }

    /// A reader at the first record of a session. It reads files and blocks its thread for as long.
    pub fn reader(&self, session: &SessionId) -> Result<Reader, StoreError> {
        Reader::open(&self.root, session)
    }

    /// Waits until what was given to the session's thread is done, also that it closes its files after the session was
    /// dropped. Blocks, for at most so long; for a program that is about to end.
    pub fn flush(&self, session: &SessionId, most: Duration) {
        let (done, result) = std::sync::mpsc::channel();
        let job = move |_: &mut Sessions| {
            // Nobody waits any more.
            let _ = done.send(());
        };
        self.writers.send(session, Box::new(job));
        let _ = result.recv_timeout(most);
    }

    /// Takes a session from an owner that is there but doesn't answer (one that was stopped, say). Its next append is
    /// refused, so that it starts nothing further. To be done only on a person's word.
    pub async fn take_over(&self, session: &SessionId) -> Result<Ownership, StoreError> {
        self.open(session, |place| Lock::take_over(&place.owner()).map(Ok)).await
    }

    /// Opens a session for writing, and keeps it open for as long as the result isn't dropped.
    async fn open(
        &self,
        session: &SessionId,
        lock: impl FnOnce(&Place) -> Result<Result<Lock, Held>, StoreError> + Send + 'static,
    ) -> Result<Ownership, StoreError> {
        let place = Place::new(&self.root, session);
        let (lock, fence) = self
            .writers
            .run(session, move |sessions| {
                let lock = locked(&place, lock)?;
                let owned = Owned::open(&place)?;
                let fence = owned.fence;
                sessions.insert(place.session, owned);
                Ok((lock, fence))
            })
            .await?;
        let guard =
            Guard { session: session.clone(), fence, writers: self.writers.clone(), lock: Mutex::new(Some(lock)) };
        Ok(Ownership::until_dropped(guard))
    }
}

/// Held by whoever may write.
struct Guard {
    session: SessionId,
    fence: i64,
    writers: Arc<Writers>,
    lock: Mutex<Option<Lock>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Others may write at once. The database is closed when its thread comes to it, and an append that was given
        // before is refused if somebody else has raised the fence.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        let (session, fence) = (self.session.clone(), self.fence);
        let close = move |sessions: &mut Sessions| {
            // Unless it has been taken over in the meantime, by this journal itself.
            let still = sessions.get(&session).is_some_and(|owned| owned.fence == fence);
            if let Some(owned) = still.then(|| sessions.remove(&session)).flatten() {
                owned.close();
            }
        };
        self.writers.send(&self.session, Box::new(close));
    }
}

pub(crate) fn locked(
    place: &Place,
    lock: impl FnOnce(&Place) -> Result<Result<Lock, Held>, StoreError>,
) -> Result<Lock, StoreError> {
    make_folder(place)?;
    lock(place)?.map_err(|Held(owner)| StoreError::Owned { session: place.session.clone(), owner })
}

impl Journal for SqliteJournal {
    fn own<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Ownership, JournalError>> {
        async { Ok(self.open(session, |place| Lock::take(&place.owner())).await?) }.boxed()
    }

    /// Without owning the session, it is owned for this one append.
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let place = Place::new(&self.root, session);
        let records = records.to_vec();
        let append = move |sessions: &mut Sessions| {
            if let Some(owned) = sessions.get_mut(&place.session) {
                return owned.append(expected, &records);
            }
            let lock = locked(&place, |place| Lock::take(&place.owner()))?;
            let mut owned = Owned::open(&place)?;
            let appended = owned.append(expected, &records);
            drop(lock);
            owned.close();
            appended
        };
        async { Ok(self.writers.run(session, append).await?) }.boxed()
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        let place = Place::new(&self.root, session);
        let load = move || -> Result<Vec<Record>, JournalError> {
            if !exists(&place)? {
                return Ok(Vec::new());
            }
            match Reader::open_place(&place) {
                // It had no records, and its owner has just removed it.
                Err(_) if !exists(&place)? => Ok(Vec::new()),
                reader => reader?.read_all()?.whole(&place),
            }
        };
        blocking(load).map(|loaded| loaded.unwrap_or_else(|| Err(StoreError::Gone.into()))).boxed()
    }
}

/// Runs what blocks on a thread of its own, so that no writer and no other session waits for it.
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = oneshot::channel();
    std::thread::spawn(move || {
        // Nobody waits any more.
        let _ = done.send(job());
    });
    result.await.ok()
}

impl std::fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteJournal").field("folder", &self.root).finish_non_exhaustive()
    }
}
