//! Measures networks of allocations under a real agent, on a separate host. The time is that from the submission of a
//! job in mode `bridge` to the first answer over HTTP on the mapped port. Jobs have one allocation, or many.

use super::agent::{build, millis, put, wait_count};
use super::{example, figure, median};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Host, Switch};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 11;
const MANY: u16 = 50;
/// The first port of the node that leads to an allocation.
const FIRST_PORT: u16 = 24_000;
/// The time in which the work after a start ends.
const SETTLE: Duration = Duration::from_secs(15);
/// The time over which an agent at rest is measured.
const REST: Duration = Duration::from_secs(20);
/// The timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The server of the tasks, which answers from its working directory.
const SERVER: &str = "cd $NOMAD_TASK_DIR && echo here > index.html && exec busybox httpd -f -p 8080";

fn print(case: &str, value: f64, unit: &str) {
    figure("networks", case, value, unit);
}

pub(super) fn run(release: bool) -> Result<()> {
    example("caravan-networks", "set_up", release)?;
    build(release)?;
    let switch = Switch::new(1)?;
    let (node, beside) = (Host::on(&switch)?, Host::on(&switch)?);
    let address = node.address();
    let agent = Agent::with(AgentOptions { host: Some(node), ..AgentOptions::default() })?;
    let own = own_start()?;
    print("start of the server itself, median", own, "ms");
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let id = format!("one-{round}");
        let begun = Instant::now();
        put(&agent, "/v1/jobs", &job(&id, 1))?;
        beside.inside(|| until_answered(address, FIRST_PORT))??;
        rounds.push(millis(begun));
        agent.request("DELETE", &format!("/v1/job/{id}"), None)?;
        wait_count(&agent, &id, "Complete", 1)?;
    }
    let one = median(rounds);
    print("raw_exec submit to the answer on the mapped port, median", one, "ms");
    print("raw_exec submit to the answer beyond the server's own start, median", one - own, "ms");
    let begun = Instant::now();
    put(&agent, "/v1/jobs", &job("many", MANY))?;
    for number in 0..MANY {
        beside.inside(|| until_answered(address, FIRST_PORT + number))??;
    }
    print(&format!("{MANY} allocations in mode bridge running and reachable"), millis(begun) / 1000.0, "s");
    wait_count(&agent, "many", "Running", usize::from(MANY))?;
    // The comparison with allocations of mode `host` shows the share of the networks.
    let bridged = at_rest(agent.pid())?;
    agent.request("DELETE", "/v1/job/many", None)?;
    wait_count(&agent, "many", "Complete", usize::from(MANY))?;
    let mut plain = job("plain", MANY);
    for group in plain["Job"]["TaskGroups"].as_array_mut().context("groups")? {
        group["Networks"] = json!([]);
        group["Tasks"][0]["Config"]["args"] = json!(["-c", "exec busybox sleep 3600"]);
    }
    put(&agent, "/v1/jobs", &plain)?;
    wait_count(&agent, "plain", "Running", usize::from(MANY))?;
    let without = at_rest(agent.pid())?;
    print(
        &format!("processor time of the agent at rest, {MANY} allocations in mode bridge"),
        bridged,
        "ms/s",
    );
    print(
        &format!("processor time of the agent at rest, {MANY} allocations without a network"),
        without,
        "ms/s",
    );
    Ok(())
}

/// Returns the processor time of a process in milliseconds a second, after a while without changes.
fn at_rest(pid: u32) -> Result<f64> {
    std::thread::sleep(SETTLE);
    let before = processor_millis(pid)?;
    std::thread::sleep(REST);
    Ok((processor_millis(pid)? - before) / REST.as_secs_f64())
}

/// Returns the processor time of a process so far (proc_pid_stat(5)). A tick is 10 milliseconds on Linux.
fn processor_millis(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = text.rsplit_once(") ").context("a line of /proc/PID/stat")?;
    let ticks: Vec<f64> = fields.split(' ').skip(11).take(2).flat_map(str::parse).collect();
    Ok(ticks.iter().sum::<f64>() * 10.0)
}

/// Returns a job with a number of groups, each with its own port of the node.
fn job(id: &str, groups: u16) -> Value {
    let group = |number: u16| {
        json!({
            "Name": format!("g{number}"), "Count": 1,
            "EphemeralDisk": { "SizeMB": 20 },
            "Networks": [{
                "Mode": "bridge",
                "ReservedPorts": [{ "Label": "http", "Value": FIRST_PORT + number, "To": 8080 }],
            }],
            "Tasks": [{
                "Name": "t", "Driver": "raw_exec",
                "Config": { "command": "/bin/sh", "args": ["-c", SERVER] },
                "Resources": { "CPU": 1, "MemoryMB": 10 },
                "LogConfig": { "MaxFiles": 1, "MaxFileSizeMB": 1 },
            }],
        })
    };
    json!({ "Job": {
        "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"],
        "TaskGroups": (0..groups).map(group).collect::<Vec<_>>(),
    }})
}

fn until_answered(address: Ipv4Addr, port: u16) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_TIMEOUT {
        if answers(SocketAddr::from((address, port))).unwrap_or(false) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("port {port} does not answer")
}

fn answers(to: SocketAddr) -> Result<bool> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(200))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.contains(" 200 "))
}

/// Measures the time from the start of the server to its answer, without an agent.
fn own_start() -> Result<f64> {
    let dir = std::env::temp_dir().join(format!("caravan-bench-networks-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let alone = Switch::new(1)?;
    let host = Host::on(&alone)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut server = host.inside(|| {
            Command::new("/bin/sh")
                .args(["-c", SERVER])
                .env("NOMAD_TASK_DIR", &dir)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
        })??;
        let answered = host.inside(|| until_answered(Ipv4Addr::LOCALHOST, 8080))?;
        rounds.push(millis(begun));
        server.kill()?;
        let ended = server.wait()?;
        answered?;
        ensure!(!ended.success(), "the server ended by itself");
    }
    std::fs::remove_file(dir.join("index.html"))?;
    std::fs::remove_dir(&dir)?;
    Ok(median(rounds))
}
