//! The parts that all services of the server share: the state, the way to change it, and the clocks.

use crate::absence::Absences;
use crate::aging::Aging;
use crate::attempt;
use crate::cluster::LEADER_TIMEOUT;
use crate::error::ServerError;
use crate::keyring::Keyring;
use crate::runtime::{self, planted, select};
use caravan_consensus::{Applied, BoxError, Capture, Meaning, StateMachine};
use caravan_meters::Meters;
use caravan_state::{Snapshot, Store};
use caravan_types::command::{Change, Command, Outcome};
use caravan_types::packed::Packed as _;
use caravan_types::{BootInstant, Nanos, UnixNanos};
use std::sync::Arc;
use std::time::Duration;

/// The pause before a write is retried after a round of heartbeats without a quorum.
const QUORUM_RETRY: Duration = Duration::from_millis(50);

/// The state, the log and the clocks, shared by all services; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) store: Arc<Store>,
    pub(crate) log: caravan_consensus::Handle,
    pub(crate) keyring: Keyring,
    pub(crate) meters: Meters,
    pub(crate) clock: Clock,
    pub(crate) absences: Absences,
    pub(crate) aging: Aging,
    /// The leader term that writes belong to; `None` on followers, which write nothing.
    pub(crate) term: Option<Term>,
}

/// A leader term. Terms of one log only grow, and a term has one leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Term(u64);

impl Term {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number in the log.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The wall clock, for display; it may step.
    pub(crate) wall: UnixNanos,
    /// The clock for waits; it never steps.
    pub(crate) boot: BootInstant,
}

impl Moment {
    /// Returns the instant at which a wait of `span` ends, given its recorded end in wall time. If the wall clock was
    /// set back, the remaining wait is no longer than `span`.
    pub(crate) fn instant_of(self, end: UnixNanos, span: Nanos) -> BootInstant {
        let left = end.since(self.wall).min(span.max(Nanos::ZERO));
        self.boot.plus(left)
    }
}

/// The source of the time.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    /// The clocks of the machine.
    #[default]
    Machine,
    /// A clock that a test moves.
    #[cfg(test)]
    Manual(Arc<parking_lot::Mutex<Moment>>),
}

impl Clock {
    pub(crate) fn read(&self) -> Moment {
        match self {
            Self::Machine => Moment { wall: runtime::wall(), boot: runtime::boot() },
            #[cfg(test)]
            Self::Manual(moment) => *moment.lock(),
        }
    }
}

#[cfg(test)]
impl Core {
    /// Returns a core that keeps everything in memory, with its log running.
    pub(crate) async fn in_memory() -> Self {
        Self::with_machine(|machine| machine).await
    }

    /// Returns a core as [`Self::in_memory`], with another state machine around the store's.
    pub(crate) async fn with_machine<M: StateMachine>(machine: impl FnOnce(Machine) -> M) -> Self {
        use caravan_consensus::{Config, Consensus, NoPeers, ServerId};
        let store = Arc::new(Store::default());
        let machine = machine(Machine { store: store.clone(), level: crate::cluster::FEATURE_LEVEL });
        let started = Consensus::start(Config::memory(ServerId(1)), Arc::new(NoPeers), machine).await;
        let (log, service) = started.expect("a log in memory always starts");
        // The log runs until the test ends.
        runtime::spawn(service.run(tokio_util::sync::CancellationToken::new()));
        let keyring = Keyring::memory().expect("keys in memory are always there");
        let (meters, clock, absences) = (Meters::default(), Clock::default(), Absences::default());
        let aging = Aging::new(Nanos::ZERO);
        Self { store, log, keyring, meters, clock, absences, aging, term: None }.leading()
    }

    /// Returns this core in the term that its log leads.
    fn leading(self) -> Self {
        let term = Term::new(self.log.metrics().term);
        self.in_term(term)
    }

    /// Returns a core as [`Self::in_memory`], with a clock that the test moves.
    pub(crate) async fn with_clock(moment: Moment) -> (Self, Arc<parking_lot::Mutex<Moment>>) {
        let manual = Arc::new(parking_lot::Mutex::new(moment));
        (Self { clock: Clock::Manual(manual.clone()), ..Self::in_memory().await }, manual)
    }
}

impl Core {
    /// Reads the wall clock: for display, calendars and expiry.
    pub(crate) fn now(&self) -> UnixNanos {
        self.clock.read().wall
    }

    /// Reads `CLOCK_BOOTTIME`: for waits.
    pub(crate) fn boot(&self) -> BootInstant {
        self.clock.read().boot
    }

    /// Sleeps until an instant, or permanently without one. The sleep may take longer if the machine is suspended.
    pub(crate) async fn until(&self, at: Option<BootInstant>) {
        match at {
            Some(at) => runtime::sleep(at.since(self.boot()).to_std()).await,
            None => std::future::pending().await,
        }
    }

    /// Returns a snapshot of the newest state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    /// Returns a core whose writes belong to a leader term. It has observed no absence yet.
    pub(crate) fn in_term(&self, term: Term) -> Self {
        Self { term: Some(term), absences: Absences::default(), ..self.clone() }
    }

    /// Proves that this server leads and that its state contains everything that is committed, with a quorum round
    /// that begins now. The caller must read the state after the call.
    ///
    /// For example, the leader's disk is slow, and two followers commit an allocation with its claim. A node receives
    /// the allocation from a follower and requests the claim from the leader. The leader has not applied the entry
    /// yet.
    pub(crate) async fn prove_newest(&self) -> Result<(), ServerError> {
        if planted!(UnprovedDiscard) {
            return Ok(());
        }
        self.log.read_quorum().await?;
        Ok(())
    }

    /// Commits a change durably and applies it. The outcome may be a refusal.
    ///
    /// # Errors
    /// [`ServerError::NotLeader`] if nothing was written, because this server does not lead the term.
    pub(crate) async fn propose(&self, change: Change) -> Result<Outcome, ServerError> {
        let Some(term) = self.term else {
            attempt::refused();
            return Err(ServerError::NotLeader);
        };
        let level = self.snapshot().level();
        if !can_propose(&change, level) {
            return Err(ServerError::Level { command: change.kind(), needs: change.level(), level });
        }
        let command = Command { now: self.now(), change };
        let kind = command.change.kind();
        let bytes =
            command.pack().map_err(|error| ServerError::Encode { command: kind, error: Arc::new(error) })?;
        let applied = self.append(term.number(), bytes, command).await?;
        #[cfg(feature = "simulation")]
        crate::plant::record(term.number(), applied.index);
        Outcome::unpack(&applied.response)
            .map_err(|error| ServerError::Outcome { command: kind, error: Arc::new(error) })
    }

    /// Waits until the outcome of all writes of this term is known. Returns `false` at the end of the term: the next
    /// leader may commit the writes.
    pub(crate) async fn settle(&self) -> bool {
        let Some(term) = self.term else { return true };
        self.log.settle(term.number()).await.is_ok()
    }

    /// Appends a command. A leader that has not received messages from a quorum within its lease refuses to append,
    /// and may lead on in the same term. The command then waits for a quorum, as a request waits for a leader.
    async fn append(&self, term: u64, bytes: Vec<u8>, command: Command) -> Result<Applied, ServerError> {
        let deadline = attempt::deadline().unwrap_or_else(|| runtime::now() + LEADER_TIMEOUT);
        let mut meaning: Option<Meaning> = Some(Box::new(command));
        loop {
            let appended = if planted!(NoTerm) {
                self.log.propose(bytes.clone()).await
            } else {
                self.log.propose_in(term, bytes.clone(), meaning.take()).await
            };
            match appended {
                Err(caravan_consensus::Error::NotLeader { .. }) if runtime::now() < deadline => {}
                Err(
                    error @ (caravan_consensus::Error::NotLeader { .. }
                    | caravan_consensus::Error::TermEnded { .. }),
                ) => {
                    attempt::refused();
                    return Err(error.into());
                }
                result => {
                    attempt::wrote();
                    return Ok(result?);
                }
            }
            // The future ends with a round of heartbeats, at the latest with a failed one.
            let round = async {
                if self.log.read(None).await.is_err() {
                    runtime::sleep(QUORUM_RETRY).await;
                }
            };
            select! {
                () = round => {}
                () = runtime::sleep_until(deadline) => {}
            }
        }
    }

    /// Commits a change as [`Self::propose`] does, but returns a refusal as an error. Returns the index.
    pub(crate) async fn commit(&self, change: Change) -> Result<u64, ServerError> {
        Ok(self.commit_known(change).await?.index)
    }

    /// Commits a change as [`Self::commit`] does, and returns its whole outcome.
    pub(crate) async fn commit_known(&self, change: Change) -> Result<Outcome, ServerError> {
        let mut outcome = self.propose(change).await?;
        match outcome.refused.take() {
            Some(refusal) => Err(refusal.into()),
            None => Ok(outcome),
        }
    }
}

/// Returns whether a change may be written while the cluster has a feature level. The level itself is raised by a
/// change of the next level, once all servers support that level.
fn can_propose(change: &Change, level: u32) -> bool {
    change.level() <= level || matches!(change, Change::RaiseLevel { .. })
}

/// Returns a random UUID as text.
pub(crate) fn new_id() -> String {
    runtime::random_uuid().to_string()
}

/// The store as the state machine of the log.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) store: Arc<Store>,
    /// The feature level of this program.
    pub(crate) level: u32,
}

impl Machine {
    /// Returns the error of a server that is older than its cluster.
    fn check(&self, level: u32, object: impl std::fmt::Display) -> Result<(), BoxError> {
        if level <= self.level {
            return Ok(());
        }
        let own = self.level;
        Err(format!(
            "{object} has feature level {level}, this server supports {own}: it needs a newer version"
        )
        .into())
    }
}

impl StateMachine for Machine {
    fn apply(&mut self, index: u64, command: &[u8], meaning: Option<Meaning>) -> Result<Vec<u8>, BoxError> {
        let meaning = meaning.and_then(|meaning| meaning.downcast::<Command>().ok());
        let command = match meaning {
            // Other servers, and this server after a restart, read the bytes; both commands must be equal.
            Some(command) if !cfg!(debug_assertions) => command,
            // A server that skipped a committed command would permanently have a different state.
            meaning => {
                let read = Command::unpack(command).map(Box::new).map_err(|error| {
                    format!(
                        "the committed command {index} cannot be read: it needs a newer version ({error})"
                    )
                })?;
                assert!(
                    meaning.is_none_or(|meaning| meaning == read),
                    "command {index} reads as another one"
                );
                read
            }
        };
        self.check(command.change.level(), format_args!("the committed command {index}"))?;
        let outcome = self.store.apply(index, &command);
        // The command consists of numbers and strings only, all of which MessagePack can encode.
        Ok(outcome.pack().expect("an outcome holds nothing that cannot be encoded"))
    }

    fn snapshot(&self) -> Capture {
        let root = self.store.snapshot();
        Capture::pieces(caravan_state::SNAPSHOT_HEADER, move |out| {
            Ok(caravan_state::encode_to(&root, out)?.to_vec())
        })
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), BoxError> {
        self.store.restore(snapshot)?;
        self.check(self.store.snapshot().level(), "the state of the cluster")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_committed_command_of_an_unknown_form_is_an_error() {
        let error = machine(1).apply(7, b"of a newer version", None).unwrap_err();
        assert!(error.to_string().contains("needs a newer version"), "{error}");
    }

    fn machine(level: u32) -> Machine {
        Machine { store: Arc::default(), level }
    }

    #[test]
    fn a_server_below_the_level_of_its_cluster_stops() {
        let raise = Command { now: UnixNanos(1), change: Change::RaiseLevel { level: 2 } }.pack().unwrap();
        let error = machine(1).apply(7, &raise, None).unwrap_err().to_string();
        assert!(
            error.contains("the committed command 7 has feature level 2, this server supports 1"),
            "{error}"
        );
        let mut newer = machine(2);
        newer.apply(7, &raise, None).unwrap();
        let snapshot = caravan_state::encode(&newer.store.snapshot());
        machine(2).restore(&snapshot).unwrap();
        let error = machine(1).restore(&snapshot).unwrap_err().to_string();
        assert!(error.contains("the state of the cluster has feature level 2"), "{error}");
    }

    #[test]
    fn a_change_waits_for_the_level_of_the_cluster() {
        assert!(can_propose(&Change::Noop, 1));
        assert!(can_propose(&Change::RaiseLevel { level: 2 }, 1));
    }
}
