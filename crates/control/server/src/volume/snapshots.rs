//! Snapshots. The plugin stores them, and the servers keep no record. Plugin calls are idempotent by the snapshot's
//! name (CSI specification, CreateSnapshot), so a user may repeat an interrupted command.

use super::controller::CallError;
use super::snapshot_fault::SnapshotFault;
use super::{Volumes, rights};
use crate::acl::{Caller, NsCap};
use crate::error::ServerError;
use caravan_messages::{ControllerAnswer, ControllerOperation};
use caravan_state::Root;
use caravan_types::plugin::CsiControllerInfo;
use caravan_types::ser::Secrets;
use caravan_types::volume::{CsiSnapshot, VolumePhase, VolumeRequestBody};
use caravan_types::{Namespace, PluginId, VolumeKey};
use std::collections::BTreeSet;

/// Maximum number of pages to search for one snapshot: plugins may ignore the filter by id.
const MAX_PAGES: usize = 64;

/// The plugin's information about the origin of a snapshot.
enum Source {
    /// The namespaces of the source volume's rows; empty where the volume is not registered.
    Volume(BTreeSet<Namespace>),
    /// The snapshot does not exist.
    NoSnapshot,
    /// The plugin does not support the query.
    Unknown,
}

/// Returns whether some controller of the plugin has a capability; `None` if the plugin does not exist.
fn can(root: &Root, plugin: &PluginId, what: impl Fn(&CsiControllerInfo) -> bool) -> Option<bool> {
    let row = root.plugin(plugin)?;
    Some(row.controllers.values().filter_map(|c| c.controller_info).any(|info| what(&info)))
}

impl Volumes {
    pub(crate) async fn create_snapshots(
        &self,
        namespace: &Namespace,
        snapshots: Vec<Option<CsiSnapshot>>,
    ) -> Result<Vec<CsiSnapshot>, ServerError> {
        if snapshots.is_empty() {
            return Err(SnapshotFault::NoDefinition.into());
        }
        let (mut made, mut errors) = (Vec::new(), Vec::new());
        for snapshot in snapshots {
            match snapshot {
                None => errors.push(SnapshotFault::Nil.into()),
                Some(desired) => match self.create_snapshot(namespace, desired).await {
                    Ok(snapshot) => made.push(snapshot),
                    Err(error) => errors.push(error),
                },
            }
        }
        if errors.is_empty() { Ok(made) } else { Err(SnapshotFault::Several(errors).into()) }
    }

    async fn create_snapshot(
        &self,
        namespace: &Namespace,
        desired: CsiSnapshot,
    ) -> Result<CsiSnapshot, ServerError> {
        let key = VolumeKey { namespace: namespace.clone(), id: desired.source_volume_id };
        let id = &key.id;
        let nothing = || SnapshotFault::NoVolume(id.clone());
        if self.core.snapshot().volume(&key).is_none() {
            return Err(nothing().into());
        }
        // The calls of one volume are made one after the other.
        let _own = self.own(&key).await?;
        let root = self.core.snapshot();
        let volume = root.volume(&key).ok_or_else(nothing)?;
        let plugin = &volume.plugin_id;
        if !desired.plugin_id.is_empty() && desired.plugin_id != *plugin {
            let expected = desired.plugin_id;
            let fault = match root.plugin(&expected) {
                None => SnapshotFault::NoPlugin(expected),
                Some(_) => {
                    SnapshotFault::OtherPlugin { volume: id.clone(), actual: plugin.clone(), expected }
                }
            };
            return Err(fault.into());
        }
        if desired.name.is_empty() {
            return Err(SnapshotFault::NoName(id.clone()).into());
        }
        match can(&root, plugin, |info| info.supports_create_delete_snapshot) {
            None => return Err(SnapshotFault::NoPlugin(plugin.clone()).into()),
            Some(false) => return Err(SnapshotFault::CannotCreate(plugin.clone()).into()),
            Some(true) => {}
        }
        if matches!(volume.phase, VolumePhase::Creating | VolumePhase::Deleting) {
            return Err(SnapshotFault::Phase { volume: id.clone(), phase: volume.phase }.into());
        }
        let secrets = self.core.secrets_of(&root, volume).map_err(SnapshotFault::Secrets)?;
        let call = ControllerOperation::CreateSnapshot {
            external_id: volume.remote_id().to_owned(),
            name: desired.name.clone(),
            parameters: desired.parameters,
            secrets: secrets.overlaid(&desired.secrets),
        };
        let name = call.name();
        match self.reconciler.controllers.call(&root, plugin, call).await {
            Ok(ControllerAnswer::Snapshot(made)) => Ok(CsiSnapshot {
                id: made.id,
                external_source_volume_id: made.external_source_volume_id,
                size_bytes: made.size_bytes,
                create_time: made.create_time,
                is_ready: made.is_ready,
                ..CsiSnapshot::default()
            }),
            Ok(_) => Err(SnapshotFault::Create(CallError::OtherAnswer { call: name }).into()),
            Err(error) if error.is_unknown() => Err(SnapshotFault::MaybeCreated(error).into()),
            Err(error) => Err(SnapshotFault::Create(error).into()),
        }
    }

    /// Refuses to clone a volume or a snapshot of a namespace where the caller may not write.
    pub(super) async fn check_origin(
        &self,
        caller: &Caller,
        body: &VolumeRequestBody,
    ) -> Result<(), ServerError> {
        let root = self.core.snapshot();
        // An existing volume is not created again.
        let key = VolumeKey { namespace: body.namespace.clone(), id: body.id.clone() };
        if root.volume(&key).is_some_and(|row| row.phase != VolumePhase::Creating) {
            return Ok(());
        }
        rights::check_clone(caller, &root, body)?;
        if body.snapshot_id.is_empty() || caller.is_management() {
            return Ok(());
        }
        let snapshot = body.snapshot_id.as_str();
        match self.source_of(&body.plugin_id, snapshot, &body.secrets).await {
            Source::Volume(owners) if rights::may_with(caller, &owners, &[NsCap::CsiWriteVolume]) => Ok(()),
            _ => Err(rights::not_own_snapshot(snapshot)),
        }
    }

    /// Finds the source volume of a snapshot in the plugin's list of snapshots.
    async fn source_of(&self, plugin: &PluginId, snapshot: &str, secrets: &Secrets) -> Source {
        let root = self.core.snapshot();
        if can(&root, plugin, |info| info.supports_list_snapshots) != Some(true) {
            return Source::Unknown;
        }
        let mut starting_token = String::new();
        for _ in 0..MAX_PAGES {
            let call = ControllerOperation::ListSnapshots {
                max_entries: 0,
                starting_token,
                secrets: secrets.clone(),
                snapshot_id: snapshot.to_owned(),
            };
            let answer = self.reconciler.controllers.call(&root, plugin, call).await;
            let Ok(ControllerAnswer::Snapshots { snapshots, next_token }) = answer else {
                return Source::Unknown;
            };
            // A plugin may return other snapshots as well.
            if let Some(found) = snapshots.iter().find(|found| found.id == snapshot) {
                let owners = rights::owners(&root, plugin, &found.external_source_volume_id);
                return Source::Volume(owners);
            }
            if next_token.is_empty() {
                return Source::NoSnapshot;
            }
            starting_token = next_token;
        }
        Source::Unknown
    }

    pub(crate) async fn delete_snapshot(
        &self,
        caller: &Caller,
        plugin: &PluginId,
        snapshot: &str,
        secrets: Secrets,
    ) -> Result<(), ServerError> {
        let refused = |fault| Err(SnapshotFault::Listed(Box::new(fault)).into());
        let root = self.core.snapshot();
        match can(&root, plugin, |info| info.supports_create_delete_snapshot) {
            None => return refused(SnapshotFault::NoPluginToAsk),
            Some(false) => return refused(SnapshotFault::CannotDelete),
            Some(true) => {}
        }
        if snapshot.is_empty() {
            return refused(SnapshotFault::NoId);
        }
        if !caller.is_management() {
            match self.source_of(plugin, snapshot, &secrets).await {
                Source::Volume(owners) if rights::may_with(caller, &owners, &[NsCap::CsiWriteVolume]) => {}
                // The snapshot does not exist, as requested.
                Source::NoSnapshot => return Ok(()),
                _ => return Err(rights::not_own_snapshot(snapshot)),
            }
        }
        let failed = |error| SnapshotFault::Delete { snapshot: snapshot.to_owned(), error };
        let call = ControllerOperation::DeleteSnapshot { snapshot_id: snapshot.to_owned(), secrets };
        match self.reconciler.controllers.call(&root, plugin, call).await {
            Ok(ControllerAnswer::Done) => Ok(()),
            Ok(_) => refused(failed(CallError::OtherAnswer { call: "DeleteSnapshot" })),
            // The snapshot does not exist, as requested. An earlier command may have deleted it.
            Err(error) if error.is_missing() => Ok(()),
            Err(error) => refused(failed(error)),
        }
    }

    /// Returns a page of the plugin's snapshots, without the snapshots of volumes that the caller may not list.
    pub(crate) async fn list_snapshots(
        &self,
        caller: &Caller,
        plugin: &PluginId,
        max_entries: i32,
        starting_token: String,
        secrets: Secrets,
    ) -> Result<(Vec<CsiSnapshot>, String), ServerError> {
        let root = self.core.snapshot();
        match can(&root, plugin, |info| info.supports_list_snapshots) {
            None => return Err(SnapshotFault::NoPluginToAsk.into()),
            Some(false) => return Err(SnapshotFault::CannotList.into()),
            Some(true) => {}
        }
        let call = ControllerOperation::ListSnapshots {
            max_entries,
            starting_token,
            secrets,
            snapshot_id: String::new(),
        };
        let name = call.name();
        match self.reconciler.controllers.call(&root, plugin, call).await {
            Ok(ControllerAnswer::Snapshots { mut snapshots, next_token }) => {
                let caps = [NsCap::CsiListVolume, NsCap::CsiReadVolume];
                snapshots.retain(|snapshot| {
                    let owners = rights::owners(&root, plugin, &snapshot.external_source_volume_id);
                    rights::may_with(caller, &owners, &caps)
                });
                for snapshot in &mut snapshots {
                    snapshot.plugin_id = plugin.clone();
                }
                Ok((snapshots, next_token))
            }
            Ok(_) => Err(SnapshotFault::List(CallError::OtherAnswer { call: name }).into()),
            Err(error) => Err(SnapshotFault::List(error).into()),
        }
    }
}
