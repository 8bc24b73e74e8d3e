//! How full a volume is (CSI, `NodeGetVolumeStats`).

use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};

/// Fill and condition of a volume as one node sees it. A number is 0 where the plugin did not tell it.
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
    /// The plugin's word about its health; none if it does not tell.
    pub condition: Option<VolumeCondition>,
    /// When the node asked.
    pub sampled_at: UnixNanos,
}

/// The condition of a volume (CSI, `VolumeCondition`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeCondition {
    /// Something is wrong.
    pub abnormal: bool,
    /// The plugin's words.
    pub message: String,
}
