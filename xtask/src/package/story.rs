//! The Debian package on this system's own dpkg: installed, upgraded, removed and purged in a copy of the root
//! directory.

use super::{Program, Release, Tree, debian_package};
use anyhow::{Context, Result, ensure};
use caravan_testkit::program;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a script in a separate mount namespace, in which `$ROOT` is a writable copy of the root directory.
fn in_copy(script: &str, package: &Path) -> Result<String> {
    let set_up = "set -e\nmount --make-rprivate /\nmount -t tmpfs tmpfs /mnt\nmkdir /mnt/upper /mnt/work /mnt/root\n\
                  mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root\n\
                  mount -t tmpfs tmpfs /mnt/root/run\nmount -t proc proc /mnt/root/proc\n\
                  cp \"$PACKAGE\" /mnt/root/root/caravan.deb\nexec chroot /mnt/root sh -ec \"$SCRIPT\"\n";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "sh", "-c", set_up]);
    let output = command.env("PACKAGE", package).env("SCRIPT", script).env("LC_ALL", "C").output()?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{text}");
    Ok(text)
}

#[test]
fn the_package_installs_upgrades_and_purges_without_touching_data() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // The package contains the program itself, because the packed program must run. A stripped copy keeps the test
    // quick.
    let stripped = dir.path().join("caravan");
    let status = Command::new("strip").arg("-o").arg(&stripped).arg(program()).status().context("strip")?;
    ensure!(status.success(), "strip: {status}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    let release = Release { version: "0.1.0".into(), epoch: 1_700_000_000 };
    let (name, bytes) = debian_package(root, &Program::read(&stripped)?, &release, &Tree::default())?;
    let package = dir.path().join(name);
    fs::write(&package, bytes)?;
    let text = in_copy(
        "dpkg --force-depends -i /root/caravan.deb\n\
         caravan version\n\
         caravan config validate /etc/caravan.d\n\
         stat -c '%A %U %n' /etc/caravan.d /etc/caravan.d/caravan.hcl /var/lib/caravan\n\
         test ! -e /etc/systemd/system/multi-user.target.wants/caravan.service && echo not enabled\n\
         mkdir -p /var/lib/caravan/host_volumes/v && echo precious > /var/lib/caravan/host_volumes/v/data\n\
         echo '# mine' >> /etc/caravan.d/caravan.hcl\n\
         dpkg --force-depends --force-confold -i /root/caravan.deb\n\
         tail -n 1 /etc/caravan.d/caravan.hcl\n\
         dpkg -r caravan\ntest -e /etc/caravan.d/caravan.hcl && echo configuration kept\n\
         dpkg -P caravan\ntest ! -e /etc/caravan.d && echo configuration gone\n\
         cat /var/lib/caravan/host_volumes/v/data\n",
        &package,
    )?;
    for part in [
        "Caravan v0.1.0",
        "drwxr-x--- root /etc/caravan.d\n",
        "-rw-r----- root /etc/caravan.d/caravan.hcl\n",
        "drwx--x--x root /var/lib/caravan\n",
        "not enabled",
        "# mine",
        "configuration kept",
        "configuration gone",
        "/var/lib/caravan is kept",
        "precious",
    ] {
        ensure!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    Ok(())
}
