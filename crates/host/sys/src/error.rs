//! The crate's error type.

use std::io;
use std::path::{Path, PathBuf};

/// Result of a fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed kernel call, with its path or process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call for a path failed.
    #[error("cannot {operation} {}", path.display())]
    Path {
        /// The operation, as the words after "cannot".
        operation: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A call for two paths failed.
    #[error("cannot {operation} {} on {}", from.display(), to.display())]
    Paths {
        /// The operation, as the words after "cannot".
        operation: &'static str,
        /// The source path.
        from: PathBuf,
        /// The target path.
        to: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A call for a process failed.
    #[error("cannot {operation} process {pid}")]
    Process {
        /// The operation, as the words after "cannot".
        operation: &'static str,
        /// The process id.
        pid: u32,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A call for the calling process or the system failed.
    #[error("cannot {operation}")]
    Call {
        /// The operation, as the words after "cannot".
        operation: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a request about an object of a network: an interface, an address, a table.
    #[error("cannot {operation} {object}")]
    Network {
        /// The operation, as the words after "cannot".
        operation: &'static str,
        /// The object, by kind and name.
        object: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A removal or a change found a mount and left it in place.
    #[error("cannot {operation} {}: it is a mount", path.display())]
    Mounted {
        /// The operation, as the words after "cannot".
        operation: &'static str,
        /// The mount's path.
        path: PathBuf,
    },
    /// A kernel file whose format differs from its documentation.
    #[error("{what} is malformed: {detail}")]
    Malformed {
        /// The file or field.
        what: String,
        /// The unexpected part.
        detail: String,
    },
    /// The use of devices cannot be limited.
    #[error("the use of devices cannot be limited: {0}")]
    Devices(crate::cgroup::DeviceRefusal),
    /// A name that the system does not have.
    #[error("unknown {kind} {name:?}")]
    UnknownName {
        /// `user`, `group`, `capability` or `signal`.
        kind: &'static str,
        /// The unknown name.
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

    /// Creates the error for an object that another process moved during a call.
    pub fn moved(operation: &'static str, path: impl AsRef<Path>) -> Self {
        let source = io::Error::new(io::ErrorKind::ResourceBusy, "it was moved meanwhile");
        Self::path(operation, path)(source)
    }

    /// Creates the error for an entry that is not a regular file with one name.
    pub fn not_a_file(operation: &'static str, path: impl AsRef<Path>) -> Self {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file with one name");
        Self::path(operation, path)(source)
    }

    /// Returns the kernel's error, if the error has one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Path { source, .. }
            | Self::Paths { source, .. }
            | Self::Process { source, .. }
            | Self::Network { source, .. }
            | Self::Call { source, .. } => Some(source),
            Self::Mounted { .. } | Self::Malformed { .. } | Self::Devices(_) | Self::UnknownName { .. } => {
                None
            }
        }
    }

    /// Returns the errno of the kernel's error, if the error has one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.io().and_then(io::Error::raw_os_error)
    }

    /// Returns whether the error means that the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.io().is_some_and(|e| e.kind() == io::ErrorKind::NotFound)
    }
}

/// Returns an error and its causes in one line, joined by `: `, for messages that leave the process. A cause that the
/// line contains already is left out: some errors render their cause themselves.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    fn line(texts: &[&'static str]) -> String {
        let link = texts.iter().rev().fold(None, |source, text| Some(Box::new(Link { text, source })));
        describe(&*link.unwrap())
    }

    #[test]
    fn causes_are_joined_and_none_is_repeated() {
        assert_eq!(line(&["cannot start", "no socket", "refused"]), "cannot start: no socket: refused");
        assert_eq!(
            line(&["cannot start: no socket", "no socket", "refused"]),
            "cannot start: no socket: refused"
        );
        assert_eq!(line(&["no socket, so it cannot start", "no socket"]), "no socket, so it cannot start");
        assert_eq!(line(&["alone"]), "alone");
    }
}
