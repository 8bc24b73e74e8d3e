//! Ending the mounts below a directory without losing what they hold.
//!
//! A directory that is to be removed may have mounts below it that others made: a plugin, a task, another mount
//! namespace by propagation. Such a mount is unmounted only where nothing is lost and nothing uses it; otherwise it
//! stays, and the caller reports it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::io::Errno;

use crate::dir::{Dir, Mounts};
use crate::mount::{Unmount, unmount};
use crate::mountinfo::{MountEntry, MountTable};
use crate::{Error, Result, describe};

/// File systems whose content is gone with their last mount.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "hugetlbfs"];

/// How long unmounting may take: a file system whose server does not answer holds it up for ever.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a thread works that has not come back yet: no second thread waits for the same mount.
static WORKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// What is to be done with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The caller made it, and nothing in it is to be kept: it is ended, also while a process still uses it.
    Own,
    /// Somebody else made it: it is ended if nothing uses it and nothing is lost.
    Foreign,
    /// It is not touched, and nothing is reported.
    Keep,
    /// It is not touched, and reported with this reason.
    Used(&'static str),
}

/// A mount below the directory, for the decision about it.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The mount.
    pub entry: &'a MountEntry,
    /// Whether it lies on another mount at the same path.
    pub covers: bool,
}

/// A mount that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftMount {
    /// Where.
    pub path: PathBuf,
    /// Type of its file system.
    pub fs_type: String,
    /// Its device, or what else it was mounted from.
    pub source: String,
    /// Why it stays.
    pub reason: LeftReason,
}

/// Why a mount stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftReason {
    /// A process, here or in another mount namespace, uses it (`EBUSY`).
    InUse,
    /// It is the only mount of a file system in memory: its content would be lost.
    InMemory,
    /// Unmounting does not come back: its file system does not answer.
    Silent,
    /// Another mount that stays lies over its path.
    Hidden,
    /// The caller knows of a use.
    Used(&'static str),
    /// The kernel refused, in its words.
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

/// What became of the mounts below a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Where mounts were ended, the deepest first.
    pub ended: Vec<PathBuf>,
    /// The mounts that stay.
    pub left: Vec<LeftMount>,
}

/// Ends the mounts at and below a directory, the deepest first, as `treat` says of each. A mount stays as well when
/// one below it stays.
///
/// The parent of `dir` is trusted; what is below is reached by descriptor and without symbolic links. A directory
/// that is not there has no mounts.
pub fn end_mounts(dir: &Path, treat: impl Fn(Found<'_>) -> Treatment) -> Result<Outcome> {
    let Some(real) = real_path(dir)? else { return Ok(Outcome::default()) };
    let mut ended = Vec::new();
    loop {
        let pass = end_once(&real, &treat)?;
        let progress = !pass.ended.is_empty();
        ended.extend(pass.ended);
        // What was hidden may be in reach now.
        if !progress || !pass.left.iter().any(|left| left.reason == LeftReason::Hidden) {
            return Ok(Outcome { ended, left: pass.left });
        }
    }
}

fn end_once(real: &Path, treat: &impl Fn(Found<'_>) -> Treatment) -> Result<Outcome> {
    let table = MountTable::read()?;
    let mut outcome = Outcome::default();
    let mut ended: HashSet<u32> = HashSet::new();
    // Mounts that stay, and those above them.
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

/// The path as the mount table has it; `None` if the parent is not there.
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

/// The table's order is not that of the tree: a mount can be moved onto a later one.
fn deepest_first<'a>(table: &'a MountTable, dir: &'a Path) -> Vec<&'a MountEntry> {
    let parents: HashMap<u32, u32> = table.entries().iter().map(|e| (e.id, e.parent)).collect();
    let depth = |entry: &MountEntry| {
        let above = std::iter::successors(Some(entry.id), |id| parents.get(id).filter(|p| *p != id).copied());
        // The root's parent may not be in the table; a table that is read while it changes may have a cycle.
        above.take(parents.len() + 1).count()
    };
    // Of the same depth the later ones first: they may cover the others.
    let mut all: Vec<_> = table.under(dir).map(|entry| (depth(entry), entry)).rev().collect();
    all.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    all.into_iter().map(|(_, entry)| entry).collect()
}

/// Whether this is the last mount of a file system that is nowhere but in memory, and something is in it.
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

/// Ends a mount of the caller. `None` as error: something was mounted on it meanwhile.
fn end_own(entry: &MountEntry) -> Result<(), Option<LeftReason>> {
    match end_within(entry, Unmount::Now) {
        Err(LeftReason::InUse) => {}
        other => return other.map_err(Some),
    }
    // Unmounting lazily takes along the mounts below: only if there are none.
    let table = MountTable::read().map_err(|error| Some(LeftReason::Refused(describe(&error))))?;
    if table.entries().iter().any(|e| e.parent == entry.id) {
        return Err(None);
    }
    end_within(entry, Unmount::Lazy).map_err(Some)
}

/// Unmounts in a thread of its own, which is left behind when its file system hangs.
fn end_within(entry: &MountEntry, how: Unmount) -> Result<(), LeftReason> {
    let path = entry.target.clone();
    match within(&entry.target, UNMOUNT_TIMEOUT, move || unmount_below_root(&path, how)) {
        Ok(result) => settled(entry, result),
        Err(reason) => Err(reason),
    }
}

/// Does work at a path in a thread of its own. No second work begins at the path before the first is over.
fn within<T: Send + 'static>(
    path: &Path,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LeftReason> {
    let Some(turn) = Turn::take(path) else { return Err(LeftReason::Silent) };
    let (sender, answer) = mpsc::channel();
    let work = move || {
        let result = work();
        // First, so that the path is free when the caller has the result; also when the caller has given up.
        drop(turn);
        let _ = sender.send(result);
    };
    let thread = std::thread::Builder::new().name("unmount".to_owned()).stack_size(128 * 1024);
    thread.spawn(work).map_err(|error| LeftReason::Refused(format!("no thread for unmounting: {error}")))?;
    answer.recv_timeout(limit).map_err(|_| LeftReason::Silent)
}

/// The right to work at a path, which ends with its value.
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
        // Gone by itself, or out of reach.
        Ok(false) => {
            let table = MountTable::read().map_err(refused)?;
            let there = table.entries().iter().any(|e| e.id == entry.id && e.target == entry.target);
            if there { Err(LeftReason::Hidden) } else { Ok(()) }
        }
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Err(LeftReason::InUse),
        Err(error) => Err(refused(error)),
    }
}

/// Unmounts the mount at a real path. No symbolic link that was put in its way meanwhile is followed. Returns whether
/// something was mounted there.
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
#[path = "below_tests.rs"]
mod tests;
