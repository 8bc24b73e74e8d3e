//! The calls of the node service: stage, publish and their reversal. They block; every step is idempotent, and each
//! mount is recorded before it is made.

use crate::{
    controller::{ATTACHMENT, Plugin, required, use_of},
    error::Error,
    loops, mountinfo,
    mounts::{self, Occupant},
    record::{Backing, Record, VolumeId},
    request::Capability,
    snapshot::written,
};
use caravan_proto::csi;
use rustix::mount::MountFlags;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
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
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        capability.suits(record.backing)?;
        let flags = per_mount_flags(&record, &capability)?;
        self.needs_attachment(&record, &request.publish_context)?;

        let desired = use_of(&capability, false);
        let place = self.staged_at(&record, &staging);
        if mounts::occupant(&self.store, &record, &place)? == Occupant::Volume {
            return match record.staged.get(&request.staging_target_path) {
                Some(is) if *is != desired => Err(Error::Exists(format!(
                    "the volume {id} is staged at {} in another way",
                    staging.display()
                ))),
                _ => {
                    mounts::add_flags(&place, flags)?;
                    self.prepare(&mut record, &place, &capability)?;
                    Ok(csi::NodeStageVolumeResponse {})
                }
            };
        }
        self.drop_stale(&mut record)?;
        record.staged.insert(request.staging_target_path, desired);
        self.store.save(&record)?;
        mounts::make_target(&staging, Backing::Directory)?;
        if record.backing.is_device() {
            mounts::make_target(&place, record.backing)?;
        }
        self.give_back(&mut record)?;
        self.fill_unmounted(&mut record)?;
        let mounted = self.mount(&record, &place, &capability, flags);
        self.free_devices_after(&record, mounted)?;
        self.prepare(&mut record, &place, &capability)?;
        Ok(csi::NodeStageVolumeResponse {})
    }

    /// Prepares a volume at its first mount for writing: sets the permissions and the group of its file system, and
    /// expands it.
    fn prepare(&self, record: &mut Record, place: &Path, capability: &Capability) -> Result<(), Error> {
        let writable = mountinfo::at(place)?.is_some_and(|mount| !mount.flags.contains(MountFlags::RDONLY));
        if record.backing.is_device() || !writable {
            return Ok(());
        }
        if !record.opened {
            // The top directory of a new file system belongs to root only, so it is opened to every task.
            self.open(record, place)?;
        }
        self.fill(record)?;
        match capability.group {
            Some(group) => mounts::give_to_group(place, group),
            None => Ok(()),
        }
    }

    /// Detaches devices that a failed mount leaves unused.
    fn free_devices_after(&self, record: &Record, mounted: Result<(), Error>) -> Result<(), Error> {
        if mounted.is_err() && record.backing.is_device() {
            // Return the error of the mount; the next call or start retries this.
            let _ = loops::free(&self.store.data_path(record.id.as_str(), record.backing));
        }
        mounted
    }

    /// Detaches devices that are no longer mounted.
    fn free_devices(&self, record: &Record) -> Result<(), Error> {
        if record.backing.is_device() {
            loops::free(&self.store.data_path(record.id.as_str(), record.backing))
        } else {
            Ok(())
        }
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
                let file = staging.join(&request.volume_id);
                if VolumeId::parse(&request.volume_id).is_some() && Self::is_mount_point(&file)? {
                    mounts::unmount_any(&file)?;
                    mounts::remove_target(&file)?;
                    return Ok(csi::NodeUnstageVolumeResponse {});
                }
                return self.end_unknown(&staging, error).map(|()| csi::NodeUnstageVolumeResponse {});
            }
        };
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        let place = self.staged_at(&record, &staging);
        mounts::unmount_volume(&self.store, &record, &place)?;
        if record.backing.is_device() {
            mounts::remove_target(&place)?;
        }
        self.free_devices(&record)?;
        self.give_back(&mut record)?;
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
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        capability.suits(record.backing)?;
        let mut flags = per_mount_flags(&record, &capability)?;
        let attached_readonly = record.attachment.as_ref().is_some_and(|attachment| attachment.readonly);
        let readonly = request.readonly || capability.only_reads() || attached_readonly;
        if readonly {
            flags |= MountFlags::RDONLY;
        }
        let staging = if self.options.stage {
            if request.staging_target_path.is_empty() {
                return Err(Error::Precondition("the request has no staging target path".to_owned()));
            }
            let staging = path(&request.staging_target_path, "staging target path")?;
            let place = self.staged_at(&record, &staging);
            if !mounts::is_mounted(&self.store, &record, &place)? {
                return Err(Error::Precondition(format!(
                    "the volume {id} is not staged at {}",
                    staging.display()
                )));
            }
            Some(place)
        } else {
            self.needs_attachment(&record, &request.publish_context)?;
            None
        };

        let desired = use_of(&capability, request.readonly);
        if mounts::occupant(&self.store, &record, &target)? == Occupant::Volume {
            return match record.published.get(&request.target_path) {
                Some(is) if *is != desired => Err(Error::Exists(format!(
                    "the volume {id} is published at {} in another way",
                    target.display()
                ))),
                _ => {
                    // A crash may have interrupted an earlier call between the mount and its flags.
                    mounts::add_flags(&target, flags)?;
                    self.prepare(&mut record, &target, &capability)?;
                    Ok(csi::NodePublishVolumeResponse {})
                }
            };
        }
        self.drop_stale(&mut record)?;
        if let Some(other) = record.published.keys().next()
            && (capability.is_for_one() || record.published.values().any(|other| other.is_for_one()))
        {
            return Err(Error::Precondition(format!(
                "the volume {id} is published at {other}, and SINGLE_NODE_SINGLE_WRITER allows no second path"
            )));
        }
        record.published.insert(request.target_path, desired);
        self.store.save(&record)?;
        let made = mounts::make_target(&target, record.backing)?;
        let mounted = match &staging {
            Some(staging) if !record.backing.is_device() => mounts::bind(staging, &target, flags),
            _ => self
                .fill_unmounted(&mut record)
                .and_then(|()| self.mount(&record, &target, &capability, flags)),
        };
        let mounted = self.free_devices_after(&record, mounted);
        if let Err(error) = mounted {
            if made {
                // Ignore this error, because the caller receives the error of the mount.
                let _ = mounts::remove_target(&target);
            }
            return Err(error);
        }
        self.prepare(&mut record, &target, &capability)?;
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
        let _lock = self.store.lock(id.as_str())?;
        let mut record = self.store.ready(id.as_str())?;
        mounts::unmount_volume(&self.store, &record, &target)?;
        mounts::remove_target(&target)?;
        self.free_devices(&record)?;
        self.give_back(&mut record)?;
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
        let Some(at) = self.shown_at(&record, &at)? else {
            return Err(Error::NotThere { volume: request.volume_id.clone(), path: at });
        };
        let volume_condition = Some(self.condition(&record));
        if record.backing.is_device() {
            // Parts that were never written take no space on the host. A device has no other measure of its use.
            let id = record.id.as_str();
            let used = match record.backing {
                Backing::Thin { .. } => self.store.pool()?.used(id)?,
                _ => written(&self.store.data_path(id, record.backing))?,
            };
            let used = used.min(record.capacity);
            let usage = device_usage(record.capacity, used);
            return Ok(csi::NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition });
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
            volume_condition,
        })
    }

    /// Fails, with controller publish, unless the publish context is that of the volume's current attachment.
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

    /// Mounts the volume's data itself, not a bind mount of another mount.
    fn mount(
        &self,
        record: &Record,
        target: &Path,
        capability: &Capability,
        flags: MountFlags,
    ) -> Result<(), Error> {
        let data = self.store.data_path(record.id.as_str(), record.backing);
        match record.backing {
            Backing::Directory | Backing::Quota => mounts::bind(&data, target, flags),
            Backing::Block => {
                self.fit_to_mount(record)?;
                // A read-only mount does not prevent writes to a device, so the device itself must be read-only.
                let device = loops::attach(&data, flags.contains(MountFlags::RDONLY))?;
                mounts::bind(&device, target, flags)
            }
            Backing::Thin { fs: None } => {
                self.store.pool()?.activate(record.id.as_str())?;
                self.fit_to_mount(record)?;
                let readonly = flags.contains(MountFlags::RDONLY);
                let device = if readonly { loops::attach(&data, true)? } else { data };
                mounts::bind(&device, target, flags)
            }
            Backing::Image { fs } | Backing::Thin { fs: Some(fs) } => {
                match self.other_mount(record, target)? {
                    // A file system is mounted from its device once, so a second path gets a bind mount of the first.
                    Some(other) => mounts::bind(&other, target, flags),
                    None => {
                        if let Backing::Thin { .. } = record.backing {
                            self.store.pool()?.activate(record.id.as_str())?;
                        }
                        self.fit_to_mount(record)?;
                        mounts::mount_data(&data, record.backing.is_file(), fs, target, &capability.flags)?;
                        mounts::add_flags(target, flags)
                    }
                }
            }
        }
    }

    /// Returns another path at which a volume is mounted for writing.
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

    /// Removes recorded uses whose mounts no longer exist, for example after a restart of the host.
    fn drop_stale(&self, record: &mut Record) -> Result<(), Error> {
        for path in record.staged.keys().cloned().collect::<Vec<_>>() {
            if !Self::is_mount_point(&self.staged_at(record, Path::new(&path)))? {
                record.staged.remove(&path);
            }
        }
        for path in record.published.keys().cloned().collect::<Vec<_>>() {
            if !Self::is_mount_point(Path::new(&path))? {
                record.published.remove(&path);
            }
        }
        Ok(())
    }

    /// Unmounts a volume that no longer has a record. Without a mount, returns the error that the volume does not
    /// exist.
    fn end_unknown(&self, path: &Path, error: Error) -> Result<(), Error> {
        match error {
            Error::NoVolume(_) | Error::Elsewhere(..) if mounts::unmount_any(path)? => Ok(()),
            error => Err(error),
        }
    }
}

/// Returns the per-mount flags among the flags of a capability. A directory allows no others, because its file system
/// belongs to the host.
fn per_mount_flags(record: &Record, capability: &Capability) -> Result<MountFlags, Error> {
    let (flags, others) =
        mountinfo::flags(capability.flags.iter().flat_map(|flag| flag.split(',')).map(str::trim));
    if record.backing.is_directory() && !others.is_empty() {
        return Err(Error::Invalid(format!(
            "{} of the mount flags cannot be had for a volume that is a directory",
            others.len()
        )));
    }
    Ok(flags)
}

/// Returns the usage of a device, as far as its sparse file shows it.
fn device_usage(total: u64, used: u64) -> csi::VolumeUsage {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    csi::VolumeUsage {
        available: signed(total.saturating_sub(used)),
        total: signed(total),
        used: signed(used),
        unit: csi::volume_usage::Unit::Bytes.into(),
    }
}

pub(crate) fn path(value: &str, field: &str) -> Result<PathBuf, Error> {
    required(value, field)?;
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(Error::Invalid(format!("the {field} {value:?} is not absolute")))
    }
}
