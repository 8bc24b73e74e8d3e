//! Disks and cables of a machine.

use super::host::{copy, find, run};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first content of a disk.
#[derive(Clone, Debug)]
pub enum Content {
    /// Zeros.
    Blank,
    /// An empty ext4 file system.
    Ext4,
    /// A copy of an image.
    Image(PathBuf),
}

/// A disk of a machine, in addition to its root. The first disk is `/dev/vdb`; if it has a file system, it
/// is mounted at `/var/lib`.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The first content.
    pub content: Content,
    /// The size in bytes.
    pub size: u64,
    /// Whether QEMU logs all writes and flushes (`writelog`).
    pub logged: bool,
}

impl Disk {
    /// Returns an ext4 disk of a size in MiB.
    pub fn ext4(mebibytes: u64) -> Self {
        Self { content: Content::Ext4, size: mebibytes << 20, logged: false }
    }

    /// Returns a disk of zeros, of a size in MiB.
    pub fn blank(mebibytes: u64) -> Self {
        Self { content: Content::Blank, ..Self::ext4(mebibytes) }
    }

    /// Returns the same disk with a log of its writes.
    #[must_use]
    pub fn logged(self) -> Self {
        Self { logged: true, ..self }
    }

    /// Creates the disk's files in a machine's directory.
    pub(super) fn create(&self, directory: &Path, number: usize) -> Result<()> {
        let image = image(directory, number);
        if let Content::Image(from) = &self.content {
            copy(from, &image)?;
        }
        let file = File::options().create(true).append(true).open(&image)?;
        file.set_len(self.size).context("set the size of a disk")?;
        if let Content::Ext4 = self.content {
            // A complete initialization, so that the kernel does not continue to write when the disk is idle.
            let complete = "lazy_itable_init=0,lazy_journal_init=0";
            run(Command::new(find("mkfs.ext4", "e2fsprogs")?)
                .args(["-q", "-F", "-E", complete])
                .arg(&image))?;
        }
        if self.logged {
            copy(&image, &base(directory, number))?;
            File::create(log(directory, number))?;
        }
        Ok(())
    }

    /// Returns the arguments of QEMU for the disk.
    pub(super) fn arguments(&self, directory: &Path, number: usize) -> Vec<String> {
        let file = image(directory, number).display().to_string();
        let mut nodes = vec![
            format!("driver=file,filename={file},node-name=file{number}"),
            match self.logged {
                false => format!("driver=raw,file=file{number},node-name=disk{number}"),
                true => {
                    format!("driver=blklogwrites,file=file{number},log=log{number},node-name=disk{number}")
                }
            },
        ];
        if self.logged {
            let file = log(directory, number).display().to_string();
            nodes.insert(1, format!("driver=file,filename={file},node-name=log{number}"));
        }
        let mut arguments: Vec<String> =
            nodes.into_iter().flat_map(|node| ["-blockdev".to_owned(), node]).collect();
        // Without these commands a log contains only writes and flushes.
        let device = format!(
            "virtio-blk-pci,drive=disk{number},serial=disk{number},discard=off,write-zeroes=off,write-cache=on"
        );
        arguments.extend(["-device".to_owned(), device]);
        arguments
    }
}

/// Returns the path of a disk's image.
pub(super) fn image(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("disk{number}.raw"))
}

/// Returns the path of the first content of a logged disk.
pub(super) fn base(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("disk{number}.base"))
}

/// Returns the path of a disk's log.
pub(super) fn log(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("disk{number}.log"))
}
