//! An independent plugin (crate `testplugin`): the same life of a volume, with the deviations and faults of
//! other plugins.

use crate::{DRIVERS, create_volume, id_of, run_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{
    Agent, AgentOptions, ForeignPlugin, Space, Writer, eventually, foreign_plugin_job, mounts_below,
    process_alive, test_plugin, writer_job,
};
use std::fs;

/// The path of the plugin for tasks with their own root directory.
const IN_ROOT: &str = "/opt/plugin/testplugin";

fn agent() -> Result<Agent> {
    agent_in("data")
}

fn agent_in(data: &str) -> Result<Agent> {
    Agent::with(options(data))
}

fn options(data: &str) -> AgentOptions {
    let paths = ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/sbin", "/usr"];
    let shown: String = paths.map(|p| format!("    \"{p}\" = \"{p}\"\n")).concat();
    let plugin = test_plugin();
    let extra = format!(
        "client {{\n  chroot_env {{\n{shown}    \"{}\" = \"{IN_ROOT}\"\n  }}\n}}\n",
        plugin.display()
    );
    AgentOptions { extra, data: data.to_owned(), ..AgentOptions::default() }
}

fn plugin(job: &str, kind: &str, driver: &str, habits: &[&str]) -> ForeignPlugin {
    let command = match driver {
        "raw_exec" => test_plugin().display().to_string(),
        _ => IN_ROOT.to_owned(),
    };
    let mut args: Vec<String> = habits.iter().map(|h| (*h).to_owned()).collect();
    if !habits.iter().any(|h| h.starts_with("--statedir=")) {
        args.push("--statedir=${NOMAD_TASK_DIR}/state".to_owned());
    }
    // The volumes of the tests name this plugin id.
    ForeignPlugin {
        job: job.into(),
        id: "hostpath".into(),
        kind: kind.into(),
        driver: driver.into(),
        command,
        args,
    }
}

/// Runs the plugin as one process and waits until it is healthy. Returns its allocation.
fn run_foreign(agent: &Agent, driver: &str, habits: &[&str]) -> Result<String> {
    run_job(agent, "foreign", &foreign_plugin_job(&plugin("foreign", "monolith", driver, habits)))?;
    agent.wait_plugin("hostpath").with_context(|| status(agent))?;
    id_of(&agent.wait_alloc("foreign", "running")?)
}

/// Returns the plugin's output, for error texts.
fn status(agent: &Agent) -> String {
    let reported = || -> Result<String> {
        let alloc = id_of(agent.allocs("foreign")?.first().context("the plugin has no allocation")?)?;
        agent.logs(&alloc, "plugin", "stderr")
    };
    format!("--- the plugin said\n{}", reported().unwrap_or_else(|error| error.to_string()))
}

/// Returns the number of calls of one kind to the plugin.
fn calls(agent: &Agent, alloc: &str, call: &str) -> Result<usize> {
    let log = agent.logs(alloc, "plugin", "stderr")?;
    Ok(log.lines().filter(|l| l.split(' ').take(2).eq(["call", call])).count())
}

fn writer(id: &str, driver: &str, mode: &str) -> String {
    writer_job(&Writer {
        id: id.into(),
        driver: driver.into(),
        volume: "data".into(),
        access_mode: mode.into(),
        word: format!("from-{id}"),
    })
}

fn run_writer(agent: &Agent, id: &str, driver: &str, mode: &str) -> Result<String> {
    run_job(agent, id, &writer(id, driver, mode))?;
    let alloc = agent.wait_alloc(id, "running").with_context(|| status(agent))?;
    let alloc = id_of(&alloc)?;
    goes_on(agent, &alloc)?;
    Ok(alloc)
}

fn output(agent: &Agent, alloc: &str) -> Result<String> {
    agent.logs(alloc, "writer", "stdout")
}

/// Waits until a writer has written more.
fn goes_on(agent: &Agent, alloc: &str) -> Result<()> {
    // A restarted agent may not have recovered all its allocations yet.
    let before = eventually("what the writer wrote", || Ok(output(agent, alloc)?.lines().count()))?;
    eventually("the writer to go on", || {
        let now = output(agent, alloc)?.lines().count();
        if now > before + 2 { Ok(()) } else { bail!("{now} lines") }
    })
}

fn stop(agent: &Agent, job: &str) -> Result<()> {
    agent.caravan(&["job", "stop", "-detach", job])?.ok().map(drop)
}

/// Checks that no claim, no mount and no state at the plugin remains of the volume.
fn all_gone(agent: &Agent) -> Result<()> {
    agent.wait_no_claims("data").with_context(|| status(agent))?;
    eventually("no mount of a volume to be left", || {
        let below = agent.dir().to_string_lossy().into_owned();
        let left: Vec<String> = mounts_below(&below)?
            .into_iter()
            .filter(|m| m.contains("/per-alloc/") || m.contains("/staging/") || m.ends_with("/local/data"))
            .collect();
        if left.is_empty() { Ok(()) } else { bail!("{left:?}") }
    })?;
    // The plugin refuses to delete a volume that is attached, staged or published.
    agent.caravan(&["volume", "delete", "data"])?.ok().with_context(|| status(agent))?;
    ensure!(agent.request("GET", "/v1/volume/csi/data", None)?.status == 404);
    Ok(())
}

fn whole_life(plugin_driver: &str, consumer_driver: &str, habits: &[&str]) -> Result<()> {
    let mut agent = agent()?;
    let plugin = run_foreign(&agent, plugin_driver, habits)?;
    create_volume(&agent, "data", "single-node-writer")?;
    let one = run_writer(&agent, "one", consumer_driver, "single-node-writer")?;

    run_job(&agent, "two", &writer("two", consumer_driver, "single-node-writer"))?;
    eventually("the second writer to wait with its reason", || {
        let evals = agent.get("/v1/job/two/evaluations")?.to_string();
        if evals.contains("blocked") && evals.contains("data") { Ok(()) } else { bail!("{evals}") }
    })?;

    let mounting = ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"];
    let before = mounting.map(|call| calls(&agent, &plugin, call).ok());
    agent.kill_9()?;
    agent.run()?;
    goes_on(&agent, &one)?;
    agent.wait_plugin("hostpath")?;
    ensure!(before == mounting.map(|call| calls(&agent, &plugin, call).ok()), "calls were repeated");
    let alloc = agent.get(&format!("/v1/allocation/{plugin}"))?;
    ensure!(alloc["TaskStates"]["plugin"]["Restarts"] == 0, "{alloc}");

    stop(&agent, "one")?;
    let two = id_of(&agent.wait_alloc("two", "running").with_context(|| status(&agent))?)?;
    goes_on(&agent, &two)?;
    let text = output(&agent, &two)?;
    ensure!(text.contains("from-one 1\n") && text.contains("from-one 2\n"), "{text}");
    stop(&agent, "two")?;
    all_gone(&agent)
}

#[test]
fn foreign_raw_exec_plugin_raw_exec_consumers() -> Result<()> {
    whole_life(DRIVERS[0], DRIVERS[0], &[])
}

#[test]
fn foreign_raw_exec_plugin_exec_consumers() -> Result<()> {
    whole_life(DRIVERS[0], DRIVERS[1], &["--context"])
}

#[test]
fn foreign_exec_plugin_raw_exec_consumers() -> Result<()> {
    // A directory at the root of the task, which is the default of some plugins.
    whole_life(DRIVERS[1], DRIVERS[0], &["--statedir=/csi-data-dir"])
}

#[test]
fn foreign_exec_plugin_exec_consumers() -> Result<()> {
    whole_life(DRIVERS[1], DRIVERS[1], &["--context", "--stage-mounts"])
}

/// Checks that a plugin in its own root directory reaches an agent although no other mount is shared. Mounts
/// propagate between mount namespaces only through shared mounts, so the agent makes its own directories shared.
#[test]
fn a_plugin_in_its_own_root_reaches_an_agent_whose_root_mount_is_private() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let space = Space::new(scratch.path(), "of-a-private-root")?;
    let agent = Agent::with(AgentOptions { space: Some(space.clone()), ..options("data") })?;
    run_foreign(&agent, "exec", &["--stage-mounts"])?;
    create_volume(&agent, "data", "single-node-writer")?;
    for driver in DRIVERS {
        run_writer(&agent, driver, driver, "single-node-writer")?;
        let mounts = space.mounts_below(&agent.dir().to_string_lossy())?;
        ensure!(mounts.iter().any(|mount| mount.contains("/per-alloc/")), "{mounts:?}");
        stop(&agent, driver)?;
        agent.wait_no_claims("data").with_context(|| status(&agent))?;
    }
    all_gone(&agent)
}

#[test]
fn neither_attached_nor_staged_and_with_capabilities_that_nobody_knows() -> Result<()> {
    let habits = ["--no-attach", "--no-stage", "--unknown-capabilities", "--chatty", "--strict-delete"];
    whole_life("exec", "raw_exec", &habits)
}

#[test]
fn a_plugin_that_starts_slowly_is_waited_for() -> Result<()> {
    let agent = agent()?;
    let plugin = run_foreign(&agent, "raw_exec", &["--slow-start-ms=3000"])?;
    let alloc = agent.get(&format!("/v1/allocation/{plugin}"))?;
    ensure!(alloc["TaskStates"]["plugin"]["Restarts"] == 0, "{alloc}");
    create_volume(&agent, "data", "single-node-writer")?;
    run_writer(&agent, "one", "raw_exec", "single-node-writer")?;
    stop(&agent, "one")?;
    all_gone(&agent)
}

/// Returns the pid of an allocation's plugin.
fn plugin_process(alloc: &str) -> Result<i32> {
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let Ok(env) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        let needle = format!("NOMAD_ALLOC_ID={alloc}\0");
        let program = line.split(|b| *b == 0).next().unwrap_or_default();
        if program.ends_with(b"testplugin") && env.windows(needle.len()).any(|w| w == needle.as_bytes()) {
            return Ok(pid);
        }
    }
    bail!("the plugin of allocation {alloc} does not run")
}

/// Kills the plugin's process, and waits until its task runs again and the plugin answers.
fn kill_plugin(agent: &Agent, alloc: &str) -> Result<()> {
    let pid = plugin_process(alloc)?;
    let starts = |agent: &Agent| -> Result<usize> {
        Ok(agent.logs(alloc, "plugin", "stderr")?.matches("listening on ").count())
    };
    let before = starts(agent)?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)?;
    eventually("the plugin to be started again", || {
        ensure!(!process_alive(u32::try_from(pid)?), "it runs");
        let now = starts(agent)?;
        if now > before { Ok(()) } else { bail!("it started {now} times") }
    })
    .with_context(|| status(agent))?;
    agent.wait_plugin("hostpath").map(drop)
}

#[test]
fn a_socket_that_a_killed_plugin_left_is_not_in_its_way() -> Result<()> {
    for driver in DRIVERS {
        let agent = agent()?;
        let plugin = run_foreign(&agent, driver, &[])?;
        create_volume(&agent, "data", "single-node-writer")?;
        let one = run_writer(&agent, "one", "raw_exec", "single-node-writer")?;
        kill_plugin(&agent, &plugin)?;
        goes_on(&agent, &one)?;
        stop(&agent, "one")?;
        all_gone(&agent)?;
    }
    Ok(())
}

#[test]
fn a_plugin_that_died_with_the_agent_comes_back_with_it() -> Result<()> {
    let mut agent = agent()?;
    let plugin = run_foreign(&agent, "exec", &["--forget"])?;
    create_volume(&agent, "data", "single-node-writer")?;
    let one = run_writer(&agent, "one", "exec", "single-node-writer")?;
    let pid = plugin_process(&plugin)?;
    agent.kill_9()?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)?;
    agent.run()?;
    agent.wait_plugin("hostpath").with_context(|| status(&agent))?;
    goes_on(&agent, &one)?;
    stop(&agent, "one")?;
    all_gone(&agent)
}

#[test]
fn a_long_path_of_the_data_directory_is_in_nobodys_way() -> Result<()> {
    for driver in DRIVERS {
        let agent = agent_in(&format!("{}/data", "deep".repeat(20)))?;
        run_foreign(&agent, driver, &[])?;
        create_volume(&agent, "data", "single-node-writer")?;
        run_writer(&agent, "one", driver, "single-node-writer")?;
        stop(&agent, "one")?;
        all_gone(&agent)?;
    }
    Ok(())
}

/// Runs two writers of one volume while the plugin loses its records of staged and published volumes.
fn without_memory(habits: &[&str]) -> Result<()> {
    let agent = agent()?;
    let mut all = vec!["--forget"];
    all.extend(habits);
    let plugin = run_foreign(&agent, "exec", &all)?;
    create_volume(&agent, "data", "multi-node-multi-writer")?;
    let one = run_writer(&agent, "one", "exec", "multi-node-multi-writer")?;
    kill_plugin(&agent, &plugin)?;
    goes_on(&agent, &one)?;
    // A second user of the staged volume, of which the plugin has no record.
    let two = run_writer(&agent, "two", "raw_exec", "multi-node-multi-writer")?;
    // Steps of which the plugin has no record are undone nevertheless.
    stop(&agent, "one")?;
    agent.wait_alloc("one", "complete").with_context(|| status(&agent))?;
    goes_on(&agent, &two)?;
    kill_plugin(&agent, &plugin)?;
    stop(&agent, "two")?;
    all_gone(&agent)
}

#[test]
fn a_plugin_without_memory_that_records_stages() -> Result<()> {
    without_memory(&[])
}

#[test]
fn a_plugin_without_memory_that_mounts_stages() -> Result<()> {
    without_memory(&["--stage-mounts"])
}

#[test]
fn a_plugin_without_memory_that_returns_not_found() -> Result<()> {
    without_memory(&["--gone-is-not-found", "--stage-mounts", "--context"])
}

#[test]
fn one_of_two_writers_stops_where_a_stage_is_no_mount() -> Result<()> {
    let agent = agent()?;
    let plugin = run_foreign(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "multi-node-multi-writer")?;
    run_writer(&agent, "one", "raw_exec", "multi-node-multi-writer")?;
    let two = run_writer(&agent, "two", "exec", "multi-node-multi-writer")?;
    stop(&agent, "one")?;
    agent.wait_alloc("one", "complete")?;
    goes_on(&agent, &two)?;
    for call in ["NodeUnstageVolume", "ControllerUnpublishVolume"] {
        ensure!(calls(&agent, &plugin, call)? == 0, "{call} while another uses it: {}", status(&agent));
    }
    stop(&agent, "two")?;
    all_gone(&agent)
}

#[test]
fn calls_that_fail_for_a_while_are_made_again() -> Result<()> {
    let agent = agent()?;
    let calls = [
        "CreateVolume",
        "ControllerPublishVolume",
        "NodeStageVolume",
        "NodePublishVolume",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
        "ControllerUnpublishVolume",
    ];
    let mut habits: Vec<String> = calls.iter().map(|call| format!("--fail={call}=2")).collect();
    habits.push("--fail=DeleteVolume=1".to_owned());
    let habits: Vec<&str> = habits.iter().map(String::as_str).collect();
    run_foreign(&agent, "raw_exec", &habits)?;
    let path = agent.dir().join("data.hcl");
    fs::write(&path, caravan_testkit::volume_spec("data", "single-node-writer"))?;
    let reported = agent.caravan(&["volume", "create", &path.to_string_lossy()])?.failed()?.all();
    ensure!(reported.contains("the back end is busy") && reported.contains("tried again"), "{reported}");
    run_writer(&agent, "one", "raw_exec", "single-node-writer")?;
    stop(&agent, "one")?;
    agent.wait_no_claims("data").with_context(|| status(&agent))?;
    let reported = agent.caravan(&["volume", "delete", "data"])?.failed()?.all();
    ensure!(reported.contains("the back end is busy") && reported.contains("tried again"), "{reported}");
    eventually("the volume to be deleted", || {
        let status = agent.request("GET", "/v1/volume/csi/data", None)?.status;
        if status == 404 { Ok(()) } else { bail!("status {status}") }
    })
}

#[test]
fn calls_whose_answers_are_lost_are_made_again() -> Result<()> {
    let agent = agent()?;
    let calls = ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume"]
        .into_iter()
        .chain(["NodeUnstageVolume", "ControllerUnpublishVolume", "CreateVolume", "DeleteVolume"]);
    let mut habits: Vec<String> = calls.map(|call| format!("--lose={call}=1")).collect();
    habits.extend(["--gone-is-not-found", "--strict-delete", "--stage-mounts"].map(str::to_owned));
    let habits: Vec<&str> = habits.iter().map(String::as_str).collect();
    run_foreign(&agent, "exec", &habits)?;
    let path = agent.dir().join("data.hcl");
    fs::write(&path, caravan_testkit::volume_spec("data", "single-node-writer"))?;
    agent.caravan(&["volume", "create", &path.to_string_lossy()])?.failed()?;
    run_writer(&agent, "one", "raw_exec", "single-node-writer")?;
    let listed = agent.get("/v1/volumes/external?plugin_id=hostpath")?;
    ensure!(listed["Volumes"].as_array().is_some_and(|v| v.len() == 1), "{listed}");
    stop(&agent, "one")?;
    agent.wait_no_claims("data").with_context(|| status(&agent))?;
    agent.caravan(&["volume", "delete", "data"])?.failed()?;
    eventually("the volume to be deleted", || {
        let status = agent.request("GET", "/v1/volume/csi/data", None)?.status;
        if status == 404 { Ok(()) } else { bail!("status {status}") }
    })
    .with_context(|| status(&agent))
}

/// Runs controller and node service as separate processes with one plugin id.
fn in_two_parts(controller: &str, node: &str) -> Result<()> {
    let agent = agent()?;
    let parts = [
        plugin("controller", "controller", controller, &["--services=controller", "--context"]),
        plugin("node", "node", node, &["--services=node", "--context", "--stateless"]),
    ];
    for part in &parts {
        run_job(&agent, &part.job, &foreign_plugin_job(part))?;
    }
    agent.wait_plugin("hostpath")?;
    create_volume(&agent, "data", "single-node-writer")?;
    let one = run_writer(&agent, "one", "exec", "single-node-writer")?;
    // While the volume is in use only the node service is needed; the controller is missing at the end.
    stop(&agent, "controller")?;
    agent.wait_alloc("controller", "complete")?;
    goes_on(&agent, &one)?;
    stop(&agent, "one")?;
    agent.wait_alloc("one", "complete")?;
    eventually("the claim to wait for the controller", || {
        let volume = agent.volume("data")?;
        if volume["CaravanClaims"].to_string().contains("unstaged") { Ok(()) } else { bail!("{volume}") }
    })?;
    run_job(&agent, "controller", &foreign_plugin_job(&parts[0]))?;
    agent.wait_no_claims("data")
}

#[test]
fn in_two_parts_raw_exec() -> Result<()> {
    in_two_parts("raw_exec", "raw_exec")
}

#[test]
fn in_two_parts_exec() -> Result<()> {
    in_two_parts("exec", "exec")
}
