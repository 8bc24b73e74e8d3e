//! Calls between agents over TLS.

use super::{Certificates, sleeper};
use crate::id_of;
use anyhow::{Context, Result, bail, ensure};
use caravan_messages::NodeHeartbeat;
use caravan_rpc::{
    Channel, Code, ConnectOptions, PeerIdentity, RetryPolicy, Secret, TcpConnector, TlsConnector, methods,
};
use caravan_testkit::{Agent, AgentOptions, eventually};
use caravan_tls::{Checked, ClientSettings, Connector};
use caravan_types::node::NodeSecret;
use nix::sys::signal::Signal;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const BOTH: &str = "rpc = true\n verify_server_hostname = true";

fn server(certificates: &Certificates, kind: &str) -> AgentOptions {
    AgentOptions { client: false, extra: certificates.block(kind, BOTH), ..AgentOptions::default() }
}

fn client(server: &Agent, extra: String) -> AgentOptions {
    AgentOptions { extra, ..AgentOptions::client_of(server) }
}

/// Introduces itself with this identity, with or without a certificate. Returns the refusal.
fn refusal(
    agent: &Agent,
    identity: PeerIdentity,
    certificate: Option<(&Certificates, &str)>,
) -> Result<String> {
    let mut options = ConnectOptions::new(vec![agent.rpc_address()], identity, "global");
    options.retry = RetryPolicy { patience: Duration::ZERO, ..RetryPolicy::default() };
    if let Some((certificates, kind)) = certificate {
        let pem = |end: &str| certificates.path(&format!("global-{kind}-nomad{end}.pem"));
        let tls = Connector::new(&ClientSettings {
            ca_file: Some(PathBuf::from(certificates.ca())),
            cert_file: Some(pem("")),
            key_file: Some(pem("-key")),
            checked: Checked::Authority,
            ..ClientSettings::default()
        })?;
        options.connector = Arc::new(TlsConnector { tcp: TcpConnector::default(), tls });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let beat = NodeHeartbeat { node_id: NODE.into(), secret: NodeSecret::new("s"), wants_identity: false };
    let answer = runtime.block_on(async {
        Channel::connect(options).call::<methods::NodeHeartbeat>(beat, Some(Duration::from_secs(10))).await
    });
    let error = answer.err().context("the call was answered")?;
    ensure!(error.code == Code::Permission, "{error:?}");
    Ok(error.message)
}

const NODE: &str = "11111111-2222-3333-4444-555555555555";

fn somebody() -> PeerIdentity {
    PeerIdentity::Client { node_id: NODE.to_owned(), secret: Secret::new("s") }
}

#[test]
fn calls_between_agents_are_encrypted() -> Result<()> {
    let (certificates, others) = (Certificates::make()?, Certificates::make()?);
    let server = Agent::with(server(&certificates, "server"))?;
    let node = Agent::with(client(&server, certificates.block("client", BOTH)))?;
    // Calls go in both directions over the connection that the client opened.
    crate::run_job(&server, "sleeper", &sleeper())?;
    let alloc = id_of(&server.wait_alloc("sleeper", "running")?)?;
    eventually("its output, by way of the server", || {
        let found = server.logs(&alloc, "t", "stdout")?;
        if found == "awake\n" { Ok(()) } else { bail!("{found:?}") }
    })?;
    let out = node.caravan(&["alloc", "exec", &alloc, "/bin/echo", "inside"])?.ok()?;
    ensure!(out.stdout == "inside\n", "{out:?}");

    let reported = refusal(&server, somebody(), None)?;
    ensure!(reported.contains("encrypted calls only"), "{reported}");
    let reported = refusal(&server, PeerIdentity::server("x"), Some((&certificates, "client")))?;
    ensure!(reported.contains("only a certificate for server.global.nomad makes a server"), "{reported}");
    let reported = refusal(&server, somebody(), Some((&certificates, "cli")))?;
    ensure!(reported.contains("neither for client.global.nomad nor for server.global.nomad"), "{reported}");

    // Agents without a certificate or with a stranger's, and a server that presents a client's certificate.
    let bare = Agent::launch(client(&server, String::new()))?;
    bare.wait_log("encrypted calls only")?;
    let foreign = Agent::launch(client(&server, others.block("client", BOTH)))?;
    foreign.wait_log("signed by an authority that is not trusted here")?;
    let disguised = Agent::with(self::server(&certificates, "client"))?;
    let careful = Agent::launch(client(&disguised, certificates.block("client", BOTH)))?;
    careful.wait_log("not for server.global.nomad")?;
    let nodes = server.get("/v1/nodes")?;
    ensure!(nodes.as_array().map(Vec::len) == Some(1), "{nodes}");
    Ok(())
}

#[test]
fn a_cluster_moves_to_tls_while_it_runs() -> Result<()> {
    let certificates = Certificates::make()?;
    let upgrading = certificates.block("server", "rpc = true\n rpc_upgrade_mode = true");
    let server = Agent::with(AgentOptions { client: false, extra: upgrading, ..AgentOptions::default() })?;
    // Agents with and without certificates side by side; servers call them over the connections that they opened.
    let plain = Agent::with(client(&server, String::new()))?;
    let sealed = Agent::with(client(&server, certificates.block("client", "rpc = true")))?;
    let everywhere = sleeper().replace("\"service\"", "\"system\"");
    crate::run_job(&plain, "sleeper", &everywhere)?;
    eventually("the output of both", || {
        let allocs = server.allocs("sleeper")?;
        ensure!(allocs.len() == 2, "{allocs:?}");
        for alloc in &allocs {
            let found = server.logs(&id_of(alloc)?, "t", "stdout")?;
            ensure!(found == "awake\n", "{found:?}");
        }
        Ok(())
    })?;
    // Once all agents have certificates, the server accepts only encrypted calls: without a restart, and without
    // losing a node.
    let last = certificates.block("server", "rpc = true\n rpc_upgrade_mode = false");
    fs::write(server.dir().join("agent.d/extra.hcl"), last)?;
    server.signal(Signal::SIGHUP)?;
    server.wait_log("the certificates were reloaded")?;
    let reported = refusal(&server, somebody(), None)?;
    ensure!(reported.contains("encrypted calls only"), "{reported}");
    let bare = Agent::launch(client(&server, String::new()))?;
    bare.wait_log("encrypted calls only")?;
    for alloc in server.allocs("sleeper")? {
        let out = sealed.caravan(&["alloc", "exec", &id_of(&alloc)?, "/bin/echo", "inside"])?.ok()?;
        ensure!(out.stdout == "inside\n", "{out:?}");
    }
    Ok(())
}
