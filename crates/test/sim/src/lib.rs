//! Clusters in memory: the real state and the real scheduler, without servers and clients around them.
//!
//! [`Cluster`] applies commands and runs evaluations through the scheduler, [`bench`] measures this, and [`script`]
//! builds clusters from a text of a few lines and prints the decisions.

pub mod bench;
mod cluster;
mod report;
mod samples;
pub mod script;

pub use cluster::{Cluster, commit_all};
pub use report::report;
pub use samples::{job, node, plugin_on};
