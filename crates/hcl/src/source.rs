//! Texts and places in them.

use std::fmt;

/// A text with the name that messages give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// File name, or a description such as `<value for var.x from arguments>`.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// A text under a name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

/// Which text of a [`Sources`] a span lies in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// A byte range of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The text.
    pub source: SourceId,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// From the start of this one to the end of `other`.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self { end: other.end.max(self.end), ..self }
    }

    /// The empty range at the start.
    #[must_use]
    pub fn at_start(self) -> Self {
        Self { end: self.start, ..self }
    }
}

/// All texts of one run, so that a span can be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    texts: Vec<Source>,
}

impl Sources {
    /// Adds a text.
    pub fn add(&mut self, source: Source) -> SourceId {
        self.texts.push(source);
        SourceId(u32::try_from(self.texts.len() - 1).unwrap_or(u32::MAX))
    }

    /// The text of an id.
    #[must_use]
    pub fn get(&self, id: SourceId) -> Option<&Source> {
        self.texts.get(id.0 as usize)
    }

    /// Line and column, both from 1, of a byte; columns count characters.
    #[must_use]
    pub fn line_column(&self, id: SourceId, byte: usize) -> (usize, usize) {
        let text = self.get(id).map(|s| s.text.as_str()).unwrap_or_default();
        let mut byte = byte.min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        let before = &text[..byte];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// `file:line,column-column`, or with the end's line where it is another one.
    #[must_use]
    pub fn show(&self, span: Span) -> impl fmt::Display + use<> {
        let name = self.get(span.source).map(|s| s.name.clone()).unwrap_or_default();
        let (line, column) = self.line_column(span.source, span.start);
        let (end_line, end_column) = self.line_column(span.source, span.end);
        if line == end_line {
            format!("{name}:{line},{column}-{end_column}")
        } else {
            format!("{name}:{line},{column}-{end_line},{end_column}")
        }
    }
}
