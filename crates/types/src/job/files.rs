//! Files that a task gets before it starts: templates, artifacts and the payload of a dispatch.

use super::blocks;
use crate::ser::nil;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file rendered for a task (docs/reference/jobspec.md, section 4.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Template {
    /// File that holds the text; empty if the job does.
    pub source_path: String,
    /// File that is written.
    pub dest_path: String,
    /// Text in the job.
    pub embedded_tmpl: String,
    /// `noop`, `restart`, `signal` or `script`.
    pub change_mode: String,
    /// Program of the change mode `script`.
    pub change_script: Option<Box<ChangeScript>>,
    /// Signal of the change mode `signal`.
    pub change_signal: String,
    /// The file is rendered once and never again.
    pub once: bool,
    /// Longest random wait before the task learns of a change.
    pub splay: Nanos,
    /// Permissions of the file, octal.
    pub perms: String,
    /// Owner of the file; below zero or none: the task's user.
    pub uid: Option<i64>,
    /// Group of the file.
    pub gid: Option<i64>,
    /// Left mark of an action.
    pub left_delim: String,
    /// Right mark of an action.
    pub right_delim: String,
    /// The lines of the file are variables of the task's environment.
    pub envvars: bool,
    /// Without effect.
    pub vault_grace: Nanos,
    /// How long changes are collected.
    pub wait: Option<WaitConfig>,
    /// A key that is missing fails the rendering.
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
    pub command: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Longest run.
    pub timeout: Nanos,
    /// Failure of the program fails the task.
    pub fail_on_error: bool,
    /// The program runs after the first start too.
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
    pub getter_source: String,
    /// Options.
    #[serde(with = "nil")]
    pub getter_options: BTreeMap<String, String>,
    /// HTTP headers.
    #[serde(with = "nil")]
    pub getter_headers: BTreeMap<String, String>,
    /// `any`, `file` or `dir`.
    pub getter_mode: String,
    /// Certificates are not checked.
    pub getter_insecure: bool,
    /// Where it lies, relative to the task's directory.
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
