//! Measurements of tasks.

use super::convert::time;
use caravan_proto::plugins::driver as wire;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Measurements of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskStats {
    /// The time of the measurement.
    pub at: SystemTime,
    /// All processes together.
    pub total: Usage,
    /// Each process, by its id.
    pub by_pid: BTreeMap<u32, Usage>,
}

/// Processor time and memory. Agents show only the fields that are set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time.
    pub cpu: CpuUsage,
    /// Memory.
    pub memory: MemoryUsage,
}

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUsage {
    /// The time in the kernel, in percent of one processor.
    pub system_mode: Option<f64>,
    /// The time in programs, in percent of one processor.
    pub user_mode: Option<f64>,
    /// The use in MHz.
    pub total_ticks: Option<f64>,
    /// The number of periods in which a limit applied.
    pub throttled_periods: Option<u64>,
    /// The time for which a limit applied, in nanoseconds.
    pub throttled_time: Option<u64>,
    /// The whole time, in percent of one processor.
    pub percent: Option<f64>,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Resident memory of programs.
    pub rss: Option<u64>,
    /// Cached files.
    pub cache: Option<u64>,
    /// Swapped memory.
    pub swap: Option<u64>,
    /// All memory.
    pub usage: Option<u64>,
    /// The maximum of all memory.
    pub max_usage: Option<u64>,
    /// Memory of the kernel.
    pub kernel_usage: Option<u64>,
    /// The maximum of the kernel's memory.
    pub kernel_max_usage: Option<u64>,
}

fn measured<T>(fields: &[(bool, T)]) -> Vec<i32>
where
    T: Copy + Into<i32>,
{
    fields.iter().filter(|(is_set, _)| *is_set).map(|(_, field)| (*field).into()).collect()
}

impl From<CpuUsage> for wire::CpuUsage {
    fn from(from: CpuUsage) -> Self {
        use wire::cpu_usage::Fields;
        Self {
            measured_fields: measured(&[
                (from.system_mode.is_some(), Fields::SystemMode),
                (from.user_mode.is_some(), Fields::UserMode),
                (from.total_ticks.is_some(), Fields::TotalTicks),
                (from.throttled_periods.is_some(), Fields::ThrottledPeriods),
                (from.throttled_time.is_some(), Fields::ThrottledTime),
                (from.percent.is_some(), Fields::Percent),
            ]),
            system_mode: from.system_mode.unwrap_or_default(),
            user_mode: from.user_mode.unwrap_or_default(),
            total_ticks: from.total_ticks.unwrap_or_default(),
            throttled_periods: from.throttled_periods.unwrap_or_default(),
            throttled_time: from.throttled_time.unwrap_or_default(),
            percent: from.percent.unwrap_or_default(),
        }
    }
}

impl From<MemoryUsage> for wire::MemoryUsage {
    fn from(from: MemoryUsage) -> Self {
        use wire::memory_usage::Fields;
        Self {
            measured_fields: measured(&[
                (from.rss.is_some(), Fields::Rss),
                (from.cache.is_some(), Fields::Cache),
                (from.max_usage.is_some(), Fields::MaxUsage),
                (from.kernel_usage.is_some(), Fields::KernelUsage),
                (from.kernel_max_usage.is_some(), Fields::KernelMaxUsage),
                (from.usage.is_some(), Fields::Usage),
                (from.swap.is_some(), Fields::Swap),
            ]),
            rss: from.rss.unwrap_or_default(),
            cache: from.cache.unwrap_or_default(),
            max_usage: from.max_usage.unwrap_or_default(),
            kernel_usage: from.kernel_usage.unwrap_or_default(),
            kernel_max_usage: from.kernel_max_usage.unwrap_or_default(),
            usage: from.usage.unwrap_or_default(),
            swap: from.swap.unwrap_or_default(),
        }
    }
}

impl From<Usage> for wire::TaskResourceUsage {
    fn from(from: Usage) -> Self {
        Self { cpu: Some(from.cpu.into()), memory: Some(from.memory.into()) }
    }
}

impl TaskStats {
    pub(super) fn into_message(self, id: String) -> wire::TaskStats {
        wire::TaskStats {
            id,
            timestamp: Some(time(Some(self.at))),
            agg_resource_usage: Some(self.total.into()),
            resource_usage_by_pid: self
                .by_pid
                .into_iter()
                .map(|(pid, usage)| (pid.to_string(), usage.into()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_set_fields_count_as_measured() {
        let cpu: wire::CpuUsage = CpuUsage { percent: Some(2.5), ..CpuUsage::default() }.into();
        assert_eq!((cpu.measured_fields, cpu.percent), (vec![5], 2.5));
        let memory: wire::MemoryUsage =
            MemoryUsage { rss: Some(1), swap: Some(2), ..MemoryUsage::default() }.into();
        assert_eq!((memory.measured_fields, memory.rss, memory.swap), (vec![0, 6], 1, 2));
    }
}
