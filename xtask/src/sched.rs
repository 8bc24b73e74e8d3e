//! `cargo xtask sched FILE`: runs a scheduling script (`crates/test/sim`, module `script`).

use anyhow::{Context, Result, bail};

pub fn run(arguments: &[String]) -> Result<()> {
    let [file] = arguments else { bail!("usage: cargo xtask sched FILE") };
    let text = std::fs::read_to_string(file).with_context(|| format!("{file} cannot be read"))?;
    print!("{}", caravan_sim::script::run(&text)?);
    Ok(())
}
