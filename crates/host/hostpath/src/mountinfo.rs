//! The mount table: `/proc/self/mountinfo`, as proc_pid_mountinfo(5) describes it.

use crate::error::Error;
use rustix::mount::MountFlags;
use std::{ffi::OsString, fs, io, os::unix::ffi::OsStringExt, path::Path, path::PathBuf};

const TABLE: &str = "/proc/self/mountinfo";

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The root of the mount within its file system: for a bind mount, the path of its file or directory.
    pub(crate) root: PathBuf,
    /// The mount point in this process's view.
    pub(crate) path: PathBuf,
    /// The per-mount options.
    pub(crate) flags: MountFlags,
    /// The source as the file system reports it: for an image, its loop device.
    pub(crate) source: String,
    /// The type of the file system.
    pub(crate) fs_type: String,
    /// The options of the file system, at all its mounts.
    pub(crate) super_options: Vec<String>,
    /// Whether the file system itself is read-only, at all its mounts.
    pub(crate) readonly_file_system: bool,
}

/// Returns all mounts, the newest last.
pub(crate) fn all() -> Result<Vec<Mount>, Error> {
    let table = fs::read(TABLE).map_err(Error::io("read", TABLE))?;
    Ok(parse(&table).collect())
}

/// Returns the visible mount at `path`; `None` if `path` is not a mount point.
pub(crate) fn at(path: &Path) -> Result<Option<Mount>, Error> {
    let Some(path) = resolve(path)? else {
        return Ok(None);
    };
    let table = fs::read(TABLE).map_err(Error::io("read", TABLE))?;
    // Of several mounts at one path, the last one covers the others.
    Ok(parse(&table).filter(|mount| mount.path == path).last())
}

/// Returns the absolute path without symbolic links. The last part may be inaccessible (a mount whose file system
/// does not answer).
fn resolve(path: &Path) -> Result<Option<PathBuf>, Error> {
    match fs::canonicalize(path) {
        Ok(path) => return Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => {}
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(Some(parent.join(name))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("resolve", path)(error)),
    }
}

/// Parses the valid lines of a table.
fn parse(table: &[u8]) -> impl Iterator<Item = Mount> + '_ {
    table.split(|byte| *byte == b'\n').filter_map(parse_line)
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    // id parent major:minor root path options optional... - type source super-options
    let mut fields = line.split(|byte| *byte == b' ');
    let root = unescape(fields.nth(3)?);
    let path = unescape(fields.next()?);
    let flags = flags(std::str::from_utf8(fields.next()?).ok()?.split(',')).0;
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let options = String::from_utf8_lossy(fields.next().unwrap_or_default());
    let super_options: Vec<String> = options.split(',').map(str::to_owned).collect();
    Some(Mount {
        root: PathBuf::from(OsString::from_vec(root)),
        path: PathBuf::from(OsString::from_vec(path)),
        flags,
        source,
        readonly_file_system: super_options.iter().any(|option| option == "ro"),
        fs_type,
        super_options,
    })
}

/// Decodes space, tab, newline and backslash, which are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) => {
                plain.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

/// Splits names of mount(8) into per-mount flags and all other names. A name of the opposite (`rw`, `exec`, ...)
/// clears its flag; the last name counts.
pub(crate) fn flags<'a>(names: impl IntoIterator<Item = &'a str>) -> (MountFlags, Vec<&'a str>) {
    let mut flags = MountFlags::empty();
    let mut others = Vec::new();
    for name in names {
        match name {
            "ro" => flags |= MountFlags::RDONLY,
            "rw" => flags -= MountFlags::RDONLY,
            "nosuid" => flags |= MountFlags::NOSUID,
            "suid" => flags -= MountFlags::NOSUID,
            "nodev" => flags |= MountFlags::NODEV,
            "dev" => flags -= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            "exec" => flags -= MountFlags::NOEXEC,
            "noatime" => flags |= MountFlags::NOATIME,
            "atime" => flags -= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "diratime" => flags -= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "nosymfollow" => flags |= MountFlags::NOSYMFOLLOW,
            "defaults" | "" => {}
            other => others.push(other),
        }
    }
    (flags, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_and_without_optional_fields() {
        let table =
            b"36 35 98:0 /mnt1 /mnt2 ro,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
            37 36 7:1 / /a\\040b\\134c rw,relatime - ext4 /dev/loop1 ro,errors=remount-ro\n\
            garbage\n";
        let mounts: Vec<Mount> = parse(table).collect();
        assert_eq!(
            mounts,
            [
                Mount {
                    root: PathBuf::from("/mnt1"),
                    path: PathBuf::from("/mnt2"),
                    flags: MountFlags::RDONLY | MountFlags::NOATIME,
                    source: "/dev/root".to_owned(),
                    fs_type: "ext3".to_owned(),
                    super_options: vec!["rw".to_owned(), "errors=continue".to_owned()],
                    readonly_file_system: false,
                },
                Mount {
                    root: PathBuf::from("/"),
                    path: PathBuf::from("/a b\\c"),
                    flags: MountFlags::RELATIME,
                    source: "/dev/loop1".to_owned(),
                    fs_type: "ext4".to_owned(),
                    super_options: vec!["ro".to_owned(), "errors=remount-ro".to_owned()],
                    readonly_file_system: true,
                },
            ]
        );
    }

    #[test]
    fn flags_and_other_options_are_told_apart() {
        let (flags, others) = flags(["ro", "noexec", "rw", "data=journal", "defaults"]);
        assert_eq!(flags, MountFlags::NOEXEC);
        assert_eq!(others, ["data=journal"]);
    }

    #[test]
    fn proc_is_a_mount_point_and_a_plain_directory_is_not() {
        assert!(at(Path::new("/proc")).expect("the table can be read").is_some());
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(at(directory.path()).expect("the table can be read"), None);
        assert_eq!(at(&directory.path().join("none")).expect("the table can be read"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line: Vec<u8>) {
            let _ = parse_line(&line);
        }
    }
}
