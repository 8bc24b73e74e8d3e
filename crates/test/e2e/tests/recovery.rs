//! The agent dies at the worst moments, without effect on tasks, mounts and claims.

use crate::{create_volume, id_of, run_job, run_plugin};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, Writer, eventually, mounts_below, process_alive, start_time, writer_job};
use nix::sys::signal::Signal;
use std::fs;

fn writer(id: &str) -> String {
    writer_job(&Writer {
        id: id.into(),
        driver: "raw_exec".into(),
        volume: "data".into(),
        access_mode: "multi-node-multi-writer".into(),
        word: id.into(),
    })
}

/// Returns the pid and start time of the shell that an allocation runs.
pub(crate) fn process_with(word: &str) -> Result<(u32, u64)> {
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let Ok(env) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        let is_shell = line.starts_with(b"/bin/sh\0-c\0");
        let needle = format!("NOMAD_ALLOC_ID={word}\0");
        if is_shell && env.windows(needle.len()).any(|w| w == needle.as_bytes()) {
            let started = start_time(pid).context("the process ended meanwhile")?;
            return Ok((pid, started));
        }
    }
    bail!("no process of allocation {word}")
}

#[test]
fn asked_to_end_while_it_starts() -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "multi-node-multi-writer")?;
    run_job(&agent, "one", &writer("one"))?;
    let one = id_of(&agent.wait_alloc("one", "running")?)?;
    let before = process_with(&one)?;
    agent.kill_9()?;
    for _ in 0..5 {
        agent.spawn()?;
        eventually("the agent to say something", || {
            ensure!(agent.has_spoken()?, "not a word");
            Ok(())
        })?;
        // Fails if the agent ends by the signal rather than in order.
        agent.stop_by(Signal::SIGTERM)?;
    }
    agent.run()?;
    ensure!(process_with(&one)? == before, "the task was restarted");
    Ok(())
}

#[test]
fn killed_with_a_plugin_and_two_consumers_running() -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "multi-node-multi-writer")?;
    for id in ["one", "two"] {
        run_job(&agent, id, &writer(id))?;
    }
    let one = id_of(&agent.wait_alloc("one", "running")?)?;
    let two = id_of(&agent.wait_alloc("two", "running")?)?;
    let before = [process_with(&one)?, process_with(&two)?];
    let plugin = id_of(&agent.wait_alloc("hostpath", "running")?)?;
    let plugin_before = plugin_process(&plugin)?;
    let calls_before = csi_calls(&agent, &plugin)?;
    ensure!(calls_before >= 3, "the plugin's log tells of the calls: one stage, two publishes");
    agent.kill_9()?;
    ensure!(before.iter().all(|(pid, _)| process_alive(*pid)), "tasks ended with the agent");
    agent.run()?;
    agent.wait_plugin("hostpath")?;
    ensure!([process_with(&one)?, process_with(&two)?] == before, "a task was restarted");
    ensure!(plugin_process(&plugin)? == plugin_before, "the plugin was restarted");
    let calls_after = csi_calls(&agent, &plugin)?;
    ensure!(calls_before == calls_after, "mounting calls were repeated: {calls_before:?} {calls_after:?}");

    agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    agent.wait_alloc("one", "complete")?;
    let lines = agent.logs(&two, "writer", "stdout")?.lines().count();
    eventually("the other to go on writing", || {
        let now = agent.logs(&two, "writer", "stdout")?.lines().count();
        if now > lines + 3 { Ok(()) } else { bail!("{now} lines") }
    })?;
    agent.caravan(&["job", "stop", "-detach", "two"])?.ok()?;
    agent.wait_no_claims("data")?;
    eventually("no mount of theirs to be left", || {
        let dir = agent.dir().to_string_lossy().into_owned();
        let left: Vec<_> = mounts_below(&dir)?
            .into_iter()
            .filter(|m| m.contains("/per-alloc/") || m.contains("/staging/") || m.ends_with("/local/data"))
            .collect();
        if left.is_empty() { Ok(()) } else { bail!("{left:?}") }
    })
}

/// Returns the number of publish and stage calls in the plugin's log.
fn csi_calls(agent: &Agent, plugin: &str) -> Result<usize> {
    let log = agent.logs(plugin, "plugin", "stderr")?;
    Ok(log.lines().filter(|l| l.contains("NodePublishVolume") || l.contains("NodeStageVolume")).count())
}

#[test]
fn a_task_that_ended_while_the_agent_was_dead_is_reported() -> Result<()> {
    let mut agent = Agent::start()?;
    let gate = agent.dir().join("gate");
    let text = format!(
        "job \"late\" {{\n type = \"batch\"\n group \"g\" {{\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", \"echo begun; while [ ! -e {} ]; do sleep 0.05; done; echo done; exit 3\"]\n }}\n resources {{\n cpu = 20\n memory = 16\n }}\n }}\n }}\n}}\n",
        gate.display()
    );
    run_job(&agent, "late", &text)?;
    let alloc = id_of(&agent.wait_alloc("late", "running")?)?;
    let (pid, _) = process_with(&alloc)?;
    agent.kill_9()?;
    fs::write(&gate, "")?;
    eventually("the task to end", || if process_alive(pid) { bail!("it runs") } else { Ok(()) })?;
    agent.run()?;
    let ended = agent.wait_alloc("late", "failed")?;
    let events = ended["TaskStates"]["t"]["Events"].to_string();
    ensure!(events.contains("Exit Code: 3"), "{events}");
    ensure!(agent.logs(&alloc, "t", "stdout")? == "begun\ndone\n");
    Ok(())
}

#[test]
fn state_survives_again_and_again() -> Result<()> {
    let mut agent = Agent::start()?;
    for round in 0..5 {
        let id = format!("job-{round}");
        let text = format!(
            "job \"{id}\" {{\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \"sleep\"\n args = [\"600\"]\n }}\n resources {{\n cpu = 20\n memory = 16\n }}\n }}\n }}\n}}\n"
        );
        run_job(&agent, &id, &text)?;
        agent.kill_9()?;
        agent.run()?;
        let jobs = agent.get("/v1/jobs")?;
        let known = jobs.as_array().map_or(0, Vec::len);
        ensure!(known == round + 1, "an acknowledged job was lost: {jobs}");
        agent.wait_alloc(&id, "running")?;
    }
    Ok(())
}

#[test]
fn the_plugin_may_come_back_after_the_agent() -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "multi-node-multi-writer")?;
    run_job(&agent, "one", &writer("one"))?;
    let one = id_of(&agent.wait_alloc("one", "running")?)?;
    let plugin = id_of(&agent.wait_alloc("hostpath", "running")?)?;
    let plugin_pid = plugin_process(&plugin)?;
    agent.kill_9()?;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(plugin_pid)?),
        nix::sys::signal::Signal::SIGKILL,
    )?;
    eventually(
        "the plugin to be dead",
        || if process_alive(plugin_pid) { bail!("it runs") } else { Ok(()) },
    )?;
    agent.run()?;
    agent.wait_plugin("hostpath")?;
    let before = agent.logs(&one, "writer", "stdout")?.lines().count();
    eventually("the consumer to go on", || {
        let now = agent.logs(&one, "writer", "stdout")?.lines().count();
        if now > before + 2 { Ok(()) } else { bail!("{now} lines") }
    })?;
    agent.caravan(&["job", "stop", "-detach", "one"])?.ok()?;
    agent.wait_no_claims("data")
}

fn plugin_process(alloc: &str) -> Result<u32> {
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let Ok(env) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        let needle = format!("NOMAD_ALLOC_ID={alloc}\0");
        let serves = line.windows(8).any(|w| w == b"hostpath");
        if serves && env.windows(needle.len()).any(|w| w == needle.as_bytes()) {
            return Ok(pid);
        }
    }
    bail!("the plugin of allocation {alloc} does not run")
}
