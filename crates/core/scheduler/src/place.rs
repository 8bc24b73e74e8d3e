//! The search for the node of one allocation.

use crate::context::Context;
use crate::csi;
use crate::device;
use crate::exclusive;
use crate::host;
use crate::metric;
use crate::notes;
use crate::ports::{self, PortError};
use crate::preempt;
use crate::prepared::{Prepared, Rank, Reject};
use crate::rank::Score;
use crate::reconcile::Place;
use crate::resources::core_shares;
use crate::view::View;
use caravan_types::NodeId;
use caravan_types::alloc::{
    AllocatedCpu, AllocatedMemory, AllocatedResources, AllocatedSharedResources, AllocatedTaskResources,
    Allocation,
};
use caravan_types::eval::{AllocMetric, Counts, WaitsFor};
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::job::TaskGroup;
use caravan_types::node::Node;
use caravan_types::volume::Claim;
use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap, btree_set};
use std::sync::Arc;

/// The number of scores that the metrics of a placement keep.
const SCORES_SHOWN: usize = 5;

/// A node for an allocation, with all resources and claims of the allocation there.
pub(crate) struct Selected {
    pub node: Arc<Node>,
    pub resources: Arc<AllocatedResources>,
    pub claims: Vec<Claim>,
    pub host_claims: Vec<HostVolumeClaim>,
    pub metric: AllocMetric,
    /// The allocations of other jobs that must be evicted for this allocation.
    pub preempted: Vec<Arc<Allocation>>,
}

/// The reason that no node was found.
#[derive(Debug)]
pub(crate) struct Failure {
    pub metric: AllocMetric,
    /// The changes other than of nodes that may help.
    pub waits: BTreeSet<WaitsFor>,
    /// The changes that would let the allocation be placed, as sentences for users.
    pub notes: Vec<String>,
}

impl Failure {
    /// Returns whether a node would fit if resources on it were freed.
    pub fn may_change(&self) -> bool {
        self.metric.nodes_exhausted > 0 || !self.waits.is_empty()
    }
}

/// The resources and claims that an allocation gets on a node.
pub(crate) struct Fit {
    resources: Arc<AllocatedResources>,
    claims: Vec<Claim>,
    host_claims: Vec<HostVolumeClaim>,
}

/// Returns the best node for an allocation.
///
/// With `without_stopped`, claims of allocations that the plan stops do not count (see [`csi::claims`]).
pub(crate) fn select<V: View>(
    ctx: &mut Context<'_, V>,
    prepared: &mut Prepared<'_>,
    place: &Place,
    without_stopped: bool,
) -> Result<Selected, Box<Failure>> {
    prepared.catch_up(ctx);
    if prepared.granted.is_none() && prepared.gives_all_the_same() {
        prepared.granted = Some(Arc::new(same_for_all(prepared.group, ctx.rules.memory_oversubscription)));
    }
    let prepared = &*prepared;
    let mut search = Search { prepared, place, without_stopped, rejects: Vec::new() };
    if let Some(only) = &place.only_on {
        return search.only(ctx, only);
    }
    if let Some(index) = search.home(ctx)
        && let Some(score) = prepared.candidates[index].score()
        && let Ok(fit) = search.fit(ctx, index)
    {
        return Ok(search.selected(ctx, index, fit, &[(index, score)]));
    }
    if let Some((index, fit, scores)) = search.best(ctx) {
        return Ok(search.selected(ctx, index, fit, &scores));
    }
    let exhausted = (0..prepared.candidates.len())
        .filter(|index| preempt::may_help(prepared.candidates[*index].reject()))
        .filter(|index| {
            let refused = search.rejects.iter().find(|(known, _)| known == index);
            preempt::may_help(refused.map(|(_, reject)| reject))
        });
    let exhausted: Vec<usize> = exhausted.collect();
    match search.by_force(ctx, exhausted) {
        Some(selected) => Ok(selected),
        None => Err(Box::new(search.failure(ctx))),
    }
}

/// Returns the nodes on which the allocation failed before.
fn penalized(place: &Place) -> impl Iterator<Item = &NodeId> {
    place.penalties.iter()
}

struct Search<'s, 'a> {
    prepared: &'s Prepared<'a>,
    place: &'s Place,
    without_stopped: bool,
    /// The candidates with enough capacity that do not fit this allocation.
    rejects: Vec<(usize, Reject)>,
}

/// The best candidate, its fit, and the scores of the first few candidates.
type Best = (usize, Fit, Vec<(usize, Score)>);

/// The next best candidate of a lane.
struct Head<'l> {
    norm: f64,
    score: Score,
    tie: u32,
    candidate: usize,
    spread: Option<f64>,
    rest: btree_set::Iter<'l, Rank>,
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Head<'_> {}
impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.norm.total_cmp(&other.norm);
        by_score.then_with(|| (other.tie, other.candidate).cmp(&(self.tie, self.candidate)))
    }
}

impl Search<'_, '_> {
    /// Returns the node that has the data of a sticky allocation.
    fn home<V: View>(&self, ctx: &Context<'_, V>) -> Option<usize> {
        let sticky = self.prepared.group.ephemeral_disk.is_some_and(|disk| disk.sticky);
        let previous = self.place.previous.alloc().filter(|_| sticky)?;
        if penalized(self.place).any(|node| *node == previous.node_id) {
            return None;
        }
        self.prepared.candidate_at(ctx.at(&previous.node_id)?)
    }

    /// Tries candidates from best to worst until one fits.
    fn best<V: View>(&mut self, ctx: &mut Context<'_, V>) -> Option<Best> {
        let prepared = self.prepared;
        let ranges = prepared.axes.ranges();
        let mut heads: BinaryHeap<Head<'_>> = BinaryHeap::new();
        for bucket in &prepared.buckets {
            let lanes = bucket.lanes.iter().filter(|lane| !lane.is_empty());
            if let Some(reason) = prepared.axes.refusal(&bucket.values) {
                let all = lanes.flatten().map(|rank| (rank.candidate, Reject::filter(reason.clone())));
                self.rejects.extend(all);
                continue;
            }
            let spread = prepared.axes.spread(&bucket.values, &ranges);
            heads.extend(lanes.filter_map(|lane| self.head(spread, lane.iter())));
        }
        let mut best: Option<(usize, Fit)> = None;
        let mut scores: Vec<(usize, Score)> = Vec::new();
        let penalized: BTreeSet<usize> =
            penalized(self.place).filter_map(|node| prepared.candidate_at(ctx.at(node)?)).collect();
        while let Some(mut head) = heads.pop() {
            // A node on which the allocation failed before is tried only if no other node is with an equal score.
            if penalized.contains(&head.candidate) && head.score.penalty == 0.0 {
                let next = self.head(head.spread, head.rest.clone());
                head.score.penalty = -1.0;
                head.norm = head.score.norm();
                head.rest = btree_set::Iter::default();
                heads.push(head);
                heads.extend(next);
                continue;
            }
            heads.extend(self.head(head.spread, head.rest.clone()));
            let index = head.candidate;
            if best.is_none() || prepared.has_volumes() {
                match self.fit(ctx, index) {
                    Ok(fit) => {
                        best.get_or_insert((index, fit));
                    }
                    Err(reject) => {
                        if best.is_none() {
                            self.rejects.push((index, reject));
                        }
                        continue;
                    }
                }
            }
            scores.push((index, head.score));
            if scores.len() >= SCORES_SHOWN {
                break;
            }
        }
        best.map(|(index, fit)| (index, fit, scores))
    }

    fn head<'l>(&self, spread: Option<f64>, mut rest: btree_set::Iter<'l, Rank>) -> Option<Head<'l>> {
        let candidate = rest.next()?.candidate;
        let known = &self.prepared.candidates[candidate];
        let score = Score { spread, ..known.score()? };
        Some(Head { norm: score.norm(), score, tie: known.tie, candidate, spread, rest })
    }

    /// Returns a node on which other allocations must be evicted.
    fn by_force<V: View>(&self, ctx: &mut Context<'_, V>, indexes: Vec<usize>) -> Option<Selected> {
        let suits = |ctx: &mut Context<'_, V>, index| self.fit(ctx, index).is_ok();
        let room = preempt::find(ctx, self.prepared, indexes.into_iter(), suits)?;
        let fit = match self.fit(ctx, room.index) {
            Ok(fit) => fit,
            // The candidate fitted before. If it no longer fits, no allocation is evicted.
            Err(_) => {
                room.victims.iter().for_each(|victim| ctx.unstop(victim));
                return None;
            }
        };
        let selected = self.selected(ctx, room.index, fit, &[(room.index, room.score)]);
        Some(Selected { preempted: room.victims, ..selected })
    }

    fn only<V: View>(&mut self, ctx: &mut Context<'_, V>, only: &NodeId) -> Result<Selected, Box<Failure>> {
        let prepared = self.prepared;
        let at = ctx.at(only);
        let candidate = at.and_then(|at| prepared.candidate_at(at));
        let mut metric = AllocMetric::from(Counts {
            nodes_in_pool: prepared.metric.nodes_in_pool,
            node_pool: prepared.metric.node_pool.clone(),
            nodes_available: prepared.metric.nodes_available.clone(),
            nodes_evaluated: u32::from(at.is_some()),
            ..Counts::default()
        });
        let mut waits = self.absent_volumes(ctx);
        if let Some(index) = candidate {
            let values = &prepared.buckets[prepared.candidates[index].bucket].values;
            let open = match prepared.axes.refusal(values) {
                Some(reason) => Err(Reject::filter(reason)),
                None => prepared.assess(ctx, index),
            };
            match open.and_then(|score| Ok((score, self.fit(ctx, index)?))) {
                Ok((score, fit)) => {
                    let mut selected = self.selected(ctx, index, fit, &[(index, score)]);
                    metric.score_meta_data = std::mem::take(&mut selected.metric.score_meta_data);
                    selected.metric = metric;
                    return Ok(selected);
                }
                Err(reject) => {
                    if preempt::may_help(Some(&reject))
                        && let Some(selected) = self.by_force(ctx, vec![index])
                    {
                        let score_meta_data = selected.metric.score_meta_data.clone();
                        return Ok(Selected {
                            metric: AllocMetric { score_meta_data, ..metric },
                            ..selected
                        });
                    }
                    count(&mut metric, &ctx.nodes[prepared.candidates[index].at], &reject, &mut waits);
                }
            }
        } else if let Some(at) = at {
            metric::filter(&mut metric, &ctx.nodes[at], prepared.unfit(at).unwrap_or_default());
        }
        metric::ask(&mut metric, prepared.group);
        Err(Box::new(Failure { metric, waits, notes: Vec::new() }))
    }

    /// Returns the resources and claims of this allocation on a candidate with enough capacity, or the reason that it
    /// does not fit.
    fn fit<V: View>(&self, ctx: &mut Context<'_, V>, index: usize) -> Result<Fit, Reject> {
        let prepared = self.prepared;
        let (at, group) = (prepared.candidates[index].at, prepared.group);
        let nodes = ctx.nodes;
        let node = &nodes[at];
        let refused = |refused: csi::Refused| Reject::Filter(refused.reason, refused.waits);
        let claims = if prepared.has_csi {
            csi::claims(ctx, at, group, &self.place.name, self.without_stopped).map_err(refused)?
        } else {
            Vec::new()
        };
        let host_claims = if prepared.has_host {
            host::claims(ctx, node, group, self.place, self.without_stopped).map_err(refused)?
        } else {
            Vec::new()
        };
        let oversubscription = ctx.rules.memory_oversubscription;
        let resources = match &prepared.granted {
            Some(granted) => Arc::clone(granted),
            None => Arc::new(granted(ctx, prepared, at, oversubscription)?),
        };
        Ok(Fit { resources, claims, host_claims })
    }

    fn selected<V: View>(
        &self,
        ctx: &Context<'_, V>,
        index: usize,
        fit: Fit,
        scores: &[(usize, Score)],
    ) -> Selected {
        let candidates = &self.prepared.candidates;
        let id = |index: usize| &ctx.nodes[candidates[index].at].id;
        let system = ctx.job.kind.is_system();
        let mut metric = self.prepared.metric.clone();
        metric.score_meta_data =
            scores.iter().map(|(index, score)| score.named(id(*index), system)).collect();
        metric.score_meta_data.sort_by(|a, b| b.norm_score.total_cmp(&a.norm_score));
        for (index, reject) in &self.rejects {
            count(&mut metric, &ctx.nodes[candidates[*index].at], reject, &mut BTreeSet::new());
        }
        let node = Arc::clone(&ctx.nodes[candidates[index].at]);
        let Fit { resources, claims, host_claims } = fit;
        Selected { node, resources, claims, host_claims, metric, preempted: Vec::new() }
    }

    /// Returns the missing volumes to wait for. No other check reports them while no node is a candidate.
    fn absent_volumes<V: View>(&self, ctx: &Context<'_, V>) -> BTreeSet<WaitsFor> {
        let (prepared, mut waits) = (self.prepared, BTreeSet::new());
        if prepared.has_csi
            && let Err(refused) = csi::requests(ctx, prepared.group, &self.place.name)
        {
            waits.extend(refused.waits);
        }
        if prepared.has_host && prepared.candidates.is_empty() {
            waits.extend(host::waits(&ctx.job.namespace, prepared.group, &self.place.name));
        }
        waits
    }

    fn failure<V: View>(&self, ctx: &mut Context<'_, V>) -> Failure {
        let mut waits = self.absent_volumes(ctx);
        let mut metric = self.prepared.metric.clone();
        for (index, reject) in &self.rejects {
            count(&mut metric, &ctx.nodes[self.prepared.candidates[*index].at], reject, &mut waits);
        }
        metric::ask(&mut metric, self.prepared.group);
        Failure { metric, waits, notes: notes::collect(ctx, self.prepared) }
    }
}

fn count(metric: &mut AllocMetric, node: &Node, reject: &Reject, waits: &mut BTreeSet<WaitsFor>) {
    match reject {
        Reject::Filter(reason, helps) => {
            metric::filter(metric, node, reason);
            waits.extend(helps.iter().cloned());
        }
        Reject::Exhaust(dimension) => metric::exhaust(metric, node, dimension),
    }
}

/// Returns the group's resources, if they are the same on every node.
fn same_for_all(group: &TaskGroup, oversubscription: bool) -> AllocatedResources {
    let mut granted = of_group(group);
    let no_cores = |_: usize| 0;
    tasks(no_cores, group, &mut Vec::new(), &mut device::Offer::default(), oversubscription, &mut granted);
    granted
}

fn of_group(group: &TaskGroup) -> AllocatedResources {
    AllocatedResources {
        shared: AllocatedSharedResources { disk_mb: group.disk_mb(), ..AllocatedSharedResources::default() },
        ..AllocatedResources::default()
    }
}

/// Returns the group's resources on a node that has room, including its ports, cores and devices.
fn granted<V: View>(
    ctx: &mut Context<'_, V>,
    prepared: &Prepared<'_>,
    at: usize,
    oversubscription: bool,
) -> Result<AllocatedResources, Reject> {
    let group = prepared.group;
    let nodes = ctx.nodes;
    let node = &nodes[at];
    let mut granted = of_group(group);
    if !group.networks.is_empty() {
        let (detail, _, rng) = ctx.detail_and_tools(at);
        if group.networks.iter().any(|network| network.mode == "bridge") {
            ports::bridge_has_room(node, detail.bridged).map_err(Reject::Exhaust)?;
        }
        let offer = ports::offer(node, &detail.ports, group, rng).map_err(|error| match error {
            PortError::Missing(reason) => Reject::filter(reason),
            PortError::Exhausted(dimension) => Reject::Exhaust(dimension),
        })?;
        granted.shared.networks = offer.networks;
        granted.shared.ports = offer.ports;
    }
    let (detail, matcher, _) = ctx.detail_and_tools(at);
    let taken = (&detail.cores, &detail.devices);
    let (mut cores, mut devices) =
        exclusive::pick(matcher, node, taken, group, (prepared.ask.cores, prepared.numa))
            .map_err(Reject::Exhaust)?;
    let shares_of_cores = |cores| core_shares(node, cores);
    tasks(shares_of_cores, group, &mut cores, &mut devices, oversubscription, &mut granted);
    Ok(granted)
}

fn tasks(
    shares_of_cores: impl Fn(usize) -> i64,
    group: &TaskGroup,
    cores: &mut Vec<u16>,
    devices: &mut device::Offer,
    oversubscription: bool,
    granted: &mut AllocatedResources,
) {
    for task in &group.tasks {
        let requested = &task.resources;
        let own = cores.len().min(usize::try_from(requested.cores).unwrap_or(0));
        let reserved: Vec<u16> = cores.drain(..own).collect();
        let cpu_shares = if reserved.is_empty() { requested.cpu } else { shares_of_cores(reserved.len()) };
        // Without memory oversubscription, the limit is the reserved memory.
        let memory_max_mb = match requested.memory_max_mb {
            0 => 0,
            most if oversubscription => most,
            _ => requested.memory_mb,
        };
        let resources = AllocatedTaskResources {
            cpu: AllocatedCpu { cpu_shares, reserved_cores: reserved },
            memory: AllocatedMemory { memory_mb: requested.memory_mb, memory_max_mb },
            devices: devices.by_task.remove(&task.name).unwrap_or_default(),
            ..AllocatedTaskResources::default()
        };
        granted.tasks.insert(task.name.clone(), resources);
        granted.task_lifecycles.insert(task.name.clone(), task.lifecycle.clone());
    }
}
