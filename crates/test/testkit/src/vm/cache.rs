//! The files of machines, each of which is built once and found again by its content.

use anyhow::{Context, Result};
use caravan_sys::time::wall_now;
use caravan_sys::tree::{self, Seals};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The number of versions of an object that are kept. The stories have five kinds of started machines.
const MAX_VERSIONS: usize = 6;

/// Returns the directory of the cache, below the target directory of cargo.
///
/// # Errors
/// Fails if there is no target directory or the cache cannot be created.
pub fn directory() -> Result<PathBuf> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => PathBuf::from(path),
        None => {
            let program = std::env::current_exe()?;
            // cargo marks its target directory by this file.
            let marked = program.ancestors().find(|path| path.join("CACHEDIR.TAG").is_file());
            marked.map_or_else(|| crate::workspace("target"), Path::to_owned)
        }
    };
    let directory = target.join("vm");
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    directory.canonicalize().with_context(|| format!("find {}", directory.display()))
}

/// Returns the object of a kind and key; builds it if it is absent. `build` receives a fresh path for a file or
/// directory, which is renamed when it is complete. Other processes wait meanwhile.
///
/// # Errors
/// Fails as `build` fails.
pub(super) fn object(kind: &str, key: u64, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let directory = directory()?;
    let path = directory.join(format!("{kind}-{key:016x}"));
    let lock = File::options().create(true).append(true).open(directory.join(format!("{kind}.lock")))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .with_context(|| format!("lock the machines' {kind}"))?;
    if path.exists() {
        // The age of an object is the time since its last use.
        let _ = File::open(&path).and_then(|file| file.set_modified(wall_now()));
        return Ok(path);
    }
    let next = directory.join(format!("{kind}.next"));
    tree::remove(&next, Seals::Keep)?;
    build(&next).with_context(|| format!("build the machines' {kind}"))?;
    fs::rename(&next, &path)?;
    prune(&directory, kind)?;
    Ok(path)
}

/// Returns a key of some values.
pub(super) fn key(values: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.hash(&mut hasher);
    hasher.finish()
}

/// Returns a key of a file: its size and the time of its last change, which a build of the file renews.
pub(super) fn key_of_file(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path).with_context(|| format!("find {}", path.display()))?;
    Ok(key(&(path, metadata.len(), metadata.modified()?)))
}

/// Removes the versions of an object that were not used for the longest time. A running machine keeps its files
/// open, so that it loses nothing.
fn prune(directory: &Path, kind: &str) -> Result<()> {
    let mut versions = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-')).is_some_and(|key| key.len() == 16)
        {
            versions.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    versions.sort();
    let surplus = versions.len().saturating_sub(MAX_VERSIONS);
    versions
        .into_iter()
        .take(surplus)
        .try_for_each(|(_, path)| Ok(tree::remove(&path, Seals::Keep).map(drop)?))
}
