//! The driver java, with programs of a real virtual machine.

mod class;

use super::{Kind, TIMEOUT, World, kill_shim, shim, until};
use caravan_drivers::conformance::{self, Behaviour, Fixture, Outages, Part};
use caravan_drivers::{
    Driver, ExecEvent, ExecRequest, Health, IsolationOptions, JavaDriver, TaskConfig, TaskHandle, TaskState,
};
use class::{Statement, class_file, jar_file};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

struct JavaWorld(World);

impl JavaWorld {
    fn new() -> Self {
        Self(World::new(Kind::Exec))
    }

    /// Returns a task that runs the class `Task` with these statements.
    fn program(&self, name: &str, statements: &[Statement<'_>], args: &[&str]) -> TaskConfig {
        let mut task = self.config(name, json!({"class": "Task", "class_path": "/local", "args": args}));
        task.driver_config["jvm_options"] = json!(["-Xmx16m", "-XX:+UseSerialGC", "-Dgreeting=hello"]);
        std::fs::write(task.dirs.task_dir.join("local/Task.class"), class_file(statements)).unwrap();
        task
    }

    fn config(&self, name: &str, config: Value) -> TaskConfig {
        let mut task = self.0.config(name, config);
        task.resources.memory_mb = 256;
        task
    }
}

impl Outages for JavaWorld {
    fn parts(&self) -> Vec<(Part, bool)> {
        vec![(Part::Shim, false)]
    }

    fn kill(&mut self, _part: Part, handle: &TaskHandle) -> Result<(), String> {
        kill_shim(handle)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_gets_over_the_death_of_a_shim() {
    conformance::check_outages(&mut JavaWorld::new()).await.unwrap();
}

fn java() -> Arc<dyn Driver> {
    Arc::new(JavaDriver::new(IsolationOptions::default(), shim()))
}

impl Fixture for JavaWorld {
    fn driver(&self) -> Arc<dyn Driver> {
        java()
    }

    fn task(&self, name: &str, behaviour: Behaviour) -> Option<TaskConfig> {
        let ignoring =
            [Statement::Ignore("INT"), Statement::Ignore("TERM"), Statement::Print("deaf"), Statement::Wait];
        Some(match behaviour {
            Behaviour::Exit(code) => {
                self.program(name, &[Statement::ExitWithArgument], &[code.to_string().as_str()])
            }
            Behaviour::Hello => self.program(name, &[Statement::PrintProperty("greeting")], &[]),
            Behaviour::RunForever => self.program(name, &[Statement::Wait], &[]),
            Behaviour::Stubborn => self.program(name, &ignoring, &[]),
            Behaviour::CannotStart => {
                let mut task = self.program(name, &[], &[]);
                task.driver_config["work_dir"] = json!("/no/such/dir");
                task
            }
            _ => return None,
        })
    }
}

#[tokio::test]
async fn java_conforms() {
    conformance::check_all(&JavaWorld::new()).await.unwrap();
}

#[tokio::test]
async fn a_virtual_machine_is_found_with_its_version() {
    let found = java().fingerprint().await;
    assert_eq!(found.state, Health::Healthy, "{found:?}");
    let version = &found.attributes["driver.java.version"];
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
    assert!(!found.attributes["driver.java.runtime"].is_empty());
    assert!(!found.attributes["driver.java.vm"].is_empty());
    // A task could not run a virtual machine that its root does not contain.
    let options = IsolationOptions {
        host_paths: [("/etc".into(), "/etc".into())].into(),
        ..IsolationOptions::default()
    };
    let found = JavaDriver::new(options, shim()).fingerprint().await;
    assert_eq!((found.state, found.attributes.len()), (Health::Undetected, 0));
    assert!(found.description.contains("chroot_env must contain"), "{}", found.description);
}

#[tokio::test]
async fn an_archive_runs_as_nobody_and_ends_by_the_signal_of_virtual_machines() {
    let world = JavaWorld::new();
    let driver = java();
    let config = world.config("t", json!({"jar_path": "local/app.jar", "jvm_options": ["-Xmx16m"]}));
    let class = class_file(&[Statement::PrintProperty("user.name"), Statement::Wait]);
    std::fs::write(config.dirs.task_dir.join("local/app.jar"), jar_file(&class)).unwrap();
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    until("output", || world.0.output("t") == "nobody\n").await;

    let command = ["sh", "-c", "id -u; exit 4"].map(str::to_owned);
    let request = ExecRequest { command: command.into(), tty: false };
    let mut stream = driver.exec_stream(&id, request).await.unwrap();
    let (mut output, mut code) = (Vec::new(), None);
    while let Some(event) = stream.output.recv().await {
        match event.unwrap() {
            ExecEvent::Stdout(data) => output.extend(data),
            ExecEvent::Exited(exit) => code = Some(exit),
            _ => {}
        }
    }
    assert_eq!((output.as_slice(), code), (b"65534\n".as_slice(), Some(4)));

    driver.stop(&id, TIMEOUT * 100, None).await.unwrap();
    let TaskState::Exited(result) = driver.inspect(&id).await.unwrap().state else { panic!("it runs") };
    // The machine runs its shutdown hooks and exits with 128 plus the number of SIGINT.
    assert_eq!((result.exit_code, result.signal), (130, 0));
    driver.destroy(&id, false).await.unwrap();
}

#[tokio::test]
async fn wrong_tasks_are_refused() {
    let world = JavaWorld::new();
    let driver = java();
    let refused = async |config: TaskConfig| driver.start(config).await.unwrap_err().to_string();
    let error = refused(world.config("t", json!({"class_path": "/local"}))).await;
    assert_eq!(error, "jar_path or class must be specified");
    let error = refused(world.config("t", json!({"class": "Task", "cap_add": ["sys_admin"]}))).await;
    assert!(error.contains("driver java does not allow") && error.contains("sys_admin"), "{error}");
    let mut config = world.program("t", &[], &[]);
    config.privileged_mounts = true;
    assert!(refused(config).await.contains("driver java cannot run a plugin"));
    // A program that the virtual machine does not find ends the task.
    let config = world.config("t", json!({"class": "Absent"}));
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let result = tokio::time::timeout(Duration::from_secs(60), driver.wait(&id)).await.unwrap().unwrap();
    assert_eq!(result.exit_code, 1);
}
