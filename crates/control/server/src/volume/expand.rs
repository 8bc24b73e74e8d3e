//! Expansion of volumes.
//!
//! [`changed`] decides which expansion an update requests (rules and texts: docs/reference/storage.md, section 5.3).
//! The request is recorded first, with the phase *expanding*. Then a controller of the plugin expands the volume. If
//! the plugin requires it, every node then expands its mounts, now or later. Each part is resumed after a crash, and
//! the volume stays usable meanwhile.

use super::fault::{UpdateFault, VolumeFault};
use super::lifecycle::{postpone, settle, waits, write};
use super::merged_options;
use super::reconciler::Reconciler;
use crate::error::ServerError;
use crate::volume::calls::Lane;
use crate::volume::controller::CallError;
use caravan_messages::{ControllerAnswer, ControllerOperation, NodeExpand};
use caravan_rpc::methods;
use caravan_types::UnixNanos;
use caravan_types::VolumeKey;
use caravan_types::command::ClaimStep;
use caravan_types::plugin::Plugin;
use caravan_types::volume::{Capability, Claim, Volume, VolumePhase, VolumeRequestBody};
use caravan_volumes::reconcile::{owes_growth, unused};
use std::sync::Arc;
use std::time::Duration;

/// The CSI call by which a node expands a volume.
const NODE_CALL: &str = "NodeExpandVolume";
/// Timeout of an expansion on a node, the plugin's own deadline included.
const NODE_DEADLINE: Duration = Duration::from_secs(150);

/// Returns the row with the requested capacity, or `None` if the specification requests no change. The row is in
/// phase expanding if the plugin must be called. A smaller request cancels an expansion that has not succeeded. Pure.
pub(super) fn changed(current: &Volume, body: &VolumeRequestBody) -> Result<Option<Volume>, UpdateFault> {
    let (min, max) = (body.requested_capacity_min, body.requested_capacity_max);
    let have = current.capacity;
    if (min == 0 && max == 0) || (min == have.requested_min && max == have.requested_max) {
        return Ok(None);
    }
    if max > 0 && max < min {
        return Err(UpdateFault::MaxBelowMin { max, min });
    }
    if max > 0 && max < have.accepted {
        return Err(UpdateFault::MaxBelowCurrent { max, current: have.accepted });
    }
    let mut next = current.clone();
    next.capacity.requested_min = min;
    next.capacity.requested_max = max;
    // A volume that is not yet created is created with the new capacity.
    if current.phase != VolumePhase::Creating {
        next.phase = if min > have.accepted { VolumePhase::Expanding } else { VolumePhase::Ready };
        settle(&mut next);
    }
    Ok(Some(next))
}

/// Refuses if the plugin cannot expand volumes.
pub(super) fn supported(plugin: &Plugin) -> Result<(), VolumeFault> {
    let known = plugin.controllers.values().filter(|c| c.healthy).find_map(|c| c.controller_info);
    match known {
        None => Err(VolumeFault::NoHealthyController(plugin.id.clone())),
        Some(info) if info.supports_expand => Ok(()),
        Some(_) => Err(VolumeFault::CannotExpand),
    }
}

/// Calls a controller to expand a volume in phase expanding, and records the outcome. `index` is the row's; `before`
/// is the row before a command requested the expansion, if this is the command's own attempt.
pub(super) async fn controller(
    reconciler: &Reconciler,
    volume: &Volume,
    index: u64,
    before: Option<&Volume>,
) -> Result<(), ServerError> {
    let (core, key) = (&reconciler.core, volume.key());
    let root = core.snapshot();
    let claims: Vec<Arc<Claim>> = root.claims_of(&key).filter(|c| c.phase.holds()).cloned().collect();
    let used =
        claims.first().map(|c| Capability { access_mode: c.access_mode, attachment_mode: c.attachment_mode });
    let secrets = match core.secrets_of(&root, volume) {
        Ok(secrets) => secrets,
        Err(wait) => return waits(core, volume, index, wait).await,
    };
    let call = ControllerOperation::Expand {
        external_id: volume.remote_id().to_owned(),
        capacity_min: volume.capacity.requested_min,
        capacity_max: volume.capacity.requested_max,
        capability: used.or_else(|| volume.requested_capabilities.first().cloned()),
        mount_options: volume.mount_options.clone(),
        secrets,
    };
    let name = call.name();
    let about = reconciler.controllers.about(&key, None);
    let error = match about.call(&root, &volume.plugin_id, call).await {
        Ok(ControllerAnswer::Expanded { capacity_bytes, node_expansion_required }) => {
            let mut grown = volume.clone();
            grown.phase = VolumePhase::Ready;
            settle(&mut grown);
            let reported = capacity_bytes > 0;
            grown.capacity.accepted = if reported { capacity_bytes } else { volume.capacity.requested_min };
            if node_expansion_required {
                grown.node_expand_to = grown.capacity.accepted;
            } else {
                grown.capacity.actual = grown.capacity.accepted;
            }
            return write(core, grown, index).await.map(drop);
        }
        Ok(_) => CallError::OtherAnswer { call: name },
        Err(error) => error,
    };
    if error.is_conflict() && !unused(claims.iter().map(|c| &**c)) {
        let waits = Volume {
            expand_offline: true,
            tries: volume.tries.saturating_add(1),
            last_error: error.to_string(),
            next_try: UnixNanos(0),
            ..volume.clone()
        };
        write(core, waits, index).await?;
        return Err(VolumeFault::ExpandWhenUnused { error, volume: volume.id.clone() }.into());
    }
    // The plugin certainly did nothing: cancel the request, and report the reason to the user.
    if let Some(before) =
        before.filter(|b| error.is_refused() && !error.is_conflict() && b.phase == VolumePhase::Ready)
    {
        let mut kept = Volume { capacity: before.capacity, phase: VolumePhase::Ready, ..volume.clone() };
        settle(&mut kept);
        kept.last_error = error.to_string();
        write(core, kept, index).await?;
        return Err(VolumeFault::Expand(error).into());
    }
    postpone(core, volume, index, &error).await?;
    Err(VolumeFault::ExpandRetried { error, volume: volume.id.clone() }.into())
}

/// Asks every reachable node with a pending expansion to expand its mounts, once. The reconciler makes all later
/// attempts.
pub(super) async fn nodes(reconciler: &Reconciler, key: &VolumeKey) -> Result<(), ServerError> {
    let root = reconciler.core.snapshot();
    let Some(volume) = root.volume(key) else { return Ok(()) };
    let owing: Vec<Arc<Claim>> = root.claims_of(key).filter(|c| owes_growth(volume, c)).cloned().collect();
    let mut errors = Vec::new();
    for claim in owing {
        if reconciler.controllers.nodes.get(claim.node_id.as_str()).is_err() {
            continue;
        }
        if let Err(error) = node(reconciler, &claim, volume.node_expand_to).await? {
            errors.push(error);
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(VolumeFault::ExpandOnNodes(errors).into()),
    }
}

/// Asks a node to expand the mount of a claim to at least `to` bytes, and records the result.
pub(super) async fn node(
    reconciler: &Reconciler,
    claim: &Claim,
    to: i64,
) -> Result<Result<(), CallError>, ServerError> {
    let controllers = &reconciler.controllers;
    let _permit = controllers.calls.permit(&claim.plugin_id, Lane::Grow).await;
    let root = reconciler.core.snapshot();
    let Some(volume) = root.volume(&claim.id.volume) else { return Ok(Ok(())) };
    let secrets = match reconciler.core.secrets_of(&root, volume) {
        Ok(secrets) => secrets,
        Err(wait) => {
            let error = CallError::from(wait);
            reconciler.conclude(claim, claim.modify_index, Err(error.clone())).await?;
            return Ok(Err(error));
        }
    };
    let max = volume.capacity.requested_max;
    let request = NodeExpand {
        claim: claim.id.clone(),
        generation: claim.generation,
        capacity_min: to,
        capacity_max: if max >= to { max } else { 0 },
        mount_options: merged_options(volume, claim),
        secrets,
    };
    let about = (claim.id.volume.clone(), claim.id.alloc.clone());
    let call = controllers.calls.begin(&claim.plugin_id, Some(&about), NODE_CALL);
    call.at(&claim.node_id);
    let answer = controllers.node::<methods::NodeExpand>(&claim.node_id, request, NODE_DEADLINE).await;
    call.done(answer.is_ok());
    match answer {
        Ok(grown) => {
            let step = ClaimStep::Expanded { capacity: grown.capacity_bytes.max(to) };
            reconciler.step(&claim.id, claim.modify_index, step).await?;
            // Only the owner of the volume writes the row.
            let mut seen = (**volume).clone();
            seen.capacity.actual = grown.capacity_bytes.max(0);
            if seen.capacity != volume.capacity {
                write(&reconciler.core, seen, volume.modify_index).await?;
            }
            Ok(Ok(()))
        }
        Err(error) => {
            let error = CallError::Failed { call: NODE_CALL, error };
            reconciler.conclude(claim, claim.modify_index, Err(error.clone())).await?;
            Ok(Err(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::fault::decimal;
    use caravan_types::volume::Capacity;

    const GB: i64 = 1_000_000_000;

    fn volume(accepted: i64) -> Volume {
        let capacity = Capacity { requested_min: accepted, requested_max: 0, accepted, actual: accepted };
        Volume { id: "data".into(), capacity, ..Volume::default() }
    }

    fn ask(min: i64, max: i64) -> VolumeRequestBody {
        VolumeRequestBody { requested_capacity_min: min, requested_capacity_max: max, ..Default::default() }
    }

    fn refusal(min: i64, max: i64) -> String {
        changed(&volume(2 * GB), &ask(min, max)).unwrap_err().to_string()
    }

    #[test]
    fn only_more_than_there_is_needs_the_plugin() {
        let have = volume(2 * GB);
        assert_eq!(changed(&have, &ask(0, 0)).unwrap(), None);
        assert_eq!(changed(&have, &ask(2 * GB, 0)).unwrap(), None);
        let room = changed(&have, &ask(GB, 4 * GB)).unwrap().unwrap();
        assert_eq!(
            (room.phase, room.capacity.requested_min, room.capacity.requested_max),
            (VolumePhase::Ready, GB, 4 * GB)
        );
        let more = changed(&have, &ask(3 * GB, 0)).unwrap().unwrap();
        assert_eq!((more.phase, more.capacity.accepted), (VolumePhase::Expanding, 2 * GB));
    }

    #[test]
    fn what_cannot_be_is_refused_in_the_references_words() {
        assert_eq!(refusal(3 * GB, GB), "max requested capacity (1.0 GB) less than or equal to min (3.0 GB)");
        assert_eq!(refusal(1, GB), "max requested capacity (1.0 GB) less than or equal to current (2.0 GB)");
    }

    #[test]
    fn a_failed_expansion_can_be_lowered() {
        let mut stuck = changed(&volume(2 * GB), &ask(9 * GB, 0)).unwrap().unwrap();
        stuck.tries = 3;
        stuck.last_error = "no room".into();
        stuck.expand_offline = true;
        let less = changed(&stuck, &ask(3 * GB, 0)).unwrap().unwrap();
        assert_eq!((less.phase, less.tries, less.expand_offline), (VolumePhase::Expanding, 0, false));
        let none = changed(&stuck, &ask(2 * GB, 0)).unwrap().unwrap();
        assert_eq!((none.phase, none.last_error.as_str()), (VolumePhase::Ready, ""));
    }

    #[test]
    fn a_volume_in_creation_takes_the_new_capacity() {
        let making = Volume { phase: VolumePhase::Creating, ..volume(0) };
        let other = changed(&making, &ask(GB, 0)).unwrap().unwrap();
        assert_eq!((other.phase, other.capacity.requested_min), (VolumePhase::Creating, GB));
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        let sizes = [0, 999, 1000, 1_550_000, 2 * GB, 123 * GB, i64::MAX].map(decimal);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "1.6 MB", "2.0 GB", "123 GB", "9.2 EB"]);
    }
}
