//! `package`: the Debian package, the tarball and the container image of a program.
//!
//! The output is reproducible: names are sorted, owners are root, and all times are `SOURCE_DATE_EPOCH` or the time
//! of the commit.

mod deb;
mod image;
mod manual;
mod program;
mod tree;

use anyhow::{Context, bail};
use program::{Linkage, Program};
use std::path::{Path, PathBuf};
use std::process::Command;
use tree::Tree;

/// The settings that all artifacts share.
struct Release {
    version: String,
    /// Seconds since 1970, of all files.
    epoch: u64,
}

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let (mut program, mut out) = (None, PathBuf::from("target/package"));
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--program" => program = Some(PathBuf::from(value()?)),
            "--out" => out = PathBuf::from(value()?),
            other => bail!("package: there is no flag {other:?}"),
        }
    }
    let path = program.context("package: --program FILE names the program to pack")?;
    let program = Program::read(&path)?;
    let release = Release { version: env!("CARGO_PKG_VERSION").to_owned(), epoch: epoch()? };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    std::fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    for (name, bytes) in artifacts(root, &program, &release)? {
        let path = out.join(&name);
        std::fs::write(&path, &bytes).with_context(|| format!("write {}", path.display()))?;
        println!("{:>11} {}", bytes.len(), path.display());
    }
    if program.linkage != Linkage::Static {
        println!("no container image: {} is not a static program", path.display());
    }
    Ok(())
}

/// Returns the names and contents of all artifacts.
fn artifacts(root: &Path, program: &Program, release: &Release) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let Release { version, epoch } = release;
    let (kernel_name, debian_name) = program.architecture.names();
    let mut documents = Tree::default();
    manual::add(&mut documents)?;
    let deb = debian_package(root, program, release, &documents)?;

    let mut archive = Tree::default();
    let top = format!("caravan-{version}");
    archive.file(&format!("{top}/caravan"), 0o755, program.bytes.clone());
    for (name, source) in [
        ("LICENSE", "LICENSE"),
        ("README.md", "README.md"),
        ("caravan.service", "packaging/caravan.service"),
        ("caravan.hcl", "packaging/caravan.hcl"),
    ] {
        archive.file(&format!("{top}/{name}"), 0o644, read(root, source)?);
    }
    archive.add(&documents, &format!("{top}/share/"));

    let mut artifacts = vec![
        deb,
        (
            format!("caravan-{version}-linux-{kernel_name}{}.tar.gz", program.flavour()),
            archive.tar_gz(*epoch)?,
        ),
    ];
    if program.linkage == Linkage::Static {
        let image = image::build(program, release)?;
        artifacts.push((format!("caravan-{version}-oci-{debian_name}.tar"), image));
    }
    Ok(artifacts)
}

/// Returns the name and the content of the Debian package.
fn debian_package(
    root: &Path,
    program: &Program,
    release: &Release,
    documents: &Tree,
) -> anyhow::Result<(String, Vec<u8>)> {
    let mut installed = Tree::default();
    installed.file("usr/bin/caravan", 0o755, program.bytes.clone());
    installed.file("lib/systemd/system/caravan.service", 0o644, read(root, "packaging/caravan.service")?);
    installed.file("etc/caravan.d/caravan.hcl", 0o640, read(root, "packaging/caravan.hcl")?);
    installed.directory("etc/caravan.d", 0o750);
    installed.directory("var/lib/caravan", 0o711);
    installed.file("usr/share/doc/caravan/copyright", 0o644, read(root, "LICENSE")?);
    installed.add(documents, "usr/share/");
    let name =
        format!("caravan_{}_{}{}.deb", release.version, program.architecture.names().1, program.flavour());
    Ok((name, deb::build(root, &installed, program, release)?))
}

fn read(root: &Path, path: &str) -> anyhow::Result<Vec<u8>> {
    std::fs::read(root.join(path)).with_context(|| format!("read {path}"))
}

/// Returns the time of all files.
fn epoch() -> anyhow::Result<u64> {
    if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        return text.parse().context("SOURCE_DATE_EPOCH is no number of seconds");
    }
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).output();
    let text =
        output.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let text = text.context("set SOURCE_DATE_EPOCH: this tree has no git history")?;
    text.trim().parse().context("git log -1 --format=%ct printed no number")
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod story;
