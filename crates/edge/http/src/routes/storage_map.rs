//! The storage map: plugins, volumes, and the claims on them with phases and reasons, in one answer.

use super::volumes;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::page::{Pager, Token, object};
use crate::query::Query;
use crate::reply::Reply;
use caravan_server::{Level, NsCap};
use caravan_state::{Root, Table};
use caravan_types::eval::{EvalStatus, Evaluation, WaitsFor};
use caravan_types::host_volume::{HostVolume, HostVolumeStub};
use caravan_types::plugin::{Plugin, PluginListStub};
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, Volume, VolumeExplain, VolumePhase};
use caravan_types::{AllocId, EvalId, HostVolumeId, JobId, Namespace, NodeId, PluginId, UnixNanos, VolumeId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables whose changes end a wait.
const TABLES: [Table; 6] =
    [Table::Volumes, Table::Claims, Table::Plugins, Table::HostVolumes, Table::Nodes, Table::Evals];
/// The most host volumes that an answer lists.
const MAX_HOST_VOLUMES: usize = 500;
/// The most volumes of nodes' configurations that an answer lists.
const MAX_STATIC_VOLUMES: usize = 500;
/// The most holders of a host volume, and the most jobs that wait for a volume, that an answer lists.
const MAX_HOLDERS: usize = 10;
/// The most nodes with an unhealthy part that an answer lists for a plugin.
const MAX_SICK: usize = 100;

/// The answer. Only its volumes are paged.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StorageMap {
    plugins: Vec<PluginListStub>,
    volumes: Vec<VolumeExplain>,
    /// What the list of plugins does not report, by plugin.
    facts: BTreeMap<PluginId, PluginFacts>,
    host_volumes: Vec<HostVolumeStub>,
    /// The groups that hold a host volume, by its id. Groups that the caller may not read are missing.
    holders: BTreeMap<HostVolumeId, Vec<HostVolumeHolder>>,
    /// The volumes of the nodes' configurations.
    static_volumes: Vec<StaticVolume>,
    /// The jobs that wait for a claim on a volume of the answer. Jobs that the caller may not read are missing.
    blocked: Vec<BlockedJob>,
    /// The names of the nodes that the volumes and claims of the answer name.
    nodes: BTreeMap<NodeId, String>,
    /// The number of volumes that the caller may list but not read.
    hidden: usize,
    /// The rights that the caller lacks in every namespace of the request; their objects are missing.
    denied: Vec<&'static str>,
}

/// The volumes of a plugin by what they need, and its work. The numbers are those of the volumes that the request selects
/// without its filter expression and its page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct PluginFacts {
    failed: usize,
    waiting: usize,
    fencing: usize,
    changing: usize,
    rest: usize,
    /// The number of the servers' calls in progress.
    calls: usize,
    /// The nodes with a part of the plugin that is not healthy.
    sick: BTreeSet<NodeId>,
}

/// A group that holds a host volume.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostVolumeHolder {
    #[serde(rename = "JobID")]
    job_id: JobId,
    task_group: String,
    /// Empty while the group keeps its place without an allocation.
    #[serde(rename = "AllocID")]
    alloc_id: AllocId,
}

/// A job whose evaluation waits until a claim on a volume is released.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BlockedJob {
    #[serde(rename = "VolumeID")]
    volume_id: VolumeId,
    /// The namespace of the volume and of the job.
    namespace: Namespace,
    #[serde(rename = "JobID")]
    job_id: JobId,
    #[serde(rename = "EvalID")]
    eval_id: EvalId,
    since: UnixNanos,
}

/// A volume of a node's configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StaticVolume {
    name: String,
    #[serde(rename = "NodeID")]
    node_id: NodeId,
    read_only: bool,
}

/// What a volume needs, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A step of the volume or of a claim failed.
    Failed,
    /// A job or a claim cannot go on before another claim is released, or before the node or plugin answers.
    Waiting,
    /// A claim waits for the end of a fence.
    Fencing,
    /// The volume or a claim is between two states.
    Changing,
    /// Only the plugin has trouble.
    Sick,
    /// Nothing.
    Rest,
}

impl Rank {
    /// Parses names of ranks, separated by commas.
    fn parse(text: &str) -> Result<Vec<Self>, ApiError> {
        let one = |name: &str| match name {
            "failed" => Ok(Self::Failed),
            "waiting" => Ok(Self::Waiting),
            "fencing" => Ok(Self::Fencing),
            "changing" => Ok(Self::Changing),
            _ => Err(ApiError::bad_request(format!(
                "`rank` has {name:?}, which is none of `failed`, `waiting`, `fencing`, `changing`"
            ))),
        };
        text.split(',').filter(|name| !name.is_empty()).map(one).collect()
    }

    /// Returns the rank of a volume. Each of the claims that hold the volume comes with whether a wait is recorded for it.
    /// `is_blocked`: a job waits for a claim.
    fn of<'a>(
        volume: &Volume,
        claims: impl Iterator<Item = (&'a Claim, bool)>,
        is_blocked: bool,
        is_sick: bool,
    ) -> Self {
        let own = match volume.phase {
            _ if !volume.last_error.is_empty() => Self::Failed,
            _ if is_blocked => Self::Waiting,
            VolumePhase::Ready if is_sick => Self::Sick,
            VolumePhase::Ready => Self::Rest,
            _ => Self::Changing,
        };
        let worst = claims.map(|(claim, waits)| match claim.phase {
            _ if !claim.last_error.is_empty() => Self::Failed,
            ClaimPhase::Fencing => Self::Fencing,
            _ if waits => Self::Waiting,
            ClaimPhase::Mounted => Self::Rest,
            _ => Self::Changing,
        });
        worst.fold(own, Self::min)
    }
}

/// Answers with the storage map. `trouble=true` selects the volumes that wait, failed or are in transition. `rank`
/// selects volumes by what they need. With `ranked=true`, the answer is one page, and the volumes with the worst trouble come
/// first.
pub(crate) async fn map(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?;
    let namespace = call.list_namespace();
    let with_trouble_only = call.query.flag("trouble")?.unwrap_or(false);
    let is_ranked = call.query.bool("ranked")?.unwrap_or(false);
    if is_ranked {
        check_ranked(&call.query)?;
    }
    let ranks = Rank::parse(call.query.text("rank"))?;
    let plugin = call.query.text("plugin_id");
    let (mut meta, (map, next)) = blocking::read(call, |reads| {
        let (root, caller) = (reads.snapshot(), call.caller());
        let is_in = |name: &Namespace| namespace.as_ref().is_none_or(|only| only == name);
        let explain = |volume: &Volume| server.volumes().explain(&volume.key()).unwrap_or_default();
        let mut map = StorageMap::default();
        let blocked = Blocked::new(root);
        let mut rows: Vec<(Rank, &Arc<Volume>)> = Vec::new();
        let may_list = caller.acl.plugin(Level::List);
        for volume in root.volumes().filter(|volume| is_in(&volume.namespace)) {
            if !plugin.is_empty() && volume.plugin_id != *plugin {
                continue;
            }
            match call.may(&volume.namespace, NsCap::CsiReadVolume) {
                true => {}
                false => {
                    map.hidden += usize::from(call.may(&volume.namespace, NsCap::CsiListVolume));
                    continue;
                }
            }
            let is_blocked = !blocked.on(volume).is_empty();
            let is_sick = root.plugin(&volume.plugin_id).is_some_and(|plugin| !is_healthy(plugin));
            let waits = |id: &ClaimId| server.volumes().claim_wait(id).is_some();
            let key = volume.key();
            let claims = root.claims_of(&key).filter(|claim| claim.phase.holds());
            let claims = claims.map(|claim| (&**claim, waits(&claim.id)));
            let rank = Rank::of(volume, claims, is_blocked, is_sick);
            let is_selected = ranks.is_empty() || ranks.contains(&rank);
            if !is_selected || (with_trouble_only && rank >= Rank::Sick) {
                continue;
            }
            map.facts.entry(volume.plugin_id.clone()).or_default().count(rank);
            rows.push((rank, volume));
        }
        if is_ranked {
            rows.sort_by(|(one, a), (two, b)| (one, &a.namespace, &a.id).cmp(&(two, &b.namespace, &b.id)));
        }
        let rows: Vec<&Arc<Volume>> = rows.into_iter().map(|(_, volume)| volume).collect();
        let pager = Pager::new(&call.query, &volumes::KEYS)?;
        let shown = |row: &&'_ Arc<Volume>| object(&explain(row));
        let (rows, next) = if is_ranked {
            let (rows, mut next) = pager.take(root, rows, place, shown)?;
            next.token.clear();
            (rows, next)
        } else {
            pager.cut(root, rows, place, shown)?
        };
        for row in &rows {
            let seen = blocked.on(row).iter().filter(|eval| call.may(&eval.namespace, NsCap::ReadJob));
            map.blocked.extend(seen.take(MAX_HOLDERS).map(|eval| BlockedJob {
                volume_id: row.id.clone(),
                namespace: eval.namespace.clone(),
                job_id: eval.job_id.clone(),
                eval_id: eval.id.clone(),
                since: eval.create_time,
            }));
        }
        map.volumes = rows.into_iter().map(|volume| explain(volume)).collect();
        if may_list {
            map.plugins = root.plugins().map(|plugin| plugin.stub()).collect();
            for plugin in root.plugins() {
                let facts = map.facts.entry(plugin.id.clone()).or_default();
                facts.calls = server.volumes().calls_of(&plugin.id).len();
                facts.sick = sick(plugin).take(MAX_SICK).cloned().collect();
            }
        } else {
            map.denied.push("plugin:list");
        }
        let host = root
            .host_volumes()
            .filter(|row| is_in(&row.namespace) && call.may(&row.namespace, NsCap::HostVolumeRead));
        for row in host.take(MAX_HOST_VOLUMES) {
            map.host_volumes.push(row.stub());
            let holders =
                if call.may(&row.namespace, NsCap::ReadJob) { holders(root, row) } else { Vec::new() };
            if !holders.is_empty() {
                map.holders.insert(row.id.clone(), holders);
            }
        }
        if caller.acl.node(Level::Read) {
            map.static_volumes = static_volumes(root);
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

/// Returns the position of a volume in the list.
fn place<'r>(row: &&'r Arc<Volume>) -> Token<'r> {
    Token::Key(row.namespace.as_str(), row.id.as_str())
}

/// Refuses what a ranked answer does not have.
fn check_ranked(query: &Query) -> Result<(), ApiError> {
    match ["next_token", "sort", "reverse"].into_iter().find(|name| !query.text(name).is_empty()) {
        None => Ok(()),
        Some(name) => Err(ApiError::bad_request(format!(
            "`{name}` is not available with `ranked`, which has one page in an order of its own"
        ))),
    }
}

impl PluginFacts {
    fn count(&mut self, rank: Rank) {
        let number = match rank {
            Rank::Failed => &mut self.failed,
            Rank::Waiting => &mut self.waiting,
            Rank::Fencing => &mut self.fencing,
            Rank::Changing => &mut self.changing,
            Rank::Sick | Rank::Rest => &mut self.rest,
        };
        *number += 1;
    }
}

/// The blocked evaluations by the texts of what they wait for.
struct Blocked<'r>(BTreeMap<&'r str, Vec<&'r Arc<Evaluation>>>);

impl<'r> Blocked<'r> {
    fn new(root: &'r Root) -> Self {
        let mut out: BTreeMap<&str, Vec<&Arc<Evaluation>>> = BTreeMap::new();
        for eval in root.evals().filter(|eval| eval.status == EvalStatus::Blocked) {
            for text in &eval.missing_non_node_resources {
                out.entry(text).or_default().push(eval);
            }
        }
        Self(out)
    }

    /// Returns the evaluations that wait for a claim on a volume.
    fn on(&self, volume: &Volume) -> &[&'r Arc<Evaluation>] {
        match self.0.is_empty() {
            true => &[],
            false => {
                self.0.get(WaitsFor::Claim(volume.key()).to_string().as_str()).map_or(&[], Vec::as_slice)
            }
        }
    }
}

/// Returns whether all expected parts of a plugin are healthy.
fn is_healthy(plugin: &Plugin) -> bool {
    let controllers =
        !plugin.controller_required || plugin.controllers_healthy >= plugin.controllers_expected;
    controllers && plugin.nodes_healthy >= plugin.nodes_expected
}

/// Returns the nodes with a part of a plugin that is not healthy.
fn sick(plugin: &Plugin) -> impl Iterator<Item = &NodeId> {
    let parts = plugin.controllers.iter().chain(&plugin.nodes);
    parts.filter(|(_, report)| !report.healthy).map(|(node, _)| node)
}

/// Returns the groups that hold a host volume: those with an allocation first.
fn holders(root: &Root, volume: &HostVolume) -> Vec<HostVolumeHolder> {
    let mut out: Vec<HostVolumeHolder> = root
        .host_volume_users(volume)
        .map(|alloc| HostVolumeHolder {
            job_id: alloc.job_id.clone(),
            task_group: alloc.task_group.to_string(),
            alloc_id: alloc.id.clone(),
        })
        .collect();
    for claim in root.host_claims_of(&volume.id) {
        let is_claim =
            |row: &HostVolumeHolder| row.job_id == claim.job_id && row.task_group == claim.task_group_name;
        if !out.iter().any(is_claim) {
            out.push(HostVolumeHolder {
                job_id: claim.job_id.clone(),
                task_group: claim.task_group_name.clone(),
                alloc_id: AllocId::default(),
            });
        }
    }
    out.truncate(MAX_HOLDERS);
    out
}

/// Returns the volumes of the nodes' configurations.
fn static_volumes(root: &Root) -> Vec<StaticVolume> {
    let all = root.nodes().flat_map(|node| node.host_volumes.values().map(move |info| (node, info)));
    let fixed = all.filter(|(_, info)| info.id.is_empty()).map(|(node, info)| StaticVolume {
        name: info.name.clone(),
        node_id: node.id.clone(),
        read_only: info.read_only,
    });
    fixed.take(MAX_STATIC_VOLUMES).collect()
}

/// Returns the names of the nodes that occur in an answer.
fn names(root: &Root, map: &StorageMap) -> BTreeMap<NodeId, String> {
    let claims = map.volumes.iter().flat_map(|volume| &volume.claims);
    let used = map.volumes.iter().flat_map(|volume| volume.usage.keys());
    let ids: BTreeSet<&NodeId> = claims
        .map(|claim| &claim.node_id)
        .chain(used)
        .chain(map.host_volumes.iter().map(|row| &row.node_id))
        .chain(map.static_volumes.iter().map(|row| &row.node_id))
        .chain(map.facts.values().flat_map(|facts| &facts.sick))
        .collect();
    let named = ids.into_iter().filter_map(|id| Some((id.clone(), root.node(id)?.name.to_string())));
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(phase: ClaimPhase, last_error: &str) -> Claim {
        Claim { phase, last_error: last_error.into(), ..Claim::default() }
    }

    #[test]
    fn trouble_has_an_order() {
        let ready = Volume { phase: VolumePhase::Ready, ..Volume::default() };
        let mounted = claim(ClaimPhase::Mounted, "");
        let rank = |volume: &Volume, claims: &[(&Claim, bool)], is_sick| {
            Rank::of(volume, claims.iter().copied(), false, is_sick)
        };
        let failed = claim(ClaimPhase::Attaching, "no");
        let fencing = claim(ClaimPhase::Fencing, "");
        let moving = claim(ClaimPhase::Attaching, "");
        assert_eq!(rank(&ready, &[(&mounted, false)], false), Rank::Rest);
        assert_eq!(rank(&ready, &[(&mounted, false)], true), Rank::Sick);
        assert_eq!(rank(&ready, &[(&mounted, false), (&moving, false)], true), Rank::Changing);
        assert_eq!(rank(&ready, &[(&fencing, true), (&moving, false)], false), Rank::Fencing);
        assert_eq!(rank(&ready, &[(&fencing, true), (&moving, true)], false), Rank::Waiting);
        assert_eq!(rank(&ready, &[(&moving, true), (&failed, true)], false), Rank::Failed);
        let broken = Volume { last_error: "full".into(), ..ready.clone() };
        assert_eq!(rank(&broken, &[], false), Rank::Failed);
        let claims = [(&mounted, false)];
        assert_eq!(Rank::of(&ready, claims.iter().copied(), true, false), Rank::Waiting);
        assert!(Rank::Failed < Rank::Waiting && Rank::Sick < Rank::Rest);
        assert_eq!(Rank::parse("waiting,fencing").ok(), Some(vec![Rank::Waiting, Rank::Fencing]));
        assert!(Rank::parse("").is_ok_and(|ranks| ranks.is_empty()) && Rank::parse("bad").is_err());
        let mut facts = PluginFacts::default();
        facts.count(Rank::Waiting);
        facts.count(Rank::Sick);
        assert_eq!(facts, PluginFacts { waiting: 1, rest: 1, ..PluginFacts::default() });
    }
}
