//! The volume reconciler: executes claims and intents as controller calls, and writes the intent first.
//!
//! `caravan-volumes` decides; this module executes. Changes of volumes, claims, plugins and nodes wake the
//! reconciler. The reconciler also wakes when a client connects, when a command releases a volume, and at the times
//! that the decisions name. Volumes proceed in parallel, and the calls of one volume one after the other. Attach and
//! detach have a separate limit for each plugin.

mod clock;
mod detach;
mod own;
mod steps;
mod waits;

pub(crate) use own::{Own, Owners};
pub(crate) use waits::{WaitChanges, Waits};

use crate::core::Core;
use crate::runtime::{self, select};
use crate::secrets::variables;
use crate::volume::controller::Controllers;
use crate::volume::lifecycle;
use caravan_state::{Changed, FeedItem, Root};
use caravan_types::variable::VariableKey;
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, Volume, VolumePhase};
use caravan_types::{AllocId, BootInstant, Namespace, VolumeKey};
use caravan_volumes::lease::Lease;
use caravan_volumes::reconcile::{self, Action, Facts, Presence, owes_growth, unused};
use caravan_volumes::wait::WaitReason;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Timeout of the shutdown's wait for calls in progress. Interrupted calls are resumed after the restart.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The state that the service, its running steps and the commands share.
#[derive(Clone, Debug)]
pub(crate) struct Reconciler {
    pub(crate) core: Core,
    pub(crate) controllers: Controllers,
    pub(crate) waits: Waits,
    pub(crate) owners: Owners,
    /// Ownership of volumes by commands in progress.
    pub(crate) commands: TaskTracker,
    busy: Arc<Mutex<BTreeSet<VolumeKey>>>,
    seens: clock::Seens,
    lease: Lease,
}

/// The result of checking a volume.
#[derive(Debug, Default)]
struct Looked {
    /// The time of the next check.
    again: Option<BootInstant>,
    /// Whether a step was executed, so that another check must follow immediately.
    progressed: bool,
}

impl Looked {
    fn again_at(&mut self, time: BootInstant) {
        self.again = Some(self.again.map_or(time, |at| at.min(time)));
    }
}

impl Reconciler {
    pub(crate) fn new(core: Core, controllers: Controllers, lease: Lease) -> Self {
        Self {
            core,
            // Pages that show reasons also show calls.
            waits: Waits::new(controllers.calls.reports()),
            controllers,
            owners: Owners::default(),
            commands: TaskTracker::new(),
            busy: Arc::default(),
            seens: clock::Seens::default(),
            lease,
        }
    }

    /// Runs until cancelled. Then waits a short time for calls in progress.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut feed = self.core.store.feed();
        let mut connections = self.controllers.nodes.changes();
        let (finished, mut done) = mpsc::unbounded_channel::<(VolumeKey, Option<BootInstant>)>();
        let mut dirty = all_volumes(&self.core.snapshot());
        // The times of the next checks; `NOW` means as soon as the current check ends.
        let mut timers: BTreeMap<VolumeKey, BootInstant> = BTreeMap::new();
        let tasks = TaskTracker::new();
        loop {
            for key in std::mem::take(&mut dirty) {
                if !self.busy().insert(key.clone()) {
                    self.explain(&key);
                    timers.insert(key, NOW);
                    continue;
                }
                timers.remove(&key);
                let (this, finished, cancel) = (self.clone(), finished.clone(), cancel.clone());
                runtime::spawn_in(&tasks, async move {
                    let again = this.settle(&key, &cancel).await;
                    this.busy().remove(&key);
                    // The service may have stopped.
                    let _ = finished.send((key, again));
                });
            }
            let next = {
                let busy = self.busy();
                timers.iter().filter(|(key, _)| !busy.contains(*key)).map(|(_, at)| *at).min()
            };
            select! {
                () = cancel.cancelled() => break,
                () = self.owners.left() => dirty.extend(self.owners.released()),
                Ok(()) = connections.changed() => dirty.extend(unsettled_volumes(&self.core.snapshot())),
                () = self.core.until(next) => {
                    let (now, busy) = (self.core.boot(), self.busy());
                    let due = timers.iter().filter(|(key, at)| **at <= now && !busy.contains(*key));
                    dirty.extend(due.map(|(key, _)| key.clone()));
                }
                Some((key, again)) = done.recv() => {
                    if timers.get(&key) == Some(&NOW) {
                        dirty.insert(key);
                    } else if let Some(at) = again {
                        timers.insert(key, at);
                    }
                }
                item = feed.next() => match item {
                    Some(FeedItem::Changes(set)) => {
                        let root = self.core.snapshot();
                        concerned(&root, &set.changes, &mut dirty);
                        self.seens.sweep(&root);
                        let waiting = || self.waits.volumes().into_iter();
                        if set.changes.iter().any(|c| matches!(c, Changed::Plugin(_))) {
                            // The index of plugins does not contain the remaining claims of volumes without a row.
                            dirty.extend(waiting().filter(|key| root.volume(key).is_none()));
                        }
                        if set.changes.iter().any(|c| matches!(c, Changed::ClaimRemoved(_))) {
                            // Another volume with the same storage may wait for the removed claim.
                            dirty.extend(waiting());
                        }
                    }
                    Some(FeedItem::Resync) => {
                        dirty = all_volumes(&self.core.snapshot());
                        dirty.extend(self.waits.volumes());
                    }
                    None => break,
                },
            }
        }
        self.end(&tasks).await;
    }

    /// Waits for the calls in progress, and cancels calls that take too long. Their intents are durable.
    async fn end(&self, tasks: &TaskTracker) {
        tasks.close();
        self.commands.close();
        let all_over = async {
            tasks.wait().await;
            self.commands.wait().await;
        };
        tokio::pin!(all_over);
        if runtime::timeout(SHUTDOWN_TIMEOUT, &mut all_over).await.is_err() {
            tracing::warn!(
                "calls to volume plugins are still in progress: cancelling them; the next leader resumes them"
            );
            self.controllers.cut.cancel();
            all_over.await;
        }
    }

    fn busy(&self) -> MutexGuard<'_, BTreeSet<VolumeKey>> {
        self.busy.lock()
    }

    /// Executes steps until none is possible now; returns when to check again.
    async fn settle(&self, key: &VolumeKey, cancel: &CancellationToken) -> Option<BootInstant> {
        while !cancel.is_cancelled() {
            let looked = self.look(key).await;
            if !looked.progressed {
                return looked.again;
            }
        }
        None
    }

    /// Returns when to retry failures that are not recorded in the state.
    fn later(&self) -> BootInstant {
        self.core.boot().plus(caravan_volumes::retry::delay(3))
    }

    async fn look(&self, key: &VolumeKey) -> Looked {
        let mut looked = Looked::default();
        // The command that owns the volume notifies on release.
        let Some(_own) = self.owners.for_reconciler(key) else {
            self.explain(key);
            return looked;
        };
        let root = self.core.snapshot();
        if let Some(volume) = root.volume(key).filter(|v| v.phase != VolumePhase::Ready) {
            let waits_for_end = volume.expand_offline && !unused(root.claims_of(key).map(|c| &**c));
            if waits_for_end {
                // The end of a claim wakes the reconciler.
            } else if let Some(due) = self.seens.due(volume, self.core.boot()) {
                looked.again_at(due);
            } else if self.controllers.reach(&root, &volume.plugin_id)
                // A write of the variable wakes the reconciler.
                && self.core.secrets_of(&root, volume).is_ok()
            {
                if lifecycle::resume(self, volume).await {
                    looked.progressed = true;
                } else {
                    looked.again_at(self.later());
                }
            }
        }
        let held: BTreeSet<AllocId> =
            root.claims_of(key).filter(|c| c.phase.holds()).map(|c| c.id.alloc.clone()).collect();
        self.waits.keep(key, &held);
        for alloc in held {
            let id = ClaimId { volume: key.clone(), alloc };
            // Decide about each claim with the newest state, because the previous step may have changed it.
            let root = self.core.snapshot();
            let Some(claim) = root.claim(&id).filter(|c| c.phase.holds()).cloned() else { continue };
            match self.decide(&root, &claim) {
                Action::WaitUntil { time, wait } => {
                    self.waits.set(&id, Some(wait));
                    looked.again_at(time);
                }
                Action::WaitForClient(wait) | Action::WaitForPlugin(wait) => {
                    self.waits.set(&id, Some(wait));
                }
                Action::Nothing => self.waits.set(&id, None),
                // The reason of the last wait stays until the outcome is known.
                action => match self.act(&root, &claim, action).await {
                    Ok(()) => {
                        looked.progressed = true;
                        return looked;
                    }
                    Err(error) => {
                        tracing::warn!(volume = %key, alloc = %id.alloc, %error, "a claim could not be advanced; retrying");
                        looked.again_at(self.later());
                    }
                },
            }
        }
        looked
    }

    /// Updates the reasons while another caller owns the volume.
    fn explain(&self, key: &VolumeKey) {
        let root = self.core.snapshot();
        for claim in root.claims_of(key).filter(|c| c.phase.holds()) {
            match self.decide(&root, claim) {
                Action::Nothing => self.waits.set(&claim.id, None),
                Action::WaitUntil { wait, .. }
                | Action::WaitForClient(wait)
                | Action::WaitForPlugin(wait) => {
                    self.waits.set(&claim.id, Some(wait));
                }
                _ if claim.phase == ClaimPhase::Reserved => {
                    self.waits.set(&claim.id, Some(WaitReason::CallUnderWay.into()));
                }
                // The current call may concern this claim.
                _ => {}
            }
        }
    }

    /// Returns the next action for a claim; a call without a reachable controller becomes a wait.
    fn decide(&self, root: &Root, claim: &Claim) -> Action {
        self.with_facts(root, claim, |facts| self.decide_with(root, facts))
    }

    /// Calls a function with all facts on which the decision about a claim depends.
    pub(crate) fn with_facts<T>(&self, root: &Root, claim: &Claim, ask: impl FnOnce(&Facts<'_>) -> T) -> T {
        let own = root.claims_of(&claim.id.volume);
        // Attachments belong to the storage, independent of the volume that stands for it.
        let on_storage = root.claims_on(&claim.plugin_id, &claim.external_volume_id);
        let beside = own.chain(on_storage.filter(|c| c.id.volume != claim.id.volume));
        let others: Vec<Arc<Claim>> = beside.filter(|c| c.id != claim.id).cloned().collect();
        let others: Vec<&Claim> = others.iter().map(|c| &**c).collect();
        let node = Presence::from_node(root.node(&claim.node_id).map(|n| &**n));
        let plugin = root.plugin(&claim.plugin_id).map(|p| &**p);
        let now = self.core.boot();
        let seen = self.seens.of_claim(claim, node, plugin, now);
        #[cfg(feature = "simulation")]
        let seen = self.by_wall_clock(claim, seen);
        ask(&Facts {
            volume: root.volume(&claim.id.volume).map(|v| &**v),
            claim,
            others: &others,
            plugin,
            node,
            lease: self.lease,
            seen,
            now,
        })
    }

    /// Counts a fence from the time that an earlier leader recorded, if that fault is planted.
    #[cfg(feature = "simulation")]
    fn by_wall_clock(&self, claim: &Claim, seen: reconcile::Seen) -> reconcile::Seen {
        use caravan_types::Nanos;
        let begun = claim.fence_until.plus(Nanos(-self.lease.grace().0));
        if claim.fence_until.is_zero() || !crate::runtime::planted!(WallClockFence) {
            return seen;
        }
        let age = self.core.boot().since(BootInstant::default()).0 - self.core.now().since(begun).0;
        reconcile::Seen { silence: BootInstant::from_nanos(u64::try_from(age).unwrap_or(0)), ..seen }
    }

    pub(crate) fn decide_with(&self, root: &Root, facts: &Facts<'_>) -> Action {
        let (action, claim) = (reconcile::next(facts), facts.claim);
        let calls = matches!(action, Action::Attach { .. } | Action::Detach);
        if calls && !self.controllers.reach(root, &claim.plugin_id) {
            let reason = WaitReason::ControllerNotConnected { plugin: claim.plugin_id.clone() };
            return Action::WaitForPlugin(reason.into());
        }
        let by_node = matches!(action, Action::ExpandNode { .. });
        if by_node && self.controllers.nodes.get(claim.node_id.as_str()).is_err() {
            let reason = WaitReason::NodeNotConnected { node: claim.node_id.clone() };
            return Action::WaitForClient(reason.into());
        }
        // The step waits for the variable to be written; the claim's backoff is for failed calls.
        let volume = root.volume(&claim.id.volume).map(|v| &**v);
        match self.core.secrets_for(root, claim, volume) {
            Err(missing) if calls || by_node => Action::WaitForPlugin(WaitReason::Secret(missing).into()),
            _ => action,
        }
    }
}

/// A time that is always due.
const NOW: BootInstant = BootInstant::from_nanos(0);

fn all_volumes(root: &Root) -> BTreeSet<VolumeKey> {
    let with_claims = root.claims().filter(|c| c.phase.holds()).map(|c| c.id.volume.clone());
    let unfinished = root.volumes().filter(|v| v.phase != VolumePhase::Ready).map(|v| v.key());
    with_claims.chain(unfinished).collect()
}

fn unsettled_volumes(root: &Root) -> BTreeSet<VolumeKey> {
    let with_claims = root.claims().filter(|c| on_its_way(root, c)).map(|c| c.id.volume.clone());
    let unfinished = root.volumes().filter(|v| v.phase != VolumePhase::Ready).map(|v| v.key());
    with_claims.chain(unfinished).collect()
}

/// Returns whether a claim still needs a step, by the servers or by a client.
fn on_its_way(root: &Root, claim: &Claim) -> bool {
    match claim.phase {
        ClaimPhase::Gone => false,
        ClaimPhase::Mounted => root.volume(&claim.id.volume).is_some_and(|v| owes_growth(v, claim)),
        _ => true,
    }
}

/// Returns the volumes that a change concerns.
fn concerned(root: &Root, changes: &[Changed], dirty: &mut BTreeSet<VolumeKey>) {
    for changed in changes {
        match changed {
            Changed::Volume(key) | Changed::VolumeRemoved(key) => {
                dirty.insert(key.clone());
            }
            Changed::Claim(id) | Changed::ClaimRemoved(id) => {
                dirty.insert(id.volume.clone());
                if let Some(claim) = root.claim(id) {
                    let beside = root.claims_on(&claim.plugin_id, &claim.external_volume_id);
                    dirty.extend(beside.map(|c| c.id.volume.clone()));
                }
            }
            Changed::Node(id) | Changed::NodeRemoved(id) => {
                let holding = root.claims_by_node(id).filter(|c| c.phase != ClaimPhase::Gone);
                dirty.extend(holding.map(|c| c.id.volume.clone()));
            }
            Changed::Variable(key) | Changed::VariableRemoved(key) => {
                dirty.extend(
                    root.volumes().filter(|v| refers(&v.namespace, &v.secrets_from, key)).map(|v| v.key()),
                );
                let forsaken = root.claims().filter(|c| c.forsaken);
                let forsaken = forsaken.filter(|c| refers(&c.id.volume.namespace, &c.kept_secrets_from, key));
                dirty.extend(forsaken.map(|c| c.id.volume.clone()));
            }
            Changed::Plugin(id) | Changed::PluginRemoved(id) => {
                dirty.extend(root.volumes_by_plugin(id).filter(|v| unsettled(root, v)).map(|v| v.key()));
            }
            _ => {}
        }
    }
}

/// Returns whether one of the references names the variable.
fn refers(namespace: &Namespace, references: &BTreeMap<String, String>, key: &VariableKey) -> bool {
    !references.is_empty() && variables(namespace, references).any(|named| named == *key)
}

fn unsettled(root: &Root, volume: &Volume) -> bool {
    volume.phase != VolumePhase::Ready || root.claims_of(&volume.key()).any(|c| on_its_way(root, c))
}
