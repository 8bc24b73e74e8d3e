//! Volumes: the calls of users, the claims of clients, and the reconciler.

mod claims;
mod controller;
mod lifecycle;
mod reconciler;
mod spec;

pub(crate) use claims::Claims;
pub(crate) use controller::Controllers;
pub(crate) use reconciler::Reconciler;

use crate::core::Core;
use crate::error::{Kind, ServerError};
use caravan_rpc::methods;
use caravan_state::Root;
use caravan_types::command::{Change, ClaimStep};
use caravan_types::node::NodeStatus;
use caravan_types::plugin::Plugin;
use caravan_types::ser::Secrets;
use caravan_types::volume::{Claim, ClaimPhase, Volume, VolumeExternalStub, VolumePhase, VolumeRequestBody};
use caravan_types::wire::{ControllerAnswer, ControllerOperation, NodeDetach};
use caravan_types::{Namespace, NodeId, PluginId, UnixNanos, VolumeKey};
use std::sync::Arc;
use std::time::Duration;

/// How long a command waits for another one on the same volume.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves the calls of users about volumes.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    pub(crate) core: Core,
    pub(crate) reconciler: Reconciler,
}

impl Volumes {
    /// Records volumes that exist already.
    pub(crate) async fn register(
        &self,
        namespace: &Namespace,
        bodies: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        self.each(namespace, bodies, false).await
    }

    /// Makes volumes by their plugins and records them.
    pub(crate) async fn create(
        &self,
        namespace: &Namespace,
        bodies: Vec<VolumeRequestBody>,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        self.each(namespace, bodies, true).await
    }

    async fn each(
        &self,
        namespace: &Namespace,
        mut bodies: Vec<VolumeRequestBody>,
        create: bool,
    ) -> Result<Vec<Arc<Volume>>, ServerError> {
        if bodies.is_empty() {
            return Err(ServerError::new(Kind::BadRequest, "missing volume definition"));
        }
        for body in &mut bodies {
            spec::localise(body, namespace);
            spec::validate(body)?;
            if body.namespace != "default" {
                return Err(ServerError::refused(format!(
                    "volume {} is in nonexistent namespace {}",
                    body.id, body.namespace
                )));
            }
        }
        let (mut written, mut errors) = (Vec::new(), Vec::new());
        for body in bodies {
            let result = if create { self.create_one(body).await } else { self.register_one(body).await };
            match result {
                Ok(volume) => written.push(volume),
                Err(error) => errors.push(error),
            }
        }
        match errors.len() {
            0 => Ok(written),
            1 => Err(errors.remove(0)),
            _ => {
                let texts: Vec<String> = errors.iter().map(|e| e.message.clone()).collect();
                Err(ServerError::refused(crate::admission::joined(&texts)))
            }
        }
    }

    fn plugin(&self, root: &Root, id: &PluginId) -> Result<Arc<Plugin>, ServerError> {
        let plugin = root
            .plugin(id)
            .ok_or_else(|| ServerError::refused(format!("no CSI plugin named: {id} could be found")))?;
        if plugin.controller_required && plugin.controllers_healthy == 0 {
            return Err(ServerError::unavailable(format!("no healthy controllers for CSI plugin: {id}")));
        }
        Ok(plugin.clone())
    }

    async fn register_one(&self, body: VolumeRequestBody) -> Result<Arc<Volume>, ServerError> {
        let key = VolumeKey { namespace: body.namespace.clone(), id: body.id.clone() };
        let _own = self.own(&key).await?;
        let root = self.core.snapshot();
        let plugin = self.plugin(&root, &body.plugin_id)?;
        let (row, expect) = match root.volume(&key) {
            Some(current) => (self.merged(&root, current, &body)?, current.modify_index),
            None => (spec::fresh(&body, &plugin, VolumePhase::Ready, self.core.now()), 0),
        };
        if plugin.controllers_healthy > 0 {
            let operation = ControllerOperation::Validate {
                external_id: row.remote_id().to_owned(),
                capabilities: row.requested_capabilities.clone(),
                mount_options: row.mount_options.clone(),
                parameters: row.parameters.clone(),
                context: row.context.clone(),
                secrets: row.secrets.clone(),
            };
            match self.reconciler.controllers.call(&root, &row.plugin_id, operation).await {
                Ok(ControllerAnswer::Validated { refused: Some(reason) }) => {
                    return Err(ServerError::refused(format!("controller validate volume: {reason}")));
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(ServerError::refused(format!("controller validate volume: {error}")));
                }
            }
        }
        self.store(row, expect).await
    }

    fn merged(&self, root: &Root, current: &Volume, body: &VolumeRequestBody) -> Result<Volume, ServerError> {
        if current.phase == VolumePhase::Deleting {
            return Err(ServerError::refused(format!("volume {} is being deleted", current.id)));
        }
        let claims: Vec<Arc<Claim>> = root.claims_of(&current.key()).cloned().collect();
        let claims: Vec<&Claim> = claims.iter().map(|c| &**c).collect();
        spec::merge(current, body, &claims)
    }

    async fn store(&self, row: Volume, expect: u64) -> Result<Arc<Volume>, ServerError> {
        let key = row.key();
        match lifecycle::write(&self.core, row, expect).await? {
            Some(_) => self.row(&key),
            None => {
                Err(ServerError::refused(format!("volume {} was changed by somebody else meanwhile", key.id)))
            }
        }
    }

    fn row(&self, key: &VolumeKey) -> Result<Arc<Volume>, ServerError> {
        self.core.snapshot().volume(key).cloned().ok_or_else(|| not_found(key))
    }

    async fn create_one(&self, body: VolumeRequestBody) -> Result<Arc<Volume>, ServerError> {
        let key = VolumeKey { namespace: body.namespace.clone(), id: body.id.clone() };
        let _own = self.own(&key).await?;
        let root = self.core.snapshot();
        let plugin = self.plugin(&root, &body.plugin_id)?;
        let supports = plugin.controllers.values().find_map(|c| c.controller_info);
        match supports {
            None => return Err(ServerError::refused("plugin has no controller")),
            Some(info) if !info.supports_create_delete => {
                return Err(ServerError::refused("plugin does not support creating volumes"));
            }
            Some(_) => {}
        }
        let (row, index) = match root.volume(&key) {
            Some(current) if current.phase == VolumePhase::Ready => {
                let merged = self.merged(&root, current, &body)?;
                return self.store(merged, current.modify_index).await;
            }
            // The same command again, after the first one was cut off.
            Some(current) => {
                let merged = self.merged(&root, current, &body)?;
                let row = Volume { next_try: UnixNanos(0), ..merged };
                (row, current.modify_index)
            }
            None => (spec::fresh(&body, &plugin, VolumePhase::Creating, self.core.now()), 0),
        };
        let index = lifecycle::write(&self.core, row.clone(), index).await?.ok_or_else(|| {
            ServerError::refused(format!("volume {} was changed by somebody else meanwhile", key.id))
        })?;
        lifecycle::create(&self.reconciler, &row, index).await?;
        self.row(&key)
    }

    async fn own(&self, key: &VolumeKey) -> Result<reconciler::Own, ServerError> {
        let started = tokio::time::Instant::now();
        loop {
            if let Some(own) = self.reconciler.own(key) {
                return Ok(own);
            }
            if started.elapsed() > PATIENCE {
                return Err(ServerError::unavailable(format!(
                    "another command is at work on volume {}; try again later",
                    key.id
                )));
            }
            // Bounded, because a release between the look and the wait is not seen.
            let _ = tokio::time::timeout(Duration::from_millis(200), self.reconciler.some_released()).await;
        }
    }

    /// Forgets a volume; the plugin is not asked.
    pub(crate) async fn deregister(&self, key: &VolumeKey, force: bool) -> Result<u64, ServerError> {
        self.core.snapshot().volume(key).ok_or_else(|| not_found(key))?;
        let _own = self.own(key).await?;
        self.in_use(key, force)?;
        self.core.commit(Change::VolumeDelete { key: key.clone(), force }).await
    }

    /// Refuses while claims hold. Forced: only while allocations still run with it.
    fn in_use(&self, key: &VolumeKey, force: bool) -> Result<(), ServerError> {
        let root = self.core.snapshot();
        let holder = root
            .claims_of(key)
            .filter(|c| c.phase.holds())
            .find(|claim| !force || root.alloc(&claim.id.alloc).is_some_and(|alloc| !alloc.terminal()));
        match holder {
            None => Ok(()),
            Some(claim) => Err(ServerError::refused(format!(
                "volume in use: {} (allocation {} of job \"{}\", claim {})",
                key.id,
                claim.id.alloc.short(),
                claim.job_id,
                claim.phase.as_str()
            ))),
        }
    }

    /// Has the plugin destroy a volume, then forgets it.
    pub(crate) async fn delete(&self, key: &VolumeKey, secrets: &Secrets) -> Result<u64, ServerError> {
        self.core.snapshot().volume(key).ok_or_else(|| not_found(key))?;
        let _own = self.own(key).await?;
        let root = self.core.snapshot();
        let volume = root.volume(key).ok_or_else(|| not_found(key))?;
        self.in_use(key, false)?;
        let plugin = root.plugin(&volume.plugin_id);
        if plugin.is_none_or(|p| p.controllers.is_empty()) {
            return Err(ServerError::refused(format!(
                "plugin \"{}\" for volume \"{}\" not found: it has no controller that could delete the volume (deregister only forgets it)",
                volume.plugin_id, key.id
            )));
        }
        let row = Volume {
            phase: VolumePhase::Deleting,
            secrets: volume.secrets.overlaid(secrets),
            next_try: UnixNanos(0),
            ..(**volume).clone()
        };
        let index =
            lifecycle::write(&self.core, row.clone(), volume.modify_index).await?.ok_or_else(|| {
                ServerError::refused(format!("volume {} was changed by somebody else meanwhile", key.id))
            })?;
        // A claim may have been granted between the look and the write; none can be from now on.
        if let Err(error) = self.in_use(key, false) {
            let back = Volume { phase: VolumePhase::Ready, ..row };
            lifecycle::write(&self.core, back, index).await?;
            return Err(error);
        }
        lifecycle::delete(&self.reconciler, &row, index).await?;
        Ok(self.core.snapshot().index())
    }

    /// Ends the claims of a volume on a node whose allocations are over.
    pub(crate) async fn detach(&self, key: &VolumeKey, node: &NodeId) -> Result<u64, ServerError> {
        let root = self.core.snapshot();
        root.volume(key).ok_or_else(|| not_found(key))?;
        let claims: Vec<Arc<Claim>> =
            root.claims_of(key).filter(|c| c.phase.holds() && c.node_id == *node).cloned().collect();
        if claims.is_empty() {
            return Err(ServerError::not_found(format!("volume {} has no claim on node {node}", key.id)));
        }
        let gone = root.node(node).is_none_or(|n| n.status != NodeStatus::Ready);
        let running = claims.iter().find(|c| root.alloc(&c.id.alloc).is_some_and(|a| !a.terminal()));
        if let Some(claim) = running.filter(|_| !gone) {
            return Err(ServerError::refused(format!(
                "allocation {} of job \"{}\" still runs with volume {} on node {}: stop it first",
                claim.id.alloc.short(),
                claim.job_id,
                key.id,
                node.short()
            )));
        }
        let mut index = root.index();
        for claim in claims {
            index = self.detach_one(&claim, gone).await?.unwrap_or(index);
        }
        Ok(index)
    }

    async fn detach_one(&self, claim: &Claim, gone: bool) -> Result<Option<u64>, ServerError> {
        let step = match claim.phase {
            phase if phase.is_live() => Some(ClaimStep::Release),
            // Whatever it waits for is tried at once.
            _ if claim.next_try.0 != 0 => {
                Some(ClaimStep::Failed { error: claim.last_error.clone(), next_try: UnixNanos(0) })
            }
            _ => None,
        };
        let mut index = None;
        if let Some(step) = step {
            let change =
                Change::ClaimStep { id: claim.id.clone(), expect_modify_index: claim.modify_index, step };
            index = Some(self.core.commit(change).await?);
        }
        if !gone && matches!(claim.phase, ClaimPhase::Releasing | ClaimPhase::Unpublished) {
            let request = NodeDetach {
                claim: claim.id.clone(),
                generation: claim.generation,
                plugin_id: claim.plugin_id.clone(),
                external_volume_id: claim.external_volume_id.clone(),
                usage: claim.usage(),
            };
            let channel = self.reconciler.controllers.nodes.get(claim.node_id.as_str())?;
            channel.call::<methods::NodeDetach>(request, Some(Duration::from_secs(120))).await.map_err(
                |e| ServerError::new(Kind::Refused, format!("could not detach from node: {}", e.message)),
            )?;
        }
        Ok(index)
    }

    /// Volumes as the plugin lists them.
    pub(crate) async fn list_external(
        &self,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
    ) -> Result<(Vec<VolumeExternalStub>, String), ServerError> {
        let root = self.core.snapshot();
        let row = root.plugin(plugin).ok_or_else(|| ServerError::refused("no such plugin"))?;
        let lists =
            row.controllers.values().filter_map(|c| c.controller_info).any(|c| c.supports_list_volumes);
        if !lists {
            return Err(ServerError::refused("unimplemented for this plugin"));
        }
        let call = ControllerOperation::List { max_entries, starting_token };
        match self.reconciler.controllers.call(&root, plugin, call).await {
            Ok(ControllerAnswer::Listed { volumes, next_token }) => Ok((volumes, next_token)),
            Ok(_) => {
                Err(ServerError::new(Kind::Internal, "the controller answered something else to ListVolumes"))
            }
            Err(error) => Err(ServerError::refused(format!("controller list volumes: {error}"))),
        }
    }
}

fn not_found(key: &VolumeKey) -> ServerError {
    ServerError::not_found(format!("volume not found: {}", key.id))
}
