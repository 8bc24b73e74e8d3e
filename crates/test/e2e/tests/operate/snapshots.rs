//! Snapshots of a cluster: saved at the leader and at a follower, restored on a running cluster and in another one.

use super::{put, text, value};
use crate::{run_job, script_job};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Servers, eventually};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// Waits until a server answers with a value by itself.
fn wait_value(agent: &Agent, path: &str, expected: &str) -> Result<()> {
    eventually("the restored value", || {
        let found = agent.get(&format!("/v1/var/{path}?stale"))?["Items"]["v"].clone();
        if found == expected { Ok(()) } else { bail!("{found}") }
    })
}

#[test]
fn a_cluster_is_restored_from_a_snapshot() -> Result<()> {
    let servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let (leader, follower) = (servers.wait_leader()?, servers.follower()?);
    put(servers.get(follower), "app", "first")?;
    // The state is larger than one part of a restore.
    for number in 0..24 {
        put(servers.get(leader), &format!("fill/{number}"), &format!("{number}").repeat(48_000 / 2))?;
    }
    servers.wait_level()?;
    let dir = servers.get(0).dir().to_owned();
    let file = |name: &str| text(&dir.join(name));
    for (number, args, name) in
        [(leader, &[][..], "leader"), (follower, &[], "follower"), (follower, &["-stale"], "stale")]
    {
        let path = file(name)?;
        servers
            .get(number)
            .caravan(&[&["operator", "snapshot", "save"], args, &[path.as_str()]].concat())?
            .ok()?;
        let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
        ensure!(mode == 0o600 && !fs::exists(format!("{path}.tmp"))?, "{name}: {mode:o}");
        let seen = servers.get(number).caravan(&["operator", "snapshot", "inspect", &path])?.ok()?;
        for words in ["ID ", "Index", "Term", "Version", "Type", "Count", "Total"] {
            ensure!(seen.stdout.contains(words), "{name}: {words:?} is not in {}", seen.stdout);
        }
        ensure!(!seen.stdout.contains("Cluster Key"), "{}", seen.stdout);
    }
    put(servers.get(leader), "app", "second")?;
    // On a busy machine, the leader may lose its leadership meanwhile.
    let saved = file("follower")?;
    eventually("the restore", || {
        servers.get(follower).caravan(&["operator", "snapshot", "restore", &saved])?.ok()
    })?;
    for number in 0..3 {
        wait_value(servers.get(number), "app", "first")?;
    }
    let voters = servers.wait_voters(3)?;
    ensure!(voters["Servers"].as_array().is_some_and(|all| all.len() == 3), "the membership stays");
    put(servers.get(follower), "app", "third")?;
    Ok(())
}

#[test]
fn another_cluster_needs_the_key_of_the_cluster() -> Result<()> {
    let servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    let agent = servers.get(servers.follower()?);
    put(agent, "app", "secret")?;
    for number in 0..60 {
        put(agent, "many", &number.to_string())?;
    }
    let dir = agent.dir().to_owned();
    let file = |name: &str| text(&dir.join(name));
    for (name, phrase) in [("right", "correct horse\n"), ("wrong", "battery\n")] {
        fs::write(file(name)?, phrase)?;
    }
    let save = |args: &[&str]| agent.caravan(&[&["operator", "snapshot", "save"], args].concat());
    save(&[&file("plain")?])?.ok()?;
    let unsealed = save(&["-with-key", &file("x")?])?.failed()?;
    ensure!(unsealed.stderr.contains("-passphrase-file"), "{}", unsealed.all());
    save(&["-with-key", "-passphrase-file", &file("right")?, &file("sealed")?])?.ok()?;
    let clear = save(&["-with-key", "-clear-key", &file("clear")?])?.ok()?;
    ensure!(clear.stderr.contains("Warning: the file holds the key"), "{}", clear.all());
    let key = fs::read(agent.data_dir().join("server/keyring/cluster.key"))?;
    ensure!(!fs::read(file("sealed")?)?.windows(key.len()).any(|window| window == key));
    for (name, form) in [("sealed", "sealed"), ("clear", "clear")] {
        let seen = agent.caravan(&["operator", "snapshot", "inspect", "-json", &file(name)?])?.ok()?;
        let seen: serde_json::Value = serde_json::from_str(&seen.stdout)?;
        ensure!(seen["CaravanClusterKey"] == form, "{seen}");
    }

    let other = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    put(&other, "own", "value")?;
    let restore = |args: &[&str]| other.caravan(&[&["operator", "snapshot", "restore"], args].concat());
    for (args, words) in [
        (vec![file("plain")?], "server/keyring/cluster.key"),
        (vec![file("sealed")?], "-passphrase-file"),
        (vec!["-passphrase-file".into(), file("wrong")?, file("sealed")?], "the passphrase is wrong"),
        (vec!["-key-file".into(), file("wrong")?, file("plain")?], "has 8 bytes"),
        (
            vec![
                "-key-file".into(),
                text(&other.data_dir().join("server/keyring/cluster.key"))?,
                file("plain")?,
            ],
            "the supplied key is not that key",
        ),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let refused = restore(&args)?.failed()?;
        ensure!(refused.stderr.contains(words), "{args:?}: {}", refused.all());
        ensure!(value(&other, "own")? == "value", "a refused restore changes nothing");
    }
    let key_file = text(&agent.data_dir().join("server/keyring/cluster.key"))?;
    for args in [
        vec!["-passphrase-file".into(), file("right")?, file("sealed")?],
        vec![file("clear")?],
        vec!["-key-file".into(), key_file, file("plain")?],
    ] {
        put(&other, "app", "changed")?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        restore(&args)?.ok()?;
        wait_value(&other, "app", "secret")?;
    }
    // A redacted snapshot has no keys: another cluster restores the snapshot only with `-without-key`.
    let copy = file("copy")?;
    fs::copy(file("clear")?, &copy)?;
    let redacted = agent.caravan(&["operator", "snapshot", "redact", &copy])?.ok()?;
    ensure!(redacted.stdout.contains("holds no key material"), "{}", redacted.all());
    let mut third = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let restore = |args: &[&str]| third.caravan(&[&["operator", "snapshot", "restore"], args].concat());
    restore(&[&copy])?.failed()?;
    restore(&["-without-key", &copy])?.ok()?;
    let unreadable = third.request("GET", "/v1/var/app", None)?;
    ensure!(unreadable.status == 500, "{} {}", unreadable.status, unreadable.text());
    put(&third, "app", "new")?;
    let index = |agent: &Agent, path: &str| Ok::<_, anyhow::Error>(agent.get(path)?["ModifyIndex"].as_u64());
    let (old, new) = (index(agent, "/v1/var/many")?, index(&third, "/v1/var/app")?);
    ensure!(new > old, "indexes go on after those of the snapshot: {new:?} after {old:?}");
    // Indexes continue to grow after a restart.
    third.kill_9()?;
    third.run()?;
    put(&third, "app", "newer")?;
    let newer = index(&third, "/v1/var/app")?;
    ensure!(newer > new, "indexes go on after a restart: {newer:?} after {new:?}");
    Ok(())
}

/// Restores a snapshot that shows an allocation as running, which its node has ended since. After the node's report,
/// the servers place the job again.
#[test]
fn a_job_that_was_stopped_since_a_snapshot_runs_after_its_restore() -> Result<()> {
    let agent = Agent::with(AgentOptions::default())?;
    run_job(&agent, "web", &script_job("web", "sleep 3600"))?;
    let first = agent.wait_alloc("web", "running")?;
    let file = text(&agent.dir().join("before"))?;
    agent.caravan(&["operator", "snapshot", "save", &file])?.ok()?;
    agent.caravan(&["job", "stop", "web"])?.ok()?;
    agent.wait_alloc("web", "complete")?;
    agent.caravan(&["operator", "snapshot", "restore", &file])?.ok()?;
    eventually("another allocation of the job to run", || {
        let allocs = agent.get("/v1/job/web/allocations")?;
        let runs =
            |alloc: &serde_json::Value| alloc["ID"] != first["ID"] && alloc["ClientStatus"] == "running";
        if allocs.as_array().is_some_and(|all| all.iter().any(runs)) { Ok(()) } else { bail!("{allocs}") }
    })
}
