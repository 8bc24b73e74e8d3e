//! The check whether the host volumes of a placement are still available. Pure.

use caravan_state::Root;
use caravan_types::AllocId;
use caravan_types::alloc::Allocation;
use caravan_types::job::{HostAccess, Job, VolumeRequest};
use caravan_types::plan::Plan;
use caravan_types::volume::AccessMode;
use std::collections::BTreeSet;

/// Checks the host volumes of a placement, and the holds that the placement takes over. `accepted` are the placements
/// of the plan that are already accepted.
pub(super) fn takes(
    root: &Root,
    plan: &Plan,
    stopped: &BTreeSet<&AllocId>,
    alloc: &Allocation,
    accepted: &[Allocation],
) -> Result<(), String> {
    if root.alloc(&alloc.id).is_some() {
        return Ok(());
    }
    let job = plan.job.as_deref();
    for request in requests(job, alloc) {
        let name = request.source_for(&alloc.name);
        let gone = || format!("host volume {name} is not there any more");
        let node = root.node(&alloc.node_id).ok_or_else(gone)?;
        let offered = node.host_volumes.get(&name).ok_or_else(gone)?;
        if offered.id.is_empty() {
            match request.host_access {
                HostAccess::Any => continue,
                HostAccess::Created => return Err(gone()),
            }
        }
        let row = root.host_volume(&offered.id.as_str().into()).filter(|row| row.is_usable());
        // Another namespace may have created a volume of this name on the node meanwhile.
        let row = row.filter(|row| row.namespace == alloc.namespace);
        let row = row.ok_or_else(gone)?;
        if request.access_mode == AccessMode::SingleNodeSingleWriter && !request.read_only {
            let existing = root.host_volume_users(row).map(AsRef::as_ref);
            let planned = accepted.iter().filter(|other| other.node_id == alloc.node_id);
            let writes = |other: &&Allocation| {
                requests(job, other).any(|r| !r.read_only && r.source_for(&other.name) == name)
            };
            if let Some(writer) = existing.chain(planned).find(writes) {
                return Err(format!("host volume {name} is written by allocation {}", writer.id.short()));
            }
        }
    }
    for claim in plan.host_claims.iter().filter(|c| c.alloc_id == alloc.id && !c.id.is_empty()) {
        let known = root.host_claim(&claim.id).ok_or_else(|| format!("claim {} is gone", claim.id))?;
        let held = root.alloc(&known.alloc_id).is_some_and(|a| !a.terminal() && !stopped.contains(&a.id));
        if held {
            return Err(format!("claim {} is held by allocation {}", claim.id, known.alloc_id.short()));
        }
    }
    Ok(())
}

/// Returns the host volumes that an allocation requests; the allocations of a plan do not contain their job.
fn requests<'a>(
    job: Option<&'a Job>,
    alloc: &'a Allocation,
) -> impl Iterator<Item = &'a VolumeRequest> + use<'a> {
    let group = match &alloc.job {
        Some(_) => alloc.group(),
        None => job.and_then(|job| job.group(&alloc.task_group)),
    };
    group.into_iter().flat_map(|group| group.host_volumes()).map(|(_, request)| request)
}
