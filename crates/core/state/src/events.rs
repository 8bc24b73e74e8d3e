//! Events for users, and a bounded log of the newest of them. An event has a row that a command wrote, with the name
//! and type of the event stream (docs/reference/http-api.md, section 4.3).

mod coalesce;
mod log;
#[cfg(test)]
mod tests;
mod weight;

pub use coalesce::{EventObject, Pending};
pub use log::{
    CoalescedReader, EVENT_BUFFER, EVENT_BUFFER_BYTES, EventBatch, EventLimit, EventLog, EventReader,
    EventsMissed,
};

use crate::changes::{ChangeSet, Changed};
use crate::root::{Root, Snapshot};
use crate::rows::AllocRows;
use crate::tenancy::AdminRow;
use caravan_types::acl::{AuthMethod, BindingRule, Policy, Role, Token};
use caravan_types::alloc::Allocation;
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::host_volume::HostVolume;
use caravan_types::job::Job;
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node::{Node, NodeStatus};
use caravan_types::node_pool::NodePool;
use caravan_types::plugin::{Plugin, Reports};
use caravan_types::service::ServiceRegistration;
use caravan_types::variable::Variable;
use caravan_types::volume::{Claim, Volume};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The rows that belong to a volume's row: the claims that hold the volume, their allocations, and the plugin. An
/// event holds these rows instead of the whole state, which would keep all rows of its time in memory.
#[derive(Clone, Debug, Default)]
pub struct VolumeUse {
    /// The claims that hold the volume, each with its allocation, if the allocation exists.
    pub claims: Vec<(Arc<Claim>, Option<Arc<Allocation>>)>,
    /// The plugin, or `None` if it is unknown.
    pub plugin: Option<Arc<Plugin>>,
}

impl VolumeUse {
    /// Returns the rows that belong to a volume.
    pub fn collect(root: &Root, volume: &Volume) -> Self {
        let held = root.claims_of(&volume.key()).filter(|claim| claim.phase.holds());
        Self {
            claims: held.map(|claim| (claim.clone(), root.alloc(&claim.id.alloc).cloned())).collect(),
            plugin: root.plugin(&volume.plugin_id).cloned(),
        }
    }
}

/// The row of an event, after the command, or before it if the command removed the row.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is a row of the table of its name")]
pub enum EventRow {
    Job {
        row: Arc<Job>,
        deleted: bool,
    },
    Evaluation(Arc<Evaluation>),
    Allocation(Arc<Allocation>),
    Deployment(Arc<Deployment>),
    Node(Arc<Node>),
    /// A node that reported its allocations, and the index of the report. The report does not change the row itself.
    NodeReport {
        row: Arc<Node>,
        index: u64,
    },
    Service(Arc<ServiceRegistration>),
    HostVolume(Arc<HostVolume>),
    CsiVolume {
        /// The row of the volume.
        row: Arc<Volume>,
        /// The rows that belong to the volume, after the command.
        used: Arc<VolumeUse>,
    },
    CsiPlugin {
        row: Arc<Plugin>,
        /// The number of reports that the command wrote. The row shares all other reports with the state.
        written: usize,
    },
    Variable {
        row: Arc<Variable>,
        deleted: bool,
    },
    /// A namespace. Nomad has no such topic.
    Namespace {
        row: Arc<NamespaceSpec>,
        deleted: bool,
    },
    NodePool(Arc<NodePool>),
    AclPolicy(Arc<Policy>),
    AclToken(Arc<Token>),
    AclRole(Arc<Role>),
    AclAuthMethod(Arc<AuthMethod>),
    AclBindingRule(Arc<BindingRule>),
}

impl EventRow {
    /// Returns the topic of the event.
    pub fn topic(&self) -> &'static str {
        match self {
            Self::Job { .. } => "Job",
            Self::Evaluation(_) => "Evaluation",
            Self::Allocation(_) => "Allocation",
            Self::Deployment(_) => "Deployment",
            Self::Node(_) | Self::NodeReport { .. } => "Node",
            Self::Service(_) => "Service",
            Self::HostVolume(_) => "HostVolume",
            Self::CsiVolume { .. } => "CSIVolume",
            Self::CsiPlugin { .. } => "CSIPlugin",
            Self::Variable { .. } => "Variable",
            Self::Namespace { .. } => "Namespace",
            Self::NodePool(_) => "NodePool",
            Self::AclPolicy(_) => "ACLPolicy",
            Self::AclToken(_) => "ACLToken",
            Self::AclRole(_) => "ACLRole",
            Self::AclAuthMethod(_) => "ACLAuthMethod",
            Self::AclBindingRule(_) => "ACLBindingRule",
        }
    }

    /// Returns the id by which a subscriber selects the event.
    pub fn key(&self) -> String {
        match self {
            Self::Job { row, .. } => row.id.to_string(),
            Self::Evaluation(row) => row.id.to_string(),
            Self::Allocation(row) => row.id.to_string(),
            Self::Deployment(row) => row.id.to_string(),
            Self::Node(row) | Self::NodeReport { row, .. } => row.id.to_string(),
            Self::Service(row) => row.id.to_string(),
            // Nomad leaves this key empty: subscribers find the event by the other keys.
            Self::HostVolume(_) => String::new(),
            Self::CsiVolume { row, .. } => row.id.to_string(),
            Self::CsiPlugin { row, .. } => row.id.to_string(),
            Self::Variable { row, .. } => row.key.path.to_string(),
            Self::Namespace { row, .. } => row.name.to_string(),
            Self::NodePool(row) => row.name.clone(),
            Self::AclPolicy(row) => row.name.clone(),
            Self::AclToken(row) => row.accessor_id.clone(),
            Self::AclRole(row) => row.id.clone(),
            Self::AclAuthMethod(row) => row.name.clone(),
            Self::AclBindingRule(row) => row.id.clone(),
        }
    }

    /// Returns other ids that select the event, or `None` where Nomad has none.
    pub fn filter_keys(&self) -> Option<Vec<String>> {
        Some(match self {
            Self::Evaluation(row) => vec![row.job_id.to_string(), row.deployment_id.to_string()],
            Self::Allocation(row) => vec![row.job_id.to_string(), row.deployment_id.to_string()],
            Self::Deployment(row) => vec![row.job_id.to_string()],
            Self::Service(row) => vec![row.job_id.to_string(), row.service_name.clone()],
            Self::HostVolume(row) => vec![row.id.to_string(), row.name.clone(), row.plugin_id.to_string()],
            Self::CsiVolume { row, .. } => {
                vec![row.id.to_string(), row.name.clone(), row.plugin_id.to_string()]
            }
            Self::CsiPlugin { row, .. } => vec![row.id.to_string()],
            Self::AclRole(row) => vec![row.name.clone()],
            Self::AclBindingRule(row) => vec![row.auth_method.clone()],
            Self::Job { .. }
            | Self::Node(_)
            | Self::NodeReport { .. }
            | Self::Variable { .. }
            | Self::Namespace { .. }
            | Self::NodePool(_)
            | Self::AclPolicy(_)
            | Self::AclToken(_)
            | Self::AclAuthMethod(_) => return None,
        })
    }

    /// Returns the namespace, which is empty for rows without one.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Job { row, .. } => row.namespace.as_str(),
            Self::Evaluation(row) => row.namespace.as_str(),
            Self::Allocation(row) => row.namespace.as_str(),
            Self::Deployment(row) => row.namespace.as_str(),
            Self::Service(row) => row.namespace.as_str(),
            Self::HostVolume(row) => row.namespace.as_str(),
            Self::CsiVolume { row, .. } => row.namespace.as_str(),
            Self::Variable { row, .. } => row.key.namespace.as_str(),
            Self::Namespace { row, .. } => row.name.as_str(),
            Self::Node(_)
            | Self::NodeReport { .. }
            | Self::CsiPlugin { .. }
            | Self::NodePool(_)
            | Self::AclPolicy(_)
            | Self::AclToken(_)
            | Self::AclRole(_)
            | Self::AclAuthMethod(_)
            | Self::AclBindingRule(_) => "",
        }
    }
}

/// A change of a row.
#[derive(Clone, Debug)]
pub struct Event {
    /// The type of the event, with Nomad's name.
    pub kind: &'static str,
    /// The changed row.
    pub row: EventRow,
}

/// Returns the event type for the kind of a command. Internal commands of the servers cause no events (`None`).
/// Unknown commands get the type of their row.
fn kind_of(command: &str, row: &EventRow, removed: bool) -> Option<&'static str> {
    // Types that do not depend on the command.
    match row {
        EventRow::HostVolume(_) => {
            return Some(if removed { "HostVolumeDeleted" } else { "HostVolumeRegistered" });
        }
        EventRow::Variable { .. } => return Some("VariableUpdated"),
        EventRow::Service(_) => {
            return Some(if removed { "ServiceDeregistration" } else { "ServiceRegistration" });
        }
        EventRow::CsiVolume { .. } => {
            return Some(match (command, removed) {
                (_, true) => "CSIVolumeDeregistered",
                ("VolumeWrite", _) => "CSIVolumeRegistered",
                _ => "CSIVolumeClaim",
            });
        }
        EventRow::Namespace { .. } => {
            return Some(if removed { "NamespaceDeleted" } else { "NamespaceUpserted" });
        }
        EventRow::NodePool(_) => return Some(if removed { "NodePoolDeleted" } else { "NodePoolUpserted" }),
        EventRow::AclPolicy(_) => {
            return Some(if removed { "ACLPolicyDeleted" } else { "ACLPolicyUpserted" });
        }
        EventRow::AclToken(_) => return Some(if removed { "ACLTokenDeleted" } else { "ACLTokenUpserted" }),
        EventRow::AclRole(_) => return Some(if removed { "ACLRoleDeleted" } else { "ACLRoleUpserted" }),
        EventRow::AclAuthMethod(_) => {
            return Some(if removed { "ACLAuthMethodDeleted" } else { "ACLAuthMethodUpserted" });
        }
        EventRow::AclBindingRule(_) => {
            return Some(if removed { "ACLBindingRuleDeleted" } else { "ACLBindingRuleUpserted" });
        }
        _ => {}
    }
    Some(match command {
        "Collect" => return None,
        "NodeRegister" => "NodeRegistration",
        "NodeStatus" | "NodeEvents" => "NodeStreamEvent",
        "NodeEligibility" => "NodeEligibility",
        "NodeDrain" => "NodeDrain",
        "NodeDelete" => "NodeDeregistration",
        "JobRegister" => "JobRegistered",
        "JobDeregister" => "JobDeregistered",
        "Evals" => "EvaluationUpdated",
        "Plan" => "PlanResult",
        "AllocUpdates" => "AllocationUpdated",
        "AllocTransitions" => "AllocationUpdateDesiredStatus",
        "Deployments" => "DeploymentStatusUpdate",
        _ => match row {
            EventRow::Job { .. } if removed => "JobDeregistered",
            EventRow::Job { .. } => "JobRegistered",
            EventRow::Evaluation(_) => "EvaluationUpdated",
            EventRow::Allocation(_) => "AllocationUpdated",
            EventRow::Deployment(_) => "DeploymentStatusUpdate",
            EventRow::Node(_) if removed => "NodeDeregistration",
            _ => "NodeStreamEvent",
        },
    })
}

/// Returns the row that an operator wrote, if it has a topic.
fn operators_row(root: &Root, id: &AdminRow, deleted: bool) -> Option<EventRow> {
    match id {
        AdminRow::Namespace(name) => {
            root.namespace(name).cloned().map(|row| EventRow::Namespace { row, deleted })
        }
        AdminRow::NodePool(name) => root.node_pool(name).cloned().map(EventRow::NodePool),
        AdminRow::Policy(name) => root.acl_policy(name).cloned().map(EventRow::AclPolicy),
        AdminRow::Token(accessor) => root.acl_token(accessor).cloned().map(EventRow::AclToken),
        AdminRow::Role(id) => root.acl_role(id).cloned().map(EventRow::AclRole),
        AdminRow::AuthMethod(name) => root.auth_method(name).cloned().map(EventRow::AclAuthMethod),
        AdminRow::BindingRule(id) => root.binding_rule(id).cloned().map(EventRow::AclBindingRule),
        AdminRow::OneTimeToken(_) | AdminRow::RootKey(_) | AdminRow::Settings => None,
    }
}

/// Returns the row of an event about a plugin. `before` is the plugin's previous row.
fn plugin(before: Option<&Arc<Plugin>>, after: &Arc<Plugin>) -> EventRow {
    let none = Reports::new();
    let (controllers, nodes) = before.map_or((&none, &none), |row| (&row.controllers, &row.nodes));
    let written = controllers.diff(&after.controllers).chain(nodes.diff(&after.nodes)).count();
    EventRow::CsiPlugin { row: after.clone(), written }
}

/// Returns the events of a command: one for each row, in the order of the set.
pub(crate) fn events(set: &ChangeSet, before: &Root, after: &Snapshot, allocs: &AllocRows) -> Vec<Event> {
    let volume = |row: Arc<Volume>| {
        let used = Arc::new(VolumeUse::collect(after, &row));
        EventRow::CsiVolume { row, used }
    };
    let mut out = Vec::new();
    let mut volumes = BTreeSet::new();
    for changed in &set.changes {
        let (row, removed) = match changed {
            Changed::Node(id) => (after.node(id).cloned().map(EventRow::Node), false),
            Changed::NodeRemoved(id) => (before.node(id).cloned().map(EventRow::Node), true),
            Changed::Job(key) => {
                (after.job(key).cloned().map(|row| EventRow::Job { row, deleted: false }), false)
            }
            Changed::JobRemoved(key) => {
                (before.job(key).cloned().map(|row| EventRow::Job { row, deleted: true }), true)
            }
            Changed::Eval(id) => (after.eval(id).cloned().map(EventRow::Evaluation), false),
            Changed::Alloc(id) => (allocs.get(id).1.cloned().map(EventRow::Allocation), false),
            Changed::Deployment(id) => (after.deployment(id).cloned().map(EventRow::Deployment), false),
            Changed::Service(id) => (after.service(id).cloned().map(EventRow::Service), false),
            Changed::ServiceRemoved(id) => (before.service(id).cloned().map(EventRow::Service), true),
            Changed::HostVolume(id) => (after.host_volume(id).cloned().map(EventRow::HostVolume), false),
            Changed::HostVolumeRemoved(id) => {
                (before.host_volume(id).cloned().map(EventRow::HostVolume), true)
            }
            Changed::Volume(key) => {
                (after.volume(key).filter(|_| volumes.insert(key.clone())).cloned().map(volume), false)
            }
            Changed::VolumeRemoved(key) => (before.volume(key).cloned().map(volume), true),
            Changed::Claim(id) => {
                let row = after.volume(&id.volume).filter(|_| volumes.insert(id.volume.clone()));
                (row.cloned().map(volume), false)
            }
            Changed::Plugin(id) => (after.plugin(id).map(|row| plugin(before.plugin(id), row)), false),
            Changed::PluginRemoved(id) => (before.plugin(id).map(|row| plugin(Some(row), row)), true),
            Changed::Variable(key) => {
                (after.variable(key).cloned().map(|row| EventRow::Variable { row, deleted: false }), false)
            }
            Changed::VariableRemoved(key) => {
                (before.variable(key).cloned().map(|row| EventRow::Variable { row, deleted: true }), true)
            }
            Changed::Admin(id) => (operators_row(after, id, false), false),
            Changed::AdminRemoved(id) => (operators_row(before, id, true), true),
            // Garbage-collected rows, derived counts and rows without a topic.
            _ => (None, false),
        };
        if let Some(row) = row
            && let Some(kind) = kind_of(set.kind, &row, removed)
        {
            // One command here corresponds to two in Nomad, so it causes two events. Subscribers wait for the second
            // event under its own name.
            match (kind, &row) {
                // A plan completes its evaluation.
                ("PlanResult", EventRow::Evaluation(eval)) => {
                    let planned = before.eval(&eval.id).unwrap_or(eval).clone();
                    out.push(Event { kind, row: EventRow::Evaluation(planned) });
                    out.push(Event { kind: "EvaluationUpdated", row });
                }
                // A node that registers is ready.
                ("NodeRegistration", EventRow::Node(node)) => {
                    let was = before.node(&node.id).map(|node| node.status);
                    let turns = node.status == NodeStatus::Ready && was != Some(NodeStatus::Ready);
                    let ready = turns.then(|| Event { kind: "NodeStreamEvent", row: row.clone() });
                    out.push(Event { kind, row });
                    out.extend(ready);
                }
                _ => out.push(Event { kind, row }),
            }
        }
    }
    if set.kind == "AllocUpdates" {
        reports(set.index, after, &mut out);
    }
    out
}

/// Replaces the events of the nodes whose allocations were updated by one event for each node. Such nodes are many,
/// so their rows are shared.
fn reports(index: u64, after: &Root, out: &mut Vec<Event>) {
    let node = |event: &Event| match &event.row {
        EventRow::Allocation(alloc) => Some(alloc.node_id.clone()),
        _ => None,
    };
    let reported: BTreeSet<_> = out.iter().filter_map(node).collect();
    // A node that the command also wrote appears in its current form, by this event alone.
    out.retain(|event| !matches!(&event.row, EventRow::Node(row) if reported.contains(&row.id)));
    let rows = reported.iter().filter_map(|id| after.node(id));
    let kind = "AllocationUpdated";
    out.extend(rows.map(|row| Event { kind, row: EventRow::NodeReport { row: row.clone(), index } }));
}
