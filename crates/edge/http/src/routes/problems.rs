//! Problems of a job as data, beside the text that clients of Nomad know (docs/design/http-api.md).

use crate::body::{Elsewhere, bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_api::{self as api, JobProblem};
use caravan_hcl::diag::{Diagnostic, Diagnostics, Severity};
use caravan_hcl::source::SourceId;
use serde::Serialize;
use serde_json::{Value, json};

/// Key of answers.
pub(super) const KEY: &str = "CaravanProblems";
/// Parameter of requests whose refusals are JSON.
const ASKS: &str = "caravan_problems";

bodies! {
    /// The job of any body that has one.
    Submitted("JobRegisterRequest") {
        job: Option<api::Job> = "Job";
        namespace: Elsewhere = "Namespace";
    }
}

/// A problem of a job file with its place. Lines and columns count from 1, columns count characters; 0 means no place.
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

/// Answers a job file that cannot be parsed: as JSON with the place of each problem if the request asks for that, else
/// as the text alone.
pub(super) fn unparsed(call: &Call, error: ApiError, found: &Diagnostics) -> Result<Reply, ApiError> {
    if call.query.flag(ASKS).ok().flatten() != Some(true) {
        return Err(error);
    }
    // People are not shown repetitions of earlier problems.
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

/// Answers a refusal of a job: as JSON if the request asks for that, else as the text alone.
pub(super) fn refused(call: &Call, mut error: ApiError) -> Result<Reply, ApiError> {
    if error.problems.is_empty() || call.query.flag(ASKS).ok().flatten() != Some(true) {
        return Err(error);
    }
    let problems = as_written(call, std::mem::take(&mut error.problems));
    let answer = Reply::json(json!({ "Error": error.message, KEY: problems }))?;
    Ok(answer.status(error.status))
}

/// Returns problems with the paths that their settings have in the request.
fn as_written(call: &Call, mut problems: Vec<JobProblem>) -> Vec<JobProblem> {
    let submitted = required::<Submitted>(&call.body).ok().and_then(|body| body.job);
    if let Some(job) = submitted.and_then(|job| serde_json::to_value(job).ok()) {
        for problem in &mut problems {
            problem.path = problem.path.written_in(&job);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_hcl::job::{ParseOptions, parse};

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
