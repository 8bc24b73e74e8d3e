//! The crate's error type.

use std::io;
use std::path::{Path, PathBuf};

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a kernel call failed on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call about a path.
    #[error("cannot {operation} {}", path.display())]
    Path {
        /// What was tried, as the words after "cannot".
        operation: &'static str,
        /// The path it was tried on.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A call about two paths.
    #[error("cannot {operation} {} on {}", from.display(), to.display())]
    Paths {
        /// What was tried, as the words after "cannot".
        operation: &'static str,
        /// The source path.
        from: PathBuf,
        /// The target path.
        to: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A call about a process.
    #[error("cannot {operation} process {pid}")]
    Process {
        /// What was tried, as the words after "cannot".
        operation: &'static str,
        /// The process id.
        pid: u32,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A call about the calling process or the system.
    #[error("cannot {operation}")]
    Call {
        /// What was tried, as the words after "cannot".
        operation: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A removal or a change that met a mount and left it alone.
    #[error("cannot {operation} {}: it is a mount", path.display())]
    Mounted {
        /// What was tried, as the words after "cannot".
        operation: &'static str,
        /// Where the mount is.
        path: PathBuf,
    },
    /// A kernel file whose text is not what its documentation says.
    #[error("{what} is malformed: {detail}")]
    Malformed {
        /// The file or field.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A user or group that the system does not know.
    #[error("unknown {kind} {name:?}")]
    UnknownName {
        /// `user`, `group`, `capability` or `signal`.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
    },
}

impl Error {
    pub(crate) fn path(operation: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Path { operation, path, source }
    }

    pub(crate) fn errno(
        operation: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(rustix::io::Errno) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Path { operation, path, source: source.into() }
    }

    pub(crate) fn call(operation: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |source| Self::Call { operation, source: source.into() }
    }

    pub(crate) fn process(operation: &'static str, pid: u32) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |source| Self::Process { operation, pid, source: source.into() }
    }

    /// The kernel's answer, where there was one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Path { source, .. }
            | Self::Paths { source, .. }
            | Self::Process { source, .. }
            | Self::Call { source, .. } => Some(source),
            Self::Mounted { .. } | Self::Malformed { .. } | Self::UnknownName { .. } => None,
        }
    }

    /// The errno of the kernel's answer, where there was one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.io().and_then(io::Error::raw_os_error)
    }

    /// Whether the object was not there.
    pub fn is_not_found(&self) -> bool {
        self.io().is_some_and(|e| e.kind() == io::ErrorKind::NotFound)
    }
}

/// An error and its causes in one line, joined by `: `. For messages that leave the process.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
