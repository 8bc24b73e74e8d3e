//! Scheduling as users see it: preemption, wait reasons, and hypothetical moves.

use crate::run_job;
use anyhow::{Result, ensure};
use caravan_testkit::{Agent, eventually};
use serde_json::Value;
use std::fs;

/// Returns a job whose only task sleeps and uses this part of the node.
fn sleeper(id: &str, kind: &str, priority: i64, cpu: i64) -> String {
    format!(
        r#"
job "{id}" {{
  type     = "{kind}"
  priority = {priority}
  group "g" {{
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", "exec sleep 3600"]
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = {cpu}
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}

fn node(agent: &Agent) -> Result<Value> {
    let nodes = agent.get("/v1/nodes?resources=true")?;
    Ok(nodes[0].clone())
}

#[test]
fn a_system_job_evicts_what_matters_less_and_everybody_is_told() -> Result<()> {
    let agent = Agent::start()?;
    let all = node(&agent)?["NodeResources"]["Cpu"]["CpuShares"].as_i64().unwrap_or(0);
    ensure!(all > 100, "the node has {all} MHz");
    run_job(&agent, "low", &sleeper("low", "service", 20, all * 7 / 10))?;
    let low = agent.wait_alloc("low", "running")?;

    // A service job waits, with a reason.
    let path = agent.dir().join("web.hcl");
    fs::write(&path, sleeper("web", "service", 60, all / 2))?;
    let planned = agent.caravan(&["job", "plan", "-diff=false", &path.to_string_lossy()])?;
    ensure!(planned.stdout.contains("smallest missing:"), "{}", planned.all());
    ensure!(planned.stdout.contains("evicting others is switched off for service jobs"), "{}", planned.all());
    let imagined = ["job", "plan", "-diff=false", "-what-if", "node=", &path.to_string_lossy()];
    ensure!(agent.caravan(&imagined)?.code != 0, "a node must be named");

    // A system job does not wait: it preempts.
    run_job(&agent, "agent", &sleeper("agent", "system", 90, all / 2))?;
    let winner = agent.wait_alloc("agent", "running")?;
    ensure!(winner["PreemptedAllocations"][0] == low["ID"], "{winner}");
    let loser = eventually("the evicted one to be over", || {
        let row = agent.get(&format!("/v1/allocation/{}", low["ID"].as_str().unwrap_or_default()))?;
        ensure!(row["ClientStatus"] == "complete", "{}", row["ClientStatus"]);
        Ok(row)
    })?;
    ensure!(loser["DesiredStatus"] == "evict", "{}", loser["DesiredStatus"]);
    ensure!(loser["PreemptedByAllocation"] == winner["ID"], "{}", loser["PreemptedByAllocation"]);
    let evals = eventually("the evicted job to be looked at", || {
        let evals = agent.get("/v1/job/low/evaluations")?;
        let rows = evals.as_array().cloned().unwrap_or_default();
        ensure!(rows.iter().any(|e| e["TriggeredBy"] == "preemption"), "{evals}");
        ensure!(rows.iter().any(|e| e["Status"] == "blocked"), "{evals}");
        Ok(rows)
    })?;
    let blocked = evals.iter().find(|e| e["Status"] == "blocked").and_then(|e| e["ID"].as_str());
    let status = agent.caravan(&["eval", "status", blocked.unwrap_or_default()])?.ok()?;
    ensure!(status.stdout.contains("Explanation, as of now"), "{}", status.all());
    Ok(())
}

#[test]
fn what_would_move_is_told_and_nothing_moves() -> Result<()> {
    let agent = Agent::start()?;
    run_job(&agent, "web", &sleeper("web", "service", 50, 20))?;
    agent.wait_alloc("web", "running")?;
    let id = node(&agent)?["ID"].as_str().unwrap_or_default().to_owned();
    let path = agent.dir().join("other.hcl");
    fs::write(&path, sleeper("other", "service", 50, 20))?;
    let event = format!("node={id}:down");
    let reported =
        agent.caravan(&["job", "plan", "-diff=false", "-what-if", &event, &path.to_string_lossy()])?;
    ensure!(reported.stdout.contains("What if:"), "{}", reported.all());
    ensure!(reported.stdout.contains("- web.g[0]:"), "{}", reported.all());
    ensure!(reported.stdout.contains("1 node of its pool and datacenters is down"), "{}", reported.all());
    let allocs = agent.get("/v1/job/web/allocations")?;
    ensure!(allocs.as_array().is_some_and(|list| list.len() == 1), "{allocs}");
    ensure!(allocs[0]["ClientStatus"] == "running", "{allocs}");
    Ok(())
}

/// Checks that failed starts are placed again with pauses. Without pauses, a program that is missing on a node costs
/// the servers many allocations a second.
#[test]
fn a_system_job_that_cannot_start_is_placed_with_pauses() -> Result<()> {
    let agent = Agent::start()?;
    let missing = sleeper("missing", "system", 50, 20).replacen("/bin/sh", "/nonexistent/program", 1);
    run_job(&agent, "missing", &missing)?;
    let allocs = eventually("the third allocation to wait for its successor", || {
        let evals = agent.get("/v1/job/missing/evaluations")?;
        let waits = |eval: &Value| {
            eval["Status"] == "pending" && eval["StatusDescription"] == "created for delayed rescheduling"
        };
        let allocs = agent.get("/v1/job/missing/allocations")?;
        let count = allocs.as_array().map_or(0, Vec::len);
        ensure!(count >= 3 && evals.as_array().is_some_and(|all| all.iter().any(waits)), "{allocs} {evals}");
        Ok(count)
    })?;
    ensure!(allocs <= 5, "{allocs} allocations in a few seconds");
    // A new version does not wait.
    run_job(&agent, "missing", &missing.replacen("/nonexistent/program", "/bin/sh", 1))?;
    agent.wait_alloc("missing", "running").map(drop)
}

/// Checks that the ended allocation of a service without restarts is complete, and that no other one follows, as in
/// Nomad.
#[test]
fn a_service_without_restarts_that_ends_is_not_placed_again() -> Result<()> {
    let agent = Agent::start()?;
    let once = sleeper("once", "service", 50, 20).replacen("exec sleep 3600", "exit 0", 1).replacen(
        "group \"g\" {",
        "group \"g\" {\n    restart {\n      attempts = 0\n      mode = \"fail\"\n    }",
        1,
    );
    run_job(&agent, "once", &once)?;
    agent.wait_alloc("once", "complete")?;
    // The servers have handled the report when a later job runs.
    run_job(&agent, "later", &sleeper("later", "service", 50, 20))?;
    agent.wait_alloc("later", "running")?;
    let allocs = agent.get("/v1/job/once/allocations")?;
    ensure!(allocs.as_array().is_some_and(|all| all.len() == 1), "{allocs}");
    Ok(())
}
