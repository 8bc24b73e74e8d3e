//! Profiles of the agent's process, as the routes ask for them.

use async_trait::async_trait;
use bytes::Bytes;
use std::fmt;
use std::time::Duration;

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Another request takes a profile.
    #[error("a CPU profile is being taken already: one at a time")]
    Busy,
    /// The profile cannot be taken.
    #[error("the CPU profile cannot be taken: {0}")]
    Failed(String),
}

/// Takes profiles of this process.
#[async_trait]
pub trait Profiler: fmt::Debug + Send + Sync + 'static {
    /// Samples where the process spends its processor time. Returns the profile in the format of pprof, compressed by gzip.
    /// A profile ends early when the future is dropped.
    async fn cpu(&self, time: Duration) -> Result<Bytes, ProfileError>;
}
