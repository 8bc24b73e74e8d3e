//! The virtual network.

use crate::server::Sim;
use bytes::Bytes;
use caravan_consensus::sim::{HostId, Lots, sleep, spawn_on, timeout};
use caravan_consensus::{ClusterId, MessageKind, PeerAddress, PeerTransport};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Time limit of the transfer of a snapshot. The snapshots of a simulation are small. The end of the
/// receiver's process breaks a real connection immediately, which this network does not simulate.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(5);

/// The host of clients, which no fault of the network affects.
pub(crate) const OUTSIDE: HostId = HostId(0);

/// Work on the receiving host; it runs again if its message is duplicated.
pub(crate) type Work<T> = Arc<dyn Fn() -> BoxFuture<'static, Option<T>> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<Links>>);

struct Links {
    lots: Lots,
    /// Pairs of sender and receiver whose messages are lost.
    cut: BTreeSet<(HostId, HostId)>,
    slow: BTreeMap<(HostId, HostId), Duration>,
    loss: u64,
    duplicates: u64,
}

impl Net {
    pub(crate) fn new(lots: Lots) -> Self {
        let (cut, slow) = Default::default();
        Self(Arc::new(Mutex::new(Links { lots, cut, slow, loss: 0, duplicates: 0 })))
    }

    pub(crate) fn cut(&self, from: HostId, to: HostId) {
        self.0.lock().cut.insert((from, to));
    }

    pub(crate) fn slow(&self, from: HostId, to: HostId, delay: Duration) {
        self.0.lock().slow.insert((from, to), delay);
    }

    /// Sets the shares of messages that are lost and delivered twice, in percent.
    pub(crate) fn disturb(&self, loss: u64, duplicates: u64) {
        let mut links = self.0.lock();
        (links.loss, links.duplicates) = (loss, duplicates);
    }

    pub(crate) fn heal(&self) {
        let mut links = self.0.lock();
        links.cut.clear();
        links.slow.clear();
        (links.loss, links.duplicates) = (0, 0);
    }

    /// Returns whether messages pass from one host to another.
    pub(crate) fn passes(&self, from: HostId, to: HostId) -> bool {
        !self.0.lock().cut.contains(&(from, to))
    }

    /// Carries one message: returns the delay, or `None` if the message is lost.
    pub(crate) fn carry(&self, from: HostId, to: HostId) -> Option<Duration> {
        let mut links = self.0.lock();
        let inside = from != OUTSIDE && to != OUTSIDE;
        let loss = links.loss;
        let lost = inside && (links.lots.chance(loss) || links.cut.contains(&(from, to)));
        let slow = links.slow.get(&(from, to)).copied().unwrap_or_default();
        let usual = links.lots.between(Duration::from_micros(300), Duration::from_millis(5));
        // A few messages are overtaken by many others.
        let late = if links.lots.chance(2) { Duration::from_millis(40) } else { Duration::ZERO };
        (!lost).then_some(usual + slow + late)
    }

    /// Runs work on another host and returns the response; `None` if it did not arrive in time.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        from: HostId,
        to: HostId,
        limit: Duration,
        work: Work<T>,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let answer = Arc::new(Mutex::new(Some(answer)));
        let copies = {
            let mut links = self.0.lock();
            let share = if from == OUTSIDE { 0 } else { links.duplicates };
            1 + u64::from(links.lots.chance(share))
        };
        for _ in 0..copies {
            self.send(from, to, work.clone(), answer.clone());
        }
        drop(answer);
        let answered = async {
            match answered.await {
                Ok(answer) => answer,
                // No copy will get a response.
                Err(_) => pending().await,
            }
        };
        timeout(limit, answered).await.ok()
    }

    fn send<T: Send + 'static>(
        &self,
        from: HostId,
        to: HostId,
        work: Work<T>,
        answer: Arc<Mutex<Option<oneshot::Sender<T>>>>,
    ) {
        let Some(delay) = self.carry(from, to) else { return };
        let net = self.clone();
        spawn_on(OUTSIDE, async move {
            sleep(delay).await;
            if !net.passes(from, to) {
                return;
            }
            spawn_on(to, async move {
                let Some(result) = work().await else { return };
                let Some(delay) = net.carry(to, from) else { return };
                spawn_on(OUTSIDE, async move {
                    sleep(delay).await;
                    if net.passes(to, from)
                        && let Some(answer) = answer.lock().take()
                    {
                        // A caller that no longer waits needs no response.
                        let _ = answer.send(result);
                    }
                });
            });
        });
    }
}

/// The running logs by host.
pub(crate) type Handles = Arc<Mutex<BTreeMap<HostId, caravan_consensus::Handle>>>;

/// The connections of one server.
pub(crate) struct Wire {
    pub(crate) sim: Sim,
    pub(crate) from: HostId,
}

/// Returns the host of a server.
pub(crate) fn host_of(peer: &caravan_consensus::Peer) -> HostId {
    HostId(peer.server.as_u128() as u32)
}

impl Wire {
    fn cluster(&self) -> Option<ClusterId> {
        self.sim.handle(self.from).and_then(|handle| handle.identity().cluster)
    }
}

impl PeerTransport for Wire {
    fn call(
        &self,
        to: &PeerAddress,
        kind: MessageKind,
        body: Bytes,
        limit: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        let (sim, from, to, cluster) = (self.sim.clone(), self.from, host_of(&to.peer), self.cluster());
        Box::pin(async move {
            let net = sim.net.clone();
            let work: Work<io::Result<Bytes>> = Arc::new(move || {
                let (sim, body) = (sim.clone(), body.clone());
                Box::pin(async move {
                    let handle = sim.handle(to)?;
                    sim.take_place(to, &handle, cluster).await;
                    Some(handle.receive(kind, body).await.map_err(io::Error::other))
                })
            });
            net.call(from, to, limit, work).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
        })
    }

    fn snapshot(
        &self,
        to: &PeerAddress,
        head: Bytes,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        let (sim, from, to) = (self.sim.clone(), self.from, host_of(&to.peer));
        Box::pin(async move {
            let chunks: Vec<io::Result<Bytes>> = chunks.collect().await;
            let chunks: Vec<Bytes> = chunks.into_iter().collect::<io::Result<_>>()?;
            let net = sim.net.clone();
            let work: Work<io::Result<Bytes>> = Arc::new(move || {
                let (handle, head) = (sim.handle(to), head.clone());
                let chunks = futures::stream::iter(chunks.clone().into_iter().map(Ok)).boxed();
                Box::pin(async move {
                    Some(handle?.receive_snapshot(head, chunks).await.map_err(io::Error::other))
                })
            });
            let answer = net.call(from, to, SNAPSHOT_TIMEOUT, work).await;
            answer.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}
