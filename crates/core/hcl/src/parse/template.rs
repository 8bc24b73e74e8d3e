//! Parses strings, heredocs and their templates.

use super::MAX_DEPTH;
use super::lexical::split_string;
use super::native::{Failed, Parsed, Parser};
use super::scan::token_width;
use crate::ast::{Expr, ExprKind, Name, Part};
use crate::source::Span;
use crate::value::Value;
use std::vec::IntoIter;

/// A piece of a template before directives are paired.
#[derive(Debug)]
struct Token {
    kind: Kind,
    span: Span,
    /// Whether `~` at the opening trims the spaces before the sequence.
    trim_before: bool,
    /// Whether `~` at the closing trims the spaces after the sequence.
    trim_after: bool,
}

#[derive(Debug)]
enum Kind {
    Text(String),
    Interpolation(Expr),
    If(Expr),
    Else,
    EndIf,
    For(Option<Name>, Name, Expr),
    EndFor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Up to the closing quote, with backslash escapes.
    Quoted,
    /// Up to the limit, with one token per line.
    Heredoc,
    /// Up to the limit.
    Plain,
}

impl Parser<'_> {
    /// Parses `"..."`. The cursor is at the quote.
    pub(super) fn quoted_template(&mut self) -> Parsed<Expr> {
        self.deeper()?;
        let start = self.pos;
        if let Some(text) = self.without_marks() {
            let literal = ExprKind::Literal(Value::str(text));
            self.pos += text.len() + 2;
            self.depth -= 1;
            return Ok(Expr { kind: literal, span: self.span(start, self.pos) });
        }
        self.pos += 1;
        self.templates.push(self.pos);
        let tokens = self.tokens(Mode::Quoted)?;
        self.templates.pop();
        let end = self.next_span();
        if !self.eat("\"") {
            let failed = self.error(
                "E0120",
                end,
                "Unterminated template string",
                "No closing marker was found for the string.",
            );
            let opening = self.span(start, start + 1);
            self.label_last(opening, "the string begins here");
            return Err(failed);
        }
        self.depth -= 1;
        let span = self.span(start, self.pos);
        self.finish(tokens, span, end, false)
    }

    /// Returns the content of a string without escapes and templates, as most strings are.
    fn without_marks(&self) -> Option<&str> {
        let inside = self.rest().strip_prefix('"')?;
        let end = inside.find(['"', '\\', '$', '%', '\n', '\r'])?;
        inside[end..].starts_with('"').then(|| &inside[..end])
    }

    /// Parses `"..."` without templates, for labels.
    pub(super) fn plain_string(&mut self) -> Parsed<String> {
        let start = self.pos;
        if let Some(text) = self.without_marks() {
            let text = text.to_owned();
            self.pos += text.len() + 2;
            return Ok(text);
        }
        let expr = self.quoted_template()?;
        match expr.kind {
            ExprKind::Literal(Value::Str(s)) => Ok(s.to_string()),
            _ => {
                let source = &self.text[start..self.pos];
                let at = source.match_indices("${").chain(source.match_indices("%{"));
                let at = at.map(|(at, _)| at).filter(|at| !source[..*at].ends_with(['$', '%'])).min();
                let span = match at {
                    Some(at) => self.span(start + at, start + at + 2),
                    None => self.span(start, self.pos),
                };
                Err(self.error("E0120", span, "Invalid string literal", "Template sequences are not allowed in this string. To include a literal \"$\", double it (as \"$$\") to escape it."))
            }
        }
    }

    /// Parses the whole text as a template.
    pub(super) fn whole_template(&mut self, place: Span) -> Parsed<Expr> {
        let tokens = self.tokens(Mode::Plain)?;
        self.finish(tokens, place, place, false)
    }

    /// Parses `<<MARK` or `<<-MARK`. The cursor is at the first `<`.
    pub(super) fn heredoc(&mut self) -> Parsed<Expr> {
        let start = self.pos;
        self.pos += 2;
        let dedent = self.eat("-");
        let marker = self.identifier();
        let line_end = marker.is_some() && (self.eat("\r\n") || self.eat("\n"));
        let Some(marker) = marker.filter(|_| line_end) else {
            // Without a marker, "<" is an operator.
            let span = self.span(start, start + 1);
            return Err(self.error(
                "E0121",
                span,
                "Invalid expression",
                "A text of several lines begins with \"<<\", a marker such as EOT, and the end of the line.",
            ));
        };
        let from = self.pos;
        let mut line = from;
        let (to, after) = loop {
            let rest = &self.text[line..self.limit];
            let end = rest.find('\n').map_or(self.limit, |i| line + i);
            if end < self.limit && self.text[line..end].trim() == marker.text {
                break (line, end);
            }
            if end >= self.limit {
                let span = self.end_span();
                let failed = self.error(
                    "E0121",
                    span,
                    "Unterminated template string",
                    format!("There is no line with only {:?} that ends this text.", marker.text),
                );
                let opening = self.span(start, marker.span.end.max(start));
                self.label_last(opening, "the text begins here");
                return Err(failed);
            }
            line = end + 1;
        };
        let after = if self.text[..after].ends_with('\r') { after - 1 } else { after };
        let limit = std::mem::replace(&mut self.limit, to);
        let tokens = self.tokens(Mode::Heredoc);
        self.limit = limit;
        let tokens = tokens?;
        self.pos = after;
        let span = self.span(start, after);
        let end = self.span(to, after);
        let mut expr = self.finish(tokens, span, end, dedent)?;
        if let ExprKind::Literal(Value::Str(text)) = &expr.kind {
            // The range is that of the lines, without the markers around them.
            let line = self.span(from, to);
            expr.kind = ExprKind::Template(vec![Part::Text(text.to_string(), line)]);
        }
        Ok(expr)
    }

    fn finish(&mut self, mut tokens: Vec<Token>, span: Span, end: Span, dedent: bool) -> Parsed<Expr> {
        trim(&mut tokens);
        if dedent {
            remove_indent(&mut tokens);
        }
        let mut parts = self.pair(tokens, end)?;
        let kind = match parts.len() {
            0 => ExprKind::Literal(Value::str("")),
            1 => match parts.remove(0) {
                Part::Text(text, _) => ExprKind::Literal(Value::str(text)),
                Part::Interpolation(inner) => ExprKind::Wrapped(Box::new(inner)),
                other => ExprKind::Template(vec![other]),
            },
            _ => ExprKind::Template(parts),
        };
        Ok(Expr { kind, span })
    }

    fn tokens(&mut self, mode: Mode) -> Parsed<Vec<Token>> {
        let mut out = Vec::new();
        let mut text = String::new();
        let mut from = self.pos;
        macro_rules! flush {
            () => {
                if !text.is_empty() {
                    let span = self.span(from, self.pos);
                    let kind = Kind::Text(std::mem::take(&mut text));
                    out.push(Token { kind, span, trim_before: false, trim_after: false });
                }
            };
        }
        while let Some(c) = self.peek() {
            if text.is_empty() {
                from = self.pos;
            }
            match c {
                '"' if mode == Mode::Quoted => break,
                '\n' | '\r' if mode == Mode::Quoted => {
                    let rest = self.rest();
                    let lines = rest.len() - rest.trim_start_matches(['\n', '\r']).len();
                    self.errors.push(split_string(self.span(self.pos, self.pos + lines)));
                    return Err(Failed);
                }
                '\\' if mode == Mode::Quoted => text.push(self.escape()?),
                '$' | '%' if self.rest()[1..].starts_with(c) && self.rest()[2..].starts_with('{') => {
                    text.push(c);
                    text.push('{');
                    self.pos += 3;
                }
                '$' if self.at("${") => {
                    flush!();
                    out.push(self.interpolation()?);
                }
                '%' if self.at("%{") => {
                    flush!();
                    out.push(self.directive()?);
                }
                '\n' => {
                    text.push(c);
                    self.pos += 1;
                    if mode == Mode::Heredoc {
                        flush!();
                    }
                }
                _ => {
                    // Read up to the next special character, and at least this one.
                    let rest = self.rest();
                    let marks = ['"', '\\', '$', '%', '\n', '\r'];
                    let length = rest[c.len_utf8()..].find(marks).map_or(rest.len(), |at| c.len_utf8() + at);
                    text.push_str(&rest[..length]);
                    self.pos += length;
                }
            }
        }
        flush!();
        Ok(out)
    }

    fn escape(&mut self) -> Parsed<char> {
        let start = self.pos;
        self.pos += 1;
        let Some(selector) = self.peek() else { return Ok('\\') };
        self.pos += selector.len_utf8();
        let digits = match selector {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '"' => return Ok('"'),
            '\\' => return Ok('\\'),
            'u' => 4,
            'U' => 8,
            other => {
                let span = self.span(start, self.pos);
                return Err(self.error(
                    "E0122",
                    span,
                    "Invalid escape sequence",
                    format!("The symbol {other:?} is not a valid escape sequence selector.")
                        .replace('\'', "\""),
                ));
            }
        };
        let hex = self.rest().get(..digits).filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        let value = hex.and_then(|h| u32::from_str_radix(h, 16).ok()).and_then(char::from_u32);
        // The range covers all digits that are present.
        let found = self.rest().bytes().take(digits).take_while(u8::is_ascii_hexdigit).count();
        match value {
            Some(c) => {
                self.pos += digits;
                Ok(c)
            }
            None => {
                let span = self.span(start, self.pos + found);
                Err(self.error(
                    "E0122",
                    span,
                    "Invalid escape sequence",
                    format!(
                        "\\{selector} must be followed by {digits} hexadecimal digits of a Unicode character."
                    ),
                ))
            }
        }
    }

    fn open(&mut self) -> (usize, bool) {
        let start = self.pos;
        self.pos += 2;
        let trim = self.eat("~");
        self.newlines.push(true);
        (start, trim)
    }

    fn close(&mut self, start: usize, what: &str) -> Parsed<bool> {
        self.blanks();
        let trim = self.at("~}") && self.eat("~");
        if !self.eat("}") {
            return Err(self.not_closed(start, what));
        }
        self.newlines.pop();
        Ok(trim)
    }

    fn interpolation(&mut self) -> Parsed<Token> {
        self.deeper()?;
        let (start, trim_before) = self.open();
        self.blanks();
        let expr = self.expression()?;
        let trim_after = self.close(start, "interpolation")?;
        self.depth -= 1;
        Ok(Token {
            kind: Kind::Interpolation(expr),
            span: self.span(start, self.pos),
            trim_before,
            trim_after,
        })
    }

    fn directive(&mut self) -> Parsed<Token> {
        self.deeper()?;
        let (start, trim_before) = self.open();
        self.blanks();
        let keyword = self.identifier();
        self.blanks();
        let kind = match keyword.as_ref().map(|k| k.text.as_str()) {
            Some("if") => Kind::If(self.expression()?),
            Some("else") => Kind::Else,
            Some("endif") => Kind::EndIf,
            Some("for") => {
                let (key, value, collection) = self.for_intro()?;
                Kind::For(key, value, collection)
            }
            Some("endfor") => Kind::EndFor,
            _ => {
                let summary = if keyword.is_some() {
                    "Invalid template control keyword"
                } else {
                    "Invalid template directive"
                };
                let span = keyword.map_or_else(|| self.next_span(), |k| k.span);
                return Err(self.error("E0124", span, summary, "A template directive keyword (\"if\", \"for\", \"else\", \"endif\", \"endfor\") is expected at the beginning of a %{ sequence."));
            }
        };
        let trim_after = self.close(start, "template directive")?;
        self.depth -= 1;
        Ok(Token { kind, span: self.span(start, self.pos), trim_before, trim_after })
    }

    /// Returns the error for a sequence that begins at `start` and has no closing brace.
    fn not_closed(&mut self, start: usize, what: &str) -> Failed {
        let opening = self.span(start, start + 2);
        let unclosed = format!("There is no closing brace for this {what}.");
        if self.pos >= self.limit && self.limit < self.text.len() {
            // The line that ends the text counts as part of the sequence.
            let rest = &self.text[self.limit..];
            let at = self.limit + (rest.len() - rest.trim_start().len());
            let span = self.span(at, at + token_width(&self.text[at..]));
            let failed =
                self.error("E0123", span, &format!("Extra characters after {what} expression"), unclosed);
            self.label_last(opening, "there is no \"}\" for this");
            return failed;
        }
        if self.pos >= self.limit {
            // The error points at the first part of the template.
            let first = self.templates.last().copied().unwrap_or(start);
            let width = match self.text[first..start].find("${") {
                _ if self.text[first..].starts_with("${") => 2,
                Some(width) => width,
                None if start > first => start - first,
                None => 2,
            };
            let span = self.span(first, first + width);
            let failed = self.error("E0123", span, &format!("Unclosed template {what} sequence"), unclosed);
            self.label_last(opening, "there is no \"}\" for this");
            return failed;
        }
        if !self.at("\"") {
            let span = self.next_span();
            let failed = self.error(
                "E0123",
                span,
                &format!("Extra characters after {what} expression"),
                format!("Expected a closing brace to end the {what}. If \"${{\" is meant for another program, write \"$${{\"."),
            );
            self.label_last(opening, "it begins here");
            return failed;
        }
        // A quote within the sequence begins a string. The rest of the line decides which error to report.
        let line = self.rest().find('\n').map_or(self.rest(), |end| &self.rest()[..end]);
        if line.matches('"').count().is_multiple_of(2) {
            return self.error("E0123", opening, &format!("Unclosed template {what} sequence"), unclosed);
        }
        self.pos += line.strip_suffix('\r').unwrap_or(line).len();
        let span = self.next_span();
        let failed = self.error(
            "E0123",
            span,
            "Invalid multi-line string",
            format!("The string is not closed on its line, because the {what} in it has no closing brace."),
        );
        self.label_last(opening, "there is no \"}\" for this");
        failed
    }

    /// Pairs directives with their ends.
    fn pair(&mut self, tokens: Vec<Token>, end: Span) -> Parsed<Vec<Part>> {
        let mut tokens = tokens.into_iter();
        match self.parts(&mut tokens, 0, end)? {
            (parts, None) => Ok(parts),
            (_, Some(token)) => Err(self.unexpected(&token)),
        }
    }

    fn unexpected(&mut self, token: &Token) -> Failed {
        let name = match token.kind {
            Kind::Else => "else",
            Kind::EndIf => "endif",
            _ => "endfor",
        };
        self.error(
            "E0124",
            token.span,
            &format!("Unexpected {name} directive"),
            format!("The control directive {name:?} has no directive before it that it belongs to."),
        )
    }

    /// Parses parts up to a directive that closes or continues an outer one, and returns that directive.
    fn parts(
        &mut self,
        tokens: &mut IntoIter<Token>,
        depth: usize,
        end: Span,
    ) -> Parsed<(Vec<Part>, Option<Token>)> {
        let mut out = Vec::new();
        while let Some(token) = tokens.next() {
            if depth >= MAX_DEPTH {
                return Err(self.error(
                    "E0109",
                    token.span,
                    "Nesting too deep",
                    format!("Template directives may be nested at most {MAX_DEPTH} levels deep."),
                ));
            }
            match token.kind {
                Kind::Text(text) if text.is_empty() => {}
                Kind::Text(text) => out.push(Part::Text(text, token.span)),
                Kind::Interpolation(expr) => out.push(Part::Interpolation(expr)),
                Kind::If(condition) => {
                    let (yes, stop) = self.parts(tokens, depth + 1, end)?;
                    let mut no = Vec::new();
                    let mut stop = stop;
                    if matches!(stop, Some(Token { kind: Kind::Else, .. })) {
                        (no, stop) = self.parts(tokens, depth + 1, end)?;
                    }
                    match stop {
                        Some(Token { kind: Kind::EndIf, .. }) => out.push(Part::If(condition, yes, no)),
                        other => return Err(self.missing_end(other, "if", token.span, end)),
                    }
                }
                Kind::For(key, value, collection) => {
                    let (body, stop) = self.parts(tokens, depth + 1, end)?;
                    match stop {
                        Some(Token { kind: Kind::EndFor, .. }) => {
                            out.push(Part::For { key, value, collection, body })
                        }
                        other => return Err(self.missing_end(other, "for", token.span, end)),
                    }
                }
                Kind::Else | Kind::EndIf | Kind::EndFor => return Ok((out, Some(token))),
            }
        }
        Ok((out, None))
    }

    fn missing_end(&mut self, stop: Option<Token>, what: &str, opened: Span, end: Span) -> Failed {
        if let Some(token) = stop {
            return self.unexpected(&token);
        }
        let failed = self.error(
            "E0124",
            end,
            "Unexpected end of template",
            format!("The {what} directive is missing its corresponding end{what} directive."),
        );
        if let Some(last) = self.errors.pop() {
            self.errors.push(last.label(opened, "opened here"));
        }
        failed
    }
}

/// Removes spaces next to `~`. Only the adjacent token changes, which in a heredoc is one line.
fn trim(tokens: &mut [Token]) {
    for i in 0..tokens.len() {
        if tokens[i].trim_before
            && i > 0
            && let Kind::Text(text) = &mut tokens[i - 1].kind
        {
            text.truncate(text.trim_end().len());
        }
        if tokens[i].trim_after
            && let Some(Token { kind: Kind::Text(text), .. }) = tokens.get_mut(i + 1)
        {
            *text = text.trim_start().to_owned();
        }
    }
}

/// Removes the common indent of all lines (`<<-`). Ignores lines that contain only spaces.
fn remove_indent(tokens: &mut [Token]) {
    let mut line_start = true;
    let mut least = usize::MAX;
    let mut starts = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let Kind::Text(text) = &token.kind else {
            if line_start {
                least = 0;
            }
            line_start = false;
            continue;
        };
        if line_start {
            let rest = text.trim_start();
            if !(rest.is_empty() && text.ends_with('\n')) {
                least = least.min(text.len() - rest.len());
                starts.push(i);
            }
        }
        line_start = text.ends_with('\n');
    }
    for i in starts {
        if let Kind::Text(text) = &mut tokens[i].kind {
            let cut: usize = text.chars().take(least).map(char::len_utf8).sum();
            text.drain(..cut);
        }
    }
}
