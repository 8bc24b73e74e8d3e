//! Mounts that break under a job: reported and mounted again as the job file requires, also across restarts of the
//! agent. The owner of a volume that the job file requests.

use crate::{create_volume, id_of, run_job, run_plugin};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, Writer, eventually, writer_job};
use nix::mount::{MntFlags, umount2};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Returns the writer with more lines in its `volume` block.
fn job(driver: &str, lines: &str) -> String {
    let text = writer_job(&Writer {
        id: "writer".into(),
        driver: driver.into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        word: "line".into(),
    });
    text.replacen("source          = \"data\"", &format!("source          = \"data\"\n      {lines}"), 1)
}

/// Returns the path at which the volume is published to an allocation.
fn published(agent: &Agent, alloc: &str) -> Result<PathBuf> {
    let dir = agent.data_dir().join("client/csi/monolith/hostpath/per-alloc").join(alloc).join("data");
    let mut entries = fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    Ok(entries.next().context("nothing is published")??.path())
}

fn lines(agent: &Agent, alloc: &str) -> Result<usize> {
    Ok(agent.logs(alloc, "writer", "stdout")?.lines().count())
}

/// Waits for an event of the task. Returns the task's state.
fn wait_event(agent: &Agent, alloc: &str, kind: &str, words: &str) -> Result<serde_json::Value> {
    eventually(&format!("the event {kind:?}"), || {
        let state = agent.get(&format!("/v1/allocation/{alloc}"))?["TaskStates"]["writer"].clone();
        let events = state["Events"].as_array().cloned().unwrap_or_default();
        let is = |e: &serde_json::Value| {
            e["Type"] == kind && e["DisplayMessage"].as_str().is_some_and(|text| text.contains(words))
        };
        if events.iter().any(is) { Ok(state) } else { bail!("{state}") }
    })
}

fn broken_while_no_agent_looked(driver: &str) -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    let block = "broken_mount = \"remount\"\n      user = \"nobody\"\n      mode = \"1777\"";
    run_job(&agent, "writer", &job(driver, block))?;
    let alloc = id_of(&agent.wait_alloc("writer", "running")?)?;
    eventually("the writer to begin", || {
        if lines(&agent, &alloc)? > 2 { Ok(()) } else { bail!("it wrote nothing") }
    })?;
    let target = published(&agent, &alloc)?;
    let root = fs::metadata(&target)?;
    ensure!((root.uid(), root.mode() & 0o7777) == (65534, 0o1777), "{root:?}");

    agent.kill_9()?;
    umount2(&target, MntFlags::MNT_DETACH)?;
    ensure!(fs::write(target.join("lost"), "x").is_err(), "what lies beneath is unwritable, also for root");
    agent.run()?;
    wait_event(&agent, &alloc, "Volume mount broken", "nothing is mounted at")?;
    let state = wait_event(&agent, &alloc, "Volume mounted again", "mounted again")?;
    ensure!(state["Restarts"] == 0, "{state}");
    ensure!(fs::metadata(&target)?.dev() != 0 && target.join("log").exists(), "it is the volume again");
    let before = fs::metadata(target.join("log"))?.len();
    eventually("the writer to go on, on the new mount", || {
        let now = fs::metadata(target.join("log"))?.len();
        if now > before { Ok(()) } else { bail!("{now} bytes") }
    })?;
    agent.caravan(&["job", "stop", "-detach", "writer"])?.ok()?;
    agent.wait_no_claims("data")?;
    ensure!(!target.exists(), "nothing is left of the mount");
    Ok(())
}

#[test]
fn a_mount_that_broke_while_no_agent_looked_is_made_anew_on_the_host() -> Result<()> {
    broken_while_no_agent_looked("raw_exec")
}

#[test]
fn a_mount_that_broke_while_no_agent_looked_is_made_anew_in_a_root() -> Result<()> {
    broken_while_no_agent_looked("exec")
}
