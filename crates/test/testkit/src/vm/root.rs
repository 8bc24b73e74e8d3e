//! The root of machines: a disk with busybox, the programs under test and the tools that they call; and the
//! initramfs that mounts it.

use super::host::{copy, find, libraries, output, run};
use super::kernel::Kernel;
use super::{System, cache, debian};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tools that busybox lacks, or supports with other flags, with their packages.
const TOOLS: [(&str, &str); 8] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("resize2fs", "e2fsprogs"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("blkid", "util-linux"),
    ("mkfs.xfs", "xfsprogs"),
];

/// Modules that must be loaded before the root can be mounted and the channel can be opened.
const EARLY_MODULES: [&str; 3] = ["virtio_pci", "virtio_blk", "virtio_console"];

/// The size of the root disk in bytes, most of which is a hole.
const SIZE: u64 = 2 << 30;

/// Scripts of the root, with their paths.
const SCRIPTS: [(&str, &str); 4] = [
    ("etc/inittab", include_str!("root/inittab")),
    ("etc/rc", include_str!("root/rc")),
    ("etc/rc.shutdown", include_str!("root/rc.shutdown")),
    ("etc/channel", include_str!("root/channel")),
];

/// Files of the root that programs expect.
const FILES: [(&str, &str); 7] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/hostname", "machine\n"),
    ("etc/hosts", "127.0.0.1 localhost machine\n::1 localhost\n"),
    ("etc/os-release", "ID=caravan-machine\nPRETTY_NAME=\"machine of a test\"\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/resolv.conf", "nameserver 192.0.2.53\n"),
];

/// Directories of the root.
const DIRECTORIES: [&str; 18] = [
    "bin",
    "sbin",
    "usr/bin",
    "usr/sbin",
    "lib",
    "etc",
    "proc",
    "sys",
    "dev",
    "tmp",
    "run",
    "root",
    "mnt",
    "opt",
    "var/lib",
    "var/log",
    "var/crash",
    "var/tmp",
];

/// The files from which machines start.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// The kernel's image.
    pub(super) kernel: PathBuf,
    /// The initramfs, compressed.
    pub(super) initramfs: PathBuf,
    /// The root disk, which machines only read.
    pub(super) disk: PathBuf,
}

impl Root {
    /// Returns a root with these programs in `/usr/bin`, and the helper of the channel.
    pub(super) fn with(system: System, programs: &[PathBuf]) -> Result<Self> {
        let kernel = Kernel::find()?;
        let busybox = find("busybox", "busybox-static")?;
        ensure!(
            libraries(&busybox)?.is_empty(),
            "virtual machines need a static busybox, of the Debian package busybox-static"
        );
        let initramfs = initramfs(&kernel, &busybox)?;
        let mut all = programs.to_vec();
        all.push(crate::cli::guest());
        let disk = match system {
            System::Busybox => disk(&kernel, &busybox, &all)?,
            System::Systemd => debian::disk(&kernel, &all)?,
        };
        Ok(Self { kernel: kernel.image, initramfs, disk })
    }
}

fn initramfs(kernel: &Kernel, busybox: &Path) -> Result<PathBuf> {
    let init = include_str!("root/init");
    let key = cache::key(&(init, &kernel.version, cache::key_of_file(busybox)?, EARLY_MODULES));
    cache::object("initramfs", key, |next| {
        let work = tempfile::tempdir()?;
        let root = work.path();
        for directory in ["bin", "lib/modules", "dev", "new"] {
            fs::create_dir_all(root.join(directory))?;
        }
        fs::copy(busybox, root.join("bin/busybox"))?;
        write(root, "init", init, 0o755)?;
        let mut names = String::new();
        for name in EARLY_MODULES {
            for file in kernel.module(name)? {
                let base =
                    file.file_name().context("a module without a name")?.to_string_lossy().into_owned();
                if !names.lines().any(|known| known == base) {
                    fs::copy(&file, root.join("lib/modules").join(&base))?;
                    names.push_str(&format!("{base}\n"));
                }
            }
        }
        write(root, "modules", &names.replace(".ko\n", "\n"), 0o644)?;
        let pack = "cd \"$1\" && find . | cpio --quiet -o -H newc | gzip -1 > \"$2\"";
        find("cpio", "cpio")?;
        run(Command::new("bash").args(["-o", "pipefail", "-c", pack, "pack"]).arg(root).arg(next))
    })
}

fn disk(kernel: &Kernel, busybox: &Path, programs: &[PathBuf]) -> Result<PathBuf> {
    let tools = TOOLS.iter().map(|(name, package)| find(name, package)).collect::<Result<Vec<_>>>()?;
    let keys =
        programs.iter().chain(&tools).map(|path| cache::key_of_file(path)).collect::<Result<Vec<_>>>()?;
    let fixed = (SCRIPTS, FILES, DIRECTORIES, SIZE);
    let key = cache::key(&(keys, fixed, &kernel.version, cache::key_of_file(busybox)?));
    cache::object("root", key, |next| {
        // Next to the result, because /tmp may be small.
        let work = tempfile::tempdir_in(cache::directory()?)?;
        let root = work.path();
        for directory in DIRECTORIES {
            fs::create_dir_all(root.join(directory))?;
        }
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
        for (path, text) in SCRIPTS {
            write(root, path, text, 0o755)?;
        }
        for (path, text) in FILES {
            write(root, path, text, 0o644)?;
        }
        run(Command::new("cp").arg("-a").arg(kernel.root.join("lib/modules")).arg(root.join("lib")))?;
        links(root, busybox)?;
        for tool in &tools {
            install(root, "usr/sbin", tool, false)?;
        }
        for program in programs {
            install(root, "usr/bin", program, true)?;
        }
        file_system(root, SIZE, next)
    })
}

/// Creates an ext4 file system with the content of a directory.
pub(super) fn file_system(root: &Path, size: u64, next: &Path) -> Result<()> {
    fs::File::create(next)?.set_len(size)?;
    let lazy = "lazy_itable_init=1,lazy_journal_init=1";
    let mkfs = find("mkfs.ext4", "e2fsprogs")?;
    run(Command::new(mkfs).args(["-q", "-F", "-E", lazy, "-d"]).arg(root).arg(next))
}

/// Installs busybox with a link for each of its programs.
fn links(root: &Path, busybox: &Path) -> Result<()> {
    fs::copy(busybox, root.join("bin/busybox"))?;
    for path in output(Command::new(busybox).arg("--list-full"))?.lines() {
        let link = root.join(path);
        if path != "bin/busybox" && !link.exists() {
            if let Some(parent) = link.parent() {
                fs::create_dir_all(parent)?;
            }
            symlink("/bin/busybox", &link).with_context(|| format!("link {path}"))?;
        }
    }
    Ok(())
}

/// Installs a program with its libraries. The symbols of a program under test are removed: they are most of its size.
pub(super) fn install(root: &Path, directory: &str, program: &Path, strip: bool) -> Result<()> {
    let name = program.file_name().context("a program without a name")?;
    // The program replaces busybox's links of the same name.
    for directory in ["bin", "sbin", "usr/bin", "usr/sbin"] {
        let link = root.join(directory).join(name);
        if link.is_symlink() {
            fs::remove_file(link)?;
        }
    }
    let target = root.join(directory).join(name);
    copy(program, &target)?;
    if strip {
        // Best effort: a program of another kind remains unchanged.
        let _ = run(Command::new("strip").arg(&target));
    }
    for library in libraries(program)? {
        let target = root.join(library.strip_prefix("/").unwrap_or(&library));
        if !target.exists() {
            fs::create_dir_all(target.parent().context("a library without a directory")?)?;
            copy(&library, &target)?;
        }
    }
    Ok(())
}

pub(super) fn write(root: &Path, path: &str, text: &str, mode: u32) -> Result<()> {
    let path = root.join(path);
    fs::write(&path, text)?;
    Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
}
