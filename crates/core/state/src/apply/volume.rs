//! Commands about volumes and claims.

use super::Done;
use crate::claim;
use crate::tx::Tx;
use caravan_types::VolumeKey;
use caravan_types::command::{ClaimStep, Refusal};
use caravan_types::node::NodeStatus;
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, Volume, VolumePhase};
use std::sync::Arc;

impl Tx {
    pub(super) fn volume_write(&mut self, volume: &Volume, expect: u64, exclusive: bool) -> Done {
        let key = volume.key();
        let actual = self.root.volume(&key).map_or(0, |row| row.modify_index);
        match (expect, actual) {
            (expect, actual) if expect == actual => {
                let stored = self.root.volume(&key).map(|row| &row.secrets);
                self.can_be_opened(&volume.secrets, stored)?;
                if exclusive {
                    self.owns_its_storage(volume)?;
                }
                self.put_volume(volume.clone());
                Ok(())
            }
            (_, 0) => Err(Refusal::NotFound { what: format!("volume {key}") }),
            _ => Err(Refusal::Changed { what: format!("volume {key}") }),
        }
    }

    /// Refuses a row that would stand for the storage of another row in any phase, unless both rows declare that they
    /// share the storage. Rows of an earlier version stay, but a shared storage cannot be deleted.
    fn owns_its_storage(&self, volume: &Volume) -> Done {
        let old = self.root.volume(&volume.key()).filter(|old| old.plugin_id == volume.plugin_id);
        let Some(storage) = volume.storage() else {
            // Both rows would get the same storage, because the plugin identifies volumes by name only.
            let new = old.is_none_or(|old| old.name != volume.name || old.storage().is_some());
            return match self.root.namesakes(volume).next().filter(|_| new) {
                None => Ok(()),
                Some(other) => Err(Refusal::NameTaken {
                    plugin: volume.plugin_id.to_string(),
                    name: volume.name.clone(),
                    other: other.key(),
                }),
            };
        };
        let taken = |other: &Volume| {
            Err(Refusal::StorageTaken {
                plugin: volume.plugin_id.to_string(),
                storage: storage.to_owned(),
                other: other.key(),
            })
        };
        let begins_deleting = volume.phase == VolumePhase::Deleting
            && old.is_none_or(|old| old.phase != VolumePhase::Deleting || old.storage() != Some(storage));
        for other in self.root.twins(volume) {
            let apart = |volume: &Volume| !(volume.shares_storage() && other.shares_storage());
            let was_so = old.is_some_and(|old| old.storage() == Some(storage) && apart(old));
            if begins_deleting || (apart(volume) && !was_so) {
                return taken(other);
            }
        }
        Ok(())
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
        // Existing claims must be released even without the row: the reconciler continues with the claims alone.
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
        let step = self.by_silence(&old, step)?;
        self.put_claim(claim::step(&old, &step, self.now)?);
        Ok(())
    }

    /// Applies the step, if the node's silence is the silence with which the step was decided. A node that returned
    /// renews its lease, so the elapsed time proves nothing.
    fn by_silence(&self, claim: &Claim, step: &ClaimStep) -> Result<ClaimStep, Refusal> {
        let node = self.root.node(&claim.node_id);
        let changed = || Refusal::Changed { what: format!("node {}", claim.node_id) };
        let same = |silence: u64| match node {
            Some(node) => !node.status.in_contact() && node.last_missed_heartbeat_index == silence,
            None => true,
        };
        let mut step = step.clone();
        let valid = match &mut step {
            ClaimStep::Fence { silence: Some(silence), .. } if node.is_none() => {
                // The time of the node's last contact is unknown: its silence begins here.
                *silence = self.index;
                true
            }
            ClaimStep::Fence { silence: Some(silence), .. } => same(*silence),
            ClaimStep::Waited { fence, .. } => same(*fence),
            // Earlier versions wrote the claims in this form.
            ClaimStep::Fence { silence: None, .. } => {
                node.is_none_or(|node| node.status != NodeStatus::Ready)
            }
            ClaimStep::IntendDetach | ClaimStep::Freed | ClaimStep::LeftAttached => {
                claim.phase != ClaimPhase::Fencing || node.is_none_or(|node| node.status != NodeStatus::Ready)
            }
            _ => true,
        };
        if valid { Ok(step) } else { Err(changed()) }
    }
}
