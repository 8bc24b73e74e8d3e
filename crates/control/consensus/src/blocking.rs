//! Work that blocks a thread: the disk, and the encoding of large states.

use std::io;

/// Runs `work` where it may block, and returns its result.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
