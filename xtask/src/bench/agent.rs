//! Measures an agent end to end: memory, start times, and the speed of tasks. The release build runs as a separate
//! process.

use super::{figure, median};
use anyhow::{Context, Result, bail};
use caravan_testkit::{Agent, AgentOptions, children, eventually_within};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 11;
const MANY: usize = 100;

pub fn run(release: bool) -> Result<()> {
    build(release)?;
    let print = |case: &str, value: f64, unit: &str| figure("agent", case, value, unit);

    let yardstick = yardstick()?;
    print("start and end of /bin/true, median: the yardstick", yardstick, "ms");
    let mut starts = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
        starts.push(millis(begun));
        drop(agent);
    }
    print("dev start to node ready, median", median(starts), "ms");

    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    // After this time the agent's startup work is done; nothing is asserted.
    std::thread::sleep(Duration::from_secs(5));
    print("idle resident memory", resident(agent.pid())?, "MiB");

    for driver in ["raw_exec", "exec"] {
        let (mut runs, mut stops) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let id = format!("{}-{round}", driver.replace('_', "-"));
            runs.push(submit_to_running(&agent, &sleeper(&id, driver, 1), &id, 1)?);
            stops.push(stop_to_complete(&agent, &id)?);
        }
        for (what, times) in [("submit to running", runs), ("stop to complete", stops)] {
            let time = median(times);
            print(&format!("{driver} {what}, median"), time, "ms");
            print(&format!("{driver} {what}, times the yardstick"), time / yardstick, "x");
        }
    }

    let elapsed = submit_to_running(&agent, &sleeper("many", "raw_exec", MANY), "many", MANY)?;
    print("100 tasks submit to running", elapsed, "ms");
    print("100 tasks submit to running, times the yardstick", elapsed / yardstick, "x");
    print("resident memory with 100 tasks", resident(agent.pid())?, "MiB");
    let helpers = shims(agent.pid())?;
    let private: Vec<f64> = helpers.iter().filter_map(|pid| private_memory(*pid).ok()).collect();
    print("private memory of a task helper, median", median(private), "MiB");
    let begun = Instant::now();
    agent.request("DELETE", "/v1/job/many", None)?;
    wait_count(&agent, "many", "Complete", MANY)?;
    print("100 tasks stop to complete", millis(begun), "ms");
    drop(agent);

    storage(&print)
}

/// Returns the median time of a process that does nothing, in milliseconds. Figures in multiples of this time show
/// the cost of an agent, on a fast machine as on a slow one.
fn yardstick() -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..101 {
        let begun = Instant::now();
        if !Command::new("/bin/true").status()?.success() {
            bail!("/bin/true failed");
        }
        times.push(millis(begun));
    }
    Ok(median(times))
}

fn storage(print: &impl Fn(&str, f64, &str)) -> Result<()> {
    let agent = Agent::with(AgentOptions::default())?;
    let state_dir = agent.dir().join("volumes");
    let begun = Instant::now();
    put(&agent, "/v1/jobs", &plugin(&state_dir))?;
    agent.wait_plugin("hostpath")?;
    print("plugin job submit to healthy", millis(begun), "ms");
    let mut runs = Vec::new();
    for round in 0..ROUNDS {
        let volume = format!("v{round}");
        let body = json!({ "Volumes": [{
            "ID": volume, "Name": volume, "PluginID": "hostpath", "Namespace": "default",
            "RequestedCapabilities": [{ "AccessMode": "single-node-writer", "AttachmentMode": "file-system" }],
        }]});
        put(&agent, &format!("/v1/volume/csi/{volume}/create"), &body)?;
        let id = format!("writer-{round}");
        let mut job = sleeper(&id, "raw_exec", 1);
        let group = &mut job["Job"]["TaskGroups"][0];
        group["Volumes"] = json!({ "data": {
            "Name": "data", "Type": "csi", "Source": volume,
            "AccessMode": "single-node-writer", "AttachmentMode": "file-system",
        }});
        group["Tasks"][0]["VolumeMounts"] = json!([{ "Volume": "data", "Destination": "data" }]);
        runs.push(submit_to_running(&agent, &job, &id, 1)?);
        agent.request("DELETE", &format!("/v1/job/{id}"), None)?;
        agent.wait_no_claims(&volume)?;
    }
    print(
        "raw_exec with a CSI volume submit to running, median, plugin's calls included",
        median(runs),
        "ms",
    );
    Ok(())
}

/// Builds the measured program and the plugins for the measurement.
pub(super) fn build(release: bool) -> Result<()> {
    let mut command = caravan_testkit::cargo();
    command.args(["build", "--quiet", "--package", "caravan", "--package", "caravan-testplugin"]);
    if release {
        command.arg("--release");
    }
    if !command.status()?.success() {
        bail!("the build failed");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| caravan_testkit::workspace("target"), std::path::PathBuf::from);
    let built = target.join(if release { "release" } else { "debug" });
    caravan_testkit::use_program(&built.join("caravan"));
    caravan_testkit::use_test_plugin(&built.join("caravan-testplugin"));
    Ok(())
}

pub(super) fn millis(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}

pub(super) fn sleeper(id: &str, driver: &str, count: usize) -> Value {
    json!({ "Job": {
        "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{
            "Name": "g", "Count": count,
            "EphemeralDisk": { "SizeMB": 20 },
            "Tasks": [{
                "Name": "t", "Driver": driver,
                "Config": { "command": "/bin/sleep", "args": ["3600"] },
                "Resources": { "CPU": 1, "MemoryMB": 10 },
                "LogConfig": { "MaxFiles": 1, "MaxFileSizeMB": 1 },
            }],
        }],
    }})
}

fn plugin(state_dir: &Path) -> Value {
    json!({ "Job": {
        "ID": "hostpath", "Name": "hostpath", "Type": "system", "Datacenters": ["*"],
        "TaskGroups": [{
            "Name": "plugin",
            "Tasks": [{
                "Name": "plugin", "Driver": "raw_exec",
                "Config": { "command": "caravan", "args": ["plugin", "hostpath", format!("--state-dir={}", state_dir.display())] },
                "Resources": { "CPU": 20, "MemoryMB": 64 },
                "CSIPluginConfig": { "ID": "hostpath", "Type": "monolith" },
            }],
        }],
    }})
}

pub(super) fn put(agent: &Agent, path: &str, body: &Value) -> Result<Value> {
    agent.request("PUT", path, Some(body))?.json().with_context(|| format!("PUT {path}"))
}

fn submit_to_running(agent: &Agent, job: &Value, id: &str, count: usize) -> Result<f64> {
    let begun = Instant::now();
    put(agent, "/v1/jobs", job)?;
    wait_count(agent, id, "Running", count)?;
    Ok(millis(begun))
}

fn stop_to_complete(agent: &Agent, id: &str) -> Result<f64> {
    let begun = Instant::now();
    agent.request("DELETE", &format!("/v1/job/{id}"), None)?;
    wait_count(agent, id, "Complete", 1)?;
    Ok(millis(begun))
}

/// Follows a job with blocking queries until `count` of its allocations have a status. The summary has a few bytes: a
/// list of a hundred allocations, sent after each of their changes, would be most of the measured work.
pub(super) fn wait_count(agent: &Agent, id: &str, status: &str, count: usize) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut index = 0;
    while Instant::now() < deadline {
        let reply = agent.request("GET", &format!("/v1/job/{id}/summary?index={index}&wait=5s"), None)?;
        index = reply.header("x-nomad-index").and_then(|v| v.parse().ok()).unwrap_or(0);
        let summary = reply.json()?;
        let groups = summary["Summary"].as_object().into_iter().flat_map(|groups| groups.values());
        let there: u64 = groups.filter_map(|group| group[status].as_u64()).sum();
        if there >= count as u64 {
            return Ok(());
        }
    }
    bail!("job {id}: {count} allocations did not become {status}")
}

fn status_kib(pid: u32, field: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find(|l| l.starts_with(field)).context("no such field")?;
    Ok(line.split_whitespace().nth(1).context("no value")?.parse()?)
}

/// Returns the resident memory without the pages of files, such as those of the program, in MiB.
pub(super) fn anonymous(pid: u32) -> Result<f64> {
    Ok(status_kib(pid, "RssAnon:")? / 1024.0)
}

pub(super) fn resident(pid: u32) -> Result<f64> {
    Ok(status_kib(pid, "VmRSS:")? / 1024.0)
}

/// Returns the memory of pages that only this process has, in MiB.
fn private_memory(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let kib: f64 = text
        .lines()
        .filter(|l| l.starts_with("Private_"))
        .filter_map(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok())
        .sum();
    Ok(kib / 1024.0)
}

/// Returns the agent's task helpers.
fn shims(agent: u32) -> Result<Vec<u32>> {
    eventually_within(Duration::from_secs(5), "the task helpers", || {
        let found: Vec<u32> = children(agent)?
            .into_iter()
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name.trim() == "caravan-shim")
            })
            .collect();
        if found.is_empty() { bail!("none found") } else { Ok(found) }
    })
}
