//! Runs the conformance suite against the driver with a real engine, and tests the features that only containers
//! have.

mod containers;
mod engines;
mod images;
mod leases;
mod networks;
mod podman;
mod programs;
mod tls;

use caravan_docker::{DockerDriver, DockerOptions};
use caravan_drivers::conformance::{self, Behaviour, Fixture, Outages, Part};
use caravan_drivers::{
    Driver, Error, ExecEvent, ExecInput, ExecRequest, ExecStream, Health, Mount, Port, Processors,
    Propagation, ShimCommand, TaskConfig, TaskHandle, TaskId, TaskState,
};
use caravan_shim::lease::{Lease, LeaseWriter, Term};
use caravan_sys::time::BootTime;
use caravan_testkit::{ContainerEngine, EngineKind};
use serde_json::{Value, json};
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
        Self::with_options(EngineKind::Docker, options)
    }

    fn with_options(kind: EngineKind, mut options: Value) -> Self {
        let engine = ContainerEngine::start_kind(kind).unwrap();
        options["endpoint"] = engine.endpoint().into();
        let alloc = format!("test-{}-{}", std::process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
        Self { dir: tempfile::tempdir().unwrap(), engine, alloc, options, kind }
    }

    fn config(&self, name: &str, driver_config: Value) -> TaskConfig {
        let mut all = json!({"image": ContainerEngine::IMAGE, "network_mode": "none"});
        all.as_object_mut().unwrap().extend(driver_config.as_object().unwrap().clone());
        let mut task = conformance::sample_with_dirs(self.dir.path(), &self.alloc, name, all).unwrap();
        task.env.remove("PATH");
        task.resources.node_cpu_mhz = 4000;
        task
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
            Behaviour::Stubborn => self.script(name, "trap '' INT TERM; echo deaf; exec sleep 100000"),
            Behaviour::CannotStart => self.config(name, json!({"command": "/no/such/program"})),
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

impl Outages for World {
    fn parts(&self) -> Vec<(Part, bool)> {
        vec![(Part::Engine, self.kind != EngineKind::Docker)]
    }

    fn kill(&mut self, _part: Part, _handle: &TaskHandle) -> Result<(), String> {
        self.engine.kill().map_err(|error| error.to_string())
    }

    fn restore(&mut self, _part: Part) -> Result<(), String> {
        self.engine.resume().map_err(|error| format!("{error:#}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_gets_over_the_death_of_its_engine() {
    for kind in [EngineKind::Docker, EngineKind::Live, EngineKind::Podman] {
        let mut world = World::with_options(kind, json!({}));
        conformance::check_outages(&mut world).await.unwrap();
        assert_eq!(world.engine.containers().unwrap(), Vec::<String>::new(), "no container is left");
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
    let world = World::with_options(EngineKind::Podman, json!({}));
    conformance::check_all(&world).await.unwrap();
    assert_eq!(world.engine.containers().unwrap(), Vec::<String>::new(), "no container is left");
}
