//! What every part of the server holds: the state, the way to change it, and the clock.

use crate::error::ServerError;
use crate::keyring::Keyring;
use caravan_consensus::{BoxError, Capture, Meaning, StateMachine};
use caravan_meters::Meters;
use caravan_state::{Snapshot, Store};
use caravan_types::UnixNanos;
use caravan_types::command::{Change, Command, Outcome};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Shared by all parts of the server; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) store: Arc<Store>,
    pub(crate) log: caravan_consensus::Handle,
    pub(crate) keyring: Keyring,
    pub(crate) meters: Meters,
}

#[cfg(test)]
impl Core {
    /// One that keeps everything in memory, with its log running.
    pub(crate) async fn in_memory() -> Self {
        use caravan_consensus::{Config, Consensus, ServerId};
        let store = Arc::new(Store::default());
        let started = Consensus::start(Config::memory(ServerId(1)), Machine(store.clone())).await;
        let (log, service) = started.expect("a log in memory always starts");
        // For as long as the test runs.
        tokio::spawn(service.run(tokio_util::sync::CancellationToken::new()));
        let keyring = Keyring::memory().expect("keys in memory are always there");
        Self { store, log, keyring, meters: Meters::default() }
    }
}

impl Core {
    /// The wall clock, read at the edge and passed on.
    pub(crate) fn now(&self) -> UnixNanos {
        now()
    }

    /// The newest state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    /// Makes a change durable and applies it. The outcome may be a refusal.
    pub(crate) async fn propose(&self, change: Change) -> Result<Outcome, ServerError> {
        let command = Command { now: now(), change };
        let kind = command.change.kind();
        let bytes = rmp_serde::to_vec_named(&command).map_err(|e| {
            ServerError::new(crate::Kind::Internal, format!("command {kind} cannot be encoded: {e}"))
        })?;
        let applied = self.log.propose_known(bytes, Box::new(command)).await?;
        let mut outcome: Outcome = rmp_serde::from_slice(&applied.response).map_err(|e| {
            ServerError::new(
                crate::Kind::Internal,
                format!("the outcome of command {kind} cannot be read: {e}"),
            )
        })?;
        outcome.index = applied.index;
        Ok(outcome)
    }

    /// The same, with a refusal as an error. Answers the index.
    pub(crate) async fn commit(&self, change: Change) -> Result<u64, ServerError> {
        let outcome = self.propose(change).await?;
        match outcome.refused {
            Some(refusal) => Err(refusal.into()),
            None => Ok(outcome.index),
        }
    }
}

/// The wall clock.
pub(crate) fn now() -> UnixNanos {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX))
}

/// A fresh UUID in text.
pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The store as the state machine of the log.
#[derive(Debug)]
pub(crate) struct Machine(pub(crate) Arc<Store>);

impl StateMachine for Machine {
    fn apply(&mut self, index: u64, command: &[u8], meaning: Option<Meaning>) -> Vec<u8> {
        let meaning = meaning.and_then(|meaning| meaning.downcast::<Command>().ok());
        let read = match meaning {
            // Other servers, and this one after a restart, read the bytes: both must be the same command.
            Some(command) if !cfg!(debug_assertions) => Ok(command),
            meaning => rmp_serde::from_slice(command).map(Box::new).inspect(|read| {
                assert!(
                    meaning.is_none_or(|meaning| meaning == *read),
                    "command {index} reads as another one"
                );
            }),
        };
        let outcome = match read {
            Ok(command) => self.0.apply(index, &command),
            // A command that was committed must not be skipped silently by one server alone, but
            // every server of this version answers alike.
            Err(error) => {
                tracing::error!(index, %error, "a committed command cannot be read");
                Outcome {
                    index,
                    refused: Some(caravan_types::command::Refusal::Invalid(
                        "the command is of a form unknown to this version".into(),
                    )),
                }
            }
        };
        // Numbers and strings only: there is nothing that MessagePack could not hold.
        rmp_serde::to_vec_named(&outcome).expect("an outcome holds nothing that cannot be encoded")
    }

    fn snapshot(&self) -> Capture {
        let root = self.0.snapshot();
        Box::new(move || Ok(caravan_state::encode(&root)))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), BoxError> {
        self.0.restore(snapshot)?;
        Ok(())
    }
}
