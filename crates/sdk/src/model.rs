//! Shapes that only clients know.

use caravan_types::ser::null_default;
use caravan_types::time::UnixNanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an allocation uses (`http-api` section 5.7).
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
#[expect(missing_docs, reason = "fields are those of http-api section 5.7")]
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
#[expect(missing_docs, reason = "fields are those of http-api section 5.7")]
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
