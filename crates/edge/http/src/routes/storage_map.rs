//! The storage map: plugins, volumes, and the claims on them with phases and reasons, in one answer.

pub(crate) mod hosts;
mod need;

use super::volumes;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::page::{Pager, Token, object};
use crate::reply::{Next, Reply};
use caravan_server::{Handle, Level, NsCap};
use caravan_state::{Root, Table};
use caravan_types::eval::{EvalStatus, Evaluation, WaitsFor};
use caravan_types::host_volume::{HostVolume, HostVolumeState, HostVolumeStub};
use caravan_types::plugin::{Plugin, PluginListStub};
use caravan_types::volume::{ClaimId, Volume, VolumeExplain};
use caravan_types::{EvalId, HostVolumeId, JobId, Namespace, NodeId, PluginId, UnixNanos, VolumeId};
use hosts::{Holder, StaticVolume};
use need::{Needs, Rank, Ranking, Row, home, homes};
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
/// The most jobs that wait for a volume that an answer lists.
const MAX_WAITING: usize = 10;
/// The most nodes with an unhealthy part that an answer lists for a plugin.
const MAX_SICK: usize = 100;

/// The answer. Only its volumes are paged.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StorageMap {
    plugins: Vec<PluginListStub>,
    volumes: Vec<VolumeExplain>,
    /// The place of each volume in a ranked answer, which `next_token` takes.
    places: Vec<String>,
    /// The number of volumes before the page of a ranked answer.
    before: usize,
    /// The number of volumes on all pages of a ranked answer.
    listed: usize,
    /// What the list of plugins does not report, by plugin.
    facts: BTreeMap<PluginId, PluginFacts>,
    /// The host volumes that users created. Volumes that are not ready come first; `caravan/host-volumes` has pages.
    host_volumes: Vec<HostVolumeStub>,
    /// The number of host volumes that the answer leaves out.
    omitted_host_volumes: usize,
    /// The groups that hold a host volume, by its id. Groups that the caller may not read are missing.
    holders: BTreeMap<HostVolumeId, Vec<Holder>>,
    /// The volumes of the nodes' configurations.
    static_volumes: Vec<StaticVolume>,
    /// The number of volumes of the nodes' configurations that the answer leaves out.
    omitted_static_volumes: usize,
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
/// without its page, and without its filter expression if the answer is not ranked.
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
    /// The lanes with a call in progress or a call that waits.
    lanes: Vec<LaneFacts>,
    /// The nodes with a part of the plugin that is not healthy.
    sick: BTreeSet<NodeId>,
    /// The volumes below each node by what they need, in ranked answers; an empty id for volumes on no node.
    homes: BTreeMap<NodeId, Needs>,
    /// The number of nodes that `homes` leaves out.
    omitted_homes: usize,
}

/// The use of a lane: calls of one kind from the servers to one plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct LaneFacts {
    /// `attach`, `detach`, `grow`, or `manage`, which creates and deletes.
    lane: &'static str,
    running: usize,
    /// Calls that wait for one of the running ones to end.
    waiting: usize,
    /// The most calls that run at once.
    limit: usize,
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

/// Answers with the storage map. `trouble=true` selects the volumes that wait, failed or are in transition. `rank`
/// selects volumes by what they need. With `ranked=true`, the volumes with the worst trouble come first; `calm` limits the
/// volumes without trouble of each node, and `home` selects a node.
pub(crate) async fn map(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?;
    let namespace = call.list_namespace();
    let with_trouble_only = call.query.flag("trouble")?.unwrap_or(false);
    let ranking = Ranking::read(&call.query)?;
    let ranks = Rank::parse(call.query.text("rank"))?;
    let plugin = call.query.text("plugin_id");
    let (mut meta, (map, next)) = blocking::read(call, |reads| {
        let (root, caller) = (reads.snapshot(), call.caller());
        let is_in = |name: &Namespace| namespace.as_ref().is_none_or(|only| only == name);
        let explain = |volume: &Volume| server.volumes().explain(&volume.key()).unwrap_or_default();
        let mut map = StorageMap::default();
        let blocked = Blocked::new(root);
        let mut rows: Vec<Row<'_>> = Vec::new();
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
            let held = || root.claims_of(&key).filter(|claim| claim.phase.holds()).map(|claim| &**claim);
            let rank = Rank::of(volume, held().map(|claim| (claim, waits(&claim.id))), is_blocked, is_sick);
            let is_selected = ranks.is_empty() || ranks.contains(&rank);
            if !is_selected || (with_trouble_only && rank >= Rank::Sick) {
                continue;
            }
            let row = Row { rank, home: home(held()), volume };
            let takes = |ranking: &Ranking<'_>| ranking.takes(&row, || object(&explain(volume)));
            if ranking.as_ref().map_or(Ok(true), takes)? {
                rows.push(row);
            }
        }
        map.count(&rows, ranking.is_some());
        let (page, next): (Vec<&Arc<Volume>>, Next) = match &ranking {
            Some(ranking) => {
                let page = ranking.page(&rows);
                (map.before, map.listed, map.places) = (page.before, page.listed, page.places);
                (page.rows.iter().map(|row| row.volume).collect(), Next { token: page.next, total: None })
            }
            None => {
                let rows = rows.iter().map(|row| row.volume).collect();
                Pager::new(&call.query, &volumes::KEYS)?
                    .cut(root, rows, place, |row| object(&explain(row)))?
            }
        };
        for row in &page {
            let seen = blocked.on(row).iter().filter(|eval| call.may(&eval.namespace, NsCap::ReadJob));
            map.blocked.extend(seen.take(MAX_WAITING).map(|eval| BlockedJob {
                volume_id: row.id.clone(),
                namespace: eval.namespace.clone(),
                job_id: eval.job_id.clone(),
                eval_id: eval.id.clone(),
                since: eval.create_time,
            }));
        }
        map.volumes = page.into_iter().map(|volume| explain(volume)).collect();
        if caller.acl.plugin(Level::List) {
            map.plugins = root.plugins().map(|plugin| plugin.stub()).collect();
            for plugin in root.plugins() {
                let facts = map.facts.entry(plugin.id.clone()).or_default();
                facts.calls = server.volumes().calls_of(&plugin.id).len();
                facts.lanes =
                    lanes(server, &plugin.id).filter(|lane| lane.running + lane.waiting > 0).collect();
                facts.sick = sick(plugin).take(MAX_SICK).cloned().collect();
            }
        } else {
            map.denied.push("plugin:list");
        }
        let is_seen =
            |row: &&Arc<HostVolume>| is_in(&row.namespace) && call.may(&row.namespace, NsCap::HostVolumeRead);
        let (ready, other): (Vec<_>, Vec<_>) =
            root.host_volumes().filter(is_seen).partition(|row| row.state == HostVolumeState::Ready);
        for row in other.into_iter().chain(ready) {
            if map.host_volumes.len() >= MAX_HOST_VOLUMES {
                map.omitted_host_volumes += 1;
                continue;
            }
            map.host_volumes.push(row.stub());
            let holders =
                if call.may(&row.namespace, NsCap::ReadJob) { hosts::holders(root, row) } else { Vec::new() };
            if !holders.is_empty() {
                map.holders.insert(row.id.clone(), holders);
            }
        }
        if caller.acl.node(Level::Read) {
            (map.static_volumes, map.omitted_static_volumes) =
                hosts::static_volumes(root, MAX_STATIC_VOLUMES);
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

impl StorageMap {
    /// Counts the selected volumes by plugin, and by node if the answer is ranked.
    fn count(&mut self, rows: &[Row<'_>], is_ranked: bool) {
        let mut by: BTreeMap<&PluginId, Vec<&Row<'_>>> = BTreeMap::new();
        for row in rows {
            by.entry(&row.volume.plugin_id).or_default().push(row);
        }
        for (plugin, own) in by {
            let facts = self.facts.entry(plugin.clone()).or_default();
            let mut needs = Needs::default();
            own.iter().for_each(|row| needs.count(row.rank));
            let Needs { failed, waiting, fencing, changing, rest } = needs;
            *facts = PluginFacts { failed, waiting, fencing, changing, rest, ..PluginFacts::default() };
            if is_ranked {
                (facts.homes, facts.omitted_homes) = homes(own.into_iter());
            }
        }
    }
}

/// Returns the use of the lanes of a plugin.
pub(super) fn lanes(server: &Handle, plugin: &PluginId) -> impl Iterator<Item = LaneFacts> + use<> {
    server.volumes().lanes_of(plugin).into_iter().map(|lane| LaneFacts {
        lane: lane.name,
        running: lane.running,
        waiting: lane.waiting,
        limit: lane.limit,
    })
}

/// Returns the position of a volume in the list.
fn place<'r>(row: &&'r Arc<Volume>) -> Token<'r> {
    Token::Key(row.namespace.as_str(), row.id.as_str())
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
        .chain(map.facts.values().flat_map(|facts| facts.homes.keys()))
        .collect();
    let named = ids.into_iter().filter_map(|id| Some((id.clone(), root.node(id)?.name.to_string())));
    named.collect()
}
