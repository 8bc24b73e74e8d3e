//! Starts that fail: one sentence that names the object, and an exit code by which systemd decides whether to
//! restart.

use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, AgentOptions, program};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The exit code for errors that need an operator, see packaging/caravan.service.
const PERMANENT: i32 = 78;

/// Starts an agent that must fail. Returns its exit code and its last line on standard error.
fn failed(config: &Path) -> Result<(i32, String)> {
    let mut command = Command::new(program());
    let output = command.arg("agent").arg("-config").arg(config).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = text.lines().next_back().unwrap_or_default().to_owned();
    Ok((output.status.code().context("the agent was killed")?, last))
}

fn write_config(path: &Path, http: u16, rpc: u16, data: &Path) -> Result<()> {
    let text = format!(
        "data_dir = \"{}\"\nports {{\n http = {http}\n rpc = {rpc}\n}}\nserver {{\n enabled = true\n bootstrap_expect = 1\n}}\n",
        data.display()
    );
    Ok(fs::write(path, text)?)
}

#[test]
fn a_second_agent_names_the_port_or_the_directory_that_is_taken() -> Result<()> {
    let first = Agent::start()?;
    let port =
        |address: String| -> Result<u16> { Ok(address.rsplit(':').next().unwrap_or_default().parse()?) };
    let (http, rpc) = (port(first.address())?, port(first.rpc_address())?);
    let dir = tempfile::tempdir()?;
    let (config, own) = (dir.path().join("agent.hcl"), dir.path().join("data"));

    write_config(&config, http, 0, &own)?;
    let (code, text) = failed(&config)?;
    ensure!(code == PERMANENT && text.contains(&format!(":{http} for HTTP")), "{code} {text}");
    ensure!(!own.exists(), "an agent without its ports touches no state");

    write_config(&config, 0, rpc, &own)?;
    let (code, text) = failed(&config)?;
    ensure!(code == PERMANENT && text.contains(&format!(":{rpc} for RPC")), "{code} {text}");

    write_config(&config, 0, 0, &first.data_dir())?;
    let (code, text) = failed(&config)?;
    ensure!(code == PERMANENT && text.contains("is in use by another process"), "{code} {text}");
    first.get("/v1/agent/self").map(drop)
}

#[test]
fn a_directory_of_a_newer_program_or_another_machine_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (config, data) = (dir.path().join("agent.hcl"), dir.path().join("data"));
    write_config(&config, 0, 0, &data)?;
    fs::create_dir(&data)?;
    fs::write(data.join("agent.json"), r#"{"format": 99, "version": "9.9.9"}"#)?;
    let (code, text) = failed(&config)?;
    ensure!(code == PERMANENT && text.contains("version 9.9.9 wrote it in format 99"), "{code} {text}");

    let text = fs::read_to_string(&config)?;
    fs::write(&config, format!("{text}client {{\n enabled = true\n}}\n"))?;
    fs::write(data.join("agent.json"), r#"{"format": 1, "version": "0.1.0", "machine": "of another host"}"#)?;
    if fs::read_to_string("/etc/machine-id").is_ok_and(|id| id.trim().len() == 32) {
        let (code, text) = failed(&config)?;
        ensure!(code == PERMANENT && text.contains("a client on another machine"), "{code} {text}");
    }
    Ok(())
}

#[test]
fn a_read_only_file_system_and_missing_rights_are_named() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (config, place) = (dir.path().join("agent.hcl"), dir.path().join("place"));
    fs::create_dir(&place)?;
    let run = |name: &str, args: &[&str]| -> Result<()> {
        let status = Command::new(name).args(args).status()?;
        ensure!(status.success(), "{name} {args:?}: {status}");
        Ok(())
    };
    let at = place.to_str().context("the path is text")?;
    run("mount", &["-t", "tmpfs", "-o", "ro", "tmpfs", at])?;
    write_config(&config, 0, 0, &place.join("data"))?;
    let result = failed(&config);
    run("umount", &[at])?;
    let (code, text) = result?;
    ensure!(
        code == PERMANENT && text.contains(at) && text.contains("Read-only file system"),
        "{code} {text}"
    );

    // As another user: the directory belongs to root.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program());
    run("chmod", &["755", dir.path().to_str().context("the path is text")?])?;
    let output = command.arg("agent").arg("-config").arg(&config).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(PERMANENT) && text.contains("Permission denied"), "{text}");
    Ok(())
}

/// Checks that systemd receives a message when the agent is ready, when its configuration is read again, and when the
/// agent stops.
#[test]
fn the_service_manager_is_notified() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let next = || -> Result<String> {
        let mut buffer = [0; 4096];
        let size = socket.recv(&mut buffer).context("no message came")?;
        Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
    };
    let env = vec![("NOTIFY_SOCKET".to_owned(), path.display().to_string())];
    let mut agent = Agent::with(AgentOptions { env, ..AgentOptions::default() })?;
    let ready = next()?;
    ensure!(ready.contains("READY=1") && ready.contains("STATUS="), "{ready}");
    agent.signal(nix::sys::signal::Signal::SIGHUP)?;
    let reloading = next()?;
    ensure!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    ensure!(next()?.contains("READY=1"), "the reload ends");
    agent.signal(nix::sys::signal::Signal::SIGTERM)?;
    ensure!(next()?.contains("STOPPING=1"), "the end is reported");
    ensure!(agent.wait_end()? == 0, "the agent ends in order");
    Ok(())
}
