//! Conformance runs, which use any CSI plugin through the whole life of volumes, and report its behaviour.
//!
//! [`endpoint`] calls a plugin's socket; [`job`] starts an agent, runs the plugin as a job, and lets tasks use
//! its volumes. Violations of the specification are failures. Behaviour that the specification leaves open is
//! reported too, because operators of the plugin depend on it.

mod bench;
mod contents;
mod copies;
mod endpoint;
mod job;
mod life;

pub use endpoint::endpoint;
pub use job::job;

use caravan_csi::{CsiError, Secrets, StringMap};
use serde_json::json;
use std::{fmt, path::PathBuf, time::Duration};

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The behaviour follows the specification.
    Passed,
    /// The behaviour violates the specification.
    Failed,
    /// The plugin does not have the feature.
    NotOffered,
    /// The specification leaves the behaviour open; the finding reports it.
    Note,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotOffered => "not offered",
            Self::Note => "note",
        })
    }
}

/// A check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check, after the combination of modes.
    pub check: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The plugin's message, or the observed behaviour; may be empty.
    pub words: String,
}

impl Finding {
    /// Returns the finding as a JSON object on one line.
    pub fn json(&self) -> String {
        json!({ "check": self.check, "outcome": self.outcome.to_string(), "words": self.words }).to_string()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<11}  {}", self.outcome, self.check)?;
        if self.words.is_empty() { Ok(()) } else { write!(f, ": {}", self.words) }
    }
}

/// The properties of a plugin that a run needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The parameters of every creation.
    pub parameters: StringMap,
    /// The secrets of every call that accepts secrets.
    pub secrets: Secrets,
    /// The bytes of a volume; it is expanded to twice this size.
    pub size: u64,
    /// The directory in which volumes are mounted. The plugin must see it under the same path, with its mounts
    /// propagating to this process.
    pub directory: PathBuf,
    /// The timeout for a call that is refused because another call is in progress, and for a snapshot to
    /// become ready.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            parameters: StringMap::new(),
            secrets: Secrets::default(),
            size: 1 << 30,
            directory: std::env::temp_dir(),
            patience: Duration::from_secs(60),
        }
    }
}

/// The findings so far. Each finding is also shown immediately.
pub struct Report {
    findings: Vec<Finding>,
    show: Box<dyn FnMut(&Finding)>,
    /// The combination of modes of the current checks; set before each check.
    about: String,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("findings", &self.findings).finish_non_exhaustive()
    }
}

impl Report {
    /// Creates an empty report.
    pub fn new(show: impl FnMut(&Finding) + 'static) -> Self {
        Self { findings: Vec::new(), show: Box::new(show), about: String::new() }
    }

    /// Returns all findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns whether no check failed.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.outcome != Outcome::Failed)
    }

    fn about(&mut self, about: impl Into<String>) {
        self.about = about.into();
    }

    fn add(&mut self, outcome: Outcome, check: &str, words: impl Into<String>) {
        let check = if self.about.is_empty() { check.to_owned() } else { format!("{}: {check}", self.about) };
        let finding = Finding { check, outcome, words: words.into() };
        (self.show)(&finding);
        self.findings.push(finding);
    }

    fn passed(&mut self, check: &str) {
        self.add(Outcome::Passed, check, "");
    }

    fn note(&mut self, check: &str, words: impl Into<String>) {
        self.add(Outcome::Note, check, words);
    }

    fn not_offered(&mut self, check: &str, words: impl Into<String>) {
        self.add(Outcome::NotOffered, check, words);
    }

    fn failed(&mut self, check: &str, words: impl Into<String>) {
        self.add(Outcome::Failed, check, words);
    }

    /// Records a passed check if `so`, otherwise a failure with the text `words`.
    fn is(&mut self, check: &str, so: bool, words: impl FnOnce() -> String) -> bool {
        if so {
            self.passed(check);
        } else {
            self.failed(check, words());
        }
        so
    }

    /// Records a passed check and returns the response, or records a failure with the plugin's message.
    fn ok<T>(&mut self, check: &str, result: Result<T, CsiError>) -> Option<T> {
        match result {
            Ok(answer) => {
                self.passed(check);
                Some(answer)
            }
            Err(error) => {
                self.failed(check, error.to_string());
                None
            }
        }
    }

    /// Records a passed check if the call was refused with this class. Another class is reported; success is a failure.
    fn refused<T>(&mut self, check: &str, result: Result<T, CsiError>, class: caravan_csi::Class) {
        match result {
            Err(error) if error.class() == Some(class) => self.add(Outcome::Passed, check, error.to_string()),
            Err(error) => self.note(check, format!("refuses it otherwise than with {class}: {error}")),
            Ok(_) => self.failed(check, format!("it succeeded, {class} is what the specification wants")),
        }
    }

    /// Records a check in which the specification allows both refusal and success.
    fn may_refuse<T>(&mut self, check: &str, result: Result<T, CsiError>, class: caravan_csi::Class) {
        match result {
            Err(error) if error.class() == Some(class) => self.add(Outcome::Passed, check, error.to_string()),
            Err(error) => self.note(check, format!("refuses it otherwise than with {class}: {error}")),
            Ok(_) => self.note(check, "allows it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_good_until_something_breaks_the_specification() {
        let mut report = Report::new(|_| {});
        report.passed("one");
        report.about("block-device");
        report.note("two", "answers ABORTED");
        report.not_offered("three", "");
        assert!(report.is_good());
        let error = CsiError::Malformed { call: caravan_csi::Call::CreateVolume, field: "volume" };
        assert!(report.ok::<()>("four", Err(error)).is_none());
        assert!(!report.is_good());
        let lines: Vec<String> = report.findings().iter().map(Finding::to_string).collect();
        assert_eq!(
            lines,
            [
                "passed       one",
                "note         block-device: two: answers ABORTED",
                "not offered  block-device: three",
                "failed       block-device: four: CreateVolume was answered without a usable volume",
            ]
        );
        assert_eq!(report.findings()[0].json(), r#"{"check":"one","outcome":"passed","words":""}"#);
    }
}
