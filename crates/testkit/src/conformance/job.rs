//! The checks that are made by an agent with tasks.

use super::{Report, Settings};
use anyhow::Result;
use std::path::Path;

/// Placeholder.
pub fn job(
    _file: &Path,
    _plugin: Option<&str>,
    _drivers: &[&str],
    _settings: &Settings,
    _report: &mut Report,
) -> Result<()> {
    Ok(())
}
