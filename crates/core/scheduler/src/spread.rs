//! The node properties by which a group's allocations are counted: `spread` blocks and `distinct_property`
//! (docs/reference/jobspec.md, section 4.4).
//!
//! Nodes with the same values of all properties form a bucket. The counts are the same for all nodes of a bucket, so
//! a placement changes the figures of buckets, not of nodes.

use crate::context::{Context, Touch};
use crate::feasible::NodeTargets;
use crate::view::View;
use caravan_lang::constraint::{Operator, resolve};
use caravan_types::NodeId;
use caravan_types::job::{Job, Spread, TaskGroup};
use caravan_types::node::Node;
use std::collections::HashMap;

enum Kind {
    /// The allocations are spread evenly over all values.
    Even,
    /// The property has desired counts: one for each named value, and one for every other value.
    Targets { desired: HashMap<String, f64>, others: Option<f64> },
    /// One value may have at most this number of allocations.
    Distinct { limit: u32 },
}

struct Axis {
    attribute: String,
    /// The position of the only group whose allocations count; `None` if all allocations of the job count.
    group: Option<usize>,
    kind: Kind,
    /// The share of this property in the weight of all spreads.
    share: f64,
    values: Vec<String>,
    known: HashMap<String, usize>,
    counts: Vec<u32>,
    /// Whether some candidate has the value, for each value.
    offered: Vec<bool>,
}

impl Axis {
    fn value(&mut self, node: &Node) -> Option<usize> {
        let targets = NodeTargets(node);
        let value = resolve(&self.attribute, &targets)?;
        if let Some(at) = self.known.get(value.as_ref()) {
            return Some(*at);
        }
        let (at, value) = (self.values.len(), value.into_owned());
        self.values.push(value.clone());
        self.known.insert(value, at);
        self.counts.push(0);
        self.offered.push(false);
        Some(at)
    }

    fn score(&self, value: Option<usize>, (low, high): (u32, u32)) -> f64 {
        // A node without the property cannot help to spread.
        let Some(value) = value else { return -1.0 };
        let count = f64::from(self.counts[value]);
        match &self.kind {
            Kind::Distinct { .. } => 0.0,
            Kind::Even if high == low => 0.0,
            Kind::Even => 1.0 - 2.0 * (count - f64::from(low)) / f64::from(high - low),
            Kind::Targets { desired, others } => {
                match desired.get(&self.values[value]).copied().or(*others) {
                    Some(desired) if desired > 0.0 => (desired - (count + 1.0)) / desired,
                    _ => -1.0,
                }
            }
        }
    }

    /// Returns the lowest and the highest count of the values that candidates have.
    fn range(&self) -> (u32, u32) {
        let offered = self.counts.iter().zip(&self.offered).filter(|(_, offered)| **offered);
        offered.fold((u32::MAX, 0), |(low, high), (count, _)| (low.min(*count), high.max(*count)))
    }
}

/// The values of a node, one for each property; `None` if the node lacks the property.
pub(crate) type Values = Vec<Option<usize>>;

/// All properties by which a group's allocations are counted.
pub(crate) struct Axes {
    axes: Vec<Axis>,
    /// Whether any of the properties is a `spread` block.
    spreads: bool,
}

impl Axes {
    /// Reads the properties of a group and counts the existing allocations.
    pub fn new<V: View>(ctx: &Context<'_, V>, job: &Job, position: usize, group: &TaskGroup) -> Self {
        let spreads: Vec<&Spread> = group.spreads.iter().chain(&job.spreads).collect();
        let total: i64 = spreads.iter().map(|spread| spread.weight.max(0)).sum();
        let mut axes: Vec<Axis> =
            spreads.iter().map(|spread| spread_axis(spread, position, group.count, total)).collect();
        axes.extend(distinct(job, position, group));
        let mut axes = Self { spreads: !spreads.is_empty(), axes };
        if !axes.axes.is_empty() {
            let own: Vec<(NodeId, usize)> = ctx.own_allocs().map(|(id, group)| (id.clone(), group)).collect();
            for (node, group) in own {
                axes.change(ctx, &node, group, true);
            }
        }
        axes
    }

    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// Returns the values of a candidate.
    pub fn values(&mut self, node: &Node) -> Values {
        let mut values = Values::with_capacity(self.axes.len());
        for axis in &mut self.axes {
            let value = axis.value(node);
            if let Some(value) = value {
                axis.offered[value] = true;
            }
            values.push(value);
        }
        values
    }

    /// Applies a change of the plan to the counts.
    pub fn follow<V: View>(&mut self, ctx: &Context<'_, V>, touch: &Touch) {
        if let (Some(group), false) = (touch.group, self.axes.is_empty()) {
            self.change(ctx, &touch.node, group, touch.more);
        }
    }

    fn change<V: View>(&mut self, ctx: &Context<'_, V>, node: &NodeId, group: usize, more: bool) {
        let Some(node) = ctx.view.node(node) else { return };
        for axis in self.axes.iter_mut().filter(|axis| axis.group.is_none_or(|only| only == group)) {
            if let Some(value) = axis.value(node) {
                let count = &mut axis.counts[value];
                *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
            }
        }
    }

    /// Returns the ranges of counts, for [`Axes::spread`] of all buckets at one moment.
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        self.axes.iter().map(Axis::range).collect()
    }

    /// Returns the degree to which a placement on nodes with these values spreads the group; `None` without `spread`
    /// blocks.
    pub fn spread(&self, values: &Values, ranges: &[(u32, u32)]) -> Option<f64> {
        let scores = self.axes.iter().zip(values).zip(ranges);
        self.spreads
            .then(|| scores.map(|((axis, value), range)| axis.share * axis.score(*value, *range)).sum())
    }

    /// Returns the reason that no node with these values may be used any more, if there is one.
    pub fn refusal(&self, values: &Values) -> Option<String> {
        self.axes.iter().zip(values).find_map(|(axis, value)| {
            let Kind::Distinct { limit } = axis.kind else { return None };
            let target = &axis.attribute;
            let Some(value) = *value else { return Some(format!("missing property {target:?}")) };
            let (name, used) = (&axis.values[value], axis.counts[value]);
            (used >= limit).then(|| format!("distinct_property: {target}={name} used by {used} allocs"))
        })
    }
}

fn axis(attribute: &str, group: Option<usize>, kind: Kind, share: f64) -> Axis {
    Axis {
        attribute: attribute.to_owned(),
        group,
        kind,
        share,
        values: Vec::new(),
        known: HashMap::new(),
        counts: Vec::new(),
        offered: Vec::new(),
    }
}

fn spread_axis(spread: &Spread, position: usize, count: u32, total: i64) -> Axis {
    let share_of = |percent: u32| f64::from(percent.min(100)) / 100.0 * f64::from(count);
    let kind = if spread.spread_target.is_empty() {
        Kind::Even
    } else {
        let sum: u32 = spread.spread_target.iter().map(|target| target.percent).sum();
        let desired = spread.spread_target.iter().map(|t| (t.value.clone(), share_of(t.percent))).collect();
        Kind::Targets { desired, others: (sum < 100).then(|| share_of(100 - sum)) }
    };
    axis(&spread.attribute, Some(position), kind, crate::rank::ratio(spread.weight.max(0), total))
}

fn distinct(job: &Job, position: usize, group: &TaskGroup) -> Vec<Axis> {
    let of_job = job.constraints.iter().map(|c| (c, None));
    let of_group = group.constraints.iter().map(|c| (c, Some(position)));
    of_job
        .chain(of_group)
        .filter(|(c, _)| matches!(Operator::parse(&c.operand), Ok(Operator::DistinctProperty)))
        .map(|(c, only)| {
            let limit = c.r_target.parse().unwrap_or(1);
            axis(&c.l_target, only, Kind::Distinct { limit }, 0.0)
        })
        .collect()
}

/// Returns whose allocations must be on different nodes: those of the job (`true`), those of the group (`false`), or
/// neither (`None`).
pub(crate) fn distinct_hosts(job: &Job, group: &TaskGroup) -> Option<bool> {
    let asks = |c: &&caravan_types::job::Constraint| {
        matches!(Operator::parse(&c.operand), Ok(Operator::DistinctHosts)) && c.r_target != "false"
    };
    if job.constraints.iter().any(|c| asks(&c)) {
        return Some(true);
    }
    group.constraints.iter().any(|c| asks(&c)).then_some(false)
}
