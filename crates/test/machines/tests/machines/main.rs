//! Stories in virtual machines. A few of them run in each test run; `make test-vm` sets `CARAVAN_VM_STORIES=all`
//! and runs all of them.

mod bench;
mod figures;
mod groups;
mod hosts;
mod life;
mod main_job;
mod package;
mod power;
mod storage;

use anyhow::Result;
use caravan_testkit::vm::{Bench, story};

/// The variable that requests all stories.
const STORIES: &str = "CARAVAN_VM_STORIES";

/// Returns whether all stories run, not only the core.
fn runs_all() -> bool {
    std::env::var_os(STORIES).is_some_and(|value| value == "all")
}

/// Runs a story outside of the core, if all stories run.
fn more(name: &str, body: impl FnOnce(&Bench) -> Result<()>) -> Result<()> {
    if runs_all() {
        return story(name, body);
    }
    println!("story {name} is for `make test-vm`");
    Ok(())
}
