//! Copies of data for snapshots and clones: with shared blocks if the file system supports it (FICLONE,
//! ioctl_ficlone(2)), otherwise a copy that preserves holes.

use crate::{error::Error, record::Backing, store, tool::run};
use rustix::io::Errno;
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Command,
};

/// The way in which a file was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Both files share their blocks; the copy was atomic.
    Shared,
    /// The bytes were read and written one after the other.
    Copied,
}

/// The requirements for a copy of an image or device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// The source is being written to, so only an atomic copy is allowed.
    pub(crate) at_once: bool,
    /// The copy must not share blocks, since one of the two volumes has reserved space.
    pub(crate) apart: bool,
}

/// Copies the data of a volume or snapshot to a path that does not exist, or for a quota, to an empty directory. The
/// copy is on disk when this returns.
pub(crate) fn data(from: &Path, to: &Path, backing: Backing, manner: Manner) -> Result<(), Error> {
    match backing {
        Backing::Directory | Backing::Quota => directory(from, to),
        Backing::Image { .. } | Backing::Block | Backing::Thin { .. } => file(from, to, manner).map(|_| ()),
    }?;
    to.parent().map_or(Ok(()), store::sync_directory)
}

fn file(from: &Path, to: &Path, manner: Manner) -> Result<Way, Error> {
    let mut source = File::open(from).map_err(Error::io("open", from))?;
    let mut copy =
        File::options().write(true).create_new(true).mode(0o600).open(to).map_err(Error::io("create", to))?;
    let shared = if manner.apart { Err(Errno::OPNOTSUPP) } else { rustix::fs::ioctl_ficlone(&copy, &source) };
    let way = match shared {
        Ok(()) => Way::Shared,
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS)
            if manner.at_once =>
        {
            return Err(Error::Precondition(if manner.apart {
                "the volume is in use as a device, and its room is kept for it (space=thick): it cannot be copied \
                 at one moment, unpublish it first"
                    .to_owned()
            } else {
                "the volume is in use as a device, and the file system of the host cannot copy it at one moment: \
                 unpublish it first"
                    .to_owned()
            }));
        }
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS) => {
            with_holes(&mut source, &mut copy).map_err(Error::io("copy to", to))?;
            Way::Copied
        }
        Err(error) => return Err(Error::io("copy to", to)(error)),
    };
    copy.sync_all().map_err(Error::io("write", to))?;
    Ok(way)
}

/// Copies only the written parts of a file and preserves holes (`SEEK_DATA` and `SEEK_HOLE` of lseek(2)).
fn with_holes(from: &mut File, to: &mut File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut at = 0;
    while at < length {
        let begin = match rustix::fs::seek(&*from, rustix::fs::SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // There is no more data up to the end.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&*from, rustix::fs::SeekFrom::Hole(begin))?.min(length);
        from.seek(SeekFrom::Start(begin))?;
        to.seek(SeekFrom::Start(begin))?;
        let copied = io::copy(&mut from.by_ref().take(end - begin), to)?;
        if copied != end - begin {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter meanwhile"));
        }
        at = end;
    }
    Ok(())
}

/// Copies a tree with owners, modes, times, links and attributes, by cp(1).
fn directory(from: &Path, to: &Path) -> Result<(), Error> {
    let mut cp = Command::new("cp");
    cp.args(["--archive", "--reflink=auto", "--no-target-directory", "--"]).arg(from).arg(to);
    run(&mut cp, "cp", "coreutils", &[])?;
    let opened = File::open(to).map_err(Error::io("open", to))?;
    rustix::fs::syncfs(&opened).map_err(Error::io("write", to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{fs, os::unix::fs::FileExt, os::unix::fs::MetadataExt};

    #[test]
    fn holes_stay_holes() {
        let directory = tempfile::tempdir().expect("a directory");
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let source = File::create(&from).expect("it can be made");
        source.set_len(64 << 20).expect("it is sparse");
        source.write_all_at(b"middle", 32 << 20).expect("it can be written");
        data(&from, &to, Backing::Block, Manner::default()).expect("it is copied");
        let copy = fs::metadata(&to).expect("it is there");
        assert_eq!(copy.len(), 64 << 20);
        assert!(copy.blocks() * 512 < 1 << 20, "{} blocks", copy.blocks());
        let error = data(&from, &to, Backing::Block, Manner::default()).expect_err("there is something");
        assert!(error.sentence().contains("create"), "{}", error.sentence());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        /// For any pattern of writes, the copy reads the same as its source.
        #[test]
        fn a_copy_reads_like_its_source(pieces: Vec<(u16, Vec<u8>)>, more: u16) {
            let directory = tempfile::tempdir().expect("a directory");
            let (from, to) = (directory.path().join("from"), directory.path().join("to"));
            let source = File::create(&from).expect("it can be made");
            source.set_len(u64::from(more) * 16).expect("it is sparse");
            for (at, bytes) in &pieces {
                source.write_all_at(bytes, u64::from(*at) * 16).expect("it can be written");
            }
            let mut copy = File::create_new(&to).expect("it can be made");
            with_holes(&mut File::open(&from).expect("it is there"), &mut copy).expect("it is copied");
            prop_assert_eq!(fs::read(&from).expect("it is there"), fs::read(&to).expect("it is there"));
        }
    }
}
