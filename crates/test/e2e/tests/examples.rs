//! The examples of the repository, run as their README describes.

use crate::{DRIVERS, id_of};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually, workspace};
use std::fs;

#[test]
fn the_main_job_under_both_drivers() -> Result<()> {
    for driver in DRIVERS {
        let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
        let var = format!("driver={driver}");
        let state = format!("args=[\"--state-dir={}\"]", agent.dir().join("volumes").display());
        let mut run = vec!["job", "run", "-var", &var];
        if driver == "raw_exec" {
            run.extend(["-var", &state]);
        }
        run.push("examples/hostpath-plugin.nomad.hcl");
        agent.caravan(&run)?.ok()?;
        agent.wait_plugin("hostpath")?;
        let status = agent.caravan(&["plugin", "status", "hostpath"])?.ok()?;
        ensure!(status.stdout.contains("hostpath.caravan"), "{}", status.stdout);
        agent.caravan(&["volume", "create", "examples/volume.hcl"])?.ok()?;
        agent.caravan(&["job", "run", "-var", &var, "examples/writer.nomad.hcl"])?.ok()?;
        let alloc = id_of(&agent.wait_alloc("writer", "running")?)?;
        eventually("the writer's output", || {
            let out = agent.caravan(&["alloc", "logs", &alloc])?.ok()?;
            if out.stdout.lines().count() > 1 { Ok(()) } else { bail!("{out:?}") }
        })?;
        let status = agent.caravan(&["volume", "status", "data"])?.ok()?;
        ensure!(status.stdout.contains(&alloc[..8]), "{}", status.stdout);
    }
    Ok(())
}

#[test]
fn every_example_is_valid() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let mut seen = 0;
    for entry in fs::read_dir(workspace("examples"))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".nomad.hcl") {
            agent.caravan(&["job", "validate", &path.to_string_lossy()])?.ok()?;
            seen += 1;
        }
    }
    ensure!(seen >= 2, "the examples are where they should be");
    Ok(())
}
