//! Volumes: the requests of users, the claims of clients, and the reconciler.

mod calls;
mod claims;
mod controller;
mod expand;
pub(crate) mod explain;
mod fault;
mod lifecycle;
mod metrics;
mod reconciler;
mod rights;
mod snapshot_fault;
mod snapshots;
mod spec;
mod usage;

pub use calls::{CALLS_PER_PLUGIN, CallFigures, LaneUse};
pub(crate) use claims::Claims;
pub(crate) use controller::Controllers;
pub use fault::VolumeFault;
pub use metrics::VolumeFigures;
pub(crate) use reconciler::{Reconciler, WaitChanges, Waits as ClaimWaits};
pub use snapshot_fault::SnapshotFault;
pub(crate) use usage::UsageBook;

use crate::acl::{Caller, NsCap};
use crate::core::Core;
use crate::error::{Kind, ServerError};
use crate::runtime::{self, select};
use crate::variables::SEAL_TRIES;
use caravan_messages::{ControllerAnswer, ControllerOperation, NodeDetach};
use caravan_rpc::methods;
use caravan_state::{Root, Topic};
use caravan_types::command::{Change, ClaimStep, Refusal};
use caravan_types::job::MountOptions;
use caravan_types::node::NodeStatus;
use caravan_types::plugin::Plugin;
use caravan_types::ser::Secrets;
use caravan_types::volume::{
    Claim, ClaimId, ClaimPhase, Volume, VolumeExternalStub, VolumePhase, VolumeRequestBody,
};
use caravan_types::{Namespace, NodeId, PluginId, UnixNanos, VolumeKey};
use fault::UpdateFault;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a command's wait for a plugin that is starting.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a command's wait for another command on the same volume.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a node's unpublish and unstage of a volume.
const NODE_DEADLINE: Duration = Duration::from_secs(120);

/// The service for the users' requests about volumes.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    pub(crate) core: Core,
    pub(crate) reconciler: Reconciler,
}

impl Volumes {
    /// Registers volumes that already exist.
    pub(crate) async fn register(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        bodies: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        self.each(caller, namespace, bodies, false).await
    }

    /// Creates volumes by their plugins and registers them.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        bodies: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        self.each(caller, namespace, bodies, true).await
    }

    async fn each(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        mut bodies: Vec<VolumeRequestBody>,
        create: bool,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        if bodies.is_empty() {
            return Err(VolumeFault::NoDefinition.into());
        }
        for body in &mut bodies {
            spec::localise(body, namespace);
            spec::validate(body, create)?;
            if self.core.snapshot().namespace(&body.namespace).is_none() {
                return Err(VolumeFault::NoNamespace(key_of(body)).into());
            }
            rights::check_secrets(caller, &self.core.snapshot(), body)?;
        }
        if create {
            for body in &bodies {
                self.await_controller(&body.plugin_id).await;
                self.makes(&self.core.snapshot(), &body.plugin_id)?;
            }
        }
        let (mut written, mut errors) = (Vec::new(), Vec::new());
        for body in bodies {
            let mut result = self.one(caller, body.clone(), create).await;
            for _ in 1..SEAL_TRIES {
                if result.as_ref().is_err_and(|error| error.kind() == Kind::Retry) {
                    result = self.one(caller, body.clone(), create).await;
                }
            }
            match result {
                Ok(volume) => written.push(volume),
                Err(error) if error.kind() == Kind::Forbidden => return Err(error),
                Err(error) => errors.push(error),
            }
        }
        match errors.len() {
            0 => Ok(written),
            1 if !create => Err(errors.remove(0)),
            _ => Err(VolumeFault::Several(errors).into()),
        }
    }

    async fn one(
        &self,
        caller: &Caller,
        body: VolumeRequestBody,
        create: bool,
    ) -> Result<Arc<Volume>, ServerError> {
        match create {
            true => self.create_one(caller, body).await,
            false => self.register_one(caller, body).await,
        }
    }

    /// Waits for a plugin that is starting: its job runs, but it has not reported its capabilities. The caller
    /// handles a plugin that is not expected or does not start.
    async fn await_controller(&self, id: &PluginId) {
        let starting = |plugin: &Plugin| plugin.controllers_expected > 0 && plugin.controllers_healthy == 0;
        let reported = async {
            loop {
                let mut watch = self.core.store.watch().on(Topic::Plugin(id.clone())).start();
                if !self.core.snapshot().plugin(id).is_some_and(|plugin| starting(plugin)) {
                    return;
                }
                watch.changed().await;
            }
        };
        // A timeout is no error here: the next step reports the missing controller.
        let _ = runtime::timeout(PLUGIN_TIMEOUT, reported).await;
    }

    fn plugin(&self, root: &Root, id: &PluginId) -> Result<Arc<Plugin>, VolumeFault> {
        let plugin = root.plugin(id).ok_or_else(|| VolumeFault::NoPlugin(id.clone()))?;
        if plugin.controller_required && plugin.controllers_healthy == 0 {
            return Err(VolumeFault::NoHealthyController(id.clone()));
        }
        Ok(plugin.clone())
    }

    /// Returns the plugin, if it can create volumes.
    fn makes(&self, root: &Root, id: &PluginId) -> Result<Arc<Plugin>, VolumeFault> {
        let plugin = self.plugin(root, id)?;
        match plugin.controllers.values().find_map(|c| c.controller_info) {
            None if plugin.controllers_expected > 0 => {
                Err(VolumeFault::NoHealthyController(plugin.id.clone()))
            }
            None => Err(VolumeFault::NoController),
            Some(info) if !info.supports_create_delete => Err(VolumeFault::CannotCreate),
            Some(_) => Ok(plugin),
        }
    }

    async fn register_one(
        &self,
        caller: &Caller,
        body: VolumeRequestBody,
    ) -> Result<Arc<Volume>, ServerError> {
        let key = key_of(&body);
        let _own = self.own(&key).await?;
        self.await_controller(&body.plugin_id).await;
        let root = self.core.snapshot();
        rights::check_secrets(caller, &root, &body)?;
        let plugin = self.plugin(&root, &body.plugin_id)?;
        let (row, expect) = match root.volume(&key) {
            Some(current) => {
                (self.merged(&root, current, &body, VolumeFault::Reregister)?, current.modify_index)
            }
            None => {
                let sealed = self.core.seal_volume(&key, &body.secrets, None)?;
                (spec::fresh(&body, sealed, &plugin, VolumePhase::Ready, self.core.now()), 0)
            }
        };
        let before = root.volume(&key).cloned();
        self.growable(&row, &plugin)?;
        // Check before calling the plugin about a volume of another owner.
        lifecycle::owned(&root, &row)?;
        if plugin.controllers_healthy > 0 {
            let operation = ControllerOperation::Validate {
                external_id: row.remote_id().to_owned(),
                capabilities: row.requested_capabilities.clone(),
                mount_options: row.mount_options.clone(),
                parameters: row.parameters.clone(),
                context: row.context.clone(),
                secrets: self.core.secrets_of(&root, &row).map_err(VolumeFault::from)?,
            };
            let controllers = self.reconciler.controllers.about(&key, None);
            match controllers.call(&root, &row.plugin_id, operation).await {
                Ok(ControllerAnswer::Validated { refused: Some(reason) }) => {
                    return Err(VolumeFault::NotValidated { reason }.into());
                }
                Ok(_) => {}
                Err(error) => return Err(VolumeFault::Validate(error).into()),
            }
        }
        self.store_and_grow(row, expect, before.as_deref()).await
    }

    /// Refuses to record an expansion that the plugin cannot perform.
    fn growable(&self, row: &Volume, plugin: &Plugin) -> Result<(), VolumeFault> {
        if row.phase == VolumePhase::Expanding { expand::supported(plugin) } else { Ok(()) }
    }

    /// Writes the row, then performs the expansion that it records, as far as possible now.
    async fn store_and_grow(
        &self,
        row: Volume,
        expect: u64,
        before: Option<&Volume>,
    ) -> Result<Arc<Volume>, ServerError> {
        if row.phase != VolumePhase::Expanding {
            return self.store(row, expect).await;
        }
        let key = row.key();
        let row = self.store(Volume { next_try: UnixNanos(0), ..row }, expect).await?;
        expand::controller(&self.reconciler, &row, row.modify_index, before).await?;
        expand::nodes(&self.reconciler, &key).await?;
        self.row(&key)
    }

    /// Returns the row after an update by a specification; `fault` names the request that a refusal concerns.
    fn merged(
        &self,
        root: &Root,
        current: &Volume,
        body: &VolumeRequestBody,
        fault: fn(UpdateFault) -> VolumeFault,
    ) -> Result<Volume, ServerError> {
        if current.phase == VolumePhase::Deleting {
            return Err(VolumeFault::BeingDeleted(current.id.clone()).into());
        }
        let claims: Vec<Arc<Claim>> = root.claims_of(&current.key()).cloned().collect();
        let claims: Vec<&Claim> = claims.iter().map(|c| &**c).collect();
        let sealed = self.core.seal_volume(&current.key(), &body.secrets, Some(&current.secrets))?;
        Ok(spec::merge(current, body, sealed, &claims).map_err(fault)?)
    }

    async fn store(&self, row: Volume, expect: u64) -> Result<Arc<Volume>, ServerError> {
        let key = row.key();
        match lifecycle::write(&self.core, row, expect).await? {
            Some(_) => self.row(&key),
            None => Err(VolumeFault::Changed(key.id).into()),
        }
    }

    fn row(&self, key: &VolumeKey) -> Result<Arc<Volume>, ServerError> {
        Ok(self.core.snapshot().volume(key).cloned().ok_or_else(|| not_found(key))?)
    }

    async fn create_one(&self, caller: &Caller, body: VolumeRequestBody) -> Result<Arc<Volume>, ServerError> {
        let key = key_of(&body);
        let _own = self.own(&key).await?;
        self.await_controller(&body.plugin_id).await;
        self.check_origin(caller, &body).await?;
        let root = self.core.snapshot();
        rights::check_secrets(caller, &root, &body)?;
        let plugin = self.makes(&root, &body.plugin_id)?;
        let first = root.volume(&key).is_none();
        let (row, index) = match root.volume(&key) {
            Some(current) if current.phase.is_usable() => {
                let merged = self.merged(&root, current, &body, VolumeFault::Update)?;
                if merged == **current && merged.phase == VolumePhase::Ready {
                    return Ok(current.clone());
                }
                self.growable(&merged, &plugin)?;
                return self.store_and_grow(merged, current.modify_index, Some(current)).await;
            }
            // The user repeated a command that was interrupted.
            Some(current) => {
                let merged = self.merged(&root, current, &body, VolumeFault::Update)?;
                let row = Volume { next_try: UnixNanos(0), ..merged };
                (row, current.modify_index)
            }
            None => {
                let (min, max) = (body.requested_capacity_min, body.requested_capacity_max);
                if max > 0 && max < min {
                    return Err(VolumeFault::LimitBelowRequired.into());
                }
                let sealed = self.core.seal_volume(&key, &body.secrets, None)?;
                let row = spec::fresh(&body, sealed, &plugin, VolumePhase::Creating, self.core.now());
                (Volume { clone_external_id: spec::clone_source(&root, &row)?, ..row }, 0)
            }
        };
        let written = lifecycle::write(&self.core, row.clone(), index).await?;
        let index = written.ok_or_else(|| VolumeFault::Changed(key.id.clone()))?;
        lifecycle::create(&self.reconciler, &row, index, first).await?;
        self.row(&key)
    }

    async fn own(&self, key: &VolumeKey) -> Result<reconciler::Own, ServerError> {
        let own = select! {
            own = self.reconciler.owners.for_command(key, QUEUE_TIMEOUT) => own,
            () = self.reconciler.controllers.cut.cancelled() => None,
        };
        Ok(own.ok_or_else(|| VolumeFault::Busy(key.id.clone()))?)
    }

    /// Deregisters a volume without calling the plugin.
    pub(crate) async fn deregister(&self, key: &VolumeKey, force: bool) -> Result<u64, ServerError> {
        self.core.snapshot().volume(key).ok_or_else(|| not_found(key))?;
        let _own = self.own(key).await?;
        self.in_use(key, force)?;
        self.core.commit(Change::VolumeDelete { key: key.clone(), force }).await
    }

    /// Refuses while claims hold the volume. With `force`, refuses only while one of their allocations is not
    /// terminal.
    fn in_use(&self, key: &VolumeKey, force: bool) -> Result<(), VolumeFault> {
        let root = self.core.snapshot();
        let over = |claim: &Claim| root.alloc(&claim.id.alloc).is_none_or(|alloc| alloc.terminal());
        let held = root.claims_of(key).any(|claim| claim.phase.holds() && !(force && over(claim)));
        // The volume's status names the allocations that use the volume.
        if held { Err(VolumeFault::InUse(key.id.clone())) } else { Ok(()) }
    }

    /// Refuses to delete a storage that other claims use, including claims of a row that was removed by force.
    fn storage_in_use(&self, key: &VolumeKey) -> Result<(), VolumeFault> {
        self.in_use(key, false)?;
        match self.core.snapshot().claims_beside(key).any(|claim| claim.phase.holds()) {
            true => Err(VolumeFault::StorageInUse(key.id.clone())),
            false => Ok(()),
        }
    }

    /// Deletes a volume by its plugin, then removes its row.
    pub(crate) async fn delete(&self, key: &VolumeKey, secrets: &Secrets) -> Result<u64, ServerError> {
        self.core.snapshot().volume(key).ok_or_else(|| not_found(key))?;
        let _own = self.own(key).await?;
        if let Some(volume) = self.core.snapshot().volume(key) {
            self.await_controller(&volume.plugin_id).await;
        }
        let root = self.core.snapshot();
        let volume = root.volume(key).ok_or_else(|| not_found(key))?;
        self.storage_in_use(key)?;
        lifecycle::deletable(&root, volume)?;
        let plugin = root.plugin(&volume.plugin_id);
        let has_controller =
            |p: &Plugin| !p.controllers.is_empty() || p.controllers_expected > 0 || p.controller_required;
        if plugin.is_some_and(|p| has_controller(p) && p.controllers_healthy == 0) {
            return Err(VolumeFault::NoHealthyController(volume.plugin_id.clone()).into());
        }
        if plugin.is_none_or(|p| !has_controller(p)) {
            let (plugin, volume) = (volume.plugin_id.clone(), key.id.clone());
            return Err(VolumeFault::CannotDelete { plugin, volume }.into());
        }
        let row = Volume {
            phase: VolumePhase::Deleting,
            secrets: self.core.seal_volume(
                key,
                &self.core.inline_secrets(volume)?.overlaid(secrets),
                Some(&volume.secrets),
            )?,
            next_try: UnixNanos(0),
            ..(**volume).clone()
        };
        let written = lifecycle::write(&self.core, row.clone(), volume.modify_index).await?;
        let index = written.ok_or_else(|| VolumeFault::Changed(key.id.clone()))?;
        // A claim may have been granted between the check and the write; none can be granted from now on.
        if let Err(error) = self.storage_in_use(key) {
            lifecycle::write(&self.core, (**volume).clone(), index).await?;
            return Err(error.into());
        }
        // An earlier try may have deleted the volume already: only the plugin's response proves that it still exists.
        let before = (volume.phase != VolumePhase::Deleting).then_some(&**volume);
        lifecycle::delete(&self.reconciler, &row, index, before).await?;
        Ok(self.core.snapshot().index())
    }

    /// Releases the claims of a volume on a node whose allocations have ended.
    pub(crate) async fn detach(&self, key: &VolumeKey, node: &NodeId) -> Result<u64, ServerError> {
        let root = self.core.snapshot();
        root.volume(key).ok_or_else(|| not_found(key))?;
        let claims: Vec<Arc<Claim>> =
            root.claims_of(key).filter(|c| c.phase.holds() && c.node_id == *node).cloned().collect();
        if claims.is_empty() {
            // The volume is detached, as requested; only a node without any record is an error.
            let known = root.node(node).is_some() || root.claims_of(key).any(|c| c.node_id == *node);
            return match known {
                true => Ok(root.index()),
                false => Err(VolumeFault::NotOnNode { volume: key.id.clone(), node: node.clone() }.into()),
            };
        }
        let gone = root.node(node).is_none_or(|n| n.status != NodeStatus::Ready);
        // The state of the tasks counts, not the desired status, because tasks may take long to stop.
        let running = claims.iter().find(|c| root.alloc(&c.id.alloc).is_some_and(|a| !a.client_terminal()));
        if let Some(claim) = running.filter(|_| !gone) {
            let (alloc, job) = (claim.id.alloc.clone(), claim.job_id.clone());
            let (volume, node) = (key.id.clone(), node.clone());
            return Err(VolumeFault::StillRuns { alloc, job, volume, node }.into());
        }
        let mut index = root.index();
        for claim in claims {
            if let Some(moved) = self.hurry(&claim.id).await? {
                index = moved;
            }
            if !gone {
                self.ask_node(&claim.id).await?;
            }
        }
        Ok(index)
    }

    /// Begins the release of a claim, or retries the release immediately. Returns the index of the change.
    async fn hurry(&self, id: &ClaimId) -> Result<Option<u64>, ServerError> {
        for _ in 0..16 {
            let root = self.core.snapshot();
            let Some(claim) = root.claim(id) else { return Ok(None) };
            let step = match claim.phase {
                phase if phase.is_live() => ClaimStep::Release,
                _ if claim.next_try.0 != 0 => {
                    ClaimStep::Failed { error: claim.last_error.clone(), next_try: UnixNanos(0) }
                }
                _ => return Ok(None),
            };
            let change = Change::ClaimStep { id: id.clone(), expect_modify_index: claim.modify_index, step };
            let outcome = self.core.propose(change).await?;
            match outcome.refused {
                None => return Ok(Some(outcome.index)),
                // The reconciler or the client changed the claim: read it again.
                Some(Refusal::Changed { .. } | Refusal::NotFound { .. }) => {}
                Some(refusal) => return Err(refusal.into()),
            }
        }
        Err(VolumeFault::ClaimChanges(id.alloc.clone()).into())
    }

    /// Asks the node to unpublish and unstage the mounts that it may still have.
    async fn ask_node(&self, id: &ClaimId) -> Result<(), ServerError> {
        let root = self.core.snapshot();
        let on_node = |c: &&Arc<Claim>| matches!(c.phase, ClaimPhase::Releasing | ClaimPhase::Unpublished);
        let Some(claim) = root.claim(id).filter(on_node) else { return Ok(()) };
        let request = NodeDetach {
            claim: claim.id.clone(),
            generation: claim.generation,
            plugin_id: claim.plugin_id.clone(),
            external_volume_id: claim.external_volume_id.clone(),
            usage: claim.usage(),
        };
        let call =
            self.reconciler.controllers.node::<methods::NodeDetach>(&claim.node_id, request, NODE_DEADLINE);
        Ok(call.await.map(drop).map_err(VolumeFault::Detach)?)
    }

    /// Returns the volumes that the plugin lists, without the volumes of namespaces that the caller may not list.
    pub(crate) async fn list_external(
        &self,
        caller: &Caller,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
    ) -> Result<(Vec<VolumeExternalStub>, String), ServerError> {
        let root = self.core.snapshot();
        let row = root.plugin(plugin).ok_or(VolumeFault::NoPluginToList)?;
        let lists =
            row.controllers.values().filter_map(|c| c.controller_info).any(|c| c.supports_list_volumes);
        if !lists {
            // A plugin that is starting has not reported yet whether it supports ListVolumes.
            let fault = if row.controllers_expected > 0 && row.controllers_healthy == 0 {
                VolumeFault::NoHealthyController(plugin.clone())
            } else {
                VolumeFault::CannotList
            };
            return Err(fault.into());
        }
        let call = ControllerOperation::List { max_entries, starting_token };
        match self.reconciler.controllers.call(&root, plugin, call).await {
            Ok(ControllerAnswer::Listed { mut volumes, next_token }) => {
                let caps = [NsCap::CsiListVolume, NsCap::CsiReadVolume];
                volumes.retain(|volume| {
                    // Any caller may register a volume that no namespace has registered.
                    let owners = rights::owners(&root, plugin, &volume.external_id);
                    owners.is_empty() || rights::may_with(caller, &owners, &caps)
                });
                Ok((volumes, next_token))
            }
            Ok(_) => Err(VolumeFault::OtherAnswerToList.into()),
            Err(error) => Err(VolumeFault::List(error).into()),
        }
    }
}

fn not_found(key: &VolumeKey) -> VolumeFault {
    VolumeFault::NotFound(key.clone())
}

fn key_of(body: &VolumeRequestBody) -> VolumeKey {
    VolumeKey { namespace: body.namespace.clone(), id: body.id.clone() }
}

/// Returns the volume's mount options, overridden by the options of the claim.
fn merged_options(volume: &Volume, claim: &Claim) -> Option<MountOptions> {
    match (&volume.mount_options, &claim.mount_options) {
        (Some(base), Some(top)) => Some(base.merged(top)),
        (base, top) => top.clone().or_else(|| base.clone()),
    }
}
