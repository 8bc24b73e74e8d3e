//! Files that a task gets before it starts: templates, artifacts and the payload of a dispatch.

use super::blocks;
use crate::ser::{nil, null_default};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file rendered for a task (docs/reference/jobspec.md, section 4.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Template {
    /// File that holds the text; empty if the job does.
    #[serde(deserialize_with = "null_default")]
    pub source_path: String,
    /// File that is written.
    #[serde(deserialize_with = "null_default")]
    pub dest_path: String,
    /// Text in the job.
    #[serde(deserialize_with = "null_default")]
    pub embedded_tmpl: String,
    /// `noop`, `restart`, `signal` or `script`.
    #[serde(deserialize_with = "null_default")]
    pub change_mode: String,
    /// Program of the change mode `script`.
    pub change_script: Option<Box<ChangeScript>>,
    /// Signal of the change mode `signal`.
    #[serde(deserialize_with = "null_default")]
    pub change_signal: String,
    /// The file is rendered once and never again.
    #[serde(deserialize_with = "null_default")]
    pub once: bool,
    /// Longest random wait before the task learns of a change.
    #[serde(deserialize_with = "null_default")]
    pub splay: Nanos,
    /// Permissions of the file, octal.
    #[serde(deserialize_with = "null_default")]
    pub perms: String,
    /// Owner of the file; below zero or none: the task's user.
    pub uid: Option<i64>,
    /// Group of the file.
    pub gid: Option<i64>,
    /// Left mark of an action.
    #[serde(deserialize_with = "null_default")]
    pub left_delim: String,
    /// Right mark of an action.
    #[serde(deserialize_with = "null_default")]
    pub right_delim: String,
    /// The lines of the file are variables of the task's environment.
    #[serde(deserialize_with = "null_default")]
    pub envvars: bool,
    /// Without effect.
    #[serde(deserialize_with = "null_default")]
    pub vault_grace: Nanos,
    /// How long changes are collected.
    pub wait: Option<WaitConfig>,
    /// A key that is missing fails the rendering.
    #[serde(deserialize_with = "null_default")]
    pub err_missing_key: bool,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            source_path: String::new(),
            dest_path: String::new(),
            embedded_tmpl: String::new(),
            change_mode: "restart".to_owned(),
            change_script: None,
            change_signal: String::new(),
            once: false,
            splay: Nanos::from_secs(5),
            perms: "0644".to_owned(),
            uid: None,
            gid: None,
            left_delim: "{{".to_owned(),
            right_delim: "}}".to_owned(),
            envvars: false,
            vault_grace: Nanos::ZERO,
            wait: None,
            err_missing_key: false,
        }
    }
}

impl Template {
    /// Whether the file belongs to a user or group that the job names.
    pub fn has_owner(&self) -> bool {
        [self.uid, self.gid].into_iter().flatten().any(|id| id >= 0)
    }
}

/// A program run inside the task when a template changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ChangeScript {
    /// Program.
    #[serde(deserialize_with = "null_default")]
    pub command: String,
    /// Arguments.
    #[serde(deserialize_with = "null_default")]
    pub args: Vec<String>,
    /// Longest run.
    #[serde(deserialize_with = "null_default")]
    pub timeout: Nanos,
    /// Failure of the program fails the task.
    #[serde(deserialize_with = "null_default")]
    pub fail_on_error: bool,
    /// The program runs after the first start too.
    #[serde(deserialize_with = "null_default")]
    pub run_on_first_render: bool,
}

impl Default for ChangeScript {
    fn default() -> Self {
        Self {
            command: String::new(),
            args: Vec::new(),
            timeout: Nanos::from_secs(5),
            fail_on_error: false,
            run_on_first_render: false,
        }
    }
}

/// Something fetched before a task starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Artifact {
    /// URL with options.
    #[serde(deserialize_with = "null_default")]
    pub getter_source: String,
    /// Options.
    #[serde(with = "nil")]
    pub getter_options: BTreeMap<String, String>,
    /// HTTP headers.
    #[serde(with = "nil")]
    pub getter_headers: BTreeMap<String, String>,
    /// `any`, `file` or `dir`.
    #[serde(deserialize_with = "null_default")]
    pub getter_mode: String,
    /// Certificates are not checked.
    #[serde(deserialize_with = "null_default")]
    pub getter_insecure: bool,
    /// Where it lies, relative to the task's directory.
    #[serde(deserialize_with = "null_default")]
    pub relative_dest: String,
    /// The files belong to the task's user.
    pub chown: bool,
}

blocks! {
    /// How long changes of a template are collected.
    WaitConfig {
        min: Option<Nanos> = "Min";
        max: Option<Nanos> = "Max";
    }

    /// Where the payload of a dispatch is written.
    DispatchPayload {
        /// Relative to the task's local directory.
        file: String = "File";
    }
}
