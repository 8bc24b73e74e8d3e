//! Behaviour that all drivers have in common: variables, templates, artifacts, lifecycle hooks, kill signals,
//! restarts.

use crate::external::with_examples;
use crate::{id_of, run_job};
use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, AgentOptions, Answer, ContainerEngine, WebServer, eventually};

const ALL: [&str; 4] = ["raw_exec", "exec", "docker", "example"];

fn agent(engine: &ContainerEngine, dir: &std::path::Path) -> Result<Agent> {
    let more = format!(
        "plugin \"docker\" {{\n config {{\n endpoint = \"{}\"\n }}\n}}\n\
         plugin \"raw_exec\" {{\n config {{\n enabled = true\n }}\n}}",
        engine.endpoint()
    );
    Agent::with(AgentOptions { extra: with_examples(dir, &more)?, ..AgentOptions::default() })
}

/// Returns a task that runs a script under a driver.
fn task(name: &str, driver: &str, script: &str, more: &str) -> String {
    let image = match driver {
        "docker" => format!("image = \"{}\"\n network_mode = \"none\"", ContainerEngine::IMAGE),
        _ => String::new(),
    };
    format!(
        r#"
    task "{name}" {{
      driver       = "{driver}"
      kill_timeout = "5s"
      config {{
        {image}
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
      {more}
      resources {{
        cpu    = 50
        memory = 32
      }}
    }}
"#
    )
}

fn job(id: &str, attempts: u32, tasks: &str) -> String {
    format!(
        r#"
job "{id}" {{
  type = "batch"
  group "g" {{
    restart {{
      attempts = {attempts}
      delay    = "0s"
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    {tasks}
  }}
}}
"#
    )
}

#[test]
fn a_task_finds_what_its_job_prepares() -> Result<()> {
    let engine = ContainerEngine::start()?;
    let dir = tempfile::tempdir()?;
    let agent = agent(&engine, dir.path())?;
    let server = WebServer::start(None, |asked| match asked.path.split('?').next() {
        Some("/plain") => Answer::good("from afar\n"),
        _ => Answer::status(404),
    })?;
    let address = server.address();
    let more = format!(
        r#"
      env {{
        GREETING = "hello ${{NOMAD_TASK_NAME}}"
      }}
      template {{
        data        = "rendered for {{{{ env \"NOMAD_JOB_NAME\" }}}}\n"
        destination = "local/page"
      }}
      artifact {{
        source      = "http://{address}/plain"
        destination = "local/fetched"
      }}
"#
    );
    let main = "cat $NOMAD_ALLOC_DIR/before; echo $GREETING; cat $NOMAD_TASK_DIR/page $NOMAD_TASK_DIR/fetched/plain; \
                echo words >&2; ls -d $NOMAD_SECRETS_DIR > /dev/null && echo secrets";
    for driver in ALL {
        let id = format!("all-{}", driver.replace('_', "-"));
        let hook = |hook: &str| format!("lifecycle {{\n hook = \"{hook}\"\n }}");
        let tasks = [
            task("before", driver, "echo prepared > $NOMAD_ALLOC_DIR/before", &hook("prestart")),
            task("main", driver, main, &more),
            task("after", driver, "cat $NOMAD_ALLOC_DIR/before; echo over", &hook("poststop")),
        ];
        run_job(&agent, &id, &job(&id, 0, &tasks.join("")))?;
        let alloc = id_of(&agent.wait_alloc(&id, "complete").with_context(|| format!("driver {driver}"))?)?;
        let out = agent.logs(&alloc, "main", "stdout")?;
        let expected = format!("prepared\nhello main\nrendered for {id}\nfrom afar\nsecrets\n");
        ensure!(out == expected, "{driver}: {out:?}");
        ensure!(agent.logs(&alloc, "main", "stderr")? == "words\n", "{driver}");
        ensure!(agent.logs(&alloc, "after", "stdout")? == "prepared\nover\n", "{driver}");
    }
    Ok(())
}

#[test]
fn a_failing_task_is_restarted_and_then_failed() -> Result<()> {
    let engine = ContainerEngine::start()?;
    let dir = tempfile::tempdir()?;
    let agent = agent(&engine, dir.path())?;
    for driver in ALL {
        let id = format!("fails-{}", driver.replace('_', "-"));
        let script = "echo run >> $NOMAD_ALLOC_DIR/runs; exit 7";
        run_job(&agent, &id, &job(&id, 2, &task("t", driver, script, "")))?;
        let alloc = agent.wait_alloc(&id, "failed").with_context(|| format!("driver {driver}"))?;
        let alloc = agent.get(&format!("/v1/allocation/{}", id_of(&alloc)?))?;
        let state = &alloc["TaskStates"]["t"];
        ensure!(state["Restarts"] == 2 && state["Failed"] == true, "{driver}: {state}");
        let text = state["Events"].to_string();
        ensure!(text.contains("Exit Code: 7"), "{driver}: {text}");
        let runs =
            agent.caravan(&["alloc", "fs", alloc["ID"].as_str().context("an id")?, "alloc/runs"])?.ok()?;
        ensure!(runs.stdout == "run\nrun\nrun\n", "{driver}: {}", runs.stdout);
    }
    Ok(())
}

#[test]
fn a_task_gets_its_kill_signal_and_its_time() -> Result<()> {
    let engine = ContainerEngine::start()?;
    let dir = tempfile::tempdir()?;
    let agent = agent(&engine, dir.path())?;
    for driver in ALL {
        let id = format!("ends-{}", driver.replace('_', "-"));
        let script = "trap 'echo winding down; exit 3' USR2; echo ready; while true; do sleep 0.05; done";
        run_job(&agent, &id, &job(&id, 0, &task("t", driver, script, "kill_signal = \"SIGUSR2\"")))?;
        let alloc = id_of(&agent.wait_alloc(&id, "running").with_context(|| format!("driver {driver}"))?)?;
        let says = |words: &str| {
            eventually("output", || {
                let out = agent.logs(&alloc, "t", "stdout")?;
                ensure!(out.contains(words), "{driver}: {out:?}");
                Ok(())
            })
        };
        says("ready")?;
        agent.caravan(&["job", "stop", &id])?.ok()?;
        says("winding down")?;
        eventually("the exit code", || {
            let state = agent.get(&format!("/v1/allocation/{alloc}"))?["TaskStates"]["t"].clone();
            ensure!(state["Events"].to_string().contains("Exit Code: 3"), "{driver}: {state}");
            Ok(())
        })?;
    }
    Ok(())
}
