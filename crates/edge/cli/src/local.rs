//! Functions that only the agent's crates can provide. The binary passes them in, so that this crate does not depend
//! on the agent.

use caravan_base::Build;
use serde_json::Value;
use std::path::Path;

/// The result of checking a configuration: warnings about a valid one, or the errors of an invalid one.
pub type Findings = Result<Vec<String>, Vec<String>>;

/// The identity of the program, and readers of an agent's files.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// The build of this program.
    pub build: Build,
    /// The function that checks configuration files and directories.
    pub validate_config: fn(&[String]) -> Findings,
    /// The function that reads the state of the client in a data directory: JSON without secrets, or the reason that
    /// the state cannot be read.
    pub client_state: fn(&Path) -> Result<Value, String>,
}
