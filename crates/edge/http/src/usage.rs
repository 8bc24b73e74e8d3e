//! The resource usage of allocations and their tasks, in the shape of `AllocResourceUsage`
//! (docs/reference/http-api.md, section 5.7).

use crate::client_side::ClientSide;
use caravan_client::{ClientError, Pressure, ProcessUsage, Usage};
use caravan_sys::time::wall_nanos;
use caravan_types::AllocId;
use caravan_types::device::DeviceGroupStats;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The time between two samples of a counter from which a rate is computed.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The usage of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AllocUsage {
    /// The sum of the tasks.
    pub(crate) resource_usage: ResourceUsage,
    /// The usage of the measured tasks by name.
    pub(crate) tasks: BTreeMap<String, TaskUsage>,
    /// The time of the measurement, in nanoseconds of the wall clock.
    pub(crate) timestamp: i64,
}

/// The usage of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TaskUsage {
    /// The usage of all processes together.
    pub(crate) resource_usage: ResourceUsage,
    /// The time of the measurement, in nanoseconds of the wall clock.
    pub(crate) timestamp: i64,
    /// The usage of single processes by process id; `None` if the driver does not report them.
    pub(crate) pids: Option<BTreeMap<u32, ResourceUsage>>,
    /// The share of time in which processes wait for resources. Nomad's API has no field for it; it is in the
    /// metrics.
    #[serde(skip)]
    pub(crate) pressure: Pressure,
}

/// The usage of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ResourceUsage {
    pub(crate) cpu_stats: CpuStats,
    pub(crate) memory_stats: MemoryStats,
    /// The devices in use. `None` for processes, and for tasks without devices.
    pub(crate) device_stats: Option<Vec<DeviceGroupStats>>,
}

/// The usage of CPU time. Shares are percentages of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CpuStats {
    pub(crate) percent: f64,
    pub(crate) user_mode: f64,
    pub(crate) system_mode: f64,
    /// The ticks of the time; always 0, because they are never measured.
    pub(crate) total_ticks: f64,
    pub(crate) throttled_periods: u64,
    /// The time of throttling, in nanoseconds.
    pub(crate) throttled_time: u64,
    /// The names of the measured figures.
    pub(crate) measured: &'static [&'static str],
}

/// The usage of memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MemoryStats {
    #[serde(rename = "RSS")]
    pub(crate) rss: u64,
    pub(crate) cache: u64,
    pub(crate) swap: u64,
    /// The mapped files; never measured, as the two figures of the kernel.
    pub(crate) mapped_file: u64,
    pub(crate) usage: u64,
    pub(crate) max_usage: u64,
    pub(crate) kernel_usage: u64,
    pub(crate) kernel_max_usage: u64,
    /// The names of the measured figures.
    pub(crate) measured: &'static [&'static str],
}

/// The figures of CPU time that are measured for a task.
const CPU_OF_TASK: &[&str] = &["System Mode", "User Mode", "Percent", "Throttled Periods", "Throttled Time"];

/// The figures of memory that are measured for a task.
const MEMORY_OF_TASK: &[&str] = &["RSS", "Cache", "Swap", "Usage", "Max Usage"];

/// The figures of memory that are measured for a task by a kernel that reports no peak.
const MEMORY_WITHOUT_PEAK: &[&str] = &["RSS", "Cache", "Swap", "Usage"];

/// The figures of CPU time that are measured for a process.
const CPU_OF_PROCESS: &[&str] = &["System Mode", "User Mode", "Percent"];

/// Measures an allocation, or one of its tasks. Tasks that do not run have no usage.
pub(crate) async fn measure(
    client: &dyn ClientSide,
    alloc: &AllocId,
    task: Option<&str>,
) -> Result<AllocUsage, ClientError> {
    let (_, states) = client.status(alloc)?;
    let names: Vec<String> = match task {
        Some(task) if !states.contains_key(task) => return Err(ClientError::UnknownTask(task.to_owned())),
        Some(task) => vec![task.to_owned()],
        None => states.into_keys().collect(),
    };
    let mut before = Vec::new();
    for name in names {
        if let Ok(usage) = client.stats(alloc, &name).await {
            before.push((name, usage, Instant::now()));
        }
    }
    if !before.is_empty() {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
    }
    let mut tasks = BTreeMap::new();
    for (name, then, at) in before {
        // A task that ended between the samples has no usage.
        let Ok(now) = client.stats(alloc, &name).await else { continue };
        let mut usage = of_task(&then, &now, at.elapsed(), wall_nanos());
        let devices = client.task_device_stats(alloc, &name)?;
        usage.resource_usage.device_stats = Some(devices).filter(|devices| !devices.is_empty());
        tasks.insert(name, usage);
    }
    Ok(AllocUsage { resource_usage: total(&tasks), tasks, timestamp: wall_nanos() })
}

/// Returns the usage of a task between two samples.
fn of_task(then: &Usage, now: &Usage, passed: Duration, timestamp: i64) -> TaskUsage {
    let cpu_stats = CpuStats {
        percent: percent(now.cpu_total_ns, then.cpu_total_ns, passed),
        user_mode: percent(now.cpu_user_ns, then.cpu_user_ns, passed),
        system_mode: percent(now.cpu_system_ns, then.cpu_system_ns, passed),
        throttled_periods: now.throttled_periods,
        throttled_time: now.throttled_ns,
        measured: CPU_OF_TASK,
        ..CpuStats::default()
    };
    let memory_stats = MemoryStats {
        rss: now.rss,
        cache: now.cache,
        swap: now.swap,
        usage: now.memory,
        max_usage: now.memory_peak,
        // Version 2 of control groups reports the peak from Linux 5.19 on.
        measured: if now.memory_peak > 0 { MEMORY_OF_TASK } else { MEMORY_WITHOUT_PEAK },
        ..MemoryStats::default()
    };
    let before: BTreeMap<u32, &ProcessUsage> = then.processes.iter().map(|p| (p.pid, p)).collect();
    let process = |own: &ProcessUsage| {
        // A process that started between the samples has no rate yet.
        let old = before.get(&own.pid).copied().unwrap_or(own);
        (own.pid, of_process(old, own, passed))
    };
    let pids = (!now.processes.is_empty()).then(|| now.processes.iter().map(process).collect());
    let resource_usage = ResourceUsage { cpu_stats, memory_stats, device_stats: None };
    TaskUsage { resource_usage, timestamp, pids, pressure: now.pressure }
}

/// Returns the usage of a process between two samples.
fn of_process(then: &ProcessUsage, now: &ProcessUsage, passed: Duration) -> ResourceUsage {
    let user_mode = percent(now.cpu_user_ns, then.cpu_user_ns, passed);
    let system_mode = percent(now.cpu_system_ns, then.cpu_system_ns, passed);
    let percent = user_mode + system_mode;
    ResourceUsage {
        cpu_stats: CpuStats {
            percent,
            user_mode,
            system_mode,
            measured: CPU_OF_PROCESS,
            ..CpuStats::default()
        },
        memory_stats: MemoryStats {
            rss: now.rss,
            swap: now.swap,
            measured: &["RSS", "Swap"],
            ..MemoryStats::default()
        },
        device_stats: None,
    }
}

/// Returns the sums of the figures that can be added.
fn total(tasks: &BTreeMap<String, TaskUsage>) -> ResourceUsage {
    let mut cpu_stats = CpuStats { measured: CPU_OF_TASK, ..CpuStats::default() };
    let mut memory_stats = MemoryStats { measured: &["RSS", "Usage"], ..MemoryStats::default() };
    for ResourceUsage { cpu_stats: cpu, memory_stats: memory, .. } in
        tasks.values().map(|task| &task.resource_usage)
    {
        cpu_stats.percent += cpu.percent;
        cpu_stats.user_mode += cpu.user_mode;
        cpu_stats.system_mode += cpu.system_mode;
        memory_stats.rss += memory.rss;
        memory_stats.usage += memory.usage;
    }
    let devices = tasks.values().flat_map(|task| task.resource_usage.device_stats.iter().flatten());
    ResourceUsage { cpu_stats, memory_stats, device_stats: Some(devices.cloned().collect()) }
}

/// Returns the percentage of one CPU for two samples of a counter in nanoseconds, taken `passed` apart.
fn percent(now_ns: u64, then_ns: u64, passed: Duration) -> f64 {
    let work = Duration::from_nanos(now_ns.saturating_sub(then_ns));
    work.as_secs_f64() * 100.0 / passed.as_secs_f64().max(f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn usage_has_the_shape_of_the_reference() {
        let process = |cpu_user_ns| ProcessUsage { pid: 7, cpu_user_ns, cpu_system_ns: 0, rss: 8, swap: 9 };
        let then = Usage { cpu_total_ns: 5, processes: vec![process(0)], ..Usage::default() };
        let now = Usage {
            cpu_total_ns: 500_000_005,
            cpu_user_ns: 250_000_000,
            cpu_system_ns: 125_000_000,
            throttled_periods: 2,
            throttled_ns: 3,
            memory: 100,
            memory_peak: 200,
            rss: 60,
            cache: 30,
            swap: 10,
            processes: vec![process(250_000_000)],
            ..Usage::default()
        };
        let task = of_task(&then, &now, Duration::from_secs(1), 11);
        let idle = of_task(&now, &Usage { processes: Vec::new(), ..now.clone() }, Duration::from_secs(1), 12);
        let tasks = BTreeMap::from([("web".to_owned(), task), ("idle".to_owned(), idle)]);
        let usage = AllocUsage { resource_usage: total(&tasks), tasks, timestamp: 13 };
        let cpu_of_task = ["System Mode", "User Mode", "Percent", "Throttled Periods", "Throttled Time"];
        let cpu = |percent: f64, user: f64, system: f64| {
            json!({
                "Percent": percent, "UserMode": user, "SystemMode": system, "TotalTicks": 0.0,
                "ThrottledPeriods": 2, "ThrottledTime": 3, "Measured": cpu_of_task,
            })
        };
        let memory = json!({
            "RSS": 60, "Cache": 30, "Swap": 10, "MappedFile": 0, "Usage": 100, "MaxUsage": 200,
            "KernelUsage": 0, "KernelMaxUsage": 0, "Measured": ["RSS", "Cache", "Swap", "Usage", "Max Usage"],
        });
        let of_process = json!({
            "CpuStats": {
                "Percent": 25.0, "UserMode": 25.0, "SystemMode": 0.0, "TotalTicks": 0.0,
                "ThrottledPeriods": 0, "ThrottledTime": 0, "Measured": ["System Mode", "User Mode", "Percent"],
            },
            "MemoryStats": {
                "RSS": 8, "Cache": 0, "Swap": 9, "MappedFile": 0, "Usage": 0, "MaxUsage": 0,
                "KernelUsage": 0, "KernelMaxUsage": 0, "Measured": ["RSS", "Swap"],
            },
            "DeviceStats": null,
        });
        let of_task =
            |cpu: serde_json::Value| json!({"CpuStats": cpu, "MemoryStats": memory, "DeviceStats": null});
        let mut sum = cpu(50.0, 25.0, 12.5);
        (sum["ThrottledPeriods"], sum["ThrottledTime"]) = (json!(0), json!(0));
        let want = json!({
            "ResourceUsage": {
                "CpuStats": sum,
                "MemoryStats": {
                    "RSS": 120, "Cache": 0, "Swap": 0, "MappedFile": 0, "Usage": 200, "MaxUsage": 0,
                    "KernelUsage": 0, "KernelMaxUsage": 0, "Measured": ["RSS", "Usage"],
                },
                "DeviceStats": [],
            },
            "Tasks": {
                "web": {
                    "ResourceUsage": of_task(cpu(50.0, 25.0, 12.5)),
                    "Timestamp": 11,
                    "Pids": {"7": of_process},
                },
                "idle": {"ResourceUsage": of_task(cpu(0.0, 0.0, 0.0)), "Timestamp": 12, "Pids": null},
            },
            "Timestamp": 13,
        });
        assert_eq!(serde_json::to_value(&usage).unwrap(), want);
    }
}
