//! The identity of a build: version, commit and date.

use std::fmt;

/// The identity of a build. The program's `build.rs` reads the commit and the date, so that a commit compiles no other
/// crate again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The version of the workspace.
    pub version: &'static str,
    /// The full hash of the commit, with `+changes` if the tree had changes. Empty without a repository.
    pub commit: &'static str,
    /// The time of the commit in UTC, or of `SOURCE_DATE_EPOCH`, as in RFC 3339. Empty without both.
    pub date: &'static str,
}

/// Renders the output of `version`: the version, and a line each for the date and the commit if they are known.
impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caravan v{}", self.version)?;
        for (name, value) in [("BuildDate", self.date), ("Revision", self.commit)] {
            if !value.is_empty() {
                write!(f, "\n{name} {value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Build;

    #[test]
    fn unknown_parts_have_no_line() {
        let build = Build { version: "1.2.3", commit: "", date: "" };
        assert_eq!(build.to_string(), "Caravan v1.2.3");
        let build = Build { commit: "0abc", date: "2026-01-02T03:04:05Z", ..build };
        assert_eq!(build.to_string(), "Caravan v1.2.3\nBuildDate 2026-01-02T03:04:05Z\nRevision 0abc");
    }
}
