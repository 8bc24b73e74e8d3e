//! The Debian package (deb(5)): an ar archive of a version, the control files and the data.

use super::program::{Linkage, Program};
use super::tree::{Tree, gzip};
use super::{Release, read};
use md5::{Digest as _, Md5};
use std::fmt::Write as _;
use std::path::Path;

const SCRIPTS: [&str; 3] = ["postinst", "postrm", "prerm"];

/// Files that dpkg keeps if the administrator changed them.
const CONFIGURATION: &str = "/etc/caravan.d/caravan.hcl\n";

/// Builds the package of an installed tree.
pub(super) fn build(
    root: &Path,
    data: &Tree,
    program: &Program,
    release: &Release,
) -> anyhow::Result<Vec<u8>> {
    let mut control = Tree::default();
    control.file("control", 0o644, fields(data, program, release).into_bytes());
    control.file("conffiles", 0o644, CONFIGURATION.into());
    control.file("md5sums", 0o644, sums(data).into_bytes());
    for script in SCRIPTS {
        control.file(script, 0o755, read(root, &format!("packaging/deb/{script}"))?);
    }
    let mut archive = ar::Builder::new(Vec::new());
    for (name, bytes) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.tar("./", release.epoch)?)?),
        ("data.tar.gz", gzip(&data.tar("./", release.epoch)?)?),
    ] {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mtime(release.epoch);
        header.set_mode(0o100_644);
        archive.append(&header, bytes.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

/// Returns the control file (deb-control(5)).
fn fields(data: &Tree, program: &Program, release: &Release) -> String {
    let depends = match program.linkage {
        Linkage::Static => String::new(),
        // The unwinder of the compiler is a separate library.
        Linkage::Glibc(major, minor) => format!("Depends: libc6 (>= {major}.{minor}), libgcc-s1\n"),
    };
    format!(
        "Package: caravan\nVersion: {}\nArchitecture: {}\nMaintainer: The Caravan developers <caravan@example.invalid>\n\
         Installed-Size: {}\n{depends}Recommends: ca-certificates\n\
         Suggests: e2fsprogs, nfs-common\nSection: admin\nPriority: optional\n\
         Description: workload orchestrator with storage at its core\n \
         Caravan runs jobs of processes on many machines. It speaks the job language, the\n \
         HTTP API and the CSI and plugin protocols of HashiCorp Nomad.\n",
        release.version,
        program.architecture.names().1,
        data.size().div_ceil(1024),
    )
}

fn sums(data: &Tree) -> String {
    let mut text = String::new();
    for (path, entry) in data.entries() {
        if let Some(content) = &entry.content
            && !CONFIGURATION.lines().any(|line| line.trim_start_matches('/') == path)
        {
            for byte in Md5::digest(content) {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
            let _ = writeln!(text, "  {path}");
        }
    }
    text
}
