//! `cargo xtask vm`: stories and scripts in virtual machines (crate `machines`).

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str = "usage: cargo xtask vm list | test [FILTER]... | [--memory MIB] [--cpus N] [--with PROGRAM]... run SCRIPT | shell | e2e [FILTER]...";

/// Runs cargo with the command's arguments.
pub fn run(args: &[String]) -> Result<()> {
    let test = ["test", "--package", "caravan-machines", "--test", "machines", "--"];
    let mut command = caravan_testkit::cargo();
    match args.first().map(String::as_str) {
        Some("list") if args.len() == 1 => command.args(test).arg("--list"),
        // The machines of two stories fill a small host.
        Some("test") => command
            .env("CARAVAN_VM_STORIES", "all")
            .args(test)
            .args(["--test-threads=2", "--nocapture"])
            .args(&args[1..]),
        Some(_) => {
            let absolute = args.iter().map(|word| absolute(word));
            command.args(["run", "--quiet", "--package", "caravan-machines", "--"]).args(absolute)
        }
        None => bail!("{USAGE}"),
    };
    let status = command.status().context("run cargo")?;
    ensure!(status.success(), "cargo ended with {status}");
    Ok(())
}

/// Returns the path of an existing file independent of the working directory, and other words unchanged.
fn absolute(word: &str) -> String {
    let path = std::path::Path::new(word);
    if path.is_file() {
        path.canonicalize().map_or_else(|_| word.to_owned(), |path| path.display().to_string())
    } else {
        word.to_owned()
    }
}
