//! An archive of an allocation's own data, as a successor on another node would receive it.

use super::{AllocFs, FsError, io, pack};
use bytes::Bytes;
use std::io::Write;
use tokio::sync::mpsc;

/// The most pieces that wait for a slow reader.
const QUEUE: usize = 16;
/// The longest piece, in bytes.
const PIECE: usize = 64 * 1024;

/// The pieces of an archive; an error is the last item.
pub type Archive = mpsc::Receiver<Result<Bytes, FsError>>;

impl AllocFs {
    /// Returns a tar archive of the shared data of the allocation's tasks and of their `local` directories. Only
    /// files, directories and links are included; volumes are not.
    ///
    /// # Errors
    /// See [`FsError`]; returned before the first piece.
    pub fn snapshot(&self) -> Result<Archive, FsError> {
        let fs = self.clone();
        // Reports a missing directory before any data is sent.
        fs.open(".")?;
        let (sender, archive) = mpsc::channel(QUEUE);
        tokio::task::spawn_blocking(move || {
            let pieces = Pieces { sender: sender.clone(), held: Vec::new() };
            if let Err(error) = pack::write(&fs.root, &fs.tasks, &fs.users, pieces) {
                // If this fails too, the reader has disconnected.
                let _ = sender.blocking_send(Err(io("/")(error)));
            }
        });
        Ok(archive)
    }
}

/// A writer that collects bytes into pieces for the reader.
struct Pieces {
    sender: mpsc::Sender<Result<Bytes, FsError>>,
    held: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.held.extend_from_slice(data);
        if self.held.len() >= PIECE {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.held));
        self.sender.blocking_send(Ok(piece)).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::users::Users;
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[tokio::test]
    async fn data_and_local_directories_are_archived_and_secrets_are_not() {
        let dir = tempfile::tempdir().unwrap();
        for part in ["alloc/data", "alloc/logs", "web/local/sub", "web/secrets"] {
            std::fs::create_dir_all(dir.path().join(part)).unwrap();
        }
        let long = "x".repeat(3 * PIECE);
        for (path, text) in [
            ("alloc/data/db", long.as_str()),
            ("alloc/logs/web.stdout.0", "no"),
            ("web/local/sub/a", "hello"),
            ("web/secrets/token", "no"),
        ] {
            std::fs::write(dir.path().join(path), text).unwrap();
        }
        symlink("../secrets", dir.path().join("web/local/way")).unwrap();
        let fs = AllocFs::new(dir.path(), vec!["web".into(), "idle".into()], Users::default());
        let mut pieces = fs.snapshot().unwrap();
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.recv().await {
            bytes.extend_from_slice(&piece.unwrap());
        }
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.insert(path, text.len());
        }
        let found: Vec<(&str, usize)> = found.iter().map(|(path, len)| (path.as_str(), *len)).collect();
        assert_eq!(
            found,
            [
                ("alloc/data/", 0),
                ("alloc/data/db", long.len()),
                ("web/local/", 0),
                ("web/local/sub/", 0),
                ("web/local/sub/a", 5),
                ("web/local/way", 0),
            ]
        );
    }
}
