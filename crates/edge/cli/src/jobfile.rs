//! Reads and parses job files, and keeps their text for the servers.

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _};
use crate::refusal::Refusal;
use caravan_api as api;
use caravan_hcl::Source;
use caravan_hcl::diag::render;
use caravan_hcl::job::{self, ParseOptions, VarInput};
use caravan_sdk::Submission;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options for reading a job file.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobInput {
    /// Whether the file is JSON.
    pub(crate) json: bool,
    /// Whether undeclared variables are errors.
    pub(crate) strict: bool,
    /// Values of variables: `KEY=VALUE`.
    pub(crate) vars: Vec<String>,
    /// Paths of variable files.
    pub(crate) var_files: Vec<String>,
    /// Whether to write findings as JSON.
    pub(crate) diagnostics_json: bool,
}

/// A job, and the text that it was parsed from.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobFile {
    /// The job as written, without defaults.
    pub(crate) job: api::Job,
    /// The text and variables to submit with the job.
    pub(crate) submission: Option<Submission>,
    /// The source text, if findings about the job can be shown within it.
    pub(crate) source: Option<Source>,
    /// Rendered findings that are not errors.
    pub(crate) warnings: Vec<String>,
}

impl JobFile {
    /// Returns the ID of the job, which every request needs.
    ///
    /// # Errors
    /// The job has no ID.
    pub(crate) fn id(&self) -> Result<&str, CliError> {
        let id = self.job.id.as_deref().filter(|id| !id.is_empty());
        id.ok_or_else(|| CliError::failed("Error getting job struct: Missing job ID"))
    }

    /// Returns the job as `-output` prints it.
    ///
    /// # Errors
    /// The job cannot be represented in JSON.
    pub(crate) fn printed(&self) -> Result<serde_json::Value, serde_json::Error> {
        match &self.submission {
            Some(from) if from.format == "json" => job::api_json_as_printed(&self.job, &from.source),
            _ => serde_json::to_value(&self.job),
        }
    }

    /// Returns the problems of the job with the lines of the file that they are about. `text` comes first and
    /// unchanged, because other programs match it.
    pub(crate) fn refused(&self, ctx: &Ctx, input: &JobInput, text: &str, refusal: Refusal<'_>) -> CliError {
        let source = self.source.as_ref();
        if input.diagnostics_json {
            let found = refusal.diagnostics(&self.job, source);
            if !found.items.is_empty() {
                return CliError::failed(render::json(&found).to_string());
            }
        }
        match refusal.shown(&self.job, source, ctx.out.colours_errors()) {
            Some(shown) => CliError::failed(format!("{}\n\n{shown}", text.trim_end())),
            None => CliError::failed(text),
        }
    }

    /// Returns the error of a call that sent the job.
    pub(crate) fn failed(
        &self,
        ctx: &Ctx,
        input: &JobInput,
        doing: &str,
        error: caravan_sdk::Error,
    ) -> CliError {
        if let caravan_sdk::Error::Status { body, problems, .. } = &error {
            let refusal = Refusal { text: body, problems };
            if refusal.is_itemised() {
                return self.refused(ctx, input, &format!("{doing}: {error}"), refusal);
            }
        }
        CliError::Api { doing: doing.to_owned(), source: Box::new(error) }
    }

    /// Returns whether the job's tasks end by themselves.
    pub(crate) fn is_batch(&self) -> bool {
        matches!(self.job.kind.as_deref(), Some("batch" | "sysbatch"))
    }

    /// Returns the longest `progress_deadline` of the job and its groups.
    pub(crate) fn progress_deadline(&self) -> Option<Duration> {
        let updates = self.job.task_groups.iter().flatten().filter_map(|group| group.update.as_ref());
        let nanos = updates.chain(&self.job.update).filter_map(|update| update.progress_deadline).max()?;
        let nanos = u64::try_from(nanos.0).ok().filter(|nanos| *nanos > 0)?;
        Some(Duration::from_nanos(nanos))
    }
}

/// Reads a file, or standard input if the path is `-`. `doing` begins the error text.
pub(crate) fn read_as(path: &str, doing: &str) -> Result<String, CliError> {
    if path == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).doing(doing)?;
        return Ok(text);
    }
    std::fs::read_to_string(Path::new(path)).doing(doing)
}

/// The largest job file to fetch, in bytes. Equals the servers' default limit (`job_max_source_size`).
const MAX_FETCHED: usize = 1 << 20;

/// Returns whether a path is a URL. Files next to such a job file cannot be read, by flags or by functions.
fn is_url(path: &str) -> bool {
    path.contains("://") && !Path::new(path).exists()
}

/// Returns the text of a job file: from a file, standard input (`-`) or a web server.
async fn text_of(path: &str) -> Result<String, CliError> {
    let doing = format!("Error getting job struct: Error getting jobfile from {path:?}");
    if !is_url(path) {
        return read_as(path, &doing);
    }
    let reported = |reason: String| CliError::failed(format!("{doing}: {reason}"));
    let bytes = caravan_sdk::fetch(path, MAX_FETCHED).await.map_err(|error| reported(error.to_string()))?;
    String::from_utf8(bytes.into()).map_err(|_| reported("the file is not text".into()))
}

/// Reads a job file.
pub(crate) async fn load(ctx: &Ctx, path: &str, input: &JobInput) -> Result<JobFile, CliError> {
    if input.json && !(input.vars.is_empty() && input.var_files.is_empty()) {
        return Err(CliError::failed("Invalid job options: cannot use variables with JSON files."));
    }
    let text = text_of(path).await?;
    if input.json {
        return from_json(path, text);
    }
    from_hcl(path, text, input, ctx.out.colours_errors())
}

/// Parses a job in JSON, bare or as `{"Job": …}`.
fn from_json(path: &str, text: String) -> Result<JobFile, CliError> {
    let reported = |reason: String| {
        CliError::failed(format!("Error getting job struct: Failed to parse JSON job {path:?}: {reason}"))
    };
    let job = job::parse_api_json(&text).map_err(|error| reported(error.to_string()))?;
    let submission = Submission { source: text, format: "json".into(), ..Submission::default() };
    Ok(JobFile { job, submission: Some(submission), ..JobFile::default() })
}

fn from_hcl(path: &str, text: String, input: &JobInput, colour: bool) -> Result<JobFile, CliError> {
    let mut options = ParseOptions {
        env: environment(),
        strict: input.strict,
        file_functions: (!is_url(path)).then(|| directory(path)),
        ..ParseOptions::default()
    };
    let mut submission = Submission { format: "hcl2".into(), ..Submission::default() };
    let beside = if path == "-" || is_url(path) { Vec::new() } else { auto_files(&directory(path)) };
    for file in beside {
        let text = std::fs::read_to_string(&file)
            .doing(format!("Error getting job struct: Error reading variable file {file:?}"))?;
        submission.variables.push_str(&text);
        submission.variables.push('\n');
        options.auto_files.push(Source::new(file, text));
    }
    for file in &input.var_files {
        let text = std::fs::read_to_string(file)
            .doing(format!("Error getting job struct: Error reading variable file {file:?}"))?;
        submission.variables.push_str(&text);
        submission.variables.push('\n');
        options.var_files.push(Source::new(file, text));
    }
    for var in &input.vars {
        let parsed = VarInput::parse(var).ok_or_else(|| {
            CliError::failed(format!("Invalid job options: -var {var:?} must be of the form KEY=VALUE"))
        })?;
        submission.variable_flags.insert(parsed.name.clone(), parsed.value.clone());
        options.variables.push(parsed);
    }
    let name = if path == "-" { "<stdin>" } else { path };
    let source = Source::new(name, text);
    let parsed = job::parse(&source, &options);
    submission.source.clone_from(&source.text);
    match parsed {
        Ok((job, found)) => {
            let warnings = match (found.items.is_empty(), input.diagnostics_json) {
                (true, _) => Vec::new(),
                (false, true) => vec![render::json(&found).to_string()],
                (false, false) => vec![render::pretty(&found, colour)],
            };
            Ok(JobFile { job, submission: Some(submission), source: Some(source), warnings })
        }
        Err(found) if input.diagnostics_json => Err(CliError::failed(render::json(&found).to_string())),
        Err(found) => Err(CliError::failed(format!(
            "Error getting job struct: Error parsing job file from {path}:\n{found}\n\n{}",
            render::pretty(&found, colour).trim_end()
        ))),
    }
}

/// Returns the environment variables whose names and values are valid UTF-8.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Returns the variable files next to the job file that are read by default, sorted by name.
fn auto_files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            (name.ends_with(".auto.vars") || name.ends_with(".auto.vars.json")) && entry.path().is_file()
        })
        .map(|entry| entry.path().display().to_string())
        .collect();
    found.sort();
    found
}

/// Returns the directory that the file functions read from: the directory of the job file.
fn directory(path: &str) -> PathBuf {
    match Path::new(path).parent() {
        Some(parent) if path != "-" && !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
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
        // A job without an id is refused later, when it is submitted.
        for text in ["{", r#"{"Job":5}"#, r#"{"ID":1}"#] {
            let message = from_json("a.json", text.to_owned()).unwrap_err().to_string();
            assert!(message.contains("a.json"), "{message}");
        }
    }

    const JOB: &str = "variable \"release\" {\n  default = \"one\"\n}\njob \"web\" {\n  type = \"batch\"\n  group \"g\" {\n    \
                       task \"t\" {\n      driver = \"exec\"\n      env { RELEASE = var.release }\n    }\n  }\n}\n";

    #[test]
    fn variables_are_applied_and_kept_beside_the_job() {
        let dir = tempfile::tempdir().unwrap();
        let vars = dir.path().join("x.vars");
        std::fs::write(&vars, "release = \"two\"\n").unwrap();
        let input =
            JobInput { strict: true, var_files: vec![vars.display().to_string()], ..JobInput::default() };
        let release = |input: &JobInput| {
            let file = from_hcl("web.nomad.hcl", JOB.to_owned(), input, false).unwrap();
            let json = serde_json::to_value(&file.job).unwrap();
            (json["TaskGroups"][0]["Tasks"][0]["Env"]["RELEASE"].clone(), file.submission.unwrap())
        };
        assert_eq!(release(&JobInput::default()).0, "one");
        assert_eq!(release(&input).0, "two");
        let (value, submission) = release(&JobInput { vars: vec!["release=three".into()], ..input });
        assert_eq!(value, "three");
        assert_eq!(submission.variable_flags["release"], "three");
        assert_eq!((submission.source.as_str(), submission.format.as_str()), (JOB, "hcl2"));
        assert_eq!(submission.variables, "release = \"two\"\n\n");
    }

    #[test]
    fn variable_files_beside_the_job_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.nomad.hcl").display().to_string();
        std::fs::write(dir.path().join("b.auto.vars"), "release = \"two\"\nother = 1\n").unwrap();
        std::fs::write(dir.path().join("c.auto.vars.json"), "{\"release\": \"three\"}").unwrap();
        std::fs::write(dir.path().join("d.vars"), "release = \"four\"\n").unwrap();
        let input = JobInput { strict: true, ..JobInput::default() };
        let file = from_hcl(&path, JOB.to_owned(), &input, false).unwrap();
        let json = serde_json::to_value(&file.job).unwrap();
        assert_eq!(json["TaskGroups"][0]["Tasks"][0]["Env"]["RELEASE"], "three");
    }

    #[test]
    fn findings_may_be_json() {
        let input = JobInput { diagnostics_json: true, ..JobInput::default() };
        let error = from_hcl("broken.nomad.hcl", "job \"a\" {".to_owned(), &input, false).unwrap_err();
        let json: serde_json::Value = serde_json::from_str(&error.to_string()).unwrap();
        assert_eq!(json["diagnostics"][0]["code"], "E0102");
        assert_eq!(json["diagnostics"][0]["range"]["start"]["line"], 1);
    }

    #[test]
    fn the_examples_are_read() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
        let mut read = 0;
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path().display().to_string();
            if path.ends_with(".nomad.hcl") {
                let text = std::fs::read_to_string(&path).unwrap();
                let file = from_hcl(&path, text, &JobInput { strict: true, ..JobInput::default() }, false);
                assert!(file.unwrap().job.id.is_some(), "{path}");
                read += 1;
            }
        }
        assert!(read > 0);
    }

    #[test]
    fn a_broken_file_is_shown_with_the_place() {
        let reported = |text: &str| {
            let error = from_hcl("broken.nomad.hcl", text.to_owned(), &JobInput::default(), false);
            error.unwrap_err().to_string()
        };
        let message = reported("job \"broken\" {");
        let head =
            "Error getting job struct: Error parsing job file from broken.nomad.hcl:\nbroken.nomad.hcl:1,";
        assert!(message.starts_with(head), "{message}");
        assert!(message.contains("job \"broken\" {"), "the line itself is shown: {message}");
        let input = JobInput { vars: vec!["release".into()], ..JobInput::default() };
        let message = from_hcl("web.nomad.hcl", JOB.to_owned(), &input, false).unwrap_err().to_string();
        assert!(message.contains("KEY=VALUE"), "{message}");
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
