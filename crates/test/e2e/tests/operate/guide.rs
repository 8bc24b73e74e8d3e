//! The commands of `docs/guide/production.md`, on three servers with the configurations of `examples/cluster`.
//!
//! A shell runs each section. Only the places differ from the guide. Directories are below that of the test, and each
//! server has its own ports instead of its own machine. `systemctl` controls the processes of the test.

use super::text;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually, eventually_within, free_ports, program, workspace};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// The timeout of a condition that several servers bring about.
const PATIENCE: Duration = Duration::from_secs(120);

/// The state of a reader who follows the guide: the administrator's directory, and the lines that set the shell up.
struct Reader {
    dir: tempfile::TempDir,
    guide: String,
    exports: Vec<String>,
    /// Sections that the reader has followed.
    followed: Vec<String>,
}

impl Reader {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        for name in ["bin", "admin", "etc"] {
            fs::create_dir(dir.path().join(name))?;
        }
        symlink(program(), dir.path().join("bin/caravan"))?;
        let tool = |name: &str, script: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            let path = dir.path().join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        };
        tool("sudo", "exec \"$@\"")?;
        for recorded in ["systemctl", "dpkg"] {
            tool(recorded, &format!("echo {recorded} \"$@\" >>\"$RECORDED\""))?;
        }
        let guide = fs::read_to_string(workspace("docs/guide/production.md"))?;
        Ok(Self { dir, guide, exports: Vec::new(), followed: Vec::new() })
    }

    fn admin(&self, name: &str) -> PathBuf {
        self.dir.path().join("admin").join(name)
    }

    /// Returns the blocks of commands of a section.
    fn blocks(&self, section: &str) -> Result<Vec<Vec<String>>> {
        let start =
            self.guide.find(&format!("## {section}\n")).with_context(|| format!("no section {section}"))?;
        let rest = &self.guide[start + 3..];
        let rest = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
        let mut blocks: Vec<Vec<String>> = Vec::new();
        let mut is_inside = false;
        for line in rest.lines() {
            match line {
                "```sh" => {
                    is_inside = true;
                    blocks.push(Vec::new());
                }
                "```" => is_inside = false,
                line if is_inside => blocks.last_mut().context("a block")?.push(line.to_owned()),
                _ => {}
            }
        }
        Ok(blocks)
    }

    /// Runs a block of commands for one server. Returns the output, and the recorded calls of `systemctl` and `dpkg`.
    fn run(&mut self, section: &str, block: usize, agent: Option<&Agent>) -> Result<(String, Vec<String>)> {
        self.followed.push(format!("{section} {block}"));
        let lines =
            self.blocks(section)?.into_iter().nth(block).with_context(|| format!("{section} {block}"))?;
        let data = agent.map(|agent| text(&agent.data_dir())).transpose()?.unwrap_or_default();
        let etc = text(&self.dir.path().join("etc"))?;
        let script = lines.join("\n").replace("/var/lib/caravan", &data).replace("/etc/caravan.d", &etc);
        let recorded = self.dir.path().join("recorded");
        let _ = fs::remove_file(&recorded);
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", &format!("{}\n{script}", self.exports.join("\n"))]);
        shell.current_dir(self.dir.path().join("admin")).env("RECORDED", &recorded);
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", text(&self.dir.path().join("bin"))?));
        if let Some(agent) = agent {
            shell.env("CARAVAN_ADDR", format!("https://{}", agent.address()));
        }
        let Output { status, stdout, stderr } = shell.output()?;
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        ensure!(status.success(), "{section}: {script}\n--- stdout\n{out}\n--- stderr\n{err}");
        self.exports.extend(lines.into_iter().filter(|line| line.starts_with("export ")));
        let recorded = fs::read_to_string(recorded).unwrap_or_default();
        Ok((out.into_owned(), recorded.lines().map(str::to_owned).collect()))
    }

    /// Runs a block that succeeds once the servers have done their part.
    fn wait(&mut self, section: &str, block: usize, agent: &Agent) -> Result<String> {
        let done = eventually_within(PATIENCE, section, || self.run(section, block, Some(agent)));
        Ok(done.with_context(|| agent.log_tail())?.0)
    }
}

/// Returns an example with the places of the test.
fn example(name: &str, reader: &Reader) -> Result<String> {
    let content = fs::read_to_string(workspace("examples/cluster").join(name))?;
    let key = fs::read_to_string(reader.admin("gossip.key"))?;
    let etc = text(&reader.dir.path().join("etc"))?;
    Ok(content.replace("replace with a key", key.trim()).replace("/etc/caravan.d", &etc))
}

/// Writes the files of a machine, and checks them as the guide describes.
fn configure(reader: &mut Reader) -> Result<String> {
    let etc = reader.dir.path().join("etc");
    fs::create_dir(etc.join("tls"))?;
    for (from, to) in [
        ("nomad-agent-ca.pem", "ca.pem"),
        ("global-server-nomad.pem", "agent.pem"),
        ("global-server-nomad-key.pem", "agent-key.pem"),
    ] {
        fs::copy(reader.admin(from), etc.join("tls").join(to))?;
    }
    for name in ["server-1.hcl", "secure.hcl", "gossip.hcl"] {
        fs::write(etc.join(name), example(name, reader)?)?;
    }
    let (checked, _) = reader.run("Configuration", 0, None)?;
    ensure!(checked.contains("Configuration is valid!"), "{checked}");
    Ok(format!("{}{}", example("secure.hcl", reader)?, example("gossip.hcl", reader)?))
}

fn launch(secure: &str) -> Result<Vec<Agent>> {
    let ports = free_ports(3)?;
    let join: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let one = |(number, port): (usize, &u16)| {
        Agent::launch(AgentOptions {
            client: false,
            expect: 3,
            join: join.clone(),
            serf_port: *port,
            extra: format!("name = \"server-{}\"\n{secure}", number + 1),
            ..AgentOptions::default()
        })
    };
    ports.iter().enumerate().map(one).collect()
}

/// Controls a server as a recorded call of `systemctl` requests.
fn control(agent: &mut Agent, calls: &[String]) -> Result<()> {
    for call in calls {
        match call.as_str() {
            "systemctl stop caravan" => agent.stop_by(Signal::SIGTERM)?,
            "systemctl start caravan" => agent.spawn()?,
            other => bail!("the guide says {other:?}, which this test does not know"),
        }
    }
    Ok(())
}

#[test]
fn the_production_guide_is_followed_from_the_first_start_to_a_recovery() -> Result<()> {
    let mut reader = Reader::new()?;
    reader.run("Certificates", 0, None)?;
    reader.run("Gossip key", 0, None)?;
    let secure = configure(&mut reader)?;
    let (_, calls) = reader.run("Start", 0, None)?;
    ensure!(calls == ["systemctl enable --now caravan"], "{calls:?}");
    let mut agents = launch(&secure)?;
    reader.wait("Start", 1, &agents[0])?;
    eventually_within(PATIENCE, "three alive servers that vote", || {
        let (seen, _) = reader.run("Start", 2, Some(&agents[1]))?;
        let (alive, votes) = (seen.matches(" alive ").count(), seen.matches("  true   3").count());
        if alive >= 3 && votes >= 3 && seen.contains("Healthy: true") { Ok(()) } else { bail!("{seen}") }
    })?;
    let metrics = reader.wait("Watch", 0, &agents[2])?;
    ensure!(metrics.contains("nomad."), "{metrics}");

    reader.wait("Backup", 0, &agents[2])?;
    reader.wait("Backup", 1, &agents[1])?;
    let keys = reader.wait("Rotate the gossip key", 0, &agents[0])?;
    let new = fs::read_to_string(reader.admin("gossip.new"))?;
    ensure!(keys.trim_end().ends_with(&format!("Key\n{}", new.trim())), "{keys}");
    reader.run("Rotate the gossip key", 1, None)?;
    let rotated = fs::read_to_string(reader.dir.path().join("etc/gossip.hcl"))?;
    ensure!(rotated.contains(new.trim()), "{rotated}");
    let secure = format!("{}{rotated}", example("secure.hcl", &reader)?);
    for (number, agent) in agents.iter_mut().enumerate() {
        agent.set_extra(format!("name = \"server-{}\"\n{secure}", number + 1));
    }
    let (_, calls) = reader.run("Upgrade", 0, None)?;
    ensure!(calls.len() == 1 && calls[0].starts_with("dpkg -i "), "{calls:?}");
    for number in 0..3 {
        // The package restarts the agent.
        agents[number].stop_by(Signal::SIGTERM)?;
        agents[number].spawn()?;
        let other = &agents[(number + 1) % 3];
        reader.wait("Upgrade", 1, other)?;
    }
    reader.wait("Replace a server", 0, &agents[0])?;

    // A majority is lost.
    for agent in &mut agents[1..] {
        agent.kill_9()?;
    }
    let section = "Recover after the loss of a majority";
    for block in 0..2 {
        // The calls before and after the verb are executed in their order.
        let lines = reader.blocks(section)?.into_iter().nth(block).context("a block")?;
        if lines[0].contains("systemctl stop") {
            agents[0].stop_by(Signal::SIGTERM)?;
        }
        let (shown, calls) = reader.run(section, block, Some(&agents[0]))?;
        match block {
            0 => ensure!(
                shown.contains("Last index") && calls == ["systemctl stop caravan"],
                "{shown} {calls:?}"
            ),
            _ => {
                ensure!(shown.contains("Recovered: server"), "{shown}");
                control(&mut agents[0], &calls)?;
            }
        }
    }
    eventually("the recovered server to lead", || {
        reader.run("Start", 2, Some(&agents[0]))?;
        Ok(())
    })?;
    for agent in &mut agents[1..] {
        let (_, calls) = reader.run(section, 2, Some(agent))?;
        // The server has stopped already.
        control(agent, &calls[1..])?;
    }
    eventually_within(PATIENCE, "three voters of the recovered cluster", || {
        let (seen, _) = reader.run("Start", 2, Some(&agents[2]))?;
        if seen.matches("  true   3").count() >= 3 { Ok(()) } else { bail!("{seen}") }
    })?;
    every_block_was_followed(&reader)
}

fn every_block_was_followed(reader: &Reader) -> Result<()> {
    for section in reader.guide.lines().filter_map(|line| line.strip_prefix("## ")) {
        for block in 0..reader.blocks(section)?.len() {
            let place = format!("{section} {block}");
            ensure!(reader.followed.contains(&place), "no test follows {place}");
        }
    }
    Ok(())
}

#[test]
fn every_example_of_a_configuration_is_valid() -> Result<()> {
    let examples = workspace("examples/cluster");
    let validate = |paths: &[&Path]| {
        let status = Command::new(program()).args(["config", "validate"]).args(paths).output()?;
        let text = String::from_utf8_lossy(&status.stderr).into_owned();
        ensure!(status.status.success(), "{paths:?}: {text}");
        Ok(())
    };
    for name in ["server-1.hcl", "server-2.hcl", "server-3.hcl", "client.hcl"] {
        validate(&[&examples.join(name), &examples.join("secure.hcl")])?;
    }
    for name in ["agent-server.hcl", "agent-client.hcl"] {
        validate(&[&workspace("examples").join(name)])?;
    }
    Ok(())
}

/// Runs the scripts of `make cluster` on separate addresses.
#[test]
fn make_cluster_survives_its_leader_and_removes_what_it_made() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("cluster");
    let number = std::process::id() % 200;
    let script = |name: &str| {
        Command::new(workspace("scripts").join(name))
            .env("CARAVAN_BIN", program())
            .env("CARAVAN_CLUSTER_DIR", &place)
            .env("CARAVAN_CLUSTER_NAME", format!("cvt{number}"))
            .env("CARAVAN_CLUSTER_NET", format!("10.79.{number}"))
            .output()
    };
    let started = script("cluster.sh")?;
    let (out, err) = (String::from_utf8_lossy(&started.stdout), String::from_utf8_lossy(&started.stderr));
    let ended = script("clean-cluster.sh")?;
    let cleaned =
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    ensure!(started.status.success(), "{out}\n{err}\n{cleaned}");
    for words in ["==> Killing the leader", " failed ", "==> The killed server returns", "leads; its process"]
    {
        ensure!(out.contains(words), "{words:?} is not in {out}");
    }
    ensure!(ended.status.success() && !place.exists(), "{cleaned}");
    let left = Command::new("ip").args(["-o", "link"]).output()?.stdout;
    ensure!(!String::from_utf8_lossy(&left).contains(&format!("cvt{number}")), "interfaces stay");
    Ok(())
}
