//! The web page: a session of a user in Chromium against a real agent.

use crate::{create_volume, run_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Plugin, Writer, eventually, plugin_job, workspace, writer_job};
use std::path::Path;
use std::process::{Command, Stdio};

/// The browser of the tests (package `chromium`).
const BROWSER: &str = "/usr/bin/chromium";

/// Installs the packages of the page's tests, if the lock file has changed since the last time.
fn packages(folder: &Path) -> Result<()> {
    let changed = |name: &str| folder.join(name).metadata().and_then(|found| found.modified());
    let installed = changed("node_modules/.package-lock.json");
    if installed.is_ok_and(|at| changed("package-lock.json").is_ok_and(|lock| lock <= at)) {
        return Ok(());
    }
    let status = Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder).status();
    let status = status.context("npm is not installed: scripts/tools.sh test installs Node")?;
    ensure!(status.success(), "npm ci ended with {status}");
    Ok(())
}

/// Runs a script of the page's tests.
fn session(agent: &Agent, script: &str) -> Result<()> {
    if !Path::new(BROWSER).exists() {
        bail!("{BROWSER} is missing: scripts/tools.sh test installs it");
    }
    let folder = workspace("ui");
    packages(&folder)?;
    let output = Command::new("node")
        .arg(folder.join("e2e").join(script))
        .arg(format!("http://{}", agent.address()))
        .stdin(Stdio::null())
        .output()
        .context("node is not installed: scripts/tools.sh test installs it")?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(
        output.status.success() && text.trim() == "the session is over",
        "{text}\n{errors}\n--- log of the agent\n{}",
        agent.log_tail()
    );
    Ok(())
}

#[test]
fn a_user_finds_out_what_waits_and_acts() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    run_job(&agent, "hostpath", &plugin_job(&Plugin { driver: "raw_exec".into(), args: Vec::new() }))?;
    agent.wait_plugin("hostpath")?;
    create_volume(&agent, "data", "single-node-writer")?;
    let job = |id: &str| {
        writer_job(&Writer {
            id: id.into(),
            driver: "raw_exec".into(),
            volume: "data".into(),
            access_mode: "single-node-writer".into(),
            word: "written by allocation".into(),
        })
    };
    run_job(&agent, "writer", &job("writer"))?;
    agent.wait_alloc("writer", "running")?;
    run_job(&agent, "reader", &job("reader"))?;
    eventually("the second job to wait for the volume", || {
        let evals = agent.get("/v1/job/reader/evaluations")?.to_string();
        if evals.contains("blocked") { Ok(()) } else { bail!("{evals}") }
    })?;
    session(&agent, "story.mjs")
}
