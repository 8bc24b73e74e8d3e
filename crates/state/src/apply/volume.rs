//! Commands about volumes and claims.

use super::Done;
use crate::claim;
use crate::tx::Tx;
use caravan_types::VolumeKey;
use caravan_types::command::{ClaimStep, Refusal};
use caravan_types::node::NodeStatus;
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, Volume};
use std::sync::Arc;

impl Tx {
    pub(super) fn volume_write(&mut self, volume: &Volume, expect: u64) -> Done {
        let key = volume.key();
        let actual = self.root.volume(&key).map_or(0, |row| row.modify_index);
        match (expect, actual) {
            (expect, actual) if expect == actual => {
                let stored = self.root.volume(&key).map(|row| &row.secrets);
                self.can_be_opened(&volume.secrets, stored)?;
                self.put_volume(volume.clone());
                Ok(())
            }
            (_, 0) => Err(Refusal::NotFound { what: format!("volume {key}") }),
            _ => Err(Refusal::Changed { what: format!("volume {key}") }),
        }
    }

    pub(super) fn volume_delete(&mut self, key: &VolumeKey, force: bool) -> Done {
        if self.root.volume(key).is_none() {
            return Err(Refusal::NotFound { what: format!("volume {key}") });
        }
        let claims: Vec<Arc<Claim>> = self.root.claims_of(key).cloned().collect();
        let over = |claim: &Claim| self.root.alloc(&claim.id.alloc).is_none_or(|alloc| alloc.terminal());
        let in_use = claims.iter().any(|claim| claim.phase.holds() && !(force && over(claim)));
        if in_use {
            return Err(Refusal::VolumeInUse { volume: key.id.to_string() });
        }
        // What still holds a volume must be let go of, with or without its row: the reconciler goes on
        // with the claim alone.
        let row = self.root.volume(key).cloned();
        for claim in &claims {
            match &row {
                Some(row) if claim.phase.holds() => self.put_claim(Claim {
                    forsaken: true,
                    kept_secrets: row.secrets.clone(),
                    kept_secrets_from: row.secrets_from.clone(),
                    ..Claim::clone(claim)
                }),
                _ => self.remove_claim(&claim.id),
            }
        }
        self.remove_volume(key);
        Ok(())
    }

    pub(super) fn claim_step(&mut self, id: &ClaimId, expect: u64, step: &ClaimStep) -> Done {
        let what = || format!("claim of allocation {} on volume {}", id.alloc, id.volume);
        let Some(old) = self.root.claim(id).cloned() else {
            return Err(Refusal::NotFound { what: what() });
        };
        if old.modify_index != expect {
            return Err(Refusal::Changed { what: what() });
        }
        // Decided before the node came back: it renews its lease again, so time proves nothing about it.
        let back = self.root.node(&old.node_id).is_some_and(|node| node.status == NodeStatus::Ready);
        let by_time = match step {
            ClaimStep::Fence { .. } => true,
            ClaimStep::IntendDetach | ClaimStep::Freed | ClaimStep::LeftAttached => {
                old.phase == ClaimPhase::Fencing
            }
            _ => false,
        };
        if back && by_time {
            return Err(Refusal::Changed { what: format!("node {}", old.node_id) });
        }
        self.put_claim(claim::step(&old, step, self.now)?);
        Ok(())
    }
}
