//! `Debug` for messages with secrets or mount flags, which the specification calls potentially sensitive
//! ("VolumeCapability"), and for messages with the environment or configuration of tasks. The output is only the
//! message's name.

use crate::csi;
use crate::plugins::{base, device, driver};
use std::fmt;

macro_rules! redacted {
    ($($message:path),+ $(,)?) => {$(
        impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($message), " { .. }"))
            }
        }
    )+};
}

redacted!(
    csi::CreateVolumeRequest,
    csi::DeleteVolumeRequest,
    csi::ControllerPublishVolumeRequest,
    csi::ControllerUnpublishVolumeRequest,
    csi::ValidateVolumeCapabilitiesRequest,
    csi::ControllerModifyVolumeRequest,
    csi::CreateSnapshotRequest,
    csi::DeleteSnapshotRequest,
    csi::ListSnapshotsRequest,
    csi::GetSnapshotRequest,
    csi::ControllerExpandVolumeRequest,
    csi::NodeStageVolumeRequest,
    csi::NodePublishVolumeRequest,
    csi::NodeExpandVolumeRequest,
    csi::CreateVolumeGroupSnapshotRequest,
    csi::DeleteVolumeGroupSnapshotRequest,
    csi::GetVolumeGroupSnapshotRequest,
    csi::volume_capability::MountVolume,
    base::SetConfigRequest,
    device::ContainerReservation,
    driver::ExecTaskResponse,
    driver::ExecTaskStreamingIoOperation,
    driver::TaskConfig,
    driver::TaskHandle,
);

#[cfg(test)]
mod tests {
    use super::csi;

    #[test]
    fn debug_of_a_request_shows_neither_secrets_nor_mount_flags() {
        let request = csi::NodeStageVolumeRequest {
            secrets: [("password".to_owned(), "hunter2".to_owned())].into(),
            ..Default::default()
        };
        assert!(!format!("{request:?}").contains("hunter2"));

        let capability = csi::VolumeCapability {
            access_type: Some(csi::volume_capability::AccessType::Mount(
                csi::volume_capability::MountVolume {
                    mount_flags: vec!["password=hunter2".to_owned()],
                    ..Default::default()
                },
            )),
            access_mode: None,
        };
        assert!(!format!("{capability:?}").contains("hunter2"));
    }
}
