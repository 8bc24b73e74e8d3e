//! A registry of images that requires a user and a password.

use super::ContainerEngine;
use crate::agent::free_port;
use crate::eventually;
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The line of [`Registry::USER`] and [`Registry::PASSWORD`] for htpasswd(1), by bcrypt.
const ACCOUNT: &str = "caravan:$2y$04$Uq1MLQM2fLC.eTIXgEBqzOgttfzhObtmBau9Pd1/ZxwJcT7FrBfu.\n";

/// [`Registry::USER`] and [`Registry::PASSWORD`] with a colon between, in base64.
const LOGIN: &str = "Y2FyYXZhbjpodW50ZXItNw==";

/// A running registry on a loopback address. It ends when dropped.
#[derive(Debug)]
pub struct Registry {
    dir: tempfile::TempDir,
    address: String,
    process: Child,
}

impl Registry {
    /// The name of the only user.
    pub const USER: &str = "caravan";
    /// The user's password.
    pub const PASSWORD: &str = "hunter-7";

    /// Starts a registry without images.
    ///
    /// # Errors
    /// Fails if the registry does not listen in time, with its log.
    pub fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("caravan-registry-").tempdir()?;
        let address = format!("127.0.0.1:{}", free_port()?);
        fs::write(dir.path().join("htpasswd"), ACCOUNT)?;
        let config = serde_json::json!({
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": dir.path().join("data")}},
            "http": {"addr": address},
            "auth": {"htpasswd": {"realm": "test", "path": dir.path().join("htpasswd")}},
        });
        // JSON is YAML.
        fs::write(dir.path().join("config.yml"), config.to_string())?;
        let log = File::create(dir.path().join("log"))?;
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(dir.path().join("config.yml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start docker-registry (package docker-registry)")?;
        let mut this = Self { dir, address, process };
        let listens = eventually("the registry to listen", || {
            if let Some(status) = this.process.try_wait()? {
                bail!("docker-registry ended with {status}");
            }
            TcpStream::connect(&this.address)?;
            Ok(())
        });
        listens.with_context(|| fs::read_to_string(this.dir.path().join("log")).unwrap_or_default())?;
        Ok(this)
    }

    /// Returns the host and port, as in the name of an image.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Suspends the registry: requests wait until [`Self::resume`].
    ///
    /// # Errors
    /// Fails if the registry has ended.
    pub fn suspend(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Continues the registry after [`Self::suspend`].
    ///
    /// # Errors
    /// Fails if the registry has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.process.id())?), signal)?)
    }

    /// Uploads an image of an engine as `<address>/<name>`, and removes it from the engine. Returns the new name.
    ///
    /// # Errors
    /// Fails if the engine or the registry refuses.
    pub fn take(&self, engine: &ContainerEngine, image: &str, name: &str) -> Result<String> {
        let full = format!("{}/{name}", self.address);
        engine.docker(&["tag", image, &full])?;
        let config = self.login()?;
        let pushed = engine.docker_as(&config, &["push", &full]);
        engine.docker(&["rmi", &full])?;
        pushed.map(|_| full)
    }

    /// Returns a directory with a `config.json` of the user, in the form of `docker login`.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn login(&self) -> Result<std::path::PathBuf> {
        let dir = self.dir.path().join("login");
        fs::create_dir_all(&dir)?;
        let config = serde_json::json!({"auths": {&self.address: {"auth": LOGIN}}});
        fs::write(dir.join("config.json"), config.to_string())?;
        Ok(dir)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}
