//! Plugin rows, derived from nodes' reports and from jobs; never counted up or down.

use crate::changes::Changed;
use crate::root::Root;
use crate::tx::Tx;
use caravan_lang::glob;
use caravan_types::job::{Job, TaskGroup};
use caravan_types::node::NodeStatus;
use caravan_types::plugin::{CsiInfo, LeftMount, Plugin, PluginJob};
use caravan_types::{JobId, Namespace, NodeId, PluginId};
use std::collections::BTreeMap;
use std::sync::Arc;

type JobMap = BTreeMap<Namespace, BTreeMap<JobId, PluginJob>>;

/// Collects the nodes' reports about one service of a plugin. Reports of down nodes are ignored; a disconnected node
/// keeps its entry, as unhealthy. A report that is neither healthy nor has the plugin's name is not a response of the
/// plugin yet. Counting it would make the plugin's capabilities appear absent instead of unknown.
fn reports<'a>(
    root: &'a Root,
    id: &PluginId,
    of: impl Fn(&'a caravan_types::node::Node) -> &'a BTreeMap<PluginId, CsiInfo>,
) -> BTreeMap<NodeId, CsiInfo> {
    let mut found = BTreeMap::new();
    for node in root.nodes_by_plugin(id).filter(|n| n.status != NodeStatus::Down) {
        let Some(info) = of(node).get(id).filter(|i| i.healthy || !i.provider.is_empty()) else { continue };
        if is_over(root, info) {
            continue;
        }
        let mut info = info.clone();
        if node.status == NodeStatus::Disconnected && info.healthy {
            info.healthy = false;
            info.health_description = "the node is disconnected".to_owned();
        }
        found.insert(node.id.clone(), info);
    }
    found
}

/// Returns orphaned mounts of the plugin, by node. Reports of down nodes are ignored.
fn left_mounts(root: &Root, id: &PluginId) -> BTreeMap<NodeId, Vec<LeftMount>> {
    let mut found = BTreeMap::new();
    for node in root.nodes_by_plugin(id).filter(|n| n.status != NodeStatus::Down) {
        let mounts: Vec<_> = node.left_mounts.iter().filter(|m| m.plugin_id == *id).cloned().collect();
        if !mounts.is_empty() {
            found.insert(node.id.clone(), mounts);
        }
    }
    found
}

/// Whether a report is about a plugin that has ended: a client keeps its last report. The row of a plugin without
/// instances and jobs is removed with its last report.
fn is_over(root: &Root, info: &CsiInfo) -> bool {
    let over = || root.alloc(&info.alloc_id).is_none_or(|alloc| alloc.client_terminal());
    !info.healthy && !info.alloc_id.is_empty() && over()
}

/// Returns the nodes on which a system job would run, by datacenter and pool only.
fn reachable(root: &Root, job: &Job) -> u32 {
    let fits = |node: &caravan_types::node::Node| {
        node.is_schedulable()
            && job.datacenters.iter().any(|dc| glob::matches(dc, &node.datacenter))
            && (job.node_pool == "all" || job.node_pool == node.node_pool)
    };
    count(root.nodes().filter(|node| fits(node)).count())
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Returns the expected number of a group's allocations. For a system job, this is the number of running ones plus
/// the instances that its newest evaluation could not place. Before the first evaluation, it is one on every eligible node.
fn expected(root: &Root, job: &Job, group: &TaskGroup) -> u32 {
    if !job.kind.is_system() {
        return group.count;
    }
    let key = job.key();
    let live = root.allocs_by_job(&key).filter(|a| a.task_group == group.name && !a.terminal()).count();
    match root.queued(&key) {
        Some(queued) => count(live).saturating_add(queued.get(&group.name).copied().unwrap_or(0)),
        None => count(live).max(reachable(root, job)),
    }
}

fn add(jobs: &mut JobMap, job: &Job, expected: u32) {
    let of_namespace = jobs.entry(job.namespace.clone()).or_default();
    let entry = of_namespace.entry(job.id.clone()).or_insert_with(|| PluginJob {
        namespace: job.namespace.clone(),
        id: job.id.clone(),
        expected: 0,
    });
    entry.expected = entry.expected.saturating_add(expected);
}

fn total(jobs: &JobMap) -> u32 {
    jobs.values().flat_map(BTreeMap::values).fold(0, |sum, job| sum.saturating_add(job.expected))
}

fn healthy(infos: &BTreeMap<NodeId, CsiInfo>) -> u32 {
    count(infos.values().filter(|info| info.healthy).count())
}

/// Returns the row of a plugin derived from the records, without its indexes and times; `None` if no node reports it
/// and no job runs it.
pub(crate) fn derive(root: &Root, id: &PluginId) -> Option<Plugin> {
    let mut row = Plugin {
        id: id.clone(),
        controllers: reports(root, id, |node| &node.csi_controller_plugins),
        nodes: reports(root, id, |node| &node.csi_node_plugins),
        left_mounts: left_mounts(root, id),
        ..Default::default()
    };
    for job in root.jobs_by_plugin(id).filter(|job| !job.stop) {
        for group in &job.task_groups {
            let configs = group.tasks.iter().filter_map(|t| t.csi_plugin_config.as_ref());
            for config in configs.filter(|c| c.id == *id) {
                let expected = expected(root, job, group);
                if config.kind.has_controller() {
                    add(&mut row.controller_jobs, job, expected);
                }
                if config.kind.has_node() {
                    add(&mut row.node_jobs, job, expected);
                }
            }
        }
    }
    row.controllers_healthy = healthy(&row.controllers);
    row.nodes_healthy = healthy(&row.nodes);
    row.controllers_expected = total(&row.controller_jobs);
    row.nodes_expected = total(&row.node_jobs);
    let infos = || row.controllers.values().chain(row.nodes.values());
    row.controller_required = infos().any(|info| info.requires_controller_plugin);
    let speaker = infos().find(|info| info.healthy).or_else(|| infos().find(|i| !i.provider.is_empty()));
    if let Some(info) = speaker.cloned() {
        row.provider = info.provider;
        row.version = info.provider_version;
    }
    if row.is_empty() { None } else { Some(row) }
}

fn same_reports(a: &BTreeMap<NodeId, CsiInfo>, b: &BTreeMap<NodeId, CsiInfo>) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((m, x), (n, y))| m == n && x.same(y))
}

/// Whether both rows are equal, apart from indexes and times of reports.
pub(crate) fn same(a: &Plugin, b: &Plugin) -> bool {
    let strip = |p: &Plugin| Plugin {
        controllers: BTreeMap::new(),
        nodes: BTreeMap::new(),
        create_index: 0,
        modify_index: 0,
        create_time: Default::default(),
        modify_time: Default::default(),
        ..p.clone()
    };
    same_reports(&a.controllers, &b.controllers) && same_reports(&a.nodes, &b.nodes) && strip(a) == strip(b)
}

/// Writes the changed rows of all touched plugins.
pub(crate) fn refresh(tx: &mut Tx) {
    for id in std::mem::take(&mut tx.plugins) {
        let old = tx.root.plugins.get(&id).cloned();
        match (derive(&tx.root, &id), old) {
            (None, None) => {}
            (None, Some(_)) => {
                tx.root.plugins.remove(&id);
                tx.changed(Changed::PluginRemoved(id));
            }
            (Some(new), Some(old)) if same(&new, &old) => {}
            (Some(mut new), old) => {
                let born = old.map(|o| (o.create_index, o.create_time));
                (new.create_index, new.create_time) = born.unwrap_or((tx.index, tx.now));
                (new.modify_index, new.modify_time) = (tx.index, tx.now);
                tx.root.plugins.insert(id.clone(), Arc::new(new));
                tx.changed(Changed::Plugin(id));
            }
        }
    }
}
