//! Parses HCL-JSON with source ranges. A schema reads bodies from it, because only it distinguishes blocks from
//! arguments.

mod body;

use std::sync::Arc;

pub use self::body::{JsonBody, Member, Members, Strings, expression};
use super::MAX_DEPTH;
use crate::ast::{Body, Name};
use crate::diag::Diagnostic;
use crate::source::{SourceId, Span};
use crate::value::Value;

/// A JSON value with its source range.
#[derive(Clone, Debug)]
pub struct Json {
    /// The kind of value, with its content.
    pub kind: JsonKind,
    /// The source range.
    pub span: Span,
}

/// Kinds of JSON values.
#[derive(Clone, Debug)]
pub enum JsonKind {
    /// Null, booleans and numbers.
    Scalar(Value),
    /// A string, unescaped.
    Text(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(JsonObject),
}

/// The members of an object, in order.
#[derive(Clone, Debug)]
pub struct JsonObject {
    /// The members' names and values.
    pub members: Vec<(Name, Json)>,
    /// The source range, including the braces.
    pub span: Span,
}

impl Json {
    /// Returns the bracket or brace that opens the value, or the whole value if it is neither array nor object.
    #[must_use]
    pub fn start(&self) -> Span {
        match self.kind {
            JsonKind::Array(_) | JsonKind::Object(_) => {
                Span { end: (self.span.start + 1).min(self.span.end), ..self.span }
            }
            JsonKind::Scalar(_) | JsonKind::Text(_) => self.span,
        }
    }
}

/// Parses a text that must be one object, or an array of objects.
///
/// # Errors
/// The text is not JSON, or is another kind of value.
pub fn parse_body(text: &str, source: SourceId) -> Result<Body, Vec<Diagnostic>> {
    let value = parse_json(text, source)?;
    let span = value.span;
    if !matches!(value.kind, JsonKind::Object(_) | JsonKind::Array(_)) {
        return Err(vec![Diagnostic::error(
            "E0131",
            span,
            "Root value must be object",
            "The root value in a JSON-based configuration must be an object, or an array of objects.",
        )]);
    }
    Ok(Body { span, json: Some(Arc::new(JsonBody { value })), ..Body::default() })
}

/// Parses a JSON text.
///
/// # Errors
/// The text is not JSON.
pub fn parse_json(text: &str, source: SourceId) -> Result<Json, Vec<Diagnostic>> {
    let mut reader = Reader { text, pos: 0, source, depth: 0 };
    let value = reader.value().map_err(|d| vec![*d])?;
    reader.blanks();
    if reader.pos < text.len() {
        return Err(vec![
            *reader.fail("Extraneous data after value", "Extra characters appear after the JSON value."),
        ]);
    }
    Ok(value)
}

struct Reader<'t> {
    text: &'t str,
    pos: usize,
    source: SourceId,
    depth: usize,
}

type Read<T> = Result<T, Box<Diagnostic>>;

impl Reader<'_> {
    fn span(&self, start: usize, end: usize) -> Span {
        Span { source: self.source, start, end }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.pos..].chars().next()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.pos += 1;
        }
    }

    fn fail(&self, summary: &str, detail: &str) -> Box<Diagnostic> {
        Box::new(Diagnostic::error("E0130", self.next_span(), summary, detail))
    }

    /// Returns the range of the next token, empty at the end of the text.
    fn next_span(&self) -> Span {
        self.span(self.pos, self.pos + token_width(&self.text[self.pos..]))
    }

    /// Returns an error within an object or array. As in Nomad, it points at the token after the presumed end; a
    /// label points at the actual place.
    fn fail_behind(&mut self, summary: &str, detail: &str, open: char, close: char) -> Box<Diagnostic> {
        let here = self.next_span();
        let mut level = 1;
        while let Some(c) = self.peek() {
            self.pos = self.next_span().end;
            if c == open {
                level += 1;
            } else if c == close {
                level -= 1;
                if level <= 1 {
                    break;
                }
            }
            self.blanks();
        }
        self.blanks();
        let mut error = self.fail(summary, detail);
        *error = error.label(here, "before this");
        error
    }

    fn value(&mut self) -> Read<Json> {
        self.blanks();
        let start = self.pos;
        let kind = match self.peek() {
            Some('{') => JsonKind::Object(self.object()?),
            Some('[') => JsonKind::Array(self.array()?),
            Some('"') => JsonKind::Text(self.string()?),
            Some(c) if c == '-' || c.is_ascii_digit() => {
                let length = self.text[start..]
                    .find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E')))
                    .unwrap_or(self.text.len() - start);
                let number = &self.text[start..start + length];
                let Some(number) = Some(number).filter(|n| is_number(n)).and_then(|n| n.parse().ok()) else {
                    return Err(self.fail("Invalid JSON number", "This is no number as JSON has it."));
                };
                self.pos += length;
                JsonKind::Scalar(Value::Num(number))
            }
            Some(_) => {
                let span = self.next_span();
                let value = match &self.text[start..span.end] {
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    "null" => Value::NULL,
                    word if word.starts_with(|c: char| c.is_alphabetic()) => {
                        let detail =
                            format!("{word:?} is not a valid JSON keyword; strings stand in double quotes.");
                        return Err(self.fail("Invalid JSON keyword", &detail));
                    }
                    _ => {
                        return Err(self.fail(
                            "Invalid start of value",
                            "A JSON object, array, string, number, true, false or null is expected here.",
                        ));
                    }
                };
                self.pos = span.end;
                JsonKind::Scalar(value)
            }
            None => return Err(self.fail("Missing value", "The JSON text ends where a value is expected.")),
        };
        Ok(Json { kind, span: self.span(start, self.pos) })
    }

    fn enter(&mut self) -> Read<()> {
        if self.depth >= MAX_DEPTH {
            return Err(self.fail("Nesting too deep", "The JSON values are nested too deeply."));
        }
        self.depth += 1;
        self.pos += 1;
        Ok(())
    }

    fn object(&mut self) -> Read<JsonObject> {
        let start = self.pos;
        self.enter()?;
        let mut members = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                Some('}') => {
                    self.pos += 1;
                    break;
                }
                Some('"') => {}
                _ => {
                    // An invalid value is reported as such, a valid one as an invalid name.
                    let from = self.pos;
                    self.value()?;
                    self.pos = from;
                    return Err(self.fail(
                        "Invalid object property name",
                        "A name in a JSON object must be a string in double quotes.",
                    ));
                }
            }
            let from = self.pos;
            let text = self.string()?;
            let name = Name { text, span: self.span(from, self.pos) };
            self.blanks();
            if self.peek() != Some(':') {
                let detail = match self.peek() {
                    Some('=') => "JSON has a colon between a name and its value, no equals sign.",
                    _ => "A colon and a value must follow a name in a JSON object.",
                };
                let summary = match self.peek() {
                    Some('}' | ',') => "Missing object value",
                    _ => "Missing property value colon",
                };
                return Err(self.fail(summary, detail));
            }
            self.pos += 1;
            members.push((name, self.value()?));
            self.blanks();
            match self.peek() {
                Some(',') => {
                    let comma = self.next_span();
                    self.pos += 1;
                    self.blanks();
                    if self.peek() == Some('}') {
                        return Err(Box::new(Diagnostic::error(
                            "E0130",
                            comma,
                            "Trailing comma in object",
                            "JSON has no comma behind the last member of an object.",
                        )));
                    }
                }
                Some('}') => {}
                Some(']') => {
                    self.pos += 1;
                    self.blanks();
                    return Err(self
                        .fail("Mismatched braces", "A JSON object ends with a brace, not with a bracket."));
                }
                None => {
                    return Err(Box::new(Diagnostic::error(
                        "E0130",
                        self.span(start, start + 1),
                        "Unclosed object",
                        "No closing brace was found for this JSON object.",
                    )));
                }
                Some(_) => {
                    return Err(self.fail_behind(
                        "Missing attribute separator comma",
                        "A comma must appear between each property definition in an object.",
                        '{',
                        '}',
                    ));
                }
            }
        }
        self.depth -= 1;
        Ok(JsonObject { members, span: self.span(start, self.pos) })
    }

    fn array(&mut self) -> Read<Vec<Json>> {
        let start = self.pos;
        self.enter()?;
        let mut items = Vec::new();
        loop {
            self.blanks();
            if self.peek() == Some(']') {
                self.pos += 1;
                break;
            }
            items.push(self.value()?);
            self.blanks();
            match self.peek() {
                Some(',') => {
                    let comma = self.next_span();
                    self.pos += 1;
                    self.blanks();
                    if self.peek() == Some(']') {
                        return Err(Box::new(Diagnostic::error(
                            "E0130",
                            comma,
                            "Trailing comma in array",
                            "JSON has no comma behind the last element of an array.",
                        )));
                    }
                }
                Some(']') => {}
                None => {
                    return Err(Box::new(Diagnostic::error(
                        "E0130",
                        self.span(start, start + 1),
                        "Unclosed array",
                        "No closing bracket was found for this JSON array.",
                    )));
                }
                Some(found) => {
                    let (summary, detail) = match found {
                        ':' => ("Invalid array value", "A JSON array has no names: there must be no colon."),
                        '}' => ("Mismatched brackets", "A JSON array ends with a bracket, not with a brace."),
                        _ => (
                            "Missing attribute separator comma",
                            "A comma must appear between each value in an array.",
                        ),
                    };
                    return Err(self.fail_behind(summary, detail, '[', ']'));
                }
            }
        }
        self.depth -= 1;
        Ok(items)
    }

    fn string(&mut self) -> Read<String> {
        let start = self.pos;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let text = self.text.get(start + 1..end).filter(|_| end < bytes.len()).and_then(unescaped);
        match text {
            Some(text) => {
                self.pos = end + 1;
                Ok(text)
            }
            None => Err(self.fail(
                "Invalid JSON string",
                "This JSON string is not closed, or has a control character or an invalid escape in it.",
            )),
        }
    }
}

/// Unescapes the content of a JSON string. An unpaired surrogate becomes the replacement character, as in Nomad.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\0'..='\u{1f}' => return None,
            '\\' => match chars.next()? {
                c @ ('"' | '\\' | '/') => out.push(c),
                'b' => out.push('\u{8}'),
                'f' => out.push('\u{c}'),
                'n' => out.push('\n'),
                'r' => out.push('\r'),
                't' => out.push('\t'),
                'u' => {
                    let first = unit(&mut chars)?;
                    let mut ahead = chars.clone();
                    let second = match (ahead.next(), ahead.next()) {
                        (Some('\\'), Some('u')) => unit(&mut ahead),
                        _ => None,
                    };
                    let pair = char::decode_utf16([Some(first), second].into_iter().flatten()).next()?;
                    if (0xd800..0xdc00).contains(&first) && pair.is_ok() {
                        chars = ahead;
                    }
                    out.push(pair.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                _ => return None,
            },
            c => out.push(c),
        }
    }
    Some(out)
}

/// Parses four hexadecimal digits.
fn unit(chars: &mut std::str::Chars<'_>) -> Option<u16> {
    let digits = chars.as_str().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    *chars = chars.as_str()[4..].chars();
    u16::from_str_radix(digits, 16).ok()
}

/// Returns whether the text is a valid JSON number.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    let fraction = digits[whole..].strip_prefix('.');
    whole > 0
        && (whole == 1 || !digits.starts_with('0'))
        && fraction.is_none_or(|f| f.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the length in bytes of the first token of a JSON text.
fn token_width(rest: &str) -> usize {
    let Some(first) = rest.chars().next() else { return 0 };
    let run = |more: fn(char) -> bool| rest.find(|c| !more(c)).unwrap_or(rest.len());
    match first {
        '"' => {
            let bytes = rest.as_bytes();
            let mut end = 1;
            while end < bytes.len() && !matches!(bytes[end], b'"' | b'\n') {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            let end = (end + 1).min(rest.len());
            (end..=rest.len()).find(|i| rest.is_char_boundary(*i)).unwrap_or(rest.len())
        }
        '-' | '0'..='9' => run(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E')),
        c if c.is_alphabetic() => run(char::is_alphanumeric),
        c => c.len_utf8(),
    }
}
