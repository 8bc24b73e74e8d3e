//! The state of host volumes and plugins, with reasons (docs/design/http-api.md).

use super::storage_map::{self, LaneFacts};
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::{Meta, Next, Reply};
use caravan_server::NsCap;
use caravan_state::{Root, Table, Topic};
use caravan_types::host_volume::{HostVolume, HostVolumeIntent, HostVolumeState};
use caravan_types::node::NodeStatus;
use caravan_types::plugin::{Plugin, Reports};
use caravan_types::volume::VolumePhase;
use caravan_types::{
    AllocId, HostVolumeId, JobId, Namespace, NodeId, PluginId, UnixNanos, VolumeId, VolumeKey,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The most reasons that an answer about a plugin lists.
const MAX_REASONS: usize = 50;
/// The most calls that an answer about a plugin lists.
const MAX_CALLS: usize = 200;

/// The state of a host volume.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostVolumeExplain {
    #[serde(rename = "ID")]
    id: HostVolumeId,
    name: String,
    namespace: Namespace,
    #[serde(rename = "NodeID")]
    node_id: NodeId,
    node_name: String,
    state: HostVolumeState,
    /// The state of the volume, in one sentence.
    summary: String,
    users: Vec<HostVolumeUser>,
    /// The holds of groups on the volume, also of groups that have no allocation there.
    held: Vec<HostVolumeHold>,
}

/// An allocation that uses a host volume.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostVolumeUser {
    #[serde(rename = "AllocID")]
    alloc_id: AllocId,
    #[serde(rename = "JobID")]
    job_id: JobId,
    task_group: String,
    client_status: &'static str,
}

/// The hold of a group on a host volume.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostVolumeHold {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "JobID")]
    job_id: JobId,
    task_group: String,
}

/// Explains a host volume.
pub(crate) async fn host_volume(call: &Call) -> Result<Reply, ApiError> {
    let id = HostVolumeId::new(call.star(0));
    let namespace = call.namespace.clone();
    let tables = [Table::HostVolumes, Table::HostClaims, Table::Nodes, Table::Allocs];
    let (meta, explained) = blocking::read(call, |reads| {
        let index = reads.part_index(&tables);
        let Some(volume) = reads.host_volume(&id).filter(|row| row.namespace == namespace) else {
            let meta = Meta { index, known_leader: true, next: Next::default() };
            return Err(ApiError::not_found("volume not found").with_meta(meta));
        };
        reads.record(Topic::Node(volume.node_id.clone()));
        let may_read = call.may(&volume.namespace, NsCap::ReadJob);
        Ok((reads.tables_index(&tables), of_host_volume(reads.snapshot(), volume, may_read)))
    })
    .await?;
    Ok(Reply::parsed(explained)?.meta(meta))
}

/// Explains a host volume. Jobs are left out for a caller who may not read them.
fn of_host_volume(root: &Root, volume: &HostVolume, may_read: bool) -> HostVolumeExplain {
    let node = root.node(&volume.node_id);
    let users: Vec<HostVolumeUser> = root
        .host_volume_users(volume)
        .map(|alloc| HostVolumeUser {
            alloc_id: alloc.id.clone(),
            job_id: alloc.job_id.clone(),
            task_group: alloc.task_group.to_string(),
            client_status: alloc.client_status.as_str(),
        })
        .collect();
    let held: Vec<HostVolumeHold> = root
        .host_claims_of(&volume.id)
        .map(|claim| HostVolumeHold {
            id: claim.id.clone(),
            job_id: claim.job_id.clone(),
            task_group: claim.task_group_name.clone(),
        })
        .collect();
    let (users, held) = if may_read { (users, held) } else { Default::default() };
    let node_name = node.map_or_else(|| volume.node_id.to_string(), |node| node.name.to_string());
    let summary = summary(volume, &node_name, node.map(|node| node.status), users.len());
    HostVolumeExplain {
        id: volume.id.clone(),
        name: volume.name.clone(),
        namespace: volume.namespace.clone(),
        node_id: volume.node_id.clone(),
        node_name,
        state: volume.state,
        summary,
        users,
        held,
    }
}

/// Returns the state of a host volume in one sentence. `node` is the status of its node; `None` if the node is not
/// registered.
fn summary(volume: &HostVolume, name: &str, node: Option<NodeStatus>, users: usize) -> String {
    let by = if volume.plugin_id.is_empty() {
        String::new()
    } else {
        format!(" by the plugin {}", volume.plugin_id)
    };
    match (node, volume.intent, volume.state) {
        (None, _, _) => format!("the node {name} of the volume is not registered"),
        (Some(status), _, _) if status != NodeStatus::Ready => {
            format!("waits for the node {name}, which is {}", status.as_str())
        }
        (_, HostVolumeIntent::Create, _) => format!("the node {name} creates or changes the volume{by}"),
        (_, HostVolumeIntent::Delete, _) => format!("the node {name} deletes the volume{by}"),
        (_, HostVolumeIntent::None, HostVolumeState::Pending) => {
            format!("waits for the first report of the node {name}")
        }
        (_, HostVolumeIntent::None, HostVolumeState::Unavailable) => {
            format!("the node {name} does not report the volume any more")
        }
        (_, HostVolumeIntent::None, HostVolumeState::Ready) => match users {
            0 => "ready; no allocation uses it".into(),
            1 => "ready; 1 allocation uses it".into(),
            users => format!("ready; {users} allocations use it"),
        },
    }
}

/// The state of a plugin.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct PluginExplain {
    #[serde(rename = "ID")]
    id: PluginId,
    /// The health of the plugin, in one sentence.
    summary: String,
    /// The reasons why parts of the plugin are not healthy, and the mounts that the plugin left on nodes.
    reasons: Vec<String>,
    /// Volumes by phase. Volumes that the caller may not list are not counted.
    volumes: BTreeMap<&'static str, u64>,
    /// The servers' calls in progress, oldest first.
    calls: Vec<PluginCall>,
    /// The number of calls that the list omits.
    omitted: usize,
    /// The use of each lane of calls.
    lanes: Vec<LaneFacts>,
}

/// A call of the servers to a plugin.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct PluginCall {
    call: String,
    #[serde(rename = "NodeID")]
    node_id: NodeId,
    /// The volume; empty for a call about no volume, and for a volume that the caller may not read.
    #[serde(rename = "VolumeID")]
    volume_id: VolumeId,
    namespace: Namespace,
    since: UnixNanos,
}

/// Explains a plugin. Calls in progress are only in the memory of the servers, so only changes of the records wake a
/// blocking query.
pub(crate) async fn plugin(call: &Call) -> Result<Reply, ApiError> {
    let id = PluginId::new(call.star(0));
    let server = call.server()?;
    let tables = [Table::Plugins, Table::Volumes];
    let (meta, explained) = blocking::read(call, |reads| {
        let index = reads.tables_index(&tables);
        let Some(plugin) = reads.plugin(&id) else {
            let meta = Meta { index, known_leader: true, next: Next::default() };
            return Err(ApiError::not_found("plugin not found").with_meta(meta));
        };
        let root = reads.snapshot();
        let mut out = PluginExplain { id: id.clone(), ..PluginExplain::default() };
        for volume in root.volumes_by_plugin(&id) {
            if call.may(&volume.namespace, NsCap::CsiListVolume)
                || call.may(&volume.namespace, NsCap::CsiReadVolume)
            {
                *out.volumes.entry(phase(volume.phase)).or_default() += 1;
            }
        }
        let mut calls = server.volumes().calls_of(&id);
        out.omitted = calls.len().saturating_sub(MAX_CALLS);
        calls.truncate(MAX_CALLS);
        out.calls = calls
            .into_iter()
            .map(|(volume, running)| {
                let shown = volume.filter(|key| call.may(&key.namespace, NsCap::CsiReadVolume));
                let VolumeKey { namespace, id } = shown.unwrap_or_default();
                PluginCall {
                    call: running.call,
                    node_id: running.node_id,
                    volume_id: id,
                    namespace,
                    since: running.since,
                }
            })
            .collect();
        out.lanes = storage_map::lanes(server, &id).collect();
        out.reasons = reasons(root, plugin);
        out.summary = health(plugin, out.calls.len() + out.omitted);
        Ok((index, out))
    })
    .await?;
    Ok(Reply::parsed(explained)?.meta(meta))
}

fn phase(phase: VolumePhase) -> &'static str {
    match phase {
        VolumePhase::Creating => "creating",
        VolumePhase::Ready => "ready",
        VolumePhase::Expanding => "expanding",
        VolumePhase::Deleting => "deleting",
    }
}

/// Returns the health of a plugin in one sentence.
fn health(plugin: &Plugin, calls: usize) -> String {
    let part =
        |healthy: u32, expected: u32, noun: &str| format!("{healthy} of {expected} {noun} are healthy");
    let nodes = part(plugin.nodes_healthy, plugin.nodes_expected, "nodes");
    let mut text = match plugin.controller_required {
        true => format!(
            "{}, {nodes}",
            part(plugin.controllers_healthy, plugin.controllers_expected, "controllers")
        ),
        false => nodes,
    };
    match calls {
        0 => {}
        1 => text.push_str("; 1 call is in progress"),
        calls => text.push_str(&format!("; {calls} calls are in progress")),
    }
    text
}

/// Returns the reasons why parts of a plugin are not healthy, and the mounts that the plugin left.
fn reasons(root: &Root, plugin: &Plugin) -> Vec<String> {
    let name = |id: &NodeId| root.node(id).map_or_else(|| id.to_string(), |node| node.name.to_string());
    let sick = |part: &'static str, reports: &Reports| {
        let sick = reports.iter().filter(|(_, report)| !report.healthy).take(MAX_REASONS);
        let texts: Vec<String> = sick
            .map(|(node, report)| match report.health_description.as_str() {
                "" => format!("the {part} on the node {} is not healthy", name(node)),
                why => format!("the {part} on the node {} is not healthy: {why}", name(node)),
            })
            .collect();
        texts
    };
    let mut out = sick("controller", &plugin.controllers);
    out.extend(sick("node service", &plugin.nodes));
    for (part, reported, expected) in [
        ("controllers", plugin.controllers.len(), plugin.controllers_expected),
        ("node services", plugin.nodes.len(), plugin.nodes_expected),
    ] {
        let missing = usize::try_from(expected).unwrap_or(usize::MAX).saturating_sub(reported);
        if missing > 0 {
            out.push(format!("{missing} of {expected} expected {part} have not reported"));
        }
    }
    for (node, mounts) in plugin.left_mounts.iter().filter(|(_, mounts)| !mounts.is_empty()) {
        out.push(format!(
            "{} mounts stay on the node {} after the end of the plugin",
            mounts.len(),
            name(node)
        ));
    }
    out.truncate(MAX_REASONS);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::plugin::CsiInfo;

    #[test]
    fn a_host_volume_has_one_reason() {
        let volume =
            |intent, state| HostVolume { intent, state, plugin_id: "mkdir".into(), ..HostVolume::default() };
        let ready = volume(HostVolumeIntent::None, HostVolumeState::Ready);
        assert_eq!(summary(&ready, "n", Some(NodeStatus::Ready), 2), "ready; 2 allocations use it");
        assert_eq!(summary(&ready, "n", Some(NodeStatus::Down), 2), "waits for the node n, which is down");
        assert_eq!(summary(&ready, "n", None, 0), "the node n of the volume is not registered");
        let making = volume(HostVolumeIntent::Create, HostVolumeState::Pending);
        assert_eq!(
            summary(&making, "n", Some(NodeStatus::Ready), 0),
            "the node n creates or changes the volume by the plugin mkdir"
        );
    }

    #[test]
    fn a_plugin_names_its_sick_parts() {
        let report =
            |healthy, why: &str| CsiInfo { healthy, health_description: why.into(), ..CsiInfo::default() };
        let mut plugin = Plugin { nodes_expected: 3, nodes_healthy: 1, ..Plugin::default() };
        plugin.nodes.insert("a".into(), report(true, "").into());
        plugin.nodes.insert("b".into(), report(false, "no socket").into());
        assert_eq!(health(&plugin, 2), "1 of 3 nodes are healthy; 2 calls are in progress");
        assert_eq!(
            reasons(&Root::default(), &plugin),
            [
                "the node service on the node b is not healthy: no socket",
                "1 of 3 expected node services have not reported"
            ]
        );
    }
}
