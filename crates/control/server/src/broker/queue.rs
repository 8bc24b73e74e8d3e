//! The queue of pending evaluations, as a pure state machine: time is passed in.

use crate::core::Moment;
use caravan_types::eval::{Evaluation, Trigger};
use caravan_types::{BootInstant, EvalId, JobKey, Nanos};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Maximum number of deliveries of one evaluation before it fails.
pub(crate) const DELIVERY_LIMIT: u32 = 3;

/// The number of one delivery of an evaluation to a worker. The worker returns the evaluation with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Receipt(u64);

/// The result of returning an evaluation after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    /// The evaluation is queued again, not before this time.
    Requeued(BootInstant),
    /// The evaluation reached the maximum number of deliveries.
    Exhausted,
    /// The receipt is unknown or no longer valid.
    Stale,
}

#[derive(Debug)]
struct Delivery {
    eval: Arc<Evaluation>,
    receipt: Receipt,
}

/// The order of ready evaluations: priority first, then age.
type Rank = (std::cmp::Reverse<i64>, u64, EvalId);

/// Pending evaluations: at most one per job is with a worker at any time.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    known: HashMap<EvalId, Arc<Evaluation>>,
    ready: BTreeSet<Rank>,
    delayed: BTreeSet<(BootInstant, EvalId)>,
    behind: BTreeMap<JobKey, BTreeSet<Rank>>,
    in_flight: HashMap<EvalId, Delivery>,
    /// Evaluations with a worker that were written again after their delivery.
    again: HashMap<EvalId, Arc<Evaluation>>,
    busy_jobs: HashMap<JobKey, EvalId>,
    deliveries: HashMap<EvalId, u32>,
    next_receipt: u64,
    /// Evaluations that waited behind another evaluation of their job, and that a newer evaluation makes redundant.
    surplus: Vec<Arc<Evaluation>>,
}

/// Whether a user may monitor an evaluation with this trigger, so that it must not be cancelled.
fn is_watched(trigger: Trigger) -> bool {
    matches!(
        trigger,
        Trigger::JobRegister
            | Trigger::JobDeregister
            | Trigger::JobScaling
            | Trigger::PeriodicJob
            | Trigger::AllocStop
    )
}

fn rank(eval: &Evaluation) -> Rank {
    (std::cmp::Reverse(eval.priority), eval.create_index, eval.id.clone())
}

impl Queue {
    /// Adds a pending evaluation; an evaluation that is already in the queue changes nothing. An evaluation that was
    /// written after its delivery to a worker is queued again once the worker has returned it.
    pub(crate) fn enqueue(&mut self, eval: Arc<Evaluation>, now: Moment) {
        if let Some(delivery) = self.in_flight.get(&eval.id) {
            if eval.modify_index > delivery.eval.modify_index {
                self.again.insert(eval.id.clone(), eval);
            }
            return;
        }
        if self.known.contains_key(&eval.id) {
            return;
        }
        self.known.insert(eval.id.clone(), eval.clone());
        let end = eval.wait_until.to_unix();
        let at = now.instant_of(end, end.since(eval.create_time));
        if at > now.boot {
            self.delayed.insert((at, eval.id.clone()));
        } else {
            self.make_ready(&eval);
        }
    }

    fn make_ready(&mut self, eval: &Evaluation) {
        let key = eval.job_key();
        if self.busy_jobs.contains_key(&key) {
            self.behind.entry(key).or_default().insert(rank(eval));
        } else {
            self.ready.insert(rank(eval));
        }
    }

    /// Moves due evaluations to the ready evaluations; returns the time of the next move.
    pub(crate) fn tick(&mut self, now: BootInstant) -> Option<BootInstant> {
        while let Some((at, id)) = self.delayed.first().cloned() {
            if at > now {
                return Some(at);
            }
            self.delayed.pop_first();
            if let Some(eval) = self.known.get(&id).cloned() {
                self.make_ready(&eval);
            }
        }
        None
    }

    /// Delivers the most urgent evaluation that the worker takes and whose job no other worker has.
    pub(crate) fn dequeue(
        &mut self,
        takes: impl Fn(&Evaluation) -> bool,
    ) -> Option<(Arc<Evaluation>, Receipt)> {
        let known = &self.known;
        let is_next = |rank: &&Rank| known.get(&rank.2).is_none_or(|eval| takes(eval));
        while let Some(next) = self.ready.iter().find(is_next).cloned() {
            self.ready.remove(&next);
            let id = next.2;
            let Some(eval) = self.known.get(&id).cloned() else { continue };
            let key = eval.job_key();
            if self.busy_jobs.contains_key(&key) {
                self.behind.entry(key).or_default().insert(rank(&eval));
                continue;
            }
            self.next_receipt += 1;
            let receipt = Receipt(self.next_receipt);
            self.busy_jobs.insert(key, id.clone());
            *self.deliveries.entry(id.clone()).or_default() += 1;
            self.in_flight.insert(id, Delivery { eval: eval.clone(), receipt });
            return Some((eval, receipt));
        }
        None
    }

    /// Removes a completed evaluation, and releases the next evaluation of its job. Returns whether the receipt is
    /// valid.
    pub(crate) fn ack(&mut self, id: &EvalId, receipt: Receipt, now: Moment) -> bool {
        if self.in_flight.get(id).is_none_or(|d| d.receipt != receipt) {
            return false;
        }
        if let Some(done) = self.in_flight.get(id).map(|d| d.eval.job_key()) {
            self.thin_out(&done);
        }
        self.release(id);
        self.known.remove(id);
        self.deliveries.remove(id);
        if let Some(anew) = self.again.remove(id) {
            self.enqueue(anew, now);
        }
        true
    }

    /// Queues a failed evaluation again after a growing pause, or removes it after [`DELIVERY_LIMIT`] deliveries.
    pub(crate) fn nack(&mut self, id: &EvalId, receipt: Receipt, now: BootInstant) -> Returned {
        if self.in_flight.get(id).is_none_or(|d| d.receipt != receipt) {
            return Returned::Stale;
        }
        let eval = self.release(id);
        let tries = self.deliveries.get(id).copied().unwrap_or(0);
        self.again.remove(id);
        match eval {
            Some(eval) if tries < DELIVERY_LIMIT => {
                let at = now.plus(Nanos::from_millis(i64::from(tries) * 500));
                self.delayed.insert((at, eval.id.clone()));
                Returned::Requeued(at)
            }
            _ => {
                self.known.remove(id);
                self.deliveries.remove(id);
                Returned::Exhausted
            }
        }
    }

    /// Moves the evaluations of a job that wait behind another evaluation to `surplus`. The newest evaluation stays,
    /// as does each evaluation that a user may monitor.
    fn thin_out(&mut self, key: &JobKey) {
        let Some(waiting) = self.behind.get_mut(key) else { return };
        let newest = waiting.iter().map(|(_, index, _)| *index).max();
        let known = &self.known;
        let moot = |rank: &Rank| {
            Some(rank.1) != newest && known.get(&rank.2).is_some_and(|eval| !is_watched(eval.triggered_by))
        };
        let gone: Vec<Rank> = waiting.iter().filter(|rank| moot(rank)).cloned().collect();
        for rank in &gone {
            waiting.remove(rank);
        }
        for (_, _, id) in gone {
            self.deliveries.remove(&id);
            self.surplus.extend(self.known.remove(&id));
        }
    }

    /// Removes and returns the evaluations to cancel.
    pub(crate) fn take_surplus(&mut self) -> Vec<Arc<Evaluation>> {
        std::mem::take(&mut self.surplus)
    }

    fn release(&mut self, id: &EvalId) -> Option<Arc<Evaluation>> {
        let eval = self.in_flight.remove(id)?.eval;
        let key = eval.job_key();
        self.busy_jobs.remove(&key);
        if let Some(mut waiting) = self.behind.remove(&key) {
            self.ready.append(&mut waiting);
        }
        Some(eval)
    }

    /// Removes an evaluation that ended elsewhere; an evaluation with a worker stays until the worker returns it.
    pub(crate) fn remove(&mut self, id: &EvalId) {
        self.again.remove(id);
        if self.in_flight.contains_key(id) {
            return;
        }
        if let Some(eval) = self.known.remove(id) {
            self.ready.remove(&rank(&eval));
            self.delayed.retain(|(_, other)| other != id);
            if let Some(waiting) = self.behind.get_mut(&eval.job_key()) {
                waiting.remove(&rank(&eval));
            }
            self.deliveries.remove(id);
        }
    }

    /// Removes all evaluations that no longer exist, as [`Queue::remove`] does.
    pub(crate) fn keep(&mut self, exists: impl Fn(&EvalId) -> bool) {
        let gone: Vec<EvalId> = self.known.keys().filter(|id| !exists(id)).cloned().collect();
        for id in &gone {
            self.remove(id);
        }
    }

    /// Returns the number of ready evaluations and of evaluations with workers, by type of job. The second result is
    /// the number of evaluations that wait behind another evaluation of their job.
    pub(crate) fn by_kind(&self) -> (BTreeMap<String, (usize, usize)>, usize) {
        let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for eval in self.ready.iter().filter_map(|(_, _, id)| self.known.get(id)) {
            kinds.entry(eval.kind.to_string()).or_default().0 += 1;
        }
        for delivery in self.in_flight.values() {
            kinds.entry(delivery.eval.kind.to_string()).or_default().1 += 1;
        }
        (kinds, self.behind.values().map(BTreeSet::len).sum())
    }

    /// Returns the number of ready evaluations, of evaluations with workers, and of delayed evaluations. An
    /// evaluation behind another evaluation of its job counts as ready.
    pub(crate) fn depth(&self) -> (usize, usize, usize) {
        let behind: usize = self.behind.values().map(BTreeSet::len).sum();
        (self.ready.len() + behind, self.in_flight.len(), self.delayed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::{Time, UnixNanos};

    fn at(nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }

    fn eval(id: &str, job: &str, priority: i64, index: u64) -> Arc<Evaluation> {
        Arc::new(Evaluation {
            id: id.into(),
            namespace: "default".into(),
            job_id: job.into(),
            priority,
            create_index: index,
            ..Default::default()
        })
    }

    #[test]
    fn higher_priority_first_then_older() {
        let mut q = Queue::default();
        for e in [eval("a", "j1", 50, 2), eval("b", "j2", 50, 1), eval("c", "j3", 80, 3)] {
            q.enqueue(e, Moment::default());
        }
        let order: Vec<_> =
            std::iter::from_fn(|| q.dequeue(|_| true)).map(|(e, _)| e.id.to_string()).collect();
        assert_eq!(order, ["c", "b", "a"]);
    }

    #[test]
    fn one_evaluation_per_job_at_a_time() {
        let mut q = Queue::default();
        q.enqueue(eval("a", "j", 50, 1), Moment::default());
        q.enqueue(eval("b", "j", 50, 2), Moment::default());
        let (first, receipt) = q.dequeue(|_| true).unwrap();
        assert_eq!(first.id, "a");
        assert!(q.dequeue(|_| true).is_none());
        assert!(q.ack(&first.id, receipt, Moment::default()));
        assert_eq!(q.dequeue(|_| true).unwrap().0.id, "b");
    }

    #[test]
    fn of_those_that_wait_behind_another_the_newest_is_enough() {
        let mut q = Queue::default();
        let of = |id, index, trigger| {
            Arc::new(Evaluation { triggered_by: trigger, ..(*eval(id, "j", 50, index)).clone() })
        };
        q.enqueue(of("a", 1, Trigger::NodeUpdate), Moment::default());
        let (_, receipt) = q.dequeue(|_| true).unwrap();
        for (id, index, trigger) in [
            ("b", 2, Trigger::NodeUpdate),
            ("c", 3, Trigger::JobRegister),
            ("d", 4, Trigger::DeploymentWatcher),
            ("e", 5, Trigger::NodeUpdate),
        ] {
            q.enqueue(of(id, index, trigger), Moment::default());
        }
        assert!(q.ack(&"a".into(), receipt, Moment::default()));
        let gone: Vec<_> = q.take_surplus().iter().map(|e| e.id.to_string()).collect();
        assert_eq!(gone, ["b", "d"]);
        assert_eq!(q.dequeue(|_| true).unwrap().0.id, "c");
        assert_eq!(q.depth(), (1, 1, 0));
    }

    #[test]
    fn what_becomes_pending_again_before_the_worker_returns_it_is_not_lost() {
        let mut q = Queue::default();
        let at = |index| Arc::new(Evaluation { modify_index: index, ..(*eval("a", "j", 50, 1)).clone() });
        q.enqueue(at(5), Moment::default());
        let (_, receipt) = q.dequeue(|_| true).unwrap();
        // The same row again is no change; the worker's own write and a later wake are changes.
        q.enqueue(at(5), Moment::default());
        q.enqueue(at(7), Moment::default());
        assert!(q.dequeue(|_| true).is_none());
        assert!(q.ack(&"a".into(), receipt, Moment::default()));
        let (again, receipt) = q.dequeue(|_| true).unwrap();
        assert_eq!(again.modify_index, 7);
        assert!(q.ack(&"a".into(), receipt, Moment::default()));
        assert!(q.dequeue(|_| true).is_none());
    }

    #[test]
    fn delayed_ones_wait_for_their_time() {
        let mut q = Queue::default();
        let mut later = (*eval("a", "j", 50, 1)).clone();
        later.wait_until = Time(100);
        q.enqueue(Arc::new(later), Moment { wall: UnixNanos(10), boot: at(1_000) });
        assert!(q.dequeue(|_| true).is_none());
        assert_eq!(q.tick(at(1_050)), Some(at(1_090)));
        assert_eq!(q.tick(at(1_090)), None);
        assert!(q.dequeue(|_| true).is_some());
    }

    /// The wall clock was set back between the writing of an evaluation and its arrival here.
    #[test]
    fn nothing_waits_longer_than_it_was_made_to_wait() {
        let mut q = Queue::default();
        let later = Evaluation {
            create_time: UnixNanos(5_000),
            wait_until: Time(5_030),
            ..(*eval("a", "j", 50, 1)).clone()
        };
        q.enqueue(Arc::new(later), Moment { wall: UnixNanos(100), boot: at(7) });
        assert_eq!(q.tick(at(7)), Some(at(37)));
    }

    #[test]
    fn a_failing_evaluation_is_retried_up_to_the_limit() {
        let mut q = Queue::default();
        q.enqueue(eval("a", "j", 50, 1), Moment::default());
        let mut now = at(0);
        for round in 1..=DELIVERY_LIMIT {
            let (e, receipt) = q.dequeue(|_| true).unwrap();
            match q.nack(&e.id, receipt, now) {
                Returned::Requeued(at) => {
                    assert!(round < DELIVERY_LIMIT);
                    now = at;
                    q.tick(now);
                }
                Returned::Exhausted => assert_eq!(round, DELIVERY_LIMIT),
                Returned::Stale => panic!("the receipt is fresh"),
            }
        }
        assert_eq!(q.depth(), (0, 0, 0));
    }

    #[test]
    fn stale_receipts_change_nothing() {
        let mut q = Queue::default();
        q.enqueue(eval("a", "j", 50, 1), Moment::default());
        let (e, old) = q.dequeue(|_| true).unwrap();
        q.nack(&e.id, old, at(0));
        q.tick(at(u64::MAX));
        let (_, fresh) = q.dequeue(|_| true).unwrap();
        assert!(!q.ack(&e.id, old, Moment::default()));
        assert_eq!(q.nack(&e.id, old, at(0)), Returned::Stale);
        assert!(q.ack(&e.id, fresh, Moment::default()));
    }
}
