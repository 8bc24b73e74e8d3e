//! Parses variable files.

use super::{decoded, read, tables};
use crate::diag::Diagnostics;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A variable as a file describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VariableSpec {
    /// The variable's path. Empty if the file sets none.
    pub path: String,
    /// The variable's namespace. Empty if the file sets none.
    pub namespace: String,
    /// The variable's items, which are secrets.
    pub items: BTreeMap<String, String>,
    /// The modify index, if the file contains one.
    pub modify_index: Option<u64>,
}

/// Parses a variable: `path`, `namespace` and `items {}`. Of the further arguments that servers show, only
/// `modify_index` has an effect.
///
/// # Errors
/// Syntax errors, unknown blocks and arguments. The source lines in diagnostics may contain secrets.
pub fn parse_variable(text: &str, filename: &str) -> Result<VariableSpec, Diagnostics> {
    read(text, filename, &tables::VARIABLE, |_, object, items| decoded(object, items))
}
