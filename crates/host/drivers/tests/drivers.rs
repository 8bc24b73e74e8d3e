//! Runs the conformance suite against the drivers, and tests the functions of drivers with shims.

mod fork_server;
mod groups;
mod isolation;
mod java;
mod qemu;

use caravan_drivers::conformance::{self, Behaviour, Fixture, Outages, Part};
use caravan_drivers::{
    Dns, Driver, Error, ExecDriver, ExecOptions, ExitResult, ForkServer, Health, HostsLine, MockDriver,
    Mount, NetworkIsolation, Propagation, RawExecDriver, RawExecOptions, ShimCommand, TaskConfig, TaskDirs,
    TaskHandle, TaskState,
};
use caravan_shim::lease::{Lease, LeaseWriter, Term};
use caravan_sys::cgroup::{Cgroup, Hierarchy};
use caravan_sys::mount::{Unmount, make_shared_tree, unmount};
use caravan_sys::process::{PidFd, ProcessIdentity};
use caravan_sys::time::BootTime;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Raw,
    Exec,
    Mock,
}

struct World {
    dir: tempfile::TempDir,
    kind: Kind,
    alloc: String,
}

static WORLDS: AtomicU32 = AtomicU32::new(0);

impl World {
    fn new(kind: Kind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Tasks of `exec` run as nobody and must be able to enter this directory.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let alloc = format!("test-{}-{}", std::process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
        Self { dir, kind, alloc }
    }

    fn config(&self, name: &str, driver_config: Value) -> TaskConfig {
        let task = conformance::sample_with_dirs(self.dir.path(), &self.alloc, name, driver_config).unwrap();
        let TaskDirs { shared_alloc_dir, task_dir, .. } = &task.dirs;
        std::fs::create_dir_all(task_dir.join("private")).unwrap();
        for open in [shared_alloc_dir, &task_dir.join("local")] {
            std::fs::set_permissions(open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        }
        task
    }

    fn script(&self, name: &str, script: &str) -> TaskConfig {
        self.config(name, json!({"command": "sh", "args": ["-c", script]}))
    }

    fn output(&self, name: &str) -> String {
        let logs = self.dir.path().join(&self.alloc).join("alloc/logs");
        std::fs::read_to_string(logs.join(format!("{name}.stdout.0"))).unwrap_or_default()
    }
}

fn shim() -> ForkServer {
    ForkServer::new(ShimCommand { program: env!("CARGO_BIN_EXE_caravan-driver-shim").into(), args: vec![] })
}

fn raw_exec() -> Arc<dyn Driver> {
    Arc::new(RawExecDriver::new(RawExecOptions { enabled: true, ..RawExecOptions::default() }, shim()))
}

fn exec() -> Arc<dyn Driver> {
    Arc::new(ExecDriver::new(ExecOptions::default(), shim()))
}

impl Fixture for World {
    fn driver(&self) -> Arc<dyn Driver> {
        match self.kind {
            Kind::Raw => raw_exec(),
            Kind::Exec => exec(),
            Kind::Mock => Arc::new(MockDriver::new()),
        }
    }

    fn task(&self, name: &str, behaviour: Behaviour) -> Option<TaskConfig> {
        if self.kind == Kind::Mock {
            let config = match behaviour {
                Behaviour::Exit(code) => json!({"exit_code": code}),
                Behaviour::Hello => json!({"stdout_string": "hello\n"}),
                Behaviour::RunForever => json!({"run_for": "100h", "exec_output": "one two\n"}),
                Behaviour::Stubborn => {
                    json!({"run_for": "100h", "kill_after": "60ms", "stdout_string": "deaf\n"})
                }
                Behaviour::CannotStart => json!({"start_error": "told so"}),
                Behaviour::Variable
                | Behaviour::Count
                | Behaviour::Flood
                | Behaviour::Counted
                | Behaviour::Copy
                | Behaviour::Shell => return None,
            };
            return Some(self.config(name, config));
        }
        Some(match behaviour {
            Behaviour::Exit(code) => self.script(name, &format!("exit {code}")),
            Behaviour::Hello => self.script(name, "echo hello"),
            Behaviour::RunForever => self.config(name, json!({"command": "sleep", "args": ["100000"]})),
            // An ignored signal stays ignored after execve(2).
            Behaviour::Stubborn => self.script(name, "trap '' INT TERM; echo deaf; exec sleep 100000"),
            Behaviour::CannotStart => self.config(name, json!({"command": "/no/such/program"})),
            scripted => self.script(name, &conformance::script(scripted)?),
        })
    }
}

/// Kills the shim of a task.
fn kill_shim(handle: &TaskHandle) -> Result<(), String> {
    let shim = &handle.state["shim"];
    let field = |name: &str| shim[name].as_u64().ok_or_else(|| format!("no {name} in {shim}"));
    let pid = u32::try_from(field("pid")?).map_err(|error| error.to_string())?;
    let identity = ProcessIdentity { pid, start_time: field("start_time")? };
    let process = PidFd::open_identity(identity).map_err(|error| error.to_string())?;
    let process = process.ok_or("the shim has ended")?;
    process.send_signal(9).map(drop).map_err(|error| error.to_string())
}

impl Outages for World {
    fn parts(&self) -> Vec<(Part, bool)> {
        vec![(Part::Shim, false)]
    }

    fn kill(&mut self, _part: Part, handle: &TaskHandle) -> Result<(), String> {
        kill_shim(handle)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_get_over_the_death_of_a_shim() {
    for kind in [Kind::Raw, Kind::Exec] {
        conformance::check_outages(&mut World::new(kind)).await.unwrap();
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::task::yield_now().await;
    }
}

fn cgroup_of(config: &TaskConfig) -> Cgroup {
    let path = config.cgroup_parent.join(format!("{}.{}", config.alloc_id, config.task_name));
    Cgroup::at(&Hierarchy::detect().unwrap().unwrap(), &path).unwrap()
}

#[tokio::test]
async fn raw_exec_conforms() {
    conformance::check_all(&World::new(Kind::Raw)).await.unwrap();
}

#[tokio::test]
async fn exec_conforms() {
    conformance::check_all(&World::new(Kind::Exec)).await.unwrap();
}

#[tokio::test]
async fn mock_conforms() {
    conformance::check_all(&World::new(Kind::Mock)).await.unwrap();
}

#[tokio::test]
async fn raw_exec_is_there_only_when_enabled() {
    let driver = RawExecDriver::new(RawExecOptions::default(), shim());
    let found = driver.fingerprint().await;
    assert_eq!((found.state, found.attributes.len()), (Health::Undetected, 0));
    let error = driver.start(World::new(Kind::Raw).script("t", "true")).await.unwrap_err();
    assert!(error.to_string().contains("not enabled"), "{error}");
}

/// The task replaced its working directory by a link to a directory that only root may enter.
#[tokio::test]
async fn a_working_directory_is_entered_as_the_user_of_the_task() {
    let world = World::new(Kind::Raw);
    let driver = world.driver();
    let (closed, inside) = (world.dir.path().join("closed"), world.dir.path().join("closed/inside"));
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let script = |work_dir: &str| json!({"command": "sh", "args": ["-c", "pwd -P"], "work_dir": work_dir});
    let mut config = world.config("t", script("local/way"));
    config.user = Some("54321".into());
    let local = config.dirs.task_dir.join("local");
    std::os::unix::fs::symlink(&inside, local.join("way")).unwrap();
    let error = driver.start(config.clone()).await.unwrap_err().to_string();
    assert!(error.contains("working directory") && error.contains("local/way"), "{error}");
    std::fs::create_dir(local.join("own")).unwrap();
    for (work_dir, expected) in [("local/own", local.join("own")), ("/", "/".into())] {
        config.driver_config = script(work_dir);
        driver.start(config.clone()).await.unwrap();
        driver.wait(&config.id).await.unwrap();
        let output = world.output("t");
        assert_eq!(output.lines().last(), expected.to_str(), "{output}");
        driver.destroy(&config.id, false).await.unwrap();
    }
}

#[tokio::test]
async fn a_task_runs_as_the_user_and_in_the_place_it_was_told() {
    for (kind, dir, user) in [(Kind::Raw, None, "0"), (Kind::Exec, Some("/"), "65534")] {
        let world = World::new(kind);
        let driver = world.driver();
        let mut config = world.script("t", "pwd; id -u; echo $GREETING");
        let expected = dir.map_or_else(|| config.dirs.task_dir.display().to_string(), str::to_owned);
        let id = config.id.clone();
        driver.start(config.clone()).await.unwrap();
        driver.wait(&id).await.unwrap();
        assert_eq!(world.output("t"), format!("{expected}\n{user}\nhello\n"));
        driver.destroy(&id, false).await.unwrap();

        config.user = Some("54321".into());
        driver.start(config).await.unwrap();
        driver.wait(&id).await.unwrap();
        assert!(world.output("t").ends_with("\n54321\nhello\n"), "{kind:?}");
    }
}

#[tokio::test]
async fn a_task_in_a_network_of_its_own_sees_only_that() {
    for kind in [Kind::Raw, Kind::Exec] {
        let world = World::new(kind);
        let driver = world.driver();
        let network = world.dir.path().join("network");
        caravan_sys::netns::hold(&network).unwrap();
        // A task without its own root sees the node's devices below /sys, but cannot use them.
        let look = match kind {
            Kind::Exec => "ls /sys/class/net; echo; tail -n +3 /proc/net/dev | cut -d: -f1; echo; sleep 60",
            _ => "echo; tail -n +3 /proc/net/dev | cut -d: -f1; echo; sleep 60",
        };
        let mut config = world.script("t", look);
        config.network = Some(NetworkIsolation::held_at(network.clone()));
        let id = config.id.clone();
        driver.start(config).await.unwrap();
        let names = |text: &str| text.split_whitespace().all(|name| name == "lo");
        until("it has told its interfaces", || {
            world.output("t").lines().filter(|l| l.is_empty()).count() == 2
        })
        .await;
        assert!(world.output("t").contains("lo"), "{kind:?}: {}", world.output("t"));
        assert!(names(&world.output("t")), "{kind:?}: {}", world.output("t"));
        let command = ["sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1"].map(str::to_owned);
        let beside = driver.exec(&id, &command, Duration::from_secs(20)).await.unwrap();
        assert!(names(&String::from_utf8_lossy(&beside.stdout)), "{kind:?}");
        driver.destroy(&id, true).await.unwrap();

        // A missing network is an error: the task must not run in the node's network instead.
        caravan_sys::netns::let_go(&network).unwrap();
        let mut config = world.script("u", "true");
        config.network = Some(NetworkIsolation::held_at(network));
        let error = driver.start(config).await.unwrap_err().to_string();
        assert!(error.contains("network"), "{kind:?}: {error}");
    }
}

#[tokio::test]
async fn a_task_has_the_names_of_its_network() {
    let world = World::new(Kind::Exec);
    let driver = world.driver();
    let network = world.dir.path().join("network");
    caravan_sys::netns::hold(&network).unwrap();
    let mut config = world.script("t", "hostname; cat /etc/hosts; cat /etc/resolv.conf; echo done; sleep 60");
    let line = HostsLine { hostname: "web-1".into(), address: "172.26.64.7".into() };
    config.network =
        Some(NetworkIsolation { hosts: Some(line), ..NetworkIsolation::held_at(network.clone()) });
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    config.dns = Some(Dns {
        servers: texts(&["10.0.0.53"]),
        searches: texts(&["a.test"]),
        options: texts(&["ndots:2"]),
    });
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    until("its output", || world.output("t").ends_with("done\n")).await;
    let output = world.output("t");
    assert!(output.starts_with("web-1\n127.0.0.1 localhost\n"), "{output}");
    assert!(output.contains("\n172.26.64.7 web-1\n"), "{output}");
    assert!(output.ends_with("nameserver 10.0.0.53\nsearch a.test\noptions ndots:2\ndone\n"), "{output}");
    let command = ["sh", "-c", "hostname; echo x >> /etc/resolv.conf"].map(str::to_owned);
    let beside = driver.exec(&id, &command, Duration::from_secs(20)).await.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&beside.stdout),
        "web-1\n",
        "programs beside the task have the name too"
    );
    assert_ne!(beside.exit_code, 0, "the task cannot write the file");
    driver.destroy(&id, true).await.unwrap();
    caravan_sys::netns::let_go(&network).unwrap();
    let own = rustix::system::uname();
    assert_ne!(own.nodename().to_str(), Ok("web-1"), "the node keeps its name");
}

#[tokio::test]
async fn denied_users_and_variables_stay_out() {
    let world = World::new(Kind::Raw);
    let options = RawExecOptions {
        enabled: true,
        denied_host_uids: "100-200".parse().unwrap(),
        denied_envvars: vec!["GREET*".into()],
        ..RawExecOptions::default()
    };
    let driver = RawExecDriver::new(options, shim());
    let mut config = world.script("t", "echo \"<$GREETING>\"");
    config.user = Some("150".into());
    let error = driver.start(config.clone()).await.unwrap_err().to_string();
    assert_eq!(error, "running as user id 150 is not allowed on this node");
    config.user = Some("no-such-user".into());
    assert_eq!(driver.start(config.clone()).await.unwrap_err().to_string(), "unknown user \"no-such-user\"");
    config.user = None;
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    driver.wait(&id).await.unwrap();
    assert_eq!(world.output("t"), "<>\n");
}

#[tokio::test]
async fn exec_shows_the_task_its_directories_and_mounts() {
    let world = World::new(Kind::Exec);
    let driver = exec();
    let volume = world.dir.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("data"), "kept\n").unwrap();
    let mut config = world.script(
        "t",
        "echo x >/alloc/made; echo y >/local/made; cat /srv/data; touch /srv/x 2>/dev/null || echo ro",
    );
    config.mounts.push(Mount {
        host_path: volume.clone(),
        task_path: "/srv".into(),
        read_only: true,
        propagation: Propagation::Private,
    });
    let (id, dirs) = (config.id.clone(), config.dirs.clone());
    driver.start(config).await.unwrap();
    driver.wait(&id).await.unwrap();
    assert_eq!(world.output("t"), "kept\nro\n");
    assert!(dirs.shared_alloc_dir.join("made").exists() && dirs.task_dir.join("local/made").exists());
    let error = raw_exec()
        .start(TaskConfig {
            mounts: vec![Mount {
                host_path: volume,
                task_path: "/srv".into(),
                read_only: false,
                propagation: Propagation::Private,
            }],
            ..world.script("r", "true")
        })
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[tokio::test]
async fn a_plugin_under_exec_can_mount_for_others_and_other_tasks_cannot() {
    let world = World::new(Kind::Exec);
    let options = ExecOptions { allow_privileged_plugins: true, ..ExecOptions::default() };
    let driver = ExecDriver::new(options, shim());
    let tree = world.dir.path().join("csi");
    std::fs::create_dir_all(tree.join("target")).unwrap();
    make_shared_tree(&tree).unwrap();
    let script = "mount -t tmpfs none /csi/target && echo mounted; sleep 100000";
    let mount = Mount {
        host_path: tree.clone(),
        task_path: "/csi".into(),
        read_only: false,
        propagation: Propagation::Bidirectional,
    };
    let devices = Mount {
        host_path: "/dev".into(),
        task_path: "/dev".into(),
        read_only: false,
        propagation: Propagation::Private,
    };
    let script = &format!("test -e /dev/loop-control && echo devices; echo x >/dev/null && {script}");
    let mut config = world.script("other", script);
    config.mounts.extend([mount.clone(), devices.clone()]);
    config.user = Some("root".into());
    let other = config.id.clone();
    driver.start(config).await.unwrap();
    let mut config = world.script("plugin", script);
    config.mounts.extend([mount, devices]);
    config.privileged_mounts = true;
    let plugin = config.id.clone();
    driver.start(config).await.unwrap();
    until("the mount", || world.output("plugin") == "devices\nmounted\n").await;
    assert!(caravan_sys::mount::is_mount_point(&tree.join("target")).unwrap());
    assert_eq!(world.output("other"), "");
    for id in [other, plugin] {
        driver.destroy(&id, true).await.unwrap();
    }
    assert!(unmount(&tree.join("target"), Unmount::Now).unwrap());
    unmount(&tree, Unmount::Now).unwrap();
}

/// Simulates the agent's end for a task: connections close, the runtime stops, and only the state on disk remains.
fn with_agent<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

#[test]
fn tasks_outlive_the_agent_and_their_ends_are_seen() {
    for kind in [Kind::Raw, Kind::Exec] {
        let world = World::new(kind);
        let go = world.dir.path().join(&world.alloc).join("alloc/go");
        let path = if kind == Kind::Exec { PathBuf::from("/alloc/go") } else { go.clone() };
        let script = format!(
            "i=0; while [ ! -e {} ]; do i=$((i+1)); echo line $i; sleep 0.001; done; echo last; exit 7",
            path.display()
        );
        let config = world.script("t", &script);
        let id = config.id.clone();
        let handle = with_agent(async { world.driver().start(config).await.unwrap() });
        let pid = handle.pid.unwrap();
        let task = ProcessIdentity::read(pid).unwrap().unwrap();

        with_agent(async {
            let driver = world.driver();
            driver.recover(handle.clone()).await.unwrap();
            assert_eq!(driver.inspect(&id).await.unwrap().state, TaskState::Running);
            assert_eq!(ProcessIdentity::read(pid).unwrap(), Some(task));
        });

        // No agent watches while the task ends.
        let process = PidFd::open_identity(task).unwrap().unwrap();
        std::fs::write(&go, "").unwrap();
        assert!(process.wait_exit(Some(TIMEOUT)).unwrap());

        with_agent(async {
            let driver = world.driver();
            driver.recover(handle.clone()).await.unwrap();
            let result = driver.wait(&id).await.unwrap();
            assert_eq!((result.exit_code, result.err), (7, None));
        });
        let output = world.output("t");
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines.last(), Some(&"last"));
        let whole =
            lines[..lines.len() - 1].iter().enumerate().all(|(i, line)| *line == format!("line {}", i + 1));
        assert!(whole, "the log has gaps");
    }
}

#[tokio::test]
async fn a_killed_supervisor_means_a_lost_task_of_which_nothing_is_left() {
    for kind in [Kind::Raw, Kind::Exec] {
        let world = World::new(kind);
        let driver = world.driver();
        let config = world.script("t", "sleep 100000 & setsid sleep 100001 & echo up; wait");
        let (id, cgroup) = (config.id.clone(), cgroup_of(&config));
        let handle = driver.start(config).await.unwrap();
        until("output", || world.output("t") == "up\n").await;
        assert!(!cgroup.is_empty().unwrap());
        let shim = u32::try_from(handle.state["shim"]["pid"].as_u64().unwrap()).unwrap();
        PidFd::open(shim).unwrap().unwrap().send_signal(9).unwrap();
        let result = driver.wait(&id).await.unwrap();
        assert!(result.err.as_deref().is_some_and(|e| e.contains("supervisor was killed")), "{result:?}");
        assert!(cgroup.is_empty().unwrap() && !cgroup.exists(), "{kind:?}");
        // The next run of the task starts normally.
        driver.destroy(&id, false).await.unwrap();
        driver.start(world.script("t", "exit 3")).await.unwrap();
        assert_eq!(driver.wait(&id).await.unwrap().exit_code, 3);
    }
}

#[tokio::test]
async fn a_run_whose_handle_was_lost_is_ended_by_its_directory() {
    let world = World::new(Kind::Raw);
    let config = world.script("t", "sleep 100000");
    let lost = raw_exec().start(config.clone()).await.unwrap();
    let old = PidFd::open(lost.pid.unwrap()).unwrap().unwrap();
    let driver = raw_exec();
    driver.end_lost(&config.id, &config.dirs.state_dir).await.unwrap();
    assert!(old.wait_exit(Some(Duration::ZERO)).unwrap());
    // Without a run, this is no error.
    driver.end_lost(&config.id, &config.dirs.state_dir).await.unwrap();
}

#[tokio::test]
async fn a_run_whose_handle_was_lost_never_runs_beside_its_successor() {
    let world = World::new(Kind::Raw);
    let config = world.script("t", "sleep 100000");
    // The agent died before it stored the returned handle.
    let lost = raw_exec().start(config.clone()).await.unwrap();
    let old = PidFd::open(lost.pid.unwrap()).unwrap().unwrap();
    let driver = raw_exec();
    let handle = driver.start(config.clone()).await.unwrap();
    assert!(old.wait_exit(Some(Duration::ZERO)).unwrap());
    assert_eq!(driver.inspect(&config.id).await.unwrap().state, TaskState::Running);
    assert_ne!(handle.pid, lost.pid);
    driver.destroy(&config.id, true).await.unwrap();
    assert!(!config.dirs.state_dir.exists());
}

#[tokio::test]
async fn a_handle_from_before_a_restart_of_the_machine_is_a_lost_task() {
    let world = World::new(Kind::Raw);
    let config = world.script("t", "sleep 100000");
    let first = raw_exec();
    let mut handle = first.start(config.clone()).await.unwrap();
    handle.state["boot_id"] = json!("00000000-0000-0000-0000-000000000000");
    let second = raw_exec();
    second.recover(handle).await.unwrap();
    let result: ExitResult = second.wait(&config.id).await.unwrap();
    assert!(result.err.as_deref().is_some_and(|e| e.contains("restarted")), "{result:?}");
    assert_eq!(first.inspect(&config.id).await.unwrap().state, TaskState::Running);
    first.destroy(&config.id, true).await.unwrap();
}

#[tokio::test]
async fn bundled_programs_run_by_name_wherever_they_are() {
    for kind in [Kind::Raw, Kind::Exec] {
        let world = World::new(kind);
        let program = world.dir.path().join("hidden");
        std::fs::write(&program, "#!/bin/sh\necho \"bundled $1\"\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let bundled = std::collections::BTreeMap::from([("tool".to_owned(), program)]);
        let driver: Arc<dyn Driver> = match kind {
            Kind::Exec => {
                Arc::new(ExecDriver::new(ExecOptions { bundled, ..ExecOptions::default() }, shim()))
            }
            _ => {
                let options = RawExecOptions { enabled: true, bundled, ..RawExecOptions::default() };
                Arc::new(RawExecDriver::new(options, shim()))
            }
        };
        let config = world.config("t", json!({"command": "tool", "args": ["x"]}));
        driver.start(config.clone()).await.unwrap();
        driver.wait(&config.id).await.unwrap();
        assert_eq!(world.output("t"), "bundled x\n");
    }
}

#[tokio::test]
async fn a_lease_that_passes_ends_the_task_and_says_so() {
    for kind in [Kind::Raw, Kind::Exec] {
        let world = World::new(kind);
        let driver = world.driver();
        let path = world.dir.path().join("lease");
        let (lease, _) = LeaseWriter::open(&path).unwrap();
        let mut config = world.script("t", "sleep 100000");
        let began = BootTime::now();
        config.lease = Some(Term { file: path, began: began.0 });
        let error = driver.start(config.clone()).await.unwrap_err();
        assert!(error.to_string().contains("lease"), "{error}");
        // On a busy machine, a short lease has passed before the task starts.
        let mut span = Duration::from_millis(500);
        loop {
            lease.write(Lease { deadline: BootTime::now().after(span), began, heard: began }).unwrap();
            match driver.start(config.clone()).await {
                Ok(_) => break,
                Err(error) => assert!(error.to_string().contains("has passed") && span < TIMEOUT, "{error}"),
            }
            span *= 4;
        }
        let result = driver.wait(&config.id).await.unwrap();
        assert!(
            result.lease_passed
                && (result.exit_code, result.signal) == (137, 9)
                && result.err.as_deref().is_some_and(|e| e.contains("lease")),
            "{result:?}"
        );
        driver.destroy(&config.id, false).await.unwrap();
    }
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_ended_and_the_task_is_not() {
    let world = World::new(Kind::Raw);
    let driver = raw_exec();
    let config = world.script("t", "sleep 100000");
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let marker = world.dir.path().join("pid");
    let script = format!("echo $$ >{}; exec sleep 100000", marker.display());
    let command = ["sh", "-c", &script].map(str::to_owned);
    // On a slow machine, the program may not have started at the first timeout.
    for millis in [300, 3_000, 30_000] {
        let error = driver.exec(&id, &command, Duration::from_millis(millis)).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        if std::fs::read_to_string(&marker).is_ok_and(|text| text.ends_with('\n')) {
            break;
        }
    }
    let pid: u32 = read(&marker).trim().parse().unwrap();
    until("the program's end", || ProcessIdentity::read(pid).unwrap().is_none()).await;
    assert_eq!(driver.inspect(&id).await.unwrap().state, TaskState::Running);
    let failing = driver.exec(&id, &["sh".into(), "-c".into(), "exit 9".into()], TIMEOUT).await.unwrap();
    assert_eq!(failing.exit_code, 9);
    driver.destroy(&id, true).await.unwrap();
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn nothing_secret_is_in_a_handle_or_in_debug_output() {
    let world = World::new(Kind::Raw);
    let driver = raw_exec();
    let mut config = world.script("t", "sleep 100000 # s3cret");
    config.env.insert("TOKEN".into(), "s3cret".into());
    assert!(!format!("{config:?}").contains("s3cret"));
    let id = config.id.clone();
    let handle = driver.start(config).await.unwrap();
    assert!(!serde_json::to_string(&handle).unwrap().contains("s3cret"));
    assert!(!format!("{driver:?}").contains("s3cret"));
    driver.destroy(&id, true).await.unwrap();
}
