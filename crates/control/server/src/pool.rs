//! The pool of workers: their number, and the types of evaluations that they process. Operators change both at run
//! time.

use crate::broker::Broker;
use crate::core::Core;
use crate::plan::Planner;
use crate::runtime::{self, select};
use crate::worker::Worker;
use caravan_types::job::JobType;
use parking_lot::Mutex;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The maximum number of workers of a server.
pub const MAX_WORKERS: usize = 256;

/// A type of evaluation that workers process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Evaluations of jobs of one type.
    Job(JobType),
    /// Evaluations of the servers' own work, named `_core`.
    Core,
}

impl Scheduler {
    /// All types, in the order in which agents list them.
    pub const ALL: [Self; 5] = [
        Self::Job(JobType::Batch),
        Self::Job(JobType::System),
        Self::Job(JobType::Sysbatch),
        Self::Job(JobType::Service),
        Self::Core,
    ];

    /// Returns the name that clients use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job(kind) => kind.as_str(),
            Self::Core => "_core",
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name of a scheduler that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown scheduler {0:?}: there are batch, system, sysbatch, service and _core")]
pub struct UnknownScheduler(pub String);

impl FromStr for Scheduler {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|scheduler| scheduler.as_str() == name);
        known.ok_or_else(|| UnknownScheduler(name.to_owned()))
    }
}

/// A setting of the pool that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkersError {
    /// The servers' own work cannot be disabled.
    #[error("the scheduler _core cannot be disabled")]
    NoCore,
    /// More than [`MAX_WORKERS`].
    #[error("num_schedulers must be between 0 and {MAX_WORKERS}")]
    TooMany,
}

/// The number of active workers, and the types that they process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    pub(crate) number: usize,
    enabled: Vec<Scheduler>,
}

impl Workers {
    /// Returns settings for `number` workers that process the `enabled` types.
    ///
    /// # Errors
    /// If there are too many workers, or `_core` is not among the types.
    pub fn new(number: usize, enabled: Vec<Scheduler>) -> Result<Self, WorkersError> {
        if number > MAX_WORKERS {
            return Err(WorkersError::TooMany);
        }
        if !enabled.contains(&Scheduler::Core) {
            return Err(WorkersError::NoCore);
        }
        Ok(Self { number, enabled })
    }

    /// Returns settings for `number` workers, at most [`MAX_WORKERS`], that process every type.
    pub fn all(number: usize) -> Self {
        Self { number: number.min(MAX_WORKERS), enabled: Scheduler::ALL.to_vec() }
    }

    /// Returns the number of active workers.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the types that the workers process, in the order in which an operator named them.
    pub fn enabled(&self) -> &[Scheduler] {
        &self.enabled
    }

    /// Returns whether the workers process an evaluation of a type. Any worker dequeues an unknown type, and fails
    /// the evaluation.
    pub(crate) fn takes(&self, kind: &str) -> bool {
        kind.parse().map_or(true, |scheduler: Scheduler| self.enabled.contains(&scheduler))
    }
}

/// The settings that the workers of a server follow.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    settings: watch::Sender<Workers>,
}

impl WorkerPool {
    pub(crate) fn new(settings: Workers) -> Self {
        Self { settings: watch::Sender::new(settings) }
    }

    pub(crate) fn settings(&self) -> Workers {
        self.settings.borrow().clone()
    }

    pub(crate) fn set(&self, settings: Workers) {
        self.settings.send_replace(settings);
    }

    /// Returns the settings and their changes.
    pub(crate) fn follow(&self) -> watch::Receiver<Workers> {
        self.settings.subscribe()
    }
}

/// The service that starts workers when an operator raises their number. Surplus workers sleep.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) core: Core,
    pub(crate) broker: Broker,
    pub(crate) planner: Planner,
    pub(crate) tracker: TaskTracker,
}

impl Crew {
    /// Starts workers until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut settings = self.pool.follow();
        let mut started = 0;
        loop {
            let desired = settings.borrow_and_update().number;
            for index in started..desired {
                let worker = Worker {
                    index,
                    pool: self.pool.clone(),
                    core: self.core.clone(),
                    broker: self.broker.clone(),
                    planner: self.planner.clone(),
                    memory: Mutex::default(),
                };
                runtime::spawn_in(&self.tracker, worker.run(cancel.clone()));
            }
            started = started.max(desired);
            select! {
                () = cancel.cancelled() => return,
                changed = settings.changed() => debug_assert!(changed.is_ok(), "the crew holds the pool"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_schedulers_read_as_they_are_written() {
        for scheduler in Scheduler::ALL {
            assert_eq!(scheduler.as_str().parse(), Ok(scheduler));
        }
        assert_eq!("core".parse::<Scheduler>(), Err(UnknownScheduler("core".into())));
    }

    #[test]
    fn own_work_stays_enabled_and_the_number_is_bounded() {
        let system = Scheduler::Job(JobType::System);
        assert_eq!(Workers::new(1, vec![system]), Err(WorkersError::NoCore));
        assert_eq!(Workers::new(MAX_WORKERS + 1, Scheduler::ALL.to_vec()), Err(WorkersError::TooMany));
        let workers = Workers::new(0, vec![Scheduler::Core, system]).unwrap();
        assert!(workers.takes("system") && workers.takes("_core"));
        assert!(!workers.takes("batch") && !workers.takes("service") && !workers.takes("sysbatch"));
    }
}
