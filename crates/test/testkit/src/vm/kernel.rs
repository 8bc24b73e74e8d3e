//! The kernel of machines, from a Debian package.

use super::cache;
use super::host::{output, run};
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the newest kernel for virtual machines.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// An unpacked kernel with its modules.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// The image that QEMU starts.
    pub(super) image: PathBuf,
    /// The directory above `lib/modules`.
    pub(super) root: PathBuf,
    /// The version, which is the name of the directory of modules.
    pub(super) version: String,
}

impl Kernel {
    /// Returns the kernel; downloads it with apt if it is absent.
    pub(super) fn find() -> Result<Self> {
        let name = newest()?;
        let root = cache::object("kernel", cache::key(&name), |next| unpack(&name, next))?;
        let modules =
            fs::read_dir(root.join("lib/modules"))?.next().context("the kernel has no modules")??;
        let version = modules.file_name().to_string_lossy().into_owned();
        Ok(Self { image: root.join(format!("boot/vmlinuz-{version}")), root, version })
    }

    /// Returns the files of a module and of its dependencies, in the order of their loading.
    pub(super) fn module(&self, name: &str) -> Result<Vec<PathBuf>> {
        let modules = self.root.join("lib/modules").join(&self.version);
        let list = fs::read_to_string(modules.join("modules.dep")).context("read the list of modules")?;
        dependencies(&list, name)
            .with_context(|| format!("kernel {} has no module {name}", self.version))
            .map(|files| files.into_iter().map(|file| modules.join(file)).collect())
    }
}

/// Returns the name of the package with the newest kernel.
fn newest() -> Result<String> {
    let depends = output(Command::new("apt-cache").args(["depends", PACKAGE])).unwrap_or_default();
    let found = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let name = found.map(|rest| format!("linux-image-{rest}"));
    name.ok_or_else(|| {
        anyhow!(
            "virtual machines need the kernel of the Debian package {PACKAGE}, which apt does not list here"
        )
    })
}

fn unpack(name: &str, next: &Path) -> Result<()> {
    let work = tempfile::tempdir()?;
    run(Command::new("apt-get").args(["download", "-qq", name]).current_dir(&work)).map_err(|error| {
        anyhow!("virtual machines need the kernel of the Debian package {name}, which apt cannot download: {error:#}")
    })?;
    let package = fs::read_dir(&work)?.next().with_context(|| format!("apt downloaded no {name}"))??.path();
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(next))?;
    let modules = fs::read_dir(next.join("lib/modules"))?.next().context("the package has no modules")??;
    run(Command::new("busybox").arg("depmod").arg("-b").arg(next).arg(modules.file_name()))
}

/// Returns a module's file after the files of its dependencies. Fails without the module.
fn dependencies(list: &str, name: &str) -> Result<Vec<String>> {
    let entry = |name: &str| {
        list.lines().find_map(|line| {
            let (file, below) = line.split_once(':')?;
            (stem(file) == name).then(|| (file.to_owned(), below.to_owned()))
        })
    };
    let mut loaded = Vec::new();
    visit(&entry, name, &mut loaded, 0)?;
    Ok(loaded)
}

fn visit(
    entry: &impl Fn(&str) -> Option<(String, String)>,
    name: &str,
    loaded: &mut Vec<String>,
    depth: usize,
) -> Result<()> {
    // Without a limit, a list in which a module depends on itself would never end.
    if depth > 20 {
        bail!("module {name} depends on itself");
    }
    let (file, below) = entry(name).with_context(|| format!("no module {name}"))?;
    for below in below.split_whitespace() {
        visit(entry, &stem(below), loaded, depth + 1)?;
    }
    if !loaded.contains(&file) {
        loaded.push(file);
    }
    Ok(())
}

fn stem(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split_once(".ko").map_or(name, |(stem, _)| stem).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_those_below_them() {
        let list =
            "k/virtio.ko: k/virtio-ring.ko\nk/virtio-ring.ko:\nk/blk.ko: k/virtio.ko k/virtio-ring.ko\n";
        assert_eq!(dependencies(list, "blk").unwrap(), ["k/virtio-ring.ko", "k/virtio.ko", "k/blk.ko"]);
        assert_eq!(dependencies(list, "net").unwrap_err().to_string(), "no module net");
        assert!(dependencies("a.ko: b.ko\nb.ko: a.ko\n", "a").is_err());
    }
}
