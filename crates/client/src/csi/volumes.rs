//! Mounting volumes: per volume in order, each intent in the ledger before its call and each proof after it.
//! Ending them is in [`super::releases`].

use super::health::{Troubles, diagnose};
use super::ledger::{ClaimEntry, Ledger, MountPhase, is_device};
use super::manager::{Lent, Manager};
use super::owner::Wish;
use super::prober::{Prober, answers};
use super::releases::open_beneath;
use super::reports::Reports;
use super::{CsiFault, capability};
use crate::node::NodeState;
use crate::servers::Servers;
use crate::state::{Identity, Store};
use caravan_csi::{Class, NodePublishRequest, NodeStageRequest};
use caravan_sys::mount::{DeviceKind, device_number, is_mount_point, mount_identity};
use caravan_sys::seal::{Seal, seal_beneath};
use caravan_types::plugin::PluginRole;
use caravan_types::volume::{ClaimId, MountProof};
use caravan_types::wire::{ClaimGrant, ClaimReportStep};
use caravan_types::{PluginId, VolumeKey};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long an operation waits for its plugin (`storage` section 3.1).
const PLUGIN_PATIENCE: Duration = Duration::from_secs(60);

/// How long a file system may take to say that it is there.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// The volumes of this node. Clones share it.
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
    /// Where the plugin roots are.
    pub(super) csi_dir: PathBuf,
    ledger: Mutex<Ledger>,
    turns: Mutex<HashMap<VolumeKey, Arc<tokio::sync::Mutex<()>>>>,
    pub(super) releasing: Mutex<HashSet<ClaimId>>,
    /// Grows with every change of the ledger.
    changes: watch::Sender<u64>,
    /// Mounts that are not what they were.
    pub(super) troubles: watch::Sender<Troubles>,
    pub(super) prober: Prober,
    pub(super) cancel: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// What a volume manager works with.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Where the ledger is kept.
    pub(crate) store: Store,
    /// Where events go.
    pub(crate) node: NodeState,
    /// Plugins.
    pub(crate) plugins: Manager,
    /// Who takes the proofs.
    pub(crate) servers: Arc<dyn Servers>,
    /// Who gives them.
    pub(crate) identity: Arc<Identity>,
    /// Where the plugin roots are.
    pub(crate) csi_dir: PathBuf,
    /// Ends everything that is under way.
    pub(crate) cancel: CancellationToken,
}

impl VolumeManager {
    /// With the ledger as it was stored.
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
            turns: Mutex::default(),
            releasing: Mutex::default(),
            changes: watch::Sender::new(0),
            troubles: watch::Sender::default(),
            prober: Prober::default(),
            cancel: parts.cancel,
            tasks: TaskTracker::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Waits until nothing is under way any more, after it was cancelled.
    pub(crate) async fn ended(&self) {
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Mounts a granted claim; answers the proof. Repeating it after a failure or a lost agent is safe: steps
    /// that are known to be done are skipped, steps whose outcome is unknown are called again (CSI, every call
    /// is idempotent). Owner and mode are set at the root after the first time. `lease_term` is the term of the node's
    /// lease in which a fenced claim was granted.
    pub(crate) async fn mount(
        &self,
        grant: &ClaimGrant,
        wish: &Wish,
        lease_term: Option<u64>,
    ) -> Result<MountProof, CsiFault> {
        let claim = &grant.claim;
        if self.entry(&claim.id).is_none_or(|e| e.generation != claim.generation) {
            // Known before anything else: whatever becomes of this, the claim is handed back.
            let entry = ClaimEntry {
                claim: claim.id.clone(),
                generation: claim.generation,
                alias: claim.alias.clone(),
                plugin: claim.plugin_id.clone(),
                external_id: grant.external_volume_id.clone(),
                usage: claim.usage(),
                granted_at: claim.modify_index,
                lease_term,
                ..Default::default()
            };
            self.write(entry).await?;
        }
        let turn = self.turn_after_leftovers(grant).await?;
        let lent = self.inner.plugins.plugin(PluginRole::Node, &claim.plugin_id, PLUGIN_PATIENCE).await?;
        let registration = &lent.instance.registration;
        let can = lent.info.node_info.clone().unwrap_or_default();
        let known = self.entry(&claim.id).filter(|known| known.generation == claim.generation);
        // The plugin sees to the group, where it can; of a device nobody but us.
        let plugin_groups = can.supports_mount_group && !is_device(claim.usage());
        let mount_group = wish.group.filter(|_| plugin_groups).map(|gid| gid.to_string());
        let entry = ClaimEntry {
            claim: claim.id.clone(),
            generation: claim.generation,
            alias: claim.alias.clone(),
            plugin: claim.plugin_id.clone(),
            external_id: grant.external_volume_id.clone(),
            usage: claim.usage(),
            host_root: registration.host_root.clone(),
            plugin_root: registration.plugin_root.clone(),
            stages: can.requires_node_stage_volume,
            granted_at: known.as_ref().map_or(claim.modify_index, |known| known.granted_at),
            phase: MountPhase::Staging,
            proof: None,
            lease_term,
            owned: known.as_ref().is_some_and(|known| known.owned),
            renewing: known.as_ref().is_some_and(|known| known.renewing),
            mount_group: mount_group.unwrap_or_default(),
        };
        entry.on_host()?;
        if let Some(known) = known
            && known.phase == MountPhase::Mounted
            && check(&known).is_ok()
        {
            return known.proof.ok_or(CsiFault::Ledger);
        }
        self.write(entry.clone()).await?;
        // The turn is kept until the plugin has answered, although the allocation may be stopped meanwhile: its end
        // must not overtake its beginning.
        let (this, grant, wish) = (self.clone(), grant.clone(), wish.clone());
        let work = tokio::spawn(async move {
            let _turn = turn;
            let result = this.stage_and_publish(&grant, &lent, entry, &wish).await;
            let claim = &grant.claim;
            this.note("Mount volume", &claim.id, result.as_ref().err());
            let proof = result?;
            let step = ClaimReportStep::Mounted { proof: proof.clone() };
            this.report(claim.id.clone(), claim.generation, step);
            Ok(proof)
        });
        work.await.unwrap_or(Err(CsiFault::GivenUp))
    }

    /// Waits for the turn on a volume, and before it for the end of what claims have left there that are over for the
    /// servers: after a silence the volume may have been detached and attached anew, and a stage of the earlier
    /// attachment leads nowhere. What is left is being ended already, because its allocation is over as well.
    async fn turn_after_leftovers(&self, grant: &ClaimGrant) -> Result<OwnedMutexGuard<()>, CsiFault> {
        let claim = &grant.claim;
        loop {
            let mut changes = self.changes();
            let turn = self.turn(&claim.id.volume).await;
            let stale = grant
                .beside
                .as_ref()
                .is_some_and(|beside| self.lock().is_stale_beside(&claim.id, claim.modify_index, beside));
            if !stale {
                return Ok(turn);
            }
            drop(turn);
            tracing::info!(volume = %claim.id.volume, alloc = %claim.id.alloc, "waiting for the end of what an earlier attachment left");
            tokio::select! {
                _ = changes.changed() => {}
                () = self.inner.cancel.cancelled() => return Err(CsiFault::GivenUp),
            }
        }
    }

    /// Delivers a step in the background.
    pub(crate) fn report(&self, claim: ClaimId, generation: u32, step: ClaimReportStep) {
        let this = self.clone();
        self.inner.tasks.spawn(async move {
            // Undelivered means that the client ends; the next one reports it again.
            let _ = this.inner.reports.deliver(&claim, generation, step).await;
            if this.entry(&claim).is_none() {
                this.inner.reports.forget(&claim);
            }
        });
    }

    /// Tells the servers, once, that mounting failed and is tried again: the next failure tells more.
    pub(crate) fn report_failure(&self, grant: &ClaimGrant, words: String, tries: u32) {
        let (this, claim, generation) = (self.clone(), grant.claim.id.clone(), grant.claim.generation);
        self.inner.tasks.spawn(async move {
            tokio::select! {
                () = this.inner.cancel.cancelled() => {}
                () = this.inner.reports.failed(&claim, generation, words, tries) => {}
            }
        });
    }

    async fn stage_and_publish(
        &self,
        grant: &ClaimGrant,
        lent: &Lent,
        mut entry: ClaimEntry,
        wish: &Wish,
    ) -> Result<MountProof, CsiFault> {
        let capability = capability(entry.usage, grant.mount_options.as_ref(), &entry.mount_group)?;
        let client = &lent.instance.client;
        let (host, inside) = (entry.on_host()?, entry.in_plugin()?);
        let stage = || {
            client.node_stage(NodeStageRequest {
                volume_id: entry.external_id.clone(),
                publish_context: grant.claim.publish_context.clone(),
                staging_target_path: inside.staging.clone(),
                capability: capability.clone(),
                secrets: grant.secrets.expose().clone().into(),
                context: grant.volume_context.clone(),
            })
        };
        let mut taken_over = false;
        if entry.stages {
            make_dir(&entry.host_root, &host.staging, "create staging directory")?;
            taken_over = self.lock().staged_by_another(&entry)
                && (is_device(entry.usage)
                    || is_mount_point(&host.staging).map_err(kernel("look at the stage"))?);
            if !taken_over {
                open_beneath(&host.staging)?;
                stage().await?;
                seal(&host.staging);
            }
        }
        let mut publishing = entry.clone();
        publishing.phase = MountPhase::Publishing;
        self.write(publishing).await?;
        make_dir(&entry.host_root, &host.alloc_dir, "create allocation directory")?;
        let target = host.publish;
        open_beneath(&target)?;
        let publish = || {
            client.node_publish(NodePublishRequest {
                volume_id: entry.external_id.clone(),
                publish_context: grant.claim.publish_context.clone(),
                staging_target_path: entry.stages.then(|| inside.staging.clone()),
                target_path: inside.publish.clone(),
                capability: capability.clone(),
                readonly: entry.usage.read_only,
                secrets: grant.secrets.expose().clone().into(),
                context: grant.volume_context.clone(),
            })
        };
        match publish().await {
            // The stage that another claim has made is there, but the plugin was started again since and has no
            // memory of it. Staging is idempotent.
            Err(error) if taken_over && error.class() == Some(Class::FailedPrecondition) => {
                tracing::info!(volume = %grant.claim.id.volume, %error, "staging again what the plugin has forgotten");
                stage().await?;
                publish().await?;
            }
            other => other?,
        }
        // Success without a mount happens when the plugin's mounts do not reach the host.
        if !is_published(&target, is_device(entry.usage)) {
            return Err(CsiFault::NotMounted(target));
        }
        seal(&target);
        if !entry.owned && !wish.is_none() {
            let own = if entry.mount_group.is_empty() { wish.clone() } else { wish.without_group() };
            set_owner(own, target.clone()).await?;
            entry.owned = true;
        }
        let proof = proof(&target, is_device(entry.usage))?;
        entry.phase = MountPhase::Mounted;
        entry.proof = Some(proof.clone());
        self.write(entry).await?;
        Ok(proof)
    }

    /// Whether the mount of a claim is there, exactly as it was made, and its file system is not dead. One that
    /// only does not answer counts as there: nobody may mount it again.
    pub(crate) async fn is_mounted(&self, claim: &ClaimId) -> bool {
        let Some(entry) = self.entry(claim).filter(|e| e.phase == MountPhase::Mounted) else { return false };
        let Ok(host) = entry.on_host() else { return false };
        let at = host.publish.clone();
        let look = move || check(&entry).is_ok().then(|| answers(&at));
        match self.inner.prober.look(&host.publish, ANSWER_PATIENCE, look).await {
            None => true,
            Some(None) => false,
            Some(Some(answer)) => diagnose(Some(answer)).is_none(),
        }
    }

    /// The mount of a claim, compared with its proof: before every start of a task that uses it.
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

    /// Whether a plugin root still holds a volume for a live or ending allocation.
    pub(crate) fn uses_plugin(&self, plugin: &PluginId) -> usize {
        let called = |e: &&ClaimEntry| e.phase > MountPhase::Granted && e.phase < MountPhase::Unstaged;
        self.lock().entries().filter(|e| e.plugin == *plugin).filter(called).count()
    }

    /// Watches the ledger.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// The claims of an allocation.
    pub(crate) fn claims_of(&self, alloc: &caravan_types::AllocId) -> Vec<ClaimId> {
        self.lock().entries().filter(|e| e.claim.alloc == *alloc).map(|e| e.claim.clone()).collect()
    }

    /// The term of the node's lease under which a claim was granted.
    pub(crate) fn lease_term(&self, claim: &ClaimId) -> Option<u64> {
        self.entry(claim).and_then(|entry| entry.lease_term)
    }

    /// The terms of the node's lease under which an allocation's claims were granted.
    pub(crate) fn lease_terms(&self, alloc: &caravan_types::AllocId) -> Vec<u64> {
        self.lock().entries().filter(|e| e.claim.alloc == *alloc).filter_map(|e| e.lease_term).collect()
    }

    /// Waits for the turn on a volume: one operation at a time, also across plugins.
    pub(super) async fn turn(&self, volume: &VolumeKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.inner.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, t| Arc::strong_count(t) > 1);
            Arc::clone(turns.entry(volume.clone()).or_default())
        };
        turn.lock_owned().await
    }

    /// The turn on a volume if nobody has it.
    pub(super) fn turn_now(&self, volume: &VolumeKey) -> Option<OwnedMutexGuard<()>> {
        let mut turns = self.inner.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = Arc::clone(turns.entry(volume.clone()).or_default());
        turn.try_lock_owned().ok()
    }

    /// Whether a claim was mounted when the last agent ended, or is now, whatever became of the mount.
    pub(crate) fn was_mounted(&self, claim: &ClaimId) -> bool {
        self.entry(claim).is_some_and(|e| e.phase == MountPhase::Mounted || e.renewing)
    }

    pub(super) fn entry(&self, claim: &ClaimId) -> Option<ClaimEntry> {
        self.lock().get(claim).cloned()
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
        self.inner.reports.forget(claim);
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
        self.inner.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn kernel(what: &'static str) -> impl FnOnce(caravan_sys::Error) -> CsiFault {
    move |source| CsiFault::Kernel { what, source }
}

/// Makes a directory with mode 0700 below a root, and makes sure that it really lies there.
fn make_dir(root: &Path, dir: &Path, what: &'static str) -> Result<(), CsiFault> {
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
    // What cannot be looked at (a dead file system) counts as mounted: it must be ended, not removed.
    is_mount_point(target).unwrap_or_else(|e| !e.is_not_found()) || (device && is_device())
}

/// What identifies a mount: its file system's device and its own id; for a device, the device that it is.
fn proof(target: &Path, device: bool) -> Result<MountProof, CsiFault> {
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
        // A device file of the plugin's own lies on a mount that is not the volume's.
        mount_id: if bound { identity.mount_id } else { 0 },
    })
}

/// Makes what lies beneath a mount unwritable, so that nothing lands on the local disk should the mount vanish.
/// Where nothing is mounted (a stage that the plugin only takes note of, a device file), nothing is sealed.
pub(super) fn seal(path: &Path) {
    if !is_mount_point(path).unwrap_or(false) {
        return;
    }
    match seal_beneath(path) {
        Ok(Some(Seal::Immutable) | None) => {}
        Ok(Some(Seal::Mode)) => {
            tracing::debug!(path = %path.display(), "the file system knows no immutable files: only the superuser may write beneath the mount");
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), error = caravan_sys::describe(&error), "what lies beneath the mount stays writable");
        }
    }
}

/// Sets owner and mode off the runtime: the volume's file system may take its time.
async fn set_owner(wish: Wish, root: PathBuf) -> Result<(), CsiFault> {
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
