//! Rights across agents: a browser's token, and the rights of tokens when another agent answers.

use crate::replay::websocket::{Replies, talk};
use crate::tenancy::Guarded;
use crate::{id_of, script_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_messages::{ExecOpen, ExecOut, HttpPart, HttpRequest};
use caravan_rpc::{
    Channel, ConnectOptions, Connectivity, PeerIdentity, RetryPolicy, ReverseOptions, ReverseService, Router,
    Secret, methods,
};
use caravan_testkit::{Agent, AgentOptions, eventually};
use caravan_types::acl;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const RUNS: &str = "namespace \"default\" {\n capabilities = [\"read-job\", \"alloc-exec\", \"alloc-node-exec\", \"read-logs\"]\n}\n";
/// Rules that are not sufficient for a driver that does not isolate tasks from the node's processes.
const INSIDE: &str = "namespace \"default\" {\n capabilities = [\"read-job\", \"alloc-exec\"]\n}\n";
const READS: &str = "namespace \"default\" {\n capabilities = [\"read-job\"]\n}\n";

/// Runs a job and returns its allocation.
fn run(guarded: &Guarded) -> Result<String> {
    let path = guarded.agent.dir().join("talks.nomad.hcl");
    fs::write(&path, script_job("talks", "echo secret words; exec sleep 1000"))?;
    guarded.verb(&guarded.root, &["job", "run", "-detach", &path.to_string_lossy()])?.ok()?;
    eventually("the job to run", || {
        let allocs = guarded.as_root("GET", "/v1/job/talks/allocations", None)?.json()?;
        if allocs[0]["ClientStatus"] == "running" { id_of(&allocs[0]) } else { bail!("{allocs}") }
    })
}

/// Runs a command over a websocket, with a token in a header or in the first message.
fn exec(agent: &Agent, alloc: &str, header: Option<&str>, messages: &[Value]) -> Result<Replies> {
    let handshake = if messages.is_empty() { "" } else { "&ws_handshake=true" };
    let path = format!(
        "/v1/client/allocation/{alloc}/exec?task=t&command=%5B%22/bin/echo%22%2C%22inside%22%5D{handshake}"
    );
    let mut headers: Vec<(String, String)> =
        [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
    headers.extend(header.map(|token| ("X-Nomad-Token".to_owned(), token.to_owned())));
    talk(&agent.address(), &path, &headers, messages)
}

/// Checks that the program ran.
fn ran(reported: &Replies) -> Result<()> {
    let text = json!(reported.frames).to_string();
    ensure!(
        reported.status == 101 && text.contains("aW5zaWRlCg==") && text.contains("\"exited\":true"),
        "{reported:?}"
    );
    Ok(())
}

/// Checks that the request was refused after the protocol switch, as Nomad's clients expect.
fn denied(reported: &Replies) -> Result<()> {
    let last = reported.frames.last().context("nothing was said")?;
    ensure!(last["close_code"] == 1008 && last["reason"] == "Permission denied", "{reported:?}");
    ensure!(!json!(reported.frames).to_string().contains("stdout"), "{reported:?}");
    Ok(())
}

fn handshake(token: &str) -> Vec<Value> {
    vec![json!({"version": 1, "auth_token": token})]
}

#[test]
fn a_browser_tells_its_token_in_the_first_message() -> Result<()> {
    let guarded = Guarded::start()?;
    let (runs, reads) = (guarded.token("runs", RUNS)?, guarded.token("reads", READS)?);
    let (agent, alloc) = (&guarded.agent, run(&guarded)?);
    let exec = |header: Option<&str>, messages: &[Value]| exec(agent, &alloc, header, messages);
    ran(&exec(None, &handshake(&runs))?)?;
    ran(&exec(Some(&runs), &[])?)?;
    // The header may hold the same token; then one of the two is enough.
    ran(&exec(Some(&runs), &handshake(&runs))?)?;
    ran(&exec(Some(&runs), &handshake(""))?)?;
    denied(&exec(None, &handshake(&reads))?)?;
    denied(&exec(None, &handshake(&guarded.token("inside", INSIDE)?))?)?;
    denied(&exec(None, &handshake(""))?)?;
    denied(&exec(None, &handshake("5a1a6ad5-0000-4a4e-9e3a-2f1a6d2bb6c9"))?)?;
    denied(&exec(None, &[])?)?;
    // Two different tokens are refused.
    denied(&exec(Some(&runs), &handshake(&reads))?)?;
    denied(&exec(Some(&reads), &handshake(&runs))?)?;
    for (message, reason) in [
        (json!({"version": 2, "auth_token": runs}), "unexpected handshake value: 2"),
        (json!("open"), "unexpected handshake value: 0"),
    ] {
        let reported = exec(None, &[message])?;
        ensure!(reported.frames.last().is_some_and(|last| last["reason"] == reason), "{reported:?}");
    }
    ensure!(!agent.log().contains(&runs), "the log holds a token");
    Ok(())
}

/// Returns a channel of a stranger who has access to the RPC port.
fn stranger(agent: &Agent) -> Channel {
    let identity = PeerIdentity::Client {
        node_id: "11111111-2222-3333-4444-555555555555".to_owned(),
        secret: Secret::new("s"),
    };
    let mut options = ConnectOptions::new(vec![agent.rpc_address()], identity, "global");
    options.retry = RetryPolicy { patience: Duration::ZERO, ..RetryPolicy::default() };
    Channel::connect(options)
}

/// Runs a program by a call between agents. Returns its output, or the refusal.
async fn call_exec(channel: &Channel, alloc: &str, token: &str) -> Result<String, String> {
    let open = ExecOpen {
        alloc: alloc.into(),
        task: "t".to_owned(),
        command: vec!["/bin/echo".to_owned(), "inside".to_owned()],
        secret: acl::Secret::new(token),
        ..ExecOpen::default()
    };
    let mut output = channel.duplex::<methods::Exec>(open, futures::stream::pending());
    let mut printed = Vec::new();
    while let Some(item) = output.next().await {
        match item.map_err(|error| error.message)? {
            ExecOut::Stdout(bytes) => printed.extend(bytes),
            ExecOut::Exited(_) => break,
            _ => {}
        }
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// Requests a task's log by a call between agents. Returns status and body.
async fn call_logs(channel: &Channel, alloc: &str, token: &str) -> Result<(u16, String)> {
    let request = HttpRequest {
        method: "GET".to_owned(),
        uri: format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true"),
        headers: vec![
            ("x-nomad-token".to_owned(), token.to_owned()),
            ("x-caravan-hops".to_owned(), "1".to_owned()),
        ],
        body: Vec::new(),
    };
    let mut parts = channel.stream::<methods::Http>(request);
    let (mut code, mut body) = (0, Vec::new());
    while let Some(part) = parts.next().await {
        match part? {
            HttpPart::Head { status, .. } => code = status,
            HttpPart::Body(chunk) => body.extend(chunk),
        }
    }
    Ok((code, String::from_utf8_lossy(&body).into_owned()))
}

#[test]
fn what_goes_through_other_agents_takes_the_same_rights() -> Result<()> {
    let server = Guarded::start_as(AgentOptions { client: false, ..AgentOptions::default() })?;
    let client = || {
        let extra = "acl {\n  enabled = true\n}\n".to_owned();
        Agent::launch(AgentOptions { extra, ..AgentOptions::client_of(&server.agent) })
    };
    let (one, two) = (client()?, client()?);
    // The agents are dropped in this order, so that jobs are stopped while there are nodes.
    let agents = (server, one, two);
    let (guarded, one, two) = &agents;
    eventually("both nodes to be ready", || {
        let nodes = guarded.as_root("GET", "/v1/nodes", None)?.json()?;
        let ready = nodes.as_array().into_iter().flatten().filter(|node| node["Status"] == "ready").count();
        if ready == 2 { Ok(()) } else { bail!("{nodes}") }
    })?;
    let (runs, reads) = (guarded.token("runs", RUNS)?, guarded.token("reads", READS)?);
    let alloc = run(guarded)?;
    let logs = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    // A node connects back to the server after its registration. Until then, the server has no way to its tasks.
    eventually("the way to the node", || ran(&exec(&guarded.agent, &alloc, Some(&runs), &[])?))?;
    // The server, the client that runs the task, and another client.
    for agent in [&guarded.agent, one, two] {
        ran(&exec(agent, &alloc, Some(&runs), &[])?)?;
        ran(&exec(agent, &alloc, None, &handshake(&runs))?)?;
        denied(&exec(agent, &alloc, Some(&reads), &[])?)?;
        denied(&exec(agent, &alloc, None, &handshake(&reads))?)?;
        denied(&exec(agent, &alloc, None, &[])?)?;
        let read = |token: &str| guarded.call_at(agent, token, "GET", &logs, None);
        eventually("the output", || {
            let found = read(&runs)?;
            if found.text() == "secret words\n" { Ok(()) } else { bail!("{found:?}") }
        })?;
        let refused = read(&reads)?;
        ensure!(refused.status == 403 && refused.text() == "Permission denied", "{refused:?}");
    }
    // A stranger on the server's RPC port needs a token with the right too.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let channel = stranger(&guarded.agent);
        ensure!(call_exec(&channel, &alloc, &runs).await == Ok("inside\n".to_owned()));
        for token in [reads.as_str(), ""] {
            ensure!(call_exec(&channel, &alloc, token).await == Err("Permission denied".to_owned()));
            let (status, text) = call_logs(&channel, &alloc, token).await?;
            ensure!((status, text.as_str()) == (403, "Permission denied"), "{status}: {text}");
        }
        let (status, text) = call_logs(&channel, &alloc, &runs).await?;
        ensure!((status, text.as_str()) == (200, "secret words\n"), "{status}: {text}");
        Ok(())
    })
}

/// Checks that no other agent can register in the place of a node that is purged. Servers send secrets of volumes
/// over the reverse connection of a node, and trust its answers.
#[test]
fn nobody_takes_the_way_back_to_a_node() -> Result<()> {
    let server = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let client = Agent::with(AgentOptions::client_of(&server))?;
    let ready = |what: &str| {
        eventually(what, || {
            let nodes = server.get("/v1/nodes")?;
            if nodes[0]["Status"] == "ready" { id_of(&nodes[0]) } else { bail!("{nodes}") }
        })
    };
    let node = ready("the node")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let identity = PeerIdentity::Client { node_id: node.clone(), secret: Secret::new("made up") };
    let mut connect = ConnectOptions::new(vec![server.rpc_address()], identity, "global");
    let pause = Duration::from_millis(5);
    connect.retry = RetryPolicy { first_pause: pause, longest_pause: pause, ..RetryPolicy::default() };
    let (service, mut state) =
        ReverseService::new(ReverseOptions { connect, router: Router::builder().build() });
    let stop = tokio_util::sync::CancellationToken::new();
    let intruder = runtime.spawn(service.run(stop.clone()));
    let watching = runtime.spawn(async move {
        let taken = state.wait_for(|state| matches!(state, Connectivity::Connected { .. })).await;
        taken.is_ok()
    });
    for round in 0..3 {
        let purged = server.request("PUT", &format!("/v1/node/{node}/purge"), None)?;
        ensure!(purged.status == 200, "{}", purged.text());
        // The real node registers again by itself, and servers can call it.
        eventually(&format!("the node after purge {round}"), || {
            let stats = server.request("GET", &format!("/v1/client/stats?node_id={node}"), None)?;
            if stats.status == 200 { Ok(()) } else { bail!("{}", stats.text()) }
        })?;
        ready("the node to be ready again")?;
    }
    ensure!(!watching.is_finished(), "the intruder was let in");
    stop.cancel();
    runtime.block_on(intruder)?;
    drop(client);
    Ok(())
}

/// Checks that a command that another agent opened for a caller ends when the caller's token is deleted.
#[test]
fn a_deleted_token_ends_the_command_that_it_began() -> Result<()> {
    let guarded = Guarded::start()?;
    let runs = guarded.token("runs", RUNS)?;
    let (agent, alloc) = (&guarded.agent, run(&guarded)?);
    let tokens = guarded.as_root("GET", "/v1/acl/tokens", None)?.json()?;
    let row = tokens.as_array().into_iter().flatten().find(|row| row["Name"] == "runs");
    let accessor = row.and_then(|row| row["AccessorID"].as_str()).context("no such token")?.to_owned();
    let runtime = tokio::runtime::Runtime::new()?;
    let open = ExecOpen {
        alloc: alloc.as_str().into(),
        task: "t".to_owned(),
        command: ["/bin/sh", "-c", "echo begun; exec sleep 1000"].map(str::to_owned).to_vec(),
        secret: acl::Secret::new(&runs),
        ..ExecOpen::default()
    };
    let mut output =
        runtime.block_on(async { stranger(agent).duplex::<methods::Exec>(open, futures::stream::pending()) });
    let first = runtime.block_on(output.next()).context("no output")?;
    ensure!(matches!(&first, Ok(ExecOut::Stdout(text)) if text == b"begun\n"), "{first:?}");
    let deleted = guarded.as_root("DELETE", &format!("/v1/acl/token/{accessor}"), None)?;
    ensure!(deleted.status == 200, "{}", deleted.text());
    let ended = runtime.block_on(async {
        let over = async {
            while let Some(item) = output.next().await {
                if let Err(error) = item {
                    return Some(error);
                }
            }
            None
        };
        tokio::time::timeout(Duration::from_secs(30), over).await
    });
    let error = ended.context("the command goes on")?.context("it ended without a word")?;
    ensure!(error.message.contains("Permission denied"), "{error}");
    Ok(())
}
