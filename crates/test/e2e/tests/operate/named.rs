//! Requests that name the server that answers them (`server_id`): logs, hosts, profiles, debug bundles.

use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Call, Reply, Servers, eventually};

fn ask(agent: &Agent, token: &str, path: &str) -> Result<Reply> {
    agent.send(&Call {
        method: "GET".to_owned(),
        path: path.to_owned(),
        headers: vec![("X-Nomad-Token".to_owned(), token.to_owned())],
        ..Call::default()
    })
}

/// Returns the command line of the server that a request names. It names the directory of that server.
fn command_line(agent: &Agent, token: &str, server: &str) -> Result<String> {
    let reply = ask(agent, token, &format!("/v1/agent/pprof/cmdline?server_id={server}"))?;
    ensure!(reply.status == 200, "{server}: {} {}", reply.status, reply.text());
    Ok(reply.text())
}

#[test]
fn each_agent_passes_a_request_on_to_the_server_that_it_names() -> Result<()> {
    let acl = "acl {\n  enabled = true\n}\n";
    let servers = Servers::with(3, acl)?;
    let leader = servers.wait_leader()?;
    let first = eventually("the first token", || {
        let reply = servers.get(leader).request("PUT", "/v1/acl/bootstrap", None)?;
        if reply.status == 200 { reply.json() } else { bail!("{} {}", reply.status, reply.text()) }
    })?;
    let token = first["SecretID"].as_str().context("a secret")?;
    let client = Agent::launch(AgentOptions {
        server: false,
        servers: (0..3).map(|number| servers.get(number).rpc_address()).collect(),
        extra: acl.to_owned(),
        ..AgentOptions::default()
    })?;
    eventually("the client to know a server", || ask(&client, token, "/v1/jobs"))?;
    let dir = |number: usize| servers.get(number).dir().to_string_lossy().into_owned();
    let agents = (0..3).map(|number| servers.get(number)).chain([&client]);
    for agent in agents {
        for number in 0..3 {
            let id = super::server_id(servers.get(number))?;
            for name in [format!("server-{}.global", number + 1), format!("server-{}", number + 1), id] {
                let line = command_line(agent, token, &name)?;
                ensure!(line.contains(&dir(number)), "{name}: {line}");
            }
        }
        let line = command_line(agent, token, "leader")?;
        ensure!(line.contains(&dir(leader)), "leader: {line}");
        let host = ask(agent, token, "/v1/agent/host?server_id=server-2.global")?.json()?;
        ensure!(host["AgentID"] == "server-2.global", "{host}");
        let unknown = ask(agent, token, "/v1/agent/host?server_id=server-9.global")?;
        ensure!(unknown.status == 400, "{} {}", unknown.status, unknown.text());
        let refused = ask(agent, "", "/v1/agent/pprof/cmdline?server_id=server-2.global")?;
        ensure!(refused.status == 403, "{} {}", refused.status, refused.text());
    }
    // A token that the leader has just created is valid at each server, also for requests that each server answers
    // itself.
    for _ in 0..30 {
        let made = servers.get(leader).send(&Call {
            method: "PUT".to_owned(),
            path: "/v1/acl/token".to_owned(),
            headers: vec![("X-Nomad-Token".to_owned(), token.to_owned())],
            body: br#"{"Name": "new", "Type": "management"}"#.to_vec(),
            ..Call::default()
        })?;
        let secret = made.json()?["SecretID"].as_str().context("a secret")?.to_owned();
        for number in 0..3 {
            let own = ask(servers.get(number), &secret, "/v1/agent/self")?;
            ensure!(own.status == 200, "{number}: {} {}", own.status, own.text());
        }
    }
    // A bundle has the data of all servers.
    let bundle = servers.get(0).dir().join("bundle");
    std::fs::create_dir(&bundle)?;
    let bundle = super::text(&bundle)?;
    let made = servers.get(0).caravan(&[
        "operator",
        "debug",
        "-token",
        token,
        "-duration=1s",
        "-interval=1s",
        "-log-level=DEBUG",
        &format!("-output={bundle}"),
    ])?;
    made.ok()?;
    for number in 1..=3 {
        let mut found = walk(std::path::Path::new(&bundle))?;
        found.retain(|path| path.contains(&format!("server/server-{number}.global")));
        ensure!(found.iter().any(|path| path.ends_with("agent-host.json")), "{number}: {found:?}");
        let log = found.iter().find(|path| path.ends_with("monitor.log")).context("the log of a server")?;
        ensure!(std::fs::metadata(log)?.len() > 0, "{log} is empty");
    }
    Ok(())
}

/// Returns all files below a directory.
fn walk(dir: &std::path::Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(walk(&path)?) } else { found.push(super::text(&path)?) }
    }
    Ok(found)
}
