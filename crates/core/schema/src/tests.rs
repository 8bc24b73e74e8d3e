//! Tests of schemas and of decoding.

mod decoding;
mod properties;
mod schemas;

use crate::{Problem, RawSpec, Spec, Value, decode};
use serde_json::Value as Json;

fn object<const N: usize>(parts: [(&str, RawSpec); N]) -> RawSpec {
    RawSpec::Object(parts.into_iter().map(|(key, part)| (key.to_owned(), part)).collect())
}

fn attr(name: &str, ty: &str) -> RawSpec {
    RawSpec::Attr { name: name.to_owned(), ty: ty.to_owned(), required: false }
}

fn required(name: &str, ty: &str) -> RawSpec {
    RawSpec::Attr { name: name.to_owned(), ty: ty.to_owned(), required: true }
}

fn block(name: &str, nested: RawSpec) -> RawSpec {
    RawSpec::Block { name: name.to_owned(), required: false, nested: Box::new(nested) }
}

fn block_attrs(name: &str, ty: &str, required: bool) -> RawSpec {
    RawSpec::BlockAttrs { name: name.to_owned(), ty: ty.to_owned(), required }
}

fn block_list(name: &str, min: u64, max: u64, nested: RawSpec) -> RawSpec {
    RawSpec::BlockList { name: name.to_owned(), min, max, nested: Box::new(nested) }
}

fn block_set(name: &str, nested: RawSpec) -> RawSpec {
    RawSpec::BlockSet { name: name.to_owned(), min: 0, max: 0, nested: Box::new(nested) }
}

fn block_map(name: &str, labels: &[&str], nested: RawSpec) -> RawSpec {
    let labels = labels.iter().map(|&label| label.to_owned()).collect();
    RawSpec::BlockMap { name: name.to_owned(), labels, nested: Box::new(nested) }
}

fn default(primary: RawSpec, literal: &str) -> RawSpec {
    let default = Box::new(RawSpec::Literal(literal.to_owned()));
    RawSpec::Default { primary: Box::new(primary), default }
}

fn run(raw: &RawSpec, config: &Json) -> Result<Value, Vec<Problem>> {
    decode(&Spec::new(raw).unwrap(), config)
}

/// Returns the decoded configuration as JSON.
fn decoded(raw: &RawSpec, config: Json) -> Json {
    run(raw, &config).unwrap_or_else(|problems| panic!("{config}: {problems:?}")).to_json()
}

/// Returns the texts of the problems.
fn problems(raw: &RawSpec, config: Json) -> Vec<String> {
    let problems = run(raw, &config).expect_err("the configuration is valid");
    problems.iter().map(ToString::to_string).collect()
}
