//! Services of the servers' catalog: registered while they run, found, checked, and deregistered.

use crate::{id_of, run_job};
use anyhow::{Context, Result, anyhow, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use serde_json::Value;

/// Returns a service job with an HTTP server in Python, and a file that controls its answers.
fn web(extra: &str) -> String {
    format!(
        r#"
job "web" {{
  group "web" {{
    count = 2
    network {{
      port "http" {{}}
    }}
    service {{
      name     = "web-http"
      provider = "nomad"
      port     = "http"
      tags     = ["blue", "on-${{node.datacenter}}"]
      check {{
        name     = "up"
        type     = "http"
        path     = "/state"
        interval = "1s"
        timeout  = "1s"
        {extra}
      }}
      check {{
        name      = "open"
        type      = "tcp"
        interval  = "1s"
        timeout   = "1s"
      }}
    }}
    task "server" {{
      driver = "raw_exec"
      service {{
        name     = "web-task"
        provider = "nomad"
        port     = "http"
        check {{
          name     = "script"
          type     = "script"
          command  = "/bin/sh"
          args     = ["-c", "echo from $NOMAD_TASK_NAME"]
          interval = "1s"
          timeout  = "5s"
        }}
      }}
      config {{
        command = "/bin/sh"
        args    = ["-c", "cd $NOMAD_TASK_DIR && echo good > state && exec python3 -m http.server --bind $NOMAD_IP_http $NOMAD_PORT_http"]
      }}
      resources {{
        cpu    = 20
        memory = 48
      }}
    }}
  }}
}}
"#
    )
}

fn found(agent: &Agent, name: &str, count: usize) -> Result<Vec<Value>> {
    eventually(&format!("{count} registrations of {name}"), || {
        let rows = agent.get(&format!("/v1/service/{name}"))?;
        let rows = rows.as_array().cloned().unwrap_or_default();
        if rows.len() == count { Ok(rows) } else { bail!("{rows:?}") }
    })
}

fn checks(agent: &Agent, alloc: &str, status: &str) -> Result<Value> {
    eventually(&format!("all checks to be {status}"), || {
        let checks = agent.get(&format!("/v1/client/allocation/{alloc}/checks"))?;
        let all: Vec<&Value> = checks.as_object().into_iter().flat_map(|map| map.values()).collect();
        if all.len() == 3 && all.iter().all(|check| check["Status"] == status) {
            Ok(checks)
        } else {
            bail!("{checks}")
        }
    })
}

#[test]
fn services_are_found_while_they_run_and_their_checks_are_told() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    run_job(&agent, "web", &web(""))?;
    let rows = found(&agent, "web-http", 2)?;
    found(&agent, "web-task", 2)?;
    let first = &rows[0];
    let alloc = first["AllocID"].as_str().ok_or_else(|| anyhow!("{first}"))?;
    ensure!(first["ID"] == format!("_nomad-task-{alloc}-group-web-web-http-http"), "{first}");
    ensure!(first["Tags"] == serde_json::json!(["blue", "on-dc1"]), "{first}");
    ensure!(first["Port"].as_i64().is_some_and(|port| port > 0) && first["JobID"] == "web", "{first}");
    let names = agent.get("/v1/services")?;
    ensure!(names[0]["Services"].as_array().map(Vec::len) == Some(2), "{names}");
    ensure!(agent.get("/v1/job/web/services")?.as_array().map(Vec::len) == Some(4));
    // The same in pages.
    let page = agent.request("GET", "/v1/job/web/services?per_page=3&sort=service", None)?;
    let next = page.header("x-nomad-nexttoken").context("a next page")?;
    let rest = agent.get(&format!("/v1/job/web/services?per_page=3&sort=service&next_token={next}"))?;
    let lengths = (page.json()?.as_array().map(Vec::len), rest.as_array().map(Vec::len));
    ensure!(lengths == (Some(3), Some(1)), "{lengths:?}");
    ensure!(agent.request("GET", "/v1/job/web/services?sort=colour", None)?.status == 400);
    ensure!(agent.get(&format!("/v1/allocation/{alloc}/services"))?.as_array().map(Vec::len) == Some(2));
    // The same caller gets the same instance.
    let one = agent.get("/v1/service/web-http?choose=1%7Cme")?;
    ensure!(
        one.as_array().map(Vec::len) == Some(1) && one == agent.get("/v1/service/web-http?choose=1%7Cme")?
    );
    checks(&agent, alloc, "success")?;

    let list = agent.caravan(&["service", "list"])?.ok()?;
    ensure!(list.stdout.contains("web-http      [blue,on-dc1]"), "{}", list.stdout);
    let info = agent.caravan(&["service", "info", "web-http"])?.ok()?;
    ensure!(info.stdout.starts_with("Job ID  Address"), "{}", info.stdout);
    let reported = agent.caravan(&["alloc", "checks", alloc])?.ok()?;
    ensure!(reported.stdout.starts_with("Status of 3 Nomad Service Checks\n\nID "), "{}", reported.stdout);
    ensure!(reported.stdout.contains("=  from server"), "{}", reported.stdout);
    let status = agent.caravan(&["alloc", "status", alloc])?.ok()?;
    ensure!(status.stdout.contains("Nomad Service Checks:\nService"), "{}", status.stdout);

    let id = first["ID"].as_str().unwrap_or_default();
    agent.caravan(&["service", "delete", "web-http", id])?.ok()?;
    found(&agent, "web-http", 1)?;
    let again = agent.caravan(&["service", "delete", "web-http", id])?;
    ensure!(again.code == 1 && again.stderr.contains("(service registration not found)"), "{again:?}");
    agent.caravan(&["job", "stop", "-detach", "web"])?.ok()?;
    found(&agent, "web-http", 0)?;
    found(&agent, "web-task", 0)?;
    Ok(())
}

#[test]
fn a_task_whose_check_fails_for_long_is_restarted() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    // The server starts within the grace; without one, a slow start exhausts the restarts.
    let restart = "check_restart {\n limit = 2\n grace = \"10s\"\n }";
    run_job(&agent, "web", &web(restart).replace("count = 2", "count = 1"))?;
    let alloc = id_of(&agent.wait_alloc("web", "running")?)?;
    checks(&agent, &alloc, "success")?;
    agent.caravan(&["alloc", "exec", "-i=false", "-t=false", &alloc, "rm", "local/state"])?.ok()?;
    eventually("the restart", || {
        let row = agent.get(&format!("/v1/allocation/{alloc}"))?;
        let events = row["TaskStates"]["server"]["Events"].as_array().cloned().unwrap_or_default();
        let why = "healthcheck: check \"up\" unhealthy";
        if events.iter().any(|event| event["DisplayMessage"] == why) { Ok(()) } else { bail!("{events:?}") }
    })
}

#[test]
fn services_are_gone_before_their_task_is_asked_to_end() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let text = web("").replace("count = 2", "count = 1\n shutdown_delay = \"20s\"");
    run_job(&agent, "web", &text)?;
    let alloc = id_of(&agent.wait_alloc("web", "running")?)?;
    found(&agent, "web-http", 1)?;
    agent.caravan(&["job", "stop", "-detach", "web"])?.ok()?;
    found(&agent, "web-http", 0)?;
    let row = agent.get(&format!("/v1/allocation/{alloc}"))?;
    ensure!(row["ClientStatus"] == "running", "it waits for its delay: {row}");
    Ok(())
}

#[test]
fn services_outlive_the_agent_that_registered_them() -> Result<()> {
    let mut agent = Agent::start()?;
    run_job(&agent, "web", &web("").replace("count = 2", "count = 1"))?;
    let before = found(&agent, "web-http", 1)?;
    agent.kill_9()?;
    agent.run()?;
    let after = found(&agent, "web-http", 1)?;
    ensure!(before[0]["ID"] == after[0]["ID"] && before[0]["CreateIndex"] == after[0]["CreateIndex"]);
    let alloc = before[0]["AllocID"].as_str().unwrap_or_default().to_owned();
    checks(&agent, &alloc, "success").map(drop)
}
