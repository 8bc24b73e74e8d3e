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
use caravan_types::{Nanos, duration};

/// Returns the only argument of a command, or a usage error.
pub(crate) fn one<'a>(args: &'a [String], usage: &str) -> Result<&'a str, CliError> {
    match args {
        [arg] => Ok(arg),
        _ => Err(wrong_count(args, 1, usage)),
    }
}

/// Returns the optional argument of a command, or a usage error.
pub(crate) fn at_most_one<'a>(args: &'a [String], usage: &str) -> Result<Option<&'a str>, CliError> {
    match args {
        [] => Ok(None),
        [arg] => Ok(Some(arg)),
        _ => Err(wrong_count(args, 1, usage)),
    }
}

/// Refuses the arguments of a command that takes none.
pub(crate) fn none(args: &[String]) -> Result<(), CliError> {
    if args.is_empty() { Ok(()) } else { Err(wrong_count(args, 0, NO_ARGUMENTS)) }
}

/// The usage error of a command that takes no arguments.
pub(crate) const NO_ARGUMENTS: &str = "This command takes no arguments";

/// Returns the usage error for a wrong number of arguments. The error names the first argument beyond the `most` that
/// the command takes.
pub(crate) fn wrong_count(args: &[String], most: usize, usage: &str) -> CliError {
    CliError::Usage(match args.get(most) {
        Some(surplus) => format!("{usage}; {surplus:?} is one too many"),
        None => usage.to_owned(),
    })
}

/// Parses the duration of a flag. The error names the flag and the text.
pub(crate) fn duration_of(flag: &str, text: &str) -> Result<Nanos, CliError> {
    let wrong = || CliError::Usage(invalid_value(text, flag, &duration::invalid(text)));
    duration::parse(text).ok_or_else(wrong)
}

/// Returns the sentence about a flag with a value that it cannot have.
pub(crate) fn invalid_value(value: &str, flag: &str, why: &str) -> String {
    format!("invalid value {value:?} for flag -{flag}: {why}")
}
