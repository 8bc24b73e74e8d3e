//! Access control: the rules of policies, the rights they grant, and the caller of a request.
//!
//! Pure except for [`resolve`], which reads the newest state and caches compiled sets of policies.

mod compiled;
mod parse;
mod privilege;
mod resolve;

pub use compiled::Acl;
pub use parse::{RulesError, parse};
pub use privilege::{HostVolumeCap, Level, NsCap, PoolCap, VarCap};
pub use resolve::{Caller, Denied, Workload};
pub(crate) use resolve::{Resolver, claimed_job};

use caravan_types::Nanos;

/// Settings of access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclConfig {
    /// Whether access control is enabled.
    pub enabled: bool,
    /// Shortest lifetime of a token that expires.
    pub min_expiration: Nanos,
    /// Longest lifetime of a token that expires.
    pub max_expiration: Nanos,
}

impl Default for AclConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            min_expiration: Nanos::from_secs(60),
            max_expiration: Nanos::from_secs(24 * 3600),
        }
    }
}
