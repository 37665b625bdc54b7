use std::io;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Starts a command from a thread that restricts itself first.
///
/// What Linux takes from a thread, its children don't have either, and the other threads keep. So no code of ours has
/// to run between fork and exec, where almost nothing is safe. The thread ends with the start.
pub(super) async fn spawn(
    restrict: impl FnOnce() -> io::Result<()> + Send + 'static,
    mut command: CommandWrap,
) -> io::Result<Box<dyn ChildWrapper>> {
    let runtime = Handle::current();
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("terret-sandbox".to_owned()).spawn(move || {
        let _entered = runtime.enter();
        let spawned = restrict().and_then(|()| command.spawn());
        if let Err(Ok(mut unwanted)) = sender.send(spawned) {
            // Nobody waits any more.
            let _ = unwanted.start_kill();
        }
    })?;
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("the thread that starts commands has ended")))
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
