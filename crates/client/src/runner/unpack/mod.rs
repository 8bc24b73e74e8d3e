//! Unpacking archives from anywhere: nothing lands outside of the destination, and there is a limit to everything.

use super::source::Packing;
use super::tree::{Tree, plain};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Most bytes and most files (`jobspec` section 11.3).
const BYTES: u64 = 100_000_000_000;
const FILES: usize = 4096;

/// What is unpacked where, and when to stop.
#[derive(Debug)]
pub(super) struct Unpack<'a> {
    pub(super) to: &'a Tree,
    /// Only what lies below this in the archive.
    pub(super) inner: &'a Path,
    pub(super) stop: &'a AtomicBool,
    left: u64,
    files: usize,
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl<'a> Unpack<'a> {
    pub(super) fn new(to: &'a Tree, inner: &'a Path, stop: &'a AtomicBool) -> Self {
        Self { to, inner, stop, left: BYTES, files: 0 }
    }

    /// Unpacks an archive.
    pub(super) fn archive(&mut self, packing: Packing, file: File) -> io::Result<()> {
        match packing {
            Packing::Tar => self.tar(BufReader::new(file)),
            Packing::TarGz => self.tar(BufReader::new(MultiGzDecoder::new(BufReader::new(file)))),
            Packing::Zip => self.zip(BufReader::new(file)),
            Packing::None | Packing::Gz => Err(wrong("it is no archive of files")),
        }
    }

    /// One file, compressed or not.
    pub(super) fn single(&mut self, packing: Packing, file: File, name: &Path) -> io::Result<()> {
        let mut out = self.to.file(name, 0o644)?;
        match packing {
            Packing::Gz => self.copy(&mut MultiGzDecoder::new(BufReader::new(file)), &mut out),
            _ => self.copy(&mut BufReader::new(file), &mut out),
        }
    }

    fn tar(&mut self, from: impl Read) -> io::Result<()> {
        let mut archive = tar::Archive::new(from);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let Some(path) = self.wanted(&entry.path()?)? else { continue };
            let mode = entry.header().mode().unwrap_or(0o644);
            let kind = entry.header().entry_type();
            if kind.is_dir() {
                self.to.directory(&path, mode)?;
            } else if kind.is_symlink() {
                let target = entry.link_name()?.ok_or_else(|| wrong("a link leads nowhere"))?;
                self.to.link(&path, &target)?;
            } else if kind.is_hard_link() {
                // As a file of its own: what it links to was in the archive before.
                let target = entry.link_name()?.ok_or_else(|| wrong("a link leads nowhere"))?;
                let target =
                    self.wanted(&target)?.ok_or_else(|| wrong("a link leads out of what is taken"))?;
                let mut source = self.to.read(&target)?;
                if target == path {
                    continue;
                }
                let mut out = self.to.file(&path, mode)?;
                self.copy(&mut source, &mut out)?;
            } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
                let mut out = self.to.file(&path, mode)?;
                self.copy(&mut entry, &mut out)?;
            } else if !kind.is_pax_global_extensions() && !kind.is_pax_local_extensions() {
                return Err(wrong(format!(
                    "{} is neither a file nor a directory nor a link",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    fn zip(&mut self, from: impl Read + Seek) -> io::Result<()> {
        let mut archive = zip::ZipArchive::new(from).map_err(io::Error::from)?;
        for i in 0..archive.len() {
            let mut entry = archive.by_index(i).map_err(io::Error::from)?;
            let Some(path) = self.wanted(Path::new(entry.name()))? else { continue };
            let mode = entry.unix_mode().unwrap_or(0o644);
            if entry.is_dir() {
                self.to.directory(&path, 0o755)?;
            } else if entry.is_symlink() {
                let mut target = String::new();
                (&mut entry).take(4096).read_to_string(&mut target)?;
                self.to.link(&path, Path::new(&target))?;
            } else {
                let mut out = self.to.file(&path, if mode & 0o777 == 0 { 0o644 } else { mode })?;
                self.copy(&mut entry, &mut out)?;
            }
        }
        Ok(())
    }

    /// Where an entry goes, if it is wanted.
    fn wanted(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        self.files += 1;
        if self.files > FILES {
            return Err(wrong(format!("the archive has more than {FILES} files")));
        }
        let path = plain(path)?;
        let below = path.strip_prefix(self.inner).map(Path::to_owned);
        Ok(below.ok().filter(|below| below.components().next().is_some()))
    }

    fn copy(&mut self, from: &mut impl Read, to: &mut File) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "it is not wanted any more"));
            }
            let n = from.read(&mut buffer)?;
            if n == 0 {
                return Ok(());
            }
            self.left = self
                .left
                .checked_sub(n as u64)
                .ok_or_else(|| wrong("what is unpacked is larger than 100 GB"))?;
            to.write_all(&buffer[..n])?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::fs;
    use std::io::SeekFrom;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tree(dir: &Path) -> Tree {
        let base = openat(CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        Tree::make(&base, Path::new("to"), None).unwrap()
    }

    fn run(tree: &Tree, packing: Packing, inner: &str, mut file: File) -> io::Result<()> {
        file.seek(SeekFrom::Start(0)).unwrap();
        Unpack::new(tree, Path::new(inner), &AtomicBool::new(false)).archive(packing, file)
    }

    /// A tar archive of (name, kind, link or content), names as they are given.
    fn tar_of(entries: &[(&str, tar::EntryType, &str)]) -> File {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o4755);
            header.set_entry_type(*kind);
            let name = name.as_bytes();
            header.as_old_mut().name[..name.len()].copy_from_slice(name);
            let is_file = kind.is_file();
            if !is_file && !kind.is_dir() {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
            }
            header.set_size(if is_file { content.len() as u64 } else { 0 });
            header.set_cksum();
            builder.append(&header, if is_file { content.as_bytes() } else { b"" }).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn archives_are_unpacked() {
        use tar::EntryType as T;
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let archive = tar_of(&[
            ("./top/", T::Directory, ""),
            ("top/a", T::Regular, "A"),
            ("top/sub/b", T::Regular, "B"),
            ("top/sub/link", T::Symlink, "../a"),
            ("top/hard", T::Link, "top/a"),
            ("other", T::Regular, "O"),
        ]);
        run(&tree, Packing::Tar, "top", archive.try_clone().unwrap()).unwrap();
        let to = dir.path().join("to");
        let read = |path: &str| fs::read_to_string(to.join(path)).unwrap();
        assert_eq!(
            (read("a"), read("sub/b"), read("sub/link"), read("hard")),
            ("A".into(), "B".into(), "A".into(), "A".into())
        );
        assert!(!to.join("other").exists());
        assert_eq!(fs::metadata(to.join("a")).unwrap().permissions().mode() & 0o7777, 0o755);
        // Again, over what is there; and all of it.
        run(&tree, Packing::Tar, "", archive).unwrap();
        assert!(to.join("top/a").exists() && to.join("other").exists());
    }

    #[test]
    fn zip_archives_are_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let mut writer = zip::ZipWriter::new(tempfile::tempfile().unwrap());
        let options = zip::write::SimpleFileOptions::default().unix_permissions(0o750);
        writer.start_file("d/a", options).unwrap();
        writer.write_all(b"A").unwrap();
        let file = writer.finish().unwrap();
        run(&tree, Packing::Zip, "", file).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("to/d/a")).unwrap(), "A");
        for bad in ["../x", "/x", "d/../../x"] {
            let mut writer = zip::ZipWriter::new(tempfile::tempfile().unwrap());
            writer.start_file(bad, options).unwrap();
            writer.write_all(b"bad").unwrap();
            assert!(run(&tree, Packing::Zip, "", writer.finish().unwrap()).is_err(), "{bad}");
        }
        assert!(!dir.path().join("x").exists());
    }

    #[test]
    fn no_archive_reaches_out() {
        use tar::EntryType as T;
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path());
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        symlink(&outside, dir.path().join("to/way")).unwrap();
        symlink(outside.join("kept"), dir.path().join("to/file")).unwrap();
        for entries in [
            vec![("../x", T::Regular, "bad")],
            vec![("/x", T::Regular, "bad")],
            vec![("a/../../x", T::Regular, "bad")],
            vec![("way/x", T::Regular, "bad")],
            vec![("l", T::Symlink, "../outside"), ("l/x", T::Regular, "bad")],
            vec![("l", T::Symlink, "/etc")],
            vec![("d/l", T::Symlink, "../../outside")],
            vec![("e", T::Symlink, "."), ("e/f", T::Symlink, "..")],
            vec![("h", T::Link, "../outside/kept")],
            vec![("h", T::Link, "file")],
            vec![("pipe", T::Fifo, "")],
            vec![("dev", T::Char, "")],
        ] {
            assert!(run(&tree, Packing::Tar, "", tar_of(&entries)).is_err(), "{entries:?}");
        }
        // A link in the way is replaced.
        run(&tree, Packing::Tar, "", tar_of(&[("file", T::Regular, "new")])).unwrap();
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        let many: Vec<_> = (0..=FILES).map(|_| ("d", T::Directory, "")).collect();
        assert!(run(&tree, Packing::Tar, "", tar_of(&many)).is_err());
    }
}
