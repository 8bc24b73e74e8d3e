//! Writes to volumes, and reads, as by a task.

use super::bench::Volume;
use anyhow::{Context, Result, bail};
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, FileTypeExt},
    path::{Path, PathBuf},
};

/// The bytes of a device that are written at a time: a multiple of every sector size.
const BLOCK: usize = 4096;

fn place(volume: &Volume, target: &Path) -> PathBuf {
    if volume.is_device() { target.to_owned() } else { target.join("conformance") }
}

/// Writes a word to the published volume, and flushes it to the disk.
pub(super) fn write(volume: &Volume, target: &Path, word: &str) -> Result<()> {
    let place = place(volume, target);
    let mut block = vec![0; BLOCK];
    for (to, from) in block.iter_mut().zip(word.bytes()) {
        *to = from;
    }
    let file = File::options()
        .write(true)
        .create(!volume.is_device())
        .truncate(false)
        .open(&place)
        .with_context(|| format!("open {}", place.display()))?;
    file.write_all_at(&block, 0)
        .and_then(|()| file.sync_all())
        .with_context(|| format!("write {}", place.display()))
}

/// Reads the written word.
pub(super) fn read(volume: &Volume, target: &Path) -> Result<String> {
    let place = place(volume, target);
    let mut block = vec![0; BLOCK];
    let file = File::open(&place).with_context(|| format!("open {}", place.display()))?;
    file.read_exact_at(&mut block, 0).with_context(|| format!("read {}", place.display()))?;
    let word: Vec<u8> = block.into_iter().take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&word).into_owned())
}

/// Fails unless the target is a device, or a directory with a mount.
pub(super) fn look(volume: &Volume, target: &Path) -> Result<()> {
    let metadata = fs::metadata(target).with_context(|| format!("look at {}", target.display()))?;
    if volume.is_device() {
        if !metadata.file_type().is_block_device() {
            bail!("{} is not a block device", target.display());
        }
        return Ok(());
    }
    if !metadata.is_dir() {
        bail!("{} is not a directory", target.display());
    }
    if !crate::mounts_below(&target.display().to_string())?.contains(&target.display().to_string()) {
        bail!("nothing is mounted at {}", target.display());
    }
    Ok(())
}

/// Returns the bytes of a device, or of the file system at a directory.
pub(super) fn size(volume: &Volume, target: &Path) -> Result<u64> {
    if volume.is_device() {
        let mut device = File::open(target)?;
        return Ok(std::io::Seek::seek(&mut device, std::io::SeekFrom::End(0))?);
    }
    let stat = nix::sys::statvfs::statvfs(target)?;
    // The types differ between platforms.
    #[expect(clippy::useless_conversion, reason = "they are wider than u64 nowhere")]
    Ok(u64::from(stat.blocks()).saturating_mul(u64::from(stat.fragment_size())))
}
