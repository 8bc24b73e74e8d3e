//! Configuration reloads of a running agent, connection limits, and the node's facts about Consul and Vault.

use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Answer, WebServer, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const AGAIN: &str = "the certificates were reloaded";

fn configure(agent: &Agent, text: &str) -> Result<()> {
    Ok(fs::write(agent.dir().join("agent.d/extra.hcl"), text)?)
}

/// Returns the number of times that the agent has reloaded its configuration.
fn times(agent: &Agent) -> usize {
    agent.log().matches(AGAIN).count()
}

/// Reloads the agent's configuration and waits for the result.
fn reload(agent: &Agent) -> Result<()> {
    let before = times(agent);
    agent.signal(Signal::SIGHUP)?;
    eventually("the configuration to be read again", || {
        if times(agent) > before { Ok(()) } else { bail!("{}", agent.log_tail()) }
    })
}

#[test]
fn a_hangup_changes_the_level_of_the_log_and_names_what_has_to_wait() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let shown = || -> Result<Value> { Ok(agent.get("/v1/agent/self")?["config"].clone()) };
    ensure!(shown()?["LogLevel"] == "DEBUG" && agent.log().contains("DEBUG"), "{}", agent.log_tail());
    configure(
        &agent,
        "log_level = \"WARN\"\nregion = \"mars\"\nclient {\n meta {\n secret_word = \"hunter2\"\n }\n}\n\
         limits {\n rpc_max_conns_per_client = 77\n http_max_conns_per_client = 7\n}\n",
    )?;
    agent.signal(Signal::SIGHUP)?;
    // Records at level WARN are written; the record of a successful reload is not.
    let fields = "client.meta.secret_word, limits.http_max_conns_per_client, region";
    agent.wait_log(fields)?;
    ensure!(!agent.log().contains("hunter2"), "the log tells a value");
    let mut config = shown()?;
    eventually("the new level to be shown", || {
        config = shown()?;
        if config["LogLevel"] == "WARN" { Ok(()) } else { bail!("{}", config["LogLevel"]) }
    })?;
    ensure!(config["Limits"]["RPCMaxConnsPerClient"] == 77, "{}", config["Limits"]);
    ensure!(config["Limits"]["HTTPMaxConnsPerClient"] == 100 && config["Region"] == "global", "{config}");
    let quiet = agent.log().len();
    // Work that produces records at DEBUG and INFO.
    crate::run_job(&agent, "said", &crate::script_job("said", "exec sleep 600"))?;
    agent.wait_alloc("said", "running")?;
    let more = agent.log().split_off(quiet);
    ensure!(!more.contains("DEBUG") && !more.contains("INFO"), "{more}");

    // A mistake changes nothing, and the request returns it.
    configure(&agent, "log_level = \"LOUD\"\n")?;
    let reported = agent.request("PUT", "/v1/agent/reload", Some(&json!({})))?;
    ensure!(
        reported.status == 500 && reported.text().contains("\"LOUD\" is not TRACE"),
        "{}",
        reported.text()
    );
    agent.wait_log("the previous one stays in use")?;
    ensure!(shown()?["LogLevel"] == "WARN");

    configure(&agent, "log_level = \"DEBUG\"\n")?;
    let done = agent.request("PUT", "/v1/agent/reload", Some(&json!({})))?;
    ensure!(done.status == 200, "{}", done.text());
    agent.wait_log(AGAIN)?;
    ensure!(shown()?["LogLevel"] == "DEBUG");
    Ok(())
}

#[test]
fn a_level_on_the_command_line_has_the_last_word() -> Result<()> {
    let args = vec!["-log-level".to_owned(), "INFO".to_owned()];
    let agent = Agent::with(AgentOptions { dev: true, args, ..AgentOptions::default() })?;
    configure(&agent, "log_level = \"OFF\"\n")?;
    reload(&agent)?;
    reload(&agent)?;
    ensure!(agent.get("/v1/agent/self")?["config"]["LogLevel"] == "INFO");
    ensure!(!agent.log().contains("take effect at the next start"), "{}", agent.log_tail());
    Ok(())
}

/// Returns the bytes that an agent sends on its RPC port until it closes the connection.
fn said(mut stream: TcpStream) -> Result<String> {
    // Longer than any timeout of the test: a closed connection ends sooner.
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn connections_between_agents_have_limits() -> Result<()> {
    let limits = |time: &str, most: u32| {
        format!("limits {{\n rpc_handshake_timeout = \"{time}\"\n rpc_max_conns_per_client = {most}\n}}\n")
    };
    let extra = limits("100ms", 2);
    let agent = Agent::with(AgentOptions { client: false, extra, ..AgentOptions::default() })?;
    let open = || -> Result<TcpStream> { Ok(TcpStream::connect(agent.rpc_address())?) };
    let reported = said(open()?)?;
    ensure!(reported.contains("no greeting came in time"), "{reported:?}");
    let mut begun = open()?;
    begun.write_all(&[1, 0])?;
    ensure!(said(begun)?.contains("no greeting came in time"));

    // Now there is no handshake timeout, and an address may have two idle connections.
    configure(&agent, &limits("0s", 2))?;
    reload(&agent)?;
    let first = eventually("room for two", || {
        let (first, second) = (open()?, open()?);
        for stream in [&first, &second] {
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
            let mut nothing = [0];
            let mut reader: &TcpStream = stream;
            ensure!(reader.read(&mut nothing).is_err(), "one of the two was refused");
        }
        let reported = said(open()?)?;
        ensure!(reported.contains("lets an address have 2 connections"), "{reported:?}");
        drop(second);
        Ok(first)
    })?;
    drop(first);
    for bad in ["rpc_handshake_timeout = \"-1s\"", "rpc_max_conns_per_client = -1"] {
        let extra = format!("limits {{\n {bad}\n}}\n");
        let mut agent = Agent::launch(AgentOptions { dev: true, extra, ..AgentOptions::default() })?;
        ensure!(agent.wait_end()? == 78 && agent.log().contains("is below 0"), "{}", agent.log_tail());
    }
    Ok(())
}

#[test]
fn an_address_has_so_many_http_connections() -> Result<()> {
    let extra = "limits {\n http_max_conns_per_client = 3\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { dev: true, extra, ..AgentOptions::default() })?;
    let open = || -> Result<TcpStream> { Ok(TcpStream::connect(agent.address())?) };
    // Earlier connections may still be counted.
    let held = eventually("three connections and a fourth that is refused", || {
        let held = [open()?, open()?, open()?];
        for stream in &held {
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
            let mut reader: &TcpStream = stream;
            ensure!(reader.read(&mut [0]).is_err(), "one of the three was refused");
        }
        let reported = said(open()?)?;
        ensure!(reported.starts_with("HTTP/1.1 429 Too Many Requests"), "{reported:?}");
        Ok(held)
    })?;
    drop(held);
    eventually("an answer again", || agent.get("/v1/agent/health").map(drop))
}

#[test]
fn a_node_tells_of_consul_and_vault_beside_it() -> Result<()> {
    let consul = WebServer::start(None, |asked| match asked.path.as_str() {
        "/v1/agent/self" if asked.headers.get("x-consul-token").is_some_and(|token| token == "hush") => {
            let answer = json!({
                "Config": {"Datacenter": "dc1", "NodeName": "box", "Server": true, "Version": "1.17.0"},
                "DebugConfig": {"ConnectEnabled": true, "GRPCPort": 8502},
                "Stats": {},
            });
            Answer::good(answer.to_string())
        }
        _ => Answer::status(403),
    })?;
    let vault = WebServer::start(None, |asked| {
        let answer =
            json!({"version": "1.15.2", "cluster_id": "00af5aa8", "cluster_name": "vault-cluster-1"});
        if asked.path.starts_with("/v1/sys/health") {
            Answer { status: 299, ..Answer::good(answer.to_string()) }
        } else {
            Answer::status(404)
        }
    })?;
    let block = |kind: &str, server: &WebServer, more: &str| {
        format!("{kind} {{\n address = \"http://{}\"\n {more}\n}}\n", server.address())
    };
    let extra = block("consul", &consul, "token = \"hush\"") + &block("vault", &vault, "enabled = true");
    let agent = Agent::with(AgentOptions { dev: true, extra, ..AgentOptions::default() })?;
    let node = format!("/v1/node/{}", agent.node_id()?);
    let attributes = || -> Result<Value> { Ok(agent.get(&node)?["Attributes"].clone()) };
    for (key, value) in [
        ("consul.version", "1.17.0"),
        ("consul.server", "true"),
        ("consul.datacenter", "dc1"),
        ("unique.consul.name", "box"),
        ("consul.connect", "true"),
        ("consul.grpc", "8502"),
        ("consul.sku", "oss"),
        ("consul.ft.namespaces", "false"),
        ("vault.version", "1.15.2"),
        ("vault.accessible", "true"),
        ("vault.cluster_id", "00af5aa8"),
        ("vault.cluster_name", "vault-cluster-1"),
    ] {
        eventually(&format!("{key} = {value}"), || {
            let all = attributes()?;
            if all[key] == value { Ok(()) } else { bail!("{all}") }
        })?;
    }
    ensure!(attributes()?.get("consul.partition").is_none());
    ensure!(!agent.log().contains("hush"), "the log holds a token");
    // A job that needs Consul is placed here now; the warning that nothing is registered stays the same.
    let service = "service {\n name = \"s\"\n provider = \"consul\"\n }\n task \"t\"";
    let job = crate::script_job("needy", "exec sleep 600").replacen("task \"t\"", service, 1);
    let path = agent.dir().join("needy.nomad.hcl");
    fs::write(&path, job)?;
    let out = agent.caravan(&["job", "run", "-detach", &path.to_string_lossy()])?.ok()?;
    ensure!((out.stdout.clone() + &out.stderr).contains("registered nowhere"), "{out:?}");
    agent.wait_alloc("needy", "running")?;

    // Both blocks are removed while the agent runs.
    configure(&agent, "consul {\n address = \"127.0.0.1:1\"\n}\nvault {\n enabled = false\n}\n")?;
    reload(&agent)?;
    eventually("nothing of either", || {
        let all = attributes()?;
        let gone = |key: &String| !key.contains("consul.") && !key.starts_with("vault.");
        if all.as_object().is_some_and(|all| all.keys().all(gone)) { Ok(()) } else { bail!("{all}") }
    })?;
    Ok(())
}
