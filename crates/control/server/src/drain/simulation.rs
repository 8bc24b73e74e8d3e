//! Random clusters under jobs of all types whose nodes are drained: scheduler, state and drainer together, with a
//! simulated clock and simulated clients. A drained node ends empty.

use super::{decide::decide, leave};
use caravan_scheduler::{Params, schedule};
use caravan_state::Root;
use caravan_types::alloc::{AllocDeploymentStatus, AllocUpdate, Allocation, ClientStatus};
use caravan_types::command::{Change, Command, DrainEnd};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::{Job, JobType, MigrateStrategy, ReschedulePolicy};
use caravan_types::node::{DrainStrategy, Eligibility, Node};
use caravan_types::{AllocId, JobKey, Nanos, NodeId, Time, UnixNanos};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
const KINDS: [JobType; 4] = [JobType::Service, JobType::Batch, JobType::System, JobType::Sysbatch];
const ROOM: i64 = 1000;

#[derive(Clone, Debug)]
enum Event {
    Register {
        job: usize,
        count: u32,
        cpu: i64,
        parallel: u32,
    },
    /// Deadline in seconds; 0 without a deadline, negative: immediately.
    Drain {
        node: usize,
        deadline: i64,
        ignore_system: bool,
    },
    /// The clients execute their allocations.
    Obey,
    /// Batch allocations end.
    Ends {
        pick: usize,
    },
    Fails {
        pick: usize,
    },
    Wait {
        seconds: i64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0_usize..4, 0_u32..6, 1_i64..600, 0_u32..3)
            .prop_map(|(job, count, cpu, parallel)| Event::Register { job, count, cpu, parallel }),
        3 => (0_usize..4, -1_i64..3, any::<bool>())
            .prop_map(|(node, deadline, ignore_system)| Event::Drain {
                node, deadline: deadline * 30, ignore_system
            }),
        4 => Just(Event::Obey),
        2 => (0_usize..8).prop_map(|pick| Event::Ends { pick }),
        1 => (0_usize..8).prop_map(|pick| Event::Fails { pick }),
        2 => (1_i64..40).prop_map(|seconds| Event::Wait { seconds }),
    ]
}

struct World {
    root: Root,
    now: UnixNanos,
    evals: u64,
    /// Nodes that were drained, and whether allocations of system jobs may stay.
    drained: BTreeMap<NodeId, bool>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            root: Root::default(),
            now: UnixNanos(Nanos::from_secs(1000).0),
            evals: 0,
            drained: BTreeMap::new(),
        };
        for id in NODES {
            let mut node = caravan_sim::node(id);
            node.node_resources.cpu.cpu_shares = ROOM;
            node.node_resources.memory.memory_mb = 100_000;
            world.apply(Change::NodeRegister { node: Box::new(node), evals: Vec::new() });
        }
        world
    }

    fn apply(&mut self, change: Change) {
        let (next, outcome, _) = self.root.apply(self.root.index() + 1, &Command { now: self.now, change });
        assert_eq!(outcome.refused, None);
        self.root = next;
    }

    fn eval(&mut self, job: &Job, trigger: Trigger) -> Evaluation {
        self.evals += 1;
        Evaluation {
            id: format!("eval-{:08}", self.evals).into(),
            namespace: job.namespace.clone(),
            job_id: job.id.clone(),
            kind: job.kind.as_str().into(),
            priority: 50,
            triggered_by: trigger,
            ..Evaluation::default()
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Register { job, count, cpu, parallel } => self.register(*job, *count, *cpu, *parallel),
            Event::Drain { node, deadline, ignore_system } => {
                self.drain(NODES[*node], *deadline, *ignore_system);
            }
            Event::Obey => self.obey(),
            Event::Ends { pick } => self.end(*pick, ClientStatus::Complete),
            Event::Fails { pick } => self.end(*pick, ClientStatus::Failed),
            Event::Wait { seconds } => self.now = self.now.plus(Nanos::from_secs(*seconds)),
        }
    }

    fn register(&mut self, at: usize, count: u32, cpu: i64, parallel: u32) {
        let kind = KINDS[at];
        let count = if kind.is_system() { count.min(1) } else { count };
        let mut job = caravan_sim::job(&format!("job-{at}"), kind, count);
        let group = &mut job.task_groups[0];
        group.tasks[0].resources.cpu = cpu;
        group.tasks[0].resources.memory_mb = 10;
        // Without a reschedule policy, a failed allocation stays on its node.
        group.reschedule_policy = (kind == JobType::Service).then(|| ReschedulePolicy {
            delay: Nanos::from_secs(5),
            delay_function: "constant".into(),
            unlimited: true,
            ..ReschedulePolicy::default()
        });
        let migrate = MigrateStrategy { max_parallel: parallel, ..MigrateStrategy::default() };
        group.migrate = (kind == JobType::Service && parallel > 0).then_some(migrate);
        let eval = Some(self.eval(&job, Trigger::JobRegister));
        self.apply(Change::JobRegister { job: Box::new(job), expect_modify_index: None, eval, source: None });
    }

    fn drain(&mut self, node: &str, deadline: i64, ignore_system_jobs: bool) {
        let force = self.now.plus(Nanos::from_secs(deadline)).to_time();
        let drain = DrainStrategy {
            deadline: Nanos::from_secs(deadline),
            ignore_system_jobs,
            force_deadline: if deadline > 0 { force } else { Time::default() },
            started_at: self.now.to_time(),
        };
        self.drained.insert(node.into(), ignore_system_jobs);
        self.end_drain(node.into(), Some(drain), None);
    }

    fn end_drain(&mut self, node: NodeId, drain: Option<DrainStrategy>, end: Option<DrainEnd>) {
        self.apply(Change::NodeDrain {
            node,
            drain,
            mark_eligible: false,
            meta: BTreeMap::new(),
            accessor: String::new(),
            end,
            evals: Vec::new(),
        });
    }

    fn says(&mut self, alloc: &Allocation, client_status: ClientStatus) {
        let running = client_status == ClientStatus::Running;
        let status = AllocDeploymentStatus {
            healthy: Some(true),
            timestamp: self.now.to_time(),
            ..AllocDeploymentStatus::default()
        };
        let update = AllocUpdate {
            alloc_id: alloc.id.clone(),
            client_status,
            deployment_status: running.then_some(status),
            ..AllocUpdate::default()
        };
        let job = alloc.job.clone().filter(|_| client_status == ClientStatus::Failed && !alloc.terminal());
        let evals = job.map(|job| self.eval(&job, Trigger::AllocFailure)).into_iter().collect();
        self.apply(Change::AllocUpdates { updates: vec![update], evals });
    }

    fn allocs(&self, which: impl Fn(&Allocation) -> bool) -> Vec<Arc<Allocation>> {
        let of_node = |id: &str| self.root.allocs_by_node(&id.into()).cloned().collect::<Vec<_>>();
        NODES.iter().flat_map(|id| of_node(id)).filter(|alloc| which(alloc)).collect()
    }

    fn obey(&mut self) {
        for alloc in self.allocs(|alloc| !alloc.client_terminal()) {
            let stops = alloc.server_terminal();
            self.says(&alloc, if stops { ClientStatus::Complete } else { ClientStatus::Running });
        }
    }

    fn end(&mut self, pick: usize, status: ClientStatus) {
        let batch = |alloc: &Allocation| {
            !alloc.terminal()
                && (status == ClientStatus::Failed
                    || alloc.job.as_ref().is_some_and(|job| job.kind.is_batch()))
        };
        let live = self.allocs(batch);
        if let Some(alloc) = live.get(pick % live.len().max(1)) {
            self.says(alloc, status);
        }
    }

    fn due(&self) -> Option<Evaluation> {
        let due = |eval: &&Arc<Evaluation>| {
            eval.status == EvalStatus::Pending && eval.wait_until.to_unix() <= self.now
        };
        self.root.evals().find(due).map(|eval| Evaluation::clone(eval))
    }

    /// Executes all work that is due at this moment. Must terminate.
    fn work(&mut self) {
        for round in 0.. {
            assert!(round < 500, "it goes on for ever");
            if let Some(eval) = self.due() {
                self.evaluate(&eval);
                continue;
            }
            let draining: Vec<Arc<Node>> =
                self.root.nodes().filter(|node| node.drain_strategy.is_some()).cloned().collect();
            let mut acted = false;
            for node in draining {
                let decision = decide(&self.root, &node, self.now, |_| None);
                acted |= decision.finished || !decision.mark.is_empty();
                if decision.finished {
                    let end = DrainEnd { deadline_reached: decision.deadline_reached };
                    self.end_drain(node.id.clone(), None, Some(end));
                } else if !decision.mark.is_empty() {
                    self.leave(decision.mark);
                }
            }
            self.check();
            if !acted {
                return;
            }
        }
    }

    fn leave(&mut self, ids: BTreeSet<AllocId>) {
        let keys: BTreeSet<JobKey> =
            ids.iter().filter_map(|id| self.root.alloc(id)).map(|alloc| alloc.job_key()).collect();
        let jobs: Vec<Arc<Job>> = keys.iter().filter_map(|key| self.root.job(key)).cloned().collect();
        let evals = jobs.iter().map(|job| self.eval(job, Trigger::NodeDrain)).collect();
        let transitions = ids.into_iter().map(|id| (id, leave())).collect();
        self.apply(Change::AllocTransitions { transitions, evals });
    }

    fn evaluate(&mut self, eval: &Evaluation) {
        let decision = schedule(&self.root, eval, &Params::new(self.now, self.evals));
        for alloc in decision.plan.placements.values().flatten() {
            if self.root.alloc(&alloc.id).is_none() {
                let node = self.root.node(&alloc.node_id).expect("it is placed on a node");
                assert!(
                    node.is_schedulable(),
                    "{} is placed on {}, which takes nothing",
                    alloc.name,
                    node.id
                );
            }
        }
        self.apply(caravan_sim::commit_all(decision));
    }

    fn check(&self) {
        for node in self.root.nodes() {
            // A plan's stops make room for its placements.
            let used = self.root.allocs_by_node(&node.id).filter(|alloc| !alloc.terminal());
            let cpu: i64 = used
                .filter_map(|alloc| alloc.allocated_resources.clone())
                .map(|supplied| supplied.tasks.values().map(|task| task.cpu.cpu_shares).sum::<i64>())
                .sum();
            assert!(cpu <= ROOM, "{} is over-committed: {cpu}", node.id);
        }
        assert_eq!(caravan_state::check(&self.root), Vec::<String>::new());
    }

    /// Lets deadlines pass and batch allocations end, until no work remains.
    fn calm(&mut self) {
        for _ in 0..12 {
            for _ in 0..8 {
                self.obey();
                self.work();
            }
            let batch = |alloc: &Allocation| alloc.job.as_ref().is_some_and(|job| job.kind.is_batch());
            for alloc in self.allocs(|alloc| !alloc.terminal() && batch(alloc)) {
                self.says(&alloc, ClientStatus::Complete);
            }
            self.now = self.now.plus(Nanos::from_secs(20));
            self.work();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_drained_node_ends_empty(events in prop::collection::vec(event(), 1..25)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.work();
        }
        world.calm();
        // Without a deadline, a drain waits until the replacements run elsewhere. If there is no room, an operator
        // must force the drain.
        for (id, system_stays) in world.drained.clone() {
            let Some(drain) = world.root.node(&id).unwrap().drain_strategy.clone() else { continue };
            let waits = world.root.evals().any(|eval| eval.status == EvalStatus::Blocked);
            prop_assert!(drain.deadline.0 == 0 && waits, "the drain of {id} goes on");
            world.drain(id.as_str(), -1, system_stays);
        }
        world.calm();
        for (id, system_stays) in &world.drained {
            let node = world.root.node(id).unwrap();
            prop_assert!(node.drain_strategy.is_none(), "the drain of {id} goes on");
            prop_assert_eq!(node.scheduling_eligibility, Eligibility::Ineligible);
            let stays = |alloc: &&Arc<Allocation>| {
                let system = alloc.job.as_ref().is_some_and(|job| job.kind.is_system());
                let may_stay = *system_stays && system;
                !alloc.client_terminal() && !may_stay
            };
            let left: Vec<&str> =
                world.root.allocs_by_node(id).filter(stays).map(|alloc| alloc.name.as_str()).collect();
            prop_assert!(left.is_empty(), "{id} still runs {left:?}");
        }
        // If there is room, all migrated allocations run elsewhere.
        let key = JobKey::new("default", "job-0");
        if let Some(job) = world.root.job(&key) {
            let runs = world.root.allocs_by_job(&key).filter(|alloc| !alloc.terminal()).count();
            let others = NODES.iter().any(|id| !world.drained.contains_key(*id));
            let blocked = world.root.evals_by_job(&key).any(|eval| eval.status == EvalStatus::Blocked);
            let desired = job.task_groups[0].count as usize;
            prop_assert!(runs == desired || !others || blocked, "{runs} of {desired} run");
        }
    }
}
