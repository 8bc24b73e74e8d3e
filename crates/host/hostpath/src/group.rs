//! Group snapshots: snapshots of several volumes at one moment. The snapshots are created and deleted with their
//! group, whose record states whether they are visible to callers.
//!
//! Writes during the copies must not break the order of writes across volumes. So a mounted image is frozen until the
//! last copy is made, and a directory must have no writer. Devices in use cannot be frozen: at most one is allowed,
//! and its copy must be atomic.

use crate::{
    controller::{Plugin, required},
    error::Error,
    mountinfo,
    record::{Group, GroupId, Instant, Phase, Record, Snapshot, SnapshotId, VERSION},
    snapshot::{now, wire},
    store::Lock,
};
use caravan_proto::csi;
use rustix::mount::MountFlags;
use std::{collections::BTreeSet, path::Path};

impl Plugin {
    pub(crate) fn create_group(
        &self,
        request: &csi::CreateVolumeGroupSnapshotRequest,
    ) -> Result<csi::CreateVolumeGroupSnapshotResponse, Error> {
        required(&request.name, "group snapshot name")?;
        let volumes: BTreeSet<&str> = request.source_volume_ids.iter().map(String::as_str).collect();
        if volumes.is_empty() {
            return Err(Error::Invalid("the request has no source volume ids".to_owned()));
        }
        if volumes.len() != request.source_volume_ids.len() {
            return Err(Error::Invalid("the request names a source volume more than once".to_owned()));
        }
        if let Some(key) = request.parameters.keys().next() {
            return Err(Error::Invalid(format!(
                "the parameter {key:?} is unknown; groups of snapshots have none"
            )));
        }
        let id = GroupId::new(self.store.instance(), &request.name);
        // Check the request before taking locks, because that creates lock files.
        if self.store.load::<Group>(id.as_str())?.is_none() {
            volumes.iter().try_for_each(|volume| self.store.ready(volume).map(|_| ()))?;
        }
        let mut lock = self.store.lock(id.as_str())?;
        // A crash interrupted an earlier call. The remaining group was never reported to a caller.
        if let Some(group) =
            self.store.load::<Group>(id.as_str())?.filter(|group| group.phase != Phase::Ready)
        {
            self.remove_group(&group)?;
            // The lock's file was removed with the group, so another process could create and lock a new one. It
            // would then remove the group that this call creates, because that group is unfinished.
            drop(lock);
            lock = self.store.lock(id.as_str())?;
        }
        match self.store.load::<Group>(id.as_str())? {
            Some(group) if group.phase == Phase::Ready => {
                if group.name != request.name || !group.members.keys().map(String::as_str).eq(volumes) {
                    return Err(Error::Exists(format!(
                        "a group of snapshots named {:?} exists, of other volumes",
                        group.name
                    )));
                }
                let group_snapshot = Some(self.wire_group(group)?);
                return Ok(csi::CreateVolumeGroupSnapshotResponse { group_snapshot });
            }
            // Another process has begun a group with this name in between, and has not finished it.
            Some(_) => return Err(Error::Busy(id.to_string())),
            None => {}
        }
        let made = self.cut_group(&id, &request.name, &volumes);
        if made.is_err() {
            // As with volumes: if the removal fails now, the next attempt or the next start removes the group.
            let _ = match self.store.load::<Group>(id.as_str()) {
                Ok(Some(group)) => self.remove_group(&group),
                Ok(None) => self.store.remove_lock(id.as_str()),
                Err(error) => Err(error),
            };
        }
        let group_snapshot = Some(self.wire_group(made?)?);
        drop(lock);
        Ok(csi::CreateVolumeGroupSnapshotResponse { group_snapshot })
    }

    fn cut_group(&self, id: &GroupId, name: &str, volumes: &BTreeSet<&str>) -> Result<Group, Error> {
        let mut locks: Vec<Lock> = Vec::new();
        let mut records: Vec<Record> = Vec::new();
        for volume in volumes {
            locks.push(self.store.lock(self.store.ready(volume)?.id.as_str())?);
            records.push(self.store.ready(volume)?);
        }
        records.iter().try_for_each(|record| self.refuse_with_writers(record))?;
        self.refuse_without_room(&records.iter().collect::<Vec<_>>())?;
        let instance = self.store.instance();
        let member = |volume: &str| (volume.to_owned(), SnapshotId::of_member(instance, name, volume));
        let mut group = Group {
            version: VERSION,
            id: id.clone(),
            name: name.to_owned(),
            phase: Phase::Creating,
            members: volumes.iter().map(|volume| member(volume)).collect(),
            created: now(),
        };
        for (snapshot, record) in group.members.values().zip(&records) {
            let data = self.store.data_path(snapshot.as_str(), record.backing);
            if data.symlink_metadata().is_ok() && self.store.load::<Snapshot>(snapshot.as_str())?.is_none() {
                return Err(Error::Inconsistent(format!(
                    "{} is there without a record; it is kept, move it away to go on",
                    data.display()
                )));
            }
        }
        self.store.save(&group)?;
        let copied = self.copy_together(&group, &mut records);
        // In any case, thaw all file systems.
        let thawed = records.iter_mut().map(|record| self.thaw_leftover(record)).fold(Ok(()), Result::and);
        group.created = copied.and_then(|created| thawed.map(|()| created))?;
        group.phase = Phase::Ready;
        self.store.save(&group)?;
        Ok(group)
    }

    /// Freezes all volumes, then copies them. Returns the time of the copies.
    fn copy_together(&self, group: &Group, records: &mut [Record]) -> Result<Instant, Error> {
        let mut in_use = Vec::new();
        for record in records.iter_mut() {
            in_use.push(self.hold_still(record)?);
        }
        if in_use.iter().filter(|in_use| **in_use).count() > 1 {
            return Err(Error::Precondition(
                "more than one of the volumes is in use as a device, and what is written to them cannot be held \
                 back: unpublish all but one first"
                    .to_owned(),
            ));
        }
        let created = now();
        for ((record, id), in_use) in records.iter().zip(group.members.values()).zip(in_use) {
            let mut snapshot = Snapshot {
                version: VERSION,
                id: id.clone(),
                name: group.name.clone(),
                phase: Phase::Creating,
                volume: record.id.to_string(),
                backing: record.backing,
                size: record.capacity,
                created,
                group: Some(group.id.clone()),
            };
            self.store.save(&snapshot)?;
            let data = self.store.data_path(id.as_str(), record.backing);
            self.copy_held(record, &data, in_use, false)?;
            snapshot.phase = Phase::Ready;
            self.store.save(&snapshot)?;
        }
        Ok(created)
    }

    /// Refuses a directory with a writer, since writes to a directory cannot be frozen. Refuses a thin volume in use,
    /// since LVM cannot take snapshots of a frozen file system.
    fn refuse_with_writers(&self, record: &Record) -> Result<(), Error> {
        if record.backing.is_file() {
            return Ok(());
        }
        for path in record.published.keys() {
            let writable = mountinfo::at(Path::new(path))?
                .is_some_and(|mount| !mount.flags.contains(MountFlags::RDONLY));
            if writable {
                return Err(Error::Precondition(format!(
                    "the volume {} is {}, published for writing at {path}, and cannot be copied at one moment: \
                     unpublish it first",
                    record.id, record.backing
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn delete_group(
        &self,
        request: &csi::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<csi::DeleteVolumeGroupSnapshotResponse, Error> {
        required(&request.group_snapshot_id, "group snapshot id")?;
        let done = Ok(csi::DeleteVolumeGroupSnapshotResponse {});
        // The text is not an id of this plugin, so no such group exists and it counts as deleted.
        let Some(id) = GroupId::parse(&request.group_snapshot_id) else {
            return done;
        };
        if id.instance() != self.store.instance().as_str() {
            return Err(self.store.elsewhere(format!("the group of snapshots {id}"), id.instance()));
        }
        let _lock = self.store.lock(id.as_str())?;
        let Some(mut group) = self.store.load::<Group>(id.as_str())? else {
            self.store.remove::<Group>(id.as_str())?;
            return done;
        };
        if group.phase == Phase::Ready {
            refuse_mismatch(&group, &request.snapshot_ids)?;
            // A volume may be in creation from one of the snapshots; then the call fails before it changes anything.
            let _locks = self.lock_members(&group)?;
            for id in group.members.values() {
                if let Some(snapshot) = self.store.load::<Snapshot>(id.as_str())? {
                    self.store.refuse_mounts(id.as_str(), snapshot.backing)?;
                }
            }
            group.phase = Phase::Deleting;
            self.store.save(&group)?;
        }
        self.remove_group(&group)?;
        done
    }

    fn lock_members(&self, group: &Group) -> Result<Vec<Lock>, Error> {
        group.members.values().map(|id| self.store.lock(id.as_str())).collect()
    }

    /// Removes all data and records of a group that is not visible to callers.
    pub(crate) fn remove_group(&self, group: &Group) -> Result<(), Error> {
        let _locks = self.lock_members(group)?;
        for id in group.members.values() {
            if let Some(snapshot) = self.store.load::<Snapshot>(id.as_str())? {
                self.remove_snapshot_data(&snapshot)?;
            }
            self.store.remove::<Snapshot>(id.as_str())?;
        }
        self.store.remove::<Group>(group.id.as_str())
    }

    pub(crate) fn get_group(
        &self,
        request: &csi::GetVolumeGroupSnapshotRequest,
    ) -> Result<csi::GetVolumeGroupSnapshotResponse, Error> {
        required(&request.group_snapshot_id, "group snapshot id")?;
        let none = || Error::NoGroup(request.group_snapshot_id.clone());
        let id = GroupId::parse(&request.group_snapshot_id).ok_or_else(none)?;
        let group = match self.store.load::<Group>(id.as_str())? {
            Some(group) if group.phase == Phase::Ready => group,
            None if id.instance() != self.store.instance().as_str() => {
                return Err(self.store.elsewhere(format!("the group of snapshots {id}"), id.instance()));
            }
            _ => return Err(none()),
        };
        refuse_mismatch(&group, &request.snapshot_ids)?;
        Ok(csi::GetVolumeGroupSnapshotResponse { group_snapshot: Some(self.wire_group(group)?) })
    }

    fn wire_group(&self, group: Group) -> Result<csi::VolumeGroupSnapshot, Error> {
        let snapshots = group
            .members
            .values()
            .map(|id| Ok(wire(self.store.ready_snapshot(id.as_str())?)))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(csi::VolumeGroupSnapshot {
            group_snapshot_id: group.id.to_string(),
            snapshots,
            creation_time: Some(prost_types::Timestamp {
                seconds: group.created.seconds,
                nanos: group.created.nanoseconds,
            }),
            ready_to_use: true,
        })
    }
}

/// Fails if the request lists other snapshots than the group has ("Snapshot list mismatch").
fn refuse_mismatch(group: &Group, ids: &[String]) -> Result<(), Error> {
    let reported: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    let are: BTreeSet<&str> = group.members.values().map(SnapshotId::as_str).collect();
    if reported == are {
        return Ok(());
    }
    Err(Error::Invalid(format!("the snapshot ids of the request are not those of the group {}", group.id)))
}
