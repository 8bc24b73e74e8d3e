//! Diagnostics as data; how they look is decided by [`render`].

pub mod render;

use std::fmt;

pub use caravan_types::words::nearest;

use crate::source::{Sources, Span};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The input is refused.
    Error,
    /// The input is taken, but something in it does not do what it seems to.
    Warning,
}

/// A related place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What is there.
    pub text: String,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Stable code, `E0101`.
    pub code: &'static str,
    /// A few words.
    pub summary: String,
    /// Whole sentences.
    pub detail: String,
    /// The place, where there is one.
    pub span: Option<Span>,
    /// Related places.
    pub labels: Vec<Label>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether it only says that an earlier error left no value. Programs know it from the reference's texts; people
    /// are not shown it.
    pub echo: bool,
}

impl Diagnostic {
    /// An error at a place.
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

    /// A warning at a place.
    pub fn warning(
        code: &'static str,
        span: impl Into<Option<Span>>,
        summary: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, summary, detail) }
    }

    /// Adds a related place.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Marks it as one that follows from an earlier error.
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

    /// `<file>:<line>,<col>-<col>: <Summary>; <Detail>`.
    #[must_use]
    pub fn one_line(&self, sources: &Sources) -> String {
        match self.span {
            Some(span) => format!("{}: {}; {}", sources.show(span), self.summary, self.detail),
            None => format!("{}; {}", self.summary, self.detail),
        }
    }
}

/// Findings with the texts that they are about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// The findings, in the order in which they were made.
    pub items: Vec<Diagnostic>,
    /// The texts.
    pub sources: Sources,
}

impl Diagnostics {
    /// Whether one of them is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|d| d.severity == Severity::Error)
    }
}

/// One line per finding.
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
