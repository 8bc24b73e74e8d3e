//! What only the crates of the agent can read: they are given to the command line from outside, so that it does not
//! need all of an agent to be built.

use serde_json::Value;
use std::path::Path;

/// Readers of an agent's files.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Reads configuration files and directories: remarks, or what is wrong.
    pub validate_config: fn(&[String]) -> Result<Vec<String>, Vec<String>>,
    /// Reads what the client in a data directory knows: JSON without secrets, or why there is nothing to read.
    pub client_state: fn(&Path) -> Result<Value, String>,
}
