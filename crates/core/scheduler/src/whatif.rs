//! The prediction of the allocations that would move after assumed events of nodes. It changes a copy of the state
//! and schedules all affected jobs again.

use crate::explain::explain_decision;
use crate::overlay::Overlay;
use crate::schedule::{Params, schedule};
use caravan_state::Root;
use caravan_types::alloc::{Allocation, DesiredTransition};
use caravan_types::command::{Change, Command, PlanCommit};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::Job;
use caravan_types::node::{DrainStrategy, Eligibility, NodeStatus};
use caravan_types::plan::Decision;
use caravan_types::volume::Claim;
use caravan_types::{AllocId, EvalId, JobId, JobKey, Namespace, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// An event of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The node's heartbeats stop.
    Down,
    /// The node drains: its allocations move to other nodes.
    Drain,
    /// The node accepts no new allocations.
    Ineligible,
    /// The node accepts allocations again.
    Up,
}

/// An assumed event of a node: `node=<id>:down`, or `drain`, `ineligible`, `up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imagined {
    /// The node's id, a prefix of its id, or its name.
    pub node: String,
    /// The assumed event of the node.
    pub happening: Happening,
}

impl std::str::FromStr for Imagined {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not node=<id>:down, drain, ineligible or up");
        let rest = text.strip_prefix("node=").unwrap_or(text);
        let (node, what) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let happening = match what {
            "down" => Happening::Down,
            "drain" => Happening::Drain,
            "ineligible" => Happening::Ineligible,
            "up" => Happening::Up,
            _ => return Err(wrong()),
        };
        if node.is_empty() {
            return Err(wrong());
        }
        Ok(Self { node: node.to_owned(), happening })
    }
}

/// One allocation that would move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Move {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The id of the job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// The name of the allocation: `job.group[index]`.
    pub name: String,
    /// The name of the node that the allocation would leave.
    pub from: String,
    /// The name of the node where the allocation would run; empty if it would wait.
    pub to: String,
    /// The ids of the volumes that would move with the allocation.
    pub volumes: Vec<String>,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} leaves {}", self.name, self.from)?;
        if self.to.is_empty() {
            f.write_str(" and waits")?
        } else {
            write!(f, " for {}", self.to)?
        }
        if self.volumes.is_empty() { Ok(()) } else { write!(f, ", with {}", self.volumes.join(", ")) }
    }
}

/// All consequences of the assumed events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Consequences {
    /// The allocations that would move, in the order in which they would be scheduled.
    pub moves: Vec<Move>,
    /// The other placements, such as of jobs that wait now: name of the allocation and of the node.
    pub placed: Vec<(String, String)>,
    /// The sentences that state why allocations would wait.
    pub reasons: Vec<String>,
    /// The number of moves, placements and reasons that are omitted because the reader may not read their jobs.
    pub hidden: usize,
    /// The number of jobs that were not scheduled, because they exceed the limit for one request.
    pub skipped: usize,
}

/// The limits of one request.
#[derive(Clone, Copy)]
pub struct Bounds<'b> {
    /// Returns whether the reader may read the jobs of a namespace.
    pub reads: &'b dyn Fn(&Namespace) -> bool,
    /// The maximum number of jobs to schedule. Jobs with allocations on the nodes come first, then jobs of high
    /// priority.
    pub jobs: usize,
}

impl fmt::Debug for Bounds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounds").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

impl Bounds<'_> {
    /// The bounds without limits.
    pub const NONE: Bounds<'static> = Bounds { reads: &|_| true, jobs: usize::MAX };
}

/// Returns the only node that a text identifies by its id, a prefix of its id, or its name.
fn find(root: &Root, text: &str) -> Result<NodeId, String> {
    let mut fitting = root.nodes().filter(|n| n.id.as_str().starts_with(text) || n.name == text);
    match (fitting.next(), fitting.next()) {
        (Some(node), None) => Ok(node.id.clone()),
        (None, _) => Err(format!("there is no node {text:?}")),
        (Some(_), Some(_)) => Err(format!("several nodes are called {text:?}")),
    }
}

struct Imagination {
    root: Root,
    /// The claims of the placements so far.
    granted: Vec<Arc<Claim>>,
    params: Params,
}

impl Imagination {
    fn apply(&mut self, change: Change) {
        let command = Command { now: self.params.now, change };
        // A command that the state rejects has no effect.
        self.root = self.root.apply(self.root.index() + 1, &command).0;
    }

    fn happen(&mut self, node: &NodeId, happening: Happening) {
        let status =
            |status| Change::NodeStatus { node: node.clone(), status, event: None, evals: Vec::new() };
        let eligibility =
            |eligibility| Change::NodeEligibility { node: node.clone(), eligibility, evals: Vec::new() };
        match happening {
            Happening::Down => self.apply(status(NodeStatus::Down)),
            Happening::Ineligible => self.apply(eligibility(Eligibility::Ineligible)),
            Happening::Up => {
                self.apply(status(NodeStatus::Ready));
                self.apply(eligibility(Eligibility::Eligible));
            }
            Happening::Drain => {
                self.apply(Change::NodeDrain {
                    node: node.clone(),
                    drain: Some(DrainStrategy::default()),
                    mark_eligible: false,
                    meta: BTreeMap::new(),
                    accessor: String::new(),
                    end: None,
                    evals: Vec::new(),
                });
                let migrate = DesiredTransition { migrate: Some(true), ..DesiredTransition::default() };
                let on_node = self.root.allocs_by_node(node).filter(|alloc| !alloc.terminal());
                let transitions = on_node.map(|alloc| (alloc.id.clone(), migrate.clone())).collect();
                self.apply(Change::AllocTransitions { transitions, evals: Vec::new() });
            }
        }
    }

    /// Schedules a job as if the claims of these allocations were released, and applies the plan.
    fn schedule(&mut self, job: &Job, released: &BTreeSet<AllocId>) -> Decision {
        let eval = Evaluation {
            id: EvalId::from(format!("what-if-{}-{}", job.namespace, job.id)),
            namespace: job.namespace.clone(),
            job_id: job.id.clone(),
            kind: job.kind.as_str().to_owned(),
            priority: job.priority,
            triggered_by: Trigger::NodeUpdate,
            status: EvalStatus::Pending,
            create_time: self.params.now,
            ..Evaluation::default()
        };
        let view = Overlay::new(&self.root)
            .without_claims_of(released.iter().cloned())
            .with_claims(self.granted.clone());
        let decision = schedule(&view, &eval, &self.params);
        let plan = decision.plan.clone();
        self.granted.extend(plan.claims.into_iter().map(Arc::new));
        self.apply(Change::Plan(Box::new(PlanCommit {
            eval_id: plan.eval_id,
            job: plan.job,
            placements: plan.placements.into_values().flatten().collect(),
            stops: plan.stops.into_values().flatten().collect(),
            ..PlanCommit::default()
        })));
        decision
    }
}

fn volumes(alloc: &Allocation) -> Vec<String> {
    let group = alloc.group();
    group.into_iter().flat_map(|g| g.volumes.values()).map(|v| v.source_for(&alloc.name)).collect()
}

/// Returns the consequences if all these events happened to nodes, once volumes are released from the nodes. Jobs in
/// `also` are scheduled even if the events do not affect them.
///
/// # Errors
/// Returns a sentence if a node is unknown.
pub fn what_if(
    root: &Root,
    imagined: &[Imagined],
    also: &[JobKey],
    params: &Params,
    bounds: Bounds<'_>,
) -> Result<Consequences, String> {
    let mut imagination = Imagination { root: root.clone(), granted: Vec::new(), params: params.clone() };
    let mut leaving: BTreeMap<AllocId, Arc<Allocation>> = BTreeMap::new();
    let mut jobs: BTreeSet<JobKey> = also.iter().cloned().collect();
    for Imagined { node, happening } in imagined {
        let node = find(root, node)?;
        for alloc in root.allocs_by_node(&node).filter(|alloc| !alloc.terminal()) {
            if matches!(happening, Happening::Down | Happening::Drain) {
                leaving.insert(alloc.id.clone(), Arc::clone(alloc));
            }
            jobs.insert(alloc.job_key());
        }
        imagination.happen(&node, *happening);
    }
    let concerned = jobs.clone();
    // Jobs that wait now may get room, or lose it.
    let waiting = root.evals().filter(|eval| eval.status == EvalStatus::Blocked);
    jobs.extend(waiting.map(|eval| eval.job_key()));
    jobs.extend(root.jobs().filter(|j| j.kind.is_system() && !j.is_stopped()).map(|job| job.key()));
    let mut order: Vec<Arc<Job>> = jobs.iter().filter_map(|key| root.job(key)).cloned().collect();
    let mut consequences = Consequences::default();
    if order.len() > bounds.jobs {
        order.sort_by_key(|job| (!concerned.contains(&job.key()), -job.priority, job.key()));
        consequences.skipped = order.split_off(bounds.jobs).len();
    }
    order.sort_by_key(|job| (-job.priority, job.key()));

    let released: BTreeSet<AllocId> = leaving.keys().cloned().collect();
    for job in order {
        // Jobs that the reader may not read are scheduled as well, because they determine which nodes have room.
        let reads = (bounds.reads)(&job.namespace);
        let decision = imagination.schedule(&job, &released);
        let new: Vec<&Allocation> = decision.plan.placements.values().flatten().collect();
        let new: Vec<&Allocation> = new.into_iter().filter(|a| root.alloc(&a.id).is_none()).collect();
        let mut used: BTreeSet<&AllocId> = BTreeSet::new();
        for alloc in leaving.values().filter(|alloc| alloc.job_key() == job.key()) {
            let system = job.kind.is_system();
            let successor = new.iter().find(|n| {
                !used.contains(&n.id)
                    && (n.previous_allocation == alloc.id || (!system && n.name == alloc.name))
            });
            used.extend(successor.map(|found| &found.id));
            // A system job runs on other nodes anyway, so its allocation on this node only stops.
            if system && successor.is_none() {
                continue;
            }
            if !reads {
                consequences.hidden += 1;
                continue;
            }
            consequences.moves.push(Move {
                namespace: alloc.namespace.clone(),
                job_id: alloc.job_id.clone(),
                name: alloc.name.clone(),
                from: alloc.node_name.to_string(),
                to: successor.map(|found| found.node_name.to_string()).unwrap_or_default(),
                volumes: volumes(alloc),
            });
        }
        let others = new.iter().filter(|alloc| !used.contains(&alloc.id));
        let placed: Vec<_> = others.map(|alloc| (alloc.name.clone(), alloc.node_name.to_string())).collect();
        let why = explain_decision(&decision);
        if !reads {
            consequences.hidden += placed.len() + why.len();
            continue;
        }
        consequences.placed.extend(placed);
        consequences.reasons.extend(why.into_iter().map(|why| format!("Job {:?}: {why}", job.id.as_str())));
    }
    Ok(consequences)
}
