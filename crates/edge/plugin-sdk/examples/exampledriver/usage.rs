//! Measurements of all processes below a supervisor, from proc(5).

use caravan_plugin_sdk::{CpuUsage, MemoryUsage, TaskStats, Usage};
use caravan_sys::time::wall_now;
use nix::unistd::{SysconfVar, sysconf};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Counters of processes at one time.
pub struct Sample {
    at: Instant,
    processes: BTreeMap<u32, Counters>,
}

/// Counters of one process.
#[derive(Clone, Copy)]
struct Counters {
    /// Clock ticks in programs.
    user: u64,
    /// Clock ticks in the kernel.
    system: u64,
    /// Resident pages.
    pages: u64,
}

impl Sample {
    /// Reads the counters of all descendants of a process.
    pub fn take(ancestor: u32) -> Self {
        let mut processes = BTreeMap::new();
        let mut open = children(ancestor);
        while let Some(pid) = open.pop() {
            // A process that ends meanwhile is left out.
            if let Some(counters) = read(pid) {
                processes.insert(pid, counters);
            }
            open.extend(children(pid));
        }
        Self { at: Instant::now(), processes }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn read(pid: u32) -> Option<Counters> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(&String::from_utf8_lossy(&stat))
}

/// Reads the fields 14, 15 and 24 of a line. The fields after the name begin with the third.
fn parse(stat: &str) -> Option<Counters> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse().ok();
    Some(Counters { user: number(14)?, system: number(15)?, pages: number(24)? })
}

/// Returns the use of processors between two samples, and the memory at the later one.
pub fn compare(before: Option<&Sample>, now: &Sample) -> TaskStats {
    let elapsed = before.map(|before| now.at.duration_since(before.at).as_secs_f64());
    let by_pid: BTreeMap<u32, Usage> = now
        .processes
        .iter()
        .map(|(pid, counters)| {
            let earlier = before.and_then(|before| before.processes.get(pid));
            (*pid, usage(earlier, counters, elapsed))
        })
        .collect();
    TaskStats { at: wall_now(), total: sum(by_pid.values()), by_pid }
}

fn usage(earlier: Option<&Counters>, counters: &Counters, elapsed: Option<f64>) -> Usage {
    let percent = |ticks: fn(&Counters) -> u64| match (earlier, elapsed) {
        (Some(earlier), Some(elapsed)) if elapsed > 0.0 => {
            let ticks = u32::try_from(ticks(counters).saturating_sub(ticks(earlier))).unwrap_or(u32::MAX);
            f64::from(ticks) / f64::from(setting(SysconfVar::CLK_TCK, 100)) / elapsed * 100.0
        }
        _ => 0.0,
    };
    let (user, system) = (percent(|of| of.user), percent(|of| of.system));
    let page = u64::from(setting(SysconfVar::PAGE_SIZE, 4096));
    Usage {
        cpu: CpuUsage {
            user_mode: Some(user),
            system_mode: Some(system),
            percent: Some(user + system),
            ..CpuUsage::default()
        },
        memory: MemoryUsage { rss: Some(counters.pages * page), ..MemoryUsage::default() },
    }
}

fn setting(name: SysconfVar, usual: u32) -> u32 {
    sysconf(name).ok().flatten().and_then(|value| u32::try_from(value).ok()).unwrap_or(usual)
}

fn sum<'a>(all: impl Iterator<Item = &'a Usage>) -> Usage {
    let add = |a: Option<f64>, b: Option<f64>| Some(a.unwrap_or_default() + b.unwrap_or_default());
    all.fold(usage(None, &Counters { user: 0, system: 0, pages: 0 }, None), |total, one| Usage {
        cpu: CpuUsage {
            user_mode: add(total.cpu.user_mode, one.cpu.user_mode),
            system_mode: add(total.cpu.system_mode, one.cpu.system_mode),
            percent: add(total.cpu.percent, one.cpu.percent),
            ..CpuUsage::default()
        },
        memory: MemoryUsage {
            rss: Some(total.memory.rss.unwrap_or_default() + one.memory.rss.unwrap_or_default()),
            ..MemoryUsage::default()
        },
    })
}
