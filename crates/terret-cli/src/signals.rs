//! Signals: the first one asks the program to stop, the second one ends it at once.

use tokio::sync::watch;

use crate::exit::Exit;

pub(crate) const INTERRUPTED: &str = "interrupted";
pub(crate) const TERMINATED: &str = "terminated";

/// Whether the program was asked to stop, and by what.
pub(crate) struct Signals(watch::Receiver<Option<Exit>>);

impl Signals {
    /// Waits for SIGINT, SIGTERM and SIGHUP (which counts as SIGTERM) from now on. The second one ends the process, whatever that is doing.
    pub(crate) fn listen() -> Self {
        let (stop, stopped) = watch::channel(None);
        tokio::spawn(async move {
            let Some(mut arrivals) = Arrivals::new() else { return };
            stop.send_replace(arrivals.next().await);
            if let Some(exit) = arrivals.next().await {
                std::process::exit(exit.code().into());
            }
        });
        Self(stopped)
    }

    /// Ready when the program is asked to stop, with the exit that this means. Cancel safe.
    pub(crate) async fn stop(&self) -> Exit {
        let asked = self.0.clone().wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        match asked {
            Some(exit) => exit,
            None => std::future::pending().await,
        }
    }
}

#[cfg(unix)]
struct Arrivals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Arrivals {
    fn new() -> Option<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt()).ok()?;
        let terminate = signal(SignalKind::terminate()).ok()?;
        let hang_up = signal(SignalKind::hangup()).ok()?;
        Some(Self { interrupt, terminate, hang_up })
    }

    async fn next(&mut self) -> Option<Exit> {
        tokio::select! {
            arrived = self.interrupt.recv() => arrived.map(|()| Exit::Interrupted),
            arrived = self.terminate.recv() => arrived.map(|()| Exit::Terminated),
            arrived = self.hang_up.recv() => arrived.map(|()| Exit::Terminated),
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct Arrivals;

#[cfg(not(unix))]
impl Arrivals {
    fn new() -> Option<Self> {
        Some(Self)
    }

    async fn next(&mut self) -> Option<Exit> {
        tokio::signal::ctrl_c().await.ok().map(|()| Exit::Interrupted)
    }
}
