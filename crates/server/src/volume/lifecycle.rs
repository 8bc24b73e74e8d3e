//! Making and destroying volumes: the intent is durable before the plugin is called, and whatever was
//! cut off is taken up again, so that one command makes one external volume.

use crate::core::Core;
use crate::error::{Kind, ServerError};
use crate::volume::controller::CallError;
use crate::volume::reconciler::Reconciler;
use caravan_types::command::{Change, Refusal};
use caravan_types::volume::{Volume, VolumePhase};
use caravan_types::wire::{ControllerAnswer, ControllerOperation};

/// Writes a volume's row if nobody else did since; answers the index, none if somebody did.
pub(super) async fn write(core: &Core, volume: Volume, expect: u64) -> Result<Option<u64>, ServerError> {
    let change = Change::VolumeWrite { volume: Box::new(volume), expect_modify_index: expect };
    let outcome = core.propose(change).await?;
    match outcome.refused {
        None => Ok(Some(outcome.index)),
        Some(Refusal::Changed { .. } | Refusal::NotFound { .. }) => Ok(None),
        Some(refusal) => Err(refusal.into()),
    }
}

/// Takes up what is in progress with a volume. Answers whether its row moved on.
pub(super) async fn resume(reconciler: &Reconciler, volume: &Volume) -> Result<bool, ServerError> {
    let result = match volume.phase {
        VolumePhase::Ready => return Ok(false),
        VolumePhase::Creating => create(reconciler, volume, volume.modify_index).await.map(drop),
        VolumePhase::Deleting => delete(reconciler, volume, volume.modify_index).await,
    };
    if let Err(error) = result {
        tracing::debug!(volume = %volume.key(), %error, "taking up a volume failed");
    }
    Ok(true)
}

/// Calls CreateVolume for a row in phase creating, and records the outcome. `index` is the row's.
///
/// The call is idempotent by name (CSI specification, CreateVolume), so repeating it after a crash
/// finds the volume that the first call made.
pub(super) async fn create(
    reconciler: &Reconciler,
    volume: &Volume,
    index: u64,
) -> Result<Volume, ServerError> {
    let core = &reconciler.core;
    let answer = reconciler.controllers.call(&core.snapshot(), &volume.plugin_id, create_call(volume)).await;
    match answer {
        Ok(ControllerAnswer::Created { external_id, capacity_bytes, context, topologies }) => {
            let mut ready = volume.clone();
            ready.external_id = external_id;
            ready.capacity.accepted = capacity_bytes;
            ready.capacity.actual = capacity_bytes;
            ready.context = context;
            if !topologies.is_empty() {
                ready.topologies = topologies;
            } else if let Some(request) = &volume.requested_topologies {
                ready.topologies.clone_from(&request.required);
            }
            ready.phase = VolumePhase::Ready;
            settle(&mut ready);
            write(core, ready.clone(), index).await?;
            Ok(core.snapshot().volume(&volume.key()).map_or(ready, |v| (**v).clone()))
        }
        Ok(_) => {
            Err(ServerError::new(Kind::Internal, "the controller answered something else to CreateVolume"))
        }
        Err(error) => {
            let text = format!("controller create volume: {error}");
            if error.refused && !error.outcome_unknown && volume.tries == 0 {
                // Nothing was made: the intent is taken back, and the user hears why.
                core.commit(Change::VolumeDelete { key: volume.key(), force: true }).await?;
                return Err(ServerError::refused(text));
            }
            postpone(core, volume, index, &error).await?;
            Err(ServerError::unavailable(format!(
                "{text} (volume \"{}\" stays in phase creating and is tried again; delete it to give up)",
                volume.id
            )))
        }
    }
}

/// Calls DeleteVolume for a row in phase deleting, and removes the row. `index` is the row's.
pub(super) async fn delete(reconciler: &Reconciler, volume: &Volume, index: u64) -> Result<(), ServerError> {
    let core = &reconciler.core;
    let root = core.snapshot();
    let mut external_id = volume.external_id.clone();
    if external_id.is_empty() {
        // The outcome of its creation was never heard: ask again, to learn what to delete.
        match reconciler.controllers.call(&root, &volume.plugin_id, create_call(volume)).await {
            Ok(ControllerAnswer::Created { external_id: found, .. }) => external_id = found,
            Ok(_) => return Err(ServerError::new(Kind::Internal, "the controller answered something else")),
            Err(error) if error.refused && !error.outcome_unknown => {
                core.commit(Change::VolumeDelete { key: volume.key(), force: false }).await?;
                return Ok(());
            }
            Err(error) => {
                postpone(core, volume, index, &error).await?;
                return Err(ServerError::unavailable(format!("controller delete volume: {error}")));
            }
        }
    }
    let call = ControllerOperation::Delete { external_id, secrets: volume.secrets.clone() };
    match reconciler.controllers.call(&root, &volume.plugin_id, call).await {
        Ok(_) => {
            core.commit(Change::VolumeDelete { key: volume.key(), force: false }).await?;
            Ok(())
        }
        Err(error) if error.outcome_unknown => {
            postpone(core, volume, index, &error).await?;
            Err(ServerError::unavailable(format!(
                "controller delete volume: {error} (volume \"{}\" stays in phase deleting and is tried again)",
                volume.id
            )))
        }
        Err(error) => {
            // The plugin still has it: the volume is as usable as before.
            let mut ready = volume.clone();
            ready.phase = VolumePhase::Ready;
            settle(&mut ready);
            ready.last_error.clone_from(&error.message);
            write(core, ready, index).await?;
            Err(ServerError::refused(format!("controller delete volume: {error}")))
        }
    }
}

fn settle(volume: &mut Volume) {
    volume.tries = 0;
    volume.last_error.clear();
    volume.next_try = caravan_types::UnixNanos(0);
}

async fn postpone(core: &Core, volume: &Volume, index: u64, error: &CallError) -> Result<(), ServerError> {
    let tries = volume.tries.saturating_add(1);
    let later = Volume {
        tries,
        last_error: error.message.clone(),
        next_try: core.now().plus(caravan_volumes::retry::delay(tries)),
        ..volume.clone()
    };
    if volume.last_error != error.message {
        tracing::warn!(volume = %volume.key(), %error, "a volume's plugin call failed; trying again");
    }
    write(core, later, index).await.map(drop)
}

fn create_call(volume: &Volume) -> ControllerOperation {
    ControllerOperation::Create {
        name: volume.name.clone(),
        capacity_min: volume.capacity.wanted_min,
        capacity_max: volume.capacity.wanted_max,
        capabilities: volume.requested_capabilities.clone(),
        mount_options: volume.mount_options.clone(),
        parameters: volume.parameters.clone(),
        secrets: volume.secrets.clone(),
        clone_id: volume.clone_id.clone(),
        snapshot_id: volume.snapshot_id.clone(),
        topology: volume.requested_topologies.clone(),
    }
}
