//! Volumes on the node: stage, publish and back. Blocking; every step is safe to repeat, and what is
//! about to be mounted is on record before it is.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use caravan_proto::csi;
use rustix::mount::MountFlags;

use crate::{
    controller::{ATTACHMENT, Plugin, required, use_of},
    error::Error,
    mountinfo,
    mounts::{self, Occupant},
    record::{Backing, Record},
    request::Capability,
    store,
};

impl Plugin {
    pub(crate) fn stage(
        &self,
        request: csi::NodeStageVolumeRequest,
    ) -> Result<csi::NodeStageVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        let staging = path(&request.staging_target_path, "staging target path")?;
        let capability = Capability::check(request.volume_capability)?;
        let id = self.store.ready(&request.volume_id)?.id;
        let _lock = self.store.lock(&id)?;
        let mut record = self.store.ready(id.as_str())?;
        capability.suits(record.backing)?;
        let flags = per_mount_flags(&record, &capability)?;
        self.needs_attachment(&record, &request.publish_context)?;

        let wanted = use_of(&capability, false);
        if mounts::occupant(&self.store, &record, &staging)? == Occupant::Volume {
            return match record.staged.get(&request.staging_target_path) {
                Some(is) if *is != wanted => Err(Error::Exists(format!(
                    "the volume {id} is staged at {} with another access mode",
                    staging.display()
                ))),
                _ => {
                    mounts::add_flags(&staging, flags)?;
                    self.open_image(&mut record, &staging)?;
                    Ok(csi::NodeStageVolumeResponse {})
                }
            };
        }
        self.drop_stale(&mut record)?;
        record.staged.insert(request.staging_target_path, wanted);
        self.store.save(&record)?;
        mounts::make_target(&staging)?;
        self.mount(&record, &staging, &capability, flags)?;
        self.open_image(&mut record, &staging)?;
        Ok(csi::NodeStageVolumeResponse {})
    }

    pub(crate) fn unstage(
        &self,
        request: &csi::NodeUnstageVolumeRequest,
    ) -> Result<csi::NodeUnstageVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        let staging = path(&request.staging_target_path, "staging target path")?;
        let id = match self.store.ready(&request.volume_id) {
            Ok(record) => record.id,
            Err(error) => {
                return self.end_unknown(&staging, error).map(|()| csi::NodeUnstageVolumeResponse {});
            }
        };
        let _lock = self.store.lock(&id)?;
        let mut record = self.store.ready(id.as_str())?;
        mounts::unmount_volume(&self.store, &record, &staging)?;
        if record.staged.remove(&request.staging_target_path).is_some() {
            self.store.save(&record)?;
        }
        Ok(csi::NodeUnstageVolumeResponse {})
    }

    pub(crate) fn publish(
        &self,
        request: csi::NodePublishVolumeRequest,
    ) -> Result<csi::NodePublishVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        let target = path(&request.target_path, "target path")?;
        let capability = Capability::check(request.volume_capability)?;
        let id = self.store.ready(&request.volume_id)?.id;
        let _lock = self.store.lock(&id)?;
        let mut record = self.store.ready(id.as_str())?;
        capability.suits(record.backing)?;
        let mut flags = per_mount_flags(&record, &capability)?;
        if request.readonly {
            flags |= MountFlags::RDONLY;
        }
        let staging = if self.options.stage {
            if request.staging_target_path.is_empty() {
                return Err(Error::Precondition("the request has no staging target path".to_owned()));
            }
            let staging = path(&request.staging_target_path, "staging target path")?;
            if !mounts::is_mounted(&self.store, &record, &staging)? {
                return Err(Error::Precondition(format!(
                    "the volume {id} is not staged at {}",
                    staging.display()
                )));
            }
            Some(staging)
        } else {
            self.needs_attachment(&record, &request.publish_context)?;
            None
        };

        let wanted = use_of(&capability, request.readonly);
        if mounts::occupant(&self.store, &record, &target)? == Occupant::Volume {
            return match record.published.get(&request.target_path) {
                Some(is) if *is != wanted => Err(Error::Exists(format!(
                    "the volume {id} is published at {} in another way",
                    target.display()
                ))),
                _ => {
                    // A crash may have come between the mount and its flags.
                    mounts::add_flags(&target, flags)?;
                    Ok(csi::NodePublishVolumeResponse {})
                }
            };
        }
        self.drop_stale(&mut record)?;
        record.published.insert(request.target_path, wanted);
        self.store.save(&record)?;
        let made = mounts::make_target(&target)?;
        let mounted = match &staging {
            Some(staging) => mounts::bind(staging, &target, flags),
            None => self.mount(&record, &target, &capability, flags),
        };
        if let Err(error) = mounted {
            if made {
                // The error of the mount is the one to tell.
                let _ = mounts::remove_target(&target);
            }
            return Err(error);
        }
        if staging.is_none() && !request.readonly {
            self.open_image(&mut record, &target)?;
        }
        Ok(csi::NodePublishVolumeResponse {})
    }

    pub(crate) fn unpublish(
        &self,
        request: &csi::NodeUnpublishVolumeRequest,
    ) -> Result<csi::NodeUnpublishVolumeResponse, Error> {
        required(&request.volume_id, "volume id")?;
        let target = path(&request.target_path, "target path")?;
        let id = match self.store.ready(&request.volume_id) {
            Ok(record) => record.id,
            Err(error) => {
                self.end_unknown(&target, error)?;
                mounts::remove_target(&target)?;
                return Ok(csi::NodeUnpublishVolumeResponse {});
            }
        };
        let _lock = self.store.lock(&id)?;
        let mut record = self.store.ready(id.as_str())?;
        mounts::unmount_volume(&self.store, &record, &target)?;
        mounts::remove_target(&target)?;
        if record.published.remove(&request.target_path).is_some() {
            self.store.save(&record)?;
        }
        Ok(csi::NodeUnpublishVolumeResponse {})
    }

    pub(crate) fn stats(
        &self,
        request: &csi::NodeGetVolumeStatsRequest,
    ) -> Result<csi::NodeGetVolumeStatsResponse, Error> {
        required(&request.volume_id, "volume id")?;
        required(&request.volume_path, "volume path")?;
        let record = self.store.ready(&request.volume_id)?;
        let at = PathBuf::from(&request.volume_path);
        if !mounts::is_mounted(&self.store, &record, &at)? {
            return Err(Error::NotThere { volume: request.volume_id.clone(), path: at });
        }
        let stat = rustix::fs::statvfs(&at).map_err(Error::io("look at the file system of", &at))?;
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let usage = |available: u64, free: u64, total: u64, size: u64, unit: csi::volume_usage::Unit| {
            csi::VolumeUsage {
                available: signed(available.saturating_mul(size)),
                total: signed(total.saturating_mul(size)),
                used: signed(total.saturating_sub(free).saturating_mul(size)),
                unit: unit.into(),
            }
        };
        use csi::volume_usage::Unit::{Bytes, Inodes};
        Ok(csi::NodeGetVolumeStatsResponse {
            usage: vec![
                usage(stat.f_bavail, stat.f_bfree, stat.f_blocks, stat.f_frsize, Bytes),
                usage(stat.f_favail, stat.f_ffree, stat.f_files, 1, Inodes),
            ],
            volume_condition: Some(self.condition(&record)),
        })
    }

    /// With controller publish, a volume can be mounted only with the context of its present attachment.
    fn needs_attachment(&self, record: &Record, context: &BTreeMap<String, String>) -> Result<(), Error> {
        if !self.options.controller_publish {
            return Ok(());
        }
        let Some(attachment) = &record.attachment else {
            return Err(Error::Precondition(format!(
                "the volume {} is not published to this node: ControllerPublishVolume has to come first",
                record.id
            )));
        };
        match context.get(ATTACHMENT) {
            Some(token) if *token == attachment.token => Ok(()),
            Some(_) => Err(Error::Precondition(format!(
                "the publish context is not that of the present publication of the volume {}",
                record.id
            ))),
            None => Err(Error::Precondition(format!("the publish context lacks {ATTACHMENT}"))),
        }
    }

    /// Mounts the data itself, rather than another mount of it.
    fn mount(
        &self,
        record: &Record,
        target: &Path,
        capability: &Capability,
        flags: MountFlags,
    ) -> Result<(), Error> {
        let data = self.store.data_path(&record.id, record.backing);
        match record.backing {
            Backing::Directory => mounts::bind(&data, target, flags),
            Backing::Image { fs } => match self.other_mount(record, target)? {
                // One file system has one loop device: a second place shows the first.
                Some(other) => mounts::bind(&other, target, flags),
                None => {
                    mounts::mount_image(&data, fs, target, &capability.flags)?;
                    mounts::add_flags(target, flags)
                }
            },
        }
    }

    /// Where else a volume is mounted for writing.
    fn other_mount(&self, record: &Record, besides: &Path) -> Result<Option<PathBuf>, Error> {
        for path in record.staged.keys().chain(record.published.keys()).map(PathBuf::from) {
            if path == besides || !mounts::is_mounted(&self.store, record, &path)? {
                continue;
            }
            let readonly =
                mountinfo::at(&path)?.is_some_and(|mount| mount.flags.contains(MountFlags::RDONLY));
            if !readonly {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// A fresh file system belongs to root alone: the first mount opens its top to every task.
    fn open_image(&self, record: &mut Record, mounted: &Path) -> Result<(), Error> {
        let readonly = mountinfo::at(mounted)?.is_some_and(|mount| mount.flags.contains(MountFlags::RDONLY));
        if record.opened || readonly {
            return Ok(());
        }
        store::open_for_everyone(mounted)?;
        record.opened = true;
        self.store.save(record)
    }

    /// Forgets uses whose mounts are gone, as after a restart of the host.
    fn drop_stale(&self, record: &mut Record) -> Result<(), Error> {
        let stale = |uses: &BTreeMap<String, crate::record::Use>| -> Result<Vec<String>, Error> {
            let mut stale = Vec::new();
            for path in uses.keys() {
                if mountinfo::at(Path::new(path))?.is_none() {
                    stale.push(path.clone());
                }
            }
            Ok(stale)
        };
        for path in stale(&record.staged)? {
            record.staged.remove(&path);
        }
        for path in stale(&record.published)? {
            record.published.remove(&path);
        }
        Ok(())
    }

    /// Ends a mount of a volume that has no record any more; when there is none, the volume's absence is
    /// what there is to say.
    fn end_unknown(&self, path: &Path, error: Error) -> Result<(), Error> {
        match error {
            Error::NoVolume(_) | Error::Elsewhere(..) if mounts::unmount_any(path)? => Ok(()),
            error => Err(error),
        }
    }
}

/// The per-mount flags among the flags of a capability. A directory can have no others: the file system
/// it lives on is the host's.
fn per_mount_flags(record: &Record, capability: &Capability) -> Result<MountFlags, Error> {
    let (flags, others) =
        mountinfo::flags(capability.flags.iter().flat_map(|flag| flag.split(',')).map(str::trim));
    if record.backing == Backing::Directory && !others.is_empty() {
        return Err(Error::Invalid(format!(
            "{} of the mount flags cannot be had for a volume that is a directory",
            others.len()
        )));
    }
    Ok(flags)
}

fn path(value: &str, field: &str) -> Result<PathBuf, Error> {
    required(value, field)?;
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(Error::Invalid(format!("the {field} {value:?} is not absolute")))
    }
}
