//! Rules of the repository that the compiler does not check: `cargo xtask check`.

mod citations;
mod layers;
mod sizes;
mod style;
mod words;

use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// The path in the repository, with a line if there is one.
    place: String,
    text: String,
}

impl Finding {
    fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into() }
    }
}

/// A tracked text file.
#[derive(Debug)]
struct Source {
    /// The path in the repository.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_page(&self) -> bool {
        self.path.ends_with(".md")
    }

    fn is_generated(&self) -> bool {
        self.path.contains("/generated/")
    }
}

/// Prints all violations and fails if there is one.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    if !arguments.is_empty() {
        bail!("usage: cargo xtask check");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = read(&root)?;
    let mut findings = layers::check(&root)?;
    findings.extend(citations::check(&sources));
    findings.extend(sizes::check(&sources));
    findings.extend(style::check(&sources));
    findings.extend(words::check(&sources)?);
    for finding in &findings {
        eprintln!("{}: {}", finding.place, finding.text);
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} findings"),
    }
}

/// Reads the tracked Rust and Markdown files.
fn read(root: &Path) -> anyhow::Result<Vec<Source>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--", "*.rs", "*.md"])
        .current_dir(root)
        .output()
        .context("listing the tracked files with git")?;
    if !listed.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let names = String::from_utf8(listed.stdout).context("names of tracked files")?;
    let mut sources = Vec::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let path: PathBuf = root.join(name);
        // The file is deleted but still tracked.
        if !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {name}"))?;
        sources.push(Source { path: name.to_owned(), text });
    }
    Ok(sources)
}
