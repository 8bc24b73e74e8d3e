//! One function for each kind of untrusted text: it must return in bounded time and memory for any text. The fuzz
//! targets in `fuzz/` call these functions, and tests call them with the fuzz seeds.

use crate::ast::Body;
use crate::diag::{Diagnostic, Diagnostics, render};
use crate::eval::functions::Files;
use crate::eval::{Evaluator, Scope};
use crate::job::{ParseOptions, VarInput, parse as parse_job};
use crate::parse::{hcl1, json, native};
use crate::source::{Source, SourceId, Sources};

/// Renders errors in all formats. Each error must have a range within the text.
fn shown(result: Result<Body, Vec<Diagnostic>>, sources: &Sources) {
    let Err(items) = result else { return };
    assert!(!items.is_empty(), "a refusal has a reason");
    show(&Diagnostics { items, sources: sources.clone() });
}

fn show(found: &Diagnostics) {
    let _ = found.to_string();
    let _ = render::pretty(found, false);
    let _ = render::json(found);
}

fn sources(text: &str) -> (Sources, SourceId) {
    let mut sources = Sources::default();
    let id = sources.add(Source::new("input", text));
    (sources, id)
}

/// Parses, evaluates and decodes a job file in the native notation.
pub fn hcl2(text: &str) {
    let (sources, id) = sources(text);
    shown(native::parse_body(text, id), &sources);
    let _ = crate::fmt::text(text);
    job(text);
}

/// Runs all steps for a job file in either notation.
pub fn job(text: &str) {
    match parse_job(&Source::new("input", text), &ParseOptions::default()) {
        Ok((mut job, found)) => {
            show(&found);
            caravan_api::canonicalize(&mut job);
            let _ = caravan_api::convert(&job);
        }
        Err(found) => show(&found),
    }
}

/// Parses a text in HCL 1: alone, as a volume specification and as agent configuration.
pub fn hcl1(text: &str) {
    let (sources, id) = sources(text);
    shown(hcl1::parse_body(&sources, id), &sources);
    let _ = crate::volume::parse(text, "input");
    let _ = crate::config::parse(&[Source::new("input", text)]);
    let _ = crate::policy::parse_acl(text, "input");
    let _ = crate::policy::parse_quota(text, "input");
    let _ = crate::policy::parse_node_pool(text, "input");
    let _ = crate::duration::parse_duration(text);
    let _ = crate::duration::parse_size(text);
}

/// Parses HCL-JSON, and a job in API JSON.
pub fn json(text: &str) {
    let (sources, id) = sources(text);
    shown(json::parse_body(text, id), &sources);
    job(text);
    let _ = crate::job::parse_api_json(text);
}

/// Parses and evaluates an expression and a template.
pub fn template(text: &str) {
    let (sources, id) = sources(text);
    let place = crate::source::Span { source: id, start: 0, end: text.len() };
    for parsed in [native::parse_expression(text, id), native::parse_template_text(text, place)] {
        let items = match parsed {
            Ok(expr) => match Evaluator::new(Files::Off).eval(&expr, &Scope::default()) {
                Ok(value) => {
                    let _ = value.to_json();
                    continue;
                }
                Err(error) => vec![*error],
            },
            Err(errors) => errors,
        };
        show(&Diagnostics { items, sources: sources.clone() });
    }
}

/// Parses a variable file in both notations, and a value from the command line.
pub fn variables(text: &str) {
    let job = "variable \"s\" {\n  type = string\n  default = \"\"\n}\nvariable \"l\" {\n  type = list(number)\n  default = []\n}\nvariable \"o\" {\n  type = object({ a = string, b = map(bool) })\n  default = { a = \"\", b = {} }\n}\njob \"a\" {\n  name = jsonencode(var)\n}\n";
    let files = [Source::new("input.vars", text), Source::new("input.vars.json", text)];
    let inputs = ["s", "l", "o"].map(|name| VarInput { name: name.to_owned(), value: text.to_owned() });
    let runs = files
        .into_iter()
        .map(|file| ParseOptions { var_files: vec![file], ..ParseOptions::default() })
        .chain(inputs.map(|input| ParseOptions { variables: vec![input], ..ParseOptions::default() }));
    for options in runs {
        match parse_job(&Source::new("job", job), &options) {
            Ok((_, found)) | Err(found) => show(&found),
        }
    }
}

/// A function of this module that takes an untrusted text.
pub type Probe = fn(&str);

/// All probes, by the names of their fuzz targets.
pub const ALL: &[(&str, Probe)] =
    &[("hcl2", hcl2), ("hcl1", hcl1), ("json", json), ("template", template), ("variables", variables)];
