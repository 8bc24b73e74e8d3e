//! Replicated log: openraft with its log and votes in segments, and snapshots as files.
//!
//! Only this crate uses openraft. Commands are opaque bytes, which the caller's [`StateMachine`] interprets. The life
//! of a command:
//!
//! 1. [`Handle::propose`] appends it to the log. Commands that arrive during a flush share the next flush; a single
//!    command never waits for others.
//! 2. Once the command is on disk (or immediately, with [`Storage::Memory`]) it is applied, in log order, on one
//!    task. The result of [`StateMachine::apply`] is returned to the proposer.
//! 3. After every [`Config::snapshot_after_entries`], or [`Config::snapshot_after_bytes`] if that is earlier, the state
//!    machine is captured and written to a file on another thread. Entries older than the newest
//!    [`Config::keep_entries`] are then removed.
//!
//! The index passed to [`StateMachine::apply`] is unique and only grows, also across restarts. The log's own entries
//! (a new leader's first, membership) use indexes as well, so there are gaps.
//!
//! A failed write or flush is final: [`Service::run`] returns [`Error::Fatal`] and the process should end, because
//! the content of the disk is then unknown.
//!
//! Public functions return boxed futures. An `async fn` would be compiled in each crate that awaits it,
//! together with openraft.

mod blocking;
mod commits;
mod config;
mod error;
mod handle;
mod inbound;
mod log;
mod machine;
mod membership;
mod network;
mod offline;
mod raft;
mod reads;
mod recovery;
mod runtime;
mod service;
#[cfg(feature = "simulation")]
pub mod sim;
mod snapshot;
mod start;
#[cfg(test)]
mod storage_tests;
mod wire;

pub use config::{ClusterId, Config, Identity, Peer, PeerAddress, ServerId, Start, Storage, Timing};
pub use error::{BoxError, Error, MembershipError};
pub use handle::{Applied, Handle, Leadership, MAX_COMMAND, Metrics};
pub use log::DiskHealth;
pub use machine::{Capture, Meaning, StateMachine};
pub use membership::{MemberState, Members, MembershipVersion};
pub use network::{MessageKind, NoPeers, PeerTransport};
pub use offline::{AtRest, EntryKind, LogAtRest, LogEntry, at_rest, log_at_rest, snapshot_payload};
pub use recovery::{
    EntryFault, PeersFile, PeersFileFault, RecoveryPeer, Survivor, apply_peers_file, recover_alone,
    recover_with, survivor,
};
pub use service::Service;
pub use start::Consensus;
