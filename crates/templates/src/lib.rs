//! Task templates: the text of one, rendered from what is known, together with what else it would have to know
//! (docs/reference/jobspec.md, section 4.8).
//!
//! Templates are Go templates ([`gotmpl`]) with the functions that users of such templates know. [`render`] is a pure
//! function: variables, services and files are [`Need`]s, which whoever renders looks up and gives with the next try.
//! A render with needs that are not known answers them in [`Rendered::missing`] and no text that may be used.
//!
//! A template comes from whoever submits jobs, so what it may do is bounded: how deep it nests, how long its text and
//! its values are, how much it works ([`limits`]); and who renders can stop it ([`Inputs::stop`]).

pub mod env_file;
pub mod limits;

mod functions;
mod go_time;
mod json;
mod session;
mod tree;
mod value;
mod yaml;

use caravan_types::lookup::{Found, Lookup};
use caravan_types::{Namespace, UnixNanos};
use session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// A template as a job file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its text.
    pub text: String,
    /// What begins an action; empty for `{{`.
    pub left: String,
    /// What ends an action; empty for `}}`.
    pub right: String,
    /// A key that is not there is an error, and not nothing.
    pub error_on_missing_key: bool,
}

/// Something outside of the template that it reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// From the servers.
    Lookup(Lookup),
    /// From a file of the task, by the path that the template has.
    File(String),
}

impl Need {
    /// What task events call it.
    #[must_use]
    pub fn describe(&self, region: &str) -> String {
        match self {
            Self::Lookup(lookup) => lookup.describe(region),
            Self::File(path) => format!("file({path})"),
        }
    }
}

/// What a template is rendered from. `Debug` shows no values.
#[derive(Clone, Default)]
pub struct Inputs {
    /// The environment of the task.
    pub env: Arc<BTreeMap<String, String>>,
    /// Namespace of the job: where variables and services are looked for.
    pub namespace: Namespace,
    /// The region; no other can be read.
    pub region: String,
    /// What was looked up.
    pub found: Arc<BTreeMap<Lookup, Found>>,
    /// What was read.
    pub files: Arc<BTreeMap<String, String>>,
    /// What the template takes for the present.
    pub now: UnixNanos,
    /// Where its random values begin.
    pub seed: u64,
    /// Set to end a render that takes too long.
    pub stop: Arc<AtomicBool>,
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs")
            .field("found", &self.found.keys())
            .field("files", &self.files.keys())
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// What a render came to. `Debug` does not show the text, which may hold secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text; to be used only if nothing is missing.
    pub text: String,
    /// All that was asked for.
    pub needs: BTreeSet<Need>,
    /// What was asked for and must be there, and is not known or not there.
    pub missing: BTreeSet<Need>,
}

impl fmt::Debug for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendered")
            .field("bytes", &self.text.len())
            .field("needs", &self.needs)
            .field("missing", &self.missing)
            .finish()
    }
}

/// Why a template cannot be rendered, however long one waits.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// It is longer than a template may be.
    #[error("the template is longer than {} KiB", limits::TEMPLATE / 1024)]
    TooLong,
    /// It cannot be read.
    #[error("the template cannot be parsed: {0}")]
    Syntax(String),
    /// It names a function that does not exist, or that is not offered here.
    #[error("{0}")]
    Function(String),
    /// It cannot be carried out.
    #[error("the template cannot be rendered: {0}")]
    Failed(String),
}

/// Whether a template could be rendered, as far as its text tells: it can be parsed, and its functions are there.
///
/// # Errors
/// If it never can be.
pub fn check(template: &Template) -> Result<(), Fault> {
    if template.text.len() > limits::TEMPLATE {
        return Err(Fault::TooLong);
    }
    let session = Arc::new(Session::new(Inputs::default(), false));
    tree::read(template, &session).map(drop)
}

/// Renders a template.
///
/// # Errors
/// If it is wrong, does something that fails, or does more than [`limits`] allow.
pub fn render(template: &Template, inputs: &Inputs) -> Result<Rendered, Fault> {
    if template.text.len() > limits::TEMPLATE {
        return Err(Fault::TooLong);
    }
    let session = Arc::new(Session::new(inputs.clone(), template.error_on_missing_key));
    let ready = tree::read(template, &session)?;
    let mut out = session::Bounded::new(limits::OUTPUT);
    let done = ready.execute_template_fmt(&mut out, tree::MAIN, &gotmpl::Value::Nil);
    let (needs, missing, fault) = session.finish();
    let rendered = |text| Rendered { text, needs, missing: missing.clone() };
    match (fault, done) {
        (Some(fault), _) => Err(fault),
        // What failed may have failed because something is not known.
        (None, Err(_)) if !missing.is_empty() => Ok(rendered(String::new())),
        (None, Err(error)) => Err(Fault::Failed(match out.full() {
            true => format!("it is longer than {} MiB", limits::OUTPUT / (1024 * 1024)),
            false => session::plain(&error),
        })),
        (None, Ok(())) => Ok(rendered(out.into_text())),
    }
}

#[cfg(test)]
mod tests;
