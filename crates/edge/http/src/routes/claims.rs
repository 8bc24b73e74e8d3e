//! The claims on CSI volumes, with phases and wait reasons.

use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::reply::Reply;
use caravan_server::{Handle, NsCap};
use caravan_state::{Root, Table};
use caravan_types::volume::{Claim, ClaimMode, ClaimPhase};
use caravan_types::{AllocId, JobId, Namespace, NodeId, PluginId, UnixNanos, VolumeId};
use serde::Serialize;
use std::sync::Arc;

/// The keys by which the list can be sorted. `phase` is in the order in which a claim passes through the phases.
pub(crate) const KEYS: Keys<Claim> = keys!(Claim {
    "volume" => |_, claim| claim.id.volume.id.as_str(),
    "namespace" => |_, claim| claim.id.volume.namespace.as_str(),
    "allocation" => |_, claim| claim.id.alloc.as_str(),
    "job" => |_, claim| claim.job_id.as_str(),
    "group" => |_, claim| &claim.task_group,
    "node" => |root, claim| root.node(&claim.node_id).map_or("", |node| node.name.as_str()),
    "plugin" => |_, claim| claim.plugin_id.as_str(),
    "phase" => |_, claim| rank(claim.phase),
    "tries" => |_, claim| i64::from(claim.tries),
    "since" => |_, claim| claim.phase_since,
    "create" => |_, claim| claim.create_index,
    "modify" => |_, claim| claim.modify_index,
});

/// Returns the place of a phase in the course of a claim.
fn rank(phase: ClaimPhase) -> i64 {
    match phase {
        ClaimPhase::Reserved => 0,
        ClaimPhase::Attaching => 1,
        ClaimPhase::Attached => 2,
        ClaimPhase::Mounted => 3,
        ClaimPhase::Releasing => 4,
        ClaimPhase::Unpublished => 5,
        ClaimPhase::Unstaged => 6,
        ClaimPhase::Detaching => 7,
        ClaimPhase::Fencing => 8,
        ClaimPhase::Gone => 9,
    }
}

/// An element of the list.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    #[serde(rename = "VolumeID")]
    volume_id: VolumeId,
    namespace: Namespace,
    #[serde(rename = "PluginID")]
    plugin_id: PluginId,
    #[serde(rename = "AllocID")]
    alloc_id: AllocId,
    #[serde(rename = "JobID")]
    job_id: JobId,
    task_group: String,
    #[serde(rename = "NodeID")]
    node_id: NodeId,
    mode: ClaimMode,
    phase: ClaimPhase,
    since: UnixNanos,
    /// The wait reason in one sentence; empty if the claim does not wait.
    waits_for: String,
    tries: u32,
    last_error: String,
    next_try: UnixNanos,
    create_index: u64,
    modify_index: u64,
}

fn row(server: &Handle, claim: &Claim) -> Row {
    Row {
        volume_id: claim.id.volume.id.clone(),
        namespace: claim.id.volume.namespace.clone(),
        plugin_id: claim.plugin_id.clone(),
        alloc_id: claim.id.alloc.clone(),
        job_id: claim.job_id.clone(),
        task_group: claim.task_group.clone(),
        node_id: claim.node_id.clone(),
        mode: claim.mode,
        phase: claim.phase,
        since: claim.phase_since,
        waits_for: server.volumes().claim_wait(&claim.id).map(|wait| wait.to_string()).unwrap_or_default(),
        tries: claim.tries,
        last_error: claim.last_error.clone(),
        next_try: claim.next_try,
        create_index: claim.create_index,
        modify_index: claim.modify_index,
    }
}

/// Returns whether a parameter names a node by its id, the beginning of its id, or its name. An empty parameter
/// names every node.
fn is_on(root: &Root, named: &str, node: &NodeId) -> bool {
    node.as_str().starts_with(named) || root.node(node).is_some_and(|node| node.name.as_str() == named)
}

/// Lists the claims that hold volumes which the caller may read; with `ended=true`, ended ones too.
pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?;
    let namespace = call.list_namespace();
    let with_ended = call.query.bool("ended")?.unwrap_or(false);
    let is = |name: &str, value: &str| matches!(call.query.text(name), "") || call.query.text(name) == value;
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let root = reads.snapshot();
        let rows = root
            .claims()
            .filter(|claim| with_ended || claim.phase.holds())
            .filter(|claim| namespace.as_ref().is_none_or(|only| claim.id.volume.namespace == *only))
            .filter(|claim| call.may(&claim.id.volume.namespace, NsCap::CsiReadVolume))
            .filter(|claim| is("node_id", claim.node_id.as_str()))
            .filter(|claim| is_on(root, call.query.text("node"), &claim.node_id))
            .filter(|claim| is("plugin_id", claim.plugin_id.as_str()))
            .filter(|claim| is("plugin", claim.plugin_id.as_str()))
            .filter(|claim| is("volume_id", claim.id.volume.id.as_str()))
            .filter(|claim| is("job_id", claim.job_id.as_str()))
            .filter(|claim| is("phase", claim.phase.as_str()))
            .collect();
        let (rows, next) = page(
            &call.query,
            &KEYS,
            root,
            rows,
            |claim: &&Arc<Claim>| {
                let volume = &claim.id.volume;
                Token::Claim(volume.namespace.as_str(), volume.id.as_str(), claim.id.alloc.as_str())
            },
            |claim| object(&row(server, claim)),
        )?;
        let rows: Vec<Row> = rows.into_iter().map(|claim| row(server, claim)).collect();
        Ok((reads.table_index(Table::Claims), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::parsed(rows)?.meta(meta))
}
