//! Random histories of a job with deployments: scheduler, state and watcher together, with a simulated clock and
//! simulated clients.

use super::{change_of, decide};
use caravan_scheduler::{Params, schedule};
use caravan_state::Root;
use caravan_types::alloc::{AllocDeploymentStatus, AllocUpdate, Allocation, ClientStatus, DesiredTransition};
use caravan_types::command::{Change, Command, DeploymentChange};
use caravan_types::deployment::{Deployment, DeploymentStatus};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::{JobType, ReschedulePolicy, UpdateStrategy};
use caravan_types::node::NodeStatus;
use caravan_types::{AllocId, JobKey, Nanos, UnixNanos};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const SECOND: i64 = 1_000_000_000;
const UPDATING: &str = "alloc is being updated due to job update";

#[derive(Clone, Debug)]
enum Event {
    Register {
        count: u32,
        parallel: u32,
        canary: u32,
        revert: bool,
        destructive: bool,
    },
    Stop,
    /// The clients stop all allocations that should stop.
    Settle,
    Runs {
        pick: usize,
    },
    Well {
        pick: usize,
    },
    Fails {
        pick: usize,
    },
    NodeDown {
        node: usize,
    },
    NodeUp {
        node: usize,
    },
    Leave {
        pick: usize,
    },
    Promote,
    Wait {
        seconds: i64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0_u32..5, 1_u32..3, 0_u32..3, any::<bool>(), any::<bool>()).prop_map(
            |(count, parallel, canary, revert, destructive)| Event::Register {
                count, parallel, canary, revert, destructive
            }
        ),
        1 => Just(Event::Stop),
        4 => Just(Event::Settle),
        4 => (0_usize..8).prop_map(|pick| Event::Runs { pick }),
        6 => (0_usize..8).prop_map(|pick| Event::Well { pick }),
        2 => (0_usize..8).prop_map(|pick| Event::Fails { pick }),
        1 => (0_usize..3).prop_map(|node| Event::NodeDown { node }),
        1 => (0_usize..3).prop_map(|node| Event::NodeUp { node }),
        1 => (0_usize..8).prop_map(|pick| Event::Leave { pick }),
        2 => Just(Event::Promote),
        3 => (1_i64..100).prop_map(|seconds| Event::Wait { seconds }),
    ]
}

struct World {
    root: Root,
    now: UnixNanos,
    evals: u64,
    versions: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self { root: Root::default(), now: UnixNanos(1_000 * SECOND), evals: 0, versions: 0 };
        for id in NODES {
            world.node(id, NodeStatus::Ready);
        }
        world
    }

    fn node(&mut self, id: &str, status: NodeStatus) {
        let mut node = caravan_sim::node(id);
        node.status = status;
        node.node_resources.cpu.cpu_shares = 100_000;
        node.node_resources.memory.memory_mb = 100_000;
        let evals = vec![self.eval(Trigger::NodeUpdate)];
        self.apply(Change::NodeRegister { node: Box::new(node), evals });
    }

    fn apply(&mut self, change: Change) -> bool {
        let command = Command { now: self.now, change };
        let (next, outcome, _) = self.root.apply(self.root.index() + 1, &command);
        self.root = next;
        outcome.refused.is_none()
    }

    fn key() -> JobKey {
        JobKey::new("default", "web")
    }

    fn eval(&mut self, trigger: Trigger) -> Evaluation {
        self.evals += 1;
        Evaluation {
            id: format!("eval-{:08}", self.evals).into(),
            namespace: "default".into(),
            job_id: "web".into(),
            kind: "service".into(),
            priority: 50,
            triggered_by: trigger,
            ..Evaluation::default()
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Register { count, parallel, canary, revert, destructive } => {
                self.register(*count, *parallel, *canary, *revert, *destructive);
            }
            Event::Stop => {
                let eval = Some(self.eval(Trigger::JobDeregister));
                self.apply(Change::JobDeregister { key: Self::key(), purge: false, eval });
            }
            Event::Settle => {
                let stopping = self.allocs(|a| a.server_terminal() && !a.client_terminal());
                stopping.iter().for_each(|id| self.says(id, ClientStatus::Complete, None));
            }
            Event::Runs { pick } => self.pick(*pick, |world, id| world.says(id, ClientStatus::Running, None)),
            Event::Well { pick } => {
                self.pick(*pick, |world, id| world.says(id, ClientStatus::Running, Some(true)));
            }
            Event::Fails { pick } => {
                self.pick(*pick, |world, id| world.says(id, ClientStatus::Failed, Some(false)));
            }
            Event::NodeDown { node } => self.node(NODES[*node], NodeStatus::Down),
            Event::NodeUp { node } => self.node(NODES[*node], NodeStatus::Ready),
            Event::Leave { pick } => self.pick(*pick, |world, id| {
                let leave = DesiredTransition { migrate: Some(true), ..DesiredTransition::default() };
                let evals = vec![world.eval(Trigger::NodeDrain)];
                let transitions = BTreeMap::from([(id.clone(), leave)]);
                world.apply(Change::AllocTransitions { transitions, evals });
            }),
            Event::Promote => {
                for row in self.active() {
                    let evals = vec![self.eval(Trigger::DeploymentWatcher)];
                    let change = DeploymentChange {
                        id: row.id.clone(),
                        promote: Some(Vec::new()),
                        evals,
                        ..DeploymentChange::default()
                    };
                    // Refused while the canaries are not healthy.
                    self.apply(Change::Deployment(Box::new(change)));
                }
            }
            Event::Wait { seconds } => self.now = self.now.plus(Nanos(seconds * SECOND)),
        }
    }

    fn register(&mut self, count: u32, parallel: u32, canary: u32, revert: bool, destructive: bool) {
        if destructive {
            self.versions += 1;
        }
        let mut job = caravan_sim::job("web", JobType::Service, count);
        let group = &mut job.task_groups[0];
        group.tasks[0].resources.cpu = 10;
        group.tasks[0].resources.memory_mb = 10;
        group.tasks[0].env.insert("V".into(), self.versions.to_string());
        group.update = Some(UpdateStrategy {
            max_parallel: parallel,
            canary,
            auto_revert: revert,
            progress_deadline: Nanos(60 * SECOND),
            ..UpdateStrategy::default()
        });
        group.reschedule_policy = Some(ReschedulePolicy {
            delay: Nanos(5 * SECOND),
            delay_function: "exponential".into(),
            max_delay: Nanos(60 * SECOND),
            unlimited: true,
            ..ReschedulePolicy::default()
        });
        let eval = Some(self.eval(Trigger::JobRegister));
        self.apply(Change::JobRegister { job: Box::new(job), expect_modify_index: None, eval, source: None });
    }

    fn allocs(&self, which: impl Fn(&Allocation) -> bool) -> Vec<AllocId> {
        self.root.allocs_by_job(&Self::key()).filter(|a| which(a)).map(|a| a.id.clone()).collect()
    }

    fn pick(&mut self, pick: usize, act: impl FnOnce(&mut Self, &AllocId)) {
        let live = self.allocs(|a| !a.terminal());
        if let Some(id) = live.get(pick % live.len().max(1)).cloned() {
            act(self, &id);
        }
    }

    fn says(&mut self, id: &AllocId, client_status: ClientStatus, healthy: Option<bool>) {
        let Some(alloc) = self.root.alloc(id).cloned() else { return };
        let status = healthy.map(|healthy| AllocDeploymentStatus {
            healthy: Some(healthy),
            timestamp: self.now.to_time(),
            ..AllocDeploymentStatus::default()
        });
        let update = AllocUpdate {
            alloc_id: id.clone(),
            client_status,
            deployment_status: status,
            deployment_id: alloc.deployment_id.clone(),
            ..AllocUpdate::default()
        };
        let fails = client_status == ClientStatus::Failed && !alloc.terminal();
        let evals = if fails { vec![self.eval(Trigger::AllocFailure)] } else { Vec::new() };
        self.apply(Change::AllocUpdates { updates: vec![update], evals });
    }

    fn active(&self) -> Vec<Deployment> {
        let active = self.root.deployments().filter(|row| !row.status.is_terminal());
        active.map(|row| Deployment::clone(row)).collect()
    }

    fn due(&self) -> Option<Evaluation> {
        let due = |e: &&std::sync::Arc<Evaluation>| {
            e.status == EvalStatus::Pending && e.wait_until.to_unix() <= self.now
        };
        self.root.evals().find(due).map(|e| Evaluation::clone(e))
    }

    /// Executes all work that is due at this moment. Must terminate.
    fn work(&mut self) {
        for round in 0.. {
            assert!(round < 200, "evaluations go on for ever");
            let eval = self.due();
            if let Some(eval) = &eval {
                self.evaluate(eval);
            }
            let mut acted = false;
            for row in self.active() {
                let step = decide(&self.root, &row, self.now);
                if let Some(change) = change_of(&self.root, &row, step, self.now) {
                    acted |= self.apply(Change::Deployment(Box::new(change)));
                }
            }
            self.check();
            if eval.is_none() && !acted {
                return;
            }
        }
    }

    fn evaluate(&mut self, eval: &Evaluation) {
        let params = Params::new(self.now, self.evals);
        let decision = schedule(&self.root, eval, &params);
        assert!(self.apply(caravan_sim::commit_all(decision)), "the plan is refused");
    }

    fn check(&self) {
        let live: Vec<_> = self.root.allocs_by_job(&Self::key()).filter(|a| !a.terminal()).collect();
        let mut names = BTreeSet::new();
        for alloc in live.iter().filter(|a| !a.is_canary() && a.client_status != ClientStatus::Unknown) {
            assert!(names.insert(alloc.name.clone()), "{} runs twice", alloc.name);
        }
        assert!(self.active().len() <= 1, "two deployments at a time");
        for row in self.active().iter().filter(|row| row.status == DeploymentStatus::Running) {
            let Some(job) = self.root.job_version(&Self::key(), row.job_version) else { continue };
            let parallel = job.task_groups[0].update.as_ref().map_or(0, |update| update.max_parallel);
            // The places whose earlier allocation was stopped for the new version, and whose new allocation is not
            // healthy yet. Places that this deployment took over from an earlier deployment followed the limit of
            // that deployment.
            let down = live.iter().filter(|alloc| {
                let before = self.root.alloc(&alloc.previous_allocation);
                row.holds(alloc)
                    && alloc.create_index >= row.create_index
                    && alloc.health() != Some(true)
                    && before.is_some_and(|before| before.desired_description == UPDATING)
            });
            let down = u32::try_from(down.count()).unwrap_or(u32::MAX);
            assert!(down <= parallel, "{down} of the group are being updated, {parallel} may be");
        }
        assert_eq!(caravan_state::check(&self.root), Vec::<String>::new());
    }

    /// Lets all allocations run, become healthy and be promoted, until no work remains.
    fn calm(&mut self) {
        for id in NODES {
            if self.root.node(&id.into()).is_some_and(|node| node.status != NodeStatus::Ready) {
                self.node(id, NodeStatus::Ready);
            }
        }
        for _ in 0..60 {
            self.happen(&Event::Settle);
            let unsettled = self.allocs(|a| {
                !a.terminal() && (a.client_status != ClientStatus::Running || a.health().is_none())
            });
            unsettled.iter().for_each(|id| self.says(id, ClientStatus::Running, Some(true)));
            self.happen(&Event::Promote);
            self.happen(&Event::Wait { seconds: 20 });
            self.work();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn a_job_reaches_its_desired_state_after_any_events(events in prop::collection::vec(event(), 1..30)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.work();
        }
        world.calm();
        prop_assert!(world.active().is_empty(), "a deployment goes on: {:?}", world.active());
        if let Some(job) = world.root.job(&World::key()).cloned() {
            let desired = if job.stop { 0 } else { job.task_groups[0].count };
            let live = world.allocs(|a| !a.terminal());
            // A failed version may leave places empty that never ran any other version.
            let failed = world.root.deployments_by_job(&World::key()).any(|row| {
                row.job_version == job.version && row.status == DeploymentStatus::Failed
            });
            prop_assert!(
                live.len() == desired as usize || (failed && live.len() <= desired as usize),
                "{} of {desired} run", live.len()
            );
        }
        // Another check changes nothing.
        let eval = world.eval(Trigger::JobRegister);
        let again = schedule(&world.root, &eval, &Params::new(world.now, 7));
        prop_assert!(again.plan.is_empty(), "{:?}", again.plan);
        prop_assert!(world.due().is_none());
    }
}
