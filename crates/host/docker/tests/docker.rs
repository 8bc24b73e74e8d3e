//! Runs the conformance suite against the driver with a real engine, and tests what only containers do.

mod containers;
mod engines;
mod images;
mod leases;
mod networks;
mod programs;

use caravan_docker::{DockerDriver, DockerOptions};
use caravan_drivers::conformance::{self, Behaviour, Fixture};
use caravan_drivers::{
    Driver, Error, ExecEvent, ExecInput, ExecRequest, ExecStream, Health, LogConfig, Mount, Port, Processors,
    Propagation, Resources, ShimCommand, TaskConfig, TaskDirs, TaskId, TaskState,
};
use caravan_shim::lease::{Lease, LeaseWriter, Term};
use caravan_sys::time::BootTime;
use caravan_testkit::{ContainerEngine, EngineKind};
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
    kind: EngineKind,
}

static WORLDS: AtomicU32 = AtomicU32::new(0);

impl World {
    fn new() -> Self {
        Self::with(json!({}))
    }

    fn with(options: Value) -> Self {
        Self::of(EngineKind::Docker, options)
    }

    fn of(kind: EngineKind, mut options: Value) -> Self {
        let engine = ContainerEngine::of(kind).unwrap();
        options["endpoint"] = engine.endpoint().into();
        let alloc = format!("test-{}-{}", std::process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
        Self { dir: tempfile::tempdir().unwrap(), engine, alloc, options, kind }
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
        self.docker_with(DockerOptions::read(&self.options).unwrap())
    }

    fn docker_with(&self, options: DockerOptions) -> DockerDriver {
        let shim = ShimCommand { program: env!("CARGO_BIN_EXE_caravan-docker-shim").into(), args: vec![] };
        DockerDriver::new(options, "node-1", shim)
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
            // podman's service loses lines of megabytes that arrive at once (docs/gaps.md).
            Behaviour::Flood if self.kind == EngineKind::Podman => return None,
            Behaviour::Flood => {
                let mut config = self.script(name, &conformance::script(Behaviour::Flood)?);
                // An engine that rotates its own copy faster than it delivers it loses lines.
                config.driver_config["logging"] =
                    json!({"type": "json-file", "config": {"max-size": "100m"}});
                config
            }
            scripted => self.script(name, &conformance::script(scripted)?),
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
async fn docker_conforms_with_podman() {
    let world = World::of(EngineKind::Podman, json!({}));
    conformance::check_all(&world).await.unwrap();
    assert_eq!(world.engine.containers().unwrap(), Vec::<String>::new(), "no container is left");
}
