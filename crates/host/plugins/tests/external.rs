//! The conformance suite with a driver of a real plugin, and tests of features that only external plugins have.

mod catalog;
mod outages;

use caravan_drivers::conformance::{self, Behaviour, Fixture, Outages, Part};
use caravan_drivers::{Driver, DriverEvent, Health, ShimCommand, TaskConfig, TaskHandle};
use caravan_plugins::{Allowed, Block, Catalog, Options, Timing};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(120);
const DRIVER: &str = "exampledriver";

/// The directories of an agent with plugins, and of one allocation.
struct World {
    dir: tempfile::TempDir,
    blocks: BTreeMap<String, Block>,
    timing: Timing,
}

impl World {
    /// Returns an agent's directories with the example driver in `plugin_dir`.
    fn new() -> Self {
        let world =
            Self { dir: tempfile::tempdir().unwrap(), blocks: BTreeMap::new(), timing: Timing::default() };
        std::fs::create_dir(world.dir.path().join("plugins")).unwrap();
        world.with(DRIVER, json!({}))
    }

    /// Adds an example plugin with a configuration.
    fn with(mut self, example: &str, config: Value) -> Self {
        std::fs::copy(caravan_testkit::example_plugin(example), self.program(example)).unwrap();
        self.blocks.insert(example.into(), Block { config, ..Block::default() });
        self
    }

    /// Adds a program with a script as its content.
    fn with_script(mut self, name: &str, script: &str, mode: u32) -> Self {
        std::fs::write(self.program(name), script).unwrap();
        std::fs::set_permissions(self.program(name), std::fs::Permissions::from_mode(mode)).unwrap();
        self.blocks.insert(name.into(), Block::default());
        self
    }

    fn program(&self, name: &str) -> PathBuf {
        self.dir.path().join("plugins").join(name)
    }

    fn options(&self) -> Options {
        Options {
            plugin_dir: Some(self.dir.path().join("plugins")),
            is_configured: true,
            blocks: self.blocks.clone(),
            state_dir: self.dir.path().join("state"),
            shim: ShimCommand { program: env!("CARGO_BIN_EXE_caravan-plugin-shim").into(), args: vec![] },
            built_in: ["raw_exec".to_owned()].into(),
            allowed: Allowed::default(),
            cores: vec![0],
            timing: self.timing,
        }
    }

    /// Returns the plugins as a new process of the agent finds them.
    async fn catalog(&self) -> Catalog {
        Catalog::load(&self.options()).await
    }

    /// Returns the driver as a new process of the agent creates it.
    async fn external(&self) -> Arc<dyn Driver> {
        driver(&self.catalog().await, "example")
    }

    /// Returns the id of the plugin's process.
    fn pid(&self, name: &str) -> u32 {
        let record = self.dir.path().join("state").join(name).join("process.json");
        let record: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
        u32::try_from(record["pid"].as_u64().unwrap()).unwrap()
    }

    fn config(&self, name: &str, driver_config: Value) -> TaskConfig {
        let mut task = conformance::sample_with_dirs(self.dir.path(), "alloc", name, driver_config).unwrap();
        task.dirs.state_dir = self.dir.path().join("tasks").join(name);
        task
    }

    fn script(&self, name: &str, script: &str) -> TaskConfig {
        self.config(name, json!({"command": "/bin/sh", "args": ["-c", script]}))
    }

    fn output(&self, name: &str) -> String {
        let logs = self.dir.path().join("alloc/alloc/logs");
        std::fs::read_to_string(logs.join(format!("{name}.stdout.0"))).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for name in self.blocks.keys() {
            let record = self.dir.path().join("state").join(name).join("process.json");
            if record.exists() {
                kill(self.pid(name), rustix::process::Signal::KILL);
            }
        }
    }
}

/// Sends a signal to a process that this test started.
fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    let _gone = rustix::process::kill_process(pid, signal);
}

fn driver(catalog: &Catalog, name: &str) -> Arc<dyn Driver> {
    let found = catalog.drivers.iter().find(|driver| driver.name() == name);
    Arc::clone(found.unwrap_or_else(|| panic!("no driver {name}: {:?}", catalog.broken)))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns whether a process exists and has not ended.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
}

impl Fixture for World {
    fn driver(&self) -> Arc<dyn Driver> {
        block_on(self.external())
    }

    fn task(&self, name: &str, behaviour: Behaviour) -> Option<TaskConfig> {
        Some(match behaviour {
            Behaviour::Exit(code) => self.script(name, &format!("exit {code}")),
            Behaviour::Hello => self.script(name, "echo hello"),
            Behaviour::RunForever => self.config(name, json!({"command": "/bin/sleep", "args": ["100000"]})),
            // An ignored signal stays ignored after execve(2).
            Behaviour::Stubborn => self.script(name, "trap '' INT TERM; echo deaf; exec sleep 100000"),
            Behaviour::CannotStart => self.config(name, json!({"command": "/no/such/program"})),
            scripted => self.script(name, &conformance::script(scripted)?),
        })
    }
}

impl Outages for World {
    fn parts(&self) -> Vec<(Part, bool)> {
        vec![(Part::Plugin, true), (Part::Collector, true)]
    }

    fn kill(&mut self, part: Part, handle: &TaskHandle) -> Result<(), String> {
        if part == Part::Plugin {
            kill(self.pid(DRIVER), rustix::process::Signal::KILL);
            return Ok(());
        }
        let dir = handle.state["state_dir"].as_str().ok_or("the handle names no directory")?;
        let record =
            std::fs::read(Path::new(dir).join("collector.json")).map_err(|error| error.to_string())?;
        let record: Value = serde_json::from_slice(&record).map_err(|error| error.to_string())?;
        let pid = record["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        kill(pid.ok_or("the record names no process")?, rustix::process::Signal::KILL);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_driver_gets_over_outages() {
    conformance::check_outages(&mut World::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_driver_conforms() {
    let world = World::new();
    conformance::check_all(&world).await.unwrap();
}
