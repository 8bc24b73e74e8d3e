//! Chaos: random schedules of everything that happens to machines, agents, plugins and jobs, then quiet, then
//! a look at whether all that was promised of volumes holds.
//!
//! A schedule follows from its seed alone; when its steps meet what goes on in the cluster does not, so a seed
//! that failed is run more than once.

mod check;
mod rng;
mod run;
mod schedule;

/// Schedules of the project's tests: together they meet every plugin and the steps that matter most.
pub const SUITE_SEEDS: [u64; 3] = [3, 18, 21];

pub use check::one_writer_at_a_time;
pub use run::{Chaos, ChaosOptions, Passed, run_seeds, told};
pub use schedule::{Action, JobPlan, Schedule, Shape, Step, VolumePlan, draw};
