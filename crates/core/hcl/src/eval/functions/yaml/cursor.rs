//! A cursor over the characters of a YAML text.

/// The remaining characters, with their line and column.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    pos: usize,
    pub line: usize,
    /// The column in characters, from 0.
    pub column: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { text, pos: 0, line: 0, column: 0 }
    }

    /// Returns the number of bytes read.
    pub(super) fn index(&self) -> usize {
        self.pos
    }

    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.pos..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Returns the character after the next one.
    pub(super) fn second(&self) -> Option<char> {
        self.rest().chars().nth(1)
    }

    pub(super) fn at(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    /// Reads one character that is not a line end.
    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        self.column += 1;
        Some(c)
    }

    /// Reads a line end and returns the normalized text for it.
    pub(super) fn line_end(&mut self) -> &'static str {
        let (width, meaning) = match self.peek() {
            Some('\r') if self.at("\r\n") => (2, "\n"),
            Some('\r' | '\n') => (1, "\n"),
            Some('\u{85}') => (2, "\n"),
            Some('\u{2028}') => (3, "\u{2028}"),
            Some('\u{2029}') => (3, "\u{2029}"),
            _ => return "",
        };
        self.pos += width;
        self.line += 1;
        self.column = 0;
        meaning
    }

    /// Returns whether a line with `---` or `...` begins here.
    pub(super) fn at_document_mark(&self) -> bool {
        self.column == 0
            && (self.at("---") || self.at("..."))
            && is_blank_or_end(self.rest()[3..].chars().next())
    }

    /// Skips spaces, and a comment after them.
    pub(super) fn blanks_and_comment(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.next();
        }
        if self.peek() == Some('#') {
            while !is_line_end(self.peek()) && self.peek().is_some() {
                self.next();
            }
        }
    }
}

pub(super) fn is_line_end(c: Option<char>) -> bool {
    matches!(c, Some('\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}'))
}

pub(super) fn is_blank(c: Option<char>) -> bool {
    matches!(c, Some(' ' | '\t'))
}

/// Returns whether the character is a space, a line end, or the end of the text.
pub(super) fn is_blank_or_end(c: Option<char>) -> bool {
    c.is_none() || is_blank(c) || is_line_end(c)
}

/// Returns whether the character is a letter, a digit, a dash or an underscore.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Returns whether a YAML text may contain the character.
pub(super) fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{85}' | ' '..='~' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}
