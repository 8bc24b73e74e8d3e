//! Pages that are generated from the program's own tables.

use anyhow::{Context as _, bail};
use std::path::Path;

/// Writes the generated pages, or only compares them (`--check`).
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("usage: cargo xtask docs [--check]"),
    };
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let pages =
        [("job-language.md", caravan_hcl::describe::page()), ("http-routes.md", caravan_http::routes_page())];
    for (name, page) in pages {
        let path = docs.join(name);
        if !check {
            std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
            continue;
        }
        let kept = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if kept != page {
            bail!("{} differs from its table: run `cargo xtask docs`", path.display());
        }
    }
    Ok(())
}
