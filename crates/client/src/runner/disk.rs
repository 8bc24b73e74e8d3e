//! Sticky disks: the data that an allocation takes over from the one that it replaces (`jobspec` section 4.2).
//!
//! On the same node the directories are moved; from another node they come as an archive, through the servers. What
//! cannot be had is done without, and said: an allocation must not fail because its predecessor's node is gone.

use super::alloc::{AllocRunner, Stage};
use crate::ClientError;
use crate::alloc_dir::AllocDir;
use crate::allocs::Allocs;
use crate::clock;
use caravan_rpc::{Code, RpcError};
use caravan_sys::tree::{self, Seals};
use caravan_types::alloc::{TaskEvent, TaskRunState, event};
use caravan_types::wire::{DiskChunk, FetchDisk};
use futures::StreamExt;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// Bytes of an archive that are sent at once.
const CHUNK: usize = 64 * 1024;
/// Chunks between two ends.
const AHEAD: usize = 8;
/// Where an archive is unpacked before its parts are moved to their places.
const ARRIVING: &str = ".disk";

/// What moves: `alloc/data` and the `local` of each task, as paths below the allocation's directory.
fn parts(tasks: &[String]) -> Vec<PathBuf> {
    let locals = tasks.iter().map(|task| Path::new(task).join("local"));
    std::iter::once(PathBuf::from("alloc/data")).chain(locals).collect()
}

/// Moves the parts of one directory into another, as far as they are there. Nothing that is in place is overwritten.
fn adopt(from: &Path, to: &Path, tasks: &[String]) -> io::Result<()> {
    for part in parts(tasks) {
        let (source, target) = (from.join(&part), to.join(&part));
        if !source.is_dir() {
            continue;
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        match fs::remove_dir(&target) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => continue,
            Err(error) => return Err(error),
        }
        fs::rename(source, target)?;
    }
    Ok(())
}

/// Writes the parts of a directory as an archive. What is neither file, directory nor link is left out.
fn pack(root: &Path, tasks: &[String], out: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    archive.follow_symlinks(false);
    let mut left: Vec<PathBuf> = parts(tasks).into_iter().filter(|part| root.join(part).is_dir()).collect();
    while let Some(path) = left.pop() {
        let at = root.join(&path);
        archive.append_dir(&path, &at)?;
        for entry in fs::read_dir(&at)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, path.join(entry.file_name()));
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() || kind.is_symlink() {
                archive.append_path_with_name(entry.path(), path)?;
            }
        }
    }
    archive.into_inner()?.flush()
}

/// Unpacks an archive below a directory, which is made anew. Nothing is written outside it.
fn unpack(archive: impl Read, into: &Path) -> io::Result<()> {
    tree::remove(into, Seals::Keep).map_err(io::Error::other)?;
    fs::create_dir_all(into)?;
    let mut source = Watched { inner: archive, ended: false };
    let mut archive = tar::Archive::new(&mut source);
    archive.set_preserve_permissions(true);
    // Only root can give files away; without it everything belongs to the agent's user anyway.
    archive.set_preserve_ownerships(rustix::process::geteuid().is_root());
    archive.unpack(into)?;
    // The last blocks of an archive say that it is whole; one that breaks off between two files has none.
    match source.ended {
        true => Err(io::Error::new(ErrorKind::UnexpectedEof, "the archive breaks off")),
        false => Ok(()),
    }
}

/// Tells whether somebody read up to the very end.
struct Watched<R> {
    inner: R,
    ended: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.ended |= read == 0 && !into.is_empty();
        Ok(read)
    }
}

/// Writes chunks to whoever receives them.
struct Chunks(mpsc::Sender<Result<DiskChunk, RpcError>>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(ErrorKind::BrokenPipe, "nobody takes the archive any more");
        self.0.blocking_send(Ok(DiskChunk { data: bytes.to_vec() })).map_err(gone)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads chunks as they come.
struct Arriving {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    rest: io::Cursor<Vec<u8>>,
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.rest.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            match self.chunks.blocking_recv() {
                Some(chunk) => self.rest = io::Cursor::new(chunk?),
                None => return Ok(0),
            }
        }
    }
}

/// Runs something that blocks.
async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

impl AllocRunner {
    /// Takes over the data of the allocation that this one replaces, if its group wants that.
    pub(super) async fn take_over_disk(&self, allocs: &Allocs) {
        let alloc = self.alloc();
        let disk = alloc.group().and_then(|group| group.ephemeral_disk).unwrap_or_default();
        if alloc.previous_allocation.is_empty() || !(disk.sticky || disk.migrate) || self.has_begun() {
            return;
        }
        let taken = match allocs.get(&alloc.previous_allocation) {
            Ok(previous) if previous.alloc().server_terminal() || previous.status().is_terminal() => {
                // Only then nothing is mounted below the directories that move.
                previous.reached(Stage::Over).await;
                let (from, to, tasks) = (previous.dir().clone(), self.dir().clone(), self.task_names());
                blocking(move || adopt(from.root(), to.root(), &tasks)).await
            }
            Ok(_) => return,
            Err(_) if disk.migrate => self.fetch_disk().await,
            Err(_) => return,
        };
        if let Err(why) = taken {
            tracing::warn!(alloc = %alloc.id, previous = %alloc.previous_allocation, why, "data is not taken over");
            let words = format!(
                "The data of allocation {} could not be taken over: {why}",
                alloc.previous_allocation.short()
            );
            for task in self.task_names() {
                self.note(&task, TaskEvent::new(event::HOOK_MESSAGE, clock::now()).message(words.clone()));
            }
        }
    }

    /// Whether any task was ever started: what is in its directories then is its own.
    fn has_begun(&self) -> bool {
        let state = self.lock();
        state.tasks.values().any(|slot| {
            let record = &slot.record;
            record.handle.is_some()
                || record.state.state != TaskRunState::Pending
                || !record.state.started_at.is_zero()
        })
    }

    async fn fetch_disk(&self) -> Result<(), String> {
        let identity = &self.context().identity;
        let request = FetchDisk {
            node_id: identity.node_id.clone(),
            secret: identity.secret.clone(),
            alloc: self.id(),
        };
        let mut answers = self.context().servers.fetch_disk(request).await;
        let (sender, chunks) = mpsc::channel(AHEAD);
        let (to, tasks) = (self.dir().clone(), self.task_names());
        let arriving = to.root().join(ARRIVING);
        let unpacked = blocking(move || {
            let archive = Arriving { chunks, rest: io::Cursor::default() };
            let done = unpack(archive, &arriving).and_then(|()| adopt(&arriving, to.root(), &tasks));
            tree::remove(&arriving, Seals::Keep).map_err(io::Error::other)?;
            done
        });
        let sent = async move {
            while let Some(chunk) = answers.next().await {
                let (chunk, failed) = match chunk {
                    Ok(chunk) => (Ok(chunk.data), None),
                    Err(error) => (Err(io::Error::other(error.to_string())), Some(error.to_string())),
                };
                if sender.send(chunk).await.is_err() || failed.is_some() {
                    return failed.map_or(Ok(()), Err);
                }
            }
            Ok(())
        };
        let (unpacked, sent) = tokio::join!(unpacked, sent);
        sent.and(unpacked)
    }

    /// The data that it leaves, as an archive, once nothing of it runs or is mounted.
    pub(crate) async fn give_disk(&self) -> Result<mpsc::Receiver<Result<DiskChunk, RpcError>>, RpcError> {
        if !self.status().is_terminal() {
            let text = ClientError::StillRuns(self.id().to_string()).to_string();
            return Err(RpcError::new(Code::Unavailable, text));
        }
        self.reached(Stage::Over).await;
        let (sender, receiver) = mpsc::channel(AHEAD);
        let (dir, tasks): (AllocDir, _) = (self.dir().clone(), self.task_names());
        tokio::task::spawn_blocking(move || {
            let out = io::BufWriter::with_capacity(CHUNK, Chunks(sender.clone()));
            if let Err(error) = pack(dir.root(), &tasks, out) {
                // Whoever asked may be gone.
                let _ = sender
                    .blocking_send(Err(RpcError::internal(format!("the data cannot be read: {error}"))));
            }
        });
        Ok(receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn filled(root: &Path) {
        for part in ["alloc/data/deep", "web/local", "web/secrets", "gone/local"] {
            fs::create_dir_all(root.join(part)).unwrap();
        }
        fs::write(root.join("alloc/data/deep/file"), "shared").unwrap();
        fs::write(root.join("web/local/own"), "own").unwrap();
        fs::write(root.join("web/secrets/token"), "secret").unwrap();
        fs::set_permissions(root.join("web/local/own"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("own", root.join("web/local/link")).unwrap();
    }

    #[test]
    fn data_is_moved_once_and_overwrites_nothing() {
        let base = tempfile::tempdir().unwrap();
        let (old, new) = (base.path().join("old"), base.path().join("new"));
        filled(&old);
        fs::create_dir_all(new.join("alloc/data")).unwrap();
        let tasks = ["web".to_owned(), "fresh".to_owned()];
        for _ in 0..2 {
            adopt(&old, &new, &tasks).unwrap();
            assert_eq!(fs::read_to_string(new.join("alloc/data/deep/file")).unwrap(), "shared");
            assert_eq!(fs::read_to_string(new.join("web/local/link")).unwrap(), "own");
        }
        assert!(!new.join("web/secrets").exists() && !new.join("fresh").exists());
        // The next one has begun to write already.
        filled(&old);
        fs::write(new.join("web/local/own"), "newer").unwrap();
        adopt(&old, &new, &tasks).unwrap();
        assert_eq!(fs::read_to_string(new.join("web/local/own")).unwrap(), "newer");
    }

    #[test]
    fn data_is_packed_and_unpacked_with_modes_and_links() {
        let base = tempfile::tempdir().unwrap();
        let (old, new) = (base.path().join("old"), base.path().join("new"));
        filled(&old);
        let mut packed = Vec::new();
        pack(&old, &["web".to_owned()], &mut packed).unwrap();
        fs::create_dir_all(new.join("left over")).unwrap();
        unpack(packed.as_slice(), &new).unwrap();
        assert_eq!(fs::read_to_string(new.join("alloc/data/deep/file")).unwrap(), "shared");
        assert_eq!(fs::read_link(new.join("web/local/link")).unwrap(), Path::new("own"));
        let mode = fs::metadata(new.join("web/local/own")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(!new.join("web/secrets").exists() && !new.join("gone").exists());
        assert!(!new.join("left over").exists());
        // An archive that breaks off is an error, not an empty disk.
        assert!(unpack(&packed[..packed.len() / 2], &new).is_err());
    }
}
