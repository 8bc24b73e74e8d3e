//! Real server cores (log, state, broker, workers, planner), one or several, and thousands of clients in memory.
//!
//! The clients send the calls of real ones: they register, follow the stream of their allocations and report status.
//! They run nothing. [`run`] submits jobs to such a cluster as fast as it accepts them and reports figures. [`storm`]
//! lets nodes join, vanish and drain in the meantime. [`Web`] serves the HTTP API and the web page of a filled
//! cluster. [`survey`] checks that nothing was lost, duplicated or over-committed.

mod client;
mod cluster;
mod load;
mod serve;
mod servers;
mod storm;
mod survey;

pub use client::SimClient;
pub use cluster::{Cluster, FleetError, Setup};
pub use load::{Figures, Load, run};
pub use serve::{Size, Web, fill, plain_nodes};
pub use storm::{Storm, storm};
pub use survey::{Finding, survey};
