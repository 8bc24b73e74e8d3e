//! A story's machines, and the artifacts of a failed story.

use super::cache;
use super::machine::{Machine, MachineOptions};
use anyhow::{Context, Result};
use caravan_sys::tree::{self, Seals};
use parking_lot::Mutex;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The timeout for a machine to pack its logs.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(120);

/// A script that collects the state of a guest, its logs and cores.
const COLLECT: &str = "cd /; mkdir -p /run/report; dmesg > /run/report/dmesg; busybox ps > /run/report/ps; \
    cat /proc/self/mountinfo > /run/report/mountinfo; df > /run/report/df; free > /run/report/free; \
    journalctl -b --no-pager > /run/report/journal; ps -ef > /run/report/ps-ef; \
    find /sys/fs/cgroup -name cgroup.procs > /run/report/cgroups; \
    tar -czf /run/report.tar.gz run/report var/log var/crash etc/caravan.hcl 2>/dev/null; true";

/// The machines of a story.
#[derive(Debug)]
pub struct Bench {
    name: String,
    machines: Mutex<Vec<Machine>>,
    /// The states after a start from which machines of the story began.
    states: Mutex<Vec<PathBuf>>,
    /// Whether the story's artifacts are not needed.
    has_passed: bool,
}

impl Bench {
    /// Starts a machine from the beginning.
    ///
    /// # Errors
    /// As [`Machine::start`].
    pub fn machine(&self, options: MachineOptions) -> Result<Machine> {
        Ok(self.keep(Machine::start(options)?))
    }

    /// Starts a machine in the state after its start.
    ///
    /// # Errors
    /// As [`Machine::start`] and [`Machine::restore`].
    pub fn booted(&self, options: MachineOptions) -> Result<Machine> {
        let state = Machine::booted_state(&options)?;
        self.states.lock().push(state.clone());
        Ok(self.keep(Machine::restore(options, &state)?))
    }

    /// Starts a machine in a saved state.
    ///
    /// # Errors
    /// As [`Machine::restore`].
    pub fn restored(&self, options: MachineOptions, from: &Path) -> Result<Machine> {
        Ok(self.keep(Machine::restore(options, from)?))
    }

    fn keep(&self, machine: Machine) -> Machine {
        self.machines.lock().push(machine.clone());
        machine
    }

    /// Removes a machine that the story no longer needs. Its artifacts are lost.
    pub fn discard(&self, machine: Machine) {
        let directory = machine.directory().to_owned();
        drop(machine);
        self.machines.lock().retain(|kept| kept.directory() != directory);
    }

    /// Returns the directory of the story's artifacts.
    ///
    /// # Errors
    /// Fails if there is no cache.
    pub fn artifacts(&self) -> Result<PathBuf> {
        Ok(cache::directory()?.join("failed").join(&self.name))
    }

    fn collect(&self) -> Result<PathBuf> {
        let directory = self.artifacts()?;
        for machine in self.machines.lock().iter() {
            let at = directory.join(machine.name());
            fs::create_dir_all(&at)?;
            // Each part is best effort: the machine may be in any state.
            let _ = fs::copy(machine.directory().join("console"), at.join("console"));
            let _ = fs::copy(machine.directory().join("qemu.log"), at.join("qemu.log"));
            let _ = machine.resume();
            if let Err(error) = report(machine, &at) {
                let _ = fs::write(at.join("no-report"), format!("{error:#}\n"));
            }
        }
        Ok(directory)
    }
}

fn report(machine: &Machine, at: &Path) -> Result<()> {
    machine.run_with(&["sh", "-c", COLLECT], b"", COLLECT_TIMEOUT)?;
    Ok(fs::write(at.join("report.tar.gz"), machine.get("/run/report.tar.gz")?)?)
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.has_passed {
            return;
        }
        if let Ok(directory) = self.collect() {
            eprintln!("story {}: console, logs and cores are in {}", self.name, directory.display());
        }
        // A start on a busy host can leave a kernel with a wrong measurement, such as that of the processor's clock.
        // The next run of the story begins with another start.
        for state in self.states.lock().iter() {
            let _ = tree::remove(state, Seals::Keep);
        }
    }
}

/// Runs a story with machines. If it fails or panics, console, logs and cores of its machines are kept, and their
/// path is printed.
///
/// # Errors
/// Fails as the story fails.
pub fn story(name: &str, body: impl FnOnce(&Bench) -> Result<()>) -> Result<()> {
    let mut bench = Bench {
        name: name.to_owned(),
        machines: Mutex::default(),
        states: Mutex::default(),
        has_passed: false,
    };
    // Artifacts of an earlier failure could be mistaken for new ones.
    tree::remove(&bench.artifacts()?, Seals::Keep)?;
    body(&bench).with_context(|| format!("story {name}"))?;
    bench.has_passed = true;
    Ok(())
}
