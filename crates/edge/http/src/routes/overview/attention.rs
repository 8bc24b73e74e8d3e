//! The objects that need attention, with reasons. The decisions are pure.

use caravan_types::alloc::{Allocation, ClientStatus, DesiredStatus};
use caravan_types::deployment::{Deployment, DeploymentStatus};
use caravan_types::eval::{AllocMetric, EvalStatus, Evaluation};
use caravan_types::node::{Eligibility, Node, NodeStatus};
use caravan_types::plugin::Plugin;
use caravan_types::volume::{Claim, Volume, VolumePhase};
use caravan_types::{JobKey, UnixNanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Kind {
    Job,
    Deployment,
    Node,
    Plugin,
    Volume,
}

/// The severity of an item, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// A failure, which lasts until a user acts or a retry succeeds.
    Failed,
    /// A wait.
    Waiting,
    /// A state that a user has chosen.
    Notice,
}

/// An object that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// The id of the object with the trouble: a job for its allocations and evaluations.
    #[serde(rename = "ID")]
    pub(super) id: String,
    /// The name to show.
    pub(super) name: String,
    /// The namespace; empty for objects without one.
    pub(super) namespace: String,
    pub(super) severity: Severity,
    /// The reason for the attention, in one sentence.
    pub(super) reason: String,
    /// The time at which the trouble began; 0 if it is unknown.
    pub(super) since: UnixNanos,
    /// The evaluation, deployment or allocation that shows more; empty without one.
    #[serde(rename = "DetailID")]
    pub(super) detail: String,
}

impl Item {
    /// Returns the place in the list: failures first, then the longest wait, then the name.
    pub(super) fn rank(&self) -> (Severity, bool, i64, &str) {
        (self.severity, self.since.is_zero(), self.since.0, &self.name)
    }
}

/// Returns the state of a node as one word.
pub(super) fn state_of(node: &Node) -> &'static str {
    match node.status {
        NodeStatus::Ready if node.drain_strategy.is_some() => "draining",
        NodeStatus::Ready if node.scheduling_eligibility == Eligibility::Ineligible => "ineligible",
        status => status.as_str(),
    }
}

/// Returns whether all expected instances of a plugin are healthy.
pub(super) fn is_healthy(plugin: &Plugin) -> bool {
    let controllers =
        !plugin.controller_required || plugin.controllers_healthy >= plugin.controllers_expected;
    controllers && plugin.nodes_healthy >= plugin.nodes_expected
}

/// Returns the trouble of a job whose evaluation is blocked.
pub(super) fn of_eval(eval: &Evaluation) -> Option<Item> {
    if eval.status != EvalStatus::Blocked {
        return None;
    }
    let groups: Vec<String> = eval
        .failed_tg_allocs
        .iter()
        .map(|(group, metric)| format!("group {group}: {}", sentence(metric)))
        .collect();
    let reason = match groups.is_empty() {
        true => eval.status_description.clone(),
        false => groups.join(". "),
    };
    Some(Item {
        kind: Kind::Job,
        id: eval.job_id.to_string(),
        name: eval.job_id.to_string(),
        namespace: eval.namespace.to_string(),
        severity: Severity::Waiting,
        reason,
        since: eval.create_time,
        detail: eval.id.to_string(),
    })
}

/// Returns the reason why a group found no node.
fn sentence(metric: &AllocMetric) -> String {
    let nodes = |number: u64| if number == 1 { "1 node".to_owned() } else { format!("{number} nodes") };
    let counts = &metric.counts;
    let mut parts: Vec<(u64, String)> = Vec::new();
    for (reason, number) in &counts.constraint_filtered {
        parts.push((u64::from(*number), format!("{}: {reason}", nodes(u64::from(*number)))));
    }
    for (dimension, number) in &counts.dimension_exhausted {
        parts.push((u64::from(*number), format!("{} without enough {dimension}", nodes(u64::from(*number)))));
    }
    if parts.is_empty() && counts.nodes_evaluated == 0 {
        return "no node is in the datacenters and the node pool of the job".to_owned();
    }
    if parts.is_empty() {
        return "no node was found".to_owned();
    }
    parts.sort_by(|one, two| two.0.cmp(&one.0).then_with(|| one.1.cmp(&two.1)));
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    texts.join("; ")
}

/// Returns the trouble of a deployment.
pub(super) fn of_deployment(row: &Deployment) -> Option<Item> {
    let groups = || row.task_groups.values();
    let version = row.job_version;
    let (severity, reason) = match row.status {
        DeploymentStatus::Running if groups().any(|group| group.unhealthy_allocs > 0) => {
            (Severity::Failed, format!("version {version} has unhealthy allocations"))
        }
        DeploymentStatus::Running
            if groups().any(|group| group.is_canarying() && !group.auto_promote)
                && groups().all(|group| group.healthy_allocs >= group.desired_canaries) =>
        {
            (
                Severity::Waiting,
                format!("version {version} waits for its promotion: the canaries are healthy"),
            )
        }
        DeploymentStatus::Paused => {
            (Severity::Notice, format!("the deployment of version {version} is paused"))
        }
        DeploymentStatus::Blocked => {
            (Severity::Waiting, format!("the deployment of version {version} is blocked"))
        }
        _ => return None,
    };
    Some(Item {
        kind: Kind::Deployment,
        id: row.job_id.to_string(),
        name: row.job_id.to_string(),
        namespace: row.namespace.to_string(),
        severity,
        reason,
        since: row.modify_time,
        detail: row.id.to_string(),
    })
}

/// Returns the troubles of jobs whose allocations failed and have no successor yet.
pub(super) fn of_allocs<'a>(rows: impl Iterator<Item = &'a Allocation>) -> Vec<Item> {
    let mut by_job: BTreeMap<JobKey, (usize, &Allocation)> = BTreeMap::new();
    for row in rows {
        let is_failed = matches!(row.client_status, ClientStatus::Failed | ClientStatus::Lost);
        let is_wanted = row.desired_status == DesiredStatus::Run && row.next_allocation.is_empty();
        if !is_failed || !is_wanted || row.job.as_ref().is_some_and(|job| job.stop) {
            continue;
        }
        let key = JobKey { namespace: row.namespace.clone(), id: row.job_id.clone() };
        let (number, oldest) = by_job.entry(key).or_insert((0, row));
        *number += 1;
        if row.modify_time < oldest.modify_time {
            *oldest = row;
        }
    }
    let of = |(key, (number, row)): (JobKey, (usize, &Allocation))| Item {
        kind: Kind::Job,
        id: key.id.to_string(),
        name: key.id.to_string(),
        namespace: key.namespace.to_string(),
        severity: Severity::Failed,
        reason: match number {
            1 => format!("an allocation of group {} {}", row.task_group, row.client_status.as_str()),
            number => {
                format!("{number} allocations failed or are lost, the first one of group {}", row.task_group)
            }
        },
        since: row.modify_time,
        detail: row.id.to_string(),
    };
    by_job.into_iter().map(of).collect()
}

/// Returns the trouble of a node.
pub(super) fn of_node(node: &Node) -> Option<Item> {
    let (severity, reason) = match state_of(node) {
        "down" => (Severity::Failed, "the node is down: its heartbeats are missing"),
        "disconnected" => (Severity::Waiting, "the node is disconnected: its allocations may come back"),
        "draining" => (Severity::Notice, "the node drains"),
        "ineligible" => (Severity::Notice, "the node is ineligible: it takes no new allocations"),
        _ => return None,
    };
    Some(Item {
        kind: Kind::Node,
        id: node.id.to_string(),
        name: node.name.to_string(),
        namespace: String::new(),
        severity,
        reason: reason.to_owned(),
        since: UnixNanos(node.status_updated_at.saturating_mul(1_000_000_000)),
        detail: String::new(),
    })
}

/// Returns the trouble of a plugin.
pub(super) fn of_plugin(plugin: &Plugin) -> Option<Item> {
    if is_healthy(plugin) {
        return None;
    }
    let none = plugin.nodes_healthy == 0 || (plugin.controller_required && plugin.controllers_healthy == 0);
    Some(Item {
        kind: Kind::Plugin,
        id: plugin.id.to_string(),
        name: plugin.id.to_string(),
        namespace: String::new(),
        severity: if none { Severity::Failed } else { Severity::Waiting },
        reason: format!(
            "healthy are {} of {} controllers and {} of {} nodes",
            plugin.controllers_healthy,
            plugin.controllers_expected,
            plugin.nodes_healthy,
            plugin.nodes_expected
        ),
        since: UnixNanos(0),
        detail: String::new(),
    })
}

/// Returns the trouble of a volume.
pub(super) fn of_volume(volume: &Volume) -> Option<Item> {
    let phase = volume.phase.as_str();
    let (severity, reason) = match (volume.phase, volume.last_error.as_str()) {
        (VolumePhase::Ready, "") => return None,
        (_, "") => (Severity::Waiting, format!("the volume is {phase}")),
        (_, error) => (Severity::Failed, format!("the volume is {phase}: {error}")),
    };
    Some(Item {
        kind: Kind::Volume,
        id: volume.id.to_string(),
        name: volume.id.to_string(),
        namespace: volume.namespace.to_string(),
        severity,
        reason,
        since: volume.history.last().map_or(UnixNanos(0), |step| step.at),
        detail: String::new(),
    })
}

/// Returns the trouble of a claim, if the claim waits or its last call failed.
pub(super) fn of_claim(claim: &Claim, wait: Option<String>) -> Option<Item> {
    if !claim.phase.holds() {
        return None;
    }
    let (severity, words) = match (claim.last_error.as_str(), wait) {
        ("", None) => return None,
        ("", Some(wait)) => (Severity::Waiting, wait),
        (error, None) => (Severity::Failed, error.to_owned()),
        (error, Some(wait)) => (Severity::Failed, format!("{wait} ({error})")),
    };
    Some(Item {
        kind: Kind::Volume,
        id: claim.id.volume.id.to_string(),
        name: claim.id.volume.id.to_string(),
        namespace: claim.id.volume.namespace.to_string(),
        severity,
        reason: format!("the claim of {} is {}: {words}", claim.job_id, claim.phase.as_str()),
        since: claim.modify_time,
        detail: claim.id.alloc.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::deployment::DeploymentState;
    use caravan_types::node::DrainStrategy;

    #[test]
    fn a_blocked_evaluation_names_the_most_frequent_reason_first() {
        let mut metric = AllocMetric::default();
        let counts = metric.counts_mut();
        counts.nodes_evaluated = 3;
        counts.constraint_filtered.insert("too old".into(), 1);
        counts.dimension_exhausted.insert("memory".into(), 2);
        let mut eval = Evaluation { job_id: "web".into(), status: EvalStatus::Blocked, ..Default::default() };
        eval.failed_tg_allocs.insert("api".to_owned(), metric);
        let item = of_eval(&eval).unwrap();
        assert_eq!(item.reason, "group api: 2 nodes without enough memory; 1 node: too old");
        eval.failed_tg_allocs.insert("api".to_owned(), AllocMetric::default());
        assert!(of_eval(&eval).unwrap().reason.contains("no node is in the datacenters"));
        eval.status = EvalStatus::Complete;
        assert_eq!(of_eval(&eval), None);
    }

    #[test]
    fn a_deployment_needs_attention_when_a_user_must_act() {
        let canary = DeploymentState { desired_canaries: 1, healthy_allocs: 1, ..Default::default() };
        let row = |group: DeploymentState| Deployment {
            task_groups: [("g".to_owned(), group)].into(),
            ..Deployment::default()
        };
        assert_eq!(of_deployment(&row(canary.clone())).unwrap().severity, Severity::Waiting);
        assert_eq!(of_deployment(&row(DeploymentState { healthy_allocs: 0, ..canary.clone() })), None);
        assert_eq!(of_deployment(&row(DeploymentState { auto_promote: true, ..canary.clone() })), None);
        let unhealthy = DeploymentState { unhealthy_allocs: 1, ..canary };
        assert_eq!(of_deployment(&row(unhealthy)).unwrap().severity, Severity::Failed);
    }

    #[test]
    fn failed_allocations_of_a_job_are_one_item() {
        let alloc = |id: &str, time: i64, next: &str| Allocation {
            id: id.into(),
            job_id: "web".into(),
            client_status: ClientStatus::Failed,
            next_allocation: next.into(),
            modify_time: UnixNanos(time),
            ..Allocation::default()
        };
        let rows = [alloc("a", 9, ""), alloc("b", 5, ""), alloc("c", 1, "d")];
        let items = of_allocs(rows.iter());
        assert_eq!(items.len(), 1);
        assert_eq!((items[0].detail.as_str(), items[0].since), ("b", UnixNanos(5)));
        assert!(items[0].reason.starts_with("2 allocations"));
    }

    #[test]
    fn nodes_are_ranked_before_drains_and_by_age() {
        let node = |name: &str, status, at| Node {
            name: name.into(),
            status,
            status_updated_at: at,
            ..Node::default()
        };
        let mut draining = node("c", NodeStatus::Ready, 1);
        draining.drain_strategy = Some(DrainStrategy::default());
        let rows = [
            draining,
            node("b", NodeStatus::Down, 9),
            node("a", NodeStatus::Down, 5),
            node("d", NodeStatus::Ready, 1),
        ];
        let mut items: Vec<Item> = rows.iter().filter_map(of_node).collect();
        items.sort_by(|one, two| one.rank().cmp(&two.rank()));
        let names: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn a_claim_says_what_it_waits_for() {
        let mut claim = Claim { job_id: "web".into(), ..Claim::default() };
        assert_eq!(of_claim(&claim, None), None);
        let item = of_claim(&claim, Some("for the node".to_owned())).unwrap();
        assert_eq!(
            (item.severity, item.reason.as_str()),
            (Severity::Waiting, "the claim of web is reserved: for the node")
        );
        claim.last_error = "no".to_owned();
        assert_eq!(of_claim(&claim, None).unwrap().severity, Severity::Failed);
    }
}
