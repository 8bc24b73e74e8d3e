//! Measures drivers under a real agent. The figures are the start of containers compared with the engine's own tools,
//! and the memory of many tasks. A further figure is the time until a new agent has the tasks of a killed one.

mod external;

use super::agent::{anonymous, build, millis, put, resident, sleeper, wait_count};
use super::{figure, median};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{
    Agent, AgentOptions, ContainerEngine, children, eventually, eventually_within, example_plugin,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: usize = 11;
const MANY: usize = 50;

/// The script of a container that ends at SIGTERM.
const SCRIPT: &str = "trap 'exit 0' TERM; sleep 3600 & wait";

/// A kind of task, with the job that runs a number of them.
struct Kind {
    name: &'static str,
    job: fn(id: &str, count: usize, dir: &Path) -> Value,
}

/// The kinds whose tasks outlive the agent. A driver that is added here is measured with the others.
const KINDS: [Kind; 6] = [
    Kind { name: "raw_exec", job: |id, count, _| sleeper(id, "raw_exec", count) },
    Kind { name: "exec", job: |id, count, _| sleeper(id, "exec", count) },
    Kind { name: "docker", job: |id, count, _| containers(id, count) },
    Kind { name: "external", job: |id, count, _| sleeper(id, "example", count) },
    Kind { name: "java", job: |id, count, _| machines(id, count) },
    Kind { name: "qemu", job: emulators },
];

/// Returns a boot sector that switches interrupts off and halts the processor, in a loop. Firmware starts sectors
/// that end with 55 AA.
fn boot_sector() -> Vec<u8> {
    let mut sector = vec![0; 512];
    sector[..4].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// The name of the image in the directory of a measurement.
const IMAGE: &str = "boot.img";

pub fn run(release: bool) -> Result<()> {
    build(release)?;
    let engine = ContainerEngine::start()?;
    starts(&engine)?;
    many(&engine)?;
    external::starts()?;
    // An emulator or virtual machine that is not installed has no figure.
    let is_there = |kind: &&Kind| match kind.name {
        "java" => Path::new("/usr/bin/java").exists(),
        "qemu" => Path::new("/usr/bin/qemu-system-x86_64").exists(),
        _ => true,
    };
    KINDS.iter().filter(is_there).try_for_each(|kind| restart(&engine, kind))
}

fn print(case: &str, value: f64, unit: &str) {
    figure("drivers", case, value, unit);
}

fn agent(engine: &ContainerEngine, more: &str) -> Result<Agent> {
    let extra =
        format!("{more}plugin \"docker\" {{\n config {{\n endpoint = \"{}\"\n }}\n}}\n", engine.endpoint());
    Agent::with(AgentOptions { extra, ..AgentOptions::default() })
}

fn containers(id: &str, count: usize) -> Value {
    let mut job = sleeper(id, "docker", count);
    job["Job"]["TaskGroups"][0]["Tasks"][0]["Config"] = json!({
        "image": ContainerEngine::IMAGE, "network_mode": "none", "command": "sh", "args": ["-c", SCRIPT],
    });
    job
}

/// Returns a job of Java virtual machines that wait: the registry of the runtime library.
fn machines(id: &str, count: usize) -> Value {
    let mut job = sleeper(id, "java", count);
    let task = &mut job["Job"]["TaskGroups"][0]["Tasks"][0];
    task["Config"] = json!({
        "class": "sun.rmi.registry.RegistryImpl", "args": ["0"],
        "jvm_options": ["-Xmx16m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
    });
    task["Resources"]["MemoryMB"] = json!(128);
    job
}

/// Returns a job of emulators of a machine that halts.
fn emulators(id: &str, count: usize, dir: &Path) -> Value {
    let mut job = sleeper(id, "qemu", count);
    let task = &mut job["Job"]["TaskGroups"][0]["Tasks"][0];
    task["Config"] = json!({"image_path": dir.join(IMAGE), "args": ["-snapshot"]});
    task["Resources"]["MemoryMB"] = json!(128);
    job
}

/// Measures the start of one container whose image is present, next to `docker run`.
fn starts(engine: &ContainerEngine) -> Result<()> {
    let agent = agent(engine, "")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let name = format!("plain-{round}");
        let begun = Instant::now();
        engine.docker(&[
            "run",
            "-d",
            "--network",
            "none",
            "--name",
            &name,
            ContainerEngine::IMAGE,
            "sh",
            "-c",
            SCRIPT,
        ])?;
        theirs.push(millis(begun));
        engine.docker(&["rm", "-f", &name])?;
        let id = format!("one-{round}");
        let job = containers(&id, 1);
        let begun = Instant::now();
        put(&agent, "/v1/jobs", &job)?;
        wait_count(&agent, &id, "Running", 1)?;
        ours.push(millis(begun));
        agent.request("DELETE", &format!("/v1/job/{id}"), None)?;
        wait_count(&agent, &id, "Complete", 1)?;
    }
    let (ours, theirs) = (median(ours), median(theirs));
    print("docker run of a present image, median", theirs, "ms");
    print("docker submit to running, median", ours, "ms");
    print("docker submit to running above docker run", ours - theirs, "ms");
    Ok(())
}

/// Sends one request to the engine, and returns its answer.
fn call(socket: &Path, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    write!(
        stream,
        "{method} /v1.40{path} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).context("the answer has a status")?;
    ensure!(status.starts_with('2'), "{method} {path}: {answer}");
    Ok(answer)
}

/// Calls `each` with the number of each container, all at the same time.
fn at_once(each: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let each = &each;
        let all: Vec<_> = (0..MANY).map(|number| scope.spawn(move || each(number))).collect();
        all.into_iter().try_for_each(|one| match one.join() {
            Ok(result) => result,
            Err(_) => bail!("a call of the engine panicked"),
        })
    })
}

/// Returns the lowest resident memory within the interval at which the agent releases pages of its program.
fn lowest(pid: u32) -> Result<f64> {
    let (begun, mut least) = (Instant::now(), f64::MAX);
    while begun.elapsed() < Duration::from_secs(40) {
        least = least.min(resident(pid)?);
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(least)
}

/// Measures many containers, started and stopped by an agent and by calls of the engine; then their memory.
fn many(engine: &ContainerEngine) -> Result<()> {
    let socket = engine.socket();
    let body = json!({
        "Image": ContainerEngine::IMAGE, "Cmd": ["sh", "-c", SCRIPT], "HostConfig": {"NetworkMode": "none"},
    })
    .to_string();
    let agent = agent(engine, "")?;
    // After this time the agent's startup work is done; nothing is asserted.
    std::thread::sleep(Duration::from_secs(5));
    let (idle, idle_anonymous) = (resident(agent.pid())?, anonymous(agent.pid())?);
    let (mut ours, mut theirs, mut helpers) = (Vec::new(), Vec::new(), 0);
    let (mut memory, mut own_memory, mut at_rest) = (Vec::new(), Vec::new(), 0.0);
    for round in 0..3 {
        let begun = Instant::now();
        at_once(|number| {
            call(&socket, "POST", &format!("/containers/create?name=bare-{number}"), &body)?;
            call(&socket, "POST", &format!("/containers/bare-{number}/start"), "").map(drop)
        })?;
        at_once(|number| {
            call(&socket, "POST", &format!("/containers/bare-{number}/stop?t=30"), "")?;
            call(&socket, "DELETE", &format!("/containers/bare-{number}?force=1"), "").map(drop)
        })?;
        theirs.push(millis(begun));
        let id = format!("many-{round}");
        let begun = Instant::now();
        put(&agent, "/v1/jobs", &containers(&id, MANY))?;
        wait_count(&agent, &id, "Running", MANY)?;
        let started = millis(begun);
        memory.push(resident(agent.pid())? - idle);
        own_memory.push(anonymous(agent.pid())? - idle_anonymous);
        helpers = children(agent.pid())?.len();
        if round == 2 {
            at_rest = lowest(agent.pid())? - idle;
        }
        let begun = Instant::now();
        agent.request("DELETE", &format!("/v1/job/{id}"), None)?;
        wait_count(&agent, &id, "Complete", MANY)?;
        eventually("the containers to be removed", || {
            ensure!(engine.containers()?.is_empty(), "some are left");
            Ok(())
        })?;
        ours.push(started + millis(begun));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    print("50 containers started and stopped by parallel calls of the engine, median", theirs, "ms");
    print("50 docker tasks started and stopped, median", ours, "ms");
    print("50 docker tasks started and stopped, times parallel calls", ours / theirs, "x");
    print("helper processes of 50 docker tasks", helpers as f64, "processes");
    print("resident memory of 50 docker tasks at rest above idle", at_rest, "MiB");
    print("resident memory of 50 docker tasks right after their start above idle", median(memory), "MiB");
    print("of which not the program's pages", median(own_memory), "MiB");
    Ok(())
}

/// Measures the time from the start of an agent until the agent has the tasks of a killed one.
fn restart(engine: &ContainerEngine, kind: &Kind) -> Result<()> {
    let plugins = tempfile::tempdir()?;
    std::fs::copy(example_plugin("exampledriver"), plugins.path().join("exampledriver"))?;
    std::fs::write(plugins.path().join(IMAGE), boot_sector())?;
    let dir = plugins.path().display();
    let external = format!(
        "plugin_dir = \"{dir}\"\nplugin \"exampledriver\" {{}}\n\
         plugin \"qemu\" {{\n config {{\n image_paths = [\"{dir}\"]\n }}\n}}\n"
    );
    let mut agent = agent(engine, &external)?;
    agent.kill_9()?;
    let begun = Instant::now();
    agent.run()?;
    let without = millis(begun);
    let job = (kind.job)("kept", MANY, plugins.path());
    put(&agent, "/v1/jobs", &job)?;
    wait_count(&agent, "kept", "Running", MANY)?;
    let allocs = agent.get("/v1/job/kept/allocations")?;
    let ids: Vec<String> =
        allocs.as_array().into_iter().flatten().filter_map(|a| Some(a["ID"].as_str()?.to_owned())).collect();
    agent.kill_9()?;
    let begun = Instant::now();
    agent.run()?;
    ensure!(ids.len() == MANY, "{} allocations", ids.len());
    // All tasks together, because a measurement of a task takes a fixed time.
    at_once(|number| {
        eventually_within(Duration::from_secs(60), "the task to be there", || {
            let stats = agent.get(&format!("/v1/client/allocation/{}/stats", ids[number]))?;
            ensure!(stats["Tasks"]["t"].is_object(), "{stats}");
            Ok(())
        })
    })?;
    let with = millis(begun);
    let name = kind.name;
    print(&format!("agent restart with 50 {name} tasks re-attached"), with, "ms");
    print(&format!("agent restart with 50 {name} tasks above one without"), with - without, "ms");
    agent.request("DELETE", "/v1/job/kept", None)?;
    wait_count(&agent, "kept", "Complete", MANY)
}
