//! Container engines in separate directories, with images of this crate.

mod images;
mod registry;

use crate::{eventually, mounts_below};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub use registry::Registry;

/// The runtime of containers, which lets privileged containers start where root lacks CAP_SYS_RESOURCE.
const RUNTIME: &str = include_str!("engine/runc-without-resource");

/// The image that every engine has: busybox, with `sh`.
const IMAGE: &str = "caravan-test:1";

/// The kind of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Docker's engine. Its containers end together with the engine.
    #[default]
    Docker,
    /// Docker's engine with `live-restore`. Its containers continue without the engine.
    Live,
    /// podman's service for clients of Docker. Its containers continue without the service.
    Podman,
}

/// A running engine. Dropping the value removes its containers and ends the engine.
#[derive(Debug)]
pub struct ContainerEngine {
    dir: tempfile::TempDir,
    kind: EngineKind,
    /// Additional arguments of Docker's engine.
    arguments: Vec<String>,
    daemon: Option<Child>,
}

impl ContainerEngine {
    /// The image that every engine has: busybox, with `sh`.
    pub const IMAGE: &str = IMAGE;

    /// Starts Docker's engine and imports [`Self::IMAGE`].
    ///
    /// # Errors
    /// Fails if the engine does not respond in time, with the end of its log.
    pub fn start() -> Result<Self> {
        Self::start_kind(EngineKind::Docker)
    }

    /// Starts an engine and imports [`Self::IMAGE`].
    ///
    /// # Errors
    /// Fails if the engine does not respond in time, with the end of its log.
    pub fn start_kind(kind: EngineKind) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("caravan-engine-").tempdir()?;
        let runtime = dir.path().join("runc-without-resource");
        fs::write(&runtime, RUNTIME)?;
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755))?;
        let mut engine = Self { dir, kind, arguments: Vec::new(), daemon: None };
        engine.configure(&runtime)?;
        engine.resume()?;
        engine.import_busybox()?;
        Ok(engine)
    }

    fn configure(&self, runtime: &Path) -> Result<()> {
        let shown = |name: &str| self.path(name).display().to_string();
        match self.kind {
            EngineKind::Docker | EngineKind::Live => {
                let config = serde_json::json!({
                    "default-runtime": "reduced", "runtimes": {"reduced": {"path": runtime}},
                    "live-restore": self.kind == EngineKind::Live,
                });
                fs::write(self.path("daemon.json"), config.to_string())?;
            }
            EngineKind::Podman => {
                let storage = format!(
                    "[storage]\ndriver = \"vfs\"\ngraphroot = {:?}\nrunroot = {:?}\n",
                    shown("data"),
                    shown("run")
                );
                fs::write(self.path("storage.conf"), storage)?;
                let engine = format!(
                    "[engine]\nruntime = \"reduced\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n\
                     tmp_dir = {:?}\n[engine.runtimes]\nreduced = [{:?}]\n\
                     [containers]\nlog_driver = \"k8s-file\"\n",
                    shown("tmp"),
                    runtime.display().to_string()
                );
                fs::write(self.path("containers.conf"), engine)?;
                let registries = "unqualified-search-registries = [\"docker.io\"]\n";
                fs::write(self.path("registries.conf"), registries)?;
            }
        }
        Ok(())
    }

    /// Returns the command that runs the engine.
    fn command(&self) -> Command {
        match self.kind {
            EngineKind::Docker | EngineKind::Live => {
                let mut command = Command::new("dockerd");
                for (option, file) in [
                    ("--config-file", "daemon.json"),
                    ("--data-root", "data"),
                    ("--exec-root", "exec"),
                    ("--pidfile", "pid"),
                ] {
                    command.arg(option).arg(self.path(file));
                }
                command.args(["-H", &self.endpoint()]);
                command.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
                command.args(&self.arguments);
                command
            }
            EngineKind::Podman => {
                let mut command = Command::new("podman");
                command.args(["system", "service", "--time=0", &self.endpoint()]);
                for (variable, file) in [
                    ("CONTAINERS_STORAGE_CONF", "storage.conf"),
                    ("CONTAINERS_CONF", "containers.conf"),
                    ("CONTAINERS_REGISTRIES_CONF", "registries.conf"),
                ] {
                    command.env(variable, self.path(file));
                }
                command
            }
        }
    }

    /// Starts the engine, after [`Self::halt`] or [`Self::kill`].
    ///
    /// # Errors
    /// Fails if the engine does not respond in time, with the end of its log.
    pub fn resume(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.path("log"))?;
        // The socket of a killed service still exists.
        let _absent = fs::remove_file(self.socket());
        let daemon = self
            .command()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start the engine (packages docker.io and podman)")?;
        self.daemon = Some(daemon);
        eventually("the engine to answer", || {
            if let Some(status) = self.daemon.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("the engine ended with {status}");
            }
            UnixStream::connect(self.socket())?;
            Ok(())
        })
        .and_then(|()| self.docker(&["version"]).map(drop))
        .with_context(|| self.log_tail())
    }

    /// Restarts Docker's engine with additional arguments, such as another address.
    ///
    /// # Errors
    /// Fails if the engine does not end, or does not respond in time.
    pub fn listen(&mut self, arguments: &[&str]) -> Result<()> {
        self.halt()?;
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self.resume()
    }

    /// Ends the engine; the containers of [`EngineKind::Docker`] end together with it.
    ///
    /// # Errors
    /// Fails if the engine does not end in time.
    pub fn halt(&mut self) -> Result<()> {
        self.end("TERM")
    }

    /// Kills the engine. Its containers continue, but the next engine of [`EngineKind::Docker`] ends them.
    ///
    /// # Errors
    /// Fails if the engine does not end in time.
    pub fn kill(&mut self) -> Result<()> {
        self.end("KILL")?;
        // These files keep the next engine from starting while the processes are zombies.
        for name in ["pid", "exec/containerd/containerd.pid"] {
            let _absent = fs::remove_file(self.path(name));
        }
        Ok(())
    }

    fn end(&mut self, signal: &str) -> Result<()> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let sent = Command::new("kill").args([&format!("-{signal}"), &daemon.id().to_string()]).status()?;
        ensure!(sent.success(), "kill: {sent}");
        eventually("the engine to end", || daemon.try_wait()?.context("it runs"))?;
        Ok(())
    }

    /// Allows a registry without TLS. Docker's engine allows every registry on a loopback address.
    ///
    /// # Errors
    /// Fails if the engine does not start again.
    pub fn trust(&mut self, registry: &Registry) -> Result<()> {
        if self.kind != EngineKind::Podman {
            return Ok(());
        }
        let mut file = File::options().append(true).open(self.path("registries.conf"))?;
        writeln!(file, "[[registry]]\nlocation = {:?}\ninsecure = true", registry.address())?;
        self.kill()?;
        self.resume()
    }

    /// Stops the engine's process, so that it does not respond, or lets it continue.
    ///
    /// # Errors
    /// Fails if the engine does not run.
    pub fn freeze(&self, is_frozen: bool) -> Result<()> {
        let pid = self.pid().context("the engine runs")?;
        let signal = if is_frozen { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &pid.to_string()]).status()?;
        ensure!(sent.success(), "kill: {sent}");
        Ok(())
    }

    /// Returns the id of the engine's process.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Returns the engine's address for the option `endpoint`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns the path of the engine's socket.
    pub fn socket(&self) -> PathBuf {
        self.path("docker.sock")
    }

    /// Runs a command of the `docker` program on this engine and returns its output.
    ///
    /// # Errors
    /// Fails if the command fails, with its messages.
    pub fn docker(&self, arguments: &[&str]) -> Result<String> {
        self.docker_as(&self.path("login"), arguments)
    }

    /// Runs a command of the `docker` program with the credentials of a directory.
    ///
    /// # Errors
    /// Fails if the command fails, with its messages.
    pub fn docker_as(&self, login: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("docker");
        command.arg("--config").arg(login).args(["-H", &self.endpoint()]).args(arguments);
        let output = command.output().context("run docker (package docker.io)")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "docker {arguments:?}: {errors}");
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Returns the names of all containers, sorted.
    ///
    /// # Errors
    /// Fails if the engine does not respond.
    pub fn containers(&self) -> Result<Vec<String>> {
        let text = self.docker(&["ps", "-a", "--format", "{{.Names}}"])?;
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().rev().take(15).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for ContainerEngine {
    fn drop(&mut self) {
        let _not_frozen = self.freeze(false);
        if self.daemon.is_none() {
            // Containers of a killed engine continue until an engine ends them.
            let _best_effort = self.resume();
        }
        if let Ok(ids) = self.docker(&["ps", "-aq"]) {
            let ids: Vec<&str> = ids.lines().collect();
            if !ids.is_empty() {
                let _best_effort = self.docker(&[&["rm", "-f"], ids.as_slice()].concat());
            }
        }
        let _best_effort = self.halt();
        let below = mounts_below(&self.dir.path().display().to_string()).unwrap_or_default();
        for mount in below.iter().rev() {
            let _best_effort = Command::new("umount").args(["-l", mount]).status();
        }
    }
}
