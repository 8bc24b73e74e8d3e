//! An agent's side of a plugin, and the directories of an allocation.

use anyhow::{Context as _, Result, bail, ensure};
use caravan_proto::plugins::base::base_plugin_client::BasePluginClient;
use caravan_proto::plugins::base::{NomadConfig, NomadDriverConfig, SetConfigRequest};
use caravan_proto::plugins::device::device_plugin_client::DevicePluginClient;
use caravan_proto::plugins::driver::driver_client::DriverClient;
use caravan_proto::plugins::driver::{
    DestroyTaskRequest, ExitResult, StartTaskRequest, TaskConfig, TaskHandle, WaitTaskRequest,
};
use caravan_sys::process::{PidFd, ProcessIdentity};
use caravan_testkit::eventually;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::Future;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// The deadline of a call, which only a hang reaches.
const DEADLINE: Duration = Duration::from_secs(60);
pub const COOKIE: (&str, &str) =
    ("NOMAD_PLUGIN_MAGIC_COOKIE", "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255");

/// Waits for a future that only a hang delays to the deadline.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("the call ends before the deadline")
}

/// Returns the program of an example. `cargo test` without a selection of targets builds it.
pub fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: run cargo build --examples -p caravan-plugin-sdk", path.display());
    path
}

/// A running plugin.
pub struct Plugin {
    pub child: Child,
    pub line: String,
    pub socket: PathBuf,
    pub log: PathBuf,
    pub channel: Channel,
}

impl Plugin {
    /// Starts an example with its socket and its log in `dir`, and connects.
    pub async fn start(name: &str, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let mut child = Command::new(example(name))
            .env(COOKIE.0, COOKIE.1)
            .env("PLUGIN_PROTOCOL_VERSIONS", "2")
            .env("PLUGIN_MIN_PORT", "10000")
            .env("PLUGIN_MAX_PORT", "25000")
            .env("PLUGIN_UNIX_SOCKET_DIR", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(&log)?)
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut line)?;
        let fields: Vec<&str> = line.trim_end_matches('\n').split('|').collect();
        let ["1", "2", "unix", socket, "grpc", ""] = fields[..] else {
            bail!("handshake {line:?}, log {}", fs::read_to_string(&log)?);
        };
        let socket = PathBuf::from(socket);
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
        let channel = within(endpoint.connect()).await?;
        Ok(Self { child, line: line.clone(), socket, log, channel })
    }

    pub fn base(&self) -> BasePluginClient<Channel> {
        BasePluginClient::new(self.channel.clone())
    }

    pub fn driver(&self) -> DriverClient<Channel> {
        DriverClient::new(self.channel.clone())
    }

    pub fn device(&self) -> DevicePluginClient<Channel> {
        DevicePluginClient::new(self.channel.clone())
    }

    /// Sends a configuration.
    pub async fn configure(&self, config: &Value) -> Result<(), tonic::Status> {
        let driver = NomadDriverConfig { client_min_port: 14000, client_max_port: 14512, topology: None };
        let request = SetConfigRequest {
            msgpack_config: rmp_serde::to_vec_named(config).unwrap(),
            nomad_config: Some(NomadConfig { driver: Some(driver) }),
            plugin_api_version: "v0.1.0".into(),
        };
        within(self.base().set_config(request)).await.map(|_| ())
    }

    /// Sends a signal.
    pub fn signal(&self, number: i32) {
        let process = PidFd::open(self.child.id()).unwrap().unwrap();
        assert!(process.send_signal(number).unwrap());
    }

    /// Kills the plugin without a warning.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the process has ended by itself, and returns its exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let status = eventually("the plugin ends", || self.child.try_wait()?.context("it runs")).unwrap();
        status.code()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A started driver.
pub async fn driver(dir: &Path) -> Plugin {
    let plugin = Plugin::start("exampledriver", dir).await.unwrap();
    plugin.configure(&json!({ "enabled": true })).await.unwrap();
    plugin
}

/// The directories of an allocation, and the tasks that were started in them.
pub struct Alloc {
    pub dir: TempDir,
    started: Mutex<Vec<ProcessIdentity>>,
}

/// The output of a task so far.
#[derive(Clone, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits for a text.
    pub fn wait_for(&self, text: &str) {
        eventually(text, || {
            let found = self.text();
            ensure!(found.contains(text), "the output is {found:?}");
            Ok(())
        })
        .unwrap();
    }

    /// Reads a FIFO as the agent's log collection does.
    fn read(&self, fifo: &Path) {
        let (fifo, written) = (fifo.to_owned(), Arc::clone(&self.0));
        std::thread::spawn(move || {
            let Ok(mut file) = File::open(fifo) else { return };
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = file.read(&mut buffer) {
                written.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
    }
}

/// A task to start, with its output.
pub struct Prepared {
    pub config: TaskConfig,
    pub stdout: Written,
    pub stderr: Written,
}

impl Alloc {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("alloc/logs")).unwrap();
        Self { dir, started: Mutex::default() }
    }

    /// Prepares a task that runs a shell script.
    pub fn script(&self, name: &str, script: &str) -> Prepared {
        self.task(name, &json!({ "command": "/bin/sh", "args": ["-c", script] }))
    }

    /// Prepares a task with this configuration.
    pub fn task(&self, name: &str, config: &Value) -> Prepared {
        let root = self.dir.path();
        fs::create_dir_all(root.join(name).join("local")).unwrap();
        let output = |kind: &str| {
            let fifo = root.join(format!("alloc/logs/.{name}.{kind}.fifo"));
            mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
            let written = Written::default();
            written.read(&fifo);
            (fifo.display().to_string(), written)
        };
        let ((stdout_path, stdout), (stderr_path, stderr)) = (output("stdout"), output("stderr"));
        let env = [("PATH", "/usr/bin:/bin"), ("GREETING", "hello")];
        let env: BTreeMap<String, String> =
            env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let config = TaskConfig {
            id: format!("7c2b/{name}/0a1b2c3d"),
            name: name.into(),
            alloc_id: "7c2b".into(),
            job_id: "example".into(),
            msgpack_driver_config: rmp_serde::to_vec_named(config).unwrap(),
            env,
            alloc_dir: root.display().to_string(),
            stdout_path,
            stderr_path,
            ..TaskConfig::default()
        };
        Prepared { config, stdout, stderr }
    }

    /// Starts a task.
    pub async fn start(&self, plugin: &Plugin, config: &TaskConfig) -> Result<TaskHandle, tonic::Status> {
        let request = StartTaskRequest { task: Some(config.clone()) };
        let response = within(plugin.driver().start_task(request)).await?.into_inner();
        let handle = response.handle.expect("a started task has a handle");
        let task = process(&handle, "task");
        self.started.lock().unwrap().push(task);
        Ok(handle)
    }
}

impl Drop for Alloc {
    fn drop(&mut self) {
        for process in self.started.lock().unwrap().drain(..) {
            if let Ok(Some(process)) = PidFd::open_identity(process) {
                let _sent = process.send_signal(9);
                let _ended = process.wait_exit(Some(DEADLINE));
            }
        }
    }
}

/// Reads a process from the example's state.
pub fn process(handle: &TaskHandle, role: &str) -> ProcessIdentity {
    let state: Value = rmp_serde::from_slice(&handle.driver_state).unwrap();
    let number = |key: &str| state[role][key].as_u64().unwrap();
    ProcessIdentity { pid: u32::try_from(number("pid")).unwrap(), start_time: number("start_time") }
}

/// Waits for the end of a task.
pub async fn wait(plugin: &Plugin, id: &str) -> Result<ExitResult, tonic::Status> {
    let request = WaitTaskRequest { task_id: id.into() };
    let response = within(plugin.driver().wait_task(request)).await?.into_inner();
    assert_eq!(response.err, "");
    Ok(response.result.expect("an ended task has a result"))
}

/// Destroys a task.
pub async fn destroy(plugin: &Plugin, id: &str, force: bool) -> Result<(), tonic::Status> {
    let request = DestroyTaskRequest { task_id: id.into(), force };
    within(plugin.driver().destroy_task(request)).await.map(|_| ())
}
