//! Figures of the host from proc(5), for `/v1/client/stats` (docs/reference/http-api.md, section 5.7).

use crate::disks::Disk;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The time that a CPU spent since the host started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTimes {
    user: u64,
    system: u64,
    idle: u64,
    total: u64,
}

/// Returns the CPUs by name (`cpu0`), from `/proc/stat`.
pub(crate) fn cpus(stat: &str) -> BTreeMap<String, CpuTimes> {
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
pub(crate) struct Machine {
    /// The disks of the host.
    pub(crate) disks: Vec<Disk>,
    /// The file system of the allocation directory.
    pub(crate) alloc_dir: Option<Disk>,
    /// The frequency of a CPU in MHz.
    pub(crate) mhz: f64,
}

/// Returns the figures in the shape of `HostStats`. Devices are not measured.
pub(crate) fn stats(
    before: &BTreeMap<String, CpuTimes>,
    stat: &str,
    meminfo: &str,
    uptime: &str,
    now_ns: i64,
    machine: &Machine,
) -> Value {
    let mut ticks = 0.0;
    let cpus: Vec<Value> = cpus(stat)
        .iter()
        .map(|(name, now)| {
            let then = before.get(name).copied().unwrap_or_default();
            let passed = now.total.saturating_sub(then.total);
            let idle = share(now.idle, then.idle, passed);
            let busy = if passed == 0 { 0.0 } else { 100.0 - idle };
            let consumed = busy / 100.0 * machine.mhz;
            ticks += consumed;
            json!({
                "CPU": name,
                "User": share(now.user, then.user, passed),
                "System": share(now.system, then.system, passed),
                "Idle": idle,
                "TotalPercent": busy,
                "TotalTicks": consumed,
            })
        })
        .collect();
    let (total, available) = (memory(meminfo, "MemTotal"), memory(meminfo, "MemAvailable"));
    let uptime = uptime.split('.').next().and_then(|secs| secs.trim().parse::<u64>().ok());
    json!({
        "Memory": {
            "Total": total,
            "Available": available,
            "Used": total.saturating_sub(available),
            "Free": memory(meminfo, "MemFree"),
        },
        "CPU": cpus,
        "DiskStats": machine.disks.iter().map(Disk::stats).collect::<Vec<_>>(),
        "AllocDirStats": machine.alloc_dir.as_ref().map(Disk::stats),
        "DeviceStats": null,
        "Uptime": uptime.unwrap_or(0),
        "Timestamp": now_ns,
        "CPUTicksConsumed": ticks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let before = cpus("cpu  9 9 9 9\ncpu0 10 0 10 80 0 0 0 0 0 0\nintr 1\n");
        assert_eq!(before.len(), 1);
        let meminfo = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n";
        let stats = stats(
            &before,
            "cpu0 30 0 20 150 0 0 0 0 0 0\n",
            meminfo,
            "12.34 5.6\n",
            7,
            &Machine { mhz: 1000.0, ..Machine::default() },
        );
        assert_eq!(stats["CPUTicksConsumed"], 300.0);
        let cpu = &stats["CPU"][0];
        assert_eq!((&cpu["User"], &cpu["System"], &cpu["Idle"]), (&json!(20.0), &json!(10.0), &json!(70.0)));
        assert_eq!(stats["Memory"]["Used"], 600 * 1024);
        assert_eq!((&stats["Uptime"], &stats["Timestamp"]), (&json!(12), &json!(7)));
    }

    proptest::proptest! {
        #[test]
        fn no_text_of_the_kernel_breaks_it(stat in ".*", meminfo in ".*", uptime in ".*") {
            let _ = stats(&cpus(&stat), &stat, &meminfo, &uptime, 0, &Machine::default());
        }
    }
}
