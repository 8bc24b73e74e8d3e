//! Deployments: rolling updates, canaries, reversions, and rescheduled allocations.

use crate::{create_volume, id_of, plugin_args, run_job, run_plugin};
use anyhow::{Context as _, Result, ensure};
use caravan_testkit::{Agent, Plugin, Writer, eventually, plugin_job, writer_job};
use serde_json::Value;

/// Returns a service whose environment names its version; `update` extends its update block.
fn service(version: &str, count: u32, script: &str, update: &str) -> String {
    format!(
        r#"
job "web" {{
  group "g" {{
    count = {count}
    update {{
      min_healthy_time  = "300ms"
      healthy_deadline  = "20s"
      progress_deadline = "40s"
      {update}
    }}
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts       = 1
      interval       = "1h"
      delay          = "5s"
      delay_function = "constant"
      unlimited      = false
    }}
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", "{script}"]
      }}
      env {{
        VERSION = "{version}"
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}

const SLEEP: &str = "exec sleep 3600";

fn newest(agent: &Agent, version: u64) -> Result<Value> {
    let row = agent.get("/v1/job/web/deployment")?;
    ensure!(row["JobVersion"] == version, "{row}");
    Ok(row)
}

/// Waits until the newest version's deployment has a status.
fn deployment(agent: &Agent, version: u64, status: &str) -> Result<Value> {
    eventually(&format!("version {version} to be {status}"), || {
        let row = newest(agent, version)?;
        ensure!(row["Status"] == status, "{row}");
        Ok(row)
    })
}

fn running(agent: &Agent) -> Result<Vec<Value>> {
    let mut allocs = agent.allocs("web")?;
    allocs.retain(|a| a["DesiredStatus"] == "run" && a["ClientStatus"] == "running");
    Ok(allocs)
}

#[test]
fn a_new_version_replaces_the_old_one_a_few_at_a_time() -> Result<()> {
    let agent = Agent::start()?;
    let path = agent.dir().join("web.nomad.hcl");
    std::fs::write(&path, service("one", 3, SLEEP, "max_parallel = 1"))?;
    let run = agent.caravan(&["job", "run", &path.to_string_lossy()])?.ok()?;
    ensure!(run.stdout.contains("Monitoring deployment"), "{}", run.stdout);
    ensure!(run.stdout.contains("Deployment completed successfully"), "{}", run.stdout);
    ensure!(agent.get("/v1/job/web")?["Stable"] == true);
    run_job(&agent, "web", &service("two", 3, SLEEP, "max_parallel = 1"))?;
    eventually("the new version to be everywhere", || {
        let running = running(&agent)?;
        ensure!(running.len() >= 2, "only {} run", running.len());
        let row = newest(&agent, 1)?;
        ensure!(row["Status"] == "successful", "{row}");
        Ok(())
    })?;
    let group = &newest(&agent, 1)?["TaskGroups"]["g"];
    ensure!(group["HealthyAllocs"] == 3 && group["DesiredTotal"] == 3, "{group}");
    ensure!(running(&agent)?.iter().all(|a| a["JobVersion"] == 1));
    // The reversion is a new version.
    agent.caravan(&["job", "revert", "-detach", "web", "0"])?.ok()?;
    deployment(&agent, 2, "successful")?;
    ensure!(agent.get("/v1/job/web")?["TaskGroups"][0]["Tasks"][0]["Env"]["VERSION"] == "one");
    let list = agent.caravan(&["deployment", "list"])?.ok()?;
    ensure!(list.stdout.lines().count() == 4, "{}", list.stdout);
    Ok(())
}

#[test]
fn a_canary_runs_beside_the_old_version_until_it_is_promoted() -> Result<()> {
    let agent = Agent::start()?;
    let update = "max_parallel = 2\n      canary = 1";
    run_job(&agent, "web", &service("one", 2, SLEEP, update))?;
    deployment(&agent, 0, "successful")?;
    run_job(&agent, "web", &service("two", 2, SLEEP, update))?;
    eventually("the canary to be well", || {
        let row = newest(&agent, 1)?;
        ensure!(row["TaskGroups"]["g"]["HealthyAllocs"] == 1, "{row}");
        Ok(())
    })?;
    let row = newest(&agent, 1)?;
    ensure!(row["StatusDescription"] == "Deployment is running but requires manual promotion", "{row}");
    ensure!(running(&agent)?.len() == 3, "the old version goes on beside the canary");
    let id = row["ID"].as_str().context("a deployment has an id")?.to_owned();
    agent.caravan(&["deployment", "pause", &id])?.ok()?;
    agent.caravan(&["deployment", "resume", "-detach", &id])?.ok()?;
    agent.caravan(&["job", "promote", "-detach", "web"])?.ok()?;
    deployment(&agent, 1, "successful")?;
    eventually("the old version to be gone", || {
        let running = running(&agent)?;
        ensure!(running.len() == 2 && running.iter().all(|a| a["JobVersion"] == 1), "{running:?}");
        Ok(())
    })?;
    let again = agent.caravan(&["deployment", "promote", "-detach", &id])?.failed()?;
    ensure!(again.stderr.contains("can't promote terminal deployment"), "{}", again.stderr);
    Ok(())
}

#[test]
fn a_version_that_fails_gives_way_to_the_last_good_one() -> Result<()> {
    let agent = Agent::start()?;
    let update = "max_parallel = 1\n      auto_revert = true";
    run_job(&agent, "web", &service("one", 2, SLEEP, update))?;
    deployment(&agent, 0, "successful")?;
    run_job(&agent, "web", &service("two", 2, "exit 1", update))?;
    // The allocation is retried once, on any node; its policy allows no further attempt.
    eventually("the bad version to fail", || {
        let rows = agent.get("/v1/job/web/deployments")?;
        let bad = rows.as_array().and_then(|rows| rows.iter().find(|row| row["JobVersion"] == 1));
        let bad = bad.context("it was deployed")?;
        let text = "Failed due to unhealthy allocations - rolling back to job version 0";
        ensure!(bad["Status"] == "failed" && bad["StatusDescription"] == text, "{bad}");
        ensure!(running(&agent)?.iter().filter(|a| a["JobVersion"] != 1).count() >= 1);
        Ok(())
    })?;
    deployment(&agent, 2, "successful")?;
    ensure!(running(&agent)?.len() == 2);
    let failed = agent.allocs("web")?;
    let second = failed.iter().find(|a| a["JobVersion"] == 1 && !a["RescheduleTracker"].is_null());
    let second = second.context("the bad version was placed anew once")?;
    ensure!(second["RescheduleTracker"]["Events"].as_array().is_some_and(|e| e.len() == 1), "{second}");
    Ok(())
}

#[test]
fn a_canary_of_a_plugin_serves_beside_the_old_one_while_consumers_write() -> Result<()> {
    let agent = Agent::start()?;
    let text = |args: Vec<String>| {
        let service = plugin_job(&Plugin { driver: "raw_exec".into(), args });
        let update = "update {\n    canary = 1\n    min_healthy_time = \"300ms\"\n  }\n  group \"plugin\" {";
        service.replace("type = \"system\"", "").replace("group \"plugin\" {", update)
    };
    run_job(&agent, "hostpath", &text(plugin_args(&agent, "raw_exec")))?;
    agent.wait_plugin("hostpath")?;
    create_volume(&agent, "data", "single-node-writer")?;
    let writer = Writer {
        id: "w".into(),
        driver: "raw_exec".into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        word: "w".into(),
    };
    run_job(&agent, "w", &writer_job(&writer))?;
    let consumer = id_of(&agent.wait_alloc("w", "running")?)?;
    let old = id_of(&agent.wait_alloc("hostpath", "running")?)?;
    let mut args = plugin_args(&agent, "raw_exec");
    args.push("--max-volumes=7".into());
    run_job(&agent, "hostpath", &text(args))?;
    let served_by = |agent: &Agent| -> Result<Value> {
        let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
        Ok(node["CSINodePlugins"]["hostpath"].clone())
    };
    eventually("the canary to serve", || {
        let info = served_by(&agent)?;
        ensure!(info["Healthy"] == true && info["AllocID"] != old.as_str(), "{info}");
        let old = agent.get(&format!("/v1/allocation/{old}"))?;
        ensure!(old["ClientStatus"] == "running" && old["DesiredStatus"] == "run", "{old}");
        Ok(())
    })?;
    // Both nodes are back; the existing mount continues, and new work is placed.
    create_volume(&agent, "more", "single-node-writer")?;
    let other = Writer { id: "v".into(), volume: "more".into(), word: "v".into(), ..writer.clone() };
    run_job(&agent, "v", &writer_job(&other))?;
    agent.wait_alloc("v", "running")?;
    let lines = |alloc: &str| Ok::<_, anyhow::Error>(agent.logs(alloc, "writer", "stdout")?.lines().count());
    let before = lines(&consumer)?;
    eventually("the canary to be promoted", || {
        agent.caravan(&["job", "promote", "-detach", "hostpath"])?.ok().map(drop)
    })?;
    eventually("the old plugin to be gone", || {
        let old = agent.get(&format!("/v1/allocation/{old}"))?;
        ensure!(old["ClientStatus"] == "complete", "{old}");
        let info = served_by(&agent)?;
        ensure!(info["Healthy"] == true && info["NodeInfo"]["MaxVolumes"] == 7, "{info}");
        Ok(())
    })?;
    eventually("the consumer to go on", || {
        let now = lines(&consumer)?;
        ensure!(now > before + 3, "{now} lines");
        Ok(())
    })?;
    let alloc = agent.get(&format!("/v1/allocation/{consumer}"))?;
    ensure!(alloc["ClientStatus"] == "running" && alloc["TaskStates"]["writer"]["Restarts"] == 0, "{alloc}");
    for job in ["w", "v"] {
        agent.caravan(&["job", "stop", "-detach", job])?.ok()?;
    }
    agent.wait_no_claims("data")?;
    agent.wait_no_claims("more")
}

#[test]
fn an_update_of_an_only_writer_does_not_wait_for_itself() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    let writer = |word: &str| Writer {
        id: "web".into(),
        driver: "raw_exec".into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        word: word.into(),
    };
    run_job(&agent, "web", &writer_job(&writer("one")))?;
    agent.wait_alloc("web", "running")?;
    run_job(&agent, "web", &writer_job(&writer("two")))?;
    eventually("the new version to write", || {
        let running = running(&agent)?;
        ensure!(running.len() == 1 && running[0]["JobVersion"] == 1, "{running:?}");
        ensure!(running[0]["DeploymentID"].is_null() || newest(&agent, 1)?["Status"] == "running");
        Ok(())
    })?;
    agent.caravan(&["job", "stop", "-detach", "web"])?.ok()?;
    agent.wait_no_claims("data")
}
