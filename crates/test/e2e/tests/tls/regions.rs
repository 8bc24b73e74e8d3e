//! Certificates of servers in several regions: names, roles, and new certificates while connections are open.

use super::Certificates;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Call, eventually};
use caravan_tls::{Certificate, Checked, ClientSettings, Connector};
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

const BOTH: &str = "rpc = true\n verify_server_hostname = true";

impl Certificates {
    /// Creates the certificate of a kind for a region, in place of an earlier one.
    fn create(&self, region: &str, kind: &str) -> Result<()> {
        for end in ["", "-key"] {
            let old = self.path(&format!("{region}-{kind}-nomad{end}.pem"));
            if old.exists() {
                fs::remove_file(old)?;
            }
        }
        self.run(&[], &["tls", "cert", "create", &format!("-{kind}"), "-region", region])?.ok()?;
        Ok(())
    }

    /// Returns the `tls` block of an agent with the certificate of a kind for a region.
    fn block_of(&self, region: &str, kind: &str) -> String {
        self.block(kind, BOTH).replace("global-", &format!("{region}-"))
    }
}

/// Starts the server of a region with a certificate.
fn server(certificates: &Certificates, region: &str, certificate: (&str, &str)) -> Result<Agent> {
    let block = certificates.block_of(certificate.0, certificate.1);
    Agent::with(AgentOptions {
        client: false,
        extra: format!("name = \"{region}-1\"\nregion = \"{region}\"\n{block}"),
        ..AgentOptions::default()
    })
}

/// Joins servers, and waits until the first one lists this number of regions.
fn join(agent: &Agent, others: &[&Agent]) -> Result<()> {
    for other in others {
        agent.caravan(&["server", "join", &other.serf_address()])?.ok()?;
    }
    for agent in others.iter().copied().chain([agent]) {
        eventually("all regions", || {
            let regions = agent.get("/v1/regions")?;
            if regions.as_array().map(Vec::len) == Some(others.len() + 1) {
                Ok(())
            } else {
                bail!("{regions}")
            }
        })?;
    }
    Ok(())
}

#[test]
fn each_server_proves_its_role_and_its_region() -> Result<()> {
    let certificates = Certificates::make()?;
    for (region, kind) in [("east", "server"), ("west", "server"), ("east", "client")] {
        certificates.create(region, kind)?;
    }
    let east = server(&certificates, "east", ("east", "server"))?;
    let west = server(&certificates, "west", ("west", "server"))?;
    // This server has the certificate of another region.
    let north = server(&certificates, "north", ("east", "server"))?;
    join(&east, &[&west, &north])?;
    for (from, to) in [(&east, "west"), (&west, "east")] {
        let jobs = from.get(&format!("/v1/jobs?region={to}"))?;
        ensure!(jobs == json!([]), "{jobs}");
    }
    let refused = east.request("GET", "/v1/jobs?region=north", None)?.text();
    ensure!(refused.contains("No path to region \"north\""), "{refused}");
    ensure!(refused.contains("its certificate is for server.east.nomad"), "{refused}");
    ensure!(refused.contains("not for server.north.nomad"), "{refused}");
    let refused = north.request("GET", "/v1/jobs?region=east", None)?.text();
    ensure!(refused.contains("the certificate is for server.east.nomad"), "{refused}");
    ensure!(refused.contains("only a certificate for server.north.nomad makes a server"), "{refused}");
    // The certificate of a client is not valid for a server: the leader does not admit the server.
    let block = certificates.block_of("east", "client");
    let disguised = Agent::launch(AgentOptions {
        client: false,
        expect: 0,
        join: vec![east.serf_address()],
        extra: format!("name = \"east-2\"\nregion = \"east\"\n{block}"),
        ..AgentOptions::default()
    })?;
    east.wait_log("its certificate is for client.east.nomad")?;
    let peers = east.get("/v1/operator/raft/configuration")?;
    ensure!(peers["Servers"].as_array().map(Vec::len) == Some(1), "{peers}");
    drop(disguised);
    Ok(())
}

/// Returns the certificate that the RPC port of an agent shows.
fn shown(certificates: &Certificates, agent: &Agent) -> Result<Certificate> {
    let connector = Connector::new(&ClientSettings {
        ca_file: Some(certificates.ca().into()),
        cert_file: Some(certificates.path("east-server-nomad.pem")),
        key_file: Some(certificates.path("east-server-nomad-key.pem")),
        checked: Checked::Authority,
        ..ClientSettings::default()
    })?;
    let address: SocketAddr = agent.rpc_address().parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stream = runtime.block_on(connector.dial("127.0.0.1", address.port()))?;
    stream.certificate().context("no certificate is shown")
}

#[test]
fn new_certificates_are_used_without_an_end_of_open_streams() -> Result<()> {
    let certificates = Certificates::make()?;
    certificates.create("east", "server")?;
    certificates.create("west", "server")?;
    let east = server(&certificates, "east", ("east", "server"))?;
    let west = server(&certificates, "west", ("west", "server"))?;
    join(&east, &[&west])?;
    let before = shown(&certificates, &west)?;
    let stream = Call {
        method: "GET".to_owned(),
        path: "/v1/event/stream?region=west&topic=NodePool&index=1".to_owned(),
        patience: Some(Duration::from_secs(8)),
        ..Call::default()
    };
    let write = |name: &str| -> Result<()> {
        let written = east.request("PUT", "/v1/node/pools?region=west", Some(&json!({"Name": name})))?;
        ensure!(written.status == 200, "{}", written.text());
        Ok(())
    };
    // Both regions are their own authority, so the node pool belongs to the region of the agent.
    let west_write = |name: &str| -> Result<()> {
        let written = west.request("PUT", "/v1/node/pools", Some(&json!({"Name": name})))?;
        ensure!(written.status == 200, "{}", written.text());
        Ok(())
    };
    write("of-east")?;
    west_write("before")?;
    let events = std::thread::scope(|scope| -> Result<String> {
        let reader = scope.spawn(|| east.send(&stream));
        for (agent, region) in [(&west, "west"), (&east, "east")] {
            certificates.create(region, "server")?;
            agent.signal(Signal::SIGHUP)?;
            agent.wait_log("the certificates were reloaded")?;
        }
        eventually("the new certificate", || {
            if shown(&certificates, &west)? != before { Ok(()) } else { bail!("the old one") }
        })?;
        west_write("after")?;
        let reply = reader.join().ok().context("the reader ended")??;
        Ok(reply.text())
    })?;
    ensure!(events.contains("\"before\"") && events.contains("\"after\""), "{events}");
    ensure!(!events.contains("of-east"), "{events}");
    // Servers of both regions connect with the new certificates.
    ensure!(west.get("/v1/node/pools?region=east")?.to_string().contains("of-east"));
    Ok(())
}
