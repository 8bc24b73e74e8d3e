//! The durable promise of a server without a log to take part in one founding.

use crate::keyring::KeyringFault;
use caravan_founding::{Own, Promise, ServerUuid};
use caravan_messages::cluster::ClusterKey;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// The name of the file with the promise, in the server's data directory.
const FILE: &str = "founding";

/// A promise, with the key of the cluster to be founded.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Promised {
    pub(crate) promise: Promise,
    pub(crate) key: ClusterKey,
}

impl fmt::Debug for Promised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promised").field("promise", &self.promise).finish_non_exhaustive()
    }
}

/// The promise of this server; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Promises(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    server: ServerUuid,
    expect: usize,
    file: Option<PathBuf>,
    current: Mutex<Option<Promised>>,
    changed: watch::Sender<()>,
    /// The lock that is held while a decision is made and stored.
    turn: tokio::sync::Mutex<()>,
}

impl Promises {
    /// Reads the stored promise. `dir` is the server's data directory; `None`: promises are kept in memory.
    pub(crate) fn open(
        server: ServerUuid,
        expect: usize,
        dir: Option<PathBuf>,
    ) -> Result<Self, KeyringFault> {
        let file = dir.map(|dir| dir.join(FILE));
        let stored = match &file {
            Some(file) => match std::fs::read(file) {
                Ok(bytes) => Some(read(&bytes).ok_or_else(|| KeyringFault::Damaged(file.clone()))?),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return Err(KeyringFault::file(file)(error)),
            },
            None => None,
        };
        Ok(Self(Arc::new(Shared {
            server,
            expect,
            file,
            current: Mutex::new(stored),
            changed: watch::Sender::new(()),
            turn: tokio::sync::Mutex::new(()),
        })))
    }

    /// Returns the id of this server.
    pub(crate) fn server(&self) -> ServerUuid {
        self.0.server
    }

    /// Returns the current promise.
    pub(crate) fn promised(&self) -> Option<Promised> {
        self.0.current.lock().clone()
    }

    /// Returns the facts for a decision. `cluster` is the cluster of the log.
    pub(crate) fn own(&self, cluster: Option<caravan_founding::ClusterId>) -> Own {
        let promise = self.promised().map(|promised| promised.promise);
        Own { server: self.0.server, expect: self.0.expect, cluster, promise }
    }

    /// Waits until no other decision about the promise is in progress.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    /// Replaces the promise, durably. The caller holds the turn.
    pub(crate) fn store(&self, promised: Option<Promised>) -> Result<(), KeyringFault> {
        if let Some(file) = &self.0.file {
            match &promised {
                Some(promised) => {
                    let bytes = rmp_serde::to_vec_named(promised).map_err(|error| {
                        KeyringFault::file(file)(std::io::Error::other(error.to_string()))
                    })?;
                    if let Some(dir) = file.parent() {
                        caravan_sys::files::durable_private_dir(dir).map_err(KeyringFault::files)?;
                    }
                    caravan_sys::files::atomic_write(file, &bytes, 0o600).map_err(KeyringFault::files)?;
                }
                None => match std::fs::remove_file(file) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(KeyringFault::file(file)(error));
                    }
                    _ => {}
                },
            }
        }
        *self.0.current.lock() = promised;
        self.0.changed.send_replace(());
        Ok(())
    }

    /// Returns a receiver of changes of the promise.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }
}

fn read(bytes: &[u8]) -> Option<Promised> {
    rmp_serde::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_founding::{ClusterId, Founding};
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt as _;
    use uuid::Uuid;

    #[test]
    fn a_promise_survives_a_restart_and_shows_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerUuid(Uuid::from_u128(1));
        let open = || Promises::open(server, 3, Some(dir.path().to_owned())).unwrap();
        let founding = Founding {
            cluster: ClusterId(Uuid::from_u128(9)),
            proposer: server,
            servers: BTreeSet::from([server]),
        };
        let promised = Promised { promise: Promise { founding }, key: ClusterKey::new([77; 32]) };
        assert!(!format!("{promised:?}").contains("77"));
        open().store(Some(promised.clone())).unwrap();
        assert_eq!(open().promised(), Some(promised));
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        open().store(None).unwrap();
        assert_eq!(open().promised(), None);
        std::fs::write(dir.path().join(FILE), b"x").unwrap();
        assert!(matches!(
            Promises::open(server, 3, Some(dir.path().to_owned())),
            Err(KeyringFault::Damaged(_))
        ));
    }
}
