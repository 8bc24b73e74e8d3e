//! Chaos tests: random schedules of failures of machines, agents, plugins and jobs, then a quiet phase, then
//! checks of all guarantees for volumes.
//!
//! A seed determines its schedule. It does not determine the order of the steps and of the work of the cluster, so a
//! failed seed is run several times.

mod check;
pub(crate) mod rng;
mod run;
mod schedule;

/// The schedules of the project's tests: together they cover every plugin and the most important steps.
pub const SUITE_SEEDS: [u64; 3] = [3, 18, 21];

pub use check::one_writer_at_a_time;
pub use run::{Chaos, ChaosOptions, Passed, render, run_seeds};
pub use schedule::{Action, JobPlan, Schedule, Shape, Step, VolumePlan, draw};
