//! What all instances share: which volumes there are, and where they are attached, staged and published.
//! One JSON file, read and written under a lock.

use crate::mounts::mount_points;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tonic::Status;

/// How a volume is attached to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    /// Read-only.
    pub(crate) readonly: bool,
    /// In a mode that lets other nodes have it too.
    pub(crate) shared: bool,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// Size in bytes.
    pub(crate) capacity: i64,
    /// Nodes that it is attached to.
    pub(crate) attached: BTreeMap<String, Attachment>,
    /// Where it is staged, by node.
    pub(crate) staged: BTreeMap<String, BTreeSet<String>>,
    /// Where it is published and from which staging path, by node.
    pub(crate) published: BTreeMap<String, BTreeMap<String, String>>,
}

impl Volume {
    /// Whether anything uses it anywhere.
    pub(crate) fn in_use(&self) -> bool {
        !self.attached.is_empty()
            || self.staged.values().any(|paths| !paths.is_empty())
            || self.published.values().any(|paths| !paths.is_empty())
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// Volumes by id.
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// Nodes that ever had an instance.
    pub(crate) nodes: BTreeSet<String>,
}

impl Known {
    /// A volume that must be there.
    pub(crate) fn volume(&mut self, id: &str) -> Result<&mut Volume, Status> {
        self.volumes.get_mut(id).ok_or_else(|| Status::not_found(format!("there is no volume {id:?}")))
    }
}

/// The directory.
#[derive(Debug)]
pub(crate) struct San {
    dir: PathBuf,
}

impl San {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir.join("data")).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// The log of calls.
    pub(crate) fn trace(&self) -> PathBuf {
        self.dir.join("trace.jsonl")
    }

    /// A volume's data: a directory or an image.
    pub(crate) fn data(&self, id: &str) -> PathBuf {
        self.dir.join("data").join(id)
    }

    /// Where the plugin mounts a volume for itself on a node.
    pub(crate) fn outside(&self, node: &str, id: &str) -> PathBuf {
        self.dir.join("outside").join(node).join(id)
    }

    /// An instance for a node begins: what is not mounted any more is forgotten, since the kernel keeps the
    /// truth. `forget`: what is mounted is forgotten as well. Answers what that was, as volume and path.
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

    /// What is known now.
    pub(crate) fn read(&self) -> Result<Known, Status> {
        self.change(|known| Ok(known.clone()))
    }

    /// Changes what is known; nothing is written when the change fails.
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
    fn what_is_not_mounted_is_forgotten_when_its_node_begins() {
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
