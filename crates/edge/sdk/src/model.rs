//! Types of answers that the servers do not share.

use caravan_types::device::DeviceGroupStats;
use caravan_types::ser::null_default;
use caravan_types::time::UnixNanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The resource usage of an allocation (docs/reference/http-api.md, section 5.7).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocUsage {
    /// The sum over all tasks.
    pub resource_usage: Option<ResourceUsage>,
    /// The usage by task name.
    #[serde(deserialize_with = "null_default")]
    pub tasks: BTreeMap<String, TaskUsage>,
    /// The time of the measurement.
    pub timestamp: UnixNanos,
}

/// The resource usage of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskUsage {
    /// The usage; absent if nothing was measured.
    pub resource_usage: Option<ResourceUsage>,
    /// The time of the measurement.
    pub timestamp: UnixNanos,
}

/// The memory and CPU time in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ResourceUsage {
    /// The memory in use; absent if not measured.
    pub memory_stats: Option<MemoryUsage>,
    /// The CPU time in use; absent if not measured.
    pub cpu_stats: Option<CpuUsage>,
    /// The devices in use.
    #[serde(deserialize_with = "null_default")]
    pub device_stats: Vec<DeviceGroupStats>,
}

/// The memory in use, in bytes. Only the fields that `measured` lists are valid.
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

/// The CPU time in use. Only the fields that `measured` lists are valid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct CpuUsage {
    pub system_mode: f64,
    pub user_mode: f64,
    /// The use in MHz.
    pub total_ticks: f64,
    pub percent: f64,
    pub throttled_periods: u64,
    pub throttled_time: u64,
    #[serde(deserialize_with = "null_default")]
    pub measured: Vec<String>,
}

/// The resource usage of a node's machine (docs/reference/http-api.md, section 5.7).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostStats {
    /// The memory of the machine.
    #[serde(deserialize_with = "null_default")]
    pub memory: HostMemory,
    /// The use of each CPU.
    #[serde(rename = "CPU", deserialize_with = "null_default")]
    pub cpu: Vec<HostCpu>,
    /// The use of each mounted disk.
    #[serde(deserialize_with = "null_default")]
    pub disk_stats: Vec<HostDisk>,
    /// The devices of plugins.
    #[serde(deserialize_with = "null_default")]
    pub device_stats: Vec<DeviceGroupStats>,
    /// The seconds since the machine started.
    pub uptime: u64,
    /// The CPU use in MHz.
    #[serde(rename = "CPUTicksConsumed")]
    pub cpu_ticks_consumed: f64,
}

/// The memory of a machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.7")]
pub struct HostMemory {
    pub total: u64,
    pub available: u64,
    pub used: u64,
    pub free: u64,
}

/// The use of one CPU, in percent.
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

/// The use of a mounted disk, in bytes and percent.
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
