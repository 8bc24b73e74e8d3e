//! Finding the node for one allocation.

use crate::context::{Ask, Capacity, Context};
use crate::csi;
use crate::feasible::{self, NodeTargets};
use crate::host;
use crate::ports::{self, Offer, PortError};
use crate::rank::{self, Factors, Score};
use crate::reconcile::Place;
use crate::view::View;
use caravan_lang::constraint::{Operator, resolve};
use caravan_types::NodeId;
use caravan_types::alloc::{
    AllocatedCpu, AllocatedMemory, AllocatedResources, AllocatedSharedResources, AllocatedTaskResources,
};
use caravan_types::eval::{AllocMetric, WaitsFor};
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::job::{Constraint, TaskGroup};
use caravan_types::node::Node;
use caravan_types::volume::Claim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Scores kept in the metrics of a placement.
const SCORES_SHOWN: usize = 5;

struct Candidate {
    node: Arc<Node>,
    capacity: Capacity,
    affinity: Option<f64>,
}

/// A group with all that does not change while its allocations are placed.
pub(crate) struct Prepared<'a> {
    pub group: &'a TaskGroup,
    pub has_csi: bool,
    has_host: bool,
    ask: Ask,
    candidates: Vec<Candidate>,
    unfit: BTreeMap<NodeId, (Arc<Node>, String)>,
    position: BTreeMap<NodeId, usize>,
    /// Counts of what was filtered before anything is placed.
    base: AllocMetric,
    /// Computed classes, and whether any node of the class may do.
    pub classes: BTreeMap<String, bool>,
    /// Whether classes say nothing about the group.
    pub escaped: bool,
}

/// Counts of the nodes that a job may look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    pub pool: String,
    pub in_pool: u32,
    pub by_datacenter: BTreeMap<String, u32>,
}

impl<'a> Prepared<'a> {
    /// Sorts the nodes, which are in the order in which ties are broken, into those that can run the
    /// group and those that cannot.
    pub fn new<V: View>(
        ctx: &mut Context<'a, V>,
        nodes: &[Arc<Node>],
        census: &Census,
        group: &'a TaskGroup,
    ) -> Self {
        let job = ctx.job;
        let has_csi = group.csi_volumes().next().is_some();
        let has_host = group.host_volumes().next().is_some();
        let mut prepared = Self {
            group,
            has_csi,
            has_host,
            ask: Ask::of(group),
            candidates: Vec::new(),
            unfit: BTreeMap::new(),
            position: BTreeMap::new(),
            base: AllocMetric {
                nodes_in_pool: census.in_pool,
                node_pool: census.pool.clone(),
                nodes_available: census.by_datacenter.clone(),
                ..AllocMetric::default()
            },
            classes: BTreeMap::new(),
            escaped: has_csi || has_host || feasible::constraints(job, group).any(feasible::escapes),
        };
        for node in nodes {
            let verdict = feasible::check(&mut ctx.matcher, job, group, node);
            let class_fits = verdict.as_ref().err().is_none_or(|unfit| !unfit.by_class);
            if node.computed_class.is_empty() {
                prepared.escaped = true;
            } else {
                *prepared.classes.entry(node.computed_class.clone()).or_default() |= class_fits;
            }
            match verdict {
                Ok(()) => {
                    prepared.position.insert(node.id.clone(), prepared.candidates.len());
                    prepared.candidates.push(Candidate {
                        node: Arc::clone(node),
                        capacity: Capacity::of(node),
                        affinity: feasible::affinity(&mut ctx.matcher, job, group, node),
                    });
                }
                Err(unfit) => {
                    filter(&mut prepared.base, node, &unfit.reason);
                    prepared.unfit.insert(node.id.clone(), (Arc::clone(node), unfit.reason));
                }
            }
        }
        prepared
    }

    /// Whether each allocation has its own reasons to fit or not.
    pub fn differs_by_name(&self) -> bool {
        self.group.volumes.values().any(|v| v.per_alloc)
    }
}

/// A node for an allocation, with everything that it gets there.
pub(crate) struct Selected {
    pub node: Arc<Node>,
    pub resources: AllocatedResources,
    pub claims: Vec<Claim>,
    pub host_claims: Vec<HostVolumeClaim>,
    pub metric: AllocMetric,
}

/// Why no node was found.
#[derive(Debug)]
pub(crate) struct Failure {
    pub metric: AllocMetric,
    /// What else than nodes would help.
    pub waits: BTreeSet<WaitsFor>,
}

impl Failure {
    /// Whether a node would do if something on it were freed.
    pub fn may_change(&self) -> bool {
        self.metric.nodes_exhausted > 0 || !self.waits.is_empty()
    }
}

enum Reject {
    Filter(String, Vec<WaitsFor>),
    Exhaust(String),
}

struct Fit {
    offer: Offer,
    cores: Vec<u16>,
    claims: Vec<Claim>,
    host_claims: Vec<HostVolumeClaim>,
    score: Score,
}

/// The best node for an allocation.
///
/// With `without_stopped`, claims of what the plan stops do not count (see [`csi::claims`]).
pub(crate) fn select<V: View>(
    ctx: &mut Context<'_, V>,
    prepared: &Prepared<'_>,
    place: &Place,
    without_stopped: bool,
) -> Result<Selected, Box<Failure>> {
    let mut metric = prepared.base.clone();
    metric.nodes_evaluated = metric.nodes_filtered;
    let mut waits = BTreeSet::new();
    let mut range = 0..prepared.candidates.len();
    if let Some(only) = &place.only_on {
        metric = AllocMetric {
            nodes_evaluated: 0,
            nodes_filtered: 0,
            class_filtered: BTreeMap::new(),
            constraint_filtered: BTreeMap::new(),
            ..metric
        };
        range = match prepared.position.get(only) {
            Some(at) => *at..*at + 1,
            None => 0..0,
        };
        if let Some((node, reason)) = prepared.unfit.get(only) {
            metric.nodes_evaluated = 1;
            filter(&mut metric, node, reason);
        }
    }
    // Volumes that do not exist are waited for also while there is no node to look at.
    if prepared.has_csi
        && let Err(refused) = csi::requests(ctx, prepared.group, &place.name)
    {
        waits.extend(refused.waits);
    }
    if prepared.has_host && prepared.candidates.is_empty() {
        waits.extend(host::waits(&ctx.job.namespace, prepared.group, &place.name));
    }
    let distinct = Distinct::of(ctx, prepared.group);
    let mut best: Option<(usize, Fit)> = None;
    let mut scores: Vec<(Score, usize)> = Vec::new();
    for at in range {
        let candidate = &prepared.candidates[at];
        metric.nodes_evaluated += 1;
        match fit(ctx, prepared, candidate, place, &distinct, without_stopped) {
            Ok(found) => {
                scores.push((found.score, at));
                let better = best.as_ref().is_none_or(|(_, b)| found.score.norm > b.score.norm);
                if better {
                    best = Some((at, found));
                }
            }
            Err(Reject::Filter(reason, helps)) => {
                filter(&mut metric, &candidate.node, &reason);
                waits.extend(helps);
            }
            Err(Reject::Exhaust(dimension)) => {
                exhaust(&mut metric, &candidate.node, prepared.group, dimension)
            }
        }
    }
    let Some((at, found)) = best else { return Err(Box::new(Failure { metric, waits })) };
    scores.sort_by(|a, b| b.0.norm.total_cmp(&a.0.norm));
    scores.truncate(SCORES_SHOWN);
    metric.score_meta_data =
        scores.iter().map(|(score, at)| score.named(&prepared.candidates[*at].node.id)).collect();
    let candidate = &prepared.candidates[at];
    let resources = resources(&candidate.node, prepared.group, found.offer, found.cores);
    let node = Arc::clone(&candidate.node);
    Ok(Selected { node, resources, claims: found.claims, host_claims: found.host_claims, metric })
}

fn fit<V: View>(
    ctx: &mut Context<'_, V>,
    prepared: &Prepared<'_>,
    candidate: &Candidate,
    place: &Place,
    distinct: &Distinct<'_>,
    without_stopped: bool,
) -> Result<Fit, Reject> {
    let (node, group) = (&candidate.node, prepared.group);
    let claims = if prepared.has_csi {
        csi::claims(ctx, node, group, &place.name, without_stopped)
            .map_err(|refused| Reject::Filter(refused.reason, refused.waits))?
    } else {
        Vec::new()
    };
    let host_claims = if prepared.has_host {
        host::claims(ctx, node, group, place, without_stopped)
            .map_err(|refused| Reject::Filter(refused.reason, refused.waits))?
    } else {
        Vec::new()
    };
    distinct.check(ctx, node, group)?;
    let offer = if group.networks.is_empty() {
        Offer::default()
    } else {
        let used = ctx.usage(node).ports.clone();
        ports::offer(node, &used, group, &mut ctx.rng).map_err(|error| match error {
            PortError::Missing(reason) => Reject::Filter(reason, Vec::new()),
            PortError::Exhausted(dimension) => Reject::Exhaust(dimension),
        })?
    };
    let usage = ctx.usage(node);
    let cores = free_cores(node, &usage.cores, prepared.ask.cores)
        .ok_or_else(|| Reject::Exhaust("cores".to_owned()))?;
    let mut ask = prepared.ask;
    ask.cpu = ask.cpu.saturating_add(core_shares(node, cores.len()));
    let capacity = &candidate.capacity;
    for (dimension, used, wanted, all) in [
        ("cpu", usage.cpu, ask.cpu, capacity.cpu),
        ("memory", usage.memory, ask.memory, capacity.memory),
        ("disk", usage.disk, ask.disk, capacity.disk),
    ] {
        if wanted > 0 && used.saturating_add(wanted) > all {
            return Err(Reject::Exhaust(dimension.to_owned()));
        }
    }
    let factors = Factors {
        group: &group.name,
        count: group.count,
        affinity: candidate.affinity,
        penalized: place.penalties.contains(&node.id),
    };
    let score = rank::score(capacity, usage, &ask, &factors);
    Ok(Fit { offer, cores, claims, host_claims, score })
}

fn free_cores(node: &Node, used: &BTreeSet<u16>, wanted: usize) -> Option<Vec<u16>> {
    let free = node.node_resources.cpu.reservable_cpu_cores.iter().filter(|core| !used.contains(core));
    let cores: Vec<u16> = free.take(wanted).copied().collect();
    (cores.len() == wanted).then_some(cores)
}

/// The CPU shares that go with whole cores.
fn core_shares(node: &Node, cores: usize) -> i64 {
    let cpu = &node.node_resources.cpu;
    let all = i64::from(cpu.total_cpu_cores).max(1);
    (cpu.cpu_shares / all).saturating_mul(i64::try_from(cores).unwrap_or(i64::MAX))
}

fn resources(node: &Node, group: &TaskGroup, offer: Offer, mut cores: Vec<u16>) -> AllocatedResources {
    let mut given = AllocatedResources::default();
    for task in &group.tasks {
        let wanted = &task.resources;
        let own = cores.len().min(usize::try_from(wanted.cores).unwrap_or(0));
        let reserved: Vec<u16> = cores.drain(..own).collect();
        let cpu_shares = if reserved.is_empty() { wanted.cpu } else { core_shares(node, reserved.len()) };
        given.tasks.insert(
            task.name.clone(),
            AllocatedTaskResources {
                cpu: AllocatedCpu { cpu_shares, reserved_cores: reserved },
                memory: AllocatedMemory { memory_mb: wanted.memory_mb, memory_max_mb: wanted.memory_max_mb },
                ..AllocatedTaskResources::default()
            },
        );
        given.task_lifecycles.insert(task.name.clone(), task.lifecycle.clone());
    }
    given.shared =
        AllocatedSharedResources { networks: offer.networks, disk_mb: group.disk_mb(), ports: offer.ports };
    given
}

/// Conditions about the job's other allocations.
struct Distinct<'a> {
    /// Whether the job's, or else the group's, allocations must be on different nodes.
    hosts: Option<bool>,
    properties: Vec<Property<'a>>,
}

struct Property<'a> {
    constraint: &'a Constraint,
    limit: u32,
    used: BTreeMap<String, u32>,
}

impl<'a> Distinct<'a> {
    fn of<V: View>(ctx: &Context<'a, V>, group: &'a TaskGroup) -> Self {
        let job = ctx.job;
        let mut distinct = Self { hosts: None, properties: Vec::new() };
        let of_job = job.constraints.iter().map(|c| (c, true));
        for (constraint, whole_job) in of_job.chain(group.constraints.iter().map(|c| (c, false))) {
            match Operator::parse(&constraint.operand) {
                Ok(Operator::DistinctHosts) if constraint.r_target != "false" => {
                    distinct.hosts = Some(whole_job || distinct.hosts == Some(true));
                }
                Ok(Operator::DistinctProperty) => {
                    let limit = constraint.r_target.parse().unwrap_or(1);
                    let used = used_values(ctx, constraint, (!whole_job).then_some(group.name.as_str()));
                    distinct.properties.push(Property { constraint, limit, used });
                }
                _ => {}
            }
        }
        distinct
    }

    fn check<V: View>(&self, ctx: &mut Context<'_, V>, node: &Node, group: &TaskGroup) -> Result<(), Reject> {
        if let Some(whole_job) = self.hosts {
            let own = &ctx.usage(node).own;
            let here: u32 =
                if whole_job { own.values().sum() } else { own.get(&group.name).copied().unwrap_or(0) };
            if here > 0 {
                return Err(Reject::Filter("distinct_hosts".to_owned(), Vec::new()));
            }
        }
        for property in &self.properties {
            let target = &property.constraint.l_target;
            let Some(value) = resolve(target, &NodeTargets(node)).map(|v| v.into_owned()) else {
                return Err(Reject::Filter(format!("missing property {target:?}"), Vec::new()));
            };
            let used = property.used.get(&value).copied().unwrap_or(0);
            if used >= property.limit {
                let reason = format!("distinct_property: {target}={value} used by {used} allocs");
                return Err(Reject::Filter(reason, Vec::new()));
            }
        }
        Ok(())
    }
}

fn used_values<V: View>(
    ctx: &Context<'_, V>,
    constraint: &Constraint,
    group: Option<&str>,
) -> BTreeMap<String, u32> {
    let mut used = BTreeMap::new();
    for (node, of_group) in ctx.own_allocs() {
        if group.is_some_and(|wanted| wanted != of_group) {
            continue;
        }
        let Some(node) = ctx.view.node(node) else { continue };
        if let Some(value) = resolve(&constraint.l_target, &NodeTargets(node)) {
            *used.entry(value.into_owned()).or_default() += 1;
        }
    }
    used
}

fn filter(metric: &mut AllocMetric, node: &Node, reason: &str) {
    metric.nodes_filtered += 1;
    if !node.node_class.is_empty() {
        *metric.class_filtered.entry(node.node_class.clone()).or_default() += 1;
    }
    *metric.constraint_filtered.entry(reason.to_owned()).or_default() += 1;
}

fn exhaust(metric: &mut AllocMetric, node: &Node, group: &TaskGroup, dimension: String) {
    metric.nodes_exhausted += 1;
    if !node.node_class.is_empty() {
        *metric.class_exhausted.entry(node.node_class.clone()).or_default() += 1;
    }
    for task in &group.tasks {
        let wanted = &task.resources;
        let (cpu, cores, memory) = match dimension.as_str() {
            "cpu" => (wanted.cpu, 0, 0),
            "cores" => (0, wanted.cores, 0),
            "memory" => (0, 0, wanted.memory_mb),
            _ => continue,
        };
        let sum = metric.resources_exhausted.entry(task.name.clone()).or_default();
        sum.cpu = sum.cpu.saturating_add(cpu);
        sum.cores = sum.cores.saturating_add(cores);
        sum.memory_mb = sum.memory_mb.saturating_add(memory);
    }
    *metric.dimension_exhausted.entry(dimension).or_default() += 1;
}

/// Adds the counts of one node's metrics to those of others: system jobs look at each node by itself.
pub(crate) fn merge(into: &mut AllocMetric, from: &AllocMetric) {
    fn sum(into: &mut BTreeMap<String, u32>, from: &BTreeMap<String, u32>) {
        for (key, count) in from {
            *into.entry(key.clone()).or_default() += count;
        }
    }
    into.nodes_evaluated += from.nodes_evaluated;
    into.nodes_filtered += from.nodes_filtered;
    into.nodes_exhausted += from.nodes_exhausted;
    sum(&mut into.class_filtered, &from.class_filtered);
    sum(&mut into.constraint_filtered, &from.constraint_filtered);
    sum(&mut into.class_exhausted, &from.class_exhausted);
    sum(&mut into.dimension_exhausted, &from.dimension_exhausted);
    for (task, resources) in &from.resources_exhausted {
        let total = into.resources_exhausted.entry(task.clone()).or_default();
        total.cpu = total.cpu.saturating_add(resources.cpu);
        total.cores = total.cores.saturating_add(resources.cores);
        total.memory_mb = total.memory_mb.saturating_add(resources.memory_mb);
    }
}
