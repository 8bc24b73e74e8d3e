//! The bridge of a node and the networks of its allocations (docs/design/networks.md), and networks by plugins ([`cni`]).
//!
//! Decisions are pure: [`Pool`] assigns addresses, [`desired`] derives the packet rules, [`compare`] lists the
//! differences between the desired and the actual state. [`Bridge`] reads the actual state, and removes the differences.

mod attachment;
mod bridge;
pub mod cni;
pub mod compare;
mod config;
pub mod desired;
mod fault;
mod foreign;
mod inside;
mod pool;
mod probe;
mod stale;

pub use attachment::{Addresses, Attachment, Forward};
pub use bridge::{Bridge, SetUp, TearDown};
pub use compare::Finding;
pub use config::{BridgeConfig, ConfigFault};
pub use fault::Fault;
pub use foreign::Foreign;
pub use pool::{Full, Pool};
pub use probe::probe;
pub use stale::Moved;

/// Returns a number that identifies a text, the same in every release (FNV-1a, 64 bits).
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
