//! The resumption of incomplete intents of host volumes: after a restart of the server, the return of a node, or the
//! failure of a plugin.

use super::{Called, HostVolumeFault, HostVolumes, settle};
use crate::error::ServerError;
use crate::runtime::{self, select};
use caravan_rpc::RpcError;
use caravan_state::{Changed, FeedItem};
use caravan_types::host_volume::{HostVolume, HostVolumeIntent};
use caravan_types::{BootInstant, HostVolumeId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Timeout of the shutdown's wait for calls in progress. Interrupted calls are resumed after the restart.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of failed attempts for each volume, and the time of the next attempt.
type Failures = Arc<Mutex<BTreeMap<HostVolumeId, (u32, BootInstant)>>>;

impl HostVolumes {
    /// Runs until cancelled. Then waits a short time for calls in progress.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut feed = self.core.store.feed();
        let mut connections = self.nodes.nodes.changes();
        let failures = Failures::default();
        let tasks = TaskTracker::new();
        loop {
            let next = self.look(&tasks, &failures);
            select! {
                () = cancel.cancelled() => break,
                () = self.busy.left() => {}
                Ok(()) = connections.changed() => {
                    // A node that has returned is called immediately.
                    failures.lock().clear();
                }
                () = self.core.until(next) => {}
                () = concerned(&mut feed) => {}
            }
        }
        tasks.close();
        self.commands.close();
        let all_over = async {
            tasks.wait().await;
            self.commands.wait().await;
        };
        tokio::pin!(all_over);
        if runtime::timeout(SHUTDOWN_TIMEOUT, &mut all_over).await.is_err() {
            self.nodes.cut.cancel();
            all_over.await;
        }
    }

    /// Starts all possible work; returns when to check again.
    fn look(&self, tasks: &TaskTracker, failures: &Failures) -> Option<BootInstant> {
        let (root, now) = (self.core.snapshot(), self.core.boot());
        let mut known = failures.lock();
        let intended =
            |id: &HostVolumeId| root.host_volume(id).is_some_and(|row| row.intent != HostVolumeIntent::None);
        known.retain(|id, _| intended(id));
        let mut next: Option<BootInstant> = None;
        for row in root.host_volumes().filter(|row| row.intent != HostVolumeIntent::None) {
            if self.nodes.nodes.get(row.node_id.as_str()).is_err() {
                continue;
            }
            let due = known.get(&row.id).map_or(BootInstant::default(), |(_, at)| *at);
            if due > now {
                next = Some(next.map_or(due, |at| at.min(due)));
                continue;
            }
            let Some(own) = self.busy.take(&row.id) else { continue };
            let (this, id, failures) = (self.clone(), row.id.clone(), failures.clone());
            runtime::spawn_in(tasks, async move {
                let result = this.resume(&id).await;
                let mut failures = failures.lock();
                match result {
                    Ok(()) => {
                        failures.remove(&id);
                    }
                    Err(error) => {
                        let entry = failures.entry(id.clone()).or_default();
                        entry.0 = entry.0.saturating_add(1);
                        entry.1 = this.core.boot().plus(caravan_volumes::retry::delay(entry.0));
                        tracing::debug!(volume = %id, %error, tries = entry.0, "resuming failed; retrying");
                    }
                }
                drop(failures);
                // Release the right only now, so that the check that the release wakes sees the failure.
                drop(own);
            });
        }
        next
    }

    /// Executes the intent of a volume.
    async fn resume(&self, id: &HostVolumeId) -> Result<(), ServerError> {
        let root = self.core.snapshot();
        // The command that owned the volume may have finished since the check.
        let Some(row) = root.host_volume(id).cloned() else { return Ok(()) };
        match row.intent {
            HostVolumeIntent::None => Ok(()),
            HostVolumeIntent::Create => match self.call_create(&row).await {
                Called::Made(made) => self.change(id, |row| settle(row, &made)).await,
                Called::Refused(error) | Called::Unknown(error) => self.failed(&row, error).await,
            },
            HostVolumeIntent::Delete => match self.call_delete(&row).await {
                Called::Made(_) => self.remove_row(&row, false).await.map(drop),
                Called::Refused(error) | Called::Unknown(error) => self.failed(&row, error).await,
            },
        }
    }

    /// Stores the plugin's error for users; logs one line for each change.
    async fn failed(&self, row: &HostVolume, error: RpcError) -> Result<(), ServerError> {
        if row.last_error != error.message {
            tracing::warn!(volume = %row.id, node = %row.node_id, error = error.message, "a host volume's call failed; retrying");
            self.change(&row.id, |row| row.last_error.clone_from(&error.message)).await?;
        }
        Err(HostVolumeFault::Resume(error).into())
    }
}

/// Waits for the next change that may make an intent possible.
async fn concerned(feed: &mut caravan_state::Feed) {
    loop {
        match feed.next().await {
            Some(FeedItem::Changes(set)) => {
                let ours = |changed: &Changed| matches!(changed, Changed::HostVolume(_) | Changed::Node(_));
                if set.changes.iter().any(ours) {
                    return;
                }
            }
            Some(FeedItem::Resync) => return,
            None => return std::future::pending().await,
        }
    }
}
