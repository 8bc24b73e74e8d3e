//! The watch over the mounts of volumes: the kernel notifies about changes of the mount table, and each file system
//! is probed every few seconds.

use super::CsiFault;
use super::health::{Kind, Trouble, Troubles, diagnose};
use super::ledger::{ClaimEntry, MountPhase};
use super::prober::answers;
use super::volumes::{VolumeManager, check};
use caravan_sys::mountinfo::{Changes, EndOfChanges};
use caravan_types::volume::ClaimId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The interval between probes of the same file system.
const PERIOD: Duration = Duration::from_secs(2);
/// The timeout for the answer of a file system.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest pause between checks after changes of the mount table, so that a burst of changes causes one check.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Starts a thread that listens to the mount table; it ends when the returned value is dropped. Without notifications,
/// changes are found by the periodic check.
pub(super) fn listen(changed: &Arc<Notify>) -> Option<EndOfChanges> {
    let begin = || -> Result<EndOfChanges, String> {
        let (changes, end) = Changes::listen().map_err(|e| caravan_sys::describe(&e))?;
        let changed = Arc::clone(changed);
        let listening = move || {
            while let Ok(true) = changes.wait() {
                changed.notify_one();
            }
        };
        let thread = std::thread::Builder::new().name("mount-watch".to_owned()).stack_size(64 * 1024);
        thread.spawn(listening).map_err(|e| e.to_string())?;
        Ok(end)
    };
    begin()
        .inspect_err(|error| {
            tracing::warn!(error, "changes of the mount table are only detected by the periodic check")
        })
        .ok()
}

impl VolumeManager {
    /// Watches until cancelled.
    pub(crate) async fn watch_mounts(self, cancel: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let _listening = listen(&changed);
        let mut asked = Instant::now();
        loop {
            let due = asked + PERIOD;
            let whole = tokio::select! {
                () = cancel.cancelled() => return,
                () = changed.notified() => false,
                () = tokio::time::sleep_until(due) => true,
            };
            if whole {
                asked = Instant::now();
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.look(whole) => {}
            }
            tokio::time::sleep(SHORTEST_PAUSE).await;
        }
    }

    /// Compares every mount with its proof; with `whole`, probes its file system too.
    async fn look(&self, whole: bool) {
        let mounted: Vec<ClaimEntry> =
            self.lock().entries().filter(|e| e.phase == MountPhase::Mounted).cloned().collect();
        let known = self.inner.troubles.borrow().clone();
        for entry in &mounted {
            let found = self.examine(entry, whole, known.get(&entry.claim)).await;
            self.note_trouble(entry, found);
        }
        let renewing: Vec<ClaimId> =
            self.lock().entries().filter(|e| e.renewing).map(|e| e.claim.clone()).collect();
        let is_mounted =
            |claim: &ClaimId| mounted.iter().any(|e| e.claim == *claim) || renewing.contains(claim);
        self.inner.troubles.send_if_modified(|all| {
            let before = all.len();
            all.retain(|claim, _| is_mounted(claim));
            all.len() != before
        });
    }

    async fn examine(&self, entry: &ClaimEntry, whole: bool, known: Option<&Trouble>) -> Option<Trouble> {
        let path = entry.on_host().ok()?.publish;
        let trouble = |kind, reason| Some(Trouble { kind, path: path.display().to_string(), reason });
        // Even reading the path may block, if it is on a remote file system.
        let (looked_at, at) = (entry.clone(), path.clone());
        let look = move || match check(&looked_at) {
            Err(CsiFault::Changed { what, .. }) => Err(what),
            // If the path cannot be read, the probe of the file system returns the reason.
            Ok(()) | Err(_) => Ok(if whole { answers(&at) } else { Ok(()) }),
        };
        match self.inner.prober.look(&path, TIMEOUT, look).await {
            Some(Err(what)) => trouble(Kind::Changed, what),
            // Only a probe of the file system can clear other problems; the recorded problem stays.
            Some(Ok(_)) if !whole => known.filter(|t| t.kind != Kind::Changed).cloned(),
            Some(Ok(answer)) => diagnose(Some(answer)).and_then(|(kind, reason)| trouble(kind, reason)),
            None => diagnose(None).and_then(|(kind, reason)| trouble(kind, reason)),
        }
    }

    /// Records the result, unless the claim changed meanwhile.
    fn note_trouble(&self, entry: &ClaimEntry, found: Option<Trouble>) {
        let ledger = self.lock();
        let same = |now: &ClaimEntry| now.phase == entry.phase && now.proof == entry.proof && !now.renewing;
        if !ledger.get(&entry.claim).is_some_and(same) {
            return;
        }
        let mut news = None;
        self.inner.troubles.send_if_modified(|all| {
            if all.get(&entry.claim) == found.as_ref() {
                return false;
            }
            match &found {
                Some(trouble) => {
                    let before = all.insert(entry.claim.clone(), trouble.clone());
                    news = before.is_none_or(|b| b.kind != trouble.kind).then(|| Some(trouble.clone()));
                }
                None => {
                    all.remove(&entry.claim);
                    news = Some(None);
                }
            }
            true
        });
        drop(ledger);
        let mut details = BTreeMap::from([("volume_id".to_owned(), entry.claim.volume.id.to_string())]);
        match news {
            None => {}
            Some(Some(trouble)) => {
                tracing::warn!(volume = %entry.claim.volume, alloc = %entry.claim.alloc, path = trouble.path, reason = trouble.reason, "volume mount broken");
                details.insert("path".to_owned(), trouble.path);
                details.insert("error".to_owned(), trouble.reason);
                self.inner.node.event("Storage", "Volume mount broken", details);
            }
            Some(None) => {
                tracing::info!(volume = %entry.claim.volume, alloc = %entry.claim.alloc, "volume mount works again");
                self.inner.node.event("Storage", "Volume mount works again", details);
            }
        }
    }

    /// Returns a receiver of the mount problems.
    pub(crate) fn troubles(&self) -> watch::Receiver<Troubles> {
        self.inner.troubles.subscribe()
    }
}
