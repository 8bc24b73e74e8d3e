//! The root of machines with systemd: Debian packages, installed by mmdebstrap into a tree that is kept.

use super::host::{find, run};
use super::kernel::Kernel;
use super::{cache, root};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages in addition to the essential packages of Debian.
const PACKAGES: &str = "systemd-sysv,dbus,udev,kmod,iproute2,procps,util-linux,mount,sudo,fdisk,\
    e2fsprogs,xfsprogs,lvm2,thin-provisioning-tools,nfs-kernel-server,apparmor,systemd-timesyncd";
/// Paths of documents, which no story reads.
const LEFT_OUT: [&str; 3] = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"];
/// The release of a host that is no Debian system.
const DEFAULT_RELEASE: &str = "bookworm";

/// The program that lists modules for modprobe(8), which reads no list of another program.
const DEPMOD: &str = "/sbin/depmod";

/// The size of the root disk in bytes, most of which is a hole.
const SIZE: u64 = 4 << 30;

/// Services that a story starts explicitly, and services that wait for a person.
const MASKED: [&str; 9] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "getty@tty1.service",
    "nfs-server.service",
    "rpcbind.socket",
    "serial-getty@ttyS0.service",
    "systemd-timesyncd.service",
    "systemd-networkd-wait-online.service",
];

/// Files of the root, with their paths.
const FILES: [(&str, &str); 5] = [
    ("etc/hostname", "machine\n"),
    ("etc/hosts", "127.0.0.1 localhost machine\n::1 localhost\n"),
    // The same id in all machines, so that no start is a first start.
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("etc/sysctl.d/cores.conf", "kernel.core_pattern=/var/crash/core.%e.%p\n"),
    ("etc/systemd/system/channel.service", include_str!("root/channel.service")),
];

/// Returns the root disk, with programs in `/usr/bin`.
pub(super) fn disk(kernel: &Kernel, programs: &[PathBuf]) -> Result<PathBuf> {
    let packages = packages()?;
    let keys = programs.iter().map(|path| cache::key_of_file(path)).collect::<Result<Vec<_>>>()?;
    let key = cache::key(&(keys, FILES, MASKED, SIZE, DEPMOD, &kernel.version, &packages));
    cache::object("debian-root", key, |next| {
        // Next to the result, because /tmp may be small.
        let work = tempfile::tempdir_in(cache::directory()?)?;
        let tree = work.path();
        run(Command::new("tar").arg("-xpf").arg(&packages).arg("-C").arg(tree))?;
        for directory in ["var/crash", "etc/systemd/system/multi-user.target.wants"] {
            fs::create_dir_all(tree.join(directory))?;
        }
        for (path, text) in FILES {
            root::write(tree, path, text, 0o644)?;
        }
        for unit in MASKED {
            replace_by_link(&tree.join("etc/systemd/system").join(unit), "/dev/null")?;
        }
        let wants = tree.join("etc/systemd/system/multi-user.target.wants/channel.service");
        replace_by_link(&wants, "/etc/systemd/system/channel.service")?;
        run(Command::new("cp").arg("-a").arg(kernel.root.join("lib/modules")).arg(tree.join("usr/lib")))?;
        run(Command::new("chroot").arg(tree).arg(DEPMOD).arg(&kernel.version))?;
        for program in programs {
            root::install(tree, "usr/bin", program, true)?;
        }
        root::file_system(tree, SIZE, next)
    })
}

fn replace_by_link(path: &Path, target: &str) -> Result<()> {
    if path.is_symlink() {
        fs::remove_file(path)?;
    }
    symlink(target, path).with_context(|| format!("link {}", path.display()))
}

/// Returns an archive with the installed packages.
fn packages() -> Result<PathBuf> {
    let release = release()?;
    cache::object("debian", cache::key(&(PACKAGES, LEFT_OUT, &release)), |next| {
        let mut command = Command::new(find("mmdebstrap", "mmdebstrap")?);
        command.args(["--quiet", "--variant=minbase", "--format=tar"]);
        command.arg(format!("--include={PACKAGES}"));
        command.args(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}")));
        command.arg(&release).arg(next);
        run(&mut command).context("install Debian packages for machines with systemd")
    })
}

/// Returns the release of the host: programs of the host run in the machine with the same libraries.
fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    if field("ID") != Some("debian") {
        return Ok(DEFAULT_RELEASE.to_owned());
    }
    let name = field("VERSION_CODENAME").unwrap_or(DEFAULT_RELEASE).trim_matches('"').to_owned();
    ensure!(name.chars().all(|c| c.is_ascii_lowercase()), "the release {name:?} of this host is no name");
    Ok(name)
}
