//! A cluster with a constant clock.

use caravan_scheduler::{Overlay, Params, Rules, schedule};
use caravan_state::Root;
use caravan_types::command::{Change, Command, PlanCommit, Refusal};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::{Job, JobType};
use caravan_types::node::Node;
use caravan_types::plan::Decision;
use caravan_types::{JobKey, UnixNanos};

/// The time of all events.
const NOW: UnixNanos = UnixNanos(1_700_000_000_000_000_000);

/// The state, and the operations that change it.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    root: Root,
    evals: u64,
    rules: Option<Rules>,
}

impl Cluster {
    /// Creates an empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the state.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Sets the scheduling rules for later decisions.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = Some(rules);
    }

    /// Returns the time of all events.
    pub fn now(&self) -> UnixNanos {
        NOW
    }

    /// Applies a command.
    ///
    /// # Errors
    /// Returns the state's refusal.
    pub fn change(&mut self, change: Change) -> Result<(), Refusal> {
        let command = Command { now: NOW, change };
        let (root, outcome, _) = self.root.apply(self.root.index() + 1, &command);
        self.root = root;
        match outcome.refused {
            None => Ok(()),
            Some(refusal) => Err(refusal),
        }
    }

    /// Adds a node, or replaces the node with the same id.
    ///
    /// # Errors
    /// Returns the state's refusal.
    pub fn add_node(&mut self, mut node: Node) -> Result<(), Refusal> {
        node.computed_class = node.class();
        self.change(Change::NodeRegister { node: Box::new(node), evals: Vec::new() })
    }

    /// Registers a job and returns its evaluation.
    ///
    /// # Errors
    /// Returns the state's refusal.
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

    /// Creates an evaluation of a job without storing it.
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

    /// Runs the scheduler on an evaluation without writing the decision.
    pub fn decide(&self, eval: &Evaluation, seed: u64) -> Decision {
        let params = Params::new(NOW, seed);
        match self.rules {
            None => schedule(&self.root, eval, &params),
            rules => schedule(&Overlay::new(&self.root).with_rules(rules), eval, &params),
        }
    }

    /// Writes a decision, as the planner writes a plan that still fits.
    ///
    /// # Errors
    /// Returns the state's refusal.
    pub fn commit(&mut self, decision: Decision) -> Result<(), Refusal> {
        self.change(commit_all(decision))
    }
}

/// Returns the command that writes the whole decision, as the planner writes a plan that still fits.
pub fn commit_all(decision: Decision) -> Change {
    let mut evals = vec![decision.eval];
    evals.extend(decision.follow_ups);
    let plan = decision.plan;
    Change::Plan(Box::new(PlanCommit {
        eval_id: plan.eval_id,
        job: plan.job,
        placements: plan.placements.into_values().flatten().collect(),
        stops: plan.stops.into_values().flatten().collect(),
        claims: plan.claims,
        host_claims: plan.host_claims,
        deployment: plan.deployment,
        deployment_updates: plan.deployment_updates,
        evals,
    }))
}
