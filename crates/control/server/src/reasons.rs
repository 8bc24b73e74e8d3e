//! The wait reasons of claims at servers other than the leader. Only the leader derives reasons, in its memory. A
//! server with readers of reasons follows the leader's reasons and keeps them as the sentences that users read.

use crate::cluster::{LEADER_TIMEOUT, Origin, Place};
use crate::runtime::{self, select};
use crate::server::{Handle, Parts};
use crate::volume::{ClaimWaits, WaitChanges};
use caravan_messages::cluster::{ClaimReason, FollowReasons, ReasonsChanged, VolumeReasons};
use caravan_rpc::{Channel, RpcError, methods};
use caravan_types::volume::ClaimId;
use caravan_types::{AllocId, VolumeKey};
use futures::{Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

/// The pause before the leader is followed again after its stream ended.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The shortest time between two messages of the leader to one server.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);
/// The number of changes that a reader of a mirror may lag behind.
const LAG: usize = 1024;
/// The maximum number of volumes in a message.
const MAX_VOLUMES: usize = 500;

type Sentences = BTreeMap<VolumeKey, BTreeMap<AllocId, String>>;

/// The leader's reasons at another server, while it has readers; cheap to clone. The mirror is empty at the leader.
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    sentences: Arc<Mutex<Sentences>>,
    volumes: broadcast::Sender<VolumeKey>,
    readers: Arc<watch::Sender<usize>>,
}

/// A reader that keeps the mirror filled until dropped.
#[derive(Debug)]
struct Reader(Arc<watch::Sender<usize>>);

impl Reader {
    fn new(readers: Arc<watch::Sender<usize>>) -> Self {
        readers.send_modify(|number| *number += 1);
        Self(readers)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.send_modify(|number| *number -= 1);
    }
}

impl Default for Mirror {
    fn default() -> Self {
        let readers = Arc::new(watch::Sender::new(0));
        Self { sentences: Arc::default(), volumes: broadcast::Sender::new(LAG), readers }
    }
}

impl Mirror {
    /// Returns the reason that a claim waits, if the leader reported one.
    pub(crate) fn sentence(&self, claim: &ClaimId) -> Option<String> {
        self.sentences.lock().get(&claim.volume)?.get(&claim.alloc).cloned()
    }

    fn keys(&self) -> Vec<VolumeKey> {
        self.sentences.lock().keys().cloned().collect()
    }

    /// Stores the reasons that the leader reports, and reports the volumes whose reasons changed.
    fn take(&self, change: ReasonsChanged) {
        let mut changed = BTreeSet::new();
        {
            let mut sentences = self.sentences.lock();
            if change.is_whole {
                let named: BTreeSet<&VolumeKey> = change.volumes.iter().map(|row| &row.volume).collect();
                sentences.retain(|volume, _| {
                    let stays = named.contains(volume);
                    if !stays {
                        changed.insert(volume.clone());
                    }
                    stays
                });
            }
            for VolumeReasons { volume, reasons } in change.volumes {
                let now: BTreeMap<_, _> = reasons.into_iter().map(|row| (row.alloc, row.reason)).collect();
                let before = sentences.get(&volume);
                if before.map_or(now.is_empty(), |before| *before == now) {
                    continue;
                }
                changed.insert(volume.clone());
                match now.is_empty() {
                    true => sentences.remove(&volume),
                    false => sentences.insert(volume, now),
                };
            }
        }
        for volume in changed {
            // The channel may have no reader any more.
            let _ = self.volumes.send(volume);
        }
    }

    fn clear(&self) {
        self.take(ReasonsChanged { is_whole: true, volumes: Vec::new() });
    }

    /// Follows the leader while there are readers, until cancelled.
    pub(crate) async fn run(self, server: Handle, cancel: CancellationToken) {
        let mut readers = self.readers.subscribe();
        loop {
            select! {
                () = cancel.cancelled() => return,
                Ok(_) = readers.wait_for(|number| *number > 0) => {}
            }
            select! {
                () = cancel.cancelled() => return,
                Ok(_) = readers.wait_for(|number| *number == 0) => {}
                () = self.follow_leaders(&server) => {}
            }
            self.clear();
        }
    }

    /// Follows one leader after the other. Never returns.
    async fn follow_leaders(&self, server: &Handle) {
        loop {
            match server.leader(Origin::Caller, runtime::now() + LEADER_TIMEOUT).await {
                // This server leads, and uses its own reasons.
                Ok(Place::Here(parts)) => {
                    self.clear();
                    server.replaced(&parts).await;
                }
                Ok(Place::There(leader)) => {
                    self.follow(server, &leader).await;
                    runtime::sleep(RETRY_INTERVAL).await;
                }
                Err(_) => runtime::sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Follows a leader until its stream ends or another server leads. The reasons stay until the next leader reports
    /// its own reasons, because the claims still wait meanwhile.
    async fn follow(&self, server: &Handle, leader: &Channel) {
        let mut leadership = server.leadership();
        let mut changes = leader.stream::<methods::ServerReasons>(FollowReasons {});
        loop {
            let change = select! {
                change = changes.next() => change,
                _ = leadership.changed() => None,
            };
            match change {
                Some(Ok(change)) => self.take(change),
                Some(Err(_)) | None => return,
            }
        }
    }
}

/// The volumes whose reasons or calls change, from [`Handle::reason_changes`]. Only the leader has calls. The changes
/// continue when the leader changes.
#[derive(Debug)]
pub struct ReasonChanges {
    parts: watch::Receiver<Arc<Parts>>,
    /// The waits of the parts that are followed.
    own: ClaimWaits,
    own_changes: WaitChanges,
    mirror: Mirror,
    mirrored: broadcast::Receiver<VolumeKey>,
    _reader: Reader,
}

impl ReasonChanges {
    pub(crate) fn new(mut parts: watch::Receiver<Arc<Parts>>, mirror: Mirror) -> Self {
        let own = parts.borrow_and_update().claims.waits.clone();
        Self {
            parts,
            own_changes: own.follow(),
            own,
            mirrored: mirror.volumes.subscribe(),
            _reader: Reader::new(mirror.readers.clone()),
            mirror,
        }
    }

    /// Waits for a change of reasons or calls and returns its volumes. After a lag or a change of leadership, returns
    /// all volumes that have or had reasons. Cancel safe.
    pub async fn next(&mut self) -> Vec<VolumeKey> {
        select! {
            found = self.own_changes.next() => found,
            found = self.mirrored.recv() => match found {
                Ok(volume) => vec![volume],
                Err(RecvError::Lagged(_)) => self.mirror.keys(),
                // `self.mirror` owns the sender.
                Err(RecvError::Closed) => std::future::pending().await,
            },
            Ok(()) = self.parts.changed() => {
                // The waits of another term begin empty.
                let mut found = self.own.volumes();
                self.own = self.parts.borrow_and_update().claims.waits.clone();
                self.own_changes = self.own.follow();
                found.extend(self.own.volumes());
                found
            }
        }
    }
}

/// Returns the reasons of all waiting claims, then those of each volume whose reasons change.
pub(crate) fn source(waits: ClaimWaits) -> impl Stream<Item = Result<ReasonsChanged, RpcError>> + Send {
    let changes = waits.subscribe();
    let first = whole(&waits);
    let state = (waits, changes, first, runtime::now());
    stream::unfold(state, |(waits, mut changes, mut ready, mut next)| async move {
        loop {
            if let Some(message) = ready.pop_front() {
                next = runtime::now() + BATCH_INTERVAL;
                return Some((Ok(message), (waits, changes, ready, next)));
            }
            let first = changes.recv().await;
            // The first change is sent immediately, and later changes are sent together after a pause.
            if runtime::now() < next {
                runtime::sleep_until(next).await;
            }
            ready = match gathered(first, &mut changes) {
                Some(volumes) => {
                    let volumes = volumes.into_iter().map(|volume| of_volume(&waits, volume)).collect();
                    VecDeque::from([ReasonsChanged { is_whole: false, volumes }])
                }
                None => whole(&waits),
            };
        }
    })
}

/// Returns the volumes of the changes that have arrived, or `None` if some changes were lost.
fn gathered(
    first: Result<VolumeKey, RecvError>,
    changes: &mut broadcast::Receiver<VolumeKey>,
) -> Option<BTreeSet<VolumeKey>> {
    let mut found = BTreeSet::from([first.ok()?]);
    while found.len() < MAX_VOLUMES {
        match changes.try_recv() {
            Ok(volume) => {
                found.insert(volume);
            }
            Err(TryRecvError::Lagged(_)) => return None,
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    Some(found)
}

/// Returns all reasons in messages of limited size. The first message, which may be empty, removes all other reasons
/// at the receiver.
fn whole(waits: &ClaimWaits) -> VecDeque<ReasonsChanged> {
    let volumes = waits.volumes();
    // The messages after the first one add volumes, so the first message names no volume that a later message
    // repeats.
    let mut out = VecDeque::from([ReasonsChanged { is_whole: true, volumes: Vec::new() }]);
    for part in volumes.chunks(MAX_VOLUMES) {
        let volumes = part.iter().map(|volume| of_volume(waits, volume.clone())).collect();
        match out.front_mut().filter(|first| first.volumes.is_empty()) {
            Some(first) => first.volumes = volumes,
            None => out.push_back(ReasonsChanged { is_whole: false, volumes }),
        }
    }
    out
}

fn of_volume(waits: &ClaimWaits, volume: VolumeKey) -> VolumeReasons {
    let reasons = waits.list(&volume).into_iter();
    let reasons = reasons.map(|(alloc, wait)| ClaimReason { alloc, reason: wait.to_string() }).collect();
    VolumeReasons { volume, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_volumes::wait::WaitReason;
    use futures::FutureExt as _;

    fn id(volume: &str, alloc: &str) -> ClaimId {
        ClaimId { volume: VolumeKey::new("default", volume), alloc: alloc.into() }
    }

    #[tokio::test]
    async fn a_mirror_has_the_reasons_of_its_source() {
        let (waits, mirror) = (ClaimWaits::default(), Mirror::default());
        waits.set(&id("early", "a"), Some(WaitReason::VolumeGone.into()));
        let mut changes = Box::pin(source(waits.clone()));
        let mut reported = mirror.volumes.subscribe();
        let mut next = async || changes.next().await.unwrap().unwrap();
        mirror.take(next().await);
        assert_eq!(mirror.sentence(&id("early", "a")), Some(WaitReason::VolumeGone.to_string()));
        assert_eq!(reported.try_recv().unwrap(), id("early", "a").volume);
        waits.set(&id("v", "b"), Some(WaitReason::VolumeCreating.into()));
        waits.set(&id("early", "a"), None);
        let change = next().await;
        assert!(!change.is_whole, "{change:?}");
        mirror.take(change);
        if mirror.sentence(&id("v", "b")).is_none() || mirror.sentence(&id("early", "a")).is_some() {
            mirror.take(next().await);
        }
        assert_eq!(mirror.keys(), [id("v", "b").volume]);
        // The same reasons again are no change.
        while reported.try_recv().is_ok() {}
        let again = whole(&waits).into_iter().next().unwrap();
        mirror.take(again);
        assert!(reported.try_recv().is_err());
        mirror.clear();
        assert_eq!((reported.try_recv().unwrap(), mirror.keys()), (id("v", "b").volume, vec![]));
    }

    #[tokio::test]
    async fn changes_that_were_lost_are_made_up_for() {
        let waits = ClaimWaits::default();
        let mut changes = Box::pin(source(waits.clone()));
        assert!(changes.next().await.unwrap().unwrap().is_whole);
        for at in 0..3 * LAG {
            waits.set(&id(&format!("v{at}"), "a"), Some(WaitReason::VolumeGone.into()));
        }
        let mirror = Mirror::default();
        let first = changes.next().await.unwrap().unwrap();
        assert!(first.is_whole && first.volumes.len() == MAX_VOLUMES);
        mirror.take(first);
        while let Some(Some(Ok(more))) = changes.next().now_or_never() {
            assert!(!more.is_whole && more.volumes.len() <= MAX_VOLUMES);
            mirror.take(more);
        }
        assert_eq!(mirror.keys().len(), 3 * LAG);
    }

    #[tokio::test]
    async fn a_mirror_counts_its_readers() {
        let mirror = Mirror::default();
        let readers = mirror.readers.subscribe();
        let (one, two) = (Reader::new(mirror.readers.clone()), Reader::new(mirror.readers.clone()));
        assert_eq!(*readers.borrow(), 2);
        drop((one, two));
        assert_eq!(*readers.borrow(), 0);
    }
}
