//! A cluster in memory, which implements the scheduler's view and applies its decisions.

use caravan_scheduler::{Params, Rules, View, schedule};
use caravan_types::alloc::{AllocStateChange, Allocation, ClientStatus, DesiredStatus};
use caravan_types::deployment::Deployment;
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::job::{EphemeralDisk, Job, JobType, VolumeRequest};
use caravan_types::node::Node;
use caravan_types::plan::Decision;
use caravan_types::plugin::Plugin;
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, Claim, ClaimPhase, Volume};
use caravan_types::{AllocId, EvalId, HostVolumeId, JobKey, NodeId, PluginId, UnixNanos, VolumeKey};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

#[derive(Clone, Debug, Default)]
pub struct World {
    pub index: u64,
    pub jobs: BTreeMap<JobKey, Arc<Job>>,
    pub nodes: BTreeMap<NodeId, Arc<Node>>,
    pub allocs: BTreeMap<AllocId, Arc<Allocation>>,
    pub volumes: BTreeMap<VolumeKey, Arc<Volume>>,
    pub claims: Vec<Arc<Claim>>,
    pub plugins: BTreeMap<PluginId, Arc<Plugin>>,
    pub evals: BTreeMap<EvalId, Arc<Evaluation>>,
    pub host_volumes: BTreeMap<HostVolumeId, Arc<HostVolume>>,
    pub host_claims: BTreeMap<String, Arc<HostVolumeClaim>>,
    pub rules: Rules,
}

impl View for World {
    fn index(&self) -> u64 {
        self.index
    }
    fn job(&self, key: &JobKey) -> Option<&Arc<Job>> {
        self.jobs.get(key)
    }
    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }
    fn node(&self, id: &NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(id)
    }
    fn allocs_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocs.values().filter(move |a| a.job_key() == *key)
    }
    fn allocs_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocs.values().filter(move |a| a.node_id == *id)
    }
    fn alloc(&self, id: &AllocId) -> Option<&Arc<Allocation>> {
        self.allocs.get(id)
    }
    fn volume(&self, key: &VolumeKey) -> Option<&Arc<Volume>> {
        self.volumes.get(key)
    }
    fn claims_of(&self, key: &VolumeKey) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.iter().filter(move |c| c.id.volume == *key)
    }
    fn claims_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.iter().filter(move |c| c.node_id == *id)
    }
    fn plugin(&self, id: &PluginId) -> Option<&Arc<Plugin>> {
        self.plugins.get(id)
    }
    fn host_volume(&self, id: &HostVolumeId) -> Option<&Arc<HostVolume>> {
        self.host_volumes.get(id)
    }
    fn host_claims_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<HostVolumeClaim>> {
        self.host_claims.values().filter(move |c| c.namespace == key.namespace && c.job_id == key.id)
    }
    fn evals_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Evaluation>> {
        self.evals.values().filter(move |e| e.job_key() == *key)
    }
    fn deployments_by_job(&self, _: &JobKey) -> impl Iterator<Item = &Arc<Deployment>> {
        // Tests of deployments use the real state.
        std::iter::empty()
    }
    fn rules(&self, _pool: &str) -> Rules {
        self.rules
    }
}

/// Returns a node with 4000 MHz, 4000 MB, the driver raw_exec and the address 10.0.0.1.
pub fn node(id: &str) -> Node {
    let mut node = caravan_sim::node(id);
    node.name = format!("host-{id}").into();
    node.node_class = "small".into();
    node.node_resources.memory.memory_mb = 4000;
    node.node_resources.disk.disk_mb = 10_000;
    node.node_resources.max_dynamic_port = 20_009;
    node.drivers.remove("exec");
    node
}

/// Returns a job of one group `g` with one task of 500 MHz and 256 MB.
pub fn job(id: &str, kind: JobType, count: u32) -> Job {
    let mut job = caravan_sim::job(id, kind, count);
    job.datacenters = vec!["dc1".into()];
    let group = &mut job.task_groups[0];
    group.tasks[0].resources.cpu = 500;
    group.tasks[0].resources.memory_mb = 256;
    group.ephemeral_disk = Some(EphemeralDisk { size_mb: 300, ..EphemeralDisk::default() });
    job
}

pub fn volume(id: &str, mode: AccessMode) -> Volume {
    Volume {
        namespace: "default".into(),
        id: id.into(),
        external_id: format!("ext-{id}"),
        plugin_id: "p".into(),
        requested_capabilities: vec![Capability {
            attachment_mode: AttachmentMode::FileSystem,
            access_mode: mode,
        }],
        ..Volume::default()
    }
}

/// Returns the job with a volume that its group uses under the alias `data`.
pub fn with_volume(mut job: Job, source: &str, mode: AccessMode) -> Job {
    let request = VolumeRequest {
        name: "data".into(),
        source: source.into(),
        access_mode: mode,
        attachment_mode: AttachmentMode::FileSystem,
        ..VolumeRequest::default()
    };
    job.task_groups[0].volumes.insert("data".into(), request);
    job
}

impl World {
    pub fn with_nodes(ids: &[&str]) -> Self {
        let mut world = Self::default();
        for id in ids {
            world.set_node(node(id));
        }
        world
    }

    pub fn set_node(&mut self, mut node: Node) {
        self.index += 1;
        node.computed_class = node.class();
        self.nodes.insert(node.id.clone(), Arc::new(node));
    }

    pub fn change_node(&mut self, id: &str, change: impl FnOnce(&mut Node)) {
        let mut node = Node::clone(&self.nodes[id]);
        change(&mut node);
        self.set_node(node);
    }

    pub fn set_volume(&mut self, volume: Volume) {
        self.index += 1;
        self.volumes.insert(volume.key(), Arc::new(volume));
    }

    /// Installs a healthy plugin `p` on all nodes, including its controller.
    pub fn install_plugin(&mut self, max_volumes: i64) {
        let mut plugin = Plugin { id: "p".into(), controller_required: true, ..Plugin::default() };
        let ids: Vec<NodeId> = self.nodes.keys().cloned().collect();
        for id in ids {
            let (info, controller) = caravan_sim::plugin_on(id.as_str(), "p", max_volumes);
            plugin.nodes.insert(id.clone(), info.clone().into());
            plugin.controllers.insert(id.clone(), controller.into());
            self.change_node(id.as_str(), |node| drop(node.csi_node_plugins.insert("p".into(), info)));
        }
        self.plugins.insert("p".into(), Arc::new(plugin));
    }

    /// Registers a job. A changed specification gets the next version.
    pub fn register(&mut self, mut job: Job) {
        self.index += 1;
        let old = self.jobs.get(&job.key());
        job.create_index = old.map_or(self.index, |j| j.create_index);
        job.version = old.map_or(0, |j| j.version + 1);
        job.job_modify_index = self.index;
        self.jobs.insert(job.key(), Arc::new(job));
    }

    pub fn eval(&mut self, job: &str, trigger: Trigger) -> Evaluation {
        self.index += 1;
        Evaluation {
            id: format!("eval-{}", self.index).into(),
            namespace: "default".into(),
            job_id: job.into(),
            priority: 50,
            triggered_by: trigger,
            ..Evaluation::default()
        }
    }

    /// Evaluates a job and applies the decision.
    pub fn run(&mut self, job: &str) -> Decision {
        self.run_seeded(job, 1)
    }

    pub fn run_seeded(&mut self, job: &str, seed: u64) -> Decision {
        let eval = self.eval(job, Trigger::JobRegister);
        self.decide(&eval, seed)
    }

    pub fn decide(&mut self, eval: &Evaluation, seed: u64) -> Decision {
        let decision = schedule(self, eval, &Params::new(NOW, seed));
        self.apply(&decision);
        decision
    }

    pub fn apply(&mut self, decision: &Decision) {
        self.index += 1;
        let plan = &decision.plan;
        for alloc in plan.placements.values().flatten() {
            let mut alloc = alloc.clone();
            if alloc.job.is_none() {
                alloc.job.clone_from(&plan.job);
            }
            if alloc.create_index == 0 {
                alloc.create_index = self.index;
            }
            if let Some(old) = self.allocs.get(&alloc.previous_allocation) {
                let mut old = Allocation::clone(old);
                old.next_allocation = alloc.id.clone();
                self.allocs.insert(old.id.clone(), Arc::new(old));
            }
            self.allocs.insert(alloc.id.clone(), Arc::new(alloc));
        }
        for stop in plan.stops.values().flatten() {
            self.change_alloc(&stop.alloc_id, |alloc| {
                alloc.desired_status =
                    if stop.preempted_by.is_empty() { DesiredStatus::Stop } else { DesiredStatus::Evict };
                alloc.preempted_by_allocation.clone_from(&stop.preempted_by);
                alloc.desired_description = stop.description.as_str().into();
                if let Some(status) = stop.client_status {
                    let value = status.as_str().to_owned();
                    alloc.alloc_states.push(AllocStateChange { field: 0, value, time: NOW.to_time() });
                    alloc.client_status = status;
                }
            });
        }
        self.claims.extend(plan.claims.iter().cloned().map(Arc::new));
        for (n, claim) in plan.host_claims.iter().enumerate() {
            let mut claim = claim.clone();
            if claim.id.is_empty() {
                claim.id = format!("claim-{}-{n}", self.index);
            }
            self.host_claims.insert(claim.id.clone(), Arc::new(claim));
        }
        for eval in decision.follow_ups.iter().chain([&decision.eval]) {
            self.evals.insert(eval.id.clone(), Arc::new(eval.clone()));
        }
    }

    pub fn change_alloc(&mut self, id: &AllocId, change: impl FnOnce(&mut Allocation)) {
        let mut alloc = Allocation::clone(&self.allocs[id]);
        change(&mut alloc);
        self.allocs.insert(id.clone(), Arc::new(alloc));
    }

    /// Returns the newest allocation of a name.
    pub fn alloc_named(&self, name: &str) -> Arc<Allocation> {
        let of_name = self.allocs.values().filter(|a| a.name == name);
        Arc::clone(of_name.max_by_key(|a| a.create_index).expect("there is one"))
    }

    pub fn client(&mut self, name: &str, status: ClientStatus) {
        let id = self.alloc_named(name).id.clone();
        self.change_alloc(&id, |alloc| alloc.client_status = status);
    }

    /// Ends all allocations that were stopped, and releases their claims.
    pub fn settle(&mut self) {
        let stopping: Vec<AllocId> =
            self.allocs.values().filter(|a| a.server_terminal()).map(|a| a.id.clone()).collect();
        for id in stopping {
            self.change_alloc(&id, |alloc| {
                if !alloc.client_terminal() {
                    alloc.client_status = ClientStatus::Complete;
                }
            });
        }
        let allocs = &self.allocs;
        for claim in &mut self.claims {
            if allocs.get(&claim.id.alloc).is_none_or(|a| a.client_terminal()) {
                *claim = Arc::new(Claim { phase: ClaimPhase::Gone, ..Claim::clone(claim) });
            }
        }
    }

    /// Returns names and nodes of the allocations that run or will run.
    pub fn running(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .allocs
            .values()
            .filter(|a| !a.terminal())
            .map(|a| format!("{} on {}", a.name, a.node_id))
            .collect();
        names.sort();
        names
    }

    pub fn blocked(&self) -> Vec<&Arc<Evaluation>> {
        self.evals.values().filter(|e| e.status == EvalStatus::Blocked).collect()
    }
}

/// Returns the names of a decision's placements.
pub fn placed(decision: &Decision) -> Vec<String> {
    let mut names: Vec<String> =
        decision.plan.placements.values().flatten().map(|a| format!("{} on {}", a.name, a.node_id)).collect();
    names.sort();
    names
}

/// Returns the names of a decision's stops, with the reasons.
pub fn stopped(world: &World, decision: &Decision) -> Vec<String> {
    let mut names: Vec<String> = decision
        .plan
        .stops
        .values()
        .flatten()
        .map(|s| format!("{}: {}", world.allocs[&s.alloc_id].name, s.description))
        .collect();
    names.sort();
    names
}
