//! Parses YAML scalars: plain, quoted, and block scalars.

use super::Result;
use super::cursor::{is_blank, is_blank_or_end, is_line_end};
use super::scan::{Scanner, Style};

/// The line ends and spaces between two parts of a multi-line scalar.
#[derive(Default)]
struct Gap {
    blanks: String,
    /// The first line end, and the line ends of the empty lines after it.
    first: String,
    more: String,
    lines: bool,
}

impl Gap {
    /// Appends the folded gap: spaces unchanged, one line end as a space, several line ends without the first.
    fn fold(&mut self, out: &mut String) {
        if !self.lines {
            out.push_str(&self.blanks);
        } else if self.first != "\n" {
            out.push_str(&self.first);
            out.push_str(&self.more);
        } else if self.more.is_empty() {
            out.push(' ');
        } else {
            out.push_str(&self.more);
        }
        *self = Self::default();
    }
}

impl Scanner<'_> {
    /// Parses a plain scalar.
    pub(super) fn plain(&mut self) -> Result<String> {
        let mut out = String::new();
        let mut gap = Gap::default();
        let least = usize::try_from(self.indent + 1).unwrap_or_default();
        loop {
            if self.cursor.at_document_mark() || self.cursor.peek() == Some('#') {
                break;
            }
            while let Some(c) = self.cursor.peek().filter(|c| !is_blank_or_end(Some(*c))) {
                let ends = match c {
                    ':' => is_blank_or_end(self.cursor.second()),
                    ',' | '?' | '[' | ']' | '{' | '}' => self.flow > 0,
                    _ => false,
                };
                if ends {
                    break;
                }
                gap.fold(&mut out);
                out.push(c);
                self.cursor.next();
            }
            if !is_blank(self.cursor.peek()) && !is_line_end(self.cursor.peek()) {
                break;
            }
            self.gap(&mut gap, Some(least))?;
            if self.flow == 0 && self.cursor.column < least {
                break;
            }
        }
        if gap.lines {
            self.key_allowed = true;
        }
        Ok(out)
    }

    /// Reads spaces and line ends. A tab before the column `least` is an error.
    fn gap(&mut self, gap: &mut Gap, least: Option<usize>) -> Result<()> {
        loop {
            match self.cursor.peek() {
                Some(c @ (' ' | '\t')) => {
                    if c == '\t' && gap.lines && least.is_some_and(|least| self.cursor.column < least) {
                        return self.wrong("found a tab character that violates indentation");
                    }
                    if !gap.lines {
                        gap.blanks.push(c);
                    }
                    self.cursor.next();
                }
                c if is_line_end(c) => {
                    if gap.lines {
                        gap.more.push_str(self.cursor.line_end());
                    } else {
                        gap.blanks.clear();
                        gap.first.push_str(self.cursor.line_end());
                        gap.lines = true;
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Parses a quoted scalar. The cursor is at the opening quote.
    pub(super) fn quoted(&mut self, style: Style) -> Result<String> {
        let quote = if style == Style::Single { '\'' } else { '"' };
        self.cursor.next();
        let mut out = String::new();
        loop {
            if self.cursor.at_document_mark() {
                return self.wrong("found unexpected document indicator");
            }
            let mut gap = Gap::default();
            while let Some(c) = self.cursor.peek().filter(|c| !is_blank_or_end(Some(*c))) {
                match c {
                    '\'' if style == Style::Single && self.cursor.second() == Some('\'') => {
                        self.cursor.next();
                        self.cursor.next();
                        out.push('\'');
                    }
                    c if c == quote => break,
                    '\\' if style == Style::Double && is_line_end(self.cursor.second()) => {
                        // An escaped line end and the spaces after it are dropped.
                        self.cursor.next();
                        self.cursor.line_end();
                        gap.lines = true;
                        break;
                    }
                    '\\' if style == Style::Double => out.push(self.escape()?),
                    c => {
                        out.push(c);
                        self.cursor.next();
                    }
                }
            }
            match self.cursor.peek() {
                None => return self.wrong("found unexpected end of stream"),
                Some(c) if c == quote => {
                    self.cursor.next();
                    return Ok(out);
                }
                Some(_) => {}
            }
            let escaped = gap.lines;
            self.gap(&mut gap, None)?;
            if escaped {
                out.push_str(&gap.more);
            } else {
                gap.fold(&mut out);
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        self.cursor.next();
        let Some(selector) = self.cursor.next() else { return self.wrong("found unexpected end of stream") };
        let digits = match selector {
            '0' => return Ok('\0'),
            'a' => return Ok('\u{7}'),
            'b' => return Ok('\u{8}'),
            't' | '\t' => return Ok('\t'),
            'n' => return Ok('\n'),
            'v' => return Ok('\u{b}'),
            'f' => return Ok('\u{c}'),
            'r' => return Ok('\r'),
            'e' => return Ok('\u{1b}'),
            c @ (' ' | '"' | '\'' | '\\') => return Ok(c),
            'N' => return Ok('\u{85}'),
            '_' => return Ok('\u{a0}'),
            'L' => return Ok('\u{2028}'),
            'P' => return Ok('\u{2029}'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return self.wrong("found unknown escape character"),
        };
        let mut code = 0;
        for _ in 0..digits {
            let Some(digit) = self.cursor.peek().and_then(|c| c.to_digit(16)) else {
                return self.wrong("did not find expected hexdecimal number");
            };
            code = (code << 4) + digit;
            self.cursor.next();
        }
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => self.wrong("found invalid Unicode character escape code"),
        }
    }

    /// Parses a literal or folded block. The cursor is at its indicator.
    pub(super) fn block_text(&mut self, style: Style) -> Result<String> {
        self.cursor.next();
        let (keep, strip, supplied) = self.block_header()?;
        let outer = usize::try_from(self.indent).unwrap_or_default();
        let least = usize::try_from(self.indent + 1).unwrap_or_default().max(1);
        let mut column = supplied.map(|n| outer + n);
        let (mut out, mut first, mut more) = (String::new(), String::new(), String::new());
        self.empty_lines(&mut column, least, &mut more)?;
        let column = column.unwrap_or(least);
        let mut indented = false;
        while self.cursor.column == column && self.cursor.peek().is_some() {
            let more_indented = is_blank(self.cursor.peek());
            if style == Style::Folded && first == "\n" && !indented && !more_indented {
                if more.is_empty() {
                    out.push(' ');
                }
            } else {
                out.push_str(&first);
            }
            first.clear();
            out.push_str(&more);
            more.clear();
            indented = more_indented;
            while let Some(c) = self.cursor.peek().filter(|c| !is_line_end(Some(*c))) {
                out.push(c);
                self.cursor.next();
            }
            first.push_str(self.cursor.line_end());
            self.empty_lines(&mut Some(column), least, &mut more)?;
        }
        if !strip {
            out.push_str(&first);
        }
        if keep {
            out.push_str(&more);
        }
        Ok(out)
    }

    /// Parses the header of a block: whether to keep trailing empty lines, whether to strip the last line end, and
    /// the indent.
    fn block_header(&mut self) -> Result<(bool, bool, Option<usize>)> {
        let (mut keep, mut strip, mut indent) = (false, false, None);
        for _ in 0..2 {
            match self.cursor.peek() {
                Some('+') if !keep && !strip => keep = true,
                Some('-') if !keep && !strip => strip = true,
                Some('0') if indent.is_none() => {
                    return self.wrong("found an indentation indicator equal to 0");
                }
                Some(c @ '1'..='9') if indent.is_none() => indent = c.to_digit(10).map(|d| d as usize),
                _ => break,
            }
            self.cursor.next();
        }
        self.cursor.blanks_and_comment();
        if !is_line_end(self.cursor.peek()) && self.cursor.peek().is_some() {
            return self.wrong("did not find expected comment or line break");
        }
        self.cursor.line_end();
        Ok((keep, strip, indent))
    }

    /// Skips the indent of empty lines. Determines an unknown indent: the largest one up to and including the first
    /// line that is not empty.
    fn empty_lines(&mut self, column: &mut Option<usize>, least: usize, ends: &mut String) -> Result<()> {
        let mut furthest = 0;
        loop {
            while column.is_none_or(|column| self.cursor.column < column) && self.cursor.peek() == Some(' ') {
                self.cursor.next();
            }
            furthest = furthest.max(self.cursor.column);
            if column.is_none_or(|column| self.cursor.column < column) && self.cursor.peek() == Some('\t') {
                return self.wrong("found a tab character where an indentation space is expected");
            }
            if !is_line_end(self.cursor.peek()) {
                break;
            }
            ends.push_str(self.cursor.line_end());
        }
        column.get_or_insert(furthest.max(least));
        Ok(())
    }
}
