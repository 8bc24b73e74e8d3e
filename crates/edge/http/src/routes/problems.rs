//! Problems of a job as data, next to the text that clients of Nomad read (docs/design/http-api.md).

use crate::body::{Elsewhere, bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_api::{self as api, JobProblem};
use caravan_hcl::diag::{Diagnostic, Diagnostics, Severity};
use caravan_hcl::job::locate::{Place, locate};
use caravan_hcl::source::{Source, SourceId, Sources};
use http::header::ACCEPT;
use serde::Serialize;
use serde_json::{Value, json};

/// The key of the problems in answers.
pub(super) const KEY: &str = "CaravanProblems";
/// The parameters of requests whose refusals are JSON.
const ASKS: [&str; 2] = ["caravan_problems", "diagnostics"];

bodies! {
    /// The job of any body that has one, and its source text.
    Submitted("JobRegisterRequest") {
        job: Option<api::Job> = "Job";
        submission: Option<Text> = "Submission";
        namespace: Elsewhere = "Namespace";
    }

    /// The source text of a job.
    Text("JobSubmission") {
        source: String = "Source";
        format: String = "Format";
    }
}

/// Returns whether the request names JSON as the only form that its caller understands. The clients of Nomad name
/// none.
fn accepts_json(call: &Call) -> bool {
    let accepted = call.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Returns whether the request selects refusals as JSON.
fn asks(call: &Call) -> bool {
    ASKS.iter().any(|name| call.query.flag(name).ok().flatten() == Some(true))
}

/// A problem of a job file with its place. Lines and columns count from 1, columns count characters; 0 means no
/// place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Mark<'d> {
    severity: &'static str,
    code: &'static str,
    summary: &'d str,
    detail: &'d str,
    hint: &'d str,
    /// `job` for the job file, `variables` for the values of variables.
    file: &'static str,
    start_line: usize,
    start_column: usize,
    end_line: usize,
    end_column: usize,
}

impl<'d> Mark<'d> {
    fn new(found: &'d Diagnostic, all: &Diagnostics) -> Self {
        let place = |byte: fn(caravan_hcl::source::Span) -> usize| {
            found.span.map(|span| all.sources.line_column(span.source, byte(span))).unwrap_or_default()
        };
        let ((start_line, start_column), (end_line, end_column)) =
            (place(|span| span.start), place(|span| span.end));
        Self {
            severity: match found.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            code: found.code,
            summary: &found.summary,
            detail: &found.detail,
            hint: found.hint.as_deref().unwrap_or_default(),
            file: if found.span.is_some_and(|span| span.source != SourceId(0)) { "variables" } else { "job" },
            start_line,
            start_column,
            end_line,
            end_column,
        }
    }
}

/// Returns the answer to a job file that cannot be parsed: JSON with the place of each problem if the request selects
/// that, otherwise the text alone.
pub(super) fn unparsed(call: &Call, error: ApiError, found: &Diagnostics) -> Result<Reply, ApiError> {
    if !asks(call) && !accepts_json(call) {
        return Err(error);
    }
    // Repetitions of earlier problems are omitted.
    let marks: Vec<Mark<'_>> =
        found.items.iter().filter(|item| !item.echo).map(|item| Mark::new(item, found)).collect();
    let answer = Reply::parsed(json!({ "Error": error.message, "CaravanDiagnostics": marks }))?;
    Ok(answer.status(error.status))
}

/// Adds problems to an answer that is an object; an answer without problems has no such key.
pub(super) fn attach(call: &Call, answer: &mut Value, problems: Vec<JobProblem>) {
    if !problems.is_empty() {
        answer[KEY] = json!(as_written(call, problems));
    }
}

/// Returns the refusal of a job: as JSON if the request selects that, otherwise as the text alone.
pub(super) fn refused(call: &Call, mut error: ApiError) -> Result<Reply, ApiError> {
    if error.problems.is_empty() || !asks(call) {
        return Err(error);
    }
    let problems = as_written(call, std::mem::take(&mut error.problems));
    let answer = Reply::json(json!({ "Error": error.message, KEY: problems }))?;
    Ok(answer.status(error.status))
}

/// Returns problems with the paths that their settings have in the request, and with their places in the job file if
/// the request has it.
fn as_written(call: &Call, problems: Vec<JobProblem>) -> Vec<Value> {
    let submitted = required::<Submitted>(&call.body).unwrap_or_default();
    let job = submitted.job.and_then(|job| serde_json::to_value(job).ok());
    let file = submitted.submission.filter(|text| text.format != "json" && !text.source.is_empty());
    problems.into_iter().map(|problem| placed(problem, job.as_ref(), file.as_ref())).collect()
}

/// Returns a problem as JSON. With a job file in the native notation, the problem has the place of its setting there:
/// `StartLine`, `StartColumn`, `EndLine`, `EndColumn`, as in `CaravanDiagnostics`.
fn placed(mut problem: JobProblem, job: Option<&Value>, file: Option<&Text>) -> Value {
    if let Some(job) = job {
        problem.path = problem.path.written_in(job);
    }
    let mut out = json!(problem);
    if let (Some(job), Some(file)) = (job, file) {
        let mut sources = Sources::default();
        let id = sources.add(Source::new("job", &file.source));
        let place = Place::of_path(&problem.path, job);
        if let Some(span) = locate(&sources, id, &place.blocks, &place.arguments) {
            let (start_line, start_column) = sources.line_column(id, span.start);
            let (end_line, end_column) = sources.line_column(id, span.end);
            out["StartLine"] = json!(start_line);
            out["StartColumn"] = json!(start_column);
            out["EndLine"] = json!(end_line);
            out["EndColumn"] = json!(end_column);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_hcl::job::{ParseOptions, parse};

    #[test]
    fn a_problem_has_its_place_in_the_job_file() {
        let file = "job \"a\" {\n  group \"g\" {\n    task \"t\" {\n      resources {\n        cpu = 0\n      }\n    }\n  }\n}\n";
        let job = json!({"ID": "a", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Resources": {"CPU": 0}}]}]});
        let problem = |path: &str| JobProblem {
            path: path.parse().unwrap(),
            code: "below_minimum".into(),
            text: "minimum CPU value is 1; got 0".into(),
            severity: api::Severity::Error,
        };
        let text = Text { source: file.to_owned(), format: "hcl2".to_owned() };
        let found = placed(problem("TaskGroups[0].Tasks[0].Resources.CPU"), Some(&job), Some(&text));
        assert_eq!((&found["StartLine"], &found["StartColumn"]), (&json!(5), &json!(9)), "{found}");
        // A setting that is missing leads to the block that lacks the setting.
        let found = placed(problem("TaskGroups[0].Tasks[0].Driver"), Some(&job), Some(&text));
        assert_eq!(found["StartLine"], json!(3), "{found}");
        let bare = placed(problem("Priority"), Some(&job), None);
        assert_eq!(bare.get("StartLine"), None, "{bare}");
    }

    #[test]
    fn a_mark_names_the_file_and_the_characters() {
        let mut options = ParseOptions::default();
        options.var_files.push(caravan_hcl::Source::new("input.hcl", "x = \n"));
        let source = caravan_hcl::Source::new("input.hcl", "job \"ä\" {\n  priority = \"ü\" !\n}\n");
        let found = parse(&source, &options).unwrap_err();
        let marks: Vec<Mark<'_>> = found.items.iter().map(|item| Mark::new(item, &found)).collect();
        let of_job = marks.iter().find(|mark| mark.file == "job").unwrap();
        assert_eq!((of_job.severity, of_job.start_line), ("error", 2), "{marks:?}");
        assert!(of_job.start_column > 1 && of_job.end_column >= of_job.start_column, "{marks:?}");
        assert!(!of_job.code.is_empty() && !of_job.summary.is_empty());
    }
}
