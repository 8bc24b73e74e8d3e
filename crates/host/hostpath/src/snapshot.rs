//! Snapshots, and the content of new volumes. A snapshot is an independent copy of a volume's data.

use crate::{
    controller::{Plugin, required, space},
    copy::{self, Manner},
    error::Error,
    loops, mounts,
    mutable::Space,
    record::{Backing, Instant, Origin, Phase, Record, Snapshot, SnapshotId, Source, VERSION, VolumeId},
    request::Content,
};
use caravan_proto::csi;
use std::{path::Path, time::SystemTime};

impl Plugin {
    pub(crate) fn create_snapshot(
        &self,
        request: &csi::CreateSnapshotRequest,
    ) -> Result<csi::CreateSnapshotResponse, Error> {
        required(&request.name, "snapshot name")?;
        required(&request.source_volume_id, "source volume id")?;
        if let Some(key) = request.parameters.keys().next() {
            return Err(Error::Invalid(format!("the parameter {key:?} is unknown; snapshots have none")));
        }
        let id = SnapshotId::new(self.store.instance(), &request.name);
        // Check the request before taking locks, because that creates lock files.
        let existing = self.store.load::<Snapshot>(id.as_str())?;
        if existing.is_none() {
            self.store.ready(&request.source_volume_id)?;
        }
        let _lock = self.store.lock(id.as_str())?;
        match self.store.load::<Snapshot>(id.as_str())? {
            Some(snapshot) if snapshot.phase == Phase::Ready => {
                if snapshot.name != request.name || snapshot.volume != request.source_volume_id {
                    return Err(Error::Exists(format!(
                        "a snapshot named {:?} exists, of the volume {}",
                        snapshot.name, snapshot.volume
                    )));
                }
                return Ok(csi::CreateSnapshotResponse { snapshot: Some(wire(snapshot)) });
            }
            // A crash interrupted a creation or a deletion. The snapshot was never reported to a caller, or was about
            // to be deleted.
            Some(snapshot) => self.remove_snapshot_data(&snapshot)?,
            None => {}
        }
        let made =
            self.store.ready(&request.source_volume_id).and_then(|record| self.cut(&id, &record, request));
        if made.is_err() {
            // As with volumes: if the removal fails now, the next attempt or the next start removes the data.
            let _ = match self.store.load::<Snapshot>(id.as_str()) {
                Ok(Some(snapshot)) => self
                    .remove_snapshot_data(&snapshot)
                    .and_then(|()| self.store.remove::<Snapshot>(id.as_str())),
                Ok(None) => self.store.remove_lock(id.as_str()),
                Err(error) => Err(error),
            };
        }
        Ok(csi::CreateSnapshotResponse { snapshot: Some(wire(made?)) })
    }

    fn cut(
        &self,
        id: &SnapshotId,
        record: &Record,
        request: &csi::CreateSnapshotRequest,
    ) -> Result<Snapshot, Error> {
        let mut snapshot = Snapshot {
            version: VERSION,
            id: id.clone(),
            name: request.name.clone(),
            phase: Phase::Creating,
            volume: record.id.to_string(),
            backing: record.backing,
            size: record.capacity,
            created: now(),
            group: None,
        };
        let data = self.store.data_path(id.as_str(), snapshot.backing);
        if data.symlink_metadata().is_ok() {
            return Err(Error::Inconsistent(format!(
                "{} is there without a record; it is kept, move it away to go on",
                data.display()
            )));
        }
        self.store.save(&snapshot)?;
        // The size is that at the time of the copy.
        snapshot.size = self.copy_volume(record.id.as_str(), &data, false)?;
        snapshot.created = now();
        snapshot.phase = Phase::Ready;
        self.store.save(&snapshot)?;
        Ok(snapshot)
    }

    pub(crate) fn delete_snapshot(
        &self,
        request: &csi::DeleteSnapshotRequest,
    ) -> Result<csi::DeleteSnapshotResponse, Error> {
        required(&request.snapshot_id, "snapshot id")?;
        let done = Ok(csi::DeleteSnapshotResponse {});
        let Some(id) = SnapshotId::parse(&request.snapshot_id) else {
            return done;
        };
        if id.instance() != self.store.instance().as_str() {
            return Err(self.store.elsewhere(format!("the snapshot {id}"), id.instance()));
        }
        let _lock = self.store.lock(id.as_str())?;
        if let Some(mut snapshot) = self.store.load::<Snapshot>(id.as_str())? {
            if let Some(group) = &snapshot.group {
                return Err(Error::Invalid(format!(
                    "the snapshot {id} belongs to the group {group} and goes with it (DeleteVolumeGroupSnapshot)"
                )));
            }
            if snapshot.phase == Phase::Ready {
                self.store.refuse_mounts(snapshot.id.as_str(), snapshot.backing)?;
                snapshot.phase = Phase::Deleting;
                self.store.save(&snapshot)?;
            }
            self.remove_snapshot_data(&snapshot)?;
        }
        self.store.remove::<Snapshot>(id.as_str())?;
        done
    }

    pub(crate) fn remove_snapshot_data(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.store.remove_data(snapshot.id.as_str(), snapshot.backing)
    }

    pub(crate) fn get_snapshot(
        &self,
        request: &csi::GetSnapshotRequest,
    ) -> Result<csi::GetSnapshotResponse, Error> {
        required(&request.snapshot_id, "snapshot id")?;
        let snapshot = self.store.ready_snapshot(&request.snapshot_id)?;
        Ok(csi::GetSnapshotResponse { snapshot: Some(wire(snapshot)) })
    }

    pub(crate) fn list_snapshots(
        &self,
        request: &csi::ListSnapshotsRequest,
    ) -> Result<csi::ListSnapshotsResponse, Error> {
        let most = usize::try_from(request.max_entries)
            .map_err(|_| Error::Invalid(format!("{} entries are less than none", request.max_entries)))?;
        let after = match request.starting_token.as_str() {
            "" => None,
            token => Some(SnapshotId::parse(token).ok_or_else(|| Error::Token(token.to_owned()))?),
        };
        let mut entries = Vec::new();
        let mut last = None;
        for id in self.store.ids_after::<Snapshot>(after.as_ref())? {
            if !request.snapshot_id.is_empty() && request.snapshot_id != id.as_str() {
                continue;
            }
            // A snapshot may have been deleted since the directory was listed.
            let Some(snapshot) = self.store.load::<Snapshot>(id.as_str())? else { continue };
            let of_volume =
                request.source_volume_id.is_empty() || request.source_volume_id == snapshot.volume;
            if !of_volume || !self.store.is_there(&snapshot)? {
                continue;
            }
            if most != 0 && entries.len() == most {
                let next_token = last.as_ref().map_or_else(String::new, SnapshotId::to_string);
                return Ok(csi::ListSnapshotsResponse { entries, next_token });
            }
            entries.push(csi::list_snapshots_response::Entry { snapshot: Some(wire(snapshot)) });
            last = Some(id);
        }
        Ok(csi::ListSnapshotsResponse { entries, next_token: String::new() })
    }

    /// Returns the content for a new volume with this name. If the volume already exists, its original may have been
    /// deleted, so the record supplies the content.
    pub(crate) fn content(&self, origin: Origin, name: &str) -> Result<Content, Error> {
        let id = VolumeId::new(self.store.instance(), name);
        if let Some(record) = self.store.load::<Record>(id.as_str())?
            && record.phase == Phase::Ready
            && let Some(source) = record.source
            && source.from == origin
        {
            return Ok(Content { source, backing: record.backing });
        }
        let (backing, size) = match &origin {
            Origin::Snapshot(snapshot) => {
                let snapshot = self.store.ready_snapshot(snapshot)?;
                (snapshot.backing, snapshot.size)
            }
            Origin::Volume(volume) if *volume == id.as_str() => {
                return Err(Error::Exists(format!("the volume {volume} cannot be made from itself")));
            }
            Origin::Volume(volume) => {
                let record = self.store.ready(volume)?;
                (record.backing, record.capacity)
            }
        };
        Ok(Content { source: Source { from: origin, size }, backing })
    }

    /// Copies the initial content of a volume; with `apart`, without shared blocks.
    pub(crate) fn copy_content(&self, origin: &Origin, to: &Path, apart: bool) -> Result<(), Error> {
        match origin {
            Origin::Volume(volume) => self.copy_volume(volume, to, apart).map(|_| ()),
            Origin::Snapshot(snapshot) => {
                let _lock = self.store.lock(snapshot)?;
                let snapshot = self.store.ready_snapshot(snapshot)?;
                let manner = Manner { at_once: false, apart };
                self.copy_data(snapshot.id.as_str(), to, snapshot.backing, manner)
            }
        }
    }

    /// Copies the data of a volume, even one in use, and returns its size. Other calls for the volume wait meanwhile.
    fn copy_volume(&self, volume: &str, to: &Path, apart: bool) -> Result<u64, Error> {
        let _lock = self.store.lock(self.store.ready(volume)?.id.as_str())?;
        let mut record = self.store.ready(volume)?;
        self.refuse_without_room(&[&record])?;
        let copied =
            self.hold_still(&mut record).and_then(|in_use| self.copy_held(&record, to, in_use, apart));
        let thawed = self.thaw_leftover(&mut record);
        copied.and(thawed)?;
        Ok(record.capacity)
    }

    /// Refuses copies of volumes with more data than the host has space.
    pub(crate) fn refuse_without_room(&self, records: &[&Record]) -> Result<(), Error> {
        let mut needed: u64 = 0;
        for record in records.iter().filter(|record| record.backing.is_file()) {
            let data = self.store.data_path(record.id.as_str(), record.backing);
            needed = needed.saturating_add(written(&data)?);
        }
        if needed == 0 {
            return Ok(());
        }
        let (available, _) = space(self.store.root())?;
        if needed > available {
            return Err(Error::Exhausted(format!(
                "there are {needed} bytes of data to copy and {available} are left"
            )));
        }
        Ok(())
    }

    /// Freezes the file system of a mounted image, and flushes devices. Returns whether a process may still write to
    /// the volume. [`Self::thaw_leftover`] thaws it.
    pub(crate) fn hold_still(&self, record: &mut Record) -> Result<bool, Error> {
        match record.backing {
            // The kernel holds back the writes to a thin volume while LVM takes a snapshot.
            Backing::Directory | Backing::Quota | Backing::Thin { .. } => Ok(false),
            Backing::Block => loops::flush(&self.store.data_path(record.id.as_str(), record.backing)),
            Backing::Image { .. } => {
                self.thaw_leftover(record)?;
                if let Some(mount) = mounts::writable_mount(&self.store, record)? {
                    // Record it first: a file system that is frozen after a crash must be thawed.
                    record.frozen = true;
                    self.store.save(record)?;
                    mounts::freeze(&mount.path)?;
                }
                Ok(false)
            }
        }
    }

    /// Copies the data of a frozen volume, or with `in_use`, of one that is being written to. A volume with reserved
    /// space shares no blocks.
    pub(crate) fn copy_held(
        &self,
        record: &Record,
        to: &Path,
        in_use: bool,
        apart: bool,
    ) -> Result<(), Error> {
        let apart = apart || record.mutable.space == Some(Space::Thick);
        self.copy_data(record.id.as_str(), to, record.backing, Manner { at_once: in_use, apart })
    }

    /// Copies the data of a volume or snapshot to the path of another one's data.
    fn copy_data(&self, from: &str, to: &Path, backing: Backing, manner: Manner) -> Result<(), Error> {
        match (backing, to.file_name().and_then(|name| name.to_str())) {
            // A thin volume's device has the name of the volume.
            (Backing::Thin { .. }, Some(name)) => self.store.pool()?.snapshot(from, name),
            _ => copy::data(&self.store.data_path(from, backing), to, backing, manner),
        }
    }

    /// Thaws a file system that is frozen, or was when the plugin was killed.
    pub(crate) fn thaw_leftover(&self, record: &mut Record) -> Result<(), Error> {
        if !record.frozen {
            return Ok(());
        }
        if let Some(mount) = mounts::writable_mount(&self.store, record)? {
            match mounts::thaw(&mount.path) {
                Ok(()) => {}
                // The crash came before the freeze. fsfreeze reports EINVAL for a file system that is not frozen.
                Err(Error::Tool { problem, .. }) if problem.contains("Invalid argument") => {}
                Err(error) => return Err(error),
            }
        }
        record.frozen = false;
        self.store.save(record)
    }
}

/// Returns the bytes that a sparse file uses on disk.
pub(crate) fn written(path: &Path) -> Result<u64, Error> {
    use std::os::unix::fs::MetadataExt;
    let metadata = path.metadata().map_err(Error::io("look at", path))?;
    Ok(metadata.blocks().saturating_mul(512))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a plugin of its own, which knows no crate of the agent; for display"
)]
pub(crate) fn now() -> Instant {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Instant {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}

pub(crate) fn wire(snapshot: Snapshot) -> csi::Snapshot {
    csi::Snapshot {
        size_bytes: i64::try_from(snapshot.size).unwrap_or(i64::MAX),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.volume,
        creation_time: Some(prost_types::Timestamp {
            seconds: snapshot.created.seconds,
            nanos: snapshot.created.nanoseconds,
        }),
        // A snapshot is returned only when it is complete.
        ready_to_use: true,
        group_snapshot_id: snapshot.group.map_or_else(String::new, |group| group.to_string()),
    }
}
