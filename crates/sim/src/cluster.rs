//! A cluster whose time stands still.

use caravan_scheduler::{Overlay, Params, Rules, schedule};
use caravan_state::Root;
use caravan_types::command::{Change, Command, PlanCommit, Refusal};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::{EphemeralDisk, Job, JobType, Task, TaskGroup};
use caravan_types::node::{DriverInfo, Node, NodeStatus};
use caravan_types::plan::Decision;
use caravan_types::{JobKey, UnixNanos};

/// When everything happens.
const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

/// State, and the means to change it.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    root: Root,
    evals: u64,
    rules: Option<Rules>,
}

impl Cluster {
    /// An empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// The state.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Schedules by these rules from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = Some(rules);
    }

    /// When everything happens.
    pub fn now(&self) -> UnixNanos {
        NOW
    }

    /// Applies a command.
    ///
    /// # Errors
    /// With what the state refuses.
    pub fn change(&mut self, change: Change) -> Result<(), Refusal> {
        let command = Command { now: NOW, change };
        let (root, outcome, _) = self.root.apply(self.root.index() + 1, &command);
        self.root = root;
        match outcome.refused {
            None => Ok(()),
            Some(refusal) => Err(refusal),
        }
    }

    /// Adds a node, or replaces it.
    ///
    /// # Errors
    /// With what the state refuses.
    pub fn add_node(&mut self, mut node: Node) -> Result<(), Refusal> {
        node.computed_class = node.class();
        self.change(Change::NodeRegister { node: Box::new(node), evals: Vec::new() })
    }

    /// Registers a job and answers its evaluation.
    ///
    /// # Errors
    /// With what the state refuses.
    pub fn register(&mut self, job: Job) -> Result<Evaluation, Refusal> {
        let key = job.key();
        let eval = self.evaluation(&key, job.kind, job.priority, Trigger::JobRegister);
        self.change(Change::JobRegister {
            job: Box::new(job),
            expect_modify_index: None,
            eval: Some(eval.clone()),
            source: None,
        })?;
        Ok(self.root.eval(&eval.id).map_or(eval, |stored| Evaluation::clone(stored)))
    }

    /// A new evaluation of a job, not stored yet.
    pub fn evaluation(&mut self, key: &JobKey, kind: JobType, priority: i64, trigger: Trigger) -> Evaluation {
        self.evals += 1;
        Evaluation {
            id: format!("eval-{}", self.evals).into(),
            namespace: key.namespace.clone(),
            job_id: key.id.clone(),
            kind: kind.as_str().to_owned(),
            priority,
            triggered_by: trigger,
            status: EvalStatus::Pending,
            create_time: NOW,
            modify_time: NOW,
            ..Evaluation::default()
        }
    }

    /// Lets the scheduler decide; nothing is written.
    pub fn decide(&self, eval: &Evaluation, seed: u64) -> Decision {
        let params = Params { now: NOW, seed };
        match self.rules {
            None => schedule(&self.root, eval, &params),
            rules => schedule(&Overlay::new(&self.root).with_rules(rules), eval, &params),
        }
    }

    /// Writes a decision, as the planner does with a plan that still fits.
    ///
    /// # Errors
    /// With what the state refuses.
    pub fn commit(&mut self, decision: Decision) -> Result<(), Refusal> {
        let mut evals = vec![decision.eval];
        evals.extend(decision.follow_ups);
        let plan = decision.plan;
        self.change(Change::Plan(Box::new(PlanCommit {
            eval_id: plan.eval_id,
            job: plan.job,
            placements: plan.placements.into_values().flatten().collect(),
            stops: plan.stops.into_values().flatten().collect(),
            claims: plan.claims,
            host_claims: plan.host_claims,
            deployment: plan.deployment,
            deployment_updates: plan.deployment_updates,
            evals,
        })))
    }
}

/// A ready node with 4000 MHz, 8192 MB of memory, 100 GB of disk and the drivers `raw_exec` and `exec`.
pub fn node(id: &str) -> Node {
    let mut node = Node {
        id: id.into(),
        name: id.into(),
        datacenter: "dc1".into(),
        node_pool: "default".into(),
        status: NodeStatus::Ready,
        ..Node::default()
    };
    node.attributes.insert("kernel.name".into(), "linux".into());
    node.attributes.insert("unique.network.ip-address".into(), "10.0.0.1".into());
    node.node_resources.cpu.cpu_shares = 4000;
    node.node_resources.cpu.total_cpu_cores = 4;
    node.node_resources.cpu.reservable_cpu_cores = vec![0, 1, 2, 3];
    node.node_resources.memory.memory_mb = 8192;
    node.node_resources.disk.disk_mb = 102_400;
    node.node_resources.min_dynamic_port = 20_000;
    node.node_resources.max_dynamic_port = 32_000;
    for driver in ["raw_exec", "exec"] {
        let info = DriverInfo { detected: true, healthy: true, ..DriverInfo::default() };
        node.drivers.insert(driver.into(), info);
    }
    node
}

/// A job of one group `g` with one task `t` of 100 MHz, 100 MB of memory and 100 MB of disk under `raw_exec`.
pub fn job(id: &str, kind: JobType, count: u32) -> Job {
    let mut task = Task { name: "t".into(), driver: "raw_exec".into(), ..Task::default() };
    task.resources.cpu = 100;
    task.resources.memory_mb = 100;
    let group = TaskGroup {
        name: "g".into(),
        count,
        tasks: vec![task],
        ephemeral_disk: Some(EphemeralDisk { size_mb: 100, ..EphemeralDisk::default() }),
        ..TaskGroup::default()
    };
    Job {
        id: id.into(),
        name: id.into(),
        namespace: "default".into(),
        region: "global".into(),
        kind,
        priority: 50,
        datacenters: vec!["*".into()],
        node_pool: "default".into(),
        task_groups: vec![group],
        ..Job::default()
    }
}
