//! The records of the client state.

use crate::clock;
use crate::csi::{ClaimEntry, Registrations};
use crate::host_volumes::HostVolumeRecord;
use crate::restart::RestartTracker;
use arc_swap::ArcSwapOption;
use caravan_drivers::NetworkIsolation;
use caravan_messages::SignedNode;
use caravan_networks::cni::Attached;
use caravan_networks::{Addresses, Attachment};
use caravan_rpc::{Code, RpcError};
use caravan_types::alloc::{Allocation, TaskState};
use caravan_types::node::NodeSecret;
use caravan_types::{AllocId, NodeId, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The identity of the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The node's id.
    pub(crate) node_id: NodeId,
    /// The secret that proves the identity.
    pub(crate) secret: NodeSecret,
    /// The signed identity, which replaces the secret in calls. Not stored: an agent receives a new one after its
    /// start.
    #[serde(skip)]
    pub(crate) signed: SignedIdentity,
}

impl Identity {
    /// Returns the proof for a call that is retried until it is accepted: the signed identity, or the secret without
    /// a valid one. Calls whose refusal is final, such as reports of claims, use the secret. The clock of a server
    /// may differ from the clock of the signer, and then that server refuses an identity.
    pub(crate) fn proof(&self) -> NodeSecret {
        match self.signed.valid() {
            Some(signed) => NodeSecret::new(signed.token.expose()),
            None => self.secret.clone(),
        }
    }

    /// Drops the signed identity if a server refused a call, so that the next attempt proves the node by its secret.
    pub(crate) fn refused(&self, error: &RpcError) {
        if error.code == Code::Permission {
            self.signed.clear();
        }
    }
}

/// The seconds before the expiry in which an identity is no longer used, because clocks differ and calls take time.
const LEEWAY: i64 = 10;

/// The signed identity of the node, if the servers have signed one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SignedIdentity(Arc<ArcSwapOption<SignedNode>>);

impl SignedIdentity {
    /// Returns the identity if it has not expired.
    pub(crate) fn valid(&self) -> Option<Arc<SignedNode>> {
        let now = clock::now().as_secs();
        self.0.load_full().filter(|signed| signed.claims.exp.is_none_or(|end| end > now + LEEWAY))
    }

    /// Replaces the identity.
    pub(crate) fn set(&self, signed: SignedNode) {
        self.0.store(Some(Arc::new(signed)));
    }

    /// Drops the identity, because the servers refuse it. The node proves itself by its secret until the next
    /// identity.
    pub(crate) fn clear(&self) {
        self.0.store(None);
    }
}

/// Identities are equal if the stored parts are.
impl PartialEq for SignedIdentity {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// The data of a task that must survive a restart of the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TaskRecord {
    /// The last reported state.
    pub(crate) state: TaskState,
    /// The driver's handle of the running task.
    pub(crate) handle: Option<Vec<u8>>,
    /// The driver's id of the task that was started or was about to start.
    pub(crate) driver_id: Option<String>,
    /// The restarts so far.
    pub(crate) restarts: RestartTracker,
    /// Whether the task is being stopped, set before the stop: a task that is dead afterwards was killed, not lost.
    pub(crate) stopping: bool,
    /// Whether the task was stopped or not started because the node's lease ran out.
    pub(crate) fenced: bool,
    /// The time at which this node received the allocation.
    pub(crate) begun: UnixNanos,
    /// Whether the allocation has reached its run time limit.
    pub(crate) timed_out: bool,
    /// The decision that the task does not start again, before it is carried out; the value is whether the task
    /// failed.
    pub(crate) over: Option<bool>,
    /// The user that the client chose for the task.
    pub(crate) dynamic_uid: Option<u32>,
    /// The network namespace that the run joined, if the allocation has a separate one.
    pub(crate) namespace: Option<NamespaceId>,
}

/// The number of a network namespace (`caravan_sys::netns::number`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceId(pub(crate) u64);

/// The network of an allocation. The record is written before a part of the network is created, and removed after all
/// parts are removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttachmentRecord {
    /// The addresses and ports.
    pub(crate) attachment: Attachment,
    /// Whether the set-up was finished, so that tasks may use it.
    pub(crate) ready: bool,
}

/// The network of an allocation by CNI plugins. The record is written before the first plugin runs, and removed after
/// the last plugin has removed its part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PluggedRecord(pub(crate) Attached);

/// The addresses that were assigned last, after which the next ones are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastAddress(pub(crate) Addresses);

/// The network that a driver creates for an allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkRecord {
    /// The name of the driver.
    pub(crate) driver: String,
    /// The network as the driver returned it; absent until then.
    pub(crate) network: Option<NetworkIsolation>,
}

/// All records of the state.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The identity of the node; `None` at the first start.
    pub(crate) identity: Option<Identity>,
    /// The registered plugins.
    pub(crate) registrations: Registrations,
    /// The users' changes of the node metadata.
    pub(crate) node_meta: BTreeMap<String, Option<String>>,
    /// Allocations as the servers sent them.
    pub(crate) allocs: Vec<Allocation>,
    /// Tasks by allocation and name.
    pub(crate) tasks: BTreeMap<(AllocId, String), TaskRecord>,
    /// The ledger of mounts.
    pub(crate) claims: Vec<ClaimEntry>,
    /// Host volumes that the servers created on this node.
    pub(crate) host_volumes: Vec<HostVolumeRecord>,
    /// The networks of allocations.
    pub(crate) attachments: Vec<AttachmentRecord>,
    /// The networks of allocations by CNI plugins.
    pub(crate) plugged: Vec<PluggedRecord>,
    /// The addresses that were assigned last.
    pub(crate) last_address: Option<LastAddress>,
    /// Networks that drivers created, by allocation.
    pub(crate) networks: BTreeMap<AllocId, NetworkRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::acl::Secret;
    use caravan_types::identity::Claims;

    #[test]
    fn the_signed_identity_replaces_the_secret_until_it_ends_or_is_refused() {
        let identity =
            Identity { node_id: "n".into(), secret: NodeSecret::new("s"), signed: Default::default() };
        let until = |end: Option<i64>| SignedNode {
            token: Secret::new("a.b.c"),
            claims: Claims { exp: end, ..Claims::default() },
        };
        let now = clock::now().as_secs();
        assert_eq!(identity.proof().expose(), "s");
        // All parts of the client share the identity.
        let shared = identity.clone();
        for (end, proof) in [(None, "a.b.c"), (Some(now + 3600), "a.b.c"), (Some(now - 1), "s")] {
            identity.signed.set(until(end));
            assert_eq!(shared.proof().expose(), proof, "{end:?}");
        }
        identity.signed.set(until(None));
        identity.refused(&RpcError::unavailable("no leader"));
        assert_eq!(shared.proof().expose(), "a.b.c");
        identity.refused(&RpcError::new(Code::Permission, "its identity is refused"));
        assert_eq!(shared.proof().expose(), "s");
    }
}
