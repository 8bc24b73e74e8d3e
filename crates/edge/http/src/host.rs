//! Figures of the host from proc(5), for `/v1/client/stats` (docs/reference/http-api.md, section 5.7).

use crate::client_side::ClientSide;
use crate::disks::{self, Disk};
use crate::error::ApiError;
use crate::usage::SAMPLE_INTERVAL;
use caravan_sys::time::wall_nanos;
use caravan_types::device::DeviceGroupStats;
use serde::Serialize;
use std::collections::BTreeMap;

/// The usage of the host, in the shape of `HostStats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HostStats {
    pub(crate) memory: HostMemory,
    #[serde(rename = "CPU")]
    pub(crate) cpus: Vec<HostCpu>,
    pub(crate) disk_stats: Vec<Disk>,
    /// The file system of the allocation directory.
    pub(crate) alloc_dir_stats: Option<Disk>,
    /// The devices of plugins; `None` without any.
    pub(crate) device_stats: Option<Vec<DeviceGroupStats>>,
    /// The whole seconds since the host started.
    pub(crate) uptime: u64,
    /// The time of the measurement, in nanoseconds of the wall clock.
    pub(crate) timestamp: i64,
    #[serde(rename = "CPUTicksConsumed")]
    pub(crate) cpu_ticks_consumed: f64,
}

/// The memory of the host, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HostMemory {
    pub(crate) total: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    pub(crate) free: u64,
}

/// The usage of a CPU, in percent of the time between two samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HostCpu {
    /// The kernel's name of the CPU: `cpu0`.
    #[serde(rename = "CPU")]
    pub(crate) name: String,
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) idle: f64,
    pub(crate) total_percent: f64,
    /// The share of the CPU's frequency that was used, in MHz.
    pub(crate) total_ticks: f64,
}

/// The time that a CPU spent since the host started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CpuTimes {
    user: u64,
    system: u64,
    idle: u64,
    total: u64,
}

/// Returns the CPUs by name (`cpu0`), from `/proc/stat`.
fn cpus(stat: &str) -> BTreeMap<String, CpuTimes> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|name| name.starts_with("cpu") && name.len() > 3)?;
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let at = |n: usize| ticks.get(n).copied().unwrap_or(0);
        let times = CpuTimes {
            user: at(0) + at(1),
            system: at(2),
            idle: at(3) + at(4),
            // User time already includes the guests' time.
            total: ticks.iter().take(8).sum(),
        };
        Some((name.to_owned(), times))
    };
    stat.lines().filter_map(line).collect()
}

/// Returns the bytes of a line of `/proc/meminfo`.
fn memory(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Returns the percentage of the ticks between two samples.
fn share(part: u64, before: u64, passed: u64) -> f64 {
    if passed == 0 {
        return 0.0;
    }
    let part = u32::try_from(part.saturating_sub(before)).unwrap_or(u32::MAX);
    let passed = u32::try_from(passed).unwrap_or(u32::MAX);
    f64::from(part) * 100.0 / f64::from(passed)
}

/// The figures from sources other than proc(5).
#[derive(Clone, Debug, Default)]
struct Machine {
    /// The disks of the host.
    disks: Vec<Disk>,
    /// The file system of the allocation directory.
    alloc_dir: Option<Disk>,
    /// The devices of plugins.
    devices: Vec<DeviceGroupStats>,
    /// The frequency of a CPU in MHz.
    mhz: f64,
}

/// Measures the host of a client.
pub(crate) async fn measure(client: &dyn ClientSide) -> Result<HostStats, ApiError> {
    let before = cpus(&read("/proc/stat").await?);
    tokio::time::sleep(SAMPLE_INTERVAL).await;
    let (stat, meminfo) = (read("/proc/stat").await?, read("/proc/meminfo").await?);
    let uptime = read("/proc/uptime").await?;
    let dir = client.allocs_dir();
    let mhz = client.node().attributes.get("cpu.frequency").and_then(|mhz| mhz.parse().ok());
    let looked = tokio::task::spawn_blocking(move || (disks::all(), disks::read(&dir))).await;
    let (disks, alloc_dir) = looked.unwrap_or_default();
    let devices = client.device_stats();
    let machine = Machine { disks, alloc_dir, devices, mhz: mhz.unwrap_or(0.0) };
    Ok(stats(&before, &stat, &meminfo, &uptime, wall_nanos(), machine))
}

async fn read(path: &str) -> Result<String, ApiError> {
    let text = tokio::fs::read_to_string(path).await;
    text.map_err(|e| ApiError::internal(format!("{path} cannot be read: {e}")))
}

/// Returns the figures of the host from two texts of `/proc/stat`, the first one parsed, and from other sources.
fn stats(
    before: &BTreeMap<String, CpuTimes>,
    stat: &str,
    meminfo: &str,
    uptime: &str,
    now_ns: i64,
    machine: Machine,
) -> HostStats {
    let cpu = |(name, now): (String, CpuTimes)| {
        let then = before.get(&name).copied().unwrap_or_default();
        let passed = now.total.saturating_sub(then.total);
        let idle = share(now.idle, then.idle, passed);
        let total_percent = if passed == 0 { 0.0 } else { 100.0 - idle };
        HostCpu {
            name,
            user: share(now.user, then.user, passed),
            system: share(now.system, then.system, passed),
            idle,
            total_percent,
            total_ticks: total_percent / 100.0 * machine.mhz,
        }
    };
    let cpus: Vec<HostCpu> = cpus(stat).into_iter().map(cpu).collect();
    let (total, available) = (memory(meminfo, "MemTotal"), memory(meminfo, "MemAvailable"));
    let uptime = uptime.split('.').next().and_then(|secs| secs.trim().parse::<u64>().ok());
    HostStats {
        memory: HostMemory {
            total,
            available,
            used: total.saturating_sub(available),
            free: memory(meminfo, "MemFree"),
        },
        // An empty sum of floats is -0.0, which JSON would show.
        cpu_ticks_consumed: cpus.iter().fold(0.0, |sum, cpu| sum + cpu.total_ticks),
        cpus,
        disk_stats: machine.disks,
        alloc_dir_stats: machine.alloc_dir,
        device_stats: Some(machine.devices).filter(|devices| !devices.is_empty()),
        uptime: uptime.unwrap_or(0),
        timestamp: now_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let before = cpus("cpu  9 9 9 9\ncpu0 10 0 10 80 0 0 0 0 0 0\nintr 1\n");
        assert_eq!(before.len(), 1);
        let meminfo = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n";
        let disk = Disk { device: "/dev/vda".into(), mountpoint: "/".into(), size: 4, ..Disk::default() };
        let stats = stats(
            &before,
            "cpu0 30 0 20 150 0 0 0 0 0 0\n",
            meminfo,
            "12.34 5.6\n",
            7,
            Machine { disks: vec![disk], mhz: 1000.0, ..Machine::default() },
        );
        let want = json!({
            "Memory": {"Total": 1_024_000, "Available": 409_600, "Used": 614_400, "Free": 102_400},
            "CPU": [{
                "CPU": "cpu0", "User": 20.0, "System": 10.0, "Idle": 70.0, "TotalPercent": 30.0,
                "TotalTicks": 300.0,
            }],
            "DiskStats": [{
                "Device": "/dev/vda", "Mountpoint": "/", "Size": 4, "Used": 0, "Available": 0,
                "UsedPercent": 0.0, "InodesUsedPercent": 0.0,
            }],
            "AllocDirStats": null,
            "DeviceStats": null,
            "Uptime": 12,
            "Timestamp": 7,
            "CPUTicksConsumed": 300.0,
        });
        assert_eq!(serde_json::to_value(&stats).unwrap(), want);
    }

    proptest::proptest! {
        #[test]
        fn no_text_of_the_kernel_breaks_it(stat in ".*", meminfo in ".*", uptime in ".*") {
            let _ = stats(&cpus(&stat), &stat, &meminfo, &uptime, 0, Machine::default());
        }
    }
}
