//! The used space and the condition of a volume (CSI, `NodeGetVolumeStats`).

use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};

/// The used space and the condition of a volume on one node. A number is 0 if the plugin did not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "bytes and inodes, each total, used and available")]
pub struct VolumeUsage {
    pub total_bytes: i64,
    pub used_bytes: i64,
    pub available_bytes: i64,
    pub total_inodes: i64,
    pub used_inodes: i64,
    pub available_inodes: i64,
    /// The health that the plugin reports; `None` if it reports none.
    pub condition: Option<VolumeCondition>,
    /// The time of the node's call.
    pub sampled_at: UnixNanos,
}

/// The condition of a volume (CSI, `VolumeCondition`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeCondition {
    /// Whether the volume has a problem.
    pub abnormal: bool,
    /// The plugin's message.
    pub message: String,
}
