//! The rights of a caller beyond the volume of its request: rights to the variables with the volume's secrets, and to
//! the cloned volume.
//!
//! A plugin identifies the volumes of all namespaces by its own ids, and any caller who may list volumes sees these
//! ids. An id alone therefore gives no right: a copy or a snapshot of a volume belongs to the namespace of that
//! volume.

use crate::acl::{Caller, NsCap, VarCap};
use crate::error::{Denial, ServerError};
use caravan_state::Root;
use caravan_types::variable::parse_reference;
use caravan_types::volume::{Volume, VolumeRequestBody};
use caravan_types::{Namespace, PluginId, VolumeId, VolumeKey};
use std::collections::BTreeSet;

/// Refuses references to variables that the caller may not read, unless the volume has these references already.
pub(super) fn check_secrets(caller: &Caller, root: &Root, body: &VolumeRequestBody) -> Result<(), Denial> {
    let key = VolumeKey { namespace: body.namespace.clone(), id: body.id.clone() };
    let current = root.volume(&key);
    for (name, reference) in &body.secrets_from {
        let is_there = current.is_some_and(|row| row.secrets_from.get(name) == Some(reference));
        // Another check refuses a text that is not a reference.
        let Ok((path, _)) = parse_reference(reference) else { continue };
        if !is_there && !caller.variable(body.namespace.as_str(), path, VarCap::Read) {
            return Err(Denial::Secret {
                secret: name.clone(),
                path: path.to_owned(),
                namespace: body.namespace.clone(),
            });
        }
    }
    Ok(())
}

/// Returns the namespaces of the volumes with an external id.
pub(super) fn owners(root: &Root, plugin: &PluginId, external_id: &str) -> BTreeSet<Namespace> {
    let is = |row: &Volume| row.external_id == external_id || row.remote_id() == external_id;
    let rows = root.volumes_by_plugin(plugin).filter(|row| is(row));
    rows.map(|row| row.namespace.clone()).collect()
}

/// Returns whether a caller has one of the capabilities in all namespaces that registered a volume. If no namespace
/// registered the volume, only management may use it.
pub(super) fn may_with(caller: &Caller, owners: &BTreeSet<Namespace>, caps: &[NsCap]) -> bool {
    let mut all = owners.iter();
    caller.is_management()
        || (!owners.is_empty() && all.all(|namespace| caller.acl.namespace_any(namespace.as_str(), caps)))
}

/// Refuses to clone a volume that the caller may not write.
pub(super) fn check_clone(caller: &Caller, root: &Root, body: &VolumeRequestBody) -> Result<(), Denial> {
    let source = body.clone_id.as_str();
    if source.is_empty() {
        return Ok(());
    }
    let mut owners = owners(root, &body.plugin_id, source);
    if owners.is_empty() {
        // The caller may name a volume of the same namespace by its Caravan id here.
        let key = VolumeKey { namespace: body.namespace.clone(), id: VolumeId::new(source) };
        owners.extend(root.volume(&key).map(|row| row.namespace.clone()));
    }
    match may_with(caller, &owners, &[NsCap::CsiWriteVolume]) {
        true => Ok(()),
        false => Err(Denial::Clone { volume: source.to_owned() }),
    }
}

/// Returns the refusal of a snapshot of a volume outside the caller's rights.
pub(super) fn not_own_snapshot(snapshot: &str) -> ServerError {
    Denial::Snapshot { snapshot: snapshot.to_owned() }.into()
}
