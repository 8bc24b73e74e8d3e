//! Servers without a leader: their reports, and stale reads of their state. Servers of two clusters.

use super::{put, server_id, text};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Servers, eventually};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Waits until a server shows that there is no leader, wherever it shows leaders.
fn shows_no_leader(agent: &Agent) -> Result<()> {
    eventually("no leader to be shown", || {
        let leader = agent.get("/v1/status/leader?stale")?;
        if leader == "" { Ok(()) } else { bail!("{leader}") }
    })?;
    let configuration = agent.get("/v1/operator/raft/configuration?stale")?;
    let servers = configuration["Servers"].as_array().cloned().unwrap_or_default();
    ensure!(servers.len() == 3 && servers.iter().all(|server| server["Leader"] == false), "{configuration}");
    let health = agent.request("GET", "/v1/agent/health?type=server", None)?;
    ensure!(
        health.status == 500 && health.text().contains("no leader"),
        "{} {}",
        health.status,
        health.text()
    );
    let stats = agent.get("/v1/agent/self")?["stats"].clone();
    ensure!(stats["nomad"]["leader"] == "false" && stats["nomad"]["leader_addr"] == "", "{stats}");
    ensure!(stats["raft"]["state"] == "Candidate", "{stats}");
    let id = server_id(agent)?;
    let path = format!("/v1/operator/raft/transfer-leadership?id={id}");
    let refused = agent.request("PUT", &path, None)?;
    ensure!(
        refused.status == 503 && refused.text() == "No cluster leader",
        "{} {}",
        refused.status,
        refused.text()
    );
    Ok(())
}

/// Reads a variable from the server's own state, with the headers of a server without a leader.
fn reads_stale(agent: &Agent) -> Result<()> {
    let reply = agent.request("GET", "/v1/var/kept?stale=True", None)?;
    ensure!(reply.json()?["Items"]["v"] == "value", "{}", reply.text());
    let known = reply.header("x-nomad-knownleader");
    ensure!(known == Some("false"), "{:?}", reply.headers);
    let default = agent.request("GET", "/v1/var/kept", None)?;
    ensure!(default.status == 500 && default.text() == "No cluster leader", "{}", default.text());
    Ok(())
}

#[test]
fn a_server_without_a_majority_shows_no_leader_and_still_reads_its_state() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let leader = servers.wait_leader()?;
    put(servers.get(leader), "kept", "value")?;
    // The index of the last committed entry reaches the disk with the next write.
    put(servers.get(leader), "next", "value")?;
    servers.wait_level()?;
    for number in (0..3).filter(|number| *number != leader) {
        servers.get_mut(number).kill_9()?;
    }
    shows_no_leader(servers.get(leader))?;
    reads_stale(servers.get(leader))?;
    let contact = servers.get(leader).request("GET", "/v1/jobs?stale", None)?;
    let age: u64 = contact.header("x-nomad-lastcontact").unwrap_or_default().parse()?;
    ensure!(age > 1000, "{:?}", contact.headers);

    // The last server restarts: its state has all committed writes, and can be saved.
    servers.get_mut(leader).kill_9()?;
    servers.get_mut(leader).spawn()?;
    shows_no_leader(servers.get(leader))?;
    reads_stale(servers.get(leader))?;
    eventually("the age of the state of a server that never had a leader", || {
        let reply = servers.get(leader).request("GET", "/v1/jobs?stale", None)?;
        let age: u64 = reply.header("x-nomad-lastcontact").unwrap_or_default().parse()?;
        ensure!(age > 0, "{:?}", reply.headers);
        Ok(())
    })?;
    let file = text(&servers.get(leader).dir().join("rescued.snap"))?;
    servers.get(leader).caravan(&["operator", "snapshot", "save", "-stale", &file])?.ok()?;

    for number in (0..3).filter(|number| *number != leader) {
        servers.get_mut(number).spawn()?;
    }
    let leading = servers.wait_leader()?;
    put(servers.get(leader), "kept", "again")?;
    // The age is that of the state, not of the last message of an earlier leader.
    let current = servers.get(leading).request("GET", "/v1/jobs?stale", None)?;
    let header = |name| current.header(name);
    ensure!(
        header("x-nomad-lastcontact") == Some("0") && header("x-nomad-knownleader") == Some("true"),
        "{:?}",
        current.headers
    );
    Ok(())
}

/// Checks that a follower answers while its leader has no quorum. The follower accepts the leader as long as messages
/// of the leader arrive. Neither server may keep a request beyond the deadline, which both share.
#[test]
fn a_follower_of_a_leader_without_a_quorum_answers() -> Result<()> {
    let mut servers = Servers::start(4)?;
    servers.wait_voters(4)?;
    let leader = servers.wait_leader()?;
    put(servers.get(leader), "kept", "value")?;
    let followers: Vec<usize> = (0..4).filter(|number| *number != leader).collect();
    for number in &followers[1..] {
        servers.get_mut(*number).kill_9()?;
    }
    let follower = servers.get(followers[0]);
    eventually("the follower to have no leader for a read", || {
        let reply = follower.request("GET", "/v1/var/kept", None)?;
        if reply.status == 500 && reply.text() == "No cluster leader" { Ok(()) } else { bail!("{reply:?}") }
    })?;
    let index = follower.request("GET", "/v1/vars?stale", None)?;
    let index = index.header("x-nomad-index").unwrap_or_default();
    let waiting = follower.request("GET", &format!("/v1/vars?index={index}&wait=1s"), None)?;
    ensure!(waiting.status == 500 && waiting.text() == "No cluster leader", "{waiting:?}");
    let write = follower.request("PUT", "/v1/var/more", Some(&json!({"Items": {"v": "value"}})))?;
    ensure!(write.status == 500, "{write:?}");
    Ok(())
}

/// Checks two servers that lose their disks at the same time. They must found no cluster with each other. The
/// survivor admits them again, also if its restart let them propose a cluster.
#[test]
fn a_survivor_takes_back_two_servers_without_disks() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    put(servers.get(0), "kept", "value")?;
    servers.wait_level()?;
    for number in [1, 2] {
        servers.get_mut(number).kill_9()?;
        let dir = servers.get(number).data_dir();
        std::fs::rename(dir.join("server"), dir.join("server.old"))?;
    }
    for number in [1, 2] {
        let waiting = servers.get(number).log().matches("this server waits until it is admitted").count();
        servers.get_mut(number).spawn()?;
        eventually("the server to wait for its admission", || {
            let log = servers.get(number).log();
            let now = log.matches("this server waits until it is admitted").count();
            if now > waiting { Ok(()) } else { bail!("{}", servers.get(number).log_tail()) }
        })?;
    }
    servers.get_mut(0).kill_9()?;
    let dir = text(&servers.get(0).data_dir())?;
    servers.get(0).caravan(&["operator", "raft", "recover", "-data-dir", &dir, "-yes"])?.ok()?;
    servers.get_mut(0).spawn()?;
    servers.wait_voters(3)?;
    servers.wait_level()?;
    let kept = servers.get(2).get("/v1/var/kept?stale")?;
    ensure!(kept["Items"]["v"] == "value", "{kept}");
    Ok(())
}

#[test]
fn a_server_that_waits_for_a_cluster_answers_without_delay() -> Result<()> {
    let agent = Agent::launch(AgentOptions {
        client: false,
        expect: 3,
        join: vec!["127.0.0.1:1".to_owned()],
        ..AgentOptions::default()
    })?;
    eventually("no leader", || {
        let leader = agent.get("/v1/status/leader?stale")?;
        if leader == "" { Ok(()) } else { bail!("{leader}") }
    })?;
    ensure!(agent.get("/v1/status/peers?stale")? == json!([]));
    let jobs = agent.request("GET", "/v1/jobs?stale", None)?;
    ensure!(jobs.json()? == json!([]) && jobs.header("x-nomad-knownleader") == Some("false"), "{jobs:?}");
    Ok(())
}

#[test]
fn servers_of_two_clusters_refuse_each_other_by_name() -> Result<()> {
    let single = |name: &str| {
        let extra = format!("name = \"{name}\"\n");
        Agent::with(AgentOptions { client: false, extra, ..AgentOptions::default() })
    };
    let (one, other) = (single("one")?, single("other")?);
    let cluster = |agent: &Agent| -> Result<String> {
        let tag = agent.get("/v1/agent/self")?["member"]["Tags"]["caravan_cluster"].clone();
        Ok(tag.as_str().unwrap_or_default().to_owned())
    };
    let (own, its) = (cluster(&one)?, cluster(&other)?);
    ensure!(own != its && own.len() == 36, "{own} {its}");
    let refused = one.caravan(&["server", "join", &other.serf_address()])?.failed()?;
    let words = format!("server other.global belongs to cluster {its}, and this server to cluster {own}");
    ensure!(refused.code == 1 && refused.stderr.contains(&words), "{}", refused.all());
    for (agent, name) in [(&one, "other.global"), (&other, "one.global")] {
        agent.wait_log(&format!("server {name} belongs to cluster"))?;
        put(agent, "x", name)?;
        let configuration = agent.get("/v1/operator/raft/configuration")?;
        ensure!(configuration["Servers"].as_array().is_some_and(|all| all.len() == 1), "{configuration}");
    }
    Ok(())
}

#[test]
fn a_join_that_reaches_one_of_two_servers_is_a_warning() -> Result<()> {
    let servers = Servers::start(3)?;
    let (agent, reached) = (servers.get(0), servers.get(1).serf_address());
    let done = agent.caravan(&["server", "join", &reached, "127.0.0.1:1"])?.ok()?;
    ensure!(done.stdout.trim() == "Joined 1 servers successfully", "{}", done.all());
    ensure!(done.stderr.contains("failed to join 127.0.0.1:1"), "{}", done.all());
    let path = format!("/v1/agent/join?address={reached}&address=127.0.0.1:1");
    let answer: Value = agent.request("PUT", &path, None)?.json()?;
    ensure!(answer["num_joined"] == 1 && answer["error"] == "", "{answer}");
    let bad = agent.request("PUT", "/v1/agent/force-leave?node=x&prune=maybe", None)?;
    ensure!(bad.status == 400 && bad.text().contains("maybe"), "{} {}", bad.status, bad.text());
    Ok(())
}

/// Waits until a server shows another one as failed.
fn wait_failed(agent: &Agent, number: usize) -> Result<()> {
    let name = format!("server-{}.global", number + 1);
    eventually("the server to be shown as failed", || {
        let table = agent.get("/v1/agent/members")?;
        let all = table["Members"].as_array().cloned().unwrap_or_default();
        let status = all.iter().find(|member| member["Name"] == name.as_str());
        let status = status.map(|member| member["Status"].clone()).unwrap_or_default();
        if status == "failed" { Ok(()) } else { bail!("{status}") }
    })
}

/// Checks that a running server that an operator removes is not admitted again immediately, but after its restart.
#[test]
fn a_removed_server_returns_after_its_restart() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let (leader, removed) = (servers.wait_leader()?, servers.follower()?);
    let id = server_id(servers.get(removed))?;
    servers.get(leader).caravan(&["operator", "raft", "remove-peer", "-peer-id", &id])?.ok()?;
    let members = |servers: &Servers| -> Result<usize> {
        let configuration = servers.get(leader).get("/v1/operator/raft/configuration")?;
        Ok(configuration["Servers"].as_array().map_or(0, Vec::len))
    };
    ensure!(members(&servers)? == 2);
    let removal = Instant::now();
    servers.get_mut(removed).kill_9()?;
    wait_failed(servers.get(leader), removed)?;
    // On a busy machine, the failure may be noticed after the minute for which a removal counts.
    let (count, is_held) = (members(&servers)?, removal.elapsed() < Duration::from_secs(55));
    ensure!(count == 2 || !is_held, "it was taken back meanwhile");
    servers.get_mut(removed).spawn()?;
    servers.wait_voters(3)?;
    Ok(())
}

#[test]
fn leadership_is_not_passed_on_to_a_dead_server() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let (leader, dead) = (servers.wait_leader()?, servers.follower()?);
    let id = server_id(servers.get(dead))?;
    servers.get_mut(dead).kill_9()?;
    let agent = servers.get(leader);
    wait_failed(agent, dead)?;
    let refused = agent.caravan(&["operator", "raft", "transfer-leadership", "-peer-id", &id])?.failed()?;
    let words = format!("server \"{id}\" does not answer the leader");
    ensure!(refused.code == 1 && refused.stderr.contains(&words), "{}", refused.all());
    ensure!(servers.wait_leader()? == leader, "leadership stays");
    put(agent, "goes/on", "v")?;
    Ok(())
}

/// Takes the lock of a variable, and returns its id.
fn lock(agent: &Agent, path: &str) -> Result<String> {
    let body = json!({"Items": {"v": "x"}, "Lock": {"TTL": "10m", "LockDelay": "1s"}});
    let reply = agent.request("PUT", &format!("/v1/var/{path}?lock-acquire"), Some(&body))?;
    ensure!(reply.status == 200, "{} {}", reply.status, reply.text());
    Ok(reply.json()?["Lock"]["ID"].as_str().unwrap_or_default().to_owned())
}

/// Checks that a leader without a quorum renews no lock: a renewal guarantees that no other caller acquires the lock.
#[test]
fn a_leader_without_a_quorum_renews_no_lock() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let leader = servers.wait_leader()?;
    let body = json!({"Lock": {"ID": lock(servers.get(leader), "held")?}});
    let renew = |agent: &Agent| agent.request("PUT", "/v1/var/held?lock-renew", Some(&body));
    for number in 0..3 {
        let reply = renew(servers.get(number))?;
        ensure!(reply.status == 200, "{number}: {} {}", reply.status, reply.text());
    }
    for number in (0..3).filter(|number| *number != leader) {
        servers.get_mut(number).kill_9()?;
    }
    let refused = renew(servers.get(leader))?;
    ensure!(
        refused.status == 500 && refused.text() == "No cluster leader",
        "{} {}",
        refused.status,
        refused.text()
    );
    for number in (0..3).filter(|number| *number != leader) {
        servers.get_mut(number).spawn()?;
    }
    servers.wait_leader()?;
    eventually("the lock to be renewed", || {
        let reply = renew(servers.get(leader))?;
        if reply.status == 200 { Ok(()) } else { bail!("{} {}", reply.status, reply.text()) }
    })?;
    let other = json!({"Lock": {"ID": "another"}});
    let refused = servers.get(leader).request("PUT", "/v1/var/held?lock-renew", Some(&other))?;
    ensure!(refused.status == 409, "{} {}", refused.status, refused.text());
    Ok(())
}

/// Checks that the verb keeps its lock while servers cannot answer. If the lock was not renewed for its TTL, the verb
/// ends the program.
#[test]
fn the_verb_holds_its_lock_without_a_leader_for_as_long_as_the_lock_lives() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let leader = servers.wait_leader()?;
    let others: Vec<usize> = (0..3).filter(|number| *number != leader).collect();
    let started = servers.get(others[0]).dir().join("started");
    let script = format!("echo > '{}'; exec sleep 120", started.display());
    let mut verb = std::process::Command::new(caravan_testkit::program())
        .args(["var", "lock", "-ttl=20s", "held", "sh", "-c", &script])
        .env("CARAVAN_ADDR", format!("http://{}", servers.get(others[0]).address()))
        .env_remove("NOMAD_ADDR")
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    let held = |servers: &Servers, number: usize| -> Result<Value> {
        Ok(servers.get(number).get("/v1/var/held?stale")?["Lock"]["ID"].clone())
    };
    let id = eventually("the lock to be held", || {
        let id = held(&servers, others[0])?;
        if id.is_string() { Ok(id) } else { bail!("{id}") }
    })?;
    // A verb that has not received the answer yet would acquire the lock again.
    eventually("the program to run", || {
        if started.exists() { Ok(()) } else { bail!("{started:?} is missing") }
    })?;
    servers.get_mut(leader).kill_9()?;
    servers.get_mut(others[1]).kill_9()?;
    let refused = json!({"Lock": {"ID": id}});
    let refused = servers.get(others[0]).request("PUT", "/v1/var/held?lock-renew", Some(&refused))?;
    ensure!(refused.status == 500, "{} {}", refused.status, refused.text());
    ensure!(verb.try_wait()?.is_none(), "the program was ended");
    servers.get_mut(leader).spawn()?;
    servers.get_mut(others[1]).spawn()?;
    servers.wait_leader()?;
    ensure!(held(&servers, others[0])? == id);
    ensure!(verb.try_wait()?.is_none(), "the program was ended");
    for number in 0..3 {
        servers.get_mut(number).kill_9()?;
    }
    let status = eventually("the program to be ended", || match verb.try_wait()? {
        Some(status) => Ok(status),
        None => bail!("it runs"),
    })?;
    let mut words = String::new();
    std::io::Read::read_to_string(&mut verb.stderr.take().context("the output")?, &mut words)?;
    ensure!(status.code() == Some(1) && words.contains("no renewal was answered within 20s"), "{words}");
    Ok(())
}
