//! The state that all instances share: the volumes, and where they are attached, staged and published.
//! One JSON file, read and written under a lock.

use crate::mounts::mount_points;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tonic::Status;

/// The attachment of a volume to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    /// Whether the attachment is read-only.
    pub(crate) readonly: bool,
    /// Whether the access mode allows other nodes.
    pub(crate) shared: bool,
}

/// The record of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// The size in bytes.
    pub(crate) capacity: i64,
    /// The nodes to which the volume is attached.
    pub(crate) attached: BTreeMap<String, Attachment>,
    /// The staging paths by node.
    pub(crate) staged: BTreeMap<String, BTreeSet<String>>,
    /// By node the publish targets, each with its staging path.
    pub(crate) published: BTreeMap<String, BTreeMap<String, String>>,
}

impl Volume {
    /// Returns whether the volume is attached, staged or published anywhere.
    pub(crate) fn in_use(&self) -> bool {
        !self.attached.is_empty()
            || self.staged.values().any(|paths| !paths.is_empty())
            || self.published.values().any(|paths| !paths.is_empty())
    }
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// The volumes by id.
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// The nodes that ever had an instance.
    pub(crate) nodes: BTreeSet<String>,
}

impl Known {
    /// Returns an existing volume, or NOT_FOUND.
    pub(crate) fn volume(&mut self, id: &str) -> Result<&mut Volume, Status> {
        self.volumes.get_mut(id).ok_or_else(|| Status::not_found(format!("there is no volume {id:?}")))
    }
}

/// The shared directory.
#[derive(Debug)]
pub(crate) struct San {
    dir: PathBuf,
}

impl San {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir.join("data")).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Returns the path of the log of calls.
    pub(crate) fn trace(&self) -> PathBuf {
        self.dir.join("trace.jsonl")
    }

    /// Returns the path of a volume's data: a directory or an image.
    pub(crate) fn data(&self, id: &str) -> PathBuf {
        self.dir.join("data").join(id)
    }

    /// Returns the path of the plugin's own mount of a volume on a node.
    pub(crate) fn outside(&self, node: &str, id: &str) -> PathBuf {
        self.dir.join("outside").join(node).join(id)
    }

    /// Starts an instance for a node: deletes records of paths that are no longer mounted, because the kernel's table
    /// is authoritative. With `forget`, deletes records of existing mounts too. Returns the deleted records as volume
    /// and path.
    pub(crate) fn begin_node(&self, node: &str, forget: bool) -> Result<Vec<(String, String)>> {
        let begun = self.change(|known| {
            let mounted = mount_points()?;
            known.nodes.insert(node.to_owned());
            let mut gone = Vec::new();
            for (id, volume) in &mut known.volumes {
                let mut keep = |path: &String| {
                    let there = !forget && mounted.contains(path);
                    if !there {
                        gone.push((id.clone(), path.clone()));
                    }
                    there
                };
                if let Some(paths) = volume.published.get_mut(node) {
                    paths.retain(|path, _| keep(path));
                }
                if let Some(paths) = volume.staged.get_mut(node) {
                    paths.retain(|path| keep(path));
                }
            }
            Ok(gone)
        });
        begun.map_err(|status| anyhow::anyhow!("{}", status.message()))
    }

    /// Returns the current state.
    pub(crate) fn read(&self) -> Result<Known, Status> {
        self.change(|known| Ok(known.clone()))
    }

    /// Changes the state; writes nothing if the change fails.
    pub(crate) fn change<A>(
        &self,
        change: impl FnOnce(&mut Known) -> Result<A, Status>,
    ) -> Result<A, Status> {
        let broken = |error: anyhow::Error| Status::internal(format!("{error:#}"));
        let _lock = self.lock().map_err(broken)?;
        let mut known = self.load().map_err(broken)?;
        let before = known.clone();
        let answer = change(&mut known)?;
        if known != before {
            self.save(&known).map_err(broken)?;
        }
        Ok(answer)
    }

    fn lock(&self) -> Result<File> {
        let file = File::options().create(true).append(true).open(self.dir.join("lock"))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    }

    fn load(&self) -> Result<Known> {
        match fs::read(self.dir.join("state.json")) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Known::default()),
            Err(error) => Err(error.into()),
        }
    }

    fn save(&self, known: &Known) -> Result<()> {
        let new = self.dir.join("state.json.new");
        fs::write(&new, serde_json::to_vec_pretty(known)?)?;
        fs::rename(new, self.dir.join("state.json"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmounted_volumes_are_dropped_when_their_node_starts() {
        let dir = tempfile::tempdir().unwrap();
        let san = San::open(dir.path()).unwrap();
        let mut volume = Volume { capacity: 7, ..Volume::default() };
        volume.staged.entry("a".into()).or_default().insert("/nowhere/staged".into());
        volume.published.entry("a".into()).or_default().insert("/nowhere/target".into(), String::new());
        volume.published.entry("b".into()).or_default().insert("/elsewhere".into(), String::new());
        san.change(|known| Ok(known.volumes.insert("v".into(), volume))).unwrap();
        let gone = san.begin_node("a", false).unwrap();
        assert_eq!(gone.len(), 2, "{gone:?}");
        let volume = san.read().unwrap().volume("v").unwrap().clone();
        assert!(volume.in_use(), "of other nodes nothing is known here");
        assert!(volume.published["a"].is_empty() && volume.staged["a"].is_empty());
    }

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let san = San::open(dir.path()).unwrap();
        let failed = san.change(|known| -> Result<(), Status> {
            known.nodes.insert("a".into());
            Err(Status::internal("no"))
        });
        assert!(failed.is_err() && san.read().unwrap() == Known::default());
    }
}
