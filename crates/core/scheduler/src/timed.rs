//! Evaluations that run for a job again at a set time.

use crate::disconnect;
use crate::reconcile::Changes;
use crate::rng::Rng;
use crate::view::View;
use caravan_types::alloc::{AllocStateChange, Allocation, ClientStatus};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::Job;
use caravan_types::{AllocId, EvalId, UnixNanos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The span within which one evaluation reschedules all failed allocations that are due.
const TOGETHER: caravan_types::Nanos = caravan_types::Nanos(5_000_000_000);

/// The difference below which two times are the same time, so that one evaluation serves both. The remaining wait,
/// added to a wall clock, differs a little from evaluation to evaluation.
const ABOUT: caravan_types::Nanos = caravan_types::Nanos(1_000_000_000);

/// The follow-up evaluations with a time before which they do not run.
pub(crate) struct Timed {
    pub evals: Vec<Evaluation>,
    /// The evaluation of each end time, for allocations that are unknown until then.
    unknown: BTreeMap<UnixNanos, EvalId>,
    /// The evaluation of each failed allocation that waits to be rescheduled.
    failed: BTreeMap<AllocId, EvalId>,
}

impl Timed {
    pub fn new<V: View>(
        view: &V,
        eval: &Evaluation,
        job: Option<&Job>,
        rng: &mut Rng,
        changes: &Changes,
        now: UnixNanos,
    ) -> Self {
        let key = eval.job_key();
        let (mut evals, mut unknown) = (Vec::new(), BTreeMap::new());
        let mut look = |until: UnixNanos, trigger: Trigger, why: &str| -> EvalId {
            let about = |at: UnixNanos| at.since(until) <= ABOUT && until.since(at) <= TOGETHER;
            let planned = view.evals_by_job(&key).find(|e| {
                e.status == EvalStatus::Pending
                    && e.id != eval.id
                    && e.triggered_by == trigger
                    && about(e.wait_until.to_unix())
            });
            if let Some(planned) = planned {
                return planned.id.clone();
            }
            let id = EvalId::from(rng.uuid());
            evals.push(Evaluation {
                id: id.clone(),
                namespace: eval.namespace.clone(),
                priority: eval.priority,
                kind: eval.kind.clone(),
                triggered_by: trigger,
                job_id: eval.job_id.clone(),
                job_modify_index: job.map_or(eval.job_modify_index, |j| j.job_modify_index),
                status: EvalStatus::Pending,
                status_description: why.to_owned(),
                wait_until: until.to_time(),
                previous_eval: eval.id.clone(),
                snapshot_index: view.index(),
                create_time: now,
                modify_time: now,
                ..Evaluation::default()
            });
            id
        };
        for until in changes.unknown.iter().map(|(_, until)| *until).collect::<BTreeSet<_>>() {
            let id = look(until, Trigger::MaxDisconnectTimeout, "created for delayed disconnect timeout");
            unknown.insert(until, id);
        }
        for (alloc, until) in &changes.still_unknown {
            let mut known =
                view.evals_by_job(&key).filter(|e| e.id == alloc.followup_eval_id && e.id != eval.id);
            if !known.any(|e| e.status == EvalStatus::Pending) {
                look(*until, Trigger::MaxDisconnectTimeout, "created for delayed disconnect timeout");
            }
        }
        for until in &changes.later {
            look(*until, Trigger::AllocReschedule, "created for delayed rescheduling");
        }
        if let Some(at) = changes.next_batch {
            look(at, Trigger::RollingUpdate, "created for the next batch of the update");
        }
        let mut failed = BTreeMap::new();
        let mut waiting: Vec<_> = changes.failed_until.iter().collect();
        waiting.sort_by_key(|(_, at)| *at);
        let mut batch: Option<(UnixNanos, EvalId)> = None;
        for (alloc, at) in waiting {
            let known = view.evals_by_job(&key).find(|e| e.id == alloc.followup_eval_id && e.id != eval.id);
            if known.is_some_and(|e| e.status == EvalStatus::Pending) {
                continue;
            }
            // One evaluation serves all allocations that are due within a short span.
            let id = match &batch {
                Some((until, id)) if at.since(*until) <= TOGETHER => id.clone(),
                _ => look(*at, Trigger::AllocReschedule, "created for delayed rescheduling"),
            };
            if batch.as_ref().is_none_or(|(_, known)| *known != id) {
                batch = Some((*at, id.clone()));
            }
            failed.insert(alloc.id.clone(), id);
        }
        Self { evals, unknown, failed }
    }

    /// Returns the failed allocations with the id of the evaluation that reschedules them.
    pub fn waiting(&self, failed: &[(Arc<Allocation>, UnixNanos)]) -> Vec<Allocation> {
        let known = failed.iter().filter_map(|(alloc, _)| Some((alloc, self.failed.get(&alloc.id)?)));
        known
            .map(|(alloc, id)| Allocation { followup_eval_id: id.clone(), ..Allocation::clone(alloc) })
            .collect()
    }

    /// Returns the allocation with the status unknown. It keeps the version of the job that it runs.
    pub fn unknown(
        &self,
        alloc: &Allocation,
        until: UnixNanos,
        eval: &Evaluation,
        now: UnixNanos,
    ) -> Allocation {
        let mut unknown = Allocation {
            eval_id: eval.id.clone(),
            client_status: ClientStatus::Unknown,
            client_description: disconnect::UNKNOWN.into(),
            followup_eval_id: self.unknown.get(&until).cloned().unwrap_or_default(),
            modify_time: now,
            ..alloc.clone()
        };
        unknown.alloc_states.push(AllocStateChange {
            field: 0,
            value: ClientStatus::Unknown.as_str().to_owned(),
            time: now.to_time(),
        });
        unknown
    }
}
