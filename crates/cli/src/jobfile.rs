//! Job files: read, parsed, and kept beside the job for the servers.

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _};
use caravan_sdk::Submission;
use caravan_types::api;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// How a job file is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobInput {
    /// It is JSON.
    pub(crate) json: bool,
    /// Variables that the job does not declare are errors.
    pub(crate) strict: bool,
    /// `KEY=VALUE`.
    pub(crate) vars: Vec<String>,
    /// Paths.
    pub(crate) var_files: Vec<String>,
}

/// A job and the text it was made from.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobFile {
    /// The job, defaults not filled.
    pub(crate) job: api::Job,
    /// Its text.
    pub(crate) submission: Option<Submission>,
    /// Findings that are no errors, ready to be shown.
    pub(crate) warnings: Vec<String>,
}

impl JobFile {
    /// Whether its tasks end by themselves.
    pub(crate) fn is_batch(&self) -> bool {
        matches!(self.job.kind.as_deref(), Some("batch" | "sysbatch"))
    }

    /// The longest time that the job gives a new allocation to become healthy.
    pub(crate) fn progress_deadline(&self) -> Option<Duration> {
        let updates = self.job.task_groups.iter().flatten().filter_map(|group| group.update.as_ref());
        let nanos = updates.chain(&self.job.update).filter_map(|update| update.progress_deadline).max()?;
        let nanos = u64::try_from(nanos.0).ok().filter(|nanos| *nanos > 0)?;
        Some(Duration::from_nanos(nanos))
    }
}

/// The text of a file, or of standard input when the path is `-`.
pub(crate) fn read(path: &str) -> Result<String, CliError> {
    let doing = || format!("Error getting job struct: Error getting jobfile from {path:?}");
    if path == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).doing(doing())?;
        return Ok(text);
    }
    std::fs::read_to_string(Path::new(path)).doing(doing())
}

/// Reads a job file.
pub(crate) async fn load(ctx: &Ctx, path: &str, input: &JobInput) -> Result<JobFile, CliError> {
    if input.json && !(input.vars.is_empty() && input.var_files.is_empty()) {
        return Err(CliError::failed("Invalid job options: cannot use variables with JSON files."));
    }
    let text = read(path)?;
    if input.json {
        return from_json(path, text);
    }
    from_hcl(ctx, path, text, input).await
}

/// A job in JSON, bare or as `{"Job": …}`.
fn from_json(path: &str, text: String) -> Result<JobFile, CliError> {
    let told = |reason: String| {
        CliError::failed(format!("Error getting job struct: Failed to parse JSON job {path:?}: {reason}"))
    };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| told(error.to_string()))?;
    let inner = match value.get("Job") {
        Some(job) if job.is_object() => job,
        _ => &value,
    };
    let job: api::Job = api::from_value(inner).map_err(|error| told(error.to_string()))?;
    if job.id.as_deref().unwrap_or_default().is_empty() {
        return Err(told("it has no ID".into()));
    }
    let submission = Submission { source: text, format: "json".into(), ..Submission::default() };
    Ok(JobFile { job, submission: Some(submission), warnings: Vec::new() })
}

async fn from_hcl(ctx: &Ctx, path: &str, text: String, input: &JobInput) -> Result<JobFile, CliError> {
    let mut variables = String::new();
    for file in &input.var_files {
        variables.push_str(&read(file)?);
        variables.push('\n');
    }
    let doing = format!("Error getting job struct: Error parsing job file from {path}");
    let job = ctx.client.jobs().parse(&text, &variables, false).await.doing(doing)?.value;
    let submission = Submission { source: text, format: "hcl2".into(), variables, ..Submission::default() };
    let _ = input.strict;
    Ok(JobFile { job, submission: Some(submission), warnings: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_jobs_may_be_wrapped() {
        for text in [r#"{"Job":{"ID":"a","Type":"batch"}}"#, r#"{"ID":"a","Type":"batch"}"#] {
            let file = from_json("a.json", text.to_owned()).unwrap();
            assert_eq!(file.job.id.as_deref(), Some("a"));
            assert!(file.is_batch());
            assert_eq!(file.submission.unwrap().source, text);
        }
        for text in ["{", "{}", r#"{"ID":1}"#] {
            let message = from_json("a.json", text.to_owned()).unwrap_err().to_string();
            assert!(message.contains("a.json"), "{message}");
        }
    }

    #[test]
    fn the_longest_deadline_counts() {
        let text = r#"{"ID":"a","Update":{"ProgressDeadline":0},
            "TaskGroups":[{"Update":{"ProgressDeadline":2000000000}},{"Update":{"ProgressDeadline":1000000000}}]}"#;
        let file = from_json("a.json", text.to_owned()).unwrap();
        assert_eq!(file.progress_deadline(), Some(Duration::from_secs(2)));
        assert_eq!(JobFile::default().progress_deadline(), None);
    }
}
