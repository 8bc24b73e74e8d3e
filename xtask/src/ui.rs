//! `cargo xtask ui`: writes the types of the API from the Rust types, and builds the web page. The built files are
//! checked in, so a build of the program needs no Node.js.

use anyhow::{Context as _, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod trace;
mod types;

/// The licences that packages of the page and of its build may have.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Python-2.0",
    "CC0-1.0",
    "CC-BY-4.0",
    "BlueOak-1.0.0",
];

/// Builds the page, or with `--check` compares a new build with the checked-in one and tests the source.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let check = match arguments {
        [] => false,
        [only] if only == "--check" => true,
        _ => bail!("usage: cargo xtask ui [--check]"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent directory")?;
    let source = root.join("ui");
    let checked_in = root.join("crates/edge/ui/dist");
    types::update(&source.join("src/api/generated.ts"), check)?;
    licences(&source.join("package-lock.json"))?;
    install(&source)?;
    if !check {
        return build(&source, &checked_in);
    }
    let out = tempfile::tempdir()?;
    build(&source, out.path())?;
    compare(&files(&checked_in)?, &files(out.path())?)?;
    npm(&source, &["run", "--silent", "check"])?;
    npm(&source, &["run", "--silent", "test"])
}

/// Installs the packages, unless the installed ones are those of the lock file.
fn install(source: &Path) -> anyhow::Result<()> {
    let changed = |name: &str| fs::metadata(source.join(name)).and_then(|found| found.modified());
    let installed = changed("node_modules/.package-lock.json");
    if installed.is_ok_and(|at| changed("package-lock.json").is_ok_and(|lock| lock <= at)) {
        return Ok(());
    }
    npm(source, &["ci", "--no-audit", "--no-fund"])
}

fn build(source: &Path, out: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("npm");
    command.args(["run", "--silent", "build"]).current_dir(source).env("CARAVAN_UI_OUT", out);
    ended(command)
}

fn npm(source: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(source);
    ended(command)
}

fn ended(mut command: Command) -> anyhow::Result<()> {
    let status = command.status().context("npm is not installed: scripts/tools.sh ui installs Node")?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Checks that every package of the lock file has a permissive licence.
fn licences(lock: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(lock).with_context(|| format!("reading {}", lock.display()))?;
    let lock: serde_json::Value = serde_json::from_str(&text).context("the lock file is no JSON")?;
    let packages = lock["packages"].as_object().context("the lock file lists no packages")?;
    let bad: Vec<String> = packages
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .filter(|(_, package)| !is_permissive(package["license"].as_str().unwrap_or_default()))
        .map(|(name, package)| format!("{name} ({})", package["license"]))
        .collect();
    ensure!(bad.is_empty(), "packages with a licence that xtask/src/ui.rs does not list: {}", bad.join(", "));
    Ok(())
}

/// Returns whether a licence expression offers a listed licence; `(A OR B)` leaves the choice.
fn is_permissive(expression: &str) -> bool {
    expression.trim_matches(['(', ')']).split(" OR ").any(|name| LICENCES.contains(&name))
}

/// Returns the contents of the files below a directory by their relative paths.
fn files(root: &Path) -> anyhow::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut out = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                out.insert(path.strip_prefix(root)?.to_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(out)
}

fn compare(old: &BTreeMap<PathBuf, Vec<u8>>, new: &BTreeMap<PathBuf, Vec<u8>>) -> anyhow::Result<()> {
    let paths = old.keys().chain(new.keys());
    let different = paths.filter(|path| old.get(*path) != new.get(*path));
    let mut names: Vec<String> = different.map(|path| path.display().to_string()).collect();
    names.sort();
    names.dedup();
    ensure!(
        names.is_empty(),
        "crates/edge/ui/dist is not the build of ui: run `cargo xtask ui`; different: {}",
        names.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_missing_and_an_added_file_are_found() {
        let tree = |rows: &[(&str, &str)]| {
            rows.iter().map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec())).collect()
        };
        let old = tree(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let new = tree(&[("a", "1"), ("b", "2"), ("d", "1")]);
        assert!(compare(&old, &old).is_ok());
        assert!(compare(&old, &new).unwrap_err().to_string().ends_with("different: b, c, d"));
    }

    #[test]
    fn a_licence_must_be_listed() {
        assert!(is_permissive("MIT") && is_permissive("(GPL-3.0 OR MIT)"));
        assert!(!is_permissive("GPL-3.0") && !is_permissive(""));
    }
}
