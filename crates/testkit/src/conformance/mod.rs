//! One conformance run takes any CSI plugin through the whole life of volumes, and says what it does.
//!
//! [`endpoint`] speaks to a plugin's socket; [`job`] starts an agent, runs the plugin as a job, and lets tasks use
//! its volumes. What breaks the specification is a failure; what it leaves to the plugin is told, because whoever
//! runs the plugin has to live with it.

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

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the specification wants it.
    Passed,
    /// Against the specification.
    Failed,
    /// The plugin does not have it.
    NotOffered,
    /// The specification leaves it to the plugin: what this one does.
    Told,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotOffered => "not offered",
            Self::Told => "told",
        })
    }
}

/// One check and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was tried, after how the volume was used.
    pub check: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The plugin's words, or what was seen; may be empty.
    pub words: String,
}

impl Finding {
    /// As an object of one line, for programs.
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

/// What a run needs to know of the plugin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Parameters of every creation.
    pub parameters: StringMap,
    /// Secrets of every call that takes them.
    pub secrets: Secrets,
    /// Bytes of a volume; it grows to twice as much.
    pub size: u64,
    /// Where volumes are mounted; the plugin has to see it under the same path, with its mounts propagating to
    /// here.
    pub directory: PathBuf,
    /// Longest wait for a call that says that another one is under way, and for a snapshot to get ready.
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

/// What was found so far. Each finding is also shown at once.
pub struct Report {
    findings: Vec<Finding>,
    show: Box<dyn FnMut(&Finding)>,
    /// How the volumes are used that the checks are about; written before each check.
    about: String,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("findings", &self.findings).finish_non_exhaustive()
    }
}

impl Report {
    /// An empty report.
    pub fn new(show: impl FnMut(&Finding) + 'static) -> Self {
        Self { findings: Vec::new(), show: Box::new(show), about: String::new() }
    }

    /// All of it.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether nothing broke the specification.
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

    fn told(&mut self, check: &str, words: impl Into<String>) {
        self.add(Outcome::Told, check, words);
    }

    fn not_offered(&mut self, check: &str, words: impl Into<String>) {
        self.add(Outcome::NotOffered, check, words);
    }

    fn failed(&mut self, check: &str, words: impl Into<String>) {
        self.add(Outcome::Failed, check, words);
    }

    /// Passed if it is so, else failed with these words.
    fn is(&mut self, check: &str, so: bool, words: impl FnOnce() -> String) -> bool {
        if so {
            self.passed(check);
        } else {
            self.failed(check, words());
        }
        so
    }

    /// Passed with the answer, or failed with the plugin's words.
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

    /// Passed if it was refused with this class; another class is told, and success is a failure.
    fn refused<T>(&mut self, check: &str, result: Result<T, CsiError>, class: caravan_csi::Class) {
        match result {
            Err(error) if error.class() == Some(class) => self.add(Outcome::Passed, check, error.to_string()),
            Err(error) => self.told(check, format!("refuses it otherwise than with {class}: {error}")),
            Ok(_) => self.failed(check, format!("it succeeded, {class} is what the specification wants")),
        }
    }

    /// The same where the specification leaves it to the plugin whether it refuses.
    fn may_refuse<T>(&mut self, check: &str, result: Result<T, CsiError>, class: caravan_csi::Class) {
        match result {
            Err(error) if error.class() == Some(class) => self.add(Outcome::Passed, check, error.to_string()),
            Err(error) => self.told(check, format!("refuses it otherwise than with {class}: {error}")),
            Ok(_) => self.told(check, "allows it"),
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
        report.told("two", "answers ABORTED");
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
                "told         block-device: two: answers ABORTED",
                "not offered  block-device: three",
                "failed       block-device: four: CreateVolume was answered without a usable volume",
            ]
        );
        assert_eq!(report.findings()[0].json(), r#"{"check":"one","outcome":"passed","words":""}"#);
    }
}
