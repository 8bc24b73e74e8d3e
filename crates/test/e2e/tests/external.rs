//! Tasks and devices of external plugins under a real agent.

use crate::{create_volume, id_of, run_job};
use anyhow::{Context, Result, ensure};
use caravan_testkit::{
    Agent, AgentOptions, ContainerEngine, Plugin, Writer, eventually, example_plugin, plugin_job, program,
    writer_job,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Returns the configuration of an agent with the example plugins, which are copied to `dir`.
pub(crate) fn with_examples(dir: &Path, more: &str) -> Result<String> {
    let plugins = dir.join("plugins");
    fs::create_dir_all(&plugins)?;
    fs::create_dir_all(dir.join("devices"))?;
    for name in ["exampledriver", "exampledevice"] {
        // A program that runs cannot be written to.
        let _absent = fs::remove_file(plugins.join(name));
        fs::copy(example_plugin(name), plugins.join(name))?;
    }
    Ok(format!(
        "plugin_dir = \"{}\"\nplugin \"exampledriver\" {{}}\n\
         plugin \"exampledevice\" {{\n config {{\n dir = \"{}\"\n }}\n}}\n{more}\n",
        plugins.display(),
        dir.join("devices").display()
    ))
}

fn agent(dir: &Path, more: &str) -> Result<Agent> {
    Agent::with(AgentOptions { extra: with_examples(dir, more)?, ..AgentOptions::default() })
}

fn job(id: &str, count: u32, script: &str, resources: &str) -> String {
    format!(
        r#"
job "{id}" {{
  group "g" {{
    count = {count}
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    task "t" {{
      driver       = "example"
      kill_timeout = "2s"
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
      env {{
        PASSWORD = "hunter-7"
      }}
      template {{
        data        = "hello {{{{ env \"NOMAD_TASK_NAME\" }}}}\n"
        destination = "local/greeting"
      }}
      resources {{
        cpu    = 50
        memory = 32
        {resources}
      }}
    }}
  }}
}}
"#
    )
}

fn drivers(agent: &Agent) -> Result<Value> {
    let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
    Ok(node["Drivers"].clone())
}

fn process(agent: &Agent, plugin: &str) -> Result<rustix::process::Pid> {
    let record = agent.data_dir().join("client/plugins").join(plugin).join("process.json");
    let record: Value = serde_json::from_slice(&fs::read(record)?)?;
    let pid = record["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).context("a pid")?;
    rustix::process::Pid::from_raw(pid).context("a pid")
}

/// Returns the lines of the task's output after the first, which must count up without a gap.
fn count(agent: &Agent, alloc: &str) -> Result<usize> {
    let text = agent.caravan(&["alloc", "logs", alloc, "t"])?.ok()?.stdout;
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let mut lines = complete.lines();
    ensure!(lines.next() == Some("hello t"), "{text}");
    let mut counted = 0;
    for line in lines {
        ensure!(line == format!("line {counted}"), "line {counted} is {line:?}");
        counted += 1;
    }
    Ok(counted)
}

fn goes_on(agent: &Agent, alloc: &str) -> Result<()> {
    let before = count(agent, alloc)?;
    eventually("more output", || {
        ensure!(count(agent, alloc)? > before + 5, "few lines");
        Ok(())
    })
}

#[test]
fn a_task_outlives_its_plugin_and_its_agent() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut agent = agent(dir.path(), "")?;
    let script =
        "cat $NOMAD_TASK_DIR/greeting; i=0; while true; do echo line $i; i=$((i+1)); sleep 0.05; done";
    run_job(&agent, "web", &job("web", 1, script, ""))?;
    let id = id_of(&agent.wait_alloc("web", "running")?)?;
    eventually("output", || {
        ensure!(count(&agent, &id)? > 5, "few lines");
        Ok(())
    })?;
    let out = agent.caravan(&[
        "alloc",
        "exec",
        "-t=false",
        &id,
        "/bin/sh",
        "-c",
        "echo $NOMAD_ALLOC_ID; exit 5",
    ])?;
    ensure!(out.code == 5 && out.stdout.trim() == id, "{out:?}");

    let first = process(&agent, "exampledriver")?;
    rustix::process::kill_process(first, Signal::KILL)?;
    eventually("the events of the outage", || {
        let events = agent.get(&format!("/v1/allocation/{id}"))?["TaskStates"]["t"]["Events"].to_string();
        ensure!(events.contains("the driver's plugin is down") && events.contains("runs again"), "{events}");
        ensure!(drivers(&agent)?["example"]["Healthy"] == true, "{}", drivers(&agent)?);
        Ok(())
    })?;
    ensure!(process(&agent, "exampledriver")? != first, "the plugin was not started again");
    goes_on(&agent, &id)?;

    let second = process(&agent, "exampledriver")?;
    agent.kill_9()?;
    agent.run()?;
    agent.wait_alloc("web", "running")?;
    goes_on(&agent, &id)?;
    ensure!(process(&agent, "exampledriver")? == second, "the plugin was not taken over");

    // Kill the agent and the plugin together.
    agent.kill_9()?;
    rustix::process::kill_process(second, Signal::KILL)?;
    agent.run()?;
    agent.wait_alloc("web", "running")?;
    goes_on(&agent, &id)?;
    let alloc = agent.get(&format!("/v1/allocation/{id}"))?;
    ensure!(alloc["TaskStates"]["t"]["Restarts"] == 0, "{alloc}");
    ensure!(!agent.log().contains("hunter-7"), "the log contains a task's environment");

    let last = process(&agent, "exampledriver")?;
    agent.caravan(&["job", "stop", "-purge", "web"])?.ok()?;
    agent.stop()?;
    ensure!(rustix::process::test_kill_process(last).is_err(), "the plugin outlived a clean stop");
    Ok(())
}

#[test]
fn bad_plugins_are_named_on_the_node() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let plugins = dir.path().join("plugins");
    fs::create_dir_all(&plugins)?;
    let file = plugins.join("broken");
    fs::write(&file, "#!/bin/sh\necho 'no license' >&2\nexit 1\n")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    let agent = agent(dir.path(), "plugin \"broken\" {}\nplugin \"absent\" {}")?;
    let words = "the program ended before its handshake (exit status: 1): no license";
    eventually("the reason on the node", || {
        let broken = &drivers(&agent)?["broken"];
        ensure!(broken["Detected"] == false, "{broken}");
        ensure!(broken["HealthDescription"].as_str().is_some_and(|text| text.contains(words)), "{broken}");
        Ok(())
    })?;
    let shown = agent.caravan(&["node", "status", "-self", "-verbose"])?.ok()?.stdout;
    ensure!(shown.contains(words), "{shown}");
    ensure!(shown.contains("plugins/absent does not exist"), "{shown}");
    ensure!(agent.log().contains(words), "the log does not name the reason");
    let config = agent.get("/v1/agent/self")?["config"]["Plugins"].to_string();
    ensure!(config.contains("\"exampledriver\"") && config.contains("\"enabled\":true"), "{config}");
    run_job(&agent, "typo", &job("typo", 1, "true", "").replace("command =", "comand ="))?;
    eventually("the wrong key", || {
        let allocs = agent.get("/v1/job/typo/allocations")?.to_string();
        ensure!(allocs.contains("comand") && allocs.contains("\"failed\""), "{allocs}");
        Ok(())
    })?;

    let more = "plugin \"broken\" {}\nclient {\n options = {\n \"plugin.required\" = \"broken\"\n }\n}";
    let extra = with_examples(dir.path(), more)?;
    let mut refused = Agent::launch(AgentOptions { extra, ..AgentOptions::default() })?;
    ensure!(refused.wait_end()? != 0, "the agent started without a plugin that is required");
    let log = refused.log();
    ensure!(log.contains("\"broken\" is required") && log.contains(words), "{log}");
    ensure!(process(&refused, "exampledriver").is_err(), "a plugin outlived an agent that did not start");
    Ok(())
}

#[test]
fn devices_are_handed_out_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let extra = with_examples(dir.path(), "")?;
    for name in ["a", "b", "c"] {
        fs::write(dir.path().join("devices").join(name), if name == "c" { "worn out" } else { "healthy" })?;
    }
    let mut agent = Agent::with(AgentOptions { extra, ..AgentOptions::default() })?;
    let script = "cat $NOMAD_TASK_DIR/greeting; echo $CARAVAN_FILE_DEVICES; sleep 100000";
    let text = job("users", 3, script, "device \"file\" {}");
    run_job(&agent, "users", &text)?;
    let holders = |agent: &Agent| -> Result<Vec<String>> {
        let mut held = Vec::new();
        for alloc in agent.allocs("users")? {
            if alloc["ClientStatus"] == "running" {
                let id = alloc["ID"].as_str().context("an id")?.to_owned();
                let text = agent.caravan(&["alloc", "logs", &id, "t"])?.ok()?.stdout;
                held.push(text.lines().nth(1).context("no second line")?.to_owned());
            }
        }
        held.sort();
        Ok(held)
    };
    let two = |agent: &Agent| {
        eventually("two holders", || {
            let held = holders(agent)?;
            ensure!(held == ["a", "b"], "{held:?}");
            Ok(())
        })
    };
    two(&agent)?;
    let evals = agent.get("/v1/job/users/evaluations")?.to_string();
    ensure!(evals.contains("blocked"), "{evals}");
    let node = agent.get(&format!("/v1/node/{}", agent.node_id()?))?;
    let devices = &node["NodeResources"]["Devices"][0];
    ensure!(
        devices["Vendor"] == "caravan" && devices["Type"] == "file" && devices["Name"] == "mock",
        "{devices}"
    );
    ensure!(devices["Instances"].to_string().contains("worn out"), "{devices}");

    agent.kill_9()?;
    agent.run()?;
    agent.wait_alloc("users", "running")?;
    two(&agent)?;
    // The device that becomes healthy is assigned to the waiting allocation.
    fs::write(dir.path().join("devices/c"), "healthy")?;
    eventually("three holders", || {
        let held = holders(&agent)?;
        ensure!(held == ["a", "b", "c"], "{held:?}");
        Ok(())
    })?;
    eventually("statistics", || {
        let stats = agent.get("/v1/client/stats")?;
        let shown = stats["DeviceStats"][0]["InstanceStats"].to_string();
        ensure!(["\"a\"", "\"b\"", "\"c\""].iter().all(|id| shown.contains(id)), "{stats}");
        Ok(())
    })?;
    let shown = agent.caravan(&["node", "status", "-self", "-stats"])?.ok()?.stdout;
    ensure!(shown.contains("caravan/file/mock"), "{shown}");
    Ok(())
}

/// Runs the bundled plugin under each driver, with a writer under each driver.
#[test]
fn volumes_go_between_all_drivers() -> Result<()> {
    const ALL: [&str; 4] = ["raw_exec", "exec", "docker", "example"];
    let engine = ContainerEngine::start()?;
    let (dir, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let image = engine.import_program(&program())?;
    let more = format!(
        "plugin \"docker\" {{\n config {{\n endpoint = \"{}\"\n allow_privileged = true\n volumes {{\n enabled = true\n }}\n }}\n}}\n\
         plugin \"raw_exec\" {{\n config {{\n enabled = true\n }}\n}}\n\
         plugin \"exec\" {{\n config {{\n allow_privileged_plugins = true\n }}\n}}",
        engine.endpoint()
    );
    let extra = with_examples(dir.path(), &more)?;
    for plugin in ALL {
        let agent = Agent::with(AgentOptions { extra: extra.clone(), ..AgentOptions::default() })?;
        let text = match plugin {
            "docker" => crate::docker::plugin_in_a_container(&image, &data.path().display().to_string()),
            driver => plugin_job(&Plugin { driver: driver.into(), args: Vec::new() }),
        };
        let text = match plugin {
            "example" => text.replace("\"caravan\"", &format!("\"{}\"", program().display())),
            _ => text,
        };
        run_job(&agent, "hostpath", &text)?;
        agent.wait_plugin("hostpath").with_context(|| format!("plugin under {plugin}"))?;
        for driver in ALL {
            let volume = format!("v-{driver}");
            create_volume(&agent, &volume, "single-node-writer")?;
            let writer = Writer {
                id: format!("w-{driver}"),
                driver: driver.into(),
                volume: volume.clone(),
                access_mode: "single-node-writer".into(),
                word: "first".into(),
            };
            let mut text = writer_job(&writer);
            if driver == "docker" {
                let image =
                    format!("image = \"{}\"\n network_mode = \"none\"\n command", ContainerEngine::IMAGE);
                text = text.replacen("command", &image, 1);
            }
            run_job(&agent, &writer.id, &text)?;
            let alloc =
                agent.wait_alloc(&writer.id, "running").with_context(|| format!("{plugin} and {driver}"))?;
            let id = id_of(&alloc)?;
            eventually("the writer's lines", || {
                let text = agent.logs(&id, "writer", "stdout")?;
                ensure!(text.contains("first 3"), "{plugin} and {driver}: {text}");
                Ok(())
            })?;
            agent.caravan(&["job", "stop", "-purge", &writer.id])?.ok()?;
            eventually("the volume to be free", || {
                agent.caravan(&["volume", "delete", &volume])?.ok().map(drop)
            })?;
        }
        agent.caravan(&["job", "stop", "-purge", "hostpath"])?.ok()?;
        eventually("the plugin to end", || {
            let allocs = agent.get("/v1/allocations")?;
            let live =
                allocs.as_array().is_some_and(|all| all.iter().any(|a| a["ClientStatus"] == "running"));
            ensure!(!live && engine.containers()?.is_empty(), "{allocs}");
            Ok(())
        })?;
    }
    Ok(())
}
