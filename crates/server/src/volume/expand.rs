//! Expansion of volumes.
//!
//! [`wanted`] decides which expansion an update requests (rules and texts: docs/reference/storage.md, section 5.3). It
//! is recorded first, with the phase *expanding*. Then a controller of the plugin expands the volume. If the plugin
//! requires it, every node then expands its mounts, now or later. Each part is resumed after a crash, and the volume
//! stays usable meanwhile.

use super::lifecycle::{postpone, settle, waits, write};
use super::merged_options;
use super::reconciler::Reconciler;
use crate::error::ServerError;
use crate::volume::calls::Lane;
use crate::volume::controller::{CallError, classify};
use caravan_rpc::methods;
use caravan_types::UnixNanos;
use caravan_types::VolumeKey;
use caravan_types::command::ClaimStep;
use caravan_types::plugin::Plugin;
use caravan_types::volume::{Capability, Claim, Volume, VolumePhase, VolumeRequestBody};
use caravan_types::wire::{ControllerAnswer, ControllerOperation, NodeExpand};
use caravan_volumes::reconcile::{owes_growth, unused};
use std::sync::Arc;
use std::time::Duration;

/// The CSI call that a node makes.
const NODE_CALL: &str = "NodeExpandVolume";
/// Timeout of an expansion on a node, the plugin's own deadline included.
const NODE_DEADLINE: Duration = Duration::from_secs(150);

/// Returns the row with another capacity, if the specification requests one; in phase expanding if the plugin must be
/// called. A smaller request cancels an expansion that has not succeeded. Pure.
pub(super) fn wanted(current: &Volume, body: &VolumeRequestBody) -> Result<Option<Volume>, ServerError> {
    let (min, max) = (body.requested_capacity_min, body.requested_capacity_max);
    let have = current.capacity;
    if (min == 0 && max == 0) || (min == have.wanted_min && max == have.wanted_max) {
        return Ok(None);
    }
    let too_small = |what: &str, than: i64| {
        let (max, than) = (decimal(max), decimal(than));
        Err(ServerError::refused(format!(
            "max requested capacity ({max}) less than or equal to {what} ({than})"
        )))
    };
    if max > 0 && max < min {
        return too_small("min", min);
    }
    if max > 0 && max < have.accepted {
        return too_small("current", have.accepted);
    }
    let mut next = current.clone();
    next.capacity.wanted_min = min;
    next.capacity.wanted_max = max;
    // A volume that is not yet created is created with the new capacity.
    if current.phase != VolumePhase::Creating {
        next.phase = if min > have.accepted { VolumePhase::Expanding } else { VolumePhase::Ready };
        settle(&mut next);
    }
    Ok(Some(next))
}

/// Refuses if the plugin cannot expand volumes.
pub(super) fn supported(plugin: &Plugin) -> Result<(), ServerError> {
    let known = plugin.controllers.values().filter(|c| c.healthy).find_map(|c| c.controller_info);
    match known {
        None => {
            Err(ServerError::unavailable(format!("no healthy controllers for CSI plugin: {}", plugin.id)))
        }
        Some(info) if info.supports_expand => Ok(()),
        Some(_) => Err(ServerError::refused("expand is not implemented by this controller plugin")),
    }
}

/// Formats bytes with decimal units and one digit: `1.0 GB`, as Nomad prints them.
fn decimal(bytes: i64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut unit = 0;
    let mut scale: i128 = 1;
    while i128::from(bytes) >= scale * 1000 && unit + 1 < UNITS.len() {
        scale *= 1000;
        unit += 1;
    }
    if unit == 0 {
        return format!("{bytes} B");
    }
    let tenths = (i128::from(bytes) * 10 + scale / 2) / scale;
    if tenths >= 100 {
        format!("{} {}", (tenths + 5) / 10, UNITS[unit])
    } else {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    }
}

fn failed(error: &impl std::fmt::Display) -> String {
    format!("unable to expand volume: {error}")
}

/// Calls a controller to expand a volume in phase expanding, and records the outcome. `index` is the row's; `before` is
/// the row before a command requested the expansion, if this is the command's own attempt.
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
        Err(wait) => return waits(core, volume, index, &wait).await,
    };
    let call = ControllerOperation::Expand {
        external_id: volume.remote_id().to_owned(),
        capacity_min: volume.capacity.wanted_min,
        capacity_max: volume.capacity.wanted_max,
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
            let told = capacity_bytes > 0;
            grown.capacity.accepted = if told { capacity_bytes } else { volume.capacity.wanted_min };
            if node_expansion_required {
                grown.node_expand_to = grown.capacity.accepted;
            } else {
                grown.capacity.actual = grown.capacity.accepted;
            }
            return write(core, grown, index).await.map(drop);
        }
        Ok(_) => CallError::nonsense(name),
        Err(error) => error,
    };
    if error.conflict && !unused(claims.iter().map(|c| &**c)) {
        let waits = Volume {
            expand_offline: true,
            tries: volume.tries.saturating_add(1),
            last_error: error.message.clone(),
            next_try: UnixNanos(0),
            ..volume.clone()
        };
        write(core, waits, index).await?;
        return Err(ServerError::unavailable(format!(
            "{} (the plugin does not grow volume \"{}\" while it is used: it stays in phase expanding, and is grown once its last claim has ended)",
            failed(&error),
            volume.id
        )));
    }
    // The call was certainly not executed: the request is cancelled, and the user gets the reason.
    if let Some(before) = before.filter(|b| error.refused && !error.conflict && b.phase == VolumePhase::Ready)
    {
        let mut kept = Volume { capacity: before.capacity, phase: VolumePhase::Ready, ..volume.clone() };
        settle(&mut kept);
        kept.last_error.clone_from(&error.message);
        write(core, kept, index).await?;
        return Err(ServerError::refused(failed(&error)));
    }
    postpone(core, volume, index, &error).await?;
    Err(ServerError::unavailable(format!(
        "{} (volume \"{}\" stays in phase expanding and is tried again; ask for less to give up)",
        failed(&error),
        volume.id
    )))
}

/// Asks every reachable node that owes the expansion to expand its mounts, once. The reconciler does the rest.
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
            errors.push(error.message);
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ServerError::refused(failed(&errors.join("; ")))),
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
            let error = CallError::waits(&wait);
            reconciler.conclude(claim, claim.modify_index, Err(error.clone())).await?;
            return Ok(Err(error));
        }
    };
    let max = volume.capacity.wanted_max;
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
            let error = classify(NODE_CALL, &error);
            reconciler.conclude(claim, claim.modify_index, Err(error.clone())).await?;
            Ok(Err(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::volume::Capacity;

    const GB: i64 = 1_000_000_000;

    fn volume(accepted: i64) -> Volume {
        let capacity = Capacity { wanted_min: accepted, wanted_max: 0, accepted, actual: accepted };
        Volume { id: "data".into(), capacity, ..Volume::default() }
    }

    fn ask(min: i64, max: i64) -> VolumeRequestBody {
        VolumeRequestBody { requested_capacity_min: min, requested_capacity_max: max, ..Default::default() }
    }

    fn refusal(min: i64, max: i64) -> String {
        wanted(&volume(2 * GB), &ask(min, max)).unwrap_err().message
    }

    #[test]
    fn only_more_than_there_is_needs_the_plugin() {
        let have = volume(2 * GB);
        assert_eq!(wanted(&have, &ask(0, 0)).unwrap(), None);
        assert_eq!(wanted(&have, &ask(2 * GB, 0)).unwrap(), None);
        let room = wanted(&have, &ask(GB, 4 * GB)).unwrap().unwrap();
        assert_eq!(
            (room.phase, room.capacity.wanted_min, room.capacity.wanted_max),
            (VolumePhase::Ready, GB, 4 * GB)
        );
        let more = wanted(&have, &ask(3 * GB, 0)).unwrap().unwrap();
        assert_eq!((more.phase, more.capacity.accepted), (VolumePhase::Expanding, 2 * GB));
    }

    #[test]
    fn what_cannot_be_is_refused_in_the_references_words() {
        assert_eq!(refusal(3 * GB, GB), "max requested capacity (1.0 GB) less than or equal to min (3.0 GB)");
        assert_eq!(refusal(1, GB), "max requested capacity (1.0 GB) less than or equal to current (2.0 GB)");
    }

    #[test]
    fn a_failed_expansion_can_be_lowered() {
        let mut stuck = wanted(&volume(2 * GB), &ask(9 * GB, 0)).unwrap().unwrap();
        stuck.tries = 3;
        stuck.last_error = "no room".into();
        stuck.expand_offline = true;
        let less = wanted(&stuck, &ask(3 * GB, 0)).unwrap().unwrap();
        assert_eq!((less.phase, less.tries, less.expand_offline), (VolumePhase::Expanding, 0, false));
        let none = wanted(&stuck, &ask(2 * GB, 0)).unwrap().unwrap();
        assert_eq!((none.phase, none.last_error.as_str()), (VolumePhase::Ready, ""));
    }

    #[test]
    fn a_volume_that_is_being_made_is_made_as_wanted_now() {
        let making = Volume { phase: VolumePhase::Creating, ..volume(0) };
        let other = wanted(&making, &ask(GB, 0)).unwrap().unwrap();
        assert_eq!((other.phase, other.capacity.wanted_min), (VolumePhase::Creating, GB));
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        let sizes = [0, 999, 1000, 1_550_000, 2 * GB, 123 * GB, i64::MAX].map(decimal);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "1.6 MB", "2.0 GB", "123 GB", "9.2 EB"]);
    }
}
