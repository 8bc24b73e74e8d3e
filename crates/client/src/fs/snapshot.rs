//! An allocation's own data as an archive: what a successor elsewhere would begin with.

use super::{AllocFs, FsError, fd_path, io};
use bytes::Bytes;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use tokio::sync::mpsc;

/// Pieces that wait for a slow reader.
const QUEUE: usize = 16;
/// Longest piece, in bytes.
const PIECE: usize = 64 * 1024;

/// Pieces of an archive; an error is the last one.
pub type Archive = mpsc::Receiver<Result<Bytes, FsError>>;

impl AllocFs {
    /// The data that its tasks share and the `local` directories of all of them, as a tar archive. What is neither
    /// a file nor a directory nor a link is left out.
    ///
    /// # Errors
    /// [`FsError`], before the first piece.
    pub fn snapshot(&self) -> Result<Archive, FsError> {
        let fs = self.clone();
        let roots: Vec<String> = std::iter::once("alloc/data".to_owned())
            .chain(self.tasks.iter().map(|t| format!("{t}/local")))
            .collect();
        // Said before anything is sent.
        fs.open(".")?;
        let (sender, archive) = mpsc::channel(QUEUE);
        tokio::task::spawn_blocking(move || {
            let mut tar = tar::Builder::new(Pieces { sender: sender.clone(), held: Vec::new() });
            let told = roots.iter().try_for_each(|root| match fs.add(&mut tar, root) {
                // A task that never started has no directory.
                Err(FsError::NotFound(_)) => Ok(()),
                other => other,
            });
            let told = told.and_then(|()| tar.into_inner().and_then(|mut end| end.flush()).map_err(io("/")));
            if let Err(error) = told {
                // Nobody is left to read it where this fails too.
                let _ = sender.blocking_send(Err(error));
            }
        });
        Ok(archive)
    }

    /// Adds a file, or a directory with all that is in it.
    fn add(&self, tar: &mut tar::Builder<Pieces>, path: &str) -> Result<(), FsError> {
        let file = self.open(path)?;
        self.forbid_secrets(&file, path)?;
        let meta = file.metadata().map_err(io(path))?;
        if !meta.is_dir() {
            return add_file(tar, path, &file);
        }
        let mut header = header_of(&meta, 0, tar::EntryType::Directory);
        tar.append_data(&mut header, format!("{path}/"), std::io::empty()).map_err(io(path))?;
        for entry in std::fs::read_dir(fd_path(&file)).map_err(io(path))?.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let below = format!("{path}/{name}");
            // What is removed meanwhile is not there.
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if meta.file_type().is_symlink() {
                if let Ok(target) = std::fs::read_link(entry.path()) {
                    let mut header = header_of(&meta, 0, tar::EntryType::Symlink);
                    tar.append_link(&mut header, &below, target).map_err(io(&below))?;
                }
            } else if meta.is_dir() || meta.is_file() {
                match self.add(tar, &below) {
                    Err(FsError::NotFound(_)) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }
}

fn header_of(meta: &std::fs::Metadata, size: u64, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(meta.mode() & 0o7777);
    header.set_uid(u64::from(meta.uid()));
    header.set_gid(u64::from(meta.gid()));
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(0));
    header.set_size(size);
    header
}

/// Adds a file as long as it is now: one that grows is cut, one that shrinks is filled up.
fn add_file(tar: &mut tar::Builder<Pieces>, path: &str, file: &File) -> Result<(), FsError> {
    use std::io::Read;
    let meta = file.metadata().map_err(io(path))?;
    let mut header = header_of(&meta, meta.len(), tar::EntryType::Regular);
    let content = file.take(meta.len()).chain(std::io::repeat(0)).take(meta.len());
    tar.append_data(&mut header, path, content).map_err(io(path))
}

/// Collects what is written into pieces for the reader.
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
        let fs = AllocFs::new(dir.path(), vec!["web".into(), "idle".into()]);
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
