//! Work that blocks a thread: the disk, and the encoding of large states.

use std::io;

/// Runs `work` on a thread that may block, and returns its result.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    #[cfg(feature = "simulation")]
    if crate::sim::is_simulated() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
