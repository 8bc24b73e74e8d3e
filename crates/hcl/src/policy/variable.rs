//! Files of variables.

use super::{decoded, read, tables};
use crate::diag::Diagnostics;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A variable as a file says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VariableSpec {
    /// Path; empty if the file does not say.
    pub path: String,
    /// Namespace; empty if the file does not say.
    pub namespace: String,
    /// Items. They are secrets.
    pub items: BTreeMap<String, String>,
    /// Index of the last change that the file knows of.
    pub modify_index: Option<u64>,
}

/// Reads a variable: `path`, `namespace` and `items {}`, and what the servers add when they show one, which has no
/// effect apart from `modify_index`.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments. The lines of the file that diagnostics show may hold secrets.
pub fn parse_variable(text: &str, filename: &str) -> Result<VariableSpec, Diagnostics> {
    read(text, filename, &tables::VARIABLE, |_, object, items| decoded(object, items))
}
