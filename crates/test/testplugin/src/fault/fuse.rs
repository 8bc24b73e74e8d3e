//! A FUSE file system that passes a directory through (fuse(4), `linux/fuse.h`). Its daemon is a thread of the plugin
//! and dies with the plugin's process; its mounts then return ENOTCONN.

use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, File, Metadata};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The size of a request's header, `fuse_in_header`.
const HEADER: usize = 40;
/// The maximum bytes of a write.
const MAX_WRITE: u32 = 128 << 10;
/// FOPEN_DIRECT_IO: a write is one request. A write through the page cache is split at the borders of pages, and the
/// append of another node can be written between the parts.
const DIRECT_IO: u32 = 1;
/// The flag O_APPEND of open(2), which the kernel passes on with each write.
const APPEND: u32 = 0o2000;

/// The bytes of an answer, or an errno.
type Answer = Result<Vec<u8>, Errno>;

/// Mounts a directory at a path, and serves it until the unmount or the end of the process.
pub(crate) fn mount(dir: &Path, at: &Path) -> std::io::Result<()> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let data = CString::new(data).map_err(std::io::Error::other)?;
    rustix::mount::mount("fault", at, "fuse", MountFlags::NOSUID | MountFlags::NODEV, data.as_c_str())?;
    let daemon = Daemon { device, nodes: HashMap::from([(1, dir.to_owned())]), last: 1 };
    std::thread::Builder::new().name("fuse".to_owned()).spawn(move || daemon.serve())?;
    Ok(())
}

struct Daemon {
    device: File,
    /// The paths by the kernel's node id.
    nodes: HashMap<u64, PathBuf>,
    last: u64,
}

/// A request of the kernel.
struct Request<'a> {
    node: u64,
    body: &'a [u8],
}

impl Request<'_> {
    fn u32(&self, at: usize) -> u32 {
        self.body.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }
    fn u64(&self, at: usize) -> u64 {
        self.body.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }
    /// Returns the n-th name after a structure.
    fn name(&self, after: usize, n: usize) -> &OsStr {
        let names = self.body.get(after..).unwrap_or_default();
        OsStr::from_bytes(names.split(|b| *b == 0).nth(n).unwrap_or_default())
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Daemon {
    fn serve(mut self) {
        let mut buffer = vec![0; HEADER + 40 + MAX_WRITE as usize + 4096];
        loop {
            let size = match self.device.read(&mut buffer) {
                Ok(size) if size >= HEADER => size,
                // The read was interrupted, or the request was cancelled.
                Err(error) if matches!(error.raw_os_error(), Some(2 | 4 | 11)) => continue,
                // The file system was unmounted.
                _ => return,
            };
            let number =
                |at: usize| u32::from_ne_bytes([buffer[at], buffer[at + 1], buffer[at + 2], buffer[at + 3]]);
            let node = u64::from(number(16)) | u64::from(number(20)) << 32;
            let request = Request { node, body: &buffer[HEADER..size] };
            let opcode = number(4);
            // FORGET and INTERRUPT have no answer. Node ids are kept until the end, because there are few.
            if matches!(opcode, 2 | 36 | 42) {
                continue;
            }
            let (error, body) = match self.answer(opcode, &request) {
                Ok(body) => (0, body),
                Err(errno) => (-errno.raw_os_error(), Vec::new()),
            };
            let length = u32::try_from(16 + body.len()).unwrap_or_default();
            let reply = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &buffer[8..16], &body].concat();
            // The request may have been interrupted in the meantime.
            let _ = self.device.write_all(&reply);
        }
    }

    fn answer(&mut self, opcode: u32, request: &Request<'_>) -> Answer {
        match opcode {
            1 => self.entry(&self.child(request, request.name(0, 0))?),
            3 => self.attributes(request.node),
            4 => self.set_attributes(request),
            9 => {
                let path = self.child(request, request.name(8, 0))?;
                fs::DirBuilder::new().mode(request.u32(0)).create(&path).map_err(errno)?;
                self.entry(&path)
            }
            10 => {
                fs::remove_file(self.child(request, request.name(0, 0))?).map(|()| Vec::new()).map_err(errno)
            }
            11 => {
                fs::remove_dir(self.child(request, request.name(0, 0))?).map(|()| Vec::new()).map_err(errno)
            }
            12 => self.rename(request, 8),
            45 => self.rename(request, 16),
            // Files are opened for each read and write.
            14 => self.path(request.node).map(|_| opened()),
            27 => self.path(request.node).map(|_| vec![0; 16]),
            15 => self.read(request),
            16 => self.write(request),
            17 => self.room(request.node),
            18 | 20 | 25 | 29 | 30 | 34 | 38 => Ok(Vec::new()),
            26 => Ok(init()),
            28 => self.list(request),
            35 => {
                let path = self.child(request, request.name(16, 0))?;
                let mut options = File::options();
                options.create(true).append(true).mode(request.u32(4));
                options.open(&path).map_err(errno)?;
                Ok([self.entry(&path)?, opened()].concat())
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn path(&self, node: u64) -> Result<&PathBuf, Errno> {
        self.nodes.get(&node).ok_or(Errno::STALE)
    }

    fn child(&self, request: &Request<'_>, name: &OsStr) -> Result<PathBuf, Errno> {
        Ok(self.path(request.node)?.join(name))
    }

    fn number(&mut self, path: &Path) -> u64 {
        if let Some((number, _)) = self.nodes.iter().find(|(_, known)| *known == path) {
            return *number;
        }
        self.last += 1;
        self.nodes.insert(self.last, path.to_owned());
        self.last
    }

    fn entry(&mut self, path: &Path) -> Answer {
        let meta = fs::symlink_metadata(path).map_err(errno)?;
        let number = self.number(path);
        // The kernel must not cache attributes, because other nodes change them too.
        Ok([number.to_ne_bytes().to_vec(), vec![0; 32], attributes(number, &meta)].concat())
    }

    fn attributes(&self, node: u64) -> Answer {
        let meta = fs::symlink_metadata(self.path(node)?).map_err(errno)?;
        Ok([vec![0; 16], attributes(node, &meta)].concat())
    }

    fn set_attributes(&self, request: &Request<'_>) -> Answer {
        let (path, valid) = (self.path(request.node)?, request.u32(0));
        let has = |bit: u32| valid & bit != 0;
        if has(1) {
            fs::set_permissions(path, fs::Permissions::from_mode(request.u32(68))).map_err(errno)?;
        }
        let owner = |bit, at| has(bit).then(|| request.u32(at));
        if has(2) || has(4) {
            std::os::unix::fs::lchown(path, owner(2, 76), owner(4, 80)).map_err(errno)?;
        }
        if has(8) {
            let file = File::options().write(true).open(path).map_err(errno)?;
            file.set_len(request.u64(16)).map_err(errno)?;
        }
        self.attributes(request.node)
    }

    fn rename(&mut self, request: &Request<'_>, after: usize) -> Answer {
        let from = self.child(request, request.name(after, 0))?;
        let to = self.path(request.u64(0))?.join(request.name(after, 1));
        fs::rename(&from, &to).map_err(errno)?;
        for path in self.nodes.values_mut() {
            if let Ok(rest) = path.strip_prefix(&from) {
                *path = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
            }
        }
        Ok(Vec::new())
    }

    fn read(&self, request: &Request<'_>) -> Answer {
        let file = File::open(self.path(request.node)?).map_err(errno)?;
        let mut data = vec![0; request.u32(16).min(1 << 20) as usize];
        let size = file.read_at(&mut data, request.u64(8)).map_err(errno)?;
        data.truncate(size);
        Ok(data)
    }

    fn write(&self, request: &Request<'_>) -> Answer {
        let (path, data) = (self.path(request.node)?, request.body.get(40..).unwrap_or_default());
        let appends = request.u32(32) & APPEND != 0;
        let file = File::options().write(true).append(appends).open(path).map_err(errno)?;
        match appends {
            true => (&file).write_all(data).map_err(errno)?,
            false => file.write_all_at(data, request.u64(8)).map_err(errno)?,
        }
        Ok([u32::try_from(data.len()).unwrap_or_default().to_ne_bytes(), [0; 4]].concat())
    }

    fn room(&self, node: u64) -> Answer {
        let found = rustix::fs::statvfs(self.path(node)?)?;
        let mut out = Vec::new();
        for count in [found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree] {
            out.extend(count.to_ne_bytes());
        }
        let size = u32::try_from(found.f_frsize).unwrap_or(4096);
        for word in [size, 255, size] {
            out.extend(word.to_ne_bytes());
        }
        out.resize(80, 0);
        Ok(out)
    }

    fn list(&mut self, request: &Request<'_>) -> Answer {
        let (limit, offset) = (request.u32(16) as usize, usize::try_from(request.u64(8)).unwrap_or(0));
        let dir = self.path(request.node)?.clone();
        let mut names: Vec<_> =
            fs::read_dir(&dir).map_err(errno)?.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        let mut out = Vec::new();
        for (n, name) in names.iter().enumerate().skip(offset) {
            let Ok(meta) = fs::symlink_metadata(dir.join(name)) else { continue };
            let mut entry = self.number(&dir.join(name)).to_ne_bytes().to_vec();
            entry.extend((n as u64 + 1).to_ne_bytes());
            entry.extend(u32::try_from(name.len()).unwrap_or_default().to_ne_bytes());
            entry.extend((meta.mode() >> 12).to_ne_bytes());
            entry.extend(name.as_bytes());
            entry.resize(entry.len().next_multiple_of(8), 0);
            if out.len() + entry.len() > limit {
                break;
            }
            out.extend(entry);
        }
        Ok(out)
    }
}

/// Returns `fuse_init_out` of version 7.31, without any option.
fn init() -> Vec<u8> {
    let mut out = Vec::new();
    for word in [7u32, 31, 0, 0, 0, MAX_WRITE, 1] {
        out.extend(word.to_ne_bytes());
    }
    out.resize(64, 0);
    out
}

/// Returns `fuse_open_out`.
fn opened() -> Vec<u8> {
    let words = [0_u32, 0, DIRECT_IO, 0];
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// Returns `fuse_attr`.
fn attributes(number: u64, meta: &Metadata) -> Vec<u8> {
    let mut out = Vec::new();
    let seconds = [meta.atime(), meta.mtime(), meta.ctime()].map(|at| u64::try_from(at).unwrap_or_default());
    for word in [number, meta.size(), meta.blocks(), seconds[0], seconds[1], seconds[2]] {
        out.extend(word.to_ne_bytes());
    }
    out.extend([0; 12]);
    let links = u32::try_from(meta.nlink()).unwrap_or(1);
    for word in [meta.mode(), links, meta.uid(), meta.gid(), 0, 4096, 0] {
        out.extend(word.to_ne_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::UnmountFlags;

    #[test]
    fn a_directory_is_passed_through() {
        let (data, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(data.path().join("before"), "there").unwrap();
        mount(data.path(), at.path()).unwrap();
        let (file, dir) = (at.path().join("file"), at.path().join("dir"));
        assert_eq!(fs::read_to_string(at.path().join("before")).unwrap(), "there");
        fs::write(&file, "one\n").unwrap();
        File::options().append(true).open(&file).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(data.path().join("file")).unwrap(), "one\ntwo\n");
        fs::create_dir(&dir).unwrap();
        fs::rename(&file, dir.join("moved")).unwrap();
        assert_eq!(fs::read_to_string(dir.join("moved")).unwrap(), "one\ntwo\n");
        let names = |path: &Path| {
            let mut names: Vec<_> = fs::read_dir(path).unwrap().flatten().map(|e| e.file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(at.path()), ["before", "dir"]);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(fs::metadata(data.path().join("dir")).unwrap().mode() & 0o777, 0o750);
        assert!(rustix::fs::statvfs(at.path()).unwrap().f_blocks > 0);
        fs::remove_file(dir.join("moved")).unwrap();
        fs::remove_dir(&dir).unwrap();
        assert_eq!(names(data.path()), ["before"]);
        rustix::mount::unmount(at.path(), UnmountFlags::DETACH).unwrap();
    }
}
