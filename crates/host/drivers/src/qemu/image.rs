//! The image of a virtual machine, and its permitted locations.

use crate::task::TaskDirs;
use crate::{Error, Result};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Returns an image's path without links. A relative path begins at the task's directory. The image must be below the
/// allocation's directory or one of `allowed`.
///
/// The emulator opens the path later. Until then, another task of the allocation can replace a directory of the path
/// if it may write there. Such tasks belong to the same job.
pub(super) fn resolve(image: &Path, dirs: &TaskDirs, allowed: &[PathBuf]) -> Result<String> {
    let path = dirs.task_dir.join(image);
    let real = path.canonicalize().map_err(|error| Error::Start {
        message: format!("cannot find image {}: {error}", image.display()),
        recoverable: false,
    })?;
    let allocation = dirs.shared_alloc_dir.parent().map(Path::to_owned);
    let is_below = |dir: PathBuf| dir.canonicalize().is_ok_and(|dir| real.starts_with(dir));
    if !allocation.into_iter().chain(allowed.iter().cloned()).any(is_below) {
        return Err(Error::Config("image_path is not in the allowed paths".into()));
    }
    let refused = |reason: &str| Error::Start {
        message: format!("cannot use image {}: {reason}", image.display()),
        recoverable: false,
    };
    let kind = std::fs::symlink_metadata(&real).map_err(|error| refused(&error.to_string()))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(refused("it is neither a file nor a block device"));
    }
    real.into_os_string().into_string().map_err(|_| refused("its path is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn images_are_below_the_allocation_or_an_allowed_directory() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let at = |name: &str| base.join(name);
        for name in ["a1/alloc", "a1/t/local", "a12", "images", "images-2"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["a1/t/local/i", "a1/alloc/i", "a12/i", "images/i", "images-2/i"] {
            std::fs::write(at(name), "").unwrap();
        }
        symlink(at("images/i"), at("a1/t/local/link")).unwrap();
        symlink("/dev/null", at("a1/t/local/device")).unwrap();
        let dirs =
            TaskDirs { shared_alloc_dir: at("a1/alloc"), task_dir: at("a1/t"), state_dir: at("state") };
        let resolve = |image: &str, allowed: &[&str]| {
            let allowed: Vec<PathBuf> = allowed.iter().map(|dir| at(dir)).collect();
            let found = resolve(Path::new(image), &dirs, &allowed).map_err(|error| error.to_string());
            found.map(|path| Path::new(&path).strip_prefix(&base).unwrap().display().to_string())
        };
        let full = |name: &str| at(name).display().to_string();
        let refused = Err("image_path is not in the allowed paths".to_owned());
        assert_eq!(resolve("local/i", &[]), Ok("a1/t/local/i".into()));
        assert_eq!(resolve("../alloc/i", &[]), Ok("a1/alloc/i".into()));
        assert_eq!(resolve(&full("a1/alloc/i"), &[]), Ok("a1/alloc/i".into()));
        // Neither a longer name nor a link leads outside.
        for outside in ["../../a12/i", "local/link", "local/device", &full("images/i")] {
            assert_eq!(resolve(outside, &[]), refused, "{outside}");
        }
        assert_eq!(resolve(&full("images-2/i"), &["images"]), refused);
        assert_eq!(resolve(&full("images/i"), &["absent", "images"]), Ok("images/i".into()));
        assert_eq!(resolve("local/link", &["images"]), Ok("images/i".into()));
        assert!(resolve("local/absent", &[]).unwrap_err().contains("cannot find image local/absent"));
        assert!(resolve("local", &[]).unwrap_err().contains("neither a file"));
    }
}
