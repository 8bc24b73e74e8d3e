//! Conversions between the structs of this crate and the messages on the wire.

use crate::{
    AccessMode, AttachmentMode, Call, CapacityRange, ContentSource, CreatedVolume, CsiError, ListedVolume,
    Segments, Snapshot, TopologyRequirement, Usage, VolumeCapability, VolumeCondition,
};
use caravan_proto::csi;
use std::{path::Path, time::Duration};

pub(crate) fn capability(from: VolumeCapability) -> csi::VolumeCapability {
    use csi::volume_capability as wire;
    let mode = match from.access_mode {
        AccessMode::SingleNodeReaderOnly => wire::access_mode::Mode::SingleNodeReaderOnly,
        AccessMode::SingleNodeWriter => wire::access_mode::Mode::SingleNodeWriter,
        AccessMode::MultiNodeReaderOnly => wire::access_mode::Mode::MultiNodeReaderOnly,
        AccessMode::MultiNodeSingleWriter => wire::access_mode::Mode::MultiNodeSingleWriter,
        AccessMode::MultiNodeMultiWriter => wire::access_mode::Mode::MultiNodeMultiWriter,
    };
    let access_type = match from.attachment_mode {
        AttachmentMode::BlockDevice => wire::AccessType::Block(wire::BlockVolume {}),
        AttachmentMode::FileSystem => wire::AccessType::Mount(wire::MountVolume {
            fs_type: from.mount.fs_type,
            mount_flags: from.mount.mount_flags.0,
            volume_mount_group: from.mount.volume_mount_group,
        }),
    };
    csi::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(wire::AccessMode { mode: mode.into() }),
    }
}

pub(crate) fn capabilities(from: Vec<VolumeCapability>) -> Vec<csi::VolumeCapability> {
    from.into_iter().map(capability).collect()
}

/// Converts byte counts to the signed numbers of the interface.
pub(crate) fn capacity_range(call: Call, from: CapacityRange) -> Result<csi::CapacityRange, CsiError> {
    let signed = |bytes: u64| {
        i64::try_from(bytes).map_err(|_| CsiError::Request {
            call,
            problem: format!("a size of {bytes} bytes is more than the interface can say"),
        })
    };
    Ok(csi::CapacityRange {
        required_bytes: signed(from.required_bytes)?,
        limit_bytes: signed(from.limit_bytes)?,
    })
}

/// Converts a byte count from the wire. Negative numbers violate the specification and count as 0, "not known".
pub(crate) fn unsigned(from: i64) -> u64 {
    u64::try_from(from).unwrap_or(0)
}

pub(crate) fn path(call: Call, from: &Path) -> Result<String, CsiError> {
    from.to_str().map(str::to_owned).ok_or_else(|| CsiError::Request {
        call,
        problem: format!("the path {} is not UTF-8", from.display()),
    })
}

pub(crate) fn optional_path(call: Call, from: Option<&Path>) -> Result<String, CsiError> {
    from.map_or_else(|| Ok(String::new()), |from| path(call, from))
}

pub(crate) fn topology(segments: Segments) -> csi::Topology {
    csi::Topology { segments }
}

pub(crate) fn topology_requirement(from: TopologyRequirement) -> csi::TopologyRequirement {
    csi::TopologyRequirement {
        requisite: from.requisite.into_iter().map(topology).collect(),
        preferred: from.preferred.into_iter().map(topology).collect(),
    }
}

pub(crate) fn content_source(from: ContentSource) -> csi::VolumeContentSource {
    use csi::volume_content_source as wire;
    let from = match from {
        ContentSource::Snapshot(snapshot_id) => wire::Type::Snapshot(wire::SnapshotSource { snapshot_id }),
        ContentSource::Volume(volume_id) => wire::Type::Volume(wire::VolumeSource { volume_id }),
    };
    csi::VolumeContentSource { r#type: Some(from) }
}

fn source_of(from: csi::VolumeContentSource) -> Option<ContentSource> {
    use csi::volume_content_source::Type;
    from.r#type.map(|from| match from {
        Type::Snapshot(from) => ContentSource::Snapshot(from.snapshot_id),
        Type::Volume(from) => ContentSource::Volume(from.volume_id),
    })
}

pub(crate) fn volume(call: Call, from: Option<csi::Volume>) -> Result<CreatedVolume, CsiError> {
    let from = from.ok_or(CsiError::Malformed { call, field: "volume" })?;
    if from.volume_id.is_empty() {
        return Err(CsiError::Malformed { call, field: "volume.volume_id" });
    }
    Ok(CreatedVolume {
        volume_id: from.volume_id,
        capacity_bytes: unsigned(from.capacity_bytes),
        context: from.volume_context,
        content_source: from.content_source.and_then(source_of),
        accessible_topology: from.accessible_topology.into_iter().map(|topology| topology.segments).collect(),
    })
}

pub(crate) fn condition(from: csi::VolumeCondition) -> VolumeCondition {
    VolumeCondition { abnormal: from.abnormal, message: from.message }
}

pub(crate) fn listed(call: Call, from: csi::list_volumes_response::Entry) -> Result<ListedVolume, CsiError> {
    let status = from.status.unwrap_or_default();
    Ok(ListedVolume {
        volume: volume(call, from.volume)?,
        published_node_ids: status.published_node_ids,
        condition: status.volume_condition.map(condition),
    })
}

pub(crate) fn snapshot(call: Call, from: Option<csi::Snapshot>) -> Result<Snapshot, CsiError> {
    let from = from.ok_or(CsiError::Malformed { call, field: "snapshot" })?;
    if from.snapshot_id.is_empty() {
        return Err(CsiError::Malformed { call, field: "snapshot.snapshot_id" });
    }
    let created = from.creation_time.and_then(|time| {
        let seconds = u64::try_from(time.seconds).ok()?;
        let nanoseconds = u32::try_from(time.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
        Some(Duration::new(seconds, nanoseconds))
    });
    Ok(Snapshot {
        snapshot_id: from.snapshot_id,
        source_volume_id: from.source_volume_id,
        size_bytes: unsigned(from.size_bytes),
        created,
        ready_to_use: from.ready_to_use,
    })
}

pub(crate) fn usage(from: &csi::VolumeUsage) -> Usage {
    Usage { available: unsigned(from.available), total: unsigned(from.total), used: unsigned(from.used) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MountFlags, MountOptions};

    #[test]
    fn a_device_is_sent_without_mount_options() {
        let mut from = VolumeCapability::block_device(AccessMode::SingleNodeWriter);
        from.mount = MountOptions {
            fs_type: "ext4".to_owned(),
            mount_flags: MountFlags(vec!["ro".to_owned()]),
            volume_mount_group: "1000".to_owned(),
        };
        let wire = capability(from);
        assert_eq!(
            wire.access_type,
            Some(csi::volume_capability::AccessType::Block(csi::volume_capability::BlockVolume {}))
        );
        assert_eq!(wire.access_mode.map(|mode| mode.mode), Some(1));
    }

    #[test]
    fn the_mount_group_is_sent_with_a_mount() {
        let mut from = VolumeCapability::file_system(AccessMode::SingleNodeWriter);
        from.mount.volume_mount_group = "1000".to_owned();
        let Some(csi::volume_capability::AccessType::Mount(mount)) = capability(from).access_type else {
            panic!("it is a mount");
        };
        assert_eq!(mount.volume_mount_group, "1000");
    }

    #[test]
    fn access_modes_have_the_numbers_of_the_specification() {
        let numbers = AccessMode::ALL.map(|mode| {
            capability(VolumeCapability::file_system(mode)).access_mode.map_or(0, |mode| mode.mode)
        });
        assert_eq!(numbers, [2, 1, 3, 4, 5]);
    }

    #[test]
    fn an_oversized_capacity_is_refused_before_the_call() {
        let range = CapacityRange { required_bytes: u64::MAX, limit_bytes: 0 };
        let error = capacity_range(Call::CreateVolume, range).expect_err("more than i64 can hold");
        assert!(!error.outcome_unknown());
        assert!(error.to_string().starts_with("CreateVolume cannot be sent: a size of"));
    }

    #[test]
    fn an_answer_without_a_volume_is_malformed() {
        let error = volume(Call::CreateVolume, None).expect_err("there is no volume");
        assert_eq!(error.to_string(), "CreateVolume was answered without a usable volume");
    }
}
