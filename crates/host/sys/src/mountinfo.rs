//! The mount table, parsed from `/proc/<pid>/mountinfo` (proc_pid_mountinfo(5)).

use crate::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Id of the mount. The kernel reuses it after an unmount; see [`crate::mount::MountIdentity`] for a unique id.
    pub id: u32,
    /// Id of the parent mount.
    pub parent: u32,
    /// Device of the file system.
    pub device: Device,
    /// The directory of the file system that is the root of this mount (`/` unless it is a bind mount).
    pub root: PathBuf,
    /// The path of the mount point, relative to the process's root.
    pub target: PathBuf,
    /// Per-mount options (`rw`, `nodev`, ...).
    pub options: Vec<String>,
    /// Peer group, if the mount is shared.
    pub shared: Option<u32>,
    /// The peer group from which the mount receives events, if it is a slave.
    pub master: Option<u32>,
    /// File system type.
    pub fs_type: String,
    /// Source as passed to mount(2).
    pub source: String,
    /// Options of the file system itself.
    pub super_options: Vec<String>,
}

/// A device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl MountEntry {
    /// Returns whether the mount itself is read-only.
    pub fn is_read_only(&self) -> bool {
        self.options.iter().any(|o| o == "ro")
    }
}

/// A watch on the calling process's mount table (proc_pid_mountinfo(5): `POLLPRI`).
#[derive(Debug)]
pub struct Changes {
    table: std::fs::File,
    end: std::sync::Arc<OwnedFd>,
}

/// A handle whose drop ends [`Changes::wait`].
#[derive(Debug)]
pub struct EndOfChanges(std::sync::Arc<OwnedFd>);

impl Drop for EndOfChanges {
    fn drop(&mut self) {
        // A counter that is written once cannot be full.
        let _written = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Changes {
    /// Starts to watch the mount table; later changes are reported by [`Changes::wait`].
    pub fn listen() -> Result<(Self, EndOfChanges)> {
        let path = "/proc/self/mountinfo";
        let table = std::fs::File::open(path).map_err(Error::path("open", path))?;
        let end = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::call("make an event"))?;
        let end = std::sync::Arc::new(end);
        Ok((Self { table, end: std::sync::Arc::clone(&end) }, EndOfChanges(end)))
    }

    /// Blocks until the table has changed since the last call. Returns `false` once [`EndOfChanges`] was dropped.
    pub fn wait(&self) -> Result<bool> {
        loop {
            let mut watched = [
                PollFd::new(&self.table, PollFlags::PRI | PollFlags::ERR),
                PollFd::new(&*self.end, PollFlags::IN),
            ];
            match rustix::event::poll(&mut watched, None) {
                Ok(_) => return Ok(watched[1].revents().is_empty()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::call("wait for changes of the mount table")(errno)),
            }
        }
    }
}

/// The whole mount table, in the kernel's order (a later mount on the same target covers an earlier one).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable {
    entries: Vec<MountEntry>,
}

impl MountTable {
    /// Reads the table of the calling process.
    pub fn read() -> Result<Self> {
        let path = "/proc/self/mountinfo";
        let text = std::fs::read(path).map_err(Error::path("read", path))?;
        Self::parse(&text)
    }

    /// Parses the text of a mountinfo file. Paths need not be UTF-8.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self> {
        let lines = text.as_ref().split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(Self { entries: lines.map(parse_line).collect::<Result<_>>()? })
    }

    /// Returns all entries.
    pub fn entries(&self) -> &[MountEntry] {
        &self.entries
    }

    /// Returns the mount that is visible at exactly this target: the last one in the table.
    pub fn at(&self, target: &Path) -> Option<&MountEntry> {
        self.entries.iter().rev().find(|e| e.target == target)
    }

    /// Returns the mounts at or below a directory, in mount order (unmount them in reverse).
    pub fn under<'a>(&'a self, dir: &'a Path) -> impl DoubleEndedIterator<Item = &'a MountEntry> {
        self.entries.iter().filter(move |e| e.target.starts_with(dir))
    }

    /// Returns the mount that contains a path without symbolic links: the longest target above it, and the last of
    /// these.
    pub fn containing(&self, path: &Path) -> Option<&MountEntry> {
        let mut best: Option<&MountEntry> = None;
        for entry in self.entries.iter().filter(|e| path.starts_with(&e.target)) {
            let depth = entry.target.components().count();
            if best.is_none_or(|b| depth >= b.target.components().count()) {
                best = Some(entry);
            }
        }
        best
    }
}

/// Reads the mount tables of all mount namespaces of this machine's processes, as far as they are visible. Processes
/// that end meanwhile are left out.
pub fn tables() -> Result<Vec<MountTable>> {
    let mut seen = std::collections::BTreeSet::new();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").map_err(Error::path("read", "/proc"))?.flatten() {
        let dir = entry.path();
        let Ok(namespace) = std::fs::read_link(dir.join("ns/mnt")) else { continue };
        if seen.contains(&namespace) {
            continue;
        }
        let Ok(text) = std::fs::read(dir.join("mountinfo")) else { continue };
        found.push(MountTable::parse(&text)?);
        seen.insert(namespace);
    }
    Ok(found)
}

fn parse_line(line: &[u8]) -> Result<MountEntry> {
    let bad = |detail: &str| Error::Malformed {
        what: "mountinfo".into(),
        detail: format!("{detail} in {:?}", String::from_utf8_lossy(line)),
    };
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = |name: &str| fields.next().ok_or_else(|| bad(&format!("no {name}")));
    let id = number(next("id")?).ok_or_else(|| bad("bad id"))?;
    let parent = number(next("parent")?).ok_or_else(|| bad("bad parent"))?;
    let device = device(next("device")?).ok_or_else(|| bad("bad device"))?;
    let root = path(next("root")?);
    let target = path(next("target")?);
    let options = split_options(next("options")?);
    let (mut shared, mut master, mut separated) = (None, None, false);
    for tag in fields.by_ref() {
        if tag == b"-" {
            separated = true;
            break;
        }
        let group = |digits| number(digits).ok_or_else(|| bad("bad peer group"));
        if let Some(digits) = tag.strip_prefix(b"shared:") {
            shared = Some(group(digits)?);
        } else if let Some(digits) = tag.strip_prefix(b"master:") {
            master = Some(group(digits)?);
        }
        // No caller uses propagate_from and unbindable; later kernels may add tags.
    }
    if !separated {
        return Err(bad("no separator"));
    }
    let mut text = || String::from_utf8_lossy(&unescape(fields.next().unwrap_or_default())).into_owned();
    let (fs_type, source) = (text(), text());
    let super_options = split_options(fields.next().unwrap_or_default());
    Ok(MountEntry {
        id,
        parent,
        device,
        root,
        target,
        options,
        shared,
        master,
        fs_type,
        source,
        super_options,
    })
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn device(text: &[u8]) -> Option<Device> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    Some(Device { major: number(&text[..colon])?, minor: number(&text[colon + 1..])? })
}

fn path(escaped: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(escaped)))
}

fn split_options(text: &[u8]) -> Vec<String> {
    let options = text.split(|byte| *byte == b',').filter(|option| !option.is_empty());
    options.map(|option| String::from_utf8_lossy(option).into_owned()).collect()
}

/// Decodes the kernel's octal escapes (`\040` is a space).
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = (text[at] == b'\\').then(|| text.get(at + 1..at + 4)).flatten();
        let byte = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match byte.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_and_the_end_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (changes, end) = Changes::listen().unwrap();
        let at = dir.path().to_owned();
        let mounting = std::thread::spawn(move || {
            crate::mount::mount_tmpfs(&at, 1 << 20, 0o700).unwrap();
        });
        // Other processes mount as well; only this test's mount must not be missed.
        while !crate::mount::is_mount_point(dir.path()).unwrap() {
            assert!(changes.wait().unwrap());
        }
        mounting.join().unwrap();
        crate::mount::unmount(dir.path(), crate::mount::Unmount::Now).unwrap();
        drop(end);
        assert!(!changes.wait().unwrap());
    }
    use proptest::prelude::*;

    const SAMPLE: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:41 / /data rw,nodev shared:7 - tmpfs tmpfs rw,size=4k
41 40 0:41 /a\\040b /data/x\\011y ro master:7 propagate_from:3 - tmpfs tmp\\134fs rw
42 40 8:1 / /data/x\\011y rw shared:9 master:2 - ext4 /dev/sda1 rw
";

    #[test]
    fn parses_escapes_and_peer_groups() {
        let table = MountTable::parse(SAMPLE).unwrap();
        assert_eq!(table.entries().len(), 4);
        let entry = &table.entries()[2];
        assert_eq!(entry.root, Path::new("/a b"));
        assert_eq!(entry.target, Path::new("/data/x\ty"));
        assert_eq!(entry.source, "tmp\\fs");
        assert_eq!((entry.shared, entry.master), (None, Some(7)));
        assert!(entry.is_read_only());
    }

    #[test]
    fn the_last_mount_on_a_target_is_the_visible_one() {
        let table = MountTable::parse(SAMPLE).unwrap();
        let target = Path::new("/data/x\ty");
        assert_eq!(table.at(target).unwrap().id, 42);
        assert_eq!(table.containing(&target.join("file")).unwrap().id, 42);
        assert_eq!(table.containing(Path::new("/data/other")).unwrap().id, 40);
        assert_eq!(table.containing(Path::new("/etc")).unwrap().id, 27);
        let ids: Vec<u32> = table.under(Path::new("/data")).rev().map(|e| e.id).collect();
        assert_eq!(ids, [42, 41, 40]);
        assert!(table.under(Path::new("/dat")).next().is_none());
    }

    #[test]
    fn reads_the_real_table() {
        assert!(MountTable::read().unwrap().at(Path::new("/")).is_some());
    }

    #[test]
    fn names_what_is_wrong() {
        for (line, needle) in [("1 2 nonsense", "bad device"), ("1 2 0:1 / /x rw", "no separator")] {
            let error = MountTable::parse(line).unwrap_err().to_string();
            assert!(error.contains(&format!("mountinfo is malformed: {needle}")), "{error}");
        }
    }

    #[test]
    fn a_path_that_is_no_text_stays_what_it_is() {
        use std::os::unix::ffi::OsStrExt;
        let table = MountTable::parse(b"1 2 0:3 / /x/\xff\\040 rw - tmpfs tmpfs rw\n").unwrap();
        assert_eq!(table.entries()[0].target.as_os_str().as_bytes(), b"/x/\xff ");
    }

    proptest! {
        #[test]
        fn never_panics(text: Vec<u8>) {
            let _ = MountTable::parse(&text);
        }

        #[test]
        fn escaping_is_undone(name in "[ -~]{1,20}") {
            let escaped: String = name
                .bytes()
                .map(|b| match b {
                    b' ' | b'\\' => format!("\\{b:03o}"),
                    _ => char::from(b).to_string(),
                })
                .collect();
            prop_assert_eq!(unescape(escaped.as_bytes()), name.into_bytes());
        }
    }
}
