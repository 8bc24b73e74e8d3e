//! What only the crates of the agent can read: they are given to the command line from outside, so that it does not
//! need all of an agent to be built.

use serde_json::Value;
use std::path::Path;

/// What looking at a configuration found: remarks on one that an agent takes, or what is wrong with it.
pub type Findings = Result<Vec<String>, Vec<String>>;

/// Readers of an agent's files.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Reads configuration files and directories.
    pub validate_config: fn(&[String]) -> Findings,
    /// Reads what the client in a data directory knows: JSON without secrets, or why there is nothing to read.
    pub client_state: fn(&Path) -> Result<Value, String>,
}
