//! The claims on volumes after a restore of the whole state.
//!
//! A claim records that a node may use a volume. Nodes have mounted and unmounted volumes since the time of the
//! snapshot. Therefore the claims that hold are those of the running cluster, like the membership of servers.
//! Otherwise a volume for one writer could be attached to another node while its first writer still ends.
//!
//! For example, job A writes to a volume, and its allocation is younger than the snapshot. After the restore the
//! state does not have the allocation, and its node ends it. Job B, which requires the volume too, waits until the
//! node has unmounted it.

use crate::claim;
use crate::root::Root;
use crate::tx::Tx;
use caravan_types::UnixNanos;
use caravan_types::command::ClaimStep;
use caravan_types::volume::{Claim, ClaimPhase};
use std::sync::Arc;

impl Tx {
    /// Replaces the claims of a restored snapshot by the claims of the previous state, as far as they differ.
    pub(super) fn keep_claims(&mut self, before: &Root) {
        let restored: Vec<Arc<Claim>> = self.root.claims().filter(|c| c.phase.holds()).cloned().collect();
        for claim in restored {
            match before.claim(&claim.id) {
                Some(now) if now.phase.holds() => {}
                // The claim has ended since the snapshot. Its allocation is denied the volume, and its replacement
                // gets a new claim.
                Some(now) => self.put_claim(Claim::clone(now)),
                None if is_used(before, &claim) => self.remove_claim(&claim.id),
                // The snapshot is of another cluster, or of this cluster before it lost its state.
                None => {}
            }
        }
        let held: Vec<Arc<Claim>> = before.claims().filter(|c| c.phase.holds()).cloned().collect();
        for claim in held {
            self.keep_claim(before, &claim);
        }
    }

    fn keep_claim(&mut self, before: &Root, claim: &Claim) {
        let mut kept = claim.clone();
        let own = self.root.volume(&claim.id.volume).cloned();
        let is_own = own.is_some_and(|row| {
            row.plugin_id == claim.plugin_id && row.remote_id() == claim.external_volume_id
        });
        if !is_own && !claim.forsaken {
            let row = before.volume(&claim.id.volume);
            kept.forsaken = true;
            kept.kept_secrets = row.map(|row| row.secrets.clone()).unwrap_or_default();
            kept.kept_secrets_from = row.map(|row| row.secrets_from.clone()).unwrap_or_default();
        }
        let in_contact = self.root.node(&claim.node_id).is_some_and(|node| node.status.in_contact());
        if in_contact {
            // The restored state does not contain the silence that the wait was for.
            kept.fence_until = UnixNanos(0);
            kept.fence_index = kept.fence_index.map(|_| 0);
            kept.node_off = None;
        }
        let alloc = self.root.alloc(&claim.id.alloc);
        let may_run = alloc.is_some_and(|row| row.node_id == claim.node_id && !row.client_terminal());
        // A release is legal in every phase of a live claim.
        if !may_run
            && kept.phase.is_live()
            && let Ok(next) = claim::step(&kept, &ClaimStep::Release, self.now)
        {
            kept = next;
        }
        match kept.phase {
            // No attach was intended for the claim.
            ClaimPhase::Gone => self.remove_claim(&claim.id),
            _ => self.put_claim(kept),
        }
    }
}

/// Returns whether other claims use the volume of a claim, or its storage.
fn is_used(before: &Root, claim: &Claim) -> bool {
    let own = before.claims_of(&claim.id.volume);
    let mut all = own.chain(before.claims_on(&claim.plugin_id, &claim.external_volume_id));
    all.any(|other| other.phase.holds())
}
