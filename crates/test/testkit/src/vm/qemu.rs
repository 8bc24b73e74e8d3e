//! The process of QEMU.

use super::cache;
use super::host::find;
use super::root::Root;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A script that ends QEMU when its standard input ends: with the process of the test, even if that process
/// is killed.
const LIFELINE: &str = r#""$@" </dev/null & qemu=$!; read -r _; kill -9 "$qemu"; wait "$qemu""#;

/// The timeout for the first message of a machine under KVM. Under emulation it takes less than 20 s on a
/// loaded host.
const KVM_TRIAL: Duration = Duration::from_secs(20);
/// The text that the initramfs of the trial prints.
const HELLO: &str = "caravan-kvm-works";

/// The method by which instructions of a machine are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// By the processor.
    Kvm,
    /// By emulation.
    Tcg,
}

impl Accelerator {
    /// Returns the accelerator that works on this host: KVM only if a machine has started with it.
    pub(super) fn find(root: &Root) -> Result<Self> {
        if !Path::new("/dev/kvm").exists() {
            return Ok(Self::Tcg);
        }
        // A hypervisor below the host may behave differently after the next boot of the host.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let verdict = cache::object("kvm", cache::key(&boot), |next| {
            let works = trial(root)?;
            Ok(fs::write(next, if works { "kvm" } else { "tcg" })?)
        })?;
        Ok(if fs::read_to_string(verdict)? == "kvm" { Self::Kvm } else { Self::Tcg })
    }

    /// Returns the arguments of QEMU.
    pub(super) fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// Starts the kernel with KVM and waits for a message of its first process.
fn trial(root: &Root) -> Result<bool> {
    let work = tempfile::tempdir()?;
    let console = work.path().join("console");
    let mut arguments: Vec<String> = Accelerator::Kvm.arguments().map(str::to_owned).to_vec();
    let fixed =
        ["-m", "256", "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot"];
    arguments.extend(fixed.map(str::to_owned));
    arguments.extend(["-serial".to_owned(), format!("file:{}", console.display())]);
    arguments.extend(["-kernel".to_owned(), root.kernel.display().to_string()]);
    arguments.extend(["-initrd".to_owned(), root.initramfs.display().to_string()]);
    let append = format!("console=ttyS0 quiet panic=-1 rdinit=/bin/busybox -- echo {HELLO}");
    arguments.extend(["-append".to_owned(), append]);
    let mut process = Process::start(&arguments, &work.path().join("qemu.log"))?;
    let deadline = Instant::now() + KVM_TRIAL;
    while Instant::now() < deadline && process.is_running()? {
        if fs::read_to_string(&console).unwrap_or_default().contains(HELLO) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(fs::read_to_string(&console).unwrap_or_default().contains(HELLO))
}

/// A running QEMU, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts QEMU. Its messages are written to a file.
    pub(super) fn start(arguments: &[String], messages: &Path) -> Result<Self> {
        let qemu = find("qemu-system-x86_64", "qemu-system-x86")?;
        let messages = File::options().create(true).append(true).open(messages)?;
        let child = Command::new("sh")
            .args(["-c", LIFELINE, "sh"])
            .arg(qemu)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(messages.try_clone()?)
            .stderr(messages)
            .spawn()
            .context("start QEMU")?;
        Ok(Self(child))
    }

    /// Returns whether QEMU runs.
    pub(super) fn is_running(&mut self) -> Result<bool> {
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let listed = fs::read_to_string(children).unwrap_or_default();
        let Some(qemu) = listed.split_whitespace().next() else { return Ok(false) };
        let status = fs::read_to_string(format!("/proc/{qemu}/stat")).unwrap_or_default();
        // A zombie process has ended.
        Ok(status.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z'))
            && !status.is_empty())
    }

    /// Fails if QEMU has ended, with its messages.
    pub(super) fn check(&mut self, messages: &Path) -> Result<()> {
        if !self.is_running()? {
            bail!("QEMU has ended: {}", fs::read_to_string(messages).unwrap_or_default().trim());
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The shell kills QEMU when its standard input ends.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
