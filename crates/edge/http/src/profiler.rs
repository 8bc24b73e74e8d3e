//! Profiles of the agent's process.

use async_trait::async_trait;
use bytes::Bytes;
use std::fmt;
use std::time::Duration;

/// The reason why a profile is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Another request is taking a profile.
    #[error("a CPU profile is being taken already: one at a time")]
    Busy,
    /// The profile cannot be taken; the text is the reason.
    #[error("the CPU profile cannot be taken: {0}")]
    Failed(String),
}

/// A source of profiles of this process.
#[async_trait]
pub trait Profiler: fmt::Debug + Send + Sync + 'static {
    /// Samples the CPU time of the process. Returns the profile in the format of pprof, compressed by gzip.
    /// Dropping the future ends the profile early.
    async fn cpu(&self, time: Duration) -> Result<Bytes, ProfileError>;
}
