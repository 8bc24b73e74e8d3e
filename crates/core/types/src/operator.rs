//! Settings of operators for the whole region: scheduling, autopilot, root keys (docs/reference/http-api.md, section
//! 5.7).

use crate::blob::Blob;
use crate::duration::GoDuration;
use crate::time::{Nanos, UnixNanos};
use serde::{Deserialize, Serialize};

/// The rule by which the scheduler ranks nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerAlgorithm {
    /// Nodes are filled one after the other.
    #[default]
    Binpack,
    /// All nodes are used evenly.
    Spread,
}

impl SchedulerAlgorithm {
    /// Returns the name in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Binpack => "binpack",
            Self::Spread => "spread",
        }
    }
}

/// The kinds of jobs that may preempt allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
#[expect(clippy::struct_excessive_bools, reason = "the shape is given")]
pub struct PreemptionConfig {
    pub system_scheduler_enabled: bool,
    pub sys_batch_scheduler_enabled: bool,
    pub batch_scheduler_enabled: bool,
    pub service_scheduler_enabled: bool,
}

impl Default for PreemptionConfig {
    fn default() -> Self {
        Self {
            system_scheduler_enabled: true,
            sys_batch_scheduler_enabled: false,
            batch_scheduler_enabled: false,
            service_scheduler_enabled: false,
        }
    }
}

/// The settings of the scheduler in the region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct SchedulerConfig {
    pub scheduler_algorithm: SchedulerAlgorithm,
    pub preemption_config: PreemptionConfig,
    pub memory_oversubscription_enabled: bool,
    pub reject_job_registration: bool,
    pub pause_eval_broker: bool,
    pub node_limit_for_feasibility_checks: u64,
    pub create_index: u64,
    pub modify_index: u64,
}

/// The settings for the care of the set of servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
#[expect(clippy::struct_excessive_bools, reason = "the shape is given")]
pub struct AutopilotConfig {
    pub last_contact_threshold: GoDuration,
    pub server_stabilization_time: GoDuration,
    pub cleanup_dead_servers: bool,
    pub max_trailing_logs: u64,
    pub min_quorum: u64,
    pub enable_redundancy_zones: bool,
    pub disable_upgrade_migration: bool,
    pub enable_custom_upgrades: bool,
    pub create_index: u64,
    pub modify_index: u64,
}

impl Default for AutopilotConfig {
    fn default() -> Self {
        Self {
            last_contact_threshold: GoDuration(Nanos::from_millis(200)),
            server_stabilization_time: GoDuration(Nanos::from_secs(10)),
            cleanup_dead_servers: true,
            max_trailing_logs: 250,
            min_quorum: 0,
            enable_redundancy_zones: false,
            disable_upgrade_migration: false,
            enable_custom_upgrades: false,
            create_index: 1,
            modify_index: 1,
        }
    }
}

/// A root key without its secret part, which is sealed in a separate row ([`RootKeyMaterial`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct RootKeyMeta {
    #[serde(rename = "KeyID")]
    pub key_id: String,
    pub algorithm: String,
    pub state: RootKeyState,
    pub create_time: UnixNanos,
    pub publish_time: UnixNanos,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A root key and its key pair for signatures, sealed with the key of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootKeyMaterial {
    /// The id of the key.
    pub key_id: String,
    /// The nonce and the sealed bytes.
    pub sealed: Blob,
    /// Whether the key pair for signatures is among the sealed bytes.
    pub signs: bool,
}

/// The use of a root key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RootKeyState {
    /// The key seals new data and signs identities.
    #[default]
    Active,
    /// The key opens data that was sealed with it, and seals no new data.
    Inactive,
    /// As inactive. The data that the key sealed is being sealed again with the active key.
    Rekeying,
    /// The key becomes active at its publish time.
    Prepublished,
    /// The key is damaged.
    Deprecated,
}

impl RootKeyState {
    /// Returns the name in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Inactive => "inactive",
            Self::Rekeying => "rekeying",
            Self::Prepublished => "prepublished",
            Self::Deprecated => "deprecated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_recorded_ones() {
        let json = serde_json::to_value(SchedulerConfig::default()).unwrap();
        assert_eq!(json["SchedulerAlgorithm"], "binpack");
        assert_eq!(json["PreemptionConfig"]["SystemSchedulerEnabled"], true);
        assert_eq!(json["PreemptionConfig"]["SysBatchSchedulerEnabled"], false);
        assert_eq!(json.as_object().unwrap().len(), 8);
        let json = serde_json::to_value(AutopilotConfig::default()).unwrap();
        assert_eq!((&json["LastContactThreshold"], &json["MaxTrailingLogs"]), (&"200ms".into(), &250.into()));
        let json = serde_json::to_value(RootKeyMeta::default()).unwrap();
        assert_eq!((&json["State"], &json["KeyID"]), (&"active".into(), &"".into()));
    }
}
