//! Deployments with the real state: system jobs over their nodes, canaries, and concurrent replacements.

use crate::world::{NOW, job, node};
use caravan_scheduler::{Params, schedule};
use caravan_state::Root;
use caravan_types::alloc::{AllocDeploymentStatus, AllocUpdate, Allocation, ClientStatus};
use caravan_types::command::{Change, Command, DeploymentChange, PlanCommit};
use caravan_types::deployment::Deployment;
use caravan_types::eval::{Evaluation, Trigger};
use caravan_types::job::{Job, JobType, ReschedulePolicy, UpdateStrategy};
use caravan_types::node::NodeStatus;
use caravan_types::plan::{Decision, DesiredUpdates};
use caravan_types::{JobKey, Nanos, UnixNanos};
use std::sync::Arc;

struct Cluster {
    root: Root,
    now: UnixNanos,
    evals: u32,
}

impl Cluster {
    fn new(nodes: &[&str]) -> Self {
        let mut cluster = Self { root: Root::default(), now: NOW, evals: 0 };
        for id in nodes {
            cluster.apply(Change::NodeRegister { node: Box::new(node(id)), evals: Vec::new() });
        }
        cluster
    }

    fn apply(&mut self, change: Change) {
        let command = Command { now: self.now, change };
        let (next, outcome, _) = self.root.apply(self.root.index() + 1, &command);
        assert_eq!(outcome.refused, None);
        self.root = next;
    }

    /// Registers a version of the job and evaluates it.
    fn register(&mut self, job: Job) -> DesiredUpdates {
        let change =
            Change::JobRegister { job: Box::new(job), expect_modify_index: None, eval: None, source: None };
        self.apply(change);
        self.look()
    }

    /// Evaluates the job, and returns the counts of its group.
    fn look(&mut self) -> DesiredUpdates {
        let decision = self.decide();
        let annotations = decision.plan.annotations.expect("plans are annotated");
        annotations.desired_tg_updates["g"]
    }

    fn decide(&mut self) -> Decision {
        self.evals += 1;
        let eval = Evaluation {
            id: format!("eval-{}", self.evals).into(),
            namespace: "default".into(),
            job_id: "j".into(),
            triggered_by: Trigger::JobRegister,
            ..Evaluation::default()
        };
        self.decide_by(eval)
    }

    fn decide_by(&mut self, eval: Evaluation) -> Decision {
        let decision = schedule(&self.root, &eval, &Params::new(self.now, u64::from(self.evals)));
        let plan = decision.plan.clone();
        let commit = PlanCommit {
            eval_id: eval.id,
            job: plan.job,
            placements: plan.placements.into_values().flatten().collect(),
            stops: plan.stops.into_values().flatten().collect(),
            evals: decision.follow_ups.iter().cloned().chain([decision.eval.clone()]).collect(),
            deployment: plan.deployment,
            deployment_updates: plan.deployment_updates,
            ..PlanCommit::default()
        };
        self.apply(Change::Plan(Box::new(commit)));
        decision
    }

    fn live(&self) -> Vec<Arc<Allocation>> {
        let of_job = self.root.allocs_by_job(&JobKey::new("default", "j"));
        of_job.filter(|a| !a.terminal()).cloned().collect()
    }

    fn says(&mut self, alloc: &Allocation, client_status: ClientStatus, healthy: Option<bool>) {
        let deployment_status = healthy.map(|healthy| AllocDeploymentStatus {
            healthy: Some(healthy),
            timestamp: self.now.to_time(),
            ..AllocDeploymentStatus::default()
        });
        let update = AllocUpdate {
            alloc_id: alloc.id.clone(),
            client_status,
            deployment_status,
            deployment_id: alloc.deployment_id.clone(),
            ..AllocUpdate::default()
        };
        self.apply(Change::AllocUpdates { updates: vec![update], evals: Vec::new() });
    }

    /// Reports every desired allocation as running and healthy, and ends the stopped allocations.
    fn settle(&mut self) {
        for alloc in self.live() {
            self.says(&alloc, ClientStatus::Running, Some(true));
        }
        let of_job = self.root.allocs_by_job(&JobKey::new("default", "j"));
        let stopping: Vec<_> =
            of_job.filter(|a| a.server_terminal() && !a.client_terminal()).cloned().collect();
        for alloc in stopping {
            self.says(&alloc, ClientStatus::Complete, None);
        }
    }

    fn newest(&self) -> Deployment {
        let rows = self.root.deployments_by_job(&JobKey::new("default", "j"));
        Deployment::clone(rows.max_by_key(|row| row.create_index).expect("there is one"))
    }

    fn versions(&self) -> Vec<u64> {
        let mut versions: Vec<u64> =
            self.live().iter().filter_map(|a| a.job.as_ref()).map(|job| job.version).collect();
        versions.sort_unstable();
        versions
    }
}

fn versioned(kind: JobType, count: u32, version: &str, update: UpdateStrategy) -> Job {
    let mut job = job("j", kind, count);
    let group = &mut job.task_groups[0];
    group.update = Some(update);
    group.tasks[0].env.insert("V".into(), version.into());
    job
}

fn update(max_parallel: u32, canary: u32) -> UpdateStrategy {
    UpdateStrategy { max_parallel, canary, progress_deadline: Nanos(1), ..UpdateStrategy::default() }
}

#[test]
fn a_system_job_is_updated_node_by_node_with_a_pause_between() {
    let mut cluster = Cluster::new(&["n1", "n2", "n3"]);
    let paced = || UpdateStrategy { stagger: Nanos::from_secs(30), ..update(1, 0) };
    cluster.register(versioned(JobType::System, 1, "a", paced()));
    assert_eq!(cluster.newest().task_groups["g"].desired_total, 3);
    cluster.settle();
    let first = cluster.register(versioned(JobType::System, 1, "b", paced()));
    assert_eq!((first.destructive_update, first.ignore), (1, 2));
    assert_eq!(cluster.look().destructive_update, 0, "the first is not well yet");
    cluster.settle();
    assert_eq!(cluster.look().destructive_update, 0, "the pause is not over");
    let waits = cluster.root.evals().find(|e| e.triggered_by == Trigger::RollingUpdate).cloned();
    assert_eq!(waits.expect("somebody looks then").wait_until, NOW.plus(Nanos::from_secs(30)).to_time());
    cluster.now = NOW.plus(Nanos::from_secs(30));
    assert_eq!(cluster.look().destructive_update, 1);
    assert_eq!(cluster.newest().task_groups["g"].desired_total, 3);
}

#[test]
fn canaries_of_a_system_job_are_a_share_of_its_nodes() {
    let mut cluster = Cluster::new(&["n1", "n2", "n3", "n4"]);
    cluster.register(versioned(JobType::System, 1, "a", update(4, 50)));
    cluster.settle();
    let first = cluster.register(versioned(JobType::System, 1, "b", update(4, 50)));
    assert_eq!((first.canary, first.destructive_update), (2, 2));
    cluster.settle();
    assert_eq!(cluster.look().destructive_update, 0, "the canaries wait for a word");
    let row = cluster.newest();
    assert_eq!(row.status_description, "Deployment is running but requires manual promotion");
    assert_eq!(row.task_groups["g"].placed_canaries.len(), 2);
    let promote = DeploymentChange { id: row.id, promote: Some(Vec::new()), ..DeploymentChange::default() };
    cluster.apply(Change::Deployment(Box::new(promote)));
    assert_eq!(cluster.look().destructive_update, 2);
    assert_eq!(cluster.versions(), [1, 1, 1, 1]);
}

#[test]
fn what_is_lost_beside_canaries_comes_back_in_the_version_that_it_ran() {
    let mut cluster = Cluster::new(&["n1", "n2"]);
    cluster.register(versioned(JobType::Service, 2, "a", update(1, 1)));
    cluster.settle();
    cluster.register(versioned(JobType::Service, 2, "b", update(1, 1)));
    assert_eq!(cluster.versions(), [0, 0, 1]);
    cluster.settle();
    let victim = cluster.live().into_iter().find(|a| a.job.as_ref().is_some_and(|j| j.version == 0));
    let victim = victim.expect("the old version runs");
    let on_node: Vec<_> = cluster.live().into_iter().filter(|a| a.node_id == victim.node_id).collect();
    let down = Change::NodeStatus {
        node: victim.node_id.clone(),
        status: NodeStatus::Down,
        event: None,
        evals: Vec::new(),
    };
    cluster.apply(down);
    let counts = cluster.look();
    assert_eq!(counts.place + counts.canary, on_node.len() as u64);
    assert_eq!(cluster.versions(), [0, 0, 1]);
}

/// For example, the program of a system job is missing on a node. Each allocation fails immediately, and only pauses
/// keep the server from placing many a second.
#[test]
fn a_system_allocation_that_fails_again_waits_longer_each_time() {
    let mut cluster = Cluster::new(&["n1"]);
    cluster.register(versioned(JobType::System, 1, "a", UpdateStrategy::default()));
    let mut at = cluster.now;
    for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        let failed = cluster.live().remove(0);
        cluster.says(&failed, ClientStatus::Failed, None);
        if pause > 1 {
            assert_eq!(cluster.look().reschedule_later, 1, "after {pause} s");
            let waiting = cluster.root.alloc(&failed.id).cloned().expect("it is kept");
            let later =
                cluster.root.eval(&waiting.followup_eval_id).cloned().expect("an evaluation is planned");
            assert_eq!(later.wait_until, at.plus(Nanos::from_secs(pause)).to_time(), "after {pause} s");
            assert!(cluster.decide().plan.is_empty(), "looking again changes nothing");
            cluster.now = at.plus(Nanos::from_secs(pause));
            let placed = cluster.decide_by(Evaluation::clone(&later)).plan.placements;
            assert_eq!(placed.values().flatten().count(), 1, "after {pause} s");
        } else {
            assert_eq!(cluster.look().place, 1);
        }
        at = cluster.now;
        let next = cluster.live().remove(0);
        assert_eq!((&next.node_id, &next.previous_allocation), (&failed.node_id, &failed.id));
    }
    // An allocation that ran for a long time was healthy.
    cluster.now = at.plus(Nanos::from_secs(3600));
    let failed = cluster.live().remove(0);
    cluster.says(&failed, ClientStatus::Failed, None);
    assert_eq!(cluster.look().place, 1);
    // A new version does not wait for the failures of an old version.
    let failed = cluster.live().remove(0);
    cluster.says(&failed, ClientStatus::Failed, None);
    assert_eq!(cluster.look().reschedule_later, 1);
    cluster.register(versioned(JobType::System, 1, "b", UpdateStrategy::default()));
    assert_eq!(cluster.live().len(), 1);
}

#[test]
fn a_failed_allocation_waits_for_its_time_and_its_successor_remembers() {
    let mut cluster = Cluster::new(&["n1", "n2"]);
    let mut job = versioned(JobType::Service, 1, "a", UpdateStrategy::default());
    job.task_groups[0].reschedule_policy = Some(ReschedulePolicy {
        delay: Nanos::from_secs(30),
        delay_function: "exponential".into(),
        max_delay: Nanos::from_secs(3600),
        unlimited: true,
        ..ReschedulePolicy::default()
    });
    cluster.register(job);
    let first = cluster.live().remove(0);
    cluster.says(&first, ClientStatus::Failed, None);
    assert_eq!(cluster.look().reschedule_later, 1);
    let waiting = cluster.root.alloc(&first.id).cloned().expect("it is kept");
    let later = cluster.root.eval(&waiting.followup_eval_id).cloned().expect("somebody looks then");
    assert_eq!(later.wait_until, NOW.plus(Nanos::from_secs(30)).to_time());
    assert!(cluster.decide().plan.is_empty(), "looking again changes nothing");
    cluster.now = NOW.plus(Nanos::from_secs(30));
    let counts = cluster.look();
    assert_eq!((counts.place, counts.stop), (1, 1));
    let second = cluster.live().remove(0);
    assert_ne!(second.node_id, first.node_id, "the node of the failure is avoided");
    assert_eq!(second.previous_allocation, first.id);
    let tracker = second.reschedule_tracker.clone().expect("it remembers");
    assert_eq!((tracker.events.len(), tracker.events[0].delay), (1, Nanos::from_secs(30)));
    let first = cluster.root.alloc(&first.id).cloned().expect("it is kept");
    assert_eq!(first.desired_description, "alloc was rescheduled because it failed");
    assert_eq!(first.next_allocation, second.id);
}

#[test]
fn a_failed_deployment_places_no_more_and_its_canary_goes() {
    let mut cluster = Cluster::new(&["n1", "n2"]);
    cluster.register(versioned(JobType::Service, 2, "a", update(1, 1)));
    cluster.settle();
    cluster.register(versioned(JobType::Service, 2, "b", update(1, 1)));
    let row = cluster.newest();
    let verdict = caravan_types::deployment::Verdict {
        id: row.id.clone(),
        status: caravan_types::deployment::DeploymentStatus::Failed,
        description: "Deployment marked as failed".into(),
    };
    let fail = DeploymentChange { id: row.id, verdict: Some(verdict), ..DeploymentChange::default() };
    cluster.apply(Change::Deployment(Box::new(fail)));
    let counts = cluster.look();
    assert_eq!((counts.ignore, counts.stop, counts.place), (2, 1, 0));
    assert_eq!(cluster.versions(), [0, 0]);
}
