//! What is done at the start: ending what a killed plugin left half done.

use std::time::Duration;

use crate::{
    controller::Plugin,
    error::Error,
    loops,
    record::{Backing, Group, Phase, Record, Snapshot},
};

/// How long what another process is at work on is left to it, before it is looked at again.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Something that may be half done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Suspect {
    Volume(String),
    Group(String),
    Snapshot(String),
    Lock(String),
}

impl Plugin {
    /// Looks through all volumes, groups and snapshots. What cannot be tidied is told in the log and stays, the
    /// calls for it say the same. Answers what another process of the plugin, or a program that a killed one had
    /// started, is at work on.
    pub(crate) fn tidy(&self) -> Result<Vec<Suspect>, Error> {
        let volumes = self.store.ids_after::<Record>(None)?;
        let groups = self.store.ids_after::<Group>(None)?;
        let mut busy = self.tidy_all(
            volumes
                .iter()
                .map(|id| Suspect::Volume(id.to_string()))
                .chain(groups.iter().map(|id| Suspect::Group(id.to_string()))),
        );
        // Those of half-made groups are gone by now.
        let snapshots = self.store.ids_after::<Snapshot>(None)?;
        busy.extend(self.tidy_all(snapshots.iter().map(|id| Suspect::Snapshot(id.to_string()))));
        busy.extend(self.tidy_all(self.store.locks()?.into_iter().map(Suspect::Lock)));
        Ok(busy)
    }

    /// Goes on with what was busy until nothing is: a file system that a program holds still after the end of the
    /// plugin that had started it has to be let go, whether or not anybody calls.
    pub(crate) fn tidy_later(&self, mut busy: Vec<Suspect>) {
        let mut pause = PAUSE;
        while !busy.is_empty() {
            std::thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
            busy = self.tidy_all(busy.into_iter());
        }
    }

    /// Answers what is busy.
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
                    tracing::warn!(?suspect, error = error.sentence(), "cannot be tidied");
                }
            }
        }
        busy
    }

    /// Removes the lock, and a first record that was cut off, of what was never made or is no more.
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
        self.store.forget_lock(id)
    }

    fn tidy_volume(&self, id: &str) -> Result<(), Error> {
        let _lock = self.store.lock(id)?;
        self.store.remove_half_written::<Record>(id)?;
        let Some(mut record) = self.store.load::<Record>(id)? else {
            return Ok(());
        };
        if record.phase != Phase::Ready {
            // A creation that was never answered, or a deletion that was begun.
            self.remove_data(&record)?;
            self.store.forget::<Record>(id)?;
            tracing::info!(volume = id, "removed what was half done");
            return Ok(());
        }
        self.thaw_leftover(&mut record)?;
        if record.backing == Backing::Block {
            loops::free(&self.store.data_path(id, record.backing))?;
        }
        Ok(())
    }

    fn tidy_group(&self, id: &str) -> Result<(), Error> {
        let _lock = self.store.lock(id)?;
        self.store.remove_half_written::<Group>(id)?;
        if let Some(group) = self.store.load::<Group>(id)?.filter(|found| found.phase != Phase::Ready) {
            self.remove_group(&group)?;
            tracing::info!(group = id, "removed what was half done");
        }
        Ok(())
    }

    fn tidy_snapshot(&self, id: &str) -> Result<(), Error> {
        let _lock = self.store.lock(id)?;
        self.store.remove_half_written::<Snapshot>(id)?;
        let Some(snapshot) = self.store.load::<Snapshot>(id)? else {
            return Ok(());
        };
        // One of a group stays as long as its group has a record: what is half done of a group was ended before.
        let stays = match &snapshot.group {
            Some(group) => self.store.load::<Group>(group.as_str())?.is_some(),
            None => snapshot.phase == Phase::Ready,
        };
        if !stays {
            self.remove_snapshot_data(&snapshot)?;
            self.store.forget::<Snapshot>(id)?;
            tracing::info!(snapshot = id, "removed what was half done");
        }
        Ok(())
    }
}
