//! One server, and clients on other hosts (network namespaces). One client is behind NAT and cannot be reached from
//! outside.

use crate::recovery::process_with;
use crate::{create_volume, id_of, run_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_messages::NodeHeartbeat;
use caravan_rpc::{
    Channel, Code, ConnectOptions, KeepAlive, PeerIdentity, RetryPolicy, RpcError, Secret, TcpConnector,
    methods,
};
use caravan_testkit::{
    Agent, AgentOptions, Host, Plugin, Router, Switch, Writer, eventually, mounts_below, plugin_job,
    process_alive, writer_job,
};
use caravan_types::node::NodeSecret;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The agents of a test. Fields are dropped in this order: the clients' tasks end while the server still runs.
struct World {
    b: Agent,
    a: Agent,
    server: Agent,
    b_host: Host,
    server_host: Host,
}

impl Drop for World {
    fn drop(&mut self) {
        // A failed test leaves the cable unplugged.
        let _ = self.b_host.mend();
    }
}

fn client(name: &str, host: &Host, server: &Agent) -> AgentOptions {
    AgentOptions {
        extra: format!("name = \"{name}\"\nclient {{\n meta {{\n where = \"{name}\"\n }}\n}}\n"),
        host: Some(host.clone()),
        ..AgentOptions::client_of(server)
    }
}

/// Starts a server, a client `a` on its network and a client `b` behind NAT. Nodes count as lost soon.
fn world() -> Result<World> {
    let outside = Switch::new(1)?;
    let router = Router::new(&outside, 2)?;
    let (server_host, a_host, b_host) = (Host::on(&outside)?, Host::on(&outside)?, Host::behind(&router)?);
    let server = Agent::with(AgentOptions {
        client: false,
        extra: "server {\n heartbeat_grace = \"1s\"\n min_heartbeat_ttl = \"1s\"\n}\n".into(),
        host: Some(server_host.clone()),
        ..AgentOptions::default()
    })?;
    let a = Agent::with(client("a", &a_host, &server))?;
    let b = Agent::with(client("b", &b_host, &server))?;
    Ok(World { b, a, server, b_host, server_host })
}

/// Returns a job whose tasks print their node and keep running.
fn job(id: &str, kind: &str, more: &str) -> String {
    format!(
        r#"
job "{id}" {{
  type = "{kind}"
  {more}
  group "g" {{
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", "echo on ${{node.unique.name}}; while :; do sleep 0.2; done"]
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}

const ON_B: &str = "constraint {\n attribute = \"${meta.where}\"\n value = \"b\"\n}\n";
const RATHER_ON_B: &str = "affinity {\n attribute = \"${meta.where}\"\n value = \"b\"\n weight = 100\n}\n";

impl World {
    /// Returns the only running allocation of a job on a node.
    fn on(&self, job: &str, node: &str) -> Result<String> {
        eventually(&format!("one allocation of {job} running on {node}"), || {
            let allocs = self.server.allocs(job)?;
            let here: Vec<&Value> = allocs
                .iter()
                .filter(|a| a["NodeName"] == node && a["ClientStatus"] == "running")
                .filter(|a| a["DesiredStatus"] == "run")
                .collect();
            match here.as_slice() {
                [one] => id_of(one),
                _ => bail!("{}: {allocs:?}", here.len()),
            }
        })
        .with_context(|| format!("--- log of the server\n{}", self.server.log_tail()))
    }

    fn node_is(&self, node: &Agent, id: &str, status: &str) -> Result<()> {
        eventually(&format!("node {id} to be {status}"), || {
            let row = self.server.get(&format!("/v1/node/{id}"))?;
            if row["Status"] == status { Ok(()) } else { bail!("{}", row["Status"]) }
        })
        .with_context(|| format!("--- log of the node\n{}", node.log_tail()))
    }
}

fn says(agent: &Agent, alloc: &str, task: &str, text: &str) -> Result<()> {
    eventually(&format!("{text:?} in the output"), || {
        let found = agent.logs(alloc, task, "stdout")?;
        if found.contains(text) { Ok(()) } else { bail!("{found:?}") }
    })
}

#[test]
fn jobs_run_everywhere_and_logs_are_read_from_everywhere() -> Result<()> {
    let w = world()?;
    // The premise of the test: outside hosts cannot connect to b.
    let b_http = w.b.address().parse()?;
    ensure!(w.server_host.connect(b_http).is_err(), "the server reaches a host behind NAT");
    run_job(&w.b, "everywhere", &job("everywhere", "system", ""))?;
    for node in ["a", "b"] {
        let alloc = w.on("everywhere", node)?;
        for asked in [&w.server, &w.a, &w.b] {
            says(asked, &alloc, "t", &format!("on {node}\n"))?;
        }
        let out = w.server.caravan(&["alloc", "logs", &alloc])?.ok()?;
        ensure!(out.stdout == format!("on {node}\n"), "{out:?}");
        let listed = w.a.get(&format!("/v1/client/fs/ls/{alloc}?path=/"))?;
        ensure!(listed.to_string().contains("alloc"), "{listed}");
    }
    // Constraints on the nodes' attributes.
    run_job(&w.a, "narrow", &job("narrow", "service", ON_B))?;
    w.on("narrow", "b").map(drop)
}

#[test]
fn a_volume_lives_behind_nat() -> Result<()> {
    let w = world()?;
    let state = format!("--state-dir={}", w.b.dir().join("volumes").display());
    let plugin =
        plugin_job(&Plugin { driver: "raw_exec".into(), args: vec![state, "--controller-publish".into()] })
            .replace("group \"plugin\" {", &format!("group \"plugin\" {{\n{ON_B}"));
    run_job(&w.server, "hostpath", &plugin)?;
    w.server.wait_plugin("hostpath")?;
    create_volume(&w.server, "data", "single-node-writer")?;
    let writer = |id: &str| {
        writer_job(&Writer {
            id: id.into(),
            driver: "raw_exec".into(),
            volume: "data".into(),
            access_mode: "single-node-writer".into(),
            word: format!("from-{id}"),
        })
    };
    run_job(&w.a, "one", &writer("one"))?;
    let one = w.on("one", "b")?;
    says(&w.server, &one, "writer", "from-one 2")?;
    run_job(&w.server, "two", &writer("two"))?;
    w.server.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    let two = w.on("two", "b")?;
    says(&w.a, &two, "writer", "from-one 2")?;
    says(&w.a, &two, "writer", "from-two 1")?;
    w.server.caravan(&["job", "stop", "-detach", "two"])?.ok()?;
    w.server.wait_no_claims("data")?;
    w.a.caravan(&["volume", "delete", "data"])?.ok()?;
    eventually("no mount of the volume to be left", || {
        let mut left = mounts_below(&w.b.dir().to_string_lossy())?;
        left.retain(|m| m.contains("/per-alloc/") || m.contains("/staging/") || m.ends_with("/local/data"));
        if left.is_empty() { Ok(()) } else { bail!("{left:?}") }
    })
}

#[test]
fn the_server_dies_and_comes_back() -> Result<()> {
    let mut w = world()?;
    run_job(&w.server, "before", &job("before", "system", ""))?;
    let allocs = [w.on("before", "a")?, w.on("before", "b")?];
    let tasks = [process_with(&allocs[0])?, process_with(&allocs[1])?];
    w.server.kill_9()?;
    // A client reports the lost server after a bounded wait.
    let reply = w.a.request("GET", "/v1/jobs", None)?;
    ensure!(reply.status >= 500 && !reply.text().is_empty(), "{} {}", reply.status, reply.text());
    w.server.run()?;
    run_job(&w.server, "after", &job("after", "system", ""))?;
    for node in ["a", "b"] {
        let alloc = w.on("after", node)?;
        says(&w.server, &alloc, "t", &format!("on {node}\n"))?;
    }
    ensure!([w.on("before", "a")?, w.on("before", "b")?] == allocs, "allocations were replaced");
    ensure!([process_with(&allocs[0])?, process_with(&allocs[1])?] == tasks, "tasks were restarted");
    Ok(())
}

#[test]
fn a_host_is_cut_off_and_comes_back() -> Result<()> {
    let w = world()?;
    let b_node = w.b.node_id()?;
    run_job(&w.server, "moving", &job("moving", "service", RATHER_ON_B))?;
    run_job(&w.server, "everywhere", &job("everywhere", "system", ""))?;
    let (old, stuck) = (w.on("moving", "b")?, w.on("everywhere", "b")?);
    let (old_pid, _) = process_with(&old)?;
    let (stuck_pid, _) = process_with(&stuck)?;

    w.b_host.cut()?;
    w.node_is(&w.b, &b_node, "down")?;
    w.on("moving", "a")?;
    for id in [&old, &stuck] {
        eventually("the allocation to be lost", || {
            let alloc = w.server.get(&format!("/v1/allocation/{id}"))?;
            if alloc["ClientStatus"] == "lost" { Ok(()) } else { bail!("{}", alloc["ClientStatus"]) }
        })?;
    }
    ensure!(process_alive(old_pid) && process_alive(stuck_pid), "a host that is alone keeps its tasks");
    let reply =
        w.server.request("GET", &format!("/v1/client/fs/logs/{old}?task=t&type=stdout&plain=true"), None)?;
    ensure!(reply.status != 200 && !reply.text().is_empty(), "{} {}", reply.status, reply.text());

    w.b_host.mend()?;
    w.node_is(&w.b, &b_node, "ready")?;
    for pid in [old_pid, stuck_pid] {
        eventually("the replaced task to end", || {
            if process_alive(pid) { bail!("{pid} runs") } else { Ok(()) }
        })?;
    }
    let again = w.on("everywhere", "b")?;
    says(&w.server, &again, "t", "on b\n")?;
    ensure!(w.server.allocs("moving")?.iter().filter(|a| a["ClientStatus"] == "running").count() == 1);
    Ok(())
}

#[test]
fn a_client_behind_nat_stops_or_dies_and_its_tasks_go_on() -> Result<()> {
    let mut w = world()?;
    run_job(&w.server, "staying", &job("staying", "service", ON_B))?;
    let alloc = w.on("staying", "b")?;
    let (task, node) = (process_with(&alloc)?, w.b.node_id()?);
    for round in ["SIGTERM", "SIGINT", "SIGKILL"] {
        match round {
            "SIGTERM" => w.b.stop_by(Signal::SIGTERM)?,
            "SIGINT" => w.b.stop_by(Signal::SIGINT)?,
            _ => w.b.kill_9()?,
        }
        ensure!(process_with(&alloc)? == task, "the task ended with the agent by {round}");
        w.b.run()?;
        ensure!(w.b.node_id()? == node, "the node forgot who it is by {round}");
        says(&w.server, &alloc, "t", "on b\n")?;
        ensure!(w.on("staying", "b")? == alloc && process_with(&alloc)? == task, "restarted by {round}");
    }
    Ok(())
}

/// Sends a heartbeat of a node to the server with this identity.
fn heartbeat_as(
    host: &Host,
    server: &Agent,
    region: &str,
    identity: PeerIdentity,
    node: &str,
    secret: &str,
) -> Result<RpcError> {
    let retry = RetryPolicy { patience: Duration::ZERO, ..RetryPolicy::default() };
    let options = ConnectOptions {
        retry,
        connector: Arc::new(TcpConnector::default()),
        keep_alive: KeepAlive::default(),
        ..ConnectOptions::new(vec![server.rpc_address()], identity, region)
    };
    let request =
        NodeHeartbeat { node_id: node.into(), secret: NodeSecret::new(secret), wants_identity: false };
    let answer = host.inside(|| -> Result<_> {
        // All tasks run on this thread, because only this thread is in the host's namespace.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(async {
            Channel::connect(options)
                .call::<methods::NodeHeartbeat>(request, Some(Duration::from_secs(10)))
                .await
        }))
    })??;
    match answer {
        Err(error) => Ok(error),
        Ok(contact) => bail!("the server answered {contact:?}"),
    }
}

#[test]
fn strangers_are_refused() -> Result<()> {
    let w = world()?;
    let (node, host) = (w.b.node_id()?, &w.server_host);
    let other = |id: &str| PeerIdentity::Client { node_id: id.into(), secret: Secret::new("guessed") };
    // A connection for a node with the wrong secret is refused, and so is a call on an allowed connection.
    let error = heartbeat_as(host, &w.server, "global", other(&node), &node, "guessed")?;
    ensure!(error.code == Code::Permission && error.message.contains("another secret"), "{error:?}");
    ensure!(!error.message.contains("guessed"), "{error:?}");
    let error = heartbeat_as(host, &w.server, "global", other("nobody-yet"), &node, "guessed")?;
    ensure!(error.code == Code::Permission && error.message.contains("wrong secret"), "{error:?}");
    let server = PeerIdentity::server("impostor");
    let error = heartbeat_as(host, &w.server, "global", server, &node, "guessed")?;
    ensure!(error.code == Code::Permission, "{error:?}");
    let error = heartbeat_as(host, &w.server, "elsewhere", other(&node), &node, "guessed")?;
    ensure!(error.message.contains("region \"elsewhere\" is not served here"), "{error:?}");

    // An agent of another region reports the reason of the refusal.
    let mut lost = client("lost", host, &w.server);
    lost.extra.push_str("region = \"elsewhere\"\nports {\n http = 5646\n}\n");
    let lost = Agent::launch(lost)?;
    lost.wait_log("is not served here: this server's is")?;
    let nodes = w.server.get("/v1/nodes")?;
    ensure!(nodes.as_array().map(Vec::len) == Some(2), "{nodes}");
    Ok(())
}
