//! The application of one command: the next root, and its changed rows.
//!
//! Every write passes here, so that row indexes, table indexes and secondary indexes are always updated.

mod storage;

use crate::changes::Changed;
use crate::claim;
use crate::index::{plugins_of_job, plugins_of_node};
use crate::plugins::Touched;
use crate::root::{Root, Table};
use crate::rows::AllocRows;
use caravan_types::alloc::Allocation;
use caravan_types::command::{ClaimStep, JobSource};
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::scaling;
use caravan_types::service::ServiceRegistration;
use caravan_types::variable::{Variable, VariableKey};
use caravan_types::volume::{Claim, ClaimId};
use caravan_types::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobKey, NodeId, PluginId, ServiceId, UnixNanos,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The origin of a change of an allocation: clients are notified only of changes by servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Servers,
    Client,
}

/// A command in progress.
pub(crate) struct Tx {
    pub(crate) root: Root,
    pub(crate) index: u64,
    pub(crate) now: UnixNanos,
    pub(crate) changes: BTreeSet<Changed>,
    /// The rows of the changed allocations.
    pub(crate) allocs: AllocRows,
    /// The jobs whose status may change.
    pub(crate) jobs: BTreeSet<JobKey>,
    /// The last job that [`Tx::counts_moved`] marked.
    moved: Option<JobKey>,
    /// The jobs whose evaluations this command collected.
    pub(crate) collected: BTreeSet<JobKey>,
    /// The jobs whose specification this command wrote.
    pub(crate) registered: BTreeSet<JobKey>,
    /// The plugins whose rows may change.
    pub(crate) plugins: BTreeMap<PluginId, Touched>,
}

impl Tx {
    pub(crate) fn new(root: &Root, index: u64, now: UnixNanos) -> Self {
        let mut root = root.clone();
        root.index = index;
        Self {
            root,
            index,
            now,
            changes: BTreeSet::new(),
            allocs: AllocRows::default(),
            jobs: BTreeSet::new(),
            moved: None,
            collected: BTreeSet::new(),
            registered: BTreeSet::new(),
            plugins: BTreeMap::new(),
        }
    }

    fn touch(&mut self, table: Table) {
        self.root.table_index[table as usize] = self.index;
    }

    pub(crate) fn changed(&mut self, changed: Changed) {
        self.touch(changed.table());
        self.changes.insert(changed);
    }

    /// Marks plugins whose jobs, or their expected instances, may have changed.
    fn touch_plugins<'p>(&mut self, ids: impl IntoIterator<Item = &'p PluginId>) {
        for id in ids {
            self.plugins.entry(id.clone()).or_default().jobs = true;
        }
    }

    /// Marks plugins about which a node may report something else.
    fn touch_reports<'p>(&mut self, node: &NodeId, ids: impl IntoIterator<Item = &'p PluginId>) {
        for id in ids {
            self.plugins.entry(id.clone()).or_default().nodes.insert(node.clone());
        }
    }

    /// Marks the plugins that an allocation runs, because their expected instances and the reports about an ended
    /// instance may change.
    fn touch_plugins_of_alloc(&mut self, alloc: &Allocation) {
        if let Some(job) = &alloc.job {
            let ids = plugins_of_job(job);
            self.touch_plugins(ids.iter().copied());
            self.touch_reports(&alloc.node_id, ids);
        }
    }

    /// Marks the plugins that jobs run, because their expected number of instances may depend on the eligible nodes.
    fn touch_job_plugins(&mut self) {
        let run: Vec<PluginId> =
            self.root.secondary.jobs_by_plugin.iter().map(|(plugin, _)| plugin.clone()).collect();
        self.touch_plugins(&run);
    }

    /// Writes a node, and sets its indexes.
    pub(crate) fn put_node(&mut self, mut node: Node) {
        node.modify_index = self.index;
        let old = self.root.nodes.get(&node.id).cloned();
        node.create_index = old.as_ref().map_or(self.index, |o| o.create_index);
        self.touch_reports(&node.id, plugins_of_node(&node));
        let reach = |n: &Node| (n.is_schedulable(), n.datacenter.clone(), n.node_pool.clone());
        if old.as_ref().is_none_or(|old| reach(old) != reach(&node)) {
            self.touch_job_plugins();
        }
        if let Some(old) = &old {
            self.touch_reports(&old.id, plugins_of_node(old));
            self.root.secondary.node(old, false);
        }
        self.root.secondary.node(&node, true);
        let id = node.id.clone();
        let returned = node.status.in_contact() && old.as_ref().is_none_or(|old| !old.status.in_contact());
        self.root.nodes.insert(id.clone(), Arc::new(node));
        self.changed(Changed::Node(id.clone()));
        self.derive_host_volumes(&id);
        if returned {
            self.void_waits(&id);
        }
    }

    pub(crate) fn remove_node(&mut self, id: &NodeId) {
        if let Some(old) = self.root.nodes.remove(id) {
            self.touch_reports(id, plugins_of_node(&old));
            self.touch_job_plugins();
            self.root.secondary.node(&old, false);
            self.changed(Changed::NodeRemoved(id.clone()));
            if old.gc_volumes_on_node_gc {
                let with_it: Vec<HostVolumeId> =
                    self.root.host_volumes_by_node(id).map(|row| row.id.clone()).collect();
                with_it.iter().for_each(|volume| self.remove_host_volume(volume));
            }
            self.derive_host_volumes(id);
            self.remove_services_of_node(id);
        }
    }

    /// Writes the newest version of a job. The caller sets all of its indexes except for the modify index.
    pub(crate) fn put_job(&mut self, mut job: Job) {
        job.modify_index = self.index;
        let key = job.key();
        self.touch_plugins(plugins_of_job(&job));
        if let Some(old) = self.root.jobs.get(&key).cloned() {
            self.touch_plugins(plugins_of_job(&old));
            self.root.secondary.job(&old, false);
        }
        self.root.secondary.job(&job, true);
        if !job.parent_id.is_empty() {
            let parent = JobKey { namespace: key.namespace.clone(), id: job.parent_id.clone() };
            self.changed(Changed::JobSummary(parent));
        }
        let job = Arc::new(job);
        self.root.versions.insert((key.clone(), job.version), job.clone());
        self.touch(Table::JobVersions);
        self.root.jobs.insert(key.clone(), job);
        self.trim_versions(&key);
        self.changed(Changed::Job(key.clone()));
        self.changed(Changed::JobSummary(key.clone()));
        self.track_launches(&key);
        self.jobs.insert(key);
    }

    /// Keeps the time of the last launch of a periodic job. For a job that becomes periodic, the time is the present.
    fn track_launches(&mut self, key: &JobKey) {
        let active = self.root.jobs.get(key).is_some_and(|job| job.is_periodic_active());
        match (active, self.root.periodic_launches.contains_key(key)) {
            (true, false) => self.put_launch(key, self.now),
            (false, true) => {
                self.root.periodic_launches.remove(key);
                self.touch(Table::PeriodicLaunches);
            }
            _ => {}
        }
    }

    /// Records the time at which a periodic job created its last child.
    pub(crate) fn put_launch(&mut self, key: &JobKey, at: UnixNanos) {
        self.root.periodic_launches.insert(key.clone(), at);
        self.touch(Table::PeriodicLaunches);
    }

    /// Removes the oldest versions beyond the limit. The newest version and tagged versions are always kept.
    pub(crate) fn trim_versions(&mut self, key: &JobKey) {
        let surplus: Vec<u64> = self
            .root
            .job_versions(key)
            .filter(|job| job.version_tag.is_none())
            .skip(Root::KEPT_VERSIONS)
            .map(|job| job.version)
            .collect();
        for version in surplus {
            self.remove_version(key, version);
        }
    }

    /// Writes a kept version whose specification is unchanged.
    pub(crate) fn put_version(&mut self, mut job: Job) {
        job.modify_index = self.index;
        let (key, job) = (job.key(), Arc::new(job));
        if self.root.jobs.get(&key).is_some_and(|newest| newest.version == job.version) {
            self.root.jobs.insert(key.clone(), job.clone());
        }
        self.root.versions.insert((key.clone(), job.version), job);
        self.touch(Table::JobVersions);
        self.changed(Changed::Job(key));
    }

    fn remove_version(&mut self, key: &JobKey, version: u64) {
        let at = (key.clone(), version);
        if self.root.versions.remove(&at).is_some() {
            self.touch(Table::JobVersions);
        }
        if self.root.submissions.remove(&at).is_some() {
            self.touch(Table::Submissions);
        }
    }

    pub(crate) fn put_submission(&mut self, key: JobKey, version: u64, source: JobSource) {
        self.root.submissions.insert((key, version), Arc::new(source));
        self.touch(Table::Submissions);
    }

    /// Removes a job with its versions, submissions and deployments.
    pub(crate) fn remove_job(&mut self, key: &JobKey) {
        let Some(old) = self.root.jobs.remove(key) else { return };
        self.touch_plugins(plugins_of_job(&old));
        self.root.secondary.job(&old, false);
        let versions: Vec<u64> = self.root.job_versions(key).map(|job| job.version).collect();
        for version in versions {
            self.remove_version(key, version);
        }
        if scaling::policies(&old).next().is_some() {
            self.changed(Changed::ScalingPolicies(key.clone()));
        }
        if self.root.scaling_events.remove(key).is_some() {
            self.changed(Changed::ScalingEvents(key.clone()));
        }
        let deployments: Vec<DeploymentId> =
            self.root.deployments_by_job(key).map(|row| row.id.clone()).collect();
        deployments.iter().for_each(|id| self.remove_deployment(id));
        if !old.parent_id.is_empty() {
            let parent = JobKey { namespace: key.namespace.clone(), id: old.parent_id.clone() };
            self.changed(Changed::JobSummary(parent));
        }
        let held: Vec<String> = self.root.host_claims_by_job(key).map(|claim| claim.id.clone()).collect();
        for claim in held {
            self.remove_host_claim(&claim);
        }
        self.track_launches(key);
        self.changed(Changed::JobSummary(key.clone()));
        self.changed(Changed::JobRemoved(key.clone()));
    }

    pub(crate) fn put_eval(&mut self, mut eval: Evaluation) {
        eval.modify_index = self.index;
        eval.modify_time = self.now;
        let old = self.root.evals.get(&eval.id).cloned();
        match &old {
            Some(old) => {
                eval.create_index = old.create_index;
                eval.create_time = old.create_time;
            }
            None => {
                eval.create_index = self.index;
                if eval.create_time.is_zero() {
                    eval.create_time = self.now;
                }
            }
        }
        let key = eval.job_key();
        self.counts_moved(&key);
        match &old {
            Some(old) => self.root.secondary.eval_changes(old, &eval),
            None => self.root.secondary.eval(&eval, true),
        }
        let id = eval.id.clone();
        self.root.evals.insert(id.clone(), Arc::new(eval));
        self.changed(Changed::Eval(id));
    }

    pub(crate) fn remove_eval(&mut self, id: &EvalId) {
        if let Some(old) = self.root.evals.remove(id) {
            let key = old.job_key();
            self.root.secondary.eval(&old, false);
            self.counts_moved(&key);
            self.collected.insert(key);
            self.changed(Changed::EvalRemoved(id.clone()));
        }
    }

    /// Writes an allocation. If its client reports that all of its tasks have ended, the release of its claims begins
    /// in the same step. No later command could detect that the claims are orphaned.
    pub(crate) fn put_alloc(&mut self, mut alloc: Allocation, by: By) {
        alloc.modify_index = self.index;
        alloc.modify_time = self.now;
        if by == By::Servers {
            alloc.alloc_modify_index = self.index;
        }
        let old = self.root.allocs.get(&alloc.id).cloned();
        match &old {
            Some(old) => {
                alloc.create_index = old.create_index;
                alloc.create_time = old.create_time;
            }
            None => {
                alloc.create_index = self.index;
                alloc.create_time = self.now;
            }
        }
        let key = alloc.job_key();
        let moved = old.as_ref().is_none_or(|old| {
            old.client_status != alloc.client_status || old.desired_status != alloc.desired_status
        });
        if moved {
            self.touch_plugins_of_alloc(&alloc);
            self.counts_moved(&key);
        }
        match &old {
            Some(old) => self.root.secondary.alloc_changes(old, &alloc),
            None => self.root.secondary.alloc(&alloc, true),
        }
        self.tally_deployment(old.as_deref(), &alloc);
        let (id, over) = (alloc.id.clone(), alloc.client_terminal());
        let row = Arc::new(alloc);
        self.root.allocs.insert(id.clone(), row.clone());
        self.allocs.record(&id, old, Some(row));
        self.changed(Changed::Alloc(id.clone()));
        if over {
            self.release_claims(&id);
            self.remove_services_of_alloc(&id);
        }
    }

    /// Marks a job whose counts changed, because its summary, its status and its plugins' rows may change.
    fn counts_moved(&mut self, key: &JobKey) {
        // A plan places hundreds of allocations of one job. Writing the job meanwhile marks the plugins of both
        // versions.
        if self.moved.as_ref() == Some(key) {
            return;
        }
        self.moved = Some(key.clone());
        if let Some(job) = self.root.jobs.get(key).cloned() {
            self.touch_plugins(plugins_of_job(&job));
            self.changed(Changed::JobSummary(key.clone()));
            self.jobs.insert(key.clone());
        }
    }

    pub(crate) fn remove_alloc(&mut self, id: &AllocId) {
        let Some(old) = self.root.allocs.remove(id) else { return };
        self.root.secondary.alloc(&old, false);
        self.touch_plugins_of_alloc(&old);
        self.counts_moved(&old.job_key());
        self.allocs.record(id, Some(old), None);
        self.changed(Changed::AllocRemoved(id.clone()));
        self.remove_services_of_alloc(id);
        self.release_claims(id);
        let gone: Vec<ClaimId> =
            self.root.claims_by_alloc(id).filter(|c| !c.phase.holds()).map(|c| c.id.clone()).collect();
        for claim in gone {
            self.remove_claim(&claim);
        }
    }

    fn release_claims(&mut self, alloc: &AllocId) {
        let live: Vec<Arc<Claim>> =
            self.root.claims_by_alloc(alloc).filter(|c| c.phase.is_live()).cloned().collect();
        for claim in live {
            let released = claim::step(&claim, &ClaimStep::Release, self.now);
            debug_assert!(released.is_ok(), "a live claim can always be released: {released:?}");
            if let Ok(released) = released {
                self.put_claim(released);
            }
        }
    }

    pub(crate) fn remove_deployment(&mut self, id: &DeploymentId) {
        if let Some(row) = self.root.deployments.remove(id) {
            self.root.secondary.deployment(&row, false);
            self.jobs.insert(row.job_key());
            self.changed(Changed::DeploymentRemoved(id.clone()));
        }
    }

    pub(crate) fn put_deployment(&mut self, mut row: Deployment) {
        row.modify_index = self.index;
        row.modify_time = self.now;
        let old = self.root.deployments.get(&row.id).cloned();
        match &old {
            Some(old) => {
                row.create_index = old.create_index;
                row.create_time = old.create_time;
            }
            None => {
                row.create_index = self.index;
                row.create_time = self.now;
            }
        }
        match &old {
            Some(old) => self.root.secondary.deployment_changes(old, &row),
            None => self.root.secondary.deployment(&row, true),
        }
        self.jobs.insert(row.job_key());
        let id = row.id.clone();
        self.root.deployments.insert(id.clone(), Arc::new(row));
        self.changed(Changed::Deployment(id));
    }

    pub(crate) fn put_service(&mut self, mut row: ServiceRegistration) {
        row.modify_index = self.index;
        row.create_index = self.index;
        if let Some(old) = self.root.services.get(&row.id).cloned() {
            row.create_index = old.create_index;
            self.root.secondary.service(&old, false);
        }
        self.root.secondary.service(&row, true);
        let id = row.id.clone();
        self.root.services.insert(id.clone(), Arc::new(row));
        self.changed(Changed::Service(id));
    }

    pub(crate) fn remove_service(&mut self, id: &ServiceId) {
        if let Some(old) = self.root.services.remove(id) {
            self.root.secondary.service(&old, false);
            self.changed(Changed::ServiceRemoved(id.clone()));
        }
    }

    pub(crate) fn put_variable(&mut self, mut row: Variable) {
        row.modify_index = self.index;
        row.modify_time = self.now;
        (row.create_index, row.create_time) = match self.root.variables.get(&row.key) {
            Some(old) => (old.create_index, old.create_time),
            None => (self.index, self.now),
        };
        let key = row.key.clone();
        self.root.secondary.variable(&row, true);
        self.root.variables.insert(key.clone(), Arc::new(row));
        self.changed(Changed::Variable(key));
    }

    pub(crate) fn remove_variable(&mut self, key: &VariableKey) {
        if let Some(old) = self.root.variables.remove(key) {
            self.root.secondary.variable(&old, false);
            self.changed(Changed::VariableRemoved(key.clone()));
        }
    }
}
