//! The plugin's state: one JSON file, read before and written after every change, so that several
//! processes can share it.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tonic::Status;

/// The record of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// The name in CreateVolume.
    pub(crate) name: String,
    /// The size in bytes.
    pub(crate) capacity: i64,
    /// The attachment: absent if not attached, otherwise whether it is read-only.
    pub(crate) attached: Option<bool>,
    /// The staging paths.
    pub(crate) staged: BTreeSet<String>,
    /// The publish targets.
    pub(crate) published: BTreeSet<String>,
}

impl Volume {
    /// Returns whether the volume is attached, staged or published.
    pub(crate) fn in_use(&self) -> bool {
        self.attached.is_some() || !self.staged.is_empty() || !self.published.is_empty()
    }
}

/// All volumes by id.
pub(crate) type Volumes = BTreeMap<String, Volume>;

/// The state file, and the directories of the volumes next to that file.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
}

impl Store {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("create the state directory {}", dir.display()))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Returns the directory with a volume's data.
    pub(crate) fn data(&self, id: &str) -> PathBuf {
        self.dir.join(id)
    }

    /// Deletes the records of all uses of all volumes.
    pub(crate) fn drop_uses(&self) -> Result<()> {
        let removed = self.change(|volumes| {
            for volume in volumes.values_mut() {
                *volume =
                    Volume { name: volume.name.clone(), capacity: volume.capacity, ..Volume::default() };
            }
            Ok(())
        });
        removed.map_err(|status| anyhow::anyhow!("{}", status.message()))
    }

    /// Returns the current state.
    pub(crate) fn read(&self) -> Result<Volumes, Status> {
        self.change(|volumes| Ok(volumes.clone()))
    }

    /// Changes the state; writes nothing if the change fails.
    pub(crate) fn change<A>(
        &self,
        change: impl FnOnce(&mut Volumes) -> Result<A, Status>,
    ) -> Result<A, Status> {
        let broken = |error: anyhow::Error| Status::internal(format!("{error:#}"));
        let _lock = self.lock().map_err(broken)?;
        let mut volumes = self.load().map_err(broken)?;
        let before = volumes.clone();
        let answer = change(&mut volumes)?;
        if volumes != before {
            self.save(&volumes).map_err(broken)?;
        }
        Ok(answer)
    }

    fn lock(&self) -> Result<File> {
        let file = File::options().create(true).append(true).open(self.dir.join("lock"))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    }

    fn load(&self) -> Result<Volumes> {
        match fs::read(self.dir.join("state.json")) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Volumes::new()),
            Err(error) => Err(error.into()),
        }
    }

    fn save(&self, volumes: &Volumes) -> Result<()> {
        let temporary = self.dir.join("state.json.new");
        fs::write(&temporary, serde_json::to_vec_pretty(volumes)?)?;
        fs::rename(temporary, self.dir.join("state.json"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_outlive_the_process_and_their_uses_may_be_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let volume = Volume { name: "a".into(), capacity: 7, attached: Some(false), ..Volume::default() };
        store.change(|all| Ok(all.insert("id".into(), volume.clone()))).unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.read().unwrap()["id"], volume);
        assert!(
            store
                .change(|all| -> Result<(), Status> {
                    all.clear();
                    Err(Status::internal("no"))
                })
                .is_err()
        );
        store.drop_uses().unwrap();
        assert_eq!(store.read().unwrap()["id"], Volume { attached: None, ..volume });
    }
}
