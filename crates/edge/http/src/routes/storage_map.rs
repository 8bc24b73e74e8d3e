//! The storage map: plugins, volumes, and the claims on them with phases and reasons, in one answer.

use super::volumes;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::page::{Token, object, page};
use crate::reply::Reply;
use caravan_server::{Level, NsCap};
use caravan_state::{Root, Table};
use caravan_types::host_volume::HostVolumeStub;
use caravan_types::plugin::PluginListStub;
use caravan_types::volume::{ClaimId, ClaimPhase, Volume, VolumeExplain, VolumePhase};
use caravan_types::{Namespace, NodeId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables whose changes end a wait.
const TABLES: [Table; 5] = [Table::Volumes, Table::Claims, Table::Plugins, Table::HostVolumes, Table::Nodes];
/// The most host volumes that an answer lists.
const MAX_HOST_VOLUMES: usize = 500;

/// The answer. Only its volumes are paged.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StorageMap {
    plugins: Vec<PluginListStub>,
    volumes: Vec<VolumeExplain>,
    host_volumes: Vec<HostVolumeStub>,
    /// The names of the nodes that the volumes and claims of the answer name.
    nodes: BTreeMap<NodeId, String>,
    /// The number of volumes that the caller may list but not read.
    hidden: usize,
    /// The rights that the caller lacks in every namespace of the request; their objects are missing.
    denied: Vec<&'static str>,
}

/// Answers with the storage map. `trouble=true` selects the volumes that wait, failed or are in transition.
pub(crate) async fn map(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?;
    let namespace = call.list_namespace();
    let with_trouble_only = call.query.flag("trouble")?.unwrap_or(false);
    let plugin = call.query.text("plugin_id");
    let (mut meta, (map, next)) = blocking::read(call, |reads| {
        let (root, caller) = (reads.snapshot(), call.caller());
        let is_in = |name: &Namespace| namespace.as_ref().is_none_or(|only| only == name);
        let explain = |volume: &Volume| server.volumes().explain(&volume.key()).unwrap_or_default();
        let mut map = StorageMap::default();
        let mut rows: Vec<&Arc<Volume>> = Vec::new();
        for volume in root.volumes().filter(|volume| is_in(&volume.namespace)) {
            if !plugin.is_empty() && volume.plugin_id != *plugin {
                continue;
            }
            match call.may(&volume.namespace, NsCap::CsiReadVolume) {
                true => rows.push(volume),
                false if call.may(&volume.namespace, NsCap::CsiListVolume) => map.hidden += 1,
                false => {}
            }
        }
        if with_trouble_only {
            rows.retain(|volume| is_troubled(root, volume, |id| server.volumes().claim_wait(id).is_some()));
        }
        let (rows, next) = page(
            &call.query,
            &volumes::KEYS,
            reads.snapshot(),
            rows,
            |row| Token::Key(row.namespace.as_str(), row.id.as_str()),
            |row| object(&explain(row)),
        )?;
        map.volumes = rows.into_iter().map(|volume| explain(volume)).collect();
        if caller.acl.plugin(Level::List) {
            map.plugins = root.plugins().map(|plugin| plugin.stub()).collect();
        } else {
            map.denied.push("plugin:list");
        }
        let host = root
            .host_volumes()
            .filter(|row| is_in(&row.namespace) && call.may(&row.namespace, NsCap::HostVolumeRead));
        map.host_volumes = host.take(MAX_HOST_VOLUMES).map(|row| row.stub()).collect();
        if caller.acl.node(Level::Read) {
            map.nodes = names(root, &map);
        } else {
            map.denied.push("node:read");
        }
        let any = namespace.as_ref().map_or("*", |name| name.as_str());
        if !caller.acl.namespace_any(any, &[NsCap::CsiReadVolume]) {
            map.denied.push("csi-read-volume");
        }
        Ok((reads.tables_index(&TABLES), (map, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::parsed(map)?.meta(meta))
}

/// Returns whether a volume or one of its claims waits, failed or is in transition.
fn is_troubled(root: &Root, volume: &Volume, waits: impl Fn(&ClaimId) -> bool) -> bool {
    let key = volume.key();
    let mut claims = root.claims_of(&key).filter(|claim| claim.phase.holds());
    volume.phase != VolumePhase::Ready
        || !volume.last_error.is_empty()
        || claims.any(|claim| {
            !claim.last_error.is_empty() || claim.phase != ClaimPhase::Mounted || waits(&claim.id)
        })
}

/// Returns the names of the nodes that occur in an answer.
fn names(root: &Root, map: &StorageMap) -> BTreeMap<NodeId, String> {
    let claims = map.volumes.iter().flat_map(|volume| &volume.claims);
    let used = map.volumes.iter().flat_map(|volume| volume.usage.keys());
    let ids: BTreeSet<&NodeId> = claims
        .map(|claim| &claim.node_id)
        .chain(used)
        .chain(map.host_volumes.iter().map(|row| &row.node_id))
        .collect();
    let named = ids.into_iter().filter_map(|id| Some((id.clone(), root.node(id)?.name.to_string())));
    named.collect()
}
