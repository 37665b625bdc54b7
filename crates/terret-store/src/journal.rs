use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use terret_agent::machine::{Record, State, apply};
use terret_agent::{Journal, JournalError, Ownership, Resumed, SessionId};
use tokio::sync::oneshot;

use crate::checkpoint;
use crate::error::{Damage, StoreError};
use crate::lock::{Held, LEASE, Lock};
use crate::owned::{Owned, SharedLock, make_folder};
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
        Self { root: folder.into(), writers: Arc::new(Writers::new(LEASE)) }
    }

    /// How long an owner may be silent before others may take its session over; 30 seconds by default. An owner that runs
    /// says so three times as often. One that was stopped for longer and goes on is told
    /// [`Fenced`](JournalError::Fenced) by its next append, if somebody has taken over. One that died is replaced at once.
    ///
    /// Each owner's own time counts. On one machine, neither a clock that is set nor a sleep of the machine matters;
    /// between machines that share a folder, the clock of its file system does.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { writers: Arc::new(Writers::new(lease)), ..self }
    }

    pub(crate) fn lease_time(&self) -> Duration {
        self.writers.lease
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

    /// Takes a session from an owner whose lease has not run out. Its next append is refused, so that it starts nothing
    /// further. To be done only on a person's word.
    pub async fn take_over(&self, session: &SessionId) -> Result<Ownership, StoreError> {
        self.open(session, Lock::take_over).await
    }

    /// Opens a session for writing, and keeps it open for as long as the result isn't dropped.
    async fn open(&self, session: &SessionId, lock: TakeLock) -> Result<Ownership, StoreError> {
        let (place, lease) = (Place::new(&self.root, session), self.writers.lease);
        let (lock, fence) = self
            .writers
            .run(session, move |sessions| {
                let owned = Owned::open(&place, locked(&place, lock, lease)?)?;
                let held = (owned.lock.clone(), owned.fence);
                sessions.insert(place.session, owned);
                Ok(held)
            })
            .await?;
        let guard = Guard { session: session.clone(), fence, writers: self.writers.clone(), lock };
        Ok(Ownership::until_dropped(guard))
    }
}

/// Held by whoever may write.
struct Guard {
    session: SessionId,
    fence: i64,
    writers: Arc<Writers>,
    lock: SharedLock,
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

/// One of the ways to take a lock.
type TakeLock = fn(&Path, Duration) -> Result<Result<Lock, Held>, StoreError>;

pub(crate) fn locked(place: &Place, lock: TakeLock, lease: Duration) -> Result<Lock, StoreError> {
    make_folder(place)?;
    lock(&place.owner(), lease)?.map_err(|held| StoreError::Owned { session: place.session.clone(), owner: held.owner })
}

impl Journal for SqliteJournal {
    fn own<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Ownership, JournalError>> {
        async { Ok(self.open(session, Lock::take).await?) }.boxed()
    }

    /// Without owning the session, it is owned for this one append.
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let (place, lease) = (Place::new(&self.root, session), self.writers.lease);
        let records = records.to_vec();
        let append = move |sessions: &mut Sessions| {
            if let Some(owned) = sessions.get_mut(&place.session) {
                return owned.append(expected, &records);
            }
            let mut owned = Owned::open(&place, locked(&place, Lock::take, lease)?)?;
            let appended = owned.append(expected, &records);
            owned.close();
            appended
        };
        async { Ok(self.writers.run(session, append).await?) }.boxed()
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        let place = Place::new(&self.root, session);
        let load = move || {
            let mut records = Vec::new();
            if let Some(mut reader) = reader_of(&place)? {
                whole(reader.each_to_the_end(|kept| records.push(kept.record))?, &place)?;
            }
            Ok(records)
        };
        blocking(load).boxed()
    }

    /// Memory is bounded by the state and one record. Where there is a checkpoint, only what follows it is read, and
    /// damage before it is not noticed: [`check`](Self::check) reads everything.
    fn resume<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Resumed, JournalError>> {
        let place = Place::new(&self.root, session);
        let resume = move || {
            let Some(mut reader) = reader_of(&place)? else { return Ok(Resumed::default()) };
            let mut state = checkpoint::begin_at(&mut reader)?.unwrap_or_default();
            whole(reader.each_to_the_end(|kept| apply(&mut state, &kept.record))?, &place)?;
            Ok(Resumed { state, records: reader.next })
        };
        blocking(resume).boxed()
    }

    fn checkpoint<'a>(&'a self, session: &'a SessionId, records: u64, state: &'a State) -> BoxFuture<'a, ()> {
        let (place, state) = (Place::new(&self.root, session), state.clone());
        let keep = move |sessions: &mut Sessions| {
            if sessions.contains_key(&place.session) {
                // Without it, the next resume is slower, and that is all.
                let _ = checkpoint::keep(&place, records, &state);
            }
        };
        self.writers.send(session, Box::new(keep));
        std::future::ready(()).boxed()
    }
}

/// A reader, if the session has records.
fn reader_of(place: &Place) -> Result<Option<Reader>, StoreError> {
    if !exists(place)? {
        return Ok(None);
    }
    match Reader::open_place(place) {
        // It had no records, and its owner has just removed it.
        Err(_) if !exists(place)? => Ok(None),
        reader => reader.map(Some),
    }
}

fn whole(damage: Vec<Damage>, place: &Place) -> Result<(), StoreError> {
    if damage.is_empty() {
        return Ok(());
    }
    Err(StoreError::Damaged { session: place.session.clone(), path: place.folder.clone(), damage })
}

/// Runs what blocks on a thread of its own, so that no writer and no other session waits for it.
async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, JournalError> {
    let (done, result) = oneshot::channel();
    std::thread::spawn(move || {
        // Nobody waits any more.
        let _ = done.send(job());
    });
    Ok(result.await.unwrap_or(Err(StoreError::Gone))?)
}

impl std::fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteJournal").field("folder", &self.root).finish_non_exhaustive()
    }
}
