//! The limit on open files of this process (getrlimit(2)).

use crate::{Error, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The soft limit with which this process was started, once [`raise_open_files`] has changed it.
static INHERITED: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit on open files to the hard limit, and returns the new soft limit; `None` means unlimited.
/// Programs that use select(2) need a low soft limit, so a shell sets 1024. An agent with a thousand peers needs
/// more.
///
/// # Errors
/// If the kernel refuses the change.
pub fn raise_open_files() -> Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    INHERITED.get_or_init(|| limit.current);
    if limit.current != limit.maximum {
        set_soft(limit.maximum)?;
    }
    Ok(limit.maximum)
}

/// Returns the soft limit that this process had before [`raise_open_files`]; `None` if it was not called, or if no limit
/// was set.
pub fn inherited_open_files() -> Option<u64> {
    INHERITED.get().copied().flatten()
}

/// Lowers the soft limit on open files of this process and of its later children. The hard limit stays.
///
/// # Errors
/// If the kernel refuses the change.
pub fn lower_open_files(soft: u64) -> Result<()> {
    set_soft(Some(soft))
}

fn set_soft(current: Option<u64>) -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum })
        .map_err(|source| Error::Call { operation: "change the limit on open files", source: source.into() })
}
