//! Clusters in memory: the real state and the real scheduler, without servers and clients around them.
//!
//! [`Cluster`] applies commands and lets evaluations be decided, [`bench`] measures that, and [`script`] does it
//! by a text of a few lines and prints what came of it.

pub mod bench;
mod cluster;
mod report;
mod samples;
pub mod script;

pub use cluster::{Cluster, commit_all};
pub use report::report;
pub use samples::{job, node, plugin_on};
