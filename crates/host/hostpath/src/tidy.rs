//! Recovery at the start: completes or undoes the unfinished work of a killed plugin.

use crate::{
    controller::Plugin,
    error::Error,
    loops,
    record::{Backing, Group, Phase, Record, Snapshot},
};
use std::time::Duration;

/// Delay before an object that another process is working on is checked again.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// An object that may be unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Suspect {
    Volume(String),
    Group(String),
    Snapshot(String),
    Lock(String),
}

impl Plugin {
    /// Checks all volumes, groups and snapshots. Objects that cannot be recovered are logged and kept, and their
    /// calls return the same error. Returns the busy objects: another process of the plugin, or a program that a
    /// killed process had started, is still working on them.
    pub(crate) fn tidy(&self) -> Result<Vec<Suspect>, Error> {
        let volumes = self.store.ids_after::<Record>(None)?;
        let groups = self.store.ids_after::<Group>(None)?;
        let mut busy = self.tidy_all(
            volumes
                .iter()
                .map(|id| Suspect::Volume(id.to_string()))
                .chain(groups.iter().map(|id| Suspect::Group(id.to_string()))),
        );
        // Snapshots of unfinished groups have been removed by now.
        let snapshots = self.store.ids_after::<Snapshot>(None)?;
        busy.extend(self.tidy_all(snapshots.iter().map(|id| Suspect::Snapshot(id.to_string()))));
        busy.extend(self.tidy_all(self.store.locks()?.into_iter().map(Suspect::Lock)));
        Ok(busy)
    }

    /// Retries busy objects until none is left. For example, a program may freeze a file system and outlive the
    /// plugin that started it. The file system must be thawed even if no call arrives.
    pub(crate) fn tidy_later(&self, mut busy: Vec<Suspect>) {
        let mut pause = PAUSE;
        while !busy.is_empty() {
            std::thread::sleep(pause);
            pause = MAX_PAUSE.min(pause * 2);
            busy = self.tidy_all(busy.into_iter());
        }
    }

    /// Recovers the objects and returns the busy ones.
    fn tidy_all(&self, suspects: impl Iterator<Item = Suspect>) -> Vec<Suspect> {
        let mut busy = Vec::new();
        for suspect in suspects {
            let outcome = match &suspect {
                Suspect::Volume(id) => self.tidy_volume(id),
                Suspect::Group(id) => self.tidy_group(id),
                Suspect::Snapshot(id) => self.tidy_snapshot(id),
                Suspect::Lock(id) => self.tidy_lock(id),
            };
            match outcome {
                Ok(()) => {}
                Err(Error::Busy(_)) => busy.push(suspect),
                Err(error) => {
                    tracing::warn!(?suspect, error = error.sentence(), "an object cannot be recovered");
                }
            }
        }
        busy
    }

    /// Removes the lock and an interrupted first record of an object that does not exist.
    fn tidy_lock(&self, id: &str) -> Result<(), Error> {
        let _lock = self.store.lock(id)?;
        if self.store.load::<Record>(id)?.is_some()
            || self.store.load::<Snapshot>(id)?.is_some()
            || self.store.load::<Group>(id)?.is_some()
        {
            return Ok(());
        }
        self.store.remove_half_written::<Record>(id)?;
        self.store.remove_half_written::<Snapshot>(id)?;
        self.store.remove_half_written::<Group>(id)?;
        self.store.remove_lock(id)
    }

    fn tidy_volume(&self, id: &str) -> Result<(), Error> {
        let _lock = self.store.lock(id)?;
        self.store.remove_half_written::<Record>(id)?;
        let Some(mut record) = self.store.load::<Record>(id)? else {
            return Ok(());
        };
        if record.phase != Phase::Ready {
            // The creation was never completed, or the deletion had begun.
            self.remove_data(&record)?;
            self.store.remove::<Record>(id)?;
            tracing::info!(volume = id, "removed an incomplete volume");
            return Ok(());
        }
        self.thaw_leftover(&mut record)?;
        if let Backing::Thin { .. } = record.backing {
            // A host that has booted may have activated no volumes.
            self.store.pool()?.activate(id)?;
        }
        if record.backing.is_device() {
            loops::free(&self.store.data_path(id, record.backing))?;
        }
        Ok(())
    }

    fn tidy_group(&self, id: &str) -> Result<(), Error> {
        let _lock = self.store.lock(id)?;
        self.store.remove_half_written::<Group>(id)?;
        if let Some(group) = self.store.load::<Group>(id)?.filter(|found| found.phase != Phase::Ready) {
            self.remove_group(&group)?;
            tracing::info!(group = id, "removed an incomplete group");
        }
        Ok(())
    }

    fn tidy_snapshot(&self, id: &str) -> Result<(), Error> {
        let _lock = self.store.lock(id)?;
        self.store.remove_half_written::<Snapshot>(id)?;
        let Some(snapshot) = self.store.load::<Snapshot>(id)? else {
            return Ok(());
        };
        // A snapshot of a group stays while its group has a record: unfinished groups were removed before.
        let stays = match &snapshot.group {
            Some(group) => self.store.load::<Group>(group.as_str())?.is_some(),
            None => snapshot.phase == Phase::Ready,
        };
        if !stays {
            self.remove_snapshot_data(&snapshot)?;
            self.store.remove::<Snapshot>(id)?;
            tracing::info!(snapshot = id, "removed an incomplete snapshot");
        }
        Ok(())
    }
}
