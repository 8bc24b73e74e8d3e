//! Checks whether the submitter of a job has the rights for its requests beyond `submit-job`: volumes of both kinds,
//! and registration of a storage plugin.
//!
//! The check applies to the job as it will be stored. Each request of a host volume records how it was allowed,
//! because a node may offer two volumes with the same name. One is from the agent's configuration, which requires a
//! rule with the name; the other was created by users of a namespace. Scheduler, planner and client respect this
//! record.

use crate::acl::{Caller, HostVolumeCap, NsCap};
use crate::error::Denial;
use caravan_state::Root;
use caravan_types::Namespace;
use caravan_types::job::{HostAccess, Job, TaskGroup, VolumeRequest, VolumeType};

/// Maximum number of allocations of a group whose volumes are checked by name; the volumes of a larger group cannot
/// be allowed by name.
const MAX_ALLOCS: u32 = 10_000;

/// Checks a job, and records with each request of a host volume how the request was allowed.
pub(super) fn job(caller: &Caller, root: &Root, job: &mut Job) -> Result<(), Denial> {
    let namespace = job.namespace.clone();
    for group in &mut job.task_groups {
        let is_plugin = group.tasks.iter().any(|task| task.csi_plugin_config.is_some());
        if is_plugin && !caller.may(namespace.as_str(), NsCap::CsiRegisterPlugin) {
            return Err(Denial::Any);
        }
        let count = group.count;
        for request in group.volumes.values_mut() {
            request.host_access = HostAccess::Any;
            match request.kind {
                VolumeType::Csi if caller.may(namespace.as_str(), NsCap::CsiMountVolume) => {}
                VolumeType::Csi => return Err(Denial::Any),
                VolumeType::Host => request.host_access = host(caller, root, &namespace, request, count)?,
            }
        }
    }
    Ok(())
}

/// Returns the access that a caller has to a host volume, or the refusal.
fn host(
    caller: &Caller,
    root: &Root,
    namespace: &Namespace,
    request: &VolumeRequest,
    count: u32,
) -> Result<HostAccess, Denial> {
    if caller.is_management() || by_name(caller, request, 0..count) {
        return Ok(HostAccess::Any);
    }
    let is_one = |name: &str| {
        name == request.source
            || (request.per_alloc
                && name.strip_prefix(&request.source).is_some_and(|rest| rest.starts_with('[')))
    };
    let made = root.host_volumes().any(|row| row.namespace == *namespace && is_one(&row.name));
    match made && caller.may(namespace.as_str(), NsCap::HostVolumeRead) {
        true => Ok(HostAccess::Created),
        false => Err(Denial::Any),
    }
}

/// Returns whether a caller may use the volumes of a request by their names: one name, or one for each allocation.
fn by_name(caller: &Caller, request: &VolumeRequest, allocs: std::ops::Range<u32>) -> bool {
    let cap = if request.read_only { HostVolumeCap::MountReadonly } else { HostVolumeCap::MountReadwrite };
    if !request.per_alloc {
        return caller.acl.host_volume(&request.source, cap);
    }
    let name = |at: u32| format!("{}[{at}]", request.source);
    // The name without an index stands for a group without allocations.
    let none = allocs.is_empty() && !caller.acl.host_volume(&request.source, cap);
    !none && allocs.end <= MAX_ALLOCS && allocs.into_iter().all(|at| caller.acl.host_volume(&name(at), cap))
}

/// Checks a larger count of a group: with `per_alloc`, each new allocation has separate host volumes.
pub(super) fn scale(caller: &Caller, group: &TaskGroup, count: u32) -> Result<(), Denial> {
    if caller.is_management() || count <= group.count {
        return Ok(());
    }
    let own = |request: &&VolumeRequest| {
        request.kind == VolumeType::Host && request.per_alloc && request.host_access == HostAccess::Any
    };
    match group.volumes.values().filter(own).all(|request| by_name(caller, request, group.count..count)) {
        true => Ok(()),
        false => Err(Denial::Any),
    }
}
