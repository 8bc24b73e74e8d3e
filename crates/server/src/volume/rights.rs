//! The rights of a caller to more than the volume of its request: the variables that the volume's secrets come from,
//! and the volume that a copy is made of.
//!
//! A plugin knows the volumes of all namespaces by its own ids, and so does whoever may list them. An id alone
//! therefore gives no right: a copy of a volume, or a snapshot of one, belongs to the namespace of that volume.

use crate::acl::{Caller, NsCap, VarCap};
use crate::error::{Kind, ServerError};
use caravan_state::Root;
use caravan_types::variable::parse_reference;
use caravan_types::volume::{Volume, VolumeRequestBody};
use caravan_types::{Namespace, PluginId, VolumeId, VolumeKey};
use std::collections::BTreeSet;

fn denied(what: impl std::fmt::Display) -> ServerError {
    ServerError::new(Kind::Forbidden, format!("Permission denied: {what}"))
}

/// Refuses references to variables that the caller may not read, unless they are there already.
pub(super) fn check_secrets(
    caller: &Caller,
    root: &Root,
    body: &VolumeRequestBody,
) -> Result<(), ServerError> {
    let key = VolumeKey { namespace: body.namespace.clone(), id: body.id.clone() };
    let current = root.volume(&key);
    for (name, reference) in &body.secrets_from {
        let is_there = current.is_some_and(|row| row.secrets_from.get(name) == Some(reference));
        // A text that is no reference is refused for what it is.
        let Ok((path, _)) = parse_reference(reference) else { continue };
        if !is_there && !caller.variable(body.namespace.as_str(), path, VarCap::Read) {
            return Err(denied(format!(
                "secret \"{name}\" needs the right to read variable \"{path}\" in namespace \"{}\"",
                body.namespace
            )));
        }
    }
    Ok(())
}

/// Returns the namespaces of the volumes that a plugin knows by an id.
pub(super) fn owners(root: &Root, plugin: &PluginId, external_id: &str) -> BTreeSet<Namespace> {
    let is = |row: &Volume| row.external_id == external_id || row.remote_id() == external_id;
    let rows = root.volumes_by_plugin(plugin).filter(|row| is(row));
    rows.map(|row| row.namespace.clone()).collect()
}

/// Whether a caller may do something with what a plugin knows by the id of a volume: in the namespace of that volume,
/// and only as management where there is no such volume.
pub(super) fn may_with(caller: &Caller, owners: &BTreeSet<Namespace>, caps: &[NsCap]) -> bool {
    let mut all = owners.iter();
    caller.is_management()
        || (!owners.is_empty() && all.all(|namespace| caller.acl.namespace_any(namespace.as_str(), caps)))
}

/// Refuses a copy of a volume that the caller may not write to.
pub(super) fn check_clone(caller: &Caller, root: &Root, body: &VolumeRequestBody) -> Result<(), ServerError> {
    let source = body.clone_id.as_str();
    if source.is_empty() {
        return Ok(());
    }
    let mut owners = owners(root, &body.plugin_id, source);
    if owners.is_empty() {
        // The caller's own volume may be named by its id here.
        let key = VolumeKey { namespace: body.namespace.clone(), id: VolumeId::new(source) };
        owners.extend(root.volume(&key).map(|row| row.namespace.clone()));
    }
    match may_with(caller, &owners, &[NsCap::CsiWriteVolume]) {
        true => Ok(()),
        false => Err(denied(format!("volume \"{source}\" is not the caller's to clone"))),
    }
}

/// The refusal of a snapshot whose source volume is not the caller's.
pub(super) fn not_own_snapshot(snapshot: &str) -> ServerError {
    denied(format!("the volume of snapshot \"{snapshot}\" is not the caller's, or is not known"))
}
