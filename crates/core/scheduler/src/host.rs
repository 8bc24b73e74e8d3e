//! Host volumes of a group on a node: whether they may be used there, and the claims of a placement
//! (docs/reference/storage.md, section 8.5).
//!
//! There are three differences. An allocation that this plan stops still counts while its tasks may run. For sticky
//! volumes only the claims of the group itself count (docs/design/rough-edges.md, 44). Every refusal states the
//! changes for which the allocation waits.

use crate::context::Context;
use crate::csi::Refused;
use crate::reconcile::Place;
use crate::view::View;
use caravan_types::alloc::Allocation;
use caravan_types::eval::WaitsFor;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::job::{HostAccess, Job, TaskGroup, VolumeRequest};
use caravan_types::node::Node;
use caravan_types::volume::{AccessMode, AttachmentMode, Capability};
use caravan_types::{AllocId, Namespace};
use std::sync::Arc;

/// The start of a reason that clients recognize; details follow it.
const MISSING: &str = "missing compatible host volumes";

/// The reason that a configured host volume does not suit a job that may use only volumes of its namespace.
const CONFIGURED: &str =
    "the one of this name is of the agent's configuration, which the job's submitter may not use";

/// Returns the claims of a placement on a node, or the reason that it is not possible there.
///
/// With `without_stopped`, allocations that this plan stops do not count. The result then states whether the
/// placement will be possible once they have ended.
pub(crate) fn claims<V: View>(
    ctx: &Context<'_, V>,
    node: &Node,
    group: &TaskGroup,
    place: &Place,
    without_stopped: bool,
) -> Result<Vec<HostVolumeClaim>, Refused> {
    let mut held = Vec::new();
    for (_, request) in group.host_volumes() {
        let name = request.source_for(&place.name);
        let refused = |reason: String| {
            let waits = vec![WaitsFor::HostVolume(ctx.job.namespace.clone(), name.clone())];
            Refused { reason, waits }
        };
        let Some(offered) = node.host_volumes.get(&name) else {
            // A system job need not fit every node; a new host volume of a node creates an evaluation for it.
            let mut refusal = refused(MISSING.to_owned());
            refusal.waits.retain(|_| !ctx.job.kind.is_system());
            return Err(refusal);
        };
        if offered.id.is_empty() {
            // A configured host volume cannot change while the agent runs, and it has no claims.
            if request.host_access == HostAccess::Created {
                return Err(refused(format!("{MISSING}: {CONFIGURED}")));
            }
            if request.sticky || (offered.read_only && !request.read_only) {
                return Err(refused(MISSING.to_owned()));
            }
            continue;
        }
        let row = ctx.view.host_volume(&offered.id.as_str().into());
        // A job cannot see host volumes of other namespaces.
        let Some(row) = row.filter(|row| row.namespace == ctx.job.namespace) else {
            return Err(refused(MISSING.to_owned()));
        };
        if !row.is_usable() {
            return Err(refused(format!("host volume {name} is {}", row.state.as_str())));
        }
        let mode = requested_mode(request);
        if !suits(row, request, mode) {
            return Err(refused(MISSING.to_owned()));
        }
        let alone = mode == AccessMode::SingleNodeSingleWriter && !request.read_only;
        let writer = if alone { writer_on(ctx, node, &name, without_stopped) } else { None };
        if let Some(writer) = writer {
            let id = &writer.id;
            return Err(refused(format!("host volume {name} has its only writer already, allocation {id}")));
        }
        let known = held.iter().any(|claim: &HostVolumeClaim| claim.volume_id == row.id);
        if request.sticky && !known {
            held.push(hold(ctx, group, place, row, &held).map_err(refused)?);
        }
    }
    Ok(held)
}

/// Returns the host volumes that every group requests by name, for evaluations that have no node to check.
pub(crate) fn waits<'a>(
    namespace: &'a Namespace,
    group: &'a TaskGroup,
    alloc_name: &'a str,
) -> impl Iterator<Item = WaitsFor> + use<'a> {
    group
        .host_volumes()
        .map(move |(_, request)| WaitsFor::HostVolume(namespace.clone(), request.source_for(alloc_name)))
}

/// Assigns claims to an allocation.
pub(crate) fn assign(claims: &mut [HostVolumeClaim], alloc: &AllocId) {
    for claim in claims {
        claim.alloc_id = alloc.clone();
    }
}

fn requested_mode(request: &VolumeRequest) -> AccessMode {
    match request.access_mode {
        AccessMode::Unknown if request.read_only => AccessMode::SingleNodeReaderOnly,
        AccessMode::Unknown => AccessMode::SingleNodeWriter,
        mode => mode,
    }
}

/// Returns whether the volume was created for this use, and the request is consistent.
fn suits(row: &HostVolume, request: &VolumeRequest, access_mode: AccessMode) -> bool {
    let attachment_mode = match request.attachment_mode {
        AttachmentMode::Unknown => AttachmentMode::FileSystem,
        mode => mode,
    };
    let agrees = match access_mode {
        AccessMode::SingleNodeReaderOnly => request.read_only,
        AccessMode::SingleNodeWriter => !request.read_only,
        AccessMode::SingleNodeSingleWriter | AccessMode::SingleNodeMultiWriter => true,
        _ => false,
    };
    agrees && row.requested_capabilities.contains(&Capability { attachment_mode, access_mode })
}

/// Returns an allocation on the node, of any job, including this plan, that requests the volume for writing. It
/// counts until its client reports that it has ended.
fn writer_on<'c, V: View>(
    ctx: &'c Context<'_, V>,
    node: &Node,
    name: &str,
    without_stopped: bool,
) -> Option<&'c Allocation> {
    ctx.allocs_on(&node.id, without_stopped)
        .filter(|alloc| alloc.namespace == ctx.job.namespace)
        .find(|alloc| requests(ctx.job, alloc).any(|r| !r.read_only && r.source_for(&alloc.name) == name))
}

/// Returns the volume requests of an allocation. An allocation of the current plan does not contain its job, which is
/// `job`.
fn requests<'a>(job: &'a Job, alloc: &'a Allocation) -> impl Iterator<Item = &'a VolumeRequest> {
    let group = match &alloc.job {
        Some(_) => alloc.group(),
        None => job.group(&alloc.task_group),
    };
    group.into_iter().flat_map(|group| group.host_volumes()).map(|(_, request)| request)
}

/// Returns the claim that a sticky request takes over, or a new claim (without an id).
///
/// As long as the group has claims that none of its allocations uses, only the volumes of those claims suit.
fn hold<V: View>(
    ctx: &Context<'_, V>,
    group: &TaskGroup,
    place: &Place,
    row: &Arc<HostVolume>,
    taken: &[HostVolumeClaim],
) -> Result<HostVolumeClaim, String> {
    let free: Vec<&HostVolumeClaim> = ctx
        .view
        .host_claims_by_job(&ctx.job.key())
        .map(AsRef::as_ref)
        .filter(|claim| claim.task_group_name == group.name && claim.volume_name == row.name)
        .filter(|claim| !taken.iter().chain(ctx.host_claims()).any(|other| other.id == claim.id))
        .filter(|claim| ctx.view.alloc(&claim.alloc_id).is_none_or(|a| a.terminal() || ctx.is_stopped(&a.id)))
        .collect();
    let previous = place.previous.alloc().map(|alloc| &alloc.id);
    let own = free.iter().find(|claim| Some(&claim.alloc_id) == previous && claim.volume_id == row.id);
    match own.or_else(|| free.iter().find(|claim| claim.volume_id == row.id)) {
        Some(claim) => Ok(HostVolumeClaim::clone(claim)),
        None if free.is_empty() => Ok(HostVolumeClaim {
            namespace: ctx.job.namespace.clone(),
            job_id: ctx.job.id.clone(),
            task_group_name: group.name.clone(),
            volume_id: row.id.clone(),
            volume_name: row.name.clone(),
            ..HostVolumeClaim::default()
        }),
        None => Err(format!("host volume {} is claimed on another node", row.name)),
    }
}
