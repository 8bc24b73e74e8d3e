//! The networks of allocations, as the client and drivers exchange them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The network of an allocation, which its tasks share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkIsolation {
    /// The path at which the network namespace is held ([`caravan_sys::netns`]). Empty if the driver that created the
    /// network has no namespace for it: then only tasks of that driver can join.
    pub path: PathBuf,
    /// Facts that the creator of the network records, by name. The client passes them to each task and does not read
    /// them.
    pub labels: BTreeMap<String, String>,
    /// The allocation's line in `/etc/hosts`; absent while the network has no address.
    pub hosts: Option<HostsLine>,
}

impl NetworkIsolation {
    /// Returns a network that is only a namespace.
    pub fn held_at(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }
}

/// The line of an allocation in `/etc/hosts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsLine {
    /// The name that programs of the allocation see as their own.
    pub hostname: String,
    /// The allocation's address.
    pub address: String,
}

/// A request for the network of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRequest {
    /// The id of the allocation.
    pub alloc_id: String,
    /// The name of the allocation's host in the job; empty if the job sets none.
    pub hostname: String,
}
