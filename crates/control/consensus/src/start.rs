//! The start of one server in the log.

use crate::blocking::blocking;
use crate::commits::Commits;
use crate::config::{Identity, Start};
use crate::handle::{Handle, Leadership};
use crate::inbound::Contact;
use crate::log::{LogStore, WriterHandle};
use crate::machine::{MAX_DEFERRED, Machine, StateMachine};
use crate::network::{Network, PeerTransport};
use crate::raft::{Core, ServerMetrics, TypeConfig};
use crate::reads::{Rounds, Suspensions};
use crate::runtime::{now, planted, suspended};
use crate::service::Service;
use crate::snapshot::{Inbox, SnapshotStore};
use crate::{Config, Error, PeerAddress, ServerId, Storage};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{Fatal, ForwardToLeader, InitializeError, RaftError};
use openraft::{Raft, SnapshotPolicy};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The state that all handles of one server share.
pub(crate) struct Inner {
    config: Config,
    transport: Arc<dyn PeerTransport>,
    identity: Arc<RwLock<Identity>>,
    pub(crate) writer: WriterHandle,
    /// The parts of the log until the server has a number.
    waiting: Mutex<Option<Waiting>>,
    running: OnceLock<Running>,
    /// Cancelled once `running` is set.
    pub(crate) launched: CancellationToken,
    /// Cancelled when the log must end although it was never launched.
    pub(crate) stopped: CancellationToken,
    pub(crate) leadership: watch::Sender<Leadership>,
    pub(crate) contact: Contact,
}

struct Waiting {
    log: LogStore,
    machine: Machine,
}

/// The running log of a server that has a number. No field keeps the files open after a shutdown.
pub(crate) struct Running {
    pub(crate) raft: Core,
    pub(crate) number: ServerId,
    pub(crate) inbox: Inbox,
    pub(crate) rounds: Rounds,
    /// Requests to the leader for an index to read at.
    pub(crate) questions: Rounds,
    pub(crate) suspensions: Suspensions,
    /// The time until which this server neither votes nor starts an election.
    pub(crate) held_until: Option<Instant>,
    /// Index of the last applied entry.
    pub(crate) applied: Arc<AtomicU64>,
    /// The highest index that a follower may have applied, because this server sent it as committed.
    pub(crate) shown: Arc<AtomicU64>,
    /// The commits that followers need without delay.
    pub(crate) commits: Arc<Commits>,
    /// Notified when the commands since the newest snapshot are too large.
    pub(crate) snapshot_due: Arc<Notify>,
    /// Prevents the deferral of the next snapshot.
    pub(crate) snapshot_requested: Arc<AtomicBool>,
    /// The last entry on disk at the start. The state before the restart contained no later entry.
    pub(crate) tail: Option<u64>,
    /// The term in which this server has begun to give up its leadership; 0 before the first.
    pub(crate) given_up: AtomicU64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("identity", &self.identity()).finish_non_exhaustive()
    }
}

/// Entry point: [`Consensus::start`].
#[derive(Clone, Copy, Debug)]
pub struct Consensus;

impl Consensus {
    /// Opens the log and restores the state machine.
    ///
    /// A server that is the only voter is the leader when this call returns, and its state machine contains
    /// every command that was ever acknowledged. A member of a larger cluster joins it while
    /// [`Service::run`] runs, see [`Handle::recovered`]. The service must run as long as the handle is
    /// used.
    ///
    /// # Errors
    /// If the configuration is refused; if the data directory is unusable, in use or damaged; if the state machine
    /// cannot read its snapshot, or cannot apply a command in the log.
    pub fn start(
        config: Config,
        transport: Arc<dyn PeerTransport>,
        state_machine: impl StateMachine,
    ) -> BoxFuture<'static, Result<(Handle, Service), Error>> {
        Self::open_and_launch(config, transport, Box::new(state_machine))
    }

    fn open_and_launch(
        config: Config,
        transport: Arc<dyn PeerTransport>,
        state_machine: Box<dyn StateMachine>,
    ) -> BoxFuture<'static, Result<(Handle, Service), Error>> {
        async move {
            config.validate()?;
            let closed = CancellationToken::new();
            let (log, snapshots, identity) = open(&config, closed.clone()).await?;
            let closed = (config.storage != Storage::Memory).then_some(closed);
            let after = (config.snapshot_after_bytes, config.snapshot_after_entries);
            let machine = Machine::new(state_machine, log.clone(), snapshots, after);
            Self::launch(config, transport, identity, log, machine, closed).await
        }
        .boxed()
    }

    pub(crate) async fn launch(
        config: Config,
        transport: Arc<dyn PeerTransport>,
        mut identity: Identity,
        log: LogStore,
        machine: Machine,
        closed: Option<CancellationToken>,
    ) -> Result<(Handle, Service), Error> {
        let writer = log.writer();
        if let (None, Start::Alone(number)) = (identity.number, config.start) {
            identity.number = Some(number);
            writer.save_identity(identity).await?;
        }
        let inner = Arc::new(Inner {
            config,
            transport,
            identity: Arc::new(RwLock::new(identity)),
            writer,
            waiting: Mutex::new(Some(Waiting { log, machine })),
            running: OnceLock::new(),
            launched: CancellationToken::new(),
            stopped: CancellationToken::new(),
            leadership: watch::Sender::new(Leadership::Unknown),
            contact: Contact::default(),
        });
        inner.launch_if_known().await?;
        Ok((Handle { inner: inner.clone() }, Service { inner, closed }))
    }
}

async fn open(
    config: &Config,
    closed: CancellationToken,
) -> Result<(LogStore, SnapshotStore, Identity), Error> {
    let dir = match config.storage.clone() {
        Storage::Memory => return Ok((LogStore::memory(), SnapshotStore::memory(), Identity::default())),
        Storage::Dir(dir) => dir,
        #[cfg(feature = "simulation")]
        Storage::Virtual(disk) => {
            let (log, identity) = LogStore::open_virtual(&disk, closed)?;
            let snapshots = SnapshotStore::open_virtual(disk, log.purged())?.with_log(log.clone());
            return Ok((log, snapshots, identity));
        }
    };
    // The repair after a crash reads the whole file.
    blocking(move || {
        let (log, identity) = LogStore::open(&dir, closed)?;
        let snapshots = SnapshotStore::open(&dir, log.purged())?.with_log(log.clone());
        Ok((log, snapshots, identity))
    })
    .await
    .map_err(Error::fatal)?
}

/// Returns the number of entries that stay in the log. If the previous snapshot must stay usable, the log
/// keeps all entries since that snapshot, also if the newest one was deferred.
fn kept(config: &Config) -> u64 {
    let keeps_previous = config.keep_entries >= config.snapshot_after_entries;
    let deferred = if keeps_previous { MAX_DEFERRED + 1 } else { 0 };
    config.keep_entries.saturating_add(deferred.saturating_mul(config.snapshot_after_entries))
}

fn openraft_config(config: &Config) -> Result<Arc<openraft::Config>, Error> {
    let timing = config.timing;
    let (election_timeout_min, election_timeout_max) = timing.election_millis();
    let raft = openraft::Config {
        cluster_name: String::from("caravan"),
        election_timeout_min,
        election_timeout_max,
        heartbeat_interval: timing.heartbeat_millis(),
        // A leader without a quorum repeatedly keeps silent for this time, so that its followers can elect
        // another leader.
        quorum_loss_probe_interval: Some(3 * election_timeout_max),
        // A value that only the transport receives, and ignores.
        install_snapshot_timeout: 600_000,
        // The number of bytes is limited by the log.
        max_payload_entries: 1024,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_after_entries),
        max_in_snapshot_log_to_keep: kept(config),
        enable_pre_vote: Some(true),
        // A restarted leader must not continue without a vote: its state and its commits are not durable.
        enable_leader_restore: Some(planted!(LeaderRestore)),
        backoff: String::from("50ms 100ms ..1s"),
        // A single voter needs no clock. The service switches the clock on when there are other members.
        enable_tick: false,
        enable_heartbeat: false,
        enable_elect: false,
        ..openraft::Config::default()
    };
    raft.validate().map(Arc::new).map_err(Error::fatal)
}

impl Inner {
    pub(crate) fn identity(&self) -> Identity {
        *self.identity.read()
    }

    /// Returns the running log.
    pub(crate) fn running(&self) -> Result<&Running, Error> {
        match self.running.get() {
            Some(running) => Ok(running),
            None if self.stopped.is_cancelled() => Err(Error::Stopped),
            None => Err(Error::NotAdmitted),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Records the server's number in a cluster, and starts its log if the log waited for the number.
    pub(crate) async fn admit(&self, admitted: Identity) -> Result<(), Error> {
        let mut waiting = self.waiting.lock().await;
        let identity = self.identity();
        let same = |old: Option<_>, new: Option<_>| old.is_none() || old == new;
        let fits = same(identity.cluster.map(|id| id.0.as_u128()), admitted.cluster.map(|id| id.0.as_u128()))
            && same(identity.number.map(|id| u128::from(id.0)), admitted.number.map(|id| u128::from(id.0)));
        if !fits {
            return Err(Error::Admitted { identity });
        }
        if identity != admitted {
            self.writer.save_identity(admitted).await?;
            *self.identity.write() = admitted;
        }
        self.launch(&mut waiting).await
    }

    async fn launch_if_known(&self) -> Result<(), Error> {
        if self.identity().number.is_none() {
            return Ok(());
        }
        self.launch(&mut *self.waiting.lock().await).await
    }

    async fn launch(&self, waiting: &mut Option<Waiting>) -> Result<(), Error> {
        let (Some(Waiting { log, machine }), Some(number)) = (waiting.take(), self.identity().number) else {
            return Ok(());
        };
        let config = openraft_config(&self.config)?;
        let network = Network::new(self.transport.clone(), self.identity.clone());
        let questions = Rounds::leader(network.clone(), self.leadership.subscribe());
        let (inbox, applied) = (machine.inbox(), machine.applied_index());
        let (shown, commits) = (Arc::clone(&network.shown), Arc::clone(&network.commits));
        let snapshot_due = machine.snapshot_due();
        let snapshot_requested = machine.snapshot_requested();
        let (pristine, tail) = (log.is_pristine(), log.last_index());
        let raft = Raft::new(number.0, config, network, log, machine).await.map_err(fatal)?;
        let began = match begin(&raft, number, &self.config, pristine).await {
            Ok(began) => began,
            Err(error) => {
                // The first error is the cause; an error of the shutdown adds nothing.
                let _ = raft.shutdown().await;
                return Err(error);
            }
        };
        let held_until = match began {
            Began::Leading { term } => {
                self.leadership.send_replace(Leadership::Leader { term, since: now() });
                None
            }
            Began::Fresh => None,
            Began::Member => Some(now() + self.config.timing.hold_after_start()),
        };
        let running = Running {
            rounds: Rounds::quorum(raft.clone()),
            questions,
            suspensions: Suspensions::new(suspended()),
            raft,
            number,
            inbox,
            applied,
            shown,
            commits,
            snapshot_due,
            snapshot_requested,
            held_until,
            tail,
            given_up: AtomicU64::new(0),
        };
        // The lock on `waiting` makes this the only launch.
        let _ = self.running.set(running);
        self.launched.cancel();
        Ok(())
    }

    /// Ends a log that was never launched.
    pub(crate) async fn abandon(&self) {
        self.stopped.cancel();
        drop(self.waiting.lock().await.take());
    }
}

/// The role of a server right after its start.
enum Began {
    /// The only voter, and the leader.
    Leading { term: u64 },
    /// A server without entries in its log.
    Fresh,
    /// One of several members.
    Member,
}

/// Forms a cluster of one if the log is empty and the configuration requests it. Waits until the only voter
/// is the leader with all entries applied.
async fn begin(raft: &Core, number: ServerId, config: &Config, pristine: bool) -> Result<Began, Error> {
    if !raft.is_initialized().await.map_err(fatal)? {
        let Start::Alone(_) = config.start else { return Ok(Began::Fresh) };
        initialize(raft, BTreeMap::from([(number.0, config.peer.clone())])).await?;
    } else {
        let alone = raft.with_raft_state(move |state| {
            let mut voters = state.membership_state.effective().voter_ids();
            voters.next() == Some(number.0) && voters.next().is_none()
        });
        if !alone.await.map_err(fatal)? {
            return Ok(if pristine { Began::Fresh } else { Began::Member });
        }
        raft.trigger().elect(false).await.map_err(fatal)?;
    }
    let mut metrics = raft.server_metrics();
    let term = loop {
        if let Some(term) = led_term(&metrics.borrow_and_update()) {
            break term;
        }
        if metrics.changed().await.is_err() {
            return Err(why_stopped(raft));
        }
    };
    crate::reads::quorum_round(raft).await?;
    Ok(Began::Leading { term })
}

/// Writes the first membership. A log that already has a membership stays unchanged.
pub(crate) async fn initialize(raft: &Core, members: BTreeMap<u64, crate::Peer>) -> Result<(), Error> {
    match raft.initialize(members).await {
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
        Err(RaftError::APIError(InitializeError::NotInMembers(error))) => {
            Err(crate::MembershipError::NotMember(ServerId(error.node_id)).into())
        }
        Err(RaftError::Fatal(error)) => Err(fatal(error)),
    }
}

/// Returns the term in which this server is the leader, confirmed by a quorum or not.
pub(crate) fn led_term(metrics: &ServerMetrics) -> Option<u64> {
    metrics.state.is_leader().then(|| metrics.vote.leader_id().term)
}

pub(crate) fn not_leader(forward: ForwardToLeader<TypeConfig>) -> Error {
    let leader = forward.leader_id.zip(forward.leader_node);
    Error::NotLeader { leader: leader.map(|(id, peer)| PeerAddress { number: ServerId(id), peer }) }
}

pub(crate) fn fatal(error: Fatal<TypeConfig>) -> Error {
    match error {
        Fatal::Stopped => Error::Stopped,
        error => Error::fatal(error),
    }
}

/// Returns the reason that openraft's core has stopped.
pub(crate) fn why_stopped(raft: &Core) -> Error {
    match raft.metrics().borrow_watched().running_state.clone() {
        // An ordered end records its reason. A server without its log must not continue.
        Ok(()) => Error::fatal("the replicated log ended without a reason: its task panicked"),
        Err(error) => fatal(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::NoPeers;
    use crate::storage_tests::Counter;

    #[tokio::test]
    async fn a_failed_flush_fails_the_proposal_and_ends_the_service() {
        let broken = Arc::new(AtomicBool::new(false));
        let log = LogStore::breakable(&broken);
        let machine = Machine::new(
            Box::<Counter>::default(),
            log.clone(),
            SnapshotStore::memory(),
            (u64::MAX, u64::MAX),
        );
        let config = Config::memory(ServerId(1));
        let started =
            Consensus::launch(config, Arc::new(NoPeers), Identity::default(), log, machine, None).await;
        let (handle, service) = started.unwrap();
        let service = tokio::spawn(service.run(CancellationToken::new()));
        handle.propose(b"kept".to_vec()).await.unwrap();

        broken.store(true, Ordering::SeqCst);
        let error = handle.propose(b"lost".to_vec()).await.unwrap_err();
        assert!(matches!(error, Error::Fatal { .. }), "{error}");
        let Err(Error::Fatal { source }) = service.await.unwrap() else { panic!("it went on") };
        assert!(source.to_string().contains("no space left"), "{source}");
    }

    /// Starts a server without a number, whose flushes fail once the flag is set.
    async fn waiting() -> (Arc<AtomicBool>, Handle, Service) {
        let broken = Arc::new(AtomicBool::new(false));
        let log = LogStore::breakable(&broken);
        let machine = Machine::new(
            Box::<Counter>::default(),
            log.clone(),
            SnapshotStore::memory(),
            (u64::MAX, u64::MAX),
        );
        let config = Config { start: Start::Wait, ..Config::memory(ServerId(1)) };
        let started =
            Consensus::launch(config, Arc::new(NoPeers), Identity::default(), log, machine, None).await;
        let (handle, service) = started.unwrap();
        (broken, handle, service)
    }

    #[tokio::test]
    async fn a_cluster_is_founded_once_its_first_entry_is_durable() {
        let (broken, handle, _service) = waiting().await;
        let cluster = crate::ClusterId(uuid::Uuid::from_u128(7));
        handle.admit(cluster, ServerId(1)).await.unwrap();

        broken.store(true, Ordering::SeqCst);
        let members = [1, 2, 3].map(|number| (ServerId(number), crate::Peer::at("a")));
        let founded = handle.found(cluster, members.into()).await;
        assert!(matches!(founded, Err(Error::Fatal { .. } | Error::Stopped)), "{founded:?}");
    }

    #[tokio::test]
    async fn a_server_that_cannot_write_its_number_ends() {
        let (broken, handle, service) = waiting().await;
        broken.store(true, Ordering::SeqCst);
        let service = tokio::spawn(service.run(CancellationToken::new()));
        handle.admit(crate::ClusterId(uuid::Uuid::from_u128(7)), ServerId(1)).await.unwrap_err();
        let Err(Error::Fatal { source }) = service.await.unwrap() else { panic!("it went on") };
        assert!(source.to_string().contains("before the server had a number"), "{source}");
    }
}
