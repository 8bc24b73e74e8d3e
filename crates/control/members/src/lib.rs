//! The membership of servers (docs/reference/cluster.md, sections 4, 5, 8 and 11): the servers in all regions,
//! with addresses, tags and status. It finds servers; only the replicated log decides which of them vote.
//!
//! A pure state machine (`core`) has the table of members. foca detects failures, and this crate has the
//! rest: rows with tags, the statuses, leaving, forced leaving, pruning, reaping. [`Service`] carries the
//! messages over TCP on `ports.serf`, encrypted with the keys of the key ring. [`Handle`] is the interface
//! for other crates. `docs/design/members.md` describes the protocol.

mod core;
mod error;
mod frame;
mod handle;
mod join;
mod key;
mod keys;
mod member;
mod net;
mod remembered;
mod resolve;
mod service;
mod session;

pub use crate::core::Timing;
pub use error::{Error, Stopped};
pub use frame::MAX_TAG_BYTES;
pub use handle::{Handle, JoinFailure, JoinResult, KeyringAnswer, SetTagsError, Stats};
pub use join::{Discovered, JoinError, Next, RETRY_INTERVAL, RetryPlan, discover, retry_join, start_join};
pub use key::{Key, KeyError, KeyTag};
pub use member::{Event, Member, PROTOCOL, Protocol, ServerTags, Status, Tags, View};
pub use resolve::{AddressError, JoinAddress, JoinEntry};
pub use service::{Config, Service};
