//! Tests of the log over its public interface: across restarts, crashes and damaged directories.

mod cluster;
mod crash;
mod lifecycle;
mod net;
mod peers_file;

use caravan_consensus::{
    BoxError, Capture, Config, Consensus, Error, Handle, Meaning, NoPeers, PeerTransport, ServerId,
    StateMachine,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A state machine that records every command by its index, readable from the test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(pub(crate) Arc<Mutex<BTreeMap<u64, Vec<u8>>>>);

impl Journal {
    pub(crate) fn values(&self) -> Vec<String> {
        let rows = self.0.lock().unwrap();
        rows.values().map(|value| String::from_utf8(value.clone()).unwrap()).collect()
    }
}

impl StateMachine for Journal {
    fn apply(&mut self, index: u64, command: &[u8], meaning: Option<Meaning>) -> Result<Vec<u8>, BoxError> {
        if let Some(meaning) = meaning {
            assert_eq!(meaning.downcast_ref::<Vec<u8>>().map(Vec::as_slice), Some(command));
        }
        assert_ne!(command, b"panic", "asked to");
        if command == b"unreadable" {
            return Err("it needs a newer version".into());
        }
        let before = self.0.lock().unwrap().insert(index, command.to_vec());
        assert!(before.is_none(), "index {index} was applied twice");
        Ok([b"ok ", command].concat())
    }

    fn snapshot(&self) -> Capture {
        let rows = self.0.lock().unwrap().clone();
        Capture::whole(move || {
            let mut bytes = Vec::new();
            for (index, value) in rows {
                bytes.extend_from_slice(&index.to_le_bytes());
                bytes.extend_from_slice(&u64::try_from(value.len())?.to_le_bytes());
                bytes.extend_from_slice(&value);
            }
            Ok(bytes)
        })
    }

    fn restore(&mut self, mut snapshot: &[u8]) -> Result<(), BoxError> {
        let mut rows = BTreeMap::new();
        while !snapshot.is_empty() {
            let (head, rest) = snapshot.split_at_checked(16).ok_or("torn")?;
            let index = u64::from_le_bytes(head[..8].try_into()?);
            let length = usize::try_from(u64::from_le_bytes(head[8..].try_into()?))?;
            let (value, rest) = rest.split_at_checked(length).ok_or("torn")?;
            rows.insert(index, value.to_vec());
            snapshot = rest;
        }
        *self.0.lock().unwrap() = rows;
        Ok(())
    }
}

/// One running server.
pub(crate) struct Server {
    pub(crate) handle: Handle,
    pub(crate) journal: Journal,
    pub(crate) cancel: CancellationToken,
    pub(crate) service: JoinHandle<Result<(), Error>>,
}

/// The longest time that an event may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Retries until the directory is not locked. A child that another test starts inherits the lock of a server that has
/// just stopped, from its fork to its exec.
pub(crate) async fn unlocked<T>(mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match attempt().await {
            Err(Error::Locked { .. }) if began.elapsed() < DEADLINE => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            outcome => return outcome,
        }
    }
}

impl Server {
    /// Starts a server once no other server uses its directory.
    pub(crate) async fn start(config: Config) -> Result<Self, Error> {
        unlocked(async || Self::try_start(config.clone()).await).await
    }

    /// Waits until the server has a snapshot, which it builds concurrently with other work.
    pub(crate) async fn wait_for_snapshot(&self) {
        let began = Instant::now();
        while self.handle.metrics().snapshot_index.is_none() {
            assert!(began.elapsed() < DEADLINE, "no snapshot: {:?}", self.handle.metrics());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn try_start(config: Config) -> Result<Self, Error> {
        Self::with(config, Arc::new(NoPeers)).await
    }

    pub(crate) async fn with(config: Config, transport: Arc<dyn PeerTransport>) -> Result<Self, Error> {
        let journal = Journal::default();
        let (handle, service) = Consensus::start(config, transport, journal.clone()).await?;
        let cancel = CancellationToken::new();
        let service = tokio::spawn(service.run(cancel.clone()));
        Ok(Self { handle, journal, cancel, service })
    }

    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        self.service.await.unwrap().unwrap();
    }
}

/// Returns settings with small limits, so that snapshots and truncation happen in every test.
pub(crate) fn small(dir: &std::path::Path) -> Config {
    Config { snapshot_after_entries: 20, keep_entries: 5, ..Config::dir(ServerId(1), "127.0.0.1:4647", dir) }
}
