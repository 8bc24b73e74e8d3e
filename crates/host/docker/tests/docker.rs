//! Runs the conformance suite against the driver with a real engine, and tests what only containers do.

use caravan_docker::{DockerDriver, DockerOptions};
use caravan_drivers::conformance::{self, Behaviour, Fixture};
use caravan_drivers::{
    Driver, Error, ExecEvent, ExecInput, ExecRequest, ExecStream, Health, LogConfig, Mount, Port, Processors,
    Propagation, Resources, ShimCommand, TaskConfig, TaskDirs, TaskId, TaskState,
};
use caravan_shim::lease::{Lease, LeaseWriter, Term};
use caravan_sys::time::BootTime;
use caravan_testkit::ContainerEngine;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(120);

/// A script that ends at SIGTERM; the first process of a PID namespace ignores the signal otherwise.
const FOREVER: &str = "trap 'exit 7' TERM; sleep 100000 & wait";

/// An engine with the directories of one allocation.
struct World {
    dir: tempfile::TempDir,
    engine: ContainerEngine,
    alloc: String,
    options: Value,
}

static WORLDS: AtomicU32 = AtomicU32::new(0);

impl World {
    fn new() -> Self {
        Self::with(json!({}))
    }

    fn with(mut options: Value) -> Self {
        let engine = ContainerEngine::start().unwrap();
        options["endpoint"] = engine.endpoint().into();
        let alloc = format!("test-{}-{}", std::process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
        Self { dir: tempfile::tempdir().unwrap(), engine, alloc, options }
    }

    fn config(&self, name: &str, driver_config: Value) -> TaskConfig {
        let base = self.dir.path().join(&self.alloc);
        let (shared, task_dir) = (base.join("alloc"), base.join(name));
        for dir in [shared.join("logs"), task_dir.join("local"), task_dir.join("secrets")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let mut all = json!({"image": ContainerEngine::IMAGE, "network_mode": "none"});
        all.as_object_mut().unwrap().extend(driver_config.as_object().unwrap().clone());
        TaskConfig {
            id: TaskId(format!("{}/{name}/1", self.alloc)),
            alloc_id: self.alloc.clone(),
            task_name: name.into(),
            job_id: "job".into(),
            job_name: "the job".into(),
            parent_job_id: String::new(),
            group_name: "group".into(),
            namespace: "default".into(),
            node_id: "node-1".into(),
            node_name: "node".into(),
            driver_config: all,
            env: [("GREETING".into(), "hello".into())].into(),
            resources: Resources { cpu_mhz: 100, memory_mb: 64, memory_max_mb: None, node_cpu_mhz: 4000 },
            processors: Processors::Any,
            ports: Vec::new(),
            mounts: Vec::new(),
            devices: Vec::new(),
            device_env: Default::default(),
            user: None,
            dirs: TaskDirs {
                state_dir: self.dir.path().join("state").join(name),
                shared_alloc_dir: shared.clone(),
                task_dir,
            },
            logs: Some(LogConfig {
                dir: shared.join("logs"),
                stdout: format!("{name}.stdout"),
                stderr: format!("{name}.stderr"),
                max_files: 3,
                max_file_size_mb: 1,
            }),
            network: None,
            cgroup_parent: PathBuf::from("caravan-test"),
            lease: None,
            privileged_mounts: false,
        }
    }

    fn script(&self, name: &str, script: &str) -> TaskConfig {
        self.config(name, json!({"command": "sh", "args": ["-c", script]}))
    }

    fn output(&self, name: &str) -> String {
        let logs = self.dir.path().join(&self.alloc).join("alloc/logs");
        std::fs::read_to_string(logs.join(format!("{name}.stdout.0"))).unwrap_or_default()
    }

    fn docker(&self) -> DockerDriver {
        let shim = ShimCommand { program: env!("CARGO_BIN_EXE_caravan-docker-shim").into(), args: vec![] };
        DockerDriver::new(DockerOptions::read(&self.options).unwrap(), "node-1", shim)
    }

    fn inspect(&self, task: &str, format: &str) -> String {
        self.engine.docker(&["inspect", "-f", format, &format!("{task}-{}", self.alloc)]).unwrap()
    }
}

impl Fixture for World {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::new(self.docker())
    }

    fn task(&self, name: &str, behaviour: Behaviour) -> Option<TaskConfig> {
        Some(match behaviour {
            Behaviour::Exit(code) => self.script(name, &format!("exit {code}")),
            Behaviour::Hello => self.script(name, "echo hello"),
            Behaviour::RunForever => self.script(name, FOREVER),
            Behaviour::Stubborn => self.script(name, "trap '' TERM; echo deaf; exec sleep 100000"),
            Behaviour::CannotStart => self.config(name, json!({"command": "/no/such/program"})),
        })
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_conforms() {
    let world = World::new();
    conformance::check_all(&world).await.unwrap();
    assert_eq!(world.engine.containers().unwrap(), Vec::<String>::new(), "no container is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_what_its_job_grants() {
    let world =
        World::with(json!({"extra_labels": ["job*", "task_name"], "allow_caps": ["chown", "net_raw"]}));
    let driver = world.docker();
    let volume = world.dir.path().join("volume:with a colon");
    std::fs::create_dir(&volume).unwrap();
    std::fs::write(volume.join("data"), "kept\n").unwrap();
    let mut config = world.config(
        "t",
        json!({"command": "sh", "args": ["-c", "cat /srv/data; touch /srv/x || echo ro; touch /alloc/logs/x || echo ro;
            echo $GREETING >/local/made; id -u; sleep 60"], "labels": [{"a": "b"}], "cap_add": ["net_raw"],
            "cap_drop": ["chown"], "ulimit": {"nofile": "100:200"}, "hostname": "h", "work_dir": "/tmp",
            "mount": [{"type": "tmpfs", "target": "/t", "tmpfs_options": [{"size": 4096}]}], "pids_limit": 50}),
    );
    config.user = Some("nobody".into());
    config.resources.memory_max_mb = Some(128);
    config.mounts.push(Mount {
        host_path: volume,
        task_path: "/srv".into(),
        read_only: true,
        propagation: Propagation::Private,
    });
    std::fs::set_permissions(
        config.dirs.task_dir.join("local"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let id = config.id.clone();
    let handle = driver.start(config.clone()).await.unwrap();
    assert!(handle.pid.is_some());
    until("its output", || world.output("t").ends_with("65534\n")).await;
    assert_eq!(world.output("t"), "kept\nro\nro\n65534\n");
    assert_eq!(std::fs::read_to_string(config.dirs.task_dir.join("local/made")).unwrap(), "hello\n");
    let host = |field: &str| world.inspect("t", &format!("{{{{.HostConfig.{field}}}}}"));
    assert_eq!(host("Memory"), (128_u64 << 20).to_string());
    assert_eq!(host("MemorySwap"), host("Memory"));
    assert_eq!(host("MemoryReservation"), (64_u64 << 20).to_string());
    assert_eq!(host("CpuShares"), "100");
    assert_eq!(host("PidsLimit"), "50");
    assert_eq!(host("CapAdd"), "[NET_RAW]");
    assert!(host("CapDrop").contains("CHOWN") && host("CapDrop").contains("MKNOD"), "{}", host("CapDrop"));
    assert_eq!(host("LogConfig.Type"), "json-file");
    let labels: Value = serde_json::from_str(&world.inspect("t", "{{json .Config.Labels}}")).unwrap();
    assert_eq!(labels["com.hashicorp.nomad.job_name"], "the job");
    assert_eq!(labels["com.hashicorp.nomad.alloc_id"], world.alloc.as_str());
    assert_eq!((&labels["a"], labels.get("com.hashicorp.nomad.namespace")), (&json!("b"), None));
    let usage = driver.usage(&id).await.unwrap();
    assert!(usage.memory > 0 && usage.pids > 0, "{usage:?}");
    driver.destroy(&id, true).await.unwrap();
    assert!(world.engine.containers().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_does_not_allow_is_refused() {
    let world = World::new();
    let driver = world.docker();
    for (more, words) in [
        (json!({"privileged": true}), "Docker privileged mode is disabled"),
        (json!({"cap_add": ["SYS_ADMIN"]}), "does not allow the following capabilities: sys_admin"),
        (json!({"pid_mode": "host"}), "cannot apply \"pid_mode\" configuration"),
        (json!({"runtime": "kata"}), "requested runtime \"kata\" is not allowed"),
        (json!({"volumes": ["/etc:/x"]}), "volumes are not enabled; cannot mount host path: \"/etc\""),
        (json!({"volumes": ["local/../../../..:/x"]}), "volumes are not enabled"),
        (json!({"volumes": ["local/link:/x"]}), "volumes are not enabled"),
        (json!({"mount": [{"target": "/x", "source": "v"}]}), "volumes are not enabled; cannot mount volume"),
        (json!({"ports": ["http"]}), "Port \"http\" not found, check network block"),
        (json!({"image": "caravan-test:none"}), "Failed to pull"),
        (json!({"image": "UPPER"}), "does not match registry specification"),
        (json!({"memory_hard_limit": 10}), "exceed driver hard limit of 10 MB"),
    ] {
        let config = world.config("t", more.clone());
        let _there = std::os::unix::fs::symlink("/etc", config.dirs.task_dir.join("local/link"));
        let error = driver.start(config).await.unwrap_err();
        assert!(error.to_string().contains(words), "{more}: {error}");
    }
    assert!(world.engine.containers().unwrap().is_empty());
    // A container of another owner stays.
    let name = format!("t-{}", world.alloc);
    world
        .engine
        .docker(&["create", "--network", "none", "--name", &name, ContainerEngine::IMAGE, "sh"])
        .unwrap();
    let error = driver.start(world.script("t", "true")).await.unwrap_err();
    assert!(error.to_string().contains("another owner"), "{error}");
    assert_eq!(world.engine.containers().unwrap(), [name]);
}

async fn collect(stream: &mut ExecStream) -> (String, String, i32) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match tokio::time::timeout(TIMEOUT, stream.output.recv()).await.unwrap().unwrap().unwrap() {
            ExecEvent::Stdout(data) => out.extend(data),
            ExecEvent::Stderr(data) => err.extend(data),
            ExecEvent::StdoutClosed | ExecEvent::StderrClosed => {}
            ExecEvent::Exited(code) => {
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                return (text(out), text(err), code);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run_beside_a_task() {
    let world = World::new();
    let driver = world.docker();
    let config = world.script("t", FOREVER);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let request =
        |script: &str, tty| ExecRequest { command: ["sh", "-c", script].map(str::to_owned).into(), tty };
    let both = "echo out; echo err >&2; exit 43";
    let mut stream = driver.exec_stream(&id, request(both, false)).await.unwrap();
    assert_eq!(collect(&mut stream).await, ("out\n".into(), "err\n".into(), 43));
    let mut stream = driver.exec_stream(&id, request("head -n1", false)).await.unwrap();
    stream.input.send(ExecInput::Data(b"typed\n".into())).await.unwrap();
    assert_eq!(collect(&mut stream).await, ("typed\n".into(), String::new(), 0));
    let mut stream = driver.exec_stream(&id, request("cat", false)).await.unwrap();
    stream.input.send(ExecInput::Data(b"all".into())).await.unwrap();
    stream.input.send(ExecInput::Close).await.unwrap();
    assert_eq!(collect(&mut stream).await, ("all".into(), String::new(), 0));
    let mut stream = driver.exec_stream(&id, request("sleep 1; stty size", true)).await.unwrap();
    for (rows, columns) in [(50, 40), (100, 100)] {
        stream.input.send(ExecInput::Resize { rows, columns }).await.unwrap();
    }
    assert_eq!(collect(&mut stream).await.0, "100 100\r\n");
    // A program in the background does not hold the end of a terminal.
    let background = "(sleep 1000 &) ; echo main";
    let mut stream = driver.exec_stream(&id, request(background, true)).await.unwrap();
    assert_eq!(collect(&mut stream).await.0, "main\r\n");
    let command = ["sleep", "1000"].map(str::to_owned);
    let error = driver.exec(&id, &command, Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let name = format!("t-{}", world.alloc);
    until("the program to be killed", || {
        let listed = world.engine.docker(&["top", &name, "-eo", "pid,args"]).unwrap();
        listed.lines().filter(|line| line.ends_with(" sleep 1000")).count() <= 1
    })
    .await;
    driver.destroy(&id, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn output_survives_agents_and_engines() {
    let mut world = World::new();
    // The first agent has a runtime of its own, which ends with it.
    let agent = tokio::runtime::Runtime::new().unwrap();
    let driver = Arc::new(world.docker());
    let config =
        world.script("t", "i=0; while [ $i -lt 100000 ]; do echo line $i; i=$((i+1)); sleep 0.02; done");
    let id = config.id.clone();
    let starting = driver.clone();
    let handle = agent.spawn(async move { starting.start(config).await }).await.unwrap().unwrap();
    until("some output", || world.output("t").lines().count() > 20).await;
    agent.shutdown_background();
    drop(driver);
    let driver = world.docker();
    driver.recover(handle.clone()).await.unwrap();
    let before = world.output("t").lines().count();
    until("more output", || world.output("t").lines().count() > before + 20).await;
    let check = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            assert_eq!(*line, format!("line {number}"), "after {:?}", lines.get(number.saturating_sub(1)));
        }
    };
    check(&world.output("t"));
    // The engine ends, and its containers with it. That is reported when an engine is back.
    let mut events = driver.events().unwrap();
    world.engine.halt().unwrap();
    let event = tokio::time::timeout(TIMEOUT, events.recv()).await.unwrap().unwrap();
    assert!(event.message.contains("does not answer"), "{event:?}");
    assert_eq!((event.alloc_id.as_str(), event.task_name.as_str()), (world.alloc.as_str(), "t"));
    assert!(matches!(driver.inspect(&id).await.unwrap().state, TaskState::Running));
    assert_eq!(driver.fingerprint().await.state, Health::Unhealthy);
    world.engine.resume().unwrap();
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert!(!result.is_success(), "{result:?}");
    check(&world.output("t"));
    assert_eq!(driver.fingerprint().await.state, Health::Healthy);
    driver.destroy(&id, false).await.unwrap();
    assert!(world.engine.containers().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_the_engine() {
    let mut world = World::new();
    let driver = Arc::new(world.docker());
    let config = world.script("t", FOREVER);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    world.engine.kill().unwrap();
    let (stopping, stopped) = (driver.clone(), id.clone());
    let mut stop = tokio::spawn(async move { stopping.stop(&stopped, TIMEOUT, None).await });
    let waits = tokio::time::timeout(Duration::from_millis(500), &mut stop).await;
    assert!(waits.is_err(), "it does not claim an end that it cannot know");
    world.engine.resume().unwrap();
    tokio::time::timeout(TIMEOUT, stop).await.unwrap().unwrap().unwrap();
    driver.destroy(&id, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_run_is_ended_and_replaced() {
    let world = World::new();
    let first = world.docker();
    first.start(world.script("t", FOREVER)).await.unwrap();
    drop(first);
    // The agent died before it stored the handle. The next run has another id and the same name.
    let second = world.docker();
    let mut config = world.script("t", FOREVER);
    config.id = TaskId(format!("{}/t/2", world.alloc));
    let id = config.id.clone();
    second.start(config).await.unwrap();
    assert_eq!(world.engine.containers().unwrap(), [format!("t-{}", world.alloc)]);
    second.end_lost(&TaskId(format!("{}/t/1", world.alloc)), "/".as_ref()).await.unwrap();
    assert_eq!(world.engine.containers().unwrap().len(), 1, "another run stays");
    second.end_lost(&id, "/".as_ref()).await.unwrap();
    assert!(world.engine.containers().unwrap().is_empty());
    let result = tokio::time::timeout(TIMEOUT, second.wait(&id)).await.unwrap().unwrap();
    assert!(result.err.is_some(), "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_ends_with_the_lease_of_its_node() {
    let world = World::new();
    let lease_file = world.dir.path().join("lease");
    let (writer, none) = LeaseWriter::open(&lease_file).unwrap();
    let now = BootTime::now();
    let lease: Lease = none.renewed(now, Duration::from_secs(3), now);
    writer.write(lease).unwrap();
    let driver = world.docker();
    let mut config = world.script("t", "trap '' TERM; sleep 100000");
    config.lease = Some(Term { file: lease_file, began: lease.began.0 });
    let id = config.id.clone();
    driver.start(config.clone()).await.unwrap();
    assert!(matches!(driver.inspect(&id).await.unwrap().state, TaskState::Running));
    // The agent hangs: nobody renews the lease.
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert_eq!(result.exit_code, 137);
    assert!(!lease.holds(BootTime::now()), "not before the lease ran out");
    driver.destroy(&id, true).await.unwrap();
    // A lease that has run out permits no start.
    let error = driver.start(config).await.unwrap_err();
    assert!(error.to_string().contains("guard"), "{error}");
    assert!(world.engine.containers().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn out_of_memory_is_reported() {
    let world = World::new();
    let driver = world.docker();
    let mut config = world.script("t", "x=a; while true; do x=$x$x; done");
    config.resources.memory_mb = 16;
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap().unwrap();
    assert!(result.oom_killed && result.exit_code == 137, "{result:?}");
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_published_by_label() {
    let world = World::new();
    let driver = world.docker();
    let mut config = world
        .config("t", json!({"ports": ["http"], "command": "sh", "args": ["-c", "echo $NOMAD_PORT_http"]}));
    config.ports = vec![Port { label: "http".into(), value: 25_001, to: 8080, host_ip: "127.0.0.1".into() }];
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    driver.wait(&id).await.unwrap();
    assert_eq!(world.output("t"), "8080\n");
    let bindings = world.inspect("t", "{{json .HostConfig.PortBindings}}");
    assert!(
        bindings.contains("\"8080/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"25001\"}]"),
        "{bindings}"
    );
    assert!(bindings.contains("8080/udp"), "{bindings}");
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test]
async fn a_missing_engine_is_named() {
    let options = DockerOptions::read(&json!({"endpoint": "unix:///no/such/engine.sock"})).unwrap();
    let driver = DockerDriver::new(options, "node-1", ShimCommand::default());
    let found = driver.fingerprint().await;
    assert_eq!(found.state, Health::Undetected);
    assert!(found.description.contains("nothing listens at unix:///no/such/engine.sock"), "{found:?}");
}
