//! Source texts and ranges in them.

use std::fmt;

/// A source text with its name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file name, or a description such as `<value for var.x from arguments>`.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// Creates a named source text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

/// The id of a text in [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// A byte range of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The id of the text.
    pub source: SourceId,
    /// The offset of the first byte.
    pub start: usize,
    /// The offset after the last byte.
    pub end: usize,
}

impl Span {
    /// Returns the range from the start of this one to the end of `other`.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self { end: other.end.max(self.end), ..self }
    }

    /// Returns the empty range at the start.
    #[must_use]
    pub fn at_start(self) -> Self {
        Self { end: self.start, ..self }
    }
}

/// All source texts of one run, which give spans their text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    texts: Vec<Source>,
}

impl Sources {
    /// Adds a text and returns its id.
    pub fn add(&mut self, source: Source) -> SourceId {
        self.texts.push(source);
        SourceId(u32::try_from(self.texts.len() - 1).unwrap_or(u32::MAX))
    }

    /// Returns the text of an id.
    #[must_use]
    pub fn get(&self, id: SourceId) -> Option<&Source> {
        self.texts.get(id.0 as usize)
    }

    /// Returns line and column of a byte, both from 1; columns count characters.
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

    /// Formats a span as `file:line,column-column`, with the end's line if it differs.
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
