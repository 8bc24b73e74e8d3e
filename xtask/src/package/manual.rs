//! Manual pages and completion scripts, from the command line's own description.

use super::tree::{Tree, gzip};
use anyhow::Context;
use clap::Command;

/// Adds all pages and scripts, with paths below a `share` directory.
pub(super) fn add(tree: &mut Tree) -> anyhow::Result<()> {
    pages(tree, &caravan_cli::command(), "caravan")?;
    for (shell, path) in [
        ("bash", "bash-completion/completions/caravan"),
        ("zsh", "zsh/vendor-completions/_caravan"),
        ("fish", "fish/vendor_completions.d/caravan.fish"),
    ] {
        let mut script =
            caravan_cli::completion_script(shell).with_context(|| format!("no completion for {shell}"))?;
        if shell == "zsh" {
            script.insert_str(0, "#compdef caravan\n");
        }
        tree.file(path, 0o644, script.into_bytes());
    }
    Ok(())
}

/// Adds the page of a command and the pages of its subcommands, named as `caravan-job-run(1)`.
fn pages(tree: &mut Tree, command: &Command, name: &str) -> anyhow::Result<()> {
    let shown = command.clone().display_name(name);
    let mut page = Vec::new();
    let manual = clap_mangen::Man::new(shown).section("1").manual("Caravan").date("");
    manual.source(format!("Caravan {}", env!("CARGO_PKG_VERSION"))).render(&mut page)?;
    // Users write long flags with one dash; the page writes a dash as `\-`.
    let page = String::from_utf8(page)?.replace(r"\-\-", r"\-");
    tree.file(&format!("man/man1/{name}.1.gz"), 0o644, gzip(page.as_bytes())?);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(tree, below, &format!("{name}-{}", below.get_name()))?;
    }
    Ok(())
}
