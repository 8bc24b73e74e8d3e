//! Several servers as processes: founding, leader changes, admission, leaving.

use crate::streams::{Lines, events};
use crate::{create_volume, run_job};
use anyhow::{Context, Result, anyhow, bail, ensure};
use caravan_testkit::{
    Agent, AgentOptions, Plugin, Servers, Writer, browser, eventually, plugin_job, writer_job,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn put(agent: &Agent, path: &str, value: &str) -> Result<()> {
    let reply = agent.request("PUT", &format!("/v1/var/{path}"), Some(&json!({"Items": {"v": value}})))?;
    ensure!(reply.status == 200, "{} {}", reply.status, reply.text());
    Ok(())
}

fn value(agent: &Agent, path: &str) -> Result<Value> {
    Ok(agent.get(&format!("/v1/var/{path}"))?["Items"]["v"].clone())
}

/// Returns the names and states of the members, as a server sees them.
fn members(agent: &Agent) -> Result<Vec<(String, String)>> {
    let table = agent.get("/v1/agent/members")?;
    let member = |member: &Value| {
        let text = |key: &str| member[key].as_str().unwrap_or_default().to_owned();
        (text("Name"), text("Status"))
    };
    Ok(table["Members"].as_array().into_iter().flatten().map(member).collect())
}

/// Checks that the next leader executes a write during which the term of the leader ends.
#[test]
fn no_write_finds_no_leader_while_leadership_is_passed_on() -> Result<()> {
    let servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let is_over = AtomicBool::new(false);
    let write = &|number: usize| -> Result<usize> {
        let mut count = 0;
        while !is_over.load(Ordering::SeqCst) {
            let items = json!({"Items": {"v": "x"}});
            let reply =
                servers.get(number).request("PUT", &format!("/v1/var/by/{number}/{count}"), Some(&items))?;
            ensure!(!reply.text().contains("No cluster leader"), "write {count} at server {number}");
            count += 1;
        }
        Ok(count)
    };
    let pass_on = || {
        (0..12).try_for_each(|_| {
            let leader = servers.wait_leader()?;
            // Leadership may have moved since.
            let _ = servers.get(leader).transfer_leadership();
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6).map(|writer| scope.spawn(move || write(writer % 3))).collect();
        let passed: Result<()> = pass_on();
        is_over.store(true, Ordering::SeqCst);
        for writer in writers {
            let count = writer.join().map_err(|_| anyhow!("a writer panicked"))??;
            ensure!(count > 0, "a writer wrote nothing");
        }
        passed
    })
}

#[test]
fn a_cluster_outlives_its_leader_and_takes_it_back() -> Result<()> {
    let mut servers = Servers::start(3)?;
    let configuration = servers.wait_voters(3)?;
    ensure!(configuration["Servers"].as_array().into_iter().flatten().all(|s| s["RaftProtocol"] == "3"));
    // Every server takes writes, and every server shows them immediately.
    for number in 0..3 {
        put(servers.get(number), &format!("from/{number}"), "one")?;
        for reader in 0..3 {
            ensure!(value(servers.get(reader), &format!("from/{number}"))? == "one");
        }
    }
    let leader = servers.wait_leader()?;
    servers.get_mut(leader).kill_9()?;
    let next = servers.wait_leader()?;
    ensure!(next != leader);
    // The secrets that the dead leader sealed are read by the next one.
    let other = servers.follower()?;
    ensure!(value(servers.get(other), "from/0")? == "one");
    put(servers.get(other), "from/0", "two")?;
    eventually("the dead server to be shown as failed", || {
        let name = format!("server-{}.global", leader + 1);
        let found = members(servers.get(other))?;
        if found.contains(&(name, "failed".to_owned())) { Ok(()) } else { bail!("{found:?}") }
    })?;
    servers.get_mut(leader).spawn()?;
    servers.wait_leader()?;
    servers.wait_voters(3)?;
    servers.wait_level()?;
    ensure!(value(servers.get(leader), "from/0")? == "two");
    let stale = servers.get(leader).request("GET", "/v1/var/from/0?stale", None)?;
    ensure!(stale.status == 200, "{}", stale.text());
    Ok(())
}

#[test]
fn an_ordered_end_passes_leadership_on_and_a_transfer_does_so_too() -> Result<()> {
    let mut servers = Servers::start(3)?;
    let (leader, follower) = (servers.wait_leader()?, servers.follower()?);
    let own =
        |agent: &Agent| Ok::<_, anyhow::Error>(agent.get("/v1/agent/self")?["member"]["Tags"]["id"].clone());
    let id = own(servers.get(follower))?;
    let id = id.as_str().unwrap_or_default();
    let moved = servers.get(leader).caravan(&["operator", "raft", "transfer-leadership", "-peer-id", id])?;
    moved.ok()?;
    ensure!(servers.wait_leader()? == follower, "leadership went elsewhere");
    servers.get_mut(follower).stop_by(Signal::SIGTERM)?;
    ensure!(servers.get(follower).log().contains("passing leadership on"));
    servers.wait_leader()?;
    let other = servers.follower()?;
    put(servers.get(other), "x", "y")?;
    Ok(())
}

/// Checks that a stream of a follower has the writes of the leader, the newest of each object, and continues under
/// the next leader.
#[test]
fn a_stream_stays_with_its_follower() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let leader = servers.wait_leader()?;
    let (follower, third) = match leader {
        0 => (1, 2),
        1 => (0, 2),
        _ => (0, 1),
    };
    let path = "/v1/event/stream?topic=Variable&caravan=true&coalesce=50ms";
    let mut lines = Lines::open(servers.get(follower), path)?;
    let newest = |lines: &mut Lines, key: &str, index: &Value, last: &mut u64| -> Result<usize> {
        let mut sent = 0;
        while *last < index.as_u64().unwrap_or(u64::MAX) {
            *last = lines.until("an event", |line| {
                let found = events(line);
                sent += found.iter().filter(|event| event["Key"] == key).count();
                found.last()?["Index"].as_u64()
            })?;
        }
        Ok(sent)
    };
    let mut last = 0;
    for round in 0..100 {
        put(servers.get(leader), "busy", &round.to_string())?;
    }
    let index = servers.get(leader).get("/v1/var/busy")?["ModifyIndex"].clone();
    let sent = newest(&mut lines, "busy", &index, &mut last)?;
    ensure!((1..100).contains(&sent), "{sent} events of 100 writes");
    servers.get_mut(leader).kill_9()?;
    servers.wait_leader()?;
    put(servers.get(third), "later", "one")?;
    let index = servers.get(third).get("/v1/var/later")?["ModifyIndex"].clone();
    ensure!(newest(&mut lines, "later", &index, &mut last)? == 1);
    Ok(())
}

/// Checks that a read that a follower began under a leader that froze is answered under the next leader.
#[test]
fn reads_at_followers_survive_a_frozen_leader() -> Result<()> {
    let servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    put(servers.get(0), "x", "y")?;
    let leader = servers.wait_leader()?;
    let others: Vec<usize> = (0..3).filter(|number| *number != leader).collect();
    let (reads, is_over) = ([const { AtomicUsize::new(0) }; 6], AtomicBool::new(false));
    let read = |number: usize, count: &AtomicUsize| -> Result<()> {
        while !is_over.load(Ordering::Relaxed) {
            ensure!(value(servers.get(number), "x")? == "y");
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    // Every reader continues: none waits for the frozen leader.
    let go_on = |what: &str| {
        let counts = || reads.each_ref().map(|count| count.load(Ordering::Relaxed));
        let before = counts();
        eventually(what, || {
            let now = counts();
            ensure!(
                now.iter().zip(before).all(|(now, before)| *now >= before + 20),
                "{before:?}, then {now:?}"
            );
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let (read, readers) = (&read, others.iter().cycle().zip(&reads));
        let readers: Vec<_> =
            readers.map(|(number, count)| scope.spawn(move || read(*number, count))).collect();
        let steps = || {
            go_on("reads under the first leader")?;
            servers.get(leader).signal(Signal::SIGSTOP)?;
            let done = go_on("reads under the next leader");
            servers.get(leader).signal(Signal::SIGCONT)?;
            done
        };
        let done = steps();
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| anyhow!("a reader panicked"))??;
        }
        done
    })
}

/// Checks that streams of all servers have the changes of wait reasons, also under the next leader. Wait reasons are
/// only in the leader's memory.
#[test]
fn reasons_of_waits_are_on_the_streams_of_followers() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let leader = servers.wait_leader()?;
    let addresses = (0..3).map(|number| servers.get(number).rpc_address()).collect();
    let mut client =
        Agent::with(AgentOptions { server: false, servers: addresses, ..AgentOptions::default() })?;
    let first = servers.get(leader);
    run_job(first, "hostpath", &plugin_job(&Plugin { driver: "raw_exec".into(), args: Vec::new() }))?;
    first.wait_plugin("hostpath")?;
    create_volume(first, "data", "single-node-writer")?;
    let job = writer_job(&Writer {
        id: "writer".into(),
        driver: "raw_exec".into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        word: "written by allocation".into(),
    });
    run_job(first, "writer", &job)?;
    first.wait_alloc("writer", "running")?;
    let followers = (0..3).filter(|number| *number != leader);
    let path = "/v1/event/stream?topic=CSIVolume:data&caravan=true&coalesce=50ms";
    let mut streams =
        followers.map(|number| Lines::open(servers.get(number), path)).collect::<Result<Vec<_>>>()?;
    // The client is killed, so the claim waits for the client.
    client.kill_9()?;
    first.caravan(&["job", "stop", "-detach", "writer"])?.ok()?;
    /// Returns the reasons of an event about them.
    fn reasons(line: &Value) -> Option<Vec<String>> {
        let found = events(line);
        let event = found.iter().find(|event| event["Type"] == "CSIVolumeReason")?;
        let claims = event["Payload"]["Volume"]["CaravanClaims"].as_array()?;
        let text = |claim: &Value| claim["WaitsFor"].as_str().map(str::to_owned);
        Some(claims.iter().filter_map(text).filter(|text| !text.is_empty()).collect())
    }
    for stream in &mut streams {
        stream.until("a reason", |line| reasons(line).filter(|found| !found.is_empty()))?;
    }
    servers.get_mut(leader).kill_9()?;
    servers.wait_leader()?;
    client.spawn()?;
    // Under the next leader, the client releases the volume, and the reason ends.
    for stream in &mut streams {
        stream.until("the end of the reason", |line| reasons(line).filter(Vec::is_empty))?;
    }
    Ok(())
}

#[test]
fn a_server_joins_by_its_address_is_promoted_and_leaves() -> Result<()> {
    let mut servers = Servers::start(1)?;
    put(servers.get(0), "before", "it joined")?;
    let extra = "server { bootstrap_expect = 0 }\nleave_on_interrupt = true\n";
    let new = servers.add(extra)?;
    servers.wait_voters(2)?;
    let third = servers.add(extra)?;
    servers.wait_voters(3)?;
    servers.wait_level()?;
    ensure!(value(servers.get(new), "before")? == "it joined");
    // The first server may end now.
    servers.get_mut(0).kill_9()?;
    servers.wait_leader()?;
    ensure!(value(servers.get(third), "before")? == "it joined");
    servers.get_mut(0).spawn()?;
    servers.wait_leader()?;
    servers.get_mut(new).stop_by(Signal::SIGINT)?;
    servers.wait_voters(2)?;
    let mut gone = String::new();
    // The first server has just returned. If it learns last that the other one leaves, it shows that one as failed
    // first.
    eventually("a member that left", || {
        let seen = members(servers.get(0))?;
        let left = seen.into_iter().find(|(_, status)| status == "left");
        gone = left.context("a member that left")?.0;
        Ok(())
    })?;
    let agent = servers.get(0);
    browser::session("servers.mjs", &format!("http://{}", agent.address()), &[&gone], &[])
        .with_context(|| format!("--- log of the agent\n{}", agent.log_tail()))
}

#[test]
fn a_client_of_one_server_is_reached_through_all() -> Result<()> {
    let mut servers = Servers::start(3)?;
    let leader = servers.wait_leader()?;
    let client = Agent::with(AgentOptions {
        server: false,
        servers: vec![servers.get(leader).rpc_address()],
        ..AgentOptions::default()
    })?;
    let job = r#"
job "talk" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo hello; exec sleep 1000"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
"#;
    let other = servers.follower()?;
    run_job(servers.get(other), "talk", job)?;
    let alloc = servers.get(other).wait_alloc("talk", "running")?;
    let id = alloc["ID"].as_str().unwrap_or_default().to_owned();
    let reach = |servers: &Servers| {
        for number in servers.running() {
            let agent = servers.get(number);
            eventually("the log of the task through each server", || {
                let logs = agent.caravan(&["alloc", "logs", &id])?.ok()?;
                if logs.stdout == "hello\n" { Ok(()) } else { bail!("{logs:?}") }
            })?;
            let exec = agent.caravan(&["alloc", "exec", "-i=false", &id, "echo", "inside"])?.ok()?;
            ensure!(exec.stdout.contains("inside"), "{exec:?}");
        }
        Ok(())
    };
    reach(&servers)?;
    // The client moves to another server, and its node stays.
    servers.get_mut(leader).kill_9()?;
    servers.wait_leader()?;
    reach(&servers)?;
    let node = client.node_id()?;
    let other = servers.follower()?;
    ensure!(servers.get(other).get(&format!("/v1/node/{node}"))?["Status"] == "ready");
    let events = servers.get(other).get(&format!("/v1/node/{node}"))?["Events"].to_string();
    ensure!(!events.contains("heartbeat missed"), "{events}");
    Ok(())
}
