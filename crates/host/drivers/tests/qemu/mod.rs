//! The driver qemu, with machines that boot a program of a few bytes.

use super::{Kind, TIMEOUT, World, shim, until};
use caravan_drivers::conformance::{self, Behaviour, Fixture};
use caravan_drivers::{
    Driver, Error, ExecRequest, ExitResult, Health, Port, QemuDriver, QemuOptions, TaskConfig, TaskState,
};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Code that switches interrupts off, which would end a halt.
const CLI: &[u8] = &[0xfa];

/// Code that halts forever: `hlt; jmp -3`.
const HALT: &[u8] = &[0xf4, 0xeb, 0xfd];

/// Code that switches the machine off: it writes the sleeping state to the port of power management.
const POWER_OFF: &[u8] = &[
    0xba, 0x04, 0x06, // mov dx, 0x604
    0xb8, 0x00, 0x20, // mov ax, 0x2000
    0xef, // out dx, ax
];

/// Code that makes the power button set its bit.
const ENABLE_BUTTON: &[u8] = &[
    0xba, 0x02, 0x06, // mov dx, 0x602
    0xb8, 0x00, 0x01, // mov ax, 0x100
    0xef, // out dx, ax
];

/// Code that waits for the bit of the power button.
const AWAIT_BUTTON: &[u8] = &[
    0xba, 0x00, 0x06, // mov dx, 0x600
    0xed, // in ax, dx
    0xf6, 0xc4, 0x01, // test ah, 1
    0x74, 0xfa, // jz to `in`
];

/// Code that ends the emulator with 1, by the device `isa-debug-exit`: `xor al, al; out 0xf4, al`.
const EXIT_1: &[u8] = &[0x30, 0xc0, 0xe6, 0xf4];

/// Returns code that writes `booted` to the serial port.
fn report() -> Vec<u8> {
    // mov dx, 0x3f8; then for each byte: mov al, byte; out dx, al
    b"booted\n".iter().fold(vec![0xba, 0xf8, 0x03], |mut code, byte| {
        code.extend([0xb0, *byte, 0xee]);
        code
    })
}

/// Returns a disk with a boot sector.
fn disk(parts: &[&[u8]]) -> Vec<u8> {
    let mut sector = parts.concat();
    assert!(sector.len() <= 510);
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector
}

/// A change of a task before its start.
type Change<'a> = &'a dyn Fn(&mut TaskConfig);

struct QemuWorld(World);

impl QemuWorld {
    fn new() -> Self {
        Self(World::new(Kind::Raw))
    }

    fn config(&self, name: &str, config: Value) -> TaskConfig {
        let mut task = self.0.config(name, config);
        task.resources.memory_mb = 128;
        task
    }

    /// Returns a machine that boots from this code.
    fn machine(&self, name: &str, code: &[&[u8]]) -> TaskConfig {
        let task = self.config(name, json!({"image_path": "local/disk.img", "args": ["-net", "none"]}));
        std::fs::write(task.dirs.task_dir.join("local/disk.img"), disk(code)).unwrap();
        task
    }

    async fn boot(&self, driver: &dyn Driver, task: TaskConfig) {
        let name = task.task_name.clone();
        driver.start(task).await.unwrap();
        until("the boot", || self.0.output(&name).contains("booted")).await;
    }
}

fn qemu(options: QemuOptions) -> Arc<dyn Driver> {
    Arc::new(QemuDriver::new(options, shim()))
}

async fn result(driver: &dyn Driver, task: &TaskConfig) -> ExitResult {
    match driver.inspect(&task.id).await.unwrap().state {
        TaskState::Exited(result) => result,
        TaskState::Running => panic!("{} runs", task.id),
    }
}

impl Fixture for QemuWorld {
    fn driver(&self) -> Arc<dyn Driver> {
        qemu(QemuOptions::default())
    }

    fn task(&self, name: &str, behaviour: Behaviour) -> Option<TaskConfig> {
        match behaviour {
            Behaviour::Exit(0) => Some(self.machine(name, &[CLI, POWER_OFF, HALT])),
            Behaviour::Exit(1) => {
                let mut task = self.machine(name, &[CLI, EXIT_1, HALT]);
                task.driver_config["args"] = json!(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
                Some(task)
            }
            Behaviour::RunForever => Some(self.machine(name, &[CLI, HALT])),
            Behaviour::CannotStart => Some(self.config(name, json!({"image_path": "local/absent"}))),
            // Codes are odd, the firmware writes to the serial port too, and the emulator ends by each signal.
            _ => None,
        }
    }
}

#[tokio::test]
async fn qemu_conforms() {
    conformance::check_all(&QemuWorld::new()).await.unwrap();
}

#[tokio::test]
async fn emulators_are_found_with_their_version() {
    let found = qemu(QemuOptions::default()).fingerprint().await;
    assert_eq!(found.state, Health::Healthy, "{found:?}");
    let version = &found.attributes["driver.qemu.version"];
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
    let names = &found.attributes["driver.qemu.emulators"];
    assert!(names.split(',').any(|name| name == "x86_64"), "{names}");
    let options = QemuOptions { emulators_allowlist: vec!["absent".into()], ..QemuOptions::default() };
    let found = qemu(options).fingerprint().await;
    assert_eq!((found.state, found.attributes.len()), (Health::Undetected, 0));
}

#[tokio::test]
async fn a_graceful_stop_presses_the_power_button() {
    let world = QemuWorld::new();
    let driver = world.driver();
    let code = [CLI, ENABLE_BUTTON, &report(), AWAIT_BUTTON, POWER_OFF, HALT];
    let mut task = world.machine("t", &code);
    task.driver_config["graceful_shutdown"] = json!(true);
    task.driver_config["guest_agent"] = json!(true);
    world.boot(&*driver, task.clone()).await;
    assert!(task.dirs.task_dir.join("qa.sock").exists());

    // An agent that takes the task over has the monitor as well.
    let handle = driver.inspect(&task.id).await.unwrap().handle;
    let successor = world.driver();
    successor.recover(handle).await.unwrap();
    successor.stop(&task.id, TIMEOUT * 100, None).await.unwrap();
    let ended = result(&*successor, &task).await;
    assert_eq!((ended.exit_code, ended.signal), (0, 0), "{ended:?}");
    driver.wait(&task.id).await.unwrap();
    driver.destroy(&task.id, false).await.unwrap();
}

#[tokio::test]
async fn a_guest_that_ignores_the_power_button_is_killed() {
    let world = QemuWorld::new();
    let driver = world.driver();
    let machine = |name: &str| {
        let mut task = world.machine(name, &[CLI, &report(), HALT]);
        task.driver_config["graceful_shutdown"] = json!(true);
        task
    };
    let task = machine("deaf");
    world.boot(&*driver, task.clone()).await;
    driver.stop(&task.id, Duration::from_millis(100), None).await.unwrap();
    assert_eq!(result(&*driver, &task).await.signal, 9);
    driver.destroy(&task.id, false).await.unwrap();

    // The task replaced its socket: the emulator gets the signal instead.
    let task = machine("mute");
    world.boot(&*driver, task.clone()).await;
    std::fs::remove_file(task.dirs.task_dir.join("qm.sock")).unwrap();
    std::os::unix::fs::symlink("elsewhere", task.dirs.task_dir.join("qm.sock")).unwrap();
    driver.stop(&task.id, TIMEOUT * 100, None).await.unwrap();
    assert_eq!(result(&*driver, &task).await.signal, 0);
    driver.destroy(&task.id, false).await.unwrap();
}

#[tokio::test]
async fn ports_of_the_host_lead_to_the_guest() {
    let world = QemuWorld::new();
    let driver = world.driver();
    let mut task = world.machine("t", &[CLI, &report(), HALT]);
    let value = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    task.ports = vec![Port { label: "http".into(), value, to: 0, host_ip: "127.0.0.1".into() }];
    task.driver_config = json!({"image_path": "local/disk.img", "port_map": {"http": 80}});
    driver.start(task.clone()).await.unwrap();
    until("the forwarded port", || TcpStream::connect(("127.0.0.1", value)).is_ok()).await;
    let network = driver.inspect(&task.id).await.unwrap().handle.network.unwrap();
    assert_eq!((network.ports["http"], network.ip.as_str()), (80, ""));

    let command = vec!["true".to_owned()];
    let refused = driver.exec(&task.id, &command, TIMEOUT).await.unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    assert!(driver.exec_stream(&task.id, ExecRequest { command, tty: false }).await.is_err());
    assert!(matches!(driver.signal(&task.id, "SIGHUP").await, Err(Error::Unsupported { .. })));
    driver.destroy(&task.id, true).await.unwrap();
}

#[tokio::test]
async fn wrong_machines_are_refused() {
    let world = QemuWorld::new();
    let driver = world.driver();
    let refused = async |change: Change<'_>| {
        let mut task = world.machine("t", &[HALT]);
        change(&mut task);
        driver.start(task).await.unwrap_err().to_string()
    };
    let outside = Path::new("/etc/passwd");
    let cases: [(Change<'_>, &str); 7] = [
        (&|t| t.resources.memory_mb = 127, "QEMU memory assignment out of bounds"),
        (&|t| t.driver_config["image_path"] = json!(outside), "image_path is not in the allowed paths"),
        (&|t| t.driver_config["emulator"] = json!("no/path"), "'no/path' is not an allowed emulator"),
        (
            &|t| t.driver_config["emulator"] = json!("absent"),
            "emulator qemu-system-absent is not found on the agent's PATH",
        ),
        (&|t| t.driver_config["port_map"] = json!({"x": 1}), "Unknown port label \"x\""),
        (&|t| t.user = Some("no-such-user".into()), "unknown user \"no-such-user\""),
        (&|t| t.privileged_mounts = true, "driver qemu cannot run a plugin that mounts for other tasks"),
    ];
    for (change, message) in cases {
        assert_eq!(refused(change).await, message);
    }
}
