//! What happened, as users hear of it: the rows that a command wrote, named and typed as the event stream tells them
//! (docs/reference/http-api.md, section 4.3), and a bounded memory of the newest of them.

mod log;
#[cfg(test)]
mod tests;

pub use log::{EventBatch, EventLog, EventReader, EventsMissed};

use crate::changes::{ChangeSet, Changed};
use crate::root::{Root, Snapshot};
use crate::tenancy::AdminRow;
use caravan_types::acl::{AuthMethod, BindingRule, Policy, Role, Token};
use caravan_types::alloc::Allocation;
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::host_volume::HostVolume;
use caravan_types::job::Job;
use caravan_types::node::{Node, NodeStatus};
use caravan_types::node_pool::NodePool;
use caravan_types::plugin::Plugin;
use caravan_types::service::ServiceRegistration;
use caravan_types::variable::Variable;
use caravan_types::volume::Volume;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Indexes that are remembered where nothing else is said.
pub const EVENT_BUFFER: usize = 100;

/// The row of an event, as it was after the command, or before it where it was removed.
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
    /// A node that told how its allocations do, and at what index. The row itself does not change with that.
    NodeReport {
        row: Arc<Node>,
        index: u64,
    },
    Service(Arc<ServiceRegistration>),
    HostVolume(Arc<HostVolume>),
    CsiVolume {
        /// The row.
        row: Arc<Volume>,
        /// The state after the command, for its claims.
        root: Snapshot,
    },
    CsiPlugin(Arc<Plugin>),
    Variable {
        row: Arc<Variable>,
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
    /// The topic that it belongs to.
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
            Self::CsiPlugin(_) => "CSIPlugin",
            Self::Variable { .. } => "Variable",
            Self::NodePool(_) => "NodePool",
            Self::AclPolicy(_) => "ACLPolicy",
            Self::AclToken(_) => "ACLToken",
            Self::AclRole(_) => "ACLRole",
            Self::AclAuthMethod(_) => "ACLAuthMethod",
            Self::AclBindingRule(_) => "ACLBindingRule",
        }
    }

    /// The id that a subscriber names.
    pub fn key(&self) -> String {
        match self {
            Self::Job { row, .. } => row.id.to_string(),
            Self::Evaluation(row) => row.id.to_string(),
            Self::Allocation(row) => row.id.to_string(),
            Self::Deployment(row) => row.id.to_string(),
            Self::Node(row) | Self::NodeReport { row, .. } => row.id.to_string(),
            Self::Service(row) => row.id.to_string(),
            // The reference leaves this one empty: subscribers find it by the other keys.
            Self::HostVolume(_) => String::new(),
            Self::CsiVolume { row, .. } => row.id.to_string(),
            Self::CsiPlugin(row) => row.id.to_string(),
            Self::Variable { row, .. } => row.key.path.clone(),
            Self::NodePool(row) => row.name.clone(),
            Self::AclPolicy(row) => row.name.clone(),
            Self::AclToken(row) => row.accessor_id.clone(),
            Self::AclRole(row) => row.id.clone(),
            Self::AclAuthMethod(row) => row.name.clone(),
            Self::AclBindingRule(row) => row.id.clone(),
        }
    }

    /// Other ids under which it is found; none where the reference has none.
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
            Self::CsiPlugin(row) => vec![row.id.to_string()],
            Self::AclRole(row) => vec![row.name.clone()],
            Self::AclBindingRule(row) => vec![row.auth_method.clone()],
            Self::Job { .. }
            | Self::Node(_)
            | Self::NodeReport { .. }
            | Self::Variable { .. }
            | Self::NodePool(_)
            | Self::AclPolicy(_)
            | Self::AclToken(_)
            | Self::AclAuthMethod(_) => return None,
        })
    }

    /// The namespace; empty for what has none.
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
            Self::Node(_)
            | Self::NodeReport { .. }
            | Self::CsiPlugin(_)
            | Self::NodePool(_)
            | Self::AclPolicy(_)
            | Self::AclToken(_)
            | Self::AclRole(_)
            | Self::AclAuthMethod(_)
            | Self::AclBindingRule(_) => "",
        }
    }
}

/// Something that happened to a row.
#[derive(Clone, Debug)]
pub struct Event {
    /// What kind of command did it, in the reference's words.
    pub kind: &'static str,
    /// To what.
    pub row: EventRow,
}

/// The kind of an event by the kind of its command. Commands that are chores of the servers tell nothing (`None`);
/// commands that this table does not know are named by their row.
fn kind_of(command: &str, row: &EventRow, removed: bool) -> Option<&'static str> {
    // What carries its own words, whichever command it was.
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

/// The row that an operator wrote, if it has a topic.
fn operators_row(root: &Root, id: &AdminRow) -> Option<EventRow> {
    match id {
        AdminRow::NodePool(name) => root.node_pool(name).cloned().map(EventRow::NodePool),
        AdminRow::Policy(name) => root.acl_policy(name).cloned().map(EventRow::AclPolicy),
        AdminRow::Token(accessor) => root.acl_token(accessor).cloned().map(EventRow::AclToken),
        AdminRow::Role(id) => root.acl_role(id).cloned().map(EventRow::AclRole),
        AdminRow::AuthMethod(name) => root.auth_method(name).cloned().map(EventRow::AclAuthMethod),
        AdminRow::BindingRule(id) => root.binding_rule(id).cloned().map(EventRow::AclBindingRule),
        AdminRow::Namespace(_) | AdminRow::OneTimeToken(_) | AdminRow::RootKey(_) | AdminRow::Settings => {
            None
        }
    }
}

/// What users hear of a command: one event for each row, in the order of the set.
pub fn events(set: &ChangeSet, before: &Root, after: &Snapshot) -> Vec<Event> {
    let volume = |row: Arc<Volume>| EventRow::CsiVolume { row, root: after.clone() };
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
            Changed::Alloc(id) => (after.alloc(id).cloned().map(EventRow::Allocation), false),
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
            Changed::Plugin(id) => (after.plugin(id).cloned().map(EventRow::CsiPlugin), false),
            Changed::PluginRemoved(id) => (before.plugin(id).cloned().map(EventRow::CsiPlugin), true),
            Changed::Variable(key) => {
                (after.variable(key).cloned().map(|row| EventRow::Variable { row, deleted: false }), false)
            }
            Changed::VariableRemoved(key) => {
                (before.variable(key).cloned().map(|row| EventRow::Variable { row, deleted: true }), true)
            }
            Changed::Admin(id) => (operators_row(after, id), false),
            Changed::AdminRemoved(id) => (operators_row(before, id), true),
            // Collected rows, derived counts and rows without a topic.
            _ => (None, false),
        };
        if let Some(row) = row
            && let Some(kind) = kind_of(set.kind, &row, removed)
        {
            // One command here can be two steps in Nomad. Both events are emitted, because a reader may wait for the
            // second one by its name.
            match (kind, &row) {
                // A plan ends its evaluation.
                ("PlanResult", EventRow::Evaluation(eval)) => {
                    let planned = before.eval(&eval.id).unwrap_or(eval).clone();
                    out.push(Event { kind, row: EventRow::Evaluation(planned) });
                    out.push(Event { kind: "EvaluationUpdated", row });
                }
                // A node that comes is ready.
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

/// The nodes whose allocations were updated, once each. Those are many, so the rows are shared, not written.
fn reports(index: u64, after: &Root, out: &mut Vec<Event>) {
    let node = |event: &Event| match &event.row {
        EventRow::Allocation(alloc) => Some(alloc.node_id.clone()),
        _ => None,
    };
    let told: BTreeSet<_> = out.iter().filter_map(node).collect();
    // A node that the same command wrote gets only this event, which has its newest row.
    out.retain(|event| !matches!(&event.row, EventRow::Node(row) if told.contains(&row.id)));
    let rows = told.iter().filter_map(|id| after.node(id));
    let kind = "AllocationUpdated";
    out.extend(rows.map(|row| Event { kind, row: EventRow::NodeReport { row: row.clone(), index } }));
}
