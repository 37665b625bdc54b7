use std::panic::resume_unwind;

use terret_agent::ToolError;
use tokio_util::sync::CancellationToken;

/// Does work that blocks, off the async threads, and waits for its end. A panic goes on in the caller.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(error) => Err(error.into()),
        },
    }
}

/// Does work that blocks and changes nothing, and waits for its end or a cancel, whichever comes first. The work should
/// look at the token now and then.
pub(crate) async fn or_cancelled<T: Send + 'static>(
    cancel: CancellationToken,
    work: impl FnOnce(&CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let token = cancel.clone();
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ToolError::new("Cancelled.")),
        result = to_the_end(move || work(&token)) => result,
    }
}
