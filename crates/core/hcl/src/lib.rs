//! HCL2, HCL1 and HCL-JSON: parser, values, evaluator, schema decoding, diagnostics as data; the job
//! language in [`job`], volume specifications in [`volume`], agent configuration in [`config`].
//!
//! Every notation becomes the same syntax tree with source ranges ([`ast`]). Schema tables ([`schema`]) define once
//! which arguments and blocks each body may contain.

pub mod ast;
pub mod config;
pub mod describe;
pub mod diag;
pub mod duration;
pub mod eval;
pub mod explain;
pub mod fmt;
pub mod job;
pub mod parse;
pub mod policy;
pub mod probe;
pub mod schema;
pub mod source;
pub mod types;
pub mod value;
pub mod volume;
pub mod write;

pub use diag::{Diagnostic, Diagnostics, Severity};
pub use source::{Source, Sources, Span};
