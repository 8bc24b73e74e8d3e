//! The core of storage: access modes of volumes, the life of a claim, the next action for a claim, and the paths of its
//! mounts.
//!
//! Everything here is a synchronous function of its arguments. [`modes`] grants claims, [`claim`] is
//! their state machine, [`reconcile`] compares a claim with what is known of plugin and node and names
//! the servers' next action or why it waits ([`wait`]), [`node`] names the next action of the claim's node, [`lease`], [`retry`] and [`seen`]
//! are the arithmetic of waiting, [`paths`], [`limits`] and [`topology`] are the rules of where. [`invariants`] states
//! what must hold of all of it.

pub mod claim;
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
