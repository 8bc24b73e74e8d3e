//! The client's part of tasks of external drivers: networks that drivers create themselves, users, and directories.

use super::bridge::{FIXED, World};
use super::{held, id_of, restart};
use crate::external::with_examples;
use crate::run_job;
use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use std::fs;
use std::path::Path;

/// Returns the configuration of an agent whose example driver has further options.
fn options(dir: &Path, config: &str) -> Result<AgentOptions> {
    let more = "plugin \"raw_exec\" {\n config {\n enabled = true\n }\n}";
    let extra = with_examples(dir, more)?;
    let block = format!("plugin \"exampledriver\" {{\n config {{\n {config}\n }}\n}}");
    let extra = extra.replace("plugin \"exampledriver\" {}", &block);
    Ok(AgentOptions { extra, ..AgentOptions::default() })
}

fn script_task(name: &str, driver: &str, script: &str) -> String {
    format!(
        r#"
    task "{name}" {{
      driver       = "{driver}"
      kill_timeout = "1s"
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
      template {{
        data        = "here\n"
        destination = "local/marker"
        perms       = "0644"
      }}
      template {{
        data        = "secret of {name}\n"
        destination = "secrets/word"
        perms       = "0644"
      }}
      resources {{
        cpu    = 20
        memory = 64
      }}
    }}
"#
    )
}

fn job(id: &str, network: &str, tasks: &str) -> String {
    format!(
        r#"
job "{id}" {{
  group "g" {{
    {network}
    restart {{
      attempts = 20
      interval = "10m"
      delay    = "1s"
      mode     = "delay"
    }}
    {tasks}
  }}
}}
"#
    )
}

fn lines(agent: &Agent, alloc: &str, task: &str, at_least: usize) -> Result<Vec<String>> {
    eventually(&format!("the output of {task}"), || {
        let text = agent.logs(alloc, task, "stdout")?;
        let errors = agent.logs(alloc, task, "stderr").unwrap_or_default();
        ensure!(text.lines().count() >= at_least && text.ends_with('\n'), "so far {text:?} {errors:?}");
        Ok(text.lines().map(ToOwned::to_owned).collect())
    })
}

#[test]
fn a_driver_makes_the_network_and_destroys_it_once() -> Result<()> {
    let (dir, made) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let options = options(dir.path(), &format!("network_dir = \"{}\"", made.path().display()))?;
    let mut world = World::with(options)?;
    let network = format!(
        "network {{\n mode = \"bridge\"\n hostname = \"named\"\n port \"http\" {{\n static = {FIXED}\n to = 8080\n }}\n }}"
    );
    let serve = "readlink /proc/self/ns/net; cd $NOMAD_TASK_DIR && exec /usr/bin/python3 -m http.server 8080 > /dev/null 2>&1";
    let idle = "readlink /proc/self/ns/net; exec sleep 100000";
    let tasks = script_task("server", "example", serve) + &script_task("other", "raw_exec", idle);
    run_job(&world.agent, "made", &job("made", &network, &tasks))?;
    let id = id_of(&world.agent.wait_alloc("made", "running")?)?;
    world.until_answered()?;
    let networks = || -> Result<Vec<String>> {
        let names =
            fs::read_dir(made.path())?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    };
    ensure!(networks()? == [id.clone()], "{:?}", networks()?);
    let inside = lines(&world.agent, &id, "server", 1)?[0].clone();
    ensure!(lines(&world.agent, &id, "other", 1)? == [inside.clone()], "they share it");
    let exec = ["alloc", "exec", "-task", "server", &id, "readlink", "/proc/self/ns/net"];
    ensure!(world.agent.caravan(&exec)?.ok()?.stdout.trim() == inside, "commands beside the task are there");

    // A restart of the task, of the agent and of both with the plugin keep the network.
    world.agent.caravan(&["alloc", "restart", &id, "server"])?.ok()?;
    let printed = lines(&world.agent, &id, "server", 2)?;
    ensure!(printed.iter().all(|line| *line == inside), "{printed:?} is not only {inside}");
    world.agent.kill_9()?;
    world.agent.run()?;
    world.agent.wait_alloc("made", "running")?;
    world.until_answered()?;
    restart(&world.agent, &id, "server")?;
    let printed = lines(&world.agent, &id, "server", 3)?;
    ensure!(printed.iter().all(|line| *line == inside), "{printed:?} is not only {inside}");

    // The agent dies while it removes the network.
    world.agent.caravan(&["job", "stop", "-detach", "made"])?.ok()?;
    world.agent.kill_9()?;
    world.agent.run()?;
    world.agent.wait_alloc("made", "complete")?;
    eventually("the network to be destroyed", || {
        ensure!(networks()?.is_empty(), "{:?}", networks()?);
        ensure!(!held(&world.agent, &id).exists(), "the client holds the namespace");
        let left = world.left()?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
}

#[test]
fn a_network_that_a_driver_cannot_make_fails_the_allocation_with_its_words() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let agent = Agent::with(options(dir.path(), "network_dir = \"/no/such/directory\"")?)?;
    let tasks = script_task("server", "example", "exec sleep 100000");
    run_job(&agent, "made", &job("made", "network {\n mode = \"none\"\n }", &tasks))?;
    eventually("the reason", || {
        let allocs = agent.get("/v1/job/made/allocations")?.to_string();
        ensure!(allocs.contains("\"failed\""), "{allocs}");
        ensure!(
            allocs.contains("driver example cannot make the network")
                && allocs.contains("/no/such/directory"),
            "{allocs}"
        );
        Ok(())
    })
}

#[test]
fn tasks_run_as_users_of_their_own_and_see_their_directories() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut agent = Agent::with(options(dir.path(), "dynamic_users = true\n unveil = true")?)?;
    let script = "id -u; cat $NOMAD_TASK_DIR/marker $NOMAD_SECRETS_DIR/word; echo own > $NOMAD_TASK_DIR/own; \
                  echo shared > $NOMAD_ALLOC_DIR/data/$NOMAD_TASK_NAME; echo $NOMAD_TASK_DIR; \
                  ls $NOMAD_TASK_DIR/../.. 2>/dev/null && echo lists; exec sleep 100000";
    let tasks = script_task("one", "example", script) + &script_task("two", "example", script);
    run_job(&agent, "users", &job("users", "", &tasks))?;
    let id = id_of(&agent.wait_alloc("users", "running")?)?;
    let mut users = Vec::new();
    for task in ["one", "two"] {
        let printed = lines(&agent, &id, task, 4)?;
        let uid: u32 = printed[0].parse().context("a number")?;
        ensure!((80_000..90_000).contains(&uid), "{printed:?}");
        ensure!(printed[1..3] == ["here".to_owned(), format!("secret of {task}")], "{printed:?}");
        ensure!(printed.len() == 4, "{printed:?} lists the directories of other tasks");
        let shown = Path::new(&printed[3]);
        ensure!(shown.ends_with(format!("{id}-{task}/local")), "{}", shown.display());
        ensure!(fs::read_to_string(shown.join("own"))? == "own\n", "the task wrote there");
        users.push((uid, shown.to_owned()));
    }
    ensure!(users[0].0 != users[1].0, "both tasks have the user {}", users[0].0);
    // The directories are at the usual places as well, and belong to the tasks.
    let own = agent.caravan(&["alloc", "fs", &id, "one/local/own"])?.ok()?.stdout;
    ensure!(own == "own\n", "{own}");
    let exec = |task: &str, script: &str| {
        agent.caravan(&["alloc", "exec", "-t=false", "-task", task, &id, "/bin/sh", "-c", script])
    };
    ensure!(exec("one", "id -u")?.ok()?.stdout.trim() == users[0].0.to_string(), "a command beside the task");
    let word = users[1].1.with_file_name("secrets").join("word");
    let stolen = exec("one", &format!("cat {}", word.display()))?;
    ensure!(stolen.code != 0 && !stolen.stdout.contains("secret"), "{}", stolen.all());

    // A task keeps its user over restarts.
    agent.caravan(&["alloc", "restart", &id, "one"])?.ok()?;
    let printed = lines(&agent, &id, "one", 8)?;
    ensure!(printed[4] == users[0].0.to_string(), "{printed:?}");
    agent.kill_9()?;
    agent.run()?;
    agent.wait_alloc("users", "running")?;
    restart(&agent, &id, "one")?;
    let printed = lines(&agent, &id, "one", 12)?;
    ensure!(printed[8] == users[0].0.to_string(), "{printed:?}");
    // A second allocation has others.
    run_job(&agent, "more", &job("more", "", &script_task("one", "example", script)))?;
    let more = id_of(&agent.wait_alloc("more", "running")?)?;
    let third = lines(&agent, &more, "one", 4)?[0].clone();
    ensure!(users.iter().all(|(uid, _)| uid.to_string() != third), "{third} is in use");

    agent.caravan(&["job", "stop", "-detach", "users"])?.ok()?;
    agent.wait_alloc("users", "complete")?;
    for (_, shown) in &users {
        ensure!(!shown.exists(), "{} is there", shown.display());
    }
    Ok(())
}
