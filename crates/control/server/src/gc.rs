//! Garbage collection: by age at intervals, and immediately at a user's request (docs/reference/jobspec.md, section
//! 11.2).
//!
//! Rows of plugins and ended claims need no thresholds: they are derived, and are deleted with the last object from
//! which they are derived.

mod collect;

pub use collect::Ages;

use crate::core::Core;
use crate::error::ServerError;
use crate::runtime::{self, select};
use caravan_types::Nanos;
use tokio_util::sync::CancellationToken;

/// The interval and the thresholds of garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcConfig {
    /// The interval between two collections (`job_gc_interval`).
    pub interval: Nanos,
    /// The minimum ages of collected objects.
    pub ages: Ages,
}

impl GcConfig {
    /// Returns the greatest of the ages.
    pub(crate) fn longest(&self) -> Nanos {
        let Ages { evals, batch_evals, jobs, deployments, nodes } = self.ages;
        [batch_evals, jobs, deployments, nodes].into_iter().fold(evals, Nanos::max)
    }
}

impl Default for GcConfig {
    fn default() -> Self {
        let hours = |n: i64| Nanos::from_secs(n * 3600);
        Self {
            interval: Nanos::from_secs(5 * 60),
            ages: Ages {
                evals: hours(1),
                batch_evals: hours(24),
                jobs: hours(4),
                deployments: hours(1),
                nodes: hours(24),
            },
        }
    }
}

/// The service that collects garbage; one per leader.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) core: Core,
    pub(crate) config: GcConfig,
}

impl Collector {
    /// Collects garbage at intervals until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let pause = self.config.interval.max(Nanos::from_secs(1)).to_std();
        loop {
            select! {
                () = cancel.cancelled() => return,
                () = runtime::sleep(pause) => {}
            }
            if let Err(error) = collect(&self.core, &self.config.ages).await {
                tracing::warn!(%error, "garbage could not be collected; retrying later");
            }
        }
    }
}

/// Collects all objects that have ended and have the minimum ages.
pub(crate) async fn collect(core: &Core, ages: &Ages) -> Result<(), ServerError> {
    let root = core.snapshot();
    for change in collect::collectable(&root, ages, core.aged()) {
        // A row that changed meanwhile is refused; the next collection checks it again.
        core.propose(change).await?;
    }
    Ok(())
}
