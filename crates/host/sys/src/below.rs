//! Unmounts the mounts below a directory without losing their content.
//!
//! A directory that is to be removed may contain mounts that other parties made: a plugin, a task, or another mount
//! namespace by propagation. Such a mount is unmounted only if no data is lost and no process uses it. Otherwise it
//! remains, and the caller reports it.

use crate::dir::{Dir, Mounts};
use crate::mount::{Unmount, unmount};
use crate::mountinfo::{MountEntry, MountTable};
use crate::{Error, Result, describe};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// File systems whose content is lost with their last mount.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "hugetlbfs"];

/// The longest time for one unmount. A file system whose server does not answer would block it forever.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Paths at which a thread is still unmounting. No second thread starts for the same path.
static WORKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The treatment of a mount below the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The caller made the mount, and its content is not needed: unmount it even while a process uses it.
    Own,
    /// Another party made the mount: unmount it only if no process uses it and no data is lost.
    Foreign,
    /// Leave the mount in place and do not report it.
    Keep,
    /// Leave the mount in place and report it with this reason.
    Used(&'static str),
}

/// A mount below the directory, as passed to the caller's decision.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The mount's entry in the mount table.
    pub entry: &'a MountEntry,
    /// Whether the mount covers another mount at the same path.
    pub covers: bool,
}

/// A mount that remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftMount {
    /// The path of the mount.
    pub path: PathBuf,
    /// Type of its file system.
    pub fs_type: String,
    /// The source as in the mount table, usually a device.
    pub source: String,
    /// The reason that the mount remains.
    pub reason: LeftReason,
}

/// The reason that a mount remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftReason {
    /// A process uses the mount, in this or another mount namespace (`EBUSY`).
    InUse,
    /// The mount is the only one of a file system in memory, whose content would be lost.
    InMemory,
    /// The unmount timed out because the file system does not answer.
    Silent,
    /// Another remaining mount covers its path.
    Hidden,
    /// The caller reported a use, with this reason.
    Used(&'static str),
    /// The kernel refused, with this error text.
    Refused(String),
}

impl std::fmt::Display for LeftReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse => f.write_str("a process uses it"),
            Self::InMemory => f.write_str("its content is only in memory and would be lost"),
            Self::Silent => f.write_str("its file system does not answer"),
            Self::Hidden => f.write_str("another mount lies over it"),
            Self::Used(by) => f.write_str(by),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::fmt::Display for LeftMount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, fs_type, source, reason } = self;
        write!(f, "{} ({fs_type}, {source}): {reason}", path.display())
    }
}

/// The result for all mounts below a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Paths that were unmounted, the deepest first.
    pub ended: Vec<PathBuf>,
    /// The mounts that remain.
    pub left: Vec<LeftMount>,
}

/// Unmounts the mounts at and below a directory, the deepest first, as `treat` decides for each. A mount also remains
/// if a mount below it remains.
///
/// The parent of `dir` is trusted; everything below is reached by descriptor and without symbolic links. A directory
/// that does not exist has no mounts.
pub fn end_mounts(dir: &Path, treat: impl Fn(Found<'_>) -> Treatment) -> Result<Outcome> {
    let Some(real) = real_path(dir)? else { return Ok(Outcome::default()) };
    let mut ended = Vec::new();
    loop {
        let pass = end_once(&real, &treat)?;
        let progress = !pass.ended.is_empty();
        ended.extend(pass.ended);
        // Mounts that were hidden may be reachable now, so try again.
        if !progress || !pass.left.iter().any(|left| left.reason == LeftReason::Hidden) {
            return Ok(Outcome { ended, left: pass.left });
        }
    }
}

fn end_once(real: &Path, treat: &impl Fn(Found<'_>) -> Treatment) -> Result<Outcome> {
    let table = MountTable::read()?;
    let mut outcome = Outcome::default();
    let mut ended: HashSet<u32> = HashSet::new();
    // Ids of the mounts that remain, and of the mounts above them.
    let mut staying: HashSet<u32> = HashSet::new();
    for entry in deepest_first(&table, real) {
        let covers = table.entries().iter().any(|e| e.id == entry.parent && e.target == entry.target);
        let treatment = treat(Found { entry, covers });
        let result = match treatment {
            Treatment::Keep => Err(None),
            _ if staying.contains(&entry.id) => Err(None),
            Treatment::Used(by) => Err(Some(LeftReason::Used(by))),
            Treatment::Own => end_own(entry),
            Treatment::Foreign if holds_memory(&table, entry, &ended) => Err(Some(LeftReason::InMemory)),
            Treatment::Foreign => end_within(entry, Unmount::Now).map_err(Some),
        };
        match result {
            Ok(()) => {
                ended.insert(entry.id);
                outcome.ended.push(entry.target.clone());
            }
            Err(reason) => {
                staying.extend([entry.id, entry.parent]);
                outcome.left.extend(reason.map(|reason| LeftMount {
                    path: entry.target.clone(),
                    fs_type: entry.fs_type.clone(),
                    source: entry.source.clone(),
                    reason,
                }));
            }
        }
    }
    Ok(outcome)
}

/// Returns the path as in the mount table; `None` if the parent does not exist.
fn real_path(dir: &Path) -> Result<Option<PathBuf>> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "the path does not end with a name");
        return Err(Error::path("find", dir)(source));
    };
    match parent.canonicalize() {
        Ok(parent) => Ok(Some(parent.join(name))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::path("find", parent)(error)),
    }
}

/// Sorts by depth in the tree of mounts. The table's own order differs from it: a mount can be moved onto a later
/// one.
fn deepest_first<'a>(table: &'a MountTable, dir: &'a Path) -> Vec<&'a MountEntry> {
    let parents: HashMap<u32, u32> = table.entries().iter().map(|e| (e.id, e.parent)).collect();
    let depth = |entry: &MountEntry| {
        let above = std::iter::successors(Some(entry.id), |id| parents.get(id).filter(|p| *p != id).copied());
        // The root's parent may be missing in the table, and a table that changes while it is read may have a cycle.
        above.take(parents.len() + 1).count()
    };
    // At the same depth the later mounts come first, since they may cover the earlier ones.
    let mut all: Vec<_> = table.under(dir).map(|entry| (depth(entry), entry)).rev().collect();
    all.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    all.into_iter().map(|(_, entry)| entry).collect()
}

/// Returns whether this is the last mount of a file system that exists only in memory and is not empty.
fn holds_memory(table: &MountTable, entry: &MountEntry, ended: &HashSet<u32>) -> bool {
    let another = |e: &MountEntry| e.device == entry.device && e.id != entry.id && !ended.contains(&e.id);
    let is_last = IN_MEMORY.contains(&entry.fs_type.as_str()) && !table.entries().iter().any(another);
    is_last && !is_empty(&entry.target)
}

fn is_empty(target: &Path) -> bool {
    let below = target.strip_prefix("/").unwrap_or(target);
    let names = Dir::open(Path::new("/")).and_then(|root| root.enter(below, Mounts::Follow)?.names());
    names.is_ok_and(|names| names.is_empty())
}

/// Unmounts a mount of the caller. The error `None` means that another mount was made on top of it meanwhile.
fn end_own(entry: &MountEntry) -> Result<(), Option<LeftReason>> {
    match end_within(entry, Unmount::Now) {
        Err(LeftReason::InUse) => {}
        other => return other.map_err(Some),
    }
    // A lazy unmount would also unmount the mounts below, so it is done only without any.
    let table = MountTable::read().map_err(|error| Some(LeftReason::Refused(describe(&error))))?;
    if table.entries().iter().any(|e| e.parent == entry.id) {
        return Err(None);
    }
    end_within(entry, Unmount::Lazy).map_err(Some)
}

/// Unmounts in a separate thread, which is abandoned if the file system hangs.
fn end_within(entry: &MountEntry, how: Unmount) -> Result<(), LeftReason> {
    let path = entry.target.clone();
    match within(&entry.target, UNMOUNT_TIMEOUT, move || unmount_below_root(&path, how)) {
        Ok(result) => settled(entry, result),
        Err(reason) => Err(reason),
    }
}

/// Runs work for a path in a separate thread. Refuses if earlier work for the same path is still running.
fn within<T: Send + 'static>(
    path: &Path,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LeftReason> {
    let Some(turn) = Turn::take(path) else { return Err(LeftReason::Silent) };
    let (sender, answer) = mpsc::channel();
    let work = move || {
        let result = work();
        // Free the path before sending the result, and also if the caller has timed out.
        drop(turn);
        let _ = sender.send(result);
    };
    let thread = std::thread::Builder::new().name("unmount".to_owned()).stack_size(128 * 1024);
    thread.spawn(work).map_err(|error| LeftReason::Refused(format!("no thread for unmounting: {error}")))?;
    answer.recv_timeout(limit).map_err(|_| LeftReason::Silent)
}

/// The exclusive right to work at a path, until it is dropped.
struct Turn(PathBuf);

impl Turn {
    fn take(path: &Path) -> Option<Self> {
        let mut all = WORKING.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(path.to_owned()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        WORKING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

fn settled(entry: &MountEntry, unmounted: Result<bool>) -> Result<(), LeftReason> {
    let refused = |error: Error| LeftReason::Refused(describe(&error));
    match unmounted {
        Ok(true) => Ok(()),
        // The mount has ended by itself, or is not reachable.
        Ok(false) => {
            let table = MountTable::read().map_err(refused)?;
            let there = table.entries().iter().any(|e| e.id == entry.id && e.target == entry.target);
            if there { Err(LeftReason::Hidden) } else { Ok(()) }
        }
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Err(LeftReason::InUse),
        Err(error) => Err(refused(error)),
    }
}

/// Unmounts the mount at a real path. Follows no symbolic link, even if one was placed on the path meanwhile. Returns
/// whether a mount was there.
fn unmount_below_root(target: &Path, how: Unmount) -> Result<bool> {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else { return Ok(false) };
    let below = parent.strip_prefix("/").unwrap_or(parent);
    match Dir::open(Path::new("/"))?.enter(below, Mounts::Follow) {
        Ok(parent) => unmount(&parent.proc_path().join(name), how),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
