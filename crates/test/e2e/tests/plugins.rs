//! Plugins as tasks: registration, replacement, deregistration.

use crate::{create_volume, id_of, plugin_args, run_job, run_plugin};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, Plugin, Writer, eventually, plugin_job, writer_job};
use serde_json::Value;

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

/// Runs the plugin's job under another name, so that two jobs run side by side.
fn named_plugin(agent: &Agent, job: &str) -> Result<()> {
    let text = plugin_job(&Plugin { driver: "raw_exec".into(), args: plugin_args(agent, "raw_exec") });
    run_job(agent, job, &text.replace("job \"hostpath\"", &format!("job \"{job}\"")))?;
    agent.wait_alloc(job, "running").map(drop)
}

/// Waits until the allocation of a job serves both services of the plugin.
fn served_by(agent: &Agent, job: &str) -> Result<()> {
    let alloc = id_of(&agent.wait_alloc(job, "running")?)?;
    eventually(&format!("the plugin to be served by {job}"), || {
        let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
        for kind in ["CSIControllerPlugins", "CSINodePlugins"] {
            let info: &Value = &node[kind]["hostpath"];
            ensure!(info["Healthy"] == true && info["AllocID"] == alloc.as_str(), "{kind}: {info}");
        }
        Ok(())
    })
}

fn stop(agent: &Agent, job: &str) -> Result<()> {
    agent.caravan(&["job", "stop", "-detach", job])?.ok()?;
    agent.wait_alloc(job, "complete").map(drop)
}

#[test]
fn two_allocations_of_one_plugin_come_and_go_in_every_order() -> Result<()> {
    for (first_to_go, stays) in [("a", "b"), ("b", "a")] {
        let agent = Agent::start()?;
        named_plugin(&agent, "a")?;
        served_by(&agent, "a")?;
        named_plugin(&agent, "b")?;
        served_by(&agent, "b")?;
        create_volume(&agent, "data", "single-node-writer")?;
        stop(&agent, first_to_go)?;
        served_by(&agent, stays)?;
        // The remaining job works: it mounts and releases a volume.
        let writer = Writer {
            id: "w".into(),
            driver: "raw_exec".into(),
            volume: "data".into(),
            access_mode: "single-node-writer".into(),
            word: "w".into(),
        };
        run_job(&agent, "w", &writer_job(&writer))?;
        agent.wait_alloc("w", "running")?;
        named_plugin(&agent, first_to_go)?;
        served_by(&agent, first_to_go)?;
        stop(&agent, stays)?;
        served_by(&agent, first_to_go)?;
        agent.caravan(&["job", "stop", "-detach", "w"])?.ok()?;
        agent.wait_no_claims("data")?;
    }
    Ok(())
}

#[test]
fn an_agent_killed_during_an_update_of_the_plugin_ends_with_the_new_version() -> Result<()> {
    let mut agent = Agent::start()?;
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
    for limit in 11..16 {
        let mut args = plugin_args(&agent, "raw_exec");
        args.push(format!("--max-volumes={limit}"));
        run_job(&agent, "hostpath", &plugin_job(&Plugin { driver: "raw_exec".into(), args }))?;
        // In each round the agent dies a little later during the update.
        for _ in 0..(limit - 11) * 3 {
            agent.get("/v1/jobs")?;
        }
        agent.kill_9()?;
        agent.run()?;
        eventually("the new version to serve", || {
            let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
            let info = &node["CSINodePlugins"]["hostpath"];
            ensure!(info["Healthy"] == true && info["NodeInfo"]["MaxVolumes"] == limit, "{info}");
            Ok(())
        })?;
    }
    let before = agent.logs(&alloc, "writer", "stdout")?.lines().count();
    eventually("the consumer to go on", || {
        let now = agent.logs(&alloc, "writer", "stdout")?.lines().count();
        if now > before + 2 { Ok(()) } else { bail!("{now} lines") }
    })?;
    agent.caravan(&["job", "stop", "-detach", "w"])?.ok()?;
    agent.wait_no_claims("data")
}
