//! Replicated log: openraft with its log and votes in redb, and snapshots as files.
//!
//! Only this crate uses openraft. Commands are opaque bytes, which the caller's [`StateMachine`] interprets. The life
//! of a command:
//!
//! 1. [`Handle::propose`] appends it to the log. Commands that arrive during a flush share the next flush; a single
//!    command never waits for others.
//! 2. Once it is on disk (or at once, with [`Storage::Memory`]) it is applied, in log order, on one task. The result
//!    of [`StateMachine::apply`] is returned to the proposer.
//! 3. After every [`Config::snapshot_after_entries`] the state machine is captured and written to a file on another
//!    thread. Entries older than the newest [`Config::keep_entries`] are then removed.
//!
//! The index passed to [`StateMachine::apply`] is unique and only grows, also across restarts. The log's own entries
//! (a new leader's first, membership) use indexes as well, so there are gaps.
//!
//! A failed write or flush is final: [`Service::run`] returns [`Error::Fatal`] and the process should end, because
//! the content of the disk is then unknown.

mod config;
mod error;
mod handle;
mod log;
mod machine;
mod network;
mod offline;
mod raft;
mod snapshot;
#[cfg(test)]
mod storage_tests;

pub use config::{Config, ServerId, Storage};
pub use error::{BoxError, Error};
pub use handle::{Applied, Consensus, Handle, Leadership, Metrics, Service};
pub use machine::{Capture, Meaning, StateMachine};
pub use offline::{AtRest, EntryKind, LogAtRest, LogEntry, at_rest, log_at_rest, snapshot_payload};
