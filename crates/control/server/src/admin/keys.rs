//! Root keys, and identities signed with them (docs/reference/http-api.md, sections 3.7 and 5.10).

use super::{Admin, AdminFault};
use crate::acl::claimed_job;
use crate::core::new_id;
use crate::endpoint::{NodeFault, TaskFault};
use crate::error::ServerError;
use crate::keyring::{Jwk, KeyringFault, Signer};
use crate::runtime;
use caravan_messages as messages;
use caravan_state::Root;
use caravan_types::acl::Secret;
use caravan_types::admin::{AdminChange, Resealed, SealedRow};
use caravan_types::identity::{Audience, Claims, DEFAULT_AUDIENCE, DEFAULT_NAME, IdentitySpec};
use caravan_types::node_pool::{DEFAULT, IDENTITY_TTL};
use caravan_types::operator::{RootKeyMeta, RootKeyState};
use caravan_types::{Nanos, NodeId, UnixNanos};
use serde_json::{Value, json};
use std::sync::Arc;

/// The algorithm that seals secrets.
const ALGORITHM: &str = "xchacha20-poly1305";
/// The maximum number of rows that one command seals again.
const BATCH: usize = 256;
/// The default lifetime of a node introduction token.
const INTRODUCTION: Nanos = Nanos::from_secs(300);
/// The maximum lifetime of a node introduction token.
const MAX_INTRODUCTION_TTL: Nanos = Nanos::from_secs(1800);

/// The node that an introduction token admits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    /// The node's name; the empty name permits any name.
    pub node_name: String,
    /// The node's pool; empty: `default`.
    pub node_pool: String,
    /// The lifetime of the token; 0 means five minutes.
    pub ttl: Nanos,
}

impl Admin {
    /// Loads the root keys from the state. Keys that only this server has are kept.
    pub(crate) fn load_keys(&self, root: &Root) {
        for material in root.root_key_material() {
            if let Err(error) = self.core.keyring.load(material) {
                tracing::error!(%error, "a root key cannot be used");
            }
        }
        if let Some(active) = root.active_root_key() {
            self.core.keyring.activate(&active.key_id);
        }
    }

    /// Writes missing key material to the state, and activates a prepublished key that is due, or the first root key.
    /// Only the leader calls this function, at the beginning of its term and when a prepublished key is due.
    pub(crate) async fn settle_keys(&self) -> Result<(), ServerError> {
        let (root, now) = (self.core.snapshot(), self.core.now());
        self.load_keys(&root);
        // Keys of earlier versions are in files of their server only.
        let ring = &self.core.keyring;
        let lacks = |id: &str| match root.sealed_root_key(id) {
            None => true,
            Some(material) => !material.signs && ring.known_signer(id).is_some(),
        };
        let mut own: Vec<_> = Vec::new();
        for key in root.root_keys().filter(|key| ring.has(&key.key_id) && lacks(&key.key_id)) {
            own.push(ring.sealed(&key.key_id, None)?);
        }
        if !own.is_empty() {
            self.commit(AdminChange::RootKeyMaterial(own)).await?;
        }
        let due = root.root_keys().find(|key| {
            key.state == RootKeyState::Prepublished && key.publish_time <= now && ring.has(&key.key_id)
        });
        if let Some(key) = due {
            let key = RootKeyMeta { state: RootKeyState::Active, ..(**key).clone() };
            let id = key.key_id.clone();
            let change = AdminChange::RootKeyWrite { key: Box::new(key), full: false, material: None };
            self.commit(change).await?;
            ring.activate(&id);
            return Ok(());
        }
        match root.active_root_key() {
            Some(key) if ring.has(&key.key_id) => ring.activate(&key.key_id),
            // The state is new, or comes from another cluster: its sealed data cannot be opened. From now on the
            // cluster uses a key of this server.
            _ => {
                let id = match ring.active() {
                    id if id.is_empty() => ring.make()?,
                    id => id,
                };
                self.write_key(&id, RootKeyState::Active, UnixNanos(0), false).await?;
                ring.activate(&id);
            }
        }
        Ok(())
    }

    async fn write_key(
        &self,
        id: &str,
        state: RootKeyState,
        publish_time: UnixNanos,
        full: bool,
    ) -> Result<(RootKeyMeta, u64), ServerError> {
        let key = RootKeyMeta {
            key_id: id.to_owned(),
            algorithm: ALGORITHM.to_owned(),
            state,
            create_time: self.core.now(),
            publish_time,
            ..RootKeyMeta::default()
        };
        // The key is in the same command, so that every server with the row of the key also has the key itself.
        let material = Some(self.core.keyring.sealed(id, None)?);
        let change = AdminChange::RootKeyWrite { key: Box::new(key.clone()), full, material };
        let index = self.commit(change).await?;
        Ok((key, index))
    }

    /// Creates a root key. With `publish`, the key becomes active at that time and is only announced until then. With
    /// `full`, data sealed with other keys is sealed again.
    ///
    /// # Errors
    /// If both are requested, or the key cannot be stored.
    pub async fn rotate_key(
        &self,
        full: bool,
        publish: Option<UnixNanos>,
    ) -> Result<(RootKeyMeta, u64), ServerError> {
        if full && publish.is_some() {
            return Err(AdminFault::PublishAndFull.into());
        }
        let id = self.core.keyring.make()?;
        if let Some(publish) = publish {
            return self.write_key(&id, RootKeyState::Prepublished, publish, false).await;
        }
        let done = self.write_key(&id, RootKeyState::Active, UnixNanos(0), full).await?;
        self.core.keyring.activate(&id);
        if full {
            self.reseal().await?;
        }
        Ok(done)
    }

    /// Seals all data with the active key. Concurrent writes use the active key already.
    async fn reseal(&self) -> Result<(), ServerError> {
        let (root, active) = (self.core.snapshot(), self.core.keyring.active());
        let mut rows: Vec<Resealed> = Vec::new();
        for (row, before, owner) in sealed(&root) {
            if before.is_empty() || before.key == active {
                continue;
            }
            let open = self.core.keyring.open(&owner, &before)?;
            rows.push(Resealed { row, after: self.core.keyring.seal(&owner, &open)?, before });
        }
        for batch in rows.chunks(BATCH) {
            self.commit(AdminChange::Reseal(batch.to_vec())).await?;
        }
        // The other keys seal no data any more.
        let done: Vec<Arc<RootKeyMeta>> = self
            .core
            .snapshot()
            .root_keys()
            .filter(|key| key.state == RootKeyState::Rekeying)
            .cloned()
            .collect();
        for key in done {
            let key = RootKeyMeta { state: RootKeyState::Inactive, ..(*key).clone() };
            let change = AdminChange::RootKeyWrite { key: Box::new(key), full: false, material: None };
            self.commit(change).await?;
        }
        Ok(())
    }

    /// Removes a root key.
    ///
    /// # Errors
    /// If it is active, data sealed with it exists (unless `force`), or it does not exist.
    pub async fn delete_key(&self, id: &str, force: bool) -> Result<u64, ServerError> {
        let index = self.commit(AdminChange::RootKeyDelete { id: id.to_owned(), force }).await?;
        self.core.keyring.remove(id)?;
        Ok(index)
    }

    /// Returns the signer of a key if the log has it: another server must be able to verify what this server signs.
    fn known_signer(&self, id: &str) -> Option<Arc<Signer>> {
        let signs = self.core.snapshot().sealed_root_key(id).is_some_and(|material| material.signs);
        self.core.keyring.known_signer(id).filter(|_| signs)
    }

    /// Returns the signer of a key. The first request creates it, and writes it to the log before its first use.
    async fn signer(&self, id: &str) -> Result<Arc<Signer>, ServerError> {
        if let Some(signer) = self.known_signer(id) {
            return Ok(signer);
        }
        // The key pair is created in a separate task, because a caller that stops waiting must not discard the work.
        // For example, the calls of a node time out after a second. On a slow server, each call would create a key
        // pair, and none would be used.
        let made = runtime::spawn(self.clone().create_signer(id.to_owned()));
        made.await.map_err(|error| KeyringFault::Task(Arc::new(error)))?
    }

    async fn create_signer(self, id: String) -> Result<Arc<Signer>, ServerError> {
        let ring = &self.core.keyring;
        let _turn = ring.signer_turn().await;
        if let Some(signer) = self.known_signer(&id) {
            return Ok(signer);
        }
        let signer = ring.make_signer(&id).await?;
        let material = ring.sealed(&id, Some(&signer))?;
        self.commit(AdminChange::RootKeyMaterial(vec![material])).await?;
        Ok(ring.sign_with(signer))
    }

    async fn active_signer(&self) -> Result<Arc<Signer>, ServerError> {
        self.signer(&self.core.keyring.active()).await
    }

    /// Returns the public keys that verify identities, as a JSON web key set.
    ///
    /// # Errors
    /// If the active key cannot be stored.
    pub async fn key_set(&self) -> Result<Value, ServerError> {
        let root = self.core.snapshot();
        let mut keys: Vec<Jwk> = Vec::new();
        for key in root.root_keys() {
            let signer = match key.state {
                RootKeyState::Active | RootKeyState::Prepublished if self.core.keyring.has(&key.key_id) => {
                    Some(self.signer(&key.key_id).await?)
                }
                _ => self.core.keyring.known_signer(&key.key_id),
            };
            keys.extend(signer.map(|signer| signer.jwk()));
        }
        Ok(json!({"keys": keys}))
    }

    /// Returns the issuer of identities, as a URL that other parties can reach.
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// Signs claims, after filling in the issuer, the time of issue and the expiry.
    pub(crate) async fn sign(&self, claims: Claims, ttl: Nanos) -> Result<String, ServerError> {
        Ok(self.active_signer().await?.sign(&self.issued(claims, ttl))?)
    }

    /// Returns claims with the issuer, the time of issue and the expiry.
    fn issued(&self, mut claims: Claims, ttl: Nanos) -> Claims {
        let now = self.core.now();
        claims.iss = self.issuer.clone().unwrap_or_default();
        (claims.iat, claims.nbf) = (now.as_secs(), now.as_secs());
        claims.exp = (ttl.0 > 0).then(|| now.plus(ttl).as_secs());
        claims.jti = new_id();
        claims
    }

    /// Returns the identity of a node, with the lifetime that its pool specifies.
    pub(crate) async fn sign_node(&self, id: &NodeId) -> Result<messages::SignedNode, ServerError> {
        let root = self.core.snapshot();
        let node = root.node(id).ok_or(NodeFault::NothingToSign)?;
        let ttl = root.node_pool(&node.node_pool).map_or(IDENTITY_TTL, |pool| pool.node_identity_ttl);
        let claims = Claims {
            node_id: id.to_string(),
            node_pool: node.node_pool.clone(),
            node_class: node.node_class.clone(),
            node_datacenter: node.datacenter.clone(),
            sub: format!("node:{}:{}:{id}:{DEFAULT_NAME}", self.region, node.node_pool),
            aud: Audience(vec![DEFAULT_AUDIENCE.to_owned()]),
            ..Claims::default()
        };
        let claims = self.issued(claims, ttl);
        let token = Secret::new(self.active_signer().await?.sign(&claims)?);
        Ok(messages::SignedNode { token, claims })
    }

    /// Returns whether the active key can sign immediately. Otherwise its key pair is created in the background.
    fn prepare_signer(&self) -> bool {
        let active = self.core.keyring.active();
        if self.known_signer(&active).is_some() {
            return true;
        }
        if !self.core.keyring.is_making_signer() {
            let admin = self.clone();
            runtime::spawn(async move {
                if let Err(error) = admin.create_signer(active).await {
                    tracing::warn!(%error, "the key pair that signs identities could not be created");
                }
            });
        }
        false
    }

    /// Returns a new identity of a node, for the response to a heartbeat. A heartbeat renews the node's lease, so it
    /// does not wait for a key pair and does not fail without one. The node requests an identity again with the next
    /// heartbeat.
    pub(crate) async fn renewed_identity(&self, id: &NodeId) -> Option<messages::SignedNode> {
        if !self.prepare_signer() {
            return None;
        }
        match self.sign_node(id).await {
            Ok(signed) => Some(signed),
            Err(error) => {
                tracing::warn!(node = %id, %error, "the identity of a node cannot be renewed");
                None
            }
        }
    }

    /// Returns the identities of an allocation's tasks that its node requests.
    pub(crate) async fn sign_identities(
        &self,
        request: messages::SignIdentities,
    ) -> Result<messages::SignedIdentities, ServerError> {
        let root = self.core.snapshot();
        let alloc = root.alloc(&request.alloc_id).filter(|alloc| alloc.node_id == request.node_id);
        let alloc = alloc.ok_or(TaskFault::NoAlloc)?.clone();
        if alloc.client_terminal() {
            return Err(TaskFault::Over.into());
        }
        let group = alloc.group().ok_or(TaskFault::NoGroup)?;
        let mut tokens = Vec::new();
        for (task, name) in &request.identities {
            let unknown = || TaskFault::NoIdentity { task: task.clone(), name: name.clone() };
            let spec = group
                .task(task)
                .and_then(|task| IdentitySpec::all(task).into_iter().find(|spec| spec.name == *name))
                .ok_or_else(unknown)?;
            let claims = Claims {
                namespace: alloc.namespace.to_string(),
                job_id: claimed_job(&alloc).to_string(),
                allocation_id: alloc.id.to_string(),
                task: task.clone(),
                sub: Claims::workload_subject(
                    &self.region,
                    alloc.namespace.as_str(),
                    claimed_job(&alloc).as_str(),
                    &alloc.task_group,
                    task,
                    name,
                ),
                aud: Audience(match spec.audience {
                    Some(audience) if !audience.is_empty() => audience,
                    _ if spec.name == DEFAULT_NAME => vec![DEFAULT_AUDIENCE.to_owned()],
                    _ => Vec::new(),
                }),
                ..Claims::default()
            };
            tokens.push(Secret::new(self.sign(claims, spec.ttl).await?));
        }
        Ok(messages::SignedIdentities { tokens })
    }

    /// Returns a token that introduces a node.
    ///
    /// # Errors
    /// If the pool does not exist, or no key can sign.
    pub async fn introduce(&self, introduction: Introduction) -> Result<String, ServerError> {
        let pool = match introduction.node_pool.as_str() {
            "" => DEFAULT,
            pool => pool,
        };
        if self.core.snapshot().node_pool(pool).is_none() {
            return Err(AdminFault::NoNodePool(pool.to_owned()).into());
        }
        let ttl = match introduction.ttl {
            ttl if ttl.0 <= 0 => INTRODUCTION,
            ttl => ttl.min(MAX_INTRODUCTION_TTL),
        };
        let claims = Claims {
            sub: format!("node-introduction:{}:{pool}:{}:default", self.region, introduction.node_name),
            node_name: Some(introduction.node_name),
            node_pool: pool.to_owned(),
            aud: Audience(vec![DEFAULT_AUDIENCE.to_owned()]),
            ..Claims::default()
        };
        self.sign(claims, ttl).await
    }
}

/// Returns all sealed data, with the owner to which each item is bound.
fn sealed(root: &Root) -> Vec<(SealedRow, caravan_types::sealed::SealedSecrets, String)> {
    let variables = root.variables().map(|row| {
        (SealedRow::Variable(row.key.clone()), row.items.clone(), crate::variables::owner(&row.key))
    });
    let volumes = root
        .volumes()
        .map(|row| (SealedRow::Volume(row.key()), row.secrets.clone(), crate::secrets::owner(&row.key())));
    let claims = root.claims().map(|row| {
        let owner = crate::secrets::owner(&row.id.volume);
        (SealedRow::Claim(row.id.clone()), row.kept_secrets.clone(), owner)
    });
    variables.chain(volumes).chain(claims).collect()
}
