//! Contact with the servers: registration, heartbeats, events, status, and the stream of allocations. Every answered
//! call that proves contact renews the node's lease, counted from the time when the call was sent.

use crate::allocs::Allocs;
use crate::clock::Backoff;
use crate::devices::DeviceManager;
use crate::drivers::DriverManager;
use crate::host_volumes::HostVolumes;
use crate::lease::NodeLease;
use crate::node::NodeState;
use crate::reporter::Reporter;
use crate::servers::Link;
use caravan_messages::{NodeContact, NodeEvents, NodeHeartbeat, NodeRegister, WatchAllocs};
use caravan_rpc::RpcError;
use caravan_sys::time::BootTime;
use caravan_types::node::NodeStatus;
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time after which the node is registered without the drivers that have not fingerprinted yet.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(60);
/// The time after which the node is registered without the host volumes whose plugins have not answered yet.
const VOLUME_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after a registration in which changes of the node are collected and sent together.
const GATHER: Duration = Duration::from_millis(100);
/// The TTL if the servers return none.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// The timeout of a call that proves contact, if no lease limits how long its answer is useful.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest pause after a failed call; shorter if the lease or the heartbeat's TTL is short.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The intervals that the servers request: the time between heartbeats, and the longest time without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    ttl: Duration,
    lease: Duration,
}

impl Pace {
    fn from_contact(contact: &NodeContact) -> Self {
        let ttl = match contact.heartbeat_ttl.to_std() {
            Duration::ZERO => DEFAULT_TTL,
            ttl => ttl.max(Duration::from_millis(200)),
        };
        Self { ttl, lease: contact.lease_ttl.to_std() }
    }

    /// Returns the interval between heartbeats: two may be lost before a lease ends, and one before the node is marked
    /// down.
    fn pause(self) -> Duration {
        match self.lease {
            Duration::ZERO => self.ttl / 2,
            lease => (self.ttl / 2).min(lease / 3),
        }
    }

    /// Returns the timeout of a call. After it, the call is repeated through another server: a later answer would be of
    /// little use.
    fn patience(self) -> Duration {
        match self.lease {
            Duration::ZERO => TIMEOUT,
            lease => (lease / 3).max(Duration::from_millis(500)).min(TIMEOUT),
        }
    }
}

/// A call that proved no contact.
#[derive(Debug)]
enum Failure {
    /// The servers' refusal, or no server was reached.
    Refused(RpcError),
    /// The server did not answer within the timeout.
    Silent(Duration),
}

impl Failure {
    /// Returns the pause before the next call. The first call after a timeout is sent immediately, because another
    /// server receives it.
    fn pause(&self, pace: Pace, backoff: &mut Backoff) -> Duration {
        let is_first = backoff.is_fresh();
        let pause = backoff.delay().min(pace.pause());
        if is_first && matches!(self, Self::Silent(_)) { Duration::ZERO } else { pause }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Silent(patience) => write!(f, "no answer within {} ms", patience.as_millis()),
        }
    }
}

/// The time of the last answered heartbeat, and the TTL that the servers returned. Clones share the time.
pub(crate) type LastHeartbeat = Arc<watch::Sender<Option<(std::time::Instant, Duration)>>>;

/// The parts of the client that the contact with the servers uses.
#[derive(Debug)]
pub(crate) struct ContactParts {
    pub(crate) link: Link,
    /// The node as reported to the servers.
    pub(crate) node: NodeState,
    /// The task drivers, whose first fingerprints come before the registration.
    pub(crate) drivers: DriverManager,
    /// The device plugins, whose first reports come before the registration.
    pub(crate) devices: DeviceManager,
    /// The host volumes, whose first verification comes before the registration.
    pub(crate) host_volumes: HostVolumes,
    /// The lease for single-writer volumes.
    pub(crate) lease: NodeLease,
    pub(crate) heartbeat: LastHeartbeat,
    /// The newest index of the servers' state that this node has seen.
    pub(crate) seen: AtomicU64,
    /// Status reports to the servers.
    pub(crate) reporter: Reporter,
}

/// Waits for an answer; an answer renews the lease. After a timeout, later calls use another server.
async fn answered(
    parts: &ContactParts,
    patience: Duration,
    call: impl Future<Output = Result<NodeContact, RpcError>>,
) -> Result<NodeContact, Failure> {
    let sent = BootTime::now();
    let before = parts.seen.load(Ordering::Relaxed);
    let contact = match tokio::time::timeout(patience, call).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            // The servers may have lost the key of the identity.
            parts.link.identity.refused(&error);
            return Err(Failure::Refused(error));
        }
        Err(_) => {
            parts.link.servers.leave_server();
            return Err(Failure::Silent(patience));
        }
    };
    if let Some(signed) = contact.identity.clone() {
        parts.link.identity.signed.set(signed);
    }
    parts.heartbeat.send_replace(Some((std::time::Instant::now(), contact.heartbeat_ttl.to_std())));
    parts.link.servers.learn(&contact.servers);
    if !contact.unknown {
        adopt(&parts.seen, before, contact.state_index);
    }
    let lease = contact.lease_ttl.to_std();
    if !contact.unknown && !lease.is_zero() {
        parts.lease.renew(sent, lease);
    }
    Ok(contact)
}

/// Takes over the index of the leader's state. `before` is the highest index that this node had seen when it sent its call.
///
/// The leader has applied everything that its followers showed before the call, so a lower index means that the servers lost
/// data. A list can arrive during the call. For example, the answer of a leader with a slow disk has index 44, and meanwhile a
/// follower sends a list of index 45. With 44 as the floor, the next list could lack an allocation of 45, which would end.
fn adopt(seen: &AtomicU64, before: u64, shown: u64) {
    if shown < before {
        seen.store(shown, Ordering::Relaxed);
    } else {
        seen.fetch_max(shown, Ordering::Relaxed);
    }
}

fn heartbeat(parts: &ContactParts) -> NodeHeartbeat {
    let identity = &parts.link.identity;
    NodeHeartbeat {
        node_id: identity.node_id.clone(),
        secret: identity.proof(),
        wants_identity: identity.signed.valid().is_none(),
    }
}

/// Keeps contact with the servers while the returned future is polled.
pub(crate) async fn stay(parts: ContactParts, allocs: Allocs) {
    let first = async {
        tokio::join!(
            parts.drivers.first_fingerprints(DRIVER_TIMEOUT),
            parts.devices.first_fingerprints(DRIVER_TIMEOUT)
        );
        parts.host_volumes.first_pass(VOLUME_TIMEOUT).await;
    };
    tokio::select! {
        () = first => {}
        () = keep_lease(&parts) => {}
    }
    let registered = watch::Sender::new(false);
    tokio::join!(
        register(&parts, &allocs, &registered),
        tell_events(&parts, registered.subscribe()),
        follow_allocs(&parts, &allocs, registered.subscribe()),
        async {
            until(registered.subscribe()).await;
            parts.reporter.run(Arc::clone(&parts.link.servers), Arc::clone(&parts.link.identity)).await;
        },
    );
}

async fn until(mut registered: watch::Receiver<bool>) {
    // The sender lives as long as all tasks that wait here.
    let _ = registered.wait_for(|r| *r).await;
}

/// Sends heartbeats before the node is registered, because tasks of an earlier agent may depend on its lease.
async fn keep_lease(parts: &ContactParts) {
    if parts.lease.last_contact().is_none() {
        return std::future::pending().await;
    }
    let mut pace = Pace { ttl: DEFAULT_TTL, lease: Duration::ZERO };
    loop {
        match answered(parts, pace.patience(), parts.link.servers.heartbeat(heartbeat(parts))).await {
            Ok(contact) => {
                pace = Pace::from_contact(&contact);
                tokio::time::sleep(pace.pause()).await;
            }
            Err(error) => {
                tracing::debug!(%error, "a heartbeat before registration failed; retrying");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// Registers the node, and again after each change; sends heartbeats in between.
async fn register(parts: &ContactParts, allocs: &Allocs, registered: &watch::Sender<bool>) {
    let mut node = parts.node.watch();
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
    let mut pace = Pace { ttl: DEFAULT_TTL, lease: Duration::ZERO };
    loop {
        let request = NodeRegister { node: (**node.borrow_and_update()).clone() };
        let announced = Instant::now();
        match answered(parts, pace.patience(), parts.link.servers.register(request)).await {
            Ok(contact) => {
                backoff.reset();
                pace = Pace::from_contact(&contact);
                in_step(&contact, allocs);
                if !registered.send_replace(true) {
                    tracing::info!(node = %parts.link.identity.node_id, "node registered");
                }
                pace = live(parts, allocs, &mut node, pace).await;
                // Later changes are sent together, but the first change is sent immediately.
                tokio::time::sleep_until(announced + GATHER).await;
            }
            Err(error) => {
                let pause = error.pause(pace, &mut backoff);
                tracing::warn!(%error, retry_ms = pause.as_millis(), "node cannot be registered");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Reports all allocations if the servers have not marked the node as ready, because they do so only after these
/// reports.
fn in_step(contact: &NodeContact, allocs: &Allocs) {
    if !contact.unknown && contact.status != NodeStatus::Ready {
        allocs.tell_all();
    }
}

/// Sends heartbeats until the node must be registered again; returns the newest pace.
async fn live(
    parts: &ContactParts,
    allocs: &Allocs,
    node: &mut watch::Receiver<Arc<caravan_types::node::Node>>,
    mut pace: Pace,
) -> Pace {
    let mut backoff = Backoff::new(Duration::from_millis(250), MAX_PAUSE);
    let mut unsigned = Backoff::new(Duration::from_millis(500), DEFAULT_TTL);
    let mut pause = pace.pause();
    loop {
        tokio::select! {
            // The sender is the node's, so it is never dropped here.
            _ = node.changed() => return pace,
            () = tokio::time::sleep(pause) => {}
        }
        match answered(parts, pace.patience(), parts.link.servers.heartbeat(heartbeat(parts))).await {
            Ok(contact) if contact.unknown => {
                tracing::warn!("the servers no longer have a record of this node; registering again");
                return pace;
            }
            Ok(contact) => {
                backoff.reset();
                pace = Pace::from_contact(&contact);
                pause = pause_after(pace, parts.link.identity.signed.valid().is_some(), &mut unsigned);
                in_step(&contact, allocs);
            }
            Err(error) => {
                pause = error.pause(pace, &mut backoff);
                tracing::warn!(%error, retry_ms = pause.as_millis(), "heartbeat failed");
            }
        }
    }
}

/// Returns the pause after an answered heartbeat. The servers may be creating the key that signs identities, so a
/// node without an identity sends the next heartbeat sooner. Servers of earlier versions sign no identities.
fn pause_after(pace: Pace, is_signed: bool, unsigned: &mut Backoff) -> Duration {
    if is_signed {
        unsigned.reset();
        return pace.pause();
    }
    pace.pause().min(unsigned.delay())
}

async fn tell_events(parts: &ContactParts, registered: watch::Receiver<bool>) {
    until(registered).await;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(15));
    loop {
        let events = parts.node.take_events().await;
        let request = NodeEvents {
            node_id: parts.link.identity.node_id.clone(),
            secret: parts.link.identity.proof(),
            events: events.clone(),
        };
        match parts.link.servers.node_events(request).await {
            Ok(_) => backoff.reset(),
            Err(error) => {
                parts.link.identity.refused(&error);
                tracing::debug!(%error, events = events.len(), "node events cannot be sent; retrying");
                parts.node.give_back(events);
                tokio::time::sleep(backoff.delay()).await;
            }
        }
    }
}

async fn follow_allocs(parts: &ContactParts, allocs: &Allocs, registered: watch::Receiver<bool>) {
    until(registered).await;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    loop {
        let request = WatchAllocs {
            node_id: parts.link.identity.node_id.clone(),
            secret: parts.link.identity.proof(),
            after: parts.seen.load(Ordering::Relaxed),
        };
        let mut deltas = parts.link.servers.watch_allocs(request).await;
        while let Some(delta) = deltas.next().await {
            match delta {
                Ok(delta) => {
                    backoff.reset();
                    parts.seen.fetch_max(delta.index, Ordering::Relaxed);
                    allocs.apply(delta).await;
                }
                Err(error) => {
                    parts.link.identity.refused(&error);
                    tracing::debug!(%error, "the stream of allocations failed");
                }
            }
        }
        tokio::time::sleep(backoff.delay()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Nanos;

    fn pace(ttl_ms: i64, lease_ms: i64) -> Pace {
        Pace::from_contact(&NodeContact {
            heartbeat_ttl: Nanos::from_millis(ttl_ms),
            lease_ttl: Nanos::from_millis(lease_ms),
            ..NodeContact::default()
        })
    }

    #[test]
    fn the_pace_keeps_both_the_heartbeat_and_the_lease() {
        assert_eq!(pace(18_000, 30_000).pause(), Duration::from_secs(9));
        assert_eq!(pace(40_000, 30_000).pause(), Duration::from_secs(10));
        assert_eq!(pace(18_000, 0).pause(), Duration::from_secs(9));
        assert_eq!(pace(0, 0).pause(), DEFAULT_TTL / 2);
        for (ttl, lease) in [(10_000, 30_000), (20_000, 2_000), (300, 1_000)] {
            let pace = pace(ttl, lease);
            // One lost call and the next one fit within the lease.
            assert!(pace.pause() + pace.patience() < pace.lease, "{pace:?}");
        }
    }

    #[test]
    fn a_silent_server_is_left_at_once_and_all_of_them_are_not_pressed() {
        let (pace, silent) = (pace(10_000, 30_000), Failure::Silent(Duration::from_secs(10)));
        let mut backoff = Backoff::new(Duration::from_millis(250), MAX_PAUSE);
        assert_eq!(silent.pause(pace, &mut backoff), Duration::ZERO);
        assert!(silent.pause(pace, &mut backoff) >= Duration::from_millis(500));
        backoff.reset();
        let refused = Failure::Refused(RpcError::unavailable("no leader"));
        assert!(refused.pause(pace, &mut backoff) >= Duration::from_millis(250));
    }

    #[test]
    fn an_answer_lowers_the_floor_only_if_the_servers_lost_data() {
        let seen = AtomicU64::new(44);
        // A list of index 45 arrives during the call.
        let before = seen.load(Ordering::Relaxed);
        seen.fetch_max(45, Ordering::Relaxed);
        adopt(&seen, before, 44);
        assert_eq!(seen.load(Ordering::Relaxed), 45);
        adopt(&seen, 45, 50);
        assert_eq!(seen.load(Ordering::Relaxed), 50);
        adopt(&seen, 50, 7);
        assert_eq!(seen.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_node_without_an_identity_asks_again_sooner_and_then_more_rarely() {
        let (pace, mut unsigned) =
            (pace(18_000, 30_000), Backoff::new(Duration::from_millis(500), DEFAULT_TTL));
        assert!(pause_after(pace, false, &mut unsigned) <= Duration::from_secs(1));
        let later: Vec<Duration> = (0..12).map(|_| pause_after(pace, false, &mut unsigned)).collect();
        assert!(later.iter().all(|pause| *pause <= pace.pause()), "{later:?}");
        assert!(later[11] >= Duration::from_secs(4), "{later:?}");
        assert_eq!(pause_after(pace, true, &mut unsigned), pace.pause());
        assert!(pause_after(pace, false, &mut unsigned) <= Duration::from_secs(1));
    }
}
