//! Files that a task receives before it starts: templates, artifacts and the payload of a dispatch.

use super::blocks;
use crate::ser::{nil, null_default};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file that the client renders for a task (docs/reference/jobspec.md, section 4.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Template {
    /// The path of the file with the template's text; empty if the job contains the text.
    #[serde(deserialize_with = "null_default")]
    pub source_path: String,
    /// The path of the rendered file.
    #[serde(deserialize_with = "null_default")]
    pub dest_path: String,
    /// The text in the job.
    #[serde(deserialize_with = "null_default")]
    pub embedded_tmpl: String,
    /// The action on a change: `noop`, `restart`, `signal` or `script`.
    #[serde(deserialize_with = "null_default")]
    pub change_mode: String,
    /// The program of the change mode `script`.
    pub change_script: Option<Box<ChangeScript>>,
    /// The signal of the change mode `signal`.
    #[serde(deserialize_with = "null_default")]
    pub change_signal: String,
    /// Whether the file is rendered only once.
    #[serde(deserialize_with = "null_default")]
    pub once: bool,
    /// The longest random wait before the action on a change.
    #[serde(deserialize_with = "null_default")]
    pub splay: Nanos,
    /// The permissions of the file, octal.
    #[serde(deserialize_with = "null_default")]
    pub perms: String,
    /// The owner of the file; the task's user if negative or `None`.
    pub uid: Option<i64>,
    /// The group of the file, if not negative.
    pub gid: Option<i64>,
    /// The delimiter that begins an action.
    #[serde(deserialize_with = "null_default")]
    pub left_delim: String,
    /// The delimiter that ends an action.
    #[serde(deserialize_with = "null_default")]
    pub right_delim: String,
    /// Whether the lines of the file become variables of the task's environment.
    #[serde(deserialize_with = "null_default")]
    pub envvars: bool,
    /// A setting of old Nomad versions, without effect.
    #[serde(deserialize_with = "null_default")]
    pub vault_grace: Nanos,
    /// The time in which changes are collected before the file is rendered.
    pub wait: Option<WaitConfig>,
    /// Whether a missing key fails the rendering.
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
    /// Returns whether the job names an owner or a group of the file.
    pub fn has_owner(&self) -> bool {
        [self.uid, self.gid].into_iter().flatten().any(|id| id >= 0)
    }
}

/// A program that runs inside the task when a template changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ChangeScript {
    /// The path of the program.
    #[serde(deserialize_with = "null_default")]
    pub command: String,
    /// The arguments of the program.
    #[serde(deserialize_with = "null_default")]
    pub args: Vec<String>,
    /// The longest time that the program may run.
    #[serde(deserialize_with = "null_default")]
    pub timeout: Nanos,
    /// Whether a failure of the program fails the task.
    #[serde(deserialize_with = "null_default")]
    pub fail_on_error: bool,
    /// Whether the program also runs after the first start.
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

/// A file or directory that the client downloads before a task starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Artifact {
    /// The URL, with options of the download.
    #[serde(deserialize_with = "null_default")]
    pub getter_source: String,
    /// Options of the download, such as `checksum`.
    #[serde(with = "nil")]
    pub getter_options: BTreeMap<String, String>,
    /// The headers of an HTTP download.
    #[serde(with = "nil")]
    pub getter_headers: BTreeMap<String, String>,
    /// The kind of the destination: `any`, `file` or `dir`.
    #[serde(deserialize_with = "null_default")]
    pub getter_mode: String,
    /// Whether certificates are not verified.
    #[serde(deserialize_with = "null_default")]
    pub getter_insecure: bool,
    /// The path of the destination, relative to the task's directory.
    #[serde(deserialize_with = "null_default")]
    pub relative_dest: String,
    /// Whether the files belong to the task's user.
    pub chown: bool,
}

blocks! {
    /// The shortest and the longest time in which changes of a template are collected.
    WaitConfig {
        min: Option<Nanos> = "Min";
        max: Option<Nanos> = "Max";
    }

    /// The file into which the payload of a dispatch is written.
    DispatchPayload {
        /// The path relative to the task's local directory.
        file: String = "File";
    }
}
