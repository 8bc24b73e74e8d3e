//! The feasibility of nodes: whether a node can ever run a group, independent of the other allocations there.

use crate::caps::AddedCapabilities;
use caravan_lang::constraint::{Matcher, Operator, Targets};
use caravan_lang::glob;
use caravan_types::job::{Affinity, Constraint, Job, Task, TaskGroup};
use caravan_types::node::Node;
use std::borrow::Cow;

/// The metrics key of nodes whose driver does not allow privileged plugins.
const NO_PRIVILEGED_PLUGINS: &str = "node does not allow privileged plugins";

/// Returns whether a task is a CSI node plugin under a driver that needs the node's consent to privileged plugins.
/// For raw_exec, enabling the driver on the node is the consent.
fn needs_privileged_plugins(task: &Task) -> bool {
    task.driver == "exec" && task.csi_plugin_config.as_ref().is_some_and(|plugin| plugin.kind.has_node())
}

fn allows_privileged_plugins(node: &Node) -> bool {
    node.attributes.get("driver.exec.privileged_plugins").is_some_and(|value| value == "true")
}

/// The variables of a node that conditions may use.
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

/// Returns whether the node is in the job's pool. The pool `all` contains every node.
pub(crate) fn in_pool(job: &Job, node: &Node) -> bool {
    let desired = pool_of(&job.node_pool);
    desired == "all" || desired == pool_of(&node.node_pool)
}

/// Returns whether the node is in one of the job's datacenters. A job without datacenters runs in all.
pub(crate) fn in_datacenters(job: &Job, node: &Node) -> bool {
    job.datacenters.is_empty() || job.datacenters.iter().any(|dc| glob::matches(dc, &node.datacenter))
}

/// Returns the constraints of job, group and tasks, in this order.
pub(crate) fn constraints<'a>(job: &'a Job, group: &'a TaskGroup) -> impl Iterator<Item = &'a Constraint> {
    let tasks = group.tasks.iter().flat_map(|t| &t.constraints);
    job.constraints.iter().chain(&group.constraints).chain(tasks)
}

/// Returns the affinities of job, group and tasks, in this order.
pub(crate) fn affinities<'a>(job: &'a Job, group: &'a TaskGroup) -> impl Iterator<Item = &'a Affinity> {
    let tasks = group.tasks.iter().flat_map(|t| &t.affinities);
    job.affinities.iter().chain(&group.affinities).chain(tasks)
}

fn unique(side: &str) -> bool {
    ["${node.unique.", "${attr.unique.", "${meta.unique."].iter().any(|prefix| side.starts_with(prefix))
}

/// Returns whether a constraint refers to a property that differs between nodes of one class.
pub(crate) fn escapes(constraint: &Constraint) -> bool {
    unique(&constraint.l_target) || unique(&constraint.r_target)
}

/// Returns whether a node meets the constraints; constraints on other allocations are ignored.
pub fn meets(node: &Node, constraints: &[Constraint]) -> bool {
    let (mut matcher, targets) = (Matcher::new(), NodeTargets(node));
    constraints.iter().all(|constraint| {
        Operator::parse(&constraint.operand)
            .is_ok_and(|op| matcher.holds(&constraint.l_target, op, &constraint.r_target, &targets))
    })
}

/// The conditions of a group on a node itself, parsed once and applied to many nodes.
///
/// Nodes of one computed class share the results, except for conditions on unique properties of a node.
pub(crate) struct Conditions<'a> {
    group: &'a TaskGroup,
    constraints: Vec<(&'a Constraint, Option<Operator>)>,
    affinities: Vec<(&'a Affinity, Option<Operator>)>,
    /// Whether some constraint or affinity refers to a unique property of a node.
    pub escaped: bool,
    wishes_escape: bool,
    /// Whether a task is a plugin that needs the node's consent to privileged plugins.
    privileged_plugin: bool,
    capabilities: AddedCapabilities,
    has_devices: bool,
    has_host_networks: bool,
}

impl<'a> Conditions<'a> {
    pub fn collect(job: &'a Job, group: &'a TaskGroup) -> Self {
        let affinities: Vec<_> =
            affinities(job, group).map(|wish| (wish, Operator::parse(&wish.operand).ok())).collect();
        Self {
            group,
            constraints: constraints(job, group)
                .map(|constraint| (constraint, Operator::parse(&constraint.operand).ok()))
                .filter(|(_, operator)| operator.is_none_or(|o| !o.is_distinct()))
                .collect(),
            escaped: constraints(job, group).any(escapes),
            wishes_escape: affinities
                .iter()
                .any(|(wish, _)| unique(&wish.l_target) || unique(&wish.r_target)),
            affinities,
            privileged_plugin: group.tasks.iter().any(needs_privileged_plugins),
            // The driver grants such a plugin every capability, independent of `cap_add`.
            capabilities: AddedCapabilities::new(group, |task| !needs_privileged_plugins(task)),
            has_devices: crate::device::requested(group).next().is_some(),
            has_host_networks: group
                .networks
                .iter()
                .flat_map(|network| network.reserved_ports.iter().chain(&network.dynamic_ports))
                .any(|port| !port.host_network.is_empty()),
        }
    }

    /// Returns the first constraint that the node does not meet. `escaping` selects the constraints that escape the
    /// class, or else the class constraints.
    fn unmet(&self, matcher: &mut Matcher, node: &Node, escaping: bool) -> Option<&'a Constraint> {
        let targets = NodeTargets(node);
        let of_kind = self.constraints.iter().filter(|(c, _)| !self.escaped || escapes(c) == escaping);
        of_kind
            .filter(|_| self.escaped || !escaping)
            .find(|(c, operator)| {
                !operator.is_some_and(|op| matcher.holds(&c.l_target, op, &c.r_target, &targets))
            })
            .map(|(c, _)| *c)
    }

    /// Checks the conditions that all nodes of a class share. The error is the key of the metric.
    pub fn class(&self, matcher: &mut Matcher, node: &Node) -> Result<(), String> {
        if let Some(constraint) = self.unmet(matcher, node, false) {
            return Err(constraint.to_string());
        }
        let has_driver = |name: &str| node.drivers.get(name).is_some_and(|d| d.detected && d.healthy);
        if !self.group.tasks.iter().all(|task| has_driver(&task.driver)) {
            return Err("missing drivers".to_owned());
        }
        if self.privileged_plugin && !allows_privileged_plugins(node) {
            return Err(NO_PRIVILEGED_PLUGINS.to_owned());
        }
        self.capabilities.check(node)?;
        if self.has_devices && !crate::device::known(matcher, node, self.group) {
            return Err("missing devices".to_owned());
        }
        if !crate::ports::supported(node, self.group) {
            return Err("missing network".to_owned());
        }
        Ok(())
    }

    /// Returns whether the result may differ between nodes of a class.
    pub fn differs(&self) -> bool {
        self.escaped || self.has_host_networks || self.has_devices
    }

    /// Checks the conditions that may differ between nodes of a class. The error is the key of the metric.
    pub fn own(&self, matcher: &mut Matcher, node: &Node) -> Result<(), String> {
        if self.escaped
            && let Some(constraint) = self.unmet(matcher, node, true)
        {
            return Err(constraint.to_string());
        }
        // Nodes of a class have the same kinds of devices, but not the same number of instances.
        if self.has_devices && !crate::device::exist(matcher, node, self.group) {
            return Err("missing devices".to_owned());
        }
        match crate::ports::missing_host_network(node, self.group) {
            Some(reason) if self.has_host_networks => Err(reason),
            _ => Ok(()),
        }
    }

    /// Returns the degree to which a node meets the group's affinities, between -1 and 1; 0 without affinities.
    pub fn wish(&self, matcher: &mut Matcher, node: &Node) -> f64 {
        let targets = NodeTargets(node);
        let (mut met, mut total) = (0_i64, 0_i64);
        for (wish, operator) in &self.affinities {
            total = total.saturating_add(wish.weight.saturating_abs());
            if operator.is_some_and(|op| matcher.holds(&wish.l_target, op, &wish.r_target, &targets)) {
                met = met.saturating_add(wish.weight);
            }
        }
        crate::rank::ratio(met, total)
    }

    /// Returns whether the affinity score may differ between nodes of a class.
    pub fn wishes_escape(&self) -> bool {
        self.wishes_escape
    }
}

/// Checks whether a node can run a group. The error is the key of the metric.
pub(crate) fn check(matcher: &mut Matcher, job: &Job, group: &TaskGroup, node: &Node) -> Result<(), String> {
    let conditions = Conditions::collect(job, group);
    conditions.class(matcher, node).and_then(|()| conditions.own(matcher, node))
}
