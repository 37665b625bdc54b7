use std::io;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Starts a command from a thread that restricts itself first.
///
/// What Linux takes from a thread, its children don't have either, and the other threads keep. So no code of ours has
/// to run between fork and exec, where almost nothing is safe.
pub(super) async fn spawn(
    restrict: impl FnOnce() -> io::Result<()> + Send + 'static,
    mut command: CommandWrap,
) -> io::Result<(Box<dyn ChildWrapper>, Starter)> {
    let runtime = Handle::current();
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("terret-sandbox".to_owned()).spawn(move || {
        let _entered = runtime.enter();
        let spawned = restrict().and_then(|()| command.spawn());
        if let Err((_, Ok(mut unwanted))) = sender.send((rustix::thread::gettid(), spawned)) {
            // Nobody waits any more.
            let _ = unwanted.start_kill();
        }
    })?;
    let started = receiver.await;
    let (id, spawned) = started.map_err(|_| io::Error::other("the thread that starts commands has ended"))?;
    Ok((spawned?, Starter { thread, id }))
}

/// The thread that has started a command. It has the same restrictions, so that the command could look through it into
/// the memory of this program.
pub(super) struct Starter {
    thread: JoinHandle<()>,
    id: Pid,
}

impl Starter {
    /// Waits until it is gone, which the kernel is told of a little later than others.
    pub(super) async fn gone(self) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let wait = move || {
            let _ = self.thread.join();
            let entry = format!("/proc/self/task/{}", self.id.as_raw_pid());
            let begin = Instant::now();
            while Path::new(&entry).exists() {
                if begin.elapsed() > PATIENCE {
                    return Err(io::Error::other("the thread that starts commands doesn't end"));
                }
                std::thread::yield_now();
            }
            Ok(())
        };
        tokio::task::spawn_blocking(wait).await.map_err(io::Error::other)?
    }
}

/// Keeps this thread and its children from ever gaining a privilege.
pub(super) fn gain_nothing() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Gives up all capabilities of this thread, for good. As root, much of what protects others goes by them.
pub(super) fn drop_capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        // Only who holds CAP_SETPCAP may and need do this.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    // Without permitted capabilities there can be no ambient ones.
    Ok(())
}
