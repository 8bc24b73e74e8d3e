//! Making and destroying volumes: the intent is durable before the plugin is called, and whatever was
//! cut off is taken up again, so that one command makes one external volume.

use crate::core::Core;
use crate::error::ServerError;
use crate::secrets::Unresolved;
use crate::volume::controller::CallError;
use crate::volume::expand;
use crate::volume::reconciler::Reconciler;
use caravan_state::Root;
use caravan_types::UnixNanos;
use caravan_types::command::{Change, Refusal};
use caravan_types::ser::Secrets;
use caravan_types::volume::{Volume, VolumePhase};
use caravan_types::wire::{ControllerAnswer, ControllerOperation};
use std::sync::Arc;

/// Writes a volume's row if nobody else did since; answers the index, none if somebody did. What is new is
/// noted in the volume's history.
pub(super) async fn write(core: &Core, mut volume: Volume, expect: u64) -> Result<Option<u64>, ServerError> {
    let (root, key) = (core.snapshot(), volume.key());
    note(&mut volume, root.volume(&key).map(|row| &**row), core.now());
    let change = Change::VolumeWrite { volume: Box::new(volume), expect_modify_index: expect };
    let outcome = core.propose(change).await?;
    match outcome.refused {
        None => Ok(Some(outcome.index)),
        Some(Refusal::Changed { .. } | Refusal::NotFound { .. }) => Ok(None),
        Some(refusal) => Err(refusal.into()),
    }
}

/// Notes a change of the phase, or a new failure. The history is that of the row that is replaced.
fn note(volume: &mut Volume, before: Option<&Volume>, now: UnixNanos) {
    let (phase, error) = (volume.phase, volume.last_error.clone());
    match before {
        None => volume.note(now, phase, error),
        Some(before) => {
            volume.history.clone_from(&before.history);
            let failed = error != before.last_error && !error.is_empty();
            if phase != before.phase || failed {
                volume.note(now, phase, error);
            }
        }
    }
}

/// Takes up what is in progress with a volume. Answers whether its row moved on.
pub(super) async fn resume(reconciler: &Reconciler, volume: &Volume) -> bool {
    let index = volume.modify_index;
    let result = match volume.phase {
        VolumePhase::Ready => Ok(()),
        VolumePhase::Expanding => expand::controller(reconciler, volume, index, None).await,
        VolumePhase::Creating => create(reconciler, volume, index, false).await,
        VolumePhase::Deleting => delete(reconciler, volume, index, None).await,
    };
    if let Err(error) = result {
        tracing::debug!(volume = %volume.key(), %error, "taking up a volume failed");
    }
    reconciler.core.snapshot().volume(&volume.key()).is_none_or(|now| now.modify_index != index)
}

/// Calls CreateVolume for a row in phase creating, and records the outcome. `index` is the row's;
/// `first` says that the plugin was certainly not asked before.
///
/// The call is idempotent by name (CSI specification, CreateVolume), so repeating it after a crash
/// finds the volume that the first call made.
pub(super) async fn create(
    reconciler: &Reconciler,
    volume: &Volume,
    index: u64,
    first: bool,
) -> Result<(), ServerError> {
    let core = &reconciler.core;
    let secrets = match core.secrets_of(&core.snapshot(), volume) {
        Ok(secrets) => secrets,
        Err(wait) => return waits(core, volume, index, &wait).await,
    };
    match make(reconciler, volume, &secrets).await {
        Ok(made) if taken(&core.snapshot(), &made).is_some() => {
            let other = taken(&core.snapshot(), &made).map(|other| other.key().to_string());
            // Nothing was made for this one: the intent is taken back.
            core.commit(Change::VolumeDelete { key: volume.key(), force: true }).await?;
            Err(ServerError::refused(format!(
                "controller create volume: what the plugin has for the name \"{}\" is volume {} already: each volume of a plugin needs a name of its own",
                volume.name,
                other.unwrap_or_default()
            )))
        }
        Ok(mut ready) => {
            ready.phase = VolumePhase::Ready;
            settle(&mut ready);
            write(core, ready, index).await.map(drop)
        }
        Err(error) if error.refused && first => {
            // Nothing was made: the intent is taken back, and the user hears why.
            core.commit(Change::VolumeDelete { key: volume.key(), force: true }).await?;
            Err(ServerError::refused(format!("controller create volume: {error}")))
        }
        Err(error) => {
            postpone(core, volume, index, &error).await?;
            Err(ServerError::unavailable(format!(
                "controller create volume: {error} (volume \"{}\" stays in phase creating and is tried again; delete it to give up)",
                volume.id
            )))
        }
    }
}

/// The other volume that a plugin's answer stands for. Plugins know volumes by their names, of whatever namespace, so
/// that whoever asks for one of the same name gets the same: two volumes would share their data, and deleting one
/// would destroy the other.
fn taken(root: &Root, made: &Volume) -> Option<Arc<Volume>> {
    let others = root.volumes_by_plugin(&made.plugin_id).filter(|other| other.key() != made.key());
    let mut known = others.filter(|other| other.phase != VolumePhase::Creating);
    known.find(|other| other.remote_id() == made.external_id).cloned()
}

/// The row with what the plugin made, or had made before.
async fn make(reconciler: &Reconciler, volume: &Volume, secrets: &Secrets) -> Result<Volume, CallError> {
    let (root, call) = (reconciler.core.snapshot(), create_call(volume, secrets));
    let name = call.name();
    let controllers = reconciler.controllers.about(&volume.key(), None);
    match controllers.call(&root, &volume.plugin_id, call).await? {
        ControllerAnswer::Created { external_id, capacity_bytes, context, topologies } => {
            let mut made = volume.clone();
            made.external_id = external_id;
            made.capacity.accepted = capacity_bytes;
            made.capacity.actual = capacity_bytes;
            made.context = context;
            if !topologies.is_empty() {
                made.topologies = topologies;
            } else if let Some(request) = &volume.requested_topologies {
                made.topologies.clone_from(&request.required);
            }
            Ok(made)
        }
        _ => Err(CallError::nonsense(name)),
    }
}

/// Calls DeleteVolume for a row in phase deleting, and removes the row. `index` is the row's; `before`
/// is the row as it was when the deletion was asked for, if this is the first try.
pub(super) async fn delete(
    reconciler: &Reconciler,
    volume: &Volume,
    index: u64,
    before: Option<&Volume>,
) -> Result<(), ServerError> {
    let core = &reconciler.core;
    let secrets = match core.secrets_of(&core.snapshot(), volume) {
        Ok(secrets) => secrets,
        Err(wait) => return waits(core, volume, index, &wait).await,
    };
    let mut made = volume.clone();
    if made.external_id.is_empty() {
        // The outcome of its creation was never heard: ask again, to learn what to delete.
        made = match make(reconciler, volume, &secrets).await {
            // It was never made: what would be deleted is another's.
            Ok(made) if taken(&core.snapshot(), &made).is_some() => return forget(core, volume).await,
            Ok(made) => made,
            Err(error) if error.refused => return forget(core, volume).await,
            Err(error) => return in_doubt(core, volume, index, &error).await,
        };
    }
    let root = core.snapshot();
    let call = ControllerOperation::Delete { external_id: made.external_id.clone(), secrets };
    let name = call.name();
    let controllers = reconciler.controllers.about(&volume.key(), None);
    let answer = match controllers.call(&root, &volume.plugin_id, call).await {
        Ok(ControllerAnswer::Done) => Ok(()),
        Ok(_) => Err(CallError::nonsense(name)),
        Err(error) => Err(error),
    };
    match answer {
        Ok(()) => forget(core, volume).await,
        Err(error) if error.missing => forget(core, volume).await,
        // Only a refusal proves that an earlier try has not destroyed it.
        Err(error) if error.outcome_unknown || (before.is_none() && !error.refused) => {
            in_doubt(core, volume, index, &error).await
        }
        Err(error) => {
            // The plugin still has it: the volume is as usable as before.
            made.phase = VolumePhase::Ready;
            settle(&mut made);
            made.last_error.clone_from(&error.message);
            if let Some(before) = before {
                made.secrets = before.secrets.clone();
            }
            write(core, made, index).await?;
            Err(ServerError::refused(format!("controller delete volume: {error}")))
        }
    }
}

async fn forget(core: &Core, volume: &Volume) -> Result<(), ServerError> {
    core.commit(Change::VolumeDelete { key: volume.key(), force: false }).await.map(drop)
}

async fn in_doubt(core: &Core, volume: &Volume, index: u64, error: &CallError) -> Result<(), ServerError> {
    postpone(core, volume, index, error).await?;
    Err(ServerError::unavailable(format!(
        "controller delete volume: {error} (volume \"{}\" stays in phase deleting and is tried again)",
        volume.id
    )))
}

pub(super) fn settle(volume: &mut Volume) {
    volume.tries = 0;
    volume.last_error.clear();
    volume.next_try = UnixNanos(0);
    volume.expand_offline = false;
}

/// The call is not made before its secrets are there: no failure, nothing is counted. The reconciler is
/// woken when the variable is written.
pub(super) async fn waits(
    core: &Core,
    volume: &Volume,
    index: u64,
    wait: &Unresolved,
) -> Result<(), ServerError> {
    let reason = wait.to_string();
    if volume.last_error != reason {
        let row = Volume { last_error: reason.clone(), next_try: UnixNanos(0), ..volume.clone() };
        write(core, row, index).await?;
    }
    Err(ServerError::unavailable(format!(
        "{reason} (volume \"{}\" stays in phase {} and goes on by itself then)",
        volume.id,
        volume.phase.as_str()
    )))
}

pub(super) async fn postpone(
    core: &Core,
    volume: &Volume,
    index: u64,
    error: &CallError,
) -> Result<(), ServerError> {
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

fn create_call(volume: &Volume, secrets: &Secrets) -> ControllerOperation {
    ControllerOperation::Create {
        name: volume.name.clone(),
        capacity_min: volume.capacity.wanted_min,
        capacity_max: volume.capacity.wanted_max,
        capabilities: volume.requested_capabilities.clone(),
        mount_options: volume.mount_options.clone(),
        parameters: volume.parameters.clone(),
        secrets: secrets.clone(),
        clone_id: match volume.clone_external_id.as_str() {
            "" => volume.clone_id.clone(),
            resolved => resolved.to_owned(),
        },
        snapshot_id: volume.snapshot_id.clone(),
        topology: volume.requested_topologies.clone(),
    }
}
