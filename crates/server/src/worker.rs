//! Workers: take an evaluation, let the scheduler decide, submit the plan, write the verdict.

use crate::broker::{Broker, Receipt, Returned};
use crate::core::{Core, new_id};
use crate::error::ServerError;
use crate::plan::{Planner, Submitted};
use caravan_scheduler::{Memory, Params};
use caravan_state::{AdminRow, Topic};
use caravan_types::command::Change;
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::JobType;
use caravan_types::plan::Decision;
use caravan_types::{EvalId, Nanos, UnixNanos};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Plans of an evaluation in a row of which nothing fits before it counts as failed (`http-api` section 6.2).
fn attempts_for(kind: &str) -> u32 {
    match kind.parse::<JobType>() {
        Ok(kind) if kind.is_batch() => 2,
        _ => 5,
    }
}

/// How many of the workers work; operators may change it.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    most: usize,
    active: watch::Sender<usize>,
}

impl WorkerPool {
    /// Works with so many at first; more than there are processors are only there if they are asked for here.
    pub(crate) fn new(active: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let active = active.max(1);
        Self { most: active.max(processors), active: watch::Sender::new(active) }
    }
    pub(crate) fn most(&self) -> usize {
        self.most
    }
    pub(crate) fn active(&self) -> usize {
        *self.active.borrow()
    }
    pub(crate) fn set(&self, active: usize) {
        self.active.send_replace(active.min(self.most));
    }
    /// Waits until the worker of a number is one of those that work.
    async fn wanted(&self, index: usize) {
        // The sender lives in self, so that the wait can only end by success.
        let _ = self.active.subscribe().wait_for(|active| index < *active).await;
    }
}
/// How long a job is left alone whose evaluation could not be worked on.
const LATER: Nanos = Nanos(60_000_000_000);

/// One worker; several may run.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) core: Core,
    pub(crate) broker: Broker,
    pub(crate) planner: Planner,
    /// What its evaluations found out about the nodes.
    pub(crate) memory: Mutex<Memory>,
}

impl Worker {
    /// Works until cancelled. The evaluation in hand is finished first.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        loop {
            let next = async {
                self.pool.wanted(self.index).await;
                self.broker.dequeue().await
            };
            let (eval, receipt) = tokio::select! {
                () = cancel.cancelled() => return,
                next = next => next,
            };
            tokio::select! {
                () = cancel.cancelled() => {}
                () = self.unpaused() => {}
            }
            self.process(&eval, receipt).await;
        }
    }

    /// Waits while operators have scheduling paused.
    async fn unpaused(&self) {
        let mut settings = self.core.store.watch().on(Topic::Admin(AdminRow::Settings)).start();
        while self.core.snapshot().scheduler_config().pause_eval_broker {
            settings.changed().await;
        }
    }

    async fn process(&self, eval: &Arc<Evaluation>, receipt: Receipt) {
        match self.evaluate(eval).await {
            Ok(()) => self.broker.ack(&eval.id, receipt),
            Err(error) => {
                tracing::warn!(eval = %eval.id, job = %eval.job_id, %error, "evaluation failed");
                if self.broker.nack(&eval.id, receipt) == Returned::GivenUp {
                    let evals = given_up(eval, new_id().into(), self.core.now());
                    if let Err(error) = self.core.commit(Change::Evals { evals }).await {
                        tracing::error!(eval = %eval.id, %error, "a failed evaluation could not be recorded");
                    }
                }
            }
        }
    }

    async fn evaluate(&self, eval: &Arc<Evaluation>) -> Result<(), ServerError> {
        // Whoever wrote the evaluation wrote it with what it is about.
        self.core.store.wait_for_index(eval.modify_index).await;
        let attempts = attempts_for(&eval.kind);
        let mut failed = 0;
        while failed < attempts {
            let root = self.core.snapshot();
            if root.eval(&eval.id).is_none_or(|current| current.status != EvalStatus::Pending) {
                return Ok(());
            }
            let params = Params { now: self.core.now(), seed: rand::random() };
            let mut decision = {
                let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
                caravan_scheduler::schedule_with(&root, eval, &params, &mut memory)
            };
            decision.eval.snapshot_index = root.index();
            let decision = keep_blocked(decision);
            let mut evals = vec![decision.eval];
            evals.extend(decision.follow_ups);
            if decision.plan.is_empty() {
                self.core.commit(Change::Evals { evals }).await?;
                return Ok(());
            }
            match self.planner.submit(decision.plan, evals).await? {
                Submitted::Whole => return Ok(()),
                Submitted::Partly { index, progress } => {
                    // Whoever gets on is not stuck, however often others are faster.
                    failed = if progress { 0 } else { failed + 1 };
                    self.core.store.wait_for_index(index).await;
                }
            }
        }
        let again = Evaluation {
            id: new_id().into(),
            status: EvalStatus::Blocked,
            status_description: "created due to placement conflicts".into(),
            triggered_by: Trigger::MaxPlanAttempts,
            previous_eval: eval.id.clone(),
            snapshot_index: self.core.snapshot().index(),
            create_index: 0,
            ..(**eval).clone()
        };
        let over = Evaluation {
            status: EvalStatus::Failed,
            status_description: format!("maximum attempts reached ({attempts})"),
            blocked_eval: again.id.clone(),
            ..(**eval).clone()
        };
        self.core.commit(Change::Evals { evals: vec![over, again] }).await?;
        Ok(())
    }
}

/// An evaluation that was delivered too often, and the one that tries again later what it could not do.
fn given_up(eval: &Evaluation, id: EvalId, now: UnixNanos) -> Vec<Evaluation> {
    let failed = Evaluation {
        status: EvalStatus::Failed,
        status_description: "evaluation reached delivery limit (3)".into(),
        next_eval: id.clone(),
        ..eval.clone()
    };
    let again = Evaluation {
        id,
        namespace: eval.namespace.clone(),
        priority: eval.priority,
        kind: eval.kind.clone(),
        triggered_by: Trigger::FailedFollowUp,
        job_id: eval.job_id.clone(),
        job_modify_index: eval.job_modify_index,
        status: EvalStatus::Pending,
        wait_until: now.plus(LATER).to_time(),
        previous_eval: eval.id.clone(),
        create_time: now,
        modify_time: now,
        ..Evaluation::default()
    };
    vec![failed, again]
}

/// A woken evaluation that could not place everything stays the blocked one, instead of ending and
/// leaving yet another row behind at every wake.
fn keep_blocked(mut decision: Decision) -> Decision {
    for follow_up in &mut decision.follow_ups {
        follow_up.snapshot_index = decision.eval.snapshot_index;
    }
    if decision.eval.triggered_by != Trigger::QueuedAllocs {
        return decision;
    }
    let Some(at) = decision.follow_ups.iter().position(|e| e.status == EvalStatus::Blocked) else {
        return decision;
    };
    let blocked = decision.follow_ups.remove(at);
    decision.eval = Evaluation {
        status: EvalStatus::Blocked,
        status_description: blocked.status_description,
        class_eligibility: blocked.class_eligibility,
        escaped_computed_class: blocked.escaped_computed_class,
        missing_non_node_resources: blocked.missing_non_node_resources,
        blocked_eval: caravan_types::EvalId::default(),
        plan_annotations: None,
        deployment_id: caravan_types::DeploymentId::default(),
        ..decision.eval
    };
    decision
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_tried_again_later() {
        let eval = Evaluation { id: "e".into(), job_id: "j".into(), priority: 7, ..Default::default() };
        let evals = given_up(&eval, "next".into(), UnixNanos(5));
        assert_eq!((evals[0].status, evals[0].next_eval.as_str()), (EvalStatus::Failed, "next"));
        let next = &evals[1];
        assert_eq!((next.status, next.triggered_by), (EvalStatus::Pending, Trigger::FailedFollowUp));
        assert_eq!((next.previous_eval.as_str(), next.priority), ("e", 7));
        assert_eq!(next.wait_until.0, 5 + LATER.0);
    }

    #[test]
    fn a_woken_evaluation_that_still_waits_keeps_its_row() {
        let decision = Decision {
            eval: Evaluation {
                id: "e".into(),
                triggered_by: Trigger::QueuedAllocs,
                status: EvalStatus::Complete,
                snapshot_index: 7,
                ..Default::default()
            },
            follow_ups: vec![Evaluation {
                id: "new".into(),
                status: EvalStatus::Blocked,
                missing_non_node_resources: vec!["csi-volume:default:v".into()],
                ..Default::default()
            }],
            ..Default::default()
        };
        let kept = keep_blocked(decision);
        assert!(kept.follow_ups.is_empty());
        assert_eq!(kept.eval.id, "e");
        assert_eq!(kept.eval.status, EvalStatus::Blocked);
        assert_eq!(kept.eval.missing_non_node_resources, ["csi-volume:default:v"]);
        assert_eq!(kept.eval.snapshot_index, 7);
    }
}
