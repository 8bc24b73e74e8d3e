//! Shapes that only clients know.

use caravan_types::ser::null_default;
use caravan_types::time::UnixNanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an allocation uses (docs/reference/http-api.md, section 5.7).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocUsage {
    /// All tasks together.
    pub resource_usage: Option<ResourceUsage>,
    /// By task.
    #[serde(deserialize_with = "null_default")]
    pub tasks: BTreeMap<String, TaskUsage>,
    /// When it was measured.
    pub timestamp: UnixNanos,
}

/// What a task uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskUsage {
    /// Usage.
    pub resource_usage: Option<ResourceUsage>,
    /// When it was measured.
    pub timestamp: UnixNanos,
}

/// Memory and processor time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ResourceUsage {
    /// Memory.
    pub memory_stats: Option<MemoryUsage>,
    /// Processor time.
    pub cpu_stats: Option<CpuUsage>,
}

/// Memory in bytes; only what `measured` lists counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct MemoryUsage {
    #[serde(rename = "RSS")]
    pub rss: u64,
    pub cache: u64,
    pub swap: u64,
    pub mapped_file: u64,
    pub usage: u64,
    pub max_usage: u64,
    pub kernel_usage: u64,
    pub kernel_max_usage: u64,
    #[serde(deserialize_with = "null_default")]
    pub measured: Vec<String>,
}

/// Processor time; only what `measured` lists counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct CpuUsage {
    pub system_mode: f64,
    pub user_mode: f64,
    /// MHz.
    pub total_ticks: f64,
    pub percent: f64,
    pub throttled_periods: u64,
    pub throttled_time: u64,
    #[serde(deserialize_with = "null_default")]
    pub measured: Vec<String>,
}

/// What a machine uses (docs/reference/http-api.md, section 5.7).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostStats {
    /// Memory.
    #[serde(deserialize_with = "null_default")]
    pub memory: HostMemory,
    /// By processor.
    #[serde(rename = "CPU", deserialize_with = "null_default")]
    pub cpu: Vec<HostCpu>,
    /// By mount.
    #[serde(deserialize_with = "null_default")]
    pub disk_stats: Vec<HostDisk>,
    /// Seconds since the machine started.
    pub uptime: u64,
    /// MHz in use.
    #[serde(rename = "CPUTicksConsumed")]
    pub cpu_ticks_consumed: f64,
}

/// Memory of a machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct HostMemory {
    pub total: u64,
    pub available: u64,
    pub used: u64,
    pub free: u64,
}

/// A processor, in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct HostCpu {
    #[serde(rename = "CPU")]
    pub cpu: String,
    pub user: f64,
    pub system: f64,
    pub idle: f64,
}

/// A mounted disk, in bytes and percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct HostDisk {
    pub device: String,
    pub mountpoint: String,
    pub size: u64,
    pub used: u64,
    pub available: u64,
    pub used_percent: f64,
    pub inodes_used_percent: f64,
}
