//! The shared state: tables over persistent maps, secondary indexes, the application of commands, watches, snapshots
//! and the feed of changes.
//!
//! The whole state is one immutable value, [`Root`]. Applying a replicated command creates the next root, and readers
//! of the previous root continue undisturbed. [`Store`] publishes the newest root and wakes its waiters. This crate
//! has no I/O, no clock and no randomness. The command carries every time and every generated id, so all servers
//! reach the same state.

mod apply;
pub mod archive;
mod changes;
mod check;
mod claim;
mod dump;
mod events;
mod index;
mod plugins;
mod read;
mod reads;
mod root;
mod rows;
mod share;
mod snapshot;
mod staged;
mod status;
mod store;
mod tenancy;
mod tx;
mod watch;
mod work;

pub use changes::{ChangeSet, Changed};
pub use check::{check, check_volumes};
pub use dump::dump;
pub use events::{
    CoalescedReader, EVENT_BUFFER, EVENT_BUFFER_BYTES, Event, EventBatch, EventLimit, EventLog, EventObject,
    EventReader, EventRow, EventsMissed, Pending, VolumeUse,
};
pub use reads::Reads;
pub use root::{Root, ScalingEvents, Snapshot, Table};
pub use snapshot::{HEADER as SNAPSHOT_HEADER, SnapshotError, decode, encode, encode_to};
pub use store::{Feed, FeedItem, Store};
pub use tenancy::AdminRow;
pub use watch::{Topic, Watch, WatchBuilder};
pub use work::{Arrivals, NodeWork};

#[cfg(test)]
mod tests;
