//! Parses the job language: converts a text and its variables to a job in API JSON (docs/reference/jobspec.md,
//! sections 1 to 4).

mod api_json;
mod drivers;
mod locals;
pub mod locate;
mod references;
pub mod tables;
#[cfg(test)]
mod tests;
mod variables;

use caravan_api as api;
use serde_json::Value as Json;
use std::path::PathBuf;

pub use self::api_json::{parse_api_json, printed as api_json_as_printed};
pub use self::variables::VarInput;
use crate::ast::{Block, Body};
use crate::diag::{Diagnostic, Diagnostics, Severity};
use crate::eval::functions::Files;
use crate::eval::{Evaluator, Scope};
use crate::parse;
use crate::parse::json::{Members, Strings};
use crate::schema::{Decoder, Header, unexpected};
use crate::source::{Source, Sources};

/// The inputs of parsing in addition to the job file.
#[derive(Clone, Debug, Default)]
pub struct ParseOptions {
    /// Values of `-var name=value`, in order.
    pub variables: Vec<VarInput>,
    /// The environment. Only `NOMAD_VAR_name` and `CARAVAN_VAR_name` are used.
    pub env: Vec<(String, String)>,
    /// Variable files found next to the job file, in order. Those in `var_files` override them. They may set
    /// variables that this job does not declare.
    pub auto_files: Vec<Source>,
    /// Variable files, in order. A file named `*.json` is JSON.
    pub var_files: Vec<Source>,
    /// Whether values for undeclared variables are errors rather than warnings.
    pub strict: bool,
    /// The directory that file functions may read. Without it, they fail.
    pub file_functions: Option<PathBuf>,
}

/// Parses a job file. The result is not canonical: unset fields stay unset.
///
/// # Errors
/// All problems of the file or its variables.
pub fn parse(source: &Source, options: &ParseOptions) -> Result<(api::Job, Diagnostics), Diagnostics> {
    let mut sources = Sources::default();
    let id = sources.add(source.clone());
    let mut items = Vec::new();
    let job = match parse::parse(&sources, id) {
        Ok(body) => read(&body, options, &mut sources, &mut items),
        Err(errors) => {
            items = errors;
            None
        }
    };
    let found = Diagnostics { items, sources };
    match job {
        Some(job) if !found.has_errors() => Ok((job, found)),
        _ => Err(found),
    }
}

/// Reads the top level: `variable`, `variables`, `locals` and one `job`.
fn read(
    body: &Body,
    options: &ParseOptions,
    sources: &mut Sources,
    items: &mut Vec<Diagnostic>,
) -> Option<api::Job> {
    let from_json;
    let is_json = body.json.is_some();
    let body = match &body.json {
        None => body,
        Some(json) => {
            let member = Members::Table(&|name| tables::FILE.member(name));
            from_json = json.read(Strings::Templates, member, items);
            &from_json
        }
    };
    items.extend(unexpected(body, &tables::FILE, is_json));
    let jobs: Vec<&Block> = body.blocks.iter().filter(|b| b.kind.text == "job").collect();
    let Some(job) = jobs.first() else {
        if items.is_empty() {
            items.push(Diagnostic::error("E0412", None, "Missing job block", "A job block is required"));
        }
        return None;
    };
    if let Some(second) = jobs.get(1) {
        let error = Diagnostic::error(
            "E0412",
            second.header,
            "Duplicate job block",
            format!(
                "Only one block of type \"job\" is allowed. Previous definition was at {}.",
                sources.show(job.header)
            ),
        );
        items.push(error.label(job.header, "the first job"));
    }
    let files = options.file_functions.clone().map_or(Files::Off, Files::Within);
    let mut evaluator = Evaluator::new(files);
    variables::load(body, options, &mut evaluator, sources, items);
    if items.iter().any(|d| d.severity == Severity::Error) {
        return None;
    }
    locals::load(body, &mut evaluator, items);
    if items.iter().any(|d| d.severity == Severity::Error) {
        return None;
    }
    decode(job, &evaluator, items)
}

fn decode(job: &Block, evaluator: &Evaluator, items: &mut Vec<Diagnostic>) -> Option<api::Job> {
    let mut decoder = Decoder::new(evaluator);
    match job.labels.as_slice() {
        [_] => {}
        [] => {
            items.push(Diagnostic::error(
                "E0403",
                job.brace(),
                "Missing name for job",
                "All job blocks must have 1 labels (name).",
            ));
            return None;
        }
        [_, extra, ..] => {
            items.push(Diagnostic::error(
                "E0403",
                extra.span,
                "Extraneous label for job",
                "Only 1 labels (name) are expected for job blocks.",
            ));
            return None;
        }
    }
    let header = Header { span: job.header, labels: &job.labels, arguments: &[] };
    let object = decoder.body(&job.body, &tables::JOB, &header, &Scope::default());
    items.append(&mut decoder.errors);
    items.append(&mut decoder.warnings);
    drivers::check(&job.body, items);
    match api::from_owned::<api::Job>(Json::Object(object)) {
        Ok(job) => Some(job),
        Err(error) => {
            items.push(Diagnostic::error(
                "E0413",
                job.header,
                "Job cannot be represented",
                format!("{error}."),
            ));
            None
        }
    }
}
