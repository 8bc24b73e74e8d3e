//! The renderer of task templates (docs/reference/jobspec.md, section 4.8), which reports the data that are still
//! missing.
//!
//! Templates are Go templates ([`gotmpl`]) with the functions that users of Nomad's templates expect. [`render`] is a
//! pure function. Variables, services and files are [`Need`]s; the caller looks them up and passes them to the next
//! call. If a need is unknown, [`Rendered::missing`] contains it, and the rendered text must not be used.
//!
//! Every user with the right to submit jobs can submit a template, so its nesting, text, values and work have
//! [`limits`]. The caller can also stop a render ([`Inputs::stop`]).

pub mod env_file;
pub mod limits;
pub mod sockaddr;

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

/// A template as in a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The template's text.
    pub text: String,
    /// The left delimiter of actions. Empty for `{{`.
    pub left: String,
    /// The right delimiter of actions. Empty for `}}`.
    pub right: String,
    /// Whether a missing key is an error instead of an empty value.
    pub error_on_missing_key: bool,
}

/// Data that a template reads from outside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Data that the servers look up.
    Lookup(Lookup),
    /// The content of a task's file. Contains the path as written in the template.
    File(String),
}

impl Need {
    /// Returns the name of the need in task events.
    #[must_use]
    pub fn describe(&self, region: &str) -> String {
        match self {
            Self::Lookup(lookup) => lookup.describe(region),
            Self::File(path) => format!("file({path})"),
        }
    }
}

/// The inputs of a render. `Debug` shows no values.
#[derive(Clone, Default)]
pub struct Inputs {
    /// The task's environment.
    pub env: Arc<BTreeMap<String, String>>,
    /// The job's namespace, in which variables and services are looked up.
    pub namespace: Namespace,
    /// The task's region. A template cannot read from another one.
    pub region: String,
    /// The results of lookups, by lookup.
    pub found: Arc<BTreeMap<Lookup, Found>>,
    /// The contents of files, by path.
    pub files: Arc<BTreeMap<String, String>>,
    /// The current time of the render.
    pub now: UnixNanos,
    /// The seed of the template's random values.
    pub seed: u64,
    /// The flag by which the caller stops a render that takes too long.
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

/// The result of a render. `Debug` does not show the text, which may contain secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The rendered text. Valid only if `missing` is empty.
    pub text: String,
    /// All needs of the template, known or not.
    pub needs: BTreeSet<Need>,
    /// The required needs that are unknown or do not exist.
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

/// The reason why a template cannot be rendered, independent of missing data.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The template's text exceeds its limit.
    #[error("the template is longer than {} KiB", limits::TEMPLATE / 1024)]
    TooLong,
    /// The template does not parse. Contains the reason.
    #[error("the template cannot be parsed: {0}")]
    Syntax(String),
    /// The template names a function that does not exist or is disabled. Contains the reason.
    #[error("{0}")]
    Function(String),
    /// The render failed. Contains the reason.
    #[error("the template cannot be rendered: {0}")]
    Failed(String),
}

/// Checks that a template parses and that its functions exist.
///
/// # Errors
/// Fails if the template can never be rendered.
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
/// Fails if the template is invalid, calls a function that fails, or exceeds [`limits`].
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
        // The failure may be due to missing data.
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
