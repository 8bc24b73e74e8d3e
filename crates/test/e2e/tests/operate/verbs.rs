//! The verbs about servers against three of them. The columns and keys are those of docs/reference/cluster.md,
//! sections 9, 10 and 16.

use super::{put, server_id, text};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Servers, eventually};
use serde_json::Value;

/// Returns the cells of a table by rows; columns are at least two spaces apart.
fn rows(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(cells).collect()
}

fn run(agent: &Agent, line: &str) -> Result<String> {
    let args: Vec<&str> = line.split(' ').collect();
    Ok(agent.caravan(&args)?.ok().with_context(|| line.to_owned())?.stdout)
}

fn json(agent: &Agent, line: &str) -> Result<Value> {
    let text = run(agent, line)?;
    serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
}

fn has_keys(value: &Value, keys: &[&str]) -> Result<()> {
    let missing: Vec<&&str> = keys.iter().filter(|key| value.get(**key).is_none()).collect();
    ensure!(missing.is_empty(), "{missing:?} are not in {value}");
    Ok(())
}

#[test]
fn the_verbs_about_servers_answer_as_the_reference() -> Result<()> {
    let key = "cg8StVXbQJ0gPvMd9o7yrg==";
    let mut servers = Servers::with(3, &format!("server {{ encrypt = \"{key}\" }}\n"))?;
    servers.wait_voters(3)?;
    let (leader, follower) = (servers.wait_leader()?, servers.follower()?);
    for number in 0..3 {
        members(&servers, number, leader)?;
        raft(&servers, number, leader)?;
        autopilot(servers.get(number))?;
        state(&servers, number, leader)?;
    }
    gossip_keys(servers.get(follower), key)?;
    root_keys(servers.get(follower))?;
    leave(&mut servers)?;
    Ok(())
}

fn members(servers: &Servers, number: usize, leader: usize) -> Result<()> {
    let agent = servers.get(number);
    let table = eventually("all members to be alive", || {
        let table = rows(&run(agent, "server members")?);
        let alive = table.iter().filter(|row| row.get(3).is_some_and(|status| status == "alive")).count();
        if alive == 3 { Ok(table) } else { bail!("{table:?}") }
    })?;
    let heading =
        ["Name", "Address", "Port", "Status", "Leader", "Raft Version", "Build", "Datacenter", "Region"];
    ensure!(table[0] == heading, "{:?}", table[0]);
    for (at, row) in table[1..].iter().enumerate() {
        let expected = format!("server-{}.global", at + 1);
        ensure!(row.len() == 9 && row[0] == expected && row[1] == "127.0.0.1", "{row:?}");
        ensure!(
            row[4] == (at == leader).to_string() && row[5] == "3" && row[7] == "dc1" && row[8] == "global",
            "{row:?}"
        );
    }
    for flag in ["-verbose", "-detailed"] {
        let verbose = rows(&run(agent, &format!("server members {flag}"))?);
        let expected = [&heading[..5], &["Protocol"], &heading[5..], &["Tags"]].concat();
        ensure!(verbose[0] == expected, "{:?}", verbose[0]);
        let tags = verbose[1].last().context("tags")?;
        for tag in
            ["role=nomad", "region=global", "dc=dc1", "expect=3", "vsn=1", "raft_vsn=3", "rpc_addr=127.0.0.1"]
        {
            ensure!(tags.split(',').any(|found| found == tag), "{tag} is not in {tags}");
        }
    }
    let shown = json(agent, "server members -json")?;
    let all = shown.as_array().context("a list")?;
    ensure!(all.len() == 3, "{shown}");
    for member in all {
        has_keys(
            member,
            &[
                "Name",
                "Addr",
                "Port",
                "Tags",
                "Status",
                "ProtocolMin",
                "ProtocolMax",
                "ProtocolCur",
                "DelegateMin",
                "DelegateMax",
                "DelegateCur",
            ],
        )?;
    }
    ensure!(all.iter().filter(|member| member["Tags"]["Leader"] == "true").count() == 1, "{shown}");
    let names = agent.caravan(&["server", "members", "-t", "{{range .}}{{.Name}} {{end}}"])?.ok()?;
    ensure!(names.stdout.trim() == "server-1.global server-2.global server-3.global", "{}", names.stdout);
    ensure!(run(agent, "server-members")? == run(agent, "server members")?, "the old name");
    Ok(())
}

fn raft(servers: &Servers, number: usize, leader: usize) -> Result<()> {
    let agent = servers.get(number);
    for line in [
        "operator raft list-peers",
        "operator raft list-peers -stale",
        "operator raft list-peers -stale=false",
    ] {
        let table = rows(&run(agent, line)?);
        ensure!(table[0] == ["Node", "ID", "Address", "State", "Voter", "RaftProtocol"], "{:?}", table[0]);
        ensure!(table.len() == 4, "{table:?}");
        let mut names: Vec<&String> = table[1..].iter().map(|row| &row[0]).collect();
        ensure!(names.is_sorted(), "{names:?}");
        names.dedup();
        ensure!(names.len() == 3, "{names:?}");
        for at in 0..3 {
            let row = table[1..].iter().find(|row| row[0] == format!("server-{}.global", at + 1));
            let row = row.context("a row for each server")?;
            let state = if at == leader { "leader" } else { "follower" };
            let expected = [&server_id(servers.get(at))?, &servers.get(at).rpc_address(), state, "true", "3"];
            ensure!(row[1..] == expected, "{row:?}, not {expected:?}");
        }
    }
    for (line, words) in [
        ("operator raft remove-peer", "Missing peer id"),
        ("operator raft remove-peer -peer-address=127.0.0.1:1", "-peer-id"),
        ("operator raft remove-peer -peer-id=00000000-0000-0000-0000-000000000000", "not found"),
        ("operator raft transfer-leadership", "-peer-id or -peer-address"),
        ("operator raft transfer-leadership -peer-id=a -peer-address=b", "only one of"),
    ] {
        let refused = agent.caravan(&line.split(' ').collect::<Vec<_>>())?.failed()?;
        ensure!(refused.code == 1 && refused.stderr.contains(words), "{line}: {}", refused.all());
    }
    let id = server_id(servers.get(leader))?;
    let same = agent.caravan(&["operator", "raft", "transfer-leadership", "-peer-id", &id])?.ok()?;
    ensure!(same.stdout.contains("leads already"), "{}", same.all());
    Ok(())
}

fn autopilot(agent: &Agent) -> Result<()> {
    let config = run(agent, "operator autopilot get-config")?;
    for name in [
        "CleanupDeadServers = ",
        "LastContactThreshold = 200ms",
        "MaxTrailingLogs = 250",
        "MinQuorum = ",
        "ServerStabilizationTime = 10s",
        "EnableRedundancyZones = false",
        "DisableUpgradeMigration = false",
        "EnableCustomUpgrades = false",
    ] {
        ensure!(config.contains(name), "{name} is not in {config}");
    }
    has_keys(
        &json(agent, "operator autopilot get-config -json")?,
        &[
            "CleanupDeadServers",
            "LastContactThreshold",
            "MaxTrailingLogs",
            "MinQuorum",
            "ServerStabilizationTime",
        ],
    )?;
    for quorum in ["3", "0"] {
        let line = format!("operator autopilot set-config -min-quorum={quorum} -cleanup-dead-servers=true");
        ensure!(run(agent, &line)?.contains("Configuration updated!"));
        ensure!(run(agent, "operator autopilot get-config")?.contains(&format!("MinQuorum = {quorum}")));
    }
    eventually("a healthy cluster", || {
        let health = run(agent, "operator autopilot health")?;
        let heading = [
            "ID",
            "Name",
            "Address",
            "SerfStatus",
            "Version",
            "Leader",
            "Voter",
            "Healthy",
            "LastContact",
            "LastTerm",
            "LastIndex",
            "StableSince",
        ];
        let rows = rows(&health);
        ensure!(rows.iter().any(|row| row == &heading), "{health}");
        for words in ["Healthy: true", "FailureTolerance: 1", "Leader: ", "Voters:", "Servers:"] {
            ensure!(health.contains(words), "{words} is not in {health}");
        }
        Ok(())
    })?;
    let health = json(agent, "operator autopilot health -json")?;
    has_keys(&health, &["Healthy", "FailureTolerance", "Leader", "Voters", "Servers"])?;
    has_keys(
        &health["Servers"][0],
        &[
            "ID",
            "Name",
            "Address",
            "SerfStatus",
            "Version",
            "Leader",
            "Voter",
            "Healthy",
            "LastContact",
            "LastTerm",
            "LastIndex",
            "StableSince",
        ],
    )
}

/// Checks the verbs that any server answers.
fn state(servers: &Servers, number: usize, leader: usize) -> Result<()> {
    let agent = servers.get(number);
    put(agent, &format!("by/{number}"), "v")?;
    let info = run(agent, "agent-info")?;
    for words in
        ["nomad", "raft", "serf", "known_regions = 1", "num_peers = 2", "members = 3", "encrypted = true"]
    {
        ensure!(info.contains(words), "{words:?} is not in {info}");
    }
    let (leads, state) = if number == leader { ("true", "Leader") } else { ("false", "Follower") };
    let expected = format!("leader_addr = {}", servers.get(leader).rpc_address());
    for words in [format!("leader = {leads}"), format!("state = {state}"), expected] {
        ensure!(info.contains(&words), "{words:?} is not in {info}");
    }
    for line in ["status", "node status", "job status", "eval list", "var list"] {
        run(agent, line)?;
    }
    let own = agent.get("/v1/status/leader")?;
    ensure!(own == servers.get(leader).rpc_address().as_str(), "{own}");
    let refused = agent.caravan(&["server", "join"])?.failed()?;
    ensure!(refused.code == 1, "{}", refused.all());
    let joined = run(agent, &format!("server join {}", servers.get(leader).serf_address()))?;
    ensure!(joined.contains("Joined 1 servers successfully"), "{joined}");
    let failed = agent.caravan(&["server", "join", "127.0.0.1:1"])?.failed()?;
    ensure!(failed.stderr.contains("failed joining"), "{}", failed.all());
    ensure!(run(agent, "server force-leave nobody.global")?.is_empty());
    Ok(())
}

fn gossip_keys(agent: &Agent, first: &str) -> Result<()> {
    let second = run(agent, "operator gossip keyring generate")?.trim().to_owned();
    ensure!(second.len() == 44 && second != run(agent, "operator gossip keyring generate")?.trim());
    let keys = |expected: &[&str]| {
        let shown = run(agent, "operator gossip keyring list")?;
        ensure!(shown.starts_with("Gathering installed encryption keys..."), "{shown}");
        let mut found: Vec<String> = shown.lines().skip(2).map(|line| line.trim().to_owned()).collect();
        found.sort();
        let mut expected: Vec<String> = expected.iter().map(|key| (*key).to_owned()).collect();
        expected.sort();
        ensure!(shown.lines().nth(1) == Some("Key") && found == expected, "{shown}");
        Ok(())
    };
    keys(&[first])?;
    for (verb, words) in [("install", "Installing new"), ("use", "Changing primary")] {
        let done = run(agent, &format!("operator gossip keyring {verb} {second}"))?;
        ensure!(done.trim() == format!("{words} gossip encryption key..."), "{done}");
        keys(&[first, &second])?;
    }
    let primary = agent.caravan(&["operator", "gossip", "keyring", "remove", &second])?.failed()?;
    ensure!(primary.code == 1, "the primary key stays: {}", primary.all());
    run(agent, &format!("operator gossip keyring remove {first}"))?;
    keys(&[&second])
}

fn root_keys(agent: &Agent) -> Result<()> {
    let table = rows(&run(agent, "operator root keyring list")?);
    ensure!(table[0][..3] == ["Key", "State", "Create Time"] && table.len() == 2, "{table:?}");
    let old = json(agent, "operator root keyring list -json")?[0]["KeyID"].clone();
    run(agent, "operator root keyring rotate -now -full")?;
    let listed = json(agent, "operator root keyring list -json")?;
    ensure!(listed.as_array().is_some_and(|keys| keys.len() == 2), "{listed}");
    ensure!(agent.get("/v1/var/by/0")?["Items"]["v"] == "v", "sealed again");
    let old = old.as_str().context("an id")?;
    ensure!(run(agent, &format!("operator root keyring remove {old}"))?.contains(old));
    Ok(())
}

/// Removes servers: by their id, and by force after a failure.
fn leave(servers: &mut Servers) -> Result<()> {
    let leader = servers.wait_leader()?;
    let others: Vec<usize> = (0..3).filter(|number| *number != leader).collect();
    let (removed, killed) = (others[0], others[1]);
    let id = server_id(servers.get(removed))?;
    servers.get_mut(removed).kill_9()?;
    let done = run(servers.get(killed), &format!("operator raft remove-peer -peer-id={id}"))?;
    ensure!(done.contains(&id), "{done}");
    servers.wait_voters(2)?;
    // The removed server is still a member that failed, until it is forced to leave.
    let name = |number: usize| format!("server-{}.global", number + 1);
    let status = |servers: &Servers, number: usize| {
        let members = json(servers.get(leader), "server members -json")?;
        let found =
            members.as_array().into_iter().flatten().find(|member| member["Name"] == name(number).as_str());
        Ok::<_, anyhow::Error>(found.map(|member| member["Status"].as_str().unwrap_or_default().to_owned()))
    };
    eventually("the killed server to be shown as failed", || match status(servers, removed)?.as_deref() {
        Some("failed") => Ok(()),
        other => bail!("{other:?}"),
    })?;
    ensure!(run(servers.get(killed), &format!("server force-leave {}", name(removed)))?.is_empty());
    eventually("the killed server to have left", || match status(servers, removed)?.as_deref() {
        Some("left") => Ok(()),
        other => bail!("{other:?}"),
    })?;
    run(servers.get(killed), &format!("server force-leave -prune {}", name(removed)))?;
    eventually("the killed server to be gone", || match status(servers, removed)? {
        None => Ok(()),
        other => bail!("{other:?}"),
    })?;
    // An unhealthy cluster has exit code 1.
    servers.get_mut(killed).kill_9()?;
    let agent = servers.get(leader);
    eventually("an unhealthy cluster", || {
        let sick = agent.caravan(&["operator", "autopilot", "health"])?;
        ensure!(sick.code == 1, "{}", sick.all());
        Ok(())
    })
}

#[test]
fn a_client_agent_refuses_the_verbs_about_members() -> Result<()> {
    let servers = Servers::start(1)?;
    let client = Agent::with(AgentOptions {
        server: false,
        servers: vec![servers.get(0).rpc_address()],
        ..AgentOptions::default()
    })?;
    for line in ["operator gossip keyring list", "server join 127.0.0.1:1", "server force-leave a.global"] {
        let refused = client.caravan(&line.split(' ').collect::<Vec<_>>())?.failed()?;
        ensure!(refused.stderr.contains("501"), "{line}: {}", refused.all());
    }
    // The other verbs pass through.
    run(&client, "operator raft list-peers")?;
    run(&client, "operator autopilot health")?;
    let file = text(&client.dir().join("state.snap"))?;
    run(&client, &format!("operator snapshot save {file}"))?;
    Ok(())
}
