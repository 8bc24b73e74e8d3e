//! The plugins: the built-in one, and executables of a directory.

use super::fault::HostVolumeFault;
use super::{external, mkdir};
use caravan_lang::version::{Flavor, Version};
use caravan_messages::HostVolumeCreated;
use caravan_types::NodeId;
use caravan_types::host_volume::HostVolume;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The directories of plugins and their volumes.
#[derive(Clone, Debug)]
pub(super) struct Plugins {
    pub(super) volumes_dir: PathBuf,
    pub(super) plugin_dir: PathBuf,
    pub(super) node_id: NodeId,
    pub(super) node_pool: String,
}

/// A plugin that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plugin {
    /// The built-in plugin, which creates plain directories.
    Mkdir,
    /// An executable; its id is its file's name.
    External { id: String, path: PathBuf },
}

/// Refuses an id that would lead out of the volumes' directory.
pub(super) fn check_id(volume: &HostVolume) -> Result<(), HostVolumeFault> {
    let id = volume.id.as_str();
    match id {
        "" | "." | ".." => Err(HostVolumeFault::Id(id.to_owned())),
        _ if id.contains(['/', '\0']) => Err(HostVolumeFault::Id(id.to_owned())),
        _ => Ok(()),
    }
}

impl Plugins {
    /// Returns the plugin with an id. Ids cannot lead out of the plugins' directory.
    pub(super) fn find(&self, id: &str) -> Result<Plugin, HostVolumeFault> {
        if id == HostVolume::DEFAULT_PLUGIN {
            return Ok(Plugin::Mkdir);
        }
        let missing = || HostVolumeFault::NoPlugin(id.to_owned());
        if matches!(id, "" | "." | "..") || id.contains(['/', '\0']) {
            return Err(missing());
        }
        let path = self.plugin_dir.join(id);
        let metadata = fs::metadata(&path).map_err(|_| missing())?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return Err(HostVolumeFault::NotExecutable(id.to_owned()));
        }
        Ok(Plugin::External { id: id.to_owned(), path })
    }

    /// Returns every working plugin with its version. Failing plugins are logged.
    pub(super) async fn fingerprint(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::from([(HostVolume::DEFAULT_PLUGIN.to_owned(), mkdir::VERSION.to_owned())]);
        let asked = self.executables().into_iter().map(|(id, path)| async move {
            let version = external::fingerprint(&id, &path).await.and_then(|version| {
                Version::parse(&version, Flavor::Loose).map(|_| version.clone()).map_err(|e| {
                    external::fault("fingerprinting".to_owned(), &id, format!("{version:?}: {e}"))
                })
            });
            (id, version)
        });
        for (id, version) in futures::future::join_all(asked).await {
            match version {
                Ok(version) => {
                    found.entry(id).or_insert(version);
                }
                Err(error) => tracing::warn!(plugin = id, %error, "fingerprint of host volume plugin failed"),
            }
        }
        found
    }

    fn executables(&self) -> Vec<(String, PathBuf)> {
        let Ok(entries) = fs::read_dir(&self.plugin_dir) else { return Vec::new() };
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|id| match self.find(&id) {
                Ok(Plugin::External { id, path }) => Some((id, path)),
                _ => None,
            })
            .collect()
    }

    /// Creates a volume, or updates it.
    pub(super) async fn create(
        &self,
        plugin: &Plugin,
        volume: &HostVolume,
    ) -> Result<HostVolumeCreated, HostVolumeFault> {
        match plugin {
            Plugin::Mkdir => mkdir::create(&self.volumes_dir, volume),
            Plugin::External { id, path } => external::create(self, id, path, volume).await,
        }
    }

    /// Deletes a volume; an absent volume is not an error.
    pub(super) async fn delete(
        &self,
        plugin: &Plugin,
        volume: &HostVolume,
        created_path: &str,
    ) -> Result<(), HostVolumeFault> {
        check_id(volume)?;
        match plugin {
            Plugin::Mkdir => mkdir::delete(&self.volumes_dir, volume).await,
            Plugin::External { id, path } => external::delete(self, id, path, volume, created_path).await,
        }
    }
}
