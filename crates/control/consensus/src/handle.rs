//! Starting, using and stopping one server's part in the log.

use crate::log::LogStore;
use crate::machine::{Machine, Meaning, StateMachine};
use crate::network::{Alone, Network};
use crate::raft::{Command, TypeConfig};
use crate::snapshot::SnapshotStore;
use crate::{Config, Error, ServerId, Storage};
use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, Fatal, LinearizableReadError, RaftError};
use openraft::{BasicNode, Raft, ReadPolicy, SnapshotPolicy};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long the shutdown waits until the log file is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A command that is durable and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The command's index, as passed to [`StateMachine::apply`].
    pub index: u64,
    /// The result of [`StateMachine::apply`].
    pub response: Vec<u8>,
}

/// The leader, as this server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This server is the leader.
    Leader {
        /// The leader's term, which grows with every new leader.
        term: u64,
    },
    /// Another server is the leader.
    Follower {
        /// Number of the leader.
        leader: ServerId,
        /// Address of the leader.
        address: String,
    },
    /// There is no leader, or it is not known yet.
    Unknown,
}

/// The positions in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Term of the newest known leader.
    pub term: u64,
    /// Last entry in the log; 0 while it is empty.
    pub last_log_index: u64,
    /// Last entry applied; 0 before the first.
    pub applied_index: u64,
    /// Last entry in the newest snapshot, if there is one.
    pub snapshot_index: Option<u64>,
    /// Last entry removed from the log, if any was.
    pub purged_index: Option<u64>,
    /// Whether this server is the leader.
    pub is_leader: bool,
}

type Core = Raft<TypeConfig, Machine>;

/// Entry point: [`Consensus::start`].
#[derive(Clone, Copy, Debug)]
pub struct Consensus;

impl Consensus {
    /// Opens the log, restores the state machine, makes this server the leader, and returns when all that is done.
    /// The state machine then contains every command that was ever acknowledged. The service must be run as long as
    /// the handle is used.
    ///
    /// # Errors
    /// If the configuration is refused; if the data directory is unusable, in use, damaged or belongs to another
    /// server; if the state machine cannot read its snapshot.
    pub async fn start(config: Config, state_machine: impl StateMachine) -> Result<(Handle, Service), Error> {
        config.validate()?;
        let closed = CancellationToken::new();
        let (log, snapshots) = open(&config, closed.clone()).await?;
        let on_disk = matches!(config.storage, Storage::Dir(_));
        let machine = Machine::new(Box::new(state_machine), snapshots);
        Self::launch(config, log, machine, on_disk.then_some(closed)).await
    }

    async fn launch(
        config: Config,
        log: LogStore,
        machine: Machine,
        closed: Option<CancellationToken>,
    ) -> Result<(Handle, Service), Error> {
        let raft = openraft_config(&config)?;
        let raft = Raft::new(config.node_id.0, raft, Network(Alone), log, machine).await.map_err(fatal)?;
        if let Err(error) = lead(&raft, &config).await {
            // The first error is the cause; an error of the shutdown adds nothing.
            let _ = raft.shutdown().await;
            return Err(error);
        }
        let (publish, leadership) = watch::channel(current_leadership(&raft));
        let service = Service { raft: raft.clone(), publish, closed };
        Ok((Handle { raft, leadership }, service))
    }
}

async fn open(config: &Config, closed: CancellationToken) -> Result<(LogStore, SnapshotStore), Error> {
    let Storage::Dir(dir) = &config.storage else {
        return Ok((LogStore::memory(), SnapshotStore::memory()));
    };
    let (dir, server) = (dir.clone(), config.node_id);
    let open = move || {
        let log = LogStore::open(&dir, server, closed)?;
        let snapshots = SnapshotStore::open(&dir, log.purged())?.with_log(log.clone());
        Ok((log, snapshots))
    };
    // The repair after a crash reads the whole file.
    tokio::task::spawn_blocking(open).await.map_err(Error::fatal)?
}

fn openraft_config(config: &Config) -> Result<Arc<openraft::Config>, Error> {
    let raft = openraft::Config {
        cluster_name: String::from("caravan"),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_after_entries),
        max_in_snapshot_log_to_keep: config.keep_entries,
        // A single voter has no peers: it elects itself once, at start, and then needs no clock.
        enable_tick: false,
        enable_heartbeat: false,
        enable_elect: false,
        ..openraft::Config::default()
    };
    raft.validate().map(Arc::new).map_err(Error::fatal)
}

/// Forms a cluster of one unless a cluster exists, and waits until this server is its leader with all entries applied.
async fn lead(raft: &Core, config: &Config) -> Result<(), Error> {
    let voters = raft.with_raft_state(|state| state.membership_state.effective().voter_ids().count());
    let voters = voters.await.map_err(fatal)?;
    if voters > 1 {
        return Err(Error::ManyVoters { count: voters });
    }
    if !raft.is_initialized().await.map_err(fatal)? {
        let node = BasicNode { addr: config.address.clone() };
        let members = BTreeMap::from([(config.node_id.0, node)]);
        raft.initialize(members).await.map_err(|error| match error {
            RaftError::Fatal(error) => fatal(error),
            RaftError::APIError(error) => Error::fatal(error),
        })?;
    } else if !raft.with_raft_state(|state| state.server_state.is_leader()).await.map_err(fatal)? {
        raft.trigger().elect(false).await.map_err(fatal)?;
    }
    let mut metrics = raft.server_metrics();
    while !metrics.borrow_and_update().state.is_leader() {
        if metrics.changed().await.is_err() {
            return Err(why_stopped(raft));
        }
    }
    barrier(raft).await.map(drop)
}

async fn barrier(raft: &Core) -> Result<u64, Error> {
    match raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
        Ok(read) => Ok(read.index()),
        Err(RaftError::Fatal(error)) => Err(fatal(error)),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
            Err(not_leader(&forward))
        }
        Err(RaftError::APIError(_)) => Err(Error::NotLeader { leader: None }),
    }
}

fn not_leader(forward: &openraft::errors::ForwardToLeader<TypeConfig>) -> Error {
    let leader = forward.leader_id.zip(forward.leader_node.as_ref());
    Error::NotLeader { leader: leader.map(|(id, node)| (ServerId(id), node.addr.clone())) }
}

fn fatal(error: Fatal<TypeConfig>) -> Error {
    match error {
        Fatal::Stopped => Error::Stopped,
        error => Error::fatal(error),
    }
}

/// Returns why openraft's core has stopped.
fn why_stopped(raft: &Core) -> Error {
    match raft.metrics().borrow_watched().running_state.clone() {
        Ok(()) => Error::Stopped,
        Err(error) => fatal(error),
    }
}

fn current_leadership(raft: &Core) -> Leadership {
    let metrics = raft.server_metrics();
    let metrics = metrics.borrow_watched();
    if metrics.state.is_leader() {
        return Leadership::Leader { term: metrics.vote.leader_id().term };
    }
    let leader = metrics.current_leader.and_then(|id| {
        let node = metrics.membership_config.membership().get_node(&id)?;
        Some(Leadership::Follower { leader: ServerId(id), address: node.addr.clone() })
    });
    leader.unwrap_or(Leadership::Unknown)
}

/// The interface to the log. Clones are cheap and share it.
#[derive(Clone)]
pub struct Handle {
    raft: Core,
    leadership: watch::Receiver<Leadership>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("metrics", &self.metrics()).finish_non_exhaustive()
    }
}

impl Handle {
    /// Appends `command` and returns once it is durable and applied. If the future is dropped, or the error is
    /// [`Error::Stopped`] or [`Error::Fatal`], the command may still be in the log.
    ///
    /// # Errors
    /// [`Error::NotLeader`] (the command was not appended), [`Error::Stopped`], [`Error::Fatal`].
    pub async fn propose(&self, command: Vec<u8>) -> Result<Applied, Error> {
        self.write(Command::new(Bytes::from(command), None)).await
    }

    /// Does the same, and passes the state machine the decoded form of the bytes.
    ///
    /// # Errors
    /// As [`Self::propose`].
    pub async fn propose_known(&self, command: Vec<u8>, meaning: Meaning) -> Result<Applied, Error> {
        self.write(Command::new(Bytes::from(command), Some(meaning))).await
    }

    async fn write(&self, command: Command) -> Result<Applied, Error> {
        match self.raft.client_write(command).await {
            Ok(done) => Ok(Applied { index: done.log_id.index, response: done.data.0 }),
            Err(RaftError::Fatal(error)) => Err(fatal(error)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => Err(not_leader(&forward)),
            Err(RaftError::APIError(_)) => Err(Error::NotLeader { leader: None }),
        }
    }

    /// Waits until this server has applied all commands that any leader acknowledged before the call. Returns the
    /// index that it has reached.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Stopped`], [`Error::Fatal`].
    pub async fn barrier(&self) -> Result<u64, Error> {
        barrier(&self.raft).await
    }

    /// Returns whether this server is the leader now, as far as it knows.
    pub fn is_leader(&self) -> bool {
        self.raft.is_leader()
    }

    /// Returns a receiver of the leader and its changes. Updated by [`Service::run`].
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Returns the positions in the log. They come from a copy that is updated later: right after [`Self::propose`]
    /// returned, it may lack that command for a moment.
    pub fn metrics(&self) -> Metrics {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        Metrics {
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            applied_index: metrics.last_applied.map_or(0, |id| id.index),
            snapshot_index: metrics.snapshot.map(|id| id.index),
            purged_index: metrics.purged.map(|id| id.index),
            is_leader: metrics.state.is_leader(),
        }
    }

    /// Creates a snapshot of all commands acknowledged before the call, unless one exists, and waits for it. Returns
    /// the last index that the newest snapshot covers.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Stopped`], [`Error::Fatal`].
    pub async fn snapshot_now(&self) -> Result<u64, Error> {
        let desired = Some(self.barrier().await?);
        let mut metrics = self.raft.data_metrics();
        loop {
            let reached = metrics.borrow_and_update().snapshot.map(|id| id.index);
            if reached >= desired {
                return Ok(reached.unwrap_or(0));
            }
            // The trigger is ignored while a snapshot is being built, which may have begun before the wanted entries.
            // So trigger again after each snapshot.
            self.raft.trigger().snapshot().await.map_err(fatal)?;
            loop {
                if metrics.changed().await.is_err() {
                    return Err(why_stopped(&self.raft));
                }
                if metrics.borrow_watched().snapshot.map(|id| id.index) != reached {
                    break;
                }
            }
        }
    }

    /// Stops the log: no further command is accepted, and [`Service::run`] returns once the files are closed.
    pub async fn shutdown(&self) {
        // An error means that the core has panicked, which the service reports.
        let _ = self.raft.shutdown().await;
    }
}

/// The long-running part: publishes leadership and reports the end of the log.
#[must_use = "leadership and failures are reported only while the service runs"]
pub struct Service {
    raft: Core,
    publish: watch::Sender<Leadership>,
    closed: Option<CancellationToken>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Runs until `cancel` or [`Handle::shutdown`], then stops the log and closes its files.
    ///
    /// # Errors
    /// [`Error::Fatal`] at once if the log cannot continue. The process should then end.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), Error> {
        let mut metrics = self.raft.server_metrics();
        loop {
            let now = current_leadership(&self.raft);
            self.publish.send_if_modified(|before| {
                let changed = *before != now;
                if changed {
                    tracing::info!(leadership = ?now, "leadership changed");
                    *before = now;
                }
                changed
            });
            tokio::select! {
                () = cancel.cancelled() => break,
                changed = metrics.changed() => if changed.is_err() { break },
            }
        }
        let _ = self.raft.shutdown().await;
        self.publish.send_replace(Leadership::Unknown);
        match why_stopped(&self.raft) {
            Error::Stopped => {}
            error => return Err(error),
        }
        if let Some(closed) = self.closed
            && tokio::time::timeout(CLOSE_TIMEOUT, closed.cancelled()).await.is_err()
        {
            tracing::warn!("the replicated log is still open although it was shut down");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::storage_tests::Counter;

    #[tokio::test]
    async fn a_failed_flush_fails_the_proposal_and_ends_the_service() {
        let broken = Arc::new(AtomicBool::new(false));
        let machine = Machine::new(Box::<Counter>::default(), SnapshotStore::memory());
        let log = LogStore::breakable(&broken);
        let (handle, service) =
            Consensus::launch(Config::memory(ServerId(1)), log, machine, None).await.unwrap();
        let service = tokio::spawn(service.run(CancellationToken::new()));
        handle.propose(b"kept".to_vec()).await.unwrap();

        broken.store(true, Ordering::SeqCst);
        let error = handle.propose(b"lost".to_vec()).await.unwrap_err();
        assert!(matches!(error, Error::Fatal { .. }), "{error}");
        let Err(Error::Fatal { source }) = service.await.unwrap() else { panic!("it went on") };
        assert!(source.to_string().contains("no space left"), "{source}");
    }
}
