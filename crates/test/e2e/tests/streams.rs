//! Streams: events, the agent's log, growing files.

use crate::{id_of, run_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

fn sleeper(id: &str) -> String {
    format!(
        "job \"{id}\" {{\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n \
         args = [\"-c\", \"echo up; exec sleep 600\"]\n }}\n resources {{\n cpu = 20\n memory = 16\n }}\n }}\n }}\n}}\n"
    )
}

/// The lines of a streaming answer, without the lines of chunk lengths.
pub(crate) struct Lines(BufReader<TcpStream>);

impl Lines {
    pub(crate) fn open(agent: &Agent, path: &str) -> Result<Self> {
        let address = agent.address();
        let address = address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
        let mut lines = Self(BufReader::new(stream));
        let status = lines.line()?;
        ensure!(status.starts_with("HTTP/1.1 200"), "{status}");
        while !lines.line()?.is_empty() {}
        Ok(lines)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).context("the stream says nothing")?;
        ensure!(read > 0, "the stream ended");
        Ok(line.trim_end().to_owned())
    }

    /// Returns the first value that `look` extracts from a line; skips heartbeats.
    pub(crate) fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Value) -> Option<T>) -> Result<T> {
        for _ in 0..2000 {
            let line = self.line().context(what.to_owned())?;
            if !line.starts_with('{') {
                continue;
            }
            if let Some(found) = look(&serde_json::from_str(&line)?) {
                return Ok(found);
            }
        }
        bail!("{what} did not come")
    }
}

pub(crate) fn events(line: &Value) -> Vec<&Value> {
    line["Events"].as_array().into_iter().flatten().collect()
}

#[test]
fn events_are_told_as_they_happen_and_again_from_an_index() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let mut all = Lines::open(&agent, "/v1/event/stream")?;
    let mut one = Lines::open(&agent, "/v1/event/stream?topic=Job:web&topic=Service:web")?;
    all.until("the first heartbeat", |line| (*line == serde_json::json!({})).then_some(()))?;
    all.until("the node", |line| {
        events(line).iter().any(|e| e["Topic"] == "Node" && e["Type"] == "NodeRegistration").then_some(())
    })?;
    run_job(&agent, "web", &sleeper("web"))?;
    let (index, eval) = all.until("the job", |line| {
        let found = events(line);
        let job = found.iter().find(|e| e["Topic"] == "Job" && e["Key"] == "web")?;
        let eval = found.iter().find(|e| e["Topic"] == "Evaluation")?;
        let typed = job["Type"] == "JobRegistered" && eval["Type"] == "JobRegistered";
        let shaped = job["Payload"]["Job"]["ID"] == "web" && job["FilterKeys"].is_null();
        (typed && shaped).then(|| (line["Index"].as_u64().unwrap_or(0), (*eval).clone()))
    })?;
    ensure!(eval["FilterKeys"] == serde_json::json!(["web", ""]), "{eval}");
    all.until("the placement", |line| {
        let found = events(line);
        let alloc = found.iter().find(|e| e["Topic"] == "Allocation" && e["Type"] == "PlanResult")?;
        let payload = &alloc["Payload"]["Allocation"];
        (payload["JobID"] == "web" && payload.get("Job").is_none()).then_some(())
    })?;
    all.until("the client's word", |line| {
        events(line)
            .iter()
            .any(|e| e["Type"] == "AllocationUpdated" && e["Topic"] == "Allocation")
            .then_some(())
    })?;
    one.until("only what was asked for", |line| {
        let found = events(line);
        (!found.is_empty() && found.iter().all(|e| e["Topic"] == "Job" && e["Key"] == "web")).then_some(())
    })?;
    // A stream from the event's index sends the event again.
    let mut later = Lines::open(&agent, &format!("/v1/event/stream?index={index}&topic=Job"))?;
    let first = later.until("the job again", |line| line["Index"].as_u64())?;
    ensure!(first == index, "{first} for {index}");
    let bad = agent.request("GET", "/v1/event/stream?index=abc", None)?;
    ensure!(bad.status == 400 && bad.text().starts_with("Unable to parse index"), "{}", bad.text());
    ensure!(agent.request("PUT", "/v1/event/stream", None)?.status == 405);
    Ok(())
}

#[test]
fn the_log_is_followed_at_any_level_of_any_agent() -> Result<()> {
    let server = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let client = Agent::with(AgentOptions::client_of(&server))?;
    let node = client.node_id()?;
    // The server answers for the client.
    let path = format!("/v1/agent/monitor?plain=true&log_level=debug&node_id={node}");
    // A server has the record of a node before the node's reverse connection exists.
    let mut log = eventually("the server to reach the client", || Lines::open(&server, &path))?;
    run_job(&server, "web", &sleeper("web"))?;
    let mut seen = false;
    for _ in 0..2000 {
        let line = log.line()?;
        if line.contains("[INFO]  client.runner.alloc: task event")
            && line.contains("Building Task Directory")
        {
            seen = true;
            break;
        }
    }
    ensure!(seen, "the start of the task is in the log");
    let bad = server.caravan(&["monitor", "-log-level", "bogus"])?;
    ensure!(bad.code == 1 && bad.stderr.contains("400 (Unknown log level: bogus)"), "{bad:?}");
    let host = server.get(&format!("/v1/agent/host?node_id={node}"))?;
    ensure!(host["AgentID"] == node.as_str() && host["HostData"]["OS"].is_string(), "{host}");
    let profile = server.request("GET", "/v1/agent/pprof/cmdline", None)?;
    ensure!((profile.status, profile.text().as_str()) == (403, "Permission denied"));
    Ok(())
}

#[test]
fn files_of_an_allocation_are_listed_shown_and_followed() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    run_job(&agent, "web", &sleeper("web"))?;
    let alloc = id_of(&agent.wait_alloc("web", "running")?)?;
    agent.caravan(&["alloc", "exec", "-i=false", &alloc, "sh", "-c", "seq 1 50 > local/words.txt"])?.ok()?;
    let top = agent.caravan(&["alloc", "fs", &alloc])?.ok()?;
    ensure!(top.stdout.contains("alloc/") && top.stdout.contains("t/"), "{}", top.stdout);
    let stat = agent.caravan(&["alloc", "fs", "-stat", &alloc, "t/local/words.txt"])?.ok()?;
    ensure!(stat.stdout.contains("Content Type") && stat.stdout.contains("141 B"), "{}", stat.stdout);
    let whole = agent.caravan(&["alloc", "fs", &alloc, "t/local/words.txt"])?.ok()?;
    ensure!(whole.stdout.lines().count() == 50, "{}", whole.stdout);
    let tail = agent.caravan(&["alloc", "fs", "-tail", "-n", "2", &alloc, "t/local/words.txt"])?.ok()?;
    ensure!(tail.stdout == "49\n50\n", "{}", tail.stdout);
    let missing = agent.caravan(&["alloc", "fs", &alloc, "nope"])?;
    ensure!(
        missing.code == 1 && missing.stderr.contains("Unexpected response code: 404 (stat "),
        "{missing:?}"
    );
    let mut frames = Lines::open(
        &agent,
        &format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true&follow=true"),
    )?;
    eventually("the output", || {
        let line = frames.line()?;
        if line == "up" { Ok(()) } else { bail!("{line:?}") }
    })
}

#[test]
fn free_pairs_of_a_node_change_while_it_runs_and_last() -> Result<()> {
    let mut agent = Agent::with(AgentOptions {
        extra: "client {\n meta {\n rack = \"r1\"\n }\n}\n".to_owned(),
        ..AgentOptions::default()
    })?;
    let node = agent.node_id()?;
    agent.caravan(&["node", "meta", "apply", "-node-id", &node, "-unset", "rack", "color=blue"])?.ok()?;
    let changed = |agent: &Agent| {
        eventually("the servers to know", || {
            let row = agent.get(&format!("/v1/node/{node}"))?;
            if row["Meta"]["color"] == "blue" && row["Meta"].get("rack").is_none() {
                Ok(())
            } else {
                bail!("{}", row["Meta"])
            }
        })
    };
    changed(&agent)?;
    agent.kill_9()?;
    agent.run()?;
    changed(&agent)?;
    let read = agent.caravan(&["node", "meta", "read", "-node-id", &node])?.ok()?;
    let shown = |key: &str, value: &str| {
        read.stdout.lines().any(|line| line.split_whitespace().eq([key, "=", value]))
    };
    ensure!(shown("color", "blue") && shown("rack", "<unset>"), "{}", read.stdout);
    let bad = agent.request("POST", "/v1/client/metadata", Some(&serde_json::json!({"Meta": {"": "x"}})))?;
    ensure!((bad.status, bad.text().as_str()) == (400, "metadata keys must not be empty"), "{}", bad.text());
    let paused = agent.request("GET", "/v1/client/gc", None)?;
    ensure!(paused.status == 200, "{}", paused.text());
    Ok(())
}
