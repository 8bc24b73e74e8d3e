//! Removals and mounts: no removal empties a mounted file system, and remaining mounts are reported.

use crate::{DRIVERS, create_volume, id_of, plugin_args, run_job, run_plugin, script_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Plugin, eventually, mounts_below, plugin_job};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kind of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bind,
    Memory,
    Device,
}

const KINDS: [Kind; 3] = [Kind::Bind, Kind::Memory, Kind::Device];

/// A mount with a file deep in it, below a directory that the agent or a plugin removes.
struct Foreign {
    kind: Kind,
    at: PathBuf,
    /// The bind-mounted directory, or the directory with the image of the device's file system.
    source: tempfile::TempDir,
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Unmounts a file system. The agents of other tests look at new mounts, so a mount may be busy for a moment.
fn unmount(at: &Path) -> Result<()> {
    eventually("a foreign mount to end", || run(Command::new("umount").arg(at)))
}

impl Foreign {
    fn make(kind: Kind, at: &Path) -> Result<Self> {
        let source = tempfile::Builder::new().prefix("caravan-foreign-").tempdir()?;
        fs::create_dir_all(at)?;
        let image = source.path().join("image");
        match kind {
            Kind::Bind => run(Command::new("mount").arg("--bind").arg(source.path()).arg(at))?,
            Kind::Memory => run(Command::new("mount").args(["-t", "tmpfs", "foreign"]).arg(at))?,
            Kind::Device => {
                fs::File::create(&image)?.set_len(8 << 20)?;
                run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
                run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(at))?;
            }
        }
        fs::create_dir_all(at.join("deep/er"))?;
        fs::write(at.join("deep/er/canary"), "kept")?;
        Ok(Self { kind, at: at.to_owned(), source })
    }

    /// Creates one mount of each kind, in separate directories below `below`.
    fn each(below: &Path) -> Result<Vec<Self>> {
        KINDS.iter().map(|kind| Self::make(*kind, &below.join(format!("foreign-{kind:?}")))).collect()
    }

    fn is_mounted(&self) -> Result<bool> {
        let at = self.at.to_string_lossy();
        Ok(mounts_below(&at)?.iter().any(|mount| *mount == at))
    }

    /// Checks that the content is unchanged, mounted or not.
    fn check(&self) -> Result<()> {
        let read = |root: &Path| -> Result<()> {
            let text = fs::read_to_string(root.join("deep/er/canary"))
                .with_context(|| format!("{:?} at {} was emptied", self.kind, self.at.display()))?;
            ensure!(text == "kept", "{text:?}");
            Ok(())
        };
        match self.kind {
            Kind::Bind => read(self.source.path()),
            _ if self.is_mounted()? => read(&self.at),
            Kind::Memory => bail!("{} is gone with all that was in it", self.at.display()),
            Kind::Device => {
                let (image, at) = (self.source.path().join("image"), self.source.path().join("at"));
                fs::create_dir_all(&at)?;
                run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))?;
                let result = read(&at);
                unmount(&at)?;
                result
            }
        }
    }

    fn end(&self) -> Result<()> {
        unmount(&self.at)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        while self.is_mounted().unwrap_or(false) {
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}

fn check_all<'a>(all: impl IntoIterator<Item = &'a Foreign>) -> Result<()> {
    all.into_iter().try_for_each(Foreign::check)
}

/// Checks that of unused mounts only the memory file system stays, because its content would be lost. Returns that
/// mount.
fn memory_only(all: &[Foreign]) -> Result<&Foreign> {
    for foreign in all {
        ensure!(foreign.is_mounted()? == (foreign.kind == Kind::Memory), "{}", foreign.at.display());
    }
    all.iter().find(|foreign| foreign.kind == Kind::Memory).context("one of each kind")
}

fn client_dir(agent: &Agent) -> PathBuf {
    agent.data_dir().join("client")
}

/// Returns the mounts that the API reports as left by the plugin.
fn left_mounts(agent: &Agent) -> Result<Vec<Value>> {
    let plugin = agent.get("/v1/plugin/csi/hostpath")?;
    let by_node = plugin["CaravanLeftMounts"].as_object().cloned().unwrap_or_default();
    Ok(by_node.values().filter_map(Value::as_array).flatten().cloned().collect())
}

fn wait_left(agent: &Agent, at: &Path) -> Result<Value> {
    eventually(&format!("{} to be reported", at.display()), || {
        let left = left_mounts(agent)?;
        let path = at.to_string_lossy();
        left.iter().find(|mount| mount["Path"] == *path).cloned().with_context(|| format!("{left:?}"))
    })
}

fn wait_plugin_gone(agent: &Agent) -> Result<()> {
    eventually("the plugin to be gone", || {
        let reply = agent.request("GET", "/v1/plugin/csi/hostpath", None)?;
        ensure!(reply.status == 404, "{}", reply.text());
        Ok(())
    })
}

fn stop(agent: &Agent, job: &str) -> Result<String> {
    agent.caravan(&["job", "stop", "-detach", job])?.ok()?;
    id_of(&agent.wait_alloc(job, "complete")?)
}

#[test]
fn what_a_plugin_leaves_below_its_socket_directory_survives_its_end() -> Result<()> {
    for driver in DRIVERS {
        let agent = Agent::start()?;
        run_plugin(&agent, driver, &[])?;
        let alloc = id_of(&agent.wait_alloc("hostpath", "running")?)?;
        let socket_dir = client_dir(&agent).join("csi/plugins").join(&alloc);
        let foreign = Foreign::each(&socket_dir)?;
        // The plugin sees the mount too, and mounts by itself.
        let inside = if driver == "exec" { "/csi".into() } else { socket_dir.display().to_string() };
        let script = format!(
            "mkdir -p {inside}/own {inside}/source && echo kept > {inside}/source/canary && \
             mount --bind {inside}/source {inside}/own && cat {inside}/foreign-Bind/deep/er/canary"
        );
        let done =
            agent.caravan(&["alloc", "exec", "-i=false", "-t=false", &alloc, "/bin/sh", "-c", &script])?;
        ensure!(done.code == 0 && done.stdout == "kept", "{done:?}");
        ensure!(socket_dir.join("own/canary").exists(), "the plugin's own mount reaches the host");
        let ended = stop(&agent, "hostpath")?;
        check_all(&foreign)?;
        let memory = memory_only(&foreign)?;
        let canary = fs::read_to_string(socket_dir.join("source/canary"))?;
        ensure!(canary == "kept\n", "{canary:?}");

        let report = wait_left(&agent, &memory.at)?;
        ensure!(report["AllocID"] == alloc.as_str() && report["FsType"] == "tmpfs", "{report}");
        let shown = agent.caravan(&["plugin", "status", "hostpath"])?.ok()?.stdout;
        let path = memory.at.display().to_string();
        ensure!(shown.contains("Left Mounts") && shown.contains(&path), "{shown}");
        let state = agent.get(&format!("/v1/allocation/{ended}"))?["TaskStates"]["plugin"].clone();
        let events = state["Events"].to_string();
        ensure!(events.contains("Plugin left mounts") && events.contains(&path), "{events}");

        memory.end()?;
        wait_plugin_gone(&agent)?;
        // Only the entries with known names were removed.
        ensure!(!socket_dir.join("csi.sock").exists() && socket_dir.join("source/canary").exists());
    }
    Ok(())
}

#[test]
fn mounts_below_the_root_of_a_plugin_stay_as_long_as_one_of_its_allocations_runs() -> Result<()> {
    let agent = Agent::start()?;
    for job in ["a", "b"] {
        let text = plugin_job(&Plugin { driver: "raw_exec".into(), args: plugin_args(&agent, "raw_exec") });
        run_job(&agent, job, &text.replace("job \"hostpath\"", &format!("job \"{job}\"")))?;
        agent.wait_alloc(job, "running")?;
    }
    agent.wait_plugin("hostpath")?;
    let foreign = Foreign::each(&client_dir(&agent).join("csi/monolith/hostpath"))?;
    stop(&agent, "a")?;
    check_all(&foreign)?;
    for mount in &foreign {
        ensure!(mount.is_mounted()?, "the other one may use {}", mount.at.display());
    }
    ensure!(left_mounts(&agent)?.is_empty());
    stop(&agent, "b")?;
    check_all(&foreign)?;
    let memory = memory_only(&foreign)?;
    let report = wait_left(&agent, &memory.at)?;
    ensure!(report["AllocID"] == "", "{report}");
    memory.end()?;
    wait_plugin_gone(&agent)
}

/// Checks that mounts in use stay until they are released; a restarted agent finds all of them.
#[test]
fn left_mounts_are_found_again_by_the_next_agent_and_ended_when_nothing_uses_them() -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    let alloc = id_of(&agent.wait_alloc("hostpath", "running")?)?;
    let plugins = client_dir(&agent).join("csi/plugins");
    let used = Foreign::make(Kind::Bind, &plugins.join(&alloc).join("used"))?;
    let open = fs::File::open(used.at.join("deep/er/canary"))?;
    stop(&agent, "hostpath")?;
    let report = wait_left(&agent, &used.at)?;
    ensure!(report["Reason"].as_str().is_some_and(|why| why.contains("a process uses it")), "{report}");
    agent.kill_9()?;
    // Left by an unknown allocation, and by another plugin.
    let unknown = Foreign::make(Kind::Device, &plugins.join("unknown/work"))?;
    let other = Foreign::make(Kind::Memory, &client_dir(&agent).join("csi/node/other/work"))?;
    agent.run()?;
    wait_left(&agent, &used.at)?;
    eventually("the other plugin's mount to be reported", || {
        let reply = agent.request("GET", "/v1/plugin/csi/other", None)?;
        ensure!(reply.text().contains("its content is only in memory"), "{}", reply.text());
        Ok(())
    })?;
    eventually("the unknown mount to be ended", || {
        ensure!(!unknown.is_mounted()? && !plugins.join("unknown").exists());
        Ok(())
    })?;
    check_all([&used, &unknown, &other])?;
    drop(open);
    eventually("the mount to be ended", || {
        ensure!(!used.is_mounted()? && !plugins.join(&alloc).exists());
        Ok(())
    })?;
    check_all([&used, &unknown, &other])
}

#[test]
fn mounts_below_an_allocation_keep_it_from_being_collected() -> Result<()> {
    mounts_below_an_allocation(false)
}

/// Checks that an agent that is killed and restarted, while the task runs and after its end, removes nothing either.
#[test]
fn mounts_below_an_allocation_survive_the_restart_of_the_agent() -> Result<()> {
    mounts_below_an_allocation(true)
}

fn mounts_below_an_allocation(restarts: bool) -> Result<()> {
    let mut agent = Agent::start()?;
    run_job(&agent, "t", &script_job("t", "exec sleep 600"))?;
    let alloc = id_of(&agent.wait_alloc("t", "running")?)?;
    let dir = agent.data_dir().join("alloc").join(&alloc);
    let mut foreign = Vec::new();
    for below in ["alloc/data", "t/local", "t/secrets", "t"] {
        foreign.extend(Foreign::each(&dir.join(below))?);
    }
    if restarts {
        agent.kill_9()?;
        agent.run()?;
        ensure!(id_of(&agent.wait_alloc("t", "running")?)? == alloc, "the task goes on");
        for mount in &foreign {
            ensure!(mount.is_mounted()?, "the task may use {}", mount.at.display());
        }
        check_all(&foreign)?;
    }
    stop(&agent, "t")?;
    check_all(&foreign)?;
    if restarts {
        agent.kill_9()?;
        agent.run()?;
        check_all(&foreign)?;
    }
    agent.caravan(&["job", "stop", "-purge", "-detach", "t"])?.ok()?;
    agent.request("PUT", "/v1/system/gc", None)?;
    let kept = foreign.iter().filter(|f| f.kind == Kind::Memory).collect::<Vec<_>>();
    eventually("the reason to be an event of the node", || {
        let events = agent.get(&format!("/v1/node/{}", agent.node_id()?))?["Events"].to_string();
        let named = kept.iter().any(|mount| events.contains(&mount.at.display().to_string()));
        ensure!(events.contains("Allocation directory cannot be removed") && named, "{events}");
        Ok(())
    })?;
    check_all(&foreign)?;
    for mount in &foreign {
        ensure!(mount.is_mounted()? == (mount.kind == Kind::Memory), "{}", mount.at.display());
    }
    for mount in &kept {
        mount.end()?;
    }
    eventually("the allocation to be removed", || {
        ensure!(!dir.exists());
        Ok(())
    })?;
    check_all(foreign.iter().filter(|mount| mount.kind != Kind::Memory))
}

/// Checks that a removal empties no mount that appears while an allocation is purged.
#[test]
fn a_mount_that_appears_during_a_purge_is_not_emptied() -> Result<()> {
    let agent = Agent::start()?;
    let disk = tempfile::Builder::new().prefix("caravan-source-").tempdir()?;
    let memory = Foreign::make(Kind::Memory, &disk.path().join("memory"))?;
    for source in [disk.path(), memory.at.as_path()] {
        fs::create_dir_all(source.join("tree/deep/er"))?;
        fs::write(source.join("tree/deep/er/canary"), "kept")?;
    }
    for round in 0..5 {
        let job = format!("t{round}");
        run_job(
            &agent,
            &job,
            &script_job(&job, "mkdir -p local/a/b/c/d && touch local/a/b/c/d/e; exec sleep 600"),
        )?;
        let alloc = id_of(&agent.wait_alloc(&job, "running")?)?;
        let dir = agent.data_dir().join("alloc").join(&alloc);
        let places: Vec<PathBuf> = (0..12)
            .map(|n| {
                dir.join(["t/local", "alloc/data", "t/local/a/b/c", "t/tmp"][n % 4]).join(format!("m{n}"))
            })
            .collect();
        places.iter().try_for_each(fs::create_dir_all)?;
        stop(&agent, &job)?;
        let made = std::thread::scope(|scope| -> Result<usize> {
            let mounter = scope.spawn(|| {
                let mut made = 0;
                for (n, at) in places.iter().enumerate() {
                    let source = if n % 2 == 0 { disk.path() } else { memory.at.as_path() };
                    // The directory may be removed by now.
                    let mut mount = Command::new("mount");
                    mount.arg("--bind").arg(source.join("tree")).arg(at).stderr(std::process::Stdio::null());
                    made += usize::from(mount.status().is_ok_and(|status| status.success()));
                }
                made
            });
            agent.caravan(&["job", "stop", "-purge", "-detach", &job])?.ok()?;
            agent.request("PUT", "/v1/system/gc", None)?;
            mounter.join().map_err(|_| anyhow::anyhow!("the mounts fail"))
        })?;
        // The mounts are unused, and their sources are elsewhere: they are unmounted, now or at the next attempt.
        eventually(&format!("the allocation to be removed in spite of {made} mounts"), || {
            ensure!(!dir.exists(), "{:?}", mounts_below(&dir.to_string_lossy()));
            Ok(())
        })?;
        for source in [disk.path(), memory.at.as_path()] {
            ensure!(fs::read_to_string(source.join("tree/deep/er/canary"))? == "kept");
        }
    }
    memory.check()
}

/// Returns the plugin's processes by their allocation.
fn plugin_processes(alloc: &str) -> Result<Vec<i32>> {
    let needle = format!("NOMAD_ALLOC_ID={alloc}\0");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(env) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        if env.windows(needle.len()).any(|part| part == needle.as_bytes()) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Kills a plugin during its work: the plugin leaves mounts, and its next process finds the old socket.
#[test]
fn mounts_of_a_plugin_that_was_killed_survive_it() -> Result<()> {
    use nix::sys::signal::{Signal, kill};
    for driver in DRIVERS {
        let mut agent = Agent::start()?;
        run_plugin(&agent, driver, &[])?;
        let alloc = id_of(&agent.wait_alloc("hostpath", "running")?)?;
        let socket_dir = client_dir(&agent).join("csi/plugins").join(&alloc);
        let mut foreign = Foreign::each(&socket_dir)?;
        foreign.extend(Foreign::each(&client_dir(&agent).join("csi/monolith/hostpath"))?);
        let restarts = |agent: &Agent| -> Result<u64> {
            let state = agent.get(&format!("/v1/allocation/{alloc}"))?["TaskStates"]["plugin"].clone();
            Ok(state["Restarts"].as_u64().unwrap_or_default())
        };
        let killed = plugin_processes(&alloc)?;
        ensure!(!killed.is_empty(), "the plugin does not run");
        for pid in &killed {
            // One process may end with another.
            let _gone = kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGKILL);
        }
        eventually("the plugin to be started again", || {
            ensure!(restarts(&agent)? == 1, "{} restarts", restarts(&agent)?);
            Ok(())
        })?;
        agent.wait_plugin("hostpath")?;
        check_all(&foreign)?;
        // The agent is killed too: both start again.
        agent.kill_9()?;
        for pid in plugin_processes(&alloc)? {
            let _gone = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
        }
        agent.run()?;
        agent.wait_plugin("hostpath")?;
        check_all(&foreign)?;
        stop(&agent, "hostpath")?;
        check_all(&foreign)?;
        for memory in foreign.iter().filter(|mount| mount.kind == Kind::Memory) {
            wait_left(&agent, &memory.at)?;
            memory.end()?;
        }
        wait_plugin_gone(&agent)?;
    }
    Ok(())
}

#[test]
fn the_end_of_a_development_agent_empties_nothing() -> Result<()> {
    let mut agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    run_plugin(&agent, "raw_exec", &[])?;
    run_job(&agent, "t", &script_job("t", "echo $NOMAD_ALLOC_DIR; exec sleep 600"))?;
    let (plugin, task) =
        (id_of(&agent.wait_alloc("hostpath", "running")?)?, id_of(&agent.wait_alloc("t", "running")?)?);
    // The data directory is temporary; the task prints `<data_dir>/alloc/<id>/alloc`.
    let shared = eventually("the task to say where it is", || {
        let text = agent.logs(&task, "t", "stdout")?;
        ensure!(text.ends_with('\n'), "{text:?}");
        Ok(PathBuf::from(text.trim_end()))
    })?;
    let data_dir = shared.ancestors().nth(3).context("a data directory")?.to_owned();
    let mut foreign = Vec::new();
    for below in [
        format!("client/csi/plugins/{plugin}"),
        "client/csi/monolith/hostpath".to_owned(),
        format!("alloc/{task}/t/local"),
        format!("alloc/{task}/alloc/data"),
        "client/elsewhere".to_owned(),
    ] {
        foreign.extend(Foreign::each(&data_dir.join(below))?);
    }
    agent.stop()?;
    check_all(&foreign)?;
    ensure!(agent.log().contains("the temporary directory was not removed"), "{}", agent.log_tail());
    drop(foreign);
    // The directories that the agent shares with plugins; the killed agent could not unmount them.
    for mount in mounts_below(&data_dir.to_string_lossy())?.iter().rev() {
        run(Command::new("umount").arg(mount))?;
    }
    run(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&data_dir))
}

#[test]
fn a_mount_inside_a_volume_keeps_it_from_being_deleted() -> Result<()> {
    let mut agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    let external = agent.volume("data")?["ExternalID"].as_str().unwrap_or_default().to_owned();
    let foreign = Foreign::each(&agent.dir().join("volumes/data").join(&external))?;
    agent.kill_9()?;
    agent.run()?;
    agent.wait_plugin("hostpath")?;
    for mount in &foreign {
        ensure!(mount.is_mounted()?, "{} is the plugin's", mount.at.display());
    }
    let refused = agent.caravan(&["volume", "delete", "data"])?;
    let named = foreign.iter().any(|mount| refused.stderr.contains(&mount.at.display().to_string()));
    ensure!(refused.code == 1 && named, "{refused:?}");
    check_all(&foreign)?;
    foreign.iter().try_for_each(Foreign::end)?;
    agent.caravan(&["volume", "delete", "data"])?.ok()?;
    check_all(foreign.iter().filter(|mount| mount.kind != Kind::Memory))
}

#[test]
fn a_mount_inside_a_host_volume_keeps_it_from_being_deleted() -> Result<()> {
    let agent = Agent::start()?;
    let spec = agent.dir().join("scratch.volume.hcl");
    fs::write(&spec, "type = \"host\"\nname = \"scratch\"\n")?;
    agent.caravan(&["volume", "create", &spec.to_string_lossy()])?.ok()?;
    let volumes = agent.get("/v1/volumes?type=host")?;
    let id = volumes[0]["ID"].as_str().context("a volume")?.to_owned();
    let path =
        agent.get(&format!("/v1/volume/host/{id}"))?["HostPath"].as_str().unwrap_or_default().to_owned();
    let foreign = Foreign::each(Path::new(&path))?;
    let delete = || agent.caravan(&["volume", "delete", "-type", "host", &id]);
    let refused = delete()?;
    let named = foreign.iter().any(|mount| refused.stderr.contains(&mount.at.display().to_string()));
    ensure!(refused.code == 1 && named, "{refused:?}");
    check_all(&foreign)?;
    foreign.iter().try_for_each(Foreign::end)?;
    delete()?.ok()?;
    ensure!(!Path::new(&path).exists());
    check_all(foreign.iter().filter(|mount| mount.kind != Kind::Memory))
}
