//! Mounting anew what broke.

use super::CsiFault;
use super::ledger::{ClaimEntry, MountPhase};
use super::owner::Wish;
use super::volumes::{VolumeManager, kernel};
use caravan_csi::{NodeUnpublishRequest, NodeUnstageRequest};
use caravan_sys::mount::{Unmount, is_mount_point, unmount};
use caravan_sys::seal::unseal_beneath;
use caravan_types::plugin::PluginRole;
use caravan_types::volume::{ClaimId, MountProof};
use caravan_types::wire::ClaimGrant;
use std::path::Path;
use std::time::Duration;

/// How long the plugin may take to hear that a mount of its is gone. What it does not take note of does not matter:
/// the mount is gone, and publishing is idempotent.
const PLUGIN_PATIENCE: Duration = Duration::from_secs(60);

/// How long the file system of a stage may take for its answer.
const STAGE_PATIENCE: Duration = Duration::from_secs(1);

impl VolumeManager {
    /// Ends a mount that broke and makes it anew; answers the new proof. `lease_term` as for [`Self::mount`].
    pub(crate) async fn remount(
        &self,
        grant: &ClaimGrant,
        wish: &Wish,
        lease_term: Option<u64>,
    ) -> Result<MountProof, CsiFault> {
        {
            let _turn = self.turn(&grant.claim.id.volume).await;
            self.end_broken(&grant.claim.id).await?;
        }
        let proof = self.mount(grant, wish, lease_term).await?;
        self.forget_trouble(&grant.claim.id);
        Ok(proof)
    }

    /// Whether a claim is being mounted anew, or was when the last agent ended.
    pub(crate) fn is_renewing(&self, claim: &ClaimId) -> bool {
        self.entry(claim).is_some_and(|e| e.renewing)
    }

    /// Everybody who uses a claim has its new mount.
    pub(crate) async fn renewed(&self, claim: &ClaimId) {
        let _turn = self.turn(&claim.volume).await;
        self.forget_trouble(claim);
        if let Some(entry) = self.entry(claim).filter(|e| e.renewing) {
            // Not durable means that the next agent does it once more, which is harmless.
            let _ = self.write(ClaimEntry { renewing: false, ..entry }).await;
        }
    }

    /// Takes the dead mount out of the tree, and the dead stage below it, and lets the plugin know.
    async fn end_broken(&self, claim: &ClaimId) -> Result<(), CsiFault> {
        let Some(mut entry) = self.entry(claim) else { return Ok(()) };
        if entry.phase > MountPhase::Mounted || (entry.phase < MountPhase::Mounted && !entry.renewing) {
            // It is being ended, or was not mounted yet.
            return Ok(());
        }
        let (host, inside) = (entry.on_host()?, entry.in_plugin()?);
        entry.phase = MountPhase::Publishing;
        entry.proof = None;
        entry.renewing = true;
        self.write(entry.clone()).await?;
        end(&host.publish)?;
        let stage_broke = entry.stages && self.stage_broke(&host.staging).await;
        let lent = self.inner.plugins.plugin(PluginRole::Node, &entry.plugin, PLUGIN_PATIENCE).await?;
        let client = &lent.instance.client;
        let request =
            NodeUnpublishRequest { volume_id: entry.external_id.clone(), target_path: inside.publish };
        told(&entry, "NodeUnpublishVolume", client.node_unpublish(request)).await;
        if stage_broke {
            end(&host.staging)?;
            let request = NodeUnstageRequest {
                volume_id: entry.external_id.clone(),
                staging_target_path: inside.staging,
            };
            told(&entry, "NodeUnstageVolume", client.node_unstage(request)).await;
        }
        Ok(())
    }

    /// Whether a stage has a mount that is dead. One that only does not answer is left alone.
    async fn stage_broke(&self, staging: &Path) -> bool {
        use super::health::{Kind, diagnose};
        if !is_mount_point(staging).unwrap_or_else(|e| !e.is_not_found()) {
            return false;
        }
        let answer = self.inner.prober.ask(staging, STAGE_PATIENCE).await;
        diagnose(answer).is_some_and(|(kind, _)| kind == Kind::Dead)
    }

    /// A mount was made anew: what was wrong with the old one is over.
    fn forget_trouble(&self, claim: &ClaimId) {
        self.inner.troubles.send_if_modified(|all| all.remove(claim).is_some());
    }
}

/// Takes whatever is mounted on a path out of the tree, without waiting for a dead file system.
fn end(path: &Path) -> Result<(), CsiFault> {
    while unmount(path, Unmount::Lazy).map_err(kernel("end a broken mount"))? {}
    unseal_beneath(path).map_err(kernel("open what lies beneath a broken mount"))
}

async fn told(
    entry: &ClaimEntry,
    call: &str,
    calling: impl Future<Output = Result<(), caravan_csi::CsiError>>,
) {
    match tokio::time::timeout(PLUGIN_PATIENCE, calling).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::info!(volume = %entry.claim.volume, call, %error, "the plugin does not end a mount that is gone");
        }
        Err(_) => {
            tracing::warn!(volume = %entry.claim.volume, call, "the plugin does not answer about a mount that is gone");
        }
    }
}
