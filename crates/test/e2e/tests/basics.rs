//! Jobs without volumes: run, inspect, stop.

use crate::{DRIVERS, id_of, run_job};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually, program};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn batch(id: &str, driver: &str, script: &str) -> String {
    format!(
        r#"
job "{id}" {{
  type = "batch"
  group "g" {{
    task "t" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "{script}"]
      }}
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

#[test]
fn a_batch_job_completes_and_its_output_is_read() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    for driver in DRIVERS {
        let id = format!("hello-{}", driver.replace('_', "-"));
        run_job(&agent, &id, &batch(&id, driver, "echo out of $NOMAD_TASK_NAME; echo to stderr >&2"))?;
        let alloc = id_of(&agent.wait_alloc(&id, "complete")?)?;
        let out = agent.caravan(&["alloc", "logs", &alloc])?.ok()?;
        ensure!(out.stdout == "out of t\n", "{out:?}");
        let err = agent.caravan(&["alloc", "logs", "-stderr", &alloc])?.ok()?;
        ensure!(err.stdout == "to stderr\n", "{err:?}");
        let status = agent.caravan(&["job", "status", &id])?.ok()?;
        ensure!(status.stdout.contains("dead") && status.stdout.contains("complete"), "{}", status.stdout);
    }
    Ok(())
}

#[test]
fn an_agent_may_open_more_files_than_its_tasks() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let limited = dir.path().join("limited");
    let line = format!("exec prlimit --nofile=200:4096 '{}' \"$@\"", program().display());
    fs::write(&limited, format!("#!/bin/sh\n{line}\n"))?;
    fs::set_permissions(&limited, fs::Permissions::from_mode(0o755))?;
    let agent = Agent::with(AgentOptions { program: Some(limited), dev: true, ..AgentOptions::default() })?;
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.pid()))?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    let fields: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    ensure!(fields == ["4096", "4096"], "{limits}");
    for driver in DRIVERS {
        let id = format!("files-{}", driver.replace('_', "-"));
        run_job(&agent, &id, &batch(&id, driver, "ulimit -Sn; ulimit -Hn"))?;
        let alloc = id_of(&agent.wait_alloc(&id, "complete")?)?;
        let out = agent.caravan(&["alloc", "logs", &alloc])?.ok()?;
        ensure!(out.stdout == "200\n4096\n", "{driver}: {out:?}");
    }
    Ok(())
}

#[test]
fn a_failing_task_is_restarted_by_its_policy_and_then_fails() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let text = batch("failing", "raw_exec", "exit 7").replace(
        "task \"t\"",
        "restart {\n attempts = 1\n interval = \"10m\"\n delay = \"1s\"\n mode = \"fail\"\n }\n task \"t\"",
    );
    run_job(&agent, "failing", &text)?;
    let alloc = agent.wait_alloc("failing", "failed")?;
    let state = &alloc["TaskStates"]["t"];
    ensure!(state["Restarts"] == 1 && state["Failed"] == true, "{state}");
    let events: Vec<&str> =
        state["Events"].as_array().into_iter().flatten().filter_map(|e| e["Type"].as_str()).collect();
    ensure!(events.iter().filter(|e| **e == "Terminated").count() == 2, "{events:?}");
    ensure!(events.last() == Some(&"Not Restarting"), "{events:?}");
    Ok(())
}

#[test]
fn a_service_runs_is_shown_everywhere_and_stops() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let text =
        batch("web", "raw_exec", "echo up; exec sleep 600").replace("type = \"batch\"", "type = \"service\"");
    run_job(&agent, "web", &text)?;
    let alloc = id_of(&agent.wait_alloc("web", "running")?)?;
    for args in [
        vec!["job", "status"],
        vec!["job", "status", "web"],
        vec!["node", "status"],
        vec!["alloc", "status", &alloc],
        vec!["eval", "list"],
        vec!["plugin", "status"],
        vec!["volume", "status"],
        vec!["server", "members"],
    ] {
        let out = agent.caravan(&args)?.ok()?;
        ensure!(!out.stdout.is_empty(), "caravan {args:?} printed nothing");
    }
    let evals = agent.get("/v1/job/web/evaluations")?;
    let eval = evals[0]["ID"].as_str().unwrap_or_default().to_owned();
    ensure!(agent.caravan(&["eval", "status", &eval])?.ok()?.stdout.contains("complete"));
    let json = agent.caravan(&["job", "status", "-json", "web"])?.ok()?;
    serde_json::from_str::<serde_json::Value>(&json.stdout)?;
    agent.caravan(&["job", "stop", "-purge", "web"])?.ok()?;
    eventually("the job to be gone", || {
        let reply = agent.request("GET", "/v1/job/web", None)?;
        if reply.status == 404 { Ok(()) } else { bail!("status {}", reply.status) }
    })?;
    eventually("the allocation to be complete", || {
        let alloc = agent.get(&format!("/v1/allocation/{alloc}"))?;
        if alloc["ClientStatus"] == "complete" { Ok(()) } else { bail!("{}", alloc["ClientStatus"]) }
    })
}

#[test]
fn what_does_not_fit_is_explained_and_placed_when_it_does() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let text = batch("big", "raw_exec", "true").replace("memory = 16", "memory = 9000000");
    run_job(&agent, "big", &text)?;
    eventually("the evaluation to be blocked", || {
        let evals = agent.get("/v1/job/big/evaluations")?;
        let blocked = evals.as_array().into_iter().flatten().any(|e| e["Status"] == "blocked");
        if blocked { Ok(()) } else { bail!("{evals}") }
    })?;
    let status = agent.caravan(&["job", "status", "big"])?.ok()?;
    ensure!(status.stdout.to_lowercase().contains("memory"), "{}", status.stdout);
    let smaller = batch("big", "raw_exec", "true");
    run_job(&agent, "big", &smaller)?;
    agent.wait_alloc("big", "complete").map(drop)
}

#[test]
fn two_jobs_never_get_the_same_port() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let job = |id: &str| {
        batch(id, "raw_exec", "echo $NOMAD_PORT_http; exec sleep 600")
            .replace("type = \"batch\"", "type = \"service\"")
            .replace("task \"t\"", "network {\n port \"http\" {}\n }\n task \"t\"")
    };
    let mut ports = Vec::new();
    for id in ["one", "two"] {
        run_job(&agent, id, &job(id))?;
        let alloc = id_of(&agent.wait_alloc(id, "running")?)?;
        let port = eventually("the port in the output", || {
            let text = agent.logs(&alloc, "t", "stdout")?;
            Ok(text.trim().parse::<u16>()?)
        })?;
        ports.push(port);
    }
    ensure!(ports[0] != ports[1] && ports.iter().all(|p| (20_000..=32_000).contains(p)), "{ports:?}");
    Ok(())
}

#[test]
fn blocking_queries_answer_when_something_changed() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let first = agent.request("GET", "/v1/jobs", None)?;
    let index: u64 = first.header("x-nomad-index").unwrap_or_default().parse()?;
    // A table that was never written shows index 0, and a query with index 0 does not block.
    let index = index.max(1);
    let address = agent.address();
    let waiter = std::thread::spawn(move || {
        caravan_testkit::request(&address, "GET", &format!("/v1/jobs?index={index}&wait=60s"), None)
    });
    run_job(&agent, "hello", &batch("hello", "raw_exec", "true"))?;
    let reply = waiter.join().map_err(|_| anyhow::anyhow!("the query panicked"))??;
    let after: u64 = reply.header("x-nomad-index").unwrap_or_default().parse()?;
    ensure!(after > index && reply.text().contains("hello"), "{} {}", after, reply.text());
    Ok(())
}
