//! Changes of wait reasons and of calls to plugins. They are in the leader's memory and change without a command, so
//! the log has no event for them. Other servers follow the leader's reasons while they have such a stream.

use caravan_server::{Handle, ReasonChanges};
use caravan_state::{Event, EventRow, Root, VolumeUse};
use caravan_types::VolumeKey;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The type of the event of a volume whose claims wait for other reasons, or of which a call began or ended.
const KIND: &str = "CSIVolumeReason";
/// The shortest time between two events of the same volume.
const PAUSE: Duration = Duration::from_secs(1);

/// The volumes whose reasons changed since they were sent.
#[derive(Debug)]
pub(super) struct Reasons {
    changes: ReasonChanges,
    volumes: BTreeSet<VolumeKey>,
    /// The time at which volumes may be sent again.
    next: Instant,
}

impl Reasons {
    pub(super) fn follow(server: &Handle) -> Self {
        let changes = server.reason_changes();
        Self { changes, volumes: BTreeSet::new(), next: Instant::now() }
    }

    /// Waits until volumes with other reasons may be sent. Cancel safe.
    pub(super) async fn changed(&mut self) {
        while self.volumes.is_empty() || self.next > Instant::now() {
            tokio::select! {
                found = self.changes.next() => self.volumes.extend(found),
                () = sleep_until(self.next), if !self.volumes.is_empty() => {}
            }
        }
    }

    /// Returns the events of the collected volumes that are registered, and starts the next pause.
    pub(super) fn take(&mut self, root: &Root) -> Vec<Event> {
        self.next = Instant::now() + PAUSE;
        let rows = std::mem::take(&mut self.volumes).into_iter().filter_map(|key| root.volume(&key).cloned());
        rows.map(|row| {
            let used = Arc::new(VolumeUse::collect(root, &row));
            Event { kind: KIND, row: EventRow::CsiVolume { row, used } }
        })
        .collect()
    }
}

/// Waits until volumes with other reasons may be sent; waits forever without reasons.
pub(super) async fn changed(reasons: Option<&mut Reasons>) {
    match reasons {
        Some(reasons) => reasons.changed().await,
        None => std::future::pending().await,
    }
}
