//! Volume specifications: their validation, and their merge into an existing row. Pure.
//!
//! Rules and texts: docs/reference/storage.md, section 5.3.

use super::fault::{SpecProblem, UpdateFault, VolumeFault};
use crate::volume::expand;
use caravan_state::Root;
use caravan_types::component::check_component;
use caravan_types::job::MountOptions;
use caravan_types::plugin::Plugin;
use caravan_types::sealed::SealedSecrets;
use caravan_types::variable::parse_reference;
use caravan_types::volume::{Capacity, Claim, Volume, VolumePhase, VolumeRequestBody};
use caravan_types::{Namespace, UnixNanos, VolumeId, VolumeKey};

/// Refuses an invalid specification, with all of its problems. The sizes of a volume to create are checked at its
/// creation.
pub(super) fn validate(body: &VolumeRequestBody, create: bool) -> Result<(), VolumeFault> {
    let mut problems: Vec<SpecProblem> = Vec::new();
    if body.id.is_empty() {
        problems.push(SpecProblem::NoId);
    } else if let Err(error) = check_component("volume id", body.id.as_str()) {
        problems.push(error.into());
    }
    if body.plugin_id.is_empty() {
        problems.push(SpecProblem::NoPlugin);
    }
    if body.namespace.is_empty() {
        problems.push(SpecProblem::NoNamespace);
    } else if let Err(error) = check_component("namespace", body.namespace.as_str()) {
        problems.push(error.into());
    }
    if !body.clone_id.is_empty() && !body.snapshot_id.is_empty() {
        problems.push(SpecProblem::SnapshotAndClone);
    }
    if body.requested_capabilities.is_empty() {
        problems.push(SpecProblem::NoCapability);
    }
    for capability in &body.requested_capabilities {
        if capability.access_mode.as_str().is_empty() {
            problems.push(SpecProblem::NoAccessMode);
        } else if capability.access_mode.host_only() {
            problems.push(SpecProblem::UnknownAccessMode(capability.access_mode));
        }
        if capability.attachment_mode.as_str().is_empty() {
            problems.push(SpecProblem::NoAttachmentMode);
        }
        if body.shared_storage && capability.access_mode.can_write() {
            problems.push(SpecProblem::WritesShared(capability.access_mode));
        }
    }
    let topologies = body.requested_topologies.as_ref();
    if topologies.is_some_and(|t| t.required.iter().any(|t| t.segments.is_empty())) {
        problems.push(SpecProblem::EmptyRequiredTopology);
    }
    if topologies.is_some_and(|t| t.preferred.iter().any(|t| t.segments.is_empty())) {
        problems.push(SpecProblem::EmptyPreferredTopology);
    }
    for (name, reference) in &body.secrets_from {
        if let Err(cause) = parse_reference(reference) {
            problems.push(SpecProblem::Reference { secret: name.clone(), cause });
        }
        if body.secrets.expose().contains_key(name) {
            problems.push(SpecProblem::SecretTwice(name.clone()));
        }
    }
    let (min, max) = (body.requested_capacity_min, body.requested_capacity_max);
    if min < 0 || max < 0 {
        problems.push(SpecProblem::NegativeCapacity);
    } else if !create && max > 0 && max < min {
        problems.push(SpecProblem::MaxBelowMin { max, min });
    }
    if problems.is_empty() { Ok(()) } else { Err(VolumeFault::Invalid(problems)) }
}

/// Returns the mount options unless they are empty. A client that sends back the volume that it read sends empty
/// options, because the view of a volume always contains options.
fn options(options: Option<&MountOptions>) -> Option<&MountOptions> {
    options.filter(|options| !options.is_empty())
}

/// Returns the row of a new volume; `secrets` are the secrets of the specification.
pub(super) fn fresh(
    body: &VolumeRequestBody,
    secrets: SealedSecrets,
    plugin: &Plugin,
    phase: VolumePhase,
    now: UnixNanos,
) -> Volume {
    let topologies = if body.topologies.is_empty() && phase == VolumePhase::Ready {
        body.requested_topologies.as_ref().map(|t| t.required.clone()).unwrap_or_default()
    } else {
        body.topologies.clone()
    };
    // Without an external id, a registered volume has its id as external id.
    let external_id = if body.external_id.is_empty() && phase == VolumePhase::Ready {
        body.id.to_string()
    } else {
        body.external_id.clone()
    };
    Volume {
        namespace: body.namespace.clone(),
        id: body.id.clone(),
        name: if body.name.is_empty() { body.id.to_string() } else { body.name.clone() },
        external_id,
        plugin_id: body.plugin_id.clone(),
        provider: plugin.provider.clone(),
        provider_version: plugin.version.clone(),
        capacity: Capacity {
            requested_min: body.requested_capacity_min,
            requested_max: body.requested_capacity_max,
            ..Capacity::default()
        },
        context: body.context.clone(),
        parameters: body.parameters.clone(),
        secrets,
        secrets_from: body.secrets_from.clone(),
        topologies,
        requested_topologies: body.requested_topologies.clone(),
        requested_capabilities: body.requested_capabilities.clone(),
        mount_options: options(body.mount_options.as_ref()).cloned(),
        clone_id: body.clone_id.clone(),
        snapshot_id: body.snapshot_id.clone(),
        shared_storage: body.shared_storage,
        phase,
        create_time: now,
        modify_time: now,
        ..Volume::default()
    }
}

/// Returns the row after an update by a specification, or the reason of the refusal. `secrets` are the secrets of the
/// specification.
pub(super) fn merge(
    current: &Volume,
    body: &VolumeRequestBody,
    secrets: SealedSecrets,
    claims: &[&Claim],
) -> Result<Volume, UpdateFault> {
    for (field, supplied, have) in [
        ("name", body.name.as_str(), current.name.as_str()),
        ("external ID", &body.external_id, &current.external_id),
        ("clone ID", &body.clone_id, &current.clone_id),
        ("snapshot ID", &body.snapshot_id, &current.snapshot_id),
    ] {
        if !supplied.is_empty() && supplied != have {
            return Err(UpdateFault::Fixed(field));
        }
    }
    if body.plugin_id != current.plugin_id {
        return Err(UpdateFault::Fixed("plugin ID"));
    }
    if !body.parameters.is_empty() && body.parameters != current.parameters {
        return Err(UpdateFault::Fixed("parameters"));
    }
    let grown = expand::changed(current, body)?;
    let in_use = claims.iter().find(|c| c.phase.holds());
    if let Some(claim) = in_use {
        let kept = body
            .requested_capabilities
            .iter()
            .any(|c| c.access_mode == claim.access_mode && c.attachment_mode == claim.attachment_mode);
        if !kept {
            return Err(UpdateFault::CapabilityInUse);
        }
        let (asked, have) = (body.mount_options.as_ref(), current.mount_options.as_ref());
        if asked.is_some() && options(asked) != options(have) {
            return Err(UpdateFault::MountOptionsInUse);
        }
        if body.shared_storage != current.shared_storage {
            return Err(UpdateFault::SharingInUse);
        }
    }
    if !current.topologies.is_empty()
        && body.requested_topologies.is_some()
        && body.requested_topologies != current.requested_topologies
    {
        return Err(UpdateFault::Topology);
    }
    let mut merged = grown.unwrap_or_else(|| current.clone());
    merged.requested_capabilities.clone_from(&body.requested_capabilities);
    if body.mount_options.is_some() {
        merged.mount_options = options(body.mount_options.as_ref()).cloned();
    }
    // The state refuses a change that leaves two rows for one storage.
    merged.shared_storage = body.shared_storage;
    merged.secrets = secrets;
    merged.secrets_from.clone_from(&body.secrets_from);
    if !body.context.is_empty() {
        merged.context.clone_from(&body.context);
    }
    Ok(merged)
}

/// Returns the external id of the volume to clone, if the user named the volume by its Caravan id. Otherwise returns
/// an empty text, and the name is passed on unchanged.
///
/// Nomad passes every name on, so a name that is the external id of a registered volume means that volume.
pub(super) fn clone_source(root: &Root, volume: &Volume) -> Result<String, VolumeFault> {
    let name = volume.clone_id.as_str();
    if name.is_empty() || root.volumes_by_plugin(&volume.plugin_id).any(|v| v.external_id == name) {
        return Ok(String::new());
    }
    let key = VolumeKey { namespace: volume.namespace.clone(), id: VolumeId::new(name) };
    let Some(source) = root.volume(&key) else { return Ok(String::new()) };
    if source.plugin_id != volume.plugin_id {
        return Err(VolumeFault::CloneOfOtherPlugin {
            origin: name.to_owned(),
            actual: source.plugin_id.clone(),
            expected: volume.plugin_id.clone(),
        });
    }
    if !source.phase.is_usable() {
        return Err(VolumeFault::CloneUnusable { origin: name.to_owned(), phase: source.phase });
    }
    Ok(source.remote_id().to_owned())
}

/// Fills in the namespace of the request where the specification names none.
pub(super) fn localise(body: &mut VolumeRequestBody, namespace: &Namespace) {
    if body.namespace.is_empty() {
        body.namespace = namespace.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::volume::{AccessMode, AttachmentMode, Capability};

    fn body() -> VolumeRequestBody {
        VolumeRequestBody {
            id: "data".into(),
            namespace: "default".into(),
            plugin_id: "hostpath".into(),
            requested_capabilities: vec![Capability {
                access_mode: AccessMode::SingleNodeWriter,
                attachment_mode: AttachmentMode::FileSystem,
            }],
            ..Default::default()
        }
    }

    #[test]
    fn all_problems_are_named_at_once() {
        let error = validate(&VolumeRequestBody::default(), true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "validation: missing volume id, missing plugin id, missing namespace, must include at least one capability block"
        );
    }

    #[test]
    fn identity_cannot_be_updated() {
        let current =
            fresh(&body(), SealedSecrets::default(), &Plugin::default(), VolumePhase::Ready, UnixNanos(1));
        let other = VolumeRequestBody { plugin_id: "else".into(), ..body() };
        assert_eq!(
            merge(&current, &other, SealedSecrets::default(), &[])
                .map_err(VolumeFault::Reregister)
                .unwrap_err()
                .to_string(),
            "unable to update volume: volume plugin ID cannot be updated"
        );
        assert_eq!(merge(&current, &body(), SealedSecrets::default(), &[]).unwrap(), current);
    }

    #[test]
    fn sizes_are_judged_where_they_count() {
        let body = VolumeRequestBody { requested_capacity_min: 2, requested_capacity_max: 1, ..body() };
        assert!(validate(&body, true).is_ok());
        assert!(validate(&body, false).is_err());
    }

    #[test]
    fn ids_that_cannot_name_a_directory_are_refused_by_field() {
        let long = "x".repeat(256);
        for id in ["../x", ".", "..", "a\0b", &long] {
            let bad = VolumeRequestBody { id: id.into(), ..body() };
            let error = validate(&bad, true).unwrap_err().to_string();
            assert!(error.starts_with("validation: volume id ") && error.contains("cannot name a directory"));
            let bad = VolumeRequestBody { namespace: id.into(), ..body() };
            let error = validate(&bad, false).unwrap_err().to_string();
            assert!(error.starts_with("validation: namespace ") && error.contains("cannot name a directory"));
        }
        for id in ["data[0]", "a:b c", &long[..255]] {
            validate(&VolumeRequestBody { id: id.into(), ..body() }, true).unwrap();
        }
    }

    /// The page grows a volume in use by sending back the specification that it read.
    #[test]
    fn empty_mount_options_are_none() {
        let none = SealedSecrets::default;
        let new = |body: &VolumeRequestBody| {
            fresh(body, none(), &Plugin::default(), VolumePhase::Ready, UnixNanos(1))
        };
        let with = |options| VolumeRequestBody { mount_options: Some(options), ..body() };
        let (empty, ext4) =
            (MountOptions::default(), MountOptions { fs_type: "ext4".into(), ..Default::default() });
        let claim = Claim {
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
            ..Claim::default()
        };
        assert_eq!(new(&with(empty.clone())), new(&body()));
        let old = Volume { mount_options: Some(empty.clone()), ..new(&body()) };
        for current in [new(&body()), old] {
            let grown = VolumeRequestBody { requested_capacity_min: 9, ..with(empty.clone()) };
            assert_eq!(merge(&current, &grown, none(), &[&claim]).unwrap().capacity.requested_min, 9);
            let refused = merge(&current, &with(ext4.clone()), none(), &[&claim]).unwrap_err();
            assert!(matches!(refused, UpdateFault::MountOptionsInUse), "{refused}");
        }
        let current = new(&with(ext4.clone()));
        assert_eq!(merge(&current, &body(), none(), &[&claim]).unwrap(), current, "not mentioned");
        assert_eq!(merge(&current, &with(ext4), none(), &[&claim]).unwrap(), current);
        assert!(merge(&current, &with(empty.clone()), none(), &[&claim]).is_err(), "options would end");
        assert_eq!(merge(&current, &with(empty), none(), &[]).unwrap().mount_options, None);
    }

    /// Returns a specification of a volume that shares its storage.
    fn shares() -> VolumeRequestBody {
        let mut body = VolumeRequestBody { shared_storage: true, ..body() };
        body.requested_capabilities[0].access_mode = AccessMode::MultiNodeReaderOnly;
        body
    }

    #[test]
    fn storage_is_shared_for_reading_only() {
        validate(&shares(), false).unwrap();
        let writes = VolumeRequestBody { shared_storage: true, ..body() };
        let error = validate(&writes, false).unwrap_err().to_string();
        assert!(error.contains("CaravanSharedStorage") && error.contains("single-node-writer"), "{error}");
    }

    #[test]
    fn sharing_is_updated_while_nobody_uses_the_volume() {
        let none = SealedSecrets::default;
        let current = fresh(&shares(), none(), &Plugin::default(), VolumePhase::Ready, UnixNanos(1));
        assert!(current.shared_storage);
        let apart = VolumeRequestBody { shared_storage: false, ..shares() };
        assert!(!merge(&current, &apart, none(), &[]).unwrap().shared_storage);
        let claim = Claim {
            access_mode: AccessMode::MultiNodeReaderOnly,
            attachment_mode: AttachmentMode::FileSystem,
            ..Claim::default()
        };
        assert!(claim.phase.holds());
        let error = merge(&current, &apart, none(), &[&claim]).unwrap_err().to_string();
        assert!(error.contains("CaravanSharedStorage"), "{error}");
        assert_eq!(merge(&current, &shares(), none(), &[&claim]).unwrap(), current);
    }
}
