//! Diagnostics as data. [`render`] formats them.

pub mod render;

use std::fmt;

pub use caravan_types::words::nearest;

use crate::source::{Sources, Span};

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The input is rejected.
    Error,
    /// The input is accepted, but a part of it has no effect or an unexpected one.
    Warning,
}

/// A related source range with a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The source range.
    pub span: Span,
    /// The note about the range.
    pub text: String,
}

/// One diagnostic about an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the input is rejected.
    pub severity: Severity,
    /// The stable code, such as `E0101`.
    pub code: &'static str,
    /// A summary of a few words.
    pub summary: String,
    /// An explanation in whole sentences.
    pub detail: String,
    /// The source range. Absent if the diagnostic is about no particular place.
    pub span: Option<Span>,
    /// Related source ranges.
    pub labels: Vec<Label>,
    /// A suggested fix.
    pub hint: Option<String>,
    /// Whether the diagnostic only repeats that an earlier error left no value. Output for programs may need its
    /// text, as Nomad prints that text. Output for people omits the diagnostic.
    pub echo: bool,
}

impl Diagnostic {
    /// Creates an error with a source range.
    pub fn error(
        code: &'static str,
        span: impl Into<Option<Span>>,
        summary: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            code,
            summary: summary.into(),
            detail: detail.into(),
            span: span.into(),
            labels: Vec::new(),
            hint: None,
            echo: false,
        }
    }

    /// Creates a warning with a source range.
    pub fn warning(
        code: &'static str,
        span: impl Into<Option<Span>>,
        summary: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, summary, detail) }
    }

    /// Adds a related source range.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Marks the diagnostic as a consequence of an earlier error.
    #[must_use]
    pub fn echo(mut self) -> Self {
        self.echo = true;
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Formats the diagnostic as `<file>:<line>,<col>-<col>: <Summary>; <Detail>`.
    #[must_use]
    pub fn one_line(&self, sources: &Sources) -> String {
        match self.span {
            Some(span) => format!("{}: {}; {}", sources.show(span), self.summary, self.detail),
            None => format!("{}; {}", self.summary, self.detail),
        }
    }
}

/// Diagnostics with the source texts that they are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// The diagnostics, in the order in which they were reported.
    pub items: Vec<Diagnostic>,
    /// The source texts.
    pub sources: Sources,
}

impl Diagnostics {
    /// Returns whether any diagnostic is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Writes one line per diagnostic.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.items.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&item.one_line(&self.sources))?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
