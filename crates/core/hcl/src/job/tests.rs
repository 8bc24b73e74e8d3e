//! Tests of the job language as a whole.

mod attributes;
mod blocks;
mod places;
mod warnings;

use super::{ParseOptions, parse};
use crate::diag::Diagnostics;
use crate::source::Source;

fn read(text: &str) -> Result<(serde_json::Value, Diagnostics), Diagnostics> {
    let (job, found) =
        parse(&Source::new("f", text), &ParseOptions { strict: true, ..ParseOptions::default() })?;
    Ok((serde_json::to_value(job).unwrap(), found))
}
