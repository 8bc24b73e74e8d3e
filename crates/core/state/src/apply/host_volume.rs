//! Commands about host volumes and the holds of groups on them.

use super::Done;
use crate::tx::Tx;
use caravan_types::alloc::Allocation;
use caravan_types::command::Refusal;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim, HostVolumeIntent};
use caravan_types::{HostVolumeId, JobKey, Namespace};
use std::sync::Arc;

fn missing(id: &HostVolumeId) -> Refusal {
    Refusal::NotFound { what: format!("host volume {id}") }
}

impl Tx {
    /// Writes a row. A node has each name only once, across all namespaces. If two concurrent creations choose the
    /// same node, only one succeeds (docs/design/rough-edges.md, 40).
    pub(super) fn host_volume_write(&mut self, volume: &HostVolume, expect: u64) -> Done {
        let old = self.root.host_volume(&volume.id).cloned();
        let actual = old.as_ref().map_or(0, |row| row.modify_index);
        if expect != actual {
            return Err(match actual {
                0 => missing(&volume.id),
                _ => Refusal::Changed { what: format!("host volume {}", volume.id) },
            });
        }
        let taken = self
            .root
            .host_volumes_by_node(&volume.node_id)
            .any(|row| row.name == volume.name && row.id != volume.id);
        if taken {
            let what = format!("what node {} has under the name {}", volume.node_id, volume.name);
            return Err(Refusal::Changed { what });
        }
        if volume.intent == HostVolumeIntent::Delete {
            self.unused(volume)?;
        }
        let mut row = volume.clone();
        row.allocations.clear();
        row.state = old.map_or(row.state, |old| old.state);
        self.put_host_volume(row);
        Ok(())
    }

    fn unused(&self, volume: &HostVolume) -> Done {
        let used = self.root.host_volume_users(volume).next().is_some()
            || self.root.host_claims_of(&volume.id).next().is_some();
        if used { Err(Refusal::VolumeInUse { volume: volume.id.to_string() }) } else { Ok(()) }
    }

    pub(super) fn host_volume_delete(
        &mut self,
        namespace: &Namespace,
        id: &HostVolumeId,
        force: bool,
    ) -> Done {
        let row = self.root.host_volume(id).filter(|row| row.namespace == *namespace).cloned();
        let row = row.ok_or_else(|| missing(id))?;
        if !force {
            self.unused(&row)?;
        }
        self.remove_host_volume(id);
        Ok(())
    }

    pub(super) fn host_claim_delete(&mut self, id: &str) -> Done {
        if !self.remove_host_claim(id) {
            return Err(Refusal::NotFound { what: format!("task group volume claim {id}") });
        }
        Ok(())
    }

    /// Refuses a new allocation of a volume whose deletion was decided between the planner's check and this command.
    pub(super) fn host_volumes_stay(&self, alloc: &Allocation) -> Done {
        let Some(node) = self.root.node(&alloc.node_id) else { return Ok(()) };
        for (_, request) in alloc.group().into_iter().flat_map(|group| group.host_volumes()) {
            let name = request.source_for(&alloc.name);
            let id = node.host_volumes.get(&name).map(|info| info.id.as_str()).unwrap_or_default();
            let row = self.root.host_volumes.get(id);
            if row.is_some_and(|row| row.intent == HostVolumeIntent::Delete) {
                return Err(Refusal::ClaimRefused(format!("host volume {name} is being deleted")));
            }
        }
        Ok(())
    }

    /// Writes the hold of an allocation's group. The planner checked that its previous holder was replaced.
    pub(super) fn host_claim(&mut self, desired: &HostVolumeClaim) -> Done {
        let key = JobKey { namespace: desired.namespace.clone(), id: desired.job_id.clone() };
        // The job was purged meanwhile, so none of its rows is kept.
        if self.root.job(&key).is_none() {
            return Ok(());
        }
        let volume: Option<&Arc<HostVolume>> = self.root.host_volume(&desired.volume_id);
        if volume.is_none_or(|row| row.intent == HostVolumeIntent::Delete) {
            let text = format!("host volume {} is gone", desired.volume_name);
            return Err(Refusal::ClaimRefused(text));
        }
        self.put_host_claim(desired.clone());
        Ok(())
    }
}
