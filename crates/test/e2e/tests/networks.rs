//! Networks of allocations, and network modes that a node does not offer.

mod bridge;
mod containers;
mod names;
mod plugged;
mod plugins;

use crate::{DRIVERS, run_job};
use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, eventually};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Returns a job of two tasks; the second listens on the loopback interface, the first prints its interfaces.
fn job(id: &str, driver: &str, of_group: &str, of_resources: &str) -> String {
    format!(
        r#"
job "{id}" {{
  group "g" {{
    {of_group}
    task "t" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "tail -n +3 /proc/net/dev | cut -d: -f1; readlink /proc/self/ns/net; exec sleep 3600"]
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 16
        {of_resources}
      }}
    }}
    task "other" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "readlink /proc/self/ns/net; exec sleep 3600"]
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

/// Restarts a task. After a start of the agent, its client may not have recovered the task yet.
fn restart(agent: &Agent, alloc: &str, task: &str) -> Result<()> {
    eventually("the restart of the task", || {
        agent.caravan(&["alloc", "restart", alloc, task])?.ok().map(drop)
    })
}

fn lines(agent: &Agent, alloc: &str, task: &str, at_least: usize) -> Result<Vec<String>> {
    eventually(&format!("the output of {task}"), || {
        let text = agent.logs(alloc, task, "stdout")?;
        ensure!(text.lines().count() >= at_least && text.ends_with('\n'), "so far {text:?}");
        Ok(text.lines().map(|line| line.trim().to_owned()).collect())
    })
}

fn held(agent: &Agent, alloc: &str) -> PathBuf {
    agent.data_dir().join("client/networks").join(alloc)
}

fn id_of(alloc: &Value) -> Result<String> {
    Ok(alloc["ID"].as_str().context("the allocation has an id")?.to_owned())
}

#[test]
fn tasks_without_a_network_share_one_that_is_empty_also_across_a_restart_of_the_agent() -> Result<()> {
    for driver in DRIVERS {
        let mut agent = Agent::start()?;
        run_job(&agent, "alone", &job("alone", driver, "network {\n mode = \"none\"\n }", ""))?;
        let id = id_of(&agent.wait_alloc("alone", "running")?)?;
        let reported = lines(&agent, &id, "t", 2)?;
        ensure!(reported[0] == "lo" && reported.len() == 2, "{driver}: {reported:?}");
        ensure!(lines(&agent, &id, "other", 1)? == [reported[1].clone()], "{driver}: they share it");
        let of_node = fs::read_link("/proc/self/ns/net")?;
        ensure!(of_node.to_string_lossy() != reported[1], "{driver}: it is not the node's");

        // The network outlives the agent, and a restarted task joins the same one.
        agent.kill_9()?;
        agent.run()?;
        agent.wait_alloc("alone", "running")?;
        agent.caravan(&["alloc", "restart", &id, "other"])?.ok()?;
        ensure!(lines(&agent, &id, "other", 2)? == [reported[1].clone(), reported[1].clone()], "{driver}");
        let inside =
            agent.caravan(&["alloc", "exec", "-task", "t", &id, "readlink", "/proc/self/ns/net"])?.ok()?;
        ensure!(inside.stdout.trim() == reported[1], "{driver}: {}", inside.all());

        agent.caravan(&["job", "stop", "-detach", "alone"])?.ok()?;
        eventually("the network to be let go", || {
            ensure!(!held(&agent, &id).exists(), "{} is there", held(&agent, &id).display());
            Ok(())
        })?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        ensure!(!mounts.contains(&format!("networks/{id}")), "{driver}: its mount is gone too");
    }
    Ok(())
}

#[test]
fn who_needs_what_no_node_offers_waits_and_is_told() -> Result<()> {
    let agent = Agent::start()?;
    for (id, of_group, of_resources, warned, reason) in [
        ("cni", "network {\n mode = \"cni/mine\"\n }", "", "", "missing network"),
        ("gpu", "", "device \"nvidia/gpu\" {\n count = 1\n }", "", "missing devices"),
    ] {
        let path = agent.dir().join(format!("{id}.hcl"));
        fs::write(&path, job(id, "raw_exec", of_group, of_resources))?;
        let plan = agent.caravan(&["job", "plan", "-diff=false", &path.to_string_lossy()])?;
        ensure!(plan.code == 1 && plan.stdout.contains(warned), "{}", plan.all());
        let run = agent.caravan(&["job", "run", "-detach", &path.to_string_lossy()])?.ok()?;
        ensure!(run.stdout.contains(warned), "{}", run.all());
        let waits = eventually("the evaluation that waits", || {
            let evals = agent.get(&format!("/v1/job/{id}/evaluations"))?;
            let blocked =
                evals.as_array().and_then(|all| all.iter().find(|e| e["Status"] == "blocked").cloned());
            blocked.context("none is blocked")
        })?;
        ensure!(waits["TriggeredBy"] == "queued-allocs", "{waits}");
        let evals = agent.get(&format!("/v1/job/{id}/evaluations"))?;
        let failed = evals.as_array().into_iter().flatten().map(|e| &e["FailedTGAllocs"]["g"]);
        let filtered: Vec<&Value> =
            failed.filter(|m| !m.is_null()).map(|m| &m["ConstraintFiltered"]).collect();
        ensure!(filtered.iter().any(|reasons| reasons[reason] == 1), "{evals}");
        ensure!(agent.allocs(id)?.is_empty());
    }
    Ok(())
}
