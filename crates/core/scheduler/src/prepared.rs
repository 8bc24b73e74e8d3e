//! A group with the nodes that may run it, sorted by score while its allocations are placed.
//!
//! A placement changes one node, so one score is computed again, and the best node is the first one of its lane. A
//! lane holds the candidates of one bucket of [`Axes`] to which the same number of scores applies. Within a lane, the
//! order does not depend on how the group is spread.

use crate::context::Context;
use crate::cores::{self, Numa};
use crate::device;
use crate::exclusive;
use crate::feasible::Conditions;
use crate::fits::TOO_MANY;
use crate::metric;
use crate::ports;
use crate::rank::{self, Score};
use crate::resources::{Amount, Ask};
use crate::spread::{self, Axes, Values};
use crate::view::View;
use caravan_types::alloc::AllocatedResources;
use caravan_types::eval::{AllocMetric, Counts, WaitsFor};
use caravan_types::job::{Job, TaskGroup};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// The reason that a node does not accept an allocation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reject {
    /// The node is filtered; the waits identify changes that may help.
    Filter(String, Vec<WaitsFor>),
    /// The node lacks free resources of this dimension.
    Exhaust(String),
}

impl Reject {
    pub fn filter(reason: impl Into<String>) -> Self {
        Self::Filter(reason.into(), Vec::new())
    }
}

/// The state of a candidate with the current plan.
#[derive(Debug)]
enum Standing {
    Open(Score),
    Out(Reject),
}

/// A node that could run the group if nothing else ran there.
pub(crate) struct Candidate {
    /// The position of the node.
    pub at: usize,
    pub capacity: Amount,
    wish: f64,
    /// The random order among candidates with equal scores.
    pub tie: u32,
    pub bucket: usize,
    standing: Standing,
}

impl Candidate {
    /// Returns the candidate's scores, if it has room.
    pub fn score(&self) -> Option<Score> {
        match &self.standing {
            Standing::Open(score) => Some(*score),
            Standing::Out(_) => None,
        }
    }

    /// Returns the reason that the candidate has no room, if it has none.
    pub fn reject(&self) -> Option<&Reject> {
        match &self.standing {
            Standing::Open(_) => None,
            Standing::Out(reject) => Some(reject),
        }
    }
}

/// The position in a lane: the best candidate first, equal scores in random order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    descending: u64,
    tie: u32,
    pub candidate: usize,
}

impl Rank {
    fn new(sum: f64, tie: u32, candidate: usize) -> Self {
        // The bits of floats as integers in the same order, then inverted.
        let bits = sum.to_bits();
        let ascending = if bits >> 63 == 1 { !bits } else { bits | (1 << 63) };
        Self { descending: !ascending, tie, candidate }
    }
}

/// The nodes with the same values of all counted properties.
pub(crate) struct Bucket {
    pub values: Values,
    /// The lanes, indexed by the number of scores that apply, minus one.
    pub lanes: Vec<BTreeSet<Rank>>,
}

/// A group with all data that placing its allocations needs.
pub(crate) struct Prepared<'a> {
    pub group: &'a TaskGroup,
    pub has_csi: bool,
    pub has_host: bool,
    pub ask: Ask,
    pub numa: Numa,
    pub axes: Axes,
    pub candidates: Vec<Candidate>,
    pub buckets: Vec<Bucket>,
    /// The counts with the current plan.
    pub metric: AllocMetric,
    /// The computed classes, and whether any node of the class may fit.
    pub classes: BTreeMap<String, bool>,
    /// Whether the constraints escape computed classes, so that classes do not decide eligibility.
    pub escaped: bool,
    /// The resources of every allocation of the group, if they do not depend on the node.
    pub granted: Option<Arc<AllocatedResources>>,
    position: usize,
    pub has_devices: bool,
    has_fixed_ports: bool,
    distinct_hosts: Option<bool>,
    /// Whether each node is evaluated separately (system jobs), so that no order is kept.
    alone: bool,
    /// The nodes that cannot run the group, with reasons, sorted by position.
    unfit: Vec<(usize, Rc<str>)>,
    seen: usize,
}

/// The results that the nodes of a class share.
#[derive(Clone)]
struct Shared {
    unfit: Option<Rc<str>>,
    wish: f64,
    name: String,
    /// Whether any node of the class may fit.
    fits: bool,
}

impl<'a> Prepared<'a> {
    /// Separates the nodes that can run the group from the others. `position` is the group's position in the newest
    /// version of the job; `job` is the version to place.
    pub fn new<V: View>(
        ctx: &mut Context<'a, V>,
        position: usize,
        job: &'a Job,
        group: &'a TaskGroup,
    ) -> Self {
        let has_csi = group.csi_volumes().next().is_some();
        let has_host = group.host_volumes().next().is_some();
        let conditions = Conditions::collect(job, group);
        let census = &ctx.field.census;
        let mut prepared = Self {
            group,
            has_csi,
            has_host,
            ask: Ask::from_group(group),
            numa: Numa::from_group(group),
            axes: Axes::new(ctx, job, position, group),
            candidates: Vec::new(),
            buckets: Vec::new(),
            metric: AllocMetric::from(Counts {
                nodes_in_pool: census.in_pool,
                node_pool: census.pool.clone(),
                nodes_available: census.by_datacenter.clone(),
                ..Counts::default()
            }),
            granted: None,
            classes: BTreeMap::new(),
            escaped: has_csi || has_host || conditions.escaped,
            position,
            has_devices: device::requested(group).next().is_some(),
            has_fixed_ports: group.networks.iter().any(|n| !n.reserved_ports.is_empty()),
            distinct_hosts: spread::distinct_hosts(job, group),
            alone: job.kind.is_system(),
            unfit: Vec::new(),
            seen: ctx.log.len(),
        };
        prepared.sort(ctx, &conditions);
        prepared
    }

    fn sort<V: View>(&mut self, ctx: &mut Context<'a, V>, conditions: &Conditions<'_>) {
        let field = ctx.field;
        let mut shared: Vec<Option<Shared>> = vec![None; field.class_count];
        let mut buckets: HashMap<Values, usize> = HashMap::new();
        // The key is the address of the text, which nodes of a class share.
        let mut reasons: Vec<(Rc<str>, u32)> = Vec::new();
        for (at, (node, class)) in field.nodes.iter().zip(&field.classes).enumerate() {
            let tie = u32::try_from(ctx.rng.number() >> 32).unwrap_or(0);
            let mut own = None;
            let slot = match class {
                Some(class) => &mut shared[*class],
                None => {
                    self.escaped = true;
                    &mut own
                }
            };
            let class = slot.get_or_insert_with(|| Shared {
                unfit: conditions.class(&mut ctx.matcher, node).err().map(Rc::from),
                wish: conditions.wish(&mut ctx.matcher, node),
                name: node.computed_class.clone(),
                fits: false,
            });
            let mut unfit = class.unfit.clone();
            // Conditions outside the class may differ on another node, so the class itself may fit.
            class.fits |= unfit.is_none();
            if unfit.is_none() && conditions.differs() {
                unfit = conditions.own(&mut ctx.matcher, node).err().map(Rc::from);
            }
            let wish =
                if conditions.wishes_escape() { conditions.wish(&mut ctx.matcher, node) } else { class.wish };
            if let Some(reason) = unfit {
                if !node.node_class.is_empty() {
                    metric::add(&mut self.metric.counts_mut().class_filtered, &node.node_class);
                }
                match reasons.iter_mut().find(|(known, _)| Rc::ptr_eq(known, &reason)) {
                    Some((_, count)) => *count += 1,
                    None => reasons.push((Rc::clone(&reason), 1)),
                }
                self.unfit.push((at, reason));
                continue;
            }
            let bucket = if self.axes.is_empty() && !self.buckets.is_empty() {
                0
            } else {
                let values = self.axes.values(node);
                *buckets.entry(values.clone()).or_insert_with(|| {
                    self.buckets.push(Bucket { values, lanes: Vec::new() });
                    self.buckets.len() - 1
                })
            };
            // The candidate is not evaluated yet, so it is treated as exhausted.
            let standing = Standing::Out(Reject::Exhaust(String::new()));
            let capacity = Amount::capacity(node);
            self.candidates.push(Candidate { at, capacity, wish, tie, bucket, standing });
        }
        for (reason, count) in reasons {
            let counts = self.metric.counts_mut();
            counts.nodes_filtered += count;
            *counts.constraint_filtered.or_default(reason.as_ref().to_owned()) += count;
        }
        self.classes = shared.into_iter().flatten().map(|class| (class.name, class.fits)).collect();
        self.metric.counts_mut().nodes_evaluated = u32::try_from(field.nodes.len()).unwrap_or(u32::MAX);
        // Reading all sums is one pass; each lookup is a search.
        if self.candidates.len() * 16 > field.nodes.len() {
            ctx.read_usage();
        }
        if self.alone {
            return;
        }
        let mut lanes: Vec<Vec<Vec<Rank>>> = vec![Vec::new(); self.buckets.len()];
        for index in 0..self.candidates.len() {
            match self.assess(ctx, index) {
                Ok(score) => {
                    let candidate = &mut self.candidates[index];
                    candidate.standing = Standing::Open(score);
                    let (sum, terms) = score.base();
                    let of_bucket = &mut lanes[candidate.bucket];
                    let lane = usize::from(terms - 1);
                    of_bucket.resize(of_bucket.len().max(lane + 1), Vec::new());
                    of_bucket[lane].push(Rank::new(sum, candidate.tie, index));
                }
                Err(reject) => self.put_out(ctx, index, reject),
            }
        }
        for (bucket, lanes) in self.buckets.iter_mut().zip(lanes) {
            bucket.lanes = lanes.into_iter().map(|lane| lane.into_iter().collect()).collect();
        }
    }

    /// Returns whether the result depends on the allocation's name.
    pub fn differs_by_name(&self) -> bool {
        self.group.volumes.values().any(|v| v.per_alloc)
    }

    /// Returns whether volumes must be checked for each allocation again.
    pub fn has_volumes(&self) -> bool {
        self.has_csi || self.has_host
    }

    /// Returns whether all allocations get the same resources on every node.
    pub fn gives_all_the_same(&self) -> bool {
        self.group.networks.is_empty() && self.ask.cores == 0 && !self.has_devices
    }

    /// Returns the candidate at a node's position.
    pub fn candidate_at(&self, at: usize) -> Option<usize> {
        self.candidates.binary_search_by_key(&at, |candidate| candidate.at).ok()
    }

    /// Returns the reason that the node at a position cannot run the group at all, if there is one.
    pub fn unfit(&self, at: usize) -> Option<&str> {
        let found = self.unfit.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(self.unfit[found].1.as_ref())
    }

    /// Applies the changes since the last call.
    pub fn catch_up<V: View>(&mut self, ctx: &mut Context<'_, V>) {
        if self.seen == ctx.log.len() {
            return;
        }
        let mut dirty = BTreeSet::new();
        for touch in &ctx.log[self.seen..] {
            self.axes.follow(ctx, touch);
            dirty.extend(touch.at.and_then(|at| self.candidate_at(at)));
        }
        self.seen = ctx.log.len();
        if !self.alone {
            dirty.into_iter().for_each(|index| self.look_again(ctx, index));
        }
    }

    fn look_again<V: View>(&mut self, ctx: &mut Context<'_, V>, index: usize) {
        let candidate = &self.candidates[index];
        let node = &ctx.nodes[candidate.at];
        match &candidate.standing {
            Standing::Open(score) => {
                let (sum, terms) = score.base();
                let rank = Rank::new(sum, candidate.tie, index);
                self.buckets[candidate.bucket].lanes[usize::from(terms - 1)].remove(&rank);
            }
            Standing::Out(Reject::Filter(reason, _)) => metric::unfilter(&mut self.metric, node, reason),
            Standing::Out(Reject::Exhaust(dimension)) => {
                metric::unexhaust(&mut self.metric, node, dimension);
            }
        }
        match self.assess(ctx, index) {
            Ok(score) => {
                let candidate = &mut self.candidates[index];
                candidate.standing = Standing::Open(score);
                let (sum, terms) = score.base();
                let lanes = &mut self.buckets[candidate.bucket].lanes;
                let lane = usize::from(terms - 1);
                lanes.resize(lanes.len().max(lane + 1), BTreeSet::new());
                lanes[lane].insert(Rank::new(sum, candidate.tie, index));
            }
            Err(reject) => self.put_out(ctx, index, reject),
        }
    }

    fn put_out<V: View>(&mut self, ctx: &Context<'_, V>, index: usize, reject: Reject) {
        let candidate = &mut self.candidates[index];
        let node = &ctx.nodes[candidate.at];
        match &reject {
            Reject::Filter(reason, _) => metric::filter(&mut self.metric, node, reason),
            Reject::Exhaust(dimension) => metric::exhaust(&mut self.metric, node, dimension),
        }
        candidate.standing = Standing::Out(reject);
    }

    /// Returns the scores of a candidate, as far as they are the same for all of the group's allocations. The error
    /// is the reason that it has no room.
    pub fn assess<V: View>(&self, ctx: &mut Context<'_, V>, index: usize) -> Result<Score, Reject> {
        let candidate = &self.candidates[index];
        let (at, group) = (candidate.at, self.group);
        let nodes = ctx.nodes;
        let node = &nodes[at];
        let algorithm = ctx.rules.algorithm;
        let desired = self.ask.on(node);
        if self.ask.cores > 0 {
            cores::pick(node, &ctx.detail(at).cores, self.ask.cores, self.numa)
                .map_err(|dimension| Reject::Exhaust(dimension.to_owned()))?;
        }
        let usage = ctx.usage(at);
        if let Some(whole_job) = self.distinct_hosts {
            let here = if whole_job { usage.own.all() } else { usage.own.count(self.position) };
            if here > 0 {
                return Err(Reject::filter("distinct_hosts"));
            }
        }
        if let Some(dimension) = desired.lacking(usage.amount, candidate.capacity) {
            return Err(Reject::Exhaust(dimension.to_owned()));
        }
        if node.node_max_allocs > 0 && i64::from(usage.allocs) >= node.node_max_allocs {
            return Err(Reject::Exhaust(TOO_MANY.to_owned()));
        }
        let mut score = Score {
            fill: rank::fill(algorithm, &candidate.capacity, &usage.amount.plus(desired)),
            apart: if self.alone { 0.0 } else { rank::apart(usage.own.count(self.position), group.count) },
            wish: candidate.wish,
            ..Score::default()
        };
        if self.has_fixed_ports {
            ports::fixed_are_free(node, &ctx.detail(at).ports, group).map_err(Reject::Exhaust)?;
        }
        if self.has_devices {
            let (detail, matcher, _) = ctx.detail_and_tools(at);
            let taken = (&detail.cores, &detail.devices);
            let (_, offer) = exclusive::pick(matcher, node, taken, group, (self.ask.cores, self.numa))
                .map_err(Reject::Exhaust)?;
            score.devices = offer.affinity.unwrap_or(0.0);
        }
        Ok(score)
    }
}
