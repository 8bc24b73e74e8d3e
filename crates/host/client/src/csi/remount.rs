//! The repeated mounts of volumes whose mount broke.

use super::CsiFault;
use super::ledger::{ClaimEntry, Entry, MountPhase};
use super::owner::Wish;
use super::volumes::VolumeManager;
use caravan_messages::ClaimGrant;
use caravan_types::volume::{ClaimId, MountProof};
use tokio::sync::watch;

impl VolumeManager {
    /// Ends a broken mount and mounts the volume again; returns the new proof. `lease_term` as for [`Self::mount`].
    pub(crate) async fn remount(
        &self,
        grant: &ClaimGrant,
        wish: &Wish,
        lease_term: Option<u64>,
        waits: &watch::Sender<String>,
    ) -> Result<MountProof, CsiFault> {
        {
            let _turn = self.turn(&grant.claim.id.volume).await;
            self.begin_renewing(&grant.claim.id).await?;
        }
        let proof = self.mount(grant, wish, lease_term, waits).await?;
        self.remove_trouble(&grant.claim.id);
        Ok(proof)
    }

    /// Returns whether a claim is being mounted again, or was when the last agent ended.
    pub(crate) fn is_renewing(&self, claim: &ClaimId) -> bool {
        self.entry(claim).is_some_and(|e| e.renewing)
    }

    /// Records that every task that uses a claim has its new mount.
    pub(crate) async fn renewed(&self, claim: &ClaimId) {
        let _turn = self.turn(&claim.volume).await;
        self.remove_trouble(claim);
        if let Some(entry) = self.entry(claim).filter(|e| e.renewing) {
            // If the change is lost, the next agent repeats the step, which is harmless.
            let _ = self.write(ClaimEntry { renewing: false, ..entry }).await;
        }
    }

    /// Records that a mount broke. The next mount of the volume ends the remains of the broken one.
    async fn begin_renewing(&self, claim: &ClaimId) -> Result<(), CsiFault> {
        let Some(mut entry) = self.entry(claim) else { return Ok(()) };
        if entry.phase > MountPhase::Mounted || (entry.phase < MountPhase::Mounted && !entry.renewing) {
            // The mount is being ended, or was not complete yet.
            return Ok(());
        }
        let node = entry.node();
        entry.set(Entry { phase: MountPhase::Publishing, renewing: true, ..node });
        entry.proof = None;
        self.write(entry).await
    }

    /// Removes the problem of a mount that was mounted again.
    fn remove_trouble(&self, claim: &ClaimId) {
        self.inner.troubles.send_if_modified(|all| all.remove(claim).is_some());
    }
}
