//! A running virtual machine.

use super::channel::Channel;
use super::disk::{self, Content, Disk};
use super::host::{find, run};
use super::protocol::{DIAL, GET, PUT, RUN};
use super::qemu::{Accelerator, Process};
use super::qmp::Qmp;
use super::root::Root;
use super::switch::EtherSwitch;
use crate::http::{Reply, parse};
use crate::{Output, eventually_within};
use anyhow::{Context, Result, bail, ensure};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The timeout for the start of a machine; under emulation on an idle host a start takes about 5 s.
const START_TIMEOUT: Duration = Duration::from_secs(240);
/// The timeout of a command in a machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(180);

/// The content of a machine's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum System {
    /// busybox as the init system and for all tools: starts in seconds.
    Busybox,
    /// Debian with systemd, sudo, LVM, XFS and NFS. Only the programs of the options are added.
    Systemd,
}

/// The configuration of a machine.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// The name in messages and the host name.
    pub name: String,
    /// The content of the root.
    pub system: System,
    /// The memory in MiB.
    pub memory: u32,
    /// The number of processors.
    pub cpus: u32,
    /// The disks after the root.
    pub disks: Vec<Disk>,
    /// The switches of the network interfaces, in order: `eth0` and so on.
    pub cables: Vec<Arc<EtherSwitch>>,
    /// The programs in `/usr/bin`.
    pub programs: Vec<PathBuf>,
    /// Additional arguments of the kernel.
    pub kernel_arguments: String,
}

impl MachineOptions {
    /// Returns a machine with the program under test and one ext4 disk at `/var/lib`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            system: System::Busybox,
            memory: 1024,
            cpus: 1,
            disks: vec![Disk::ext4(2048)],
            cables: Vec::new(),
            programs: vec![crate::program()],
            kernel_arguments: String::new(),
        }
    }

    /// Returns a machine with systemd, without the program under test and without additional disks.
    pub fn with_systemd(name: &str) -> Self {
        Self { system: System::Systemd, disks: Vec::new(), programs: Vec::new(), ..Self::new(name) }
    }
}

/// A running machine. Clones are the same machine. Dropping the last clone ends the machine and removes its files.
#[derive(Clone, Debug)]
pub struct Machine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: MachineOptions,
    qmp: Mutex<Qmp>,
    /// The channel, absent while the machine restarts, and the boot id.
    channel: RwLock<(Option<Arc<Channel>>, String)>,
    // The process ends before the directory is removed.
    process: Mutex<Process>,
    directory: tempfile::TempDir,
}

/// The state in which a machine begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begin<'a> {
    /// At the start of the kernel.
    Kernel,
    /// At the saved state of another machine; its files are in this directory.
    Saved(&'a Path),
}

impl Machine {
    /// Starts a machine and waits until it responds.
    ///
    /// # Errors
    /// Fails if a package is missing, or if the machine does not respond in time; the error has the end of
    /// the console.
    pub fn start(options: MachineOptions) -> Result<Self> {
        Self::begin(options, Begin::Kernel)
    }

    pub(super) fn begin(options: MachineOptions, begin: Begin<'_>) -> Result<Self> {
        let root = Root::with(options.system, &options.programs)?;
        let accelerator = Accelerator::find(&root)?;
        let directory = tempfile::Builder::new().prefix("caravan-vm-").tempdir()?;
        let overlay = directory.path().join("root.qcow2");
        match begin {
            Begin::Kernel => {
                let image = find("qemu-img", "qemu-utils")?;
                let arguments = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
                run(Command::new(image).args(arguments).arg(&root.disk).arg(&overlay))?;
            }
            Begin::Saved(from) => super::host::copy(&from.join("root.qcow2"), &overlay)?,
        }
        for (number, disk) in options.disks.iter().enumerate() {
            match begin {
                Begin::Saved(from) => {
                    let image = disk::image(from, number);
                    Disk { content: Content::Image(image), ..*disk }.create(directory.path(), number)?;
                }
                Begin::Kernel => disk.create(directory.path(), number)?,
            }
        }
        let arguments = arguments(&options, &root, accelerator, directory.path(), begin);
        let messages = directory.path().join("qemu.log");
        let mut process = Process::start(&arguments, &messages)?;
        let started = Qmp::connect(&directory.path().join("qmp")).and_then(|mut qmp| {
            if let Begin::Saved(_) = begin {
                super::saved::wait_for_migration(&mut qmp)?;
                qmp.execute("cont", &json!({}))?;
            }
            Ok((qmp, Channel::open(&directory.path().join("channel"), Instant::now() + START_TIMEOUT)?))
        });
        let (qmp, channel) = started.or_else(|error| {
            process.check(&messages)?;
            let console = fs::read_to_string(directory.path().join("console")).unwrap_or_default();
            Err(error).with_context(|| format!("--- console of {}\n{}", options.name, tail(&console)))
        })?;
        let machine = Self(Arc::new(Inner {
            qmp: Mutex::new(qmp),
            channel: RwLock::new((Some(Arc::new(channel.0)), channel.1)),
            process: Mutex::new(process),
            directory,
            options,
        }));
        if let Begin::Saved(_) = begin {
            machine.renew()?;
        }
        Ok(machine)
    }

    /// Sets the present time and new random bytes in a restored machine.
    fn renew(&self) -> Result<()> {
        let now = caravan_sys::time::wall_now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
        let mut random = [0_u8; 64];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut random)?;
        self.call(RUN, vec![random.to_vec(), "sh".into(), "-c".into(), "cat > /dev/urandom".into()])?;
        self.run(&["date", "-s", &format!("@{now}")])?.ok()?;
        for number in 0..self.0.options.cables.len() {
            let address = mac(self.name(), number);
            self.sh(&format!("ip link set eth{number} down; ip link set eth{number} address {address}"))?;
        }
        Ok(())
    }

    /// Returns the configuration of the machine.
    pub(super) fn options(&self) -> &MachineOptions {
        &self.0.options
    }

    /// Returns the name of the machine.
    pub fn name(&self) -> &str {
        &self.0.options.name
    }

    /// Returns the directory of the machine's files on the host.
    pub fn directory(&self) -> &Path {
        self.0.directory.path()
    }

    /// Returns the content of the console since the first start.
    pub fn console(&self) -> String {
        let bytes = fs::read(self.directory().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the boot id of the present start.
    pub fn boot_id(&self) -> String {
        self.0.channel.read().1.clone()
    }

    fn call(&self, kind: i32, parts: Vec<Vec<u8>>) -> Result<super::protocol::Frame> {
        self.call_within(kind, parts, RUN_TIMEOUT)
    }

    fn call_within(
        &self,
        kind: i32,
        parts: Vec<Vec<u8>>,
        timeout: Duration,
    ) -> Result<super::protocol::Frame> {
        let channel = self.0.channel.read().0.clone().context("the machine starts again")?;
        channel.call(kind, parts, timeout).with_context(|| format!("machine {}", self.name()))
    }

    /// Runs a program with arguments as root.
    ///
    /// # Errors
    /// Fails if the machine does not respond or the program does not exist; not if the program fails.
    pub fn run(&self, command: &[&str]) -> Result<Output> {
        self.run_with(command, b"", RUN_TIMEOUT)
    }

    /// Runs a program with arguments and a standard input.
    ///
    /// # Errors
    /// As [`Self::run`], and if the program runs longer than the timeout; the program then continues.
    pub fn run_with(&self, command: &[&str], input: &[u8], timeout: Duration) -> Result<Output> {
        let mut parts = vec![input.to_vec()];
        parts.extend(command.iter().map(|word| word.as_bytes().to_vec()));
        let what = || format!("run {}", command.join(" "));
        let answer = self.call_within(RUN, parts, timeout).with_context(what)?;
        let text = |number: usize| {
            answer
                .parts
                .get(number)
                .map(|part| String::from_utf8_lossy(part).into_owned())
                .unwrap_or_default()
        };
        Ok(Output { code: answer.code, stdout: text(0), stderr: text(1) })
    }

    /// Runs a shell script to its end and returns its standard output.
    ///
    /// # Errors
    /// Fails if a command of the script fails.
    pub fn sh(&self, script: &str) -> Result<String> {
        let output = self.run(&["sh", "-ec", script])?.ok();
        Ok(output.with_context(|| format!("script {script:?}"))?.stdout)
    }

    /// Returns all processes that have arguments: their ids, and their arguments separated by spaces.
    ///
    /// # Errors
    /// Fails if the machine does not respond.
    pub fn processes(&self) -> Result<Vec<(u32, String)>> {
        // Processes that end meanwhile are reported as errors.
        let listed = self.run(&["sh", "-c", "head -v -c 4096 /proc/[0-9]*/cmdline"])?.stdout;
        let entries = listed.split("==> /proc/").filter_map(|entry| {
            let (id, arguments) = entry.split_once("/cmdline <==\n")?;
            let arguments = arguments.trim_end_matches('\n').trim_end_matches('\0').replace('\0', " ");
            (!arguments.is_empty()).then(|| Some((id.parse().ok()?, arguments)))?
        });
        Ok(entries.collect())
    }

    /// Writes a file with the permissions `mode`.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn put(&self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.call(PUT, vec![path.into(), format!("{mode:o}").into(), content.to_vec()]).map(drop)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        let answer = self.call(GET, vec![path.into()])?;
        answer.parts.into_iter().next().context("a response without content")
    }

    /// Sends an HTTP request to a port of the machine's loopback interface.
    ///
    /// # Errors
    /// Fails without a response in HTTP.
    pub fn http(&self, port: u16, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let head =
            format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = self.call(DIAL, vec![format!("127.0.0.1:{port}").into(), (head + &body).into()])?;
        parse(answer.parts.first().context("a response without content")?)
    }

    /// Executes a command of QEMU.
    ///
    /// # Errors
    /// Fails if QEMU refuses.
    pub fn qmp(&self, command: &str, arguments: &Value) -> Result<Value> {
        self.0.qmp.lock().execute(command, arguments)
    }

    /// Stops the processors, as when a laptop is closed or a hypervisor pauses the machine.
    ///
    /// # Errors
    /// Fails if QEMU refuses.
    pub fn suspend(&self) -> Result<()> {
        self.qmp("stop", &json!({})).map(drop)
    }

    /// Continues a suspended machine.
    ///
    /// # Errors
    /// Fails if QEMU refuses.
    pub fn resume(&self) -> Result<()> {
        self.qmp("cont", &json!({})).map(drop)
    }

    /// Pulls the cable of a network interface, or plugs it in.
    ///
    /// # Errors
    /// Fails if there is no such interface.
    pub fn set_link(&self, number: usize, up: bool) -> Result<()> {
        self.qmp("set_link", &json!({ "name": format!("net{number}"), "up": up })).map(drop)
    }

    /// Presses the reset button, and waits until the machine has started again.
    ///
    /// # Errors
    /// Fails if the machine does not respond in time.
    pub fn reset(&self) -> Result<()> {
        self.qmp("system_reset", &json!({}))?;
        self.wait_for_start()
    }

    /// Restarts the machine gracefully: services end, then all processes, then file systems are unmounted.
    /// Waits until the machine has restarted.
    ///
    /// # Errors
    /// Fails if the machine does not respond in time.
    pub fn reboot(&self) -> Result<()> {
        self.run(&["reboot"])?.ok()?;
        self.wait_for_start()
    }

    fn wait_for_start(&self) -> Result<()> {
        let (deadline, before) = (Instant::now() + START_TIMEOUT, self.boot_id());
        let what = || format!("--- console of {}\n{}", self.name(), tail(&self.console()));
        loop {
            // QEMU serves one connection at a time.
            let path = self.directory().join("channel");
            let mut channel = self.0.channel.write();
            channel.0 = None;
            let opened = Channel::open(&path, deadline).with_context(what)?;
            *channel = (Some(Arc::new(opened.0)), opened.1);
            if channel.1 != before {
                return Ok(());
            }
            drop(channel);
            ensure!(Instant::now() < deadline, "the machine does not start again\n{}", what());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the machine has powered off or QEMU has ended.
    ///
    /// # Errors
    /// Fails after the timeout.
    pub fn wait_off(&self) -> Result<()> {
        eventually_within(START_TIMEOUT, "the machine to be off", || {
            if self.0.process.lock().is_running()? { bail!("QEMU runs") } else { Ok(()) }
        })
    }

    /// Returns the present length in bytes of a logged disk's log, which includes all complete writes.
    ///
    /// # Errors
    /// Fails if the disk has no log.
    pub fn log_length(&self, disk: usize) -> Result<u64> {
        Ok(fs::metadata(self.log_path(disk))?.size())
    }

    /// Returns the log of a logged disk.
    pub fn log_path(&self, disk: usize) -> PathBuf {
        disk::log(self.directory(), disk)
    }

    /// Returns the first content of a logged disk.
    pub fn base_path(&self, disk: usize) -> PathBuf {
        disk::base(self.directory(), disk)
    }

    /// Returns the image of a disk.
    pub fn image_path(&self, disk: usize) -> PathBuf {
        disk::image(self.directory(), disk)
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

fn arguments(
    options: &MachineOptions,
    root: &Root,
    accelerator: Accelerator,
    directory: &Path,
    begin: Begin<'_>,
) -> Vec<String> {
    let at = |name: &str| directory.join(name).display().to_string();
    let mut all: Vec<String> = accelerator.arguments().map(str::to_owned).to_vec();
    let mut add = |name: &str, value: String| all.extend([name.to_owned(), value]);
    add("-m", options.memory.to_string());
    add("-smp", options.cpus.to_string());
    add("-display", "none".to_owned());
    add("-name", options.name.clone());
    add("-serial", format!("file:{}", at("console")));
    add("-qmp", format!("unix:{},server=on,wait=off", at("qmp")));
    add("-device", "virtio-serial-pci".to_owned());
    add("-chardev", format!("socket,id=channel,path={},server=on,wait=off", at("channel")));
    add("-device", format!("virtserialport,chardev=channel,name={}", super::protocol::PORT));
    let cache = "cache.direct=off,cache.no-flush=on";
    add("-blockdev", format!("driver=file,filename={},node-name=rootfile,{cache}", at("root.qcow2")));
    add("-blockdev", format!("driver=qcow2,file=rootfile,node-name=root,{cache}"));
    add("-device", "virtio-blk-pci,drive=root".to_owned());
    for (number, switch) in options.cables.iter().enumerate() {
        let socket = switch.socket().display().to_string();
        add("-netdev", format!("stream,id=net{number},server=off,addr.type=unix,addr.path={socket}"));
        add(
            "-device",
            format!("virtio-net-pci,netdev=net{number},mac={},romfile=", mac(&options.name, number)),
        );
    }
    add("-kernel", root.kernel.display().to_string());
    add("-initrd", root.initramfs.display().to_string());
    let more = &options.kernel_arguments;
    // Names of interfaces follow their order, and a panic leads to a new start.
    add("-append", format!("console=ttyS0 quiet net.ifnames=0 panic=1 {more}"));
    if let Begin::Saved(from) = begin {
        add("-incoming", format!("exec:cat {}", from.join("state").display()));
        all.push("-S".to_owned());
    }
    all.extend(["-nodefaults", "-no-user-config"].map(str::to_owned));
    for (number, disk) in options.disks.iter().enumerate() {
        all.extend(disk.arguments(directory, number));
    }
    all
}

/// Returns the address of a network interface, which differs between machines of different names.
fn mac(name: &str, number: usize) -> String {
    let bytes = super::cache::key(&(name, number)).to_le_bytes();
    format!("52:54:00:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2])
}
