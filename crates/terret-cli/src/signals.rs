//! Signals: the first one cancels the run, the second one leaves at once.

use terret::agent::RunHandle;

use crate::exit::Exit;

pub(crate) const INTERRUPTED: &str = "interrupted";
pub(crate) const TERMINATED: &str = "terminated";

/// Cancels the run at the first SIGINT or SIGTERM, and ends the process at the second. Never returns.
#[cfg(unix)]
pub(crate) async fn watch(run: RunHandle) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    let mut cancelled = false;
    loop {
        let (reason, exit) = tokio::select! {
            _ = interrupt.recv() => (INTERRUPTED, Exit::Interrupted),
            _ = terminate.recv() => (TERMINATED, Exit::Terminated),
        };
        if std::mem::replace(&mut cancelled, true) {
            std::process::exit(exit.code().into());
        }
        run.cancel(reason);
    }
}

/// Cancels the run at the first Ctrl-C, and ends the process at the second. Never returns.
#[cfg(not(unix))]
pub(crate) async fn watch(run: RunHandle) {
    let mut cancelled = false;
    while tokio::signal::ctrl_c().await.is_ok() {
        if std::mem::replace(&mut cancelled, true) {
            std::process::exit(Exit::Interrupted.code().into());
        }
        run.cancel(INTERRUPTED);
    }
    std::future::pending().await
}
