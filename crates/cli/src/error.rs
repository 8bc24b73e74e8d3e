//! What ends a command early.

/// A command that did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The arguments make no sense; a hint at the help follows.
    #[error("{0}")]
    Usage(String),
    /// A sentence that says everything.
    #[error("{0}")]
    Failed(String),
    /// The agent refused or could not be asked.
    #[error("{doing}: {source}")]
    Api {
        /// What was attempted, `Error querying jobs`.
        doing: String,
        /// What the client says.
        #[source]
        source: Box<caravan_sdk::Error>,
    },
    /// A file could not be read or written.
    #[error("{doing}: {source}")]
    Io {
        /// What was attempted, with the path.
        doing: String,
        /// What the kernel says.
        #[source]
        source: std::io::Error,
    },
    /// The answer cannot be shown as JSON.
    #[error("Error formatting the data: {0}")]
    Json(#[from] serde_json::Error),
}

/// The exit status of a command that ran to its end.
pub(crate) type Outcome = Result<u8, CliError>;

impl CliError {
    /// A failure told in a sentence.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

/// Says what was attempted when a call fails.
pub(crate) trait Doing<T> {
    /// `doing` begins with a capital: `Error querying jobs`.
    fn doing(self, doing: impl Into<String>) -> Result<T, CliError>;
}

impl<T> Doing<T> for Result<T, caravan_sdk::Error> {
    fn doing(self, doing: impl Into<String>) -> Result<T, CliError> {
        self.map_err(|source| CliError::Api { doing: doing.into(), source: Box::new(source) })
    }
}

impl<T> Doing<T> for Result<T, std::io::Error> {
    fn doing(self, doing: impl Into<String>) -> Result<T, CliError> {
        self.map_err(|source| CliError::Io { doing: doing.into(), source })
    }
}
