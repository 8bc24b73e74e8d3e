//! The failures of plugins and of their configurations.

use super::runtime::Command;
use std::path::PathBuf;
use std::time::Duration;

/// The code of a plugin's error (CNI specification 1.1, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// Returns whether the plugin does not support the version, the command or a field, as opposed to a failed check.
    pub fn is_incompatible(self) -> bool {
        // Version, unsupported field, environment.
        matches!(self.0, 1 | 2 | 4)
    }
}

/// The reason that a network of plugins cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CniFault {
    /// No configuration has the name.
    #[error("CNI network config not found for name {name:?} in {}", .dir.display())]
    NotFound {
        /// The part of the mode after `cni/`, in the spelling of the job.
        name: String,
        /// The directory of the configurations.
        dir: PathBuf,
    },
    /// A configuration cannot be read.
    #[error("CNI network config {} cannot be used: {reason}", .path.display())]
    List {
        /// The file in `cni_config_dir`.
        path: PathBuf,
        /// A sentence for the operator, without content of the file, which may contain secrets.
        reason: String,
    },
    /// No directory of `cni_path` has the plugin.
    #[error("plugin type={plugin:?} is not in cni_path {path:?}")]
    Missing {
        /// The `type` of the plugin in the configuration, which is the name of its program.
        plugin: String,
        /// The directories of `cni_path`, separated by colons.
        path: String,
    },
    /// The plugin cannot be started.
    #[error("plugin type={plugin:?} cannot be started")]
    Start {
        /// The `type` of the plugin in the configuration, which is the name of its program.
        plugin: String,
        /// The error of the kernel, for example that the file is no program.
        #[source]
        source: std::io::Error,
    },
    /// The plugin reported an error.
    #[error("plugin type={plugin:?} failed ({command}): {message} (code {})", .code.0)]
    Reported {
        /// The `type` of the plugin in the configuration, which is the name of its program.
        plugin: String,
        /// The value of `CNI_COMMAND` (CNI specification 1.1, section 2).
        command: Command,
        /// The plugin's code.
        code: Code,
        /// The plugin's error text.
        message: String,
    },
    /// The plugin ended without an error that can be read.
    #[error("plugin type={plugin:?} failed ({command}): {ended}{}", with_output(.output))]
    Broken {
        /// The `type` of the plugin in the configuration, which is the name of its program.
        plugin: String,
        /// The value of `CNI_COMMAND` (CNI specification 1.1, section 2).
        command: Command,
        /// The exit status or the signal of the plugin, in words.
        ended: String,
        /// The beginning of the plugin's standard error.
        output: String,
    },
    /// The plugin did not end in time, and was killed.
    #[error("plugin type={plugin:?} failed ({command}): no answer in {} seconds", .limit.as_secs())]
    Late {
        /// The `type` of the plugin in the configuration, which is the name of its program.
        plugin: String,
        /// The value of `CNI_COMMAND` (CNI specification 1.1, section 2).
        command: Command,
        /// The timeout that the plugin exceeded.
        limit: Duration,
    },
    /// The plugin's result cannot be read.
    #[error("plugin type={plugin:?} returned an invalid result: {reason}")]
    Result {
        /// The `type` of the plugin in the configuration, which is the name of its program.
        plugin: String,
        /// A sentence for the operator, without content of the result, which may contain secrets.
        reason: String,
    },
    /// The result has no address.
    #[error("no interface with an address")]
    NoAddress,
    /// Several plugins failed.
    #[error("{}", joined(.0))]
    Several(Vec<CniFault>),
}

impl CniFault {
    /// Returns one fault for all faults; `None` without a fault.
    pub(crate) fn combine(mut all: Vec<Self>) -> Option<Self> {
        if all.len() > 1 { Some(Self::Several(all)) } else { all.pop() }
    }

    /// Returns whether the plugin does not support the command, as opposed to a failure.
    pub fn is_incompatible(&self) -> bool {
        matches!(self, Self::Reported { code, .. } if code.is_incompatible())
    }

    /// Returns whether a retry may help.
    pub fn is_passing(&self) -> bool {
        !matches!(self, Self::NotFound { .. } | Self::List { .. } | Self::Missing { .. })
    }
}

fn with_output(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

fn joined(all: &[CniFault]) -> String {
    all.iter().map(|fault| caravan_sys::describe(fault)).collect::<Vec<_>>().join("; ")
}
