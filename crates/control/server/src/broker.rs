//! The broker: it selects the next evaluation, keeps the waiting evaluations, and unblocks them.
//!
//! [`Queue`] and [`BlockedSet`] decide; this module feeds them with changes of the state.

mod blocked;
mod queue;

use crate::core::Core;
use crate::error::ServerError;
use crate::runtime::{self, select};
use blocked::{Blocked, BlockedSet, Wake};
use caravan_state::{ChangeSet, Changed, FeedItem, Root};
use caravan_types::command::Change;
use caravan_types::eval::{EvalStatus, Evaluation, Trigger, WaitsFor};
use caravan_types::volume::{ClaimId, ClaimPhase, Volume};
use caravan_types::{BootInstant, EvalId, JobKey, Nanos, NodeId, UnixNanos, VolumeKey};
use parking_lot::{Mutex, MutexGuard};
use queue::Queue;
pub(crate) use queue::{Receipt, Returned};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The time for which an evaluation that lost too often to other plans is blocked. Nomad's value; far longer than
/// these plans take.
const CONFLICT: Nanos = Nanos(60_000_000_000);
/// The pause between a failed write and the next reading of all evaluations.
const REPAIR_PAUSE: Nanos = Nanos(1_000_000_000);

#[derive(Debug, Default)]
struct Sets {
    queue: Queue,
    blocked: BlockedSet,
    /// Pending evaluations that a newer evaluation of their job makes redundant, until the cancellation is written.
    moot: Vec<Arc<Evaluation>>,
    /// The time to read every evaluation again after a failed write, whose evaluations are in no set any more.
    repair_at: Option<BootInstant>,
}

/// The state shared by the broker's service and the workers.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    core: Core,
    sets: Arc<Mutex<Sets>>,
    ready: Arc<Notify>,
    delays: Arc<Notify>,
}

/// Depths of the queues, for metrics and the agent's page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerDepth {
    /// Number of evaluations that wait for a worker.
    pub ready: usize,
    /// Number of evaluations with a worker.
    pub in_flight: usize,
    /// Number of evaluations that wait for their time.
    pub delayed: usize,
    /// Number of evaluations that wait for a change of the cluster.
    pub blocked: usize,
}

/// Numbers of waiting evaluations, plans and nodes, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Number of ready evaluations, and of evaluations with a worker, by type of job.
    pub kinds: BTreeMap<String, (usize, usize)>,
    /// Number of evaluations that wait for a worker to finish another evaluation of their job.
    pub behind: usize,
    /// Number of evaluations that wait for their time.
    pub delayed: usize,
    /// Number of evaluations about to be cancelled, because a newer evaluation covers the same work.
    pub moot: usize,
    /// Jobs that wait for a change of the cluster.
    pub blocked: Vec<JobKey>,
    /// Number of jobs in `blocked` that any change of capacity unblocks.
    pub escaped: usize,
    /// Number of plans that wait to be written.
    pub plans: usize,
    /// Number of nodes with a heartbeat deadline.
    pub heartbeats: usize,
}

impl Broker {
    pub(crate) fn new(core: Core) -> Self {
        Self { core, sets: Arc::default(), ready: Arc::default(), delays: Arc::default() }
    }

    fn sets(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock()
    }

    pub(crate) fn depth(&self) -> BrokerDepth {
        let sets = self.sets();
        let (ready, in_flight, delayed) = sets.queue.depth();
        BrokerDepth { ready, in_flight, delayed, blocked: sets.blocked.len() }
    }

    /// Returns the numbers of waiting evaluations.
    pub(crate) fn figures(&self) -> QueueFigures {
        let sets = self.sets();
        let (kinds, behind) = sets.queue.by_kind();
        let (blocked, escaped) = sets.blocked.jobs();
        let (_, _, delayed) = sets.queue.depth();
        let moot = sets.moot.len();
        QueueFigures { kinds, behind, delayed, moot, blocked, escaped, ..QueueFigures::default() }
    }

    /// Returns the next evaluation that `takes` accepts; waits until such an evaluation is ready.
    pub(crate) async fn dequeue(&self, takes: impl Fn(&Evaluation) -> bool) -> (Arc<Evaluation>, Receipt) {
        loop {
            let notified = self.ready.notified();
            if let Some(found) = self.sets().queue.dequeue(&takes) {
                // Other evaluations may be ready too, and a notification wakes only one worker.
                self.ready.notify_one();
                return found;
            }
            notified.await;
        }
    }

    pub(crate) fn ack(&self, id: &EvalId, receipt: Receipt) {
        let surplus = {
            let mut sets = self.sets();
            sets.queue.ack(id, receipt, self.core.clock.read());
            let surplus = sets.queue.take_surplus();
            sets.moot.extend(surplus);
            !sets.moot.is_empty()
        };
        if surplus {
            self.delays.notify_one();
        }
        self.ready.notify_one();
    }

    pub(crate) fn nack(&self, id: &EvalId, receipt: Receipt) -> Returned {
        let returned = self.sets().queue.nack(id, receipt, self.core.boot());
        self.delays.notify_one();
        self.ready.notify_one();
        returned
    }

    /// Follows the state until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut changes = self.core.store.feed();
        self.resync().await;
        loop {
            let next = self.work_off().await;
            self.ready.notify_one();
            select! {
                () = cancel.cancelled() => return,
                () = self.core.until(next) => {}
                () = self.delays.notified() => {}
                change = changes.next() => match change {
                    Some(FeedItem::Changes(set)) => self.follow(&set).await,
                    Some(FeedItem::Resync) => self.resync().await,
                    None => return,
                },
            }
        }
    }

    /// Performs all due work, and returns the time of the next due work.
    async fn work_off(&self) -> Option<BootInstant> {
        let now = self.core.boot();
        let is_due = self.sets().repair_at.take_if(|at| *at <= now).is_some();
        if is_due {
            self.resync().await;
        }
        self.cancel_moot().await;
        let conflicts = self.sets().blocked.due(now);
        self.unblock(conflicts).await;
        let mut sets = self.sets();
        [sets.queue.tick(now), sets.blocked.next(), sets.repair_at].into_iter().flatten().min()
    }

    /// Reads every evaluation: at the start, after missed changes, and after a failed write.
    async fn resync(&self) {
        let root = self.core.snapshot();
        let (mut duplicates, mut woken) = (Vec::new(), Vec::new());
        {
            let mut sets = self.sets();
            sets.blocked.clear();
            sets.queue.keep(|id| root.eval(id).is_some());
        }
        for eval in root.evals() {
            self.take_in(eval, &mut duplicates, &mut woken);
        }
        woken.extend(self.sets().blocked.wake(&Wake::Capacity(None), root.index()));
        self.unblock(woken).await;
        self.cancel(duplicates).await;
    }

    async fn follow(&self, set: &ChangeSet) {
        let root = self.core.snapshot();
        let (mut wakes, mut duplicates, mut woken) = (Vec::new(), Vec::new(), Vec::new());
        for changed in &set.changes {
            match changed {
                Changed::Eval(id) => {
                    if let Some(eval) = root.eval(id) {
                        self.take_in(eval, &mut duplicates, &mut woken);
                    }
                }
                Changed::EvalRemoved(id) => {
                    let mut sets = self.sets();
                    sets.blocked.remove(id);
                    sets.queue.remove(id);
                }
                _ => {}
            }
            wakes.extend(wake_of(&root, changed));
            if let Changed::Claim(id) | Changed::ClaimRemoved(id) = changed {
                wakes.extend(wakes_of_twins(&root, id));
            }
        }
        wakes.dedup();
        for wake in &wakes {
            woken.extend(self.sets().blocked.wake(wake, set.index));
        }
        self.unblock(woken).await;
        self.cancel(duplicates).await;
    }

    fn take_in(
        &self,
        eval: &Arc<Evaluation>,
        duplicates: &mut Vec<Arc<Evaluation>>,
        woken: &mut Vec<Arc<Evaluation>>,
    ) {
        let mut sets = self.sets();
        match eval.status {
            EvalStatus::Pending => {
                sets.blocked.remove(&eval.id);
                sets.queue.enqueue(eval.clone(), self.core.clock.read());
                self.ready.notify_one();
                return;
            }
            EvalStatus::Blocked => {
                let (state, duplicate) = sets.blocked.block(eval.clone());
                duplicates.extend(duplicate);
                match state {
                    Blocked::WakeNow(eval) => woken.push(eval),
                    Blocked::Waits if eval.triggered_by == Trigger::MaxPlanAttempts => {
                        sets.blocked.again_at(self.core.boot().plus(CONFLICT), eval.id.clone());
                    }
                    Blocked::Waits => {}
                }
            }
            EvalStatus::Complete | EvalStatus::Failed | EvalStatus::Canceled => {
                sets.blocked.remove(&eval.id);
                sets.queue.remove(&eval.id);
            }
        }
        woken.extend(sets.blocked.dealt_with(&eval.id));
    }

    async fn unblock(&self, woken: Vec<Arc<Evaluation>>) {
        let pending = |eval: &Evaluation| Evaluation { status: EvalStatus::Pending, ..eval.clone() };
        self.rewrite(woken, pending, "woken evaluations could not be queued").await;
    }

    async fn cancel(&self, duplicates: Vec<Arc<Evaluation>>) {
        let canceled = |eval: &Evaluation| Evaluation {
            status: EvalStatus::Canceled,
            status_description: format!("existing blocked evaluation exists for job \"{}\"", eval.job_id),
            ..eval.clone()
        };
        self.rewrite(duplicates, canceled, "duplicate evaluations could not be cancelled").await;
    }

    /// Writes the result of `change` for each evaluation that is still blocked.
    async fn rewrite(
        &self,
        evals: Vec<Arc<Evaluation>>,
        change: impl Fn(&Evaluation) -> Evaluation,
        complaint: &'static str,
    ) {
        if evals.is_empty() {
            return;
        }
        let root = self.core.snapshot();
        // The set lags behind the state: evaluations that ended meanwhile must not be revived.
        let blocked = evals
            .iter()
            .filter_map(|eval| root.eval(&eval.id))
            .filter(|eval| eval.status == EvalStatus::Blocked);
        let evals: Vec<Evaluation> = blocked.map(|eval| change(eval)).collect();
        if !evals.is_empty() {
            self.write(evals, complaint).await;
        }
    }

    /// Writes the cancellation of redundant evaluations; evaluations that were written meanwhile are skipped.
    async fn cancel_moot(&self) {
        let moot = std::mem::take(&mut self.sets().moot);
        if moot.is_empty() {
            return;
        }
        let root = self.core.snapshot();
        let still = moot
            .iter()
            .filter_map(|eval| root.eval(&eval.id).filter(|now| now.modify_index == eval.modify_index));
        let evals: Vec<Evaluation> = still
            .map(|eval| Evaluation {
                status: EvalStatus::Canceled,
                status_description: "canceled after more recent eval was processed".into(),
                ..Evaluation::clone(eval)
            })
            .collect();
        if !evals.is_empty() {
            self.write(evals, "needless evaluations could not be cancelled").await;
        }
    }

    async fn write(&self, evals: Vec<Evaluation>, complaint: &'static str) {
        let result: Result<u64, ServerError> = self.core.commit(Change::Evals { evals }).await;
        if let Err(error) = result {
            tracing::warn!(%error, "{complaint}; retrying");
            // For example, the leader had no quorum for a while and still leads in its term.
            self.sets().repair_at = Some(self.core.boot().plus(REPAIR_PAUSE));
        }
    }
}

/// Returns the wakes that a change causes.
fn wake_of(root: &Root, changed: &Changed) -> Option<Wake> {
    match changed {
        // The change may concern the attribute that made the node's class infeasible.
        Changed::Node(id) => root.node(id)?.is_schedulable().then_some(Wake::Capacity(None)),
        Changed::Alloc(id) => {
            let alloc = root.alloc(id)?;
            alloc.client_terminal().then(|| capacity(root, &alloc.node_id))
        }
        Changed::AllocRemoved(_) => Some(Wake::Capacity(None)),
        Changed::Plugin(id) => Some(Wake::Named(WaitsFor::Plugin(id.clone()).to_string())),
        Changed::Volume(key) => root
            .volume(key)?
            .phase
            .is_usable()
            .then(|| Wake::Named(WaitsFor::Volume(key.clone()).to_string())),
        // Another volume may stand for the same storage.
        Changed::VolumeRemoved(_) => Some(Wake::Capacity(None)),
        Changed::ClaimRemoved(id) => Some(freed(&id.volume, None)),
        Changed::Claim(id) => match root.claim(id) {
            None => Some(freed(&id.volume, None)),
            Some(claim) if claim.phase == ClaimPhase::Gone => {
                let namespace = id.volume.namespace.clone();
                Some(freed(&id.volume, Some(JobKey { namespace, id: claim.job_id.clone() })))
            }
            Some(_) => None,
        },
        Changed::HostVolume(id) => {
            let row = root.host_volume(id)?;
            let wait = WaitsFor::HostVolume(row.namespace.clone(), row.name.clone());
            row.is_usable().then(|| Wake::Named(wait.to_string()))
        }
        // A user removed the hold, or the job of the hold is removed: a sticky group may now move to another node.
        Changed::HostClaimRemoved(_) => Some(Wake::Capacity(None)),
        _ => None,
    }
}

/// Returns the wakes for evaluations that wait for another volume on the storage of a claim that ended.
fn wakes_of_twins(root: &Root, id: &ClaimId) -> Vec<Wake> {
    let wake = |twin: &Arc<Volume>| freed(&twin.key(), None);
    match (root.claim(id), root.volume(&id.volume)) {
        (Some(claim), _) if claim.phase == ClaimPhase::Gone => {
            let twins = root.volumes_on(&claim.plugin_id, &claim.external_volume_id);
            twins.filter(|twin| twin.key() != id.volume).map(wake).collect()
        }
        (Some(_), _) => Vec::new(),
        (None, Some(volume)) => root.twins(volume).map(wake).collect(),
        // The claim outlived its volume, so the storage of the claim is unknown.
        (None, None) => vec![Wake::Capacity(None)],
    }
}

/// Returns the wake for a node that may have more capacity than before.
fn capacity(root: &Root, id: &NodeId) -> Wake {
    let class = root.node(id).map(|node| node.computed_class.clone());
    Wake::Capacity(class.filter(|class| !class.is_empty()))
}

fn freed(volume: &VolumeKey, heir: Option<JobKey>) -> Wake {
    Wake::Freed { name: WaitsFor::Claim(volume.clone()).to_string(), heir }
}

/// Sleeps until a wall time, or for ever without a time: for calendars, not for waits that protect data.
pub(crate) async fn until(at: Option<UnixNanos>, now: UnixNanos) {
    match at {
        Some(at) => runtime::sleep(at.since(now).to_std()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Moment, Term};

    #[tokio::test]
    async fn what_was_missed_while_changes_were_missed_is_made_up_for() {
        let core = Core::in_memory().await;
        let broker = Broker::new(core.clone());
        let blocked = Evaluation {
            id: "e".into(),
            namespace: "default".into(),
            job_id: "j".into(),
            status: EvalStatus::Blocked,
            snapshot_index: 1,
            ..Default::default()
        };
        // Twice: the second time, the broker already has a record of changes newer than the scheduler's snapshot.
        for _ in 0..2 {
            core.commit(Change::Evals { evals: vec![blocked.clone()] }).await.unwrap();
            broker.resync().await;
            assert_eq!(core.snapshot().eval(&blocked.id).unwrap().status, EvalStatus::Pending);
        }
        assert_eq!(broker.depth().blocked, 0);
    }

    /// The first write fails because it belongs to a later term. The failing broker shares its sets with a broker
    /// whose writes succeed.
    #[tokio::test]
    async fn what_could_not_be_written_is_written_later() {
        let begin = Moment { wall: UnixNanos(1), boot: BootInstant::from_nanos(1) };
        let (core, moment) = Core::with_clock(begin).await;
        let broker = Broker::new(core.clone());
        let failing = Broker { core: core.in_term(Term::new(1_000)), ..broker.clone() };
        let eval = |id: &str, status| Evaluation {
            id: id.into(),
            namespace: "default".into(),
            job_id: id.into(),
            status,
            snapshot_index: 1,
            ..Default::default()
        };
        let (woken, moot) = (eval("woken", EvalStatus::Blocked), eval("moot", EvalStatus::Pending));
        core.commit(Change::Evals { evals: vec![woken.clone(), moot.clone()] }).await.unwrap();
        failing.resync().await;
        let row = core.snapshot().eval(&moot.id).unwrap().clone();
        failing.sets().queue.remove(&moot.id);
        failing.sets().moot.push(row);
        failing.cancel_moot().await;
        assert_eq!(core.snapshot().eval(&woken.id).unwrap().status, EvalStatus::Blocked);
        assert_eq!(broker.depth(), BrokerDepth::default());

        let due = broker.work_off().await.expect("the failed write is tried again");
        assert_eq!(core.snapshot().eval(&woken.id).unwrap().status, EvalStatus::Blocked);
        moment.lock().boot = due;
        assert_eq!(broker.work_off().await, None);
        assert_eq!(core.snapshot().eval(&woken.id).unwrap().status, EvalStatus::Pending);
        assert_eq!(broker.depth().ready, 1, "the needless evaluation waits for a worker again");
    }
}
