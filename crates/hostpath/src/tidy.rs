//! What is done at the start: ending what a killed plugin left half done.

use crate::{
    controller::Plugin,
    error::Error,
    loops,
    record::{Backing, Phase, Record, Snapshot},
};

impl Plugin {
    /// Looks through all volumes and snapshots. What another process of the plugin is at work on is left to it;
    /// what cannot be tidied is told in the log and stays, the calls for it say the same.
    pub(crate) fn tidy(&self) -> Result<(), Error> {
        for id in self.store.ids_after::<Record>(None)? {
            if let Err(error) = self.tidy_volume(id.as_str()) {
                tracing::warn!(volume = id.as_str(), error = error.sentence(), "cannot be tidied");
            }
        }
        for id in self.store.ids_after::<Snapshot>(None)? {
            if let Err(error) = self.tidy_snapshot(id.as_str()) {
                tracing::warn!(snapshot = id.as_str(), error = error.sentence(), "cannot be tidied");
            }
        }
        for id in self.store.locks()? {
            if let Err(error) = self.tidy_lock(&id) {
                tracing::warn!(id, error = error.sentence(), "cannot be tidied");
            }
        }
        Ok(())
    }

    /// Removes the lock, and a first record that was cut off, of what was never made or is no more.
    fn tidy_lock(&self, id: &str) -> Result<(), Error> {
        let _lock = match self.store.lock(id) {
            Err(Error::Busy(_)) => return Ok(()),
            lock => lock?,
        };
        if self.store.load::<Record>(id)?.is_some() || self.store.load::<Snapshot>(id)?.is_some() {
            return Ok(());
        }
        self.store.remove_half_written::<Record>(id)?;
        self.store.remove_half_written::<Snapshot>(id)?;
        self.store.forget_lock(id)
    }

    fn tidy_volume(&self, id: &str) -> Result<(), Error> {
        let _lock = match self.store.lock(id) {
            Err(Error::Busy(_)) => return Ok(()),
            lock => lock?,
        };
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

    fn tidy_snapshot(&self, id: &str) -> Result<(), Error> {
        let _lock = match self.store.lock(id) {
            Err(Error::Busy(_)) => return Ok(()),
            lock => lock?,
        };
        self.store.remove_half_written::<Snapshot>(id)?;
        if let Some(snapshot) = self.store.load::<Snapshot>(id)?.filter(|found| found.phase != Phase::Ready) {
            self.remove_snapshot_data(&snapshot)?;
            self.store.forget::<Snapshot>(id)?;
            tracing::info!(snapshot = id, "removed what was half done");
        }
        Ok(())
    }
}
