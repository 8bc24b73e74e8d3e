//! A separate file system for one directory, which can be full or hang.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An ext4 file system in an image, mounted on a directory. Dropping the value unmounts the file system.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
    is_frozen: bool,
    _image: tempfile::TempDir,
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output();
    let out = out.with_context(|| format!("run {program} (scripts/tools.sh test installs it)"))?;
    if !out.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not text")
}

impl Disk {
    /// Moves an unused directory onto a disk of a size in bytes.
    ///
    /// # Errors
    /// Fails if the disk cannot be created or mounted.
    pub fn beneath(at: &Path, size: u64) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("caravan-disk-").tempdir()?;
        let image = dir.path().join("image");
        File::create(&image)?.set_len(size)?;
        run("mkfs.ext4", &["-q", "-F", "-m", "0", text(&image)?])?;
        let before = at.with_extension("before");
        fs::rename(at, &before)?;
        fs::create_dir(at)?;
        run("mount", &["-o", "loop", text(&image)?, text(at)?])?;
        let disk = Self { at: at.to_owned(), is_frozen: false, _image: dir };
        run("cp", &["-a", &format!("{}/.", text(&before)?), text(at)?])?;
        caravan_sys::tree::remove(&before, caravan_sys::tree::Seals::Lift)?;
        Ok(disk)
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }

    /// Fills the disk.
    ///
    /// # Errors
    /// Fails if the disk refuses a write for another reason.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(self.filler())?;
        for block in [1 << 20, 4096, 1] {
            let bytes = vec![1_u8; block];
            loop {
                match file.write_all(&bytes).and_then(|()| file.sync_data()) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("fill the disk"),
                }
            }
        }
        Ok(())
    }

    /// Removes the file that fills the disk.
    ///
    /// # Errors
    /// Fails if the file cannot be removed.
    pub fn empty(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("remove the filler")
    }

    /// Lets every write hang until [`Self::thaw`] (fsfreeze(8)).
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn freeze(&mut self) -> Result<()> {
        run("fsfreeze", &["-f", text(&self.at)?])?;
        self.is_frozen = true;
        Ok(())
    }

    /// Ends [`Self::freeze`].
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn thaw(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_frozen) { run("fsfreeze", &["-u", text(&self.at)?]) } else { Ok(()) }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Best effort: the test already has its result. A frozen file system would block its users for ever.
        let _ = self.thaw();
        if let Ok(at) = text(&self.at) {
            let _ = run("umount", &["-l", at]);
        }
    }
}
