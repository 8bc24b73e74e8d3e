//! Expanding volumes: the controller makes the image longer, and the node makes device and file system use the new
//! size. A file system that no call has expanded by then is expanded at its next mount.

use crate::{
    controller::{Plugin, required},
    error::Error,
    loops, mountinfo, mounts,
    node::path,
    record::{Backing, Record},
    request::{Capability, FsKind, grown, node_range},
};
use caravan_proto::csi;
use std::path::{Path, PathBuf};

impl Plugin {
    pub(crate) fn expand(
        &self,
        request: csi::ControllerExpandVolumeRequest,
    ) -> Result<csi::ControllerExpandVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        let id = self.store.ready(&request.volume_id)?.id;
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        if let Some(capability) = request.volume_capability {
            Capability::check(Some(capability))?.suits(record.backing)?;
        }
        let capacity = grown(record.backing, record.capacity, request.capacity_range)?;
        if record.backing != Backing::Directory {
            let available = self.available(record.backing)?;
            let more = capacity.saturating_sub(record.capacity);
            if more > available {
                return Err(Error::Exhausted(format!(
                    "{more} more bytes are asked for and {available} are left"
                )));
            }
        }
        if capacity > record.capacity
            && needs_unmounting(record.backing)
            && let Some(mount) = mounts::writable_mount(&self.store, &record)?
        {
            return Err(Error::Precondition(format!(
                "the volume {id} is mounted at {}, and only a process with CAP_SYS_RESOURCE, which this one is not, \
                 can grow an ext4 file system that is mounted: unpublish it first",
                mount.path.display()
            )));
        }
        if capacity > record.capacity {
            record.unfilled = record.backing.fs().is_some();
            record.capacity = capacity;
            self.store.save(&record)?;
        }
        let data = self.store.data_path(id.as_str(), record.backing);
        if record.backing != Backing::Directory {
            // Do this even if the size is already reached: a crash may have interrupted an earlier call.
            self.fit(&record)?;
        }
        if record.backing.is_device() {
            loops::resize(&data)?;
        }
        Ok(csi::ControllerExpandVolumeResponse {
            capacity_bytes: i64::try_from(record.capacity).unwrap_or(i64::MAX),
            node_expansion_required: record.unfilled,
        })
    }

    pub(crate) fn node_expand(
        &self,
        request: csi::NodeExpandVolumeRequest,
    ) -> Result<csi::NodeExpandVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        required(&request.volume_path, "volume path")?;
        let id = self.store.ready(&request.volume_id)?.id;
        let at = path(&request.volume_path, "volume path")?;
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        if let Some(capability) = request.volume_capability {
            Capability::check(Some(capability))?.suits(record.backing)?;
        }
        if self.shown_at(&record, &at)?.is_none() {
            return Err(Error::NotThere { volume: request.volume_id, path: at });
        }
        node_range(record.capacity, request.capacity_range)?;
        let data = self.store.data_path(id.as_str(), record.backing);
        match record.backing {
            Backing::Directory | Backing::Quota => {}
            Backing::Block | Backing::Thin { fs: None } => {
                self.fit(&record)?;
                loops::resize(&data)?;
            }
            Backing::Image { .. } | Backing::Thin { fs: Some(_) } => {
                if record.unfilled && !self.fill(&mut record)? {
                    return Err(Error::Precondition(format!(
                        "the volume {id} is mounted for reading only, its file system cannot grow"
                    )));
                }
            }
        }
        Ok(csi::NodeExpandVolumeResponse {
            capacity_bytes: i64::try_from(record.capacity).unwrap_or(i64::MAX),
        })
    }

    /// Expands the file system of an image to the size of the image. Returns `false` if it is not mounted for
    /// writing, which this requires.
    pub(crate) fn fill(&self, record: &mut Record) -> Result<bool, Error> {
        let (true, Some(fs)) = (record.unfilled, record.backing.fs()) else {
            return Ok(true);
        };
        let Some(mount) = mounts::writable_mount(&self.store, record)? else {
            return Ok(false);
        };
        let data = self.store.data_path(record.id.as_str(), record.backing);
        self.fit_to_mount(record)?;
        loops::resize(&data)?;
        mounts::grow(fs, &mount)?;
        record.unfilled = false;
        self.store.save(record)?;
        Ok(true)
    }

    /// Expands the file system of an image before its mount, if that is impossible while mounted.
    pub(crate) fn fill_unmounted(&self, record: &mut Record) -> Result<(), Error> {
        if !record.unfilled || !needs_unmounting(record.backing) {
            return Ok(());
        }
        let data = self.store.data_path(record.id.as_str(), record.backing);
        // If the volume is mounted elsewhere, it is expanded when it is next mounted after its last unmount.
        if !loops::is_free(&data)? || mounts::find(&self.store, record, |_| true)?.is_some() {
            return Ok(());
        }
        self.fit_to_mount(record)?;
        mounts::grow_unmounted(&data)?;
        record.unfilled = false;
        self.store.save(record)
    }

    /// Returns the mount point of a volume that is staged at a path: a device is mounted on a file below.
    pub(crate) fn staged_at(&self, record: &Record, staging: &Path) -> PathBuf {
        if record.backing.is_device() { staging.join(record.id.as_str()) } else { staging.to_owned() }
    }

    /// Returns the mount point of a volume at a path where it is published or staged.
    pub(crate) fn shown_at(&self, record: &Record, at: &Path) -> Result<Option<PathBuf>, Error> {
        for place in [at.to_owned(), self.staged_at(record, at)] {
            if mounts::is_mounted(&self.store, record, &place)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Returns the paths at which calls of this plugin have mounted a volume.
    pub(crate) fn live_paths(&self, record: &Record) -> Result<Vec<PathBuf>, Error> {
        let staged = record.staged.keys().map(|path| self.staged_at(record, Path::new(path)));
        let mut live = Vec::new();
        for place in record.published.keys().map(PathBuf::from).chain(staged) {
            if mounts::is_mounted(&self.store, record, &place)? {
                live.push(place);
            }
        }
        Ok(live)
    }

    /// Returns whether a path is a mount point.
    pub(crate) fn is_mount_point(path: &Path) -> Result<bool, Error> {
        mountinfo::at(path).map(|mount| mount.is_some())
    }
}

/// Returns whether volumes of this kind can be expanded only while they are not mounted, given the privileges of this
/// process.
fn needs_unmounting(backing: Backing) -> bool {
    backing.fs() == Some(FsKind::Ext4) && !may_grow_mounted()
}

/// Returns whether this process may expand a mounted ext4 file system, which requires CAP_SYS_RESOURCE (number 24 in
/// capabilities(7)).
pub(crate) fn may_grow_mounted() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| has_capability(&status, 24))
}

/// Returns whether a capability is among the effective ones of proc_pid_status(5).
fn has_capability(status: &str, number: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> number & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits_of_a_number() {
        let status = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t000001fffeffffff\n";
        assert!(!has_capability(status, 24) && has_capability(status, 21));
        assert!(has_capability("CapEff:\t0000000001000000\n", 24));
        assert!(!has_capability("", 24));
    }
}
