//! Parses HCL 1, the notation of volume specifications and agent configuration. HCL 1 has no expressions. It has
//! several arguments on one line, `key "label" {`, and `key = { ... }` as another form of `key { ... }`.

use super::MAX_DEPTH;
use crate::ast::{Attribute, Block, Body, Expr, ExprKind, Name};
use crate::diag::Diagnostic;
use crate::source::{SourceId, Sources, Span};
use crate::value::{Number, Value};

/// Parses a file in HCL 1 or JSON.
///
/// # Errors
/// The first syntax error.
pub fn parse_body(sources: &Sources, id: SourceId) -> Result<Body, Vec<Diagnostic>> {
    let text = sources.get(id).map(|s| s.text.as_str()).unwrap_or_default();
    if text.trim_start().starts_with('{') {
        return super::json::parse_body(text, id);
    }
    let mut parser =
        Parser { text, pos: if text.starts_with('\u{feff}') { 3 } else { 0 }, source: id, depth: 0 };
    parser.body(None).map_err(|e| vec![*e])
}

struct Parser<'t> {
    text: &'t str,
    pos: usize,
    source: SourceId,
    depth: usize,
}

type Parsed<T> = Result<T, Box<Diagnostic>>;

impl Parser<'_> {
    fn span(&self, start: usize, end: usize) -> Span {
        Span { source: self.source, start, end }
    }

    fn rest(&self) -> &str {
        &self.text[self.pos..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn fail<T>(&self, start: usize, detail: impl Into<String>) -> Parsed<T> {
        let start =
            (0..=start.min(self.text.len())).rev().find(|i| self.text.is_char_boundary(*i)).unwrap_or(0);
        let width = self.text[start..].chars().next().map_or(0, char::len_utf8);
        Err(Box::new(Diagnostic::error("E0140", self.span(start, start + width), "Syntax error", detail)))
    }

    fn blanks(&mut self) -> Parsed<()> {
        loop {
            let rest = self.rest();
            if rest.starts_with([' ', '\t', '\n', '\r']) {
                self.pos += 1;
            } else if rest.starts_with('#') || rest.starts_with("//") {
                self.pos += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(i) => self.pos += i + 2,
                    None => return self.fail(self.pos, "This comment is not closed."),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn deeper(&mut self) -> Parsed<()> {
        if self.depth >= MAX_DEPTH {
            return self
                .fail(self.pos, format!("Blocks and lists may be nested at most {MAX_DEPTH} levels deep."));
        }
        self.depth += 1;
        Ok(())
    }

    /// Parses items up to the closing brace of `open`, or to the end of the file.
    fn body(&mut self, open: Option<usize>) -> Parsed<Body> {
        let mut body = Body::default();
        loop {
            self.blanks()?;
            match self.peek() {
                None => match open {
                    None => break,
                    Some(open) => {
                        return self.fail(
                            open,
                            "There is no closing brace for this block before the end of the file.",
                        );
                    }
                },
                Some('}') if open.is_some() => {
                    self.pos += 1;
                    break;
                }
                Some(',') => self.pos += 1,
                Some(_) => self.item(&mut body)?,
            }
        }
        body.span = self.span(open.unwrap_or(0), self.pos);
        Ok(body)
    }

    fn item(&mut self, body: &mut Body) -> Parsed<()> {
        let mut keys: Vec<Name> = Vec::new();
        loop {
            self.blanks()?;
            match self.peek() {
                Some('=') | Some(':') if !keys.is_empty() => {
                    self.pos += 1;
                    self.blanks()?;
                    if self.peek() == Some('{') {
                        return self.block(keys, body);
                    }
                    let value = self.value()?;
                    if let [name] = keys.as_slice() {
                        assign(body, name.clone(), value);
                        return Ok(());
                    }
                    return self.fail(
                        keys.get(1).map_or(self.pos, |k| k.span.start),
                        "Only one name may stand before an equals sign.",
                    );
                }
                Some('{') if !keys.is_empty() => return self.block(keys, body),
                Some('"') => {
                    let start = self.pos;
                    let text = self.string()?;
                    keys.push(Name { text, span: self.span(start, self.pos) });
                }
                Some(c) if c.is_alphabetic() || c == '_' => keys.push(self.name()),
                Some(c) => {
                    return self.fail(
                        self.pos,
                        format!("A name, an equals sign or an opening brace is expected here, not {c:?}."),
                    );
                }
                None => {
                    // Clients of Nomad expect this text, because it also rejects policies.
                    let names: Vec<&str> = keys.iter().map(|key| key.text.as_str()).collect();
                    let detail = format!(
                        "key '{}' expected start of object ('{{') or assignment ('=')",
                        names.join(" ")
                    );
                    return self.fail(self.text.len(), detail);
                }
            }
        }
    }

    fn name(&mut self) -> Name {
        let start = self.pos;
        let rest = self.rest();
        let length =
            rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))).unwrap_or(rest.len());
        let text = rest[..length].to_owned();
        self.pos += length;
        Name { text, span: self.span(start, self.pos) }
    }

    /// Parses `kind "label" {`. The cursor is at the brace.
    fn block(&mut self, keys: Vec<Name>, body: &mut Body) -> Parsed<()> {
        let open = self.pos;
        self.pos += 1;
        self.deeper()?;
        let inner = self.body(Some(open))?;
        self.depth -= 1;
        let mut keys = keys.into_iter();
        if let Some(kind) = keys.next() {
            body.blocks.push(Block::new(kind, keys.collect(), inner));
        }
        Ok(())
    }

    fn value(&mut self) -> Parsed<Expr> {
        self.blanks()?;
        let start = self.pos;
        let literal = |parser: &Self, value| Expr {
            kind: ExprKind::Literal(value),
            span: parser.span(start, parser.pos),
        };
        match self.peek() {
            Some('"') => {
                let text = self.string()?;
                Ok(literal(self, Value::str(text)))
            }
            Some('<') if self.rest().starts_with("<<") => {
                let text = self.heredoc()?;
                Ok(literal(self, Value::str(text)))
            }
            Some('[') => {
                self.pos += 1;
                self.deeper()?;
                let mut items = Vec::new();
                loop {
                    self.blanks()?;
                    match self.peek() {
                        Some(']') => break,
                        Some(',') => self.pos += 1,
                        None => {
                            return self.fail(
                                start,
                                "There is no closing bracket for this list before the end of the file.",
                            );
                        }
                        Some(_) => items.push(self.value()?),
                    }
                }
                self.pos += 1;
                self.depth -= 1;
                Ok(Expr { kind: ExprKind::Tuple(items), span: self.span(start, self.pos) })
            }
            Some('{') => {
                self.pos += 1;
                self.deeper()?;
                let body = self.body(Some(start))?;
                self.depth -= 1;
                Ok(object(body))
            }
            Some(c) if c.is_ascii_digit() || c == '-' => {
                let length = self
                    .rest()
                    .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.')))
                    .unwrap_or(self.rest().len());
                let text = self.rest()[..length].to_owned();
                let number = match text.strip_prefix("0x") {
                    Some(hex) => i128::from_str_radix(hex, 16).ok().map(Number::from),
                    None => text.parse().ok(),
                };
                match number {
                    Some(number) => {
                        self.pos += length;
                        Ok(literal(self, Value::Num(number)))
                    }
                    None => {
                        self.fail(start, format!("{text:?} is no number; text must stand in double quotes."))
                    }
                }
            }
            Some('\'') => {
                self.fail(start, "Single quotes are not valid. Use double quotes (\") to enclose strings.")
            }
            Some(c) if c.is_alphabetic() || c == '_' => {
                let name = self.name();
                match name.text.as_str() {
                    "true" => Ok(literal(self, Value::Bool(true))),
                    "false" => Ok(literal(self, Value::Bool(false))),
                    other => {
                        self.fail(start, format!("{other:?} is no value; text must stand in double quotes."))
                    }
                }
            }
            _ => self.fail(start, "A value is expected here."),
        }
    }

    /// Parses a string. `${...}` in it is literal, and quotes within it need no backslash.
    fn string(&mut self) -> Parsed<String> {
        let start = self.pos;
        self.pos += 1;
        let mut out = String::new();
        let mut braces = 0_usize;
        while let Some(c) = self.peek() {
            let rest = self.rest();
            if braces == 0 {
                match c {
                    '"' => {
                        self.pos += 1;
                        return Ok(out);
                    }
                    '\n' => return self.fail(start, "This string is not closed in its line."),
                    '\\' => {
                        let (text, used) = match rest[1..].chars().next() {
                            Some('n') => ('\n', 2),
                            Some('r') => ('\r', 2),
                            Some('t') => ('\t', 2),
                            Some('"') => ('"', 2),
                            Some('\\') => ('\\', 2),
                            Some(u @ ('u' | 'U')) => {
                                let digits = if u == 'u' { 4 } else { 8 };
                                let hex =
                                    rest.get(2..2 + digits).and_then(|h| u32::from_str_radix(h, 16).ok());
                                match hex.and_then(char::from_u32) {
                                    Some(c) => (c, 2 + digits),
                                    None => return self.fail(self.pos, "Invalid escape in a string."),
                                }
                            }
                            _ => return self.fail(self.pos, "Invalid escape in a string."),
                        };
                        out.push(text);
                        self.pos += used;
                        continue;
                    }
                    '$' if rest.starts_with("${") => {
                        out.push('$');
                        self.pos += 1;
                        braces = 1;
                        out.push('{');
                        self.pos += 1;
                        continue;
                    }
                    _ => {}
                }
            } else {
                match c {
                    '{' => braces += 1,
                    '}' => braces -= 1,
                    '\n' => return self.fail(start, "This string is not closed in its line."),
                    _ => {}
                }
            }
            out.push(c);
            self.pos += c.len_utf8();
        }
        self.fail(start, "This string is not closed.")
    }

    fn heredoc(&mut self) -> Parsed<String> {
        let start = self.pos;
        self.pos += 2;
        let dedent = self.rest().starts_with('-');
        self.pos += usize::from(dedent);
        let line_end = self.rest().find('\n').map_or(self.text.len(), |i| self.pos + i);
        let marker = self.text[self.pos..line_end].trim().to_owned();
        if marker.is_empty() {
            return self.fail(start, "A marker such as EOT is expected after \"<<\".");
        }
        let mut lines = Vec::new();
        let mut at = line_end + 1;
        while at <= self.text.len() {
            let end = self.text[at..].find('\n').map_or(self.text.len(), |i| at + i);
            let line = &self.text[at..end];
            if line.trim() == marker {
                self.pos = end;
                let indent = |l: &&str| l.len() - l.trim_start_matches([' ', '\t']).len();
                let least = if dedent { lines.iter().map(indent).min().unwrap_or(0) } else { 0 };
                return Ok(lines.iter().map(|l: &&str| format!("{}\n", &l[least..])).collect());
            }
            lines.push(line);
            at = end + 1;
        }
        self.fail(start, format!("There is no line with only {marker:?} that ends this text."))
    }
}

/// Sets an argument. The last of several with one name wins; a list of objects becomes repeated blocks.
fn assign(body: &mut Body, name: Name, value: Expr) {
    if let ExprKind::Tuple(items) = &value.kind
        && !items.is_empty()
        && items.iter().all(|i| matches!(i.kind, ExprKind::Object(_)))
    {
        for item in items {
            body.blocks.push(Block::new(name.clone(), Vec::new(), body_of(item)));
        }
        return;
    }
    body.attributes.retain(|a| a.name.text != name.text);
    body.attributes.push(Attribute { name, value });
}

/// Converts a body within a list to an expression.
fn object(body: Body) -> Expr {
    use crate::ast::Key;
    let span = body.span;
    let mut items: Vec<(Key, Expr)> =
        body.attributes.into_iter().map(|a| (Key::Name(a.name), a.value)).collect();
    for block in body.blocks {
        let inner = block.labels.iter().rev().fold(object(block.body), |inner, label| Expr {
            span: inner.span,
            kind: ExprKind::Object(vec![(Key::Name(label.clone()), inner)]),
        });
        items.push((Key::Name(block.kind), inner));
    }
    Expr { kind: ExprKind::Object(items), span }
}

fn body_of(expr: &Expr) -> Body {
    use crate::ast::Key;
    let mut body = Body { span: expr.span, ..Body::default() };
    if let ExprKind::Object(items) = &expr.kind {
        for (key, value) in items {
            let Key::Name(name) = key else { continue };
            if matches!(value.kind, ExprKind::Object(_)) {
                body.blocks.push(Block::new(name.clone(), Vec::new(), body_of(value)));
            } else {
                assign(&mut body, name.clone(), value.clone());
            }
        }
    }
    body
}
