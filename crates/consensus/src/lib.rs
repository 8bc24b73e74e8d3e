//! Replicated log: openraft with its log and votes in redb and snapshots as files.
//!
//! This is the only crate that names openraft. Commands are opaque bytes; what they mean is the
//! business of the [`StateMachine`] that the caller gives. The life of a command:
//!
//! 1. [`Handle::propose`] appends it to the log. Commands that arrive while a flush is under way
//!    share the next one; the first one never waits for company.
//! 2. Once it is on disk (or at once, with [`Storage::Memory`]) it is applied, in log order, on one
//!    task, and the answer of [`StateMachine::apply`] goes back to the proposer.
//! 3. Every [`Config::snapshot_after_entries`] the state machine is captured and written to a file
//!    off-thread; entries older than the newest [`Config::keep_entries`] are then dropped.
//!
//! An index handed to [`StateMachine::apply`] is unique and only grows, across restarts too. The
//! log's own entries (a new leader's first, membership) use indexes as well, so there are gaps.
//!
//! A failed write or flush is final: [`Service::run`] ends with [`Error::Fatal`] and so should the
//! process, because nobody can tell afterwards what the disk holds.

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
