//! Plugins as tasks: registration, replacement, deregistration.

use crate::{create_volume, id_of, plugin_args, run_job, run_plugin};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, Plugin, Writer, eventually, plugin_job, writer_job};

#[test]
fn a_stopped_monolith_takes_both_registrations_away() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    let node = agent.node_id()?;
    let reported = agent.get(&format!("/v1/node/{node}"))?;
    ensure!(reported["CSIControllerPlugins"]["hostpath"]["Healthy"] == true, "{reported}");
    ensure!(reported["CSINodePlugins"]["hostpath"]["Healthy"] == true, "{reported}");
    agent.caravan(&["job", "stop", "-detach", "hostpath"])?.ok()?;
    eventually("both services to be gone", || {
        let reported = agent.get(&format!("/v1/node/{node}"))?;
        for kind in ["CSIControllerPlugins", "CSINodePlugins"] {
            if reported[kind]["hostpath"]["Healthy"] == true {
                bail!("{kind} is still healthy");
            }
        }
        Ok(())
    })
}

#[test]
fn health_is_an_event_of_the_task() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    let alloc = agent.wait_alloc("hostpath", "running")?;
    let events = alloc["TaskStates"]["plugin"]["Events"].to_string();
    ensure!(events.contains("Plugin became healthy"), "{events}");
    Ok(())
}

#[test]
fn an_update_of_the_plugin_hands_over_while_a_consumer_writes() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    let writer = Writer {
        id: "w".into(),
        driver: "raw_exec".into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        word: "w".into(),
    };
    run_job(&agent, "w", &writer_job(&writer))?;
    let alloc = id_of(&agent.wait_alloc("w", "running")?)?;
    let old = id_of(&agent.wait_alloc("hostpath", "running")?)?;
    // A new version of the plugin's job replaces its task.
    let mut args = plugin_args(&agent, "raw_exec");
    args.push("--max-volumes=7".into());
    run_job(&agent, "hostpath", &plugin_job(&Plugin { driver: "raw_exec".into(), args }))?;
    eventually("the new version to serve", || {
        let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
        let info = &node["CSINodePlugins"]["hostpath"];
        ensure!(info["Healthy"] == true && info["AllocID"] != old.as_str(), "{info}");
        ensure!(info["NodeInfo"]["MaxVolumes"] == 7, "{info}");
        Ok(())
    })?;
    let before = agent.logs(&alloc, "writer", "stdout")?.lines().count();
    eventually("the consumer to go on", || {
        let now = agent.logs(&alloc, "writer", "stdout")?.lines().count();
        if now > before + 3 { Ok(()) } else { bail!("{now} lines") }
    })?;
    agent.caravan(&["job", "stop", "-detach", "w"])?.ok()?;
    agent.wait_no_claims("data")
}
