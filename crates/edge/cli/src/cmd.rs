//! The commands.

pub(crate) mod acl;
pub(crate) mod alloc;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod deployment;
pub(crate) mod enterprise;
pub(crate) mod eval;
pub(crate) mod eval_delete;
pub(crate) mod explain;
pub(crate) mod fmt;
pub(crate) mod job;
pub(crate) mod misc;
pub(crate) mod monitor;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod operator;
pub(crate) mod page;
pub(crate) mod plugin;
pub(crate) mod scaling;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod setup;
pub(crate) mod status;
pub(crate) mod system;
pub(crate) mod tls;
pub(crate) mod var;
pub(crate) mod volume;

use crate::error::CliError;

/// Returns the only argument of a command, or a usage error.
pub(crate) fn one<'a>(args: &'a [String], usage: &str) -> Result<&'a str, CliError> {
    match args {
        [arg] => Ok(arg),
        _ => Err(CliError::Usage(usage.to_owned())),
    }
}

/// Returns the optional argument of a command, or a usage error.
pub(crate) fn at_most_one<'a>(args: &'a [String], usage: &str) -> Result<Option<&'a str>, CliError> {
    match args {
        [] => Ok(None),
        [arg] => Ok(Some(arg)),
        _ => Err(CliError::Usage(usage.to_owned())),
    }
}
