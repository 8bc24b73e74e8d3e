use super::*;
use caravan_types::alloc::AllocUpdate;
use caravan_types::command::{Command, PlanCommit};
use caravan_types::eval::EvalStatus;
use caravan_types::job::{JobType, TaskGroup};
use caravan_types::plan::StopAlloc;

const DAY: Nanos = Nanos(86_400_000_000_000);
const HOUR: Nanos = Nanos(3_600_000_000_000);

struct World(Root);

impl World {
    fn new() -> Self {
        let mut world = Self(Root::default());
        let node = Node { id: "n".into(), name: "n".into(), status: NodeStatus::Ready, ..Node::default() };
        world.apply(Change::NodeRegister { node: Box::new(node), evals: Vec::new() });
        world
    }

    fn apply(&mut self, change: Change) {
        let (next, outcome, _) = self.0.apply(self.0.index() + 1, &Command { now: UnixNanos(1), change });
        assert_eq!(outcome.refused, None);
        self.0 = next;
    }

    /// Adds a job with one allocation in a status, created by evaluation `e`.
    fn job(&mut self, kind: JobType, status: ClientStatus) {
        let group = TaskGroup { name: "g".into(), count: 1, ..TaskGroup::default() };
        let job = Job {
            id: "j".into(),
            namespace: "default".into(),
            node_pool: "default".into(),
            kind,
            submit_time: UnixNanos(1),
            task_groups: vec![group],
            ..Job::default()
        };
        let change =
            Change::JobRegister { job: Box::new(job), expect_modify_index: None, eval: None, source: None };
        self.apply(change);
        let eval = Evaluation {
            id: "e".into(),
            namespace: "default".into(),
            job_id: "j".into(),
            status: EvalStatus::Complete,
            ..Evaluation::default()
        };
        let alloc = Allocation {
            id: "a".into(),
            eval_id: "e".into(),
            node_id: "n".into(),
            name: "j.g[0]".into(),
            task_group: "g".into(),
            ..Allocation::default()
        };
        let job = self.0.job(&JobKey::new("default", "j")).cloned();
        let commit = PlanCommit { job, placements: vec![alloc], evals: vec![eval], ..PlanCommit::default() };
        self.apply(Change::Plan(Box::new(commit)));
        let update = AllocUpdate { alloc_id: "a".into(), client_status: status, ..AllocUpdate::default() };
        self.apply(Change::AllocUpdates { updates: vec![update], evals: Vec::new() });
    }

    fn stop(&mut self) {
        let key = JobKey::new("default", "j");
        self.apply(Change::JobDeregister { key, purge: false, eval: None });
        let stop = StopAlloc { alloc_id: "a".into(), ..StopAlloc::default() };
        self.apply(Change::Plan(Box::new(PlanCommit { stops: vec![stop], ..PlanCommit::default() })));
    }

    fn collect(&mut self, ages: &Ages, now: UnixNanos) {
        for change in collectable(&self.0, ages, now) {
            self.apply(change);
        }
        assert_eq!(caravan_state::check(&self.0), Vec::<String>::new());
    }

    fn counts(&self) -> (usize, usize, usize) {
        (self.0.jobs().count(), self.0.evals().count(), self.0.allocs().count())
    }
}

#[test]
fn what_runs_stays_and_what_is_over_goes_by_age() {
    let ages = Ages { evals: HOUR, batch_evals: DAY, jobs: DAY, deployments: HOUR, nodes: DAY };
    let mut world = World::new();
    world.job(JobType::Service, ClientStatus::Running);
    world.collect(&Ages::default(), UnixNanos(1));
    assert_eq!(world.counts(), (1, 1, 1));
    world.stop();
    let update =
        AllocUpdate { alloc_id: "a".into(), client_status: ClientStatus::Complete, ..AllocUpdate::default() };
    world.apply(Change::AllocUpdates { updates: vec![update], evals: Vec::new() });
    world.collect(&ages, UnixNanos(1).plus(Nanos(HOUR.0 - 1)));
    assert_eq!(world.counts(), (1, 1, 1));
    world.collect(&ages, UnixNanos(1).plus(HOUR));
    assert_eq!(world.counts(), (1, 0, 0));
    world.collect(&ages, UnixNanos(1).plus(DAY));
    assert_eq!(world.counts(), (0, 0, 0));
}

#[test]
fn a_failed_allocation_is_kept_while_its_job_runs() {
    let mut world = World::new();
    world.job(JobType::Service, ClientStatus::Failed);
    world.collect(&Ages::default(), UnixNanos(1));
    assert_eq!(world.counts(), (1, 1, 1));
    world.stop();
    world.collect(&Ages::default(), UnixNanos(1));
    assert_eq!(world.counts(), (0, 0, 0));
}

/// The successor may still fetch the data of a sticky disk.
#[test]
fn an_allocation_is_kept_until_its_successor_has_begun() {
    let mut world = World::new();
    world.job(JobType::Service, ClientStatus::Failed);
    let next = Allocation {
        id: "b".into(),
        eval_id: "e".into(),
        node_id: "n".into(),
        name: "j.g[0]".into(),
        task_group: "g".into(),
        previous_allocation: "a".into(),
        ..Allocation::default()
    };
    let job = world.0.job(&JobKey::new("default", "j")).cloned();
    world.apply(Change::Plan(Box::new(PlanCommit { job, placements: vec![next], ..PlanCommit::default() })));
    world.collect(&Ages::default(), UnixNanos(1));
    assert_eq!(world.counts(), (1, 1, 2));
    let update =
        AllocUpdate { alloc_id: "b".into(), client_status: ClientStatus::Running, ..AllocUpdate::default() };
    world.apply(Change::AllocUpdates { updates: vec![update], evals: Vec::new() });
    world.collect(&Ages::default(), UnixNanos(1));
    assert_eq!(world.counts(), (1, 1, 1));
}

#[test]
fn finished_batch_work_is_remembered_for_as_long_as_its_job() {
    let ages = Ages { jobs: DAY, ..Ages::default() };
    let mut world = World::new();
    world.job(JobType::Batch, ClientStatus::Complete);
    world.collect(&ages, UnixNanos(1).plus(HOUR));
    assert_eq!(world.counts(), (1, 1, 1));
    world.collect(&ages, UnixNanos(1).plus(DAY));
    assert_eq!(world.counts(), (0, 0, 0));
}

#[test]
fn a_node_goes_once_it_is_down_for_long_and_nothing_of_it_is_left() {
    let mut world = World::new();
    world.job(JobType::Service, ClientStatus::Running);
    let down =
        Change::NodeStatus { node: "n".into(), status: NodeStatus::Down, event: None, evals: Vec::new() };
    world.apply(down);
    world.collect(&Ages::default(), UnixNanos(1));
    assert_eq!(world.0.nodes().count(), 1, "an allocation may still run there");
    let update =
        AllocUpdate { alloc_id: "a".into(), client_status: ClientStatus::Complete, ..AllocUpdate::default() };
    world.apply(Change::AllocUpdates { updates: vec![update], evals: Vec::new() });
    world.collect(&Ages { nodes: DAY, ..Ages::default() }, UnixNanos(1));
    assert_eq!(world.0.nodes().count(), 1);
    world.collect(&Ages::default(), UnixNanos(1));
    assert_eq!(world.0.nodes().count(), 0);
}
