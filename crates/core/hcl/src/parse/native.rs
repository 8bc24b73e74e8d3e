//! Parses the native notation of HCL2: files, blocks and attributes.
//!
//! Caravan has its own parser, because the source ranges of errors are part of Nomad compatibility, and one file can
//! have several errors (docs/adr/0004-hcl.md).

use super::MAX_DEPTH;
use super::lexical::first_mistake;
use super::scan::{Seen, redefined, token_width};
use crate::ast::{Attribute, Block, Body, Expr, Name};
use crate::diag::Diagnostic;
use crate::source::{SourceId, Span};

/// The maximum number of errors to collect from one file.
const MAX_ERRORS: usize = 20;

/// An error that has been recorded. The caller recovers or stops.
#[derive(Debug)]
pub(super) struct Failed;

pub(super) type Parsed<T> = Result<T, Failed>;

/// A cursor over a text.
#[derive(Debug)]
pub(super) struct Parser<'t> {
    pub text: &'t str,
    pub pos: usize,
    /// The byte offset at which the text to read ends.
    pub limit: usize,
    source: SourceId,
    /// The range of the outer string, if the text is a string of another text (an unescaped JSON string).
    within: Option<Span>,
    pub depth: usize,
    /// The number of operators and computed steps of the current argument.
    pub links: usize,
    /// The range of the last skipped comment. The comment counts as part of the line end.
    comment: (usize, usize),
    /// The starts of the enclosing templates.
    pub templates: Vec<usize>,
    /// For each open bracket, whether line ends count as spaces: true in parentheses and brackets, false in braces.
    pub newlines: Vec<bool>,
    pub errors: Vec<Diagnostic>,
}

/// Parses a whole file.
///
/// # Errors
/// The syntax errors that were found.
pub fn parse_body(text: &str, source: SourceId) -> Result<Body, Vec<Diagnostic>> {
    let mut parser = Parser::new(text, source, None);
    if text.starts_with('\u{feff}') {
        parser.pos = '\u{feff}'.len_utf8();
    }
    let start = parser.pos;
    let body = parser.body(None);
    if parser.errors.is_empty() {
        return Ok(body);
    }
    let mut errors = std::mem::take(&mut parser.errors);
    if let Some(first) = first_mistake(&mut parser, start) {
        errors.retain(|e| e.span != first.span);
        errors.insert(0, first);
        errors.truncate(MAX_ERRORS);
    }
    Err(errors)
}

/// Parses an expression that spans the whole text.
///
/// # Errors
/// Syntax errors, or text after the expression.
pub fn parse_expression(text: &str, source: SourceId) -> Result<Expr, Vec<Diagnostic>> {
    let mut parser = Parser::new(text, source, None);
    parser.newlines.push(true);
    let parsed = parser.expression();
    parser.blanks();
    if parsed.is_ok() && parser.pos < parser.limit && parser.strange().is_none() {
        let span = parser.next_span();
        let detail = "The expression ends before these characters.";
        parser.error("E0108", span, "Extra characters after expression", detail);
    }
    match parsed {
        Ok(expr) if parser.errors.is_empty() => Ok(expr),
        _ => Err(parser.errors),
    }
}

/// Parses a text as a template, such as a string of HCL-JSON; `place` is the range of the string with its quotes.
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

/// Returns whether a name may begin with this character.
pub(crate) fn begins_name(c: char) -> bool {
    c == '_' || unicode_ident::is_xid_start(c)
}

/// Returns whether a name may continue with this character.
pub(crate) fn continues_name(c: char) -> bool {
    c == '-' || unicode_ident::is_xid_continue(c)
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, source: SourceId, within: Option<Span>) -> Self {
        Self {
            text,
            pos: 0,
            limit: text.len(),
            source,
            within,
            depth: 0,
            links: 0,
            comment: (0, 0),
            templates: Vec::new(),
            newlines: vec![false],
            errors: Vec::new(),
        }
    }

    pub(super) fn span(&self, start: usize, end: usize) -> Span {
        match self.within {
            // Positions ignore escapes, but never exceed the string.
            Some(outer) => {
                let last = outer.end.saturating_sub(1).max(outer.start);
                let place = |at: usize| (outer.start + 1 + at).min(last);
                Span { source: self.source, start: place(start), end: place(end) }
            }
            None => Span { source: self.source, start, end },
        }
    }

    pub(super) fn error(
        &mut self,
        code: &'static str,
        span: Span,
        summary: &str,
        detail: impl Into<String>,
    ) -> Failed {
        // An unknown character is a better explanation than the expected token.
        if self.within.is_none() && span.start == self.pos && self.pos < self.limit {
            if let Some(failed) = self.strange() {
                return failed;
            }
            if let Some(failed) = self.open_comment(span) {
                return failed;
            }
        }
        self.report(code, span, summary, detail)
    }

    pub(super) fn report(
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

    /// Returns the error for an unterminated comment. Nomad reads its first characters as operators.
    fn open_comment(&mut self, span: Span) -> Option<Failed> {
        let begins =
            |at: Option<usize>| at.and_then(|at| self.text.get(at..)).is_some_and(|t| t.starts_with("/*"));
        let at = [Some(self.pos), self.pos.checked_sub(1)].into_iter().find(|at| begins(*at))??;
        let failed = self.report(
            "E0101",
            span,
            "Unterminated comment",
            "There is no \"*/\" that ends the comment that begins here.",
        );
        let comment = self.span(at, at + 2);
        self.label_last(comment, "the comment begins here");
        Some(failed)
    }

    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.pos..self.limit]
    }

    /// Returns the remaining text from a position.
    pub(super) fn rest_from(&self, from: usize) -> &'t str {
        &self.text[from.min(self.limit)..self.limit]
    }

    /// Returns the remaining bytes. Most comparisons are with ASCII, and bytes need no UTF-8 decoding.
    fn bytes(&self) -> &'t [u8] {
        &self.text.as_bytes()[self.pos..self.limit]
    }

    pub(super) fn peek(&self) -> Option<char> {
        match self.bytes().first() {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            Some(_) => self.rest().chars().next(),
            None => None,
        }
    }

    pub(super) fn at(&self, token: &str) -> bool {
        self.bytes().starts_with(token.as_bytes())
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let found = self.at(token);
        if found {
            self.pos += token.len();
        }
        found
    }

    /// Returns the range of the next token, empty at the end of the text.
    pub(super) fn next_span(&self) -> Span {
        let end = self.pos + token_width(self.rest());
        let behind_comment = self.comment.1 == self.pos && self.pos > 0;
        if behind_comment && (self.at("\n") || self.at("\r\n")) {
            return self.span(self.comment.0, end);
        }
        self.span(self.pos, end)
    }

    /// Returns the range of the end of the text.
    pub(super) fn end_span(&self) -> Span {
        self.span(self.limit, self.limit)
    }

    /// Skips spaces and comments, and line ends where they are not significant.
    pub(super) fn blanks(&mut self) {
        let newlines = self.newlines.last().copied().unwrap_or_default();
        loop {
            match self.bytes().first() {
                Some(b' ' | b'\t') => self.pos += 1,
                Some(b'\n') if newlines => self.pos += 1,
                Some(b'\r') if newlines && self.at("\r\n") => self.pos += 2,
                Some(b'#') => self.line_comment(),
                Some(b'/') if self.at("//") => self.line_comment(),
                Some(b'/') if self.at("/*") => match self.rest()[2..].find("*/") {
                    Some(i) => self.pos += i + 4,
                    None => return,
                },
                _ => return,
            }
        }
    }

    fn line_comment(&mut self) {
        let start = self.pos;
        let rest = self.rest();
        let end = rest.find('\n').unwrap_or(rest.len());
        self.pos += rest[..end].strip_suffix('\r').filter(|_| end < rest.len()).map_or(end, str::len);
        self.comment = (start, self.pos);
    }

    /// Skips spaces, comments and line ends.
    pub(super) fn blank_lines(&mut self) {
        self.newlines.push(true);
        self.blanks();
        self.newlines.pop();
    }

    pub(super) fn identifier(&mut self) -> Option<Name> {
        let rest = self.rest();
        if !rest.chars().next().is_some_and(begins_name) {
            return None;
        }
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let length = match rest.bytes().position(|b| !plain(&b)) {
            None => rest.len(),
            Some(end) if rest.as_bytes()[end].is_ascii() => end,
            Some(_) => {
                let mut others = rest.char_indices();
                others.find(|(_, c)| !continues_name(*c)).map_or(rest.len(), |(i, _)| i)
            }
        };
        let name = Name { text: rest[..length].to_owned(), span: self.span(self.pos, self.pos + length) };
        self.pos += length;
        Some(name)
    }

    /// Enters one more level of nesting, or returns an error if the depth exceeds the limit.
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

    /// Parses items up to the closing brace of `open`, or to the end of the file. Records errors and returns all
    /// items that could be read.
    fn body(&mut self, open: Option<usize>) -> Body {
        let start = open.unwrap_or(0);
        let mut body = Body::default();
        let mut seen = Seen::default();
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
                self.templates.clear();
                self.recover(before);
            }
        }
        body.span = self.span(start, self.pos);
        body
    }

    /// Recovers after an error: continues at the next line outside the braces opened since `from`.
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

    fn item(&mut self, body: &mut Body, seen: &mut Seen) -> Parsed<()> {
        let Some(name) = self.identifier() else { return Err(self.not_an_item()) };
        self.blanks();
        match self.peek() {
            Some('=') if !self.at("==") && !self.at("=>") => {
                self.pos += 1;
                self.blanks();
                self.links = 0;
                let value = self.expression()?;
                self.end_of_item("argument definition")?;
                match seen.first(body, &name.text) {
                    Some(first) => self.errors.push(redefined(self.text, &name, first)),
                    None => body.attributes.push(Attribute { name, value }),
                }
                Ok(())
            }
            Some('"' | '{') => self.block(name, body),
            Some(c) if begins_name(c) => self.block(name, body),
            next => {
                if let Some(failed) = self.strange() {
                    return Err(failed);
                }
                let detail = match next {
                    Some(':') => "An equals sign (\"=\") is expected after an argument name, not a colon.",
                    _ => "An argument (\"name = value\") or a block (\"name { ... }\") is required here.",
                };
                Err(self.error("E0103", name.span, "Argument or block definition required", detail))
            }
        }
    }

    fn not_an_item(&mut self) -> Failed {
        let span = self.next_span();
        if let Some(failed) = self.strange() {
            return failed;
        }
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
            _ => self.error(
                "E0103",
                span,
                "Argument or block definition required",
                "An argument or block definition is required here.",
            ),
        }
    }

    /// Returns the error for the next character if that character is not part of the language.
    pub(super) fn strange(&mut self) -> Option<Failed> {
        let (summary, detail) = match self.peek()? {
            '\'' => (
                "Invalid character",
                "Single quotes are not valid. Use double quotes (\") to enclose strings.",
            ),
            '“' | '”' | '‘' | '’' => {
                ("Invalid character", "Curly quotes are not valid here. Use straight quotes (\").")
            }
            '`' => (
                "Invalid character",
                "Backticks are not valid. Use a heredoc (\"<<EOT\") for text of several lines.",
            ),
            ';' => (
                "Invalid character",
                "Semicolons are not valid. Separate arguments and blocks with line ends, and elements with commas.",
            ),
            '&' if !self.at("&&") => {
                ("Unsupported operator", "There are no operators on bits. Did you mean \"&&\"?")
            }
            '|' if !self.at("||") => {
                ("Unsupported operator", "There are no operators on bits. Did you mean \"||\"?")
            }
            '^' | '~' => ("Unsupported operator", "There are no operators on bits."),
            '*' if self.at("**") => ("Unsupported operator", "There is no operator for powers; use pow()."),
            '$' | '@' | '\\' => ("Invalid character", "This character is not used within the language."),
            '\n' | '\t' => return None,
            '\r' if self.at("\r\n") => return None,
            c if c.is_control() || !c.is_ascii() && !begins_name(c) => {
                ("Invalid character", "This character is not used within the language.")
            }
            _ => return None,
        };
        let span = if self.at("**") { self.span(self.pos, self.pos + 2) } else { self.next_span() };
        Some(self.report("E0105", span, summary, detail))
    }

    fn block(&mut self, kind: Name, body: &mut Body) -> Parsed<()> {
        let mut labels = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                Some('{') => break,
                Some('"') => labels.push(self.quoted_name()?),
                next => match self.identifier() {
                    Some(name) => labels.push(name),
                    None => {
                        if let Some(failed) = self.strange() {
                            return Err(failed);
                        }
                        let detail = match next {
                            Some('=') => {
                                "A block has no equals sign: write name { ... }, or name = value for an argument."
                            }
                            Some('\n' | '\r') => {
                                "The opening brace of a block must stand on the same line as its type and labels."
                            }
                            _ => "A label in quotes or an opening brace (\"{\") is expected here.",
                        };
                        let span = self.next_span();
                        return Err(self.error("E0103", span, "Invalid block definition", detail));
                    }
                },
            }
        }
        let open = self.pos;
        self.pos += 1;
        self.deeper()?;
        self.newlines.push(false);
        self.blanks();
        let inner = match self.peek() {
            None | Some('\n' | '\r' | '}') => Ok(self.body(Some(open))),
            Some(_) => self.one_line_body(open),
        };
        self.newlines.pop();
        if self.newlines.is_empty() {
            self.newlines.push(false);
        }
        self.depth -= 1;
        body.blocks.push(Block::new(kind, labels, inner?));
        self.end_of_item("block definition")
    }

    /// Parses `{ name = value }` on one line: at most one argument, and no block.
    fn one_line_body(&mut self, open: usize) -> Parsed<Body> {
        const SUMMARY: &str = "Invalid single-argument block definition";
        let Some(name) = self.identifier() else { return Err(self.not_an_item()) };
        self.blanks();
        match self.peek() {
            Some('=') if !self.at("==") => {}
            Some(c) if c == '"' || c == '{' || begins_name(c) => {
                let span = name.span.to(self.next_span());
                let detail = format!(
                    "A block on one line can hold only one argument, and no block. Use \"=\" to give the argument {:?} a value, or put the nested block on a line of its own.",
                    name.text
                );
                return Err(self.error("E0103", span, "Argument definition required", detail));
            }
            _ => {
                return Err(self.error(
                    "E0103",
                    name.span,
                    "Argument or block definition required",
                    "An argument (\"name = value\") is required here.",
                ));
            }
        }
        self.pos += 1;
        self.blanks();
        self.links = 0;
        let value = self.expression()?;
        self.blanks();
        if self.eat("}") {
            let attributes = vec![Attribute { name, value }];
            return Ok(Body { attributes, span: self.span(open, self.pos), ..Body::default() });
        }
        if let Some(failed) = self.strange() {
            return Err(failed);
        }
        let detail = match self.peek() {
            Some(',') => {
                "A block on one line can hold only one argument. Write several on a line each, without commas."
            }
            Some('\n' | '\r') => {
                "A block that begins with an argument on the line of its opening brace must end on that line too."
            }
            _ => "A block on one line must end with a closing brace after its argument.",
        };
        let span = self.next_span();
        let failed = self.error("E0106", span, SUMMARY, detail);
        let opening = self.span(open, open + 1);
        self.label_last(opening, "the block begins here");
        Err(failed)
    }

    /// Adds a related range to the last recorded error.
    pub(super) fn label_last(&mut self, span: Span, text: &str) {
        if let Some(last) = self.errors.pop() {
            self.errors.push(last.label(span, text));
        }
    }

    /// Parses the end of an item: the end of the line, of the block, or of the file.
    fn end_of_item(&mut self, what: &str) -> Parsed<()> {
        self.blanks();
        match self.peek() {
            None | Some('\n') => Ok(()),
            Some('\r') if self.at("\r\n") => Ok(()),
            Some(next) => {
                if let Some(failed) = self.strange() {
                    return Err(failed);
                }
                let span = self.next_span();
                if next == ',' && what.starts_with("argument") {
                    return Err(self.error(
                        "E0106",
                        span,
                        "Unexpected comma after argument",
                        "Arguments are separated by line ends, not by commas.",
                    ));
                }
                Err(self.error(
                    "E0106",
                    span,
                    &format!(
                        "Missing newline after {}",
                        what.strip_prefix("argument").map_or(what, |_| "argument")
                    ),
                    format!(
                        "Each {what} must end with a newline (or the closing brace of a one-line block)."
                    ),
                ))
            }
        }
    }

    /// Parses a quoted label or key without templates.
    fn quoted_name(&mut self) -> Parsed<Name> {
        let start = self.pos;
        let text = self.plain_string()?;
        Ok(Name { text, span: self.span(start, self.pos) })
    }
}
