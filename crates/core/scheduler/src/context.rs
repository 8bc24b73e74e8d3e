//! The state of the cluster with the current plan applied.

use crate::device::{self, Taken};
use crate::field::Field;
use crate::ports::{self, TakenPorts};
use crate::resources::Amount;
use crate::rng::Rng;
use crate::rules::Rules;
use crate::view::View;
use caravan_lang::Matcher;
use caravan_types::alloc::{Allocation, Used};
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::small::Text;
use caravan_types::volume::{Claim, Volume};
use caravan_types::{AllocId, JobKey, NodeId, PluginId, VolumeKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The number of desired allocations of each group of the current job on a node, by position of the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own(Vec<(usize, u32)>);

impl Own {
    pub fn count(&self, group: usize) -> u32 {
        self.0.iter().find(|(at, _)| *at == group).map_or(0, |(_, count)| *count)
    }

    pub fn all(&self) -> u32 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    fn add(&mut self, group: usize) {
        match self.0.iter_mut().find(|(at, _)| *at == group) {
            Some((_, count)) => *count += 1,
            None => self.0.push((group, 1)),
        }
    }
}

/// The used resources of a node: the part that every placement reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub amount: Amount,
    pub allocs: u32,
    pub own: Own,
}

/// The used resources of a node: the part that only some groups request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detail {
    pub ports: TakenPorts,
    /// The number of allocations that are connected with the bridge of the node.
    pub bridged: u32,
    pub cores: BTreeSet<u16>,
    pub devices: Taken,
    /// The volumes that the node holds, by plugin.
    pub volumes: BTreeMap<PluginId, BTreeSet<VolumeKey>>,
}

impl Detail {
    pub fn add(&mut self, alloc: &Allocation) {
        for (address, port) in ports::of_alloc(alloc) {
            self.ports.insert(address, port);
        }
        self.bridged += u32::from(ports::uses_bridge(alloc));
        let tasks = alloc.allocated_resources.iter().flat_map(|supplied| supplied.tasks.values());
        self.cores.extend(tasks.flat_map(|task| &task.cpu.reserved_cores));
        self.devices.extend(device::of_alloc(alloc));
    }

    fn hold(&mut self, claim: &Claim) {
        self.volumes.entry(claim.plugin_id.clone()).or_default().insert(claim.id.volume.clone());
    }
}

/// A change of a node's used resources, for consumers that cache figures about nodes.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub node: NodeId,
    /// The position of the node, if the job may be placed there.
    pub at: Option<usize>,
    /// The position of the group that gained or lost one allocation.
    pub group: Option<usize>,
    pub more: bool,
}

/// The state that placing reads and changes.
pub(crate) struct Context<'a, V> {
    pub view: &'a V,
    pub job: &'a Job,
    pub rng: Rng,
    pub matcher: Matcher,
    pub rules: Rules,
    /// The nodes on which the job may be placed, by id.
    pub nodes: &'a [Arc<Node>],
    /// The same nodes with their computed classes.
    pub field: &'a Field,
    /// All changes since the beginning, in order.
    pub log: Vec<Touch>,
    key: JobKey,
    /// The names of the groups of the newest version, by position.
    groups: Vec<String>,
    usage: Vec<Option<Usage>>,
    detail: Vec<Option<Box<Detail>>>,
    stopped: BTreeSet<AllocId>,
    /// The resources that the plan frees on nodes: the resources of stopped allocations whose tasks may still run.
    freed: HashMap<NodeId, Vec<(AllocId, Amount)>>,
    /// The job's desired allocations before the plan, by node, with the positions of their groups.
    own: HashMap<NodeId, Vec<(AllocId, usize)>>,
    /// The number of evicted allocations of each group of other jobs.
    evicted: BTreeMap<(JobKey, Text), u32>,
    placed: BTreeMap<NodeId, Vec<Allocation>>,
    claims: Vec<Claim>,
    host_claims: Vec<HostVolumeClaim>,
}

impl<'a, V: View> Context<'a, V> {
    /// Creates a context with an empty plan.
    pub fn new(view: &'a V, job: &'a Job, field: &'a Field, rng: Rng) -> Self {
        let nodes = &field.nodes;
        let groups: Vec<String> = job.task_groups.iter().map(|group| group.name.clone()).collect();
        let mut own: HashMap<NodeId, Vec<(AllocId, usize)>> = HashMap::new();
        for alloc in view.allocs_by_job(&job.key()).filter(|alloc| !alloc.terminal()) {
            if let Some(group) = groups.iter().position(|name| *name == alloc.task_group) {
                own.entry(alloc.node_id.clone()).or_default().push((alloc.id.clone(), group));
            }
        }
        let pool = if job.node_pool.is_empty() { "default" } else { &job.node_pool };
        Self {
            view,
            job,
            rng,
            matcher: Matcher::new(),
            rules: view.rules(pool),
            nodes,
            field,
            log: Vec::new(),
            key: job.key(),
            groups,
            usage: vec![None; nodes.len()],
            detail: vec![None; nodes.len()],
            stopped: BTreeSet::new(),
            freed: HashMap::new(),
            own,
            evicted: BTreeMap::new(),
            placed: BTreeMap::new(),
            claims: Vec::new(),
            host_claims: Vec::new(),
        }
    }

    /// Returns the position of a node, if the job may be placed there.
    pub fn at(&self, id: &NodeId) -> Option<usize> {
        self.nodes.binary_search_by(|node| node.id.cmp(id)).ok()
    }

    /// Returns the position of the allocation's group, if the allocation belongs to the current job and is desired.
    fn own_group(&self, alloc: &Allocation) -> Option<usize> {
        let own =
            alloc.job_id == self.key.id && alloc.namespace == self.key.namespace && !alloc.server_terminal();
        if !own {
            return None;
        }
        self.groups.iter().position(|name| *name == alloc.task_group)
    }

    fn changed(&mut self, alloc: &Allocation, more: bool) {
        let at = self.at(&alloc.node_id);
        if let Some(at) = at {
            self.usage[at] = None;
            self.detail[at] = None;
        }
        let group = self.own_group(alloc).filter(|_| !alloc.client_terminal());
        self.log.push(Touch { node: alloc.node_id.clone(), at, group, more });
    }

    /// Counts an allocation as stopped by the plan.
    pub fn stop(&mut self, alloc: &Allocation) {
        if self.stopped.insert(alloc.id.clone()) {
            if !alloc.client_terminal() {
                let freed = self.freed.entry(alloc.node_id.clone()).or_default();
                freed.push((alloc.id.clone(), Amount::of_alloc(alloc)));
            }
            self.changed(alloc, false);
        }
    }

    /// Reverts [`Context::stop`].
    pub fn unstop(&mut self, alloc: &Allocation) {
        if self.stopped.remove(&alloc.id) {
            if let Some(freed) = self.freed.get_mut(&alloc.node_id) {
                freed.retain(|(id, _)| *id != alloc.id);
            }
            self.changed(alloc, true);
        }
    }

    /// Counts an allocation of another job, which is stopped already, as evicted by this plan.
    pub fn evict(&mut self, alloc: &Allocation) {
        *self.evicted.entry((alloc.job_key(), alloc.task_group.clone())).or_default() += 1;
    }

    /// Returns whether this plan already evicts `migrate.max_parallel` allocations of the allocation's group.
    pub fn is_pressed(&self, alloc: &Allocation) -> bool {
        let Some(evicted) = self.evicted.get(&(alloc.job_key(), alloc.task_group.clone())) else {
            return false;
        };
        let limit = alloc.group().and_then(|group| group.migrate.as_ref()).map_or(1, |m| m.max_parallel);
        i64::from(*evicted) >= i64::from(limit)
    }

    /// Returns whether the plan stops the allocation.
    pub fn is_stopped(&self, id: &AllocId) -> bool {
        self.stopped.contains(id)
    }

    /// Returns whether the plan places the allocation.
    pub fn is_planned(&self, id: &AllocId) -> bool {
        self.placed.values().flatten().any(|alloc| alloc.id == *id)
    }

    /// Adds a placement with its claims on CSI volumes and host volumes.
    pub fn place(&mut self, alloc: Allocation, claims: Vec<Claim>, host_claims: Vec<HostVolumeClaim>) {
        let (at, group) = (self.at(&alloc.node_id), self.own_group(&alloc));
        if let Some(at) = at {
            if let Some(usage) = &mut self.usage[at] {
                usage.amount = usage.amount.plus(Amount::of_alloc(&alloc));
                usage.allocs += 1;
                if let Some(group) = group {
                    usage.own.add(group);
                }
            }
            if let Some(detail) = &mut self.detail[at] {
                detail.add(&alloc);
                claims.iter().for_each(|claim| detail.hold(claim));
            }
        }
        self.log.push(Touch { node: alloc.node_id.clone(), at, group, more: true });
        // Most nodes get one allocation of a job, and an allocation is large.
        self.placed.entry(alloc.node_id.clone()).or_insert_with(|| Vec::with_capacity(1)).push(alloc);
        self.claims.extend(claims);
        self.host_claims.extend(host_claims);
    }

    /// Returns the plan's placements, claims, and claims on host volumes.
    pub fn into_placements(self) -> (BTreeMap<NodeId, Vec<Allocation>>, Vec<Claim>, Vec<HostVolumeClaim>) {
        (self.placed, self.claims, self.host_claims)
    }

    /// Returns the plan's claims on host volumes.
    pub fn host_claims(&self) -> &[HostVolumeClaim] {
        &self.host_claims
    }

    /// Returns the allocations on a node whose tasks may run, including those of this plan. Allocations that the plan
    /// stops count as well, unless `without_stopped`.
    pub fn allocs_on(&self, node: &NodeId, without_stopped: bool) -> impl Iterator<Item = &Allocation> {
        let existing = self
            .view
            .allocs_by_node(node)
            .map(AsRef::as_ref)
            .filter(|a| !a.client_terminal())
            .filter(move |a| !without_stopped || !self.stopped.contains(&a.id));
        existing.chain(self.placed.get(node).into_iter().flatten())
    }

    /// Returns the active claims on a volume's storage, including those of this plan. Claims of allocations that the
    /// plan stops count as well, unless `without_stopped`.
    pub fn claims_of(&self, volume: &Volume, without_stopped: bool) -> Vec<&Claim> {
        let key = volume.key();
        let existing = self
            .view
            .claims_of(&key)
            .map(AsRef::as_ref)
            .filter(|claim| !(without_stopped && self.is_stopped(&claim.id.alloc)));
        let planned = self.claims.iter().filter(|claim| claim.is_beside(volume));
        existing.chain(planned).filter(|claim| claim.phase.holds()).collect()
    }

    /// Returns the used resources of a node.
    ///
    /// An allocation uses its resources until its client reports that it has ended, even if the servers already
    /// stopped it. Only allocations that this plan stops count as free, so that an update does not need twice the
    /// room.
    pub fn usage(&mut self, at: usize) -> &Usage {
        if self.usage[at].is_none() {
            self.usage[at] = Some(self.compute_usage(&self.nodes[at].id));
        }
        self.usage[at].get_or_insert_default()
    }

    /// Reads the used resources of all nodes in one pass, if the view keeps sums: one lookup for each node costs
    /// more.
    pub fn read_usage(&mut self) {
        let Some(used) = self.view.used_of_nodes() else { return };
        let mut used = used.peekable();
        for at in 0..self.nodes.len() {
            let id = &self.nodes[at].id;
            while used.next_if(|(known, _)| *known < id).is_some() {}
            let here = used.next_if(|(known, _)| *known == id).map(|(_, used)| used).unwrap_or_default();
            if self.usage[at].is_none() {
                let usage = self.usage_with(Some(here), id);
                self.usage[at] = Some(usage);
            }
        }
    }

    fn compute_usage(&self, node: &NodeId) -> Usage {
        self.usage_with(self.view.used_of_node(node), node)
    }

    fn usage_with(&self, used: Option<Used>, node: &NodeId) -> Usage {
        let mut usage = match used {
            Some(used) => self.usage_of(used, node),
            None => {
                let mut usage = Usage::default();
                for alloc in self.allocs_on(node, true) {
                    usage.amount = usage.amount.plus(Amount::of_alloc(alloc));
                    usage.allocs += 1;
                }
                usage
            }
        };
        if !self.own.is_empty() {
            let own = self.own.get(node).into_iter().flatten().filter(|(id, _)| !self.stopped.contains(id));
            own.for_each(|(_, group)| usage.own.add(*group));
        }
        let planned = self.placed_on(node);
        planned.filter_map(|alloc| self.own_group(alloc)).for_each(|group| usage.own.add(group));
        usage
    }

    /// Returns the usage with the current plan, given the sum before the plan.
    fn usage_of(&self, used: Used, node: &NodeId) -> Usage {
        let mut usage = Usage { amount: used.amount, allocs: used.allocs, own: Own::default() };
        if !self.freed.is_empty() {
            for (_, amount) in self.freed.get(node).into_iter().flatten() {
                usage.amount = usage.amount.minus(*amount);
                usage.allocs = usage.allocs.saturating_sub(1);
            }
        }
        for alloc in self.placed_on(node) {
            usage.amount = usage.amount.plus(Amount::of_alloc(alloc));
            usage.allocs += 1;
        }
        usage
    }

    fn placed_on(&self, node: &NodeId) -> impl Iterator<Item = &Allocation> {
        let here = if self.placed.is_empty() { None } else { self.placed.get(node) };
        here.into_iter().flatten()
    }

    /// Returns the ports, cores, devices and volumes that are in use on a node.
    pub fn detail(&mut self, at: usize) -> &Detail {
        if self.detail[at].is_none() {
            self.detail[at] = Some(Box::new(self.compute_detail(&self.nodes[at])));
        }
        self.detail[at].get_or_insert_default()
    }

    /// Returns [`Context::detail`] with the matcher for conditions and the random number generator.
    pub fn detail_and_tools(&mut self, at: usize) -> (&Detail, &mut Matcher, &mut Rng) {
        self.detail(at);
        (self.detail[at].get_or_insert_default(), &mut self.matcher, &mut self.rng)
    }

    fn compute_detail(&self, node: &Node) -> Detail {
        let mut detail = Detail { ports: ports::kept(node), ..Detail::default() };
        detail.cores.extend(&node.reserved_resources.cpu.reserved_cpu_cores);
        self.allocs_on(&node.id, true).for_each(|alloc| detail.add(alloc));
        let claims = self.view.claims_by_node(&node.id).map(AsRef::as_ref);
        let planned = self.claims.iter().filter(|c| c.node_id == node.id);
        claims.chain(planned).filter(|c| c.phase.holds()).for_each(|claim| detail.hold(claim));
        detail
    }

    /// Returns the job's desired allocations with the current plan: the node and the group's position of each.
    pub fn own_allocs(&self) -> impl Iterator<Item = (&NodeId, usize)> {
        let existing = self
            .view
            .allocs_by_job(&self.key)
            .map(AsRef::as_ref)
            .filter(|a| !a.terminal() && !self.stopped.contains(&a.id));
        let planned = self.placed.values().flatten();
        existing.chain(planned).filter_map(|a| Some((&a.node_id, self.own_group(a)?)))
    }
}
