//! A real server core (log, state, broker, workers, planner) and thousands of clients in memory.
//!
//! The clients call what real ones call: they register, follow the stream of their allocations and tell how those
//! do. They run nothing. [`run`] submits jobs to such a cluster as fast as it takes them and tells what came of it;
//! [`storm`] lets nodes come, vanish and drain meanwhile;
//! [`survey`] looks whether anything was lost, doubled or over-committed.

mod client;
mod cluster;
mod load;
mod storm;
mod survey;

pub use client::SimClient;
pub use cluster::{Cluster, FleetError, Setup};
pub use load::{Figures, Load, run};
pub use storm::{Storm, storm};
pub use survey::{Finding, survey};
