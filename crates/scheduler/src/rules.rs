//! How the cluster is set to schedule (`http-api` section 5.7, `SchedulerConfig`).

use caravan_types::job::JobType;

/// Which nodes are preferred when several have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The fullest: few nodes carry much.
    #[default]
    Binpack,
    /// The emptiest: all nodes carry a little.
    Spread,
}

/// For which jobs others of lower priority may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field stands for the job type that it is named after")]
pub struct Preemption {
    pub system: bool,
    pub sysbatch: bool,
    pub batch: bool,
    pub service: bool,
}

impl Default for Preemption {
    /// Only system jobs preempt, as long as nobody says otherwise.
    fn default() -> Self {
        Self { system: true, sysbatch: false, batch: false, service: false }
    }
}

impl Preemption {
    /// Whether jobs of this type may preempt others.
    pub fn allows(&self, kind: JobType) -> bool {
        match kind {
            JobType::System => self.system,
            JobType::Sysbatch => self.sysbatch,
            JobType::Batch => self.batch,
            JobType::Service => self.service,
        }
    }
}

/// The rules that hold for the jobs of one node pool: those of the cluster, overlaid by the pool's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Which nodes are preferred.
    pub algorithm: Algorithm,
    /// Whether tasks may use more memory than they reserve (`memory_max`).
    pub memory_oversubscription: bool,
    /// Who may preempt.
    pub preemption: Preemption,
}
