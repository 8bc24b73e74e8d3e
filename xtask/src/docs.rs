//! Pages that are generated from the program's own tables.

use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};

/// Writes `docs/job-language.md`, or only compares it (`--check`).
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("usage: cargo xtask docs [--check]"),
    };
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/job-language.md");
    let wanted = caravan_hcl::describe::page();
    if check {
        let kept = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if kept != wanted {
            bail!("{} is not what the tables say: run `cargo xtask docs`", path.display());
        }
        return Ok(());
    }
    std::fs::write(&path, wanted).with_context(|| format!("writing {}", path.display()))
}
