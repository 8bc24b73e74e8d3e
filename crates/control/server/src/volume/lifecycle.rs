//! Creation and deletion of volumes. The intent is durable before the plugin is called, and interrupted steps are
//! resumed, so that one command creates one external volume.

use crate::core::Core;
use crate::error::{ServerError, about_refusal};
use crate::volume::controller::CallError;
use crate::volume::expand;
use crate::volume::fault::VolumeFault;
use crate::volume::reconciler::Reconciler;
use caravan_messages::{ControllerAnswer, ControllerOperation};
use caravan_state::Root;
use caravan_types::UnixNanos;
use caravan_types::command::{Change, Refusal};
use caravan_types::ser::Secrets;
use caravan_types::volume::{Volume, VolumePhase};
use caravan_volumes::wait::MissingSecret;

/// Writes a volume's row if it has not changed since; returns the index, or `None` if it has changed. Adds changes of
/// phase and new failures to the volume's history.
pub(super) async fn write(core: &Core, mut volume: Volume, expect: u64) -> Result<Option<u64>, ServerError> {
    let (root, key) = (core.snapshot(), volume.key());
    note(&mut volume, root.volume(&key).map(|row| &**row), core.now());
    let change =
        Change::VolumeWrite { volume: Box::new(volume), expect_modify_index: expect, exclusive: true };
    let outcome = core.propose(change).await?;
    match outcome.refused {
        None => Ok(Some(outcome.index)),
        Some(Refusal::Changed { .. } | Refusal::NotFound { .. }) => Ok(None),
        Some(refusal) => Err(refusal.into()),
    }
}

/// Refuses a row whose storage belongs to another row. The state also refuses it when the row is written.
pub(super) fn owned(root: &Root, row: &Volume) -> Result<(), ServerError> {
    let known = root.volume(&row.key()).is_some_and(|known| known.storage() == row.storage());
    let apart = |twin: &Volume| !(row.shares_storage() && twin.shares_storage());
    let other = root.twins(row).find(|twin| !known && apart(twin));
    other.map_or(Ok(()), |other| Err(taken(row, other).into()))
}

/// Refuses to delete a volume whose storage another row stands for as well.
pub(super) fn deletable(root: &Root, volume: &Volume) -> Result<(), VolumeFault> {
    let Some(other) = root.twins(volume).next() else { return Ok(()) };
    Err(VolumeFault::OnlyDeregistered { volume: volume.id.clone(), cause: taken(volume, other) })
}

fn taken(row: &Volume, other: &Volume) -> Refusal {
    let (plugin, storage) = (row.plugin_id.to_string(), row.storage().unwrap_or_default().to_owned());
    Refusal::StorageTaken { plugin, storage, other: other.key() }
}

/// Adds a change of the phase, or a new failure, to the history of the row that is replaced.
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

/// Resumes the intent of a volume. Returns whether its row changed.
pub(super) async fn resume(reconciler: &Reconciler, volume: &Volume) -> bool {
    let index = volume.modify_index;
    let result = match volume.phase {
        VolumePhase::Ready => Ok(()),
        VolumePhase::Expanding => expand::controller(reconciler, volume, index, None).await,
        VolumePhase::Creating => create(reconciler, volume, index, false).await,
        VolumePhase::Deleting => delete(reconciler, volume, index, None).await,
    };
    if let Err(error) = result {
        tracing::debug!(volume = %volume.key(), %error, "resuming the operation of a volume failed");
    }
    reconciler.core.snapshot().volume(&volume.key()).is_none_or(|now| now.modify_index != index)
}

/// Calls CreateVolume for a row in phase creating, and records the outcome. `index` is the row's; `first` states that
/// no earlier call was made.
///
/// The call is idempotent by name (CSI specification, CreateVolume), so repeating it after a crash finds the volume
/// that the first call created.
pub(super) async fn create(
    reconciler: &Reconciler,
    volume: &Volume,
    index: u64,
    first: bool,
) -> Result<(), ServerError> {
    let core = &reconciler.core;
    let secrets = match core.secrets_of(&core.snapshot(), volume) {
        Ok(secrets) => secrets,
        Err(wait) => return waits(core, volume, index, wait).await,
    };
    match make(reconciler, volume, &secrets).await {
        Ok(mut ready) => {
            ready.phase = VolumePhase::Ready;
            settle(&mut ready);
            match write(core, ready, index).await {
                // No storage was created for this row: the intent is cancelled, and the storage stays with the other
                // row.
                Err(ServerError::Refusal(cause)) if about_refusal(&cause).is_some() => {
                    core.commit(Change::VolumeDelete { key: volume.key(), force: true }).await?;
                    Err(VolumeFault::NameHasStorage { name: volume.name.clone(), cause }.into())
                }
                written => written.map(drop),
            }
        }
        Err(error) if error.is_refused() && first => {
            // The plugin created nothing: cancel the intent, and report the reason to the user.
            core.commit(Change::VolumeDelete { key: volume.key(), force: true }).await?;
            Err(VolumeFault::Create(error).into())
        }
        Err(error) => {
            postpone(core, volume, index, &error).await?;
            Err(VolumeFault::CreateRetried { error, volume: volume.id.clone() }.into())
        }
    }
}

/// Returns the row with the properties that the plugin returned.
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
        _ => Err(CallError::OtherAnswer { call: name }),
    }
}

/// Calls DeleteVolume for a row in phase deleting, and removes the row. `index` is the row's; `before` is the row
/// before the deletion was requested, if this is the first attempt.
pub(super) async fn delete(
    reconciler: &Reconciler,
    volume: &Volume,
    index: u64,
    before: Option<&Volume>,
) -> Result<(), ServerError> {
    let core = &reconciler.core;
    let secrets = match core.secrets_of(&core.snapshot(), volume) {
        Ok(secrets) => secrets,
        Err(wait) => return waits(core, volume, index, wait).await,
    };
    let (mut made, mut index) = (volume.clone(), index);
    if made.external_id.is_empty() {
        // The outcome of the volume's creation is unknown: call CreateVolume again to receive the id to delete.
        made = match make(reconciler, volume, &secrets).await {
            Ok(made) => made,
            Err(error) if error.is_refused() => return remove_row(core, volume).await,
            Err(error) => return in_doubt(core, volume, index, error).await,
        };
        // Plugins identify volumes by name, across namespaces, so the plugin's volume may belong to another row. The
        // volume is deleted only after the record names it as this row's.
        index = match write(core, made.clone(), index).await {
            Ok(Some(index)) => index,
            // Another writer changed the row: read the new intent.
            Ok(None) => return Ok(()),
            Err(error) if !error.about().is_empty() => return remove_row(core, volume).await,
            Err(error) => return Err(error),
        };
    }
    let root = core.snapshot();
    if let Err(error) = deletable(&root, &made) {
        // An earlier version began this deletion.
        return stays(core, made, index, before, error).await;
    }
    let call = ControllerOperation::Delete { external_id: made.external_id.clone(), secrets };
    let name = call.name();
    let controllers = reconciler.controllers.about(&volume.key(), None);
    let answer = match controllers.call(&root, &volume.plugin_id, call).await {
        Ok(ControllerAnswer::Done) => Ok(()),
        Ok(_) => Err(CallError::OtherAnswer { call: name }),
        Err(error) => Err(error),
    };
    match answer {
        Ok(()) => remove_row(core, volume).await,
        Err(error) if error.is_missing() => remove_row(core, volume).await,
        // Only a refusal proves that an earlier try has not deleted the volume.
        Err(error) if error.is_unknown() || (before.is_none() && !error.is_refused()) => {
            in_doubt(core, volume, index, error).await
        }
        Err(error) => stays(core, made, index, before, VolumeFault::Delete(error)).await,
    }
}

/// Records that the plugin still has the volume, which is as usable as before.
async fn stays(
    core: &Core,
    mut volume: Volume,
    index: u64,
    before: Option<&Volume>,
    fault: VolumeFault,
) -> Result<(), ServerError> {
    volume.phase = VolumePhase::Ready;
    settle(&mut volume);
    volume.last_error = fault.noted();
    if let Some(before) = before {
        volume.secrets = before.secrets.clone();
    }
    write(core, volume, index).await?;
    Err(fault.into())
}

async fn remove_row(core: &Core, volume: &Volume) -> Result<(), ServerError> {
    core.commit(Change::VolumeDelete { key: volume.key(), force: false }).await.map(drop)
}

async fn in_doubt(core: &Core, volume: &Volume, index: u64, error: CallError) -> Result<(), ServerError> {
    postpone(core, volume, index, &error).await?;
    Err(VolumeFault::DeleteRetried { error, volume: volume.id.clone() }.into())
}

pub(super) fn settle(volume: &mut Volume) {
    volume.tries = 0;
    volume.last_error.clear();
    volume.next_try = UnixNanos(0);
    volume.expand_offline = false;
}

/// Handles missing secrets: the call is not made, which is no failure and does not count as a try. A write of the
/// variable wakes the reconciler.
pub(super) async fn waits(
    core: &Core,
    volume: &Volume,
    index: u64,
    wait: MissingSecret,
) -> Result<(), ServerError> {
    let reason = wait.to_string();
    if volume.last_error != reason {
        let row = Volume { last_error: reason, next_try: UnixNanos(0), ..volume.clone() };
        write(core, row, index).await?;
    }
    Err(VolumeFault::WaitsForSecrets { wait, volume: volume.id.clone(), phase: volume.phase }.into())
}

pub(super) async fn postpone(
    core: &Core,
    volume: &Volume,
    index: u64,
    error: &CallError,
) -> Result<(), ServerError> {
    let tries = volume.tries.saturating_add(1);
    let text = error.to_string();
    let is_new = volume.last_error != text;
    let later = Volume {
        tries,
        last_error: text,
        next_try: core.now().plus(caravan_volumes::retry::delay(tries)),
        ..volume.clone()
    };
    if is_new {
        tracing::warn!(volume = %volume.key(), %error, "a volume's plugin call failed; retrying");
    }
    write(core, later, index).await.map(drop)
}

fn create_call(volume: &Volume, secrets: &Secrets) -> ControllerOperation {
    ControllerOperation::Create {
        name: volume.name.clone(),
        capacity_min: volume.capacity.requested_min,
        capacity_max: volume.capacity.requested_max,
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
