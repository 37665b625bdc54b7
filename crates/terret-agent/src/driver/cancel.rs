use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A request to cancel, with the reason of whoever asked first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel {
    pub(super) token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

impl Cancel {
    pub(crate) fn request(&self, reason: String) {
        // Only the first reason counts.
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    pub(crate) async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// Waits until it was requested so long ago.
    pub(super) async fn requested_for(&self, long: Duration) {
        self.requested().await;
        tokio::time::sleep(long).await;
    }

    pub(crate) fn reason(&self) -> String {
        self.reason.get().cloned().unwrap_or_default()
    }
}

/// Fires when everything has to stop; at the latest when nobody is there any more to say so, as after a panic.
#[derive(Debug, Default)]
pub(super) struct Stop(CancellationToken);

impl Deref for Stop {
    type Target = CancellationToken;

    fn deref(&self) -> &CancellationToken {
        &self.0
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
