//! Templates of tasks: rendered before the start, kept current, with notifications of the tasks.

use crate::{DRIVERS, id_of, run_job};
use anyhow::{Context, Result, anyhow, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use serde_json::{Value, json};

/// Returns a task that prints its rendered files, and a line at each signal.
fn job(driver: &str, templates: &str, command: &str) -> String {
    format!(
        r#"
job "app" {{
  group "app" {{
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    task "server" {{
      driver = "{driver}"
      env {{
        PLACE = "here"
      }}
      config {{
        command = "/bin/sh"
        args    = ["-c", "{command}"]
      }}
      {templates}
      resources {{
        cpu    = 20
        memory = 32
      }}
    }}
  }}
}}
"#
    )
}

fn put(agent: &Agent, path: &str, items: &Value) -> Result<()> {
    let body = json!({ "Path": path, "Items": items });
    let reply = agent.request("PUT", &format!("/v1/var/{path}"), Some(&body))?;
    ensure!(reply.status == 200, "{reply:?}");
    Ok(())
}

fn development() -> Result<Agent> {
    Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })
}

fn output(agent: &Agent, alloc: &str, expected: &str) -> Result<()> {
    eventually(&format!("{expected:?} in the output"), || {
        let out = agent.logs(alloc, "server", "stdout")?;
        if out.contains(expected) { Ok(()) } else { bail!("{out}") }
    })
}

fn task(agent: &Agent, alloc: &str) -> Result<Value> {
    Ok(agent.get(&format!("/v1/allocation/{alloc}"))?["TaskStates"]["server"].clone())
}

/// Waits for an event with these words.
fn wait_for_event(agent: &Agent, alloc: &str, kind: &str, words: &str) -> Result<()> {
    eventually(&format!("the event {kind}: {words}"), || {
        let state = task(agent, alloc)?;
        let is = |event: &Value| {
            event["Type"] == kind && event["DisplayMessage"].as_str().is_some_and(|text| text.contains(words))
        };
        if state["Events"].as_array().is_some_and(|all| all.iter().any(is)) {
            Ok(())
        } else {
            bail!("{state}")
        }
    })
}

fn restarts(agent: &Agent, alloc: &str) -> Result<u64> {
    task(agent, alloc)?["Restarts"].as_u64().context("the number of restarts")
}

/// Checks the content of several templates that a task finds at its start, under both drivers.
#[test]
fn what_templates_say_is_there_when_the_task_starts() -> Result<()> {
    let agent = development()?;
    put(&agent, "nomad/jobs/app", &json!({"user": "ann", "password": "hunter2-of-the-template"}))?;
    let templates = r#"
      template {
        data        = "{{ with nomadVar \"nomad/jobs/app\" }}{{ .user }}:{{ .password }}{{ end }} in {{ env \"PLACE\" }}"
        destination = "${NOMAD_SECRETS_DIR}/login"
        perms       = "600"
        uid         = 65534
        gid         = 65534
      }
      template {
        data        = "FROM_TEMPLATE=\"two words\" # not this\nexport OTHER={{ env \"NOMAD_TASK_NAME\" | toUpper }}\n"
        destination = "local/env"
        env         = true
      }
      template {
        data            = "[[ range loop 3 ]][[ . ]] [[ end ]]{{ kept }}"
        destination     = "local/deep/er/list"
        left_delimiter  = "[["
        right_delimiter = "]]"
      }
      template {
        source      = "alloc/data/source"
        destination = "${NOMAD_ALLOC_DIR}/data/copy"
        change_mode = "noop"
      }
    "#;
    let prestart = r#"
    task "before" {
      driver = "raw_exec"
      lifecycle {
        hook = "prestart"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo '{{ env \"PLACE\" }} from a file' > $NOMAD_ALLOC_DIR/data/source"]
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
"#;
    let command = "cat $NOMAD_SECRETS_DIR/login; stat -c ' %a %u' $NOMAD_SECRETS_DIR/login; \
                   cat $NOMAD_TASK_DIR/deep/er/list; echo; cat $NOMAD_ALLOC_DIR/data/copy; \
                   echo $FROM_TEMPLATE/$OTHER; exec sleep 1000";
    for driver in DRIVERS {
        // The path of the shared directory is written in a way that works under both drivers.
        let templates = templates.replace("alloc/data/source", "${NOMAD_ALLOC_DIR}/data/source");
        let text = job(driver, &templates, command).replacen(
            "    task \"server\"",
            &format!("{prestart}    task \"server\""),
            1,
        );
        run_job(&agent, "app", &text)?;
        let alloc = eventually("the newest allocation to run", || {
            let rows = agent.allocs("app")?;
            let running =
                rows.iter().find(|row| row["ClientStatus"] == "running" && row["DesiredStatus"] == "run");
            running.cloned().ok_or_else(|| anyhow!("{rows:?}"))
        })?;
        let alloc = id_of(&alloc)?;
        output(&agent, &alloc, "ann:hunter2-of-the-template in here 600 65534")?;
        output(&agent, &alloc, "0 1 2 {{ kept }}")?;
        output(&agent, &alloc, "here from a file")?;
        output(&agent, &alloc, "two words/SERVER")?;
        agent.caravan(&["job", "stop", "-purge", "app"])?.ok()?;
    }
    ensure!(!agent.log().contains("hunter2"), "the agent's log holds what a template says");
    Ok(())
}

/// Checks that a missing variable is named, and that the task starts once the variable exists. Then changes restart
/// the task, signal the task, and run a program in the task.
#[test]
fn a_task_waits_for_its_variables_and_hears_of_changes() -> Result<()> {
    let agent = development()?;
    let templates = r#"
      template {
        data          = "{{ with nomadVar \"nomad/jobs/app/app\" }}{{ .level }}{{ end }}"
        destination   = "local/level"
        change_mode   = "signal"
        change_signal = "SIGUSR1"
        splay         = "0s"
      }
      template {
        data        = "{{ if nomadVarExists \"app/limit\" }}{{ (nomadVar \"app/limit\").n }}{{ else }}none{{ end }}"
        destination = "local/limit"
        splay       = "0s"
      }
      template {
        data        = "{{ range nomadService \"other\" }}{{ .Name }}{{ end }}"
        destination = "local/services"
        change_mode = "script"
        splay       = "0s"
        change_script {
          command       = "/bin/sh"
          args          = ["-c", "echo the script ran > $NOMAD_TASK_DIR/ran"]
          fail_on_error = true
        }
      }
    "#;
    let command = "trap 'echo level is $(cat local/level)' USR1; \
                   echo begins with $(cat local/level) and $(cat local/limit); while true; do sleep 0.1; done";
    run_job(&agent, "app", &job("raw_exec", templates, command))?;
    let alloc = eventually("the allocation", || {
        agent.allocs("app")?.first().map(id_of).unwrap_or_else(|| bail!("none yet"))
    })?;
    wait_for_event(
        &agent,
        &alloc,
        "Template",
        "Missing: nomad.var.block(nomad/jobs/app/app@default.global)",
    )?;
    ensure!(task(&agent, &alloc)?["State"] == "pending");
    put(&agent, "nomad/jobs/app/app", &json!({"level": "one"}))?;
    output(&agent, &alloc, "begins with one and none")?;
    // A change that signals the task.
    put(&agent, "nomad/jobs/app/app", &json!({"level": "two"}))?;
    wait_for_event(&agent, &alloc, "Signaling", "SIGUSR1: Template re-rendered")?;
    output(&agent, &alloc, "level is two")?;
    ensure!(restarts(&agent, &alloc)? == 0);
    // A change that restarts the task, outside its restart policy.
    put(&agent, "app/limit", &json!({"n": "7"}))?;
    wait_for_event(&agent, &alloc, "Restart Signaled", "Template with change_mode restart re-rendered")?;
    output(&agent, &alloc, "begins with two and 7")?;
    ensure!(restarts(&agent, &alloc)? == 1);
    // An equal value is not a change.
    put(&agent, "app/limit", &json!({"n": "7", "other": "x"}))?;
    // A new service.
    run_job(&agent, "other", &job("raw_exec", SERVICE, "exec sleep 1000").replace("\"app\"", "\"other\""))?;
    wait_for_event(&agent, &alloc, "Template", "successfully ran /bin/sh -c")?;
    let ran = agent.caravan(&["alloc", "fs", &alloc, "server/local/ran"])?.ok()?;
    ensure!(ran.stdout == "the script ran\n", "{ran:?}");
    ensure!(restarts(&agent, &alloc)? == 1);
    Ok(())
}

const SERVICE: &str = r#"
      service {
        name     = "other"
        provider = "nomad"
      }
"#;

/// Checks that an invalid template is reported and fails the task.
#[test]
fn a_template_that_cannot_be_rendered_fails_its_task_with_a_sentence() -> Result<()> {
    let agent = development()?;
    for (i, (data, words)) in [
        ("{{ key \\\"app\\\" }}", "function \"key\" is not available: Consul is not contacted"),
        ("{{ with secret \\\"a\\\" }}{{ end }}", "Vault is not contacted"),
        ("{{ if }}", "the template cannot be parsed"),
        ("{{ mustEnv \\\"NOT_THERE\\\" }}", "the environment has no variable \"NOT_THERE\""),
    ]
    .into_iter()
    .enumerate()
    {
        let template = format!("template {{\n data = \"{data}\"\n destination = \"local/x\"\n }}");
        let name = format!("bad-{i}");
        let text =
            job("raw_exec", &template, "exec sleep 1000").replace("job \"app\"", &format!("job \"{name}\""));
        run_job(&agent, &name, &text)?;
        let alloc = id_of(&agent.wait_alloc(&name, "failed")?)?;
        wait_for_event(&agent, &alloc, "Template", words)?;
        agent.caravan(&["job", "stop", "-detach", "-purge", &name])?.ok()?;
    }
    let escapes = "template {\n data = \"x\"\n destination = \"../../x\"\n }";
    let path = agent.dir().join("escapes.nomad.hcl");
    std::fs::write(&path, job("raw_exec", escapes, "exec sleep 1000"))?;
    let refused = agent.caravan(&["job", "run", &path.to_string_lossy()])?;
    ensure!(refused.code == 1 && refused.stderr.contains("template destination escapes"), "{refused:?}");
    Ok(())
}

/// Kills the agent: the task continues, is not notified of known values, and is notified of changes in the meantime.
#[test]
fn a_killed_agent_neither_repeats_nor_forgets_what_changed() -> Result<()> {
    let mut agent = Agent::start()?;
    put(&agent, "nomad/jobs/app", &json!({"v": "one"}))?;
    let templates = r#"
      template {
        data          = "{{ (nomadVar \"nomad/jobs/app\").v }} at {{ timestamp \"2006-01-02T15:04:05.999999999\" }}"
        destination   = "local/v"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        splay         = "0s"
      }
      template {
        data        = "V={{ sprig_uuidv4 }}"
        destination = "secrets/env"
        env         = true
      }
    "#;
    let command = "trap 'echo told of $(cat local/v)' HUP; echo begins; while true; do sleep 0.1; done";
    run_job(&agent, "app", &job("raw_exec", templates, command))?;
    let alloc = id_of(&agent.wait_alloc("app", "running")?)?;
    output(&agent, &alloc, "begins")?;
    agent.kill_9()?;
    agent.run()?;
    agent.wait_alloc("app", "running")?;
    agent.wait_log("the templates of a running task were restored")?;
    // Only the notification of a later change proves that unchanged values caused none.
    put(&agent, "nomad/jobs/app", &json!({"v": "two"}))?;
    output(&agent, &alloc, "told of two at ")?;
    let out = agent.logs(&alloc, "server", "stdout")?;
    ensure!(!out.contains("told of one") && out.matches("begins").count() == 1, "{out}");
    ensure!(restarts(&agent, &alloc)? == 0);
    Ok(())
}
