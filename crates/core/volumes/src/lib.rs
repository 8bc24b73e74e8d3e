//! The core of storage: access modes of volumes, the lifecycle of a claim, the next action for a claim, and the paths
//! of its mounts.
//!
//! All functions are synchronous and depend on their arguments only. [`modes`] grants claims, and [`claim`] is their
//! state machine. [`reconcile`] compares a claim with the state of plugin and node. It returns the servers' next
//! action, or the reason of a [`wait`]. [`detach`] returns the step after a refused detach, and [`node`] the next
//! action of the claim's node. [`lease`], [`retry`] and [`seen`] compute waits, [`paths`] and [`topology`] locations,
//! and [`limits`] the room of a node. [`invariants`] states the rules that must always hold.

pub mod claim;
pub mod detach;
pub mod invariants;
pub mod lease;
pub mod limits;
pub mod modes;
pub mod node;
pub mod paths;
pub mod reconcile;
pub mod retry;
pub mod seen;
pub mod topology;
pub mod wait;

pub use claim::IllegalStep;
pub use modes::AdmitError;
pub use paths::PathError;
