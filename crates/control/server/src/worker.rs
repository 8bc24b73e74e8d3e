//! Workers: each dequeues an evaluation, calls the scheduler, submits the plan and writes the verdict.

use crate::broker::{Broker, Receipt, Returned};
use crate::core::{Core, new_id};
use crate::error::ServerError;
use crate::plan::{Planner, Submitted};
use crate::pool::{WorkerPool, Workers};
use crate::runtime::select;
use caravan_scheduler::Memory;
use caravan_state::{AdminRow, Topic};
use caravan_types::command::Change;
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::JobType;
use caravan_types::plan::Decision;
use caravan_types::{EvalId, Nanos, UnixNanos};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Returns the number of consecutive plans without progress after which an evaluation fails
/// (docs/reference/http-api.md, section 6.2).
fn attempts_for(kind: &str) -> u32 {
    match kind.parse::<JobType>() {
        Ok(kind) if kind.is_batch() => 2,
        _ => 5,
    }
}

/// Returns the metric name for a job's type.
fn scheduler_of(kind: &str) -> &'static str {
    match kind.parse::<JobType>() {
        Ok(JobType::Batch) => "worker.invoke_scheduler_batch",
        Ok(JobType::System) => "worker.invoke_scheduler_system",
        Ok(JobType::Sysbatch) => "worker.invoke_scheduler_sysbatch",
        _ => "worker.invoke_scheduler_service",
    }
}

/// The pause before a job is evaluated again after its evaluation could not be processed.
const LATER: Nanos = Nanos(60_000_000_000);

/// One worker; a server runs several.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) core: Core,
    pub(crate) broker: Broker,
    pub(crate) planner: Planner,
    /// The facts about nodes that evaluations of this worker have gathered; the next evaluation reuses them.
    pub(crate) memory: Mutex<Memory>,
}

impl Worker {
    /// Processes evaluations until cancelled. The current evaluation is finished first.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut settings = self.pool.follow();
        loop {
            let begun = Instant::now();
            let (eval, receipt) = select! {
                () = cancel.cancelled() => return,
                next = self.next(&mut settings) => next,
            };
            self.core.meters.time("worker.dequeue_eval", begun.elapsed(), &[]);
            select! {
                () = cancel.cancelled() => {}
                () = self.unpaused() => {}
            }
            self.process(&eval, receipt).await;
        }
    }

    /// Waits for an evaluation that this worker may process according to the settings of the pool.
    async fn next(&self, settings: &mut watch::Receiver<Workers>) -> (Arc<Evaluation>, Receipt) {
        loop {
            let now = settings.borrow_and_update().clone();
            let found = async {
                match self.index < now.number {
                    true => self.broker.dequeue(|eval| now.takes(&eval.kind)).await,
                    false => std::future::pending().await,
                }
            };
            select! {
                found = found => return found,
                changed = settings.changed() => debug_assert!(changed.is_ok(), "the pool outlives its workers"),
            }
        }
    }

    /// Waits while operators have paused scheduling.
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
                if self.broker.nack(&eval.id, receipt) == Returned::Exhausted {
                    let evals = follow_ups_of_exhausted(eval, new_id().into(), self.core.now());
                    if let Err(error) = self.core.commit(Change::Evals { evals }).await {
                        tracing::error!(eval = %eval.id, %error, "a failed evaluation could not be recorded");
                    }
                }
            }
        }
    }

    async fn evaluate(&self, eval: &Arc<Evaluation>) -> Result<(), ServerError> {
        let meters = &self.core.meters;
        // The command that wrote the evaluation also wrote the objects that it concerns.
        let begun = Instant::now();
        self.core.store.wait_for_index(eval.modify_index).await;
        meters.time("worker.wait_for_index", begun.elapsed(), &[]);
        let attempts = attempts_for(&eval.kind);
        let mut failed = 0;
        let mut turn = None;
        while failed < attempts {
            let root = self.core.snapshot();
            if root.eval(&eval.id).is_none_or(|current| current.status != EvalStatus::Pending) {
                return Ok(());
            }
            let params = self.core.params(&root, &eval.job_key());
            let begun = Instant::now();
            let mut decision = {
                let mut memory = self.memory.lock();
                caravan_scheduler::schedule_with(&root, eval, &params, &mut memory)
            };
            meters.time(scheduler_of(&eval.kind), begun.elapsed(), &[]);
            decision.eval.snapshot_index = root.index();
            let decision = keep_blocked(decision);
            let mut evals = vec![decision.eval];
            evals.extend(decision.follow_ups);
            if decision.plan.is_empty() {
                self.core.commit(Change::Evals { evals }).await?;
                return Ok(());
            }
            let begun = Instant::now();
            let submitted = self.planner.submit(decision.plan, evals, turn.as_ref()).await?;
            meters.time("worker.submit_plan", begun.elapsed(), &[]);
            match submitted {
                Submitted::Whole => return Ok(()),
                Submitted::Partly { index, progress } => {
                    // Partial progress resets the failure count.
                    failed = if progress { 0 } else { failed + 1 };
                    self.core.store.wait_for_index(index).await;
                    // Workers rank nodes alike, so a worker that lost a race would probably lose the next one too.
                    if turn.is_none() {
                        turn = Some(self.planner.turn().await);
                    }
                }
            }
        }
        drop(turn);
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

/// Returns an evaluation that was delivered too often, and its follow-up, which retries later.
fn follow_ups_of_exhausted(eval: &Evaluation, id: EvalId, now: UnixNanos) -> Vec<Evaluation> {
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

/// Keeps an unblocked evaluation that could not place everything as the blocked evaluation. Otherwise each unblocking
/// would end one row and create another.
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
    fn an_exhausted_evaluation_is_retried_later() {
        let eval = Evaluation { id: "e".into(), job_id: "j".into(), priority: 7, ..Default::default() };
        let evals = follow_ups_of_exhausted(&eval, "next".into(), UnixNanos(5));
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
