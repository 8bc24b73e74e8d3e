//! The volume reconciler: turns claims and intents into controller calls, intent first.
//!
//! What to do is decided by `caravan-volumes`; this module carries it out. It is woken by changes of
//! volumes, claims, plugins, nodes and allocations, and by the times that the decisions name. Volumes go
//! in parallel, the calls of one volume one after the other; attaching and detaching have lanes of their
//! own for each plugin.

use crate::broker::until;
use crate::core::Core;
use crate::error::ServerError;
use crate::volume::controller::{CallError, Controllers};
use crate::volume::lifecycle;
use caravan_state::{Changed, FeedItem, Root};
use caravan_types::command::{Change, ClaimStep, Refusal};
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, Volume, VolumePhase};
use caravan_types::wire::{ControllerAnswer, ControllerOperation};
use caravan_types::{PluginId, UnixNanos, VolumeKey};
use caravan_volumes::lease::Lease;
use caravan_volumes::reconcile::{self, Action, Facts, Presence};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Calls of one kind that one plugin gets at the same time.
const LANE_WIDTH: usize = 8;

/// Why claims wait, for those who ask. Not replicated: it is derived at every look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    reasons: Arc<Mutex<HashMap<ClaimId, String>>>,
    changed: Arc<Notify>,
}

impl Waits {
    fn reasons(&self) -> MutexGuard<'_, HashMap<ClaimId, String>> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Why the claim waits, if it does.
    pub(crate) fn reason(&self, id: &ClaimId) -> Option<String> {
        self.reasons().get(id).cloned()
    }
    /// Ends when some reason changed after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        // Counts from its creation on, polled or not (tokio, Notify::notify_waiters).
        self.changed.clone().notified_owned()
    }
    fn set(&self, id: &ClaimId, reason: Option<&str>) {
        let changed = {
            let mut reasons = self.reasons();
            let before = reasons.get(id).map(String::as_str);
            if before == reason {
                return;
            }
            match reason {
                Some(text) => {
                    tracing::info!(volume = %id.volume, alloc = %id.alloc, reason = text, "claim waits");
                    reasons.insert(id.clone(), text.to_owned());
                }
                None => {
                    reasons.remove(id);
                }
            }
            true
        };
        if changed {
            self.changed.notify_waiters();
        }
    }
}

/// Which way a call goes; each has its own lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lane {
    Attach,
    Detach,
}

/// Permits for calls, by plugin and direction.
type Lanes = HashMap<(PluginId, Lane), Arc<Semaphore>>;

/// Shared by the service and its running steps.
#[derive(Clone, Debug)]
pub(crate) struct Reconciler {
    pub(crate) core: Core,
    pub(crate) controllers: Controllers,
    pub(crate) waits: Waits,
    lanes: Arc<Mutex<Lanes>>,
    busy: Arc<Mutex<BTreeSet<VolumeKey>>>,
    owned: Arc<Owned>,
    lease: Lease,
}

/// Volumes that a command is at work on, and those that it has let go of.
#[derive(Debug, Default)]
struct Owned {
    taken: Mutex<BTreeSet<VolumeKey>>,
    released: Mutex<BTreeSet<VolumeKey>>,
    changed: Notify,
}

/// The right to make or destroy a volume; given back when dropped.
#[derive(Debug)]
pub(crate) struct Own {
    owned: Arc<Owned>,
    key: VolumeKey,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.owned.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        // A command that was cut off leaves its intent to the reconciler.
        self.owned.released.lock().unwrap_or_else(PoisonError::into_inner).insert(self.key.clone());
        self.owned.changed.notify_waiters();
        self.owned.changed.notify_one();
    }
}

/// What a look at a volume came to.
#[derive(Debug, Default)]
struct Looked {
    /// When to look again.
    again: Option<UnixNanos>,
    /// Something was done: look again at once.
    progressed: bool,
}

impl Reconciler {
    pub(crate) fn new(core: Core, controllers: Controllers, lease: Lease) -> Self {
        Self {
            core,
            controllers,
            waits: Waits::default(),
            lanes: Arc::default(),
            busy: Arc::default(),
            owned: Arc::default(),
            lease,
        }
    }

    /// Runs until cancelled; calls under way are waited for.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut feed = self.core.store.feed();
        let (finished, mut done) = mpsc::unbounded_channel::<(VolumeKey, Option<UnixNanos>)>();
        let mut dirty = all_volumes(&self.core.snapshot());
        let mut timers: BTreeMap<VolumeKey, UnixNanos> = BTreeMap::new();
        let tasks = TaskTracker::new();
        loop {
            for key in std::mem::take(&mut dirty) {
                if !self.busy().insert(key.clone()) {
                    // Looked at again when the step under way is over.
                    timers.insert(key, UnixNanos(0));
                    continue;
                }
                timers.remove(&key);
                let (this, finished) = (self.clone(), finished.clone());
                tasks.spawn(async move {
                    let again = this.settle(&key).await;
                    this.busy().remove(&key);
                    // The service may have stopped.
                    let _ = finished.send((key, again));
                });
            }
            let next = timers.iter().filter(|(k, _)| !self.busy().contains(*k)).map(|(_, at)| *at).min();
            tokio::select! {
                () = cancel.cancelled() => break,
                () = self.owned.changed.notified() => {
                    let mut released = self.owned.released.lock().unwrap_or_else(PoisonError::into_inner);
                    let root = self.core.snapshot();
                    let unfinished = std::mem::take(&mut *released)
                        .into_iter()
                        .filter(|k| root.volume(k).is_some_and(|v| v.phase != VolumePhase::Ready));
                    dirty.extend(unfinished);
                }
                () = until(next, self.core.now()) => {
                    let now = self.core.now();
                    dirty.extend(timers.iter().filter(|(_, at)| **at <= now).map(|(k, _)| k.clone()));
                    let busy = self.busy().clone();
                    dirty.retain(|k| !busy.contains(k));
                }
                Some((key, again)) = done.recv() => {
                    match (timers.get(&key).copied(), again) {
                        (Some(UnixNanos(0)), _) => { dirty.insert(key); }
                        (_, Some(at)) => { timers.insert(key, at); }
                        _ => {}
                    }
                }
                item = feed.next() => match item {
                    Some(FeedItem::Changes(set)) => {
                        concerned(&self.core.snapshot(), &set.changes, &mut dirty);
                    }
                    Some(FeedItem::Resync) => dirty = all_volumes(&self.core.snapshot()),
                    None => break,
                },
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    fn busy(&self) -> MutexGuard<'_, BTreeSet<VolumeKey>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the right to make or destroy a volume, unless somebody has it: a command in progress or
    /// the reconciler itself.
    pub(crate) fn own(&self, key: &VolumeKey) -> Option<Own> {
        let fresh = self.owned.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        fresh.then(|| Own { owned: self.owned.clone(), key: key.clone() })
    }

    /// Waits until some command has let go of its volume.
    pub(crate) async fn some_released(&self) {
        self.owned.changed.notified().await;
    }

    fn lane(&self, plugin: &PluginId, lane: Lane) -> Arc<Semaphore> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.entry((plugin.clone(), lane)).or_insert_with(|| Arc::new(Semaphore::new(LANE_WIDTH))).clone()
    }

    /// Takes steps until nothing more can be done now; answers when to look again.
    async fn settle(&self, key: &VolumeKey) -> Option<UnixNanos> {
        loop {
            let looked = match self.look(key).await {
                Ok(looked) => looked,
                Err(error) => {
                    tracing::warn!(volume = %key, %error, "reconciling a volume failed; trying again");
                    return Some(self.core.now().plus(caravan_volumes::retry::delay(3)));
                }
            };
            if !looked.progressed {
                return looked.again;
            }
        }
    }

    async fn look(&self, key: &VolumeKey) -> Result<Looked, ServerError> {
        let root = self.core.snapshot();
        let mut looked = Looked::default();
        if let Some(volume) = root.volume(key)
            && volume.phase != VolumePhase::Ready
        {
            let now = self.core.now();
            if volume.next_try > now {
                looked.again = Some(volume.next_try);
            } else if let Some(_own) = self.own(key) {
                looked.progressed |= lifecycle::resume(self, volume).await?;
            }
        }
        let claims: Vec<Arc<Claim>> = root.claims_of(key).filter(|c| c.phase.holds()).cloned().collect();
        for claim in &claims {
            let (action, facts_now) = self.decide(&root, claim);
            self.waits.set(&claim.id, action.reason());
            match action {
                Action::WaitUntil { time, .. } => {
                    looked.again = Some(looked.again.map_or(time, |t: UnixNanos| t.min(time)));
                }
                Action::WaitForClient { .. } | Action::WaitForPlugin { .. } | Action::Nothing => {}
                action => {
                    self.act(&root, claim, action, facts_now).await?;
                    looked.progressed = true;
                    // The state moved: decide anew about the other claims.
                    return Ok(looked);
                }
            }
        }
        Ok(looked)
    }

    fn decide(&self, root: &Root, claim: &Claim) -> (Action, UnixNanos) {
        let others: Vec<Arc<Claim>> =
            root.claims_of(&claim.id.volume).filter(|c| c.id != claim.id).cloned().collect();
        let others: Vec<&Claim> = others.iter().map(|c| &**c).collect();
        let now = self.core.now();
        let facts = Facts {
            volume: root.volume(&claim.id.volume).map(|v| &**v),
            claim,
            others: &others,
            plugin: root.plugin(&claim.plugin_id).map(|p| &**p),
            node: Presence::of(root.node(&claim.node_id).map(|n| &**n)),
            lease: self.lease,
            now,
        };
        (reconcile::next(&facts), now)
    }

    async fn act(
        &self,
        root: &Root,
        claim: &Claim,
        action: Action,
        now: UnixNanos,
    ) -> Result<(), ServerError> {
        match action {
            Action::Attach { external_node_id } => self.attach(root, claim, external_node_id).await,
            Action::MarkAttached { external_node_id } => {
                let step = ClaimStep::Attached {
                    publish_context: BTreeMap::new(),
                    needs_attach: false,
                    external_node_id,
                };
                self.step(&claim.id, claim.modify_index, step).await.map(drop)
            }
            Action::Detach => self.detach(root, claim).await,
            Action::LeaveAttached => {
                self.step(&claim.id, claim.modify_index, ClaimStep::LeftAttached).await.map(drop)
            }
            Action::Free => self.step(&claim.id, claim.modify_index, ClaimStep::Freed).await.map(drop),
            Action::Fence { until } => {
                tracing::warn!(volume = %claim.id.volume, node = %claim.node_id, wait = %until.since(now), "the node vanished: fencing its claim");
                self.step(&claim.id, claim.modify_index, ClaimStep::Fence { until }).await.map(drop)
            }
            Action::WaitForClient { .. }
            | Action::WaitForPlugin { .. }
            | Action::WaitUntil { .. }
            | Action::Nothing => Ok(()),
        }
    }

    /// Records a step; `None` if the claim changed meanwhile, which the next look deals with.
    async fn step(&self, id: &ClaimId, expect: u64, step: ClaimStep) -> Result<Option<u64>, ServerError> {
        let change = Change::ClaimStep { id: id.clone(), expect_modify_index: expect, step };
        let outcome = self.core.propose(change).await?;
        match outcome.refused {
            None => Ok(Some(outcome.index)),
            Some(Refusal::Changed { .. } | Refusal::NotFound { .. }) => Ok(None),
            Some(refusal) => Err(refusal.into()),
        }
    }

    async fn attach(&self, root: &Root, claim: &Claim, external_node_id: String) -> Result<(), ServerError> {
        let Some(volume) = root.volume(&claim.id.volume) else { return Ok(()) };
        let permit = self.lane(&claim.plugin_id, Lane::Attach).acquire_owned().await;
        let intent = ClaimStep::IntendAttach { external_node_id: external_node_id.clone() };
        let Some(index) = self.step(&claim.id, claim.modify_index, intent).await? else { return Ok(()) };
        let operation = ControllerOperation::Publish {
            external_id: volume.remote_id().to_owned(),
            external_node_id: external_node_id.clone(),
            usage: claim.usage(),
            mount_options: merged_options(volume, claim),
            secrets: volume.secrets.clone(),
            context: volume.context.clone(),
        };
        let result = self.controllers.call(root, &claim.plugin_id, operation).await;
        drop(permit);
        let step = match result {
            Ok(ControllerAnswer::Published { publish_context }) => {
                ClaimStep::Attached { publish_context, needs_attach: true, external_node_id }
            }
            Ok(_) => {
                return Err(ServerError::new(crate::Kind::Internal, "a controller answered something else"));
            }
            Err(error) => self.failed(claim, &error),
        };
        self.step(&claim.id, index, step).await.map(drop)
    }

    async fn detach(&self, root: &Root, claim: &Claim) -> Result<(), ServerError> {
        let permit = self.lane(&claim.plugin_id, Lane::Detach).acquire_owned().await;
        let Some(index) = self.step(&claim.id, claim.modify_index, ClaimStep::IntendDetach).await? else {
            return Ok(());
        };
        let volume = root.volume(&claim.id.volume);
        let operation = ControllerOperation::Unpublish {
            external_id: external_id(claim, volume.map(|v| &**v)),
            external_node_id: claim.external_node_id.clone(),
            secrets: volume.map(|v| v.secrets.clone()).unwrap_or_default(),
        };
        let result = self.controllers.call(root, &claim.plugin_id, operation).await;
        drop(permit);
        let step = match result {
            Ok(_) => ClaimStep::Freed,
            Err(error) => self.failed(claim, &error),
        };
        self.step(&claim.id, index, step).await.map(drop)
    }

    fn failed(&self, claim: &Claim, error: &CallError) -> ClaimStep {
        if claim.last_error != error.message {
            tracing::warn!(volume = %claim.id.volume, alloc = %claim.id.alloc, %error, "a controller call failed; trying again");
        }
        let next_try = self.core.now().plus(caravan_volumes::retry::delay(claim.tries.saturating_add(1)));
        ClaimStep::Failed { error: error.message.clone(), next_try }
    }
}

fn external_id(claim: &Claim, volume: Option<&Volume>) -> String {
    if claim.external_volume_id.is_empty() {
        volume.map_or_else(|| claim.id.volume.id.to_string(), |v| v.remote_id().to_owned())
    } else {
        claim.external_volume_id.clone()
    }
}

fn merged_options(volume: &Volume, claim: &Claim) -> Option<caravan_types::job::MountOptions> {
    match (&volume.mount_options, &claim.mount_options) {
        (Some(base), Some(top)) => Some(base.merged(top)),
        (Some(one), None) | (None, Some(one)) => Some(one.clone()),
        (None, None) => None,
    }
}

fn all_volumes(root: &Root) -> BTreeSet<VolumeKey> {
    let with_claims = root.claims().filter(|c| c.phase.holds()).map(|c| c.id.volume.clone());
    let unfinished = root.volumes().filter(|v| v.phase != VolumePhase::Ready).map(|v| v.key());
    with_claims.chain(unfinished).collect()
}

/// The volumes that a change concerns.
fn concerned(root: &Root, changes: &[Changed], dirty: &mut BTreeSet<VolumeKey>) {
    for changed in changes {
        match changed {
            Changed::Volume(key) | Changed::VolumeRemoved(key) => {
                dirty.insert(key.clone());
            }
            Changed::Claim(id) | Changed::ClaimRemoved(id) => {
                dirty.insert(id.volume.clone());
            }
            Changed::Node(id) | Changed::NodeRemoved(id) => {
                let holding = root.claims_by_node(id).filter(|c| c.phase != ClaimPhase::Gone);
                dirty.extend(holding.map(|c| c.id.volume.clone()));
            }
            Changed::Plugin(id) => {
                dirty.extend(root.volumes_by_plugin(id).filter(|v| unsettled(root, v)).map(|v| v.key()));
            }
            _ => {}
        }
    }
}

fn unsettled(root: &Root, volume: &Volume) -> bool {
    volume.phase != VolumePhase::Ready
        || root.claims_of(&volume.key()).any(|c| !matches!(c.phase, ClaimPhase::Mounted | ClaimPhase::Gone))
}
