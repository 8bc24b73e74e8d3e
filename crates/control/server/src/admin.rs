//! The objects that operators change: namespaces, node pools, settings of the region, access control, root keys.

mod acl;
mod auth;
mod chores;
mod fault;
mod keys;
mod login;
mod login_fault;
mod oidc;

pub(crate) use chores::{Chores, KeyLoader};
pub use fault::AdminFault;
pub use keys::Introduction;
pub use login_fault::LoginFault;
pub use oidc::{OidcBegin, OidcDone};

use crate::acl::{AclConfig, Caller, Denied, Resolver};
use crate::core::{Core, new_id};
use crate::documents::Documents;
use crate::error::ServerError;
use crate::runtime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use caravan_messages::cluster::ClusterKey;
use caravan_state::Root;
use caravan_types::Namespace;
use caravan_types::admin::AdminChange;
use caravan_types::alloc::Allocation;
use caravan_types::blob::Blob;
use caravan_types::command::{Change, Outcome, Refusal};
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node_pool::NodePool;
use caravan_types::operator::{AutopilotConfig, SchedulerConfig};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use std::sync::Arc;

/// The maximum size in bytes of a part of a snapshot in one command.
const RESTORE_PART: usize = 1024 * 1024;

/// The endpoint for operators' requests; cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    core: Core,
    region: String,
    config: AclConfig,
    resolver: Resolver,
    /// The issuer of identities, as a URL that other parties can reach, or `None` if not configured.
    issuer: Option<String>,
    /// The file in which an operator writes the index of the bootstrap, to permit another one.
    reset_file: Option<PathBuf>,
    /// Whether this region is the authoritative one.
    is_authoritative: bool,
    /// Pending logins at the pages of OpenID providers.
    logins: oidc::Logins,
    /// Cached key sets and discovery documents of other parties.
    documents: Documents,
    /// The lock that a restore holds.
    restoring: Arc<tokio::sync::Mutex<()>>,
}

/// Returns a hash that differs for different content.
fn hash_of(content: &impl Serialize) -> String {
    // All rows have text keys, and serialization in memory cannot fail otherwise.
    let bytes = serde_json::to_vec(content).unwrap_or_default();
    BASE64.encode(Sha256::digest(bytes))
}

impl Admin {
    pub(crate) fn new(core: Core, region: String, config: AclConfig, issuer: Option<String>) -> Self {
        let resolver = Resolver::new(config.enabled, core.keyring.clone());
        Self {
            core,
            region,
            config,
            resolver,
            issuer,
            reset_file: None,
            is_authoritative: true,
            logins: oidc::Logins::default(),
            documents: Documents::default(),
            restoring: Arc::default(),
        }
    }

    /// Returns the same endpoint with another core. Caches and pending logins are shared.
    pub(crate) fn with_core(&self, core: Core) -> Self {
        Self { core, ..self.clone() }
    }

    /// Sets the file that permits another bootstrap.
    pub(crate) fn with_reset_file(self, reset_file: Option<PathBuf>) -> Self {
        Self { reset_file, ..self }
    }

    /// Sets whether the region is the authoritative one.
    pub(crate) fn in_region(self, is_authoritative: bool) -> Self {
        Self { is_authoritative, ..self }
    }

    /// Returns whether access control is enabled.
    pub fn acl_enabled(&self) -> bool {
        self.resolver.enabled()
    }

    /// Returns the caller for a task of an allocation, on whose behalf its node sends a request.
    pub(crate) fn task(&self, root: &Root, alloc: &Allocation, task: &str) -> Caller {
        self.resolver.task(root, alloc, task)
    }

    /// Returns the caller that a secret identifies; an empty secret is the anonymous caller.
    ///
    /// # Errors
    /// If the secret is unknown or expired.
    pub fn caller(&self, secret: &str) -> Result<Caller, Denied> {
        self.resolver.resolve(&self.core.snapshot(), secret, self.core.now())
    }

    /// Returns the caller as [`Admin::caller`], with a state that the caller has already read.
    ///
    /// # Errors
    /// As [`Admin::caller`].
    pub fn caller_in(&self, root: &Root, secret: &str) -> Result<Caller, Denied> {
        self.resolver.resolve(root, secret, self.core.now())
    }

    async fn propose(&self, change: AdminChange) -> Result<Outcome, ServerError> {
        self.core.propose(Change::Admin(change)).await
    }

    /// Commits a change and returns the index; `fault` converts a refusal.
    async fn commit_as(
        &self,
        change: AdminChange,
        fault: fn(Refusal) -> AdminFault,
    ) -> Result<u64, ServerError> {
        let outcome = self.propose(change).await?;
        match outcome.refused {
            None => Ok(outcome.index),
            Some(refusal) => Err(fault(refusal).into()),
        }
    }

    async fn commit(&self, change: AdminChange) -> Result<u64, ServerError> {
        self.commit_as(change, AdminFault::Refused).await
    }

    /// Writes a namespace.
    ///
    /// # Errors
    /// If the request has problems; the error contains all of them.
    pub async fn write_namespace(&self, mut row: NamespaceSpec) -> Result<u64, ServerError> {
        if let Err(problems) = row.check() {
            return Err(AdminFault::Namespace { namespace: row.name, problems }.into());
        }
        if !row.quota.is_empty() {
            return Err(AdminFault::NoQuota { namespace: row.name, quota: row.quota }.into());
        }
        (row.create_index, row.modify_index, row.hash) = (0, 0, String::new());
        row.hash = hash_of(&row);
        self.commit(AdminChange::NamespaceWrite(Box::new(row))).await
    }

    /// Removes an empty namespace.
    ///
    /// # Errors
    /// If the namespace is not empty, or does not exist.
    pub async fn delete_namespace(&self, name: Namespace) -> Result<u64, ServerError> {
        let region = self.region.clone();
        self.commit(AdminChange::NamespaceDelete { name, region }).await
    }

    /// Writes a node pool.
    ///
    /// # Errors
    /// If the request has problems; the error contains all of them.
    pub async fn write_node_pool(&self, mut row: NodePool) -> Result<u64, ServerError> {
        if NodePool::is_built_in(&row.name) {
            return Err(AdminFault::BuiltInPool(row.name).into());
        }
        if let Err(problems) = row.check() {
            return Err(AdminFault::NodePool { pool: row.name, problems }.into());
        }
        if row.scheduler_configuration.is_some() {
            return Err(AdminFault::Governance.into());
        }
        (row.create_index, row.modify_index, row.hash) = (0, 0, None);
        row.hash = Some(hash_of(&row));
        self.commit(AdminChange::NodePoolWrite(Box::new(row))).await
    }

    /// Removes an empty node pool.
    ///
    /// # Errors
    /// If the node pool is not empty, or does not exist.
    pub async fn delete_node_pool(&self, name: String) -> Result<u64, ServerError> {
        let region = self.region.clone();
        self.commit(AdminChange::NodePoolDelete { name, region }).await
    }

    /// Writes the scheduler configuration. With `check_index`, writes it only if it was last changed at that index.
    /// Returns whether it was written, and the index.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn set_scheduler(
        &self,
        config: SchedulerConfig,
        check_index: Option<u64>,
    ) -> Result<(bool, u64), ServerError> {
        set(self.propose(AdminChange::Scheduler { config: Box::new(config), check_index }).await?)
    }

    /// Writes the autopilot configuration; as [`Admin::set_scheduler`].
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn set_autopilot(
        &self,
        config: AutopilotConfig,
        check_index: Option<u64>,
    ) -> Result<(bool, u64), ServerError> {
        set(self.propose(AdminChange::Autopilot { config: Box::new(config), check_index }).await?)
    }

    /// Returns the key of the cluster, for a snapshot that is saved with it.
    ///
    /// # Errors
    /// If this server belongs to no cluster yet.
    pub fn cluster_key(&self) -> Result<ClusterKey, ServerError> {
        Ok(self.core.keyring.cluster_key().ok_or(crate::keyring::KeyringFault::NoClusterKey)?)
    }

    /// Replaces the whole state by a snapshot. Root keys of another cluster are sealed with the key of this cluster.
    /// Restores run one after the other, and each completes even if its caller disconnects.
    ///
    /// # Errors
    /// If the bytes are not a snapshot, the change cannot be made durable, or the root keys cannot be opened.
    pub async fn restore(&self, snapshot: Vec<u8>, keys: SnapshotKeys) -> Result<u64, ServerError> {
        let admin = self.clone();
        let restored = runtime::spawn(async move { admin.restored(snapshot, keys).await }).await;
        restored.map_err(|error| ServerError::CommandFailed(Arc::new(error)))?
    }

    async fn restored(&self, snapshot: Vec<u8>, keys: SnapshotKeys) -> Result<u64, ServerError> {
        let _turn = self.restoring.lock().await;
        let admin = self.clone();
        let snapshot = runtime::spawn_blocking(move || admin.adopted(snapshot, &keys)).await;
        let snapshot = snapshot.map_err(|error| ServerError::CommandFailed(Arc::new(error)))??;
        let index = match self.replace(&snapshot).await {
            Ok(index) => index,
            Err(error) => {
                self.drop_parts().await;
                return Err(error);
            }
        };
        self.core.store.wait_for_index(index).await;
        self.settle_keys().await?;
        Ok(index)
    }

    /// Stores a snapshot in parts, which then replace the state.
    async fn replace(&self, snapshot: &[u8]) -> Result<u64, ServerError> {
        let sha256 = Sha256::digest(snapshot).iter().map(|byte| format!("{byte:02x}")).collect();
        let (id, mut parts) = (new_id(), 0);
        for part in snapshot.chunks(RESTORE_PART) {
            let part = Change::RestorePart { id: id.clone(), number: parts, bytes: Blob(part.to_vec()) };
            self.core.commit(part).await?;
            parts += 1;
        }
        self.core.commit(Change::RestoreCommit { id, parts, sha256 }).await
    }

    /// Removes the parts of a restore that did not complete, for example because its leader died. The parts would
    /// stay in the memory of all servers and in each snapshot.
    pub(crate) async fn drop_parts_of_earlier_terms(&self) {
        if let Ok(_turn) = self.restoring.try_lock()
            && self.core.snapshot().restore_size() > 0
        {
            self.drop_parts().await;
        }
    }

    async fn drop_parts(&self) {
        // The first part of another restore replaces them.
        let nothing = Change::RestorePart { id: new_id(), number: 0, bytes: Blob(Vec::new()) };
        if let Err(error) = self.core.commit(nothing).await {
            tracing::warn!(%error, "the parts of a failed restore were not removed; the next leader removes them");
        }
    }
}

impl Admin {
    /// Returns a snapshot whose root keys the servers of this cluster can open.
    fn adopted(&self, snapshot: Vec<u8>, keys: &SnapshotKeys) -> Result<Vec<u8>, ServerError> {
        let root = caravan_state::decode(&snapshot).map_err(|e| AdminFault::Snapshot(Arc::new(e)))?;
        let other = match keys {
            SnapshotKeys::Needed(other) => other.as_ref(),
            SnapshotKeys::NotNeeded => return Ok(snapshot),
        };
        let ring = &self.core.keyring;
        let fault = |key: &str| AdminFault::SnapshotKey { key: key.to_owned(), is_wrong: other.is_some() };
        let (mut rows, mut is_changed) = (Vec::new(), false);
        for key in root.root_keys() {
            match root.sealed_root_key(&key.key_id) {
                Some(material) => {
                    let adopted = ring.adopt(material, other).map_err(|_| fault(&key.key_id))?;
                    is_changed |= adopted != **material;
                    rows.push(adopted);
                }
                None if ring.has(&key.key_id) => {}
                None => return Err(fault(&key.key_id).into()),
            }
        }
        let is_same = !is_changed && rows.len() == root.root_key_material().count();
        Ok(if is_same { snapshot } else { caravan_state::encode(&root.with_root_key_material(rows)) })
    }
}

/// The treatment of the root keys in a snapshot.
#[derive(Clone, Debug)]
pub enum SnapshotKeys {
    /// All root keys must be readable afterwards. Root keys of another cluster need that cluster's key.
    Needed(Option<ClusterKey>),
    /// Root keys may stay unreadable.
    NotNeeded,
}

fn set(outcome: Outcome) -> Result<(bool, u64), ServerError> {
    match outcome.refused {
        None => Ok((true, outcome.index)),
        Some(Refusal::Changed { .. }) => Ok((false, outcome.index)),
        Some(refusal) => Err(refusal.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::AclConfig;

    #[tokio::test]
    async fn a_restore_that_came_to_no_end_leaves_no_parts() {
        let core = Core::in_memory().await;
        let admin = Admin::new(core.clone(), "r".into(), AclConfig::default(), None);
        let part = Change::RestorePart { id: "dead".into(), number: 0, bytes: Blob(vec![1; 4]) };
        core.commit(part).await.unwrap();
        assert_eq!(core.snapshot().restore_size(), 4);
        admin.drop_parts_of_earlier_terms().await;
        assert_eq!(core.snapshot().restore_size(), 0);
        // A restore that is running keeps its parts.
        let _turn = admin.restoring.lock().await;
        let part = Change::RestorePart { id: "alive".into(), number: 0, bytes: Blob(vec![1; 4]) };
        core.commit(part).await.unwrap();
        admin.drop_parts_of_earlier_terms().await;
        assert_eq!(core.snapshot().restore_size(), 4);
    }
}
