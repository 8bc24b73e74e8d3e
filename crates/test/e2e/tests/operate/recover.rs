//! Recovery of a cluster that lost its majority: by the verb, and by `peers.json`.

use super::{put, server_id, text, value};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, Servers, eventually};
use nix::sys::signal::Signal;
use std::fs;

/// Returns the last entry of a stopped server's log, as term and index.
fn last(agent: &Agent) -> Result<(u64, u64)> {
    let data = text(&agent.data_dir())?;
    let info = agent.caravan(&["operator", "raft", "info", "-json", &data])?.ok()?;
    let info: serde_json::Value = serde_json::from_str(&info.stdout)?;
    Ok((info["LastTerm"].as_u64().unwrap_or_default(), info["LastIndex"].as_u64().unwrap_or_default()))
}

#[test]
fn a_cluster_without_a_majority_goes_on_with_one_server() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    put(servers.get(0), "kept", "it survives")?;
    servers.wait_level()?;
    // One server falls behind, so that its log is certainly not the newest.
    let leader = servers.wait_leader()?;
    let behind = servers.follower()?;
    servers.get_mut(behind).kill_9()?;
    put(servers.get(leader), "late", "the others have it")?;
    let running = text(&servers.get(leader).data_dir())?;
    let used =
        servers.get(leader).caravan(&["operator", "raft", "recover", "-data-dir", &running, "-yes"])?;
    ensure!(used.failed()?.stderr.contains("in use"), "a running server is never recovered");
    for number in servers.running() {
        servers.get_mut(number).kill_9()?;
    }

    let mut order: Vec<usize> = (0..3).collect();
    order.sort_by_key(|number| last(servers.get(*number)).ok());
    let (own, other) = (order[2], order[1]);
    let dirs: Vec<String> = (0..3).map(|n| text(&servers.get(n).data_dir())).collect::<Result<_>>()?;
    ensure!(order[0] == behind, "the killed server is behind: {order:?}");
    let recover = |dir: &str, more: &[&str]| {
        servers.get(own).caravan(&[&["operator", "raft", "recover", "-data-dir", dir], more].concat())
    };
    // A newer log elsewhere is named, and nothing is changed.
    let refused = recover(&dirs[behind], &["-compare", &dirs[own], "-yes"])?.failed()?;
    ensure!(
        refused.stderr.contains(&format!("the log in {} is newer", dirs[own]))
            && refused.stderr.contains("-lose-newer"),
        "{}",
        refused.all()
    );
    // Without a terminal, the question is answered with no.
    let asked = recover(&dirs[own], &["-compare", &dirs[other]])?.failed()?;
    ensure!(asked.stderr.contains("nothing was changed"), "{}", asked.all());
    let name = |n: usize| format!("server-{}.global", n + 1);
    for words in [name(own), name(other), name(behind), "- Removed: ".to_owned(), "Compared".to_owned()] {
        ensure!(asked.stdout.contains(&words), "{words:?} is not in {}", asked.all());
    }
    let done = recover(&dirs[own], &["-compare", &dirs[other], "-compare", &dirs[behind], "-yes"])?.ok()?;
    ensure!(done.stdout.contains("Recovered: server"), "{}", done.all());

    servers.get_mut(own).spawn()?;
    ensure!(servers.wait_leader()? == own);
    servers.wait_voters(1)?;
    ensure!(value(servers.get(own), "kept")? == "it survives");
    ensure!(value(servers.get(own), "late")? == "the others have it");
    put(servers.get(own), "after", "it goes on")?;
    // A server with its old data is no member, and finds no second majority.
    servers.get_mut(other).spawn()?;
    servers.get(other).wait_log("belongs to cluster")?;
    let members = servers.get(own).get("/v1/operator/raft/configuration")?;
    ensure!(members["Servers"].as_array().is_some_and(|all| all.len() == 1), "{members}");
    servers.get_mut(other).stop_by(Signal::SIGTERM)?;
    // With an empty directory it is admitted.
    let old = servers.get(other).data_dir();
    fs::rename(old.join("server"), old.join("server.old"))?;
    servers.get_mut(other).spawn()?;
    servers.wait_voters(2)?;
    servers.wait_level()?;
    ensure!(value(servers.get(other), "after")? == "it goes on");
    Ok(())
}

#[test]
fn a_peers_file_makes_its_servers_the_members() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    put(servers.get(1), "kept", "it survives")?;
    servers.wait_level()?;
    for number in 0..3 {
        servers.get_mut(number).kill_9()?;
    }
    let (id, address) = (server_id(servers.get(0))?, servers.get(0).rpc_address());
    let file = servers.get(0).data_dir().join("server/raft/peers.json");
    // The agent names the file and the entry, and does not start again and again.
    for (content, words) in [
        ("[{\"id\": \"x\"}]".to_owned(), "entry 1: the id \"x\" is no UUID"),
        (format!("[\"{address}\", \"10.9.9.9:4647\"]"), "entry 2: no member of this cluster had the address"),
    ] {
        fs::write(&file, content)?;
        servers.get_mut(0).spawn()?;
        ensure!(servers.get_mut(0).wait_end()? == 78);
        let log = servers.get(0).log_tail();
        ensure!(log.contains("server/raft/peers.json cannot be applied") && log.contains(words), "{log}");
    }
    fs::write(&file, format!("[{{\"id\": \"{id}\", \"address\": \"{address}\", \"non_voter\": false}}]"))?;
    servers.get_mut(0).spawn()?;
    ensure!(servers.wait_leader()? == 0);
    servers.get(0).wait_log("peers.json was applied")?;
    ensure!(!file.exists() && file.with_extension("json.applied").exists());
    servers.wait_voters(1)?;
    ensure!(value(servers.get(0), "kept")? == "it survives");
    // The file takes effect once.
    servers.get_mut(0).stop_by(Signal::SIGTERM)?;
    let before = servers.get(0).log().matches("peers.json was applied").count();
    servers.get_mut(0).spawn()?;
    eventually("the server to lead again", || {
        if servers.wait_leader()? == 0 { Ok(()) } else { bail!("another server leads") }
    })?;
    ensure!(servers.get(0).log().matches("peers.json was applied").count() == before);
    Ok(())
}
