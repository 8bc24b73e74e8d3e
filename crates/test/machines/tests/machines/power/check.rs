//! Checks of a disk after a power cut, one after the other in the same machine.

use super::history::{Allowed, Object, Value};
use super::schedule::OBJECTS;
use crate::main_job::TIMEOUT;
use anyhow::{Context, Result, ensure};
use caravan_testkit::eventually_within;
use caravan_testkit::vm::{Bench, DATA_DIR, Disk, Machine, MachineOptions};
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// The script that mounts the disk as a starting machine does: only the disk remains of the previous machine.
const MOUNT: &str = r#"
echo 3 > /proc/sys/vm/drop_caches
blockdev --flushbufs /dev/vdb
rm -rf /run/caravan /run/agent.pid
: > /var/log/agent.log
echo "${1%????????????????????????}-${1#????????????????????????}" > /run/boot_id
grep -q boot_id /proc/mounts || mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
mount /dev/vdb /var/lib
"#;

/// The script that ends all processes of a check and unmounts the disk.
const UNMOUNT: &str = r#"
killall -9 caravan 2>/dev/null || true
for group in $(find /sys/fs/cgroup -mindepth 1 -name cgroup.kill); do echo 1 > "$group"; done
killall -9 caravan sleep 2>/dev/null || true
for try in $(seq 200); do
  for point in $(grep -o ' /var/lib[^ ]*' /proc/self/mountinfo | sort -r); do umount "$point" 2>/dev/null || true; done
  grep -q ' /var/lib' /proc/self/mountinfo || break
  usleep 100000
done
find /sys/fs/cgroup -mindepth 1 -depth -type d -exec rmdir '{}' ';' 2>/dev/null || true
! grep ' /var/lib' /proc/self/mountinfo
"#;

/// Starts the machine that checks disks.
pub(super) fn checker(bench: &Bench, mebibytes: u64) -> Result<Machine> {
    let options = MachineOptions { disks: vec![Disk::blank(mebibytes)], ..MachineOptions::new("checker") };
    let machine = bench.booted(options)?;
    machine.configure_agent("")?;
    Ok(machine)
}

/// Checks the disk of the machine. `boot` differs between checks.
pub(super) fn check(machine: &Machine, allowed: &Allowed, boot: &str) -> Result<()> {
    machine.run(&["sh", "-ec", MOUNT, "mount", boot])?.ok().context("mount the disk")?;
    let checked = offline(machine).and_then(|()| {
        machine.start_agent()?;
        let jobs = jobs(machine, allowed)?;
        at_rest(machine, &jobs, allowed)?;
        machine.end_agent("KILL")?;
        offline(machine)
    });
    let freed = machine.run(&["sh", "-c", UNMOUNT])?.ok().context("free the disk of the checker");
    // The reason of the failure is more important.
    checked.and_then(|()| freed.map(drop))
}

/// Reads the files of the stopped agent.
fn offline(machine: &Machine) -> Result<()> {
    machine.caravan(&["operator", "raft", "info", DATA_DIR])?.ok().context("operator raft info")?;
    machine.caravan(&["operator", "volume-check", DATA_DIR])?.ok().context("operator volume-check")?;
    machine.caravan(&["operator", "client-state", DATA_DIR])?.ok().context("operator client-state").map(drop)
}

/// The state of a job.
struct JobState {
    value: Value,
    /// Whether the job requests the volume of its number.
    has_volume: bool,
}

/// Reads an object, and fails if its value is not allowed. Returns its JSON as well.
fn read(
    machine: &Machine,
    allowed: &Allowed,
    object: Object,
    path: &str,
    value: impl FnOnce(&Json) -> Value,
) -> Result<(Value, Json)> {
    let reply = machine.http(4646, "GET", path, None)?;
    let (value, json) = match reply.status {
        404 => (None, Json::Null),
        _ => {
            let json = reply.json()?;
            (Some(value(&json).with_context(|| format!("{object:?}: {}", reply.text()))?), json)
        }
    };
    let none = BTreeSet::from([None]);
    let values = allowed.get(&object).unwrap_or(&none);
    ensure!(values.contains(&value), "{object:?} is {value:?}, but acknowledged or requested is {values:?}");
    Ok((value, json))
}

/// Reads all variables and jobs. Their values no longer change.
fn jobs(machine: &Machine, allowed: &Allowed) -> Result<Vec<JobState>> {
    for n in 0..OBJECTS {
        let value = |v: &Json| v["Items"]["value"].as_str()?.parse().ok();
        read(machine, allowed, Object::Variable(n), &format!("/v1/var/power/x{n}"), value)?;
    }
    let job = |n| {
        let value = |job: &Json| job["Meta"]["value"].as_str()?.parse().ok();
        let (value, job) = read(machine, allowed, Object::Job(n), &format!("/v1/job/j{n}"), value)?;
        let has_volume = job["TaskGroups"][0]["Volumes"].as_object().is_some_and(|all| !all.is_empty());
        Ok(JobState { value, has_volume })
    };
    (0..OBJECTS).map(job).collect()
}

/// Returns whether a volume exists. A deletion that the power cut has interrupted continues, so this may change.
fn volume_exists(machine: &Machine, allowed: &Allowed, number: usize) -> Result<bool> {
    let path = format!("/v1/volume/csi/v{number}");
    Ok(read(machine, allowed, Object::Volume(number), &path, |_| Some(0))?.0.is_some())
}

/// Waits until each job runs once, each volume is mounted once for it, and claims agree with mounts.
fn at_rest(machine: &Machine, jobs: &[JobState], allowed: &Allowed) -> Result<()> {
    eventually_within(TIMEOUT, "jobs, claims and mounts to agree", || {
        let mounts = machine.sh("cat /proc/self/mountinfo")?;
        let processes = machine.processes()?;
        for (number, JobState { value, has_volume }) in jobs.iter().enumerate() {
            let is_there = volume_exists(machine, allowed, number)?;
            let allocs = machine.api(&format!("/v1/job/j{number}/allocations"))?;
            let allocs = allocs.as_array().context("no list of allocations")?;
            let running: Vec<&Json> = allocs.iter().filter(|a| a["ClientStatus"] == "running").collect();
            match value {
                None => ensure!(running.is_empty(), "j{number} runs, but does not exist"),
                // For example, the volume was deleted before the job was placed.
                Some(_) if *has_volume && !is_there => {
                    ensure!(running.is_empty(), "j{number} runs without its volume");
                }
                Some(value) => {
                    ensure!(
                        running.len() == 1,
                        "j{number} has {} running allocations: {allocs:?}",
                        running.len()
                    );
                    let command = format!("sleep 10000{value}");
                    let processes = processes.iter().filter(|(_, arguments)| *arguments == command).count();
                    ensure!(processes == 1, "j{number} has {processes} processes of version {value}");
                }
            }
            let published = mounts
                .lines()
                .filter(|line| line.contains("/per-alloc/") && line.contains(&format!("/v{number}/")));
            let published = published.count();
            let claims = if is_there { claims(machine, number)? } else { 0 };
            ensure!(published == claims, "v{number} has {claims} claims and is mounted {published} times");
            ensure!(published <= running.len(), "v{number} is mounted for nothing");
        }
        Ok(())
    })
    .with_context(|| format!("--- log of the agent\n{}", machine.agent_log_tail()))?;
    // The plugin lists its volumes only while it is healthy.
    let names = eventually_within(TIMEOUT, "the plugin to list its volumes", || {
        let external = machine.api("/v1/volumes/external?plugin_id=hostpath")?;
        let volumes = external["Volumes"].as_array().cloned().unwrap_or_default();
        Ok(volumes.iter().map(|volume| volume["ExternalID"].to_string()).collect::<Vec<_>>())
    })?;
    let distinct: BTreeSet<&String> = names.iter().collect();
    ensure!(distinct.len() == names.len(), "the plugin has a volume twice: {names:?}");
    Ok(())
}

/// Returns the number of claims that allocations hold on a volume.
fn claims(machine: &Machine, number: usize) -> Result<usize> {
    let volume = machine.api(&format!("/v1/volume/csi/v{number}"))?;
    let count = |kind: &str| volume[kind].as_object().map_or(0, serde_json::Map::len);
    Ok(count("ReadAllocs") + count("WriteAllocs"))
}
