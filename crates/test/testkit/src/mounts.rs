//! Mounts and processes in the kernel's tables.

use anyhow::{Context, Result};
use std::fs;

/// Returns mount points at or below a path, from the kernel's table (proc_pid_mountinfo(5)).
///
/// # Errors
/// Fails if the table cannot be read.
pub fn mounts_below(path: &str) -> Result<Vec<String>> {
    mounts_of("/proc/self/mountinfo", path)
}

/// Returns mount points at or below a path, from one of the kernel's tables.
pub(crate) fn mounts_of(table: &str, path: &str) -> Result<Vec<String>> {
    let table = fs::read_to_string(table).context("read the mount table")?;
    let below = format!("{}/", path.trim_end_matches('/'));
    Ok(table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .filter(|point| *point == path || point.starts_with(&below))
        .collect())
}

fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// Returns whether a process exists and is not a zombie.
pub fn process_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| !rest.starts_with('Z')))
        .unwrap_or(false)
}

/// Returns the start time of a process in clock ticks since boot. Pid and start time identify a process.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// Returns the direct children of a process.
///
/// # Errors
/// Fails if `/proc` cannot be read.
pub fn children(parent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let ppid = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok());
        if ppid == Some(parent) {
            found.push(pid);
        }
    }
    Ok(found)
}
