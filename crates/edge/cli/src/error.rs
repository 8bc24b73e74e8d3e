//! Errors that end a command.

/// The reason that a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Invalid arguments. A hint at the help follows.
    #[error("{0}")]
    Usage(String),
    /// A complete sentence, printed unchanged.
    #[error("{0}")]
    Failed(String),
    /// The agent returned an error or could not be reached.
    #[error("{doing}: {source}")]
    Api {
        /// The attempted action: `Error querying jobs`.
        doing: String,
        /// The error of the API client.
        #[source]
        source: Box<caravan_sdk::Error>,
    },
    /// A file could not be read or written.
    #[error("{doing}: {source}")]
    Io {
        /// The attempted action, with the path.
        doing: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The answer cannot be shown as JSON.
    #[error("Error formatting the data: {0}")]
    Json(#[from] serde_json::Error),
}

/// The exit status of a command, or the error that ended it.
pub(crate) type Outcome = Result<u8, CliError>;

impl CliError {
    /// Creates an error that prints this sentence.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

/// An extension of results that adds the attempted action to the error of a call.
pub(crate) trait Doing<T> {
    /// Adds the action `doing`, which begins with a capital: `Error querying jobs`.
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
