//! Forgetting what is over: by age, every now and then, and at once when a user asks (docs/reference/jobspec.md, section 11.2).
//!
//! Rows of plugins and ends of claims need no thresholds of their own: they are derived, and go with the last thing
//! that they are derived from.

mod collect;

pub use collect::Ages;

use crate::core::Core;
use crate::error::ServerError;
use caravan_types::Nanos;
use tokio_util::sync::CancellationToken;

/// When what is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcConfig {
    /// Between two looks (`job_gc_interval`).
    pub interval: Nanos,
    /// How old what is collected is.
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

/// Collects; one per leader.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) core: Core,
    pub(crate) config: GcConfig,
}

impl Collector {
    /// Runs until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let pause = self.config.interval.max(Nanos::from_secs(1)).to_std();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            if let Err(error) = collect(&self.core, &self.config.ages).await {
                tracing::warn!(%error, "what is over could not be collected; trying again later");
            }
        }
    }
}

/// Collects everything that is over and at least so old.
pub(crate) async fn collect(core: &Core, ages: &Ages) -> Result<(), ServerError> {
    let root = core.snapshot();
    for change in collect::collectable(&root, ages, core.aged()) {
        // A row that changed meanwhile is refused, and looked at next time.
        core.propose(change).await?;
    }
    Ok(())
}
