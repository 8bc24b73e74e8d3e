//! Modifying an existing volume, and the space of images and devices: allocated at writes (thin) or reserved (thick).

use crate::{
    controller::{Plugin, required},
    error::Error,
    loops, mountinfo, mounts,
    mutable::{Mutable, Space},
    record::{Backing, Record, VERSION},
    store,
    tool::run,
};
use caravan_proto::csi;
use rustix::{fs::FallocateFlags, io::Errno, mount::MountFlags};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

impl Plugin {
    pub(crate) fn modify(
        &self,
        request: &csi::ControllerModifyVolumeRequest,
    ) -> Result<csi::ControllerModifyVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        let id = self.store.ready(&request.volume_id)?.id;
        if request.mutable_parameters.is_empty() {
            return Err(Error::Invalid("the request has no mutable parameters".to_owned()));
        }
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        let asked = Mutable::check(&request.mutable_parameters, record.backing)?;
        record.version = VERSION;
        if let Some(space) = asked.space {
            self.set_space(&mut record, space)?;
        }
        if let Some(mode) = asked.mode {
            self.set_mode(&mut record, mode)?;
        }
        Ok(csi::ControllerModifyVolumeResponse {})
    }

    /// Sets the permissions of the top directory once; a task may change them afterwards.
    fn set_mode(&self, record: &mut Record, mode: u32) -> Result<(), Error> {
        if record.mutable.mode != Some(mode) {
            record.mutable.mode = Some(mode);
            // From here on, the next mount for writing sets them, even if this call is interrupted.
            record.opened = false;
            self.store.save(record)?;
        }
        let place = match record.backing {
            Backing::Directory | Backing::Quota => {
                Some(self.store.data_path(record.id.as_str(), record.backing))
            }
            Backing::Image { .. } | Backing::Thin { fs: Some(_) } => self.live_writable(record)?,
            Backing::Block | Backing::Thin { fs: None } => None,
        };
        match place {
            Some(place) if !record.opened => self.open(record, &place),
            _ => Ok(()),
        }
    }

    /// Returns a path of this volume at which its top directory is writable.
    fn live_writable(&self, record: &Record) -> Result<Option<PathBuf>, Error> {
        for path in self.live_paths(record)? {
            if mountinfo::at(&path)?.is_some_and(|mount| !mount.flags.contains(MountFlags::RDONLY)) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Sets the permissions of a volume's top directory: the requested ones, or access for every user.
    pub(crate) fn open(&self, record: &mut Record, top: &Path) -> Result<(), Error> {
        store::set_mode(top, record.mutable.mode.unwrap_or(store::OPEN))?;
        record.opened = true;
        self.store.save(record)
    }

    /// Changes between thin and thick space.
    fn set_space(&self, record: &mut Record, space: Space) -> Result<(), Error> {
        match space {
            Space::Thick => {
                // Until the space is reserved, the record states that too much may be allocated. After a crash, or if
                // the host has too little space, the volume stays thin and releases the excess.
                if record.mutable.space != Some(Space::Thick) {
                    record.slack = true;
                    self.store.save(record)?;
                }
                self.lengthen(record)?;
                if let Err(error) =
                    keep_room(&self.store.data_path(record.id.as_str(), record.backing), record)
                {
                    self.give_back(record)?;
                    return Err(error);
                }
                record.mutable.space = Some(Space::Thick);
                record.slack = false;
                self.store.save(record)
            }
            Space::Thin => {
                record.slack |= record.mutable.space == Some(Space::Thick);
                record.mutable.space = Some(Space::Thin);
                self.store.save(record)?;
                self.give_back(record)
            }
        }
    }

    /// Extends the data of an image or device to the volume's size, if it is shorter.
    fn lengthen(&self, record: &Record) -> Result<(), Error> {
        lengthen(&self.store.data_path(record.id.as_str(), record.backing), record.capacity)
    }

    /// Sets the data of a volume with an enforced size to that size, and reserves the space of a thick volume.
    pub(crate) fn fit(&self, record: &Record) -> Result<(), Error> {
        let data = self.store.data_path(record.id.as_str(), record.backing);
        match record.backing {
            Backing::Directory => return Ok(()),
            Backing::Quota => return self.limit(record),
            Backing::Thin { .. } => return self.store.pool()?.extend(record.id.as_str(), record.capacity),
            Backing::Image { .. } | Backing::Block => {}
        }
        lengthen(&data, record.capacity)?;
        if record.mutable.space == Some(Space::Thick) { keep_room(&data, record) } else { Ok(()) }
    }

    /// Sets the data to its size before a mount, as `fit` does. If the host has too little space for the space that a
    /// trim released, the mount still succeeds, and the log has a warning.
    pub(crate) fn fit_to_mount(&self, record: &Record) -> Result<(), Error> {
        match self.fit(record) {
            Err(error @ Error::Exhausted(_)) => {
                tracing::warn!(volume = record.id.as_str(), error = error.sentence(), "space not reserved");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Releases unused space of a volume as far as possible now. The next call that ends a use of the volume
    /// continues.
    pub(crate) fn give_back(&self, record: &mut Record) -> Result<(), Error> {
        if !record.slack || record.mutable.space == Some(Space::Thick) {
            return Ok(());
        }
        let data = self.store.data_path(record.id.as_str(), record.backing);
        if matches!(record.backing, Backing::Image { .. })
            && let Some(mount) = mounts::writable_mount(&self.store, record)?
        {
            // Only the file system has a list of its unused blocks. If it cannot discard them, the space stays
            // allocated.
            let mut fstrim = Command::new("fstrim");
            if let Err(error) = run(fstrim.arg(&mount.path), "fstrim", "util-linux", &[]) {
                tracing::info!(volume = record.id.as_str(), error = error.sentence(), "the trim failed");
            }
            return Ok(());
        }
        if !loops::is_free(&data)? {
            // A process may write to an empty part between the check and the release.
            return Ok(());
        }
        punch_unwritten(&data)?;
        record.slack = false;
        self.store.save(record)
    }
}

/// Extends a file to a volume's size, if it is shorter.
fn lengthen(data: &Path, capacity: u64) -> Result<(), Error> {
    let file = File::options().write(true).open(data).map_err(Error::io("open", data))?;
    let length = file.metadata().map_err(Error::io("look at", data))?.len();
    if length >= capacity {
        return Ok(());
    }
    file.set_len(capacity).and_then(|()| file.sync_all()).map_err(Error::io("set the size of", data))
}

/// Reserves all space that a file may need (fallocate(2)). Blocks shared with a copy are unshared if the file system
/// supports it (xfs).
fn keep_room(data: &Path, record: &Record) -> Result<(), Error> {
    let file = File::options().read(true).write(true).open(data).map_err(Error::io("open", data))?;
    let with = |flags| rustix::fs::fallocate(&file, flags, 0, record.capacity);
    let kept = match with(FallocateFlags::UNSHARE_RANGE) {
        Err(Errno::OPNOTSUPP | Errno::INVAL) => with(FallocateFlags::empty()),
        kept => kept,
    };
    match kept {
        Ok(()) => file.sync_all().map_err(Error::io("write", data)),
        Err(Errno::NOSPC | Errno::DQUOT) => Err(Error::Exhausted(format!(
            "the host has no room for all the {} bytes of the volume {}",
            record.capacity, record.id
        ))),
        Err(Errno::OPNOTSUPP) => Err(Error::Invalid(
            "the mutable parameter space cannot be thick here: the file system of the host keeps no room"
                .to_owned(),
        )),
        Err(error) => Err(Error::io("keep room for", data)(error)),
    }
}

/// Releases the parts of a file that were never written. Only safe while no process writes to it.
fn punch_unwritten(data: &Path) -> Result<(), Error> {
    let file = File::options().read(true).write(true).open(data).map_err(Error::io("open", data))?;
    // Sync first: a reserved part whose data is not on disk yet may count as never written.
    file.sync_all().map_err(Error::io("write", data))?;
    let length = file.metadata().map_err(Error::io("look at", data))?.len();
    let punched = || -> Result<(), Errno> {
        let mut at = 0;
        while at < length {
            let begin = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(at))?;
            if begin >= length {
                break;
            }
            let end = match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(begin)) {
                Ok(end) => end.min(length),
                Err(Errno::NXIO) => length,
                Err(error) => return Err(error),
            };
            rustix::fs::fallocate(
                &file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                begin,
                end - begin,
            )?;
            at = end;
        }
        Ok(())
    };
    match punched() {
        // A file system without holes cannot release space.
        Ok(()) | Err(Errno::OPNOTSUPP) => file.sync_all().map_err(Error::io("write", data)),
        Err(error) => Err(Error::io("give room back of", data)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::FileExt, os::unix::fs::MetadataExt};

    use super::*;

    #[test]
    fn unwritten_space_is_released() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("data");
        let file = File::create(&data).expect("it can be made");
        if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).is_err() {
            return; // This file system cannot reserve space.
        }
        file.write_all_at(b"kept", 4 << 20).expect("it can be written");
        let before = fs::metadata(&data).expect("it is there").blocks();
        punch_unwritten(&data).expect("it gives back");
        let after = fs::metadata(&data).expect("it is there");
        assert!(after.blocks() < before / 4, "{} of {before} blocks", after.blocks());
        assert_eq!(after.len(), 8 << 20);
        let mut read = [0; 4];
        File::open(&data).and_then(|file| file.read_exact_at(&mut read, 4 << 20)).expect("it can be read");
        assert_eq!(&read, b"kept");
    }
}
