//! Converts a YAML text to tokens (YAML 1.1, section 4; Nomad accepts the syntax of libyaml). Indentation delimits
//! blocks. Only the colon after it marks a key, so possible keys are remembered and their tokens inserted later.

use super::Result;
use super::cursor::{Cursor, is_allowed, is_blank_or_end, is_line_end, is_word};
use crate::parse::MAX_DEPTH;
use std::collections::VecDeque;

/// The maximum length of a key, in bytes.
const MAX_KEY: usize = 1024;

/// The notation of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
}

/// A YAML token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    End,
    Version(String),
    TagDirective(String, String),
    DocumentStart,
    DocumentEnd,
    BlockSequence,
    BlockMapping,
    BlockEnd,
    FlowSequence,
    FlowSequenceEnd,
    FlowMapping,
    FlowMappingEnd,
    FlowEntry,
    BlockEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    /// A tag's handle and suffix.
    Tag(String, String),
    Scalar(String, Style),
}

/// A position that becomes a key if a colon follows.
#[derive(Clone, Copy, Debug)]
struct PossibleKey {
    /// The index of its token, from the beginning of the text.
    token: usize,
    line: usize,
    index: usize,
    column: i64,
    /// Whether only a key is valid at this position.
    required: bool,
}

#[derive(Debug)]
pub(super) struct Scanner<'t> {
    pub(super) cursor: Cursor<'t>,
    /// The number of open brackets.
    pub(super) flow: usize,
    /// The column of the current block; -1 outside all blocks.
    pub(super) indent: i64,
    outer: Vec<i64>,
    /// Whether a key may begin here.
    pub(super) key_allowed: bool,
    /// The possible key of each open bracket, and of the surrounding block.
    keys: Vec<Option<PossibleKey>>,
    tokens: VecDeque<Token>,
    /// The number of tokens already returned.
    taken: usize,
    ended: bool,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Result<Self> {
        let out = Self {
            cursor: Cursor::new(text),
            flow: 0,
            indent: -1,
            outer: Vec::new(),
            key_allowed: true,
            keys: vec![None],
            tokens: VecDeque::new(),
            taken: 0,
            ended: false,
        };
        match text.chars().find(|c| !is_allowed(*c)) {
            Some(_) => Err("control characters are not allowed".to_owned()),
            None => Ok(out),
        }
    }

    pub(super) fn wrong<T>(&self, what: &str) -> Result<T> {
        Err(format!("on line {}, column {}: {what}", self.cursor.line + 1, self.cursor.column + 1))
    }

    /// Returns the next token without consuming it.
    pub(super) fn peek(&mut self) -> Result<&Token> {
        while !self.ended && (self.tokens.is_empty() || self.next_may_be_key()?) {
            self.fetch()?;
        }
        Ok(self.tokens.front().unwrap_or(&Token::End))
    }

    pub(super) fn take(&mut self) -> Result<Token> {
        self.peek()?;
        self.taken += 1;
        Ok(self.tokens.pop_front().unwrap_or(Token::End))
    }

    /// Returns whether the next queued token may still become a key.
    fn next_may_be_key(&mut self) -> Result<bool> {
        self.drop_stale_keys()?;
        Ok(self.keys.iter().flatten().any(|key| key.token == self.taken))
    }

    /// Drops possible keys that are on earlier lines or exceed the maximum length.
    fn drop_stale_keys(&mut self) -> Result<()> {
        for key in &mut self.keys {
            let Some(found) = key else { continue };
            if found.line < self.cursor.line || found.index + MAX_KEY < self.cursor.index() {
                if found.required {
                    return self.wrong("could not find expected ':'");
                }
                *key = None;
            }
        }
        Ok(())
    }

    fn push(&mut self, token: Token) {
        self.tokens.push_back(token);
    }

    /// Reads `width` characters as this token.
    fn mark(&mut self, width: usize, token: Token) {
        for _ in 0..width {
            self.cursor.next();
        }
        self.push(token);
    }

    fn column(&self) -> i64 {
        i64::try_from(self.cursor.column).unwrap_or(i64::MAX)
    }

    fn fetch(&mut self) -> Result<()> {
        self.skip_to_token();
        self.drop_stale_keys()?;
        self.unroll(self.column());
        let (next, blank_behind) = (self.cursor.peek(), is_blank_or_end(self.cursor.second()));
        let Some(c) = next else {
            self.unroll(-1);
            self.drop_key()?;
            self.ended = true;
            self.push(Token::End);
            return Ok(());
        };
        if self.cursor.column == 0 && c == '%' {
            self.leave_all()?;
            return self.directive();
        }
        if self.cursor.at_document_mark() {
            self.leave_all()?;
            self.mark(3, if c == '-' { Token::DocumentStart } else { Token::DocumentEnd });
            return Ok(());
        }
        match c {
            '[' => self.open(Token::FlowSequence),
            '{' => self.open(Token::FlowMapping),
            ']' => self.close(Token::FlowSequenceEnd),
            '}' => self.close(Token::FlowMappingEnd),
            ',' => {
                self.drop_key()?;
                self.key_allowed = true;
                self.mark(1, Token::FlowEntry);
                Ok(())
            }
            '-' if blank_behind => self.block_entry(),
            '?' if self.flow > 0 || blank_behind => self.key(),
            ':' if self.flow > 0 || blank_behind => self.value(),
            '*' | '&' => {
                self.save_key()?;
                self.key_allowed = false;
                self.anchor(c == '*')
            }
            '!' => {
                self.save_key()?;
                self.key_allowed = false;
                self.tag()
            }
            '|' | '>' if self.flow == 0 => {
                self.drop_key()?;
                self.key_allowed = true;
                let style = if c == '|' { Style::Literal } else { Style::Folded };
                let text = self.block_text(style)?;
                self.push(Token::Scalar(text, style));
                Ok(())
            }
            '\'' | '"' => {
                self.save_key()?;
                self.key_allowed = false;
                let style = if c == '"' { Style::Double } else { Style::Single };
                let text = self.quoted(style)?;
                self.push(Token::Scalar(text, style));
                Ok(())
            }
            c if begins_plain(c, self.cursor.second(), self.flow > 0) => {
                self.save_key()?;
                self.key_allowed = false;
                let text = self.plain()?;
                self.push(Token::Scalar(text, Style::Plain));
                Ok(())
            }
            _ => self.wrong("found character that cannot start any token"),
        }
    }

    /// Skips spaces, comments and line ends. Tabs count as spaces only where no key may begin.
    fn skip_to_token(&mut self) {
        loop {
            if self.cursor.column == 0 && self.cursor.peek() == Some('\u{feff}') {
                self.cursor.next();
            }
            while self.cursor.peek() == Some(' ')
                || self.cursor.peek() == Some('\t') && (self.flow > 0 || !self.key_allowed)
            {
                self.cursor.next();
            }
            if self.cursor.peek() == Some('#') {
                self.cursor.blanks_and_comment();
            }
            if !is_line_end(self.cursor.peek()) {
                return;
            }
            self.cursor.line_end();
            if self.flow == 0 {
                self.key_allowed = true;
            }
        }
    }

    /// Closes blocks with a larger indent than this column.
    fn unroll(&mut self, column: i64) {
        if self.flow > 0 {
            return;
        }
        while self.indent > column {
            self.push(Token::BlockEnd);
            self.indent = self.outer.pop().unwrap_or(-1);
        }
    }

    /// Opens a block if this column is further in than the current block. `before` is the index to insert its first
    /// token at.
    fn roll(&mut self, column: i64, before: Option<usize>, token: Token) -> Result<()> {
        if self.flow > 0 || self.indent >= column {
            return Ok(());
        }
        if self.outer.len() >= MAX_DEPTH {
            return self.wrong("nested too deeply");
        }
        self.outer.push(self.indent);
        self.indent = column;
        match before {
            Some(at) => self.tokens.insert(at - self.taken, token),
            None => self.push(token),
        }
        Ok(())
    }

    fn leave_all(&mut self) -> Result<()> {
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        Ok(())
    }

    fn save_key(&mut self) -> Result<()> {
        let required = self.flow == 0 && self.indent == self.column();
        if self.key_allowed {
            self.drop_key()?;
            let key = PossibleKey {
                token: self.taken + self.tokens.len(),
                line: self.cursor.line,
                index: self.cursor.index(),
                column: self.column(),
                required,
            };
            if let Some(last) = self.keys.last_mut() {
                *last = Some(key);
            }
        }
        Ok(())
    }

    fn drop_key(&mut self) -> Result<()> {
        match self.keys.last_mut().and_then(Option::take) {
            Some(key) if key.required => self.wrong("could not find expected ':'"),
            _ => Ok(()),
        }
    }

    fn open(&mut self, token: Token) -> Result<()> {
        self.save_key()?;
        if self.flow >= MAX_DEPTH {
            return self.wrong("nested too deeply");
        }
        self.keys.push(None);
        self.flow += 1;
        self.key_allowed = true;
        self.mark(1, token);
        Ok(())
    }

    fn close(&mut self, token: Token) -> Result<()> {
        self.drop_key()?;
        if self.flow > 0 {
            self.flow -= 1;
            self.keys.pop();
        }
        self.key_allowed = false;
        self.mark(1, token);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<()> {
        if self.flow == 0 {
            if !self.key_allowed {
                return self.wrong("block sequence entries are not allowed in this context");
            }
            self.roll(self.column(), None, Token::BlockSequence)?;
        }
        self.drop_key()?;
        self.key_allowed = true;
        self.mark(1, Token::BlockEntry);
        Ok(())
    }

    fn key(&mut self) -> Result<()> {
        if self.flow == 0 {
            if !self.key_allowed {
                return self.wrong("mapping keys are not allowed in this context");
            }
            self.roll(self.column(), None, Token::BlockMapping)?;
        }
        self.drop_key()?;
        self.key_allowed = self.flow == 0;
        self.mark(1, Token::Key);
        Ok(())
    }

    fn value(&mut self) -> Result<()> {
        if let Some(key) = self.keys.last_mut().and_then(Option::take) {
            // The token read earlier is the key.
            self.tokens.insert(key.token - self.taken, Token::Key);
            self.roll(key.column, Some(key.token), Token::BlockMapping)?;
            self.key_allowed = false;
        } else {
            if self.flow == 0 {
                if !self.key_allowed {
                    return self.wrong("mapping values are not allowed in this context");
                }
                self.roll(self.column(), None, Token::BlockMapping)?;
            }
            self.key_allowed = self.flow == 0;
        }
        self.mark(1, Token::Value);
        Ok(())
    }

    fn word(&mut self) -> String {
        let mut out = String::new();
        while let Some(c) = self.cursor.peek().filter(|c| is_word(*c)) {
            out.push(c);
            self.cursor.next();
        }
        out
    }

    fn anchor(&mut self, alias: bool) -> Result<()> {
        self.cursor.next();
        let name = self.word();
        let next = self.cursor.peek();
        let ends =
            is_blank_or_end(next) || matches!(next, Some('?' | ':' | ',' | ']' | '}' | '%' | '@' | '`'));
        if name.is_empty() || !ends {
            return self.wrong("did not find expected alphabetic or numeric character");
        }
        self.push(if alias { Token::Alias(name) } else { Token::Anchor(name) });
        Ok(())
    }

    fn tag(&mut self) -> Result<()> {
        let (handle, suffix) = if self.cursor.second() == Some('<') {
            self.cursor.next();
            self.cursor.next();
            let uri = self.uri("")?;
            if self.cursor.next() != Some('>') {
                return self.wrong("did not find the expected '>'");
            }
            (String::new(), uri)
        } else {
            self.cursor.next();
            let mut handle = format!("!{}", self.word());
            if self.cursor.peek() == Some('!') {
                self.cursor.next();
                handle.push('!');
                let suffix = self.uri("")?;
                (handle, suffix)
            } else {
                // The text is no handle but the beginning of the suffix.
                let suffix = self.uri(&handle)?;
                if suffix.is_empty() { (String::new(), "!".to_owned()) } else { ("!".to_owned(), suffix) }
            }
        };
        if !is_blank_or_end(self.cursor.peek()) {
            return self.wrong("did not find expected whitespace or line break");
        }
        self.push(Token::Tag(handle, suffix));
        Ok(())
    }

    /// Parses a part of a tag. `head` is the part that was read already, with `!` before it.
    fn uri(&mut self, head: &str) -> Result<String> {
        let mut out: Vec<u8> = head.strip_prefix('!').unwrap_or(head).as_bytes().to_vec();
        while let Some(c) = self.cursor.peek().filter(|c| is_word(*c) || ";/?:@&=+$.,%!~*'()[]".contains(*c))
        {
            self.cursor.next();
            if c != '%' {
                out.push(u8::try_from(c).unwrap_or_default());
                continue;
            }
            let digits = self.cursor.rest().get(..2).and_then(|d| u8::from_str_radix(d, 16).ok());
            let Some(byte) = digits else { return self.wrong("did not find URI escaped octet") };
            self.cursor.next();
            self.cursor.next();
            out.push(byte);
        }
        if out.is_empty() && head.is_empty() {
            return self.wrong("did not find expected tag URI");
        }
        String::from_utf8(out).or_else(|_| self.wrong("found an incorrect UTF-8 octet in a tag"))
    }

    fn directive(&mut self) -> Result<()> {
        self.cursor.next();
        let name = self.word();
        let blanks = |scanner: &mut Self| {
            while matches!(scanner.cursor.peek(), Some(' ' | '\t')) {
                scanner.cursor.next();
            }
        };
        if name.is_empty() || !is_blank_or_end(self.cursor.peek()) {
            return self.wrong("could not find expected directive name");
        }
        blanks(self);
        let mut words = Vec::new();
        for _ in 0..if name == "TAG" { 2 } else { 1 } {
            let mut word = String::new();
            while let Some(c) = self.cursor.peek().filter(|c| !is_blank_or_end(Some(*c))) {
                word.push(c);
                self.cursor.next();
            }
            words.push(word);
            blanks(self);
        }
        let token = match (name.as_str(), words.as_slice()) {
            ("YAML", [version]) if is_version(version) => Token::Version(version.clone()),
            ("YAML", _) => return self.wrong("did not find expected version number"),
            ("TAG", [handle, prefix]) if is_handle(handle) && !prefix.is_empty() => {
                Token::TagDirective(handle.clone(), prefix.clone())
            }
            ("TAG", _) => return self.wrong("did not find expected tag handle and prefix"),
            _ => return self.wrong("found unknown directive name"),
        };
        self.cursor.blanks_and_comment();
        if !is_line_end(self.cursor.peek()) && self.cursor.peek().is_some() {
            return self.wrong("did not find expected comment or line break");
        }
        self.cursor.line_end();
        self.push(token);
        Ok(())
    }
}

/// Returns whether a plain scalar may begin with these characters.
fn begins_plain(first: char, second: Option<char>, flow: bool) -> bool {
    let indicator = "-?:,[]{}#&*!|>'\"%@`".contains(first);
    let no_blank = !matches!(second, Some(' ' | '\t'));
    !is_blank_or_end(Some(first)) && !indicator
        || first == '-' && no_blank
        || !flow && matches!(first, '?' | ':') && !is_blank_or_end(second)
}

fn is_version(text: &str) -> bool {
    let number = |n: &str| (1..=9).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit());
    text.split_once('.').is_some_and(|(major, minor)| number(major) && number(minor))
}

fn is_handle(text: &str) -> bool {
    text == "!"
        || text.len() > 1
            && text.starts_with('!')
            && text.ends_with('!')
            && text[1..text.len() - 1].chars().all(is_word)
}
