//! Plugin rows, derived from nodes' reports and from jobs. A command updates the changed parts of a row. The result
//! equals the derivation from all records, as [`crate::check()`] verifies.

use crate::changes::Changed;
use crate::root::Root;
use crate::tx::Tx;
use caravan_lang::glob;
use caravan_types::job::{Job, TaskGroup};
use caravan_types::node::{Node, NodeStatus};
use caravan_types::plugin::{CsiInfo, LeftMount, Plugin, PluginJob, Reports};
use caravan_types::{JobId, Namespace, NodeId, PluginId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type JobMap = BTreeMap<Namespace, BTreeMap<JobId, PluginJob>>;

/// The parts of a plugin's row that a command may change.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// The nodes whose reports may differ.
    pub(crate) nodes: BTreeSet<NodeId>,
    /// Whether jobs, or their expected instances, may differ.
    pub(crate) jobs: bool,
}

/// A node's part of a plugin's row.
#[derive(Default)]
struct Part {
    controller: Option<CsiInfo>,
    node: Option<CsiInfo>,
    left_mounts: Vec<LeftMount>,
}

/// Returns a node's part of a plugin's row. Reports of down nodes are ignored.
fn part(root: &Root, id: &PluginId, node: &NodeId) -> Part {
    let Some(node) = root.node(node).filter(|node| node.status != NodeStatus::Down) else {
        return Part::default();
    };
    Part {
        controller: report(root, node, node.csi_controller_plugins.get(id)),
        node: report(root, node, node.csi_node_plugins.get(id)),
        left_mounts: node.left_mounts.iter().filter(|mount| mount.plugin_id == *id).cloned().collect(),
    }
}

/// Returns a node's report about one service of a plugin in the form of the plugin's row. A disconnected node keeps
/// its entry, as unhealthy. A report that is neither healthy nor has the plugin's name does not come from the plugin
/// yet. Counting it would mark the plugin's capabilities as absent instead of unknown.
fn report(root: &Root, node: &Node, info: Option<&CsiInfo>) -> Option<CsiInfo> {
    let info = info.filter(|info| info.healthy || !info.provider.is_empty())?;
    if is_over(root, &node.id, info) {
        return None;
    }
    let mut info = info.clone();
    if node.status == NodeStatus::Disconnected && info.healthy {
        info.healthy = false;
        info.health_description = "the node is disconnected".to_owned();
    }
    Some(info)
}

/// Whether a report is about an instance of a plugin that has ended: a client keeps its last report. The row of a
/// plugin without instances and jobs is removed with its last report. A plugin's allocation runs on the node that
/// reports the plugin.
fn is_over(root: &Root, node: &NodeId, info: &CsiInfo) -> bool {
    let over =
        || root.alloc(&info.alloc_id).is_none_or(|alloc| alloc.client_terminal() || alloc.node_id != *node);
    !info.healthy && !info.alloc_id.is_empty() && over()
}

/// Returns the number of nodes on which a system job would run, by datacenter and pool only.
fn reachable(root: &Root, job: &Job) -> u32 {
    let fits = |node: &Node| {
        node.is_schedulable()
            && job.datacenters.iter().any(|dc| glob::matches(dc, &node.datacenter))
            && (job.node_pool == "all" || job.node_pool == node.node_pool)
    };
    count(root.nodes().filter(|node| fits(node)).count())
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Returns the expected number of a group's allocations. For a system job, the result is the number of running
/// allocations, plus the instances that its newest evaluation could not place. Before the first evaluation, it is the
/// number of eligible nodes.
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

fn healthy(reports: &Reports) -> u32 {
    count(reports.values().filter(|info| info.healthy).count())
}

/// Returns the jobs of a plugin that run its controllers, and the jobs that run its node services.
fn jobs(root: &Root, id: &PluginId) -> (JobMap, JobMap) {
    let (mut controllers, mut nodes) = (JobMap::new(), JobMap::new());
    for job in root.jobs_by_plugin(id).filter(|job| !job.stop) {
        for group in &job.task_groups {
            let configs = group.tasks.iter().filter_map(|t| t.csi_plugin_config.as_ref());
            for config in configs.filter(|c| c.id == *id) {
                let expected = expected(root, job, group);
                if config.kind.has_controller() {
                    add(&mut controllers, job, expected);
                }
                if config.kind.has_node() {
                    add(&mut nodes, job, expected);
                }
            }
        }
    }
    (controllers, nodes)
}

fn set_jobs(row: &mut Plugin, (controllers, nodes): (JobMap, JobMap)) {
    row.controllers_expected = total(&controllers);
    row.nodes_expected = total(&nodes);
    row.controller_jobs = controllers;
    row.node_jobs = nodes;
}

fn all_reports(row: &Plugin) -> impl Iterator<Item = &Arc<CsiInfo>> {
    row.controllers.values().chain(row.nodes.values())
}

fn requires_controller(row: &Plugin) -> bool {
    all_reports(row).any(|info| info.requires_controller_plugin)
}

/// Sets the provider to that of the first healthy report, or else of the first report that names it.
fn set_provider(row: &mut Plugin) {
    let is_healthy = row.controllers_healthy + row.nodes_healthy > 0;
    let speaker =
        all_reports(row).find(|info| if is_healthy { info.healthy } else { !info.provider.is_empty() });
    let (provider, version) =
        speaker.map(|info| (info.provider.clone(), info.provider_version.clone())).unwrap_or_default();
    row.provider = provider;
    row.version = version;
}

/// Returns the row of a plugin derived from all records, without its indexes and times; `None` if no node reports it
/// and no job runs it.
pub(crate) fn derive(root: &Root, id: &PluginId) -> Option<Plugin> {
    let mut row = Plugin { id: id.clone(), ..Default::default() };
    for node in root.nodes_by_plugin(id) {
        let Part { controller, node: own, left_mounts } = part(root, id, &node.id);
        row.controllers.extend(controller.map(|info| (node.id.clone(), Arc::new(info))));
        row.nodes.extend(own.map(|info| (node.id.clone(), Arc::new(info))));
        if !left_mounts.is_empty() {
            row.left_mounts.insert(node.id.clone(), left_mounts);
        }
    }
    set_jobs(&mut row, jobs(root, id));
    row.controllers_healthy = healthy(&row.controllers);
    row.nodes_healthy = healthy(&row.nodes);
    row.controller_required = requires_controller(&row);
    set_provider(&mut row);
    if row.is_empty() { None } else { Some(row) }
}

/// The effects of replaced reports on a row.
#[derive(Debug, Default)]
struct Replaced {
    /// Whether more than the times of reports has changed.
    is_changed: bool,
    /// Whether an old report required a controller.
    required: bool,
}

impl Replaced {
    /// Replaces a node's report, and updates the number of healthy reports.
    fn put(&mut self, reports: &mut Reports, healthy: &mut u32, node: &NodeId, new: Option<CsiInfo>) {
        match (reports.get(node), &new) {
            (None, None) => return,
            (Some(old), Some(new)) if **old == *new => return,
            (Some(old), Some(new)) => self.is_changed |= !old.same(new),
            _ => self.is_changed = true,
        }
        let gains = u32::from(new.as_ref().is_some_and(|info| info.healthy));
        let old = match new {
            Some(info) => reports.insert(node.clone(), Arc::new(info)),
            None => reports.remove(node),
        };
        let loses = u32::from(old.as_ref().is_some_and(|info| info.healthy));
        *healthy = healthy.saturating_add(gains).saturating_sub(loses);
        self.required |= old.is_some_and(|info| info.requires_controller_plugin);
    }
}

/// Updates the parts of a row that a command changed. Returns whether more than times of reports changed. The result
/// is that of [`derive`], without reading the other nodes.
fn update(root: &Root, row: &mut Plugin, touched: &Touched) -> bool {
    let mut replaced = Replaced::default();
    let mut requires = row.controller_required;
    for node in &touched.nodes {
        let Part { controller, node: own, left_mounts } = part(root, &row.id, node);
        requires |= [&controller, &own].into_iter().flatten().any(|info| info.requires_controller_plugin);
        replaced.put(&mut row.controllers, &mut row.controllers_healthy, node, controller);
        replaced.put(&mut row.nodes, &mut row.nodes_healthy, node, own);
        if row.left_mounts.get(node).map_or(&[][..], Vec::as_slice) != left_mounts {
            replaced.is_changed = true;
            if left_mounts.is_empty() {
                row.left_mounts.remove(node);
            } else {
                row.left_mounts.insert(node.clone(), left_mounts);
            }
        }
    }
    if replaced.required {
        requires = requires_controller(row);
    }
    row.controller_required = requires;
    if replaced.is_changed {
        set_provider(row);
    }
    if touched.jobs {
        let jobs = jobs(root, &row.id);
        if (&row.controller_jobs, &row.node_jobs) != (&jobs.0, &jobs.1) {
            replaced.is_changed = true;
            set_jobs(row, jobs);
        }
    }
    replaced.is_changed
}

fn same_reports(a: &Reports, b: &Reports) -> bool {
    a.len() == b.len() && a.iter().zip(b.iter()).all(|((m, x), (n, y))| m == n && x.same(y))
}

/// Returns whether both rows are equal, apart from indexes and times of reports.
pub(crate) fn same(a: &Plugin, b: &Plugin) -> bool {
    let strip = |p: &Plugin| Plugin {
        controllers: Reports::new(),
        nodes: Reports::new(),
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
    for (id, mut touched) in std::mem::take(&mut tx.plugins) {
        let old = tx.root.plugins.get(&id);
        let is_known = old.is_some();
        // Jobs without instances create no row, but belong to the row of the first report.
        touched.jobs |= !is_known;
        let mut row = old.map(|row| Plugin::clone(row)).unwrap_or_else(|| Plugin {
            id: id.clone(),
            create_index: tx.index,
            create_time: tx.now,
            ..Default::default()
        });
        if !update(&tx.root, &mut row, &touched) {
            continue;
        }
        if !row.is_empty() {
            (row.modify_index, row.modify_time) = (tx.index, tx.now);
            tx.root.plugins.insert(id.clone(), Arc::new(row));
            tx.changed(Changed::Plugin(id));
        } else if is_known {
            tx.root.plugins.remove(&id);
            tx.changed(Changed::PluginRemoved(id));
        }
    }
}
