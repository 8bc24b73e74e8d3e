//! The cluster as it would be with the plan in hand.

use crate::ports::{self, Used};
use crate::rng::Rng;
use crate::view::View;
use caravan_lang::Matcher;
use caravan_types::alloc::Allocation;
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::job::{Job, TaskGroup};
use caravan_types::node::Node;
use caravan_types::volume::Claim;
use caravan_types::{AllocId, JobKey, NodeId, PluginId, VolumeKey};
use std::collections::{BTreeMap, BTreeSet};

/// What is used of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub cpu: i64,
    pub memory: i64,
    pub disk: i64,
    pub ports: Used,
    pub cores: BTreeSet<u16>,
    /// Allocations of the job in hand that are wanted here, by group.
    pub own: BTreeMap<String, u32>,
    /// Volumes that the node holds, by plugin.
    pub volumes: BTreeMap<PluginId, BTreeSet<VolumeKey>>,
}

impl Usage {
    pub fn add(&mut self, alloc: &Allocation) {
        if let Some(given) = &alloc.allocated_resources {
            for task in given.tasks.values() {
                self.cpu = self.cpu.saturating_add(task.cpu.cpu_shares);
                self.memory = self.memory.saturating_add(task.memory.memory_mb);
                self.cores.extend(&task.cpu.reserved_cores);
            }
            self.disk = self.disk.saturating_add(given.shared.disk_mb);
        }
        self.ports.extend(ports::of_alloc(alloc));
    }
}

/// What a node has to give: its resources without those that it keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub cpu: i64,
    pub memory: i64,
    pub disk: i64,
}

impl Capacity {
    pub fn of(node: &Node) -> Self {
        let (has, keeps) = (&node.node_resources, &node.reserved_resources);
        Self {
            cpu: has.cpu.cpu_shares.saturating_sub(keeps.cpu.cpu_shares),
            memory: has.memory.memory_mb.saturating_sub(keeps.memory.memory_mb),
            disk: has.disk.disk_mb.saturating_sub(keeps.disk.disk_mb),
        }
    }
}

/// What a group asks for, tasks added up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub cpu: i64,
    pub memory: i64,
    pub disk: i64,
    pub cores: usize,
}

impl Ask {
    pub fn of(group: &TaskGroup) -> Self {
        let sum = |f: fn(&caravan_types::job::Resources) -> i64| {
            group.tasks.iter().fold(0_i64, |total, task| total.saturating_add(f(&task.resources)))
        };
        Self {
            // A task with whole cores gets their share instead.
            cpu: sum(|r| if r.cores > 0 { 0 } else { r.cpu }),
            memory: sum(|r| r.memory_mb),
            disk: group.disk_mb(),
            cores: usize::try_from(sum(|r| r.cores)).unwrap_or(0),
        }
    }
}

/// Everything that placing looks at and changes.
pub(crate) struct Context<'a, V> {
    pub view: &'a V,
    pub job: &'a Job,
    pub rng: Rng,
    pub matcher: Matcher,
    key: JobKey,
    usage: BTreeMap<NodeId, Usage>,
    stopped: BTreeSet<AllocId>,
    placed: BTreeMap<NodeId, Vec<Allocation>>,
    claims: Vec<Claim>,
    host_claims: Vec<HostVolumeClaim>,
}

impl<'a, V: View> Context<'a, V> {
    pub fn new(view: &'a V, job: &'a Job, rng: Rng) -> Self {
        Self {
            view,
            job,
            rng,
            matcher: Matcher::new(),
            key: job.key(),
            usage: BTreeMap::new(),
            stopped: BTreeSet::new(),
            placed: BTreeMap::new(),
            claims: Vec::new(),
            host_claims: Vec::new(),
        }
    }

    /// Counts an allocation as stopped by the plan.
    pub fn stop(&mut self, alloc: &Allocation) {
        self.stopped.insert(alloc.id.clone());
        self.usage.remove(&alloc.node_id);
    }

    /// Takes a stop back.
    pub fn unstop(&mut self, alloc: &Allocation) {
        self.stopped.remove(&alloc.id);
        self.usage.remove(&alloc.node_id);
    }

    /// Whether the plan stops it.
    pub fn is_stopped(&self, id: &AllocId) -> bool {
        self.stopped.contains(id)
    }

    /// Whether the plan makes it.
    pub fn is_planned(&self, id: &AllocId) -> bool {
        self.placed.values().flatten().any(|alloc| alloc.id == *id)
    }

    /// Adds a placement with its claims and its holds on host volumes.
    pub fn place(&mut self, alloc: Allocation, claims: Vec<Claim>, host_claims: Vec<HostVolumeClaim>) {
        if let Some(usage) = self.usage.get_mut(&alloc.node_id) {
            usage.add(&alloc);
            *usage.own.entry(alloc.task_group.clone()).or_default() += 1;
            for claim in &claims {
                usage.volumes.entry(claim.plugin_id.clone()).or_default().insert(claim.id.volume.clone());
            }
        }
        self.placed.entry(alloc.node_id.clone()).or_default().push(alloc);
        self.claims.extend(claims);
        self.host_claims.extend(host_claims);
    }

    /// The plan's placements, claims, and holds on host volumes.
    pub fn into_placements(self) -> (BTreeMap<NodeId, Vec<Allocation>>, Vec<Claim>, Vec<HostVolumeClaim>) {
        (self.placed, self.claims, self.host_claims)
    }

    /// The plan's holds on host volumes.
    pub fn host_claims(&self) -> &[HostVolumeClaim] {
        &self.host_claims
    }

    /// The allocations on a node of which something may run, those of this plan included. Those that the
    /// plan stops count as well, unless `without_stopped`.
    pub fn allocs_on(&self, node: &NodeId, without_stopped: bool) -> impl Iterator<Item = &Allocation> {
        let existing = self
            .view
            .allocs_by_node(node)
            .map(AsRef::as_ref)
            .filter(|a| !a.client_terminal())
            .filter(move |a| !without_stopped || !self.stopped.contains(&a.id));
        existing.chain(self.placed.get(node).into_iter().flatten())
    }

    /// The claims on a volume that hold, those of this plan included. Claims of allocations that the
    /// plan stops hold as well, unless `without_stopped`.
    pub fn claims_of(&self, key: &VolumeKey, without_stopped: bool) -> Vec<&Claim> {
        let existing = self
            .view
            .claims_of(key)
            .map(AsRef::as_ref)
            .filter(|claim| !(without_stopped && self.is_stopped(&claim.id.alloc)));
        let planned = self.claims.iter().filter(|claim| claim.id.volume == *key);
        existing.chain(planned).filter(|claim| claim.phase.holds()).collect()
    }

    /// What is used of a node.
    ///
    /// An allocation uses its resources until its client says that it is over, also when the servers
    /// have told it to stop; only what this very plan stops is counted as free, so that an update does
    /// not need twice the room.
    pub fn usage(&mut self, node: &Node) -> &Usage {
        if !self.usage.contains_key(&node.id) {
            let fresh = self.compute_usage(node);
            self.usage.insert(node.id.clone(), fresh);
        }
        &self.usage[&node.id]
    }

    fn compute_usage(&self, node: &Node) -> Usage {
        let mut usage = Usage { ports: ports::kept(node), ..Usage::default() };
        usage.cores.extend(&node.reserved_resources.cpu.reserved_cpu_cores);
        let existing = self
            .view
            .allocs_by_node(&node.id)
            .map(AsRef::as_ref)
            .filter(|a| !a.client_terminal() && !self.stopped.contains(&a.id));
        let planned = self.placed.get(&node.id).into_iter().flatten();
        for alloc in existing.chain(planned) {
            usage.add(alloc);
            if alloc.job_id == self.key.id
                && alloc.namespace == self.key.namespace
                && !alloc.server_terminal()
            {
                *usage.own.entry(alloc.task_group.clone()).or_default() += 1;
            }
        }
        let claims = self.view.claims_by_node(&node.id).map(AsRef::as_ref);
        let planned = self.claims.iter().filter(|c| c.node_id == node.id);
        for claim in claims.chain(planned).filter(|c| c.phase.holds()) {
            usage.volumes.entry(claim.plugin_id.clone()).or_default().insert(claim.id.volume.clone());
        }
        usage
    }

    /// The job's wanted allocations with the plan in hand: node and group of each.
    pub fn own_allocs(&self) -> impl Iterator<Item = (&NodeId, &str)> {
        let existing = self
            .view
            .allocs_by_job(&self.key)
            .map(AsRef::as_ref)
            .filter(|a| !a.terminal() && !self.stopped.contains(&a.id));
        let planned = self.placed.values().flatten();
        existing.chain(planned).map(|a| (&a.node_id, a.task_group.as_str()))
    }
}
