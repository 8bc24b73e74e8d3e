use super::*;
use caravan_state::Root;
use caravan_types::Nanos;
use caravan_types::command::{Change, Command, PlanCommit};
use caravan_types::job::{CsiPluginConfig, Job, JobType, MigrateStrategy, Task, TaskGroup};
use caravan_types::node::{DrainStrategy, NodeStatus};
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, Claim, ClaimId, ClaimMode, Volume};
use caravan_types::{AllocId, VolumeKey};

/// A state that is written through commands only.
struct World(Root);

impl World {
    fn new(nodes: &[&str]) -> Self {
        let mut world = Self(Root::default());
        for id in nodes {
            let node = Node {
                id: (*id).into(),
                datacenter: "dc1".into(),
                node_pool: "default".into(),
                status: NodeStatus::Ready,
                ..Node::default()
            };
            world.apply(Change::NodeRegister { node: Box::new(node), evals: Vec::new() });
        }
        world
    }

    fn apply(&mut self, change: Change) {
        let index = self.0.index() + 1;
        let (root, outcome, _) = self.0.apply(index, &Command { now: UnixNanos(1), change });
        assert_eq!(outcome.refused, None);
        self.0 = root;
    }

    fn job(&mut self, id: &str, kind: JobType, count: u32, shape: impl FnOnce(&mut TaskGroup)) -> Arc<Job> {
        let mut group = TaskGroup {
            name: "g".into(),
            count,
            tasks: vec![Task { name: "t".into(), ..Task::default() }],
            ..TaskGroup::default()
        };
        shape(&mut group);
        let job = Job {
            id: id.into(),
            namespace: "default".into(),
            kind,
            datacenters: vec!["dc1".into()],
            node_pool: "default".into(),
            task_groups: vec![group],
            ..Job::default()
        };
        self.apply(Change::JobRegister {
            job: Box::new(job),
            expect_modify_index: None,
            eval: None,
            source: None,
        });
        self.0.jobs().find(|j| j.id == id).unwrap().clone()
    }

    /// Runs an allocation of a job on a node.
    fn run(&mut self, job: &Arc<Job>, id: &str, node: &str, status: ClientStatus) {
        let index = self.0.allocs_by_job(&job.key()).count();
        let alloc = Allocation {
            id: id.into(),
            namespace: "default".into(),
            name: format!("{}.g[{index}]", job.id),
            node_id: node.into(),
            job_id: job.id.clone(),
            task_group: "g".into(),
            ..Allocation::default()
        };
        let commit = PlanCommit { job: Some(job.clone()), placements: vec![alloc], ..PlanCommit::default() };
        self.apply(Change::Plan(Box::new(commit)));
        self.says(id, status);
    }

    fn says(&mut self, id: &str, status: ClientStatus) {
        let update = caravan_types::alloc::AllocUpdate {
            alloc_id: id.into(),
            client_status: status,
            ..Default::default()
        };
        self.apply(Change::AllocUpdates { updates: vec![update], evals: Vec::new() });
    }

    fn leaves(&mut self, ids: &BTreeSet<AllocId>) {
        let leave = caravan_types::alloc::DesiredTransition { migrate: Some(true), ..Default::default() };
        let transitions = ids.iter().map(|id| (id.clone(), leave.clone())).collect();
        self.apply(Change::AllocTransitions { transitions, evals: Vec::new() });
    }

    fn drain(&mut self, node: &str, deadline: i64, ignore_system_jobs: bool) {
        let force = if deadline > 0 { caravan_types::Time(100) } else { caravan_types::Time(0) };
        let drain = DrainStrategy {
            deadline: Nanos(deadline),
            ignore_system_jobs,
            force_deadline: force,
            ..DrainStrategy::default()
        };
        self.apply(Change::NodeDrain {
            node: node.into(),
            drain: Some(drain),
            mark_eligible: false,
            meta: BTreeMap::new(),
            accessor: String::new(),
            end: None,
            evals: Vec::new(),
        });
    }

    fn decide(&self, node: &str, now: i64) -> Decision {
        decide(&self.0, self.0.node(&node.into()).unwrap(), UnixNanos(now), |_| None)
    }
}

fn ids(decision: &Decision) -> Vec<&str> {
    decision.mark.iter().map(AllocId::as_str).collect()
}

#[test]
fn services_leave_a_few_at_a_time_and_all_at_the_deadline() {
    let mut world = World::new(&["n1", "n2"]);
    let web = world.job("web", JobType::Service, 3, |g| {
        g.migrate = Some(MigrateStrategy { max_parallel: 2, ..MigrateStrategy::default() });
    });
    for id in ["a", "b", "c"] {
        world.run(&web, id, "n1", ClientStatus::Running);
    }
    world.drain("n1", 50, false);
    let first = world.decide("n1", 1);
    assert_eq!((ids(&first), first.again), (vec!["a", "b"], Some(UnixNanos(100))));
    world.leaves(&first.mark);
    assert!(world.decide("n1", 1).mark.is_empty(), "no more room until a replacement runs");
    world.says("a", ClientStatus::Complete);
    world.run(&web, "d", "n2", ClientStatus::Running);
    assert_eq!(ids(&world.decide("n1", 1)), ["c"]);
    let late = world.decide("n1", 100);
    assert_eq!((ids(&late), late.deadline_reached), (vec!["c"], true));
}

#[test]
fn batch_runs_to_its_end_or_the_deadline_and_system_work_leaves_last() {
    let mut world = World::new(&["n1"]);
    let batch = world.job("batch", JobType::Batch, 1, |_| {});
    let system = world.job("system", JobType::System, 1, |_| {});
    world.run(&batch, "b", "n1", ClientStatus::Running);
    world.run(&system, "s", "n1", ClientStatus::Running);
    world.drain("n1", 50, false);
    assert!(world.decide("n1", 1).mark.is_empty());
    assert_eq!(ids(&world.decide("n1", 100)), ["b"]);
    world.says("b", ClientStatus::Complete);
    assert_eq!(ids(&world.decide("n1", 1)), ["s"]);
    world.drain("n1", 50, true);
    assert!(world.decide("n1", 1).finished, "system jobs are left alone when asked");
    world.drain("n1", -1, false);
    assert_eq!(ids(&world.decide("n1", 1)), ["s"], "forced: no waiting for a deadline");
}

fn plugin(group: &mut TaskGroup) {
    group.tasks[0].csi_plugin_config = Some(CsiPluginConfig { id: "p".into(), ..CsiPluginConfig::default() });
}

#[test]
fn a_plugin_leaves_after_the_last_mount_even_when_forced_and_the_mount_is_named() {
    let mut world = World::new(&["n1"]);
    let plugin = world.job("plugin", JobType::Service, 1, plugin);
    let web = world.job("web", JobType::Service, 1, |_| {});
    world.run(&plugin, "p", "n1", ClientStatus::Running);
    world.run(&web, "w", "n1", ClientStatus::Running);
    let capability =
        Capability { access_mode: AccessMode::SingleNodeWriter, attachment_mode: AttachmentMode::FileSystem };
    let volume = Volume {
        namespace: "default".into(),
        id: "data".into(),
        plugin_id: "p".into(),
        requested_capabilities: vec![capability],
        ..Volume::default()
    };
    world.apply(Change::VolumeWrite { volume: Box::new(volume), expect_modify_index: 0, exclusive: true });
    let id = ClaimId { volume: VolumeKey::new("default", "data"), alloc: "w".into() };
    let claim = Claim {
        id: id.clone(),
        mode: ClaimMode::Write,
        access_mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        ..Claim::default()
    };
    world.apply(Change::Plan(Box::new(PlanCommit { claims: vec![claim], ..PlanCommit::default() })));
    let attached = caravan_types::command::ClaimStep::Attached {
        publish_context: BTreeMap::new(),
        needs_attach: false,
        external_node_id: String::new(),
    };
    let at = world.0.claim(&id).unwrap().modify_index;
    world.apply(Change::ClaimStep { id: id.clone(), expect_modify_index: at, step: attached });
    world.drain("n1", -1, false);
    assert_eq!(ids(&world.decide("n1", 1)), ["w"]);
    world.leaves(&BTreeSet::from(["w".into()]));
    world.says("w", ClientStatus::Complete);
    let held = world.decide("n1", 1);
    assert!(held.mark.is_empty() && !held.finished);
    assert_eq!(held.held_by["default/data"], "allocation w is releasing");
    let step = |world: &mut World, step| {
        let at = world.0.claim(&id).unwrap().modify_index;
        world.apply(Change::ClaimStep { id: id.clone(), expect_modify_index: at, step });
    };
    step(
        &mut world,
        caravan_types::command::ClaimStep::Failed { error: "busy".into(), next_try: UnixNanos(9) },
    );
    assert!(world.decide("n1", 1).held_by["default/data"].contains("busy"));
    step(&mut world, caravan_types::command::ClaimStep::Unpublished);
    step(&mut world, caravan_types::command::ClaimStep::Unstaged);
    assert_eq!(ids(&world.decide("n1", 1)), ["p"]);
    world.says("p", ClientStatus::Complete);
    assert!(world.decide("n1", 1).finished);
}
