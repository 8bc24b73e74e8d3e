//! java: runs programs of the Java virtual machine in the isolation of exec.

use crate::config::Reader;
use crate::driver::{Capabilities, Fingerprint, FsIsolation, Health};
use crate::isolation::{self, IsolationConfig, IsolationOptions, Program};
use crate::names;
use crate::programs::{self, VersionAnswer};
use crate::supervised::{ForkServer, ShimDriver, ShimTasks, convert};
use crate::task::{TaskConfig, TaskHandle, TaskId};
use crate::{Error, Result};
use async_trait::async_trait;
use caravan_shim::TaskSpec;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "java";

/// The user of a task that names none.
const DEFAULT_USER: &str = "nobody";

/// A driver that runs Java programs in isolation from the host.
#[derive(Debug)]
pub struct JavaDriver {
    options: IsolationOptions,
    tasks: ShimTasks,
    version: VersionAnswer,
}

/// A task's `config` block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Config {
    class: Option<String>,
    class_path: Option<String>,
    jar_path: Option<String>,
    jvm_options: Vec<String>,
    args: Vec<String>,
    isolation: IsolationConfig,
}

impl Config {
    fn read(value: &Value) -> Result<Self> {
        let mut reader = Reader::new(NAME, value)?;
        let mut text = |key| reader.string(key).map(|text| text.filter(|text| !text.is_empty()));
        let (class, class_path, jar_path) = (text("class")?, text("class_path")?, text("jar_path")?);
        let config = Self {
            class,
            class_path,
            jar_path,
            jvm_options: reader.strings("jvm_options")?,
            args: reader.strings("args")?,
            isolation: IsolationConfig::read(&mut reader)?,
        };
        reader.finish()?;
        if config.class.is_none() && config.jar_path.is_none() {
            return Err(Error::Config("jar_path or class must be specified".into()));
        }
        Ok(config)
    }

    /// Returns the arguments of the virtual machine.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = self.jvm_options.clone();
        for (option, value) in [("-cp", &self.class_path), ("-jar", &self.jar_path)] {
            if let Some(value) = value {
                arguments.extend([option.to_owned(), value.clone()]);
            }
        }
        arguments.extend(self.class.iter().chain(&self.args).cloned());
        arguments
    }
}

/// The report of `java -version`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct JavaVersion {
    version: String,
    runtime: String,
    vm: String,
}

impl JavaVersion {
    /// Parses the output of `java -version`: the version, the runtime and the virtual machine on a line each. All are
    /// empty if there are fewer lines.
    fn parse(output: &str) -> Self {
        // The machine first names environment variables with options that it uses.
        let mut lines = output.lines().map(str::trim).skip_while(|line| line.starts_with("Picked up "));
        let (Some(first), Some(runtime), Some(vm)) = (lines.next(), lines.next(), lines.next()) else {
            return Self::default();
        };
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_');
        let version = first.split(|c| !is_part(c)).find(|part| !part.is_empty()).unwrap_or_default();
        Self { version: version.to_owned(), runtime: runtime.to_owned(), vm: vm.to_owned() }
    }
}

/// The virtual machine's launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Launcher {
    /// The real path of the launcher on the host.
    host: PathBuf,
    /// The path of the launcher in the root of a task.
    task: String,
}

impl JavaDriver {
    /// Creates the driver without tasks.
    pub fn new(options: IsolationOptions, shims: ForkServer) -> Self {
        Self { options, tasks: ShimTasks::new(NAME, shims), version: VersionAnswer::default() }
    }

    /// Finds the launcher on the agent's `PATH`. The virtual machine finds its own files relative to the real path, so
    /// tasks must see that path. The error is a sentence for operators.
    async fn launcher(&self) -> Result<Launcher, String> {
        let options = self.options.clone();
        let found = tokio::task::spawn_blocking(move || {
            let linked = programs::find(NAME, &programs::search_path())
                .ok_or("no program java is found on the agent's PATH")?;
            let host = linked.canonicalize().map_err(|e| format!("cannot find {}: {e}", linked.display()))?;
            let seen = options.seen(&host);
            let task = seen.as_deref().and_then(Path::to_str).ok_or_else(|| {
                format!("tasks do not see {}: chroot_env must contain its directory", host.display())
            })?;
            let task = task.to_owned();
            Ok(Launcher { host, task })
        });
        found.await.unwrap_or_else(|_| Err("the search for java was cut off".into()))
    }

    async fn spec(&self, task: &TaskConfig) -> Result<TaskSpec> {
        let config = Config::read(&task.driver_config)?;
        if task.privileged_mounts {
            return Err(Error::Unsupported {
                driver: NAME.to_owned(),
                what: "run a plugin that mounts for other tasks",
            });
        }
        let user = task.user.as_deref().filter(|user| !user.is_empty()).unwrap_or(DEFAULT_USER);
        let account = convert::account(user).await?;
        let launcher = self.launcher().await;
        let launcher = launcher.map_err(|message| Error::Start { message, recoverable: false })?;
        let program = Program { path: launcher.task, args: config.arguments(), mount: None };
        self.options.task_spec(NAME, task, &account, config.isolation, program)
    }
}

#[async_trait]
impl ShimDriver for JavaDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // As in Nomad, although both calls work.
            send_signals: false,
            exec: false,
            fs_isolation: FsIsolation::Chroot,
            mounts: true,
            privileged_mounts: false,
            networks: true,
            creates_networks: false,
            dynamic_users: false,
            names: true,
            survives_agent: true,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        let mut found = isolation::fingerprint(NAME);
        if found.state != Health::Healthy {
            return found;
        }
        let launcher = match self.launcher().await {
            Ok(launcher) => launcher,
            Err(reason) => return Fingerprint::undetected(reason),
        };
        match self.version.get(&launcher.host, "-version").await {
            Ok(output) => {
                let JavaVersion { version, runtime, vm } = JavaVersion::parse(&output);
                for (key, value) in [("version", version), ("runtime", runtime), ("vm", vm)] {
                    found.attributes.insert(format!("driver.java.{key}"), value);
                }
                found
            }
            Err(reason) => Fingerprint::undetected(reason),
        }
    }

    fn validate(&self, config: &Value) -> Result<()> {
        self.options.validate(NAME, &Config::read(config)?.isolation)
    }

    fn tasks(&self) -> &ShimTasks {
        &self.tasks
    }

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle> {
        let spec = self.spec(&config).await?;
        names::write(&config)?;
        self.tasks.start(config.id, spec).await
    }

    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        self.tasks.stop(id, timeout, signal).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_have_only_the_given_parts_in_their_order() {
        let arguments = |config: Value| Config::read(&config).unwrap().arguments().join(" ");
        assert_eq!(arguments(json!({"class": "Main"})), "Main");
        assert_eq!(arguments(json!({"jar_path": "local/a.jar", "class_path": ""})), "-jar local/a.jar");
        let all = json!({
            "class": "Main", "class_path": "/c", "jar_path": "/a.jar", "jvm_options": ["-Xmx8m", "-Xrs"],
            "args": ["-x", 1], "work_dir": "/local", "cap_add": [], "pid_mode": "host",
        });
        assert_eq!(arguments(all), "-Xmx8m -Xrs -cp /c -jar /a.jar Main -x 1");
    }

    #[test]
    fn configs_are_checked() {
        for (bad, needle) in [
            (json!({"class_path": "/c"}), "jar_path or class must be specified"),
            (json!({"class": "", "jar_path": ""}), "jar_path or class must be specified"),
            (json!({"class": "M", "command": "x"}), "driver java has no config key \"command\""),
            (json!({"class": "M", "ipc_mode": "x"}), "\"ipc_mode\" of driver java must be"),
            (json!({"class": "M", "work_dir": "x"}), "\"work_dir\" of driver java must be an absolute path"),
        ] {
            let error = Config::read(&bad).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }

    #[test]
    fn versions_are_read_from_three_lines() {
        let new = "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17)\n\
                   OpenJDK 64-Bit Server VM (build 17, mixed mode)\n";
        let expected = JavaVersion {
            version: "17.0.15".into(),
            runtime: "OpenJDK Runtime Environment (build 17)".into(),
            vm: "OpenJDK 64-Bit Server VM (build 17, mixed mode)".into(),
        };
        assert_eq!(JavaVersion::parse(new), expected);
        let with_options =
            format!("Picked up JAVA_TOOL_OPTIONS: -Xrs\nPicked up _JAVA_OPTIONS: -Xmx9m\n{new}");
        assert_eq!(JavaVersion::parse(&with_options), expected);
        let old = JavaVersion::parse("java version \"1.8.0_362\"\nJava(TM) SE\nJava HotSpot(TM)\n");
        assert_eq!((old.version.as_str(), old.vm.as_str()), ("1.8.0_362", "Java HotSpot(TM)"));
        assert_eq!(JavaVersion::parse("openjdk version \"9\"\nruntime"), JavaVersion::default());
        assert_eq!(JavaVersion::parse(""), JavaVersion::default());
        assert_eq!(JavaVersion::parse("no number\nr\nv").version, "");
    }
}
