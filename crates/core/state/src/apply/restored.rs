//! The claims on volumes after a restore of the whole state.
//!
//! A claim records that a node may use a volume. Nodes have mounted and unmounted volumes since the snapshot was made, so
//! the claims that hold stay those of the running cluster, as the membership of servers does. Otherwise a volume for one
//! writer could go to another node while its first writer still ends.
//!
//! For example, job A writes to a volume, and its allocation is younger than the snapshot. After the restore nobody knows the
//! allocation, and its node ends it. Job B, which wants the volume too, waits until the node has unmounted it.

use crate::claim;
use crate::root::Root;
use crate::tx::Tx;
use caravan_types::UnixNanos;
use caravan_types::command::ClaimStep;
use caravan_types::volume::{Claim, ClaimPhase};
use std::sync::Arc;

impl Tx {
    /// Replaces the claims of a restored snapshot by those of the state before, as far as they differ.
    pub(super) fn keep_claims(&mut self, before: &Root) {
        let restored: Vec<Arc<Claim>> = self.root.claims().filter(|c| c.phase.holds()).cloned().collect();
        for claim in restored {
            match before.claim(&claim.id) {
                Some(now) if now.phase.holds() => {}
                // It ended since. Its allocation is denied the volume, and its replacement gets a claim of its own.
                Some(now) => self.put_claim(Claim::clone(now)),
                None if is_used(before, &claim) => self.remove_claim(&claim.id),
                // The snapshot is that of another cluster, or of this one before it lost its state.
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
            // The silence that was waited out is not in the restored state.
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
            // Nothing was intended for it.
            ClaimPhase::Gone => self.remove_claim(&claim.id),
            _ => self.put_claim(kept),
        }
    }
}

/// Returns whether the volume of a claim, or its storage, is in use by others.
fn is_used(before: &Root, claim: &Claim) -> bool {
    let own = before.claims_of(&claim.id.volume);
    let mut all = own.chain(before.claims_on(&claim.plugin_id, &claim.external_volume_id));
    all.any(|other| other.phase.holds())
}
