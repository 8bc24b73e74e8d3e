//! A container engine of Docker in its own directories, with images made here.

use crate::{eventually, mounts_below};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The runtime of containers, so that privileged ones start where root lacks CAP_SYS_RESOURCE.
const RUNTIME: &str = include_str!("engine/runc-without-resource");

/// The image that every engine has: busybox, with `sh`.
const IMAGE: &str = "caravan-test:1";

/// A running engine. When dropped, its containers are removed and it ends.
#[derive(Debug)]
pub struct ContainerEngine {
    dir: tempfile::TempDir,
    daemon: Option<Child>,
}

impl ContainerEngine {
    /// The image that every engine has: busybox, with `sh`.
    pub const IMAGE: &str = IMAGE;

    /// Starts an engine and imports [`Self::IMAGE`].
    ///
    /// # Errors
    /// Fails if the engine does not answer in time, with the end of its log.
    pub fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("caravan-engine-").tempdir()?;
        let runtime = dir.path().join("runc-without-resource");
        fs::write(&runtime, RUNTIME)?;
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755))?;
        let config = serde_json::json!({
            "default-runtime": "reduced", "runtimes": {"reduced": {"path": runtime}},
        });
        fs::write(dir.path().join("daemon.json"), config.to_string())?;
        let mut engine = Self { dir, daemon: None };
        engine.resume()?;
        let root = engine.path("image");
        fs::create_dir_all(root.join("bin"))?;
        fs::create_dir_all(root.join("tmp"))?;
        fs::copy("/bin/busybox", root.join("bin/busybox"))
            .context("copy busybox (package busybox-static)")?;
        for name in
            ["sh", "sleep", "echo", "cat", "id", "stty", "ls", "true", "touch", "mount", "env", "head"]
        {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name))?;
        }
        fs::create_dir_all(root.join("etc"))?;
        fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")?;
        engine.import(&root, IMAGE, &[])?;
        Ok(engine)
    }

    /// Creates an image of a directory, with instructions such as `ENTRYPOINT`.
    ///
    /// # Errors
    /// Fails if the engine refuses the image.
    pub fn import(&self, root: &Path, name: &str, changes: &[&str]) -> Result<()> {
        let tar = self.path("image.tar");
        let packed = Command::new("tar").arg("-C").arg(root).arg("-cf").arg(&tar).arg(".").status()?;
        ensure!(packed.success(), "tar: {packed}");
        let mut arguments = vec!["import"];
        for change in changes {
            arguments.extend(["--change", change]);
        }
        let tar = tar.display().to_string();
        arguments.extend([tar.as_str(), name]);
        self.docker(&arguments).map(drop)
    }

    /// Creates an image with a dynamically linked program and its libraries, whose name is the program's.
    ///
    /// # Errors
    /// Fails if the libraries cannot be found, or the engine refuses the image.
    pub fn import_program(&self, program: &Path) -> Result<String> {
        let name = program.file_name().context("a program has a name")?.to_string_lossy().into_owned();
        let root = self.path(&format!("image-{name}"));
        fs::create_dir_all(root.join("bin"))?;
        fs::create_dir_all(root.join("tmp"))?;
        let stripped =
            Command::new("strip").arg("-o").arg(root.join("bin").join(&name)).arg(program).status()?;
        ensure!(stripped.success(), "strip: {stripped}");
        let listed = Command::new("ldd").arg(program).output()?;
        for word in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
            let library = Path::new(word);
            if library.is_absolute() {
                let copy = root.join(library.strip_prefix("/")?);
                fs::create_dir_all(copy.parent().context("a library has a directory")?)?;
                fs::copy(library, copy)?;
            }
        }
        let image = format!("{name}:1");
        self.import(&root, &image, &["ENV PATH=/bin"])?;
        Ok(image)
    }

    /// Starts the engine, after [`Self::halt`] or [`Self::kill`].
    ///
    /// # Errors
    /// Fails if the engine does not answer in time, with the end of its log.
    pub fn resume(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.path("log"))?;
        let daemon = Command::new("dockerd")
            .arg("--config-file")
            .arg(self.path("daemon.json"))
            .arg("--data-root")
            .arg(self.path("data"))
            .arg("--exec-root")
            .arg(self.path("exec"))
            .arg("--pidfile")
            .arg(self.path("pid"))
            .args(["-H", &self.endpoint(), "--iptables=false", "--ip6tables=false", "--bridge=none"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start dockerd (package docker.io)")?;
        self.daemon = Some(daemon);
        eventually("the engine to answer", || {
            if let Some(status) = self.daemon.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("dockerd ended with {status}");
            }
            UnixStream::connect(self.socket())?;
            Ok(())
        })
        .and_then(|()| self.docker(&["version"]).map(drop))
        .with_context(|| self.log_tail())
    }

    /// Ends the engine; its containers end with it.
    ///
    /// # Errors
    /// Fails if the engine does not end in time.
    pub fn halt(&mut self) -> Result<()> {
        self.end("TERM")
    }

    /// Kills the engine. Its containers go on, until the next engine ends them.
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
        let output = Command::new("docker").args(["-H", &self.endpoint()]).args(arguments).output();
        let output = output.context("run docker (package docker.io)")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "docker {arguments:?}: {errors}");
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Returns the names of all containers, sorted.
    ///
    /// # Errors
    /// Fails if the engine does not answer.
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
        if self.daemon.is_none() {
            // Containers of a killed engine go on until an engine ends them.
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
