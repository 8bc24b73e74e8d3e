//! The storage map: plugins, volumes, and the claims on them with phases and reasons, in one answer.

pub(crate) mod hosts;
mod need;

use super::volumes;
use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::page::{Pager, Token, object};
use crate::reply::Reply;
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

/// The answer of the route. Only its volumes are paged.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct StorageMap {
    plugins: Vec<PluginListStub>,
    volumes: Vec<VolumeExplain>,
    /// The volumes of all pages with the worst trouble, if the request selects them and the page does not have all
    /// volumes.
    worst: Option<Worst>,
    /// The facts about plugins that the list of plugins does not contain, by plugin.
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

/// A page of the ranked list: the worst trouble first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Worst {
    volumes: Vec<VolumeExplain>,
    /// The place of each volume, which `worst_token` takes.
    places: Vec<String>,
    /// The number of volumes before this page.
    before: usize,
    /// The number of volumes on all pages.
    listed: usize,
    /// The place at which the next page begins; empty on the last page.
    next: String,
    /// The numbers of the volumes in the list.
    facts: BTreeMap<PluginId, PluginFacts>,
    /// The jobs that wait for a claim on one of the volumes.
    blocked: Vec<BlockedJob>,
}

/// The numbers of a plugin's volumes by need, and its calls in progress. The numbers include the volumes that the
/// request selects without its page; only the numbers of a ranked list obey the filter expression.
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
    /// The numbers of volumes by need below each node, for a ranked list; an empty id for volumes on no node.
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
    /// The number of calls that wait for the end of a running one.
    waiting: usize,
    /// The most calls that run at the same time.
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

/// Returns the storage map. `trouble=true` selects the volumes that wait, failed or are in transition. `rank` selects
/// volumes by need. `worst=<number>` adds the volumes with the worst trouble of all pages, for a caller that shows
/// them next to a page. Of these, `calm` limits the volumes without trouble of each node, and `home` selects a node.
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
            let rank = Rank::new(volume, held().map(|claim| (claim, waits(&claim.id))), is_blocked, is_sick);
            let is_selected = ranks.is_empty() || ranks.contains(&rank);
            if !is_selected || (with_trouble_only && rank >= Rank::Sick) {
                continue;
            }
            rows.push(Row { rank, home: home(held()), volume });
        }
        map.facts = facts(&rows, false);
        let all = rows.iter().map(|row| row.volume).collect();
        let (page, next) =
            Pager::new(&call.query, &volumes::KEYS)?.cut(root, all, place, |row| object(&explain(row)))?;
        map.volumes = page.iter().map(|volume| explain(volume)).collect();
        map.blocked = page.iter().flat_map(|row| blocked.jobs(row, call)).collect();
        let has_all = next.token.is_empty() && call.query.text("next_token").is_empty();
        if let Some(ranking) = ranking.as_ref().filter(|ranking| !has_all || ranking.is_part()) {
            let rows = ranking.select(rows, |row| object(&explain(row.volume)))?;
            let page = ranking.page(&rows);
            map.worst = Some(Worst {
                volumes: page.rows.iter().map(|row| explain(row.volume)).collect(),
                facts: facts(&rows, true),
                blocked: page.rows.iter().flat_map(|row| blocked.jobs(row.volume, call)).collect(),
                places: page.places,
                before: page.before,
                listed: page.listed,
                next: page.next,
            });
        }
        if caller.acl.plugin(Level::List) {
            map.plugins = root.plugins().map(|plugin| plugin.stub()).collect();
            for all in map.facts_mut() {
                for plugin in root.plugins() {
                    let facts = all.entry(plugin.id.clone()).or_default();
                    facts.calls = server.volumes().calls_of(&plugin.id).len();
                    facts.lanes =
                        lanes(server, &plugin.id).filter(|lane| lane.running + lane.waiting > 0).collect();
                    facts.sick = sick(plugin).take(MAX_SICK).cloned().collect();
                }
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
    /// Returns the facts of each list of the answer.
    fn facts_mut(&mut self) -> impl Iterator<Item = &mut BTreeMap<PluginId, PluginFacts>> {
        std::iter::once(&mut self.facts).chain(self.worst.as_mut().map(|worst| &mut worst.facts))
    }

    /// Returns the ids of the nodes that the answer names.
    fn node_ids(&self) -> BTreeSet<&NodeId> {
        let worst = self.worst.as_ref();
        let volumes = || self.volumes.iter().chain(worst.into_iter().flat_map(|worst| &worst.volumes));
        let facts = || self.facts.values().chain(worst.into_iter().flat_map(|worst| worst.facts.values()));
        let claims = volumes().flat_map(|volume| &volume.claims);
        claims
            .map(|claim| &claim.node_id)
            .chain(volumes().flat_map(|volume| volume.usage.keys()))
            .chain(self.host_volumes.iter().map(|row| &row.node_id))
            .chain(self.static_volumes.iter().map(|row| &row.node_id))
            .chain(facts().flat_map(|facts| &facts.sick))
            .chain(facts().flat_map(|facts| facts.homes.keys()))
            .collect()
    }
}

/// Counts volumes by plugin, and by node for a ranked list.
fn facts(rows: &[Row<'_>], is_ranked: bool) -> BTreeMap<PluginId, PluginFacts> {
    let mut by: BTreeMap<&PluginId, Vec<&Row<'_>>> = BTreeMap::new();
    for row in rows {
        by.entry(&row.volume.plugin_id).or_default().push(row);
    }
    let count = |(plugin, own): (&PluginId, Vec<&Row<'_>>)| {
        let mut needs = Needs::default();
        own.iter().for_each(|row| needs.count(row.rank));
        let Needs { failed, waiting, fencing, changing, rest } = needs;
        let (homes, omitted_homes) = if is_ranked { homes(own.into_iter()) } else { Default::default() };
        let facts = PluginFacts {
            failed,
            waiting,
            fencing,
            changing,
            rest,
            homes,
            omitted_homes,
            ..PluginFacts::default()
        };
        (plugin.clone(), facts)
    };
    by.into_iter().map(count).collect()
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

/// The blocked evaluations by the text of each wait reason.
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

    /// Returns the first jobs of these evaluations that the caller may read.
    fn jobs(&self, volume: &Volume, call: &Call) -> impl Iterator<Item = BlockedJob> {
        let seen = self.on(volume).iter().filter(|eval| call.may(&eval.namespace, NsCap::ReadJob));
        seen.take(MAX_WAITING).map(|eval| BlockedJob {
            volume_id: volume.id.clone(),
            namespace: eval.namespace.clone(),
            job_id: eval.job_id.clone(),
            eval_id: eval.id.clone(),
            since: eval.create_time,
        })
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
    let named =
        map.node_ids().into_iter().filter_map(|id| Some((id.clone(), root.node(id)?.name.to_string())));
    named.collect()
}
