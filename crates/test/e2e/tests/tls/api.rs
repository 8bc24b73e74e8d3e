//! The HTTP API over TLS, and its clients.

use super::{Certificates, answers, sleeper};
use crate::id_of;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use nix::sys::signal::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn https(agent: &Agent) -> String {
    format!("https://{}", agent.address())
}

#[test]
fn the_api_is_spoken_over_tls() -> Result<()> {
    let certificates = Certificates::make()?;
    let agent = Agent::launch(AgentOptions {
        dev: true,
        extra: certificates.block("server", "http = true"),
        ..AgentOptions::default()
    })?;
    let (address, ca) = (https(&agent), certificates.ca());
    let env = [("CARAVAN_ADDR", address.as_str()), ("NOMAD_CACERT", ca.as_str())];
    answers(&certificates, &agent, &env)?;

    // Other requests of users: writes, streams, programs in tasks.
    fs::write(certificates.path("sleeper.nomad.hcl"), sleeper())?;
    certificates.run(&env, &["job", "run", "sleeper.nomad.hcl"])?.ok()?;
    let allocs = certificates.run(&env, &["operator", "api", "/v1/job/sleeper/allocations"])?.ok()?;
    let allocs: serde_json::Value = serde_json::from_str(&allocs.stdout)?;
    let alloc = id_of(&allocs[0])?;
    eventually("its output", || {
        let out = certificates.run(&env, &["alloc", "logs", &alloc])?.ok()?;
        if out.stdout == "awake\n" { Ok(()) } else { bail!("{out:?}") }
    })?;
    let out = certificates.run(&env, &["alloc", "exec", &alloc, "/bin/echo", "inside"])?.ok()?;
    ensure!(out.stdout == "inside\n", "{out:?}");

    let own = certificates.run(&env, &["operator", "api", "/v1/agent/self"])?.ok()?;
    let own: serde_json::Value = serde_json::from_str(&own.stdout)?;
    ensure!(own["config"]["TLSConfig"]["EnableHTTP"] == true, "{}", own["config"]["TLSConfig"]);
    let node = own["stats"]["client"]["node_id"].as_str().context("a node")?;
    let node = certificates.run(&env, &["operator", "api", &format!("/v1/node/{node}")])?.ok()?;
    ensure!(
        node.stdout.contains("\"TLSEnabled\":true") || node.stdout.contains("\"TLSEnabled\": true"),
        "{node:?}"
    );

    // A user who does not trust the authority receives advice, and may skip the check.
    let run = |args: &[&str]| certificates.run(&[], &[&["node", "status"], args].concat());
    let at = ["-address", address.as_str()];
    let reported = run(&at)?.failed()?.stderr;
    ensure!(
        reported.contains("authority that is not trusted") && reported.contains("-ca-cert"),
        "{reported}"
    );
    run(&[&at[..], &["-tls-skip-verify"]].concat())?.ok()?;
    let with_ca = [&at[..], &["-ca-cert", ca.as_str()]].concat();
    run(&[&with_ca[..], &["-tls-server-name", "server.global.nomad"]].concat())?.ok()?;
    let reported = run(&[&with_ca[..], &["-tls-server-name", "example.com"]].concat())?.failed()?.stderr;
    ensure!(reported.contains("not for example.com"), "{reported}");
    let reported = run(&[&at[..], &["-ca-cert", "/nowhere.pem"]].concat())?.failed()?.stderr;
    ensure!(reported.contains("CA certificate /nowhere.pem cannot be read"), "{reported}");

    let plain = agent.request("GET", "/v1/agent/self", None)?;
    ensure!(plain.status == 400, "{}", plain.status);
    ensure!(plain.text() == "Client sent an HTTP request to an HTTPS server.\n", "{}", plain.text());

    // New certificates of another authority.
    let others = Certificates::make()?;
    for file in ["global-server-nomad.pem", "global-server-nomad-key.pem"] {
        fs::copy(others.path(file), certificates.path(file))?;
    }
    agent.signal(Signal::SIGHUP)?;
    agent.wait_log("the certificates were reloaded")?;
    let theirs = others.ca();
    let new = [("CARAVAN_ADDR", address.as_str()), ("CARAVAN_CACERT", theirs.as_str())];
    answers(&others, &agent, &new)?;
    let reported = certificates.run(&env, &["node", "status"])?.failed()?.stderr;
    ensure!(reported.contains("authority that is not trusted"), "{reported}");
    Ok(())
}

#[test]
fn whoever_connects_and_says_nothing_is_closed() -> Result<()> {
    let certificates = Certificates::make()?;
    let limits = "limits {\n https_handshake_timeout = \"100ms\"\n}\n";
    let agent = Agent::launch(AgentOptions {
        dev: true,
        extra: certificates.block("server", "http = true") + limits,
        ..AgentOptions::default()
    })?;
    let (address, ca) = (https(&agent), certificates.ca());
    answers(&certificates, &agent, &[("CARAVAN_ADDR", address.as_str()), ("CARAVAN_CACERT", ca.as_str())])?;
    // A silent connection, and the beginning of a handshake.
    for bytes in [&[][..], &[0x16, 3, 1]] {
        let mut stream = TcpStream::connect(agent.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(bytes)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        ensure!(answer.is_empty(), "{answer:?}");
    }
    Ok(())
}

#[test]
fn users_show_certificates_where_they_must() -> Result<()> {
    let certificates = Certificates::make()?;
    let agent = Agent::launch(AgentOptions {
        dev: true,
        extra: certificates.block("server", "http = true\n verify_https_client = true"),
        ..AgentOptions::default()
    })?;
    let (address, ca) = (https(&agent), certificates.ca());
    let env = [
        ("NOMAD_ADDR", address.as_str()),
        ("NOMAD_CACERT", ca.as_str()),
        ("NOMAD_CLIENT_CERT", "global-cli-nomad.pem"),
        ("NOMAD_CLIENT_KEY", "global-cli-nomad-key.pem"),
    ];
    answers(&certificates, &agent, &env)?;
    let reported = certificates.run(&env[..2], &["node", "status"])?.failed()?.stderr;
    ensure!(reported.contains("wants a certificate") && reported.contains("-client-cert"), "{reported}");
    let reported = certificates.run(&env[..3], &["node", "status"])?.failed()?.stderr;
    ensure!(reported.contains("without a client key"), "{reported}");
    // A stranger's certificate is refused too.
    let others = Certificates::make()?;
    let reported = others.run(&env, &["node", "status"])?.failed()?.stderr;
    ensure!(reported.contains("does not take this one's certificate"), "{reported}");
    Ok(())
}
