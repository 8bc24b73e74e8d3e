//! Whether a node can ever run a group: checks that do not depend on what else runs there.

use caravan_lang::constraint::{Matcher, Operator, Targets};
use caravan_lang::glob;
use caravan_types::job::{Affinity, Constraint, Job, TaskGroup};
use caravan_types::node::Node;
use std::borrow::Cow;

/// Why a node is out of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// Key of the metric.
    pub reason: String,
    /// Whether all nodes of the same computed class share it.
    pub by_class: bool,
}

impl Unfit {
    fn class(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), by_class: true }
    }
}

/// The names that conditions may use of a node.
pub(crate) struct NodeTargets<'a>(pub &'a Node);

impl Targets for NodeTargets<'_> {
    fn target(&self, name: &str) -> Option<Cow<'_, str>> {
        let node = self.0;
        if let Some(key) = name.strip_prefix("attr.") {
            return node.attributes.get(key).map(|v| Cow::Borrowed(v.as_str()));
        }
        if let Some(key) = name.strip_prefix("meta.") {
            return node.meta.get(key).map(|v| Cow::Borrowed(v.as_str()));
        }
        Some(Cow::Borrowed(match name {
            "node.unique.id" => node.id.as_str(),
            "node.unique.name" => &node.name,
            "node.datacenter" => &node.datacenter,
            "node.class" => &node.node_class,
            "node.pool" => pool_of(&node.node_pool),
            _ => return None,
        }))
    }
}

fn pool_of(name: &str) -> &str {
    if name.is_empty() { "default" } else { name }
}

/// Whether the node is in the job's pool. The pool `all` has every node.
pub(crate) fn in_pool(job: &Job, node: &Node) -> bool {
    let wanted = pool_of(&job.node_pool);
    wanted == "all" || wanted == pool_of(&node.node_pool)
}

/// Whether the node is in one of the job's datacenters; a job that names none runs in all.
pub(crate) fn in_datacenters(job: &Job, node: &Node) -> bool {
    job.datacenters.is_empty() || job.datacenters.iter().any(|dc| glob::matches(dc, &node.datacenter))
}

/// The conditions of job, group and tasks, in this order.
pub(crate) fn constraints<'a>(job: &'a Job, group: &'a TaskGroup) -> impl Iterator<Item = &'a Constraint> {
    let tasks = group.tasks.iter().flat_map(|t| &t.constraints);
    job.constraints.iter().chain(&group.constraints).chain(tasks)
}

/// The wishes of job, group and tasks.
pub(crate) fn affinities<'a>(job: &'a Job, group: &'a TaskGroup) -> impl Iterator<Item = &'a Affinity> {
    let tasks = group.tasks.iter().flat_map(|t| &t.affinities);
    job.affinities.iter().chain(&group.affinities).chain(tasks)
}

/// Whether a condition is about something that differs between nodes of one class.
pub(crate) fn escapes(constraint: &Constraint) -> bool {
    let unique = |side: &str| {
        ["${node.unique.", "${attr.unique.", "${meta.unique."].iter().any(|prefix| side.starts_with(prefix))
    };
    unique(&constraint.l_target) || unique(&constraint.r_target)
}

/// Whether a node meets conditions; those about other allocations are not meant.
pub fn meets(node: &Node, constraints: &[Constraint]) -> bool {
    let (mut matcher, targets) = (Matcher::new(), NodeTargets(node));
    constraints.iter().all(|constraint| {
        Operator::parse(&constraint.operand)
            .is_ok_and(|op| matcher.holds(&constraint.l_target, op, &constraint.r_target, &targets))
    })
}

/// Checks a node for a group.
pub(crate) fn check(matcher: &mut Matcher, job: &Job, group: &TaskGroup, node: &Node) -> Result<(), Unfit> {
    let targets = NodeTargets(node);
    for constraint in constraints(job, group) {
        let holds = Operator::parse(&constraint.operand)
            .is_ok_and(|op| matcher.holds(&constraint.l_target, op, &constraint.r_target, &targets));
        if !holds {
            return Err(Unfit { reason: constraint.to_string(), by_class: !escapes(constraint) });
        }
    }
    let has_driver = |name: &str| node.drivers.get(name).is_some_and(|d| d.detected && d.healthy);
    if !group.tasks.iter().all(|task| has_driver(&task.driver)) {
        return Err(Unfit::class("missing drivers"));
    }
    // Devices are reported but not handed out yet (`docs/gaps.md`): no node has what was asked for.
    if group.tasks.iter().flat_map(|t| &t.resources.devices).any(|d| d.count > 0) {
        return Err(Unfit::class("missing devices"));
    }
    if !crate::ports::supported(group) {
        return Err(Unfit::class("missing network"));
    }
    Ok(())
}

/// How much a node meets the group's wishes, between -1 and 1; none when there is no wish.
pub(crate) fn affinity(matcher: &mut Matcher, job: &Job, group: &TaskGroup, node: &Node) -> Option<f64> {
    let targets = NodeTargets(node);
    let (mut met, mut total) = (0_i64, 0_i64);
    for wish in affinities(job, group) {
        total = total.saturating_add(wish.weight.saturating_abs());
        let holds = Operator::parse(&wish.operand)
            .is_ok_and(|op| matcher.holds(&wish.l_target, op, &wish.r_target, &targets));
        if holds {
            met = met.saturating_add(wish.weight);
        }
    }
    (total != 0).then(|| crate::rank::ratio(met, total))
}
