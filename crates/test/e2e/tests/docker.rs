//! Tasks in containers of a real engine, under a real agent.

use crate::{id_of, run_job};
use anyhow::{Result, ensure};
use caravan_testkit::{Agent, AgentOptions, ContainerEngine, Registry, eventually};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn agent(engine: &ContainerEngine, options: &str) -> Result<Agent> {
    Agent::with(agent_options(engine, options))
}

fn agent_options(engine: &ContainerEngine, options: &str) -> AgentOptions {
    let extra = format!(
        "plugin \"docker\" {{\n config {{\n endpoint = \"{}\"\n {options}\n }}\n}}\n\
         plugin \"exec\" {{\n config {{\n allow_privileged_plugins = true\n }}\n}}\n",
        engine.endpoint()
    );
    AgentOptions { extra, ..AgentOptions::default() }
}

fn job(id: &str, config: &str, more: &str) -> String {
    format!(
        r#"
job "{id}" {{
  group "g" {{
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    task "t" {{
      driver       = "docker"
      kill_timeout = "1s"
      config {{
        image        = "{image}"
        network_mode = "none"
        {config}
      }}
      {more}
      resources {{
        cpu    = 50
        memory = 32
      }}
    }}
  }}
}}
"#,
        image = ContainerEngine::IMAGE
    )
}

fn count(agent: &Agent, alloc: &str) -> Result<usize> {
    Ok(agent.caravan(&["alloc", "logs", alloc, "t"])?.ok()?.stdout.lines().count())
}

#[test]
fn a_container_outlives_its_agent() -> Result<()> {
    let engine = ContainerEngine::start()?;
    let mut agent = agent(&engine, "")?;
    let script = "cat /local/greeting; i=0; while true; do echo line $i; i=$((i+1)); sleep 0.05; done";
    let config = format!("command = \"sh\"\n args = [\"-c\", {script:?}]");
    let template = "env {\n PASSWORD = \"hunter-7\"\n }\n template {\n data = \"hello {{ env \\\"NOMAD_TASK_NAME\\\" }}\\n\"\n destination = \"local/greeting\"\n }";
    run_job(&agent, "web", &job("web", &config, template))?;
    let alloc = agent.wait_alloc("web", "running")?;
    let id = id_of(&alloc)?;
    let container = engine.docker(&["ps", "-q", "--no-trunc"])?;
    ensure!(engine.containers()? == [format!("t-{id}")], "{:?}", engine.containers()?);
    eventually("output", || {
        ensure!(count(&agent, &id)? > 10, "few lines");
        Ok(())
    })?;
    let out =
        agent.caravan(&["alloc", "exec", "-t=false", &id, "sh", "-c", "echo $NOMAD_ALLOC_ID; exit 5"])?;
    ensure!(out.code == 5 && out.stdout.trim() == id, "{out:?}");
    let node = agent.get("/v1/nodes")?;
    ensure!(node[0]["Drivers"]["docker"]["Healthy"] == true, "{}", node[0]["Drivers"]);

    ensure!(!agent.log().contains("hunter-7"), "the log contains a task's environment");
    agent.kill_9()?;
    agent.run()?;
    agent.wait_alloc("web", "running")?;
    let before = count(&agent, &id)?;
    eventually("more output", || {
        ensure!(count(&agent, &id)? > before + 10, "few lines");
        Ok(())
    })?;
    ensure!(engine.docker(&["ps", "-q", "--no-trunc"])? == container, "another container runs");
    let text = agent.caravan(&["alloc", "logs", &id, "t"])?.ok()?.stdout;
    let mut lines = text.lines();
    ensure!(lines.next() == Some("hello t"), "{text}");
    for (number, line) in lines.enumerate() {
        ensure!(line == format!("line {number}"), "line {number} is {line:?}");
    }

    agent.caravan(&["job", "stop", "-purge", "web"])?.ok()?;
    eventually("the container to be removed", || {
        ensure!(engine.containers()?.is_empty(), "{:?}", engine.containers()?);
        Ok(())
    })
}

#[test]
fn failures_are_named_where_users_look() -> Result<()> {
    let engine = ContainerEngine::start()?;
    let agent = agent(&engine, "")?;
    for (id, config, words) in [
        ("caps", "cap_add = [\"sys_admin\"]", "driver does not allow the following capabilities: sys_admin"),
        ("key", "imagee = \"x\"", "no config key \"imagee\""),
        ("program", "command = \"/no/such/program\"", "Failed to start container"),
    ] {
        run_job(&agent, id, &job(id, config, ""))?;
        eventually(words, || {
            let allocs = agent.get(&format!("/v1/job/{id}/allocations"))?;
            let text = allocs.to_string();
            ensure!(text.contains(&words.replace('"', "\\\"")), "{text}");
            ensure!(allocs[0]["ClientStatus"] == "failed", "{text}");
            Ok(())
        })?;
    }
    ensure!(engine.containers()?.is_empty(), "{:?}", engine.containers()?);
    Ok(())
}

/// Returns the job of the bundled plugin in a privileged container.
pub(crate) fn plugin_in_a_container(image: &str, data: &str) -> String {
    format!(
        r#"
job "hostpath" {{
  type = "system"
  group "plugin" {{
    task "plugin" {{
      driver = "docker"
      config {{
        image        = "{image}"
        network_mode = "none"
        privileged   = true
        command      = "caravan"
        args         = ["plugin", "hostpath", "--state-dir=/data"]
        mount {{
          type   = "bind"
          source = "{data}"
          target = "/data"
        }}
      }}
      csi_plugin {{
        id   = "hostpath"
        type = "monolith"
      }}
      resources {{
        cpu    = 50
        memory = 64
      }}
    }}
  }}
}}
"#
    )
}

#[test]
fn a_helper_of_the_node_has_the_credentials() -> Result<()> {
    let engine = ContainerEngine::start()?;
    let registry = Registry::start()?;
    let image = registry.take(&engine, ContainerEngine::IMAGE, "private:1")?;
    let programs = tempfile::tempdir()?;
    let helper = programs.path().join("docker-credential-test");
    let answer = format!("{{\"Username\": \"{}\", \"Secret\": \"{}\"}}", Registry::USER, Registry::PASSWORD);
    let script = format!(
        "#!/bin/sh\nread -r registry\n[ \"$1 $registry\" = \"get {}\" ] && echo '{answer}' && exit\necho unknown \"$registry\" >&2\nexit 1\n",
        registry.address()
    );
    fs::write(&helper, script)?;
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH")?);
    let options = agent_options(&engine, "auth {\n helper = \"test\"\n }");
    let agent = Agent::with(AgentOptions { env: vec![("PATH".into(), path)], ..options })?;
    let text = |id: &str, image: &str| {
        job(id, "command = \"sleep\"\n args = [\"1000\"]", "").replace(ContainerEngine::IMAGE, image)
    };
    run_job(&agent, "good", &text("good", &image))?;
    let alloc = agent.wait_alloc("good", "running")?;
    let shown = agent.get(&format!("/v1/allocation/{}", id_of(&alloc)?))?;
    let events = shown["TaskStates"]["t"]["Events"].to_string();
    ensure!(events.contains("Downloading image") && events.contains(&image), "{events}");
    run_job(&agent, "bad", &text("bad", "127.0.0.1:1/x:1"))?;
    eventually("the helper's message", || {
        let allocs = agent.get("/v1/job/bad/allocations")?.to_string();
        ensure!(allocs.contains("Failed to find docker auth for repo"), "{allocs}");
        ensure!(allocs.contains("failed with stderr: unknown 127.0.0.1:1"), "{allocs}");
        Ok(())
    })?;
    ensure!(!agent.log().contains(Registry::PASSWORD), "the log contains a password");
    Ok(())
}

/// Kills the agent repeatedly while tasks start: each task has at most one container, and in the end exactly one.
#[test]
fn containers_are_not_doubled_by_an_agent_that_dies() -> Result<()> {
    let engine = ContainerEngine::start()?;
    let mut agent = agent(&engine, "")?;
    let config = "command = \"sh\"\n args = [\"-c\", \"trap 'exit 0' TERM; sleep 100000 & wait\"]";
    for round in 0..4 {
        let id = format!("web-{round}");
        run_job(&agent, &id, &job(&id, config, ""))?;
        // The engine is about to create or start the container.
        eventually("the container", || {
            ensure!(engine.containers()?.len() > round, "{:?}", engine.containers()?);
            Ok(())
        })?;
        agent.kill_9()?;
        agent.run()?;
    }
    for round in 0..4 {
        agent.wait_alloc(&format!("web-{round}"), "running")?;
    }
    eventually("one container for each task", || {
        let running = engine.docker(&["ps", "--format", "{{.Names}}"])?;
        ensure!(running.lines().count() == 4 && engine.containers()?.len() == 4, "{running}");
        Ok(())
    })?;
    for round in 0..4 {
        agent.caravan(&["job", "stop", "-purge", &format!("web-{round}")])?.ok()?;
    }
    eventually("the containers to be removed", || {
        ensure!(engine.containers()?.is_empty(), "{:?}", engine.containers()?);
        Ok(())
    })
}
