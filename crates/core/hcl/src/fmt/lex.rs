//! Splits a text into tokens that cover everything except spaces.

use crate::parse::native::{begins_name, continues_name};

/// A token and the number of spaces before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub kind: Kind,
    pub text: &'t str,
    pub spaces: usize,
}

/// The kind of a token, as far as the layout depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ident,
    Number,
    OpenQuote,
    CloseQuote,
    /// Text within a string or heredoc.
    Literal,
    /// `<<EOT` with its line end.
    OpenHeredoc,
    /// The line that ends a heredoc, without its line end.
    CloseHeredoc,
    /// `${` or `%{`.
    OpenTemplate,
    /// `}` of a template sequence.
    CloseTemplate,
    OpenBrace,
    CloseBrace,
    OpenBracket,
    CloseBracket,
    OpenParen,
    CloseParen,
    Dot,
    Comma,
    Ellipsis,
    Equal,
    Colon,
    Question,
    Bang,
    Minus,
    /// Any other operator.
    Operator,
    Newline,
    /// `#` or `//` up to and including the end of the line.
    LineComment,
    /// `/* */`.
    BlockComment,
    /// A character that is not part of the language.
    Other,
}

impl Kind {
    /// Returns the number of brackets that the token opens, negative if it closes them.
    pub(super) fn nesting(self) -> i32 {
        match self {
            Self::OpenBrace | Self::OpenBracket | Self::OpenParen | Self::OpenTemplate => 1,
            Self::CloseBrace | Self::CloseBracket | Self::CloseParen | Self::CloseTemplate => -1,
            _ => 0,
        }
    }

    /// Returns whether the token ends a line.
    pub(super) fn ends_line(self) -> bool {
        matches!(self, Self::Newline | Self::LineComment)
    }
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Code, with the number of open braces.
    Code(usize),
    Quoted,
    /// A heredoc, with the range of the line that ends it.
    Heredoc(usize, usize),
}

struct Lexer<'t> {
    text: &'t str,
    pos: usize,
    modes: Vec<Mode>,
    out: Vec<Token<'t>>,
}

/// Returns the tokens of a text, with no spaces before them.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { text, pos: 0, modes: vec![Mode::Code(0)], out: Vec::new() };
    if text.starts_with('\u{feff}') {
        lexer.push(Kind::Literal, '\u{feff}'.len_utf8());
    }
    while lexer.pos < text.len() {
        match lexer.modes.last().copied().unwrap_or(Mode::Code(0)) {
            Mode::Code(braces) => lexer.code(braces),
            Mode::Quoted => lexer.template(text.len(), true),
            Mode::Heredoc(to, after) if lexer.pos >= to => {
                lexer.push(Kind::CloseHeredoc, after - to);
                lexer.modes.pop();
            }
            Mode::Heredoc(to, _) => lexer.template(to, false),
        }
    }
    lexer.out
}

/// Returns the length of the identifier at the beginning of the text.
fn identifier(text: &str) -> usize {
    if text.starts_with(begins_name) { text.find(|c| !continues_name(c)).unwrap_or(text.len()) } else { 0 }
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.pos..]
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let length = length.min(self.text.len() - self.pos);
        self.out.push(Token { kind, text: &self.text[self.pos..self.pos + length], spaces: 0 });
        self.pos += length;
    }

    fn code(&mut self, braces: usize) {
        let rest = self.rest();
        let Some(c) = rest.chars().next() else { return };
        let nested = self.modes.len() > 1;
        match c {
            ' ' | '\t' => self.pos += 1,
            '\n' => self.push(Kind::Newline, 1),
            '\r' if rest.starts_with("\r\n") => self.push(Kind::Newline, 2),
            '\r' => self.pos += 1,
            '#' => self.push(Kind::LineComment, rest.find('\n').map_or(rest.len(), |i| i + 1)),
            '/' if rest.starts_with("//") => {
                self.push(Kind::LineComment, rest.find('\n').map_or(rest.len(), |i| i + 1));
            }
            '/' if rest.starts_with("/*") => {
                self.push(Kind::BlockComment, rest[2..].find("*/").map_or(rest.len(), |i| i + 4));
            }
            '"' => {
                self.push(Kind::OpenQuote, 1);
                self.modes.push(Mode::Quoted);
            }
            '<' if rest.starts_with("<<") => self.heredoc(),
            '~' if rest.starts_with("~}") && nested && braces == 0 => {
                self.push(Kind::CloseTemplate, 2);
                self.modes.pop();
            }
            '}' if nested && braces == 0 => {
                self.push(Kind::CloseTemplate, 1);
                self.modes.pop();
            }
            '{' => {
                self.push(Kind::OpenBrace, 1);
                self.braces(braces + 1);
            }
            '}' => {
                self.push(Kind::CloseBrace, 1);
                self.braces(braces.saturating_sub(1));
            }
            c if begins_name(c) => self.push(Kind::Ident, identifier(rest)),
            c if c.is_ascii_digit() => self.number(),
            _ => self.symbol(c),
        }
    }

    fn braces(&mut self, braces: usize) {
        if let Some(mode) = self.modes.last_mut() {
            *mode = Mode::Code(braces);
        }
    }

    fn number(&mut self) {
        let rest = self.rest().as_bytes();
        let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut length = digits(0);
        if rest.get(length) == Some(&b'.') && digits(length + 1) > 0 {
            length += 1 + digits(length + 1);
        }
        if matches!(rest.get(length), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(length + 1), Some(b'+' | b'-')));
            let exponent = digits((length + 1 + sign).min(rest.len()));
            if exponent > 0 {
                length += 1 + sign + exponent;
            }
        }
        self.push(Kind::Number, length);
    }

    fn symbol(&mut self, c: char) {
        let rest = self.rest();
        let two = ["==", "!=", "<=", ">=", "&&", "||", "=>", "::"];
        if rest.starts_with("...") {
            return self.push(Kind::Ellipsis, 3);
        }
        if two.iter().any(|operator| rest.starts_with(operator)) {
            return self.push(Kind::Operator, 2);
        }
        let kind = match c {
            '[' => Kind::OpenBracket,
            ']' => Kind::CloseBracket,
            '(' => Kind::OpenParen,
            ')' => Kind::CloseParen,
            '.' => Kind::Dot,
            ',' => Kind::Comma,
            '=' => Kind::Equal,
            ':' => Kind::Colon,
            '?' => Kind::Question,
            '!' => Kind::Bang,
            '-' => Kind::Minus,
            '+' | '*' | '/' | '%' | '<' | '>' | '&' | '|' => Kind::Operator,
            _ => Kind::Other,
        };
        self.push(kind, c.len_utf8());
    }

    /// Scans `<<MARK` or `<<-MARK`, or two operators if no marker follows.
    fn heredoc(&mut self) {
        let rest = self.rest();
        let from = 2 + usize::from(rest[2..].starts_with('-'));
        let marker = &rest[from..from + identifier(&rest[from..])];
        let head = from + marker.len();
        let line_end = if rest[head..].starts_with("\r\n") { 2 } else { 1 };
        if marker.is_empty() || !rest[head + line_end - 1..].starts_with('\n') {
            return self.push(Kind::Operator, 1);
        }
        let start = self.pos + head + line_end;
        let mut line = start;
        loop {
            let end = self.text[line..].find('\n').map_or(self.text.len(), |i| line + i);
            if self.text[line..end].trim() == marker {
                let after = if self.text[..end].ends_with('\r') { end - 1 } else { end };
                self.push(Kind::OpenHeredoc, head + line_end);
                self.modes.push(Mode::Heredoc(line, after));
                return;
            }
            if end >= self.text.len() {
                return self.push(Kind::Operator, 1);
            }
            line = end + 1;
        }
    }

    /// Scans a piece of a string or heredoc, up to `to`.
    fn template(&mut self, to: usize, quoted: bool) {
        let text = &self.text[..to];
        let rest = &text[self.pos..];
        if quoted && rest.starts_with('"') {
            self.push(Kind::CloseQuote, 1);
            self.modes.pop();
            return;
        }
        if rest.starts_with("${") || rest.starts_with("%{") {
            match runtime_reference(rest) {
                Some(length) => self.push(Kind::Literal, length),
                None => {
                    self.push(Kind::OpenTemplate, 2 + usize::from(rest[2..].starts_with('~')));
                    self.modes.push(Mode::Code(0));
                }
            }
            return;
        }
        let mut length = 0;
        let bytes = rest.as_bytes();
        while length < bytes.len() {
            let here = &rest[length..];
            match bytes[length] {
                b'"' if quoted => break,
                b'\\' if quoted => {
                    length += 1 + here[1..].chars().next().map_or(0, char::len_utf8);
                    continue;
                }
                b'$' | b'%' if here.starts_with("$${") || here.starts_with("%%{") => {
                    length += 3;
                    continue;
                }
                b'$' | b'%' if here.starts_with("${") || here.starts_with("%{") => break,
                _ => {}
            }
            length += here.chars().next().map_or(1, char::len_utf8);
        }
        self.push(Kind::Literal, length.max(1));
    }
}

/// Returns the length of `${ name.name }` if it is a run time reference. It evaluates to its own source text
/// including spaces (docs/reference/jobspec.md, section 2.5), so they must stay.
fn runtime_reference(text: &str) -> Option<usize> {
    let mut inner = text.strip_prefix("${")?.trim_start();
    let root = &inner[..identifier(inner)];
    if matches!(root, "" | "var" | "local" | "true" | "false" | "null" | "for") {
        return None;
    }
    inner = &inner[root.len()..];
    loop {
        inner = inner.trim_start();
        if let Some(rest) = inner.strip_prefix('}') {
            return Some(text.len() - rest.len());
        }
        if let Some(index) = inner.strip_prefix('[') {
            // A literal key. A more complex index is no plain reference.
            let (key, rest) = index.split_once(']')?;
            if key.contains(['$', '%', '\\', '[', '\n', '{']) {
                return None;
            }
            inner = rest;
            continue;
        }
        let step = inner.strip_prefix('.')?.trim_start();
        let length = step.find(|c| !continues_name(c)).unwrap_or(step.len());
        if length == 0 {
            return None;
        }
        inner = &step[length..];
    }
}
