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
    let path = docs.join("job-language.md");
    let page = caravan_hcl::describe::page();
    if check {
        let kept = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if kept != page {
            bail!("{} differs from its table: run `cargo xtask docs`", path.display());
        }
    } else {
        std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    }
    routes(check)
}

/// Writes or compares docs/http-routes.md by the test of the crate that has the table. A dependency on that crate
/// would let each command wait for the build of the servers.
fn routes(check: bool) -> anyhow::Result<()> {
    let mut cargo = caravan_testkit::cargo();
    cargo.args(["test", "--quiet", "--package", "caravan-http", "--lib", "the_page_is_current"]);
    if !check {
        cargo.env("CARAVAN_WRITE_DOCS", "1");
    }
    if !cargo.status()?.success() {
        bail!("docs/http-routes.md differs from its table: run `cargo xtask docs`");
    }
    Ok(())
}
