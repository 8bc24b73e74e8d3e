//! Archives of directories that tasks write to. Every entry is opened by descriptor from its parent directory, so that
//! neither a link nor a directory that is replaced meanwhile leads elsewhere.

use crate::runner::users::Users;
use caravan_sys::dir::{Dir, Entries, Kind, Mounts, open_own};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The deepest nesting of directories. Each level keeps two descriptors open.
const MAX_DEPTH: usize = 128;

/// Returns the directories that move with an ephemeral disk and are in a snapshot, relative to the allocation's
/// directory: `alloc/data` and the `local` of each task.
pub(crate) fn parts(tasks: &[String]) -> Vec<PathBuf> {
    let locals = tasks.iter().map(|task| Path::new(task).join("local"));
    std::iter::once(PathBuf::from("alloc/data")).chain(locals).collect()
}

/// A directory whose entries are being added.
struct Level {
    dir: Dir,
    entries: Entries,
    path: PathBuf,
}

/// Writes the parts of an allocation as an archive. Only files, directories and links are included. Mounts are left
/// out, and so are hard links to files of users that no task runs as.
pub(crate) fn write(root: &Path, tasks: &[String], users: &Users, out: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    let root = Dir::open(root).map_err(failed)?;
    for part in parts(tasks) {
        // A task that never started has no directory.
        if let Some(dir) = descend(&root, &part)? {
            add_directory(&mut archive, users, dir, part)?;
        }
    }
    archive.into_inner()?.flush()
}

fn failed(error: caravan_sys::Error) -> io::Error {
    let kind = error.io().map_or(io::ErrorKind::Other, io::Error::kind);
    io::Error::new(kind, caravan_sys::describe(&error))
}

/// Opens a directory; returns `None` if it is absent or covered by a mount.
fn descend(dir: &Dir, below: &Path) -> io::Result<Option<Dir>> {
    match dir.enter(below, Mounts::Refuse) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) if error.io().is_some_and(|e| e.kind() == io::ErrorKind::CrossesDevices) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Adds a directory with its whole content.
fn add_directory(
    archive: &mut tar::Builder<impl Write>,
    users: &Users,
    dir: Dir,
    path: PathBuf,
) -> io::Result<()> {
    let mut levels = vec![level(archive, dir, path)?];
    while let Some(top) = levels.last_mut() {
        let Some(name) = top.entries.next() else {
            levels.pop();
            continue;
        };
        let name: OsString = name.map_err(failed)?;
        let path = top.path.join(&name);
        // An entry that was removed or replaced meanwhile is left out.
        match top.dir.kind(&name) {
            Ok(Some(Kind::Link)) => add_link(archive, &top.dir, &name, &path)?,
            Ok(Some(Kind::File)) => {
                let open = || top.dir.handle(Path::new(&name), Mounts::Refuse)?.read();
                match open_own(open, || users.known().uids(), &path) {
                    Ok(file) => add_file(archive, &path, &file)?,
                    Err(error) if error.is_not_found() => {}
                    Err(error) => {
                        tracing::warn!(
                            error = caravan_sys::describe(&error),
                            "a file is left out of an archive"
                        );
                    }
                }
            }
            Ok(Some(Kind::Directory)) => {
                if let Ok(Some(dir)) = descend(&top.dir, Path::new(&name)) {
                    if levels.len() >= MAX_DEPTH {
                        let why = format!("{} lies below more than {MAX_DEPTH} directories", path.display());
                        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                    }
                    levels.push(level(archive, dir, path)?);
                }
            }
            Ok(Some(Kind::Other) | None) | Err(_) => {}
        }
    }
    Ok(())
}

fn level(archive: &mut tar::Builder<impl Write>, dir: Dir, path: PathBuf) -> io::Result<Level> {
    let stat = dir.stat_self().map_err(failed)?;
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(u64::from(stat.st_uid));
    header.set_gid(u64::from(stat.st_gid));
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(0);
    // A directory's name ends with a slash.
    archive.append_data(&mut header, path.join(""), io::empty())?;
    let entries = dir.entries().map_err(failed)?;
    Ok(Level { dir, entries, path })
}

fn add_link(
    archive: &mut tar::Builder<impl Write>,
    dir: &Dir,
    name: &OsString,
    path: &Path,
) -> io::Result<()> {
    let (Ok(target), Ok(Some(stat))) = (dir.read_link(name), dir.stat(name)) else { return Ok(()) };
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_mode(0o777);
    header.set_uid(u64::from(stat.st_uid));
    header.set_gid(u64::from(stat.st_gid));
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(0);
    archive.append_link(&mut header, path, target)
}

/// Adds a file with its current length: a growing file is cut, a shrinking one is padded.
fn add_file(archive: &mut tar::Builder<impl Write>, path: &Path, file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Ok(());
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(meta.mode() & 0o7777);
    header.set_uid(u64::from(meta.uid()));
    header.set_gid(u64::from(meta.gid()));
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(0));
    header.set_size(meta.len());
    let content = file.take(meta.len()).chain(io::repeat(0)).take(meta.len());
    archive.append_data(&mut header, path, content)
}
