//! The members that a server had, for its next start: the file `members` in the server's data directory.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

/// Name of the file.
const FILE: &str = "members";

/// A member of an earlier run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
}

/// The content of the file, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Remembered {
    /// The number of this start, which is larger than the numbers of earlier starts.
    pub(crate) epoch: u64,
    /// Whether the server left before it ended.
    pub(crate) left: bool,
    /// The other members.
    pub(crate) members: Vec<Known>,
}

/// Returns the content of the file. A damaged file is reported and counts as absent.
pub(crate) fn read(dir: &Path) -> Result<Remembered, Error> {
    let path = dir.join(FILE);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "the file of members is invalid and ignored");
            Remembered::default()
        })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Remembered::default()),
        Err(error) => Err(Error::File { path, reason: error.to_string() }),
    }
}

/// Replaces the file atomically.
pub(crate) fn write(dir: &Path, remembered: &Remembered) -> Result<(), Error> {
    let path = dir.join(FILE);
    let fail = |reason: String| Error::File { path: path.clone(), reason };
    let bytes = serde_json::to_vec(remembered).map_err(|error| fail(error.to_string()))?;
    caravan_sys::files::atomic_write(&path, &bytes, 0o600)
        .map_err(|error| fail(caravan_sys::describe(&error)))
}

/// A content to write, and the receiver of a notification afterwards.
pub(crate) type Save = (Remembered, Option<oneshot::Sender<()>>);

/// Writes contents in order, except for contents that newer ones replace. Ends when the sender is dropped.
pub(crate) async fn save(dir: PathBuf, mut contents: mpsc::UnboundedReceiver<Save>) {
    while let Some((mut content, waiting)) = contents.recv().await {
        let mut waiting: Vec<_> = waiting.into_iter().collect();
        while let Ok((newer, more)) = contents.try_recv() {
            content = newer;
            waiting.extend(more);
        }
        let dir = dir.clone();
        let written = tokio::task::spawn_blocking(move || write(&dir, &content)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the file of members could not be written");
        }
        for waiting in waiting {
            // The receiver may have been dropped.
            let _ = waiting.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_survives_and_a_damaged_one_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), Remembered::default());
        let known =
            Known { id: Uuid::from_u128(1), name: "a.global".into(), addr: ([10, 0, 0, 1], 4648).into() };
        let remembered = Remembered { epoch: 7, left: true, members: vec![known] };
        write(dir.path(), &remembered).unwrap();
        assert_eq!(read(dir.path()).unwrap(), remembered);
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(read(dir.path()).unwrap(), Remembered::default());
    }
}
