//! Ending the use of volumes: unpublish, unstage when nobody else uses the stage, and the proofs of both. Tried
//! until it is done; never given up while the client runs, and taken up again by the next one.

use super::CsiFault;
use super::ledger::{ClaimEntry, MountPhase, is_device};
use super::volumes::{VolumeManager, is_published, kernel};
use crate::clock::Backoff;
use caravan_csi::{NodeUnpublishRequest, NodeUnstageRequest};
use caravan_sys::mount::{Unmount, is_mount_point, unmount};
use caravan_sys::seal::unseal_beneath;
use caravan_types::plugin::PluginRole;
use caravan_types::volume::ClaimId;
use caravan_types::wire::{ClaimReportStep, NodeDetach};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

/// How long one try of a release waits for its plugin; it wakes as soon as the plugin is there.
const PLUGIN_PATIENCE: Duration = Duration::from_secs(30);

/// Between two tries of a release, at least.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

impl VolumeManager {
    /// Ends the use of a volume in the background. Answers at once; asking twice is one release.
    pub(crate) fn release(&self, claim: ClaimId) {
        let newly = self.inner.releasing.lock().unwrap_or_else(PoisonError::into_inner).insert(claim.clone());
        if newly {
            let this = self.clone();
            self.inner.tasks.spawn(async move { this.release_until_done(claim).await });
        }
    }

    /// Waits until nothing of these claims is published or staged, or the client ends.
    pub(crate) async fn released(&self, claims: &[ClaimId]) {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let pending =
                claims.iter().any(|c| self.entry(c).is_some_and(|e| e.phase < MountPhase::Unstaged));
            if !pending {
                return;
            }
            tokio::select! {
                () = self.inner.cancel.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Ends the use of a volume that the servers want back. What is in the ledger is ended as always; otherwise
    /// the plugin is asked to end whatever it may hold, unless there is no trace of it here.
    pub(crate) async fn detach(&self, request: NodeDetach) -> Result<(), CsiFault> {
        if self.entry(&request.claim).is_none() {
            let known = self.inner.plugins.plugin(PluginRole::Node, &request.plugin_id, Duration::ZERO).await;
            let mut entry = ClaimEntry {
                claim: request.claim.clone(),
                generation: request.generation,
                plugin: request.plugin_id,
                external_id: request.external_volume_id,
                usage: request.usage,
                phase: MountPhase::Unstaged,
                ..Default::default()
            };
            entry.on_host()?;
            if let Ok(lent) = known {
                entry.host_root.clone_from(&lent.instance.registration.host_root);
                entry.plugin_root.clone_from(&lent.instance.registration.plugin_root);
                entry.stages = lent.info.node_info.is_some_and(|n| n.requires_node_stage_volume);
                let host = entry.on_host()?;
                if [host.publish, host.staging].iter().any(|t| t.symlink_metadata().is_ok()) {
                    entry.phase = MountPhase::Unpublishing;
                }
            }
            self.write(entry).await?;
        }
        self.release(request.claim);
        Ok(())
    }

    async fn release_until_done(&self, claim: ClaimId) {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(60));
        let mut tries = 0;
        let mut plugins = self.inner.plugins.changes();
        loop {
            plugins.borrow_and_update();
            let fault = tokio::select! {
                () = self.inner.cancel.cancelled() => return,
                result = self.release_once(&claim) => match result {
                    Ok(()) => break,
                    Err(fault) => fault,
                },
            };
            tries += 1;
            self.note("Unmount volume", &claim, Some(&fault));
            let generation = self.entry(&claim).map_or(0, |e| e.generation);
            tokio::select! {
                () = self.inner.cancel.cancelled() => return,
                () = async {
                    self.inner.reports.failed(&claim, generation, fault.to_string(), tries).await;
                    // Another plugin, or a better mood of this one, may do it at once; but never in a tight loop.
                    tokio::time::sleep(SHORTEST_PAUSE).await;
                    tokio::select! {
                        () = tokio::time::sleep(backoff.delay()) => {}
                        _ = plugins.changed() => {}
                    }
                } => {}
            }
        }
        let Some(entry) = self.entry(&claim) else { return };
        for step in [ClaimReportStep::Unpublished, ClaimReportStep::Unstaged] {
            if self.inner.reports.deliver(&claim, entry.generation, step).await.is_err() {
                return;
            }
        }
        self.strike(&claim);
        self.inner.releasing.lock().unwrap_or_else(PoisonError::into_inner).remove(&claim);
    }

    async fn release_once(&self, claim: &ClaimId) -> Result<(), CsiFault> {
        let _turn = self.turn(&claim.volume).await;
        let Some(mut entry) = self.entry(claim) else { return Ok(()) };
        if entry.phase == MountPhase::Unstaged {
            return Ok(());
        }
        if entry.phase == MountPhase::Granted {
            entry.phase = MountPhase::Unstaged;
            return self.write(entry).await;
        }
        let (host, inside) = (entry.on_host()?, entry.in_plugin()?);
        let lent = self.inner.plugins.plugin(PluginRole::Node, &entry.plugin, PLUGIN_PATIENCE).await?;
        let client = &lent.instance.client;
        if entry.phase < MountPhase::Unpublished {
            entry.phase = MountPhase::Unpublishing;
            self.write(entry.clone()).await?;
            // The plugin removes the target, which it cannot while that is sealed.
            open_beneath(&host.publish)?;
            let request =
                NodeUnpublishRequest { volume_id: entry.external_id.clone(), target_path: inside.publish };
            match client.node_unpublish(request).await {
                // The volume is gone: what may still be mounted is looked at below.
                Err(error) if error.is_not_found() => {}
                other => other?,
            }
            end_forgotten(&host.publish)?;
            if is_published(&host.publish, is_device(entry.usage)) {
                return Err(CsiFault::StillMounted(host.publish));
            }
            clear(&host.publish, &entry.host_root)?;
            entry.phase = MountPhase::Unpublished;
            self.write(entry.clone()).await?;
        }
        if entry.stages && self.lock().is_last_user(&entry) {
            open_beneath(&host.staging)?;
            let request = NodeUnstageRequest {
                volume_id: entry.external_id.clone(),
                staging_target_path: inside.staging,
            };
            match client.node_unstage(request).await {
                Err(error) if error.is_not_found() => {}
                other => other?,
            }
            let staging = host.staging;
            end_forgotten(&staging)?;
            if is_mount_point(&staging).unwrap_or_else(|e| !e.is_not_found()) {
                return Err(CsiFault::StillMounted(staging));
            }
            clear(&staging, &entry.host_root).or_else(|fault| match fault {
                // The plugin keeps something of its own there: it is the plugin's to remove.
                CsiFault::Directory { ref source, .. } if source.kind() == ErrorKind::DirectoryNotEmpty => {
                    Ok(())
                }
                other => Err(other),
            })?;
        }
        entry.phase = MountPhase::Unstaged;
        entry.proof = None;
        self.write(entry).await?;
        self.note("Unmount volume", claim, None);
        Ok(())
    }
}

pub(super) fn open_beneath(path: &Path) -> Result<(), CsiFault> {
    unseal_beneath(path).map_err(kernel("open what lies beneath a mount"))
}

/// Ends what is mounted on a path although the plugin holds nothing there any more, as it says: it was started again
/// and has no memory of its mounts. Without this the volume would never be let go. Nothing is lost by ending a mount,
/// and one that is in use stays.
fn end_forgotten(path: &Path) -> Result<(), CsiFault> {
    while unmount(path, Unmount::Now).map_err(kernel("end a mount that the plugin does not know"))? {
        tracing::warn!(path = %path.display(), "ended a mount that its plugin did not know any more");
    }
    Ok(())
}

/// Removes what the plugin left of a path, and the directories above it that are empty now, up to the root.
pub(super) fn clear(path: &Path, root: &Path) -> Result<(), CsiFault> {
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => gone(std::fs::remove_dir(path)),
        Ok(_) => gone(std::fs::remove_file(path)),
        Err(error) => gone(Err(error)),
    };
    removed.map_err(|source| CsiFault::Directory { what: "remove", path: path.to_owned(), source })?;
    let above = path.ancestors().skip(1).take_while(|p| p.starts_with(root) && *p != root);
    for dir in above {
        // Another claim uses the rest.
        if std::fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}
