//! Control groups of tasks. The tests run on version 1 and, in a virtual machine, on version 2.

use super::{Kind, World, cgroup_of, exec, raw_exec, until};
use caravan_drivers::conformance::Fixture;
use caravan_drivers::{DeviceNode, Mount, Processors, Propagation, TaskConfig};
use caravan_sys::cgroup::{Hierarchy, SharedCpus};
use std::path::{Path, PathBuf};

/// Returns the directory of a task's group on version 2, if that is the version.
fn unified(config: &TaskConfig) -> Option<PathBuf> {
    let Some(Hierarchy::V2(mount)) = Hierarchy::detect().unwrap() else { return None };
    Some(mount.join(&config.cgroup_parent).join(format!("{}.{}", config.alloc_id, config.task_name)))
}

fn read(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}")).trim().to_owned()
}

#[tokio::test]
async fn resources_of_a_task_are_limits_of_its_group() {
    for kind in [Kind::Exec, Kind::Raw] {
        let world = World::new(kind);
        let mut config = world.script("t", "echo up; exec sleep 100000");
        config.resources.cpu_mhz = 1024;
        config.resources.memory_max_mb = Some(96);
        let Some(dir) = unified(&config) else { return };
        let driver = world.driver();
        let id = config.id.clone();
        let handle = driver.start(config.clone()).await.unwrap();
        assert_eq!(handle.degraded, Vec::<String>::new());
        assert_eq!(read(&dir, "cpu.weight"), "39");
        let (max, low) = if kind == Kind::Exec { ("100663296", "67108864") } else { ("max", "0") };
        assert_eq!((read(&dir, "memory.max").as_str(), read(&dir, "memory.low").as_str()), (max, low));
        if dir.join("memory.swap.max").exists() {
            let swap = if kind == Kind::Exec { "0" } else { "max" };
            assert_eq!(read(&dir, "memory.swap.max"), swap);
        }
        // Throttling below the limit would slow down a task whose memory the node can spare.
        assert_eq!(read(&dir, "memory.high"), "max");
        let usage = driver.usage(&id).await.unwrap();
        assert!(usage.memory > 0 && usage.pids > 0, "{usage:?}");
        let measured = std::fs::read_to_string("/proc/pressure/io").is_ok();
        assert_eq!(usage.pressure.io.is_some(), measured, "{usage:?}");
        driver.destroy(&id, true).await.unwrap();
        assert!(!dir.exists());
    }
}

#[tokio::test]
async fn a_task_with_processors_runs_on_these() {
    for (kind, processors) in
        [(Kind::Exec, Processors::Own("0".into())), (Kind::Raw, Processors::Only("0".into()))]
    {
        let world = World::new(kind);
        let mut config =
            world.script("t", "grep Cpus_allowed_list /proc/self/status | cut -f2; exec sleep 100000");
        if SharedCpus::available(&Hierarchy::detect().unwrap().unwrap(), &config.cgroup_parent).is_none() {
            return;
        }
        config.processors = processors;
        let driver = world.driver();
        let id = config.id.clone();
        let handle = driver.start(config).await.unwrap();
        assert_eq!(handle.degraded, Vec::<String>::new());
        until("output", || world.output("t") == "0\n").await;
        driver.destroy(&id, true).await.unwrap();
    }
}

/// Returns a loop device for a file of 1 MiB with a text at its beginning.
fn loop_device(file: &Path, text: &str) -> Option<PathBuf> {
    let mut content = text.as_bytes().to_vec();
    content.resize(1 << 20, 0);
    std::fs::write(file, content).unwrap();
    let output = std::process::Command::new("losetup").args(["-f", "--show"]).arg(file).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().into())
}

struct Detached(PathBuf);

impl Drop for Detached {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_task_uses_the_block_device_of_its_volume_and_no_other() {
    let world = World::new(Kind::Exec);
    let (one, other) = (world.dir.path().join("one"), world.dir.path().join("other"));
    let Some(one) = loop_device(&one, "first").map(Detached) else { return };
    let other = Detached(loop_device(&other, "second").unwrap());
    let mount = |device: &Detached, read_only| Mount {
        host_path: device.0.clone(),
        task_path: "/volume".into(),
        read_only,
        propagation: Propagation::Private,
    };
    // The task creates its own file for the other device, which its rules forbid.
    let (major, minor) = number(&other.0);
    let script = format!(
        "rm -f /dev/shm/other; mknod /dev/shm/other b {major} {minor} 2>/dev/null; \
         head -c 6 /volume; echo; head -c 6 /dev/shm/other 2>/dev/null; (exec 3<>/volume) 2>/dev/null && echo writable; \
         echo end; exec sleep 100000"
    );
    let driver = exec();
    let run = async |read_only| {
        let mut config = world.script("t", &script);
        config.user = Some("root".into());
        config.logs.as_mut().unwrap().stdout = format!("{read_only}.stdout");
        config.mounts.push(mount(&one, read_only));
        let id = config.id.clone();
        driver.start(config).await.unwrap();
        let name = read_only.to_string();
        until("output", || world.output(&name).ends_with("end\n")).await;
        (id, world.output(&name).replace('\0', ""))
    };
    let (id, text) = run(true).await;
    assert_eq!(text, "first\nend\n");
    driver.destroy(&id, true).await.unwrap();
    let (id, text) = run(false).await;
    assert_eq!(text, "first\nwritable\nend\n");
    // A replaced volume brings its device, without a new start of the task.
    driver.remount(&id, &mount(&other, false)).await.unwrap();
    let command = ["head", "-c", "6", "/volume"].map(str::to_owned);
    let output = driver.exec(&id, &command, super::TIMEOUT).await.unwrap();
    assert_eq!((output.stdout, output.exit_code), (b"second".to_vec(), 0));
    driver.destroy(&id, true).await.unwrap();
}

#[tokio::test]
async fn a_task_uses_an_assigned_device_as_its_permissions_say() {
    let world = World::new(Kind::Exec);
    let file = world.dir.path().join("card");
    let Some(card) = loop_device(&file, "card 0").map(Detached) else { return };
    let link = world.dir.path().join("link");
    std::os::unix::fs::symlink(&card.0, &link).unwrap();
    let node = |host_path: &Path, permissions: &str| DeviceNode {
        host_path: host_path.into(),
        task_path: "/dev/cards/0".into(),
        permissions: permissions.into(),
    };
    let script =
        "head -c 6 /dev/cards/0; echo; (exec 3<>/dev/cards/0) 2>/dev/null && echo writable; echo end";
    let driver = exec();
    let run = async |permissions: &str| {
        let mut config = world.script("t", script);
        config.user = Some("root".into());
        config.logs.as_mut().unwrap().stdout = format!("{permissions}.stdout");
        config.devices.push(node(&link, permissions));
        let id = config.id.clone();
        driver.start(config).await.unwrap();
        driver.wait(&id).await.unwrap();
        driver.destroy(&id, true).await.unwrap();
        world.output(permissions)
    };
    assert_eq!(run("r").await, "card 0\nend\n");
    assert_eq!(run("rw").await, "card 0\nwritable\nend\n");
    let refused = async |device: DeviceNode| {
        let mut config = world.script("t", script);
        config.devices.push(device);
        driver.start(config).await.unwrap_err().to_string()
    };
    assert!(refused(node(&file, "r")).await.contains("is not a device file"));
    assert!(refused(node(Path::new("/dev/none"), "r")).await.contains("device /dev/none cannot be used"));
    assert!(refused(node(&link, "rx")).await.contains("invalid cgroup permission string"));
}

fn number(device: &Path) -> (u32, u32) {
    let (_, device) = caravan_sys::mount::device_number(device).unwrap().unwrap();
    (device.major, device.minor)
}

#[tokio::test]
async fn a_task_out_of_memory_is_reported_also_in_a_group_of_its_own() {
    let world = World::new(Kind::Exec);
    let driver = exec();
    let grow = "x=$(head -c 200000000 /dev/zero | tr \"\\0\" x); echo ${#x}";
    let mut config = world.script("t", grow);
    config.resources.memory_mb = 16;
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let result = driver.wait(&id).await.unwrap();
    assert!(result.oom_killed, "{result:?}");
    driver.destroy(&id, true).await.unwrap();

    // The task creates a group below its own, and a child is killed there. The task itself succeeds.
    let world = World::new(Kind::Raw);
    let mut config = world.script("t", "");
    let Some(dir) = unified(&config) else { return };
    let dir = dir.display();
    let script = format!(
        "mkdir {dir}/task {dir}/small && for p in $(cat {dir}/cgroup.procs); do echo $p > {dir}/task/cgroup.procs; done; \
         echo +memory > {dir}/cgroup.subtree_control && echo 16777216 > {dir}/small/memory.max || exit 1; \
         sh -c 'echo 0 > {dir}/small/cgroup.procs; {grow}'; rmdir {dir}/small; echo done"
    );
    config.driver_config = serde_json::json!({"command": "sh", "args": ["-c", script]});
    let id = config.id.clone();
    let driver = raw_exec();
    driver.start(config).await.unwrap();
    let result = driver.wait(&id).await.unwrap();
    assert!(result.oom_killed && result.exit_code == 0 && result.signal == 0, "{result:?}");
    assert_eq!(world.output("t"), "done\n");
    driver.destroy(&id, true).await.unwrap();
}

#[tokio::test]
async fn groups_that_a_task_makes_end_with_the_task() {
    let world = World::new(Kind::Raw);
    let mut config = world.script("t", "");
    let Some(dir) = unified(&config) else { return };
    let shown = dir.display();
    let script = format!(
        "mkdir -p {shown}/a/b; sleep 100000 & echo $! > {shown}/a/b/cgroup.procs && echo up; \
         [ ! -e /alloc ]; wait"
    );
    config.driver_config = serde_json::json!({"command": "sh", "args": ["-c", script]});
    let (id, group) = (config.id.clone(), cgroup_of(&config));
    let driver = raw_exec();
    let handle = driver.start(config.clone()).await.unwrap();
    until("output", || world.output("t") == "up\n").await;
    // The child in the group below is part of the task, also if its supervisor is killed.
    let shim = u32::try_from(handle.state["shim"]["pid"].as_u64().unwrap()).unwrap();
    caravan_sys::process::PidFd::open(shim).unwrap().unwrap().send_signal(9).unwrap();
    driver.wait(&id).await.unwrap();
    assert!(group.is_empty().unwrap() && !group.exists());
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test]
async fn a_job_chooses_the_group_of_its_task() {
    let world = World::new(Kind::Raw);
    let mut config = world.script("t", "");
    if unified(&config).is_none() {
        return;
    }
    let name = format!("caravan-test-chosen-{}", std::process::id());
    let at = PathBuf::from("/sys/fs/cgroup").join(&name);
    for path in [format!("{name}/one"), at.join("two").display().to_string()] {
        config.driver_config = serde_json::json!({
            "command": "sh", "args": ["-c", "grep ^0:: /proc/self/cgroup"], "cgroup_v2_override": path,
        });
        let id = config.id.clone();
        let driver = raw_exec();
        driver.start(config.clone()).await.unwrap();
        driver.wait(&id).await.unwrap();
        driver.destroy(&id, false).await.unwrap();
    }
    assert_eq!(world.output("t"), format!("0::/{name}/one\n0::/{name}/two\n"));
    for dir in [at.join("one"), at.join("two"), at] {
        std::fs::remove_dir(dir).unwrap();
    }
}

/// Prints the time, which `crates/test/machines` compares between the versions of control groups.
#[tokio::test]
async fn fifty_tasks_start_and_end() {
    let driver = exec();
    let worlds: Vec<World> = (0..50).map(|_| World::new(Kind::Exec)).collect();
    let configs: Vec<TaskConfig> =
        worlds.iter().map(|world| world.script("t", "exec sleep 100000")).collect();
    // The first task starts the fork server.
    let world = World::new(Kind::Exec);
    let warm = world.script("warm", "exec sleep 100000");
    driver.start(warm.clone()).await.unwrap();
    let began = std::time::Instant::now();
    for config in &configs {
        let handle = driver.start(config.clone()).await.unwrap();
        assert_eq!(handle.degraded, Vec::<String>::new());
    }
    let started = began.elapsed();
    for config in &configs {
        driver.destroy(&config.id, true).await.unwrap();
    }
    let ended = began.elapsed() - started;
    driver.destroy(&warm.id, true).await.unwrap();
    assert!(!configs.iter().any(|config| cgroup_of(config).exists()));
    let version = Hierarchy::detect().unwrap().unwrap().version();
    println!("fifty tasks on {version}: start {} ms, end {} ms", started.as_millis(), ended.as_millis());
}
