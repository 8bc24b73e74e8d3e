//! The mounts of volumes: one operation at a time for each volume, each intent in the ledger before its call and each
//! proof after it. [`super::releases`] unmounts them.

use super::CsiFault;
use super::health::{Troubles, diagnose};
use super::ledger::{ClaimEntry, Entry, Ledger, MountPhase, is_device};
use super::manager::{Lent, Manager};
use super::owner::Wish;
use super::prober::{Prober, answers};
use super::reports::Reports;
use super::steps::{self, Came, Mounting, Steps};
use crate::node::NodeState;
use crate::servers::Servers;
use crate::state::{Identity, Store};
use caravan_base::{KeyedGuard, KeyedLock};
use caravan_messages::{ClaimGrant, ClaimReportStep};
use caravan_sys::mount::{DeviceKind, device_number, is_mount_point, mount_identity};
use caravan_sys::seal::{Seal, seal_beneath};
use caravan_types::plugin::PluginRole;
use caravan_types::volume::{ClaimId, MountProof};
use caravan_types::{PluginId, VolumeKey};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The longest wait of an operation for its plugin (docs/reference/storage.md, section 3.1).
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between checks of the condition that a mount waits for.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);

/// The most calls by which one attempt of a mount ends a conflicting mount, before other operations get the volume.
const MAX_UNDOING: usize = 12;

/// The timeout for the answer of a file system.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The volumes of this node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct VolumeManager {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    store: Store,
    pub(super) node: NodeState,
    pub(super) plugins: Manager,
    pub(super) servers: Arc<dyn Servers>,
    pub(super) identity: Arc<Identity>,
    pub(super) reports: Reports,
    /// The parent of the plugin roots.
    pub(super) csi_dir: PathBuf,
    ledger: Mutex<Ledger>,
    turns: KeyedLock<VolumeKey>,
    pub(super) releasing: Mutex<HashSet<ClaimId>>,
    /// A counter of the changes of the ledger.
    changes: watch::Sender<u64>,
    /// Mounts with problems.
    pub(super) troubles: watch::Sender<Troubles>,
    pub(super) prober: Prober,
    pub(super) cancel: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// The dependencies of a volume manager.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The store of the ledger.
    pub(crate) store: Store,
    /// The node, for events.
    pub(crate) node: NodeState,
    /// The CSI plugins.
    pub(crate) plugins: Manager,
    /// The servers that receive proofs.
    pub(crate) servers: Arc<dyn Servers>,
    /// The node's identity, for reports.
    pub(crate) identity: Arc<Identity>,
    /// The parent of the plugin roots.
    pub(crate) csi_dir: PathBuf,
    /// The token that cancels all operations.
    pub(crate) cancel: CancellationToken,
}

impl VolumeManager {
    /// Creates a manager with the stored ledger.
    pub(crate) fn new(ledger: Ledger, parts: Parts) -> Self {
        let (servers, identity) = (parts.servers, parts.identity);
        let reports = Reports::new(Arc::clone(&servers), Arc::clone(&identity), parts.cancel.clone());
        let inner = Inner {
            store: parts.store,
            node: parts.node,
            plugins: parts.plugins,
            servers,
            identity,
            reports,
            csi_dir: parts.csi_dir,
            ledger: Mutex::new(ledger),
            turns: KeyedLock::default(),
            releasing: Mutex::default(),
            changes: watch::Sender::new(0),
            troubles: watch::Sender::default(),
            prober: Prober::default(),
            cancel: parts.cancel,
            tasks: TaskTracker::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits until all operations have ended, after cancellation.
    pub(crate) async fn ended(&self) {
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Mounts a granted claim; returns the proof. A repetition after a failure or a crash of the agent is safe,
    /// because the ledger and the mount table decide the next step. Owner and mode of the root are set only the first
    /// time. `lease_term` is the term of the node's lease in which a fenced claim was granted. `waits` receives the
    /// reason of each wait.
    pub(crate) async fn mount(
        &self,
        grant: &ClaimGrant,
        wish: &Wish,
        lease_term: Option<u64>,
        waits: &watch::Sender<String>,
    ) -> Result<MountProof, CsiFault> {
        let claim = &grant.claim;
        // Recorded first, so that the claim is released even if the mount fails.
        let known = self.entry(&claim.id);
        if known.as_ref().is_none_or(|e| e.generation != claim.generation) {
            self.write(granted(grant, known, lease_term)).await?;
        }
        let mut reason = String::new();
        let mut lent: Option<Lent> = None;
        let given_up = CancellationToken::new();
        // The caller drops this future when the allocation is stopped.
        let _given_up = given_up.clone().drop_guard();
        loop {
            let mut changes = self.changes();
            let turn = self.turn(&claim.id.volume).await;
            if let Some(proof) = self.mounted_as_proven(&claim.id) {
                return Ok(proof);
            }
            let stale = self.is_stale(grant);
            let came = match (&lent, stale) {
                (_, true) => Came::Waits(CsiFault::Waits(steps::stale_words(&claim.id))),
                (None, false) => {
                    drop(turn);
                    let found =
                        self.inner.plugins.plugin(PluginRole::Node, &claim.plugin_id, PLUGIN_TIMEOUT).await?;
                    lent = Some(found);
                    continue;
                }
                (Some(lent), false) => {
                    let entry = ClaimEntry { lease_term, ..self.prepared(grant, wish, lent)? };
                    let mounting = Mounting { grant: grant.clone(), wish: wish.clone() };
                    let steps = Steps::mount(mounting, lent.clone(), given_up.clone());
                    self.mount_once(turn, entry, steps).await?
                }
            };
            let Came::Waits(why) = came else {
                return self.entry(&claim.id).and_then(|e| e.proof).ok_or(CsiFault::Ledger);
            };
            let now = why.to_string();
            if now != reason {
                tracing::info!(volume = %claim.id.volume, alloc = %claim.id.alloc, reason = now, "the volume mount waits");
                waits.send_replace(now.clone());
                reason = now;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(WAIT_INTERVAL) => {}
                () = self.inner.cancel.cancelled() => return Err(CsiFault::GivenUp),
            }
        }
    }

    /// Runs one attempt of a mount. The lock is kept until the plugin has answered, even if the allocation is stopped
    /// meanwhile: the release must not overtake the mount.
    async fn mount_once(
        &self,
        turn: KeyedGuard<VolumeKey>,
        entry: ClaimEntry,
        mut steps: Steps,
    ) -> Result<Came, CsiFault> {
        entry.on_host()?;
        let (this, claim, generation) = (self.clone(), entry.claim.clone(), entry.generation);
        self.write(entry).await?;
        let work = tokio::spawn(async move {
            let _turn = turn;
            let mut came = this.take_steps(&mut steps).await;
            // A plugin that refuses to end a conflicting mount is called again within the attempt, because its
            // refusals are counted.
            for _ in 0..MAX_UNDOING {
                if !matches!(came, Ok(Came::Waits(_))) || !steps.is_ending() {
                    break;
                }
                tokio::time::sleep(WAIT_INTERVAL).await;
                steps.rest();
                came = this.take_steps(&mut steps).await;
            }
            match &came {
                Ok(Came::There) => {
                    this.note("Mount volume", &claim, None);
                    if let Some(proof) = this.entry(&claim).and_then(|e| e.proof) {
                        this.report(claim, generation, ClaimReportStep::Mounted { proof });
                    }
                }
                Ok(Came::Waits(_)) => {}
                Err(fault) => this.note("Mount volume", &claim, Some(fault)),
            }
            came
        });
        work.await.unwrap_or(Err(CsiFault::GivenUp))
    }

    /// Returns the entry of a claim to be mounted, with the plugin's current capabilities.
    fn prepared(&self, grant: &ClaimGrant, wish: &Wish, lent: &Lent) -> Result<ClaimEntry, CsiFault> {
        let claim = &grant.claim;
        let mut entry = self.entry(&claim.id).ok_or(CsiFault::Ledger)?;
        let known = entry.node();
        let registration = &lent.instance.registration;
        let can = lent.info.node_info.clone().unwrap_or_default();
        entry.host_root.clone_from(&registration.host_root);
        entry.plugin_root.clone_from(&registration.plugin_root);
        entry.external_id.clone_from(&grant.external_volume_id);
        entry.usage = claim.usage();
        entry.stages = can.requires_node_stage_volume;
        entry.set(Entry { stages: entry.stages, ..known });
        // The plugin sets the group if it can, except for block devices.
        let plugin_groups = can.supports_mount_group && !is_device(entry.usage);
        let group = wish.group.filter(|_| plugin_groups).map(|gid| gid.to_string());
        entry.mount_group = group.unwrap_or_default();
        Ok(entry)
    }

    fn mounted_as_proven(&self, claim: &ClaimId) -> Option<MountProof> {
        let entry = self.entry(claim).filter(|e| e.phase == MountPhase::Mounted)?;
        check(&entry).ok().and(entry.proof)
    }

    /// Returns whether remains exist of claims that have ended on the servers. After a silence the volume may have been
    /// detached and attached again, and a stage of the earlier attachment is invalid. The remains are already being
    /// removed, because their allocation has ended as well.
    pub(super) fn is_stale(&self, grant: &ClaimGrant) -> bool {
        let claim = &grant.claim;
        let beside = grant.beside.as_ref();
        beside.is_some_and(|beside| self.lock().is_stale_beside(&claim.id, claim.modify_index, beside))
    }

    /// Delivers a step in the background.
    pub(crate) fn report(&self, claim: ClaimId, generation: u32, step: ClaimReportStep) {
        let this = self.clone();
        self.inner.tasks.spawn(async move {
            // The failure of the delivery means that the client ends; the next agent reports the step again.
            let _ = this.inner.reports.deliver(&claim, generation, step).await;
            if this.entry(&claim).is_none() {
                this.inner.reports.remove(&claim);
            }
        });
    }

    /// Reports that mounting failed and is retried. The report is sent once, because the next failure replaces it.
    pub(crate) fn report_failure(&self, grant: &ClaimGrant, words: String, tries: u32) {
        let (this, claim, generation) = (self.clone(), grant.claim.id.clone(), grant.claim.generation);
        self.inner.tasks.spawn(async move {
            tokio::select! {
                () = this.inner.cancel.cancelled() => {}
                () = this.inner.reports.failed(&claim, generation, words, tries) => {}
            }
        });
    }

    /// Returns whether the mount of a claim matches its proof and its file system is not dead. A file system that only
    /// does not answer counts as mounted, so that it is not mounted again.
    pub(crate) async fn is_mounted(&self, claim: &ClaimId) -> bool {
        let Some(entry) = self.entry(claim).filter(|e| e.phase == MountPhase::Mounted) else { return false };
        let Ok(host) = entry.on_host() else { return false };
        let at = host.publish.clone();
        let look = move || check(&entry).is_ok().then(|| answers(&at));
        match self.inner.prober.look(&host.publish, ANSWER_TIMEOUT, look).await {
            None => true,
            Some(None) => false,
            Some(Some(answer)) => diagnose(Some(answer)).is_none(),
        }
    }

    /// Compares the mount of a claim with its proof; called before every start of a task that uses it.
    pub(crate) fn verify(&self, claim: &ClaimId, alias: &str) -> Result<PathBuf, CsiFault> {
        let entry = self.entry(claim).filter(|e| e.phase == MountPhase::Mounted);
        let entry = entry.ok_or_else(|| CsiFault::Unknown(alias.to_owned()))?;
        if let Some(trouble) = self.inner.troubles.borrow().get(claim) {
            let what = format!("{} ({})", trouble.reason, trouble.path);
            return Err(CsiFault::Changed { volume: claim.volume.id.to_string(), what });
        }
        check(&entry)?;
        Ok(entry.on_host()?.publish)
    }

    /// Returns the number of claims whose volumes a plugin may have staged and has not unstaged yet.
    pub(crate) fn uses_plugin(&self, plugin: &PluginId) -> usize {
        let called = |e: &&ClaimEntry| e.phase > MountPhase::Granted && e.phase < MountPhase::Unstaged;
        self.lock().entries().filter(|e| e.plugin == *plugin).filter(called).count()
    }

    /// Returns a receiver of changes of the ledger.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Returns the claims of an allocation.
    pub(crate) fn claims_of(&self, alloc: &caravan_types::AllocId) -> Vec<ClaimId> {
        self.lock().entries().filter(|e| e.claim.alloc == *alloc).map(|e| e.claim.clone()).collect()
    }

    /// Returns the term of the node's lease under which a claim was granted.
    pub(crate) fn lease_term(&self, claim: &ClaimId) -> Option<u64> {
        self.entry(claim).and_then(|entry| entry.lease_term)
    }

    /// Returns the terms of the node's lease under which an allocation's claims were granted.
    pub(crate) fn lease_terms(&self, alloc: &caravan_types::AllocId) -> Vec<u64> {
        self.lock().entries().filter(|e| e.claim.alloc == *alloc).filter_map(|e| e.lease_term).collect()
    }

    /// Waits for the lock of a volume: one operation at a time, also across plugins.
    pub(super) async fn turn(&self, volume: &VolumeKey) -> KeyedGuard<VolumeKey> {
        self.inner.turns.lock(volume).await
    }

    /// Returns the lock of a volume unless an operation holds it or waits for it.
    pub(super) fn turn_now(&self, volume: &VolumeKey) -> Option<KeyedGuard<VolumeKey>> {
        self.inner.turns.try_lock(volume)
    }

    /// Returns whether a claim was mounted when the last agent ended, or is now, even if the mount broke since.
    pub(crate) fn was_mounted(&self, claim: &ClaimId) -> bool {
        self.entry(claim).is_some_and(|e| e.phase == MountPhase::Mounted || e.renewing)
    }

    pub(super) fn entry(&self, claim: &ClaimId) -> Option<ClaimEntry> {
        self.lock().get(claim).cloned()
    }

    /// Writes an entry; the next durable write makes it durable too.
    pub(super) fn write_later(&self, entry: ClaimEntry) {
        let mut ledger = self.lock();
        self.inner.store.put_claim(&entry).later();
        ledger.put(entry);
        drop(ledger);
        self.inner.changes.send_modify(|v| *v += 1);
    }

    /// Writes an entry; durable when this returns.
    pub(super) async fn write(&self, entry: ClaimEntry) -> Result<(), CsiFault> {
        let written = {
            let mut ledger = self.lock();
            let written = self.inner.store.put_claim(&entry);
            ledger.put(entry);
            written
        };
        self.inner.changes.send_modify(|v| *v += 1);
        written.done().await.map_err(|_| CsiFault::Ledger)
    }

    pub(super) fn strike(&self, claim: &ClaimId) {
        let mut ledger = self.lock();
        self.inner.store.remove_claim(claim).later();
        ledger.remove(claim);
        drop(ledger);
        self.inner.reports.remove(claim);
        self.inner.changes.send_modify(|v| *v += 1);
    }

    pub(super) fn note(&self, message: &str, claim: &ClaimId, fault: Option<&CsiFault>) {
        let mut details = BTreeMap::from([
            ("volume_id".to_owned(), claim.volume.id.to_string()),
            ("success".to_owned(), fault.is_none().to_string()),
        ]);
        if let Some(fault) = fault {
            details.insert("error".to_owned(), fault.to_string());
            tracing::warn!(volume = %claim.volume, alloc = %claim.alloc, %fault, "{message} failed");
        }
        self.inner.node.event("Storage", message, details);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.inner.ledger.lock()
    }
}

/// Returns the entry of a claim that was just granted. Remains of an earlier claim of the allocation stay recorded.
fn granted(grant: &ClaimGrant, earlier: Option<ClaimEntry>, lease_term: Option<u64>) -> ClaimEntry {
    let claim = &grant.claim;
    let reached = earlier.map(|e| (e.node(), e)).filter(|(node, _)| node.is_called());
    let mut entry = ClaimEntry {
        claim: claim.id.clone(),
        generation: claim.generation,
        alias: claim.alias.clone(),
        plugin: claim.plugin_id.clone(),
        external_id: grant.external_volume_id.clone(),
        usage: claim.usage(),
        granted_at: claim.modify_index,
        lease_term,
        job: claim.job_id.clone(),
        ..Default::default()
    };
    match reached {
        None => entry.set(Entry::default()),
        Some((node, earlier)) => {
            entry.host_root = earlier.host_root;
            entry.plugin_root = earlier.plugin_root;
            entry.stages = earlier.stages;
            entry.set(Entry { phase: MountPhase::Staging, renewing: false, ..node });
        }
    }
    entry
}

pub(super) fn kernel(what: &'static str) -> impl FnOnce(caravan_sys::Error) -> CsiFault {
    move |source| CsiFault::Kernel { what, source }
}

/// Creates a directory with mode 0700 below a root, and checks that its real path is below the root.
pub(super) fn make_dir(root: &Path, dir: &Path, what: &'static str) -> Result<(), CsiFault> {
    let fault = |source| CsiFault::Directory { what, path: dir.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fault)?;
    let (real_root, real) = (root.canonicalize().map_err(fault)?, dir.canonicalize().map_err(fault)?);
    if real.starts_with(&real_root) {
        return Ok(());
    }
    Err(CsiFault::Path(format!("{} is not below the plugin root {}", real.display(), real_root.display())))
}

pub(super) fn is_published(target: &Path, device: bool) -> bool {
    let is_device = || std::fs::symlink_metadata(target).is_ok_and(|m| m.file_type().is_block_device());
    // A path that cannot be read (a dead file system) counts as mounted: it must be unmounted, not removed.
    is_mount_point(target).unwrap_or_else(|e| !e.is_not_found()) || (device && is_device())
}

/// Returns the identity of a mount: its file system's device and its mount id; for a block device, the device number.
pub(super) fn proof(target: &Path, device: bool) -> Result<MountProof, CsiFault> {
    let looking = "look at the mount";
    let identity = mount_identity(target).map_err(kernel(looking))?;
    let node = if device { device_number(target).map_err(kernel(looking))? } else { None };
    let bound = !device || is_mount_point(target).map_err(kernel(looking))?;
    Ok(MountProof {
        path: target.display().to_string(),
        device: match node {
            Some((DeviceKind::Block, number)) => format!("b{number}"),
            Some((DeviceKind::Character, number)) => format!("c{number}"),
            None => identity.device.to_string(),
        },
        // A device file that the plugin created is on a mount that does not belong to the volume.
        mount_id: if bound { identity.mount_id } else { 0 },
    })
}

/// Makes the directory beneath a mount unwritable, so that no data is written to the local disk if the mount
/// disappears. Without a mount (a stage that the plugin only records, a device file), nothing is sealed.
pub(super) fn seal(path: &Path) {
    if !is_mount_point(path).unwrap_or(false) {
        return;
    }
    match seal_beneath(path) {
        Ok(Some(Seal::Immutable) | None) => {}
        Ok(Some(Seal::Mode)) => {
            tracing::debug!(path = %path.display(), "the file system has no immutable files: the superuser can write beneath the mount");
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), error = caravan_sys::describe(&error), "the path beneath the mount stays writable");
        }
    }
}

/// Sets owner and mode on a blocking thread, because the volume's file system may be slow.
pub(super) async fn set_owner(wish: Wish, root: PathBuf) -> Result<(), CsiFault> {
    match tokio::task::spawn_blocking(move || wish.apply(&root)).await {
        Ok(done) => done,
        Err(_) => Err(CsiFault::GivenUp),
    }
}

/// Compares the mount of an entry with its proof.
pub(super) fn check(entry: &ClaimEntry) -> Result<(), CsiFault> {
    let changed = |what: String| CsiFault::Changed { volume: entry.claim.volume.id.to_string(), what };
    let Some(made) = &entry.proof else { return Err(changed("there is no proof of its mount".to_owned())) };
    let target = entry.on_host()?.publish;
    if !is_published(&target, is_device(entry.usage)) {
        return Err(changed(format!("nothing is mounted at {}", target.display())));
    }
    let found = proof(&target, is_device(entry.usage))?;
    if found.device != made.device || found.mount_id != made.mount_id {
        return Err(changed(format!("another mount took its place at {}", target.display())));
    }
    Ok(())
}
