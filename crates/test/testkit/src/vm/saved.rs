//! Saved machines: a story begins with a machine that has already started, and a machine can be copied.

use super::cache;
use super::disk;
use super::host::copy;
use super::machine::{Begin, Machine, MachineOptions};
use super::qemu::Accelerator;
use super::qmp::Qmp;
use super::root::Root;
use crate::eventually_within;
use anyhow::{Result, bail};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The timeout for writing or reading the memory of a machine.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(180);

impl Machine {
    /// Returns the directory with the state after the start of a machine. The state is created once and
    /// kept in the cache, so that all such machines have the same boot id.
    ///
    /// # Errors
    /// As [`Machine::start`].
    pub(super) fn booted_state(options: &MachineOptions) -> Result<PathBuf> {
        let root = Root::with(options.system, &options.programs)?;
        let disks: Vec<String> = options.disks.iter().map(|disk| format!("{disk:?}")).collect();
        let accelerator = format!("{:?}", Accelerator::find(&root)?);
        let memory = (options.memory, options.cpus, options.cables.len(), &options.kernel_arguments);
        let files = (&root.disk, &root.kernel, &root.initramfs);
        cache::object("booted", cache::key(&(memory, files, disks, accelerator)), |next| {
            fs::create_dir(next)?;
            Self::start(options.clone())?.save(next)
        })
    }

    /// Writes memory and disks to a directory, and continues. The log of a restored machine's disk begins with the
    /// content of the disk at this time.
    ///
    /// # Errors
    /// Fails if QEMU refuses or the directory cannot be written.
    pub fn save(&self, to: &Path) -> Result<()> {
        self.sh("sync")?;
        self.suspend()?;
        self.qmp("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }))?;
        self.qmp("migrate", &json!({ "uri": format!("exec:cat > {}", to.join("state").display()) }))?;
        eventually_within(MIGRATION_TIMEOUT, "the memory to be saved", || {
            is_complete(&self.qmp("query-migrate", &json!({}))?)
        })?;
        copy(&self.directory().join("root.qcow2"), &to.join("root.qcow2"))?;
        for number in 0..self.options().disks.len() {
            copy(&self.image_path(number), &disk::image(to, number))?;
        }
        self.resume()
    }

    /// Starts a machine in a saved state. The options must equal the options of the saved machine, except the name.
    ///
    /// # Errors
    /// Fails if QEMU cannot read the state.
    pub fn restore(options: MachineOptions, from: &Path) -> Result<Self> {
        Self::begin(options, Begin::Saved(from))
    }
}

/// Waits until the state of a restored machine is complete.
pub(super) fn wait_for_migration(qmp: &mut Qmp) -> Result<()> {
    eventually_within(MIGRATION_TIMEOUT, "the memory to be restored", || {
        is_complete(&qmp.execute("query-migrate", &json!({}))?)
    })
}

fn is_complete(migration: &serde_json::Value) -> Result<()> {
    match migration["status"].as_str() {
        Some("completed") => Ok(()),
        _ => bail!("the migration is {migration}"),
    }
}
