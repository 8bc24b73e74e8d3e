//! The native notation of HCL2: files, blocks and attributes.
//!
//! A parser of our own rather than a library's: places of errors are part of the contract with users
//! of the reference, and one file can have several (docs/adr/0004-hcl.md).

use std::collections::HashMap;

use super::MAX_DEPTH;
use crate::ast::{Attribute, Block, Body, Expr, Name};
use crate::diag::Diagnostic;
use crate::source::{SourceId, Span};

/// How many errors of one file are collected.
const MAX_ERRORS: usize = 20;

/// An error has been recorded; the caller recovers or gives up.
#[derive(Debug)]
pub(super) struct Failed;

pub(super) type Parsed<T> = Result<T, Failed>;

/// A cursor over one text.
#[derive(Debug)]
pub(super) struct Parser<'t> {
    pub text: &'t str,
    pub pos: usize,
    /// The parser looks no further than this byte.
    pub limit: usize,
    source: SourceId,
    /// Texts that are not in a file (JSON strings after unescaping) report this place for everything.
    fixed: Option<Span>,
    pub depth: usize,
    /// Operators and computed steps of the argument that is being read.
    pub links: usize,
    /// Inside parentheses and brackets line ends are blanks; inside braces they are not.
    pub newlines: Vec<bool>,
    pub errors: Vec<Diagnostic>,
}

/// Parses a whole file.
///
/// # Errors
/// All syntax errors that were found.
pub fn parse_body(text: &str, source: SourceId) -> Result<Body, Vec<Diagnostic>> {
    let mut parser = Parser::new(text, source, None);
    if text.starts_with('\u{feff}') {
        parser.pos = '\u{feff}'.len_utf8();
    }
    let body = parser.body(None);
    if parser.errors.is_empty() { Ok(body) } else { Err(parser.errors) }
}

/// Parses an expression that fills the text.
///
/// # Errors
/// Syntax errors, or text after the expression.
pub fn parse_expression(text: &str, source: SourceId) -> Result<Expr, Vec<Diagnostic>> {
    let mut parser = Parser::new(text, source, None);
    parser.newlines.push(true);
    let parsed = parser.expression();
    parser.blanks();
    if parsed.is_ok() && parser.pos < parser.limit {
        let span = parser.span(parser.pos, parser.limit);
        parser.error(
            "E0108",
            span,
            "Extra characters after expression",
            "An expression was successfully parsed, but extra characters were found after it.",
        );
    }
    match parsed {
        Ok(expr) if parser.errors.is_empty() => Ok(expr),
        _ => Err(parser.errors),
    }
}

/// Parses a text as a template, as strings of HCL-JSON are; every part gets the place `place`.
///
/// # Errors
/// Syntax errors in its interpolations.
pub fn parse_template_text(text: &str, place: Span) -> Result<Expr, Vec<Diagnostic>> {
    let mut parser = Parser::new(text, place.source, Some(place));
    match parser.whole_template(place) {
        Ok(expr) if parser.errors.is_empty() => Ok(expr),
        _ => Err(parser.errors),
    }
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, source: SourceId, fixed: Option<Span>) -> Self {
        Self {
            text,
            pos: 0,
            limit: text.len(),
            source,
            fixed,
            depth: 0,
            links: 0,
            newlines: vec![false],
            errors: Vec::new(),
        }
    }

    pub(super) fn span(&self, start: usize, end: usize) -> Span {
        self.fixed.unwrap_or(Span { source: self.source, start, end })
    }

    pub(super) fn error(
        &mut self,
        code: &'static str,
        span: Span,
        summary: &str,
        detail: impl Into<String>,
    ) -> Failed {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(Diagnostic::error(code, span, summary, detail));
        }
        Failed
    }

    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.pos..self.limit]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn at(&self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let found = self.at(token);
        if found {
            self.pos += token.len();
        }
        found
    }

    /// The place of the next character, empty at the end.
    pub(super) fn next_span(&self) -> Span {
        let width = self.peek().map_or(0, char::len_utf8);
        self.span(self.pos, self.pos + width)
    }

    /// Skips blanks and comments, and line ends where they mean nothing.
    pub(super) fn blanks(&mut self) {
        let newlines = self.newlines.last().copied().unwrap_or_default();
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.pos += 1,
                Some('\r') if self.at("\r\n") && !newlines => return,
                Some('\n' | '\r') if newlines => self.pos += 1,
                Some('#') => self.line_comment(),
                Some('/') if self.at("//") => self.line_comment(),
                Some('/') if self.at("/*") => match self.rest()[2..].find("*/") {
                    Some(i) => self.pos += i + 4,
                    None => {
                        let span = self.span(self.pos, self.pos + 2);
                        self.error(
                            "E0101",
                            span,
                            "Unterminated comment",
                            "There is no \"*/\" that ends this comment.",
                        );
                        self.pos = self.limit;
                    }
                },
                _ => return,
            }
        }
    }

    fn line_comment(&mut self) {
        self.pos += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    /// Skips blanks, comments and line ends.
    pub(super) fn blank_lines(&mut self) {
        self.newlines.push(true);
        self.blanks();
        self.newlines.pop();
    }

    pub(super) fn identifier(&mut self) -> Option<Name> {
        let rest = self.rest();
        let mut chars = rest.char_indices();
        if !chars.next().is_some_and(|(_, c)| c.is_alphabetic() || c == '_') {
            return None;
        }
        let length = chars
            .find(|(_, c)| !(c.is_alphanumeric() || *c == '_' || *c == '-'))
            .map_or(rest.len(), |(i, _)| i);
        let name = Name { text: rest[..length].to_owned(), span: self.span(self.pos, self.pos + length) };
        self.pos += length;
        Some(name)
    }

    /// One level deeper, or the error that it is too deep.
    pub(super) fn deeper(&mut self) -> Parsed<()> {
        if self.depth >= MAX_DEPTH {
            let span = self.next_span();
            return Err(self.error(
                "E0109",
                span,
                "Nesting too deep",
                format!("Blocks and expressions may be nested at most {MAX_DEPTH} levels deep."),
            ));
        }
        self.depth += 1;
        Ok(())
    }

    /// Items up to the closing brace of `open`, or to the end of the file. Always comes back with what could
    /// be read; errors are recorded.
    fn body(&mut self, open: Option<usize>) -> Body {
        let start = open.unwrap_or(0);
        let mut body = Body::default();
        let mut seen: HashMap<String, Span> = HashMap::new();
        loop {
            self.blank_lines();
            match self.peek() {
                None => {
                    if let Some(open) = open {
                        let span = self.span(open, open + 1);
                        self.error("E0102", span, "Unclosed configuration block", "There is no closing brace for this block before the end of the file. This may be caused by incorrect brace nesting elsewhere in this file.");
                        self.newlines.truncate(1);
                    }
                    break;
                }
                Some('}') if open.is_some() => {
                    self.pos += 1;
                    break;
                }
                Some(_) => {}
            }
            let before = self.pos;
            if self.item(&mut body, &mut seen).is_err() {
                if self.errors.len() >= MAX_ERRORS {
                    self.pos = self.limit;
                    break;
                }
                self.newlines.truncate(1);
                self.recover(before);
            }
        }
        body.span = self.span(start, self.pos);
        body
    }

    /// After an error: go on at the next line that is not within braces opened since.
    fn recover(&mut self, from: usize) {
        let opened = |text: &str| text.matches('{').count() as i64 - text.matches('}').count() as i64;
        let mut level = opened(&self.text[from..self.pos.max(from)]).max(0);
        if self.pos == from {
            self.pos += self.peek().map_or(0, char::len_utf8);
        }
        while let Some(c) = self.peek() {
            match c {
                '\n' if level <= 0 => break,
                '}' if level <= 0 => break,
                '{' => level += 1,
                '}' => level -= 1,
                _ => {}
            }
            self.pos += c.len_utf8();
        }
    }

    fn item(&mut self, body: &mut Body, seen: &mut HashMap<String, Span>) -> Parsed<()> {
        let Some(name) = self.identifier() else { return Err(self.not_an_item()) };
        self.blanks();
        match self.peek() {
            Some('=') if !self.at("==") => {
                self.pos += 1;
                self.blanks();
                self.links = 0;
                let value = self.expression()?;
                self.end_of_item("argument definition")?;
                if let Some(first) = seen.get(&name.text) {
                    let first = *first;
                    self.errors.push(redefined(self.text, &name, first));
                } else {
                    seen.insert(name.text.clone(), name.span);
                    body.attributes.push(Attribute { name, value });
                }
                Ok(())
            }
            Some('"' | '{') => self.block(name, body),
            Some(c) if c.is_alphabetic() || c == '_' => self.block(name, body),
            Some(c) => {
                let span = self.next_span();
                let detail = if c == ':' {
                    "An equals sign (\"=\") is expected after an argument name, not a colon.".to_owned()
                } else {
                    "An argument or block definition is required here. To set an argument, use the equals sign \"=\" to introduce the argument value.".to_owned()
                };
                Err(self.error("E0103", if matches!(c, '\n' | '\r') { name.span } else { span }, "Argument or block definition required", detail))
            }
            None => Err(self.error(
                "E0103",
                name.span,
                "Invalid block definition",
                "The file ends after this name; an argument (\"name = value\") or a block (\"name { ... }\") is required.",
            )),
        }
    }

    fn not_an_item(&mut self) -> Failed {
        let span = self.next_span();
        match self.peek() {
            Some('"') => {
                self.error("E0104", span, "Invalid argument name", "Argument names must not be quoted.")
            }
            Some('}') => self.error(
                "E0103",
                span,
                "Argument or block definition required",
                "An argument or block definition is required here; this closing brace has no opening one.",
            ),
            Some('\'') => self.single_quote(span),
            _ => self.error(
                "E0103",
                span,
                "Argument or block definition required",
                "An argument or block definition is required here.",
            ),
        }
    }

    pub(super) fn single_quote(&mut self, span: Span) -> Failed {
        self.error(
            "E0105",
            span,
            "Invalid character",
            "Single quotes are not valid. Use double quotes (\") to enclose strings.",
        )
    }

    fn block(&mut self, kind: Name, body: &mut Body) -> Parsed<()> {
        let mut labels = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                Some('{') => break,
                Some('"') => labels.push(self.quoted_name()?),
                _ => match self.identifier() {
                    Some(name) => labels.push(name),
                    None => {
                        let span = self.next_span();
                        return Err(self.error("E0103", span, "Invalid block definition", "Either a quoted string block label or an opening brace (\"{\") is expected here."));
                    }
                },
            }
        }
        let open = self.pos;
        self.pos += 1;
        self.deeper()?;
        self.newlines.push(false);
        let inner = self.body(Some(open));
        self.newlines.pop();
        if self.newlines.is_empty() {
            self.newlines.push(false);
        }
        self.depth -= 1;
        body.blocks.push(Block { kind, labels, body: inner });
        self.end_of_item("block definition")
    }

    /// After an item: the end of the line, the end of the block, or the end of the file.
    fn end_of_item(&mut self, what: &str) -> Parsed<()> {
        self.blanks();
        match self.peek() {
            None | Some('\n' | '}') => Ok(()),
            Some('\r') => Ok(()),
            Some('\'') => {
                let span = self.next_span();
                Err(self.single_quote(span))
            }
            Some(_) => {
                let span = self.next_span();
                Err(self.error(
                    "E0106",
                    span,
                    &format!("Missing newline after {}", what.split(' ').next().unwrap_or(what)),
                    format!(
                        "Each {what} must end with a newline (or the closing brace of a one-line block)."
                    ),
                ))
            }
        }
    }

    /// A label or key in quotes, without templates.
    fn quoted_name(&mut self) -> Parsed<Name> {
        let start = self.pos;
        let text = self.plain_string()?;
        Ok(Name { text, span: self.span(start, self.pos) })
    }
}

/// The error for an argument that was set before. `first` is in the same text.
fn redefined(text: &str, name: &Name, first: Span) -> Diagnostic {
    let line = text[..first.start.min(text.len())].matches('\n').count() + 1;
    Diagnostic::error(
        "E0107",
        name.span,
        "Attribute redefined",
        format!(
            "The argument {:?} was already set in line {line}. Each argument may be set only once.",
            name.text
        ),
    )
    .label(first, "first set here")
}
