//! The scheduler configuration of the cluster (docs/reference/http-api.md, section 5.7, `SchedulerConfig`).

use caravan_types::job::JobType;
use caravan_types::node_pool::NodePool;
use caravan_types::operator::{SchedulerAlgorithm, SchedulerConfig};

/// The order of preference when several nodes have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Prefers the fullest node, so that few nodes are used.
    #[default]
    Binpack,
    /// Prefers the emptiest node, so that the load is spread over all nodes.
    Spread,
}

/// The job types that may preempt allocations of lower priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field stands for the job type that it is named after")]
pub struct Preemption {
    pub system: bool,
    pub sysbatch: bool,
    pub batch: bool,
    pub service: bool,
}

impl Default for Preemption {
    /// Returns the default: only system jobs preempt.
    fn default() -> Self {
        Self { system: true, sysbatch: false, batch: false, service: false }
    }
}

impl Preemption {
    /// Returns whether jobs of this type may preempt other jobs.
    pub fn allows(&self, kind: JobType) -> bool {
        match kind {
            JobType::System => self.system,
            JobType::Sysbatch => self.sysbatch,
            JobType::Batch => self.batch,
            JobType::Service => self.service,
        }
    }
}

/// The configuration for the jobs of one node pool: that of the cluster, overridden by that of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The order in which nodes are preferred.
    pub algorithm: Algorithm,
    /// Whether tasks may use more memory than they reserve (`memory_max`).
    pub memory_oversubscription: bool,
    /// The job types that may preempt.
    pub preemption: Preemption,
}

impl Rules {
    /// Returns the region's configuration, overridden by that of the node pool.
    pub fn new(region: &SchedulerConfig, pool: Option<&NodePool>) -> Self {
        let own = pool.and_then(|pool| pool.scheduler_configuration.as_ref());
        let algorithm = match (own.map(|own| own.scheduler_algorithm.as_str()), region.scheduler_algorithm) {
            (Some("spread"), _) | (None | Some(""), SchedulerAlgorithm::Spread) => Algorithm::Spread,
            _ => Algorithm::Binpack,
        };
        let preemption = region.preemption_config;
        Self {
            algorithm,
            memory_oversubscription: own
                .and_then(|own| own.memory_oversubscription_enabled)
                .unwrap_or(region.memory_oversubscription_enabled),
            preemption: Preemption {
                system: preemption.system_scheduler_enabled,
                sysbatch: preemption.sys_batch_scheduler_enabled,
                batch: preemption.batch_scheduler_enabled,
                service: preemption.service_scheduler_enabled,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::node_pool::NodePoolScheduler;

    #[test]
    fn a_node_pool_overlays_what_is_set_for_the_region() {
        let region = SchedulerConfig::default();
        assert_eq!(Rules::new(&region, None), Rules::default());
        let spread = SchedulerConfig {
            scheduler_algorithm: SchedulerAlgorithm::Spread,
            memory_oversubscription_enabled: true,
            ..SchedulerConfig::default()
        };
        assert_eq!(Rules::new(&spread, Some(&NodePool::default())).algorithm, Algorithm::Spread);
        let pool = NodePool {
            scheduler_configuration: Some(NodePoolScheduler {
                scheduler_algorithm: "binpack".into(),
                memory_oversubscription_enabled: Some(false),
            }),
            ..NodePool::default()
        };
        let rules = Rules::new(&spread, Some(&pool));
        assert_eq!((rules.algorithm, rules.memory_oversubscription), (Algorithm::Binpack, false));
    }
}
