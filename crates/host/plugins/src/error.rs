//! The crate's error type.

use crate::handshake::HandshakeError;
use caravan_schema::Problem;
use std::path::PathBuf;
use std::time::Duration;

/// The reason that a plugin cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The program's file must not be run.
    #[error("{} {reason}", path.display())]
    File {
        /// The program's file.
        path: PathBuf,
        /// The reason, as the words of the error text after the path.
        reason: &'static str,
    },
    /// A step of the start failed in the kernel.
    #[error("cannot {what}: {source}")]
    Io {
        /// The step, as the words of the error text after "cannot".
        what: &'static str,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// A file or process of the plugin could not be accessed.
    #[error("{}", caravan_sys::describe(.0))]
    Sys(#[from] caravan_sys::Error),
    /// The program ended before it printed its first line.
    #[error("the program ended before its handshake ({how}){}", hint(.output))]
    Ended {
        /// The exit code or signal.
        how: String,
        /// The last line that the program printed on standard error.
        output: String,
    },
    /// The program printed nothing in time.
    #[error("the program printed no handshake within {0:?}")]
    Late(Duration),
    /// The first line is not the handshake of a plugin.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// A call failed.
    #[error("{call} failed: {message}")]
    Call {
        /// The call's name.
        call: &'static str,
        /// The plugin's message.
        message: String,
    },
    /// The plugin did not answer in time.
    #[error("{call} was not answered within {limit:?}")]
    Timeout {
        /// The call's name.
        call: &'static str,
        /// The timeout of the call.
        limit: Duration,
    },
    /// The plugin is of an unknown kind, or of another kind than before.
    #[error("the plugin has the type {0}, which is neither a driver nor a device")]
    Kind(i32),
    /// The plugin reports no name, or a name that cannot be used.
    #[error("the plugin reports the name {0:?}, which is not usable")]
    Name(String),
    /// The plugin's version is not a version.
    #[error("the plugin reports the version {0:?}, which is not a version")]
    Version(String),
    /// The plugin supports no version of the protocol that the agent supports.
    #[error("the plugin speaks the API versions [{}], the agent speaks v0.1.0", .0.join(", "))]
    Api(Vec<String>),
    /// The plugin's schema is invalid.
    #[error("the schema of {what} is invalid: {reason}")]
    Schema {
        /// The configuration that the schema describes.
        what: &'static str,
        /// The error in the schema.
        reason: String,
    },
    /// A configuration does not fit the plugin's schema.
    #[error("{}", list(.0))]
    Misfit(Vec<Problem>),
    /// The `config` of the `plugin` block does not fit the plugin's schema. Each problem has its place in the file,
    /// if the place is known.
    #[error("config: {}", placed(.0))]
    Config(Vec<(Option<String>, Problem)>),
    /// The plugin has no schema, but the configuration is not empty.
    #[error("the plugin accepts no configuration")]
    NoConfig,
}

/// Returns all problems as one sentence.
fn list(problems: &[Problem]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn placed(problems: &[(Option<String>, Problem)]) -> String {
    let text = |(place, problem): &(Option<String>, Problem)| match place {
        Some(place) => format!("{place}: {problem}"),
        None => problem.to_string(),
    };
    problems.iter().map(text).collect::<Vec<_>>().join("; ")
}

fn hint(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(": {output}") }
}

impl PluginError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    pub(crate) fn call(call: &'static str) -> impl FnOnce(tonic::Status) -> Self {
        move |status| Self::Call { call, message: describe(&status) }
    }
}

/// Returns the message of a status, or its code if there is no message.
pub(crate) fn describe(status: &tonic::Status) -> String {
    match status.message() {
        "" => status.code().to_string(),
        text => text.to_owned(),
    }
}
