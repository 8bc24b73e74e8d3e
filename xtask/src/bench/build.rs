//! Measures the builds: from an empty directory, and after a change in the crate of the servers. Each cold build has
//! an empty target directory; downloaded sources are reused.

use super::figure;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Instant;

const MIB: f64 = 1024.0 * 1024.0;

pub fn run(release: bool) -> Result<()> {
    let print = |case: &str, value: f64, unit: &str| figure("build", case, value, unit);
    let target = tempfile::tempdir().context("a directory for the builds")?;
    if release {
        print("release build of the program, cold", build(target.path(), true)?, "s");
        let program = target.path().join("release/caravan");
        let size = std::fs::metadata(&program).with_context(|| program.display().to_string())?.len();
        #[expect(clippy::cast_precision_loss, reason = "a program has fewer than 2^52 bytes")]
        print("size of the stripped program", size as f64 / MIB, "MiB");
        return Ok(());
    }
    print("build of the program for development, cold", build(target.path(), false)?, "s");
    let changed = caravan_testkit::workspace("crates/control/server/src/lib.rs");
    let rewrite = || std::fs::read(&changed).and_then(|text| std::fs::write(&changed, text));
    // The same content with a new time of change.
    rewrite().with_context(|| changed.display().to_string())?;
    print("the same after a change in server", build(target.path(), false)?, "s");
    Ok(())
}

/// Builds the program and returns the seconds.
fn build(target: &Path, release: bool) -> Result<f64> {
    let mut cargo = caravan_testkit::cargo();
    cargo.args(["build", "--quiet", "--locked", "--package", "caravan", "--target-dir"]).arg(target);
    if release {
        cargo.arg("--release");
    }
    let begun = Instant::now();
    if !cargo.status()?.success() {
        bail!("the build failed");
    }
    Ok(begun.elapsed().as_secs_f64())
}
