//! The state directory: for each volume, snapshot and group a small JSON file, the data, and a lock.
//!
//! ```text
//! instance            the directory's identity
//! records/<id>.json   the record of a volume
//! snapshots/<id>.json the record of a snapshot
//! groups/<id>.json    the record of a group snapshot
//! data/<id>           the directory of a volume or snapshot
//! data/<id>.img       or its image; a thin volume is outside of the directory
//! locks/<id>          held with flock(2) during a call
//! ```
//!
//! Several processes may use one directory, for example the old and the new allocation of a plugin during an update.
//! So nothing is cached in memory, and the locks belong to the kernel, which releases them when their process ends.

use crate::{
    error::Error,
    record::{Backing, Group, GroupId, Instance, Phase, Record, Snapshot, SnapshotId, VERSION, VolumeId},
    thin::ThinPool,
};
use caravan_sys::tree::{self, Seals};
use rustix::fs::FlockOperation;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// An open state directory.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: PathBuf,
    instance: Instance,
    pool: Option<ThinPool>,
}

/// A type that is stored as a record.
pub(crate) trait Kept: Serialize + DeserializeOwned {
    /// The type of its ids.
    type Id: Ord;
    /// The directory of its records.
    const DIRECTORY: &str;
    fn id(&self) -> &str;
    fn version(&self) -> u32;
    fn parse_id(text: &str) -> Option<Self::Id>;
}

impl Kept for Record {
    type Id = VolumeId;
    const DIRECTORY: &str = "records";
    fn id(&self) -> &str {
        self.id.as_str()
    }
    fn version(&self) -> u32 {
        self.version
    }
    fn parse_id(text: &str) -> Option<VolumeId> {
        VolumeId::parse(text)
    }
}

impl Kept for Snapshot {
    type Id = SnapshotId;
    const DIRECTORY: &str = "snapshots";
    fn id(&self) -> &str {
        self.id.as_str()
    }
    fn version(&self) -> u32 {
        self.version
    }
    fn parse_id(text: &str) -> Option<SnapshotId> {
        SnapshotId::parse(text)
    }
}

impl Kept for Group {
    type Id = GroupId;
    const DIRECTORY: &str = "groups";
    fn id(&self) -> &str {
        self.id.as_str()
    }
    fn version(&self) -> u32 {
        self.version
    }
    fn parse_id(text: &str) -> Option<GroupId> {
        GroupId::parse(text)
    }
}

/// The lock of one volume or snapshot. It is released when dropped, or when the process and its running children end.
/// For example, a mkfs that outlives a killed plugin still excludes others from the volume.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Unlock explicitly: a program that was started for another volume may have inherited the file and keep it
        // open. Unlocking a locked file cannot fail.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Store {
    /// Opens the directory, and creates it if it does not exist.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        for directory in ["", "records", "snapshots", "groups", "data", "locks"] {
            let directory = root.join(directory);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .map_err(Error::io("create the directory", &directory))?;
        }
        let instance = instance(root)?;
        Ok(Self { root: root.to_owned(), instance, pool: None })
    }

    /// Uses a pool for thin volumes.
    pub(crate) fn with_pool(self, pool: Option<ThinPool>) -> Self {
        Self { pool, ..self }
    }

    /// Returns the pool for thin volumes.
    pub(crate) fn pool(&self) -> Result<&ThinPool, Error> {
        self.pool.as_ref().ok_or_else(|| {
            Error::Precondition(
                "the volume is in a thin pool, and the plugin was started without --lvm-thin".to_owned(),
            )
        })
    }

    pub(crate) fn instance(&self) -> &Instance {
        &self.instance
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Waits for a lock that calls hold for a moment only.
    pub(crate) fn wait_for_lock(&self, id: &str) -> Result<Lock, Error> {
        loop {
            match self.take_lock(id, FlockOperation::LockExclusive) {
                // The previous holder removed the file.
                Err(Error::Busy(_)) => {}
                outcome => return outcome,
            }
        }
    }

    /// Takes the lock of a volume or snapshot, or fails if another call holds it.
    pub(crate) fn lock(&self, id: &str) -> Result<Lock, Error> {
        self.take_lock(id, FlockOperation::NonBlockingLockExclusive)
    }

    fn take_lock(&self, id: &str, operation: FlockOperation) -> Result<Lock, Error> {
        let path = self.root.join("locks").join(id);
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("open the lock", &path))?;
        match rustix::fs::flock(&file, operation) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Busy(id.to_string())),
            Err(error) => return Err(Error::io("take the lock", path)(error)),
        }
        // The previous holder may have removed the file together with the volume. This lock would then protect
        // nothing.
        let ours = file.metadata().map_err(Error::io("read the lock", &path))?.ino();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.ino() == ours => {
                let inherited = rustix::io::FdFlags::empty();
                rustix::io::fcntl_setfd(&file, inherited).map_err(Error::io("keep the lock", &path))?;
                Ok(Lock { file })
            }
            _ => Err(Error::Busy(id.to_string())),
        }
    }

    /// Returns the record of a volume or snapshot, in any phase.
    pub(crate) fn load<T: Kept>(&self, id: &str) -> Result<Option<T>, Error> {
        let path = self.record_path::<T>(id);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read the record", path)(error)),
        };
        let record: T = match serde_json::from_slice(&bytes) {
            Ok(record) => record,
            Err(source) => return Err(Error::Record { path, source }),
        };
        if record.version() > VERSION {
            return Err(Error::Inconsistent(format!(
                "the record of {id} has version {}, this plugin knows up to {VERSION}",
                record.version()
            )));
        }
        Ok(Some(record))
    }

    /// Returns the record of the volume with this id in a request. The volume must be ready for use.
    pub(crate) fn ready(&self, id: &str) -> Result<Record, Error> {
        let Some(id) = VolumeId::parse(id) else {
            return Err(Error::NoVolume(id.to_owned()));
        };
        match self.load::<Record>(id.as_str())? {
            Some(record) if record.phase == Phase::Ready => Ok(record),
            Some(_) => Err(Error::NoVolume(id.to_string())),
            None => Err(self.missing(&id)),
        }
    }

    /// Returns the record of the snapshot with this id in a request. The snapshot must be ready for use.
    pub(crate) fn ready_snapshot(&self, id: &str) -> Result<Snapshot, Error> {
        let Some(id) = SnapshotId::parse(id) else {
            return Err(Error::NoSnapshot(id.to_owned()));
        };
        match self.load::<Snapshot>(id.as_str())? {
            Some(snapshot) if self.is_there(&snapshot)? => Ok(snapshot),
            None if id.instance() != self.instance.as_str() => {
                Err(self.elsewhere(format!("the snapshot {id}"), id.instance()))
            }
            _ => Err(Error::NoSnapshot(id.to_string())),
        }
    }

    /// Returns whether callers can see a snapshot; one of a group is visible while its group is ready.
    pub(crate) fn is_there(&self, snapshot: &Snapshot) -> Result<bool, Error> {
        let phase = match &snapshot.group {
            Some(group) => self.load::<Group>(group.as_str())?.map(|group| group.phase),
            None => Some(snapshot.phase),
        };
        Ok(phase == Some(Phase::Ready) && snapshot.phase == Phase::Ready)
    }

    /// Returns the error for a volume without a record.
    pub(crate) fn missing(&self, id: &VolumeId) -> Error {
        if id.instance() == self.instance.as_str() {
            Error::NoVolume(id.to_string())
        } else {
            self.elsewhere(format!("the volume {id}"), id.instance())
        }
    }

    pub(crate) fn elsewhere(&self, what: String, instance: &str) -> Error {
        Error::Elsewhere(what, instance.to_owned(), self.instance.as_str().to_owned())
    }

    /// Writes a record; it is on disk when this returns.
    pub(crate) fn save<T: Kept>(&self, record: &T) -> Result<(), Error> {
        let path = self.record_path::<T>(record.id());
        let bytes = serde_json::to_vec_pretty(record)
            .map_err(|source| Error::Record { path: path.clone(), source })?;
        write_atomically(&path, &bytes)
    }

    /// Removes the record and the lock file of a volume or snapshot.
    pub(crate) fn remove<T: Kept>(&self, id: &str) -> Result<(), Error> {
        remove_file(&self.record_path::<T>(id))?;
        sync_directory(&self.root.join(T::DIRECTORY))?;
        self.remove_lock(id)
    }

    /// Removes the lock file of an object that does not exist. Only for the lock's holder.
    pub(crate) fn remove_lock(&self, id: &str) -> Result<(), Error> {
        remove_file(&self.root.join("locks").join(id))
    }

    /// Returns the ids of all records after `after`, in order.
    pub(crate) fn ids_after<T: Kept>(&self, after: Option<&T::Id>) -> Result<Vec<T::Id>, Error> {
        let directory = self.root.join(T::DIRECTORY);
        let mut ids = Vec::new();
        for entry in fs::read_dir(&directory).map_err(Error::io("list", &directory))? {
            let entry = entry.map_err(Error::io("list", &directory))?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".json")).and_then(T::parse_id);
            ids.extend(id.filter(|id| after.is_none_or(|after| id > after)));
        }
        ids.sort();
        Ok(ids)
    }

    /// Returns the names of all lock files.
    pub(crate) fn locks(&self) -> Result<Vec<String>, Error> {
        let directory = self.root.join("locks");
        let entries = fs::read_dir(&directory).map_err(Error::io("list", &directory))?;
        entries
            .map(|entry| {
                let entry = entry.map_err(Error::io("list", &directory))?;
                Ok(entry.file_name().to_string_lossy().into_owned())
            })
            .collect()
    }

    /// Removes the temporary file of an interrupted write. Only for the lock's holder.
    pub(crate) fn remove_half_written<T: Kept>(&self, id: &str) -> Result<(), Error> {
        remove_file(&temporary(&self.record_path::<T>(id)))
    }

    /// Removes the data of a volume or snapshot, if it exists.
    pub(crate) fn remove_data(&self, id: &str, backing: Backing) -> Result<(), Error> {
        let path = self.data_path(id, backing);
        match backing {
            Backing::Image { .. } | Backing::Block => remove_file(&path),
            Backing::Directory | Backing::Quota => {
                tree::remove(&path, Seals::Keep).map(drop).map_err(Error::kernel)
            }
            Backing::Thin { .. } => self.pool()?.remove(id),
        }
    }

    /// Fails if a mount is at or below the data of a volume or snapshot: deleting the volume must not empty the
    /// mounted file system. A task that uses the volume may have made the mount. LVM itself refuses to remove a
    /// device in use.
    pub(crate) fn refuse_mounts(&self, id: &str, backing: Backing) -> Result<(), Error> {
        match backing {
            Backing::Thin { .. } => Ok(()),
            _ => tree::check(&self.data_path(id, backing)).map_err(Error::kernel),
        }
    }

    /// Returns the path of the data of a volume or snapshot.
    pub(crate) fn data_path(&self, id: &str, backing: Backing) -> PathBuf {
        let data = self.root.join("data");
        match backing {
            Backing::Directory | Backing::Quota => data.join(id),
            Backing::Image { .. } | Backing::Block => data.join(format!("{id}.img")),
            // Without a pool, the path does not exist, and calls that change the volume report the missing flag.
            Backing::Thin { .. } => self.pool.as_ref().map_or_else(|| data.join(id), |pool| pool.device(id)),
        }
    }

    fn record_path<T: Kept>(&self, id: &str) -> PathBuf {
        self.root.join(T::DIRECTORY).join(format!("{id}.json"))
    }
}

/// Creates the directory of a volume. Every user in a task may write to it. Other users of the host cannot reach it,
/// because they cannot enter the state directory.
pub(crate) fn make_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir(path).map_err(Error::io("create the directory", path))?;
    set_mode(path, OPEN)
}

/// The default permissions of a volume's top directory: access for every user.
pub(crate) const OPEN: u32 = 0o777;

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::io("set the permissions of", path))
}

pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

fn instance(root: &Path) -> Result<Instance, Error> {
    let path = root.join("instance");
    loop {
        match fs::read_to_string(&path) {
            Ok(text) => {
                return Instance::parse(text.trim()).ok_or_else(|| {
                    Error::Inconsistent(format!("{} does not hold eight hexadecimal digits", path.display()))
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", path)(error)),
        }
        let fresh = uuid::Uuid::new_v4().simple().to_string();
        let temporary = root.join(format!("instance.{fresh}"));
        write_synced(&temporary, fresh.get(..8).unwrap_or_default().as_bytes())?;
        // A link does not replace an existing file: if two processes start together, only one succeeds.
        let linked = fs::hard_link(&temporary, &path);
        remove_file(&temporary)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create", path)(error));
            }
            _ => sync_directory(root)?,
        }
    }
}

/// Writes a file atomically: temporary file, fsync, rename, fsync of the directory.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = temporary(path);
    write_synced(&temporary, bytes)?;
    fs::rename(&temporary, path).map_err(Error::io("replace", path))?;
    path.parent().map_or(Ok(()), sync_directory)
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension("json.new")
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io("write", path))
}

pub(crate) fn sync_directory(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(Error::io("sync the directory", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instance_is_chosen_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = Store::open(directory.path()).expect("it opens");
        let second = Store::open(directory.path()).expect("it opens again");
        assert_eq!(first.instance(), second.instance());
    }

    #[test]
    fn a_lock_is_exclusive_and_ends_when_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("it opens");
        let id = VolumeId::new(store.instance(), "data");
        let lock = store.lock(id.as_str()).expect("it is free");
        assert_eq!(store.lock(id.as_str()).expect_err("it is taken").code(), tonic::Code::Aborted);
        store
            .lock(VolumeId::new(store.instance(), "other").as_str())
            .expect("another volume is another lock");
        drop(lock);
        store.lock(id.as_str()).expect("it is free again");
    }

    #[test]
    fn damaged_and_newer_records_are_reported_and_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("it opens");
        let id = VolumeId::new(store.instance(), "data");
        fs::write(store.record_path::<Record>(id.as_str()), "{").expect("it can be written");
        let error = store.load::<Record>(id.as_str()).expect_err("it is damaged");
        assert!(error.sentence().contains("is damaged: EOF"), "{}", error.sentence());
        assert_eq!(store.ids_after::<Record>(None).expect("it lists"), [id]);
    }

    #[test]
    fn volumes_of_other_instances_are_elsewhere() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("it opens");
        let other = Instance::parse("00000000").expect("eight digits");
        let error = store.ready(VolumeId::new(&other, "data").as_str()).expect_err("it is not here");
        assert_eq!(error.code(), tonic::Code::Unavailable);
        let error = store.ready("data").expect_err("it is no id of ours");
        assert_eq!(error.code(), tonic::Code::NotFound);
    }
}
