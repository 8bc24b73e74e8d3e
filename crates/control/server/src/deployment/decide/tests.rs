use super::*;
use caravan_types::alloc::AllocUpdate;
use caravan_types::alloc::{AllocDeploymentStatus, RescheduleTracker};
use caravan_types::command::{Change, Command, PlanCommit};
use caravan_types::deployment::Verdict;
use caravan_types::job::{JobType, ReschedulePolicy, TaskGroup, UpdateStrategy};
use caravan_types::node::{Node, NodeStatus};
use caravan_types::{JobKey, Time};
use std::collections::BTreeMap;

const NOW: UnixNanos = UnixNanos(1_000);

struct World(Root);

impl World {
    /// Creates a state with one node, and with a job in version 0 whose group desires `count` allocations.
    fn new(count: u32, change: impl FnOnce(&mut TaskGroup)) -> Self {
        let mut world = Self(Root::default());
        let node = Node { id: "n".into(), name: "n".into(), status: NodeStatus::Ready, ..Node::default() };
        world.apply(Change::NodeRegister { node: Box::new(node), evals: Vec::new() });
        let mut group = TaskGroup { name: "g".into(), count, ..TaskGroup::default() };
        group.update = Some(UpdateStrategy { max_parallel: 1, ..UpdateStrategy::default() });
        change(&mut group);
        world.register(group);
        world
    }

    fn register(&mut self, group: TaskGroup) {
        let job = Job {
            id: "web".into(),
            namespace: "default".into(),
            node_pool: "default".into(),
            kind: JobType::Service,
            task_groups: vec![group],
            ..Job::default()
        };
        let change =
            Change::JobRegister { job: Box::new(job), expect_modify_index: None, eval: None, source: None };
        self.apply(change);
    }

    fn apply(&mut self, change: Change) {
        let (next, outcome, _) = self.0.apply(self.0.index() + 1, &Command { now: NOW, change });
        assert_eq!(outcome.refused, None);
        self.0 = next;
    }

    fn job(&self) -> Arc<Job> {
        self.0.job(&JobKey::new("default", "web")).expect("it is registered").clone()
    }

    fn deploy(&mut self, id: &str, state: DeploymentState, allocs: &[&str]) {
        let job = self.job();
        let row = Deployment {
            id: id.into(),
            namespace: "default".into(),
            job_id: "web".into(),
            job_version: job.version,
            job_create_index: job.create_index,
            task_groups: BTreeMap::from([("g".to_owned(), state)]),
            ..Deployment::default()
        };
        let placements = allocs.iter().enumerate().map(|(n, alloc)| Allocation {
            id: (*alloc).into(),
            node_id: "n".into(),
            name: format!("web.g[{n}]"),
            task_group: "g".into(),
            deployment_id: id.into(),
            ..Allocation::default()
        });
        let commit = PlanCommit {
            job: Some(job.clone()),
            placements: placements.collect(),
            deployment: Some(row),
            ..PlanCommit::default()
        };
        self.apply(Change::Plan(Box::new(commit)));
    }

    fn says(&mut self, alloc: &str, status: ClientStatus, healthy: Option<bool>) {
        let deployment_id = self.0.alloc(&alloc.into()).expect("it is there").deployment_id.clone();
        let update = AllocUpdate {
            alloc_id: alloc.into(),
            client_status: status,
            deployment_status: healthy.map(|healthy| AllocDeploymentStatus {
                healthy: Some(healthy),
                timestamp: Time(NOW.0),
                ..AllocDeploymentStatus::default()
            }),
            deployment_id,
            ..AllocUpdate::default()
        };
        self.apply(Change::AllocUpdates { updates: vec![update], evals: Vec::new() });
    }

    fn row(&self, id: &str) -> &Deployment {
        self.0.deployment(&id.into()).expect("it is there")
    }

    fn decide(&self, now: i64) -> Step {
        decide(&self.0, self.row("d"), UnixNanos(now))
    }
}

fn state(total: u32) -> DeploymentState {
    DeploymentState { desired_total: total, progress_deadline: Nanos(100), ..DeploymentState::default() }
}

#[test]
fn each_healthy_allocation_brings_it_on_until_all_are() {
    let mut world = World::new(2, |_| {});
    world.deploy("d", state(2), &["a", "b"]);
    assert_eq!(world.decide(1_001), Step { again: Some(UnixNanos(1_100)), ..Step::default() });
    world.says("a", ClientStatus::Running, Some(true));
    assert!(world.decide(1_001).evaluate);
    assert_eq!(world.row("d").task_groups["g"].healthy_allocs, 1);
    world.says("b", ClientStatus::Running, Some(true));
    let end = world.decide(1_001).end.expect("it is over");
    assert_eq!(end, (DeploymentStatus::Successful, "Deployment completed successfully".to_owned()));
}

#[test]
fn who_is_not_well_in_time_fails_it_and_a_good_version_comes_back() {
    let mut world = World::new(1, |_| {});
    world.deploy("good", state(1), &["a"]);
    let verdict =
        Verdict { id: "good".into(), status: DeploymentStatus::Successful, description: String::new() };
    world.apply(Change::Plan(Box::new(PlanCommit {
        deployment_updates: vec![verdict],
        ..PlanCommit::default()
    })));
    assert!(world.job().stable);
    let mut group = world.job().task_groups[0].clone();
    group.meta.insert("k".into(), "v".into());
    world.register(group);
    world.deploy("d", DeploymentState { auto_revert: true, ..state(1) }, &["b"]);
    assert_eq!(world.decide(1_099).end, None);
    let step = world.decide(1_100);
    let text = "Failed due to progress deadline - rolling back to job version 0".to_owned();
    assert_eq!(step.end, Some((DeploymentStatus::Failed, text)));
    assert_eq!(step.revert.expect("it goes back").version, 0);
}

#[test]
fn without_a_good_version_nothing_is_undone() {
    let mut world = World::new(1, |_| {});
    world.deploy("d", DeploymentState { auto_revert: true, ..state(1) }, &["a"]);
    let step = world.decide(2_000);
    let text = "Failed due to progress deadline - no stable job version to auto revert to".to_owned();
    assert_eq!((step.end, step.revert), (Some((DeploymentStatus::Failed, text)), None));
}

#[test]
fn a_failed_allocation_is_tried_again_while_its_policy_allows_it() {
    let policy = ReschedulePolicy {
        attempts: 1,
        interval: Nanos::from_secs(3600),
        delay: Nanos::from_secs(5),
        ..ReschedulePolicy::default()
    };
    let mut world = World::new(1, |group| group.reschedule_policy = Some(policy));
    world.deploy("d", state(1), &["a"]);
    world.says("a", ClientStatus::Failed, Some(false));
    let step = world.decide(1_001);
    assert_eq!((step.end, step.reschedule.len(), step.evaluate), (None, 1, true));
    // The only attempt that the policy allows was made before.
    let tracker = RescheduleTracker {
        events: vec![caravan_types::alloc::RescheduleEvent { reschedule_time: NOW, ..Default::default() }],
        ..RescheduleTracker::default()
    };
    let mut again = Allocation::clone(world.0.alloc(&"a".into()).unwrap());
    again.id = "b".into();
    again.reschedule_tracker = Some(tracker.into());
    again.deployment_status = None;
    again.client_status = ClientStatus::Pending;
    again.previous_allocation = "a".into();
    let commit = PlanCommit { job: Some(world.job()), placements: vec![again], ..PlanCommit::default() };
    world.apply(Change::Plan(Box::new(commit)));
    world.says("b", ClientStatus::Failed, Some(false));
    let text = "Failed due to unhealthy allocations".to_owned();
    assert_eq!(world.decide(1_001).end, Some((DeploymentStatus::Failed, text)));
}

#[test]
fn without_a_deadline_the_first_bad_one_fails_it() {
    let mut world = World::new(1, |_| {});
    world.deploy("d", DeploymentState { desired_total: 1, ..DeploymentState::default() }, &["a"]);
    assert_eq!(world.decide(i64::MAX), Step::default());
    world.says("a", ClientStatus::Running, Some(false));
    assert!(world.decide(1_001).end.is_some());
}

#[test]
fn healthy_canaries_wait_for_promotion_or_promote_themselves() {
    let canary = |auto_promote| DeploymentState { desired_canaries: 1, auto_promote, ..state(2) };
    for auto_promote in [false, true] {
        let mut world = World::new(2, |_| {});
        world.deploy("d", canary(auto_promote), &[]);
        let alloc = Allocation {
            id: "c".into(),
            node_id: "n".into(),
            task_group: "g".into(),
            deployment_id: "d".into(),
            deployment_status: Some(AllocDeploymentStatus { canary: true, ..Default::default() }),
            ..Allocation::default()
        };
        let commit = PlanCommit { job: Some(world.job()), placements: vec![alloc], ..PlanCommit::default() };
        world.apply(Change::Plan(Box::new(commit)));
        assert!(!world.decide(1_001).promote);
        world.says("c", ClientStatus::Running, Some(true));
        assert_eq!(world.decide(1_001).promote, auto_promote);
        assert_eq!(world.decide(9_999).end, None, "waiting for a word is no lack of progress");
    }
}
