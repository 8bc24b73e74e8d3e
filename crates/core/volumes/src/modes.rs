//! Concurrent use of volumes: the one place where a claim is granted or refused.
//!
//! The rules are those of the access modes (CSI specification, `VolumeCapability.AccessMode`) with the limits that
//! Nomad's clients expect (docs/reference/storage.md, section 5.4). Two rules are missing in Nomad: the requested
//! modes must be among the registered ones, and single-node modes keep all claims on one node.

use caravan_types::eval::WaitsFor;
use caravan_types::volume::{
    AccessMode, AttachmentMode, Capability, Claim, ClaimMode, ClaimPhase, Volume, VolumePhase,
};
use caravan_types::{AllocId, NodeId, VolumeKey};

/// The reason that a claim is not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// The volume is being created or deleted.
    #[error("volume is currently unschedulable: volume {:?} is being {}", volume.id.as_str(), phase_word(*phase))]
    NotReady {
        /// The volume that is not ready.
        volume: VolumeKey,
        /// The current phase of the volume.
        phase: VolumePhase,
    },
    /// The requested modes were not registered.
    #[error("volume {:?} cannot be used as {requested}: it was registered for {registered}", volume.id.as_str())]
    NotCapable {
        /// The volume with other modes.
        volume: VolumeKey,
        /// The requested modes, as text.
        requested: String,
        /// The registered modes, as text.
        registered: String,
    },
    /// The request writes with a read-only access mode.
    #[error("volume {:?} cannot be written with access mode {mode}", volume.id.as_str())]
    ReadOnlyMode {
        /// The volume of the request.
        volume: VolumeKey,
        /// The requested access mode.
        mode: AccessMode,
    },
    /// The storage is registered as shared, so the volume is read-only.
    #[error(
        "volume {:?} shares its storage with others (CaravanSharedStorage) and can only be read, with a mode that only reads",
        volume.id.as_str()
    )]
    SharedStorage {
        /// The volume on shared storage.
        volume: VolumeKey,
    },
    /// An older volume stands for the same storage. The message does not name it, because the user may not be allowed
    /// to see it.
    #[error(
        "volume {:?} stands for the same storage as another volume that was registered before it: deregister one of them",
        volume.id.as_str()
    )]
    SameStorage {
        /// The newer volume.
        volume: VolumeKey,
    },
    /// The volume is in use with another attachment mode.
    #[error(
        "cannot change attachment mode of claimed volume: volume {:?} is used as {} by allocation {}",
        volume.id.as_str(), held_as, holder.short()
    )]
    AttachmentMode {
        /// The volume in use.
        volume: VolumeKey,
        /// The attachment mode of the existing claim.
        held_as: AttachmentMode,
        /// The allocation of the existing claim.
        holder: AllocId,
    },
    /// The modes allow no further claim.
    #[error(
        "volume max claims reached: volume {:?} is held by allocation {} ({}, access mode {mode})",
        volume.id.as_str(), holder.short(), phase.as_str()
    )]
    MaxClaims {
        /// The volume in use.
        volume: VolumeKey,
        /// The allocation of a conflicting claim.
        holder: AllocId,
        /// The phase of the conflicting claim.
        phase: ClaimPhase,
        /// The access mode that sets the limit.
        mode: AccessMode,
    },
    /// The volume is in use on another node, and the modes allow only one node.
    #[error(
        "volume max claims reached: volume {:?} is held on node {} by allocation {} ({}, access mode {mode})",
        volume.id.as_str(), node.short(), holder.short(), phase.as_str()
    )]
    OtherNode {
        /// The volume in use.
        volume: VolumeKey,
        /// The node of the conflicting claim.
        node: NodeId,
        /// The allocation of the conflicting claim.
        holder: AllocId,
        /// The phase of the conflicting claim.
        phase: ClaimPhase,
        /// The access mode that sets the limit.
        mode: AccessMode,
    },
}

fn phase_word(phase: VolumePhase) -> &'static str {
    match phase {
        VolumePhase::Creating => "created",
        VolumePhase::Ready | VolumePhase::Expanding => "used",
        VolumePhase::Deleting => "deleted",
    }
}

impl AdmitError {
    /// Returns the event that may help: the end of another claim, or the volume's creation or new registration.
    pub fn waits_for(&self) -> Option<WaitsFor> {
        match self {
            Self::NotReady { volume, .. } => Some(WaitsFor::Volume(volume.clone())),
            Self::AttachmentMode { volume, .. }
            | Self::MaxClaims { volume, .. }
            | Self::OtherNode { volume, .. } => Some(WaitsFor::Claim(volume.clone())),
            // Only a new registration of the volume with other capabilities helps.
            Self::NotCapable { volume, .. }
            | Self::ReadOnlyMode { volume, .. }
            | Self::SharedStorage { volume }
            | Self::SameStorage { volume } => Some(WaitsFor::Volume(volume.clone())),
        }
    }

    /// Returns the allocation whose claim conflicts, or `None` if no claim conflicts.
    pub fn holder(&self) -> Option<&AllocId> {
        match self {
            Self::AttachmentMode { holder, .. }
            | Self::MaxClaims { holder, .. }
            | Self::OtherNode { holder, .. } => Some(holder),
            _ => None,
        }
    }
}

/// Returns the modes as text for users.
fn words(attachment: AttachmentMode, access: AccessMode) -> String {
    let or_none = |text: &'static str| if text.is_empty() { "(none)" } else { text };
    format!("{} with access mode {}", or_none(attachment.as_str()), or_none(access.as_str()))
}

/// Checks whether the volume can be used in these modes at all. The volume must be ready, the pair of modes must be
/// registered, and a read-only mode must not be used for writing. A volume without registered capabilities accepts
/// any modes.
pub fn capable(
    volume: &Volume,
    mode: ClaimMode,
    access: AccessMode,
    attachment: AttachmentMode,
) -> Result<(), AdmitError> {
    if !volume.phase.is_usable() {
        return Err(AdmitError::NotReady { volume: volume.key(), phase: volume.phase });
    }
    let desired = Capability { attachment_mode: attachment, access_mode: access };
    if !volume.requested_capabilities.is_empty() && !volume.requested_capabilities.contains(&desired) {
        let registered: Vec<_> =
            volume.requested_capabilities.iter().map(|c| words(c.attachment_mode, c.access_mode)).collect();
        return Err(AdmitError::NotCapable {
            volume: volume.key(),
            requested: words(attachment, access),
            registered: registered.join(", "),
        });
    }
    if volume.shared_storage && (mode == ClaimMode::Write || access.can_write()) {
        return Err(AdmitError::SharedStorage { volume: volume.key() });
    }
    if mode == ClaimMode::Write && !access.can_write() {
        return Err(AdmitError::ReadOnlyMode { volume: volume.key(), mode: access });
    }
    Ok(())
}

/// Returns the volume that owns the storage, if another volume owns it. If some volumes on one storage are not
/// registered as shared, the oldest volume owns it.
pub fn owner<'a>(volume: &Volume, twins: &[&'a Volume]) -> Option<&'a Volume> {
    let age = |volume: &Volume| (volume.create_index, volume.key());
    let before = twins.iter().copied().filter(|twin| age(twin) < age(volume));
    before.filter(|twin| !(volume.shares_storage() && twin.shares_storage())).min_by_key(|twin| age(twin))
}

/// Checks whether a volume may be used together with the other volumes on its storage.
pub fn sole(volume: &Volume, twins: &[&Volume]) -> Result<(), AdmitError> {
    match owner(volume, twins) {
        None => Ok(()),
        Some(_) => Err(AdmitError::SameStorage { volume: volume.key() }),
    }
}

/// Checks whether a claim is compatible with the existing claims, including claims of other volumes on the same
/// storage. Claims that are gone and the allocation's own claim do not count.
pub fn admit(volume: &Volume, existing: &[&Claim], new: &Claim) -> Result<(), AdmitError> {
    capable(volume, new.mode, new.access_mode, new.attachment_mode)?;
    let others = existing.iter().filter(|c| c.phase.holds() && c.id != new.id);
    for other in others.clone() {
        if other.attachment_mode != new.attachment_mode {
            return Err(AdmitError::AttachmentMode {
                volume: volume.key(),
                held_as: other.attachment_mode,
                holder: other.id.alloc.clone(),
            });
        }
        let modes = [other.access_mode, new.access_mode];
        if other.node_id != new.node_id
            && let Some(mode) = modes.into_iter().find(|mode| mode.single_node())
        {
            return Err(AdmitError::OtherNode {
                volume: volume.key(),
                node: other.node_id.clone(),
                holder: other.id.alloc.clone(),
                phase: other.phase,
                mode,
            });
        }
        if let Some(mode) = modes.into_iter().find(|mode| excludes(*mode, new.mode, other.mode)) {
            return Err(AdmitError::MaxClaims {
                volume: volume.key(),
                holder: other.id.alloc.clone(),
                phase: other.phase,
                mode,
            });
        }
    }
    // The claims have different modes: the writer limit of one claim binds the other claims too.
    let strict = others.clone().map(|c| c.access_mode).chain([new.access_mode]).find(|m| m.single_writer());
    let writing = usize::from(new.mode == ClaimMode::Write);
    let mut writers = others.filter(|c| c.mode == ClaimMode::Write);
    if let (Some(mode), Some(holder)) = (strict, writers.next())
        && writing + 1 + writers.count() > 1
    {
        return Err(AdmitError::MaxClaims {
            volume: volume.key(),
            holder: holder.id.alloc.clone(),
            phase: holder.phase,
            mode,
        });
    }
    Ok(())
}

/// Returns whether an access mode excludes a new claim from a volume with another claim.
fn excludes(mode: AccessMode, new: ClaimMode, other: ClaimMode) -> bool {
    match (mode, new) {
        (AccessMode::SingleNodeReaderOnly, _) => true,
        // There is one reader or one writer, but a writer may join existing readers.
        (AccessMode::SingleNodeWriter, ClaimMode::Read) => true,
        (AccessMode::SingleNodeWriter | AccessMode::MultiNodeSingleWriter, ClaimMode::Write) => {
            other == ClaimMode::Write
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::volume::ClaimId;
    use proptest::prelude::*;

    const MODES: [AccessMode; 5] = [
        AccessMode::SingleNodeReaderOnly,
        AccessMode::SingleNodeWriter,
        AccessMode::MultiNodeReaderOnly,
        AccessMode::MultiNodeSingleWriter,
        AccessMode::MultiNodeMultiWriter,
    ];

    fn volume(modes: &[AccessMode]) -> Volume {
        Volume {
            namespace: "default".into(),
            id: "data".into(),
            requested_capabilities: modes
                .iter()
                .map(|mode| Capability { attachment_mode: AttachmentMode::FileSystem, access_mode: *mode })
                .collect(),
            ..Volume::default()
        }
    }

    fn claim(alloc: &str, node: &str, access_mode: AccessMode, mode: ClaimMode) -> Claim {
        Claim {
            id: ClaimId { volume: VolumeKey::new("default", "data"), alloc: alloc.into() },
            node_id: node.into(),
            access_mode,
            mode,
            attachment_mode: AttachmentMode::FileSystem,
            phase: ClaimPhase::Mounted,
            ..Claim::default()
        }
    }

    fn second(access: AccessMode, first: ClaimMode, new: ClaimMode, node: &str) -> bool {
        let held = claim("a", "n1", access, first);
        admit(&volume(&[access]), &[&held], &claim("b", node, access, new)).is_ok()
    }

    #[test]
    fn limits_of_each_mode() {
        use AccessMode as M;
        use ClaimMode::{Read, Write};
        for (mode, first, new, same_node, other_node) in [
            (M::SingleNodeReaderOnly, Read, Read, false, false),
            (M::SingleNodeWriter, Write, Write, false, false),
            (M::SingleNodeWriter, Write, Read, false, false),
            (M::SingleNodeWriter, Read, Read, false, false),
            (M::SingleNodeWriter, Read, Write, true, false),
            (M::MultiNodeReaderOnly, Read, Read, true, true),
            (M::MultiNodeReaderOnly, Read, Write, false, false),
            (M::MultiNodeSingleWriter, Write, Write, false, false),
            (M::MultiNodeSingleWriter, Write, Read, true, true),
            (M::MultiNodeSingleWriter, Read, Write, true, true),
            (M::MultiNodeMultiWriter, Write, Write, true, true),
        ] {
            assert_eq!(second(mode, first, new, "n1"), same_node, "{mode} {first:?} {new:?} same node");
            assert_eq!(second(mode, first, new, "n2"), other_node, "{mode} {first:?} {new:?} other node");
        }
    }

    #[test]
    fn a_second_writer_hears_who_holds_the_volume_and_that_waiting_helps() {
        let mode = AccessMode::SingleNodeWriter;
        let held = claim("0123456789", "n1", mode, ClaimMode::Write);
        let new = claim("b", "n1", mode, ClaimMode::Write);
        let error = admit(&volume(&[mode]), &[&held], &new).unwrap_err();
        assert_eq!(
            error.to_string(),
            "volume max claims reached: volume \"data\" is held by allocation 01234567 (mounted, access \
             mode single-node-writer)"
        );
        assert_eq!(error.waits_for(), Some(WaitsFor::Claim(VolumeKey::new("default", "data"))));
        assert_eq!(error.holder().map(AllocId::as_str), Some("0123456789"));
        let gone = Claim { phase: ClaimPhase::Gone, ..held };
        assert_eq!(admit(&volume(&[mode]), &[&gone], &new), Ok(()));
    }

    #[test]
    fn modes_that_were_not_registered_wait_for_the_volume_to_be_registered_anew() {
        let error = admit(
            &volume(&[AccessMode::SingleNodeWriter]),
            &[],
            &claim("b", "n", AccessMode::MultiNodeMultiWriter, ClaimMode::Write),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "volume \"data\" cannot be used as file-system with access mode multi-node-multi-writer: it \
             was registered for file-system with access mode single-node-writer"
        );
        assert!(matches!(error.waits_for(), Some(WaitsFor::Volume(_))));
        let block = Claim {
            attachment_mode: AttachmentMode::BlockDevice,
            ..claim("b", "n", AccessMode::SingleNodeWriter, ClaimMode::Write)
        };
        assert!(admit(&volume(&[AccessMode::SingleNodeWriter]), &[], &block).is_err());
    }

    #[test]
    fn attachment_mode_does_not_change_while_claimed() {
        let mode = AccessMode::MultiNodeMultiWriter;
        let held = claim("a", "n", mode, ClaimMode::Write);
        let new =
            Claim { attachment_mode: AttachmentMode::BlockDevice, ..claim("b", "n", mode, ClaimMode::Write) };
        let error = admit(&volume(&[]), &[&held], &new).unwrap_err();
        assert!(error.to_string().starts_with("cannot change attachment mode of claimed volume"));
    }

    #[test]
    fn of_two_rows_on_one_storage_the_older_one_is_used() {
        let row = |id: &str, created, modes: &[AccessMode], shared_storage| Volume {
            id: id.into(),
            create_index: created,
            shared_storage,
            ..volume(modes)
        };
        let writes = [AccessMode::SingleNodeWriter];
        let (old, new) = (row("old", 1, &writes, false), row("new", 2, &writes, false));
        assert_eq!((sole(&old, &[&new]), sole(&new, &[])), (Ok(()), Ok(())));
        let error = sole(&new, &[&old]).unwrap_err();
        assert!(error.to_string().contains("the same storage as another volume"), "{error}");
        assert!(!error.to_string().contains("old"), "it may be somebody else's");
        assert!(matches!(error.waits_for(), Some(WaitsFor::Volume(key)) if key.id == "new"));
        // Both volumes are registered as shared, for reading only.
        let reads = [AccessMode::MultiNodeReaderOnly];
        let (old, new) = (row("old", 1, &reads, true), row("new", 2, &reads, true));
        assert_eq!(sole(&new, &[&old]), Ok(()));
        for (one, other) in [
            (row("old", 1, &reads, false), row("new", 2, &reads, true)),
            (row("old", 1, &reads, true), row("new", 2, &reads, false)),
            (row("old", 1, &writes, true), row("new", 2, &reads, true)),
        ] {
            assert!(sole(&other, &[&one]).is_err(), "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_is_shared_knowingly_is_never_written() {
        let both = Volume {
            shared_storage: true,
            ..volume(&[AccessMode::MultiNodeReaderOnly, AccessMode::MultiNodeMultiWriter])
        };
        let try_as = |access, mode| admit(&both, &[], &claim("a", "n", access, mode));
        assert_eq!(try_as(AccessMode::MultiNodeReaderOnly, ClaimMode::Read), Ok(()));
        for (access, mode) in [
            (AccessMode::MultiNodeMultiWriter, ClaimMode::Write),
            (AccessMode::MultiNodeMultiWriter, ClaimMode::Read),
            (AccessMode::MultiNodeReaderOnly, ClaimMode::Write),
        ] {
            let error = try_as(access, mode).unwrap_err();
            assert!(error.to_string().contains("CaravanSharedStorage"), "{error}");
        }
    }

    #[test]
    fn volumes_that_are_not_ready_are_not_claimed() {
        let creating = Volume { phase: VolumePhase::Creating, ..volume(&[]) };
        let new = claim("b", "n", AccessMode::SingleNodeWriter, ClaimMode::Write);
        let error = admit(&creating, &[], &new).unwrap_err();
        assert_eq!(error.to_string(), "volume is currently unschedulable: volume \"data\" is being created");
        assert!(matches!(error.waits_for(), Some(WaitsFor::Volume(_))));
    }

    proptest! {
        /// Granting claims in sequence never yields two writers or two nodes if only one is allowed, for all modes of
        /// the claims.
        #[test]
        fn granted_claims_respect_every_mode(
            wishes in prop::collection::vec((0_usize..5, 0_usize..3, any::<bool>()), 1..12)
        ) {
            let volume = volume(&MODES);
            let mut granted: Vec<Claim> = Vec::new();
            for (n, (mode, node, write)) in wishes.into_iter().enumerate() {
                let kind = if write { ClaimMode::Write } else { ClaimMode::Read };
                let new = claim(&format!("a{n}"), &format!("n{node}"), MODES[mode], kind);
                let existing: Vec<&Claim> = granted.iter().collect();
                if admit(&volume, &existing, &new).is_ok() {
                    granted.push(new);
                }
            }
            for claim in &granted {
                if claim.access_mode.single_node() {
                    prop_assert!(granted.iter().all(|c| c.node_id == claim.node_id));
                }
                if claim.access_mode.single_writer() {
                    prop_assert!(granted.iter().filter(|c| c.mode == ClaimMode::Write).count() <= 1);
                }
                prop_assert!(claim.mode == ClaimMode::Read || claim.access_mode.can_write());
            }
        }
    }
}
